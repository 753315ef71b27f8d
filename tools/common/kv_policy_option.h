// SPDX-License-Identifier: MIT
//
// The options of which positions' keys and values are kept.

#ifndef QSF_TOOLS_COMMON_KV_POLICY_OPTION_H_
#define QSF_TOOLS_COMMON_KV_POLICY_OPTION_H_

#include <CLI/CLI.hpp>
#include <limits>
#include <string>

#include "tools/common/command_line.h"
#include "tools/common/kv_policy_choice.h"

namespace qsf_tools {

// `note` stands before each description.
inline void add_kv_policy_options(CLI::App& app, KvPolicyChoice& choice,
                                  const std::string& note = "") {
  constexpr int kMaxInt = std::numeric_limits<int>::max();
  app.add_option("--kv-policy", choice.policy,
                 note +
                     "Which positions' keys and values are kept: full, all of them; window, the "
                     "first few and the last ones, in fixed memory however long the text; h2o, "
                     "those and the ones that most attention was paid to")
      ->type_name("NAME")
      ->check(CLI::IsMember({"full", "window", "h2o"}))
      ->capture_default_str();
  app.add_option("--kv-window", choice.window,
                 note + "Last positions that --kv-policy window or h2o keeps; by default 1024")
      ->type_name("N")
      ->check(integer_in(1, kMaxInt));
  app.add_option("--kv-sinks", choice.sinks,
                 note + "First positions that --kv-policy window or h2o keeps; by default 4")
      ->type_name("N")
      ->check(integer_in(0, kMaxInt));
  app.add_option("--kv-heavy", choice.heavy,
                 note +
                     "Positions before the last ones that --kv-policy h2o keeps for each layer and "
                     "KV head, the first ones among them; by default 256")
      ->type_name("N")
      ->check(integer_in(0, kMaxInt));
  app.add_flag("--rope-reindex", choice.rope_reindex,
               note +
                   "With --kv-policy window: a token meets the first positions as if they stood "
                   "right before the window, so that texts go on past the trained context");
}

}  // namespace qsf_tools

#endif  // QSF_TOOLS_COMMON_KV_POLICY_OPTION_H_
