// SPDX-License-Identifier: MIT
//
// Owners of the library's handles.

#ifndef QSF_TOOLS_COMMON_HANDLES_H_
#define QSF_TOOLS_COMMON_HANDLES_H_

#include <memory>

#include "qsf/qsf.h"

namespace qsf_tools {

template <auto Free>
struct HandleFree {
  template <typename Handle>
  void operator()(Handle* handle) const {
    Free(handle);
  }
};

using ConfigPtr = std::unique_ptr<QSFConfig, HandleFree<qsf_config_free>>;
using EnginePtr = std::unique_ptr<QSFEngine, HandleFree<qsf_free>>;
using PlanPtr = std::unique_ptr<QSFPlan, HandleFree<qsf_plan_free>>;
using ChatPtr = std::unique_ptr<QSFChat, HandleFree<qsf_chat_free>>;
using SessionPtr = std::unique_ptr<QSFSession, HandleFree<qsf_session_free>>;
using GrammarPtr = std::unique_ptr<QSFGrammar, HandleFree<qsf_grammar_free>>;
using GenerationPtr = std::unique_ptr<QSFGeneration, HandleFree<qsf_generation_free>>;

}  // namespace qsf_tools

#endif  // QSF_TOOLS_COMMON_HANDLES_H_
