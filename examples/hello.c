/* SPDX-License-Identifier: MIT
 *
 * The smallest program that completes a text:  hello MODEL.qsf "Once upon a time"
 *
 * Build it with the library and a C++ linker, for the library is C++ inside;
 * examples/CMakeLists.txt shows how.
 */
#include <stdio.h>
#include <string.h>

#include "qsf/qsf.h"

static void print_token(int token, const char* text, void* user_data) {
  (void)token;
  (void)user_data;
  fputs(text, stdout);
  fflush(stdout);
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: hello MODEL.qsf PROMPT\n");
    return 2;
  }
  qsf_error error;
  QSFEngine* engine = NULL;
  if (qsf_engine_open(argv[1], NULL, &engine, &error) != QSF_OK) {
    fprintf(stderr, "hello: %s\n", error.message);
    return 1;
  }

  qsf_generate_options options;
  qsf_generate_options_init(&options);
  options.prompt = argv[2];
  options.prompt_bytes = strlen(argv[2]);
  options.max_tokens = 100;
  options.on_token = print_token;

  fputs(argv[2], stdout);
  const qsf_code code = qsf_engine_generate(engine, &options, NULL, &error);
  puts("");
  if (code != QSF_OK) fprintf(stderr, "hello: %s\n", error.message);
  qsf_free(engine);
  return code == QSF_OK ? 0 : 1;
}
