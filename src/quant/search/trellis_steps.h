// SPDX-License-Identifier: MIT
//
// Steps of the Viterbi algorithm through the trellis of quant/trellis.h, in 16-bit costs, for
// registers of 128 bits (baseline: every machine), 256 (x86-64 AVX2) and 512 (AVX-512BW). All give
// the same numbers.
//
// A *state* is a window without its oldest symbol, five symbols a, b, c, d, e from the newest on:
// a << 8 | b << 6 | c << 4 | d << 2 | e. A step enters (n, a, b, c, d) from the four states that
// differ in e, so in registers whose lanes are b and c a step has no sums across lanes. The states
// it enters stand in registers whose lanes are c and d; two shuffles each bring a and b in place of
// c and d. Places are therefore of two kinds in turns, before *even* steps and before *odd* ones.

#ifndef QSF_QUANT_SEARCH_TRELLIS_STEPS_H_
#define QSF_QUANT_SEARCH_TRELLIS_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "quant/trellis.h"

namespace qsf {

inline constexpr std::size_t kTrellisLevels = 16;

// States of a register of 256 bits, which differ in b and c alone.
inline constexpr unsigned kTrellisLanes = 16;

// The register of states, with c of the register that a step enters. Those of a and a + 2 are
// neighbours, since a step enters both from the same states.
[[gnu::always_inline]] constexpr unsigned trellis_register(unsigned a, unsigned d,
                                                           unsigned e) noexcept {
  return (a % 2 * 16 + d * 4 + e) * 2 + a / 2;
}

// Symbols b and c of a lane.
constexpr unsigned trellis_lane_b(unsigned lane, bool is_odd) noexcept {
  return is_odd ? lane & 3U : (lane >> 3U) << 1U | (lane & 1U);
}
constexpr unsigned trellis_lane_c(unsigned lane, bool is_odd) noexcept {
  return is_odd ? lane >> 2U : lane >> 1U & 3U;
}

// Where a state stands in the costs of paths before a step.
constexpr unsigned trellis_place(unsigned state, bool is_odd) noexcept {
  const unsigned b = state >> 6U & 3U;
  const unsigned c = state >> 4U & 3U;
  const unsigned lane = is_odd ? c << 2U | b : (b >> 1U) << 3U | c << 1U | (b & 1U);
  return kTrellisLanes * trellis_register(state >> 8U, state >> 2U & 3U, state & 3U) + lane;
}

// The state at a place.
constexpr unsigned trellis_state_at(unsigned place, bool is_odd) noexcept {
  const unsigned lane = place % kTrellisLanes;
  const unsigned of_register = place / kTrellisLanes;
  const unsigned a = (of_register & 1U) << 1U | of_register >> 5U;
  return a << 8U | trellis_lane_b(lane, is_odd) << 6U | trellis_lane_c(lane, is_odd) << 4U |
         (of_register >> 1U & 15U);
}

// Takes steps, the first of them even: the least cost of a path to each state is that of a state
// before it and of the level between them. Sums must fit 16 bits.
// Shapes    level_costs [n_steps * 16]: of each level in each step; costs [(n_steps + 1) * 1024]:
//           before each step, of which the first are given, and behind the last; 64-byte aligned
// Requires  n_steps is even
using TakeTrellisStepsFn = void (*)(const std::int16_t* level_costs, std::size_t n_steps,
                                    std::int16_t* costs) noexcept;

struct TrellisStepsMethod {
  const char* name;
  bool (*is_available)() noexcept;  // on this CPU
  TakeTrellisStepsFn run;
};

// Returns every method in this binary, the fastest first; the last one runs everywhere.
std::span<const TrellisStepsMethod> trellis_steps_methods() noexcept;

// Returns the fastest method of this CPU. Threads  any
TakeTrellisStepsFn best_trellis_steps() noexcept;

void take_trellis_steps_baseline(const std::int16_t* level_costs, std::size_t n_steps,
                                 std::int16_t* costs) noexcept;
void take_trellis_steps_avx2(const std::int16_t* level_costs, std::size_t n_steps,
                             std::int16_t* costs) noexcept;
void take_trellis_steps_avx512(const std::int16_t* level_costs, std::size_t n_steps,
                               std::int16_t* costs) noexcept;

}  // namespace qsf

#endif  // QSF_QUANT_SEARCH_TRELLIS_STEPS_H_
