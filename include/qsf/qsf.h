/* SPDX-License-Identifier: MIT
 *
 * QSF: run a language model in the memory you give it. The whole public interface, plain C11,
 * with qsf/adapters.h, chat_prompt.h, config.h, grammar.h, hooks.h, plan.h, prefix_cache.h,
 * ranks.h, sampling.h and serving.h, which it includes.
 *
 * Start here
 *   1. qsf_config_default, qsf_config_set_ram_budget   settings; NULL takes the defaults
 *   2. qsf_engine_open                                 load a model; qsf_free ends it
 *   3. qsf_engine_generate                             complete a prompt, or
 *      qsf_chat_create, qsf_chat_send                  hold a conversation
 *   examples/hello.c is a whole program, examples/two_sessions.c generates two texts at once.
 *
 * Sections
 *   1 Errors and version   4 Generation   7 Memory plan     10 Short forms
 *   2 Configuration        5 Chats        8 Text and tokens
 *   3 Engine               6 Sessions     9 Scores and embeddings
 *
 * Conventions
 *   Handles     The types QSFName are opaque. The caller frees every handle it receives, with the
 *               function named at the one that returns it. The free functions accept NULL.
 *   Names       qsf_NOUN_create and _free make and free a QSFNoun, qsf_NOUN_get_X and _set_X read
 *               and write, qsf_NOUN_is_X asks, qsf_NOUN_VERB does the rest. Some names of 0.1 are
 *               older than that rule, and stay.
 *   Errors      Functions return a qsf_code. Details go to the last parameter, a qsf_error of the
 *               caller, which may be NULL. The library never prints, exits or reports through
 *               errno; qsf_print_stats alone prints. Below, "Errors" lists the codes with a reason
 *               of their own. Every function may also return QSF_INVALID_ARGUMENT (a NULL pointer
 *               where none is allowed, a value out of range) and QSF_INTERNAL.
 *   Text        UTF-8. Text passed in may hold any bytes. Text passed out is valid UTF-8 and ends
 *               with a NUL; a NUL character that a model generates becomes U+FFFD.
 *   Threads     One thread at a time may use an engine, its sessions and its chats. Any thread may
 *               call at any time, as long as the engine lives: qsf_engine_cancel and
 *               qsf_session_cancel, also in a signal handler; qsf_engine_tokenize and _detokenize,
 *               qsf_engine_apply_chat_template, qsf_chat_prompt_create, qsf_engine_model_info,
 *               qsf_engine_plan, what reads that plan, and all of qsf/grammar.h. Different engines
 *               are independent.
 *               Callbacks run on the thread of the call; the log callback may run on another
 *               thread. In a callback, calls into its own engine that compute or change something
 *               do nothing and return QSF_INVALID_ARGUMENT. Those that cancel, read (information,
 *               tokens, text), make a QSFChatPrompt or use a QSFSampler work, and a handle freed
 *               there lives until the call in progress returns.
 *   Structs     A struct that begins with struct_size can grow by fields at its end. Set
 *               struct_size to sizeof of the struct (the *_init functions do). Every size that a
 *               release had is accepted, and missing fields have their defaults. In a larger input
 *               struct (a newer header) the bytes this library does not know must be 0; otherwise
 *               QSF_UNSUPPORTED names the first that is not. Any other size is
 *               QSF_INVALID_ARGUMENT. An output struct is filled up to its struct_size, which
 *               becomes the bytes filled.
 *   Init        Each *_init is also a macro, which passes the struct's size on to *_init_sized. The
 *               function behind it sets the fields of 0.1 alone, as programs compiled with that
 *               header expect. From other languages, call *_init_sized.
 *   Units       Sizes in bytes unless named MB (10^6 bytes). Times in nanoseconds. Booleans are
 *               int: 0 is false, anything else true. Token ids are int, 0 .. n_vocab - 1.
 */
#ifndef QSF_QSF_H_
#define QSF_QSF_H_

#include <stddef.h>
#include <stdint.h>

/* Of this header; qsf_version and qsf_abi_version tell the library's. */
#define QSF_VERSION_MAJOR 0
#define QSF_VERSION_MINOR 2
#define QSF_VERSION_PATCH 0
#define QSF_ABI_VERSION 2

#if defined(__GNUC__)
#define QSF_API __attribute__((visibility("default")))
#else
#define QSF_API
#endif

/* Behind names that have a better successor. Define QSF_WARN_DEPRECATED for warnings. */
#if defined(QSF_WARN_DEPRECATED) && defined(__GNUC__)
#define QSF_DEPRECATED(hint) __attribute__((deprecated(hint)))
#else
#define QSF_DEPRECATED(hint)
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct QSFEngine QSFEngine;
typedef struct QSFConfig QSFConfig;
typedef struct QSFSession QSFSession;
typedef struct QSFChat QSFChat;
typedef struct QSFChatPrompt QSFChatPrompt;
typedef struct QSFPlan QSFPlan;
typedef struct QSFSampler QSFSampler;
typedef struct QSFGeneration QSFGeneration;
typedef struct QSFGrammar QSFGrammar;
typedef struct QSFGrammarMatcher QSFGrammarMatcher;

