// SPDX-License-Identifier: MIT
//
// Finds how far ahead of the weights in work decode products prefetch.
//
// The distance decides between 67 and 93 % of the memory's rate, differently on each machine, so it
// is measured on the model at hand: the first decode passes try each candidate by turns, and the
// one with the shortest time for a byte stays. A distance changes no result. Passes whose weights
// fit the last-level cache say nothing about memory; they neither count nor profit.

#ifndef QSF_OPS_PREFETCH_TUNER_H_
#define QSF_OPS_PREFETCH_TUNER_H_

#include <array>
#include <cstdint>
#include <optional>

namespace qsf {

inline constexpr std::uint32_t kMaxPrefetchBytes = 1U << 20;

class PrefetchTuner {
 public:
  static constexpr std::array<std::uint32_t, 4> kCandidates = {0, 1024, 2048, 4096};
  static constexpr std::uint32_t kRounds = 4;  // turns of each; the best of them counts
  static constexpr std::uint32_t kUntuned = 1024;

  // A `fixed` distance is used as it is. cache_bytes: of the last-level cache.
  PrefetchTuner(std::optional<std::uint32_t> fixed, std::uint64_t cache_bytes) noexcept;

  // Returns the distance for the products of this pass.
  std::uint32_t bytes() const noexcept;
  bool is_tuned() const noexcept { return fixed_.has_value(); }
  // Reports what the products of a decode pass read, in which time.
  void end_pass(std::uint64_t weight_bytes, std::uint64_t ns) noexcept;

 private:
  std::optional<std::uint32_t> fixed_;
  std::uint64_t cache_bytes_;
  std::uint32_t n_passes_ = 0;                   // that counted; the first warms up alone
  std::array<double, kCandidates.size()> best_;  // ns per byte
};

}  // namespace qsf

#endif  // QSF_OPS_PREFETCH_TUNER_H_
