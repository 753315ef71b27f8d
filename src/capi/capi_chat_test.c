/* SPDX-License-Identifier: MIT
 *
 * Chats of the public interface from a C11 program: every function, every NULL, wrong sizes.
 *
 * Usage: capi_chat_test [MODEL.qsf]. Without a model only what needs none is tested. What a chat
 * computes is tested in src/engine/.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "capi/testing/capi_check.h"
#include "capi/testing/capi_engine.h"
#include "qsf/qsf.h"

typedef struct Seen {
  char text[4096];
  size_t bytes;
  int n_calls;
  int n_progress;
  QSFEngine* cancel; /* cancelled at the second token when not NULL */
} Seen;

static void on_token(int token, const char* text, void* user_data) {
  Seen* seen = user_data;
  const size_t bytes = strlen(text);
  CHECK(token >= 0);
  if (seen->bytes + bytes < sizeof seen->text) {
    memcpy(seen->text + seen->bytes, text, bytes + 1);
    seen->bytes += bytes;
  }
  if (++seen->n_calls == 2 && seen->cancel != NULL) qsf_engine_cancel(seen->cancel);
}

static void on_prompt(uint64_t done, uint64_t total, void* user_data) {
  Seen* seen = user_data;
  CHECK(done <= total && total > 0);
  ++seen->n_progress;
}

