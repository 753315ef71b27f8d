/* SPDX-License-Identifier: MIT
 *
 * The whole public interface from a C11 program: every function, every NULL, wrong sizes.
 *
 * Usage: capi_test [MODEL.qsf]. Without a model only what needs none is tested.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capi/testing/capi_check.h"
#include "qsf/qsf.h"

static int contains(const char* text, const char* part) {
  return strstr(text, part) != NULL;
}

/* What the callbacks have seen. */
typedef struct Seen {
  int n_errors;
  qsf_error last_error;
  int n_progress;
  uint64_t last_done_bytes;
  uint64_t total_bytes;
  int n_lines;
} Seen;

static void on_error(const qsf_error* error, void* user_data) {
  Seen* seen = user_data;
  ++seen->n_errors;
  seen->last_error = *error;
}

static void on_progress(uint64_t done_bytes, uint64_t total_bytes, void* user_data) {
  Seen* seen = user_data;
  ++seen->n_progress;
  CHECK(done_bytes >= seen->last_done_bytes && done_bytes <= total_bytes);
  seen->last_done_bytes = done_bytes;
  seen->total_bytes = total_bytes;
}

static void on_log(qsf_log_level level, const char* line, void* user_data) {
  Seen* seen = user_data;
  ++seen->n_lines;
  CHECK(level == QSF_LOG_INFO || level == QSF_LOG_WARNING);
  CHECK(strchr(line, '\n') == NULL);
}

/* What a generation has delivered. */
typedef struct Text {
  char text[65536];
  size_t bytes;
  int n_calls;
  int n_repeats; /* calls at the end that repeat a token's id and bring text */
  int last_token;
  QSFEngine* cancel; /* cancelled at the third token when not NULL */
} Text;

static void on_token(int token, const char* text, void* user_data) {
  Text* out = user_data;
  const size_t bytes = strlen(text);
  if (out->bytes + bytes < sizeof out->text) {
    memcpy(out->text + out->bytes, text, bytes + 1);
    out->bytes += bytes;
  }
  /* Seen from here a repeat is a call with text and the id of the call before. */
  out->n_repeats =
      out->n_calls > 0 && token == out->last_token && bytes > 0 ? out->n_repeats + 1 : 0;
  out->last_token = token;
  if (++out->n_calls == 3 && out->cancel != NULL) qsf_engine_cancel(out->cancel);
}

/* Each token is reported once; calls beyond that are the last ones, and bring text held back. */
static int calls_fit(const Text* text, int generated_tokens) {
  const int n_more = text->n_calls - generated_tokens;
  return n_more >= 0 && n_more <= 2 && n_more <= text->n_repeats;
}

static void expect_refused(QSFConfig* config, qsf_code code, const char* word) {
  qsf_error error;
  QSFEngine* engine = (QSFEngine*)config; /* anything that is not NULL */
  CHECK(qsf_engine_open("/nonexistent/model.qsf", config, &engine, &error) == code);
  CHECK(engine == NULL);
  CHECK(error.code == code);
  CHECK(contains(error.message, word));
  qsf_config_free(config);
}

static void test_attention_configuration(void) {
  QSFConfig* config = qsf_config_default();
  qsf_config_set_attention(config, (qsf_attention)5, NULL);
  expect_refused(config, QSF_INVALID_ARGUMENT, "attention: 5");
  qsf_h2o_options h2o;
  qsf_h2o_options_init(&h2o);
  CHECK(h2o.struct_size == sizeof h2o && h2o.local == 256 && h2o.heavy == 256);
  CHECK(h2o.chunk == 1024 && h2o.sinks == 4 && h2o.ranking == QSF_H2O_SUM);
  h2o.heavy = -1;
  config = qsf_config_default();
  qsf_config_set_attention(config, QSF_ATTENTION_H2O, &h2o);
  expect_refused(config, QSF_INVALID_ARGUMENT, "heavy: -1");
  h2o.heavy = 256;
  h2o.struct_size = sizeof h2o + 1;
  config = qsf_config_default();
  qsf_config_set_attention(config, QSF_ATTENTION_H2O, &h2o);
  expect_refused(config, QSF_INVALID_ARGUMENT, "struct_size");
}

