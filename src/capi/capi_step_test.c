/* SPDX-License-Identifier: MIT
 *
 * Generations that step together, cancellation of one session, and what callbacks may call.
 *
 *   capi_step_test [MODEL.qsf]      without a model: the refusals alone
 */
#include <stdlib.h>
#include <string.h>

#include "capi/testing/capi_check.h"
#include "qsf/qsf.h"

#define N_MEMBERS 3
#define MAX_TOKENS 30

static const char* const kPrompts[N_MEMBERS] = {"Once upon a time", "The fox said",
                                                "There was a king who had three sons and"};

typedef struct Member {
  qsf_sampling sampling;
  qsf_generate_options options;
  QSFSession* session;
  QSFGeneration* generation;
  char text[2000];
  int n_calls;
  int cancel_at;         /* the call that cancels `victim`; 0: none */
  struct Member* victim; /* of cancel_at and free_at */
  int free_at;           /* the call that frees the victim's generation and session */
  int mask_code;         /* of the mask callback, from its third call on */
  int n_masks;
  int intrude; /* true: the token callback calls what it must not */
} Member;

static QSFEngine* open_engine_of_rows(const char* path, int sessions, int rows) {
  QSFConfig* config = qsf_config_default();
  QSFEngine* engine = NULL;
  qsf_config_set_threads(config, 1);
  qsf_config_set_max_seq_len(config, 256);
  qsf_config_set_max_sessions(config, sessions);
  qsf_config_set_rows_per_pass(config, rows);
  CHECK(qsf_engine_open(path, config, &engine, NULL) == QSF_OK);
  qsf_config_free(config);
  return engine;
}

static QSFEngine* open_engine(const char* path, int sessions) {
  return open_engine_of_rows(path, sessions, 0);
}

static void expect_busy(qsf_code code, const qsf_error* error) {
  CHECK(code == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error->message, "another call is in progress") != NULL);
}

static QSFEngine* g_engine; /* of the callbacks below */

/* Everything that a callback must not call, and what it may. */
static void call_everything(Member* member) {
  qsf_error error;
  QSFSession* session = member->session;
  QSFSession* other = NULL;
  QSFChat* chat = NULL;
  QSFGeneration* generation = NULL;
  const int token = 1;
  double log_probs[1];
  size_t n = 0;
  int tokens[8];
  expect_busy(qsf_session_create(g_engine, &other, &error), &error);
  CHECK(other == NULL);
  expect_busy(qsf_session_prefill(session, &token, 1, NULL, &error), &error);
  expect_busy(qsf_session_step(session, 1, NULL, &error), &error);
  expect_busy(qsf_session_generate(session, &member->options, NULL, &error), &error);
  expect_busy(qsf_session_truncate(session, 0, &error), &error);
  expect_busy(qsf_session_save(session, "never-written", &error), &error);
  expect_busy(qsf_session_load(session, "never-read", &error), &error);
  expect_busy(qsf_session_visible_positions(session, 0, 0, NULL, 0, &n, &error), &error);
  expect_busy(qsf_engine_generate(g_engine, &member->options, NULL, &error), &error);
  expect_busy(qsf_engine_score(g_engine, tokens, 2, 1, log_probs, &error), &error);
  expect_busy(qsf_engine_step(g_engine, NULL, 0, NULL, &error), &error);
  expect_busy(qsf_engine_step_with(g_engine, NULL, 0, NULL, NULL, &error), &error);
  int done = 1;
  expect_busy(qsf_generation_admit(member->generation, &done, &error), &error);
  expect_busy(qsf_generation_resume(member->generation, &done, &error), &error);
  expect_busy(qsf_generation_park(member->generation, "never-written", &error), &error);
  CHECK(done == 0 && !qsf_generation_is_parked(member->generation));
  expect_busy(qsf_engine_step_sessions(g_engine, NULL, NULL, 0, NULL, &error), &error);
  expect_busy(qsf_generation_create(session, &member->options, &generation, &error), &error);
  expect_busy(qsf_chat_create(g_engine, NULL, &chat, &error), &error);
  CHECK(qsf_forward(g_engine, &token, 1) == NULL);

  qsf_kv_page_counts pages = {.struct_size = sizeof pages};
  CHECK(qsf_engine_kv_pages(g_engine, &pages, &error) == QSF_OK && pages.free_pages < pages.pages);
  qsf_engine_stats stats = {.struct_size = sizeof stats};
  CHECK(qsf_engine_get_stats(g_engine, &stats, &error) == QSF_OK);
  CHECK(qsf_session_get_tokens(session, tokens, 8, &n, &error) == QSF_OK);
  CHECK(n == qsf_session_length(session) && n > 0);
  CHECK(qsf_engine_tokenize(g_engine, "a", 1, 0, NULL, 0, &n, &error) == QSF_OK);
}

