// SPDX-License-Identifier: MIT
//
// What a user asks of qsf-run, checked.

#ifndef QSF_TOOLS_RUN_RUN_OPTIONS_H_
#define QSF_TOOLS_RUN_RUN_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qsf/qsf.h"
#include "tools/common/attention_choice.h"
#include "tools/common/kv_policy_choice.h"
#include "tools/common/kv_type_choice.h"

namespace qsf_tools {

inline constexpr const char* kRunTool = "qsf-run";

struct RunOptions {
  std::optional<std::string> model;  // none: the bundled one
  std::string i2s_layout = "auto";   // of a GGUF file, as qsf-convert takes it
  std::optional<std::string> prompt;
  std::string prompt_file;        // empty: none; "-": standard input
  std::optional<int> max_tokens;  // none: 256, in a chat as many as the context has room for
  float temperature = 0.7F;
  float top_p = 0.9F;
  int top_k = 40;
  float min_p = 0.0F;
  float repeat_penalty = 1.0F;
  std::vector<qsf_logit_bias> logit_bias;
  std::vector<std::string> stop;
  std::optional<std::uint64_t> seed;
  int threads = 0;        // 0: automatic
  int max_seq_len = 0;    // 0: the model's, at most 4,096 without a window
  int ram_budget = 0;     // MB; 0: what the machine has to spare
  int rows_per_pass = 0;  // 0: automatic
  qsf_read_path read_path = QSF_READ_AUTO;
  KvTypeChoice kv_types;
  AttentionChoice attention;
  KvPolicyChoice kv_policy;
  std::string kv_spill;      // empty: keys and values stay in memory
  std::string session_load;  // empty: the session begins with nothing
  std::string session_save;  // empty: it ends with the run
  bool exact = false;
  bool pin = false;
  bool no_echo = false;
  bool interactive = false;
  std::string system;         // of a chat; empty: none
  std::string chat_template;  // as qsf_chat_options takes it; empty: the model's own
  bool no_history = false;
  bool quiet = false;
  bool verbose = false;
};

// Reads the command line into `options`. Returns the exit code when the program is to end here.
std::optional<int> parse_run_options(int argc, const char* const* argv, RunOptions& options);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_RUN_RUN_OPTIONS_H_
