/* SPDX-License-Identifier: MIT
 *
 * Chat prompts of the public interface from a C11 program: every function, every NULL, bad JSON,
 * injected control tokens, many threads at once.
 *
 * Usage: capi_chat_prompt_test [MODEL.qsf]. Without a model only what needs none is tested. The
 * model is testdata/chat_model, whose template is ChatML's.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "capi/testing/capi_check.h"
#include "capi/testing/capi_engine.h"
#include "qsf/qsf.h"

static const char kUser[] = "[{\"role\": \"user\", \"content\": \"Hi\"}]";
static const char kTools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": "
    "\"<|im_end|>\"}}]";

static qsf_chat_prompt_options asked(const char* messages) {
  qsf_chat_prompt_options options;
  qsf_chat_prompt_options_init(&options);
  options.messages = messages;
  options.messages_bytes = strlen(messages);
  return options;
}

static QSFChatPrompt* created(QSFEngine* engine, const qsf_chat_prompt_options* options,
                              qsf_chat_prompt_info* info) {
  qsf_error error;
  QSFChatPrompt* prompt = NULL;
  CHECK(qsf_chat_prompt_create(engine, options, &prompt, &error) == QSF_OK);
  if (prompt == NULL) fprintf(stderr, "%s\n", error.message);
  memset(info, 0, sizeof *info);
  info->struct_size = sizeof *info;
  CHECK(qsf_chat_prompt_get_info(prompt, info, &error) == QSF_OK);
  return prompt;
}

/* Checks that creation fails with that code and message. */
static void refused(QSFEngine* engine, const qsf_chat_prompt_options* options, qsf_code code,
                    const char* message) {
  qsf_error error;
  QSFChatPrompt* prompt = (QSFChatPrompt*)engine; /* anything that is not NULL */
  CHECK(qsf_chat_prompt_create(engine, options, &prompt, &error) == code);
  CHECK(prompt == NULL);
  CHECK(strstr(error.message, message) != NULL);
  if (strstr(error.message, message) == NULL) fprintf(stderr, "got: %s\n", error.message);
}

static void test_nulls(void) {
  qsf_error error;
  QSFChatPrompt* prompt = NULL;
  qsf_chat_prompt_info info = {.struct_size = sizeof info};
  qsf_chat_prompt_options options = asked(kUser);
  qsf_chat_prompt_options_init(NULL);
  qsf_chat_prompt_free(NULL);
  CHECK(qsf_chat_prompt_create(NULL, &options, &prompt, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "engine") != NULL);
  CHECK(qsf_chat_prompt_create(NULL, &options, NULL, NULL) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_chat_prompt_get_info(NULL, &info, &error) == QSF_INVALID_ARGUMENT);

  memset(&options, 0x55, sizeof options);
  qsf_chat_prompt_options_init(&options);
  CHECK(options.struct_size == sizeof options && options.messages == NULL);
  CHECK(options.messages_bytes == 0 && options.tools == NULL && options.tools_bytes == 0);
  CHECK(options.variables == NULL && options.variables_bytes == 0);
  CHECK(options.chat_template == NULL && options.now_seconds == 0);
  CHECK(options.add_generation_prompt == 1 && options.continue_final_message == 0);
}

static void test_refusals(QSFEngine* engine) {
  refused(engine, NULL, QSF_INVALID_ARGUMENT, "options");
  qsf_chat_prompt_options options = asked(kUser);
  options.messages = NULL;
  refused(engine, &options, QSF_INVALID_ARGUMENT, "messages");
  options = asked("[{\"role\": \"user\"},, ]");
  refused(engine, &options, QSF_INVALID_ARGUMENT, "messages: byte 18: not valid JSON");
  options = asked("[]");
  refused(engine, &options, QSF_INVALID_ARGUMENT, "at least one message");
  options = asked("[{\"role\": \"user\", \"content\": 5}]");
  refused(engine, &options, QSF_INVALID_ARGUMENT, "messages[0].content");
  options = asked(kUser);
  options.tools_bytes = 1;
  refused(engine, &options, QSF_INVALID_ARGUMENT, "tools");
  options.tools = "{";
  refused(engine, &options, QSF_INVALID_ARGUMENT, "tools: byte 1");
  options = asked(kUser);
  options.variables = "[]";
  options.variables_bytes = 2;
  refused(engine, &options, QSF_INVALID_ARGUMENT, "variables: expected an object");
  options.variables = "{\"bos_token\": \"x\"}";
  options.variables_bytes = strlen(options.variables);
  refused(engine, &options, QSF_INVALID_ARGUMENT, "variables: 'bos_token' cannot be set");
  options = asked(kUser);
  options.chat_template = "klingon";
  refused(engine, &options, QSF_INVALID_ARGUMENT, "chatml");
  options.chat_template =
      "{{ messages[0].content }}{% if messages[0].role == 'user' %}"
      "{{ raise_exception('no ' ~ messages[0].content) }}{% endif %}";
  refused(engine, &options, QSF_INVALID_ARGUMENT, "line 1: no Hi");
  options.chat_template = "{{ nothing.at_all }}";
  refused(engine, &options, QSF_INVALID_ARGUMENT, "'nothing' is undefined");
  options = asked(kUser);
  options.continue_final_message = 1;
  refused(engine, &options, QSF_INVALID_ARGUMENT, "continue_final_message");
  options = asked(kUser);
  options.struct_size = 8;
  refused(engine, &options, QSF_INVALID_ARGUMENT, "struct_size");
}

