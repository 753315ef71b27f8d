// SPDX-License-Identifier: MIT

#include "quant/codec.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstring>

#include "base/bit_cast.h"
#include "base/check.h"
#include "base/f16.h"
#include "quant/base3.h"
#include "quant/block_encoders.h"
#include "quant/codebook_block.h"
#include "quant/interleave.h"
#include "quant/mxfp4.h"
#include "quant/search/search_loops.h"
#include "quant/super_block.h"
#include "quant/ternary.h"
#include "quant/trellis.h"

namespace qsf {
namespace {

// The packing that belongs to a width of codes; codec_of() names the types that pack otherwise.
constexpr BlockCodec kPackingOfBits[] = {
    {},
    {},
    {pack_2bit, unpack_2bit, nullptr},
    {pack_3bit, unpack_3bit, nullptr},
    {pack_4bit, unpack_4bit, nullptr},
    {pack_5bit, unpack_5bit, nullptr},
    {pack_6bit, unpack_6bit, nullptr},
    {},
    {pack_8bit, unpack_8bit, nullptr},
};

constexpr BlockCodec codec_of(const TypeTraits& traits) noexcept {
  BlockCodec codec = kPackingOfBits[traits.code_form == CodeForm::kFloat ? 0 : traits.code_bits];
  if (traits.type == QuantType::kTernary) codec = {pack_ternary, unpack_ternary, nullptr};
  if (traits.type == QuantType::kTernaryBase3) codec = {pack_base3, unpack_base3, nullptr};
  if (traits.type == QuantType::kQk256) codec = {pack_qk256, unpack_qk256, nullptr};
  if (traits.scale_form == ScaleForm::kBlockMin) {
    codec.encode_blocks = encode_affine_blocks;
  } else if (traits.scale_form == ScaleForm::kBlock) {
    codec.encode_blocks = traits.code_form == CodeForm::kSigned ? encode_8bit_blocks
                          : is_ternary(traits.type)             ? encode_ternary_blocks
                                                                : encode_2bit_symmetric_blocks;
  }
  return codec;
}

// In the order of the table of types.
constexpr auto kCodecs = [] {
  std::array<BlockCodec, kQuantTypes> codecs{};
  for (std::size_t i = 0; i < kQuantTypes; ++i) codecs[i] = codec_of(type_table::kRows[i]);
  return codecs;
}();

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

// Returns whether code bytes hold a code that the type does not have: -128, a ternary 3 (which bit
// planes cannot express), or a byte that is no base-3 number.
bool has_bad_code(QuantType type, Layout layout, ByteSpan codes) noexcept {
  if (type_traits(type).code_form == CodeForm::kSigned) {
    return std::find(codes.begin(), codes.end(), std::byte{0x80}) != codes.end();
  }
  if (type == QuantType::kTernaryBase3) return !are_base3_bytes(codes);
  const bool has_planes = type == QuantType::kTernary && layout == Layout::kRowMajor;
  if (!is_ternary(type) || has_planes) return false;
  for (const std::byte byte : codes) {
    const unsigned bits = static_cast<unsigned>(byte);
    if ((bits & (bits >> 1U) & 0x55U) != 0) return true;
  }
  return false;
}

Status bad_block(const char* what, std::uint64_t row, std::uint64_t block) {
  return corrupt("row %" PRIu64 ", column block %" PRIu64 ": %s", row, block, what);
}

// Checks the fields that count for block `b` of one row, at byte offsets `scale` and `min`.
Status check_fields(QuantType type, ByteSpan bytes, std::uint64_t scale, std::uint64_t min,
                    std::uint64_t row, std::uint64_t b) {
  const ScaleForm form = scale_form(type);
  if (form == ScaleForm::kNone) return ok_status();
  if (form == ScaleForm::kExponent) {
    if (bytes[scale] <= kMxfp4LargestExponent) return ok_status();
    return bad_block(bytes[scale] == std::byte{255} ? "the scale is 255, not a number"
                                                    : "the scale makes weights that f32 lacks",
                     row, b);
  }
  const bool is_finite = has_row_scale(type)
                             ? floats_are_finite(QuantType::kF32, bytes.subspan(scale, 4))
                             : is_finite_f16(bytes, scale);
  if (!is_finite) return bad_block("a scale is not finite", row, b);
  if (has_min(type) && !is_finite_f16(bytes, min)) {
    return bad_block("a min is not finite", row, b);
  }
  return ok_status();
}

Status check_row(BlockFormat format, std::uint64_t row, std::uint64_t n_blocks, ByteSpan bytes) {
  if (is_float_type(format.type)) {
    return floats_are_finite(format.type, bytes)
               ? ok_status()
               : corrupt("row %" PRIu64 ": a weight is not finite", row);
  }
  for (std::uint64_t b = 0; b < n_blocks; ++b) {
    const RowBlock at = locate_in_row(format, b);
    const std::uint64_t scale = has_row_scale(format.type) ? 0 : at.fields;
    QSF_RETURN_IF_ERROR(check_fields(format.type, bytes, scale, at.fields + 2, row, b));
    if (has_bad_code(format.type, Layout::kRowMajor, bytes.subspan(at.codes, code_bytes(format)))) {
      return bad_block("a code is outside the range of the type", row, b);
    }
  }
  return ok_status();
}

Status check_group(BlockFormat format, std::uint64_t first_row, std::uint64_t n_blocks,
                   ByteSpan group) {
  if (is_float_type(format.type)) {
    return floats_are_finite(format.type, group)
               ? ok_status()
               : corrupt("16 rows from row %" PRIu64 ": a weight is not finite", first_row);
  }
  const bool has_words =
      has_row_scale(format.type) || scale_form(format.type) == ScaleForm::kExponent;
  const std::uint64_t scale_bytes = has_words ? 4 : 2;
  for (std::uint64_t b = 0; b < n_blocks; ++b) {
    const GroupBlock at = locate_block(format, b);
    for (std::uint32_t r = 0; r < kRowGroup; ++r) {
      QSF_RETURN_IF_ERROR(check_fields(format.type, group, at.scales + scale_bytes * r,
                                       at.mins + 2 * r, first_row + r, b));
    }
    if (has_bad_code(format.type, Layout::kInterleaved,
                     group.subspan(at.codes, code_line_bytes(format)))) {
      return bad_block("a code of the 16 rows from here is outside the range of the type",
                       first_row, b);
    }
  }
  return ok_status();
}

}  // namespace

const BlockCodec& block_codec(QuantType type) noexcept {
  QSF_CHECK(!is_float_type(type));
  return kCodecs[type_table::kRowOfCode[static_cast<std::uint8_t>(type)]];
}

void decode_codes(QuantType type, BlockScale fields, const std::uint8_t* codes,
                  std::span<float> out) noexcept {
  const TypeTraits& traits = type_traits(type);
  const std::size_t n = out.size();
  const float scale = traits.scale_form == ScaleForm::kNone ? 1.0F : fields.scale;
  switch (traits.code_form) {
    case CodeForm::kFloat: return;
    case CodeForm::kSigned:
      for (std::size_t i = 0; i < n; ++i) {
        out[i] = scale * static_cast<float>(static_cast<std::int8_t>(codes[i]));
      }
      return;
    case CodeForm::kCodebook: {
      const std::int8_t* const levels = traits.levels;
      for (std::size_t i = 0; i < n; ++i) {
        out[i] = scale * static_cast<float>(levels[codes[i]]);
      }
      return;
    }
    case CodeForm::kUnsigned:
    case CodeForm::kTrellis: break;
  }
  if (has_min(type)) {
    for (std::size_t i = 0; i < n; ++i) {
      out[i] = scale * static_cast<float>(codes[i]) + fields.min;
    }
    return;
  }
  const float zero = traits.zero;
  for (std::size_t i = 0; i < n; ++i) out[i] = scale * (static_cast<float>(codes[i]) - zero);
}

void encode_float_row(QuantType type, std::span<const float> row, MutableByteSpan out) noexcept {
  if (type == QuantType::kF32) {
    if (!row.empty()) std::memcpy(out.data(), row.data(), row.size_bytes());
    return;
  }
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::uint16_t bits = type == QuantType::kF16 ? to_f16(row[i]).bits : to_bf16(row[i]).bits;
    store_le(out, 2 * i, bits);
  }
}

