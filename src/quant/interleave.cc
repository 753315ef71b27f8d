// SPDX-License-Identifier: MIT

#include "quant/interleave.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "quant/base3.h"
#include "quant/codec.h"
#include "quant/fields.h"
#include "quant/trellis.h"

namespace qsf {
namespace {

using Codes = std::array<std::uint8_t, kMaxBlock>;

std::uint32_t load_word(const void* from) noexcept {
  std::uint32_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}
void store_word(void* to, std::uint32_t word) noexcept {
  std::memcpy(to, &word, sizeof(word));
}

// Writes one row's 4 bytes of each line of kBits-bit codes. Four neighbouring columns are one word
// of code bytes; field f of a line is that word shifted by f * kBits, so nothing is done per code.
template <unsigned kBits>
void put_lines(const std::uint8_t* codes, std::uint32_t block, std::byte* lines) noexcept {
  constexpr unsigned kFields = 8 / kBits;
  for (std::uint32_t column = 0; column < block; column += 4 * kFields, lines += kLineBytes) {
    std::uint32_t word = 0;
    for (unsigned f = 0; f < kFields; ++f) word |= load_word(codes + column + 4 * f) << (f * kBits);
    store_word(lines, word);
  }
}

template <unsigned kBits>
void take_lines(const std::byte* lines, std::uint32_t block, std::uint8_t* codes) noexcept {
  constexpr unsigned kFields = 8 / kBits;
  constexpr std::uint32_t kMask = 0x01010101U * ((1U << kBits) - 1U);
  for (std::uint32_t column = 0; column < block; column += 4 * kFields, lines += kLineBytes) {
    const std::uint32_t word = load_word(lines);
    for (unsigned f = 0; f < kFields; ++f) {
      store_word(codes + column + 4 * f, (word >> (f * kBits)) & kMask);
    }
  }
}

// Bytes of the 2-bit lines of a 3-bit block; its 1-bit lines follow.
std::size_t high_line_bytes(std::uint32_t block) noexcept {
  return block / 16 * kLineBytes;
}

// Codes of 5 or 6 bits: the 4-bit lines of their low bits, then the lines of the high ones.
template <unsigned kHighBits>
void put_wide_lines(const std::uint8_t* codes, std::uint32_t block, std::byte* lines) noexcept {
  Codes part;
  for (std::uint32_t i = 0; i < block; i += 4) {
    store_word(&part[i], load_word(codes + i) & 0x0F0F0F0FU);
  }
  put_lines<4>(part.data(), block, lines);
  for (std::uint32_t i = 0; i < block; i += 4) {
    store_word(&part[i], (load_word(codes + i) >> 4U) & 0x0F0F0F0FU);
  }
  put_lines<kHighBits>(part.data(), block, lines + block / 8 * kLineBytes);
}

template <unsigned kHighBits>
void take_wide_lines(const std::byte* lines, std::uint32_t block, std::uint8_t* codes) noexcept {
  Codes high;
  take_lines<4>(lines, block, codes);
  take_lines<kHighBits>(lines + block / 8 * kLineBytes, block, high.data());
  for (std::uint32_t i = 0; i < block; i += 4) {
    store_word(codes + i, load_word(codes + i) | load_word(&high[i]) << 4U);
  }
}

// 16 codes of 3 bits, the first or second of a pair of blocks (half 0 or 1) that shares a 1-bit
// line.
void put_half_lines(const std::uint8_t* codes, unsigned half, std::byte* lines) noexcept {
  std::byte* plane = lines + 2 * kLineBytes;
  std::uint32_t high = 0;
  std::uint32_t low = load_word(plane);
  for (unsigned f = 0; f < 4; ++f) {
    const std::uint32_t four = load_word(codes + 4 * f);
    high |= ((four >> 1U) & 0x03030303U) << (2 * f);
    low |= (four & 0x01010101U) << (4 * half + f);
  }
  store_word(lines + half * kLineBytes, high);
  store_word(plane, low);
}

void take_half_lines(const std::byte* lines, unsigned half, std::uint8_t* codes) noexcept {
  const std::uint32_t high = load_word(lines + half * kLineBytes);
  const std::uint32_t low = load_word(lines + 2 * kLineBytes) >> (4 * half);
  for (unsigned f = 0; f < 4; ++f) {
    store_word(codes + 4 * f, ((high >> (2 * f)) & 0x03030303U) << 1U | ((low >> f) & 0x01010101U));
  }
}

// `lines` points at the row's own 4 bytes of the first code line of block `index`; lines that two
// blocks share are zero where nothing was put.
void put_codes(QuantType type, std::uint64_t index, const std::uint8_t* codes, std::uint32_t block,
               std::byte* lines) noexcept {
  if (shares_lines(type)) return put_half_lines(codes, index % 2, lines);
  if (type == QuantType::kTernaryBase3) {
    std::byte packed[kBase3Block / 5];
    pack_base3(codes, block, block, packed);
    for (std::uint32_t f = 0; f < 4; ++f) {
      store_word(lines + f * kLineBytes, load_word(packed + std::size_t{4} * f));
    }
    return;
  }
  switch (code_bits(type)) {
    case 2: put_lines<2>(codes, block, lines); return;
    case 4: put_lines<4>(codes, block, lines); return;
    case 5: put_wide_lines<1>(codes, block, lines); return;
    case 6: put_wide_lines<2>(codes, block, lines); return;
    case 8: put_lines<8>(codes, block, lines); return;
    default: break;
  }
  Codes part;
  for (std::uint32_t i = 0; i < block; i += 4) {
    store_word(&part[i], (load_word(codes + i) >> 1U) & 0x03030303U);
  }
  put_lines<2>(part.data(), block, lines);
  for (std::uint32_t i = 0; i < block; i += 4) {
    store_word(&part[i], load_word(codes + i) & 0x01010101U);
  }
  put_lines<1>(part.data(), block, lines + high_line_bytes(block));
}

void take_codes(QuantType type, std::uint64_t index, const std::byte* lines, std::uint32_t block,
                std::uint8_t* codes) noexcept {
  if (shares_lines(type)) return take_half_lines(lines, index % 2, codes);
  if (type == QuantType::kTernaryBase3) {
    std::byte packed[kBase3Block / 5];
    for (std::uint32_t f = 0; f < 4; ++f) {
      store_word(packed + std::size_t{4} * f, load_word(lines + f * kLineBytes));
    }
    unpack_base3(packed, block, codes);
    return;
  }
  switch (code_bits(type)) {
    case 2: take_lines<2>(lines, block, codes); return;
    case 4: take_lines<4>(lines, block, codes); return;
    case 5: take_wide_lines<1>(lines, block, codes); return;
    case 6: take_wide_lines<2>(lines, block, codes); return;
    case 8: take_lines<8>(lines, block, codes); return;
    default: break;
  }
  Codes low;
  take_lines<2>(lines, block, codes);
  take_lines<1>(lines + high_line_bytes(block), block, low.data());
  for (std::uint32_t i = 0; i < block; i += 4) {  // no code byte exceeds 3, so none overflows
    store_word(codes + i, (load_word(codes + i) << 1U) | load_word(&low[i]));
  }
}

// Float rows are moved in words of 4 bytes: one f32 column, or two f16 columns.
void interleave_floats(BlockFormat format, std::uint32_t n_rows, std::uint64_t n_cols,
                       ByteSpan rows, MutableByteSpan out) noexcept {
  const std::size_t n_bytes = row_major_bytes(format, n_cols);
  for (std::uint32_t r = 0; r < n_rows; ++r) {
    const std::byte* from = rows.data() + r * n_bytes;
    std::byte* to = out.data() + 4 * r;
    std::size_t i = 0;
    for (; i + 4 <= n_bytes; i += 4, to += kLineBytes) store_word(to, load_word(from + i));
    if (i < n_bytes) std::memcpy(to, from + i, n_bytes - i);
  }
}

void take_float_row(BlockFormat format, ByteSpan group, std::uint32_t r, std::uint64_t n_cols,
                    std::byte* out) noexcept {
  const std::size_t n_bytes = row_major_bytes(format, n_cols);
  const std::byte* from = group.data() + 4 * r;
  std::size_t i = 0;
  for (; i + 4 <= n_bytes; i += 4, from += kLineBytes) store_word(out + i, load_word(from));
  if (i < n_bytes) std::memcpy(out + i, from, n_bytes - i);
}

// Interleaves rows of blocks of `from.block` columns into blocks of `to_block` columns, a divisor.
void interleave_coded(BlockFormat from, std::uint32_t to_block, std::uint32_t n_rows,
                      std::uint64_t n_cols, ByteSpan rows, MutableByteSpan out) noexcept {
  const BlockFormat to = {from.type, to_block};
  const BlockCodec& codec = block_codec(from.type);
  const std::size_t row_bytes = row_major_bytes(from, n_cols);
  Codes codes;
  for (std::uint32_t r = 0; r < n_rows; ++r) {
    const ByteSpan row = rows.subspan(r * row_bytes, row_bytes);
    put_row_fields(from, to_block, row, r, n_cols, out);
    for (std::uint64_t first = 0; first < n_cols; first += from.block) {
      codec.unpack(row.data() + locate_in_row(from, first / from.block).codes, from.block,
                   codes.data());
      const std::uint64_t n_true = std::min<std::uint64_t>(from.block, n_cols - first);
      std::fill(codes.data() + n_true, codes.data() + from.block, std::uint8_t{0});
      for (std::uint32_t part = 0; part < n_true; part += to_block) {
        const std::uint64_t index = (first + part) / to_block;
        put_codes(to.type, index, codes.data() + part, to_block,
                  out.data() + locate_block(to, index).codes + 4 * r);
      }
    }
  }
}

// The lines of 2-bit codes of a group of ternary-row.
std::uint64_t ternary_row_lines(std::uint64_t n_cols) noexcept {
  return ceil_div(n_cols, 64) * 4;
}

// The columns behind the last whole block of a row of ternary-base3, as interleave_base3() does.
void interleave_base3_tail(std::uint32_t row, std::uint64_t n_cols, const std::byte* block,
                           std::byte* lines) noexcept {
  const std::uint64_t first = n_cols / kBase3Block * kBase3Block;
  const std::uint64_t n_lines = ternary_row_lines(n_cols) - first / 16;
  Codes codes;
  unpack_base3(block, kBase3Block, codes.data());
  std::fill(codes.data() + (n_cols - first), codes.data() + kBase3Block, std::uint8_t{0});
  const auto n = static_cast<std::uint32_t>(std::min<std::uint64_t>(5, n_lines));
  put_lines<2>(codes.data(), 16 * n, lines + 4 * row);
}

// Interleaves rows of ternary-base3 as ternary-row, 16 columns a line, whatever the blocks.
void interleave_base3(std::uint32_t n_rows, std::uint64_t n_cols, ByteSpan rows,
                      MutableByteSpan out) noexcept {
  constexpr BlockFormat kFrom = block_format(QuantType::kTernaryBase3, 0);
  const std::size_t row_bytes = row_major_bytes(kFrom, n_cols);
  for (std::uint32_t r = 0; r < n_rows; ++r) {
    std::memcpy(out.data() + 4 * r, rows.data() + r * row_bytes, 4);
  }
  std::byte* lines = out.data() + kLineBytes;
  const std::uint64_t n_whole = n_cols / kBase3Block;
  for (std::uint64_t b = 0; b < n_whole; ++b, lines += 5 * kLineBytes) {
    base3_rows_to_2bit_lines(rows.data() + locate_in_row(kFrom, b).codes, row_bytes, n_rows, lines);
  }
  if (n_cols % kBase3Block == 0) return;
  const std::size_t tail = locate_in_row(kFrom, n_whole).codes;
  for (std::uint32_t r = 0; r < n_rows; ++r) {
    interleave_base3_tail(r, n_cols, rows.data() + r * row_bytes + tail, lines);
  }
}

void expand_base3_group(std::uint64_t n_cols, ByteSpan group, MutableByteSpan out) noexcept {
  const std::uint64_t n_lines = ternary_row_lines(n_cols);
  const std::uint64_t n_stored = 5 * ceil_div(n_cols, kBase3Block);
  std::copy_n(group.data(), kLineBytes, out.data());
  base3_to_2bit_lines(group.data() + kLineBytes, std::min(n_lines, n_stored),
                      out.data() + kLineBytes);
  if (n_lines > n_stored) {
    std::fill(out.begin() + static_cast<std::ptrdiff_t>((1 + n_stored) * kLineBytes), out.end(),
              std::byte{0});
  }
}

void interleave_one(BlockFormat from, BlockFormat to, std::uint32_t n_rows, std::uint64_t n_cols,
                    ByteSpan rows, MutableByteSpan out) noexcept {
  QSF_CHECK(is_valid(from) && n_rows >= 1 && n_rows <= kRowGroup);
  QSF_CHECK(rows.size() == n_rows * row_major_bytes(from, n_cols));
  QSF_CHECK(out.size() == group_bytes(to, n_cols));
  std::fill(out.begin(), out.end(), std::byte{0});
  if (is_float_type(from.type)) {
    interleave_floats(from, n_rows, n_cols, rows, out);
  } else if (to.type != from.type) {
    interleave_base3(n_rows, n_cols, rows, out);
  } else {
    interleave_coded(from, to.block, n_rows, n_cols, rows, out);
  }
}

void interleave_all(BlockFormat from, BlockFormat to, std::uint64_t n_rows, std::uint64_t n_cols,
                    ByteSpan rows, MutableByteSpan out) noexcept {
  const std::size_t row_bytes = row_major_bytes(from, n_cols);
  const std::size_t n_bytes = group_bytes(to, n_cols);
  QSF_CHECK(rows.size() == n_rows * row_bytes);
  QSF_CHECK(out.size() == rows_bytes(to, Layout::kInterleaved, n_rows, n_cols));
  for (std::uint64_t row = 0; row < n_rows; row += kRowGroup) {
    const auto n = static_cast<std::uint32_t>(std::min<std::uint64_t>(kRowGroup, n_rows - row));
    interleave_one(from, to, n, n_cols, rows.subspan(row * row_bytes, n * row_bytes),
                   out.subspan(row / kRowGroup * n_bytes, n_bytes));
  }
}

}  // namespace

void interleave_group(BlockFormat format, std::uint32_t n_rows, std::uint64_t n_cols, ByteSpan rows,
                      MutableByteSpan out) noexcept {
  interleave_one(format, format, n_rows, n_cols, rows, out);
}

void interleave_rows(BlockFormat format, std::uint64_t n_rows, std::uint64_t n_cols, ByteSpan rows,
                     MutableByteSpan out) noexcept {
  interleave_all(format, format, n_rows, n_cols, rows, out);
}

void deinterleave_group(BlockFormat format, std::uint32_t n_rows, std::uint64_t n_cols,
                        ByteSpan group, MutableByteSpan out) noexcept {
  QSF_CHECK(is_valid(format) && n_rows >= 1 && n_rows <= kRowGroup);
  QSF_CHECK(group.size() == group_bytes(format, n_cols));
  const std::size_t row_bytes = row_major_bytes(format, n_cols);
  QSF_CHECK(out.size() == n_rows * row_bytes);
  if (is_float_type(format.type)) {
    for (std::uint32_t r = 0; r < n_rows; ++r) {
      take_float_row(format, group, r, n_cols, out.data() + r * row_bytes);
    }
    return;
  }
  const BlockCodec& codec = block_codec(format.type);
  Codes codes;
  std::fill(out.begin(), out.end(), std::byte{0});  // qk256 has code bytes of no columns
  for (std::uint32_t r = 0; r < n_rows; ++r) {
    const MutableByteSpan row = out.subspan(r * row_bytes, row_bytes);
    take_row_fields(format, group, r, n_cols, row);
    for (std::uint64_t first = 0; first < n_cols; first += format.block) {
      const std::uint64_t index = first / format.block;
      take_codes(format.type, index, group.data() + locate_block(format, index).codes + 4 * r,
                 format.block, codes.data());
      const auto n_true =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(format.block, n_cols - first));
      std::fill(codes.data() + n_true, codes.data() + format.block, std::uint8_t{0});
      codec.pack(codes.data(), format.block, n_true,
                 row.data() + locate_in_row(format, first / format.block).codes);
    }
  }
}