static int count(const int* tokens, size_t n_tokens, int token) {
  int n = 0;
  for (size_t i = 0; i < n_tokens; ++i) n += tokens[i] == token;
  return n;
}

/* Only the template writes control tokens, wherever a request names them. */
static void test_injection(QSFEngine* engine) {
  qsf_chat_prompt_info info;
  const char template[] =
      "{% for m in messages %}<|im_start|>{{ m.role }}{{ m.content }}{{ m.odd }}"
      "{% for c in m.tool_calls or [] %}{{ c.id }}{{ c.function.name }}"
      "{{ c.function.arguments | tojson }}{% endfor %}<|im_end|>{% endfor %}"
      "{{ tools | tojson if tools }}{{ extra }}";
  qsf_chat_prompt_options options = asked(
      "[{\"role\": \"user\", \"content\": \"<|im_end|>\", \"odd\": \"<|im_end|>\"}, "
      "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"<|im_end|>\", "
      "\"function\": {\"name\": \"<|im_end|>\", \"arguments\": \"{\\\"<|im_end|>\\\": "
      "\\\"<|im_end|>\\\"}\"}}]}, {\"role\": \"<|im_end|>\", \"content\": \"x\"}]");
  options.chat_template = template;
  options.tools = kTools;
  options.tools_bytes = sizeof kTools - 1;
  options.variables = "{\"extra\": \"<|im_end|>\", \"x<|im_end|>\": 1}";
  options.variables_bytes = strlen(options.variables);
  QSFChatPrompt* prompt = created(engine, &options, &info);
  CHECK(info.n_end_tokens == 1 && info.n_end_texts == 0);
  CHECK(count(info.tokens, info.n_tokens, info.end_tokens[0]) == 3);
  int n_written = 0;
  for (const char* at = info.text; (at = strstr(at, "<|im_end|>")) != NULL; ++at) ++n_written;
  CHECK(n_written == 12);
  CHECK(info.tools_in_system == 0);
  qsf_chat_prompt_free(prompt);
}

static void test_prompts(QSFEngine* engine) {
  qsf_chat_prompt_info info;
  qsf_chat_prompt_options options = asked(kUser);
  QSFChatPrompt* prompt = created(engine, &options, &info);
  char* text = NULL;
  const qsf_chat_message message = {.role = "user", .content = "Hi"};
  CHECK(qsf_engine_apply_chat_template(engine, NULL, &message, 1, 1, &text, NULL) == QSF_OK);
  CHECK(strcmp(text, info.text) == 0 && strlen(text) == info.text_bytes);
  qsf_string_free(text);
  CHECK(info.n_tokens > 0 && info.n_end_tokens == 1 && info.merges_system == 0);
  CHECK(info.tools_in_system == 0 && info.text[info.text_bytes] == '\0');
  const size_t n_with_answer = info.n_tokens;
  qsf_chat_prompt_free(prompt);
  options.add_generation_prompt = 0;
  prompt = created(engine, &options, &info);
  CHECK(info.n_tokens < n_with_answer);
  qsf_chat_prompt_free(prompt);

  /* ChatML has no place for tools. */
  options = asked(kUser);
  options.tools = kTools;
  options.tools_bytes = sizeof kTools - 1;
  prompt = created(engine, &options, &info);
  CHECK(info.tools_in_system == 1 && strstr(info.text, "<tools>\n{\"name\": \"f\"") != NULL);
  CHECK(count(info.tokens, info.n_tokens, info.end_tokens[0]) == 2);
  qsf_chat_prompt_free(prompt);

  /* A system message without a place, and parts. */
  options = asked(
      "[{\"role\": \"developer\", \"content\": \"Be brief.\"}, {\"role\": \"user\", "
      "\"content\": [{\"type\": \"text\", \"text\": \"Hi\"}]}]");
  options.chat_template =
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
      "{{ m.role }}: {{ m.content }}{% endfor %}";
  prompt = created(engine, &options, &info);
  CHECK(info.merges_system == 1 && strstr(info.text, "Be brief.\n\nHi") != NULL);
  qsf_chat_prompt_free(prompt);

  options = asked(
      "[{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": "
      "\"Once upon \"}]");
  options.continue_final_message = 1;
  prompt = created(engine, &options, &info);
  CHECK(info.text_bytes > 10 && strcmp(info.text + info.text_bytes - 10, "Once upon ") == 0);
  CHECK(count(info.tokens, info.n_tokens, info.end_tokens[0]) == 1);
  qsf_chat_prompt_free(prompt);

  /* Arguments that are no object stay text, also for a template that wants an object. */
  options = asked(
      "[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", "
      "\"arguments\": \"{oops\"}}]}]");
  options.chat_template =
      "{{ tools | tojson if tools }}{% for m in messages %}{{ m.content }}"
      "{% for c in m.tool_calls or [] %}{{ c.function.name }}{% for k, v in "
      "c.function.arguments.items() %} {{ k }}={{ v }}{% endfor %}{% endfor %}{% endfor %}";
  prompt = created(engine, &options, &info);
  CHECK(strcmp(info.text, "f arguments={oops") == 0);
  qsf_chat_prompt_free(prompt);

  options = asked(kUser);
  options.chat_template = "{{ strftime_now('%Y') }} {{ n }} {{ on }}";
  options.now_seconds = 86400;
  options.variables = "{\"n\": 12345678901234567890, \"on\": true}";
  options.variables_bytes = strlen(options.variables);
  prompt = created(engine, &options, &info);
  CHECK(strcmp(info.text, "1970 12345678901234567890 True") == 0);
  qsf_chat_prompt_free(prompt);
}

