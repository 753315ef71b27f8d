// SPDX-License-Identifier: MIT

#include "quant/codec.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>

#include "base/check.h"
#include "base/f16.h"
#include "quant/floats.h"
#include "quant/interleave.h"
#include "quant/q2a.h"
#include "quant/q2s.h"
#include "quant/q3.h"
#include "quant/q4.h"
#include "quant/q8.h"
#include "quant/ternary.h"

namespace qsf {
namespace {

constexpr BlockCodec kQ2SCodec = {pack_q2s, unpack_q2s, encode_q2s_block};
constexpr BlockCodec kQ2ACodec = {pack_q2a, unpack_q2a, encode_q2a_block};
constexpr BlockCodec kQ3Codec = {pack_q3, unpack_q3, encode_q3_block};
constexpr BlockCodec kQ4Codec = {pack_q4, unpack_q4, encode_q4_block};
constexpr BlockCodec kTernaryCodec = {pack_ternary, unpack_ternary, encode_ternary_block};
constexpr BlockCodec kQ8Codec = {pack_q8, unpack_q8, encode_q8_block};

bool is_finite_f16(ByteSpan bytes, std::size_t offset) noexcept {
  return (load_le<std::uint16_t>(bytes, offset) & 0x7C00U) != 0x7C00U;
}

// Returns whether a group or a row of float elements is finite throughout.
bool floats_are_finite(QuantType type, ByteSpan bytes) noexcept {
  if (type == QuantType::kF32) {
    for (std::size_t i = 0; i + 4 <= bytes.size(); i += 4) {
      if ((load_le<std::uint32_t>(bytes, i) & 0x7F800000U) == 0x7F800000U) return false;
    }
    return true;
  }
  const std::uint16_t exponent = type == QuantType::kF16 ? 0x7C00 : 0x7F80;
  for (std::size_t i = 0; i + 2 <= bytes.size(); i += 2) {
    if ((load_le<std::uint16_t>(bytes, i) & exponent) == exponent) return false;
  }
  return true;
}

// Returns whether code bytes hold a code that the type does not have: -128, or ternary 3, which
// only the 2-bit codes of layout 1 can express.
bool has_bad_code(QuantType type, Layout layout, ByteSpan codes) noexcept {
  if (type == QuantType::kQ8) {
    return std::find(codes.begin(), codes.end(), std::byte{0x80}) != codes.end();
  }
  if (type != QuantType::kTernary || layout != Layout::kInterleaved) return false;
  for (const std::byte byte : codes) {
    const unsigned bits = static_cast<unsigned>(byte);
    if ((bits & (bits >> 1U) & 0x55U) != 0) return true;
  }
  return false;
}

Status bad_block(const char* what, std::uint64_t row, std::uint64_t block) {
  return corrupt("%s in row %" PRIu64 ", column block %" PRIu64, what, row, block);
}

Status check_row(BlockFormat format, std::uint64_t row, ByteSpan bytes) {
  if (is_float_type(format.type)) {
    return floats_are_finite(format.type, bytes)
               ? ok_status()
               : corrupt("a weight that is not finite in row %" PRIu64, row);
  }
  const std::size_t n_bytes = block_bytes(format);
  const std::size_t header = has_min(format.type) ? 4 : 2;
  for (std::uint64_t b = 0; b * n_bytes < bytes.size(); ++b) {
    const ByteSpan block = bytes.subspan(b * n_bytes, n_bytes);
    if (!is_finite_f16(block, 0)) return bad_block("a scale that is not finite", row, b);
    if (header == 4 && !is_finite_f16(block, 2)) {
      return bad_block("a min that is not finite", row, b);
    }
    if (has_bad_code(format.type, Layout::kRowMajor, block.subspan(header))) {
      return bad_block("a code that the type does not have", row, b);
    }
  }
  return ok_status();
}

Status check_group(BlockFormat format, std::uint64_t first_row, std::uint64_t n_blocks,
                   ByteSpan group) {
  if (is_float_type(format.type)) {
    return floats_are_finite(format.type, group)
               ? ok_status()
               : corrupt("a weight that is not finite in the 16 rows from row %" PRIu64, first_row);
  }
  for (std::uint64_t b = 0; b < n_blocks; ++b) {
    const GroupBlock at = locate_block(format, b);
    for (std::uint32_t r = 0; r < kRowGroup; ++r) {
      if (!is_finite_f16(group, at.scales + 2 * r)) {
        return bad_block("a scale that is not finite", first_row + r, b);
      }
      if (has_min(format.type) && !is_finite_f16(group, at.mins + 2 * r)) {
        return bad_block("a min that is not finite", first_row + r, b);
      }
    }
    if (has_bad_code(format.type, Layout::kInterleaved,
                     group.subspan(at.codes, code_line_bytes(format)))) {
      return bad_block("a code that the type does not have, in the 16 rows from", first_row, b);
    }
  }
  return ok_status();
}

}  // namespace

const BlockCodec& block_codec(QuantType type) noexcept {
  switch (type) {
    case QuantType::kQ2S: return kQ2SCodec;
    case QuantType::kQ2A: return kQ2ACodec;
    case QuantType::kQ3: return kQ3Codec;
    case QuantType::kQ4: return kQ4Codec;
    case QuantType::kTernary: return kTernaryCodec;
    case QuantType::kQ8: return kQ8Codec;
    case QuantType::kF32:
    case QuantType::kF16:
    case QuantType::kBF16: break;
  }
  QSF_CHECK(!"a coded type");
}

void decode_codes(QuantType type, float scale, float min, const std::uint8_t* codes,
                  std::span<float> out) noexcept {
  const std::size_t n = out.size();
  switch (type) {
    case QuantType::kQ2S:
      for (std::size_t i = 0; i < n; ++i) out[i] = scale * (static_cast<float>(codes[i]) - 1.5F);
      return;
    case QuantType::kTernary:
      for (std::size_t i = 0; i < n; ++i) out[i] = scale * (static_cast<float>(codes[i]) - 1.0F);
      return;
    case QuantType::kQ8:
      for (std::size_t i = 0; i < n; ++i) {
        out[i] = scale * static_cast<float>(static_cast<std::int8_t>(codes[i]));
      }
      return;
    default:
      for (std::size_t i = 0; i < n; ++i) out[i] = scale * static_cast<float>(codes[i]) + min;
      return;
  }
}

void encode_row(BlockFormat format, std::span<const float> row, MutableByteSpan out) {
  QSF_CHECK(is_valid(format) && out.size() == row_major_bytes(format, row.size()));
  if (is_float_type(format.type)) {
    encode_float_row(format.type, row, out);
    return;
  }
  const BlockCodec& codec = block_codec(format.type);
  const std::size_t n_bytes = block_bytes(format);
  for (std::size_t first = 0, at = 0; first < row.size(); first += format.block, at += n_bytes) {
    const std::size_t n_true = std::min<std::size_t>(format.block, row.size() - first);
    codec.encode_block(row.subspan(first, n_true), format.block, out.subspan(at, n_bytes));
  }
}

void decode_row(BlockFormat format, ByteSpan row, std::span<float> out) noexcept {
  QSF_CHECK(is_valid(format) && row.size() == row_major_bytes(format, out.size()));
  if (is_float_type(format.type)) {
    decode_float_row(format.type, row, out);
    return;
  }
  const BlockCodec& codec = block_codec(format.type);
  const std::size_t n_bytes = block_bytes(format);
  const bool with_min = has_min(format.type);
  std::array<std::uint8_t, kMaxBlock> codes;
  for (std::size_t first = 0, at = 0; first < out.size(); first += format.block, at += n_bytes) {
    const std::size_t n_true = std::min<std::size_t>(format.block, out.size() - first);
    codec.unpack(row.data() + at + (with_min ? 4 : 2), format.block, codes.data());
    const float scale = to_f32(load_le<F16>(row, at));
    const float min = with_min ? to_f32(load_le<F16>(row, at + 2)) : 0.0F;
    decode_codes(format.type, scale, min, codes.data(), out.subspan(first, n_true));
  }
}

Status check_blocks(BlockFormat format, Layout layout, std::uint64_t n_rows, std::uint64_t n_cols,
                    ByteSpan bytes) {
  const std::uint64_t expected = rows_bytes(format, layout, n_rows, n_cols);
  if (!is_valid(format) || bytes.size() != expected) {
    return corrupt("%zu bytes of weights, expected %" PRIu64, bytes.size(), expected);
  }
  if (bytes.empty()) return ok_status();
  if (layout == Layout::kRowMajor) {
    const std::size_t n_bytes = row_major_bytes(format, n_cols);
    for (std::uint64_t row = 0; row < n_rows; ++row) {
      QSF_RETURN_IF_ERROR(check_row(format, row, bytes.subspan(row * n_bytes, n_bytes)));
    }
    return ok_status();
  }
  const std::size_t n_bytes = group_bytes(format, n_cols);
  for (std::uint64_t row = 0; row < n_rows; row += kRowGroup) {
    QSF_RETURN_IF_ERROR(check_group(format, row, blocks_per_row(format, n_cols),
                                    bytes.subspan(row / kRowGroup * n_bytes, n_bytes)));
  }
  return ok_status();
}

}  // namespace qsf
