// SPDX-License-Identifier: MIT
//
// qsf inspect --plan: the memory plan of a run, made by the library that would run the model.

#ifndef QSF_TOOLS_INSPECT_QSF_INSPECT_PLAN_H_
#define QSF_TOOLS_INSPECT_QSF_INSPECT_PLAN_H_

#include <optional>
#include <string>

#include "tools/common/engine_options.h"

namespace qsf_tools {

// Returns the plan as text or as JSON, ending in a newline; nothing, and why in `problem`, when
// there is none.
std::optional<std::string> plan_report(const std::string& path, const EngineOptions& options,
                                       bool json, std::string& problem);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_INSPECT_QSF_INSPECT_PLAN_H_
