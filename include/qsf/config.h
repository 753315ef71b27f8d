/* SPDX-License-Identifier: MIT
 *
 * The configuration of an engine. A part of qsf/qsf.h, which has the conventions and includes it.
 */
#ifndef QSF_CONFIG_H_
#define QSF_CONFIG_H_

#ifndef QSF_QSF_H_
#error "include qsf/qsf.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Returns  a configuration with default values; free it with qsf_config_free. NULL without memory.
 *
 * Opening an engine copies the configuration, so one can open several engines. The setters ignore a
 * NULL configuration. A value out of range is reported when an engine is opened. */
QSF_API QSFConfig* qsf_config_default(void);
QSF_API void qsf_config_free(QSFConfig* config);

/* Limit of the memory of the whole process, in MB: its own pages, the memory that the kernel holds
 * for it, its executable, and everything allocated before the engine was opened. Weights that do
 * not fit are read from disk in every pass; results are the same with any budget. Reductions made
 * to fit the budget are logged as warnings. Too small a budget is QSF_OUT_OF_BUDGET; the error
 * names the smallest that works. With QSF_READ_MMAP the kernel decides which weights stay in
 * memory, and the process may use the whole budget.
 * Default  0: the memory that the machine and its control groups have free */
QSF_API void qsf_config_set_ram_budget(QSFConfig* config, size_t megabytes);
/* Worker threads, the calling one included.
 * Default  0: the physical cores available */
QSF_API void qsf_config_set_threads(QSFConfig* config, int num_threads);
/* Context length in positions. A length named here is kept or rejected. Lengths above the model's
 * trained context length are rejected, except with qsf_config_set_rope_reindex.
 * Default  0: the smaller of the trained length and 4,096. Where memory is short it shrinks to
 *          1,024 at least, with a warning. With QSF_KV_POLICY_WINDOW and QSF_KV_POLICY_H2O it is
 *          the trained length. With rope_reindex see there */
QSF_API void qsf_config_set_max_seq_len(QSFConfig* config, int max_seq_len);
/* Sequences that may exist at once, 1 to 256. A session and a chat take one each.
 * qsf_engine_generate, qsf_generate, qsf_engine_score, qsf_engine_embed and qsf_forward take one
 * during the call: add one to use them beside sessions.
 * Default  1 */
QSF_API void qsf_config_set_max_sessions(QSFConfig* config, int sessions);
/* Positions that the KV cache holds for all sequences together, in pages of 64. At least one whole
 * context. Where pages run out, a call that appends is QSF_OUT_OF_BUDGET, and generation ends with
 * QSF_STOP_CONTEXT_FULL.
 * Default  0: one whole context, and 1,024 for each sequence beside the first */
QSF_API void qsf_config_set_kv_positions(QSFConfig* config, int positions);

typedef enum qsf_log_level { QSF_LOG_INFO = 0, QSF_LOG_WARNING = 1 } qsf_log_level;
/* Receives one line without its newline. It is valid only during the call. */
typedef void (*QSFLogCallback)(qsf_log_level level, const char* line, void* user_data);
QSF_API void qsf_config_set_log_callback(QSFConfig* config, QSFLogCallback callback,
                                         void* user_data);
/* Receives the work done and the whole work, in bytes while a model loads. The two are equal in the
 * last call. */
typedef void (*QSFProgressCallback)(uint64_t done_bytes, uint64_t total_bytes, void* user_data);
QSF_API void qsf_config_set_progress_callback(QSFConfig* config, QSFProgressCallback callback,
                                              void* user_data);

typedef enum qsf_read_path {
  QSF_READ_AUTO = 0,
  QSF_READ_URING = 1, /* io_uring */
  QSF_READ_PREAD = 2, /* ordinary reads on several threads */
  QSF_READ_MMAP = 3   /* the file is mapped */
} qsf_read_path;
/* How weights are read from the file. A path that does not work here is replaced;
 * qsf_plan_info.reading_mode tells the one in use.
 * Default  QSF_READ_AUTO: the best that works */
QSF_API void qsf_config_set_io(QSFConfig* config, qsf_read_path path);
/* False: qsf_engine_open returns before the resident weights are read, and the first pass computes
 * while they arrive. Any pass may then report errors of the file.
 * Default  true */