/* ---- 1 Errors and version ---------------------------------------------------------------- */

typedef enum qsf_code {
  QSF_OK = 0,
  QSF_INVALID_ARGUMENT = 1, /* a value out of range, or NULL where a pointer is expected */
  QSF_NOT_FOUND = 2,        /* no such file */
  QSF_CORRUPT = 3,          /* damaged or contradictory data */
  QSF_UNSUPPORTED = 4,      /* a valid request that this version cannot serve */
  QSF_OUT_OF_BUDGET = 5,    /* does not fit the memory or the context */
  QSF_IO = 6,               /* the operating system refused a read or a write */
  QSF_CANCELLED = 7,        /* qsf_engine_cancel was called */
  QSF_INTERNAL = 8          /* a bug of the library, or a small allocation failed */
} qsf_code;

/* After a failure: the code and one line (where, what is wrong, got and expected, what to do). A
 * longer message is cut between characters. After a success: QSF_OK and an empty message. */
typedef struct qsf_error {
  qsf_code code;
  char message[256];
} qsf_error;

/* Returns  the version of the library, such as "0.2.0"; static, never free it */
QSF_API const char* qsf_version(void);
/* Returns  QSF_ABI_VERSION of the library, which counts the nodes of libqsf.so's symbols: 1 for
 *          QSF_0.1, 2 for QSF_0.2. A library runs the programs of its own and of lower numbers */
QSF_API int qsf_abi_version(void);

/* ---- 2 Configuration --------------------------------------------------------------------- */

#include "qsf/config.h" /* qsf_config_default, the setters */
#include "qsf/hooks.h"  /* callbacks for research: layers, H2O eviction */

/* ---- 3 Engine ---------------------------------------------------------------------------- */

/* Opens and loads a .qsf model. `config` NULL: the defaults.
 * Returns  QSF_OK and a handle in *engine, to be freed with qsf_free; on failure *engine is NULL
 * Errors   QSF_NOT_FOUND, QSF_IO, QSF_CORRUPT, QSF_UNSUPPORTED (file); QSF_OUT_OF_BUDGET */
QSF_API qsf_code qsf_engine_open(const char* model_path, const QSFConfig* config,
                                 QSFEngine** engine, qsf_error* error);
/* Frees an engine. Free its sessions and chats first. */
QSF_API void qsf_free(QSFEngine* engine);
/* Stops the call in progress on this engine within about the time of one weight tile. The call
 * returns QSF_CANCELLED; generation returns QSF_OK with QSF_STOP_CANCELLED. Opening is not
 * stopped. Without a call in progress the next one that computes is stopped. Safe from any thread
 * and from a signal handler. */
QSF_API void qsf_engine_cancel(QSFEngine* engine);

/* Strings live as long as the engine. */
typedef struct qsf_model_info {
  size_t struct_size;
  const char* architecture;  /* "llama", "gpt2", ... */
  const char* quant_type;    /* "4bit", "f16", "mixed", ... */
  const char* chat_template; /* Jinja source stored in the model, or NULL */
  int n_layers;
  int n_vocab;
  int hidden_size;
  int trained_context; /* positions the model was trained for */
  int context;         /* positions of this engine's context */
  int bos_token;       /* -1 without one */
  int eos_token;       /* the first end-of-text id; -1 without one */
  uint64_t n_parameters;
  uint64_t file_bytes;
  int n_kv_heads; /* KV heads of a layer */
} qsf_model_info;
QSF_API qsf_code qsf_engine_model_info(const QSFEngine* engine, qsf_model_info* info,
                                       qsf_error* error);

/* Counters since the engine was opened. */
typedef struct qsf_engine_stats {
  size_t struct_size;
  int n_threads;
  const char* instruction_set; /* of the kernels in use: "scalar", "avx2", ... */
  uint64_t load_ns;
  uint64_t weight_bytes_read; /* from the file */
  uint64_t prompt_tokens;
  uint64_t prompt_ns;
  uint64_t generated_tokens;
  uint64_t generate_ns;
  uint64_t matmul_ns, attention_ns, other_ns; /* parts of prompt_ns + generate_ns */
  uint64_t sample_ns;                         /* sampling, not part of them */
  uint64_t planned_bytes;                     /* total of the memory plan */
  uint64_t resident_bytes;                    /* of the process, now */
  uint64_t peak_resident_bytes;               /* of the process, so far */
  uint64_t read_wait_ns;                      /* waiting for the disk, part of the times above */
  uint64_t read_ns;                           /* with at least one read in flight */
  uint64_t unpack_ns;            /* decompressing and re-laying weights, on the reading threads */
  uint64_t prompt_passes;        /* passes over prompt rows; each reads the streamed weights once */
  uint64_t drafted_tokens;       /* by speculation; since 0.2 */
  uint64_t accepted_tokens;      /* of them; since 0.2 */
  uint64_t model_drafted_tokens; /* by a draft model, part of drafted_tokens; since 0.2 */
  uint64_t model_accepted_tokens; /* of them; since 0.2 */
  uint64_t draft_ns;              /* of that model, part of generate_ns; since 0.2 */
} qsf_engine_stats;
QSF_API qsf_code qsf_engine_get_stats(const QSFEngine* engine, qsf_engine_stats* stats,
                                      qsf_error* error);