static void test_setters_of_null(void) {
  Seen seen = {0};
  qsf_config_set_ram_budget(NULL, 1);
  qsf_config_set_io(NULL, QSF_READ_PREAD);
  qsf_config_set_preload(NULL, 0);
  qsf_config_set_kv_spill(NULL, "keys");
  qsf_config_set_threads(NULL, 1);
  qsf_config_set_max_seq_len(NULL, 1);
  qsf_config_set_quality(NULL, 1.0f);
  qsf_config_set_kv_type(NULL, QSF_KV_F32);
  qsf_config_set_kv_types(NULL, QSF_KV_F32, QSF_KV_2BIT);
  qsf_config_set_attention(NULL, QSF_ATTENTION_H2O, NULL);
  qsf_h2o_options_init(NULL);
  qsf_config_set_rows_per_pass(NULL, 1);
  qsf_config_set_exact(NULL, 1);
  qsf_config_set_pin(NULL, 1);
  qsf_config_set_experts(NULL, 1, 0.0F);
  qsf_config_set_speculation(NULL, QSF_SPECULATE_OFF, 0);
  qsf_config_set_draft_model(NULL, "draft");
  qsf_config_set_head(NULL, QSF_HEAD_FULL);
  qsf_config_set_max_sessions(NULL, 1);
  qsf_config_set_ranks(NULL, 1, 1);
  qsf_config_set_kv_positions(NULL, 1);
  qsf_config_set_log_callback(NULL, on_log, &seen);
  qsf_config_set_error_callback(NULL, on_error, &seen);
  qsf_config_set_progress_callback(NULL, on_progress, &seen);
  qsf_config_free(NULL);
}

static void test_configuration(void) {
  Seen seen = {0};
  QSFConfig* config = qsf_config_default();
  CHECK(config != NULL);
  expect_refused(config, QSF_NOT_FOUND, "/nonexistent/model.qsf");
  config = qsf_config_default();
  qsf_config_set_ram_budget(config, SIZE_MAX);
  expect_refused(config, QSF_INVALID_ARGUMENT, "ram_budget");
  config = qsf_config_default();
  qsf_config_set_io(config, (qsf_read_path)4);
  expect_refused(config, QSF_INVALID_ARGUMENT, "io: 4");
  config = qsf_config_default();
  qsf_config_set_quality(config, 0.0f);
  expect_refused(config, QSF_INVALID_ARGUMENT, "quality: 0,");
  config = qsf_config_default();
  qsf_config_set_quality(config, 1.5f);
  expect_refused(config, QSF_INVALID_ARGUMENT, "quality: 1.5");
  config = qsf_config_default();
  qsf_config_set_quality(config, NAN);
  expect_refused(config, QSF_INVALID_ARGUMENT, "quality");
  config = qsf_config_default();
  qsf_config_set_threads(config, -1);
  expect_refused(config, QSF_INVALID_ARGUMENT, "threads");
  config = qsf_config_default();
  qsf_config_set_max_seq_len(config, -5);
  expect_refused(config, QSF_INVALID_ARGUMENT, "max_seq_len");
  config = qsf_config_default();
  qsf_config_set_rows_per_pass(config, -1);
  expect_refused(config, QSF_INVALID_ARGUMENT, "rows_per_pass");
  config = qsf_config_default();
  qsf_config_set_kv_positions(config, -1);
  expect_refused(config, QSF_INVALID_ARGUMENT, "kv_positions: -1, expected 0");
  config = qsf_config_default();
  qsf_config_set_max_sessions(config, 0);
  expect_refused(config, QSF_INVALID_ARGUMENT, "max_sessions");
  config = qsf_config_default();
  qsf_config_set_max_sessions(config, 257);
  expect_refused(config, QSF_INVALID_ARGUMENT, "max_sessions: 257, expected 1 to 256");
  config = qsf_config_default();
  qsf_config_set_kv_type(config, (qsf_kv_type)7);
  expect_refused(config, QSF_INVALID_ARGUMENT, "kv_type: 7 for keys");
  config = qsf_config_default();
  qsf_config_set_kv_types(config, QSF_KV_2BIT, (qsf_kv_type)(QSF_KV_2BIT + 1));
  expect_refused(config, QSF_INVALID_ARGUMENT, "kv_type: 5 for values");
  config = qsf_config_default();
  qsf_config_set_kv_types(config, QSF_KV_2BIT, QSF_KV_F32);
  expect_refused(config, QSF_NOT_FOUND, "/nonexistent/model.qsf");

  config = qsf_config_default();
  qsf_config_set_error_callback(config, on_error, &seen);
  CHECK(qsf_load("/nonexistent/model.qsf", config) == NULL);
  CHECK(seen.n_errors == 1 && seen.last_error.code == QSF_NOT_FOUND);
  CHECK(qsf_load(NULL, config) == NULL);
  CHECK(seen.n_errors == 2 && seen.last_error.code == QSF_INVALID_ARGUMENT);
  CHECK(qsf_load("/nonexistent/model.qsf", NULL) == NULL);
  qsf_config_free(config);
}

