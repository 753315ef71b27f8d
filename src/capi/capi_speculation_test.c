/* SPDX-License-Identifier: MIT
 *
 * Speculation: the text and what its callbacks see are the same with and without; its counts; what
 * opening refuses. Ways to read the head that opening refuses.
 *
 *   capi_speculation_test [MODEL.qsf]      without a model: values out of range alone
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "capi/testing/capi_check.h"
#include "capi/testing/capi_refused.h"
#include "qsf/qsf.h"

static const char* const prompt =
    "There was a king who had three sons. The first was wise, the second was brave, and the third "
    "was a fool. There was a king who had three sons. The first was wise, the second";

typedef struct Seen {
  char text[4000];
  int n_tokens;
  double log_probs;
} Seen;

static int on_generated(const qsf_generated_token* token, void* user_data) {
  Seen* seen = user_data;
  strncat(seen->text, token->text, sizeof seen->text - strlen(seen->text) - 1);
  if (!token->is_rest) ++seen->n_tokens;
  seen->log_probs += token->log_prob;
  return 0;
}

static QSFConfig* config_of(qsf_speculation kind, int max_drafts) {
  QSFConfig* config = qsf_config_default();
  qsf_config_set_threads(config, 1);
  qsf_config_set_max_seq_len(config, 256);
  qsf_config_set_speculation(config, kind, max_drafts);
  return config;
}

/* Options of the prompt. They refer to `sampling`. */
static qsf_generate_options options_of(qsf_sampling* sampling, float temperature) {
  qsf_sampling_init(sampling);
  sampling->temperature = temperature;
  sampling->seed = 11;
  qsf_generate_options options;
  qsf_generate_options_init(&options);
  options.prompt = prompt;
  options.prompt_bytes = strlen(prompt);
  options.sampling = sampling;
  return options;
}

/* Opens an engine, generates and frees it. `seen` is cleared first. */
static qsf_generate_result generate(const char* path, QSFConfig* config, Seen* seen) {
  qsf_generate_result result = {.struct_size = sizeof result};
  QSFEngine* engine = NULL;
  CHECK(qsf_engine_open(path, config, &engine, NULL) == QSF_OK);
  qsf_config_free(config);
  if (engine == NULL) return result;
  memset(seen, 0, sizeof *seen);
  qsf_sampling sampling;
  qsf_generate_options options = options_of(&sampling, 0.5F);
  options.max_tokens = 80;
  options.log_probs = 1;
  options.on_generated = on_generated;
  options.user_data = seen;
  CHECK(qsf_engine_generate(engine, &options, &result, NULL) == QSF_OK);
  qsf_engine_stats stats = {.struct_size = sizeof stats};
  CHECK(qsf_engine_get_stats(engine, &stats, NULL) == QSF_OK);
  CHECK(stats.drafted_tokens == (uint64_t)result.drafted_tokens);
  CHECK(stats.accepted_tokens == (uint64_t)result.accepted_tokens);
  CHECK(stats.model_drafted_tokens <= stats.drafted_tokens);
  CHECK((stats.model_drafted_tokens > 0) == (stats.draft_ns > 0));
  qsf_free(engine);
  return result;
}

static void test_same_text(const char* path) {
  Seen expected;
  Seen seen;
  qsf_generate_result result = generate(path, config_of(QSF_SPECULATE_OFF, 0), &expected);
  CHECK(result.drafted_tokens == 0 && expected.n_tokens > 10);
  result = generate(path, config_of(QSF_SPECULATE_LOOKUP, 5), &seen);
  CHECK(result.drafted_tokens > 0 && result.accepted_tokens < result.drafted_tokens);
  CHECK(strcmp(seen.text, expected.text) == 0 && seen.n_tokens == expected.n_tokens);
  CHECK(seen.log_probs == expected.log_probs);
  result = generate(path, config_of(QSF_SPECULATE_AUTO, 0), &seen);
  CHECK(result.drafted_tokens > 0);
  CHECK(strcmp(seen.text, expected.text) == 0 && seen.log_probs == expected.log_probs);
}

