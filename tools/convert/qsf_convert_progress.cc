// SPDX-License-Identifier: MIT

#include "tools/convert/qsf_convert_progress.h"

#include <cstdio>

namespace qsf_tools {

void ConvertProgress::show(std::string_view stage, std::string_view at_hand, std::uint64_t done,
                           std::uint64_t total) {
  if (stage_ != stage || done < stage_begin_) {
    stage_start_ = Clock::now();
    stage_begin_ = done;
  }
  stage_ = stage;
  if (!line_.due()) return;
  const double elapsed = std::chrono::duration<double>(Clock::now() - stage_start_).count();
  const double share = total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total);
  constexpr int kBar = 24;
  const int filled = static_cast<int>(share * kBar);
  char text[160];
  std::snprintf(text, sizeof text, "%s [%.*s%.*s] %3.0f %%, %.*s", stage_.c_str(), filled,
                "########################", kBar - filled, "........................",
                100.0 * share, static_cast<int>(at_hand.size()), at_hand.data());
  std::string shown = text;
  // What an earlier start has done took this one no time.
  if (done > stage_begin_) {
    const double rate = static_cast<double>(done - stage_begin_) / elapsed;
    std::snprintf(text, sizeof text, ", %.0f s left", static_cast<double>(total - done) / rate);
    shown += text;
  }
  line_.show(shown);
}

}  // namespace qsf_tools
