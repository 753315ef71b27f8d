// SPDX-License-Identifier: MIT

#include "quant/base3.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/bit_cast.h"
#include "quant/codec.h"
#include "quant/fields.h"
#include "quant/ternary.h"

namespace qsf {
namespace {

constexpr std::uint32_t kBytes = 16;      // of a block of one row
constexpr std::uint32_t kDigits = 5;      // codes of a byte
constexpr std::uint32_t kBlockLines = 4;  // lines of a block, and 2-bit codes of a byte

// Vectors that every machine has: SSE2 and NEON do what is needed here at 16 bytes an operation.
using Bytes [[gnu::vector_size(kBytes)]] = std::uint8_t;
using SignedBytes [[gnu::vector_size(kBytes)]] = std::int8_t;

constexpr std::uint8_t kMove = 128;  // for comparisons, which have a sign

Bytes load_moved(const std::byte* from) noexcept {
  Bytes bytes;
  std::memcpy(&bytes, from, kBytes);
  return bytes ^ kMove;
}

// Returns the first code of each byte, and leaves in `rest` the bytes of those that follow. Times
// three is the same for a byte that is moved and for one that is not.
Bytes take_code(Bytes& rest) noexcept {
  constexpr std::int8_t kOneThird = 85 - kMove;    // the last byte of which the first code is 0
  constexpr std::int8_t kTwoThirds = 170 - kMove;  // and is 1
  const auto moved = bit_cast<SignedBytes>(rest);
  rest += rest + rest;
  // A comparison that holds is -1 in every byte.
  return -bit_cast<Bytes>((moved > kOneThird) + (moved > kTwoThirds));
}

// 16 neighbouring bytes of 4 lines of base-3, moved, into those of `n_lines` lines of 2-bit codes.
void turn_bytes(const Bytes (&base3)[kBlockLines], std::byte* lines,
                std::uint64_t n_lines) noexcept {
  Bytes codes[kDigits] = {};
  for (std::uint32_t f = kBlockLines; f-- > 0;) {
    Bytes rest = base3[f];
    for (Bytes& code : codes) {
      code += code;
      code += code;
      code += take_code(rest);
    }
  }
  for (std::uint64_t t = 0; t < n_lines; ++t) {
    std::memcpy(lines + t * kLineBytes, &codes[t], kBytes);
  }
}

// The same where the lines stand one after the other.
void turn_lines(const std::byte* base3, std::byte* lines, std::uint64_t n_lines) noexcept {
  for (std::size_t p = 0; p < kLineBytes; p += kBytes) {
    Bytes moved[kBlockLines];
    for (std::uint32_t f = 0; f < kBlockLines; ++f)
      moved[f] = load_moved(base3 + f * kLineBytes + p);
    turn_bytes(moved, lines + p, n_lines);
  }
}

// Of four rows of four words the columns: what the lines of a block have of these rows.
void transpose_words(Bytes (&rows)[kBlockLines]) noexcept {
  using Words [[gnu::vector_size(kBytes)]] = std::uint32_t;
  Words pairs[kBlockLines];
  for (std::uint32_t i = 0; i < 2; ++i) {
    const auto upper = bit_cast<Words>(rows[i]);
    const auto lower = bit_cast<Words>(rows[i + 2]);
    pairs[i] = __builtin_shufflevector(upper, lower, 0, 4, 1, 5);
    pairs[i + 2] = __builtin_shufflevector(upper, lower, 2, 6, 3, 7);
  }
  for (std::uint32_t i = 0; i < 2; ++i) {
    const Words left = pairs[2 * i];
    const Words right = pairs[2 * i + 1];
    rows[2 * i] = bit_cast<Bytes>(__builtin_shufflevector(left, right, 0, 4, 1, 5));
    rows[2 * i + 1] = bit_cast<Bytes>(__builtin_shufflevector(left, right, 2, 6, 3, 7));
  }
}

}  // namespace

void pack_base3(const std::uint8_t* codes, std::uint32_t /*block*/, std::uint32_t /*n_true*/,
                std::byte* packed) noexcept {
  for (std::uint32_t j = 0; j < kBytes; ++j) {
    unsigned value = 0;
    for (std::uint32_t t = 0; t < kDigits; ++t) value = 3 * value + codes[kBytes * t + j];
    packed[j] = static_cast<std::byte>((256 * value + 242) / 243);
  }
}

void unpack_base3(const std::byte* packed, std::uint32_t /*block*/, std::uint8_t* codes) noexcept {
  Bytes rest = load_moved(packed);
  for (std::uint32_t t = 0; t < kDigits; ++t) {
    const Bytes code = take_code(rest);
    std::memcpy(codes + std::size_t{kBytes} * t, &code, kBytes);
  }
}

bool are_base3_bytes(ByteSpan bytes) noexcept {
  // 243 * byte is 256 * v and less than 243 more, for the bytes that are some ceil(256 * v / 243).
  std::uint8_t largest = 0;
  for (const std::byte byte : bytes) {
    largest = std::max(largest, static_cast<std::uint8_t>(243U * static_cast<unsigned>(byte)));
  }
  return largest < 243;
}

void base3_to_2bit_lines(const std::byte* base3, std::uint64_t n_lines, std::byte* lines) noexcept {
  for (; n_lines >= kDigits; n_lines -= kDigits) {
    turn_lines(base3, lines, kDigits);
    base3 += kBlockLines * kLineBytes;
    lines += kDigits * kLineBytes;
  }
  if (n_lines > 0) turn_lines(base3, lines, n_lines);
}

void base3_rows_to_2bit_lines(const std::byte* base3, std::size_t row_bytes, std::uint32_t n_rows,
                              std::byte* lines) noexcept {
  for (std::uint32_t row = 0; row < n_rows; row += kBlockLines) {
    Bytes moved[kBlockLines];
    for (std::uint32_t r = 0; r < kBlockLines; ++r) {
      // A row that is not there has codes of 0.
      moved[r] = row + r < n_rows ? load_moved(base3 + (row + r) * row_bytes) : Bytes{} ^ kMove;
    }
    transpose_words(moved);
    turn_bytes(moved, lines + std::size_t{4} * row, kDigits);
  }
}

namespace {

// One block of a row: its scale and the codes of the columns that exist.
struct TernaryBlock {
  float scale;
  bool is_zero;
  std::uint32_t n_true;
};

TernaryBlock unpack_ternary_block(BlockFormat from, std::uint64_t n_cols, ByteSpan row,
                                  std::uint64_t b, std::uint8_t* codes) noexcept {
  block_codec(from.type).unpack(row.data() + locate_in_row(from, b).codes, from.block, codes);
  const auto n =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(from.block, n_cols - b * from.block));
  const float scale = row_block_scale(from, row, b).scale;
  return {scale, scale == 0.0F || std::count(codes, codes + n, std::uint8_t{1}) == n, n};
}

}  // namespace

