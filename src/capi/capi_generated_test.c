/* SPDX-License-Identifier: MIT
 *
 * The callback that receives generated tokens with their log probabilities and may end the
 * generation, pages that a generation reserves or waits for, and embeddings.
 *
 *   capi_generated_test [MODEL.qsf]      without a model it has nothing to do
 */
#include <math.h>
#include <string.h>

#include "capi/testing/capi_check.h"
#include "capi/testing/capi_engine.h"
#include "qsf/qsf.h"

#define N_TOKENS 24
static const char kPrompt[] = "Once upon a time";

typedef struct Seen {
  int tokens[N_TOKENS];
  float log_probs[N_TOKENS];
  float best[N_TOKENS]; /* of the first alternative */
  int n, n_top, n_rest;
  int stop_at; /* the token that ends it; 0: none */
  char text[2000], text_before[2000];
} Seen;

static void on_token(int token, const char* text, void* user_data) {
  Seen* seen = user_data;
  (void)token;
  strncat(seen->text_before, text, sizeof seen->text_before - strlen(seen->text_before) - 1);
}

static int on_generated(const qsf_generated_token* token, void* user_data) {
  Seen* seen = user_data;
  CHECK(token->struct_size == sizeof *token);
  strncat(seen->text, token->text, sizeof seen->text - strlen(seen->text) - 1);
  CHECK(strcmp(seen->text, seen->text_before) == 0); /* on_token comes first */
  if (token->is_rest) {
    ++seen->n_rest;
    CHECK(token->n_top == 0 && token->log_prob == 0.0f);
    return 0;
  }
  if (seen->n == N_TOKENS) return 1;
  seen->tokens[seen->n] = token->token;
  seen->log_probs[seen->n] = token->log_prob;
  seen->n_top = token->n_top;
  CHECK((token->n_top == 0) == (token->top == NULL));
  for (int i = 0; i < token->n_top; ++i) {
    CHECK(i == 0 || token->top[i].log_prob <= token->top[i - 1].log_prob);
    if (token->top[i].token == token->token) CHECK(token->top[i].log_prob == token->log_prob);
  }
  seen->best[seen->n] = token->n_top == 0 ? 0.0f : token->top[0].log_prob;
  return ++seen->n == seen->stop_at ? -1 : 0;
}

static qsf_code generate(QSFEngine* engine, qsf_generate_options* options, Seen* seen,
                         qsf_generate_result* result, qsf_error* error) {
  const int stop_at = seen->stop_at;
  memset(seen, 0, sizeof *seen);
  seen->stop_at = stop_at;
  options->user_data = seen;
  result->struct_size = sizeof *result;
  return qsf_engine_generate(engine, options, result, error);
}

/* They are those of the whole text, whatever the steps of sampling made of the logits. */
static void test_log_probs(QSFEngine* engine, const qsf_generate_options* from) {
  static Seen seen;
  qsf_generate_options options = *from;
  qsf_generate_result result;
  qsf_sampling sampling;
  qsf_sampling_init(&sampling);
  sampling.temperature = 0.6f;
  sampling.repeat_penalty = 1.5f;
  sampling.seed = 5;
  options.sampling = &sampling;
  options.log_probs = 1;
  options.n_top_log_probs = 5;
  CHECK(generate(engine, &options, &seen, &result, NULL) == QSF_OK);
  CHECK(seen.n == N_TOKENS && seen.n_top == 5 && result.reason == QSF_STOP_MAX_TOKENS);

  int text[64];
  double expected[64];
  size_t n_prompt = 0;
  CHECK(qsf_engine_tokenize(engine, kPrompt, strlen(kPrompt), QSF_TOKENIZE_DEFAULT, text, 64,
                            &n_prompt, NULL) == QSF_OK);
  memcpy(text + n_prompt, seen.tokens, sizeof seen.tokens);
  CHECK(qsf_engine_score(engine, text, n_prompt + N_TOKENS, n_prompt, expected, NULL) == QSF_OK);
  int n_unlikely = 0;
  for (int i = 0; i < N_TOKENS; ++i) {
    CHECK(fabs(seen.log_probs[i] - expected[i]) < 1e-3);
    CHECK(seen.best[i] >= seen.log_probs[i] && seen.best[i] <= 0.0f);
    n_unlikely += seen.best[i] > seen.log_probs[i];
  }
  CHECK(n_unlikely > 0);
  options.n_top_log_probs = 0;
  CHECK(generate(engine, &options, &seen, &result, NULL) == QSF_OK && seen.n_top == 0);
  CHECK(fabs(seen.log_probs[3] - expected[3]) < 1e-3);
  options.log_probs = 0;
  CHECK(generate(engine, &options, &seen, &result, NULL) == QSF_OK && seen.log_probs[3] == 0.0f);
}

