/* SPDX-License-Identifier: MIT
 *
 * A program of 0.1, compiled with that release's header and linked to this library: all its
 * callbacks, structs and short forms.
 *
 *   capi_0_1_test [MODEL.qsf]      without a model: what needs none
 */
#include <qsf/qsf.h>
#include <string.h>

#include "capi/testing/capi_check.h"

#ifdef QSF_ABI_VERSION
#error "compiled with another header than that of 0.1"
#endif

typedef struct Seen {
  int n_tokens, n_lines, n_errors, n_loads, n_prompts;
  uint64_t done, total;
  char text[2000];
} Seen;

static void on_token(int token, const char* text, void* user_data) {
  Seen* seen = user_data;
  CHECK(token >= 0);
  ++seen->n_tokens;
  strncat(seen->text, text, sizeof seen->text - strlen(seen->text) - 1);
}

static void on_log(qsf_log_level level, const char* line, void* user_data) {
  CHECK(level == QSF_LOG_INFO || level == QSF_LOG_WARNING);
  CHECK(line[0] != '\0');
  ++((Seen*)user_data)->n_lines;
}

static void on_error(const qsf_error* error, void* user_data) {
  CHECK(error->code != QSF_OK && error->message[0] != '\0');
  ++((Seen*)user_data)->n_errors;
}

static void on_load(uint64_t done, uint64_t total, void* user_data) {
  Seen* seen = user_data;
  ++seen->n_loads;
  seen->done = done;
  seen->total = total;
}

static void on_prompt(uint64_t done, uint64_t total, void* user_data) {
  CHECK(done <= total);
  ++((Seen*)user_data)->n_prompts;
}

/* A struct of 0.1 and what lies behind it. */
#define GUARDED(type) \
  struct {            \
    type of_0_1;      \
    uint64_t guard;   \
  }
static const uint64_t kGuard = 0x5A5A5A5A5A5A5A5Au;

static void test_init(void) {
  GUARDED(qsf_sampling) sampling = {.guard = kGuard};
  GUARDED(qsf_generate_options) options = {.guard = kGuard};
  GUARDED(qsf_chat_options) chat = {.guard = kGuard};
  GUARDED(qsf_chat_send_options) send = {.guard = kGuard};
  GUARDED(qsf_h2o_options) h2o = {.guard = kGuard};
  qsf_sampling_init(&sampling.of_0_1);
  qsf_generate_options_init(&options.of_0_1);
  qsf_chat_options_init(&chat.of_0_1);
  qsf_chat_send_options_init(&send.of_0_1);
  qsf_h2o_options_init(&h2o.of_0_1);
  CHECK(sampling.of_0_1.struct_size == sizeof(qsf_sampling) && sampling.guard == kGuard);
  CHECK(options.of_0_1.struct_size == sizeof(qsf_generate_options) && options.guard == kGuard);
  CHECK(chat.of_0_1.struct_size == sizeof(qsf_chat_options) && chat.guard == kGuard);
  CHECK(send.of_0_1.struct_size == sizeof(qsf_chat_send_options) && send.guard == kGuard);
  CHECK(h2o.of_0_1.struct_size == sizeof(qsf_h2o_options) && h2o.guard == kGuard);
  CHECK(sampling.of_0_1.temperature == 0.7f && sampling.of_0_1.top_k == 40);
  CHECK(options.of_0_1.max_tokens == 256);
}

static void test_failure(void) {
  Seen seen = {0};
  QSFConfig* config = qsf_config_default();
  qsf_config_set_error_callback(config, on_error, &seen);
  CHECK(qsf_load("/nonexistent/model.qsf", config) == NULL);
  CHECK(seen.n_errors == 1);
  qsf_config_free(config);
}

