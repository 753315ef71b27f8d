// SPDX-License-Identifier: MIT
//
// Codes of layout 1 in the vectors V of the tiers up to 256 bits: the scales of a block
// of 16 rows, and its codes as fours of columns; internal linkage.

#ifndef QSF_KERNELS_MATMUL_CODED_MADDUBS_H_
#define QSF_KERNELS_MATMUL_CODED_MADDUBS_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/block_place.h"
#include "kernels/matmul/each.h"
#include "kernels/matmul/trellis_pairs.h"
#include "kernels/quantise/quantise.h"
#include "quant/block_format.h"

namespace qsf::kernels::maddubs {

static_assert(kRowGroup == 16 && kLineBytes == 64 && kActivationBlockColumns == 64);

// The scales and mins of a block, of the rows in one vector.
template <typename V>
struct Fields {
  typename V::Floats scales;
  typename V::Floats mins;
};

template <QuantType kType, std::uint32_t kBlock>
static constexpr std::size_t kCodeBytes = std::size_t{kBlock} * code_bits(kType) / 8 * kRowGroup;

// Byte `index` of every word.
template <typename V>
[[gnu::always_inline]] static inline typename V::Ints byte_of(typename V::Ints words,
                                                              unsigned index) noexcept {
  alignas(16) static constexpr std::uint32_t kBytes[4][4] = {
      {0x80808000, 0x80808004, 0x80808008, 0x8080800C},
      {0x80808001, 0x80808005, 0x80808009, 0x8080800D},
      {0x80808002, 0x80808006, 0x8080800A, 0x8080800E},
      {0x80808003, 0x80808007, 0x8080800B, 0x8080800F}};
  return V::look_up(words,
                    V::repeat(_mm_load_si128(reinterpret_cast<const __m128i*>(kBytes[index]))));
}

// What the sub-blocks of a super-block have of the rows: d, dmin, and scales and mins of 6 bits, a
// byte each, which are put together once for all of them.
template <typename V, std::uint32_t kBlock>
struct SuperBlockFields {
  using Ints = typename V::Ints;
  using Floats = typename V::Floats;
  static constexpr unsigned kWords = kSuperColumns / kBlock / 4;

  Floats d[V::kVectors];
  Floats dmin[V::kVectors];
  Ints scales[kWords][V::kVectors];
  Ints mins[kWords][V::kVectors];

  // Loads those of the super-block whose first sub-block is at `place`.
  [[gnu::always_inline]] inline void load(const BlockPlace& place) noexcept {
#pragma GCC unroll 16
    for (unsigned v = 0; v < V::kVectors; ++v) {
      const std::size_t halves = v * V::kRows * 2;
      d[v] = V::widen_halves(place.scales + halves);
      dmin[v] = V::widen_halves(place.mins + halves);
      const Ints highs = kBlock == 32 ? V::load(place.high + v * sizeof(Ints))
                                      : V::widen_words(place.high + halves);
      each<kWords>([&](auto word) __attribute__((always_inline)) {
        const Ints lows = V::load(place.low + word * kLineBytes + v * sizeof(Ints));
        const Ints nibbles = nibbles_of<decltype(word)::value>(highs);
        scales[word][v] = V::either(V::both(lows, V::splat_bytes(0x0F)),
                                    V::template up<4>(V::both(nibbles, V::splat_bytes(0x03))));
        mins[word][v] = V::either(V::both(V::template down<4>(lows), V::splat_bytes(0x0F)),
                                  V::template up<2>(V::both(nibbles, V::splat_bytes(0x0C))));
      });
    }
  }

  // Those of sub-block `k` for the rows of vector v.
  [[gnu::always_inline]] inline Fields<V> of(unsigned k, unsigned v) const noexcept {
    const Ints scale = byte_of<V>(scales[k / 4 % kWords][v], k % 4);
    const Ints min = byte_of<V>(mins[k / 4 % kWords][v], k % 4);
    return {V::multiply(d[v], V::to_floats(scale)), V::multiply(dmin[v], V::to_floats(min))};
  }