static float prompt_log_probs[64];
static int n_prompt_seen;

static int on_prompt_token(const qsf_generated_token* token, void* user_data) {
  const Seen* seen = user_data;
  CHECK(seen->n == 0 && token->text[0] == '\0' && !token->is_rest && !token->is_end);
  CHECK(isnan(token->log_prob) == (n_prompt_seen == 0));
  CHECK(token->n_top == (n_prompt_seen == 0 ? 0 : 2));
  if (token->n_top > 0) CHECK(token->top[0].log_prob >= token->log_prob);
  prompt_log_probs[n_prompt_seen] = token->log_prob;
  return ++n_prompt_seen == 64;
}

static int on_end_token(const qsf_generated_token* token, void* user_data) {
  Seen* seen = user_data;
  seen->n_rest += token->is_end;
  return on_generated(token, user_data);
}

static void test_prompt_log_probs(QSFEngine* engine, const qsf_generate_options* from, int eos) {
  static Seen seen, plain;
  qsf_generate_options options = *from;
  qsf_generate_result result;
  int tokens[64];
  double expected[64];
  size_t n_tokens = 0;
  CHECK(qsf_engine_tokenize(engine, kPrompt, strlen(kPrompt), QSF_TOKENIZE_DEFAULT, tokens, 64,
                            &n_tokens, NULL) == QSF_OK);
  CHECK(qsf_engine_score(engine, tokens, n_tokens, 1, expected, NULL) == QSF_OK);
  CHECK(generate(engine, &options, &plain, &result, NULL) == QSF_OK);
  options.on_prompt_token = on_prompt_token;
  options.n_top_log_probs = 2;
  for (int max_tokens = 0; max_tokens <= N_TOKENS; max_tokens += N_TOKENS) {
    n_prompt_seen = 0;
    options.max_tokens = max_tokens;
    CHECK(generate(engine, &options, &seen, &result, NULL) == QSF_OK);
    CHECK(n_prompt_seen == (int)n_tokens && seen.n == max_tokens);
    for (size_t i = 1; i < n_tokens; ++i) {
      CHECK(fabs(prompt_log_probs[i] - expected[i - 1]) < 1e-3);
    }
  }
  CHECK(strcmp(seen.text, plain.text) == 0);

  const qsf_logit_bias wish = {.token = eos, .bias = 1000.0f};
  qsf_sampling sampling = *options.sampling;
  sampling.logit_bias = &wish;
  options.sampling = &sampling;
  options.on_prompt_token = NULL;
  options.on_generated = on_end_token;
  CHECK(generate(engine, &options, &seen, &result, NULL) == QSF_OK && seen.n == 0);
  options.report_end = 1;
  CHECK(generate(engine, &options, &seen, &result, NULL) == QSF_OK);
  CHECK(seen.n == 1 && seen.tokens[0] == eos && seen.n_rest == 1);
  CHECK(result.reason == QSF_STOP_END_OF_TEXT && result.generated_tokens == 0);
}

static void test_end(QSFEngine* engine, const qsf_generate_options* from) {
  static Seen whole, ended;
  qsf_generate_options options = *from;
  qsf_generate_result result;
  CHECK(generate(engine, &options, &whole, &result, NULL) == QSF_OK && whole.n == N_TOKENS);
  ended.stop_at = 7;
  CHECK(generate(engine, &options, &ended, &result, NULL) == QSF_OK);
  CHECK(result.reason == QSF_STOP_CALLBACK && result.generated_tokens == 7 && ended.n == 7);
  CHECK(memcmp(whole.tokens, ended.tokens, 7 * sizeof(int)) == 0);
  CHECK(strncmp(whole.text, ended.text, strlen(ended.text)) == 0);

  /* Text that may begin a stop text is held back, and follows. */
  const char* const stop[] = {"no such text, for there is none"};
  char last[2] = {whole.text[strlen(whole.text) - 1], '\0'};
  char begins_a_stop[80] = "";
  strcat(strcat(begins_a_stop, last), stop[0]);
  const char* const stops[] = {begins_a_stop};
  options.stop = stops;
  options.n_stop = 1;
  ended.stop_at = 0;
  CHECK(generate(engine, &options, &ended, &result, NULL) == QSF_OK);
  CHECK(ended.n == N_TOKENS && ended.n_rest == 1 && strcmp(whole.text, ended.text) == 0);
}

