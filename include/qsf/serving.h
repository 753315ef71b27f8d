/* SPDX-License-Identifier: MIT
 *
 * What a program that serves many generations at once needs beside qsf_engine_step: admission,
 * bounds of a step, parking, pages of the KV cache, and memory of its own in the budget. A part of
 * qsf/qsf.h, which has the conventions and includes it.
 */
#ifndef QSF_SERVING_H_
#define QSF_SERVING_H_

#ifndef QSF_QSF_H_
#error "include qsf/qsf.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Adds memory of the caller to the memory plan, so that the budget counts it: what the process
 * takes after the engine is opened, such as connections, queues and buffers of sockets. `name` and
 * `reason` (NULL: none) are copied, and shown in the plan. At most 64 regions and 2^50 bytes.
 * Errors of opening  QSF_INVALID_ARGUMENT: more than these, or no name */
QSF_API void qsf_config_add_memory(QSFConfig* config, const char* name, const char* reason,
                                   uint64_t bytes);

/* Admits a generation: its prompt is checked, and pages of the KV cache are reserved for it
 * (qsf_generate_options.reserve_tokens). qsf_engine_step does that for a member that was not
 * admitted, and ends it when pages are missing. Here it can be tried again.
 * Returns  QSF_OK: *admitted is true, also when it was admitted before; or false with too few pages
 *          free now, and nothing has changed
 * Errors   those that end the generation, as qsf_generation_get_result tells them:
 * QSF_OUT_OF_BUDGET for a prompt longer than the context. QSF_INVALID_ARGUMENT: it has ended before
 */
QSF_API qsf_code qsf_generation_admit(QSFGeneration* generation, int* admitted, qsf_error* error);

/* Begins the prompt of a generation with the rows that a session has of it, so that several texts
 * after one prompt compute it once: the first generation computes it, and the others, which are
 * admitted and have not been stepped, take it from that one's session. Rows of prompts are taken,
 * as far as the two begin alike, but never the last token of the prompt. The texts are those of
 * generations that compute the prompt. Needs no prefix cache.
 * Returns  QSF_OK and the tokens taken in *n_tokens, perhaps 0; also counted as cached_tokens
 * Errors   nothing has changed: QSF_INVALID_ARGUMENT: the generation was not admitted by
 *          qsf_generation_admit, its session was not empty, it was stepped or has ended; or `from`
 *          is its session, another engine's, or its rows are parked. QSF_UNSUPPORTED: KV policies
 *          but QSF_KV_POLICY_FULL, QSF_ATTENTION_H2O, QSF_ATTENTION_SYMMETRIC */
QSF_API qsf_code qsf_generation_take_prompt(QSFGeneration* generation, const QSFSession* from,
                                            int* n_tokens, qsf_error* error);

typedef struct qsf_step_options {
  size_t struct_size;
  int max_prompt_rows; /* most prompt rows of the pass; 0: no limit but rows_per_pass. With
                          QSF_ATTENTION_SYMMETRIC a whole prompt may have more */
} qsf_step_options;
/* Sets struct_size and the defaults: no limit. */
QSF_API void qsf_step_options_init(qsf_step_options* options);
QSF_API void qsf_step_options_init_sized(qsf_step_options* options, size_t struct_size);
#define qsf_step_options_init(options) \
  qsf_step_options_init_sized(options, sizeof(qsf_step_options))
/* qsf_engine_step with options; NULL takes the defaults. The pass has a row of every generating
 * member where its rows suffice. Prompts share what is left up to max_prompt_rows, at least one
 * row: the first in `members` before the others. */
QSF_API qsf_code qsf_engine_step_with(QSFEngine* engine, QSFGeneration* const* members,
                                      size_t n_members, const qsf_step_options* options,
                                      qsf_step_counts* counts, qsf_error* error);

/* Parks a generation between steps, within its prompt too: what the KV cache has of its session is
 * written to a file (docs/session-files.md), and its pages are given back. Steps leave it out until
 * it is resumed. Sampler, text held back and log probabilities stay in memory. `path` is a file of
 * its own, which an existing one gives way to. It is removed when the generation is resumed or has
 * ended; there is none before the first row. A parked generation that ends, also by
 * qsf_generation_free or qsf_session_cancel, leaves its session empty.
 * Errors  QSF_IO (the disk is full), QSF_CANCELLED (qsf_engine_cancel): the generation is as
 * before, and may be stepped on. QSF_INVALID_ARGUMENT: it has ended, or is parked */
QSF_API qsf_code qsf_generation_park(QSFGeneration* generation, const char* path, qsf_error* error);
/* Brings a parked generation back: reserves pages for what it may still generate, as admission
 * does, and reads the file. It goes on with the bits of never having been parked.
 * Returns  QSF_OK: *resumed is true; or false with too few pages free now, and nothing has changed
 * Errors   of a file that is missing, damaged or replaced (QSF_NOT_FOUND, QSF_CORRUPT, QSF_IO ...):
 *          they end this generation alone. QSF_CANCELLED (qsf_engine_cancel): it is parked as
 *          before. QSF_INVALID_ARGUMENT: it has ended, or is not parked */
QSF_API qsf_code qsf_generation_resume(QSFGeneration* generation, int* resumed, qsf_error* error);
/* Returns  true between the two; 0 for NULL */
QSF_API int qsf_generation_is_parked(const QSFGeneration* generation);

/* Pages of the KV cache. */
typedef struct qsf_kv_page_counts {
  size_t struct_size;
  int pages;
  int free_pages;
  int unreserved_pages; /* free, and reserved for no generation */
  int page_positions;   /* positions of a page */
} qsf_kv_page_counts;
QSF_API qsf_code qsf_engine_kv_pages(const QSFEngine* engine, qsf_kv_page_counts* counts,
                                     qsf_error* error);

/* Copies the bytes that a token adds to a text: perhaps a part of a character; of special tokens,
 * their names. The bytes of the tokens of a generation, in order, are its text.
 * Shapes   bytes [capacity], the first `capacity` of them, without a NUL; NULL with capacity 0
 * Returns  QSF_OK and their whole number in *n_bytes
 * Threads  any, at any time, also during other calls with the engine
 * Errors   QSF_UNSUPPORTED: the model has no tokenizer */
QSF_API qsf_code qsf_engine_get_token_bytes(const QSFEngine* engine, int token, char* bytes,
                                            size_t capacity, size_t* n_bytes, qsf_error* error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* QSF_SERVING_H_ */
