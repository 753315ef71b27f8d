// SPDX-License-Identifier: MIT
//
// Values of trellis types (quant/trellis.h) by look-ups of 6 bits, which AVX-512 VBMI has; internal
// linkage.
//
// Three symbols hold the nibbles of two, so from the window of two fields of a line and the field
// before them three look-ups in 64 bytes yield the nibbles that NEWEST, MIDDLE and OLDEST have for
// both, those of the first in the lower half of the byte. The indices of two fields are NEWEST of
// their window, MIDDLE of the one before and OLDEST of the one before that, joined by XOR.
// Look-ups ignore the bits above their six, so nothing is masked.

#ifndef QSF_KERNELS_MATMUL_TRELLIS_TRIPLES_H_
#define QSF_KERNELS_MATMUL_TRELLIS_TRIPLES_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/block_place.h"
#include "kernels/matmul/each.h"

namespace qsf::kernels {

struct alignas(64) WindowTable {
  std::uint8_t of[64];

  [[gnu::always_inline]] inline __m512i look_up(__m512i indices) const noexcept {
    return _mm512_permutexvar_epi8(indices, _mm512_load_si512(of));
  }
};

// What a nibble table has for the windows of fields 0 and 1: their symbols in bits 0 to 3, the one
// before in bits 4 and 5. Or of fields 2 and 3, kInOrder: the one before in bits 0 and 1.
template <bool kInOrder>
static constexpr WindowTable window_table(const std::uint8_t (&nibbles)[16]) noexcept {
  WindowTable table = {};
  for (unsigned i = 0; i < 64; ++i) {
    const unsigned before = kInOrder ? i % 4 : i / 16;
    const unsigned first = kInOrder ? i / 4 % 4 : i % 4;
    const unsigned second = kInOrder ? i / 16 : i / 4 % 4;
    const unsigned upper = nibbles[4 * second + first];
    table.of[i] = static_cast<std::uint8_t>(nibbles[4 * first + before] | upper << 4U);
  }
  return table;
}
template <bool kInOrder>
static constexpr WindowTable kNewestWindows = window_table<kInOrder>(kTables.newest);
template <bool kInOrder>
static constexpr WindowTable kMiddleWindows = window_table<kInOrder>(kTables.middle);
template <bool kInOrder>
static constexpr WindowTable kOldestWindows = window_table<kInOrder>(kTables.oldest);

// Values by index and, in bit 4, refinement.
template <QuantType kType>
static constexpr WindowTable kValues = [] {
  WindowTable values = {};
  for (unsigned i = 0; i < 64; ++i) {
    const unsigned refinement = kType == QuantType::kQ3Trellis ? i / 16 % 2 : 0;
    values.of[i] = static_cast<std::uint8_t>(kTrellisLevels<kType>.of[i % 16] +
                                             refinement * kTrellisRefinement);
  }
  return values;
}();

// Walks the blocks of a row in their order.
class TrellisTriples {
 public:
  // In front of a row symbols are 0.
  [[gnu::always_inline]] inline void begin() noexcept {
    const __m512i zeros = _mm512_setzero_si512();
    upper_ = zeros;
    middle_ = kMiddleWindows<kUpper>.look_up(zeros);
    oldest_[0] = kOldestWindows<kLower>.look_up(zeros);
    oldest_[1] = kOldestWindows<kUpper>.look_up(zeros);
  }

  // The symbols in front are those of the two lines from `lines` on.
  [[gnu::always_inline]] inline void begin_after(const std::byte* lines) noexcept {
    begin();
    pairs_of(_mm512_load_si512(lines));
    pairs_of(_mm512_load_si512(lines + kLineBytes));
  }

  // Calls take(four, values) for the fours of the next block, `lines` its first code line.
  template <QuantType kType, std::uint32_t kBlock, typename Take>
  [[gnu::always_inline]] inline void next(const std::byte* lines, Take&& take) noexcept {
    constexpr unsigned kLines = kBlock / 16;
    each<kLines>([&](auto line) __attribute__((always_inline)) {
      const Pairs pairs = pairs_of(_mm512_load_si512(lines + line * kLineBytes));
      each<4>([&](auto f) __attribute__((always_inline)) {
        constexpr unsigned kField = decltype(f)::value;
        __m512i indices = pairs.of[kField / 2];
        if constexpr (kField % 2 == 1) indices = _mm512_srli_epi32(indices, 4);
        if constexpr (kType == QuantType::kQ3Trellis) {
          constexpr unsigned kAt = decltype(line)::value % 2 * 4 + kField;
          __m512i plane = _mm512_load_si512(lines + (kLines + line / 2) * kLineBytes);
          if constexpr (kAt < 4) plane = _mm512_slli_epi32(plane, 4 - kAt);
          if constexpr (kAt > 4) plane = _mm512_srli_epi32(plane, kAt - 4);
          indices = _mm512_ternarylogic_epi32(_mm512_set1_epi8(0x10), plane, indices, 0xCA);
        }
        take(4 * line + f, kValues<kType>.look_up(indices));
      });
    });
  }

 private:
  // Windows of fields 0 and 1, and of 2 and 3.
  static constexpr bool kLower = false;
  static constexpr bool kUpper = true;

  // Indices of fields 0 and 1, and of 2 and 3.
  struct Pairs {
    __m512i of[2];
  };

  [[gnu::always_inline]] inline Pairs pairs_of(__m512i line) noexcept {
    const __m512i lower = _mm512_ternarylogic_epi32(line, upper_, _mm512_set1_epi8(0x30), 0xD8);
    upper_ = _mm512_srli_epi32(line, 2);
    const __m512i first =
        _mm512_ternarylogic_epi32(kNewestWindows<kLower>.look_up(lower), middle_, oldest_[0], 0x96);
    const __m512i second =
        _mm512_ternarylogic_epi32(kNewestWindows<kUpper>.look_up(upper_),
                                  kMiddleWindows<kLower>.look_up(lower), oldest_[1], 0x96);
    middle_ = kMiddleWindows<kUpper>.look_up(upper_);
    oldest_[0] = kOldestWindows<kLower>.look_up(lower);
    oldest_[1] = kOldestWindows<kUpper>.look_up(upper_);
    return {{first, second}};
  }

  __m512i upper_;  // the window of the last two fields
  __m512i middle_;
  __m512i oldest_[2];
};

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_MATMUL_TRELLIS_TRIPLES_H_
