// SPDX-License-Identifier: MIT

#include "quant/search/trellis_steps.h"

#include <cstring>
#include <utility>

#include "base/ranges.h"
#include "quant/search/trellis_steps_loop.h"

namespace qsf {
namespace {

typedef std::int16_t Eight __attribute__((vector_size(16)));

struct Registers {
  struct Register {
    Eight half[2];
  };
  static constexpr unsigned kSets = 1;
  static Register load(const std::int16_t* from) noexcept {
    Register x;
    std::memcpy(&x, from, sizeof(x));
    return x;
  }
  static void store(Register x, std::int16_t* to) noexcept { std::memcpy(to, &x, sizeof(x)); }
  static Register add(Register a, Register b) noexcept {
    return {{a.half[0] + b.half[0], a.half[1] + b.half[1]}};
  }
  static Eight least_of(Eight a, Eight b) noexcept { return a < b ? a : b; }
  static Register least(Register a, Register b) noexcept {
    return {{least_of(a.half[0], b.half[0]), least_of(a.half[1], b.half[1])}};
  }
  static Eight low_of(Eight a, Eight b) noexcept {
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  }
  static Eight high_of(Eight a, Eight b) noexcept {
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  }
  static Register low(Register a, Register b) noexcept {
    return {{low_of(a.half[0], b.half[0]), low_of(a.half[1], b.half[1])}};
  }
  static Register high(Register a, Register b) noexcept {
    return {{high_of(a.half[0], b.half[0]), high_of(a.half[1], b.half[1])}};
  }
  static Register low_halves(Register a, Register b) noexcept { return {{a.half[0], b.half[0]}}; }
  static Register high_halves(Register a, Register b) noexcept { return {{a.half[1], b.half[1]}}; }

  // Costs in the order of eight lanes for coset kLevel.
  template <bool kOdd, std::size_t kLevel, std::size_t kFirst, std::size_t... kLane>
  static Eight spread_half(Eight low, Eight high, std::index_sequence<kLane...>) noexcept {
    return __builtin_shufflevector(low, high,
                                   (kMiddleOfLanes.of[kOdd ? 1 : 0][kFirst + kLane] ^ kLevel)...);
  }
  template <bool kOdd, std::size_t... kLevel>
  static void spread_all(Eight low, Eight high, Register* costs,
                         std::index_sequence<kLevel...>) noexcept {
    constexpr auto kEight = std::make_index_sequence<8>();
    ((costs[kLevel] = {{spread_half<kOdd, kLevel, 0>(low, high, kEight),
                        spread_half<kOdd, kLevel, 8>(low, high, kEight)}}),
     ...);
  }
  template <bool kOdd>
  static void spread(const std::int16_t* level_costs, Register (&costs)[kTrellisLevels]) noexcept {
    const Register levels = load(level_costs);
    spread_all<kOdd>(levels.half[0], levels.half[1], costs,
                     std::make_index_sequence<kTrellisLevels>());
  }
};

bool steps_run_anywhere() noexcept {
  return true;
}

#if defined(__x86_64__)
bool steps_run_on_avx2() noexcept {
  return __builtin_cpu_supports("avx2") != 0;
}
bool steps_run_on_avx512() noexcept {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0;
}
#endif

constexpr TrellisStepsMethod kStepsMethods[] = {
#if defined(__x86_64__)
    {.name = "avx512", .is_available = steps_run_on_avx512, .run = take_trellis_steps_avx512},
    {.name = "avx2", .is_available = steps_run_on_avx2, .run = take_trellis_steps_avx2},
#endif
    {.name = "baseline", .is_available = steps_run_anywhere, .run = take_trellis_steps_baseline},
};

}  // namespace

std::span<const TrellisStepsMethod> trellis_steps_methods() noexcept {
  return kStepsMethods;
}

TakeTrellisStepsFn best_trellis_steps() noexcept {
  static const TakeTrellisStepsFn best =
      ranges::find_if(kStepsMethods, [](const auto& method) { return method.is_available(); })->run;
  return best;
}

void take_trellis_steps_baseline(const std::int16_t* level_costs, std::size_t n_steps,
                                 std::int16_t* costs) noexcept {
  take_trellis_steps<Registers>(level_costs, n_steps, costs);
}

}  // namespace qsf
