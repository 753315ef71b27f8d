/* SPDX-License-Identifier: MIT
 *
 * QSF: run a language model in the memory you give it. The whole public interface, plain C11.
 *
 * Conventions
 *   Handles     QSFConfig, QSFEngine, QSFSession, QSFChat and QSFPlan are opaque. Every handle that
 *               is handed out is yours to free with the function its comment names; NULL is
 *               accepted there.
 *   Errors      Functions return a qsf_code. Details go into a caller-owned qsf_error, always the
 *               last parameter, which may be NULL. No function prints, exits or sets errno as its
 *               way of reporting, except qsf_print_stats, whose job is to print.
 *   Text        UTF-8 in and out. Text given to the library may hold any bytes; text handed out is
 *               always valid UTF-8 and NUL-terminated, so a NUL character that a model generates
 *               is handed out as U+FFFD.
 *   Threads     An engine may be used by one thread at a time, with its sessions and chats; only
 *               qsf_engine_cancel may be called from any thread and from a signal handler.
 *               Different engines are independent. Callbacks run on the thread of the call, the
 *               log callback perhaps on another; none of them may call into the engine they come
 *               from, qsf_engine_cancel excepted.
 *   Structs     Structs that begin with struct_size can grow: set it to sizeof of the struct you
 *               were compiled with (the *_init functions do). A struct that is read must have a
 *               size this library knows: a smaller one is QSF_INVALID_ARGUMENT, a larger one, from
 *               a newer header, QSF_UNSUPPORTED. A struct that is filled is filled up to its
 *               struct_size, which is then set to the bytes filled.
 *   Tokens      Token ids are int, 0 .. n_vocab - 1.
 */
#ifndef QSF_QSF_H_
#define QSF_QSF_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define QSF_API __attribute__((visibility("default")))
#else
#define QSF_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct QSFEngine QSFEngine;
typedef struct QSFConfig QSFConfig;
typedef struct QSFSession QSFSession;
typedef struct QSFChat QSFChat;
typedef struct QSFPlan QSFPlan;

typedef enum qsf_code {
  QSF_OK = 0,
  QSF_INVALID_ARGUMENT = 1, /* a value out of range, a NULL where none is allowed */
  QSF_NOT_FOUND = 2,        /* no such file */
  QSF_CORRUPT = 3,          /* the file's bytes are damaged or contradict each other */
  QSF_UNSUPPORTED = 4,      /* a valid request that this version cannot serve */
  QSF_OUT_OF_BUDGET = 5,    /* does not fit the memory or the context */
  QSF_IO = 6,               /* the operating system refused a read or a write */
  QSF_CANCELLED = 7,        /* qsf_engine_cancel was called */
  QSF_INTERNAL = 8          /* a bug of this library, or no memory for a small allocation */
} qsf_code;

/* Filled on failure; on success the code is QSF_OK and the message empty. The message is one line:
 * where, what is wrong, got and expected, what to do. Longer messages are cut at a character. */
typedef struct qsf_error {
  qsf_code code;
  char message[256];
} qsf_error;

/* Returns the version of the library, such as "0.1.0". Static; never free it. */
QSF_API const char* qsf_version(void);

typedef enum qsf_log_level { QSF_LOG_INFO = 0, QSF_LOG_WARNING = 1 } qsf_log_level;

/* 8, 4 and 2 bits are codes with scales: for each row of a head in 8 bits, for 32 values in fewer.
 */
typedef enum qsf_kv_type {
  QSF_KV_F16 = 0,
  QSF_KV_F32 = 1,
  QSF_KV_8BIT = 2,
  QSF_KV_4BIT = 3,
  QSF_KV_2BIT = 4
} qsf_kv_type;

/* How the attention of a prompt is computed. 0, 2 and 3 stand for none, attention within chunks and
 * attention over a window to both sides, which are refused with QSF_UNSUPPORTED. */
typedef enum qsf_attention {
  QSF_ATTENTION_FULL = 1, /* over every position before */
  QSF_ATTENTION_H2O = 4   /* over the chunk and a memory set of earlier positions */
} qsf_attention;

/* What heavy positions are ranked by: the attention they were paid, or that divided by the number
 * of positions that could have paid it. */
typedef enum qsf_h2o_ranking { QSF_H2O_MEAN = 0, QSF_H2O_SUM = 1 } qsf_h2o_ranking;

/* A prompt is cut at the positions 0, chunk, 2 chunk ... A position attends to those of its chunk
 * up to itself and to local + heavy of those before the chunk: the last `local`, the first `sinks`
 * and the heaviest. */
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

/* Which positions' keys and values are kept. */
typedef enum qsf_kv_policy {
  QSF_KV_POLICY_FULL = 0,   /* all, up to the context */
  QSF_KV_POLICY_WINDOW = 1, /* the first ones, called sinks, and the last ones */
  QSF_KV_POLICY_H2O = 2     /* those and the ones that most attention was paid to */
} qsf_kv_policy;