static void on_token(int token, const char* text, void* user_data) {
  Member* member = user_data;
  (void)token;
  strncat(member->text, text, sizeof member->text - strlen(member->text) - 1);
  ++member->n_calls;
  if (member->n_calls == member->cancel_at) qsf_session_cancel(member->victim->session);
  if (member->n_calls == member->free_at) {
    qsf_generation_free(member->victim->generation);
    qsf_generation_free(member->victim->generation);
    qsf_session_free(member->victim->session);
    CHECK(qsf_session_length(member->victim->session) > 0); /* lives until the step returns */
    member->victim->generation = NULL;
    member->victim->session = NULL;
  }
  if (member->intrude) call_everything(member);
}

static int on_mask(uint32_t* allowed, size_t n_words, void* user_data) {
  Member* member = user_data;
  (void)allowed;
  (void)n_words;
  return ++member->n_masks < 3 ? 0 : member->mask_code;
}

static void init_member(Member* member, int i) {
  memset(member, 0, sizeof *member);
  qsf_sampling_init(&member->sampling);
  member->sampling.seed = (uint64_t)i;
  member->sampling.on_mask = on_mask;
  member->sampling.user_data = member;
  qsf_generate_options_init(&member->options);
  member->options.prompt = kPrompts[i];
  member->options.prompt_bytes = strlen(kPrompts[i]);
  member->options.max_tokens = MAX_TOKENS - 5 * i;
  member->options.sampling = &member->sampling;
  member->options.on_token = on_token;
  member->options.user_data = member;
}

static void begin(QSFEngine* engine, Member* members) {
  qsf_error error;
  g_engine = engine;
  for (int i = 0; i < N_MEMBERS; ++i) {
    CHECK(qsf_session_create(engine, &members[i].session, &error) == QSF_OK);
    CHECK(qsf_generation_create(members[i].session, &members[i].options, &members[i].generation,
                                &error) == QSF_OK);
    CHECK(!qsf_generation_is_finished(members[i].generation));
  }
}

/* Steps the members that are left to the end. Returns the number of steps. */
static int run(QSFEngine* engine, Member* members) {
  int n_steps = 0;
  qsf_step_counts counts = {.struct_size = sizeof counts};
  for (; n_steps < 1000; ++n_steps) {
    QSFGeneration* left[N_MEMBERS];
    size_t n = 0;
    for (int i = 0; i < N_MEMBERS; ++i) {
      if (members[i].generation != NULL) left[n++] = members[i].generation;
    }
    qsf_error error;
    const qsf_code code = qsf_engine_step(engine, left, n, &counts, &error);
    CHECK(code == QSF_OK);
    if (code != QSF_OK) fprintf(stderr, "%s\n", error.message);
    if (code != QSF_OK || counts.prompt_rows + counts.generated_rows == 0) break;
  }
  return n_steps;
}

static void end(Member* members) {
  for (int i = 0; i < N_MEMBERS; ++i) {
    qsf_generation_free(members[i].generation);
    qsf_session_free(members[i].session);
  }
}

static char g_alone[N_MEMBERS][2000];

static void generate_alone(const char* path) {
  QSFEngine* engine = open_engine(path, 1);
  for (int i = 0; i < N_MEMBERS; ++i) {
    Member member;
    init_member(&member, i);
    CHECK(qsf_engine_generate(engine, &member.options, NULL, NULL) == QSF_OK);
    strcpy(g_alone[i], member.text);
    CHECK(strlen(member.text) > 20);
  }
  qsf_free(engine);
}

