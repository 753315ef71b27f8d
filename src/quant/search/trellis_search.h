// SPDX-License-Identifier: MIT
//
// The path of least cost through the trellis of quant/trellis.h (the Viterbi algorithm), for the
// whole of a row or for a part of it at a time.
//
// A part's path is chosen together with that of columns behind it, so that it ends in a state from
// which they can be reached well. An encoder may change those columns before it goes on (GPTQ), but
// not the scales of their blocks.

#ifndef QSF_QUANT_SEARCH_TRELLIS_SEARCH_H_
#define QSF_QUANT_SEARCH_TRELLIS_SEARCH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quant/search/trellis_steps.h"
#include "quant/trellis.h"

namespace qsf {

// Memory that the search for a row takes for each of its columns: costs of 1,024 states and of 16
// levels of a quarter of a column, and what is kept of three rows.
inline constexpr std::uint64_t kTrellisSearchBytesPerColumn =
    (kTrellisStates + kTrellisLevels) * sizeof(std::int16_t) / kTrellisStreams + 64;

// What weights are in units of their scale, and what an error of that unit costs.
struct TrellisTargets {
  std::vector<float> values;  // weight / scale; 0 where the scale is 0
  std::vector<float> costs;   // cost * scale^2
};

// Returns importance relative to its largest, so that only ratios count; ones where it is empty or
// zero throughout.
std::vector<float> trellis_costs(std::span<const float> importance, std::size_t n_cols);

// Fills the targets of columns.
// Shapes  costs, scales [weights.size()]: what an error costs, and d * scale of the column's block
void set_trellis_targets(std::span<const float> weights, std::span<const float> costs,
                         std::span<const float> scales, TrellisTargets& out);

// Threads  one. Every machine finds the same codes.
class TrellisSearch {
 public:
  // Requires  a trellis type
  explicit TrellisSearch(QuantType type);

  // The next columns are the first of a row.
  void start_row() noexcept { windows_ = {}; }
  // The state between two parts, to go on with other rows in between.
  const std::array<std::uint16_t, kTrellisStreams>& windows() const noexcept { return windows_; }
  void set_windows(const std::array<std::uint16_t, kTrellisStreams>& windows) noexcept {
    windows_ = windows;
  }

  // Chooses the codes of the next columns.
  // Shapes    targets: of these columns and those behind that have a say; codes, values [the same
  //           number]: values are those of the codes less 31.5
  // Requires  codes.size() is a multiple of 4, or the row ends with it
  void next(const TrellisTargets& targets, std::span<std::uint8_t> codes, std::span<float> values);

 private:
  struct alignas(64) PathCosts {
    std::int16_t of[kTrellisStates];
  };

  double counts_of(std::span<const float> costs) const noexcept;
  void set_steps(const TrellisTargets& targets, std::size_t stream, double counts);
  void take_steps();
  void find_path(const TrellisTargets& targets, std::size_t stream, double counts,
                 std::span<std::uint8_t> codes);

  QuantType type_;
  TakeTrellisStepsFn take_steps_;
  std::array<std::uint16_t, kTrellisStreams> windows_{};
  std::vector<std::int16_t> level_costs_;  // of the steps of a stream
  std::vector<std::int32_t> rises_;        // by which the least cost of a path rises at most
  std::unique_ptr<PathCosts[]> costs_;     // before each step, and behind the last
  std::size_t n_kept_ = 0;                 // that there is room for
};

}  // namespace qsf

#endif  // QSF_QUANT_SEARCH_TRELLIS_SEARCH_H_