void decode_float_row(QuantType type, ByteSpan row, std::span<float> out) noexcept {
  if (type == QuantType::kF32) {
    if (!out.empty()) std::memcpy(out.data(), row.data(), out.size_bytes());
    return;
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto bits = load_le<std::uint16_t>(row, 2 * i);
    out[i] = type == QuantType::kF16 ? to_f32(F16{bits}) : to_f32(BF16{bits});
  }
}

bool f16_holds_exactly(std::span<const float> values) noexcept {
  for (const float value : values) {
    if (bit_cast<std::uint32_t>(to_f32(to_f16(value))) != bit_cast<std::uint32_t>(value)) {
      return false;
    }
  }
  return true;
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
  if (format.type == QuantType::kMxfp4) return encode_mxfp4_row(row, out);
  if (is_trellis_type(format.type)) return encode_trellis_row(format, row, options, out);
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
  TrellisDecoder trellis(format.type);
  for (std::size_t first = 0; first < out.size(); first += format.block) {
    const std::size_t n_true = std::min<std::size_t>(format.block, out.size() - first);
    const std::uint64_t b = first / format.block;
    codec.unpack(row.data() + locate_in_row(format, b).codes, format.block, codes.data());
    if (is_trellis_type(format.type)) trellis.decode(std::span(codes).first(format.block));
    decode_codes(format.type, row_block_scale(format, row, b), codes.data(),
                 out.subspan(first, n_true));
  }
}

Status check_blocks(BlockFormat format, Layout layout, std::uint64_t n_rows, std::uint64_t n_cols,
                    ByteSpan bytes) {
  const std::uint64_t expected = rows_bytes(format, layout, n_rows, n_cols);
  if (!is_valid(format) || bytes.size() != expected) {
    return corrupt("weights: got %zu bytes, expected %" PRIu64, bytes.size(), expected);
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
