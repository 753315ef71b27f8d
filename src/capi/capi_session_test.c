/* SPDX-License-Identifier: MIT
 *
 * Sessions and chats in files from a C11 program: every function, every NULL, wrong files.
 *
 * Usage: capi_session_test [MODEL.qsf]. Without a model only what needs none is tested. What a file
 * holds is tested in src/engine/.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capi/testing/capi_check.h"
#include "capi/testing/capi_engine.h"
#include "qsf/qsf.h"

static const char* const kFile = "capi_session_test.session";
static const char* const kPrompt = "Once upon a time";

typedef struct Text {
  char text[4096];
  size_t bytes;
} Text;

static void on_token(int token, const char* text, void* user_data) {
  Text* out = user_data;
  const size_t bytes = strlen(text);
  CHECK(token >= 0);
  if (out->bytes + bytes < sizeof out->text) {
    memcpy(out->text + out->bytes, text, bytes + 1);
    out->bytes += bytes;
  }
}

static void test_nulls(void) {
  qsf_error error;
  qsf_generate_options options;
  qsf_generate_options_init(&options);
  CHECK(qsf_session_generate(NULL, &options, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "session") != NULL);
  CHECK(qsf_session_save(NULL, kFile, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_load(NULL, kFile, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_chat_save(NULL, kFile, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_chat_load(NULL, kFile, NULL) == QSF_INVALID_ARGUMENT);
}

/* Appends the greedy text of a prompt to `text`. */
static qsf_code tell(QSFSession* session, const char* prompt, int max_tokens, Text* text) {
  qsf_sampling sampling;
  qsf_sampling_init(&sampling);
  sampling.temperature = 0.0f;
  qsf_generate_options options;
  qsf_generate_options_init(&options);
  options.prompt = prompt;
  options.prompt_bytes = strlen(prompt);
  options.max_tokens = max_tokens;
  options.sampling = &sampling;
  options.on_token = on_token;
  options.user_data = text;
  return qsf_session_generate(session, &options, NULL, NULL);
}