 private:
  // Half kHalf of every word, its four nibbles as bytes.
  template <unsigned kHalf>
  [[gnu::always_inline]] static inline Ints nibbles_of(Ints words) noexcept {
    const __m128i lower = _mm_setr_epi8(0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13);
    const __m128i upper = _mm_setr_epi8(2, 2, 3, 3, 6, 6, 7, 7, 10, 10, 11, 11, 14, 14, 15, 15);
    const Ints twice = V::look_up(words, V::repeat(kHalf == 0 ? lower : upper));
    return V::either(V::both(twice, V::splat_int(0x000F000F)),
                     V::both(V::template down<4>(twice), V::splat_int(0x0F000F00)));
  }
};

// The signed scale of a sub-block of a table type for the rows of vector v, in words of 32 bits.
template <typename V, QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] static inline typename V::Ints codebook_scales(const BlockPlace& place,
                                                                      unsigned v) noexcept {
  using Ints = typename V::Ints;
  const Ints low = V::load(place.low + v * sizeof(Ints));
  if constexpr (fixed_block(kType) == 16) {
    return V::down32_signed(V::up32(low, 28 - place.k % 4 * 8 - place.k / 4 % 2 * 4), 28);
  } else {
    const unsigned index = place.k * kBlock / 32;
    const Ints high = V::widen_words(place.high + v * V::kRows * 2);
    const Ints lower = V::both(V::down32(low, index / 2 * 4 + index % 2 * 16), V::splat_int(15));
    const Ints upper = V::up32(V::down32(high, index / 2 * 2 + index % 2 * 8), 30);
    return V::down32_signed(V::either(upper, V::up32(lower, 26)), 26);
  }
}

// The scales and mins of a sub-block that has one byte of them.
template <typename V, QuantType kType>
[[gnu::always_inline]] static inline Fields<V> byte_fields(const BlockPlace& place,
                                                           unsigned v) noexcept {
  using Ints = typename V::Ints;
  const Ints bytes = V::load(place.low + v * sizeof(Ints));
  const std::size_t halves = v * V::kRows * 2;
  const auto d = V::widen_halves(place.scales + halves);
  if constexpr (scale_form(kType) == ScaleForm::kSuperSigned) {
    const Ints scale = V::down32_signed(V::up32(bytes, 24 - 8 * (place.k % 4)), 24);
    const auto scales = V::multiply(d, V::to_floats(scale));
    return {scales, V::multiply(scales, V::splat(kZeroPoint<kType>))};
  } else {
    const Ints fields = V::down32(bytes, 8 * (place.k % 4));
    const Ints scale = V::both(fields, V::splat_int(15));
    const Ints min = V::both(V::down32(fields, 4), V::splat_int(15));
    return {V::multiply(d, V::to_floats(scale)),
            V::multiply(V::widen_halves(place.mins + halves), V::to_floats(min))};
  }
}

// The powers of two of a block of mxfp4 for the rows of vector v.
template <typename V>
[[gnu::always_inline]] static inline typename V::Floats load_powers(const BlockPlace& place,
                                                                    unsigned v) noexcept {
  using Ints = typename V::Ints;
  const Ints exponents = V::down32(V::load(place.low + v * sizeof(Ints)), 8 * place.k);
  const Ints bits = V::both(V::up32(exponents, 23), V::splat_int(0x7F800000));
  const Ints at_least = V::largest(bits, V::splat_int(static_cast<int>(kTwiceLeastScale)));
  return V::multiply(V::as_floats(at_least), V::splat(0.5F));
}

// What blocks have beside their lines, taken in the order of a group from its first on.
template <typename V, QuantType kType, std::uint32_t kBlock>
struct BlockFields {
  struct Nothing {};
  std::conditional_t<scale_form(kType) == ScaleForm::kSuperBlock, SuperBlockFields<V, kBlock>,
                     Nothing>
      super = {};
  struct Symbols {
    TrellisPairs<V> before[V::kVectors];
  };
  std::conditional_t<is_trellis_type(kType), Symbols, Nothing> symbols = {};

  [[gnu::always_inline]] inline BlockFields() noexcept {
    if constexpr (is_trellis_type(kType)) {
      for (auto& before : symbols.before) before.begin();
    }
  }

  // To be called for each block, before of().
  [[gnu::always_inline]] inline void enter(const BlockPlace& place) noexcept {
    if constexpr (scale_form(kType) == ScaleForm::kSuperBlock) {
      if (place.k == 0) super.load(place);
    }
  }

  // What for_fours() needs for vector v of the block at `place`, which comes next: of trellis types
  // the symbols before it, or its half of a line that it shares.
  [[gnu::always_inline]] inline decltype(auto) beside([[maybe_unused]] const BlockPlace& place,
                                                      [[maybe_unused]] unsigned v) noexcept {
    if constexpr (is_trellis_type(kType)) {
      return (symbols.before[v]);
    } else {
      return half_of<kType>(place);
    }
  }