typedef enum qsf_read_path {
  QSF_READ_AUTO = 0,
  QSF_READ_URING = 1, /* io_uring */
  QSF_READ_PREAD = 2, /* several threads of ordinary reads */
  QSF_READ_MMAP = 3   /* the file is mapped */
} qsf_read_path;

/* Receives one line without its newline, valid only during the call. */
typedef void (*QSFLogCallback)(qsf_log_level level, const char* line, void* user_data);

/* Receives the error of the functions that have no qsf_error of their own (qsf_load, qsf_generate,
 * qsf_tokenize, qsf_detokenize, qsf_forward). Valid only during the call. */
typedef void (*QSFErrorCallback)(const qsf_error* error, void* user_data);

/* Called while a model loads with the bytes done and in all, which are equal in the last call. */
typedef void (*QSFProgressCallback)(uint64_t done_bytes, uint64_t total_bytes, void* user_data);

/* Returns a configuration with default values, to be freed with qsf_config_free; NULL when there is
 * no memory for it. One configuration may open several engines; opening copies what it needs. The
 * setters ignore a NULL configuration; a value out of range is reported when an engine is opened.
 */
QSF_API QSFConfig* qsf_config_default(void);
/* Upper bound of the process's memory in MB (10^6 bytes): of everything the process holds and the
 * kernel holds for it, the program's own pages and what was allocated before the engine included.
 * Weights that do not fit are read from the disk in every pass; results are the same with any
 * budget. What had to be given up is logged as a warning; a budget that is too small fails with
 * QSF_OUT_OF_BUDGET, naming one that is not. 0, the default, takes what the machine and its control
 * groups have to spare. With QSF_READ_MMAP the kernel decides which weights stay in memory: the
 * process is not killed within the budget, but may come up to it. */
QSF_API void qsf_config_set_ram_budget(QSFConfig* config, size_t megabytes);
/* How weights are read from the file. QSF_READ_AUTO, the default, takes the best that works here;
 * another that does not work is replaced, and qsf_plan_info.reading_mode says so. */
QSF_API void qsf_config_set_io(QSFConfig* config, qsf_read_path path);
/* 0: opening returns before the weights that stay in memory are read, and the first pass computes
 * the first layers while the last ones arrive; errors of the file may then come from any pass. Not
 * 0, the default: opening reads them. */
QSF_API void qsf_config_set_preload(QSFConfig* config, int preload);
/* Worker threads, the calling one included; 0, the default, takes the physical cores at hand. */
QSF_API void qsf_config_set_threads(QSFConfig* config, int num_threads);
/* Positions of the context; 0, the default, takes the smaller of the model's trained length and
 * 4,096, or less, down to 1,024, where memory is short, with a warning; with QSF_KV_POLICY_WINDOW
 * or _H2O all of the trained length. A number of positions is kept or refused; more than the
 * trained length is refused but with qsf_config_set_rope_reindex, which tells its own default. */
QSF_API void qsf_config_set_max_seq_len(QSFConfig* config, int max_seq_len);
/* Trade of quality for speed in 0.0 .. 1.0; 1.0, the default, is full quality. Layer skipping is
 * not built yet: any other value makes opening an engine fail with QSF_UNSUPPORTED. */
QSF_API void qsf_config_set_quality(QSFConfig* config, float quality);
/* How keys and values are stored; the default is QSF_KV_F16. QSF_KV_8BIT halves their memory,
 * QSF_KV_4BIT takes 28 % of it and QSF_KV_2BIT 16 %, at a price that docs/quality.md has. */
QSF_API void qsf_config_set_kv_type(QSFConfig* config, qsf_kv_type type);
/* The same with a type of its own for keys, which suffer most, and for values. */
QSF_API void qsf_config_set_kv_types(QSFConfig* config, qsf_kv_type keys, qsf_kv_type values);
/* How prompts attend; the default is QSF_ATTENTION_FULL. QSF_ATTENTION_H2O computes long prompts in
 * less time, at a price in quality: prompts of one chunk give the same numbers, keys and values of
 * every position are kept either way, and generated tokens attend to all of them. The options are
 * copied; NULL takes the defaults, and they are not read with QSF_ATTENTION_FULL. Models some of
 * whose layers see a window shorter than the context are refused with QSF_UNSUPPORTED. Memory sets
 * cannot be taken back position by position: after a session was truncated, or a call failed or was
 * cancelled, the next one may first compute rows of the prompt again, up to all of them. */
QSF_API void qsf_config_set_attention(QSFConfig* config, qsf_attention attention,
                                      const qsf_h2o_options* options);