static void test_refusals(QSFEngine* engine, const qsf_generate_options* from) {
  static Seen seen;
  qsf_error error;
  qsf_generate_options options = *from;
  qsf_generate_result result;
  options.n_top_log_probs = 101;
  CHECK(generate(engine, &options, &seen, &result, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "n_top_log_probs: 101") != NULL);
  options.n_top_log_probs = -1;
  CHECK(generate(engine, &options, &seen, &result, &error) == QSF_INVALID_ARGUMENT);
  options.n_top_log_probs = 0;
  options.reserve_tokens = -1;
  CHECK(generate(engine, &options, &seen, &result, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "reserve_tokens") != NULL);
}

static int allow_one(uint32_t* allowed, size_t n_words, void* user_data) {
  const int token = *(const int*)user_data;
  memset(allowed, 0, n_words * sizeof *allowed);
  allowed[token / 32] = 1u << (token % 32);
  return 0;
}

static void test_token_ids(QSFEngine* engine, const qsf_generate_options* from, int eos) {
  static Seen text, ids;
  qsf_error error;
  qsf_generate_options options = *from;
  qsf_generate_result result;
  CHECK(generate(engine, &options, &text, &result, NULL) == QSF_OK);
  int prompt[64];
  size_t n_prompt = 0;
  CHECK(qsf_engine_tokenize(engine, kPrompt, strlen(kPrompt), QSF_TOKENIZE_DEFAULT, prompt, 64,
                            &n_prompt, NULL) == QSF_OK);
  options.prompt_tokens = prompt;
  options.n_prompt_tokens = n_prompt;
  CHECK(generate(engine, &options, &ids, &result, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "both are set") != NULL);
  options.prompt = NULL;
  options.prompt_bytes = 0;
  CHECK(generate(engine, &options, &ids, &result, NULL) == QSF_OK);
  CHECK(result.prompt_tokens == (int)n_prompt && strcmp(text.text, ids.text) == 0);
  CHECK(memcmp(text.tokens, ids.tokens, sizeof text.tokens) == 0);

  prompt[1] = -1;
  CHECK(generate(engine, &options, &ids, &result, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "prompt_tokens[1]: -1") != NULL);
  options.n_prompt_tokens = 0;
  CHECK(generate(engine, &options, &ids, &result, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "prompt_tokens: none") != NULL);
  options.prompt_tokens = NULL;
  options.n_prompt_tokens = 1;
  CHECK(generate(engine, &options, &ids, &result, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "prompt_tokens: NULL") != NULL);

  options = *from;
  int end = 1 << 30;
  options.end_tokens = &end;
  options.n_end_tokens = 1;
  CHECK(generate(engine, &options, &ids, &result, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "end_tokens[0]") != NULL);
  end = text.tokens[5];
  int first = 0;
  while (text.tokens[first] != end) ++first;
  CHECK(generate(engine, &options, &ids, &result, NULL) == QSF_OK);
  CHECK(result.reason == QSF_STOP_END_OF_TEXT && result.generated_tokens == first);

  /* A model that wants to end at once. */
  const qsf_logit_bias wish = {.token = eos, .bias = 1e9f};
  qsf_sampling sampling = *from->sampling;
  sampling.logit_bias = &wish;
  options = *from;
  options.sampling = &sampling;
  CHECK(generate(engine, &options, &ids, &result, NULL) == QSF_OK);
  CHECK(result.reason == QSF_STOP_END_OF_TEXT && ids.n == 0);
  options.ignore_end_of_text = 1;
  CHECK(generate(engine, &options, &ids, &result, NULL) == QSF_OK);
  CHECK(result.reason == QSF_STOP_MAX_TOKENS && ids.n == N_TOKENS);
  CHECK(memcmp(text.tokens, ids.tokens, sizeof text.tokens) == 0);
  int only = eos;
  sampling.on_mask = allow_one;
  sampling.user_data = &only;
  CHECK(generate(engine, &options, &ids, &result, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "may not be drawn") != NULL);
}