typedef struct Work {
  QSFEngine* engine;
  size_t n_expected;
  int n_wrong;
} Work;

static void* work(void* user) {
  Work* mine = user;
  static const char* const templates[] = {"chatml",  "llama2", "llama3",
                                          "mistral", "phi3",   "zephyr"};
  for (int i = 0; i < 60; ++i) {
    qsf_chat_prompt_options options = asked(kUser);
    if (i % 2 == 1) options.chat_template = templates[i % 6];
    QSFChatPrompt* prompt = NULL;
    qsf_chat_prompt_info info = {.struct_size = sizeof info};
    if (qsf_chat_prompt_create(mine->engine, &options, &prompt, NULL) != QSF_OK ||
        qsf_chat_prompt_get_info(prompt, &info, NULL) != QSF_OK ||
        (i % 2 == 0 && info.n_tokens != mine->n_expected)) {
      ++mine->n_wrong;
    }
    qsf_chat_prompt_free(prompt);
  }
  return NULL;
}

static void test_threads(QSFEngine* engine) {
  enum { kThreads = 4 };
  qsf_chat_prompt_info info;
  qsf_chat_prompt_options options = asked(kUser);
  QSFChatPrompt* prompt = created(engine, &options, &info);
  pthread_t threads[kThreads];
  Work works[kThreads];
  for (int i = 0; i < kThreads; ++i) {
    works[i] = (Work){.engine = engine, .n_expected = info.n_tokens};
    CHECK(pthread_create(&threads[i], NULL, work, &works[i]) == 0);
  }
  for (int i = 0; i < kThreads; ++i) {
    CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(works[i].n_wrong == 0);
  }
  qsf_chat_prompt_free(prompt);
}

/* A prompt is made during a call of the engine, and outlives the engine. */
typedef struct InCall {
  QSFEngine* engine;
  QSFChatPrompt* prompt;
} InCall;

static void on_token(int token, const char* text, void* user_data) {
  InCall* in_call = user_data;
  (void)token;
  (void)text;
  if (in_call->prompt != NULL) return;
  qsf_chat_prompt_options options = asked(kUser);
  CHECK(qsf_chat_prompt_create(in_call->engine, &options, &in_call->prompt, NULL) == QSF_OK);
}

static void test_during_a_call(QSFEngine* engine, InCall* in_call) {
  qsf_generate_options options;
  qsf_generate_options_init(&options);
  options.prompt = "Hi";
  options.prompt_bytes = 2;
  options.max_tokens = 2;
  options.on_token = on_token;
  options.user_data = in_call;
  in_call->engine = engine;
  CHECK(qsf_engine_generate(engine, &options, NULL, NULL) == QSF_OK);
}

int main(int argc, char** argv) {
  test_nulls();
  if (argc > 1) {
    QSFEngine* engine = open_small_engine(argv[1]);
    if (engine != NULL) {
      InCall in_call = {0};
      test_refusals(engine);
      test_injection(engine);
      test_prompts(engine);
      test_threads(engine);
      test_during_a_call(engine, &in_call);
      qsf_free(engine);
      qsf_chat_prompt_info info = {.struct_size = sizeof info};
      CHECK(qsf_chat_prompt_get_info(in_call.prompt, &info, NULL) == QSF_OK);
      CHECK(strstr(info.text, "Hi") != NULL);
      qsf_chat_prompt_free(in_call.prompt);
    }
  }
  printf("%d checks, %d failed\n", n_checks, n_failures);
  return n_failures == 0 ? 0 : 1;
}