/* The model as its own draft model: what it drafts is always right. */
static void test_draft_model(const char* path) {
  Seen expected;
  Seen seen;
  qsf_config_set_draft_model(NULL, path);
  generate(path, config_of(QSF_SPECULATE_OFF, 0), &expected);
  for (int i = 0; i < 2; ++i) {
    QSFConfig* config = config_of(i == 0 ? QSF_SPECULATE_DRAFT : QSF_SPECULATE_AUTO, 3);
    qsf_config_set_draft_model(config, path);
    const qsf_generate_result result = generate(path, config, &seen);
    CHECK(strcmp(seen.text, expected.text) == 0 && seen.log_probs == expected.log_probs);
    CHECK(i == 1 || result.accepted_tokens > 30);
  }
  QSFConfig* config = config_of(QSF_SPECULATE_DRAFT, 0);
  expect_refused(path, config, QSF_INVALID_ARGUMENT, "there is no draft model");
  config = config_of(QSF_SPECULATE_LOOKUP, 0);
  qsf_config_set_draft_model(config, path);
  expect_refused(path, config, QSF_INVALID_ARGUMENT, "needs speculation auto or draft");
  config = config_of(QSF_SPECULATE_DRAFT, 0);
  qsf_config_set_draft_model(config, "no such file");
  expect_refused(path, config, QSF_NOT_FOUND, "draft model: no such file");
}

static void test_step_counts(const char* path) {
  QSFEngine* engine = NULL;
  QSFConfig* config = config_of(QSF_SPECULATE_LOOKUP, 5);
  CHECK(qsf_engine_open(path, config, &engine, NULL) == QSF_OK);
  qsf_config_free(config);
  QSFSession* session = NULL;
  QSFGeneration* generation = NULL;
  qsf_sampling sampling;
  qsf_generate_options options = options_of(&sampling, 0.0F);
  options.max_tokens = 40;
  CHECK(qsf_session_create(engine, &session, NULL) == QSF_OK);
  CHECK(qsf_generation_create(session, &options, &generation, NULL) == QSF_OK);
  int n_tokens = 1; /* with the prompt */
  int n_drafted = 0;
  while (!qsf_generation_is_finished(generation)) {
    qsf_step_counts counts = {.struct_size = sizeof counts};
    if (qsf_engine_step(engine, &generation, 1, &counts, NULL) != QSF_OK) break;
    CHECK(counts.accepted_rows <= counts.drafted_rows && counts.drafted_rows <= 5);
    n_tokens += counts.generated_rows + counts.accepted_rows;
    n_drafted += counts.drafted_rows;
  }
  qsf_generate_result result = {.struct_size = sizeof result};
  CHECK(qsf_generation_get_result(generation, &result, NULL) == QSF_OK);
  CHECK(n_drafted > 0 && n_drafted == result.drafted_tokens);
  CHECK(result.reason != QSF_STOP_MAX_TOKENS || n_tokens == 40);
  qsf_generation_free(generation);
  qsf_session_free(session);
  qsf_free(engine);
}

/* Refused before the file is opened. */
static void test_values(void) {
  qsf_config_set_speculation(NULL, QSF_SPECULATE_OFF, 0);
  expect_refused("no such file", config_of((qsf_speculation)4, 0), QSF_INVALID_ARGUMENT,
                 "speculation: 4, expected a qsf_speculation");
  expect_refused("no such file", config_of(QSF_SPECULATE_AUTO, -1), QSF_INVALID_ARGUMENT,
                 "max_drafts: -1");
  QSFConfig* config = qsf_config_default();
  qsf_config_set_head(config, (qsf_head)3);
  expect_refused("no such file", config, QSF_INVALID_ARGUMENT, "head: 3, expected a qsf_head");
}

static void test_refusals(const char* path) {
  expect_refused(path, config_of(QSF_SPECULATE_LOOKUP, 65), QSF_INVALID_ARGUMENT,
                 "65 rows, expected at most 64");
  QSFConfig* config = config_of(QSF_SPECULATE_LOOKUP, 0);
  qsf_config_set_kv_policy(config, QSF_KV_POLICY_H2O, 64, 4, 16);
  expect_refused(path, config, QSF_UNSUPPORTED, "speculation: kv policy h2o");
  config = qsf_config_default();
  qsf_config_set_head(config, QSF_HEAD_APPROXIMATE);
  expect_refused(path, config, QSF_UNSUPPORTED, "head approx: the file has no sketch of it");
}

int main(int argc, char** argv) {
  test_values();
  if (argc > 1) {
    test_same_text(argv[1]);
    test_draft_model(argv[1]);
    test_step_counts(argv[1]);
    test_refusals(argv[1]);
  }
  fprintf(stderr, "%d checks, %d failed\n", n_checks, n_failures);
  return n_failures == 0 ? 0 : 1;
}