void expand_group(BlockFormat format, std::uint64_t n_cols, ByteSpan group,
                  MutableByteSpan out) noexcept {
  const BlockFormat to = kernel_format(format);
  QSF_CHECK(is_valid(format) && to != format);
  QSF_CHECK(group.size() == group_bytes(format, n_cols) && out.size() == group_bytes(to, n_cols));
  if (to.type != format.type) return expand_base3_group(n_cols, group, out);
  const std::size_t lines = code_line_bytes(to);
  const std::uint64_t n_blocks = blocks_per_row(to, n_cols);
  const std::uint64_t parts = format.block / to.block;
  for (std::uint64_t b = 0; b < n_blocks; ++b) {
    const GroupBlock source = locate_block(format, b / parts);
    const GroupBlock target = locate_block(to, b);
    const std::uint64_t part = b % parts;
    std::memcpy(out.data() + target.scales, group.data() + source.scales, 2 * kRowGroup);
    if (has_min(to.type)) {
      std::memcpy(out.data() + target.mins, group.data() + source.mins, 2 * kRowGroup);
    }
    if (to.type != QuantType::kQ3) {
      std::memcpy(out.data() + target.codes, group.data() + source.codes + part * lines, lines);
      continue;
    }
    const std::size_t high = high_line_bytes(to.block);
    const std::size_t low = lines - high;
    std::memcpy(out.data() + target.codes, group.data() + source.codes + part * high, high);
    std::memcpy(out.data() + target.codes + high,
                group.data() + source.codes + high_line_bytes(format.block) + part * low, low);
  }
  if (!has_min(to.type) && n_blocks % 2 == 1) {
    const GroupBlock last = locate_block(to, n_blocks - 1);
    std::memset(out.data() + last.scales + 2 * kRowGroup, 0, 2 * kRowGroup);
  }
}