static void test_nulls(void) {
  qsf_error error;
  QSFChat* chat = NULL;
  const char* role = "";
  char* text = NULL;
  qsf_chat_info info = {.struct_size = sizeof info};
  const qsf_chat_message message = {.role = "user", .content = "Hi"};
  qsf_chat_options_init(NULL);
  qsf_chat_send_options_init(NULL);
  qsf_chat_free(NULL);
  qsf_chat_clear(NULL);
  CHECK(qsf_chat_create(NULL, NULL, &chat, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "engine") != NULL);
  CHECK(qsf_chat_create(NULL, NULL, NULL, NULL) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_chat_send(NULL, "x", 1, NULL, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_chat_set_system(NULL, "x", 1, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_chat_get_info(NULL, &info, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_chat_get_message(NULL, 0, &role, &text, &error) == QSF_INVALID_ARGUMENT);
  CHECK(role == NULL && text == NULL);
  CHECK(qsf_engine_apply_chat_template(NULL, NULL, &message, 1, 1, &text, &error) ==
        QSF_INVALID_ARGUMENT);
}

static void test_defaults(void) {
  qsf_chat_options options;
  memset(&options, 0x55, sizeof options);
  qsf_chat_options_init(&options);
  CHECK(options.struct_size == sizeof options && options.system == NULL);
  CHECK(options.system_bytes == 0 && options.chat_template == NULL && options.now_seconds == 0);
  qsf_chat_send_options send;
  memset(&send, 0x55, sizeof send);
  qsf_chat_send_options_init(&send);
  CHECK(send.struct_size == sizeof send && send.max_tokens == INT_MAX && send.sampling == NULL);
  CHECK(send.stop == NULL && send.n_stop == 0 && send.on_token == NULL && send.on_prompt == NULL);

  int n_names = 0;
  int has_chatml = 0;
  for (const char* name; (name = qsf_chat_template_name(n_names)) != NULL; ++n_names) {
    CHECK(strlen(name) > 0 && strlen(name) < 32);
    has_chatml += strcmp(name, "chatml") == 0;
  }
  CHECK(n_names > 1 && has_chatml == 1);
  CHECK(qsf_chat_template_name(-1) == NULL && qsf_chat_template_name(INT_MAX) == NULL);
}

static void test_create_refusals(QSFEngine* engine) {
  qsf_error error;
  QSFChat* chat = (QSFChat*)engine; /* anything that is not NULL */
  qsf_chat_options options;
  qsf_chat_options_init(&options);
  options.chat_template = "klingon";
  CHECK(qsf_chat_create(engine, &options, &chat, &error) == QSF_INVALID_ARGUMENT);
  CHECK(chat == NULL && strstr(error.message, "chatml") != NULL);
  options.chat_template = NULL;
  options.system_bytes = 1;
  CHECK(qsf_chat_create(engine, &options, &chat, &error) == QSF_INVALID_ARGUMENT);
  options.system_bytes = 0;
  options.struct_size = 8;
  CHECK(qsf_chat_create(engine, &options, &chat, &error) == QSF_INVALID_ARGUMENT);
  options.struct_size = sizeof options + 1;
  CHECK(qsf_chat_create(engine, &options, &chat, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_chat_create(engine, NULL, NULL, &error) == QSF_INVALID_ARGUMENT);

  QSFChat* first = NULL;
  CHECK(qsf_chat_create(engine, NULL, &first, NULL) == QSF_OK);
  CHECK(first != NULL);
  CHECK(qsf_chat_create(engine, NULL, &chat, &error) == QSF_OUT_OF_BUDGET);
  CHECK(chat == NULL);
  qsf_chat_free(first);
}

static void test_send_refusals(QSFChat* chat) {
  qsf_error error;
  qsf_chat_send_options options;
  qsf_chat_send_options_init(&options);
  CHECK(qsf_chat_send(chat, NULL, 1, &options, NULL, &error) == QSF_INVALID_ARGUMENT);
  options.max_tokens = 0;
  CHECK(qsf_chat_send(chat, "x", 1, &options, NULL, &error) == QSF_INVALID_ARGUMENT);
  options.max_tokens = -1;
  CHECK(qsf_chat_send(chat, "x", 1, &options, NULL, &error) == QSF_INVALID_ARGUMENT);
  options.max_tokens = 1;
  options.n_stop = 1;
  CHECK(qsf_chat_send(chat, "x", 1, &options, NULL, &error) == QSF_INVALID_ARGUMENT);
  options.n_stop = 0;
  qsf_sampling sampling;
  qsf_sampling_init(&sampling);
  sampling.top_p = 2.0f;
  options.sampling = &sampling;
  CHECK(qsf_chat_send(chat, "x", 1, &options, NULL, &error) == QSF_INVALID_ARGUMENT);
  sampling.struct_size = 8;
  CHECK(qsf_chat_send(chat, "x", 1, &options, NULL, &error) == QSF_INVALID_ARGUMENT);
  options.sampling = NULL;
  options.struct_size = 0;
  CHECK(qsf_chat_send(chat, "x", 1, &options, NULL, &error) == QSF_INVALID_ARGUMENT);
  options.struct_size = sizeof options + 1;
  CHECK(qsf_chat_send(chat, "x", 1, &options, NULL, &error) == QSF_INVALID_ARGUMENT);
  options.struct_size = sizeof options;
  qsf_chat_result result = {.struct_size = 0};
  CHECK(qsf_chat_send(chat, "x", 1, &options, &result, &error) == QSF_INVALID_ARGUMENT);
  static char large[100000];
  memset(large, 'q', sizeof large);
  CHECK(qsf_chat_send(chat, large, sizeof large, &options, NULL, &error) == QSF_OUT_OF_BUDGET);
  CHECK(strstr(error.message, "the context holds") != NULL);
  qsf_chat_info info = {.struct_size = sizeof info};
  CHECK(qsf_chat_get_info(chat, &info, &error) == QSF_OK);
  CHECK(info.n_messages == 1);
}

static void expect_message(QSFChat* chat, int index, const char* role, const char* content) {
  qsf_error error;
  const char* got_role = NULL;
  char* got = NULL;
  CHECK(qsf_chat_get_message(chat, index, &got_role, &got, &error) == QSF_OK);
  CHECK(got_role != NULL && strcmp(got_role, role) == 0);
  CHECK(got != NULL && (content == NULL || strcmp(got, content) == 0));
  qsf_string_free(got);
}

static void test_turns(QSFEngine* engine, QSFChat* chat) {
  qsf_error error;
  static Seen seen;
  memset(&seen, 0, sizeof seen);
  qsf_sampling greedy;
  qsf_sampling_init(&greedy);
  greedy.temperature = 0.0f;
  const qsf_logit_bias never_end = {.token = 2, .bias = -1e6f};
  greedy.logit_bias = &never_end;
  greedy.n_logit_bias = 1;
  qsf_chat_send_options options;
  qsf_chat_send_options_init(&options);
  options.max_tokens = 6;
  options.sampling = &greedy;
  options.on_token = on_token;
  options.on_prompt = on_prompt;
  options.user_data = &seen;
  qsf_chat_result result = {.struct_size = sizeof result};
  CHECK(qsf_chat_send(chat, "One\0.", 5, &options, &result, &error) == QSF_OK);
  CHECK(result.struct_size == sizeof result && result.reason == QSF_STOP_MAX_TOKENS);
  CHECK(result.prompt_tokens > 5 && result.reused_tokens == 0 && result.generated_tokens == 6);
  CHECK(result.dropped_messages == 0 && result.prompt_ns > 0);
  CHECK(result.context_tokens == result.prompt_tokens + 5);
  CHECK(seen.n_calls >= 6 && seen.n_progress > 0);
  expect_message(chat, 0, "system", "Be brief.");
  expect_message(chat, 1, "user", "One\xEF\xBF\xBD.");
  expect_message(chat, 2, "assistant", seen.text);
  const int held = result.context_tokens;

  seen.n_calls = 0;
  seen.cancel = engine;
  options.max_tokens = 50;
  CHECK(qsf_chat_send(chat, "Two", 3, &options, &result, &error) == QSF_OK);
  CHECK(result.reason == QSF_STOP_CANCELLED && result.generated_tokens == 2);
  CHECK(result.reused_tokens == held);
  qsf_engine_cancel(engine);
  CHECK(qsf_chat_send(chat, "Three", 5, &options, &result, &error) == QSF_OK);
  CHECK(result.reason == QSF_STOP_CANCELLED && result.generated_tokens == 0);
  qsf_chat_info info = {.struct_size = sizeof info};
  CHECK(qsf_chat_get_info(chat, &info, &error) == QSF_OK);
  CHECK(info.n_messages == 5 && info.context == 256 && info.context_tokens > held);
  CHECK(strcmp(info.template_name, "plain") == 0 && info.system_merged == 0);

  qsf_chat_clear(chat);
  CHECK(qsf_chat_set_system(chat, NULL, 1, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_chat_set_system(chat, NULL, 0, &error) == QSF_OK);
  CHECK(qsf_chat_get_info(chat, &info, &error) == QSF_OK);
  CHECK(info.n_messages == 0);
  CHECK(qsf_chat_get_info(chat, NULL, &error) == QSF_INVALID_ARGUMENT);
  info.struct_size = 4;
  CHECK(qsf_chat_get_info(chat, &info, &error) == QSF_INVALID_ARGUMENT);
  options.max_tokens = 1;
  options.on_token = NULL;
  options.on_prompt = NULL;
  CHECK(qsf_chat_send(chat, NULL, 0, &options, NULL, NULL) == QSF_OK);
}

static void test_messages(QSFChat* chat) {
  qsf_error error;
  const char* role = NULL;
  char* content = NULL;
  CHECK(qsf_chat_get_message(chat, -1, &role, &content, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_chat_get_message(chat, 100, &role, &content, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_chat_get_message(chat, 0, NULL, &content, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_chat_get_message(chat, 0, &role, NULL, &error) == QSF_INVALID_ARGUMENT);
}

static void test_template(QSFEngine* engine) {
  qsf_error error;
  char* text = NULL;
  const qsf_chat_message messages[] = {{"system", "Be brief."}, {"user", "Hi"}};
  CHECK(qsf_engine_apply_chat_template(engine, "chatml", messages, 2, 1, &text, &error) == QSF_OK);
  CHECK(text != NULL && strcmp(text,
                               "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"
                               "Hi<|im_end|>\n<|im_start|>assistant\n") == 0);
  qsf_string_free(text);
  CHECK(qsf_engine_apply_chat_template(engine, NULL, messages, 2, 0, &text, &error) == QSF_OK);
  CHECK(text != NULL && strstr(text, "Hi") != NULL);
  qsf_string_free(text);
  CHECK(qsf_engine_apply_chat_template(engine, NULL, NULL, 2, 0, &text, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(text == NULL);
  CHECK(qsf_engine_apply_chat_template(engine, NULL, messages, 0, 0, &text, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_apply_chat_template(engine, NULL, messages, 2, 0, NULL, &error) ==
        QSF_INVALID_ARGUMENT);
  const qsf_chat_message incomplete[] = {{NULL, "x"}, {"user", NULL}};
  CHECK(qsf_engine_apply_chat_template(engine, NULL, incomplete, 1, 0, &text, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_apply_chat_template(engine, NULL, incomplete + 1, 1, 0, &text, &error) ==
        QSF_INVALID_ARGUMENT);
}

static void test_model(const char* path) {
  qsf_error error;
  QSFEngine* engine = open_small_engine(path);
  if (engine == NULL) return;
  test_create_refusals(engine);
  QSFChat* chat = NULL;
  qsf_chat_options options;
  qsf_chat_options_init(&options);
  options.system = "Be brief. And this is cut off.";
  options.system_bytes = 9;
  options.now_seconds = 1;
  CHECK(qsf_chat_create(engine, &options, &chat, &error) == QSF_OK);
  if (chat != NULL) {
    test_send_refusals(chat);
    test_turns(engine, chat);
    test_messages(chat);
  }
  qsf_chat_free(chat);
  test_template(engine);
  qsf_free(engine);
}

int main(int argc, char** argv) {
  test_nulls();
  test_defaults();
  if (argc > 1) test_model(argv[1]);
  fprintf(stderr, "%d checks, %d failed%s\n", n_checks, n_failures,
          argc > 1 ? "" : " (no model given: what needs one was not tested)");
  return n_failures == 0 ? 0 : 1;
}
