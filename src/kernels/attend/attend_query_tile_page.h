// SPDX-License-Identifier: MIT
//
// The three steps of a query tile (attend_query_tile.h), written once for all tiers: both products
// are those of attend_page.h, over rows of a wider matrix.
//
// All functions have internal linkage: each tier compiles its own.

#ifndef QSF_KERNELS_ATTEND_ATTEND_QUERY_TILE_PAGE_H_
#define QSF_KERNELS_ATTEND_ATTEND_QUERY_TILE_PAGE_H_

#include "kernels/attend/attend_page.h"
#include "kernels/attend/attend_query_tile.h"

namespace qsf::kernels::attend_page_internal {

constexpr unsigned kChains = 4;      // of maxima and sums, so that their latencies overlap
constexpr unsigned kRowsAtOnce = 4;  // whose probabilities meet the column sums in registers

// Calls body(run, scratch) for neighbouring rows that see the same slots, also where they see none.
template <typename Body>
[[gnu::always_inline]] static inline void for_runs(const AttendQueryTileArgs& tile,
                                                   const Body& body) noexcept {
  const AttendPageArgs& args = tile.page;
  float* panel = reinterpret_cast<float*>(args.scratch);
  Scratch scratch = {tile.weights, panel, nullptr, panel + std::size_t{kStrip} * kStrip,
                     tile.stride};
  for (std::uint32_t row = 0; row < args.n_rows;) {
    const Run run = next_run(args, row);
    scratch.weights = tile.weights + run.first_query * tile.stride;
    body(run, scratch);
  }
}

// Caps and biases what a run's products left as scores, and hides what it does not see.
template <typename L>
[[gnu::always_inline]] static inline void finish_scores(const AttendPageArgs& args, const Run& run,
                                                        const Scratch& scratch) noexcept {
  const bool sees = run.first < run.last;
  const std::uint32_t begin = run.first / L::kWidth * L::kWidth;
  const std::uint32_t end = (run.last + L::kWidth - 1) / L::kWidth * L::kWidth;
  for (std::uint32_t i = 0; i < run.n_queries; ++i) {
    float* scores = scratch.weights + i * scratch.stride;
    if (sees && (args.soft_cap != 0.0F || args.slopes != nullptr)) {
      cap_and_bias<L>(args, run.first_query + i, begin, end, scores);
    }
    const std::uint32_t first = sees ? run.first : kKvPageSlots;
    for (std::uint32_t j = 0; j < first; ++j) scores[j] = kNegativeInfinity;
    for (std::uint32_t j = sees ? run.last : kKvPageSlots; j < kKvPageSlots; ++j) {
      scores[j] = kNegativeInfinity;
    }
  }
}

template <typename L>
static void query_tile_scores(const AttendQueryTileArgs& tile) noexcept {
  const AttendPageArgs& args = tile.page;
  Ahead ahead = plan_ahead<L>(args, 1);
  for_runs(tile, [&](const Run& run, const Scratch& scratch) {
    if (run.first < run.last) score_run<L>(args, run, scratch, &ahead);
    finish_scores<L>(args, run, scratch);
  });
}

// Turns a row of scores into exp(score - max). Returns what it is to be multiplied with.
template <typename L>
static float weigh_row(float* scores, std::uint32_t n_columns) noexcept {
  using Vec = typename L::Vec;
  constexpr std::uint32_t kStep = kChains * L::kWidth;
  static_assert(kKvPageSlots % kStep == 0);
  Vec chains[kChains];
  for (Vec& chain : chains) chain = L::splat(kNegativeInfinity);
  for (std::uint32_t j = 0; j < n_columns; j += kStep) {
#pragma GCC unroll 4
    for (unsigned c = 0; c < kChains; ++c) {
      chains[c] = L::larger(L::load(scores + j + c * L::kWidth), chains[c]);
    }
  }
  const float max =
      L::largest_lane(L::larger(L::larger(chains[0], chains[1]), L::larger(chains[2], chains[3])));
  // Without a finite score, subtracting 0 keeps exp(-inf) = 0 and lets NaN through.
  const Vec base = L::splat(max == kNegativeInfinity ? 0.0F : max);
  for (Vec& chain : chains) chain = L::splat(0.0F);
  for (std::uint32_t j = 0; j < n_columns; j += kStep) {
#pragma GCC unroll 4
    for (unsigned c = 0; c < kChains; ++c) {
      const Vec weights = exp_negative<L>(L::load(scores + j + c * L::kWidth) - base);
      L::store(scores + j + c * L::kWidth, weights);
      chains[c] = chains[c] + weights;
    }
  }
  const float sum = L::sum_lanes((chains[0] + chains[1]) + (chains[2] + chains[3]));
  return sum == 0.0F ? 0.0F : 1.0F / sum;
}

// Multiplies kR rows and adds them to the column sums, one after the other.
template <typename L, unsigned kR>
[[gnu::always_inline]] static inline void add_rows(const AttendNormaliseArgs& args, float* rows,
                                                   const float* factors) noexcept {
  using Vec = typename L::Vec;
  for (std::uint32_t j = 0; j < args.n_columns; j += L::kWidth) {
    Vec sum = L::load(args.column_sums + j);
#pragma GCC unroll 4
    for (unsigned r = 0; r < kR; ++r) {
      const Vec weights = L::load(rows + r * args.stride + j) * L::splat(factors[r]);
      L::store(rows + r * args.stride + j, weights);
      sum = sum + weights;
    }
    L::store(args.column_sums + j, sum);
  }
}

template <typename L>
static void query_tile_normalise(const AttendNormaliseArgs& args) noexcept {
  float* rows = args.weights;
  for (std::uint32_t i = 0; i < args.n_queries;) {
    const bool several = args.n_queries - i >= kRowsAtOnce;
    const unsigned n = several ? kRowsAtOnce : 1;
    float factors[kRowsAtOnce];
    for (unsigned r = 0; r < n; ++r) {
      factors[r] = weigh_row<L>(rows + r * args.stride, args.n_columns);
    }
    if (several) {
      add_rows<L, kRowsAtOnce>(args, rows, factors);
    } else {
      add_rows<L, 1>(args, rows, factors);
    }
    i += n;
    rows += n * args.stride;
  }
}

template <typename L>
static void query_tile_values(const AttendQueryTileArgs& tile) noexcept {
  Ahead ahead = plan_ahead<L>(tile.page, 1);
  widen_scales<L>(tile.page, reinterpret_cast<float*>(tile.page.scratch) + kStrip * kStrip);
  for_runs(tile, [&](const Run& run, const Scratch& scratch) {
    if (run.first < run.last) add_values<L>(tile.page, run, scratch, &ahead);
  });
}

}  // namespace qsf::kernels::attend_page_internal

#endif  // QSF_KERNELS_ATTEND_ATTEND_QUERY_TILE_PAGE_H_