void expand_rows(BlockFormat format, std::uint64_t n_rows, std::uint64_t n_cols, ByteSpan groups,
                 MutableByteSpan out) noexcept {
  const std::size_t from_bytes = group_bytes(format, n_cols);
  const std::size_t to_bytes = group_bytes(kernel_format(format), n_cols);
  const std::uint64_t n_groups = ceil_div(n_rows, kRowGroup);
  QSF_CHECK(groups.size() == n_groups * from_bytes && out.size() == n_groups * to_bytes);
  for (std::uint64_t g = 0; g < n_groups; ++g) {
    expand_group(format, n_cols, groups.subspan(g * from_bytes, from_bytes),
                 out.subspan(g * to_bytes, to_bytes));
  }
}

void to_kernel_form(BlockFormat format, Layout layout, std::uint64_t n_rows, std::uint64_t n_cols,
                    ByteSpan bytes, MutableByteSpan out) noexcept {
  if (layout == Layout::kRowMajor) {
    interleave_all(format, kernel_format(format), n_rows, n_cols, bytes, out);
  } else if (kernel_format(format) != format) {
    expand_rows(format, n_rows, n_cols, bytes, out);
  } else {
    QSF_CHECK(bytes.size() == out.size());
    std::copy(bytes.begin(), bytes.end(), out.begin());
  }
}