static void test_generate(QSFEngine* engine) {
  Seen seen = {0};
  qsf_error error;
  qsf_sampling sampling;
  qsf_sampling_init(&sampling);
  sampling.repeat_penalty = 1.1f;
  sampling.seed = 7;
  qsf_generate_options options;
  qsf_generate_options_init(&options);
  options.prompt = "Once upon a time";
  options.prompt_bytes = strlen(options.prompt);
  options.max_tokens = 12;
  options.sampling = &sampling;
  options.on_token = on_token;
  options.on_prompt = on_prompt;
  options.user_data = &seen;
  GUARDED(qsf_generate_result) result = {.guard = kGuard};
  result.of_0_1.struct_size = sizeof result.of_0_1;
  CHECK(qsf_engine_generate(engine, &options, &result.of_0_1, &error) == QSF_OK);
  CHECK(error.code == QSF_OK && result.guard == kGuard);
  CHECK(result.of_0_1.struct_size == sizeof result.of_0_1);
  CHECK(result.of_0_1.generated_tokens == 12 && seen.n_tokens >= 12 && seen.n_prompts > 0);
  CHECK(strlen(seen.text) > 12);

  Seen again = {0};
  qsf_generate(engine, options.prompt, 12, 0.0f, 1.0f, on_token, &again);
  CHECK(again.n_tokens >= 12);
}

static void test_chat(QSFEngine* engine) {
  Seen seen = {0};
  qsf_error error;
  qsf_chat_options options;
  qsf_chat_options_init(&options);
  options.chat_template = "plain";
  QSFChat* chat = NULL;
  CHECK(qsf_chat_create(engine, &options, &chat, &error) == QSF_OK);
  qsf_chat_send_options send;
  qsf_chat_send_options_init(&send);
  send.max_tokens = 4;
  send.on_token = on_token;
  send.user_data = &seen;
  qsf_chat_result result = {.struct_size = sizeof result};
  CHECK(qsf_chat_send(chat, "Hello", 5, &send, &result, &error) == QSF_OK);
  CHECK(result.generated_tokens == seen.n_tokens || result.reason == QSF_STOP_END_OF_TEXT);
  qsf_chat_free(chat);
}

static void test_information(QSFEngine* engine) {
  GUARDED(qsf_model_info) info = {.guard = kGuard};
  GUARDED(qsf_engine_stats) stats = {.guard = kGuard};
  info.of_0_1.struct_size = sizeof info.of_0_1;
  stats.of_0_1.struct_size = sizeof stats.of_0_1;
  CHECK(qsf_engine_model_info(engine, &info.of_0_1, NULL) == QSF_OK && info.guard == kGuard);
  CHECK(qsf_engine_get_stats(engine, &stats.of_0_1, NULL) == QSF_OK && stats.guard == kGuard);
  CHECK(info.of_0_1.n_vocab > 0 && stats.of_0_1.generated_tokens > 0);
}

static void test_model(const char* path) {
  Seen seen = {0};
  QSFConfig* config = qsf_config_default();
  qsf_config_set_threads(config, 1);
  qsf_config_set_max_seq_len(config, 256);
  qsf_config_set_log_callback(config, on_log, &seen);
  qsf_config_set_error_callback(config, on_error, &seen);
  qsf_config_set_progress_callback(config, on_load, &seen);
  QSFEngine* engine = qsf_load(path, config);
  qsf_config_free(config);
  CHECK(engine != NULL);
  if (engine == NULL) return;
  CHECK(seen.n_loads > 0 && seen.done == seen.total);
  test_generate(engine);
  test_chat(engine);
  test_information(engine);
  CHECK(seen.n_errors == 0);
  qsf_generate(engine, NULL, 1, 0.0f, 1.0f, NULL, NULL);
  CHECK(seen.n_errors == 1);
  qsf_free(engine);
}

int main(int argc, char** argv) {
  CHECK(strlen(qsf_version()) > 0);
  test_init();
  test_failure();
  if (argc > 1) test_model(argv[1]);
  fprintf(stderr, "%d checks, %d failed\n", n_checks, n_failures);
  return n_failures == 0 ? 0 : 1;
}
