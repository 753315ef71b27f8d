// SPDX-License-Identifier: MIT
//
// Where one column block of a group of layout 1 stands, for kernels of any tier; internal linkage.
//
// The table is in quant/block_format.h and docs/format-blocks.md.

#ifndef QSF_KERNELS_BLOCK_PLACE_H_
#define QSF_KERNELS_BLOCK_PLACE_H_

#include <cstddef>
#include <cstdint>

#include "quant/block_format.h"
#include "quant/trellis.h"

namespace qsf::kernels {

struct BlockPlace {
  const std::byte* scales;  // 16 halves: scales, or d of a super-block; null without any
  const std::byte* mins;    // 16 halves: mins, or dmin; null without any
  const std::byte* low;     // super-blocks: the line of low bits or bytes, sub-block `k` % 4 of it;
                            // mxfp4: the line of exponents, byte `k` of every row; trellis types:
                            // the line of 4-bit scales, bits 4k to 4k + 3 of every row
  const std::byte* high;    // super-blocks: high bits, u32 of a row for blocks of 32, else u16;
                            // of 4-bit table u16
  unsigned k;           // super-blocks: number of the sub-block; mxfp4: of the block in its four;
                        // trellis types: in its eight
  unsigned lines_back;  // trellis types: see lines_back_of()
  const std::byte* codes;  // first code line; of types that share lines that of the pair of
                           // sub-blocks
};

// Whether codes are multiplied as signed numbers, their zero taken out, and there is no min.
template <QuantType kType>
static constexpr bool kMultipliesSigned = kType == QuantType::kQ8 || code_zero(kType) != 0 ||
                                          is_codebook_type(kType);

// Whether a code has high bits in lines of their own behind 4-bit lines.
template <QuantType kType>
static constexpr bool kIsWide = code_bits(kType) == 5 || code_bits(kType) == 6;

// The half of a 1-bit line that belongs to a sub-block of types that share lines: 1 of odd ones. Of
// trellis types lines_back_of(). 0 of other types.
template <QuantType kType>
[[gnu::always_inline]] static inline unsigned half_of(const BlockPlace& place) noexcept {
  return shares_lines(kType) ? place.k % 2 : is_trellis_type(kType) ? place.lines_back : 0;
}

// How many lines the last two 2-bit lines of the block before a trellis block stand in front of it:
// the symbols that its first windows have. 0 for the first block of a row, whose windows begin with
// zeros.
template <QuantType kType>
[[gnu::always_inline]] static inline unsigned lines_back_of(std::size_t block) noexcept {
  if (block == 0) return 0;
  const unsigned scales = block % kNibbleBlocks == 0 ? 1 : 0;
  return (kType == QuantType::kQ3Trellis ? 4 : 2) + scales;
}

// The last two 2-bit lines in front of a trellis block, from its first line on.
[[gnu::always_inline]] static inline const std::byte* lines_before(const std::byte* lines,
                                                                   unsigned lines_back) noexcept {
  alignas(64) static constexpr std::byte kZeros[2 * kLineBytes] = {};
  return lines_back == 0 ? kZeros : lines - lines_back * kLineBytes;
}

// Whether the scales of a type's sub-blocks are bytes or less: whole numbers that multiply whole
// sums of 16 columns, so that an activation block of 64 columns needs floats once (matmul.h). Of
// 4-bit table two such sums have the scale of their 32 columns.
template <QuantType kType>
static constexpr bool kWholeScales = has_whole_scales(kType);

// Where the code lines of sub-block `k` of an activation block of such a type are, from those of
// its first on; for types that share lines those of its pair.
template <QuantType kType>
[[gnu::always_inline]] static inline constexpr std::size_t quarter_offset(unsigned k) noexcept {
  return (shares_lines(kType) ? k / 2 * 2 : k) * (std::size_t{2} * kRowGroup) * code_bits(kType);
}

// Returns the place of column block `block`, counted in kBlock columns; of 4-bit table those may be
// 16.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] static inline BlockPlace place_of(const std::byte* group,
                                                         std::size_t block) noexcept {
  constexpr std::size_t kCodeBytes = std::size_t{kBlock} * code_bits(kType) / 8 * kRowGroup;
  constexpr std::size_t kHalves = 2 * kRowGroup;  // bytes of 16 of them
  constexpr ScaleForm kForm = scale_form(kType);
  BlockPlace place = {};
  if constexpr (kForm == ScaleForm::kSuperBlock) {
    constexpr std::size_t kSubBlocks = kSuperColumns / kBlock;
    // Lines of d and dmin, of low bits and, for blocks of 32, of high bits.
    constexpr std::size_t kFieldBytes = (kBlock == 32 ? 4 : 2) * kLineBytes;
    constexpr std::size_t kSuperBytes = kFieldBytes + kSubBlocks * kCodeBytes;
    const std::size_t index = block / kSubBlocks;
    if constexpr (kBlock == 32) {
      place.scales = group + index * kSuperBytes;
      place.high = place.scales + 3 * kLineBytes;
    } else {
      const std::byte* pair = group + index / 2 * (kLineBytes + 2 * kSuperBytes);
      place.scales = pair + kLineBytes + index % 2 * kSuperBytes;
      place.high = pair + index % 2 * kHalves;
    }
    place.k = static_cast<unsigned>(block % kSubBlocks);
    place.mins = place.scales + kHalves;
    place.low = place.scales + (1 + place.k / 4) * kLineBytes;
    place.codes = place.scales + kFieldBytes + place.k * kCodeBytes;
  } else if constexpr (kForm == ScaleForm::kSuperNibble || kForm == ScaleForm::kSuperSigned) {
    constexpr std::size_t kSubBlocks = kSuperColumns / kBlock;
    constexpr std::size_t kSuperBytes = 4 * kLineBytes + kSubBlocks * kCodeBytes;
    const std::size_t index = block / kSubBlocks;
    const std::byte* lines;
    if constexpr (kForm == ScaleForm::kSuperNibble) {
      place.scales = group + index * (kLineBytes + kSuperBytes);
      place.mins = place.scales + kHalves;
      lines = place.scales + kLineBytes;
    } else {
      const std::byte* pair = group + index / 2 * (kLineBytes + 2 * kSuperBytes);
      place.scales = pair + index % 2 * kHalves;
      lines = pair + kLineBytes + index % 2 * kSuperBytes;
    }
    place.k = static_cast<unsigned>(block % kSubBlocks);
    place.low = lines + place.k / 4 * kLineBytes;
    const unsigned before = kType == QuantType::kQ3K ? place.k / 2 * 2 : place.k;
    place.codes = lines + 4 * kLineBytes + before * kCodeBytes;
  } else if constexpr (kForm == ScaleForm::kSuperCodebook) {
    constexpr std::size_t kSubBlocks = kSuperColumns / kBlock;
    constexpr std::size_t kSuperBytes = 2 * kLineBytes + kSubBlocks * kCodeBytes;
    const std::size_t index = block / kSubBlocks;
    place.k = static_cast<unsigned>(block % kSubBlocks);
    const unsigned before = shares_lines(kType) ? place.k / 2 * 2 : place.k;
    if constexpr (fixed_block(kType) == 32) {
      place.scales = group + index * kSuperBytes;
      place.high = place.scales + kHalves;
      place.low = place.scales + kLineBytes;
      place.codes = place.low + kLineBytes + before * kCodeBytes;
    } else {
      const std::byte* pair = group + index / 2 * (kLineBytes + 2 * kSuperBytes);
      const std::byte* lines = pair + kLineBytes + index % 2 * kSuperBytes;
      place.scales = pair + index % 2 * kHalves;
      place.low = lines + place.k / 8 * kLineBytes;
      place.codes = lines + 2 * kLineBytes + before * kCodeBytes;
    }
  } else if constexpr (kForm == ScaleForm::kBlockMin) {
    place.scales = group + block * (kLineBytes + kCodeBytes);
    place.mins = place.scales + kHalves;
    place.codes = place.scales + kLineBytes;
  } else if constexpr (kForm == ScaleForm::kExponent) {
    place.k = static_cast<unsigned>(block % 4);
    place.low = group + block / 4 * (kLineBytes + 4 * kCodeBytes);
    place.codes = place.low + kLineBytes + place.k * kCodeBytes;
  } else if constexpr (kForm == ScaleForm::kRowNibble) {
    place.k = static_cast<unsigned>(block % kNibbleBlocks);
    place.low =
        group + kLineBytes + block / kNibbleBlocks * (kLineBytes + kNibbleBlocks * kCodeBytes);
    place.codes = place.low + kLineBytes + place.k * kCodeBytes;
    place.lines_back = lines_back_of<kType>(block);
  } else if constexpr (kForm == ScaleForm::kBlock) {
    const std::byte* pair = group + block / 2 * (kLineBytes + 2 * kCodeBytes);
    place.scales = pair + block % 2 * kHalves;
    place.codes = pair + kLineBytes + block % 2 * kCodeBytes;
  } else {
    place.codes = group + (kForm == ScaleForm::kRow ? kLineBytes : 0) + block * kCodeBytes;
  }
  return place;
}