static void init_members(Member* members) {
  for (int i = 0; i < N_MEMBERS; ++i) init_member(&members[i], i);
}

static int is_alone(const Member* members, int i) {
  return !strcmp(members[i].text, g_alone[i]);
}

static void test_together(const char* path) {
  static Member members[N_MEMBERS];
  QSFEngine* engine = open_engine(path, N_MEMBERS);
  init_members(members);
  begin(engine, members);
  members[1].intrude = 1;
  CHECK(run(engine, members) < MAX_TOKENS + 5);
  qsf_generate_result result = {.struct_size = sizeof result};
  for (int i = 0; i < N_MEMBERS; ++i) {
    CHECK(is_alone(members, i));
    CHECK(qsf_generation_is_finished(members[i].generation));
    CHECK(qsf_generation_get_result(members[i].generation, &result, NULL) == QSF_OK);
    CHECK(result.reason == QSF_STOP_MAX_TOKENS || result.reason == QSF_STOP_END_OF_TEXT);
    CHECK(result.generated_tokens <= members[i].options.max_tokens);
  }
  /* Ended, it leaves its session to others. */
  CHECK(qsf_session_truncate(members[0].session, 1, NULL) == QSF_OK);
  QSFGeneration* newer = NULL;
  CHECK(qsf_generation_create(members[0].session, &members[0].options, &newer, NULL) == QSF_OK);
  qsf_step_counts counts = {.struct_size = sizeof counts};
  CHECK(qsf_engine_step(engine, &members[0].generation, 1, &counts, NULL) == QSF_OK);
  CHECK(counts.n_finished == 1 && counts.prompt_rows == 0);
  qsf_session_free(members[0].session); /* waits for the newer generation */
  members[0].session = NULL;
  CHECK(qsf_engine_step(engine, &newer, 1, &counts, NULL) == QSF_OK && counts.prompt_rows > 0);
  qsf_generation_free(newer);
  end(members);
  qsf_free(engine);
}

static void test_one_ends(const char* path) {
  static Member members[N_MEMBERS];
  QSFEngine* engine = open_engine(path, N_MEMBERS);
  qsf_error error;
  qsf_generate_result result = {.struct_size = sizeof result};
  init_members(members);
  members[1].mask_code = 7;
  begin(engine, members);
  run(engine, members);
  CHECK(is_alone(members, 0) && is_alone(members, 2) && members[1].n_calls == 2);
  CHECK(qsf_generation_get_result(members[1].generation, &result, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "mask callback: returned 7") && result.generated_tokens == 2);
  end(members);

  init_members(members);
  members[0].cancel_at = 4;
  members[0].victim = &members[2];
  begin(engine, members);
  run(engine, members);
  CHECK(is_alone(members, 0) && is_alone(members, 1) && !is_alone(members, 2));
  CHECK(strncmp(g_alone[2], members[2].text, strlen(members[2].text)) == 0);
  CHECK(qsf_generation_get_result(members[2].generation, &result, &error) == QSF_OK);
  CHECK(result.reason == QSF_STOP_CANCELLED && result.generated_tokens >= 3);
  end(members);

  init_members(members);
  members[2].free_at = 3;
  members[2].victim = &members[0];
  begin(engine, members);
  run(engine, members);
  CHECK(members[0].n_calls >= 2 && members[0].n_calls <= 4);
  CHECK(is_alone(members, 1) && is_alone(members, 2));
  end(members);

  init_members(members);
  members[0].free_at = 3;
  members[0].victim = &members[0];
  begin(engine, members);
  run(engine, members);
  CHECK(members[0].n_calls == 3 && is_alone(members, 1) && is_alone(members, 2));
  end(members);
  qsf_free(engine);
}