/* Which positions' keys and values are kept; the default is QSF_KV_POLICY_FULL, which leaves the
 * three numbers unused. With QSF_KV_POLICY_WINDOW a token sees the first `sinks` positions and the
 * last `window` up to itself, and what lies between is forgotten for good: keys and values take the
 * same memory however long the text is, and results depend neither on the rows of a pass nor on
 * threads. Positions keep their numbers, so the context still bounds a text. A session can then be
 * truncated only to where all that the next token sees is held, and a call that fails or is
 * cancelled keeps the passes that it completed where it must; qsf_session_length tells. `window` is
 * at least 1, and `heavy` is not used.
 *
 * With QSF_KV_POLICY_H2O keys and values of `heavy` positions before the window are kept as well,
 * for each layer and KV head those that most attention was paid to, the `sinks` among them: `heavy`
 * below `sinks` is refused with QSF_INVALID_ARGUMENT. They are chosen anew at every 64th position,
 * and a token sees the last `window` before the 64 that it is one of. A position that was dropped
 * does not come back, but a session can be truncated anywhere: the rows that are missing, up to all
 * of them, are computed again as prompt rows before the next one. So are those that a failed or
 * cancelled call took along, which leaves no trace. Models some of whose layers see a window
 * shorter than the context make opening fail with QSF_UNSUPPORTED, and so does QSF_ATTENTION_H2O
 * together with any policy but QSF_KV_POLICY_FULL. */
QSF_API void qsf_config_set_kv_policy(QSFConfig* config, qsf_kv_policy policy, int window,
                                      int sinks, int heavy);
/* Not 0, with QSF_KV_POLICY_WINDOW: texts go on past the trained length. Once the window has left
 * the sinks, a token meets them as if they stood right before the window, so that no distance is
 * longer than sinks + window, which is to be at most the trained length; before that nothing
 * changes. The context is then a bound of memory alone, 260 bytes a position with one session: 0
 * takes the trained length, or 65,536 where that is less, and up to 67,108,864 can be asked for.
 * Opening fails with QSF_INVALID_ARGUMENT with another policy, and with QSF_UNSUPPORTED for models
 * without rotary positions. The default is 0. */
QSF_API void qsf_config_set_rope_reindex(QSFConfig* config, int rope_reindex);
/* Keeps keys and values in a file, of which memory holds two layers: a context that memory has no
 * room for is then read from the disk with every pass, layer by layer ahead of the computing, and
 * results are the same. The file is made when an engine is opened, with its whole space, and its
 * name is removed at once: nothing is left however the process ends. A file of that name that
 * exists already is refused, and so is one on a file system in memory (tmpfs) together with a
 * budget. Without room on the disk opening fails with QSF_IO; on a file system that cannot set
 * space aside a pass may, which changes nothing and may be tried again. NULL or "", the default:
 * keys and values stay in memory. The string is copied. */
QSF_API void qsf_config_set_kv_spill(QSFConfig* config, const char* path);
/* Not 0: products of weights stored in few bits take the rows of activations as 32-bit floats. The
 * default, 0, rounds them to 8 bits with a scale for every 64 values (16-bit floats for prompts
 * where a matrix unit takes those), which is several times faster and moves the perplexity of a
 * 4-bit model by less than 0.3 %. Weights stored as floats take floats either way. */
QSF_API void qsf_config_set_exact(QSFConfig* config, int exact);
/* Not 0: each thread is bound to a physical core of its own, the thread that opens the engine
 * included, until it frees the engine. Opening fails with QSF_INVALID_ARGUMENT when the process may
 * run on fewer cores than there are threads. Good on a machine that does nothing else, bad on one
 * that does; the default is 0. */
QSF_API void qsf_config_set_pin(QSFConfig* config, int pin);
/* Rows of a prompt that one pass carries through the layers at most; 0, the default, lets the
 * engine choose. Where memory is short there are fewer. The numbers computed do not depend on it.
 */
QSF_API void qsf_config_set_rows_per_pass(QSFConfig* config, int rows);
/* Sequences that may exist at once, 1 to 64; the default is 1. Each costs keys and values for the
 * whole context, planned when the engine opens. qsf_engine_generate, qsf_generate, qsf_engine_score
 * and qsf_forward use one for the time of their call: with sessions of your own beside them, add
 * one. A chat is a session.
 */
QSF_API void qsf_config_set_max_sessions(QSFConfig* config, int sessions);
QSF_API void qsf_config_set_log_callback(QSFConfig* config, QSFLogCallback callback,
                                         void* user_data);
QSF_API void qsf_config_set_error_callback(QSFConfig* config, QSFErrorCallback callback,
                                           void* user_data);
QSF_API void qsf_config_set_progress_callback(QSFConfig* config, QSFProgressCallback callback,
                                              void* user_data);
QSF_API void qsf_config_free(QSFConfig* config);

