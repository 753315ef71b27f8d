/* SPDX-License-Identifier: MIT
 *
 * Samplers of the C API, and the steps of sampling that structs of 0.2 set.
 *
 *   capi_sampler_test [MODEL.qsf]      without a model: the refusals alone
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "capi/testing/capi_check.h"
#include "capi/testing/capi_engine.h"
#include "qsf/qsf.h"

#define N_TOKENS 24
static const char kPrompt[] = "Once upon a time";

typedef struct Tokens {
  int ids[256];
  int n;
} Tokens;

static void on_token(int token, const char* text, void* user_data) {
  Tokens* tokens = user_data;
  (void)text;
  if (tokens->n < N_TOKENS) tokens->ids[tokens->n++] = token;
}

/* What the callbacks of sampling do and saw. */
typedef struct Steering {
  int n_logits_calls, n_mask_calls;
  int allowed; /* the only token of the mask; -1: all */
  int raised;  /* the token that the logits callback makes likely; -1: none */
  int logits_code, mask_code;
} Steering;

static int on_logits(float* logits, size_t n_logits, void* user_data) {
  Steering* steering = user_data;
  ++steering->n_logits_calls;
  if (steering->raised >= 0 && (size_t)steering->raised < n_logits) {
    logits[steering->raised] = 1e6f;
  }
  return steering->logits_code;
}

static int on_mask(uint32_t* allowed, size_t n_words, void* user_data) {
  Steering* steering = user_data;
  ++steering->n_mask_calls;
  if (steering->allowed >= 0) {
    memset(allowed, 0, n_words * sizeof *allowed);
    allowed[steering->allowed / 32] |= 1u << (steering->allowed % 32);
  }
  return steering->mask_code;
}