void decode_group_row(BlockFormat format, ByteSpan group, std::uint32_t row_in_group,
                      std::uint64_t n_cols, std::span<float> out) noexcept {
  QSF_CHECK(is_valid(format) && row_in_group < kRowGroup && out.size() == n_cols);
  QSF_CHECK(group.size() == group_bytes(format, n_cols));
  if (is_float_type(format.type)) {
    constexpr std::uint64_t kChunk = 64;
    std::array<std::byte, kChunk * 4> row;
    for (std::uint64_t first = 0; first < n_cols; first += kChunk) {
      const std::uint64_t n = std::min(kChunk, n_cols - first);
      take_float_row(format, group.subspan(locate_block(format, first / 4).codes), row_in_group, n,
                     row.data());
      decode_float_row(format.type, row, out.subspan(first, n));
    }
    return;
  }
  Codes codes;
  TrellisDecoder trellis(format.type);
  for (std::uint64_t first = 0; first < n_cols; first += format.block) {
    const std::uint64_t index = first / format.block;
    const std::uint64_t n_true = std::min<std::uint64_t>(format.block, n_cols - first);
    take_codes(format.type, index,
               group.data() + locate_block(format, index).codes + 4 * row_in_group, format.block,
               codes.data());
    if (is_trellis_type(format.type)) trellis.decode(std::span(codes).first(format.block));
    decode_codes(format.type, group_block_scale(format, group, row_in_group, index), codes.data(),
                 out.subspan(first, n_true));
  }
}

}  // namespace qsf