/* Opens a .qsf model. `config` may be NULL for the defaults. On success *engine is a handle to be
 * freed with qsf_free; on failure it is NULL. */
QSF_API qsf_code qsf_engine_open(const char* model_path, const QSFConfig* config,
                                 QSFEngine** engine, qsf_error* error);
/* The same, reporting through the configuration's error callback; NULL on failure. The callback of
 * the configuration is also the one that qsf_generate, qsf_tokenize, qsf_detokenize and qsf_forward
 * report to as long as the engine lives. */
QSF_API QSFEngine* qsf_load(const char* model_path, QSFConfig* config);
/* Frees an engine. Its sessions and chats must have been freed before. */
QSF_API void qsf_free(QSFEngine* engine);

/* Asks the call in progress on this engine (open excepted) to stop: it returns QSF_CANCELLED within
 * about the time of one weight tile; qsf_engine_generate returns QSF_OK and QSF_STOP_CANCELLED.
 * Without a call in progress the next one that computes is cancelled. Safe from any thread and from
 * a signal handler. */
QSF_API void qsf_engine_cancel(QSFEngine* engine);

/* What a model is. Strings live as long as the engine. */
typedef struct qsf_model_info {
  size_t struct_size;
  const char* architecture;  /* "llama", "gpt2", ... */
  const char* quant_type;    /* "4bit", "f16", "mixed", ... */
  const char* chat_template; /* Jinja source as stored in the model, or NULL */
  int n_layers;
  int n_vocab;
  int hidden_size;
  int trained_context; /* positions the model was trained for */
  int context;         /* positions this engine was opened with */
  int bos_token;       /* -1 where the model has none */
  int eos_token;       /* the first end-of-text id, -1 where the model has none */
  uint64_t n_parameters;
  uint64_t file_bytes;
  int n_kv_heads; /* heads of keys and values in a layer */
} qsf_model_info;
QSF_API qsf_code qsf_engine_model_info(const QSFEngine* engine, qsf_model_info* info,
                                       qsf_error* error);

/* One region of the memory plan. Strings live as long as the engine. */
typedef struct qsf_memory_region {
  size_t struct_size;
  const char* name;
  const char* reason;
  uint64_t bytes;
} qsf_memory_region;
/* Returns how many regions there are; 0 for NULL. */
QSF_API int qsf_engine_memory_region_count(const QSFEngine* engine);
/* Fills region number `index`, 0 .. count - 1. */
QSF_API qsf_code qsf_engine_memory_region(const QSFEngine* engine, int index,
                                          qsf_memory_region* region, qsf_error* error);

/* The plan of an engine: every region of memory it takes and what follows from that. */
typedef struct qsf_plan_info {
  size_t struct_size;
  uint64_t budget_bytes;  /* planned for; 0: no bound is known */
  int budget_named;       /* not 0: by qsf_config_set_ram_budget */
  uint64_t planned_bytes; /* of all regions; never above budget_bytes */
  int context;            /* positions */
  int rows_per_pass;      /* rows of a prompt that one pass carries */
  int everything_resident;
  double resident_share;          /* of the weights that a pass multiplies, 0 to 1 */
  uint64_t weight_bytes;          /* of all weights as kernels read them */
  uint64_t pass_read_bytes;       /* read from the file by a pass that computes logits */
  double disk_bytes_per_second;   /* as measured, or remembered; 0: nobody asked the disk */
  double memory_bytes_per_second; /* measured by qsf_plan_create alone; else 0 */
  double tokens_per_second;       /* of generation, what both rates allow; 0: one is unknown */
  const char* reading_mode;       /* one line: where the weights are and how they are read */
} qsf_plan_info;
/* Plans a model without loading it: what qsf_engine_open would do now in this process. Measures
 * disk and memory, which takes up to a second. `config` may be NULL. On success *plan is a handle
 * to be freed with qsf_plan_free. Fails as qsf_engine_open does before it reads weights. */
QSF_API qsf_code qsf_plan_create(const char* model_path, const QSFConfig* config, QSFPlan** plan,
                                 qsf_error* error);
QSF_API void qsf_plan_free(QSFPlan* plan);
/* Returns the plan that an engine was opened with. It belongs to the engine: never free it. */
QSF_API const QSFPlan* qsf_engine_plan(const QSFEngine* engine);
/* Strings live as long as the plan. */
QSF_API qsf_code qsf_plan_get_info(const QSFPlan* plan, qsf_plan_info* info, qsf_error* error);
/* Returns how many regions there are; 0 for NULL. */
QSF_API int qsf_plan_region_count(const QSFPlan* plan);
/* Fills region number `index`, 0 .. count - 1. */
QSF_API qsf_code qsf_plan_region(const QSFPlan* plan, int index, qsf_memory_region* region,
                                 qsf_error* error);