/* A model that wants to draw a special token alone, and then to end. */
static void test_special_text(QSFEngine* engine, const qsf_generate_options* from, int bos,
                              int eos) {
  CHECK(bos >= 0);
  const qsf_logit_bias wish[] = {{.token = bos, .bias = 1e9f}, {.token = eos, .bias = 1e9f}};
  qsf_sampling sampling = *from->sampling;
  sampling.logit_bias = wish;
  sampling.n_logit_bias = 1;
  qsf_generate_options options = *from;
  options.sampling = &sampling;
  options.max_tokens = 2;
  static Seen seen;
  qsf_generate_result result;
  CHECK(generate(engine, &options, &seen, &result, NULL) == QSF_OK);
  CHECK(seen.n == 2 && seen.text[0] == '\0');
  options.keep_special = 1;
  CHECK(generate(engine, &options, &seen, &result, NULL) == QSF_OK);
  CHECK(seen.n == 2 && strcmp(seen.text, "<s><s>") == 0);
  const char* stop = "><";
  options.stop = &stop;
  options.n_stop = 1;
  CHECK(generate(engine, &options, &seen, &result, NULL) == QSF_OK);
  CHECK(result.reason == QSF_STOP_STRING && strcmp(seen.text, "<s") == 0);
  options.n_stop = 0;
  sampling.logit_bias = wish + 1;
  CHECK(generate(engine, &options, &seen, &result, NULL) == QSF_OK);
  CHECK(result.reason == QSF_STOP_END_OF_TEXT && seen.text[0] == '\0');
}

/* Two sessions share pages that one alone can fill. */
static void test_pages(const char* path, const qsf_generate_options* from) {
  QSFConfig* config = qsf_config_default();
  QSFEngine* engine = NULL;
  qsf_config_set_threads(config, 1);
  qsf_config_set_max_seq_len(config, 256);
  qsf_config_set_max_sessions(config, 2);
  qsf_config_set_kv_positions(config, 256);
  qsf_config_set_speculation(config, QSF_SPECULATE_OFF, 0); /* a token a pass */
  CHECK(qsf_engine_open(path, config, &engine, NULL) == QSF_OK);
  qsf_config_free(config);
  if (engine == NULL) return;
  QSFSession* sessions[2] = {NULL, NULL};
  QSFGeneration* generations[2] = {NULL, NULL};
  const qsf_logit_bias ban = {.token = from->sampling->logit_bias[0].token, .bias = -INFINITY};
  qsf_sampling sampling = *from->sampling;
  sampling.logit_bias = &ban;
  sampling.n_logit_bias = 1;
  qsf_generate_options options = *from;
  qsf_error error;
  qsf_generate_result result = {.struct_size = sizeof result};
  qsf_step_counts counts = {.struct_size = sizeof counts};
  options.sampling = &sampling;
  options.on_generated = NULL;
  options.on_token = NULL;
  options.max_tokens = 1000;
  options.reserve_tokens = 8;
  for (int i = 0; i < 2; ++i) {
    CHECK(qsf_session_create(engine, &sessions[i], NULL) == QSF_OK);
    CHECK(qsf_generation_create(sessions[i], &options, &generations[i], NULL) == QSF_OK);
  }
  for (int i = 0; i < 1000 && counts.n_waiting < 2; ++i) {
    CHECK(qsf_engine_step(engine, generations, 2, &counts, &error) == QSF_OK);
  }
  CHECK(counts.n_waiting == 2 && counts.generated_rows == 0);
  CHECK(qsf_generation_is_waiting(generations[0]) && qsf_generation_is_waiting(generations[1]));
  const size_t n_held = qsf_session_length(sessions[1]);
  CHECK(qsf_session_length(sessions[0]) + n_held <= 256 && n_held > 0);
  qsf_generation_free(generations[0]);
  CHECK(qsf_session_truncate(sessions[0], 0, NULL) == QSF_OK);
  CHECK(qsf_engine_step(engine, &generations[1], 1, &counts, &error) == QSF_OK);
  CHECK(counts.generated_rows == 1 && !qsf_generation_is_waiting(generations[1]));
  CHECK(qsf_session_length(sessions[1]) == n_held + 1);

  /* More than is left cannot be reserved. */
  options.reserve_tokens = 250;
  CHECK(qsf_generation_create(sessions[0], &options, &generations[0], NULL) == QSF_OK);
  CHECK(qsf_engine_step(engine, generations, 1, &counts, &error) == QSF_OK);
  CHECK(counts.n_finished == 1);
  CHECK(qsf_generation_get_result(generations[0], &result, &error) == QSF_OUT_OF_BUDGET);
  CHECK(strstr(error.message, "not admitted") != NULL);
  for (int i = 0; i < 2; ++i) {
    qsf_generation_free(generations[i]);
    qsf_session_free(sessions[i]);
  }
  qsf_free(engine);
}

