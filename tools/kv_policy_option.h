// SPDX-License-Identifier: MIT
//
// The options of which positions' keys and values are kept.

#ifndef QSF_TOOLS_KV_POLICY_OPTION_H_
#define QSF_TOOLS_KV_POLICY_OPTION_H_

#include <CLI/CLI.hpp>
#include <limits>
#include <string>

#include "command_line.h"
#include "kv_policy_choice.h"

namespace qsf_tools {

// `note` stands before each description.
inline void add_kv_policy_options(CLI::App& app, KvPolicyChoice& choice,
                                  const std::string& note = "") {
  constexpr int kMaxInt = std::numeric_limits<int>::max();
  app.add_option("--kv-policy", choice.policy,
                 note +
                     "Which positions' keys and values are kept: full, all of them; window, the "
                     "first few and the last ones, in fixed memory however long the text")
      ->type_name("NAME")
      ->check(CLI::IsMember({"full", "window"}))
      ->capture_default_str();
  app.add_option("--kv-window", choice.window,
                 note + "Last positions that --kv-policy window keeps; by default 1024")
      ->type_name("N")
      ->check(integer_in(1, kMaxInt));
  app.add_option("--kv-sinks", choice.sinks,
                 note + "First positions that --kv-policy window keeps; by default 4")
      ->type_name("N")
      ->check(integer_in(0, kMaxInt));
}

}  // namespace qsf_tools

#endif  // QSF_TOOLS_KV_POLICY_OPTION_H_