QSF_API void qsf_config_set_preload(QSFConfig* config, int preload);
/* True: binds each thread to a physical core of its own, the thread that opens the engine included,
 * until the engine is freed. Use it on a machine that runs nothing else. Opening fails with
 * QSF_INVALID_ARGUMENT when the process may run on fewer cores than threads.
 * Default  false */
QSF_API void qsf_config_set_pin(QSFConfig* config, int pin);
/* Fewer reads of a mixture of experts, which change its results.
 *
 * experts  that a token takes, the best of its router; 0: the model's number
 * margin   a generated token takes an expert that is in memory in place of a missing one whose
 *          router score is larger by at most this, but always its two best. Results then depend on
 *          what earlier texts left in memory, and differ from run to run. 0: never
 *
 * Errors, when an engine is opened: QSF_INVALID_ARGUMENT: a number out of range, or experts of a
 * model without any; QSF_UNSUPPORTED: a router that chooses all of a token together.
 * Default  0, 0 */
QSF_API void qsf_config_set_experts(QSFConfig* config, int experts, float margin);
/* How further tokens of a generated text are guessed (drafted), so that one pass over the weights
 * may yield several. Every text is the same with and without, at any temperature.
 */
typedef enum qsf_speculation {
  QSF_SPECULATE_AUTO = 0, /* as QSF_SPECULATE_LOOKUP where that is possible, and by a draft model
                             where one is set, as many tokens as pay by what passes take here and
                             what was accepted; else off */
  QSF_SPECULATE_OFF = 1,
  QSF_SPECULATE_LOOKUP = 2, /* those that followed the same tokens earlier in the session */
  QSF_SPECULATE_DRAFT = 3 /* those of the draft model, or of look-up where more of its are right */
} qsf_speculation;
/* max_drafts  tokens that a pass may draft, of all sessions together, 1 to 64; 0: chosen by the
 *             engine, at most 15. The memory plan has the logits of so many
 *
 * Errors, when an engine is opened: QSF_INVALID_ARGUMENT: max_drafts out of range;
 * QSF_UNSUPPORTED: QSF_SPECULATE_LOOKUP with QSF_KV_POLICY_H2O, QSF_ATTENTION_H2O or a model that
 * has layers with a state, from which refused tokens cannot be taken back.
 * Default  QSF_SPECULATE_AUTO, 0 */
QSF_API void qsf_config_set_speculation(QSFConfig* config, qsf_speculation kind, int max_drafts);
/* path  a .qsf file of a smaller model with the same vocabulary, or of the model's own block for
 *       multi-token prediction (qsf convert --mtp), which drafts tokens. It stays in memory, within
 *       the same budget. With QSF_SPECULATE_AUTO it is left out, with a warning,
 *       where the model needs its memory more
 *
 * Errors, when an engine is opened: as those of the model's file, beginning with "draft model";
 * QSF_INVALID_ARGUMENT: another vocabulary, with the first token that differs; another kind than
 * QSF_SPECULATE_AUTO and QSF_SPECULATE_DRAFT, or that one without a path. The path is copied.
 * Default  NULL or "": none */
QSF_API void qsf_config_set_draft_model(QSFConfig* config, const char* path);

/* How generated tokens read the output head, in files with a sketch of it (`qsf convert
 * --head-sketch`) whose weights all stay in memory. */
typedef enum qsf_head {
  QSF_HEAD_FULL = 0,
  QSF_HEAD_CERTIFIED = 1,  /* only what may hold the best tokens, where a draw takes these alone:
                              greedy and with top-k, without penalties, biases, grammars, callbacks
                              or log probabilities. Every text is the same as with QSF_HEAD_FULL */
  QSF_HEAD_APPROXIMATE = 2 /* the most probable tokens by the sketch; a text may differ */
} qsf_head;
/* Errors, when an engine is opened: QSF_INVALID_ARGUMENT: another value; QSF_UNSUPPORTED:
 * QSF_HEAD_APPROXIMATE and the file has no sketch.
 * Default  QSF_HEAD_CERTIFIED */
QSF_API void qsf_config_set_head(QSFConfig* config, qsf_head head);
/* Most prompt rows of one pass; fewer where memory is short. Results do not depend on it.
 * Default  0: chosen by the engine */