static void test_cancelled_before(const char* path) {
  static Member members[N_MEMBERS];
  QSFEngine* engine = open_engine(path, N_MEMBERS);
  init_members(members);
  g_engine = engine;
  CHECK(qsf_session_create(engine, &members[0].session, NULL) == QSF_OK);
  qsf_session_cancel(members[0].session);
  qsf_generate_result result = {.struct_size = sizeof result};
  CHECK(qsf_session_generate(members[0].session, &members[0].options, &result, NULL) == QSF_OK);
  CHECK(result.reason == QSF_STOP_CANCELLED && qsf_session_length(members[0].session) == 0);
  CHECK(qsf_session_generate(members[0].session, &members[0].options, &result, NULL) == QSF_OK);
  CHECK(is_alone(members, 0));
  qsf_session_free(members[0].session);

  /* A pass that the engine's cancellation stops leaves all as they were. */
  init_members(members);
  begin(engine, members);
  QSFGeneration* all[N_MEMBERS];
  for (int i = 0; i < N_MEMBERS; ++i) all[i] = members[i].generation;
  CHECK(qsf_engine_step(engine, all, N_MEMBERS, NULL, NULL) == QSF_OK);
  qsf_engine_cancel(engine);
  CHECK(qsf_engine_step(engine, all, N_MEMBERS, NULL, NULL) == QSF_CANCELLED);
  run(engine, members);
  for (int i = 0; i < N_MEMBERS; ++i) CHECK(is_alone(members, i));
  end(members);
  qsf_free(engine);
}

