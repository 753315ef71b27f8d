/* SPDX-License-Identifier: MIT
 *
 * Completes two texts together, each in a session of its own:
 *
 *   two_sessions MODEL.qsf "Once upon a time" "The fox said"
 *
 * Every step computes the next rows of both in one pass, which reads the weights once.
 */
#include <stdio.h>
#include <string.h>

#include "qsf/qsf.h"

enum { kSessions = 2, kTextBytes = 4096 };

static void append_text(int token, const char* text, void* user_data) {
  char* const whole = user_data;
  (void)token;
  strncat(whole, text, kTextBytes - strlen(whole) - 1);
}

/* Begins a generation after `prompt` in a new session; what it generates goes to `text`. */
static qsf_code begin(QSFEngine* engine, const char* prompt, char* text, QSFSession** session,
                      QSFGeneration** generation, qsf_error* error) {
  qsf_generate_options options;
  qsf_generate_options_init(&options);
  options.prompt = prompt;
  options.prompt_bytes = strlen(prompt);
  options.max_tokens = 60;
  options.on_token = append_text;
  options.user_data = text;
  const qsf_code code = qsf_session_create(engine, session, error);
  return code == QSF_OK ? qsf_generation_create(*session, &options, generation, error) : code;
}

/* Steps both to their ends. */
static qsf_code run(QSFEngine* engine, QSFGeneration* const* generations, qsf_error* error) {
  qsf_step_counts counts = {.struct_size = sizeof counts};
  while (counts.n_finished < kSessions) {
    const qsf_code code = qsf_engine_step(engine, generations, kSessions, &counts, error);
    if (code != QSF_OK) return code;
  }
  return QSF_OK;
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: two_sessions MODEL.qsf TEXT TEXT\n");
    return 2;
  }
  static char texts[kSessions][kTextBytes];
  QSFSession* sessions[kSessions] = {NULL, NULL};
  QSFGeneration* generations[kSessions] = {NULL, NULL};
  QSFEngine* engine = NULL;
  qsf_error error = {0};

  QSFConfig* config = qsf_config_default();
  qsf_config_set_max_sessions(config, kSessions);
  qsf_code code = qsf_engine_open(argv[1], config, &engine, &error);
  qsf_config_free(config);
  for (int i = 0; i < kSessions && code == QSF_OK; ++i) {
    code = begin(engine, argv[2 + i], texts[i], &sessions[i], &generations[i], &error);
  }
  if (code == QSF_OK) code = run(engine, generations, &error);
  for (int i = 0; i < kSessions && code == QSF_OK; ++i) {
    qsf_generate_result result = {.struct_size = sizeof result};
    code = qsf_generation_get_result(generations[i], &result, &error); /* its own error, if any */
    if (code == QSF_OK) printf("%s%s\n", argv[2 + i], texts[i]);
  }
  if (code != QSF_OK) fprintf(stderr, "two_sessions: %s\n", error.message);

  for (int i = 0; i < kSessions; ++i) {
    qsf_generation_free(generations[i]);
    qsf_session_free(sessions[i]);
  }
  qsf_free(engine);
  return code == QSF_OK ? 0 : 1;
}
