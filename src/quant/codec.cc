// SPDX-License-Identifier: MIT

#include "quant/codec.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>

#include "base/check.h"
#include "quant/affine.h"
#include "quant/base3.h"
#include "quant/codebook_block.h"
#include "quant/codebook_levels.h"
#include "quant/fields.h"
#include "quant/floats.h"
#include "quant/interleave.h"
#include "quant/q2a.h"
#include "quant/q2s.h"
#include "quant/q3.h"
#include "quant/q4.h"
#include "quant/q5.h"
#include "quant/q6.h"
#include "quant/q8.h"
#include "quant/qk256.h"
#include "quant/search/code_sums.h"
#include "quant/signed_super_block.h"
#include "quant/super_block.h"
#include "quant/ternary.h"

namespace qsf {
namespace {

constexpr BlockCodec kQ2SCodec = {pack_q2s, unpack_q2s, encode_q2s_blocks};
constexpr BlockCodec kQ2ACodec = {pack_q2a, unpack_q2a, encode_affine_blocks};
constexpr BlockCodec kQ3Codec = {pack_q3, unpack_q3, encode_affine_blocks};
constexpr BlockCodec kQ4Codec = {pack_q4, unpack_q4, encode_affine_blocks};
constexpr BlockCodec kTernaryCodec = {pack_ternary, unpack_ternary, encode_ternary_blocks};
constexpr BlockCodec kQ8Codec = {pack_q8, unpack_q8, encode_q8_blocks};
constexpr BlockCodec kQk256Codec = {pack_qk256, unpack_qk256, nullptr};
constexpr BlockCodec kTernaryBase3Codec = {pack_base3, unpack_base3, nullptr};
constexpr BlockCodec kTernaryRowCodec = {pack_q2a, unpack_q2a, nullptr};
constexpr BlockCodec kQ2SuperCodec = {pack_q2a, unpack_q2a, nullptr};
constexpr BlockCodec kQ3SuperCodec = {pack_q3, unpack_q3, nullptr};
constexpr BlockCodec kQ4SuperCodec = {pack_q4, unpack_q4, nullptr};
constexpr BlockCodec kQ5KCodec = {pack_q5, unpack_q5, nullptr};
constexpr BlockCodec kQ6KCodec = {pack_q6, unpack_q6, nullptr};

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

// Returns whether code bytes hold a code that the type does not have: -128, ternary 3, which the
// bit planes of ternary blocks in layout 0 cannot express, or a byte that is no base-3 number.
bool has_bad_code(QuantType type, Layout layout, ByteSpan codes) noexcept {
  if (type == QuantType::kQ8) {
    return std::find(codes.begin(), codes.end(), std::byte{0x80}) != codes.end();
  }
  if (type == QuantType::kTernaryBase3) return !are_base3_bytes(codes);
  if (type != QuantType::kTernaryRow &&
      (type != QuantType::kTernary || layout != Layout::kInterleaved)) {
    return false;
  }
  for (const std::byte byte : codes) {
    const unsigned bits = static_cast<unsigned>(byte);
    if ((bits & (bits >> 1U) & 0x55U) != 0) return true;
  }
  return false;
}

Status bad_block(const char* what, std::uint64_t row, std::uint64_t block) {
  return corrupt("%s in row %" PRIu64 ", column block %" PRIu64, what, row, block);
}

// Checks the fields that count for block `b` of one row, at byte offsets `scale` and `min`.
Status check_fields(QuantType type, ByteSpan bytes, std::uint64_t scale, std::uint64_t min,
                    std::uint64_t row, std::uint64_t b) {
  const ScaleForm form = scale_form(type);
  if (form == ScaleForm::kNone) return ok_status();
  const bool is_finite = form == ScaleForm::kRow
                             ? floats_are_finite(QuantType::kF32, bytes.subspan(scale, 4))
                             : is_finite_f16(bytes, scale);
  if (!is_finite) return bad_block("a scale that is not finite", row, b);
  if (has_min(type) && !is_finite_f16(bytes, min)) {
    return bad_block("a min that is not finite", row, b);
  }
  return ok_status();
}

Status check_row(BlockFormat format, std::uint64_t row, std::uint64_t n_blocks, ByteSpan bytes) {
  if (is_float_type(format.type)) {
    return floats_are_finite(format.type, bytes)
               ? ok_status()
               : corrupt("a weight that is not finite in row %" PRIu64, row);
  }
  for (std::uint64_t b = 0; b < n_blocks; ++b) {
    const RowBlock at = locate_in_row(format, b);
    QSF_RETURN_IF_ERROR(check_fields(format.type, bytes, at.fields, at.fields + 2, row, b));
    if (has_bad_code(format.type, Layout::kRowMajor, bytes.subspan(at.codes, code_bytes(format)))) {
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
  const std::uint64_t scale_bytes = scale_form(format.type) == ScaleForm::kRow ? 4 : 2;
  for (std::uint64_t b = 0; b < n_blocks; ++b) {
    const GroupBlock at = locate_block(format, b);
    for (std::uint32_t r = 0; r < kRowGroup; ++r) {
      QSF_RETURN_IF_ERROR(check_fields(format.type, group, at.scales + scale_bytes * r,
                                       at.mins + 2 * r, first_row + r, b));
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
    case QuantType::kQk256: return kQk256Codec;
    case QuantType::kTernaryBase3: return kTernaryBase3Codec;
    case QuantType::kTernaryRow: return kTernaryRowCodec;
    case QuantType::kQ2Super:
    case QuantType::kQ2K:
    case QuantType::kQ2Codebook: return kQ2SuperCodec;
    case QuantType::kQ3Super:
    case QuantType::kQ3K:
    case QuantType::kQ3Codebook: return kQ3SuperCodec;
    case QuantType::kQ4Super:
    case QuantType::kQ4Codebook: return kQ4SuperCodec;
    case QuantType::kQ5K: return kQ5KCodec;
    case QuantType::kQ6K: return kQ6KCodec;
    case QuantType::kF32:
    case QuantType::kF16:
    case QuantType::kBF16: break;
  }
  QSF_CHECK(!"a coded type");
}

void decode_codes(QuantType type, BlockScale fields, const std::uint8_t* codes,
                  std::span<float> out) noexcept {
  const std::size_t n = out.size();
  const float scale = fields.scale;
  switch (type) {
    case QuantType::kQ2S:
      for (std::size_t i = 0; i < n; ++i) out[i] = scale * (static_cast<float>(codes[i]) - 1.5F);
      return;
    case QuantType::kTernary:
    case QuantType::kTernaryBase3:
    case QuantType::kTernaryRow:
      for (std::size_t i = 0; i < n; ++i) out[i] = scale * (static_cast<float>(codes[i]) - 1.0F);
      return;
    case QuantType::kQ8:
      for (std::size_t i = 0; i < n; ++i) {
        out[i] = scale * static_cast<float>(static_cast<std::int8_t>(codes[i]));
      }
      return;
    case QuantType::kQk256:
      for (std::size_t i = 0; i < n; ++i) out[i] = kQk256Levels[codes[i]];
      return;
    case QuantType::kQ3K:
    case QuantType::kQ6K:
      for (std::size_t i = 0; i < n; ++i) {
        out[i] = scale * static_cast<float>(static_cast<int>(codes[i]) - code_zero(type));
      }
      return;
    case QuantType::kQ2Codebook:
    case QuantType::kQ3Codebook:
    case QuantType::kQ4Codebook:
      for (std::size_t i = 0; i < n; ++i) {
        out[i] = scale * static_cast<float>(codebook_levels(type)[codes[i]]);
      }
      return;
    default:
      for (std::size_t i = 0; i < n; ++i) {
        out[i] = scale * static_cast<float>(codes[i]) + fields.min;
      }
      return;
  }
}

namespace {

void encode_super_blocks(BlockFormat format, std::span<const float> row,
                         const QuantOptions& options, MutableByteSpan out) {
  for (std::size_t first = 0; first < row.size(); first += kSuperColumns) {
    const std::size_t n_true = std::min<std::size_t>(kSuperColumns, row.size() - first);
    const std::uint64_t at = locate_in_row(format, first / format.block).fields;
    const ScaleForm form = scale_form(format.type);
    const auto encode = form == ScaleForm::kSuperCodebook ? encode_codebook_block
                        : form == ScaleForm::kSuperSigned ? encode_signed_super_block
                                                          : encode_super_block;
    encode(format, row.subspan(first, n_true), options_of_columns(options, first, n_true),
           out.subspan(at, row_major_bytes(format, n_true)));
  }
}

}  // namespace

void encode_row(BlockFormat format, std::span<const float> row, const QuantOptions& options,
                MutableByteSpan out) {
  QSF_CHECK(is_valid(format) && out.size() == row_major_bytes(format, row.size()));
  QSF_CHECK(options.importance.empty() || options.importance.size() == row.size());
  if (is_float_type(format.type)) return encode_float_row(format.type, row, out);
  if (is_super_type(format.type)) return encode_super_blocks(format, row, options, out);
  if (format.type == QuantType::kTernaryRow) return encode_ternary_row(row, options, out);
  if (format.type == QuantType::kTernaryBase3) return encode_base3_row(row, options, out);
  if (format.type == QuantType::kQk256) return encode_qk256_row(row, out);
  const BlockCodec& codec = block_codec(format.type);
  const std::size_t n_cols = kBlocksPerBatch * format.block;
  const std::size_t n_bytes = kBlocksPerBatch * block_bytes(format);
  for (std::size_t first = 0, at = 0; first < row.size(); first += n_cols, at += n_bytes) {
    const std::size_t n_true = std::min(n_cols, row.size() - first);
    codec.encode_blocks(format, row.subspan(first, n_true),
                        options_of_columns(options, first, n_true),
                        out.subspan(at, std::min(n_bytes, out.size() - at)));
  }
}

void decode_row(BlockFormat format, ByteSpan row, std::span<float> out) noexcept {
  QSF_CHECK(is_valid(format) && row.size() == row_major_bytes(format, out.size()));
  if (is_float_type(format.type)) return decode_float_row(format.type, row, out);
  const BlockCodec& codec = block_codec(format.type);
  std::array<std::uint8_t, kMaxBlock> codes;
  for (std::size_t first = 0; first < out.size(); first += format.block) {
    const std::size_t n_true = std::min<std::size_t>(format.block, out.size() - first);
    const std::uint64_t b = first / format.block;
    codec.unpack(row.data() + locate_in_row(format, b).codes, format.block, codes.data());
    decode_codes(format.type, row_block_scale(format, row, b), codes.data(),
                 out.subspan(first, n_true));
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
      QSF_RETURN_IF_ERROR(check_row(format, row, blocks_per_row(format, n_cols),
                                    bytes.subspan(row * n_bytes, n_bytes)));
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
