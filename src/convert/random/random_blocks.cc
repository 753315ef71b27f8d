// SPDX-License-Identifier: MIT

#include "convert/random/random_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/f16.h"
#include "quant/base3.h"
#include "quant/codebook_block.h"
#include "quant/interleave.h"

namespace qsf {
namespace {

constexpr double kWeightRms = 0.02;
constexpr std::size_t kScales = 16;  // different scales of a type: four random bits choose one

// The mean magnitude of the fields that the functions below draw: 32 to 63 for 6 bits, 8 to 15 for
// 4 bits, 16 to 30 for signed bytes, and for codebook types 4 to 7 (4 bits) or 16 to 30 (6 bits).
constexpr double mean_field(QuantType type) noexcept {
  switch (scale_form(type)) {
    case ScaleForm::kSuperBlock: return 47.5;
    case ScaleForm::kSuperNibble: return 11.5;
    case ScaleForm::kSuperSigned: return 23.0;
    case ScaleForm::kSuperCodebook: return fixed_block(type) == 32 ? 23.0 : 5.5;
    default: return 1.0;
  }
}

// Scales from 0.75 to 1.22 times the one with the root mean square wanted, and the mins that make
// the mean of the weights zero; for super-blocks d and dmin.
struct ScaleTable {
  std::array<F16, kScales> scales;
  std::array<F16, kScales> mins;

