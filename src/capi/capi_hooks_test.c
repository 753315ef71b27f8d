/* SPDX-License-Identifier: MIT
 *
 * Hooks: what a layer callback reads, that no text changes by it, that it stops a call; ranks of
 * H2O eviction; what opening and the readers refuse.
 *
 *   capi_hooks_test [MODEL.qsf]      without a model: NULL alone
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "capi/testing/capi_check.h"
#include "capi/testing/capi_refused.h"
#include "qsf/qsf.h"

static const char* const prompt =
    "There was a king who had three sons. The first was wise, the second was brave, and the third";

enum { kTextBytes = 1000 };

typedef struct Seen {
  int n_calls;
  int n_rows; /* of layer 0 */
  int n_generated;
  int stops_at; /* a call, from 1 on; 0: none */
  int n_ranked;
} Seen;

static QSFConfig* config_of(void) {
  QSFConfig* config = qsf_config_default();
  qsf_config_set_threads(config, 1);
  qsf_config_set_max_seq_len(config, 256);
  return config;
}

/* What cannot be read of a layer. */
static void check_refusals(const QSFLayer* layer, const qsf_layer_info* info) {
  qsf_error error;
  qsf_layer_row row = {.struct_size = sizeof row};
  CHECK(qsf_layer_get_row(layer, info->n_rows, &row, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "row: ") != NULL);
  CHECK(qsf_layer_get_row(layer, -1, &row, NULL) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_layer_get_row(layer, 0, NULL, NULL) == QSF_INVALID_ARGUMENT);
  row.struct_size = 3;
  CHECK(qsf_layer_get_row(layer, 0, &row, NULL) == QSF_INVALID_ARGUMENT);
  const void* block = NULL;
  CHECK(qsf_layer_get_kv_block(layer, 0, info->n_kv_heads, QSF_KEYS, 0, &block, NULL, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "kv_head: ") != NULL);
  CHECK(qsf_layer_get_kv_block(layer, 0, 0, QSF_KEYS, 63, &block, NULL, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "multiple of 64") != NULL);
  CHECK(qsf_layer_get_kv_block(layer, 0, 0, QSF_KEYS, -64, &block, NULL, NULL) ==
        QSF_INVALID_ARGUMENT);
  CHECK(qsf_layer_get_kv_block(layer, 0, 0, QSF_KEYS, 0, NULL, NULL, NULL) == QSF_INVALID_ARGUMENT);
  float mass[2];
  CHECK(qsf_layer_get_attention(layer, 0, 0, NULL, 2, NULL) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_layer_get_attention(layer, 0, -1, mass, 2, NULL) == QSF_INVALID_ARGUMENT);
}

static int see(const QSFLayer* layer, void* user_data) {
  Seen* seen = user_data;
  qsf_layer_info info = {.struct_size = sizeof info};
  CHECK(qsf_layer_get_info(layer, &info, NULL) == QSF_OK);
  CHECK(info.layer == seen->n_calls % info.n_layers && info.n_rows > 0 && info.hidden_size > 0);
  CHECK(info.n_kv_heads > 0 && info.head_dim > 0 && info.kv_bytes > 0);
  CHECK(info.k_type == QSF_KV_F32 && info.v_type == QSF_KV_8BIT);
  if (++seen->n_calls == seen->stops_at) return 1;
  if (info.layer != 0) return 0;
  for (int i = 0; i < info.n_rows; ++i) {
    qsf_layer_row row = {.struct_size = sizeof row};
    CHECK(qsf_layer_get_row(layer, i, &row, NULL) == QSF_OK);
    CHECK(row.position == seen->n_rows++ && row.sequence == 0 && row.token >= 0);
    CHECK(row.hidden != NULL && isfinite(row.hidden[info.hidden_size - 1]));
    seen->n_generated += row.is_generated;
  }
  const void* block = NULL;
  size_t block_bytes = 0;
  CHECK(qsf_layer_get_kv_block(layer, 0, 0, QSF_KEYS, 0, &block, &block_bytes, NULL) == QSF_OK);
  CHECK(block != NULL && block_bytes == (size_t)info.head_dim * 64 * sizeof(float));
  CHECK(qsf_layer_get_kv_block(layer, 0, 0, QSF_VALUES, 4096, &block, &block_bytes, NULL) ==
        QSF_OK);
  CHECK(block == NULL && block_bytes == 0);
  float mass[1];
  CHECK(qsf_layer_get_attention(layer, 0, 0, mass, 1, NULL) == QSF_UNSUPPORTED);
  if (seen->n_calls == 1) check_refusals(layer, &info);
  return 0;
}

/* The newest positions stay. */
static void rank(const qsf_kv_candidates* candidates, float* ranks, void* user_data) {
  Seen* seen = user_data;
  CHECK(candidates->struct_size == sizeof *candidates);
  CHECK(candidates->n > candidates->n_kept && candidates->n_kept == 8);
  CHECK(candidates->n_positions % 64 == 0 && candidates->layer >= 0 && candidates->kv_head >= 0);
  for (size_t i = 0; i < candidates->n; ++i) {
    CHECK(candidates->attention[i] >= 0.0F && ranks[i] <= candidates->attention[i]);
    ranks[i] = (float)candidates->positions[i];
  }
  ++seen->n_ranked;
}