/* Returns, for index 0, 1, ..., what was given up to fit the budget, in that order, and NULL beyond
 * the last. */
QSF_API const char* qsf_plan_step(const QSFPlan* plan, int index);

/* What an engine has done since it was opened. Times in nanoseconds. */
typedef struct qsf_engine_stats {
  size_t struct_size;
  int n_threads;
  const char* instruction_set; /* kernels in use: "scalar", "avx2", ... */
  uint64_t load_ns;
  uint64_t weight_bytes_read; /* from the file */
  uint64_t prompt_tokens;
  uint64_t prompt_ns;
  uint64_t generated_tokens;
  uint64_t generate_ns;
  uint64_t matmul_ns, attention_ns, other_ns; /* parts of the two times above */
  uint64_t sample_ns;                         /* choosing tokens: comes on top of them */
  uint64_t planned_bytes;                     /* the memory plan's total */
  uint64_t resident_bytes;                    /* of the process, now */
  uint64_t peak_resident_bytes;               /* of the process, so far */
  uint64_t read_wait_ns;                      /* waiting for the disk: a part of the times above */
  uint64_t read_ns;                           /* with at least one read in flight */
  uint64_t unpack_ns;     /* decompressing and arranging weights, on the threads that read */
  uint64_t prompt_passes; /* that computed rows of prompts; each reads weights that do not stay */
} qsf_engine_stats;
QSF_API qsf_code qsf_engine_get_stats(const QSFEngine* engine, qsf_engine_stats* stats,
                                      qsf_error* error);
/* Prints the memory plan and the statistics to stderr; nothing for NULL. */
QSF_API void qsf_print_stats(QSFEngine* engine);

typedef enum qsf_tokenize_flags {
  QSF_TOKENIZE_DEFAULT = 0,      /* beginning-of-text as the model wants it, control text is text */
  QSF_TOKENIZE_NO_BOS = 1,       /* never a beginning-of-text token */
  QSF_TOKENIZE_PARSE_SPECIAL = 2 /* control tokens spelled in the text become those tokens */
} qsf_tokenize_flags;

/* Encodes `text_bytes` bytes of text. Writes at most `capacity` ids to `tokens` and the number the
 * text needs to *n_tokens; QSF_OUT_OF_BUDGET when that is more. `tokens` may be NULL with a
 * capacity of 0 to ask for the number, which is QSF_OK. */
QSF_API qsf_code qsf_engine_tokenize(QSFEngine* engine, const char* text, size_t text_bytes,
                                     unsigned flags, int* tokens, size_t capacity, size_t* n_tokens,
                                     qsf_error* error);
/* Decodes tokens into *text, to be freed with qsf_string_free. Bytes that are no UTF-8 become
 * U+FFFD; control tokens are left out. */
QSF_API qsf_code qsf_engine_detokenize(QSFEngine* engine, const int* tokens, size_t n_tokens,
                                       char** text, qsf_error* error);
/* Returns the ids of `text` and their number, to be freed with qsf_tokens_free; NULL on failure. */
QSF_API int* qsf_tokenize(QSFEngine* engine, const char* text, int* num_tokens);
/* Returns the text of tokens, to be freed with qsf_string_free; NULL on failure. */
QSF_API char* qsf_detokenize(QSFEngine* engine, const int* tokens, int num_tokens);
QSF_API void qsf_tokens_free(int* tokens);
QSF_API void qsf_string_free(char* text);

/* Receives each generated token once, in order, with the text that became complete with it: whole
 * UTF-8 characters, possibly none, since the end of a character or what may be the beginning of a
 * stop text is held back. What is still held back after the last token follows with that token's id
 * again, in further calls that are made only when there is such text: count tokens by
 * qsf_generate_result, not by calls. The text is valid only during the call. */
typedef void (*QSFTokenCallback)(int token_id, const char* text, void* user_data);

typedef struct qsf_logit_bias {
  int token;
  float bias; /* added to the token's logit; -INFINITY bans the token; NaN and +INFINITY are refused
               */
} qsf_logit_bias;

/* How the next token is chosen, in this order: repetition penalty, logit bias, temperature, top-k,
 * top-p, min-p. */
typedef struct qsf_sampling {
  size_t struct_size;
  float temperature;    /* >= 0; 0 is greedy: the largest logit, ties to the smaller id */
  int top_k;            /* keep the k most likely; 0 keeps all */
  float top_p;          /* in (0, 1]: keep the smallest set with this probability; 1 keeps all */
  float min_p;          /* in [0, 1]: drop tokens below this share of the best; 0 keeps all */
  float repeat_penalty; /* > 0; divides positive and multiplies negative logits of seen tokens */
  int repeat_window;    /* how many of the newest tokens count as seen */
  uint64_t seed;        /* the same seed gives the same text */
  const qsf_logit_bias* logit_bias;
  size_t n_logit_bias;
} qsf_sampling;
/* Sets struct_size and the defaults, in the order above: 0.7, 40, 0.9, 0, 1, 64, seed 0, no bias.
 */
