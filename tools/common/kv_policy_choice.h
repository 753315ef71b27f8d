// SPDX-License-Identifier: MIT
//
// Which positions' keys and values a user wants kept.

#ifndef QSF_TOOLS_COMMON_KV_POLICY_CHOICE_H_
#define QSF_TOOLS_COMMON_KV_POLICY_CHOICE_H_

#include <optional>
#include <string>

#include "qsf/qsf.h"

namespace qsf_tools {

struct KvPolicyChoice {
  std::string policy = "full";
  std::optional<int> window;  // none: 1,024
  std::optional<int> sinks;   // none: 4
  std::optional<int> heavy;   // none: 256
  bool rope_reindex = false;

  bool is_h2o() const { return policy == "h2o"; }
  int window_or_default() const { return window.value_or(1024); }
  int sinks_or_default() const { return sinks.value_or(4); }
  int heavy_or_default() const { return heavy.value_or(256); }
  bool is_default() const {
    return policy == "full" && !window && !sinks && !heavy && !rope_reindex;
  }
};

// Returns what is wrong with the choice as a whole; empty: nothing.
inline std::string check_kv_policy(const KvPolicyChoice& choice) {
  const auto needs = [&](const char* option, int value, const char* policies) {
    return std::string(option) + " " + std::to_string(value) + ": needs --kv-policy " + policies +
           "; the policy is " + choice.policy;
  };
  if (choice.policy == "full") {
    if (choice.window) return needs("--kv-window", *choice.window, "window or h2o");
    if (choice.sinks) return needs("--kv-sinks", *choice.sinks, "window or h2o");
  }
  if (choice.heavy && !choice.is_h2o()) return needs("--kv-heavy", *choice.heavy, "h2o");
  if (choice.is_h2o() && choice.heavy_or_default() < choice.sinks_or_default()) {
    return "--kv-heavy " + std::to_string(choice.heavy_or_default()) +
           ": expected at least --kv-sinks " + std::to_string(choice.sinks_or_default()) +
           ", which it counts";
  }
  if (choice.rope_reindex && choice.policy != "window") {
    return "--rope-reindex: needs --kv-policy window; the policy is " + choice.policy;
  }
  return "";
}

// Requires  a choice that the options and check_kv_policy() accept
inline void set_kv_policy(QSFConfig* config, const KvPolicyChoice& choice) {
  qsf_config_set_kv_policy(config,
                           choice.is_h2o()             ? QSF_KV_POLICY_H2O
                           : choice.policy == "window" ? QSF_KV_POLICY_WINDOW
                                                       : QSF_KV_POLICY_FULL,
                           choice.window_or_default(), choice.sinks_or_default(),
                           choice.heavy_or_default());
  qsf_config_set_rope_reindex(config, choice.rope_reindex ? 1 : 0);
}

}  // namespace qsf_tools

#endif  // QSF_TOOLS_COMMON_KV_POLICY_CHOICE_H_