// What a scale is multiplied with to give the min of a type that stores none:
// w = scale * (code + zero point).
template <QuantType kType>
static constexpr float kZeroPoint = kType == QuantType::kQk256   ? -2.0F
                                    : kType == QuantType::kMxfp4 ? -12.0F
                                                                 : -type_traits(kType).zero;

// What is added to the levels of a type before they are multiplied: those of mxfp4 become 0 to 24,
// codes without sign that few bits hold. Its scales are powers of two, so taking it out is exact.
template <QuantType kType>
static constexpr int kLevelShift = kType == QuantType::kMxfp4 ? 12 : 0;

// The tables of trellis types as constants of the tier, so that its objects define no shared
// symbol.
static constexpr TrellisTables kTables = kTrellisTables;
template <QuantType kType>
struct LevelBytes {
  std::uint8_t of[16];
};
template <QuantType kType>
static constexpr LevelBytes<kType> kTrellisLevels = [] {
  LevelBytes<kType> levels = {};
  for (unsigned i = 0; i < 16; ++i) levels.of[i] = trellis_levels(kType)[i];
  return levels;
}();

// Where the bits of a power of two come from its exponent: those of twice the scale are exponent
// << 23, or for the exponent 0 this subnormal.
static constexpr std::uint32_t kTwiceLeastScale = 0x00400000;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_BLOCK_PLACE_H_