/* Prints the memory plan and the statistics to stderr; nothing for NULL. */
QSF_API void qsf_print_stats(QSFEngine* engine);

/* ---- 4 Generation ------------------------------------------------------------------------ */

/* Receives every generated token once, in order, with the text that it completed: whole UTF-8
 * characters, possibly none. The start of an unfinished character or of a possible stop text is
 * held back. Text still held back after the last token follows in further calls with that token's
 * id; so count tokens by qsf_generate_result. The text is valid only during the call. */
typedef void (*QSFTokenCallback)(int token_id, const char* text, void* user_data);

#include "qsf/grammar.h"  /* QSFGrammar, QSFGrammarMatcher */
#include "qsf/sampling.h" /* qsf_sampling, QSFSampler */

typedef enum qsf_stop_reason {
  QSF_STOP_MAX_TOKENS = 0,
  QSF_STOP_END_OF_TEXT = 1,
  QSF_STOP_STRING = 2,
  QSF_STOP_CONTEXT_FULL = 3,
  QSF_STOP_CANCELLED = 4,
  QSF_STOP_CALLBACK = 5 /* on_generated or on_prompt_token ended it; since 0.2 */
} qsf_stop_reason;

/* A token and the natural logarithm of its probability: of the softmax of the model's logits at
 * temperature 1, over all tokens that can be drawn, before any step of sampling. */
typedef struct qsf_log_prob {
  int token;
  float log_prob;
} qsf_log_prob;
/* A generated token with what it completed; valid during the call that receives it. */
typedef struct qsf_generated_token {
  size_t struct_size; /* of the library */
  int token;
  int is_rest;      /* true: text that was held back until after the last token; no further token
                       but one of is_end */
  const char* text; /* as QSFTokenCallback receives it */
  const qsf_log_prob* top; /* [n_top], the likeliest first; NULL without any */
  int n_top;
  float log_prob; /* of the token; 0 unless asked for, and in the rest; NaN: nothing predicts it */
  int is_end;     /* true: ends the text, has none, and is not counted; with report_end alone */
} qsf_generated_token;
/* Receives every generated token, as QSFTokenCallback does.
 * Returns  0; anything else ends this generation behind the token, with QSF_STOP_CALLBACK */
typedef int (*QSFGeneratedCallback)(const qsf_generated_token* token, void* user_data);

typedef struct qsf_generate_options {
  size_t struct_size;
  const char* prompt;
  size_t prompt_bytes;
  unsigned tokenize_flags;       /* qsf_tokenize_flags */
  int max_tokens;                /* >= 0; 0 computes the prompt alone */
  const qsf_sampling* sampling;  /* NULL: the defaults of qsf_sampling_init */
  const char* const* stop;       /* stop texts: generation ends before the first one completed */
  size_t n_stop;                 /* entries of stop */
  QSFTokenCallback on_token;     /* or NULL */
  void* user_data;               /* of both callbacks */
  int echo_prompt;               /* true: on_token also receives the prompt, once computed */
  QSFProgressCallback on_prompt; /* or NULL; progress of the prompt, in parts of the work */
  /* From here on: since 0.2. */
  QSFGeneratedCallback on_generated; /* or NULL; called after on_token, with the same user_data */
  int log_probs;                     /* true: on_generated receives log probabilities */
  int n_top_log_probs;               /* 0 to 100: of as many of the likeliest tokens, too */
  int reserve_tokens; /* tokens for which pages of the KV cache are reserved at the first step;
                         0: max_tokens, at most 1,024. Further ones are taken while any are free */
  const int* prompt_tokens; /* a prompt of token ids, taken as they are; `prompt` is NULL then */
  size_t n_prompt_tokens;   /* entries of prompt_tokens */
  const int* end_tokens;    /* end the text like the model's own end-of-text tokens */
  size_t n_end_tokens;      /* entries of end_tokens */
  int ignore_end_of_text;   /* true: the model's own end-of-text tokens are not drawn */
  int keep_special; /* true: the text of special tokens, such as markers of tool calls, is delivered
                       too; not of those that end the text */
  const char*
      prefix_key; /* [prefix_key_bytes], at most 256: shares the beginning of the prompt with
                     generations of the same key (qsf/prefix_cache.h). NULL: with nobody */
  size_t prefix_key_bytes; /* may be 0 */
  QSFGeneratedCallback
      on_prompt_token; /* or NULL; receives every token of the prompt, in order, as the rows before
                          it are computed, with log_prob and `top` but an empty text. The first one
                          has NaN and no `top`, also in a session with text. All of the prompt is
                          computed then: nothing comes from the prefix cache or another session.
                          QSF_UNSUPPORTED under QSF_ATTENTION_SYMMETRIC */
  int report_end; /* true: on_generated also receives the token that ends the text, as is_end */
} qsf_generate_options;
/* Sets struct_size and the defaults: no prompt, 256 tokens, default sampling, no stop texts,
 * no callback. */