  // Those of the block at `place` for the rows of vector v.
  [[gnu::always_inline]] inline Fields<V> of(const BlockPlace& place, unsigned v) const noexcept {
    constexpr ScaleForm kForm = scale_form(kType);
    const std::size_t halves = v * V::kRows * 2;
    if constexpr (kForm == ScaleForm::kSuperBlock) {
      return super.of(place.k, v);
    } else if constexpr (is_codebook_type(kType)) {
      const auto scales = V::to_floats(codebook_scales<V, kType, kBlock>(place, v));
      return {V::multiply(V::widen_halves(place.scales + halves), scales), V::splat(0.0F)};
    } else if constexpr (is_super_type(kType)) {
      return byte_fields<V, kType>(place, v);
    } else if constexpr (kForm == ScaleForm::kBlockMin) {
      return {V::widen_halves(place.scales + halves), V::widen_halves(place.mins + halves)};
    } else {
      typename V::Floats scales = V::splat(1.0F);
      if constexpr (kForm == ScaleForm::kBlock) scales = V::widen_halves(place.scales + halves);
      if constexpr (kForm == ScaleForm::kExponent) scales = load_powers<V>(place, v);
      if constexpr (kForm == ScaleForm::kRowNibble) {
        const auto words = V::load(place.low + v * sizeof(typename V::Ints));
        scales = V::to_floats(V::both(V::down32(words, 4 * place.k), V::splat_int(15)));
      }
      return {scales, V::multiply(scales, V::splat(kZeroPoint<kType>))};
    }
  }
};

// What makes codes unsigned where V has dot: 128 is added to the stored bytes of 8 bits and to
// levels of tables. maddubs, which this would saturate, takes magnitudes and signs of them.
template <typename V, QuantType kType>
static constexpr int kSignedOffset = V::kHasDot &&
                                             (kType == QuantType::kQ8 || is_codebook_type(kType))
                                         ? 128
                                         : 0;

// Codes of odd fields are left where they stand: unpacked, they are this many bits too large.
template <QuantType kType>
static constexpr int kOddShift = kType == QuantType::kQk256 ? 0
                                 : has_levels(kType)        ? 0
                                 : is_trellis_type(kType)   ? 0
                                 : kType == QuantType::kQ3K ? 3
                                 : code_bits(kType) == 2    ? 2
                                 : code_bits(kType) == 3    ? 1
                                                            : 0;

// Moves bits that stand kFrom bits up in their byte to kTo bits up.
template <typename V, int kFrom, int kTo>
[[gnu::always_inline]] static inline typename V::Ints moved(typename V::Ints a) noexcept {
  if constexpr (kFrom < kTo) return V::template up<kTo - kFrom>(a);
  if constexpr (kFrom > kTo) return V::template down<kFrom - kTo>(a);
  return a;
}

// The fours of codes of 5 or 6 bits.
template <typename V, unsigned kHighBits, std::uint32_t kBlock, typename Take>
[[gnu::always_inline]] static inline void for_wide_fours(const std::byte* from,
                                                         Take&& take) noexcept {
  using Ints = typename V::Ints;
  const Ints low_mask = V::splat_bytes(0x0F);
  const Ints high_mask = V::splat_bytes(static_cast<char>(((1U << kHighBits) - 1U) << 4U));
  const Ints high = V::load(from + kBlock / 8 * kLineBytes);
  each<kBlock / 8>([&](auto line) __attribute__((always_inline)) {
    constexpr int kAt = 2 * static_cast<int>(decltype(line)::value * kHighBits);
    constexpr int kNext = kAt + static_cast<int>(kHighBits);
    const Ints raw = V::load(from + line * kLineBytes);
    take(2 * line, V::either(V::both(raw, low_mask), V::both(moved<V, kAt, 4>(high), high_mask)),
         false);
    take(2 * line + 1,
         V::either(V::both(V::template down<4>(raw), low_mask),
                   V::both(moved<V, kNext, 4>(high), high_mask)),
         false);
  });
}

