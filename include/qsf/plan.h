/* SPDX-License-Identifier: MIT
 *
 * The memory plan of an engine, or of a model that is not loaded. A part of qsf/qsf.h, which has
 * the conventions and includes it.
 */
#ifndef QSF_PLAN_H_
#define QSF_PLAN_H_

#ifndef QSF_QSF_H_
#error "include qsf/qsf.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Strings live as long as the plan. */
typedef struct qsf_plan_info {
  size_t struct_size;
  uint64_t budget_bytes;  /* planned for; 0: no limit is known */
  int budget_named;       /* true: set by qsf_config_set_ram_budget */
  uint64_t planned_bytes; /* of all regions; at most budget_bytes */
  int context;            /* positions */
  int rows_per_pass;      /* most prompt rows of a pass */
  int everything_resident;
  double resident_share;          /* of the weights that a pass multiplies, 0 to 1 */
  uint64_t weight_bytes;          /* of all weights in the form that kernels read */
  uint64_t pass_read_bytes;       /* read from the file for a generated token, with experts */
  double disk_bytes_per_second;   /* measured now or before; 0: not measured */
  double memory_bytes_per_second; /* measured by qsf_plan_create; else 0 */
  double tokens_per_second;       /* of generation, limited by both rates; 0: one is unknown */
  const char* reading_mode;       /* one line: where the weights are and how they are read */
  int sequences;                  /* sessions that may exist at once */
  int kv_pages;                   /* of the KV cache, for all sequences together */
  int kv_page_positions;          /* positions of a page */
  int max_row_delay; /* most passes in a row that prompts of others delay a generated token */
  int experts;       /* of a mixture of experts, in all layers; 0: the model has none */
  int experts_kept;  /* as many can be in memory at once */
  uint64_t expert_pass_bytes; /* in the file, of the experts that a token uses */
  /* Of these, the bytes that a token is expected to read: as measured on the text of the model's
   * calibration. Without one, as if all choices were equally likely, which is more than texts
   * need. */
  uint64_t expert_read_bytes;
} qsf_plan_info;

/* Plans a model without loading it, as qsf_engine_open would in this process now. Measures disk and
 * memory, which takes up to a second. `config` NULL: the defaults.
 * Returns  QSF_OK and a handle in *plan, to be freed with qsf_plan_free
 * Errors   as qsf_engine_open before it reads weights */
QSF_API qsf_code qsf_plan_create(const char* model_path, const QSFConfig* config, QSFPlan** plan,
                                 qsf_error* error);
QSF_API void qsf_plan_free(QSFPlan* plan);
/* The sizes behind QSF_OUT_OF_BUDGET of the last qsf_plan_create, qsf_engine_open or qsf_load on
 * this thread. Either pointer may be NULL. Since 0.2.
 * Returns  true, the smallest budget that works in *needed_bytes and the one that did not in
 *          *budget_bytes; false and 0 in both, when that call did not fail for its budget */
QSF_API int qsf_plan_get_refusal(uint64_t* needed_bytes, uint64_t* budget_bytes);
/* Returns  the plan of an engine; it belongs to the engine, never free it */
QSF_API const QSFPlan* qsf_engine_plan(const QSFEngine* engine);
QSF_API qsf_code qsf_plan_get_info(const QSFPlan* plan, qsf_plan_info* info, qsf_error* error);

/* One region of memory. Strings live as long as the plan or the engine. */
typedef struct qsf_memory_region {
  size_t struct_size;
  const char* name;
  const char* reason;
  uint64_t bytes;
} qsf_memory_region;
/* Returns  the number of regions; 0 for NULL */
QSF_API int qsf_plan_region_count(const QSFPlan* plan);
/* Fills *region with region `index`, 0 .. count - 1. */
QSF_API qsf_code qsf_plan_region(const QSFPlan* plan, int index, qsf_memory_region* region,
                                 qsf_error* error);
/* Returns  reduction 0, 1, ... made to fit the budget, in that order; NULL beyond the last */
QSF_API const char* qsf_plan_step(const QSFPlan* plan, int index);
/* The same two for the plan of an engine. */
QSF_API int qsf_engine_memory_region_count(const QSFEngine* engine)
    QSF_DEPRECATED("use qsf_plan_region_count with qsf_engine_plan");
QSF_API qsf_code qsf_engine_memory_region(const QSFEngine* engine, int index,
                                          qsf_memory_region* region, qsf_error* error)
    QSF_DEPRECATED("use qsf_plan_region with qsf_engine_plan");

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* QSF_PLAN_H_ */