QSF_API void qsf_sampling_init(qsf_sampling* sampling);

typedef enum qsf_stop_reason {
  QSF_STOP_MAX_TOKENS = 0,
  QSF_STOP_END_OF_TEXT = 1,
  QSF_STOP_STRING = 2,
  QSF_STOP_CONTEXT_FULL = 3,
  QSF_STOP_CANCELLED = 4
} qsf_stop_reason;

typedef struct qsf_generate_options {
  size_t struct_size;
  const char* prompt;
  size_t prompt_bytes;
  unsigned tokenize_flags;      /* qsf_tokenize_flags */
  int max_tokens;               /* >= 0; 0 computes the prompt alone */
  const qsf_sampling* sampling; /* NULL: the defaults of qsf_sampling_init */
  const char* const*
      stop; /* generation ends before the one of these texts that is complete first */
  size_t n_stop;
  QSFTokenCallback on_token; /* may be NULL */
  void* user_data;
  int echo_prompt; /* not 0: once computed, the prompt's own tokens go to on_token as well */
  QSFProgressCallback on_prompt; /* called while the prompt is computed, or NULL; parts of the work
                                    done and in all, with user_data */
} qsf_generate_options;
/* Sets struct_size and the defaults: no prompt, 256 tokens, default sampling, no stop texts. */
QSF_API void qsf_generate_options_init(qsf_generate_options* options);

typedef struct qsf_generate_result {
  size_t struct_size;
  qsf_stop_reason reason;
  int prompt_tokens;
  int generated_tokens;
  uint64_t prompt_ns;      /* until the prompt was computed */
  uint64_t first_token_ns; /* from the call to the first token */
  uint64_t generate_ns;    /* from the first token to the last */
} qsf_generate_result;

/* Completes a prompt from an empty context. A prompt longer than the context is QSF_OUT_OF_BUDGET
 * before anything is computed; one of no tokens (empty text, and a model without a
 * beginning-of-text token) QSF_INVALID_ARGUMENT. Cancellation is no failure: QSF_OK with
 * QSF_STOP_CANCELLED; the text so far was delivered. `result` may be NULL. */
QSF_API qsf_code qsf_engine_generate(QSFEngine* engine, const qsf_generate_options* options,
                                     qsf_generate_result* result, qsf_error* error);
/* The short form: seed 0, the other settings as qsf_generate_options_init. */
QSF_API void qsf_generate(QSFEngine* engine, const char* prompt, int max_tokens, float temperature,
                          float top_p, QSFTokenCallback callback, void* user_data);

/* Computes `tokens` from an empty context and returns the n_vocab logits after the last one. They
 * belong to the engine and stay valid until its next call; NULL on failure. */
QSF_API float* qsf_forward(QSFEngine* engine, const int* tokens, int num_tokens);
/* Draws a token from logits, with top_k 0 and min_p 0; the generator is seeded with 0 when the
 * process starts and not safe for several threads. Returns -1 when vocab_size < 1, logits is NULL
 * or a parameter is out of range. */
QSF_API int qsf_sample(const float* logits, int vocab_size, float temperature, float top_p);

/* Log probabilities (natural) of tokens[first] .. tokens[n - 1], each given all before it, computed
 * from an empty context as one window. log_probs has n - first places. 0 < first < n; an n above
 * the context is QSF_OUT_OF_BUDGET, numbers that are not finite QSF_CORRUPT. */
QSF_API qsf_code qsf_engine_score(QSFEngine* engine, const int* tokens, size_t n_tokens,
                                  size_t first, double* log_probs, qsf_error* error);

/* A session is one sequence whose context is kept between calls. On success *session is a handle to
 * be freed with qsf_session_free before its engine; QSF_OUT_OF_BUDGET when the engine has as many
 * as qsf_config_set_max_sessions allows. */
QSF_API qsf_code qsf_session_create(QSFEngine* engine, QSFSession** session, qsf_error* error);
QSF_API void qsf_session_free(QSFSession* session);
/* Appends tokens as prompt rows. With `logits` (n_vocab places, or NULL) the logits after the last.
 * On failure the session is as before. */
QSF_API qsf_code qsf_session_prefill(QSFSession* session, const int* tokens, size_t n_tokens,
                                     float* logits, qsf_error* error);
/* Receives the logits of tokens first_token .. first_token + n_logits - 1 after row `row` of a
 * call, counted from 0. Valid only during the call. */
typedef void (*QSFLogitsCallback)(size_t row, int first_token, const float* logits, size_t n_logits,
                                  void* user_data);