QSF_API void qsf_generate_options_init(qsf_generate_options* options);
QSF_API void qsf_generate_options_init_sized(qsf_generate_options* options, size_t struct_size);
#define qsf_generate_options_init(options) \
  qsf_generate_options_init_sized(options, sizeof(qsf_generate_options))

typedef struct qsf_generate_result {
  size_t struct_size;
  qsf_stop_reason reason;
  int prompt_tokens;
  int generated_tokens;
  uint64_t prompt_ns;      /* to compute the prompt */
  uint64_t first_token_ns; /* from the call to the first token */
  uint64_t generate_ns;    /* from the first token to the last */
  int cached_tokens;       /* of the prompt, not computed: prefix cache, other session; since 0.2 */
  int drafted_tokens;      /* by speculation; since 0.2 */
  int accepted_tokens;     /* of them; since 0.2 */
} qsf_generate_result;

/* Completes a prompt from an empty context. `result` may be NULL.
 * Returns  QSF_OK, also with QSF_STOP_CANCELLED: the text so far was delivered
 * Errors   QSF_OUT_OF_BUDGET: the prompt exceeds the context (nothing is computed);
 *          QSF_INVALID_ARGUMENT: a prompt of no tokens (empty, and the model has no
 *          beginning-of-text token) */
QSF_API qsf_code qsf_engine_generate(QSFEngine* engine, const qsf_generate_options* options,
                                     qsf_generate_result* result, qsf_error* error);

/* ---- 5 Chats ----------------------------------------------------------------------------- */

/* A chat is a conversation in a session of its own, formatted by the model's chat template. Special
 * tokens in the text of messages are never parsed: only the template writes them. The context is
 * kept between turns, and only new text is computed. When the context has no room for the next
 * answer, whole turns are dropped, oldest first; the system message stays. Invalid UTF-8 in a
 * message becomes U+FFFD. */
typedef struct qsf_chat_options {
  size_t struct_size;
  const char* system;        /* the system message, or NULL. A template without a place for it
                                gets it in front of the first user message */
  size_t system_bytes;       /* bytes of system */
  const char* chat_template; /* a name (qsf_chat_template_name) or Jinja source (contains '{').
                                NULL: the model's own, or "plain" without one */
  int64_t now_seconds;       /* the time for templates that write a date: seconds since 1970, UTC.
                                0: the time of qsf_chat_create */
} qsf_chat_options;
/* Sets struct_size and the defaults: no system message, the model's template, now. */
QSF_API void qsf_chat_options_init(qsf_chat_options* options);
QSF_API void qsf_chat_options_init_sized(qsf_chat_options* options, size_t struct_size);
#define qsf_chat_options_init(options) \
  qsf_chat_options_init_sized(options, sizeof(qsf_chat_options))

/* Returns  the name of built-in template 0, 1, ...; NULL beyond the last. Static, never free it */
QSF_API const char* qsf_chat_template_name(int index);

/* Begins a chat. `options` NULL: the defaults.
 * Returns  QSF_OK and a handle in *chat; free it with qsf_chat_free before its engine
 * Errors   QSF_OUT_OF_BUDGET: the engine has qsf_config_set_max_sessions sessions already;
 *          QSF_INVALID_ARGUMENT or QSF_UNSUPPORTED: the template cannot be used */
QSF_API qsf_code qsf_chat_create(QSFEngine* engine, const qsf_chat_options* options, QSFChat** chat,
                                 qsf_error* error);
QSF_API void qsf_chat_free(QSFChat* chat);

