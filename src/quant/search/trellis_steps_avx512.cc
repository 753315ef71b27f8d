// SPDX-License-Identifier: MIT

#include <immintrin.h>

#include "quant/search/trellis_steps_loop.h"

namespace qsf {
namespace {

struct Registers {
  using Register = __m512i;
  static constexpr unsigned kSets = 2;
  static Register load(const std::int16_t* from) noexcept {
    return _mm512_broadcast_i64x4(_mm256_load_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static void store(Register x, std::int16_t* to) noexcept { _mm512_store_si512(to, x); }
  static Register add(Register a, Register b) noexcept { return _mm512_add_epi16(a, b); }
  static Register least(Register a, Register b) noexcept { return _mm512_min_epi16(a, b); }
  static Register low(Register a, Register b) noexcept { return _mm512_unpacklo_epi16(a, b); }
  static Register high(Register a, Register b) noexcept { return _mm512_unpackhi_epi16(a, b); }
  static Register low_halves(Register a, Register b) noexcept {
    return _mm512_permutex2var_epi64(a, _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13), b);
  }
  static Register high_halves(Register a, Register b) noexcept {
    return _mm512_permutex2var_epi64(a, _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15), b);
  }
  template <bool kOdd>
  static void spread(const std::int16_t* level_costs, Register (&costs)[kTrellisLevels]) noexcept {
    const Register levels =
        _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(level_costs)));
    const __m256i middle = _mm256_cvtepu8_epi16(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(kMiddleOfLanes.of[kOdd ? 1 : 0])));
    const Register of_lanes = _mm512_inserti64x4(_mm512_castsi256_si512(middle),
                                                 _mm256_xor_si256(middle, _mm256_set1_epi16(8)), 1);
#pragma GCC unroll 16
    for (unsigned i = 0; i < kTrellisLevels; ++i) {
      const Register level = _mm512_xor_si512(of_lanes, _mm512_set1_epi16(static_cast<short>(i)));
      costs[i] = _mm512_permutexvar_epi16(level, levels);
    }
  }
};

}  // namespace

void take_trellis_steps_avx512(const std::int16_t* level_costs, std::size_t n_steps,
                               std::int16_t* costs) noexcept {
  take_trellis_steps<Registers>(level_costs, n_steps, costs);
}

}  // namespace qsf
