/* SPDX-License-Identifier: MIT
 *
 * Hooks for research: callbacks that read what a layer computed, and one that ranks the positions
 * that H2O eviction keeps. A part of qsf/qsf.h, which has the conventions and includes it.
 */
#ifndef QSF_HOOKS_H_
#define QSF_HOOKS_H_

#ifndef QSF_QSF_H_
#error "include qsf/qsf.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A layer that a pass has computed. It is valid during the callback alone, on its thread; so is all
 * memory that these functions return, which must not be written to. */
typedef struct QSFLayer QSFLayer;

typedef struct qsf_layer_info {
  size_t struct_size;
  int layer; /* 0 .. n_layers - 1 */
  int n_layers;
  int n_rows; /* of the pass; those of a sequence lie behind each other */
  int hidden_size;
  int n_kv_heads; /* of keys and values of the layer's own; 0: it has none */
  int head_dim;
  qsf_kv_type k_type;
  qsf_kv_type v_type;
  uint64_t kv_bytes; /* of keys and values that the layer keeps for the sequences of the rows */
} qsf_layer_info;

/* A row of a pass. */
typedef struct qsf_layer_row {
  size_t struct_size;
  int token;
  int position;        /* in its text */
  int sequence;        /* 0 .. max_sessions - 1: the same for all rows of a session */
  int is_generated;    /* a token of the answer; else of a prompt */
  const float* hidden; /* [hidden_size]: the residual stream behind the layer */
} qsf_layer_row;

/* Called behind every layer of every pass. Anything but 0 cancels the call in progress, as
 * qsf_engine_cancel does. */
typedef int (*QSFLayerCallback)(const QSFLayer* layer, void* user_data);

/* Sets the layer callback. It slows passes down by what it does. There is no speculation with it,
 * so that all rows are those of texts.
 * Errors, when an engine is opened: QSF_UNSUPPORTED: a model with several residual streams, or
 * QSF_SPECULATE_LOOKUP or _DRAFT.
 * Default  NULL: none */
QSF_API void qsf_config_set_layer_callback(QSFConfig* config, QSFLayerCallback callback,
                                           void* user_data);

/* Fill `info` and `row`. Errors: QSF_INVALID_ARGUMENT: no such row */
QSF_API qsf_code qsf_layer_get_info(const QSFLayer* layer, qsf_layer_info* info, qsf_error* error);
QSF_API qsf_code qsf_layer_get_row(const QSFLayer* layer, int row, qsf_layer_row* info,
                                   qsf_error* error);

typedef enum qsf_kv_part { QSF_KEYS = 0, QSF_VALUES = 1 } qsf_kv_part;
/* Finds the stored keys or values of 64 positions of a row's sequence, `first_position` (a multiple
 * of 64) and those behind it, as the engine keeps them: keys [columns, 64], values [64, columns],
 * where QSF_KV_F16 and QSF_KV_F32 have head_dim columns of that type. src/quant/kv_type.h has the
 * other types, whose rows are rotated. Elements of later positions are undefined.
 *
 * Returns  QSF_OK; *block is NULL where they are not in memory: positions that are evicted or not
 *          yet computed, heavy hitters before the window, a KV cache in a file, or QSF_VALUES where
 *          keys are values (latent attention)
 * Errors   QSF_INVALID_ARGUMENT: a layer without keys and values of its own; a row, head or
 *          position out of range */
QSF_API qsf_code qsf_layer_get_kv_block(const QSFLayer* layer, int row, int kv_head,
                                        qsf_kv_part part, int first_position, const void** block,
                                        size_t* block_bytes, qsf_error* error);
/* Writes the attention that positions of a row's sequence received so far, summed over the queries
 * of a KV head; NaN for evicted positions.
 * Shapes  mass [n_positions]: of the first positions; NaN also behind the last
 * Errors  QSF_UNSUPPORTED without QSF_KV_POLICY_H2O, which alone keeps these sums: a window as long
 *         as the context evicts nothing; QSF_INVALID_ARGUMENT as above */
QSF_API qsf_code qsf_layer_get_attention(const QSFLayer* layer, int row, int kv_head, float* mass,
                                         size_t n_positions, qsf_error* error);

/* The positions that compete for the `heavy` slots of a KV head when a block of 64 positions ends
 * (QSF_KV_POLICY_H2O). Valid during the call. */
typedef struct qsf_kv_candidates {
  size_t struct_size;
  int layer; /* among those with keys and values of their own */
  int kv_head;
  size_t n;               /* candidates */
  size_t n_kept;          /* how many of them stay */
  int n_positions;        /* of the text so far: position p was seen by n_positions - p queries */
  const int* positions;   /* [n]: first those kept until now, then those that leave the window */
  const float* attention; /* [n]: received so far, summed over the queries of the head */
} qsf_kv_candidates;

/* Writes ranks [n], which hold the mean attention of each candidate. The largest stay; of equal
 * ones the smaller position, NaN last, and the first `sinks` positions whatever their rank. For the
 * same text in any passes the ranks must depend on the candidates alone.
 * Threads  those of the engine, at once for different heads */
typedef void (*QSFRankCallback)(const qsf_kv_candidates* candidates, float* ranks, void* user_data);
/* Sets what H2O eviction keeps. Session files do not record it.
 * Errors, when an engine is opened: QSF_INVALID_ARGUMENT: another policy than QSF_KV_POLICY_H2O.
 * Default  NULL: the mean attention */
QSF_API void qsf_config_set_rank_callback(QSFConfig* config, QSFRankCallback callback,
                                          void* user_data);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* QSF_HOOKS_H_ */
