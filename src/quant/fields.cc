// SPDX-License-Identifier: MIT

#include "quant/fields.h"

#include <cstring>

#include "base/f16.h"
#include "quant/codebook_block.h"
#include "quant/interleave.h"
#include "quant/mxfp4.h"
#include "quant/super_block.h"

namespace qsf {
namespace {

float half(ByteSpan bytes, std::uint64_t offset) noexcept {
  return to_f32(load_le<F16>(bytes, offset));
}

BlockScale join(float d, float dmin, SixBitFields fields) noexcept {
  return {d * static_cast<float>(fields.scale), dmin * static_cast<float>(fields.min)};
}

// The fields of one byte: a signed scale alone, or a scale and a min of 4 bits.
BlockScale join_byte(ScaleForm form, float d, float dmin, std::byte byte) noexcept {
  const auto bits = static_cast<unsigned>(byte);
  if (form == ScaleForm::kSuperSigned) {
    return {d * static_cast<float>(static_cast<std::int8_t>(bits)), 0.0F};
  }
  return join(d, dmin, {bits & 15U, bits >> 4U});
}

// The 4-bit scale of a block in the word of its eight.
unsigned nibble_scale(std::uint32_t word, std::uint64_t block_index) noexcept {
  return word >> (4 * (block_index % kNibbleBlocks)) & 15U;
}

// A word of high bits: 2 bytes for 4 sub-blocks, 4 bytes for 8.
std::uint32_t load_high(ByteSpan bytes, std::uint64_t offset, std::uint32_t block) noexcept {
  return block == 32 ? load_le<std::uint32_t>(bytes, offset)
                     : load_le<std::uint16_t>(bytes, offset);
}

// Calls move(offset in the row, offset in the group, bytes) for every field of row `r`. Blocks of
// the group have `to_block` columns, a divisor of those of the row.
template <typename Move>
void for_each_field(BlockFormat format, std::uint32_t to_block, std::uint32_t r,
                    std::uint64_t n_cols, Move move) noexcept {
  switch (scale_form(format.type)) {
    case ScaleForm::kNone: return;
    case ScaleForm::kRow: move(0, 4 * r, 4); return;
    case ScaleForm::kRowNibble:
      move(0, 4 * r, 4);
      for (std::uint64_t b = 0; b < blocks_per_row(format, n_cols); b += kNibbleBlocks) {
        move(locate_in_row(format, b).fields, nibble_line(format, b) + 4 * r, 4);
      }
      return;
    case ScaleForm::kSuperBlock:
      for (std::uint64_t s = 0; s < super_blocks_per_row(n_cols); ++s) {
        const std::uint64_t row = locate_in_row(format, s * kSuperColumns / format.block).fields;
        const GroupSuperBlock at = locate_super_block(format, s);
        move(row, at.d + 2 * r, 2);
        move(row + 2, at.d + 2 * kRowGroup + 2 * r, 2);
        move(row + 4, at.low + 4 * r, 4);
        if (format.block == 64) {
          move(row + 8, at.high + 2 * r, 2);
          continue;
        }
        move(row + 8, at.low + kLineBytes + 4 * r, 4);
        move(row + 12, at.high + 4 * r, 4);
      }
      return;
    case ScaleForm::kSuperNibble:
    case ScaleForm::kSuperSigned:
      for (std::uint64_t s = 0; s < super_blocks_per_row(n_cols); ++s) {
        std::uint64_t row = locate_in_row(format, s * kSuperColumns / format.block).fields;
        const GroupSuperBlock at = locate_super_block(format, s);
        move(row, at.d + 2 * r, 2);
        row += 2;
        if (has_min(format.type)) {
          move(row, at.d + 2 * kRowGroup + 2 * r, 2);
          row += 2;
        }
        for (std::uint64_t line = 0; line < 4; ++line) {
          move(row + 4 * line, at.low + line * kLineBytes + 4 * r, 4);
        }
      }
      return;
    case ScaleForm::kSuperCodebook:
      for (std::uint64_t s = 0; s < super_blocks_per_row(n_cols); ++s) {
        const std::uint64_t row = locate_in_row(format, s * kSuperColumns / format.block).fields;
        const GroupSuperBlock at = locate_super_block(format, s);
        move(row, at.d + 2 * r, 2);
        if (format.block == 32) {
          move(row + 2, at.high + 2 * r, 2);
          move(row + 4, at.low + 4 * r, 4);
          continue;
        }
        move(row + 2, at.low + 4 * r, 4);
        move(row + 6, at.low + kLineBytes + 4 * r, 4);
      }
      return;
    case ScaleForm::kExponent:
      for (std::uint64_t b = 0; b < blocks_per_row(format, n_cols); ++b) {
        move(locate_in_row(format, b).fields, locate_block(format, b).scales + 4 * r, 1);
      }
      return;
    case ScaleForm::kBlock:
    case ScaleForm::kBlockMin: break;
  }
  const BlockFormat to = {format.type, to_block};
  for (std::uint64_t b = 0; b < blocks_per_row(to, n_cols); ++b) {
    const std::uint64_t row = locate_in_row(format, b * to_block / format.block).fields;
    const GroupBlock at = locate_block(to, b);
    move(row, at.scales + 2 * r, 2);
    if (has_min(format.type)) move(row + 2, at.mins + 2 * r, 2);
  }
}

}  // namespace

BlockScale row_block_scale(BlockFormat format, ByteSpan row, std::uint64_t block_index) noexcept {
  const std::uint64_t at = locate_in_row(format, block_index).fields;
  switch (scale_form(format.type)) {
    case ScaleForm::kNone: break;
    case ScaleForm::kBlock: return {half(row, at), 0.0F};
    case ScaleForm::kBlockMin: return {half(row, at), half(row, at + 2)};
    case ScaleForm::kRow: return {load_le<float>(row, at), 0.0F};
    case ScaleForm::kRowNibble: {
      const unsigned scale = nibble_scale(load_le<std::uint32_t>(row, at), block_index);
      return {load_le<float>(row, 0) * static_cast<float>(scale), 0.0F};
    }
    case ScaleForm::kExponent: return {mxfp4_scale(row[at]), 0.0F};
    case ScaleForm::kSuperBlock: {
      const std::uint32_t n_sub_blocks = kSuperColumns / format.block;
      const auto index = static_cast<unsigned>(block_index % n_sub_blocks);
      const auto low = static_cast<unsigned>(row[at + 4 + index]);
      const std::uint32_t high = load_high(row, at + 4 + n_sub_blocks, format.block);
      return join(half(row, at), half(row, at + 2), join_six_bits(low, high, index));
    }
    case ScaleForm::kSuperNibble:
    case ScaleForm::kSuperSigned: {
      const std::uint64_t index = block_index % (kSuperColumns / format.block);
      const std::uint64_t first = at + (has_min(format.type) ? 4 : 2);
      return join_byte(scale_form(format.type), half(row, at), half(row, at + 2),
                       row[first + index]);
    }
    case ScaleForm::kSuperCodebook: {
      const auto index = static_cast<unsigned>(block_index % (kSuperColumns / format.block));
      const int scale =
          format.block == 32
              ? codebook_scale(load_le<std::uint32_t>(row, at + 4),
                               load_le<std::uint16_t>(row, at + 2), index)
              : codebook_scale(load_le<std::uint32_t>(row, at + 2 + index / 8 * 4), index);
      return {half(row, at) * static_cast<float>(scale), 0.0F};
    }
  }
  return {1.0F, 0.0F};
}

BlockScale group_block_scale(BlockFormat format, ByteSpan group, std::uint32_t r,
                             std::uint64_t block_index) noexcept {
  const GroupBlock at = locate_block(format, block_index);
  switch (scale_form(format.type)) {
    case ScaleForm::kNone: break;
    case ScaleForm::kBlock: return {half(group, at.scales + 2 * r), 0.0F};
    case ScaleForm::kBlockMin:
      return {half(group, at.scales + 2 * r), half(group, at.mins + 2 * r)};
    case ScaleForm::kRow: return {load_le<float>(group, at.scales + 4 * r), 0.0F};
    case ScaleForm::kRowNibble: {
      const auto word = load_le<std::uint32_t>(group, nibble_line(format, block_index) + 4 * r);
      return {load_le<float>(group, at.scales + 4 * r) *
                  static_cast<float>(nibble_scale(word, block_index)),
              0.0F};
    }
    case ScaleForm::kExponent: return {mxfp4_scale(group[at.scales + 4 * r]), 0.0F};
    case ScaleForm::kSuperBlock: {
      const std::uint32_t n_sub_blocks = kSuperColumns / format.block;
      const GroupSuperBlock fields = locate_super_block(format, block_index / n_sub_blocks);
      const auto index = static_cast<unsigned>(block_index % n_sub_blocks);
      const auto low =
          static_cast<unsigned>(group[fields.low + index / 4 * kLineBytes + 4 * r + index % 4]);
      const std::uint32_t high =
          load_high(group, fields.high + (format.block == 32 ? 4 : 2) * r, format.block);
      return join(half(group, at.scales + 2 * r), half(group, at.mins + 2 * r),
                  join_six_bits(low, high, index));
    }
    case ScaleForm::kSuperNibble:
    case ScaleForm::kSuperSigned: {
      const std::uint32_t n_sub_blocks = kSuperColumns / format.block;
      const std::uint64_t low = locate_super_block(format, block_index / n_sub_blocks).low;
      const std::uint64_t index = block_index % n_sub_blocks;
      return join_byte(scale_form(format.type), half(group, at.scales + 2 * r),
                       half(group, at.mins + 2 * r),
                       group[low + index / 4 * kLineBytes + 4 * r + index % 4]);
    }
    case ScaleForm::kSuperCodebook: {
      const std::uint32_t n_sub_blocks = kSuperColumns / format.block;
      const GroupSuperBlock fields = locate_super_block(format, block_index / n_sub_blocks);
      const auto index = static_cast<unsigned>(block_index % n_sub_blocks);
      const int scale =
          format.block == 32
              ? codebook_scale(load_le<std::uint32_t>(group, fields.low + 4 * r),
                               load_le<std::uint16_t>(group, fields.high + 2 * r), index)
              : codebook_scale(
                    load_le<std::uint32_t>(group, fields.low + index / 8 * kLineBytes + 4 * r),
                    index);
      return {half(group, at.scales + 2 * r) * static_cast<float>(scale), 0.0F};
    }
  }
  return {1.0F, 0.0F};
}

void put_row_fields(BlockFormat format, std::uint32_t to_block, ByteSpan row, std::uint32_t r,
                    std::uint64_t n_cols, MutableByteSpan group) noexcept {
  for_each_field(format, to_block, r, n_cols,
                 [&](std::uint64_t in_row, std::uint64_t in_group, std::size_t n_bytes) {
                   std::memcpy(group.data() + in_group, row.data() + in_row, n_bytes);
                 });
}

void take_row_fields(BlockFormat format, ByteSpan group, std::uint32_t r, std::uint64_t n_cols,
                     MutableByteSpan row) noexcept {
  for_each_field(format, format.block, r, n_cols,
                 [&](std::uint64_t in_row, std::uint64_t in_group, std::size_t n_bytes) {
                   std::memcpy(row.data() + in_row, group.data() + in_group, n_bytes);
                 });
}

}  // namespace qsf
