/* SPDX-License-Identifier: MIT
 *
 * Chat prompts: the tokens of a conversation that the caller keeps, with tools, for sessions and
 * servers. A part of qsf/qsf.h, which has the conventions and includes it.
 */
#ifndef QSF_CHAT_PROMPT_H_
#define QSF_CHAT_PROMPT_H_

#ifndef QSF_QSF_H_
#error "include qsf/qsf.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* JSON is UTF-8, at most 16 MiB, 200,000 values and 40 levels. */
typedef struct qsf_chat_prompt_options {
  size_t struct_size;
  /* An array of messages in OpenAI's form: role, content (text, or a list of text parts),
   * tool_calls, tool_call_id, name, reasoning_content ... The template gets every field. Arguments
   * of calls may be an object or text; text that is no JSON object stays text. */
  const char* messages;
  size_t messages_bytes;
  const char* tools; /* an array of functions in OpenAI's form, or NULL */
  size_t tools_bytes;
  const char* variables; /* an object of further template variables, such as
                            {"enable_thinking": false, "reasoning_effort": "low"}, or NULL */
  size_t variables_bytes;
  const char* chat_template;  /* as in qsf_chat_options */
  int64_t now_seconds;        /* the same; 0: the time of the call */
  int add_generation_prompt;  /* true: the prompt begins an answer */
  int continue_final_message; /* true: it ends with the text of the last message, an assistant's,
                                 which goes on; add_generation_prompt has no effect then */
} qsf_chat_prompt_options;
/* Sets struct_size and the defaults: nothing but add_generation_prompt. */
QSF_API void qsf_chat_prompt_options_init(qsf_chat_prompt_options* options);
QSF_API void qsf_chat_prompt_options_init_sized(qsf_chat_prompt_options* options,
                                                size_t struct_size);
#define qsf_chat_prompt_options_init(options) \
  qsf_chat_prompt_options_init_sized(options, sizeof(qsf_chat_prompt_options))

/* Formats a conversation with a chat template and encodes it. Control tokens are never parsed in
 * the text of messages, tools and variables: only the template writes them. Messages are adapted to
 * what the template can read:
 *   - A system message without a place opens the first user message.
 *   - The role "developer" becomes "system" unless the template knows it.
 *   - Tools without a place are described in a system message, one JSON object a line in
 *     <tools></tools>; calls and results are then text in <tool_call> and <tool_response> tags.
 *   - Ids of calls get the length that the template wants; several calls of a message are separated
 *     where it takes one.
 *   - Reasoning has the names reasoning_content and thinking, whichever was given.
 * The engine keeps the last few templates parsed. The prompt's memory is not in the memory plan.
 * Threads  any, at any time, also during other calls with the engine
 * Returns  QSF_OK and a handle in *prompt, to be freed with qsf_chat_prompt_free; it needs no
 *          engine
 * Errors   QSF_INVALID_ARGUMENT: JSON that cannot be read, naming the byte; a field of another
 *          form, naming message and field; parts that are no text; what the template itself raises,
 *          with its message. QSF_UNSUPPORTED: a model without a tokenizer; a template or text
 *          beyond the limits of templates */
QSF_API qsf_code qsf_chat_prompt_create(QSFEngine* engine, const qsf_chat_prompt_options* options,
                                        QSFChatPrompt** prompt, qsf_error* error);
QSF_API void qsf_chat_prompt_free(QSFChatPrompt* prompt);

/* Everything lives as long as the prompt. */
typedef struct qsf_chat_prompt_info {
  size_t struct_size;
  const int* tokens; /* [n_tokens], with the beginning-of-text token where the model wants one */
  size_t n_tokens;
  const char* text; /* the text of the tokens; may hold NUL, and ends with one */
  size_t text_bytes;
  const int* end_tokens; /* [n_end_tokens]; close an answer beside the model's end-of-text tokens */
  size_t n_end_tokens;
  const char* const* end_texts; /* [n_end_texts]; stop texts that do, where no token does */
  size_t n_end_texts;
  int merges_system;   /* true: the template has no place for a system message */
  int tools_in_system; /* true: tools were described in a system message, see above */
} qsf_chat_prompt_info;
QSF_API qsf_code qsf_chat_prompt_get_info(const QSFChatPrompt* prompt, qsf_chat_prompt_info* info,
                                          qsf_error* error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* QSF_CHAT_PROMPT_H_ */
