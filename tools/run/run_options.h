// SPDX-License-Identifier: MIT
//
// The command line of `qsf run` and `qsf chat`, checked.

#ifndef QSF_TOOLS_RUN_RUN_OPTIONS_H_
#define QSF_TOOLS_RUN_RUN_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qsf/qsf.h"
#include "tools/common/engine_options.h"
#include "tools/common/model_cache.h"

namespace qsf_tools {

// Returns the defaults of the library.
qsf_sampling default_sampling();

struct RunOptions {
  std::optional<std::string> model;  // none: the bundled one
  std::string i2s_layout = "auto";   // of a GGUF file, as qsf convert takes it
  CacheSettings cache;               // of converted models
  std::optional<std::string> prompt;
  std::string prompt_file;        // empty: none; "-": standard input
  std::optional<int> max_tokens;  // none: 256, in a chat as many as the context has room for
  qsf_sampling sampling = default_sampling();  // but for its seed, biases and breakers
  std::vector<qsf_logit_bias> logit_bias;
  std::vector<std::string> dry_breakers;       // empty: the library's
  std::vector<const char*> dry_breaker_texts;  // the same for C
  std::vector<std::string> stop;
  std::optional<std::string> grammar;  // the text of a grammar or schema
  qsf_grammar_kind grammar_kind = QSF_GRAMMAR_GBNF;
  std::string log_probs;    // a file for the log probabilities; empty: none
  int n_top_log_probs = 0;  // alternatives of each token in it
  std::optional<std::uint64_t> seed;
  EngineOptions engine;
  std::string session_load;  // empty: the session begins with nothing
  std::string session_save;  // empty: it ends with the run
  bool no_echo = false;
  bool interactive = false;
  bool needs_template = false;  // interactive because there is no prompt: only with a chat template
  std::string system;           // of a chat; empty: none
  std::string chat_template;    // as qsf_chat_options takes it; empty: the model's own
  bool no_history = false;
  bool bench = false;  // measure the model, without a text
  bool quiet = false;
  bool verbose = false;
};

enum class RunCommand { kRun, kChat };

// Reads the command line of `qsf run` or `qsf chat` into `options`. Returns the exit code when the
// program is to end here.
std::optional<int> parse_run_options(RunCommand command, int argc, const char* const* argv,
                                     RunOptions& options);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_RUN_RUN_OPTIONS_H_