typedef struct qsf_chat_send_options {
  size_t struct_size;
  int max_tokens;                /* > 0 */
  const qsf_sampling* sampling;  /* NULL: the defaults of qsf_sampling_init */
  const char* const* stop;       /* as in qsf_generate_options */
  size_t n_stop;                 /* entries of stop */
  QSFTokenCallback on_token;     /* receives the answer; or NULL */
  void* user_data;               /* of both callbacks */
  QSFProgressCallback on_prompt; /* as in qsf_generate_options; or NULL */
} qsf_chat_send_options;
/* Sets struct_size and the defaults: INT_MAX tokens (the room in the context), default sampling. */
QSF_API void qsf_chat_send_options_init(qsf_chat_send_options* options);
QSF_API void qsf_chat_send_options_init_sized(qsf_chat_send_options* options, size_t struct_size);
#define qsf_chat_send_options_init(options) \
  qsf_chat_send_options_init_sized(options, sizeof(qsf_chat_send_options))

typedef struct qsf_chat_result {
  size_t struct_size;
  qsf_stop_reason reason;
  int prompt_tokens;    /* computed for this turn before its answer */
  int reused_tokens;    /* of earlier turns, not computed again */
  int generated_tokens; /* of the answer */
  int dropped_messages; /* oldest messages dropped before this turn to make room */
  int context_tokens;   /* in the context now */
  uint64_t prompt_ns;
  uint64_t first_token_ns;
  uint64_t generate_ns;
} qsf_chat_result;

/* Sends a user message and generates the answer. It ends at an end-of-text token and where the
 * template closes a message. Both become messages of the chat, even if the answer was cancelled or
 * filled the context. `options` (NULL: the defaults) and `result` may be NULL.
 * Returns  QSF_OK; with QSF_STOP_CANCELLED and no generated tokens the chat is unchanged
 * Errors   QSF_OUT_OF_BUDGET: the message exceeds the context. On failure the chat is unchanged */
QSF_API qsf_code qsf_chat_send(QSFChat* chat, const char* text, size_t text_bytes,
                               const qsf_chat_send_options* options, qsf_chat_result* result,
                               qsf_error* error);
/* Drops all messages but the system message; nothing for NULL. */
QSF_API void qsf_chat_clear(QSFChat* chat);
/* Replaces the system message; 0 bytes remove it. The conversation goes on. */
QSF_API qsf_code qsf_chat_set_system(QSFChat* chat, const char* system, size_t system_bytes,
                                     qsf_error* error);

/* Writes the chat to a file: its messages and what qsf_session_save writes.
 * Errors  as qsf_session_save; QSF_INVALID_ARGUMENT before the first answer */
QSF_API qsf_code qsf_chat_save(QSFChat* chat, const char* path, qsf_error* error);
/* Reads such a file into a chat without messages. The file's system message and its date for
 * templates replace those of the chat. qsf_session_load also reads the file of a chat.
 * Errors  as qsf_session_load; QSF_INVALID_ARGUMENT for a session that is no chat. On failure the
 *         chat is unchanged */
QSF_API qsf_code qsf_chat_load(QSFChat* chat, const char* path, qsf_error* error);

/* Strings live as long as the chat. */
typedef struct qsf_chat_info {
  size_t struct_size;
  const char* template_name; /* "model", "custom" or a qsf_chat_template_name */
  int system_merged;         /* true: the template has no place for a system message */
  int n_messages;            /* the system message included */
  int context_tokens;        /* in the context now */
  int context;               /* positions of the context */
} qsf_chat_info;
QSF_API qsf_code qsf_chat_get_info(const QSFChat* chat, qsf_chat_info* info, qsf_error* error);
/* Reads message `index`, 0 .. n_messages - 1.
 * Returns  QSF_OK; *role, static, is "system", "user" or "assistant"; *content is a copy, to be
 *          freed with qsf_string_free */
QSF_API qsf_code qsf_chat_get_message(const QSFChat* chat, int index, const char** role,
                                      char** content, qsf_error* error);

typedef struct qsf_chat_message {
  const char* role; /* "system", "user", "assistant", or another one of the template's */
  const char* content;
} qsf_chat_message;
/* Formats messages with a chat template (`chat_template` as in qsf_chat_options);
 * add_generation_prompt also begins an answer. The text mixes template and messages: tokenized with
 * QSF_TOKENIZE_PARSE_SPECIAL, a message can inject control tokens. qsf_chat_send keeps them apart.
 * Returns  QSF_OK and the text in *text, to be freed with qsf_string_free */
QSF_API qsf_code qsf_engine_apply_chat_template(QSFEngine* engine, const char* chat_template,
                                                const qsf_chat_message* messages, size_t n_messages,
                                                int add_generation_prompt, char** text,
                                                qsf_error* error);

#include "qsf/chat_prompt.h" /* QSFChatPrompt */

/* ---- 6 Sessions -------------------------------------------------------------------------- */

/* A session is one sequence whose context is kept between calls. "Unchanged on failure" below holds
 * under QSF_KV_POLICY_WINDOW only as far as qsf_config_set_kv_policy says.
 * Returns  QSF_OK and a handle in *session; free it with qsf_session_free before its engine
 * Errors   QSF_OUT_OF_BUDGET: the engine has qsf_config_set_max_sessions sessions already */
