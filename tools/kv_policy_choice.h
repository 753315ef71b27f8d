// SPDX-License-Identifier: MIT
//
// Which positions' keys and values a user wants kept.

#ifndef QSF_TOOLS_KV_POLICY_CHOICE_H_
#define QSF_TOOLS_KV_POLICY_CHOICE_H_

#include <optional>
#include <string>

#include "qsf/qsf.h"

namespace qsf_tools {

struct KvPolicyChoice {
  std::string policy = "full";
  std::optional<int> window;  // none: 1,024
  std::optional<int> sinks;   // none: 4

  int window_or_default() const { return window.value_or(1024); }
  int sinks_or_default() const { return sinks.value_or(4); }
  bool is_default() const { return policy == "full" && !window && !sinks; }
};

// Returns what is wrong with the choice as a whole; empty: nothing.
inline std::string check_kv_policy(const KvPolicyChoice& choice) {
  if (choice.policy == "window") return "";
  const auto needs_window = [&](const char* option, int value) {
    return std::string(option) + " " + std::to_string(value) +
           ": needs --kv-policy window; the policy is " + choice.policy;
  };
  if (choice.window) return needs_window("--kv-window", *choice.window);
  if (choice.sinks) return needs_window("--kv-sinks", *choice.sinks);
  return "";
}

// Requires  a choice that the options and check_kv_policy() accept
inline void set_kv_policy(QSFConfig* config, const KvPolicyChoice& choice) {
  qsf_config_set_kv_policy(config,
                           choice.policy == "window" ? QSF_KV_POLICY_WINDOW : QSF_KV_POLICY_FULL,
                           choice.window_or_default(), choice.sinks_or_default(), /*heavy=*/0);
}

}  // namespace qsf_tools

#endif  // QSF_TOOLS_KV_POLICY_CHOICE_H_
