/* SPDX-License-Identifier: MIT
 *
 * What a program that serves many generations at once needs beside qsf_engine_step: admission,
 * bounds of a step, pages of the KV cache, and memory of its own in the budget. A part of
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

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* QSF_SERVING_H_ */
