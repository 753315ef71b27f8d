// SPDX-License-Identifier: MIT
//
// qsf-inspect --plan: what running a model would take, by the library that would run it.

#ifndef QSF_TOOLS_INSPECT_QSF_INSPECT_PLAN_H_
#define QSF_TOOLS_INSPECT_QSF_INSPECT_PLAN_H_

#include <optional>
#include <string>

#include "tools/common/attention_choice.h"
#include "tools/common/kv_policy_choice.h"
#include "tools/common/kv_type_choice.h"

namespace CLI {
class App;
}

namespace qsf_tools {

struct PlanOptions {
  int ram_budget = 0;     // MB; 0: what the machine has to spare
  int max_seq_len = 0;    // 0: the model's, at most 4,096
  int threads = 0;        // 0: automatic
  int rows_per_pass = 0;  // 0: automatic
  std::string read_path = "auto";
  KvTypeChoice kv_types;
  KvPolicyChoice kv_policy;
  AttentionChoice attention;
  std::string kv_spill;

  bool is_default() const {
    return ram_budget == 0 && max_seq_len == 0 && threads == 0 && rows_per_pass == 0 &&
           read_path == "auto" && kv_types.is_default() && kv_policy.is_default() &&
           attention.is_default() && kv_spill.empty();
  }
};

void add_plan_options(CLI::App& app, PlanOptions& options);

// Returns the plan as text or as JSON, ending in a newline; nothing, and why in `problem`, when
// there is none.
std::optional<std::string> plan_report(const std::string& path, const PlanOptions& options,
                                       bool json, std::string& problem);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_INSPECT_QSF_INSPECT_PLAN_H_