QSF_API void qsf_config_set_rows_per_pass(QSFConfig* config, int rows);
/* True: products of quantised weights take 32-bit float activations. False: activations are
 * quantised to 8 bits with one scale per 64 values (16-bit floats for prompts on a matrix unit),
 * which is several times faster and changes the perplexity of a 4-bit model by less than 0.3 %.
 * Weights stored as floats always take floats.
 * Default  false */
QSF_API void qsf_config_set_exact(QSFConfig* config, int exact);
/* Trade of quality for speed: the share of the layers that tokens pass, above 0.0. The least
 * important ones are left out, neither read nor in memory; the first two and the last two never
 * are. Sessions saved with one quality load with no other. docs/fewer-layers.md has what it costs.
 *
 * Errors, when an engine is opened: QSF_INVALID_ARGUMENT: a quality out of range, or too small for
 * the model; or a file without the importance of its layers, which 'qsf convert --calibration'
 * stores. QSF_UNSUPPORTED: a model whose layers depend on each other.
 * Default  1.0: all layers */
QSF_API void qsf_config_set_quality(QSFConfig* config, float quality);

/* Quantised types have scales: QSF_KV_8BIT one per head and position, the others one per 32 values.
 */
typedef enum qsf_kv_type {
  QSF_KV_F16 = 0,
  QSF_KV_F32 = 1,
  QSF_KV_8BIT = 2, /* half the memory of QSF_KV_F16 */
  QSF_KV_4BIT = 3, /* 28 % of it */
  QSF_KV_2BIT = 4  /* 16 % of it */
} qsf_kv_type;
/* Type of the keys and values in the KV cache. Quality: docs/quality.md.
 * Default  QSF_KV_F16 */
QSF_API void qsf_config_set_kv_type(QSFConfig* config, qsf_kv_type type);
/* The same with separate types. Keys lose more quality than values. */
QSF_API void qsf_config_set_kv_types(QSFConfig* config, qsf_kv_type keys, qsf_kv_type values);

/* Which positions stay in the KV cache. */
typedef enum qsf_kv_policy {
  QSF_KV_POLICY_FULL = 0,   /* all */
  QSF_KV_POLICY_WINDOW = 1, /* the first ones (sinks) and the most recent ones (StreamingLLM) */
  QSF_KV_POLICY_H2O = 2     /* these, and the heavy hitters (H2O eviction, Zhang et al. 2023) */
} qsf_kv_policy;
/* Sets the policy of the KV cache. QSF_KV_POLICY_FULL ignores the three numbers.
 *
 * QSF_KV_POLICY_WINDOW  A token attends to the first `sinks` positions and to the last `window`
 *   (at least 1), its own included. Other positions are evicted for good, so the memory does not
 *   grow with the text. Positions keep their numbers: the context still limits the text. `heavy`
 *   is ignored. A session can be truncated only to a length whose next token finds all it attends
 *   to. A call that fails or is cancelled keeps its completed passes where they cannot be undone;
 *   see qsf_session_length.
 *
 * QSF_KV_POLICY_H2O  Each layer and KV head also keeps `heavy` positions before the window: those
 *   that received the most attention, and the `sinks` among them (heavy >= sinks). They are chosen
 *   again at every 64th position. A token attends to its own block of 64 positions, the `window`
 *   before the block, and the heavy hitters. A session can be truncated anywhere, and failed or
 *   cancelled calls leave no trace: evicted positions are computed again, up to the whole text,
 *   before the next one.
 *
 * Errors of opening  QSF_INVALID_ARGUMENT (numbers); QSF_UNSUPPORTED: QSF_KV_POLICY_H2O for models
 *                    whose layers have a window shorter than the context; any attention but
 *                    QSF_ATTENTION_FULL with any policy but QSF_KV_POLICY_FULL
 * Default            QSF_KV_POLICY_FULL */
QSF_API void qsf_config_set_kv_policy(QSFConfig* config, qsf_kv_policy policy, int window,
                                      int sinks, int heavy);
