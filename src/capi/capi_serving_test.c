/* SPDX-License-Identifier: MIT
 *
 * What a server uses: admission, bounded steps, parking, pages, memory of the caller.
 *
 *   capi_serving_test [MODEL.qsf]      without a model: the refusals alone
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "capi/testing/capi_check.h"
#include "qsf/qsf.h"

#define N_MEMBERS 3

static const char* const kPrompts[N_MEMBERS] = {"Once upon a time", "The fox said",
                                                "There was a king who had three sons and"};

typedef struct Member {
  qsf_sampling sampling;
  qsf_generate_options options;
  QSFSession* session;
  QSFGeneration* generation;
  char text[2000];
} Member;

static void on_token(int token, const char* text, void* user_data) {
  Member* member = user_data;
  (void)token;
  strncat(member->text, text, sizeof member->text - strlen(member->text) - 1);
}

static void init_member(Member* member, int i, int max_tokens) {
  memset(member, 0, sizeof *member);
  qsf_sampling_init(&member->sampling);
  member->sampling.seed = (uint64_t)i;
  qsf_generate_options_init(&member->options);
  member->options.prompt = kPrompts[i];
  member->options.prompt_bytes = strlen(kPrompts[i]);
  member->options.max_tokens = max_tokens;
  member->options.ignore_end_of_text = 1;
  member->options.sampling = &member->sampling;
  member->options.on_token = on_token;
  member->options.user_data = member;
}

static void begin(QSFEngine* engine, Member* member) {
  qsf_error error;
  CHECK(qsf_session_create(engine, &member->session, &error) == QSF_OK);
  CHECK(qsf_generation_create(member->session, &member->options, &member->generation, &error) ==
        QSF_OK);
}

static void end(Member* member) {
  qsf_generation_free(member->generation);
  qsf_session_free(member->session);
  member->generation = NULL;
  member->session = NULL;
}

/* Four pages for all, which are a context. */
static QSFEngine* open_engine(const char* path) {
  QSFConfig* config = qsf_config_default();
  QSFEngine* engine = NULL;
  qsf_config_set_threads(config, 1);
  qsf_config_set_max_seq_len(config, 256);
  qsf_config_set_max_sessions(config, N_MEMBERS);
  qsf_config_set_kv_positions(config, 256);
  qsf_config_set_speculation(config, QSF_SPECULATE_OFF, 0); /* a token a pass */
  qsf_config_add_memory(config, "connections", "1,000 of them", 1234567);
  qsf_config_add_memory(config, "queues", NULL, 0);
  CHECK(qsf_engine_open(path, config, &engine, NULL) == QSF_OK);
  qsf_config_free(config);
  return engine;
}

static int unreserved(const QSFEngine* engine) {
  qsf_kv_page_counts counts = {.struct_size = sizeof counts};
  CHECK(qsf_engine_kv_pages(engine, &counts, NULL) == QSF_OK);
  CHECK(counts.pages == 4 && counts.page_positions == 64);
  CHECK(counts.free_pages <= 4 && counts.unreserved_pages <= counts.free_pages);
  return counts.unreserved_pages;
}