/* Appends tokens as prompt rows and hands out the logits after each of them, in blocks of the
 * vocabulary, so that they are never stored whole. The blocks of one row come in ascending order;
 * those of several rows may alternate. On failure the session is as before, or as
 * qsf_config_set_kv_policy tells. */
QSF_API qsf_code qsf_session_prefill_logits(QSFSession* session, const int* tokens, size_t n_tokens,
                                            QSFLogitsCallback on_logits, void* user_data,
                                            qsf_error* error);
/* Appends one token as a generated row. */
QSF_API qsf_code qsf_session_step(QSFSession* session, int token, float* logits, qsf_error* error);
/* Completes a prompt after what the session holds, as qsf_engine_generate does from an empty
 * context. In a session that holds something no beginning-of-text token comes before the prompt,
 * and one of no bytes goes on where the text is. The session keeps the prompt and what was
 * generated, a stop text included; the last token counts in its length when something follows. On
 * failure, and when it was cancelled in the prompt, the session is as before,
 * or as qsf_config_set_kv_policy tells. */
QSF_API qsf_code qsf_session_generate(QSFSession* session, const qsf_generate_options* options,
                                      qsf_generate_result* result, qsf_error* error);
/* Forgets all but the first n_tokens tokens; more than there are is QSF_INVALID_ARGUMENT, and so is
 * with QSF_KV_POLICY_WINDOW a number that positions already forgotten would be needed for; 0 always
 * works. */
QSF_API qsf_code qsf_session_truncate(QSFSession* session, size_t n_tokens, qsf_error* error);
/* Returns the number of tokens in the context; 0 for NULL. */
QSF_API size_t qsf_session_length(const QSFSession* session);
/* Tells which positions a prompt token would see that was appended now, itself aside, in a layer
 * with the query heads of a KV head: what the policy has kept or, under QSF_ATTENTION_H2O, those of
 * the open chunk and the memory set. Writes the first `capacity` of them in ascending order, and to
 * *n_positions how many there are; `positions` may be NULL when capacity is 0. Rows that a
 * truncation or a failed call took along are computed first, as a token would need. */
QSF_API qsf_code qsf_session_visible_positions(QSFSession* session, int layer, int kv_head,
                                               int* positions, size_t capacity, size_t* n_positions,
                                               qsf_error* error);
/* Writes the session to a file, whole or not at all: its tokens with their keys and values, so that
 * they need not be computed again (docs/session-files.md). An existing file is replaced. A session
 * without tokens is QSF_INVALID_ARGUMENT. Under QSF_ATTENTION_H2O and QSF_KV_POLICY_H2O rows that
 * were forgotten with those behind them are computed first; qsf_engine_cancel ends that with
 * QSF_CANCELLED. */
QSF_API qsf_code qsf_session_save(QSFSession* session, const char* path, qsf_error* error);
/* Reads such a file into a session that holds nothing. What follows has the same bits as in the
 * session that was saved. Model, types of keys and values, their policy and the attention of
 * prompts must be those of the file, else QSF_INVALID_ARGUMENT; threads, memory, rows per pass and
 * where keys and values lie may be others. A text longer than the context is QSF_OUT_OF_BUDGET, a
 * damaged file QSF_CORRUPT, one of a newer kind QSF_UNSUPPORTED. On failure the session holds
 * nothing. */
QSF_API qsf_code qsf_session_load(QSFSession* session, const char* path, qsf_error* error);

/* A chat is a conversation in a session of its own, written as the model's chat template has it.
 * What messages say never becomes a control token, whatever they spell; the template alone writes
 * those. Between turns the context is kept, and of each turn only what is new is computed. When the
 * context has no room for the next answer, whole turns are forgotten, oldest first; the system
 * message stays. Bytes of a message that are no UTF-8 become U+FFFD. */
typedef struct qsf_chat_options {
  size_t struct_size;
  const char* system; /* the system message, or NULL for none; a template without a place for it
                         gets it in front of the first user message */
  size_t system_bytes;
  const char* chat_template; /* a name (qsf_chat_template_name) or Jinja source, which holds a '{';
                                NULL: the model's own, or "plain" for a model without one */
  int64_t now_seconds; /* what templates that write a date take for now, seconds since 1970 (UTC),
                          for as long as the chat lives; 0: when it is created */
} qsf_chat_options;
/* Sets struct_size and the defaults: no system message, the model's template, now. */
QSF_API void qsf_chat_options_init(qsf_chat_options* options);

/* Returns the names of the templates that come with the library, for index 0, 1, ..., and NULL
 * beyond the last. Static; never free them. */
QSF_API const char* qsf_chat_template_name(int index);

/* Begins a chat. `options` may be NULL for the defaults. On success *chat is a handle to be freed
 * with qsf_chat_free before its engine. QSF_OUT_OF_BUDGET when the engine has as many sessions as
 * qsf_config_set_max_sessions allows; QSF_INVALID_ARGUMENT or QSF_UNSUPPORTED for a template that
 * cannot be used. */
