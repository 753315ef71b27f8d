/* SPDX-License-Identifier: MIT
 *
 * Policies of the KV cache and kinds of attention from a C11 program: what is refused, and sessions
 * that keep a window, or one and heavy hitters.
 *
 * Usage: capi_window_test [MODEL.qsf]. Without a model only what needs none is tested. What the
 * policies compute is tested in src/engine/.
 */
#include <stdio.h>
#include <string.h>

#include "capi/testing/capi_check.h"
#include "qsf/qsf.h"

static void expect_refused(const char* path, qsf_kv_policy policy, int window, int sinks, int heavy,
                           qsf_code code, const char* words) {
  qsf_error error;
  QSFEngine* engine = NULL;
  QSFConfig* config = qsf_config_default();
  qsf_config_set_kv_policy(config, policy, window, sinks, heavy);
  CHECK(qsf_engine_open(path, config, &engine, &error) == code && engine == NULL);
  CHECK(strstr(error.message, words) != NULL);
  qsf_config_free(config);
}

/* Kinds that have a number and cannot be computed. */
static void test_attention_kinds(void) {
  static const struct {
    int attention;
    qsf_code code;
    const char* words;
  } refused[] = {{0, QSF_UNSUPPORTED, "attention none (0) cannot be computed"},
                 {2, QSF_NOT_FOUND, "/nonexistent"},
                 {3, QSF_NOT_FOUND, "/nonexistent"},
                 {258, QSF_INVALID_ARGUMENT, "attention: 258"}};
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; ++i) {
    qsf_error error;
    QSFEngine* engine = NULL;
    QSFConfig* config = qsf_config_default();
    qsf_config_set_attention(config, (qsf_attention)refused[i].attention, NULL);
    CHECK(qsf_engine_open("/nonexistent", config, &engine, &error) == refused[i].code);
    CHECK(engine == NULL && strstr(error.message, refused[i].words) != NULL);
    qsf_config_free(config);
  }
}

static void test_configuration(void) {
  const char* path = "/nonexistent/model.qsf";
  qsf_config_set_kv_policy(NULL, QSF_KV_POLICY_WINDOW, 1, 0, 0);
  expect_refused(path, QSF_KV_POLICY_WINDOW, 1, 0, 256, QSF_NOT_FOUND, path);
  expect_refused(path, (qsf_kv_policy)3, 1024, 4, 256, QSF_INVALID_ARGUMENT, "kv_policy: 3");
  expect_refused(path, QSF_KV_POLICY_WINDOW, -7, 4, 256, QSF_INVALID_ARGUMENT, "window: -7");
  expect_refused(path, QSF_KV_POLICY_WINDOW, 1024, -1, 256, QSF_INVALID_ARGUMENT, "sinks: -1");
}

