// SPDX-License-Identifier: MIT
//
// Values of trellis types (quant/trellis.h), for vectors V of any width; internal linkage.
//
// A table of 16 bytes has room for two nibbles an entry, so indices are made two at a time: those
// of fields f and f + 2 of a line, the former in the lower half of a byte. With n the nibble of a
// field (its symbol, and below it the one before) and n' that of the same field a line before,
//
//   lower half   NEWEST[n(f)]     ^ MIDDLE[n'(f + 2)] ^ OLDEST[n'(f)]
//   upper half   NEWEST[n(f + 2)] ^ MIDDLE[n(f)]      ^ OLDEST[n'(f + 2)]
//
// so four look-ups yield both, and what comes from the line before, the *coset*, is one vector:
//
//   table     lower half   upper half   of         table     lower half   upper half   of
//   kFirst    NEWEST       MIDDLE       n(f)       kThird    MIDDLE       OLDEST       n'(f + 2)
//   kSecond   0            NEWEST       n(f + 2)   kFourth   OLDEST       0            n'(f)
//
// The nibble of field 0 has a symbol of the line before, and is put together with its halves
// exchanged, which takes no shift; tables for it are in that order.

#ifndef QSF_KERNELS_MATMUL_TRELLIS_PAIRS_H_
#define QSF_KERNELS_MATMUL_TRELLIS_PAIRS_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/block_place.h"
#include "kernels/matmul/each.h"

namespace qsf::kernels {

enum class PairPart { kFirst, kSecond, kThird, kFourth };

struct alignas(16) NibbleTable {
  std::uint8_t of[16];
};
template <PairPart kPart, bool kExchanged>
static constexpr NibbleTable kPairTable = [] {
  NibbleTable table = {};
  for (unsigned i = 0; i < 16; ++i) {
    const unsigned nibble = kExchanged ? i % 4 * 4 + i / 4 : i;
    const unsigned newest = kTables.newest[nibble];
    const unsigned middle = kTables.middle[nibble];
    const unsigned oldest = kTables.oldest[nibble];
    table.of[i] = static_cast<std::uint8_t>(kPart == PairPart::kFirst    ? newest | middle << 4U
                                            : kPart == PairPart::kSecond ? newest << 4U
                                            : kPart == PairPart::kThird  ? middle | oldest << 4U
                                                                         : oldest);
  }
  return table;
}();

// Walks the blocks of a row in their order, in one vector of their lines.
template <typename V>
class TrellisPairs {
 public:
  using Ints = typename V::Ints;

  // In front of a row symbols are 0.
  [[gnu::always_inline]] inline void begin() noexcept {
    last_ = V::zero();
    const unsigned coset =
        kPairTable<PairPart::kThird, false>.of[0] ^ kPairTable<PairPart::kFourth, false>.of[0];
    cosets_[0] = cosets_[1] = V::splat_bytes(static_cast<char>(coset));
  }

  // The symbols in front are those of the two lines from `lines` on.
  [[gnu::always_inline]] inline void begin_after(const std::byte* lines) noexcept {
    last_ = upper_half(V::load(lines));
    leave(nibbles_of(V::load(lines + kLineBytes)));
  }

  // Calls take(four, values) for the fours of the next block in their order, `lines` its part of
  // the first code line.
  template <QuantType kType, std::uint32_t kBlock, typename Take>
  [[gnu::always_inline]] inline void next(const std::byte* lines, Take&& take) noexcept {
    constexpr unsigned kLines = kBlock / 16;
    const Ints levels = table(kTrellisLevels<kType>.of);
    each<kLines>([&](auto line) __attribute__((always_inline)) {
      const Nibbles nibbles = nibbles_of(V::load(lines + line * kLineBytes));
      const Ints pairs[2] = {pair<0>(nibbles), pair<1>(nibbles)};
      leave(nibbles);
      each<4>([&](auto f) __attribute__((always_inline)) {
        constexpr unsigned kField = decltype(f)::value;
        const Ints pair = pairs[kField % 2];
        Ints values =
            V::look_up(levels, kField < 2 ? V::both(pair, V::splat_bytes(15)) : upper_half(pair));
        if constexpr (kType == QuantType::kQ3Trellis) {
          constexpr int kAt = static_cast<int>(decltype(line)::value % 2 * 4 + kField);
          const Ints plane = V::load(lines + (kLines + line / 2) * kLineBytes);
          values =
              V::add16(values, V::both(moved<kAt, 3>(plane), V::splat_bytes(kTrellisRefinement)));
        }
        take(4 * line + f, values);
      });
    });
  }

 private:
  // Of the fields of a line; those of field 0 with halves exchanged.
  struct Nibbles {
    Ints of[4];
  };

  [[gnu::always_inline]] static inline Ints table(const std::uint8_t (&of)[16]) noexcept {
    return V::repeat(_mm_loadu_si128(reinterpret_cast<const __m128i*>(of)));
  }

  template <int kFrom, int kTo>
  [[gnu::always_inline]] static inline Ints moved(Ints a) noexcept {
    if constexpr (kFrom < kTo) return V::template up<kTo - kFrom>(a);
    if constexpr (kFrom > kTo) return V::template down<kFrom - kTo>(a);
    return a;
  }

  [[gnu::always_inline]] static inline Ints upper_half(Ints a) noexcept {
    return V::both(V::template down<4>(a), V::splat_bytes(15));
  }

  [[gnu::always_inline]] inline Nibbles nibbles_of(Ints line) noexcept {
    const Ints last = upper_half(line);
    const Nibbles nibbles = {{V::choose(V::splat_bytes(3), line, last_),
                              V::both(line, V::splat_bytes(15)),
                              V::both(V::template down<2>(line), V::splat_bytes(15)), last}};
    last_ = last;
    return nibbles;
  }

  template <PairPart kPart, unsigned kField>
  [[gnu::always_inline]] static inline Ints look_up(const Nibbles& nibbles) noexcept {
    return V::look_up(table(kPairTable<kPart, kField == 0>.of), nibbles.of[kField]);
  }

  template <unsigned kField>
  [[gnu::always_inline]] inline Ints pair(const Nibbles& nibbles) const noexcept {
    return V::differing(look_up<PairPart::kFirst, kField>(nibbles),
                        look_up<PairPart::kSecond, kField + 2>(nibbles), cosets_[kField]);
  }

  [[gnu::always_inline]] inline void leave(const Nibbles& nibbles) noexcept {
    each<2>([&](auto f) __attribute__((always_inline)) {
      constexpr unsigned kField = decltype(f)::value;
      cosets_[kField] = V::differing(look_up<PairPart::kThird, kField + 2>(nibbles),
                                     look_up<PairPart::kFourth, kField>(nibbles));
    });
  }

  Ints last_;  // nibble of the last field of the line before, which is not exchanged
  Ints cosets_[2];
};

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_MATMUL_TRELLIS_PAIRS_H_
