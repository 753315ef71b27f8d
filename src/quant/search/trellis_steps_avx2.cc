// SPDX-License-Identifier: MIT

#include <immintrin.h>

#include "quant/search/trellis_steps_loop.h"

namespace qsf {
namespace {

struct Registers {
  using Register = __m256i;
  static constexpr unsigned kSets = 1;
  static Register load(const std::int16_t* from) noexcept {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
  }
  static void store(Register x, std::int16_t* to) noexcept {
    _mm256_store_si256(reinterpret_cast<__m256i*>(to), x);
  }
  static Register add(Register a, Register b) noexcept { return _mm256_add_epi16(a, b); }
  static Register least(Register a, Register b) noexcept { return _mm256_min_epi16(a, b); }
  static Register low(Register a, Register b) noexcept { return _mm256_unpacklo_epi16(a, b); }
  static Register high(Register a, Register b) noexcept { return _mm256_unpackhi_epi16(a, b); }
  static Register low_halves(Register a, Register b) noexcept {
    return _mm256_permute2x128_si256(a, b, 0x20);
  }
  static Register high_halves(Register a, Register b) noexcept {
    return _mm256_permute2x128_si256(a, b, 0x31);
  }

  // Looks up low and high bytes by themselves: of a level in eight lanes, then of its neighbour.
  template <bool kOdd>
  static void spread(const std::int16_t* level_costs, Register (&costs)[kTrellisLevels]) noexcept {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(level_costs));
    const __m256i bytes_apart = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(words, bytes_apart), 0xD8);
    const __m256i low_bytes = _mm256_permute2x128_si256(bytes, bytes, 0x00);
    const __m256i high_bytes = _mm256_permute2x128_si256(bytes, bytes, 0x11);
    const __m128i middle =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(kMiddleOfLanes.of[kOdd ? 1 : 0]));
    const __m128i neighbour = _mm_xor_si128(middle, _mm_set1_epi8(1));
    const __m256i of_lanes = _mm256_set_m128i(_mm_unpackhi_epi64(middle, neighbour),
                                              _mm_unpacklo_epi64(middle, neighbour));
#pragma GCC unroll 8
    for (unsigned i = 0; i < kTrellisLevels; i += 2) {
      const __m256i level = _mm256_xor_si256(of_lanes, _mm256_set1_epi8(static_cast<char>(i)));
      const __m256i low = _mm256_shuffle_epi8(low_bytes, level);
      const __m256i high = _mm256_shuffle_epi8(high_bytes, level);
      costs[i] = _mm256_unpacklo_epi8(low, high);
      costs[i + 1] = _mm256_unpackhi_epi8(low, high);
    }
  }
};

}  // namespace

void take_trellis_steps_avx2(const std::int16_t* level_costs, std::size_t n_steps,
                             std::int16_t* costs) noexcept {
  take_trellis_steps<Registers>(level_costs, n_steps, costs);
}

}  // namespace qsf