static void test_admission(QSFEngine* engine) {
  static Member members[N_MEMBERS];
  qsf_error error;
  int admitted = -1;
  for (int i = 0; i < 2; ++i) {
    init_member(&members[i], i, 150);
    begin(engine, &members[i]);
  }
  CHECK(unreserved(engine) == 4);
  CHECK(qsf_generation_admit(members[0].generation, &admitted, &error) == QSF_OK && admitted == 1);
  CHECK(unreserved(engine) == 1);
  CHECK(qsf_generation_admit(members[0].generation, &admitted, &error) == QSF_OK && admitted == 1);
  CHECK(qsf_generation_admit(members[1].generation, &admitted, &error) == QSF_OK && admitted == 0);
  CHECK(error.code == QSF_OK && !qsf_generation_is_finished(members[1].generation));
  CHECK(unreserved(engine) == 1);
  end(&members[0]);
  CHECK(unreserved(engine) == 4);
  CHECK(qsf_generation_admit(members[1].generation, &admitted, &error) == QSF_OK && admitted == 1);
  qsf_step_counts counts = {.struct_size = sizeof counts};
  while (!qsf_generation_is_finished(members[1].generation)) {
    CHECK(qsf_engine_step(engine, &members[1].generation, 1, &counts, &error) == QSF_OK);
    if (error.code != QSF_OK) break;
  }
  CHECK(counts.pass_ns > 0 && counts.read_wait_ns <= counts.pass_ns);
  CHECK(qsf_generation_admit(members[1].generation, &admitted, &error) == QSF_INVALID_ARGUMENT);
  CHECK(admitted == 0 && strstr(error.message, "has ended") != NULL);
  CHECK(strlen(members[1].text) > 100);
  end(&members[1]);

  /* What can never be. */
  int prompt[250];
  for (int i = 0; i < 250; ++i) prompt[i] = 5;
  init_member(&members[2], 2, 5);
  members[2].options.prompt = NULL;
  members[2].options.prompt_bytes = 0;
  members[2].options.prompt_tokens = prompt;
  members[2].options.n_prompt_tokens = 250;
  begin(engine, &members[2]);
  CHECK(qsf_generation_admit(members[2].generation, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_generation_admit(members[2].generation, &admitted, &error) == QSF_OK && admitted);
  end(&members[2]);
}

/* Two texts after one prompt, which one of them computes. */
static void test_taking_a_prompt(QSFEngine* engine) {
  static Member members[2], alone;
  qsf_error error;
  int admitted = 0, n_tokens = -1;
  for (int i = 0; i < 2; ++i) {
    init_member(&members[i], i, 20);
    members[i].options.prompt = kPrompts[2];
    members[i].options.prompt_bytes = strlen(kPrompts[2]);
    begin(engine, &members[i]);
  }
  CHECK(qsf_generation_take_prompt(members[1].generation, members[0].session, &n_tokens, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(n_tokens == 0);
  CHECK(qsf_generation_admit(members[1].generation, &admitted, &error) == QSF_OK && admitted);
  CHECK(qsf_generation_take_prompt(members[1].generation, NULL, &n_tokens, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(qsf_generation_take_prompt(members[1].generation, members[0].session, NULL, &error) ==
        QSF_INVALID_ARGUMENT);
  while (!qsf_generation_is_finished(members[0].generation)) {
    CHECK(qsf_engine_step(engine, &members[0].generation, 1, NULL, &error) == QSF_OK);
    if (error.code != QSF_OK) break;
  }
  CHECK(qsf_generation_take_prompt(members[1].generation, members[0].session, &n_tokens, &error) ==
        QSF_OK);
  CHECK(n_tokens > 5);
  end(&members[0]);
  init_member(&alone, 1, 20);
  alone.options.prompt = kPrompts[2];
  alone.options.prompt_bytes = strlen(kPrompts[2]);
  begin(engine, &alone);
  QSFGeneration* both[2] = {members[1].generation, alone.generation};
  while (!qsf_generation_is_finished(both[0]) || !qsf_generation_is_finished(both[1])) {
    CHECK(qsf_engine_step(engine, both, 2, NULL, &error) == QSF_OK);
    if (error.code != QSF_OK) break;
  }
  CHECK(strcmp(members[1].text, alone.text) == 0);
  qsf_generate_result result = {.struct_size = sizeof result};
  CHECK(qsf_generation_get_result(both[0], &result, &error) == QSF_OK);
  CHECK(result.cached_tokens == n_tokens && result.prompt_tokens == n_tokens + 1);
  end(&members[1]);
  end(&alone);
}

/* Prompts in the order of the call, whatever bounds them. */
static void test_bounded_steps(QSFEngine* engine) {
  static Member members[N_MEMBERS], alone[N_MEMBERS];
  QSFGeneration* all[N_MEMBERS];
  qsf_error error;
  qsf_step_options options;
  qsf_step_counts counts = {.struct_size = sizeof counts};
  qsf_step_options_init(&options);
  CHECK(options.struct_size == sizeof options && options.max_prompt_rows == 0);
  for (int i = 0; i < N_MEMBERS; ++i) {
    init_member(&alone[i], i, 20);
    CHECK(qsf_engine_generate(engine, &alone[i].options, NULL, &error) == QSF_OK);
  }
  for (int i = 0; i < N_MEMBERS; ++i) {
    init_member(&members[i], i, 20);
    begin(engine, &members[i]);
    all[N_MEMBERS - 1 - i] = members[i].generation;
  }
  options.max_prompt_rows = -1;
  CHECK(qsf_engine_step_with(engine, all, N_MEMBERS, &options, &counts, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "max_prompt_rows: -1") != NULL);
  options.max_prompt_rows = 3;
  CHECK(qsf_engine_step_with(engine, all, N_MEMBERS, &options, &counts, &error) == QSF_OK);
  CHECK(counts.prompt_rows == 3 && qsf_session_length(members[2].session) == 3);
  CHECK(qsf_session_length(members[0].session) == 0);
  for (int i = 0; i < 200 && counts.n_finished < N_MEMBERS; ++i) {
    CHECK(qsf_engine_step_with(engine, all, N_MEMBERS, i % 2 ? &options : NULL, &counts, &error) ==
          QSF_OK);
  }
  CHECK(counts.n_finished == N_MEMBERS);
  for (int i = 0; i < N_MEMBERS; ++i) {
    CHECK(strcmp(members[i].text, alone[i].text) == 0 && strlen(alone[i].text) > 10);
    end(&members[i]);
  }
}

/* One is parked, and goes on as if nothing had been; a file that is damaged ends it alone. */
static void test_parking(QSFEngine* engine) {
  static Member alone, member, other;
  char path[64];
  qsf_error error;
  int resumed = -1;
  snprintf(path, sizeof path, "capi_serving_test.%ld.parked", (long)getpid());
  init_member(&alone, 1, 40);
  CHECK(qsf_engine_generate(engine, &alone.options, NULL, &error) == QSF_OK);
  for (int damaged = 0; damaged < 2; ++damaged) {
    init_member(&member, 1, 40);
    begin(engine, &member);
    CHECK(qsf_generation_resume(member.generation, &resumed, &error) == QSF_INVALID_ARGUMENT);
    CHECK(resumed == 0 && strstr(error.message, "is not parked") != NULL);
    for (int i = 0; i < 5; ++i) {
      CHECK(qsf_engine_step(engine, &member.generation, 1, NULL, &error) == QSF_OK);
    }
    CHECK(qsf_generation_park(member.generation, "/no/such/folder/file", &error) == QSF_IO);
    CHECK(qsf_generation_park(member.generation, NULL, &error) == QSF_INVALID_ARGUMENT);
    CHECK(!qsf_generation_is_parked(member.generation));
    CHECK(qsf_engine_step(engine, &member.generation, 1, NULL, &error) == QSF_OK);
    const size_t length = qsf_session_length(member.session);
    CHECK(qsf_generation_park(member.generation, path, &error) == QSF_OK);
    CHECK(qsf_generation_is_parked(member.generation) && access(path, R_OK) == 0);
    CHECK(unreserved(engine) == 4 && qsf_session_length(member.session) == length);
    CHECK(qsf_generation_park(member.generation, path, &error) == QSF_INVALID_ARGUMENT);
    qsf_step_counts counts = {.struct_size = sizeof counts};
    CHECK(qsf_engine_step(engine, &member.generation, 1, &counts, &error) == QSF_OK);
    CHECK(counts.generated_rows == 0 && counts.n_finished == 0 && counts.n_waiting == 0);

    /* Another has the pages meanwhile. */
    init_member(&other, 0, 200);
    begin(engine, &other);
    CHECK(qsf_generation_admit(other.generation, &resumed, &error) == QSF_OK && resumed == 1);
    CHECK(qsf_generation_resume(member.generation, &resumed, &error) == QSF_OK && resumed == 0);
    CHECK(qsf_generation_is_parked(member.generation));
    end(&other);
    if (damaged) {
      CHECK(truncate(path, 1000) == 0);
      const qsf_code code = qsf_generation_resume(member.generation, &resumed, &error);
      qsf_generate_result result = {.struct_size = sizeof result};
      CHECK(code == QSF_CORRUPT && resumed == 0 && strstr(error.message, path) != NULL);
      CHECK(qsf_generation_is_finished(member.generation));
      CHECK(qsf_generation_get_result(member.generation, &result, &error) == code);
      CHECK(qsf_session_length(member.session) == 0);
    } else {
      CHECK(qsf_generation_resume(member.generation, &resumed, &error) == QSF_OK && resumed == 1);
      while (!qsf_generation_is_finished(member.generation)) {
        CHECK(qsf_engine_step(engine, &member.generation, 1, NULL, &error) == QSF_OK);
        if (error.code != QSF_OK) break;
      }
      CHECK(strcmp(member.text, alone.text) == 0 && strlen(alone.text) > 20);
    }
    CHECK(!qsf_generation_is_parked(member.generation) && access(path, R_OK) != 0);
    end(&member);
  }
  /* Freed while parked. */
  init_member(&member, 1, 40);
  begin(engine, &member);
  CHECK(qsf_engine_step(engine, &member.generation, 1, NULL, &error) == QSF_OK);
  CHECK(qsf_generation_park(member.generation, path, &error) == QSF_OK);
  qsf_generation_free(member.generation);
  member.generation = NULL;
  CHECK(access(path, R_OK) != 0 && qsf_session_length(member.session) == 0);
  end(&member);
}

static void test_memory(const QSFEngine* engine, const char* path) {
  const QSFPlan* plan = qsf_engine_plan(engine);
  int n_found = 0;
  for (int i = 0; i < qsf_plan_region_count(plan); ++i) {
    qsf_memory_region region = {.struct_size = sizeof region};
    CHECK(qsf_plan_region(plan, i, &region, NULL) == QSF_OK);
    if (!strcmp(region.name, "connections")) {
      ++n_found;
      CHECK(region.bytes == 1234567 && !strcmp(region.reason, "1,000 of them"));
    }
    n_found += !strcmp(region.name, "queues");
  }
  CHECK(n_found == 2);

  qsf_error error;
  QSFPlan* refused = NULL;
  QSFConfig* config = qsf_config_default();
  qsf_config_add_memory(config, "sockets", NULL, UINT64_MAX);
  CHECK(qsf_plan_create(path, config, &refused, &error) == QSF_INVALID_ARGUMENT);
  CHECK(refused == NULL && strstr(error.message, "sockets") != NULL);
  qsf_config_free(config);
  config = qsf_config_default();
  qsf_config_add_memory(config, NULL, NULL, 1);
  CHECK(qsf_plan_create(path, config, &refused, &error) == QSF_INVALID_ARGUMENT);
  qsf_config_free(config);
}

/* The bytes of tokens, one behind the other, are the text, also where a token is part of a
 * character. */
static void test_token_bytes(QSFEngine* engine) {
  static const char kText[] = "The fox said: \xE2\x82\xAC\xF0\x9F\xA6\x8A\n";
  int tokens[64];
  size_t n_tokens = 0;
  CHECK(qsf_engine_tokenize(engine, kText, strlen(kText), QSF_TOKENIZE_NO_BOS, tokens, 64,
                            &n_tokens, NULL) == QSF_OK);
  char joined[256] = {0};
  size_t n_joined = 0;
  for (size_t i = 0; i < n_tokens; ++i) {
    size_t n_bytes = 0;
    CHECK(qsf_engine_get_token_bytes(engine, tokens[i], joined + n_joined,
                                     sizeof joined - 1 - n_joined, &n_bytes, NULL) == QSF_OK);
    size_t n_asked = 0;
    CHECK(qsf_engine_get_token_bytes(engine, tokens[i], NULL, 0, &n_asked, NULL) == QSF_OK);
    CHECK(n_asked == n_bytes && n_bytes > 0);
    n_joined += n_bytes;
  }
  /* A tokenizer may put a space in front. */
  CHECK(strcmp(joined[0] == ' ' ? joined + 1 : joined, kText) == 0);

  char bytes[2] = {'x', 'y'};
  size_t n_bytes = 0;
  CHECK(qsf_engine_get_token_bytes(engine, tokens[0], bytes, 1, &n_bytes, NULL) == QSF_OK);
  CHECK(n_bytes > 1 && bytes[0] == joined[0] && bytes[1] == 'y');
  qsf_error error;
  qsf_model_info info = {.struct_size = sizeof info};
  CHECK(qsf_engine_model_info(engine, &info, NULL) == QSF_OK);
  CHECK(qsf_engine_get_token_bytes(engine, -1, bytes, 2, &n_bytes, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_get_token_bytes(engine, info.n_vocab, bytes, 2, &n_bytes, &error) ==
        QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_get_token_bytes(engine, 0, NULL, 2, &n_bytes, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_engine_get_token_bytes(engine, 0, bytes, 2, NULL, &error) == QSF_INVALID_ARGUMENT);
}

static void test_refusals(void) {
  qsf_error error;
  int admitted = 1;
  qsf_kv_page_counts counts = {.struct_size = sizeof counts};
  CHECK(qsf_generation_admit(NULL, &admitted, &error) == QSF_INVALID_ARGUMENT && admitted == 0);
  CHECK(qsf_generation_take_prompt(NULL, NULL, &admitted, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_generation_park(NULL, "path", &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_generation_resume(NULL, &admitted, &error) == QSF_INVALID_ARGUMENT);
  CHECK(qsf_generation_resume(NULL, NULL, &error) == QSF_INVALID_ARGUMENT);
  CHECK(!qsf_generation_is_parked(NULL));
  CHECK(qsf_engine_kv_pages(NULL, &counts, &error) == QSF_INVALID_ARGUMENT);
  size_t n_bytes = 1;
  CHECK(qsf_engine_get_token_bytes(NULL, 0, NULL, 0, &n_bytes, &error) == QSF_INVALID_ARGUMENT);
  CHECK(n_bytes == 0);
  CHECK(qsf_engine_step_with(NULL, NULL, 0, NULL, NULL, &error) == QSF_INVALID_ARGUMENT);
  qsf_config_add_memory(NULL, "none", NULL, 1);
  qsf_step_options_init(NULL);
}

static void test_model(const char* path) {
  QSFEngine* engine = open_engine(path);
  if (engine == NULL) return;
  CHECK(qsf_engine_kv_pages(engine, NULL, NULL) == QSF_INVALID_ARGUMENT);
  test_admission(engine);
  test_taking_a_prompt(engine);
  test_bounded_steps(engine);
  test_parking(engine);
  test_memory(engine, path);
  test_token_bytes(engine);
  qsf_free(engine);
}

int main(int argc, char** argv) {
  test_refusals();
  if (argc > 1) test_model(argv[1]);
  fprintf(stderr, "%d checks, %d failed\n", n_checks, n_failures);
  return n_failures == 0 ? 0 : 1;
}