QSF_API qsf_code qsf_session_create(QSFEngine* engine, QSFSession** session, qsf_error* error);
QSF_API void qsf_session_free(QSFSession* session);
/* Appends tokens as prompt rows.
 * Shapes  tokens [n_tokens]; logits [n_vocab] or NULL, after the last token
 * Errors  QSF_OUT_OF_BUDGET: the context is full; QSF_CANCELLED. Unchanged on failure */
QSF_API qsf_code qsf_session_prefill(QSFSession* session, const int* tokens, size_t n_tokens,
                                     float* logits, qsf_error* error);
/* Receives the logits of tokens first_token .. first_token + n_logits - 1 after row `row` of a
 * call, counted from 0. They are valid only during the call. */
typedef void (*QSFLogitsCallback)(size_t row, int first_token, const float* logits, size_t n_logits,
                                  void* user_data);
/* Appends tokens as prompt rows and passes out the logits after each, in blocks of the vocabulary.
 * Blocks of one row come in ascending order; blocks of several rows may alternate.
 * Shapes  tokens [n_tokens]
 * Errors  as qsf_session_prefill */
QSF_API qsf_code qsf_session_prefill_logits(QSFSession* session, const int* tokens, size_t n_tokens,
                                            QSFLogitsCallback on_logits, void* user_data,
                                            qsf_error* error);
/* Appends one token as a generated row.
 * Shapes  logits [n_vocab] or NULL
 * Errors  as qsf_session_prefill */
QSF_API qsf_code qsf_session_step(QSFSession* session, int token, float* logits, qsf_error* error);
/* Completes a prompt after the session's text, as qsf_engine_generate does from an empty context.
 * In a session with text the prompt gets no beginning-of-text token, and an empty prompt continues
 * the text. The session keeps the prompt and the generated tokens, those of a stop text included.
 * The last token enters qsf_session_length with the next call that appends.
 * Errors  as qsf_engine_generate. Unchanged on failure, and when cancelled within the prompt */
QSF_API qsf_code qsf_session_generate(QSFSession* session, const qsf_generate_options* options,
                                      qsf_generate_result* result, qsf_error* error);
/* Keeps the first n_tokens tokens and drops the others. 0 always works.
 * Errors  QSF_INVALID_ARGUMENT: there are fewer, or (QSF_KV_POLICY_WINDOW) positions that the next
 *         token attends to were evicted */
QSF_API qsf_code qsf_session_truncate(QSFSession* session, size_t n_tokens, qsf_error* error);
/* Returns  the number of tokens in the context; 0 for NULL */
QSF_API size_t qsf_session_length(const QSFSession* session);
/* Lists the positions that a prompt token appended now would attend to, itself excluded, in one
 * layer and KV head: those that the KV policy keeps; under QSF_ATTENTION_H2O the current chunk and
 * the memory set. Positions that a truncation or a failed call invalidated are computed first.
 * Shapes   positions [capacity], ascending, the first `capacity` of them; NULL with capacity 0
 * Returns  QSF_OK and their whole number in *n_positions */
QSF_API qsf_code qsf_session_visible_positions(QSFSession* session, int layer, int kv_head,
                                               int* positions, size_t capacity, size_t* n_positions,
                                               qsf_error* error);
/* Writes tokens, keys and values to a file, whole or not at all (docs/session-files.md). An
 * existing file is replaced. Invalidated positions are computed first.
 * Errors  QSF_INVALID_ARGUMENT: no tokens; QSF_IO; QSF_CANCELLED */
QSF_API qsf_code qsf_session_save(QSFSession* session, const char* path, qsf_error* error);
/* Reads such a file into an empty session. The text continues with the same bits as in the saved
 * session. Threads, memory, rows per pass and the place of the KV cache may differ.
 * Errors  QSF_INVALID_ARGUMENT: another model, KV type, KV policy or attention; QSF_OUT_OF_BUDGET:
 *         longer than the context; QSF_CORRUPT; QSF_UNSUPPORTED: a newer file. The session is empty
 *         on failure */
QSF_API qsf_code qsf_session_load(QSFSession* session, const char* path, qsf_error* error);

/* Starts a session with the same text. The two share its pages of the KV cache.
 * Returns  QSF_OK and a handle in *fork; free it with qsf_session_free before its engine
 * Errors   QSF_OUT_OF_BUDGET: there are qsf_config_set_max_sessions sessions, or no page is free
 * for the copy; QSF_UNSUPPORTED: under QSF_ATTENTION_H2O and QSF_KV_POLICY_H2O */
QSF_API qsf_code qsf_session_fork(QSFSession* session, QSFSession** fork, qsf_error* error);
/* Copies the tokens of the context, without a last one that was generated and not computed yet.
 * Shapes   tokens [capacity], the first `capacity` of them; NULL with capacity 0
 * Returns  QSF_OK and their whole number in *n_tokens */