static void test_refusals(const char* path) {
  static Member members[N_MEMBERS];
  QSFEngine* engine = open_engine(path, N_MEMBERS);
  QSFEngine* second = open_engine(path, 1);
  qsf_error error;
  qsf_step_counts counts = {.struct_size = sizeof counts};
  qsf_generate_result result = {.struct_size = sizeof result};
  init_members(members);
  begin(engine, members);
  const int token = 1;
  CHECK(qsf_session_prefill(members[0].session, &token, 1, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "a generation is in progress") != NULL);
  CHECK(qsf_session_truncate(members[0].session, 0, &error) == QSF_INVALID_ARGUMENT);
  QSFGeneration* another = NULL;
  CHECK(qsf_generation_create(members[0].session, &members[0].options, &another, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(another == NULL);
  CHECK(qsf_generation_get_result(members[0].generation, &result, &error) == QSF_INVALID_ARGUMENT);

  QSFGeneration* twice[2] = {members[0].generation, members[0].generation};
  CHECK(qsf_engine_step(engine, twice, 2, &counts, &error) == QSF_INVALID_ARGUMENT);
  twice[1] = NULL;
  CHECK(qsf_engine_step(engine, twice, 2, &counts, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "members[1]") != NULL);
  CHECK(qsf_engine_step(second, twice, 1, &counts, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "another engine") != NULL);
  CHECK(qsf_engine_step(engine, NULL, 1, &counts, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_step(engine, NULL, 0, &counts, &error) == QSF_OK);
  CHECK(counts.prompt_rows == 0 && counts.generated_rows == 0 && counts.n_finished == 0);
  counts.struct_size = 9;
  CHECK(qsf_engine_step(engine, twice, 1, &counts, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_length(members[0].session) == 0); /* nothing was computed */

  qsf_generation_free(members[0].generation);
  members[0].generation = NULL;
  size_t n = 9;
  CHECK(qsf_session_prefill(members[0].session, &token, 1, NULL, &error) == QSF_OK);
  int tokens[2] = {-1, -1};
  CHECK(qsf_session_get_tokens(members[0].session, tokens, 2, &n, &error) == QSF_OK);
  CHECK(n == 1 && tokens[0] == 1 && tokens[1] == -1);
  CHECK(qsf_session_get_tokens(members[0].session, NULL, 2, &n, &error) == QSF_INVALID_ARGUMENT);
  end(members);
  qsf_free(engine);
  qsf_free(second);
}

/* Freed within its prompt, a generation takes back what was computed of it. */
static void test_freed_within_the_prompt(const char* path) {
  QSFEngine* engine = open_engine_of_rows(path, 1, 2);
  QSFSession* session = NULL;
  QSFGeneration* generation = NULL;
  Member member;
  init_member(&member, 2);
  CHECK(qsf_session_create(engine, &session, NULL) == QSF_OK);
  CHECK(qsf_generation_create(session, &member.options, &generation, NULL) == QSF_OK);
  CHECK(qsf_engine_step(engine, &generation, 1, NULL, NULL) == QSF_OK);
  CHECK(qsf_session_length(session) == 2);
  qsf_generation_free(generation);
  CHECK(qsf_session_length(session) == 0);
  CHECK(qsf_session_generate(session, &member.options, NULL, NULL) == QSF_OK);
  CHECK(strcmp(member.text, g_alone[2]) == 0);
  qsf_session_free(session);
  qsf_free(engine);
}

/* Two sessions that go on from one text, each as the other would. */
static void test_fork(const char* path) {
  QSFEngine* engine = open_engine(path, 2);
  qsf_error error;
  QSFSession* session = NULL;
  QSFSession* fork = NULL;
  Member first, second;
  init_member(&first, 0);
  CHECK(qsf_session_create(engine, &session, NULL) == QSF_OK);
  first.options.max_tokens = 10;
  CHECK(qsf_session_generate(session, &first.options, NULL, NULL) == QSF_OK);
  CHECK(qsf_session_fork(session, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_fork(session, &fork, &error) == QSF_OK);
  CHECK(qsf_session_length(fork) == qsf_session_length(session));
  init_member(&first, 1);
  init_member(&second, 1);
  CHECK(qsf_session_generate(session, &first.options, NULL, NULL) == QSF_OK);
  CHECK(qsf_session_generate(fork, &second.options, NULL, NULL) == QSF_OK);
  CHECK(strlen(first.text) > 20 && strcmp(first.text, second.text) == 0);
  QSFSession* third = session;
  CHECK(qsf_session_fork(fork, &third, &error) == QSF_OUT_OF_BUDGET && third == NULL);
  qsf_session_free(fork);
  qsf_session_free(session);
  qsf_free(engine);
}

/* Engines are independent: a callback of one may use another. */
typedef struct Nested {
  QSFEngine* other;
  Member member;
  int n_calls;
} Nested;

static void generate_with_the_other(int token, const char* text, void* user_data) {
  Nested* nested = user_data;
  (void)token;
  (void)text;
  if (++nested->n_calls != 2) return;
  CHECK(qsf_engine_generate(nested->other, &nested->member.options, NULL, NULL) == QSF_OK);
}

static void test_two_engines(const char* path) {
  static Nested nested;
  QSFEngine* engine = open_engine(path, 1);
  nested.other = open_engine(path, 1);
  init_member(&nested.member, 1);
  qsf_generate_options options;
  qsf_generate_options_init(&options);
  options.prompt = kPrompts[0];
  options.prompt_bytes = strlen(kPrompts[0]);
  options.max_tokens = 4;
  options.on_token = generate_with_the_other;
  options.user_data = &nested;
  CHECK(qsf_engine_generate(engine, &options, NULL, NULL) == QSF_OK);
  CHECK(nested.n_calls >= 4 && strcmp(nested.member.text, g_alone[1]) == 0);
  qsf_free(nested.other);
  qsf_free(engine);
}

static void free_engine(int token, const char* text, void* user_data) {
  (void)token;
  (void)text;
  qsf_session_free(user_data);
  qsf_free(g_engine);
}

/* The engine goes when the call returns. */
static void test_engine_freed_in_a_callback(const char* path) {
  QSFEngine* engine = open_engine(path, 1);
  QSFSession* session = NULL;
  CHECK(qsf_session_create(engine, &session, NULL) == QSF_OK);
  qsf_generate_options options;
  qsf_generate_options_init(&options);
  options.prompt = kPrompts[0];
  options.prompt_bytes = strlen(kPrompts[0]);
  options.max_tokens = 3;
  options.on_token = free_engine;
  options.user_data = session;
  g_engine = engine;
  qsf_generate_result result = {.struct_size = sizeof result};
  CHECK(qsf_session_generate(session, &options, &result, NULL) == QSF_OK);
  CHECK(result.generated_tokens == 3);
}

/* Sessions that step together have the logits that each has alone. */
static void test_sessions(const char* path) {
  qsf_error error;
  QSFEngine* engine = open_engine(path, 3);
  QSFSession* sessions[3] = {NULL, NULL, NULL};
  const int prompts[3][2] = {{3, 4}, {5, 6}, {3, 4}};
  const int tokens[2] = {7, 8};
  qsf_model_info info = {.struct_size = sizeof info};
  CHECK(qsf_engine_model_info(engine, &info, NULL) == QSF_OK);
  const size_t n_vocab = (size_t)info.n_vocab;
  float* together = calloc(2 * n_vocab, sizeof *together);
  float* alone = calloc(n_vocab, sizeof *alone);
  for (int i = 0; i < 3; ++i) {
    CHECK(qsf_session_create(engine, &sessions[i], NULL) == QSF_OK);
    CHECK(qsf_session_prefill(sessions[i], prompts[i], 2, NULL, NULL) == QSF_OK);
  }
  CHECK(qsf_engine_step_sessions(engine, sessions, tokens, 2, together, &error) == QSF_OK);
  CHECK(qsf_session_length(sessions[0]) == 3 && qsf_session_length(sessions[1]) == 3);
  CHECK(qsf_session_step(sessions[2], tokens[0], alone, &error) == QSF_OK);
  CHECK(memcmp(together, alone, n_vocab * sizeof *alone) == 0);
  CHECK(memcmp(together + n_vocab, alone, n_vocab * sizeof *alone) != 0);
  CHECK(qsf_engine_step_sessions(engine, sessions, tokens, 2, NULL, &error) == QSF_OK);

  QSFSession* twice[2] = {sessions[0], sessions[0]};
  const int wrong[2] = {7, info.n_vocab};
  CHECK(qsf_engine_step_sessions(engine, twice, tokens, 2, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_step_sessions(engine, sessions, wrong, 2, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "tokens[1]") != NULL);
  CHECK(qsf_engine_step_sessions(engine, NULL, tokens, 2, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_step_sessions(engine, sessions, NULL, 2, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_step_sessions(engine, NULL, NULL, 0, NULL, &error) == QSF_OK);
  qsf_engine_cancel(engine);
  CHECK(qsf_engine_step_sessions(engine, sessions, tokens, 2, NULL, &error) == QSF_CANCELLED);
  CHECK(qsf_session_length(sessions[0]) == 4 && qsf_session_length(sessions[1]) == 4);
  free(together);
  free(alone);
  for (int i = 0; i < 3; ++i) qsf_session_free(sessions[i]);
  qsf_free(engine);
}

static void test_nulls(void) {
  qsf_error error;
  size_t n = 0;
  QSFGeneration* generation = (QSFGeneration*)&error; /* anything that is not NULL */
  CHECK(qsf_generation_create(NULL, NULL, &generation, &error) == QSF_INVALID_ARGUMENT);
  CHECK(generation == NULL);
  CHECK(qsf_generation_create(NULL, NULL, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_step(NULL, NULL, 0, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_generation_get_result(NULL, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_session_get_tokens(NULL, NULL, 0, &n, &error) == QSF_INVALID_ARGUMENT);
  CHECK(!qsf_generation_is_finished(NULL) && !qsf_generation_is_waiting(NULL));
  qsf_session_cancel(NULL);
  qsf_generation_free(NULL);
}

int main(int argc, char** argv) {
  test_nulls();
  if (argc > 1) {
    generate_alone(argv[1]);
    test_together(argv[1]);
    test_one_ends(argv[1]);
    test_cancelled_before(argv[1]);
    test_refusals(argv[1]);
    test_freed_within_the_prompt(argv[1]);
    test_fork(argv[1]);
    test_two_engines(argv[1]);
    test_sessions(argv[1]);
    test_engine_freed_in_a_callback(argv[1]);
  }
  fprintf(stderr, "%d checks, %d failed\n", n_checks, n_failures);
  return n_failures == 0 ? 0 : 1;
}