/* Every function with NULL where a handle or a pointer belongs. */
static void test_nulls(void) {
  qsf_error error;
  QSFEngine* engine = NULL;
  QSFSession* session = NULL;
  int token = 0;
  size_t n_tokens = 1;
  char* text = NULL;
  double log_prob;
  float logits[2] = {0.0f, 1.0f};
  qsf_model_info info = {.struct_size = sizeof info};
  qsf_memory_region region = {.struct_size = sizeof region};
  qsf_engine_stats stats = {.struct_size = sizeof stats};
  qsf_generate_options options;
  qsf_generate_options_init(&options);
  qsf_generate_options_init(NULL);
  qsf_sampling_init(NULL);

  CHECK(qsf_engine_open(NULL, NULL, &engine, &error) == QSF_INVALID_ARGUMENT);
  CHECK(contains(error.message, "model_path"));
  CHECK(qsf_engine_open("x.qsf", NULL, NULL, NULL) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_open(NULL, NULL, NULL, NULL) == QSF_INVALID_ARGUMENT);
  qsf_free(NULL);
  qsf_engine_cancel(NULL);
  qsf_print_stats(NULL);
  qsf_tokens_free(NULL);
  qsf_string_free(NULL);
  qsf_session_free(NULL);
  qsf_generate(NULL, "x", 1, 0.0f, 1.0f, NULL, NULL);
  CHECK(qsf_engine_model_info(NULL, &info, &error) == QSF_INVALID_ARGUMENT);
  qsf_plan_info plan_info = {.struct_size = sizeof plan_info};
  QSFPlan* plan = NULL;
  CHECK(qsf_plan_create(NULL, NULL, &plan, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_plan_create("model.qsf", NULL, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_plan_create("/nonexistent/model.qsf", NULL, &plan, &error) == QSF_NOT_FOUND);
  CHECK(plan == NULL && qsf_engine_plan(NULL) == NULL);
  CHECK(qsf_plan_get_info(NULL, &plan_info, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_plan_region_count(NULL) == 0 && qsf_plan_step(NULL, 0) == NULL);
  CHECK(qsf_plan_region(NULL, 0, &region, &error) == QSF_INVALID_ARGUMENT);
  qsf_plan_free(NULL);
  CHECK(qsf_engine_memory_region_count(NULL) == 0);
  CHECK(qsf_engine_memory_region(NULL, 0, &region, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_get_stats(NULL, &stats, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_tokenize(NULL, "x", 1, 0, &token, 1, &n_tokens, &error) == QSF_INVALID_ARGUMENT);
  CHECK(n_tokens == 0);
  CHECK(qsf_engine_tokenize(NULL, "x", 1, 0, &token, 1, NULL, NULL) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_detokenize(NULL, &token, 1, &text, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_detokenize(NULL, &token, 1, NULL, NULL) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_tokenize(NULL, "x", &token) == NULL);
  CHECK(qsf_tokenize(NULL, "x", NULL) == NULL);
  CHECK(qsf_detokenize(NULL, &token, 1) == NULL);
  CHECK(qsf_engine_generate(NULL, &options, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_forward(NULL, &token, 1) == NULL);
  CHECK(qsf_engine_score(NULL, &token, 2, 1, &log_prob, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_create(NULL, &session, &error) == QSF_INVALID_ARGUMENT);
  CHECK(session == NULL);
  CHECK(qsf_session_create(NULL, NULL, NULL) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_prefill(NULL, &token, 1, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_step(NULL, 0, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_truncate(NULL, 0, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_length(NULL) == 0);
  CHECK(qsf_sample(NULL, 2, 1.0f, 1.0f) == -1);
  CHECK(qsf_sample(logits, 0, 1.0f, 1.0f) == -1);
}

static void test_sample(void) {
  const float logits[4] = {0.0f, 2.0f, NAN, 1.0f};
  CHECK(qsf_sample(logits, 4, 0.0f, 1.0f) == 1);
  CHECK(qsf_sample(logits, 4, 1.0f, 1e-6f) == 1);
  CHECK(qsf_sample(logits, 4, -1.0f, 1.0f) == -1);
  CHECK(qsf_sample(logits, 4, 1.0f, 0.0f) == -1);
  CHECK(qsf_sample(logits, 4, 1.0f, 1.5f) == -1);
  CHECK(qsf_sample(logits, 4, NAN, 1.0f) == -1);
  int counts[4] = {0};
  for (int i = 0; i < 1000; ++i) {
    const int token = qsf_sample(logits, 4, 1.0f, 1.0f);
    CHECK(token >= 0 && token < 4);
    if (token >= 0 && token < 4) ++counts[token];
  }
  CHECK(counts[2] == 0);
  CHECK(counts[1] > counts[3] && counts[3] > counts[0] && counts[0] > 0);
}

static void test_information(QSFEngine* engine) {
  qsf_error error;
  qsf_model_info info = {.struct_size = sizeof info};
  CHECK(qsf_engine_model_info(engine, &info, &error) == QSF_OK);
  CHECK(error.code == QSF_OK && error.message[0] == '\0');
  CHECK(info.struct_size == sizeof info);
  CHECK(strlen(info.architecture) > 0 && strlen(info.quant_type) > 0);
  CHECK(info.n_layers > 0 && info.n_vocab > 0 && info.hidden_size > 0);
  CHECK(info.context > 0 && info.context <= info.trained_context);
  CHECK(info.bos_token < info.n_vocab && info.eos_token < info.n_vocab);
  CHECK(info.n_parameters > 0 && info.file_bytes > 0 && info.n_kv_heads > 0);
  CHECK(qsf_engine_model_info(engine, NULL, &error) == QSF_INVALID_ARGUMENT);
  info.struct_size = 0;
  CHECK(qsf_engine_model_info(engine, &info, &error) == QSF_INVALID_ARGUMENT);

  const int n_regions = qsf_engine_memory_region_count(engine);
  uint64_t planned_bytes = 0;
  CHECK(n_regions > 0);
  for (int i = 0; i < n_regions; ++i) {
    qsf_memory_region region = {.struct_size = sizeof region};
    CHECK(qsf_engine_memory_region(engine, i, &region, &error) == QSF_OK);
    CHECK(strlen(region.name) > 0 && strlen(region.reason) > 0);
    planned_bytes += region.bytes;
  }
  qsf_memory_region region = {.struct_size = sizeof region};
  CHECK(qsf_engine_memory_region(engine, -1, &region, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_memory_region(engine, n_regions, &region, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_memory_region(engine, 0, NULL, &error) == QSF_INVALID_ARGUMENT);
  region.struct_size = 4;
  CHECK(qsf_engine_memory_region(engine, 0, &region, &error) == QSF_INVALID_ARGUMENT);

  qsf_engine_stats stats = {.struct_size = sizeof stats};
  CHECK(qsf_engine_get_stats(engine, &stats, &error) == QSF_OK);
  CHECK(stats.n_threads > 0 && strlen(stats.instruction_set) > 0);
  CHECK(stats.planned_bytes >= planned_bytes); /* regions are rounded up to cache lines */
  CHECK(stats.weight_bytes_read > 0 && stats.load_ns > 0);
  CHECK(stats.resident_bytes > 0 && stats.peak_resident_bytes >= stats.resident_bytes);
  CHECK(qsf_engine_get_stats(engine, NULL, &error) == QSF_INVALID_ARGUMENT);
  stats.struct_size = 8;
  CHECK(qsf_engine_get_stats(engine, &stats, &error) == QSF_INVALID_ARGUMENT);
  qsf_print_stats(engine);
}

static void test_text(QSFEngine* engine, Seen* seen) {
  static const char kText[] = "Once upon a time";
  qsf_error error;
  size_t n_tokens = 0;
  int tokens[64];
  CHECK(qsf_engine_tokenize(engine, kText, strlen(kText), 0, NULL, 0, &n_tokens, &error) == QSF_OK);
  CHECK(n_tokens > 1 && n_tokens < 64);
  const size_t needed = n_tokens;
  CHECK(qsf_engine_tokenize(engine, kText, strlen(kText), 0, tokens, 1, &n_tokens, &error) ==
        QSF_OUT_OF_BUDGET);
  CHECK(n_tokens == needed);
  CHECK(qsf_engine_tokenize(engine, kText, strlen(kText), 0, tokens, 64, &n_tokens, &error) ==
        QSF_OK);
  CHECK(n_tokens == needed);
  CHECK(qsf_engine_tokenize(engine, NULL, 3, 0, tokens, 64, &n_tokens, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_tokenize(engine, kText, 3, 0, NULL, 64, &n_tokens, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_tokenize(engine, kText, 3, 64, tokens, 64, &n_tokens, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_tokenize(engine, kText, 3, 0, tokens, 64, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_tokenize(engine, NULL, 0, QSF_TOKENIZE_NO_BOS, tokens, 64, &n_tokens, &error) ==
        QSF_OK);
  CHECK(n_tokens == 0);
  CHECK(qsf_engine_tokenize(engine, "\xFF\x00\xFE", 3, QSF_TOKENIZE_PARSE_SPECIAL, tokens, 64,
                            &n_tokens, &error) == QSF_OK);

  int n_short = 0;
  int* short_tokens = qsf_tokenize(engine, kText, &n_short);
  CHECK(short_tokens != NULL && (size_t)n_short == needed);
  char* text = NULL;
  CHECK(qsf_engine_detokenize(engine, short_tokens, needed, &text, &error) == QSF_OK);
  CHECK(text != NULL && strcmp(text, kText) == 0);
  qsf_string_free(text);
  text = qsf_detokenize(engine, short_tokens, n_short);
  CHECK(text != NULL && strcmp(text, kText) == 0);
  qsf_string_free(text);
  qsf_tokens_free(short_tokens);
  CHECK(qsf_engine_detokenize(engine, NULL, 0, &text, &error) == QSF_OK);
  CHECK(text != NULL && text[0] == '\0');
  qsf_string_free(text);
  CHECK(qsf_engine_detokenize(engine, NULL, 2, &text, &error) == QSF_INVALID_ARGUMENT);
  CHECK(text == NULL);
  const int bad[2] = {0, -1};
  CHECK(qsf_engine_detokenize(engine, bad, 2, &text, &error) == QSF_INVALID_ARGUMENT);
  CHECK(contains(error.message, "tokens[1]"));

  const int errors_before = seen->n_errors;
  CHECK(qsf_tokenize(engine, NULL, &n_short) == NULL);
  CHECK(n_short == 0);
  CHECK(qsf_tokenize(engine, kText, NULL) == NULL);
  CHECK(qsf_detokenize(engine, bad, 2) == NULL);
  CHECK(qsf_detokenize(engine, bad, -1) == NULL);
  CHECK(seen->n_errors == errors_before + 4);
}

/* A short generation that a test changes to its liking. */
typedef struct Request {
  qsf_generate_options options;
  qsf_sampling sampling;
  qsf_generate_result result;
  qsf_error error;
} Request;

static void init_request(Request* request) {
  qsf_sampling_init(&request->sampling);
  request->sampling.seed = 7;
  qsf_generate_options_init(&request->options);
  request->options.prompt = "Once upon a time";
  request->options.prompt_bytes = strlen(request->options.prompt);
  request->options.max_tokens = 20;
  request->options.sampling = &request->sampling;
}

/* Completes into `text`. */
static qsf_code complete(QSFEngine* engine, Request* request, Text* text) {
  memset(text, 0, sizeof *text);
  request->options.on_token = on_token;
  request->options.user_data = text;
  memset(&request->result, 0, sizeof request->result);
  request->result.struct_size = sizeof request->result;
  return qsf_engine_generate(engine, &request->options, &request->result, &request->error);
}

/* The code of a completion whose text and result do not matter. */
static qsf_code attempt(QSFEngine* engine, Request* request) {
  request->options.on_token = NULL;
  return qsf_engine_generate(engine, &request->options, NULL, &request->error);
}

/* Leaves the greedy text of 20 tokens in `greedy`. */
static void test_generate(QSFEngine* engine, Text* greedy) {
  static Text first;
  static Text second;
  Request request;
  init_request(&request);
  CHECK(complete(engine, &request, &first) == QSF_OK);
  CHECK(request.result.struct_size == sizeof request.result);
  CHECK(request.result.prompt_tokens > 1 && request.result.prompt_ns > 0);
  CHECK(request.result.generated_tokens > 0 && request.result.generated_tokens <= 20);
  CHECK(request.result.reason == QSF_STOP_MAX_TOKENS ||
        request.result.reason == QSF_STOP_END_OF_TEXT);
  CHECK(calls_fit(&first, request.result.generated_tokens) && first.bytes > 0);
  CHECK(complete(engine, &request, &second) == QSF_OK);
  CHECK(strcmp(first.text, second.text) == 0); /* the same seed */
  request.sampling.seed = 8;
  CHECK(complete(engine, &request, &second) == QSF_OK);
  CHECK(strcmp(first.text, second.text) != 0);

  request.sampling.temperature = 0.0f;
  CHECK(complete(engine, &request, greedy) == QSF_OK);
  const qsf_logit_bias bias = {.token = greedy->last_token, .bias = 1e6f};
  request.sampling.logit_bias = &bias;
  request.sampling.n_logit_bias = 1;
  request.options.max_tokens = 4;
  CHECK(complete(engine, &request, &second) == QSF_OK);
  CHECK(request.result.reason == QSF_STOP_MAX_TOKENS && second.last_token == bias.token);
  request.sampling.logit_bias = NULL;
  CHECK(attempt(engine, &request) == QSF_INVALID_ARGUMENT);

  /* The prompt alone; the defaults for sampling; no result and no error wanted. */
  init_request(&request);
  request.options.max_tokens = 0;
  CHECK(complete(engine, &request, &second) == QSF_OK);
  CHECK(request.result.generated_tokens == 0 && second.bytes == 0);
  CHECK(request.result.prompt_tokens > 1);
  request.options.sampling = NULL;
  request.options.max_tokens = 1;
  request.options.on_token = NULL;
  CHECK(qsf_engine_generate(engine, &request.options, NULL, NULL) == QSF_OK);
}

static void test_stop(QSFEngine* engine, const Text* greedy) {
  static Text text;
  Request request;
  init_request(&request);
  request.sampling.temperature = 0.0f;
  size_t half = greedy->bytes / 2;
  while (half > 0 && ((unsigned char)greedy->text[half] & 0xC0) == 0x80) --half;
  const char* stop = greedy->text + half;
  request.options.stop = &stop;
  request.options.n_stop = 1;
  CHECK(complete(engine, &request, &text) == QSF_OK);
  CHECK(request.result.reason == QSF_STOP_STRING);
  CHECK(text.n_calls == request.result.generated_tokens); /* nothing is held back before a stop */
  CHECK(strncmp(text.text, greedy->text, text.bytes) == 0 && text.bytes <= half);
  stop = "";
  CHECK(attempt(engine, &request) == QSF_INVALID_ARGUMENT);
  stop = NULL;
  CHECK(attempt(engine, &request) == QSF_INVALID_ARGUMENT);
  request.options.stop = NULL;
  CHECK(attempt(engine, &request) == QSF_INVALID_ARGUMENT);
}

/* Cancelled in the middle, before it began, and no longer afterwards. */
static void test_cancel(QSFEngine* engine, const Text* greedy) {
  static Text text;
  Request request;
  init_request(&request);
  request.sampling.temperature = 0.0f;
  request.options.max_tokens = 200;
  memset(&text, 0, sizeof text);
  text.cancel = engine;
  request.options.on_token = on_token;
  request.options.user_data = &text;
  request.result.struct_size = sizeof request.result;
  CHECK(qsf_engine_generate(engine, &request.options, &request.result, &request.error) == QSF_OK);
  CHECK(request.result.reason == QSF_STOP_CANCELLED && request.result.generated_tokens >= 3);
  CHECK(text.bytes > 0 && strncmp(text.text, greedy->text, text.bytes) == 0);
  qsf_engine_cancel(engine);
  CHECK(complete(engine, &request, &text) == QSF_OK);
  CHECK(request.result.reason == QSF_STOP_CANCELLED && text.n_calls == 0);
  request.options.max_tokens = 2;
  CHECK(complete(engine, &request, &text) == QSF_OK);
  CHECK(request.result.reason == QSF_STOP_MAX_TOKENS);
}

static void test_generate_refusals(QSFEngine* engine) {
  Request request;
  init_request(&request);
  request.options.max_tokens = -1;
  CHECK(attempt(engine, &request) == QSF_INVALID_ARGUMENT);
  CHECK(contains(request.error.message, "max_tokens"));
  request.options.max_tokens = 1;
  request.sampling.top_p = 2.0f;
  CHECK(attempt(engine, &request) == QSF_INVALID_ARGUMENT);
  CHECK(contains(request.error.message, "top_p"));
  request.sampling.top_p = 1.0f;
  request.sampling.top_k = -1;
  CHECK(attempt(engine, &request) == QSF_INVALID_ARGUMENT);
  request.sampling.top_k = 0;
  request.sampling.repeat_window = -1;
  CHECK(attempt(engine, &request) == QSF_INVALID_ARGUMENT);
  request.sampling.repeat_window = 0;
  CHECK(attempt(engine, &request) == QSF_OK);
  request.sampling.struct_size = 8;
  CHECK(attempt(engine, &request) == QSF_INVALID_ARGUMENT);
  request.sampling.struct_size = sizeof request.sampling + 4;
  CHECK(attempt(engine, &request) == QSF_INVALID_ARGUMENT);
  request.options.sampling = NULL;
  request.options.struct_size = 0;
  CHECK(attempt(engine, &request) == QSF_INVALID_ARGUMENT);
  request.options.struct_size = sizeof request.options + 1;
  CHECK(attempt(engine, &request) == QSF_INVALID_ARGUMENT);
  request.options.struct_size = sizeof request.options;
  CHECK(qsf_engine_generate(engine, NULL, NULL, &request.error) == QSF_INVALID_ARGUMENT);
  request.result.struct_size = 0;
  CHECK(qsf_engine_generate(engine, &request.options, &request.result, &request.error) ==
        QSF_INVALID_ARGUMENT);
  request.options.prompt = NULL;
  CHECK(attempt(engine, &request) == QSF_INVALID_ARGUMENT);
}

static void test_short_generate(QSFEngine* engine, const Text* greedy, const Seen* seen) {
  static Text text;
  memset(&text, 0, sizeof text);
  const int errors_before = seen->n_errors;
  qsf_generate(engine, "Once upon a time", 5, 0.0f, 1.0f, on_token, &text);
  CHECK(calls_fit(&text, 5) && strncmp(greedy->text, text.text, text.bytes) == 0);
  CHECK(seen->n_errors == errors_before);
  qsf_generate(engine, NULL, 5, 0.0f, 1.0f, on_token, &text);
  qsf_generate(engine, "x", -5, 0.0f, 1.0f, on_token, &text);
  CHECK(seen->n_errors == errors_before + 2);
}

/* A prompt longer than the context is refused before anything is computed. */
static void test_long_prompt(QSFEngine* engine, int context) {
  qsf_error error;
  qsf_generate_options options;
  qsf_generate_options_init(&options);
  options.prompt_bytes = (size_t)context * 16 * 3;
  char* prompt = malloc(options.prompt_bytes);
  for (size_t i = 0; i < options.prompt_bytes; ++i) prompt[i] = "q!x "[i % 4];
  options.prompt = prompt;
  CHECK(qsf_engine_generate(engine, &options, NULL, &error) == QSF_OUT_OF_BUDGET);
  CHECK(contains(error.message, "context"));
  free(prompt);
}

/* The logits of every row of a call, whole. */
typedef struct Rows {
  float* logits; /* [n_rows, n_vocab] */
  int n_vocab;
  size_t n_seen; /* logits */
} Rows;

static void store_rows(size_t row, int first_token, const float* logits, size_t n_logits,
                       void* user_data) {
  Rows* rows = user_data;
  memcpy(rows->logits + row * (size_t)rows->n_vocab + first_token, logits,
         n_logits * sizeof *logits);
  rows->n_seen += n_logits;
}

/* Logits of every row are those that are computed row by row, over more rows than a pass holds. */
static void test_logits_of_rows(QSFEngine* engine, int n_vocab) {
  enum { kRows = 200 };
  int tokens[kRows];
  for (int i = 0; i < kRows; ++i) tokens[i] = (i * 7 + 3) % n_vocab;
  const size_t row_bytes = (size_t)n_vocab * sizeof(float);
  Rows rows = {malloc(kRows * row_bytes), n_vocab, 0};
  float* logits = malloc(row_bytes);
  QSFSession* session = NULL;
  qsf_error error;
  CHECK(qsf_session_create(engine, &session, &error) == QSF_OK);
  CHECK(qsf_session_prefill_logits(NULL, tokens, 1, store_rows, &rows, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_prefill_logits(session, tokens, 1, NULL, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_prefill_logits(session, tokens, 0, store_rows, &rows, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_prefill(session, tokens, 2, NULL, &error) == QSF_OK);
  qsf_engine_cancel(engine);
  CHECK(qsf_session_prefill_logits(session, tokens + 2, kRows - 2, store_rows, &rows, &error) ==
        QSF_CANCELLED);
  CHECK(qsf_session_length(session) == 2);
  rows.n_seen = 0;
  CHECK(qsf_session_prefill_logits(session, tokens + 2, kRows - 2, store_rows, &rows, &error) ==
        QSF_OK);
  CHECK(qsf_session_length(session) == kRows);
  CHECK(rows.n_seen == (size_t)(kRows - 2) * (size_t)n_vocab);
  CHECK(qsf_session_prefill_logits(session, tokens, 57, store_rows, &rows, &error) ==
        QSF_OUT_OF_BUDGET);
  CHECK(qsf_session_length(session) == kRows);
  const int at[] = {kRows - 1, 130, 3, 2};
  for (size_t i = 0; i < sizeof at / sizeof at[0]; ++i) {
    CHECK(qsf_session_truncate(session, (size_t)at[i], &error) == QSF_OK);
    CHECK(qsf_session_prefill(session, tokens + at[i], 1, logits, &error) == QSF_OK);
    CHECK(memcmp(logits, rows.logits + (size_t)(at[i] - 2) * (size_t)n_vocab, row_bytes) == 0);
  }
  qsf_session_free(session);
  free(logits);
  free(rows.logits);
}

static void test_numbers(QSFEngine* engine, int n_vocab, Seen* seen) {
  qsf_error error;
  const int tokens[5] = {1, 2, 3, 4, 5};
  const size_t bytes = (size_t)n_vocab * sizeof(float);
  float* whole = malloc(bytes);
  float* logits = malloc(bytes);
  const float* forward = qsf_forward(engine, tokens, 5);
  CHECK(forward != NULL);
  if (forward != NULL) memcpy(whole, forward, bytes);
  const int errors_before = seen->n_errors;
  CHECK(qsf_forward(engine, NULL, 5) == NULL);
  CHECK(qsf_forward(engine, tokens, 0) == NULL);
  CHECK(qsf_forward(engine, &n_vocab, 1) == NULL);
  CHECK(seen->n_errors == errors_before + 3);

  QSFSession* session = NULL;
  QSFSession* other = NULL;
  CHECK(qsf_session_create(engine, &session, &error) == QSF_OK);
  CHECK(session != NULL && qsf_session_length(session) == 0);
  CHECK(qsf_session_create(engine, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_create(engine, &other, &error) == QSF_OK);
  qsf_session_free(other);
  CHECK(qsf_session_prefill(session, tokens, 5, logits, &error) == QSF_OK);
  CHECK(memcmp(whole, logits, bytes) == 0); /* the same bits, however it is asked */
  CHECK(qsf_session_length(session) == 5);
  CHECK(qsf_session_truncate(session, 2, &error) == QSF_OK);
  CHECK(qsf_session_length(session) == 2);
  CHECK(qsf_session_prefill(session, tokens + 2, 2, NULL, NULL) == QSF_OK);
  CHECK(qsf_session_prefill(session, tokens + 4, 1, logits, NULL) == QSF_OK);
  CHECK(memcmp(whole, logits, bytes) == 0);
  CHECK(qsf_session_step(session, 6, logits, &error) == QSF_OK);
  CHECK(qsf_session_step(session, 7, NULL, &error) == QSF_OK);
  CHECK(qsf_session_length(session) == 7);
  CHECK(qsf_session_step(session, -1, logits, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_step(session, n_vocab, logits, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_prefill(session, NULL, 1, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_prefill(session, tokens, 0, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_truncate(session, 8, &error) == QSF_INVALID_ARGUMENT);
  qsf_engine_cancel(engine);
  CHECK(qsf_session_step(session, 1, NULL, &error) == QSF_CANCELLED);
  CHECK(qsf_session_length(session) == 7);

  /* Scores are the log probabilities of the logits. */
  double log_probs[4];
  CHECK(qsf_engine_score(engine, tokens, 5, 1, log_probs, &error) == QSF_OK);
  const float* before = qsf_forward(engine, tokens, 4);
  CHECK(before != NULL);
  if (before != NULL) {
    double total = 0.0;
    for (int i = 0; i < n_vocab; ++i) total += exp((double)before[i] - (double)before[tokens[4]]);
    CHECK(fabs(log_probs[3] + log(total)) < 1e-4);
  }
  for (int i = 0; i < 4; ++i) CHECK(log_probs[i] < 0.0 && isfinite(log_probs[i]));
  CHECK(qsf_engine_score(engine, tokens, 5, 0, log_probs, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_score(engine, tokens, 5, 5, log_probs, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_score(engine, tokens, 5, 1, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_score(engine, NULL, 5, 1, log_probs, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_score(engine, tokens, 0, 1, log_probs, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_score(engine, tokens, 1, 1, log_probs, &error) == QSF_INVALID_ARGUMENT);
  CHECK(contains(error.message, "at least two tokens"));
  int many[257] = {0}; /* one more than the context */
  CHECK(qsf_engine_score(engine, many, 257, 256, log_probs, &error) == QSF_OUT_OF_BUDGET);
  CHECK(contains(error.message, "the context holds 256"));
  qsf_session_free(session);
  free(whole);
  free(logits);
}

static void test_model(const char* path) {
  Seen seen = {0};
  qsf_error error;
  QSFConfig* config = qsf_config_default();
  qsf_config_set_ram_budget(config, 0);
  qsf_config_set_threads(config, 2);
  qsf_config_set_max_seq_len(config, 256);
  qsf_config_set_quality(config, 1.0f);
  qsf_config_set_kv_type(config, QSF_KV_F32);
  qsf_config_set_rows_per_pass(config, 16);
  qsf_config_set_max_sessions(config, 2);
  qsf_config_set_log_callback(config, on_log, &seen);
  qsf_config_set_error_callback(config, on_error, &seen);
  qsf_config_set_progress_callback(config, on_progress, &seen);

  QSFEngine* engine = NULL;
  CHECK(qsf_engine_open(path, config, &engine, &error) == QSF_OK);
  CHECK(error.code == QSF_OK);
  if (engine == NULL) {
    fprintf(stderr, "%s\n", error.message);
    ++n_failures;
    qsf_config_free(config);
    return;
  }
  CHECK(seen.n_progress > 0 && seen.last_done_bytes == seen.total_bytes);
  qsf_model_info info = {.struct_size = sizeof info};
  CHECK(qsf_engine_model_info(engine, &info, &error) == QSF_OK);
  CHECK(info.context == 256);
  test_information(engine);
  test_text(engine, &seen);
  static Text greedy;
  test_generate(engine, &greedy);
  test_stop(engine, &greedy);
  test_cancel(engine, &greedy);
  test_generate_refusals(engine);
  test_short_generate(engine, &greedy, &seen);
  test_long_prompt(engine, info.context);
  test_numbers(engine, info.n_vocab, &seen);
  test_logits_of_rows(engine, info.n_vocab);
  qsf_free(engine);

  /* The short form opens the same model, from the same configuration and from none. */
  seen.last_done_bytes = 0;
  engine = qsf_load(path, config);
  CHECK(engine != NULL);
  qsf_config_free(config);
  int n_tokens = 0;
  int* tokens = qsf_tokenize(engine, "x", &n_tokens);
  CHECK(tokens != NULL);
  qsf_tokens_free(tokens);
  qsf_free(engine);
  engine = qsf_load(path, NULL);
  CHECK(engine != NULL);
  qsf_free(engine);
}

int main(int argc, char** argv) {
  CHECK(strlen(qsf_version()) > 0);
  test_attention_configuration();
  test_setters_of_null();
  test_configuration();
  test_nulls();
  test_sample();
  if (argc > 1) test_model(argv[1]);
  fprintf(stderr, "%d checks, %d failed%s\n", n_checks, n_failures,
          argc > 1 ? "" : " (no model given: what needs one was not tested)");
  return n_failures == 0 ? 0 : 1;
}