QSF_API qsf_code qsf_session_get_tokens(const QSFSession* session, int* tokens, size_t capacity,
                                        size_t* n_tokens, qsf_error* error);
/* Ends the generation in progress in this session alone, before its next pass, with
 * QSF_STOP_CANCELLED; without one, the next generation. Nothing for NULL. Safe from any thread and
 * from a signal handler. */
QSF_API void qsf_session_cancel(QSFSession* session);

/* A generation of a session that is computed step by step, with those of other sessions. Each
 * generates what qsf_session_generate would. Until it has ended, other calls that use its session
 * are QSF_INVALID_ARGUMENT. `options` is copied; its callbacks are used by qsf_engine_step.
 * Returns  QSF_OK and a handle in *generation; free it with qsf_generation_free before its engine
 * Errors   as qsf_session_generate; QSF_UNSUPPORTED: the model has no tokenizer */
QSF_API qsf_code qsf_generation_create(QSFSession* session, const qsf_generate_options* options,
                                       QSFGeneration** generation, qsf_error* error);
/* Frees a generation, also one that has not ended: the session keeps what was computed, but no part
 * of a prompt. A session freed before lives until then. */
QSF_API void qsf_generation_free(QSFGeneration* generation);
/* What a step did. */
typedef struct qsf_step_counts {
  size_t struct_size;
  int prompt_rows;
  int generated_rows;
  int n_finished;             /* members that have ended, in this step or before */
  int n_waiting;              /* members left out because no page of the KV cache was free */
  uint64_t pass_ns;           /* to compute the pass, without sampling and callbacks */
  uint64_t read_wait_ns;      /* waiting for the disk, a part of pass_ns */
  uint64_t weight_bytes_read; /* from the file */
  int n_reading;              /* members left out because their prompts are read from a folder */
  int drafted_rows;           /* of drafted tokens, beside generated_rows */
  int accepted_rows;          /* of them: the pass yielded generated_rows + accepted_rows tokens */
} qsf_step_counts;
/* Computes the next rows of the members in one pass, which reads the weights once, and delivers
 * their tokens. A member that has ended is left out, and so is one that waits for pages; when all
 * wait, free or truncate a session, or cancel one. A member's own error (a callback, the
 * context, logits that are not finite) ends it alone. `counts` may be NULL.
 * Shapes  members [n_members], of different sessions
 * Errors  of the pass: QSF_CANCELLED (qsf_engine_cancel), QSF_IO, QSF_CORRUPT. Every member is as
 *         before, and may be stepped again */
QSF_API qsf_code qsf_engine_step(QSFEngine* engine, QSFGeneration* const* members, size_t n_members,
                                 qsf_step_counts* counts, qsf_error* error);
/* Appends one token to each of several sessions in one pass, as qsf_session_step does to one: for
 * callers with samplers of their own.
 * Shapes  sessions, tokens [n_sessions]; logits [n_sessions][n_vocab] or NULL
 * Errors  as qsf_session_step; QSF_INVALID_ARGUMENT: more sessions than rows of a pass, or one
 * twice. On failure no session has a new token */
QSF_API qsf_code qsf_engine_step_sessions(QSFEngine* engine, QSFSession* const* sessions,
                                          const int* tokens, size_t n_sessions, float* logits,
                                          qsf_error* error);
/* Returns  true when it has ended, by an error or not; 0 for NULL */
QSF_API int qsf_generation_is_finished(const QSFGeneration* generation);
/* Returns  true when the last step found no page of the KV cache for it; 0 for NULL */
QSF_API int qsf_generation_is_waiting(const QSFGeneration* generation);
/* Fills *result after the end.
 * Returns  QSF_OK, or the error that ended this generation
 * Errors   QSF_INVALID_ARGUMENT: it has not ended */
QSF_API qsf_code qsf_generation_get_result(const QSFGeneration* generation,
                                           qsf_generate_result* result, qsf_error* error);

#include "qsf/adapters.h" /* LoRA adapters of sessions */
#include "qsf/prefix_cache.h"
#include "qsf/ranks.h"   /* one model over several processes */
#include "qsf/serving.h" /* admission, bounds of a step, parking: for servers */

/* ---- 7 Memory plan ----------------------------------------------------------------------- */

#include "qsf/plan.h" /* QSFPlan, qsf_memory_region */

/* ---- 8 Text and tokens ------------------------------------------------------------------- */

typedef enum qsf_tokenize_flags {
  QSF_TOKENIZE_DEFAULT = 0,      /* beginning-of-text token as the model's tokenizer adds it */
  QSF_TOKENIZE_NO_BOS = 1,       /* no beginning-of-text token */
  QSF_TOKENIZE_PARSE_SPECIAL = 2 /* parse special tokens in the text; otherwise they are text */
} qsf_tokenize_flags;