// The fours of 16 columns of 3-bit codes that share a 1-bit line with 16 others. Tables spread the
// bits of two fields over a byte each: the even one at its bottom, the odd one from bit 3 on.
template <typename V, typename Take>
[[gnu::always_inline]] static inline void for_half_fours(const std::byte* from, unsigned half,
                                                         Take&& take) noexcept {
  using Ints = typename V::Ints;
  const Ints nibble = V::splat_bytes(0x0F);
  const Ints even = V::splat_bytes(0x07);
  const Ints odd = V::splat_bytes(0x38);
  const Ints high_bits =
      V::repeat(_mm_setr_epi8(0, 2, 4, 6, 16, 18, 20, 22, 32, 34, 36, 38, 48, 50, 52, 54));
  const Ints low_bits = V::repeat(_mm_setr_epi8(0, 1, 8, 9, 0, 1, 8, 9, 0, 1, 8, 9, 0, 1, 8, 9));
  const Ints next_low_bits =
      V::repeat(_mm_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 8, 8, 8, 8, 9, 9, 9, 9));
  const Ints high = V::load(from + half * kLineBytes);
  Ints low = V::load(from + 2 * kLineBytes);
  if (half != 0) low = V::template down<4>(low);
  low = V::both(low, nibble);
  const Ints first =
      V::either(V::look_up(high_bits, V::both(high, nibble)), V::look_up(low_bits, low));
  const Ints second = V::either(V::look_up(high_bits, V::both(V::template down<4>(high), nibble)),
                                V::look_up(next_low_bits, low));
  take(Index<0>{}, V::both(first, even), false);
  take(Index<1>{}, V::both(first, odd), true);
  take(Index<2>{}, V::both(second, even), false);
  take(Index<3>{}, V::both(second, odd), true);
}

// The levels of a table type plus kSignedOffset, or qk256's 0, 1, 3 and 4, for codes in bits 0 to 2
// or 3 of every byte; of 2-bit codes, which are looked up two at a time, those of the lower or of
// the upper one.
template <typename V, QuantType kType, bool kSecond = false>
[[gnu::always_inline]] static inline typename V::Ints level_codebook() noexcept {
  struct alignas(16) Levels {
    std::int8_t of[16];
  };
  static constexpr Levels kLevels = [] {
    Levels levels = {};
    for (unsigned i = 0; i < 16; ++i) {
      const unsigned code = code_bits(kType) != 2 ? i % (1U << code_bits(kType))
                            : kSecond             ? i / 4
                                                  : i % 4;
      levels.of[i] = static_cast<std::int8_t>(
          kType == QuantType::kQk256
              ? code + code / 2
              : codebook_levels(kType)[code] + kLevelShift<kType> + kSignedOffset<V, kType>);
    }
    return levels;
  }();
  return V::repeat(_mm_load_si128(reinterpret_cast<const __m128i*>(kLevels.of)));
}

