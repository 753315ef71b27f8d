// SPDX-License-Identifier: MIT

#include "tools/serve/schedule/pass_rates.h"

#include <algorithm>
#include <cmath>

namespace qsf_tools {

namespace {

// Weight of the newest pass in the running mean.
constexpr double kNewest = 0.2;
// Prompt rows of a pass before anything is known. A prompt must get on, however tight the bound.
constexpr int kFirstRows = 16;
constexpr int kLeastRows = 4;
constexpr int kMostRows = 1 << 20;
// Passes of fewer prompt rows say little about the time of a row: noise of the pass would be
// divided by a small number.
constexpr int kRowsToLearnFrom = 4;

void learn(double& mean, double value) {
  mean = mean == 0.0 ? value : mean + kNewest * (value - mean);
}

}  // namespace

void PassRates::add(int prompt_rows, int generated_rows, double seconds) noexcept {
  if (!(seconds > 0.0) || prompt_rows < 0) return;
  if (prompt_rows == 0) {
    if (generated_rows > 0) learn(pass_seconds_, seconds);
    return;
  }
  if (prompt_rows < kRowsToLearnFrom) return;
  if (pass_seconds_ == 0.0 && row_seconds_ > 0.0 && generated_rows > 0) {
    // Newcomers may keep every pass of a busy server filled: until one without prompt rows is seen,
    // what the rows do not explain stands for it.
    pass_seconds_ = std::max(seconds - prompt_rows * row_seconds_, seconds / (prompt_rows + 1));
    return;
  }
  // Of a streamed pass most of the time is the read, which prompt rows may hide in: what they add
  // is what exceeds a pass without them.
  const double rest = std::max(seconds - pass_seconds_, 0.0);
  learn(row_seconds_, std::max(rest / prompt_rows, 1e-9));
}

int PassRates::max_prompt_rows(int generating) const noexcept {
  if (generating == 0) return 0;
  if (row_seconds_ == 0.0 || pass_seconds_ == 0.0) return kFirstRows;
  double gap = max_gap_seconds_;
  if (gap <= 0.0) {
    gap = streamed_ ? kStreamedGapPasses * pass_seconds_ : kResidentGapSeconds;
  }
  const double rows = std::floor((gap - pass_seconds_) / row_seconds_);
  return static_cast<int>(std::clamp(rows, double{kLeastRows}, double{kMostRows}));
}

}  // namespace qsf_tools
