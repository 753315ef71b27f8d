// SPDX-License-Identifier: MIT

#include "ops/prefetch_tuner.h"

#include <algorithm>
#include <limits>

namespace qsf {

PrefetchTuner::PrefetchTuner(std::optional<std::uint32_t> fixed, std::uint64_t cache_bytes) noexcept
    : fixed_(fixed), cache_bytes_(cache_bytes) {
  best_.fill(std::numeric_limits<double>::infinity());
}

std::uint32_t PrefetchTuner::bytes() const noexcept {
  if (fixed_.has_value()) return *fixed_;
  return n_passes_ == 0 ? kUntuned : kCandidates[(n_passes_ - 1) % kCandidates.size()];
}

void PrefetchTuner::end_pass(std::uint64_t weight_bytes, std::uint64_t ns) noexcept {
  if (fixed_.has_value() || weight_bytes <= cache_bytes_) return;
  if (n_passes_ > 0) {
    double& best = best_[(n_passes_ - 1) % kCandidates.size()];
    best = std::min(best, static_cast<double>(ns) / static_cast<double>(weight_bytes));
  }
  if (++n_passes_ <= kRounds * kCandidates.size()) return;
  const auto winner = std::min_element(best_.begin(), best_.end());
  fixed_ = kCandidates[static_cast<std::size_t>(winner - best_.begin())];
}

}  // namespace qsf