// Calls take(four, codes, odd) for every four columns of a block in vector v of the lines, where
// codes are shifted up by kOddShift if odd; those of 8 bits and of tables are signed numbers plus
// kSignedOffset, those of mxfp4 levels plus kLevelShift, those of trellis types values. `beside` is
// what BlockFields has beside the lines.
template <typename V, QuantType kType, std::uint32_t kBlock, typename Beside, typename Take>
[[gnu::always_inline]] static inline void for_fours(const std::byte* lines,
                                                    [[maybe_unused]] Beside&& beside, unsigned v,
                                                    Take&& take) noexcept {
  using Ints = typename V::Ints;
  const std::byte* from = lines + v * sizeof(Ints);
  if constexpr (is_trellis_type(kType)) {
    beside.template next<kType, kBlock>(
        from, [&](unsigned four, Ints values)
                  __attribute__((always_inline)) { take(four, values, false); });
  } else if constexpr (kType == QuantType::kQ3Codebook) {
    const Ints levels = level_codebook<V, kType>();
    for_half_fours<V>(
        from, beside, [&](unsigned four, Ints codes, bool is_odd) __attribute__((always_inline)) {
          take(four, V::look_up(levels, is_odd ? V::template down<3>(codes) : codes), false);
        });
  } else if constexpr (kType == QuantType::kQ3K) {
    for_half_fours<V>(from, beside, take);
  } else if constexpr (kIsWide<kType>) {
    for_wide_fours<V, code_bits(kType) - 4, kBlock>(from, take);
  } else if constexpr (kType == QuantType::kQ8) {
#pragma GCC unroll 16
    for (unsigned four = 0; four < kBlock / 4; ++four) {
      const Ints codes = V::load(from + four * kLineBytes);
      if constexpr (kSignedOffset<V, kType> == 0) {
        take(four, codes, false);
      } else {
        take(four, V::flip(codes, V::splat_bytes(-128)), false);
      }
    }
  } else if constexpr (code_bits(kType) == 4) {
    const Ints mask = V::splat_bytes(0x0F);

#pragma GCC unroll 16
    for (unsigned line = 0; line < kBlock / 8; ++line) {
      const Ints raw = V::load(from + line * kLineBytes);
      const Ints low = V::both(raw, mask);
      const Ints high = V::both(V::template down<4>(raw), mask);
      if constexpr (has_levels(kType)) {
        const Ints levels = level_codebook<V, kType>();
        take(2 * line, V::look_up(levels, low), false);
        take(2 * line + 1, V::look_up(levels, high), false);
      } else {
        take(2 * line, low, false);
        take(2 * line + 1, high, false);
      }
    }
  } else if constexpr (code_bits(kType) == 3) {
    const Ints high_even = V::splat_bytes(0x06);
    const Ints high_odd = V::splat_bytes(0x0C);
    const Ints low_even = V::splat_bytes(0x01);
    const Ints low_odd = V::splat_bytes(0x02);

#pragma GCC unroll 16
    for (unsigned line = 0; line < kBlock / 16; ++line) {
      const Ints high = V::load(from + line * kLineBytes);
      Ints low = V::load(from + (kBlock / 16 + line / 2) * kLineBytes);
      if (line % 2 == 1) low = V::template down<4>(low);
      const Ints low2 = V::template down<2>(low);
      const Ints high1 = V::both(V::template up<1>(high), high_even);
      const Ints high3 = V::both(V::template down<3>(high), high_even);
      const Ints high4 = V::both(V::template down<4>(high), high_odd);
      take(4 * line, V::either(high1, V::both(low, low_even)), false);
      take(4 * line + 1, V::either(V::both(high, high_odd), V::both(low, low_odd)), true);
      take(4 * line + 2, V::either(high3, V::both(low2, low_even)), false);
      take(4 * line + 3, V::either(high4, V::both(low2, low_odd)), true);
    }
  } else if constexpr (kType == QuantType::kQk256 || kType == QuantType::kQ2Codebook) {
    // A nibble holds two codes; those of qk256, 0, 1, 2, 3, become 0, 1, 3, 4.
    const Ints mask = V::splat_bytes(0x0F);
    const Ints first = level_codebook<V, kType>();
    const Ints second = level_codebook<V, kType, true>();

#pragma GCC unroll 16
    for (unsigned line = 0; line < kBlock / 16; ++line) {
      const Ints raw = V::load(from + line * kLineBytes);
      const Ints low = V::both(raw, mask);
      const Ints high = V::both(V::template down<4>(raw), mask);
      take(4 * line, V::look_up(first, low), false);
      take(4 * line + 1, V::look_up(second, low), false);
      take(4 * line + 2, V::look_up(first, high), false);
      take(4 * line + 3, V::look_up(second, high), false);
    }
  } else {
    const Ints even = V::splat_bytes(0x03);
    const Ints odd = V::splat_bytes(0x0C);

#pragma GCC unroll 16
    for (unsigned line = 0; line < kBlock / 16; ++line) {
      const Ints raw = V::load(from + line * kLineBytes);
      const Ints raw4 = V::template down<4>(raw);
      take(4 * line, V::both(raw, even), false);
      take(4 * line + 1, V::both(raw, odd), true);
      take(4 * line + 2, V::both(raw4, even), false);
      take(4 * line + 3, V::both(raw4, odd), true);
    }
  }
}

// A block of 16 rows, unpacked: fours of columns as 8-bit codes, and its scales.
struct alignas(64) Strip {
  std::byte codes[kActivationBlockColumns * kRowGroup];
  float scales[kRowGroup];
  float mins[kRowGroup];
};

// Unpacks a block; returns the end of its code lines.
template <typename V, QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] static inline const std::byte* unpack(
    const std::byte* group, std::size_t index, BlockFields<V, kType, kBlock>* block_fields,
    Strip* strip) noexcept {
  const BlockPlace place = place_of<kType, kBlock>(group, index);
  block_fields->enter(place);

#pragma GCC unroll 2
  for (unsigned v = 0; v < V::kVectors; ++v) {
    const Fields<V> fields = block_fields->of(place, v);
    V::store(strip->scales + v * V::kRows, fields.scales);
    V::store(strip->mins + v * V::kRows, fields.mins);
    std::byte* to = strip->codes + v * sizeof(typename V::Ints);
    for_fours<V, kType, kBlock>(
        place.codes, block_fields->beside(place, v),
        v, [&](unsigned four, typename V::Ints codes, bool is_odd) __attribute__((always_inline)) {
          V::store(to + four * kLineBytes,
                   is_odd ? V::template down<kOddShift<kType>>(codes) : codes);
        });
  }
  return place.codes + kCodeBytes<kType, kBlock>;
}

}  // namespace qsf::kernels::maddubs

#endif  // QSF_KERNELS_MATMUL_CODED_MADDUBS_H_