/* Of a session with a window of 40 and 4 sinks. */
static void test_visible_positions(QSFSession* session, int n_tokens) {
  qsf_error error;
  int positions[5] = {-1, -1, -1, -1, -1};
  size_t n_positions = 0;
  CHECK(qsf_session_visible_positions(session, 0, 0, positions, 5, &n_positions, &error) == QSF_OK);
  CHECK(n_positions == 4 + 39 && positions[3] == 3 && positions[4] == n_tokens - 39);
  CHECK(qsf_session_visible_positions(session, 0, 0, NULL, 0, &n_positions, &error) == QSF_OK);
  CHECK(n_positions == 43);
  CHECK(qsf_session_visible_positions(session, 0, 0, NULL, 1, &n_positions, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_visible_positions(session, 0, 0, positions, 5, NULL, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_visible_positions(NULL, 0, 0, positions, 5, &n_positions, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_visible_positions(session, 1000, 0, positions, 5, &n_positions, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "layer 1000") != NULL);
  CHECK(qsf_session_visible_positions(session, 0, -1, positions, 5, &n_positions, &error) ==
        QSF_INVALID_ARGUMENT);
}

static void expect_reindexed(const char* path, qsf_kv_policy policy, int window, int context,
                             qsf_code code, const char* words) {
  qsf_error error;
  QSFEngine* engine = NULL;
  QSFConfig* config = qsf_config_default();
  qsf_config_set_kv_policy(config, policy, window, 4, 256);
  qsf_config_set_rope_reindex(config, 1);
  qsf_config_set_max_seq_len(config, context);
  CHECK(qsf_engine_open(path, config, &engine, &error) == code && (engine == NULL) == (code != 0));
  CHECK(strstr(error.message, words) != NULL);
  if (engine != NULL) {
    qsf_model_info info;
    info.struct_size = sizeof info;
    CHECK(qsf_engine_model_info(engine, &info, &error) == QSF_OK);
    CHECK(info.context == context && info.context > info.trained_context);
  }
  qsf_free(engine);
  qsf_config_free(config);
}

/* Texts that go on past the trained context. */
static void test_rope_reindex(const char* path) {
  qsf_config_set_rope_reindex(NULL, 1);
  expect_reindexed(path, QSF_KV_POLICY_WINDOW, 200, 3000, QSF_OK, "");
  expect_reindexed(path, QSF_KV_POLICY_FULL, 200, 0, QSF_INVALID_ARGUMENT, "rope_reindex: needs");
  expect_reindexed(path, QSF_KV_POLICY_WINDOW, 100000, 0, QSF_INVALID_ARGUMENT,
                   "rope_reindex: 4 sinks and a window of 100000");
}

enum { kMostTokens = 500 };

/* A session of its own engine, with passes of 32 rows, and tokens for it. */
typedef struct {
  QSFEngine* engine;
  QSFSession* session;
  int tokens[kMostTokens];
} Opened;

static Opened open_session(const char* path, qsf_kv_policy policy, int window, int sinks,
                           int heavy) {
  qsf_error error;
  Opened opened = {NULL, NULL, {0}};
  QSFConfig* config = qsf_config_default();
  qsf_config_set_kv_policy(config, policy, window, sinks, heavy);
  qsf_config_set_rows_per_pass(config, 32);
  CHECK(qsf_engine_open(path, config, &opened.engine, &error) == QSF_OK);
  qsf_config_free(config);
  CHECK(qsf_session_create(opened.engine, &opened.session, &error) == QSF_OK);
  for (int i = 0; i < kMostTokens; ++i) opened.tokens[i] = 10 + i;
  return opened;
}

static void close_session(const Opened* opened) {
  qsf_session_free(opened->session);
  qsf_free(opened->engine);
}

/* What a window has forgotten does not come back. */
static void test_window(const char* path) {
  enum { kTokens = 300 };
  qsf_error error;
  expect_refused(path, QSF_KV_POLICY_WINDOW, 0, 4, 256, QSF_INVALID_ARGUMENT, "a window of 0");

  const Opened opened = open_session(path, QSF_KV_POLICY_WINDOW, 40, 4, 0);
  QSFSession* session = opened.session;
  CHECK(qsf_session_prefill(session, opened.tokens, kTokens, NULL, &error) == QSF_OK);
  test_visible_positions(session, kTokens);
  CHECK(qsf_session_truncate(session, 150, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "evicted") != NULL && qsf_session_length(session) == kTokens);
  CHECK(qsf_session_truncate(session, kTokens - 1, &error) == QSF_OK);
  CHECK(qsf_session_truncate(session, 0, &error) == QSF_OK && qsf_session_length(session) == 0);
  close_session(&opened);
}

/* Heavy positions are kept with the last ones; whatever was forgotten can be gone back to, because
 * it is computed again. */
static void test_h2o_eviction(const char* path) {
  enum { kTokens = kMostTokens, kMaxVocab = 1 << 16 };
  static float first[kMaxVocab];
  static float again[kMaxVocab];
  qsf_error error;
  expect_refused(path, QSF_KV_POLICY_H2O, 0, 4, 256, QSF_INVALID_ARGUMENT, "a window of 0");
  expect_refused(path, QSF_KV_POLICY_H2O, 64, 257, 256, QSF_INVALID_ARGUMENT,
                 "256 heavy positions for 257 sinks");

  expect_refused(path, QSF_KV_POLICY_H2O, 40, 4, -1, QSF_INVALID_ARGUMENT, "heavy: -1");
  const Opened opened = open_session(path, QSF_KV_POLICY_H2O, 40, 4, 20);
  QSFSession* session = opened.session;
  const int* tokens = opened.tokens;
  CHECK(qsf_session_prefill(session, tokens, kTokens, first, &error) == QSF_OK);
  CHECK(qsf_session_truncate(session, 150, &error) == QSF_OK);
  CHECK(qsf_session_length(session) == 150);
  CHECK(qsf_session_prefill(session, tokens + 150, kTokens - 150, again, &error) == QSF_OK);
  CHECK(memcmp(first, again, 1000 * sizeof *first) == 0);
  CHECK(first[0] != first[1]);
  close_session(&opened);
}

int main(int argc, char** argv) {
  test_configuration();
  test_attention_kinds();
  if (argc > 1) test_window(argv[1]);
  if (argc > 1) test_h2o_eviction(argv[1]);
  if (argc > 1) test_rope_reindex(argv[1]);
  fprintf(stderr, "%d checks, %d failed%s\n", n_checks, n_failures,
          argc > 1 ? "" : " (no model given: what needs one was not tested)");
  return n_failures == 0 ? 0 : 1;
}