/* True, with QSF_KV_POLICY_WINDOW: texts may exceed the trained context length. Once positions are
 * evicted, the sinks are rotated to their cache position, right before the window (StreamingLLM):
 * no distance exceeds sinks + window, which must not exceed the trained length. The context then
 * limits memory alone: 260 bytes a position with one session, 67,108,864 positions at most;
 * unset, it is the trained length or 65,536, whichever is more.
 * Errors of opening  QSF_INVALID_ARGUMENT with another policy; QSF_UNSUPPORTED for models without
 *                    rotary positions
 * Default            false */
QSF_API void qsf_config_set_rope_reindex(QSFConfig* config, int rope_reindex);
/* Keeps the KV cache in a file; memory holds two layers of it. Every pass reads it from disk, layer
 * by layer ahead of the computation. Results are the same. The file is created at full size when
 * the engine opens, and its name is removed at once, so nothing is left behind. An existing file is
 * rejected, and so is a file on a memory file system (tmpfs) with a RAM budget. Without room on the
 * disk opening fails with QSF_IO; where the file system cannot reserve space a pass may fail
 * instead, changes nothing and can be repeated. The path is copied.
 * Default  NULL or "": the KV cache stays in memory */
QSF_API void qsf_config_set_kv_spill(QSFConfig* config, const char* path);

/* Attention of prompts; generated tokens attend to every position kept. 0 (none) is reserved and
 * QSF_UNSUPPORTED. */
typedef enum qsf_attention {
  QSF_ATTENTION_FULL = 1,      /* over all earlier positions */
  QSF_ATTENTION_CHUNKED = 2,   /* over the position's chunk, up to itself; since 0.2 */
  QSF_ATTENTION_SYMMETRIC = 3, /* over `local` positions to each side; 0: the whole prompt and all
                                * before it. A prompt is one pass; since 0.2 */
  QSF_ATTENTION_H2O = 4 /* sparse prefill: over the chunk and a memory set of earlier positions */
} qsf_attention;
/* Ranking of heavy hitters: attention received per query that could attend, or in total. */
typedef enum qsf_h2o_ranking { QSF_H2O_MEAN = 0, QSF_H2O_SUM = 1 } qsf_h2o_ranking;
/* Sparse prefill cuts a prompt at positions 0, chunk, 2 chunk ... A position attends to its chunk,
 * up to itself, and to local + heavy positions before the chunk: the last `local`, the first
 * `sinks` and the heaviest. */
typedef struct qsf_h2o_options {
  size_t struct_size;
  int local;
  int heavy; /* at least sinks */
  int chunk; /* more than local + heavy */
  int sinks;
  qsf_h2o_ranking ranking;
} qsf_h2o_options;
/* Sets struct_size and the defaults, in the order above: 256, 256, 1024, 4, QSF_H2O_SUM. */
QSF_API void qsf_h2o_options_init(qsf_h2o_options* options);
QSF_API void qsf_h2o_options_init_sized(qsf_h2o_options* options, size_t struct_size);
#define qsf_h2o_options_init(options) qsf_h2o_options_init_sized(options, sizeof(qsf_h2o_options))
/* Sets the attention of prompts. QSF_ATTENTION_H2O computes long prompts in less time and with less
 * quality. Prompts of one chunk give the same numbers. The KV cache keeps every position, and
 * generated tokens attend to all of them. `options` is copied; NULL takes the defaults;
 * QSF_ATTENTION_FULL ignores it. Memory sets cannot be undone position by position: after a
 * truncation, a failed or a cancelled call the next call may compute prompt rows again, up to all.
 * QSF_ATTENTION_CHUNKED reads `chunk` alone. QSF_ATTENTION_SYMMETRIC reads `local` alone, NULL is
 * 0 there; prompts of more tokens than rows per pass are QSF_OUT_OF_BUDGET, perplexities
 * QSF_UNSUPPORTED.
 * Errors of opening  QSF_UNSUPPORTED, not for QSF_ATTENTION_CHUNKED: models whose layers have a
 *                    window shorter than the context; models with ALiBi and symmetric attention
 * Default            QSF_ATTENTION_FULL */
QSF_API void qsf_config_set_attention(QSFConfig* config, qsf_attention attention,
                                      const qsf_h2o_options* options);

#ifdef __cplusplus
}
#endif

#endif /* QSF_CONFIG_H_ */
