// SPDX-License-Identifier: MIT
//
// The options of how the attention of a prompt is computed.

#ifndef QSF_TOOLS_COMMON_ATTENTION_OPTION_H_
#define QSF_TOOLS_COMMON_ATTENTION_OPTION_H_

#include <CLI/CLI.hpp>
#include <limits>
#include <optional>
#include <string>

#include "tools/common/attention_choice.h"
#include "tools/common/command_line.h"

namespace qsf_tools {

// `note` stands before each description.
inline void add_attention_options(CLI::App& app, AttentionChoice& choice,
                                  const std::string& note = "") {
  const auto add = [&](const char* name, std::optional<int>& value, int least, const char* what) {
    app.add_option(name, value, note + what)
        ->type_name("N")
        ->check(integer_in(least, std::numeric_limits<int>::max()));
  };
  app.add_option("--attention", choice.attention,
                 note +
                     "How prompts attend: full, to every position before; h2o, to those of their "
                     "chunk and a memory set, which takes less time for long prompts")
      ->type_name("NAME")
      ->check(CLI::IsMember({"full", "h2o"}))
      ->capture_default_str();
  add("--h2o-local", choice.local, 0, "Last positions before a chunk in its memory set; 256");
  add("--h2o-heavy", choice.heavy, 0,
      "Sinks and heaviest positions before those in the memory set; 256");
  add("--h2o-chunk", choice.chunk, 1, "Positions of a chunk; 1024");
  add("--h2o-sinks", choice.sinks, 0, "First positions that every memory set has; 4");
  app.add_option("--h2o-score", choice.score,
                 note +
                     "What heavy positions are ranked by: sum, the attention they were paid, the "
                     "default; or mean, by position that could have paid it")
      ->type_name("RANKING")
      ->check(CLI::IsMember({"mean", "sum"}));
}

}  // namespace qsf_tools

#endif  // QSF_TOOLS_COMMON_ATTENTION_OPTION_H_