static void test_nulls(void) {
  qsf_error error;
  QSFSampler* sampler = (QSFSampler*)&error; /* anything that is not NULL */
  float logit = 0.0f;
  int token = 0;
  CHECK(qsf_sampler_create(NULL, NULL, &sampler, &error) == QSF_INVALID_ARGUMENT);
  CHECK(sampler == NULL && strstr(error.message, "engine") != NULL);
  CHECK(qsf_sampler_create(NULL, NULL, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_sampler_sample(NULL, &logit, &token, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_sampler_accept(NULL, 0, &error) == QSF_INVALID_ARGUMENT);
  qsf_sampler_reset(NULL);
  qsf_sampler_set_seed(NULL, 1);
  qsf_sampler_free(NULL);
}

static qsf_code generate(QSFEngine* engine, const qsf_sampling* sampling, Tokens* tokens,
                         qsf_error* error) {
  qsf_generate_options options;
  qsf_generate_options_init(&options);
  options.prompt = kPrompt;
  options.prompt_bytes = strlen(kPrompt);
  options.max_tokens = N_TOKENS;
  options.sampling = sampling;
  options.on_token = on_token;
  options.user_data = tokens;
  tokens->n = 0;
  return qsf_engine_generate(engine, &options, NULL, error);
}

/* Generates with a sampler, row by row. */
static void step_by_step(QSFEngine* engine, QSFSampler* sampler, float* logits, Tokens* tokens) {
  QSFSession* session = NULL;
  size_t n_prompt = 0;
  static int prompt[64];
  CHECK(qsf_session_create(engine, &session, NULL) == QSF_OK);
  CHECK(qsf_engine_tokenize(engine, kPrompt, strlen(kPrompt), QSF_TOKENIZE_DEFAULT, prompt, 64,
                            &n_prompt, NULL) == QSF_OK);
  for (size_t i = 0; i < n_prompt; ++i) {
    CHECK(qsf_sampler_accept(sampler, prompt[i], NULL) == QSF_OK);
  }
  CHECK(qsf_session_prefill(session, prompt, n_prompt, logits, NULL) == QSF_OK);
  for (tokens->n = 0; tokens->n < N_TOKENS;) {
    int token = -1;
    CHECK(qsf_sampler_sample(sampler, logits, &token, NULL) == QSF_OK);
    CHECK(qsf_sampler_accept(sampler, token, NULL) == QSF_OK);
    tokens->ids[tokens->n++] = token;
    CHECK(qsf_session_step(session, token, logits, NULL) == QSF_OK);
  }
  qsf_session_free(session);
}

static int same(const Tokens* a, const Tokens* b) {
  return a->n == b->n && memcmp(a->ids, b->ids, (size_t)a->n * sizeof a->ids[0]) == 0;
}

/* Every step is on. The end-of-text token is banned, so that both go on to the last token. */
static void set_all(qsf_sampling* sampling, const qsf_logit_bias* bias) {
  qsf_sampling_init(sampling);
  sampling->temperature = 1.3f;
  sampling->top_k = 0;
  sampling->top_p = 0.97f;
  sampling->min_p = 0.001f;
  sampling->typical_p = 0.95f;
  sampling->repeat_penalty = 1.1f;
  sampling->frequency_penalty = 0.2f;
  sampling->presence_penalty = 0.1f;
  sampling->dry_multiplier = 0.8f;
  sampling->xtc_probability = 0.5f;
  sampling->seed = 11;
  sampling->logit_bias = bias;
  sampling->n_logit_bias = 1;
}

static void test_same_as_generation(QSFEngine* engine, float* logits, int eos) {
  static Tokens whole, steps, again;
  const qsf_logit_bias ban = {.token = eos, .bias = -INFINITY};
  qsf_sampling sampling;
  qsf_error error;
  set_all(&sampling, &ban);
  CHECK(generate(engine, &sampling, &whole, &error) == QSF_OK);
  CHECK(whole.n == N_TOKENS);
  QSFSampler* sampler = NULL;
  CHECK(qsf_sampler_create(engine, &sampling, &sampler, &error) == QSF_OK);
  step_by_step(engine, sampler, logits, &steps);
  CHECK(same(&whole, &steps));
  qsf_sampler_reset(sampler);
  step_by_step(engine, sampler, logits, &again);
  CHECK(same(&whole, &again));
  qsf_sampler_reset(sampler);
  qsf_sampler_set_seed(sampler, 12);
  step_by_step(engine, sampler, logits, &again);
  CHECK(!same(&whole, &again));
  qsf_sampler_free(sampler);
}

/* Each new step, alone, changes a text that is long enough to repeat itself. */
static void test_each_step_counts(QSFEngine* engine, int eos) {
  static Tokens plain, changed;
  const qsf_logit_bias ban = {.token = eos, .bias = -INFINITY};
  qsf_sampling base;
  qsf_sampling_init(&base);
  base.top_k = 0;
  base.top_p = 1.0f;
  base.temperature = 1.0f;
  base.logit_bias = &ban;
  base.n_logit_bias = 1;
  CHECK(generate(engine, &base, &plain, NULL) == QSF_OK);
  for (int step = 0; step < 5; ++step) {
    qsf_sampling sampling = base;
    if (step == 0) sampling.typical_p = 0.2f;
    if (step == 1) sampling.frequency_penalty = 5.0f;
    if (step == 2) sampling.presence_penalty = 5.0f;
    if (step == 3) {
      sampling.dry_multiplier = 50.0f;
      sampling.dry_allowed_length = 1;
      sampling.temperature = 0.01f;
    }
    if (step == 4) sampling.xtc_probability = 1.0f;
    CHECK(generate(engine, &sampling, &changed, NULL) == QSF_OK);
    CHECK(!same(&plain, &changed));
  }
}

/* Where every token is a breaker, DRY does nothing. */
static void test_breakers(QSFEngine* engine) {
  static Tokens without, with, broken;
  static const char* const kLetters[] = {"a", "e", "i", "o", "u", "y", "s", "t", "n", "r",  "d",
                                         "l", "h", "w", "m", "c", "f", "g", "p", "b", "k",  "v",
                                         "x", "j", "q", "z", ".", ",", "'", "!", "?", "\"", "\n"};
  qsf_sampling sampling;
  qsf_sampling_init(&sampling);
  sampling.temperature = 0.0f;
  CHECK(generate(engine, &sampling, &without, NULL) == QSF_OK);
  sampling.dry_multiplier = 50.0f;
  sampling.dry_allowed_length = 1;
  CHECK(generate(engine, &sampling, &with, NULL) == QSF_OK);
  CHECK(!same(&without, &with));
  sampling.dry_breakers = kLetters;
  sampling.n_dry_breakers = sizeof kLetters / sizeof kLetters[0];
  CHECK(generate(engine, &sampling, &broken, NULL) == QSF_OK);
  CHECK(same(&without, &broken));
}

static void test_callbacks(QSFEngine* engine) {
  static Tokens tokens;
  qsf_error error;
  Steering steering = {.allowed = 100, .raised = 50};
  qsf_sampling sampling;
  qsf_sampling_init(&sampling);
  sampling.on_mask = on_mask;
  sampling.user_data = &steering;
  CHECK(generate(engine, &sampling, &tokens, &error) == QSF_OK);
  CHECK(tokens.n == N_TOKENS && tokens.ids[0] == 100 && tokens.ids[N_TOKENS - 1] == 100);
  CHECK(steering.n_mask_calls == N_TOKENS && steering.n_logits_calls == 0);
  sampling.on_logits = on_logits;
  steering.allowed = -1;
  CHECK(generate(engine, &sampling, &tokens, &error) == QSF_OK);
  CHECK(tokens.ids[0] == 50 && tokens.ids[N_TOKENS - 1] == 50);
  CHECK(steering.n_logits_calls == N_TOKENS);
  steering.mask_code = 3;
  CHECK(generate(engine, &sampling, &tokens, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "mask callback: returned 3") != NULL && tokens.n == 0);
  steering.logits_code = 4;
  CHECK(generate(engine, &sampling, &tokens, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "logits callback: returned 4") != NULL);
  steering.logits_code = steering.mask_code = 0;
  CHECK(generate(engine, &sampling, &tokens, &error) == QSF_OK);
}

static void test_refusals(QSFEngine* engine, float* logits, int n_vocab) {
  qsf_error error;
  QSFSampler* sampler = NULL;
  qsf_sampling sampling;
  qsf_sampling_init(&sampling);
  sampling.typical_p = 0.0f;
  CHECK(qsf_sampler_create(engine, &sampling, &sampler, &error) == QSF_INVALID_ARGUMENT);
  CHECK(sampler == NULL && strstr(error.message, "typical_p") != NULL);
  sampling.typical_p = 1.0f;
  sampling.dry_multiplier = 1.0f;
  sampling.dry_allowed_length = 0;
  CHECK(qsf_sampler_create(engine, &sampling, &sampler, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "dry_allowed_length") != NULL);
  sampling.dry_allowed_length = 2;
  sampling.dry_window = -2;
  CHECK(qsf_sampler_create(engine, &sampling, &sampler, &error) == QSF_INVALID_ARGUMENT);
  sampling.dry_window = -1;
  const char* breakers[] = {"longer than any token of this model"};
  sampling.dry_breakers = breakers;
  sampling.n_dry_breakers = 1;
  CHECK(qsf_sampler_create(engine, &sampling, &sampler, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "longer than any") != NULL);
  sampling.dry_breakers = NULL;
  CHECK(qsf_sampler_create(engine, &sampling, &sampler, &error) == QSF_INVALID_ARGUMENT);
  sampling.n_dry_breakers = 0;

  CHECK(qsf_sampler_create(engine, &sampling, &sampler, &error) == QSF_OK);
  int token = -1;
  CHECK(qsf_sampler_accept(sampler, n_vocab, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_sampler_accept(sampler, -1, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_sampler_sample(sampler, NULL, &token, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_sampler_sample(sampler, logits, NULL, &error) == QSF_INVALID_ARGUMENT);
  for (int i = 0; i < n_vocab; ++i) logits[i] = NAN;
  CHECK(qsf_sampler_sample(sampler, logits, &token, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "finite") != NULL);
  logits[7] = 1.0f;
  CHECK(qsf_sampler_sample(sampler, logits, &token, &error) == QSF_OK && token == 7);
  CHECK(isnan(logits[6]) && logits[7] == 1.0f);
  qsf_sampler_free(sampler);
}

static void test_model(const char* path) {
  QSFEngine* engine = open_small_engine(path);
  if (engine == NULL) return;
  qsf_model_info info = {.struct_size = sizeof info};
  CHECK(qsf_engine_model_info(engine, &info, NULL) == QSF_OK);
  float* logits = malloc((size_t)info.n_vocab * sizeof *logits);
  test_same_as_generation(engine, logits, info.eos_token);
  test_each_step_counts(engine, info.eos_token);
  test_breakers(engine);
  test_callbacks(engine);
  test_refusals(engine, logits, info.n_vocab);
  free(logits);
  qsf_free(engine);
}

int main(int argc, char** argv) {
  test_nulls();
  if (argc > 1) test_model(argv[1]);
  fprintf(stderr, "%d checks, %d failed\n", n_checks, n_failures);
  return n_failures == 0 ? 0 : 1;
}
