/* SPDX-License-Identifier: MIT
 *
 * The prefix cache: prompts that begin alike, keys, eviction, and what opening refuses.
 *
 *   capi_prefix_test [MODEL.qsf]      without a model: the refusals alone
 */
#include <stdio.h>
#include <string.h>

#include "capi/testing/capi_check.h"
#include "capi/testing/capi_refused.h"
#include "qsf/qsf.h"

#define N_TOKENS 200

typedef struct Request {
  qsf_generate_options options;
  qsf_generate_result result;
  int tokens[N_TOKENS];
  char text[2000];
} Request;

static void on_token(int token, const char* text, void* user_data) {
  Request* request = user_data;
  (void)token;
  strncat(request->text, text, sizeof request->text - strlen(request->text) - 1);
}

/* Prompts of one `start` begin with the same 150 tokens. */
static void init_request(Request* request, int start, int end, const char* key) {
  memset(request, 0, sizeof *request);
  for (int i = 0; i < N_TOKENS; ++i) request->tokens[i] = 300 + i + (i < 150 ? start : end);
  request->result.struct_size = sizeof request->result;
  qsf_generate_options_init(&request->options);
  request->options.prompt_tokens = request->tokens;
  request->options.n_prompt_tokens = N_TOKENS;
  request->options.max_tokens = 12;
  request->options.ignore_end_of_text = 1;
  request->options.on_token = on_token;
  request->options.user_data = request;
  if (key == NULL) return;
  request->options.prefix_key = key;
  request->options.prefix_key_bytes = strlen(key);
}

/* Returns how many tokens of the prompt were cached. */
static int run(QSFEngine* engine, Request* request) {
  qsf_error error;
  CHECK(qsf_engine_generate(engine, &request->options, &request->result, &error) == QSF_OK);
  CHECK(request->result.prompt_tokens == N_TOKENS && request->result.generated_tokens == 12);
  return request->result.cached_tokens;
}

static QSFConfig* config_of(int prefix_cache) {
  QSFConfig* config = qsf_config_default();
  qsf_config_set_threads(config, 1);
  qsf_config_set_max_seq_len(config, 256);
  qsf_config_set_max_sessions(config, 2);
  qsf_config_set_kv_positions(config, 8 * 64);
  qsf_config_set_prefix_cache(config, prefix_cache);
  return config;
}

static QSFEngine* open_engine(const char* path, int prefix_cache) {
  QSFConfig* config = config_of(prefix_cache);
  QSFEngine* engine = NULL;
  CHECK(qsf_engine_open(path, config, &engine, NULL) == QSF_OK);
  qsf_config_free(config);
  return engine;
}

static qsf_prefix_stats stats_of(const QSFEngine* engine) {
  qsf_prefix_stats stats = {.struct_size = sizeof stats};
  CHECK(qsf_engine_prefix_stats(engine, &stats, NULL) == QSF_OK);
  return stats;
}

static void test_sharing(QSFEngine* engine, QSFEngine* plain) {
  Request alone;
  Request request;
  init_request(&alone, 0, 0, NULL);
  CHECK(run(plain, &alone) == 0);
  init_request(&request, 0, 0, "one");
  CHECK(run(engine, &request) == 0 && strcmp(request.text, alone.text) == 0);
  init_request(&request, 0, 0, "one");
  CHECK(run(engine, &request) == 192 && strcmp(request.text, alone.text) == 0);

  init_request(&alone, 0, 40, NULL);
  CHECK(run(plain, &alone) == 0);
  init_request(&request, 0, 40, "one");
  CHECK(run(engine, &request) == 128 && strcmp(request.text, alone.text) == 0);
  init_request(&request, 0, 40, "two");
  CHECK(run(engine, &request) == 0 && strcmp(request.text, alone.text) == 0);
  init_request(&request, 0, 40, "");
  CHECK(run(engine, &request) == 0);
  init_request(&request, 0, 40, NULL);
  CHECK(run(engine, &request) == 0);

  const qsf_prefix_stats stats = stats_of(engine);
  CHECK(stats.hits == 2 && stats.hit_tokens == 192 + 128);
  CHECK(stats.misses_no_entry == 1 && stats.misses_other_key == 2 && stats.misses_too_short == 0);
  CHECK(stats.continued == 0 && stats.pages == stats.idle_pages && stats.pages >= 4);
  CHECK(stats.evicted_pages > 0 && stats.keys <= 3 && stats.entries >= stats.keys);
  qsf_kv_page_counts pages = {.struct_size = sizeof pages};
  CHECK(qsf_engine_kv_pages(engine, &pages, NULL) == QSF_OK);
  CHECK(pages.pages == 8 && pages.free_pages == 8 && pages.unreserved_pages == 8);

  const qsf_prefix_stats none = stats_of(plain);
  CHECK(none.pages == 0 && none.hits == 0 && none.misses_no_entry == 0);
}