QSF_API qsf_code qsf_chat_create(QSFEngine* engine, const qsf_chat_options* options, QSFChat** chat,
                                 qsf_error* error);
QSF_API void qsf_chat_free(QSFChat* chat);

typedef struct qsf_chat_send_options {
  size_t struct_size;
  int max_tokens;               /* > 0; INT_MAX, the default: as long as the context has room */
  const qsf_sampling* sampling; /* NULL: the defaults of qsf_sampling_init */
  const char* const* stop;      /* as in qsf_generate_options */
  size_t n_stop;
  QSFTokenCallback on_token; /* receives the answer; may be NULL */
  void* user_data;
  QSFProgressCallback on_prompt; /* as in qsf_generate_options; may be NULL */
} qsf_chat_send_options;
QSF_API void qsf_chat_send_options_init(qsf_chat_send_options* options);

typedef struct qsf_chat_result {
  size_t struct_size;
  qsf_stop_reason reason;
  int prompt_tokens;    /* computed for this turn before its answer */
  int reused_tokens;    /* of earlier turns, not computed again */
  int generated_tokens; /* of the answer */
  int dropped_messages; /* oldest messages forgotten before this turn, to make room */
  int context_tokens;   /* in the context now */
  uint64_t prompt_ns;
  uint64_t first_token_ns;
  uint64_t generate_ns;
} qsf_chat_result;

/* Says a text and generates the answer, which ends at the model's end-of-text tokens and where the
 * template closes a message. Both become messages of the chat, also when the answer was cancelled
 * or filled the context. On failure the chat is as before; so it is when it was cancelled before
 * the answer began (QSF_OK, QSF_STOP_CANCELLED, no generated tokens). A message longer than the
 * context is QSF_OUT_OF_BUDGET. `options` and `result` may be NULL. */
QSF_API qsf_code qsf_chat_send(QSFChat* chat, const char* text, size_t text_bytes,
                               const qsf_chat_send_options* options, qsf_chat_result* result,
                               qsf_error* error);
/* Forgets all messages but the system message; nothing for NULL. */
QSF_API void qsf_chat_clear(QSFChat* chat);
/* Replaces the system message; no bytes: none. The conversation goes on. */
QSF_API qsf_code qsf_chat_set_system(QSFChat* chat, const char* system, size_t system_bytes,
                                     qsf_error* error);

/* Writes the chat to a file as qsf_session_save does, its messages with it. A chat without an
 * answer is QSF_INVALID_ARGUMENT. */
QSF_API qsf_code qsf_chat_save(QSFChat* chat, const char* path, qsf_error* error);
/* Reads such a file into a chat that has no messages but a system message, which becomes the
 * file's: the conversation goes on, with the date that templates write as it was. Fails as
 * qsf_session_load, and with QSF_INVALID_ARGUMENT for the file of a session that was no chat; the
 * chat is then as before. qsf_session_load takes a chat's file as its text. */
QSF_API qsf_code qsf_chat_load(QSFChat* chat, const char* path, qsf_error* error);

/* What a chat is. Strings live as long as the chat. */
typedef struct qsf_chat_info {
  size_t struct_size;
  const char* template_name; /* "model", "custom", or one of qsf_chat_template_name */
  int system_merged;         /* not 0: the template has no place for a system message */
  int n_messages;            /* the system message included */
  int context_tokens;        /* in the context now */
  int context;               /* positions of the context */
} qsf_chat_info;
QSF_API qsf_code qsf_chat_get_info(const QSFChat* chat, qsf_chat_info* info, qsf_error* error);
/* Message number `index`, 0 .. n_messages - 1. *role, static, is "system", "user" or "assistant";
 * *content is a copy to be freed with qsf_string_free. */
QSF_API qsf_code qsf_chat_get_message(const QSFChat* chat, int index, const char** role,
                                      char** content, qsf_error* error);

typedef struct qsf_chat_message {
  const char* role; /* "system", "user", "assistant", or what else the template knows */
  const char* content;
} qsf_chat_message;
/* Writes messages as a chat template has it, `chat_template` as in qsf_chat_options; with
 * add_generation_prompt also the beginning of an answer. *text is to be freed with qsf_string_free.
 * It no longer tells the template's words from the messages': tokenized with
 * QSF_TOKENIZE_PARSE_SPECIAL, a message can speak as the system. qsf_chat_send keeps them apart. */
QSF_API qsf_code qsf_engine_apply_chat_template(QSFEngine* engine, const char* chat_template,
                                                const qsf_chat_message* messages, size_t n_messages,
                                                int add_generation_prompt, char** text,
                                                qsf_error* error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* QSF_QSF_H_ */