bool has_one_ternary_scale(BlockFormat from, std::uint64_t n_cols, ByteSpan row) noexcept {
  float scale = 0.0F;
  for (std::uint64_t b = 0; b < blocks_per_row(from, n_cols); ++b) {
    std::uint8_t codes[kMaxBlock];
    const TernaryBlock block = unpack_ternary_block(from, n_cols, row, b, codes);
    if (block.is_zero || block.scale == scale) continue;
    if (scale != 0.0F) return false;
    scale = block.scale;
  }
  return true;
}

void repack_ternary_row(BlockFormat from, BlockFormat to, std::uint64_t n_cols, ByteSpan row,
                        MutableByteSpan out) {
  std::vector<std::uint8_t> codes(n_cols + 2 * std::size_t{kMaxBlock});
  float scale = row_block_scale(from, row, 0).scale;
  for (std::uint64_t b = 0; b < blocks_per_row(from, n_cols); ++b) {
    std::uint8_t* own = codes.data() + b * from.block;
    const TernaryBlock block = unpack_ternary_block(from, n_cols, row, b, own);
    if (block.is_zero) std::fill_n(own, block.n_true, std::uint8_t{1});
    if (!block.is_zero) scale = block.scale;
    std::fill(own + block.n_true, own + from.block, std::uint8_t{0});
  }
  store_le(out, 0, scale);
  for (std::uint64_t b = 0; b < blocks_per_row(to, n_cols); ++b) {
    block_codec(to.type).pack(codes.data() + b * to.block, to.block, to.block,
                              out.data() + locate_in_row(to, b).codes);
  }
}

void encode_base3_row(std::span<const float> weights, const QuantOptions& options,
                      MutableByteSpan out) {
  constexpr BlockFormat kByRow = block_format(QuantType::kTernaryRow, 0);
  std::vector<std::byte> row(row_major_bytes(kByRow, weights.size()));
  encode_ternary_row(weights, options, row);
  repack_ternary_row(kByRow, block_format(QuantType::kTernaryBase3, 0), weights.size(), row, out);
}

}  // namespace qsf