static void append(int token_id, const char* text, void* user_data) {
  (void)token_id;
  strncat(user_data, text, kTextBytes - 1 - strlen(user_data));
}

/* Opens an engine and generates 100 tokens into `text` [kTextBytes]. */
static qsf_code generate(const char* path, QSFConfig* config, char* text,
                         qsf_generate_result* result) {
  QSFEngine* engine = NULL;
  CHECK(qsf_engine_open(path, config, &engine, NULL) == QSF_OK);
  qsf_config_free(config);
  if (engine == NULL) return QSF_INTERNAL;
  qsf_sampling sampling;
  qsf_sampling_init(&sampling);
  sampling.temperature = 0.0F;
  qsf_generate_options options;
  qsf_generate_options_init(&options);
  options.prompt = prompt;
  options.prompt_bytes = strlen(prompt);
  options.sampling = &sampling;
  options.max_tokens = 100;
  options.on_token = append;
  options.user_data = text;
  result->struct_size = sizeof *result;
  const qsf_code code = qsf_engine_generate(engine, &options, result, NULL);
  qsf_free(engine);
  return code;
}

static QSFConfig* seen_by(Seen* seen) {
  QSFConfig* config = config_of();
  qsf_config_set_kv_types(config, QSF_KV_F32, QSF_KV_8BIT);
  qsf_config_set_layer_callback(config, see, seen);
  return config;
}

static void test_layers(const char* path) {
  char plain[kTextBytes] = {0};
  char text[kTextBytes] = {0};
  qsf_generate_result result;
  QSFConfig* config = config_of();
  qsf_config_set_kv_types(config, QSF_KV_F32, QSF_KV_8BIT);
  CHECK(generate(path, config, plain, &result) == QSF_OK);
  const int n_tokens = result.prompt_tokens + result.generated_tokens;

  Seen seen = {0};
  CHECK(generate(path, seen_by(&seen), text, &result) == QSF_OK);
  CHECK(strlen(plain) > 20 && strcmp(plain, text) == 0);
  /* The last token drawn is not computed. */
  CHECK(seen.n_rows == n_tokens - 1);
  CHECK(seen.n_generated == result.generated_tokens - 1);

  Seen stopped = {.stops_at = 3};
  CHECK(generate(path, seen_by(&stopped), text, &result) == QSF_OK);
  CHECK(result.reason == QSF_STOP_CANCELLED && result.generated_tokens == 0);
  CHECK(stopped.n_calls == 3);

  config = seen_by(&seen);
  qsf_config_set_speculation(config, QSF_SPECULATE_LOOKUP, 4);
  expect_refused(path, config, QSF_UNSUPPORTED, "a hook sees every row");
}

static void test_ranks(const char* path) {
  char by_attention[kTextBytes] = {0};
  char by_age[kTextBytes] = {0};
  qsf_generate_result result;
  QSFConfig* config = config_of();
  qsf_config_set_kv_policy(config, QSF_KV_POLICY_H2O, 1, 2, 8);
  CHECK(generate(path, config, by_attention, &result) == QSF_OK);
  Seen seen = {0};
  config = config_of();
  qsf_config_set_kv_policy(config, QSF_KV_POLICY_H2O, 1, 2, 8);
  qsf_config_set_rank_callback(config, rank, &seen);
  CHECK(generate(path, config, by_age, &result) == QSF_OK);
  CHECK(seen.n_ranked > 0);
  CHECK(strcmp(by_attention, by_age) != 0);
  config = config_of();
  qsf_config_set_rank_callback(config, rank, &seen);
  expect_refused(path, config, QSF_INVALID_ARGUMENT, "kv policy full");
}

int main(int argc, char** argv) {
  qsf_config_set_layer_callback(NULL, see, NULL);
  qsf_config_set_rank_callback(NULL, rank, NULL);
  qsf_error error;
  qsf_layer_info info = {.struct_size = sizeof info};
  qsf_layer_row row = {.struct_size = sizeof row};
  const void* block = NULL;
  float mass = 0.0F;
  CHECK(qsf_layer_get_info(NULL, &info, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "layer") != NULL);
  CHECK(qsf_layer_get_row(NULL, 0, &row, NULL) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_layer_get_kv_block(NULL, 0, 0, QSF_KEYS, 0, &block, NULL, NULL) ==
        QSF_INVALID_ARGUMENT);
  CHECK(qsf_layer_get_attention(NULL, 0, 0, &mass, 1, NULL) == QSF_INVALID_ARGUMENT);
  if (argc > 1) {
    test_layers(argv[1]);
    test_ranks(argv[1]);
  }
  printf("%d checks, %d failures\n", n_checks, n_failures);
  return n_failures == 0 ? 0 : 1;
}
