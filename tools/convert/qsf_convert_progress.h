// SPDX-License-Identifier: MIT
//
// How far a conversion is: a bar with the time left of the stage at hand.

#ifndef QSF_TOOLS_CONVERT_QSF_CONVERT_PROGRESS_H_
#define QSF_TOOLS_CONVERT_QSF_CONVERT_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "tools/common/tool_support.h"

namespace qsf_tools {

class ConvertProgress {
 public:
  ConvertProgress(std::string_view tool, bool enabled) : line_(tool, enabled) {}

  // Shows, where it is time to, that `done` of `total` are done of a stage, and what of it is at
  // hand. A stage begins when it is first shown.
  void show(std::string_view stage, std::string_view at_hand, std::uint64_t done,
            std::uint64_t total);
  void clear() { line_.clear(); }

 private:
  using Clock = std::chrono::steady_clock;

  ProgressLine line_;
  std::string stage_;
  Clock::time_point stage_start_ = Clock::now();
  std::uint64_t stage_begin_ = 0;  // that was done when the stage was first shown
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_CONVERT_QSF_CONVERT_PROGRESS_H_
