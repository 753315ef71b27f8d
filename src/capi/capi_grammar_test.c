/* SPDX-License-Identifier: MIT
 *
 * Grammars of the C API.
 *
 *   capi_grammar_test [MODEL.qsf]      without a model: the refusals alone
 */
#include <stdlib.h>
#include <string.h>

#include "capi/testing/capi_check.h"
#include "qsf/qsf.h"

static const char kGbnf[] = "root ::= (\"yes\" | \"no\") \"!\"";

static void append_text(int token, const char* text, void* user_data) {
  (void)token;
  strcat(user_data, text);
}

static void test_nulls(void) {
  qsf_error error;
  QSFGrammar* grammar = (QSFGrammar*)&error; /* anything that is not NULL */
  QSFGrammarMatcher* matcher = (QSFGrammarMatcher*)&error;
  CHECK(qsf_grammar_create(NULL, QSF_GRAMMAR_GBNF, kGbnf, strlen(kGbnf), &grammar, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(grammar == NULL);
  CHECK(qsf_grammar_create(NULL, QSF_GRAMMAR_GBNF, kGbnf, strlen(kGbnf), NULL, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(qsf_grammar_matcher_create(NULL, NULL, &matcher, &error) == QSF_INVALID_ARGUMENT);
  CHECK(matcher == NULL);
  CHECK(qsf_grammar_matcher_mask(NULL, NULL, 0, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_grammar_matcher_accept(NULL, 0, NULL) == QSF_INVALID_ARGUMENT);
  CHECK(!qsf_grammar_matcher_can_end(NULL) && !qsf_grammar_matcher_is_finished(NULL));
  qsf_grammar_matcher_reset(NULL);
  qsf_grammar_matcher_free(NULL);
  qsf_grammar_free(NULL);
  qsf_config_set_grammars(NULL, 1, 0);
}

static QSFEngine* open_engine(const char* path, int max_grammars) {
  qsf_error error;
  QSFConfig* config = qsf_config_default();
  qsf_config_set_threads(config, 1);
  qsf_config_set_max_seq_len(config, 256);
  qsf_config_set_grammars(config, max_grammars, 1 << 20);
  QSFEngine* engine = NULL;
  const qsf_code expected = max_grammars < 0 ? QSF_INVALID_ARGUMENT : QSF_OK;
  CHECK(qsf_engine_open(path, config, &engine, &error) == expected);
  qsf_config_free(config);
  return engine;
}

static QSFGrammar* create(QSFEngine* engine, qsf_grammar_kind kind, const char* source,
                          qsf_code expected) {
  qsf_error error;
  QSFGrammar* grammar = NULL;
  const qsf_code code = qsf_grammar_create(engine, kind, source, strlen(source), &grammar, &error);
  CHECK(code == expected);
  if (code != expected && code != QSF_OK) fprintf(stderr, "%s\n", error.message);
  CHECK((grammar != NULL) == (expected == QSF_OK));
  return grammar;
}

static void generate(QSFEngine* engine, QSFGrammar* grammar, const char* trigger, char* text) {
  qsf_error error;
  qsf_sampling sampling;
  qsf_sampling_init(&sampling);
  sampling.grammar = grammar;
  sampling.grammar_trigger = trigger;
  qsf_generate_options options;
  qsf_generate_options_init(&options);
  options.prompt = "Once upon a time";
  options.prompt_bytes = strlen(options.prompt);
  options.max_tokens = 220;
  options.sampling = &sampling;
  options.on_token = append_text;
  options.user_data = text;
  qsf_generate_result result = {.struct_size = sizeof result};
  text[0] = '\0';
  CHECK(qsf_engine_generate(engine, &options, &result, &error) == QSF_OK);
  CHECK(result.reason == QSF_STOP_END_OF_TEXT || trigger != NULL);
}

static void test_generation(QSFEngine* engine) {
  char text[4096];
  QSFGrammar* grammar = create(engine, QSF_GRAMMAR_GBNF, kGbnf, QSF_OK);
  generate(engine, grammar, NULL, text);
  CHECK(strcmp(text, "yes!") == 0 || strcmp(text, "no!") == 0);
  generate(engine, grammar, "no such text", text);
  CHECK(strchr(text, '!') == NULL || strlen(text) > 4);
  QSFGrammar* object = create(engine, QSF_GRAMMAR_JSON_SCHEMA,
                              "{\"properties\": {\"a\": {\"enum\": [1, 2]}}, \"required\": "
                              "[\"a\"]}",
                              QSF_OK);
  generate(engine, object, NULL, text);
  CHECK(text[0] == '{' && text[strlen(text) - 1] == '}' && strstr(text, "\"a\":") != NULL);
  qsf_sampling sampling;
  qsf_sampling_init(&sampling);
  sampling.grammar = grammar;
  QSFSampler* sampler = NULL;
  CHECK(qsf_sampler_create(engine, &sampling, &sampler, NULL) == QSF_UNSUPPORTED);
  qsf_grammar_free(grammar);
  qsf_grammar_free(object);
}

static void test_matcher(QSFEngine* engine) {
  qsf_model_info info = {.struct_size = sizeof info};
  CHECK(qsf_engine_model_info(engine, &info, NULL) == QSF_OK);
  const size_t n_words = ((size_t)info.n_vocab + 31) / 32;
  uint32_t* mask = malloc((n_words + 1) * sizeof *mask);
  mask[n_words] = 1;
  QSFGrammar* grammar = create(engine, QSF_GRAMMAR_GBNF, kGbnf, QSF_OK);
  QSFGrammarMatcher* matcher = NULL;
  CHECK(qsf_grammar_matcher_create(grammar, NULL, &matcher, NULL) == QSF_OK);
  qsf_grammar_free(grammar); /* the matcher goes on */
  CHECK(qsf_grammar_matcher_mask(matcher, mask, n_words - 1, NULL) == QSF_INVALID_ARGUMENT);
  for (int round = 0; round < 2; ++round) {
    char text[64] = "";
    while (!qsf_grammar_matcher_is_finished(matcher)) {
      CHECK(qsf_grammar_matcher_mask(matcher, mask, n_words + 1, NULL) == QSF_OK);
      CHECK(mask[n_words] == 0);
      int first = 0;
      while (first < info.n_vocab && (mask[first / 32] >> (first % 32) & 1) == 0) ++first;
      CHECK(first < info.n_vocab);
      int banned = 0;
      while ((mask[banned / 32] >> (banned % 32) & 1) != 0) ++banned;
      CHECK(qsf_grammar_matcher_accept(matcher, banned, NULL) == QSF_INVALID_ARGUMENT);
      CHECK(qsf_grammar_matcher_accept(matcher, -1, NULL) == QSF_INVALID_ARGUMENT);
      CHECK(qsf_grammar_matcher_accept(matcher, info.n_vocab, NULL) == QSF_INVALID_ARGUMENT);
      CHECK(qsf_grammar_matcher_accept(matcher, first, NULL) == QSF_OK);
      char* piece = NULL;
      CHECK(qsf_engine_detokenize(engine, &first, 1, &piece, NULL) == QSF_OK);
      strcat(text, piece);
      qsf_string_free(piece);
    }
    CHECK(qsf_grammar_matcher_can_end(matcher));
    CHECK(strcmp(text, "yes!") == 0 || strcmp(text, "no!") == 0);
    qsf_grammar_matcher_reset(matcher);
    CHECK(!qsf_grammar_matcher_can_end(matcher));
  }
  qsf_grammar_matcher_free(matcher);
  free(mask);
}

static void test_refusals(const char* path) {
  QSFEngine* none = open_engine(path, 0);
  create(none, QSF_GRAMMAR_GBNF, kGbnf, QSF_OUT_OF_BUDGET);
  qsf_free(none);
  open_engine(path, -1);
  QSFEngine* engine = open_engine(path, 1);
  create(engine, QSF_GRAMMAR_GBNF, "root ::= (", QSF_INVALID_ARGUMENT);
  create(engine, QSF_GRAMMAR_JSON_SCHEMA, "{\"not\": {}}", QSF_UNSUPPORTED);
  create(engine, (qsf_grammar_kind)7, kGbnf, QSF_INVALID_ARGUMENT);
  QSFGrammar* first = create(engine, QSF_GRAMMAR_JSON_OBJECT, "", QSF_OK);
  create(engine, QSF_GRAMMAR_GBNF, kGbnf, QSF_OUT_OF_BUDGET);
  qsf_grammar_free(first);
  qsf_grammar_free(create(engine, QSF_GRAMMAR_GBNF, kGbnf, QSF_OK));
  qsf_free(engine);
}

int main(int argc, char** argv) {
  test_nulls();
  if (argc > 1) {
    QSFEngine* engine = open_engine(argv[1], 2);
    test_generation(engine);
    test_matcher(engine);
    qsf_free(engine);
    test_refusals(argv[1]);
  }
  printf("%d checks, %d failures\n", n_checks, n_failures);
  return n_failures == 0 ? 0 : 1;
}