static void test_refusals(QSFSession* session) {
  qsf_error error;
  CHECK(qsf_session_generate(session, NULL, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_save(session, kFile, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "no tokens yet") != NULL);
  CHECK(qsf_session_save(session, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_load(session, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_load(session, "no/such/file", &error) == QSF_NOT_FOUND);
  CHECK(qsf_session_length(session) == 0);
}

/* One text in one session, and in two with a file between them. */
static void test_session(QSFEngine* engine) {
  static Text whole;
  static Text parts;
  whole.bytes = parts.bytes = 0;
  qsf_error error;
  QSFSession* session = NULL;
  CHECK(qsf_session_create(engine, &session, &error) == QSF_OK);
  test_refusals(session);
  CHECK(tell(session, kPrompt, 100, &whole) == QSF_OK);
  qsf_session_free(session);

  CHECK(qsf_session_create(engine, &session, &error) == QSF_OK);
  CHECK(tell(session, kPrompt, 72, &parts) == QSF_OK);
  const size_t length = qsf_session_length(session);
  CHECK(qsf_session_save(session, kFile, &error) == QSF_OK);
  CHECK(qsf_session_load(session, kFile, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_length(session) == length);
  CHECK(qsf_session_save(session, "no/such/folder/file", &error) == QSF_IO);
  qsf_session_free(session);

  CHECK(qsf_session_create(engine, &session, &error) == QSF_OK);
  CHECK(qsf_session_load(session, kFile, &error) == QSF_OK);
  CHECK(qsf_session_length(session) == length);
  CHECK(tell(session, "", 28, &parts) == QSF_OK);
  CHECK(whole.bytes > 0 && strcmp(whole.text, parts.text) == 0);

  /* A prompt that others come before begins no text. */
  const size_t before = qsf_session_length(session);
  size_t n_tokens = 0;
  CHECK(qsf_engine_tokenize(engine, "king", 4, QSF_TOKENIZE_NO_BOS, NULL, 0, &n_tokens, &error) ==
        QSF_OK);
  CHECK(tell(session, "king", 0, &parts) == QSF_OK);
  CHECK(qsf_session_length(session) == before + 1 + n_tokens);
  qsf_session_free(session);
}

static void test_chat(QSFEngine* engine) {
  qsf_error error;
  QSFChat* chat = NULL;
  qsf_chat_send_options options;
  qsf_chat_send_options_init(&options);
  options.max_tokens = 5;
  CHECK(qsf_chat_create(engine, NULL, &chat, &error) == QSF_OK);
  CHECK(qsf_chat_save(chat, kFile, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "no answer yet") != NULL);
  CHECK(qsf_chat_load(chat, kFile, &error) == QSF_INVALID_ARGUMENT); /* of test_session */
  CHECK(strstr(error.message, "no conversation") != NULL);
  CHECK(qsf_chat_send(chat, "Hello", 5, &options, NULL, &error) == QSF_OK);
  CHECK(qsf_chat_save(chat, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_chat_load(chat, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_chat_save(chat, kFile, &error) == QSF_OK);
  CHECK(qsf_chat_load(chat, kFile, &error) == QSF_INVALID_ARGUMENT);
  qsf_chat_free(chat);

  CHECK(qsf_chat_create(engine, NULL, &chat, &error) == QSF_OK);
  CHECK(qsf_chat_load(chat, kFile, &error) == QSF_OK);
  qsf_chat_info info = {.struct_size = sizeof info};
  CHECK(qsf_chat_get_info(chat, &info, &error) == QSF_OK);
  CHECK(info.n_messages == 2 && info.context_tokens > 0);
  qsf_chat_free(chat);
}

/* The same under attention h2o, with chunks that these texts are longer than. */
static QSFEngine* open_sparse_engine(const char* path, int n_heavy) {
  qsf_error error;
  qsf_h2o_options options;
  qsf_h2o_options_init(&options);
  options.local = 3;
  options.heavy = n_heavy;
  options.chunk = 10;
  options.sinks = 2;
  QSFConfig* config = qsf_config_default();
  qsf_config_set_threads(config, 1);
  qsf_config_set_max_seq_len(config, 256);
  qsf_config_set_attention(config, QSF_ATTENTION_H2O, &options);
  QSFEngine* engine = NULL;
  CHECK(qsf_engine_open(path, config, &engine, &error) == QSF_OK);
  qsf_config_free(config);
  return engine;
}

/* The same under a policy with heavy hitters, which these texts are long enough for. */
static QSFEngine* open_eviction_engine(const char* path, int n_heavy) {
  qsf_error error;
  QSFConfig* config = qsf_config_default();
  qsf_config_set_threads(config, 1);
  qsf_config_set_max_seq_len(config, 256);
  qsf_config_set_kv_policy(config, QSF_KV_POLICY_H2O, 4, 2, n_heavy);
  QSFEngine* engine = NULL;
  CHECK(qsf_engine_open(path, config, &engine, &error) == QSF_OK);
  qsf_config_free(config);
  return engine;
}

/* What was saved under one memory set or policy is refused under another. */
static void test_other(QSFEngine* saved_by, QSFEngine* engine, const char* saved,
                       const char* expected) {
  static Text text;
  qsf_error error;
  QSFSession* session = NULL;
  CHECK(qsf_session_create(saved_by, &session, &error) == QSF_OK);
  CHECK(tell(session, kPrompt, 20, &text) == QSF_OK);
  CHECK(qsf_session_save(session, kFile, &error) == QSF_OK);
  qsf_session_free(session);
  CHECK(qsf_session_create(engine, &session, &error) == QSF_OK);
  CHECK(qsf_session_load(session, kFile, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, saved) != NULL);
  CHECK(strstr(error.message, expected) != NULL);
  CHECK(qsf_session_length(session) == 0);
  qsf_session_free(session);
}

static void test_model(const char* path) {
  QSFEngine* engine = open_small_engine(path);
  QSFEngine* sparse = open_sparse_engine(path, 4);
  QSFEngine* other_sparse = open_sparse_engine(path, 5);
  QSFEngine* heavy = open_eviction_engine(path, 40);
  QSFEngine* other_heavy = open_eviction_engine(path, 41);
  QSFEngine* all[] = {engine, sparse, heavy};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i) {
    if (all[i] == NULL) continue;
    test_session(all[i]);
    test_chat(all[i]);
  }
  if (engine != NULL && sparse != NULL && other_sparse != NULL) {
    const char* saved = "h2o (local 3, heavy 4, chunk 10, sinks 2, score sum)";
    test_other(sparse, engine, saved, "expected full");
    test_other(sparse, other_sparse, saved, "expected h2o (local 3, heavy 5");
  }
  if (engine != NULL && heavy != NULL && other_heavy != NULL) {
    const char* saved = "h2o (window 4, sinks 2, heavy 40)";
    test_other(heavy, engine, saved, "expected full");
    test_other(heavy, other_heavy, saved, "expected h2o (4, 2, 41)");
  }
  qsf_free(engine);
  qsf_free(sparse);
  qsf_free(other_sparse);
  qsf_free(heavy);
  qsf_free(other_heavy);
  remove(kFile);
}

int main(int argc, char** argv) {
  test_nulls();
  if (argc > 1) test_model(argv[1]);
  fprintf(stderr, "%d checks, %d failed%s\n", n_checks, n_failures,
          argc > 1 ? "" : " (no model given: what needs one was not tested)");
  return n_failures == 0 ? 0 : 1;
}
