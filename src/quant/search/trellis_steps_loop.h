// SPDX-License-Identifier: MIT
//
// The loop of trellis_steps.h for registers of any width.

#ifndef QSF_QUANT_SEARCH_TRELLIS_STEPS_LOOP_H_
#define QSF_QUANT_SEARCH_TRELLIS_STEPS_LOOP_H_

#include <cstddef>
#include <cstdint>

#include "quant/search/trellis_steps.h"

namespace qsf {
namespace {

// A copy of its own: an object of a tier may define nothing that others could take.
constexpr TrellisTables kStepTables = kTrellisTables;

// The middle table in the order of lanes, before even and before odd steps.
struct MiddleOfLanes {
  std::uint8_t of[2][kTrellisLanes];
};
constexpr MiddleOfLanes middle_of_lanes() noexcept {
  MiddleOfLanes middle{};
  for (unsigned odd = 0; odd < 2; ++odd) {
    for (unsigned lane = 0; lane < kTrellisLanes; ++lane) {
      middle.of[odd][lane] =
          kStepTables.middle[trellis_lane_b(lane, odd != 0) << 2U | trellis_lane_c(lane, odd != 0)];
    }
  }
  return middle;
}
constexpr MiddleOfLanes kMiddleOfLanes = middle_of_lanes();

// kNewest of symbols n and a is that of 0 and a, XOR 4 * n: levels behind a state are four apart.
constexpr bool newest_is_xor() noexcept {
  for (unsigned i = 0; i < 16; ++i) {
    if (kStepTables.newest[i] != (kStepTables.newest[i % 4] ^ (i / 4) << 2U)) return false;
  }
  return true;
}
static_assert(newest_is_xor());

// Brings symbols a, the index, and b to the lanes, and c and d out of them.
template <typename R, bool kOdd>
[[gnu::always_inline]] inline void turn(typename R::Register (&of)[4]) noexcept {
  constexpr unsigned kStride = kOdd ? 1 : 2;  // between registers that are interleaved
  const auto first_low = R::low(of[0], of[kStride]);
  const auto first_high = R::high(of[0], of[kStride]);
  const auto last_low = R::low(of[3 - kStride], of[3]);
  const auto last_high = R::high(of[3 - kStride], of[3]);
  if constexpr (kOdd) {
    of[0] = R::low_halves(first_low, last_low);
    of[1] = R::low_halves(first_high, last_high);
    of[2] = R::high_halves(first_low, last_low);
    of[3] = R::high_halves(first_high, last_high);
  } else {
    of[0] = R::low(first_low, last_low);
    of[1] = R::high(first_low, last_low);
    of[2] = R::low(first_high, last_high);
    of[3] = R::high(first_high, last_high);
  }
}

// R: registers of one set of lanes, or of two: those of a symbol n and of n + 2.
template <typename R, bool kOdd>
[[gnu::always_inline]] inline void take_trellis_step(const std::int16_t* level_costs,
                                                     const std::int16_t* before,
                                                     std::int16_t* after) noexcept {
  constexpr unsigned kNewest = 4 / R::kSets;
  typename R::Register costs[kTrellisLevels];  // [i]: of level i ^ middle ^ 8 * set
  R::template spread<kOdd>(level_costs, costs);
#pragma GCC unroll 4
  for (unsigned d = 0; d < 4; ++d) {
    typename R::Register entered[kNewest][4];
#pragma GCC unroll 4
    for (unsigned a = 0; a < 4; ++a) {
      typename R::Register from[4];
#pragma GCC unroll 4
      for (unsigned e = 0; e < 4; ++e) {
        from[e] = R::load(before + kTrellisLanes * trellis_register(a, d, e));
      }
#pragma GCC unroll 4
      for (unsigned n = 0; n < kNewest; ++n) {
        typename R::Register sums[4];
#pragma GCC unroll 4
        for (unsigned e = 0; e < 4; ++e) {
          const unsigned coset = kStepTables.newest[n << 2U | a] ^ kStepTables.oldest[d << 2U | e];
          sums[e] = R::add(from[e], costs[coset]);
        }
        entered[n][a] = R::least(R::least(sums[0], sums[1]), R::least(sums[2], sums[3]));
      }
    }
#pragma GCC unroll 4
    for (unsigned n = 0; n < kNewest; ++n) {
      turn<R, kOdd>(entered[n]);
#pragma GCC unroll 4
      for (unsigned c = 0; c < 4; ++c) {
        R::store(entered[n][c], after + kTrellisLanes * trellis_register(n, c, d));
      }
    }
  }
}

template <typename R>
[[gnu::always_inline]] inline void take_trellis_steps(const std::int16_t* level_costs,
                                                      std::size_t n_steps,
                                                      std::int16_t* costs) noexcept {
  for (std::size_t t = 0; t < n_steps; t += 2) {
    take_trellis_step<R, false>(level_costs, costs, costs + kTrellisStates);
    level_costs += kTrellisLevels;
    costs += kTrellisStates;
    take_trellis_step<R, true>(level_costs, costs, costs + kTrellisStates);
    level_costs += kTrellisLevels;
    costs += kTrellisStates;
  }
}

}  // namespace
}  // namespace qsf

#endif  // QSF_QUANT_SEARCH_TRELLIS_STEPS_LOOP_H_
