// SPDX-License-Identifier: MIT
//
// PrefetchTuner: chooses the prefetch distance of decode products.
//
// The distance decides between 67 and 93 % of the memory rate, differently on each machine. So it
// is measured with the loaded model: the first decode passes try each candidate in turn, and the
// one with the least time per byte is kept. A distance changes no result. Passes whose weights fit
// the last-level cache do not count.

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
