/* SPDX-License-Identifier: MIT
 *
 * Sampling: the settings of a generation, and samplers that draw from logits of the caller. A part
 * of qsf/qsf.h, which has the conventions and includes it.
 */
#ifndef QSF_SAMPLING_H_
#define QSF_SAMPLING_H_

#ifndef QSF_QSF_H_
#error "include qsf/qsf.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qsf_logit_bias {
  int token;
  float bias; /* added to the token's logit; -INFINITY bans it; NaN and +INFINITY are rejected */
} qsf_logit_bias;

/* Changes the logits [n_logits] of one draw. Ids from n_logits on have no token.
 * Returns  0; anything else ends that generation alone, with QSF_INVALID_ARGUMENT */
typedef int (*QSFLogitsFilterCallback)(float* logits, size_t n_logits, void* user_data);
/* Clears the bits of tokens that must not be drawn: bit t % 32 of allowed[t / 32] for token t. All
 * are set before the call; one that has a finite logit must stay.
 * Shapes   allowed [n_words]
 * Returns  as QSFLogitsFilterCallback */
typedef int (*QSFMaskCallback)(uint32_t* allowed, size_t n_words, void* user_data);

/* Sampling. The steps run in this order: on_logits, on_mask, repetition, frequency and presence
 * penalty, DRY, logit bias, grammar, temperature, top-k, typical-p, top-p, min-p, XTC. */
typedef struct qsf_sampling {
  size_t struct_size;
  float temperature;    /* >= 0; 0 is greedy: the largest logit, of equal ones the smaller id */
  int top_k;            /* keep the k most likely; 0 keeps all */
  float top_p;          /* (0, 1]: nucleus sampling, cumulative probability kept; 1 keeps all */
  float min_p;          /* [0, 1]: drop tokens below this share of the best; 0 keeps all */
  float repeat_penalty; /* > 0; divides positive, multiplies negative logits of recent tokens */
  int repeat_window;    /* number of recent tokens that the three penalties apply to */
  uint64_t seed;        /* the same seed gives the same text */
  const qsf_logit_bias* logit_bias;
  size_t n_logit_bias;
  /* From here on: since 0.2. */
  float typical_p;         /* (0, 1]: locally typical sampling (Meister et al. 2022); 1 keeps all */
  float frequency_penalty; /* off the logit for each time that a token occurs in the window */
  float presence_penalty;  /* off the logit of every token in the window */
  float dry_multiplier;    /* >= 0; DRY: a token that would continue a repetition of `length` tokens
                              loses multiplier * base^(length - allowed_length); 0 is off */
  float dry_base;          /* >= 1 */
  int dry_allowed_length;  /* 1 to 1024; shorter repetitions cost nothing */
  int dry_window;          /* number of recent tokens that DRY looks at; -1: all */
  float xtc_probability;   /* [0, 1]; XTC: how often a draw drops the tokens of at least the
                              threshold, but for the least likely of them; 0 is off */
  float xtc_threshold;     /* [0, 1] */
  const char* const* dry_breakers; /* a repetition holds no token that contains one of these texts.
                                      NULL: "\n", ":", "\"" and "*". A text that no single token
                                      contains is QSF_INVALID_ARGUMENT */
  size_t n_dry_breakers;           /* entries of dry_breakers */
  QSFLogitsFilterCallback on_logits; /* or NULL; the first step of every draw */
  QSFMaskCallback on_mask;           /* or NULL */
  void* user_data;                   /* of both */
  QSFGrammar* grammar; /* or NULL: only tokens that go on with a text of this grammar are drawn. A
                          text that is complete and cannot go on ends as QSF_STOP_END_OF_TEXT. May
                          be freed while the generation runs */
  const char* grammar_trigger; /* the grammar holds from behind the first place where this text is
                                  generated; until then nothing is ruled out. NULL or "": from the
                                  beginning. Control tokens count as they are written */
} qsf_sampling;
/* Sets struct_size and the defaults, in the order above: 0.7, 40, 0.9, 0, 1, 64, seed 0, no bias;
 * 1, 0, 0, 0, 1.75, 2, -1, 0, 0.1, the breakers named there, no callback, no grammar. */
QSF_API void qsf_sampling_init(qsf_sampling* sampling);
QSF_API void qsf_sampling_init_sized(qsf_sampling* sampling, size_t struct_size);
#define qsf_sampling_init(sampling) qsf_sampling_init_sized(sampling, sizeof(qsf_sampling))

/* A sampler draws from logits of the caller, such as those of qsf_session_step, with the steps of a
 * generation. It remembers the tokens it was told of, for the penalties and DRY. One thread at a
 * time may use it; it needs no engine once it is made. It has 8 bytes for each token of the
 * vocabulary, which are not in the memory plan. `options` (NULL: the defaults) is copied.
 * Returns  QSF_OK and a handle in *sampler, to be freed with qsf_sampler_free
 * Errors   QSF_UNSUPPORTED: a grammar; use a QSFGrammarMatcher in on_mask */
QSF_API qsf_code qsf_sampler_create(QSFEngine* engine, const qsf_sampling* options,
                                    QSFSampler** sampler, qsf_error* error);
QSF_API void qsf_sampler_free(QSFSampler* sampler);
/* Draws a token from logits [n_vocab], which stay as they are. Does not accept it.
 * Errors  QSF_INVALID_ARGUMENT: a callback failed, or no logit is finite */
QSF_API qsf_code qsf_sampler_sample(QSFSampler* sampler, const float* logits, int* token,
                                    qsf_error* error);
/* Adds a token, of the prompt or drawn, to those that penalties and DRY look at. */
QSF_API qsf_code qsf_sampler_accept(QSFSampler* sampler, int token, qsf_error* error);
/* Drops the accepted tokens, and draws again as from the start; nothing for NULL. */
QSF_API void qsf_sampler_reset(QSFSampler* sampler);
/* Replaces the seed, and draws as from the start; accepted tokens stay. Nothing for NULL. */
QSF_API void qsf_sampler_set_seed(QSFSampler* sampler, uint64_t seed);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* QSF_SAMPLING_H_ */