static void test_embed(QSFEngine* engine, int hidden_size) {
  static float mean[4096], last[4096], unit[4096];
  const int tokens[] = {5, 6, 7};
  qsf_error error;
  CHECK(hidden_size > 0 && hidden_size <= 4096);
  CHECK(qsf_engine_embed(engine, tokens, 3, QSF_POOLING_MEAN, 0, mean, &error) == QSF_OK);
  CHECK(qsf_engine_embed(engine, tokens, 3, QSF_POOLING_LAST, 0, last, &error) == QSF_OK);
  CHECK(qsf_engine_embed(engine, tokens, 3, QSF_POOLING_MEAN, 1, unit, &error) == QSF_OK);
  CHECK(memcmp(mean, last, (size_t)hidden_size * sizeof *mean) != 0);
  double squares = 0.0, length = 0.0;
  for (int i = 0; i < hidden_size; ++i) {
    squares += (double)unit[i] * unit[i];
    length += (double)mean[i] * mean[i];
  }
  CHECK(fabs(squares - 1.0) < 1e-5);
  CHECK(fabs(unit[0] * sqrt(length) - mean[0]) < 1e-4);
  CHECK(qsf_engine_embed(engine, tokens, 1, QSF_POOLING_MEAN, 0, mean, &error) == QSF_OK);
  CHECK(qsf_engine_embed(engine, tokens, 1, QSF_POOLING_LAST, 0, last, &error) == QSF_OK);
  CHECK(memcmp(mean, last, (size_t)hidden_size * sizeof *mean) == 0);
  /* The first row sees its own token alone; this model's file names no pooling. */
  CHECK(qsf_engine_embed(engine, tokens, 3, QSF_POOLING_FIRST, 0, last, &error) == QSF_OK);
  CHECK(memcmp(mean, last, (size_t)hidden_size * sizeof *mean) == 0);
  CHECK(qsf_engine_embed(engine, tokens, 3, QSF_POOLING_MEAN, 0, mean, &error) == QSF_OK);
  CHECK(qsf_engine_embed(engine, tokens, 3, QSF_POOLING_MODEL, 0, last, &error) == QSF_OK);
  CHECK(memcmp(mean, last, (size_t)hidden_size * sizeof *mean) == 0);

  CHECK(qsf_engine_embed(NULL, tokens, 3, QSF_POOLING_MEAN, 0, mean, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_embed(engine, tokens, 3, QSF_POOLING_MEAN, 0, NULL, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_embed(engine, NULL, 3, QSF_POOLING_MEAN, 0, mean, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_embed(engine, tokens, 0, QSF_POOLING_MEAN, 0, mean, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_embed(engine, tokens, 3, (qsf_pooling)4, 0, mean, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "pooling: 4, expected a qsf_pooling: 0 (mean), 1 (last)") != NULL);
}

/* Else rows that are scored, as prompts, have other bits than generated ones. */
static void test_exact_log_probs(const char* path, const qsf_generate_options* from) {
  QSFConfig* config = qsf_config_default();
  QSFEngine* engine = NULL;
  qsf_config_set_exact(config, 1);
  qsf_config_set_threads(config, 1);
  qsf_config_set_max_seq_len(config, 128);
  CHECK(qsf_engine_open(path, config, &engine, NULL) == QSF_OK);
  qsf_config_free(config);
  if (engine == NULL) return;
  test_log_probs(engine, from);
  qsf_free(engine);
}

static void test_model(const char* path) {
  QSFEngine* engine = open_small_engine(path);
  if (engine == NULL) return;
  qsf_model_info info = {.struct_size = sizeof info};
  CHECK(qsf_engine_model_info(engine, &info, NULL) == QSF_OK);
  const qsf_logit_bias ban = {.token = info.eos_token, .bias = -INFINITY};
  qsf_sampling sampling;
  qsf_sampling_init(&sampling);
  sampling.temperature = 0.0f;
  sampling.logit_bias = &ban;
  sampling.n_logit_bias = 1;
  qsf_generate_options options;
  qsf_generate_options_init(&options);
  options.prompt = kPrompt;
  options.prompt_bytes = strlen(kPrompt);
  options.max_tokens = N_TOKENS;
  options.sampling = &sampling;
  options.on_token = on_token;
  options.on_generated = on_generated;
  test_exact_log_probs(path, &options);
  test_prompt_log_probs(engine, &options, info.eos_token);
  test_end(engine, &options);
  test_refusals(engine, &options);
  test_token_ids(engine, &options, info.eos_token);
  test_special_text(engine, &options, info.bos_token, info.eos_token);
  test_embed(engine, info.hidden_size);
  qsf_free(engine);
  test_pages(path, &options);
}

int main(int argc, char** argv) {
  if (argc > 1) test_model(argv[1]);
  fprintf(stderr, "%d checks, %d failed\n", n_checks, n_failures);
  return n_failures == 0 ? 0 : 1;
}