/* Structs of 0.1 have no room for the key, and none for what was cached. */
static void test_old_structs(QSFEngine* engine) {
  Request request;
  init_request(&request, 0, 0, "one");
  request.options.struct_size = 88;
  request.options.prompt = "Once upon a time";
  request.options.prompt_bytes = strlen(request.options.prompt);
  request.result.struct_size = 48;
  request.result.cached_tokens = 77;
  qsf_error error;
  CHECK(qsf_engine_generate(engine, &request.options, &request.result, &error) == QSF_OK);
  CHECK(request.result.struct_size == 48 && request.result.cached_tokens == 77);
}

static void test_refusals(const char* path, QSFEngine* engine, QSFEngine* plain) {
  QSFConfig* config = config_of(1);
  qsf_config_set_kv_policy(config, QSF_KV_POLICY_WINDOW, 64, 4, 0);
  expect_refused(path, config, QSF_UNSUPPORTED, "prefix_cache with kv policy window");
  config = config_of(1);
  qsf_config_set_attention(config, QSF_ATTENTION_SYMMETRIC, NULL);
  expect_refused(path, config, QSF_UNSUPPORTED, "prefix_cache with attention symmetric");
  config = config_of(0);
  qsf_config_set_reuse_answers(config, 1);
  expect_refused(path, config, QSF_INVALID_ARGUMENT, "reuse_answers: needs the prefix cache");
  config = config_of(0);
  qsf_config_set_prefix_folder(config, ".", 1000000000);
  expect_refused(path, config, QSF_INVALID_ARGUMENT, "prefix_folder: needs the prefix cache");
  config = config_of(1);
  qsf_config_set_prefix_folder(config, ".", 1000);
  expect_refused(path, config, QSF_INVALID_ARGUMENT, "expected room for a page");
  config = config_of(1);
  qsf_config_set_prefix_folder(config, "/no/such/folder", 1000000000);
  expect_refused(path, config, QSF_IO, "/no/such/folder");
  config = config_of(1);
  qsf_config_set_prefix_folder(config, "folder", 1000000000);
  qsf_config_set_kv_spill(config, "folder/spill");
  expect_refused(path, config, QSF_UNSUPPORTED, "prefix_folder with kv_spill");

  char key[257];
  memset(key, 'k', sizeof key);
  qsf_error error;
  Request request;
  init_request(&request, 0, 0, "one");
  CHECK(qsf_engine_generate(plain, &request.options, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "opened without a prefix cache") != NULL);
  request.options.prefix_key = key;
  request.options.prefix_key_bytes = sizeof key;
  CHECK(qsf_engine_generate(engine, &request.options, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "prefix_key: 257 bytes") != NULL);
  request.options.prefix_key = NULL;
  CHECK(qsf_engine_generate(engine, &request.options, NULL, &error) == QSF_INVALID_ARGUMENT);
}

static void test_without_model(void) {
  qsf_prefix_stats stats = {.struct_size = sizeof stats};
  qsf_config_set_prefix_cache(NULL, 1);
  qsf_config_set_reuse_answers(NULL, 1);
  qsf_config_set_prefix_folder(NULL, "folder", 1);
  CHECK(qsf_engine_prefix_stats(NULL, &stats, NULL) == QSF_INVALID_ARGUMENT);
}

static void test_model(const char* path) {
  QSFEngine* engine = open_engine(path, 1);
  QSFEngine* plain = open_engine(path, 0);
  if (engine != NULL && plain != NULL) {
    CHECK(qsf_engine_prefix_stats(engine, NULL, NULL) == QSF_INVALID_ARGUMENT);
    test_sharing(engine, plain);
    test_old_structs(engine);
    test_refusals(path, engine, plain);
  }
  qsf_free(engine);
  qsf_free(plain);
}

int main(int argc, char** argv) {
  test_without_model();
  if (argc > 1) test_model(argv[1]);
  fprintf(stderr, "%d checks, %d failed\n", n_checks, n_failures);
  return n_failures == 0 ? 0 : 1;
}