  explicit ScaleTable(QuantType type) noexcept {
    const CodeMoments moments = type_traits(type).moments;
    const double size = kWeightRms / moments.rms / mean_field(type);
    for (std::size_t i = 0; i < kScales; ++i) {
      const double scale = size * (0.75 + static_cast<double>(i) / 32.0);
      scales[i] = to_f16(static_cast<float>(scale));
      mins[i] = to_f16(static_cast<float>(-moments.mean * scale));
    }
  }
};

void fill_random_bytes(Rng& rng, MutableByteSpan out) noexcept {
  std::size_t at = 0;
  for (; at + 8 <= out.size(); at += 8) store_le(out, at, rng.next_u64());
  for (; at < out.size(); ++at) out[at] = static_cast<std::byte>(rng.next_u32() & 0xFFU);
}

// Keeps sign and mantissa of every float and sets the exponent: magnitudes from 2^-6 to 2^-5, whose
// root mean square is 0.024.
void set_exponents(QuantType type, MutableByteSpan out) noexcept {
  // Of each of the four bytes of an f32, or of two neighbouring elements of 16 bits.
  std::uint32_t keep = 0x807FFFFFU;
  std::uint32_t exponent = 121U << 23;
  if (type == QuantType::kF16) {
    keep = 0x83FF83FFU;
    exponent = 9U << 26 | 9U << 10;
  } else if (type == QuantType::kBF16) {
    keep = 0x807F807FU;
    exponent = 121U << 23 | 121U << 7;
  }
  for (std::size_t at = 0; at + 4 <= out.size(); at += 4) {
    store_le(out, at, (load_le<std::uint32_t>(out, at) & keep) | exponent);
  }
}

// Replaces invalid codes: 3 of ternary by 1, -128 of 8bit by 127, and invalid base-3 bytes by the
// valid bytes below them.
void repair_codes(QuantType type, MutableByteSpan lines) noexcept {
  if (type == QuantType::kTernaryBase3) {
    for (std::byte& digits : lines) {
      const auto byte = static_cast<unsigned>(digits);
      if (!are_base3_bytes(ByteSpan(&digits, 1))) digits = static_cast<std::byte>(byte - 1);
    }
  } else if (is_ternary(type)) {
    for (std::size_t at = 0; at + 8 <= lines.size(); at += 8) {
      const auto codes = load_le<std::uint64_t>(lines, at);
      const std::uint64_t both = codes & codes >> 1 & 0x5555555555555555U;
      store_le(lines, at, codes & ~(both << 1));
    }
  } else if (type_traits(type).code_form == CodeForm::kSigned) {
    for (std::byte& code : lines) {
      code = code == std::byte{0x80} ? std::byte{0x7F} : code;
    }
  }
}

// The fields of types with scales per block.
void fill_block_fields(BlockFormat format, std::uint64_t n_blocks, const ScaleTable& table,
                       Rng& rng, MutableByteSpan group) noexcept {
  for (std::uint64_t b = 0; b < n_blocks; ++b) {
    const GroupBlock at = locate_block(format, b);
    std::uint64_t choice = rng.next_u64();
    for (std::size_t r = 0; r < kRowGroup; ++r, choice >>= 4) {
      store_le(group, at.scales + 2 * r, table.scales[choice % kScales].bits);
      if (has_min(format.type)) {
        store_le(group, at.mins + 2 * r, table.mins[choice % kScales].bits);
      }
    }
  }
  if (!has_min(format.type) && n_blocks % 2 == 1) {
    const GroupBlock last = locate_block(format, n_blocks - 1);
    const MutableByteSpan unused = group.subspan(last.scales + 2 * kRowGroup, 2 * kRowGroup);
    std::fill(unused.begin(), unused.end(), std::byte{0});
  }
}

// The exponents of mxfp4: the power of two next to the scale wanted, or twice that, so that the
// root mean square of the weights is near it.
void fill_exponents(BlockFormat format, std::uint64_t n_blocks, Rng& rng,
                    MutableByteSpan group) noexcept {
  const double scale = kWeightRms / type_traits(format.type).moments.rms;
  const int least = std::ilogb(scale) + 128;
  for (std::uint64_t b = 0; b < ceil_div(n_blocks, std::uint64_t{4}) * 4; ++b) {
    const std::uint64_t line = locate_block(format, b).scales;
    std::uint64_t choice = rng.next_u64();
    for (std::size_t r = 0; r < kRowGroup; ++r, choice >>= 1) {
      group[line + 4 * r] =
          static_cast<std::byte>(b < n_blocks ? least + static_cast<int>(choice % 2) : 0);
    }
  }
}

// The fields of super-blocks: the min of a sub-block equals its scale, so that dmin makes the mean
// of every sub-block zero.
void fill_super_fields(BlockFormat format, std::uint64_t n_blocks, const ScaleTable& table,
                       Rng& rng, MutableByteSpan group) noexcept {
  const std::uint64_t per_super = kSuperColumns / format.block;
  for (std::uint64_t first = 0; first < n_blocks; first += per_super) {
    const GroupSuperBlock at = locate_super_block(format, first / per_super);
    std::uint64_t choice = rng.next_u64();
    for (std::size_t r = 0; r < kRowGroup; ++r, choice >>= 4) {
      store_le(group, at.d + 2 * r, table.scales[choice % kScales].bits);
      store_le(group, at.d + 2 * kRowGroup + 2 * r, table.mins[choice % kScales].bits);
      std::uint64_t draw = rng.next_u64();
      std::uint32_t high = 0;
      for (std::uint64_t k = 0; k < per_super; ++k, draw >>= 5) {
        const bool exists = first + k < n_blocks;
        const auto low = static_cast<unsigned>(draw % 16 * 0x11);        // equal low bits
        const std::uint32_t high_bits = draw / 16 % 2 == 0 ? 10U : 15U;  // 2 and 2, or 3 and 3
        group[at.low + k / 4 * kLineBytes + 4 * r + k % 4] =
            static_cast<std::byte>(exists ? low : 0);
        high |= (exists ? high_bits : 0U) << (4 * k);
      }
      if (format.block == 32) {
        store_le(group, at.high + 4 * r, high);
      } else {
        store_le(group, at.high + 2 * r, static_cast<std::uint16_t>(high));
      }
    }
  }
  const std::uint64_t n_supers = ceil_div(n_blocks, per_super);
  if (format.block == 64 && n_supers % 2 == 1) {
    const GroupSuperBlock last = locate_super_block(format, n_supers - 1);
    const MutableByteSpan unused = group.subspan(last.high + 2 * kRowGroup, 2 * kRowGroup);
    std::fill(unused.begin(), unused.end(), std::byte{0});
  }
}

// The fields of super-blocks with one byte per sub-block: as above, or a scale of either sign.
void fill_byte_fields(BlockFormat format, std::uint64_t n_blocks, const ScaleTable& table, Rng& rng,
                      MutableByteSpan group) noexcept {
  constexpr std::uint64_t kPerSuper = kSuperColumns / 16;
  const bool is_signed = scale_form(format.type) == ScaleForm::kSuperSigned;
  for (std::uint64_t first = 0; first < n_blocks; first += kPerSuper) {
    const GroupSuperBlock at = locate_super_block(format, first / kPerSuper);
    std::uint64_t choice = rng.next_u64();
    for (std::size_t r = 0; r < kRowGroup; ++r, choice >>= 4) {
      store_le(group, at.d + 2 * r, table.scales[choice % kScales].bits);
      if (!is_signed) {
        store_le(group, at.d + 2 * kRowGroup + 2 * r, table.mins[choice % kScales].bits);
      }
      std::uint64_t draw = rng.next_u64();
      for (std::uint64_t k = 0; k < kPerSuper; ++k, draw >>= 4) {
        const int size = static_cast<int>(draw % 8) * 2 + 16;
        unsigned byte = (8 + static_cast<unsigned>(draw % 8)) * 0x11;  // equal fields
        if (is_signed) byte = static_cast<std::uint8_t>(draw / 8 % 2 == 0 ? size : -size);
        group[at.low + k / 4 * kLineBytes + 4 * r + k % 4] =
            static_cast<std::byte>(first + k < n_blocks ? byte : 0);
      }
    }
  }
  const std::uint64_t n_supers = ceil_div(n_blocks, kPerSuper);
  if (is_signed && n_supers % 2 == 1) {
    const GroupSuperBlock last = locate_super_block(format, n_supers - 1);
    const MutableByteSpan unused = group.subspan(last.d + 2 * kRowGroup, 2 * kRowGroup);
    std::fill(unused.begin(), unused.end(), std::byte{0});
  }
}

// The fields of super-blocks of codebook types: scales of either sign.
void fill_codebook_fields(BlockFormat format, std::uint64_t n_blocks, const ScaleTable& table,
                          Rng& rng, MutableByteSpan group) noexcept {
  const std::uint64_t per_super = kSuperColumns / format.block;
  const bool is_small = format.block == 16;
  for (std::uint64_t first = 0; first < n_blocks; first += per_super) {
    const GroupSuperBlock at = locate_super_block(format, first / per_super);
    std::uint64_t choice = rng.next_u64();
    for (std::size_t r = 0; r < kRowGroup; ++r, choice >>= 4) {
      std::uint64_t draw = rng.next_u64();
      std::array<int, 16> scales{};
      const std::uint64_t n = std::min(per_super, n_blocks - first);
      for (std::uint64_t k = 0; k < n; ++k, draw >>= 4) {
        const auto steps = static_cast<int>(draw % 8);
        const int size = is_small ? 4 + steps / 2 : 16 + 2 * steps;
        scales[k] = draw / 8 % 2 == 0 ? size : -size;
      }
      std::array<std::byte, 10> fields{};
      put_codebook_scales(format, std::span(scales).first(n), fields);
      store_le(group, at.d + 2 * r, table.scales[choice % kScales].bits);
      if (is_small) {
        std::copy_n(&fields[2], 4, &group[at.low + 4 * r]);
        std::copy_n(&fields[6], 4, &group[at.low + kLineBytes + 4 * r]);
      } else {
        std::copy_n(&fields[2], 2, &group[at.high + 2 * r]);
        std::copy_n(&fields[4], 4, &group[at.low + 4 * r]);
      }
    }
  }
  const std::uint64_t n_supers = ceil_div(n_blocks, per_super);
  if (is_small && n_supers % 2 == 1) {
    const GroupSuperBlock last = locate_super_block(format, n_supers - 1);
    const MutableByteSpan unused = group.subspan(last.d + 2 * kRowGroup, 2 * kRowGroup);
    std::fill(unused.begin(), unused.end(), std::byte{0});
  }
}

// Rows have one f32; the scales of blocks are the random bits, but for those that do not exist.
void fill_nibble_fields(BlockFormat format, std::uint64_t n_blocks, const ScaleTable& table,
                        Rng& rng, MutableByteSpan group) noexcept {
  constexpr float kRmsOfNibbles = 8.8F;
  for (std::size_t r = 0; r < kRowGroup; ++r) {
    store_le(group, 4 * r, to_f32(table.scales[rng.next_u64() % kScales]) / kRmsOfNibbles);
  }
  const std::uint64_t n_last = n_blocks % kNibbleBlocks;
  if (n_last == 0) return;
  const std::uint32_t used = (1U << (4 * n_last)) - 1U;
  const MutableByteSpan line = group.subspan(nibble_line(format, n_blocks - 1), kLineBytes);
  for (std::size_t r = 0; r < kRowGroup; ++r) {
    store_le(line, 4 * r, load_le<std::uint32_t>(ByteSpan(line), 4 * r) & used);
  }
}

// Fills one group as if all of its rows and columns existed.
void fill_group(BlockFormat format, std::uint32_t n_cols, const ScaleTable& table, Rng& rng,
                MutableByteSpan group) noexcept {
  fill_random_bytes(rng, group);
  if (is_float_type(format.type)) {
    set_exponents(format.type, group);
    return;
  }
  repair_codes(format.type, group);
  const std::uint64_t n_blocks = blocks_per_row(format, n_cols);
  switch (scale_form(format.type)) {
    case ScaleForm::kNone: return;
    case ScaleForm::kRow:
      for (std::size_t r = 0; r < kRowGroup; ++r) {
        store_le(group, 4 * r, to_f32(table.scales[rng.next_u64() % kScales]));
      }
      return;
    case ScaleForm::kRowNibble: fill_nibble_fields(format, n_blocks, table, rng, group); return;
    case ScaleForm::kSuperBlock: fill_super_fields(format, n_blocks, table, rng, group); return;
    case ScaleForm::kSuperNibble:
    case ScaleForm::kSuperSigned: fill_byte_fields(format, n_blocks, table, rng, group); return;
    case ScaleForm::kSuperCodebook:
      fill_codebook_fields(format, n_blocks, table, rng, group);
      return;
    case ScaleForm::kExponent: fill_exponents(format, n_blocks, rng, group); return;
    case ScaleForm::kBlock:
    case ScaleForm::kBlockMin: fill_block_fields(format, n_blocks, table, rng, group); return;
  }
}

}  // namespace

void fill_random_rows(BlockFormat format, Layout layout, std::uint32_t n_rows, std::uint32_t n_cols,
                      Rng& rng, MutableByteSpan out) {
  QSF_CHECK(out.size() == rows_bytes(format, layout, n_rows, n_cols));
  const ScaleTable table(format.type);
  const std::size_t n_group = group_bytes(format, n_cols);
  const std::size_t n_row = row_major_bytes(format, n_cols);
  const bool whole_columns = n_cols % std::max(format.block, kColumnAlign) == 0;
  std::vector<std::byte> group(n_group);
  std::vector<std::byte> rows(kRowGroup * n_row);
  for (std::uint32_t row = 0; row < n_rows; row += kRowGroup) {
    const std::uint32_t n = std::min(kRowGroup, n_rows - row);
    const MutableByteSpan to =
        layout == Layout::kInterleaved ? out.subspan(row / kRowGroup * n_group, n_group) : group;
    fill_group(format, n_cols, table, rng, to);
    if (layout == Layout::kInterleaved && n == kRowGroup && whole_columns) continue;
    // The round trip through layout 0 zeroes padding rows and columns.
    const MutableByteSpan row_major = layout == Layout::kRowMajor
                                          ? out.subspan(row * n_row, n * n_row)
                                          : MutableByteSpan(rows).first(n * n_row);
    deinterleave_group(format, n, n_cols, to, row_major);
    if (layout == Layout::kInterleaved) interleave_group(format, n, n_cols, row_major, to);
  }
}

}  // namespace qsf