/* Encodes text.
 * Shapes   text [text_bytes]; tokens [capacity], NULL with capacity 0 to ask for the number
 * Returns  QSF_OK; *n_tokens is the number of tokens of the text
 * Errors   QSF_OUT_OF_BUDGET: the text has more than `capacity` tokens, and capacity is not 0;
 *          QSF_UNSUPPORTED: the model has no tokenizer */
QSF_API qsf_code qsf_engine_tokenize(QSFEngine* engine, const char* text, size_t text_bytes,
                                     unsigned flags, int* tokens, size_t capacity, size_t* n_tokens,
                                     qsf_error* error);
/* Decodes tokens [n_tokens] into *text, to be freed with qsf_string_free. Special tokens are left
 * out; invalid UTF-8 becomes U+FFFD.
 * Errors  QSF_UNSUPPORTED: the model has no tokenizer */
QSF_API qsf_code qsf_engine_detokenize(QSFEngine* engine, const int* tokens, size_t n_tokens,
                                       char** text, qsf_error* error);
QSF_API void qsf_string_free(char* text);

/* ---- 9 Scores and embeddings ------------------------------------------------------------- */

/* Computes natural log probabilities of tokens[first] .. tokens[n_tokens - 1], each given all
 * tokens before it, as one window from an empty context. 0 < first < n_tokens.
 * Shapes  tokens [n_tokens]; log_probs [n_tokens - first]
 * Errors  QSF_OUT_OF_BUDGET: longer than the context; QSF_CORRUPT: logits that are not finite;
 *         QSF_CANCELLED */
QSF_API qsf_code qsf_engine_score(QSFEngine* engine, const int* tokens, size_t n_tokens,
                                  size_t first, double* log_probs, qsf_error* error);

/* How the rows of a text become one. */
typedef enum qsf_pooling {
  QSF_POOLING_MEAN = 0,  /* their mean */
  QSF_POOLING_LAST = 1,  /* the last one */
  QSF_POOLING_FIRST = 2, /* the first one */
  QSF_POOLING_MODEL = 3  /* as the model's file says; their mean where it does not */
} qsf_pooling;
/* Computes an embedding: tokens as one window from an empty context, and their hidden states behind
 * the final norm pooled. `normalize` true: divided by its Euclidean length.
 * Shapes  tokens [n_tokens]; embedding [hidden_size]
 * Errors  QSF_OUT_OF_BUDGET: longer than the context, or than a pass where tokens attend to later
 *         ones; QSF_CORRUPT: values that are not finite; QSF_CANCELLED */
QSF_API qsf_code qsf_engine_embed(QSFEngine* engine, const int* tokens, size_t n_tokens,
                                  qsf_pooling pooling, int normalize, float* embedding,
                                  qsf_error* error);

/* ---- 10 Short forms ---------------------------------------------------------------------- */

/* Receives the error of a short form. It is valid only during the call. */
typedef void (*QSFErrorCallback)(const qsf_error* error, void* user_data);
/* Sets the callback of the short forms below, for engines opened with this configuration.
 * Default  NULL: errors are not reported */
QSF_API void qsf_config_set_error_callback(QSFConfig* config, QSFErrorCallback callback,
                                           void* user_data);
/* qsf_engine_open. Returns  an engine, to be freed with qsf_free; NULL on failure */
QSF_API QSFEngine* qsf_load(const char* model_path, QSFConfig* config);
/* qsf_engine_generate with a NUL-terminated prompt; other settings as qsf_generate_options_init. */
QSF_API void qsf_generate(QSFEngine* engine, const char* prompt, int max_tokens, float temperature,
                          float top_p, QSFTokenCallback callback, void* user_data);
/* Computes tokens [num_tokens] from an empty context.
 * Returns  logits [n_vocab] after the last token, valid until the engine's next call; NULL on
 *          failure */
QSF_API float* qsf_forward(QSFEngine* engine, const int* tokens, int num_tokens);
/* Draws a token from logits [vocab_size], without top-k and min-p. One random generator serves the
 * process; it starts with seed 0 and is not thread-safe.
 * Returns  a token id; -1 for vocab_size < 1, NULL logits or a parameter out of range */
QSF_API int qsf_sample(const float* logits, int vocab_size, float temperature, float top_p);
/* Encodes a NUL-terminated text.
 * Returns  ids [*num_tokens], to be freed with qsf_tokens_free; NULL on failure */
QSF_API int* qsf_tokenize(QSFEngine* engine, const char* text, int* num_tokens);
QSF_API void qsf_tokens_free(int* tokens);
/* Decodes tokens [num_tokens]. Returns  text, to be freed with qsf_string_free; NULL on failure */
QSF_API char* qsf_detokenize(QSFEngine* engine, const int* tokens, int num_tokens);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* QSF_QSF_H_ */
