// SPDX-License-Identifier: MIT
//
// Repacks rows of GGUF types into QSF types that hold the same numbers.
// docs/decisions/018-gguf-types.md lists the pairs and their sizes.

#include "import/gguf/ggml_repack.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstring>
#include <span>

#include "base/check.h"
#include "import/gguf/ggml_decode.h"
#include "import/gguf/ggml_types.h"
#include "quant/block_format.h"
#include "quant/code_packing.h"
#include "quant/codebook_block.h"
#include "quant/codec.h"
#include "quant/ternary.h"

namespace qsf {

namespace {

// Repacks one block, whose index serves messages.
using Repack = Status (*)(ByteSpan block, std::uint64_t index, MutableByteSpan out);

struct Kept {
  GgmlType type;
  BlockFormat format;
  Repack repack;  // null: the bytes are the same, or the row has another order
  Status (*repack_row)(ByteSpan row, MutableByteSpan out) = nullptr;
};

Status not_finite(std::uint64_t index) {
  return corrupt("block %" PRIu64 ": the scale is not finite; the file is damaged", index);
}

bool is_finite(F16 value) noexcept {
  return (value.bits & 0x7C00U) != 0x7C00U;
}

F16 negated(F16 value) noexcept {
  return {static_cast<std::uint16_t>(value.bits ^ 0x8000U)};
}

// d * (q - 8) = d * q + (-8 d): the nibbles stay where they are.
Status repack_q4_0(ByteSpan block, std::uint64_t index, MutableByteSpan out) {
  const auto d = load_le<F16>(block, 0);
  if (!is_finite(d)) return not_finite(index);
  const F16 min = to_f16(-8.0F * to_f32(d));
  if (!is_finite(min)) {
    return unsupported("block %" PRIu64
                       ": the scale %g times -8 exceeds f16; convert to 8bit or f32",
                       index, static_cast<double>(to_f32(d)));
  }
  store_le(out, 0, d);
  store_le(out, 2, min);
  std::memcpy(out.data() + 4, block.data() + 2, 16);
  return ok_status();
}

// d * q + m is the formula of 4-bit blocks, and the bytes are the same.
Status repack_q4_1(ByteSpan block, std::uint64_t index, MutableByteSpan out) {
  if (!is_finite(load_le<F16>(block, 0)) || !is_finite(load_le<F16>(block, 2))) {
    return not_finite(index);
  }
  std::memcpy(out.data(), block.data(), 20);
  return ok_status();
}

Status repack_q8_0(ByteSpan block, std::uint64_t index, MutableByteSpan out) {
  if (!is_finite(load_le<F16>(block, 0))) return not_finite(index);
  for (unsigned j = 0; j < 32; ++j) {
    if (ggml_byte(block, 2 + j) == 0x80U) {
      return unsupported("block %" PRIu64
                         ": the code -128 does not exist in 8-bit blocks; convert to 8bit, f16 "
                         "or f32",
                         index);
    }
  }
  std::memcpy(out.data(), block.data(), 34);
  return ok_status();
}

// 5-bit codes are stored as 8-bit codes.
Status repack_q5_0(ByteSpan block, std::uint64_t index, MutableByteSpan out) {
  const auto d = load_le<F16>(block, 0);
  if (!is_finite(d)) return not_finite(index);
  store_le(out, 0, d);
  const auto high = load_le<std::uint32_t>(block, 2);
  for (unsigned j = 0; j < 16; ++j) {
    const Nibbles q = ggml_nibbles(block, 6 + j);
    out[2 + j] = static_cast<std::byte>((q.low | (high >> j & 1U) << 4U) - 16U);
    out[18 + j] = static_cast<std::byte>((q.high | (high >> (j + 16) & 1U) << 4U) - 16U);
  }
  return ok_status();
}

// Puts the levels that 16 bytes of nibbles choose where 8-bit blocks have their codes.
void put_levels(const std::int8_t (&levels)[16], ByteSpan nibbles, MutableByteSpan out) noexcept {
  for (unsigned j = 0; j < 16; ++j) {
    const Nibbles q = ggml_nibbles(nibbles, j);
    out[2 + j] = static_cast<std::byte>(levels[q.low]);
    out[18 + j] = static_cast<std::byte>(levels[q.high]);
  }
}

Status repack_iq4_nl(ByteSpan block, std::uint64_t index, MutableByteSpan out) {
  const auto d = load_le<F16>(block, 0);
  if (!is_finite(d)) return not_finite(index);
  store_le(out, 0, d);
  put_levels(kIq4Levels, block.subspan(2), out);
  return ok_status();
}

// Codes of one super-block, each sub-block packed as the type packs its own.
void put_codes(BlockFormat format, const std::uint8_t* codes, MutableByteSpan out) noexcept {
  for (std::uint32_t sub = 0; sub < kSuperColumns / format.block; ++sub) {
    block_codec(format.type)
        .pack(codes + std::size_t{sub} * format.block, format.block, format.block,
              out.data() + locate_in_row(format, sub).codes);
  }
}

// (d * scale) * q - dmin * min of Q4_K and Q5_K: dmin changes its sign. Of 8 sub-blocks a byte of
// low bits each, then a word of high bits.
Status put_super_fields(ByteSpan block, std::uint64_t index, MutableByteSpan out) {
  const auto d = load_le<F16>(block, 0);
  const auto dmin = load_le<F16>(block, 2);
  if (!is_finite(d) || !is_finite(dmin)) return not_finite(index);
  store_le(out, 0, d);
  store_le(out, 2, negated(dmin));
  std::uint32_t high = 0;
  for (unsigned k = 0; k < 8; ++k) {
    const KScaleMin fields = ggml_k_scale_min(block.subspan(4, 12), k);
    out[4 + k] = static_cast<std::byte>((fields.scale & 15U) | (fields.min & 15U) << 4U);
    high |= (fields.scale >> 4U | (fields.min >> 4U) << 2U) << (4 * k);
  }
  store_le(out, 12, high);
  return ok_status();
}

Status repack_q4_k(ByteSpan block, std::uint64_t index, MutableByteSpan out) {
  QSF_RETURN_IF_ERROR(put_super_fields(block, index, out));
  std::uint8_t codes[kSuperColumns];
  ggml_q4_k_codes(block, codes);
  put_codes({QuantType::kQ4Super, 32}, codes, out);
  return ok_status();
}

// The same formula with fields of 4 bits; a byte of both is what we have as well.
Status repack_q2_k(ByteSpan block, std::uint64_t index, MutableByteSpan out) {
  const auto d = load_le<F16>(block, 80);
  const auto dmin = load_le<F16>(block, 82);
  if (!is_finite(d) || !is_finite(dmin)) return not_finite(index);
  store_le(out, 0, d);
  store_le(out, 2, negated(dmin));
  std::memcpy(out.data() + 4, block.data(), 16);
  std::uint8_t codes[kSuperColumns];
  ggml_q2_k_codes(block, codes);
  put_codes({QuantType::kQ2K, 16}, codes, out);
  return ok_status();
}

Status repack_q3_k(ByteSpan block, std::uint64_t index, MutableByteSpan out) {
  const auto d = load_le<F16>(block, 108);
  if (!is_finite(d)) return not_finite(index);
  store_le(out, 0, d);
  for (unsigned sub = 0; sub < 16; ++sub) {
    out[2 + sub] = static_cast<std::byte>(ggml_q3_k_scale(block, sub));
  }
  std::uint8_t codes[kSuperColumns];
  ggml_q3_k_codes(block, codes);
  put_codes({QuantType::kQ3K, 16}, codes, out);
  return ok_status();
}

Status repack_q5_k(ByteSpan block, std::uint64_t index, MutableByteSpan out) {
  QSF_RETURN_IF_ERROR(put_super_fields(block, index, out));
  std::uint8_t codes[kSuperColumns];
  ggml_q5_k_codes(block, codes);
  put_codes({QuantType::kQ5K, 32}, codes, out);
  return ok_status();
}

Status repack_q6_k(ByteSpan block, std::uint64_t index, MutableByteSpan out) {
  const auto d = load_le<F16>(block, 208);
  if (!is_finite(d)) return not_finite(index);
  store_le(out, 0, d);
  std::memcpy(out.data() + 2, block.data() + 192, 16);
  std::uint8_t codes[kSuperColumns];
  ggml_q6_k_codes(block, codes);
  put_codes({QuantType::kQ6K, 16}, codes, out);
  return ok_status();
}

// The nibbles stay where they are; scales of 6 bits are those less 32.
Status repack_iq4_xs(ByteSpan block, std::uint64_t index, MutableByteSpan out) {
  const auto d = load_le<F16>(block, 0);
  if (!is_finite(d)) return not_finite(index);
  constexpr BlockFormat kFormat = block_format(QuantType::kQ4Codebook, 0);
  std::array<int, 8> scales;
  for (unsigned sub = 0; sub < 8; ++sub) scales[sub] = ggml_iq4_xs_scale(block, sub);
  store_le(out, 0, d);
  put_codebook_scales(kFormat, scales, out);
  std::memcpy(out.data() + field_bytes(kFormat), block.data() + 8, 128);
  return ok_status();
}

// Ternary types, with a scale for every 256 columns or for a row. Codes are taken from the decoded
// weights, which are exact multiples of the scale, so that each type's order of bytes is read in
// one place.

constexpr std::uint32_t kTqBlock = 256;
constexpr std::uint32_t kBnBlock = 64;

// Turns weights of -scale, 0 and scale into codes.
Status take_codes(std::span<const float> weights, float scale, std::uint64_t block,
                  std::uint8_t* codes) {
  if (!std::isfinite(scale)) {
    return corrupt("block %" PRIu64 ": the scale is not finite; the file is damaged", block);
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float w = weights[i];
    if (w != 0.0F && w != scale && w != -scale) {
      return unsupported("block %" PRIu64
                         ": the code 3 does not exist in ternary types; convert to 8bit or f32",
                         block);
    }
    codes[i] = w == 0.0F ? 1 : w == scale ? 2 : 0;
  }
  return ok_status();
}

// Blocks of 256: codes, then an f16 scale.
Status repack_tq(GgmlRowDecoder decode, std::size_t block_bytes, ByteSpan row,
                 MutableByteSpan out) {
  constexpr std::size_t kOutBytes = qsf::block_bytes({QuantType::kTernary, kTqBlock});
  for (std::uint64_t b = 0; b < row.size() / block_bytes; ++b) {
    const ByteSpan block = row.subspan(b * block_bytes, block_bytes);
    const MutableByteSpan to = out.subspan(b * kOutBytes, kOutBytes);
    const auto scale = load_le<F16>(block, block_bytes - 2);
    float weights[kTqBlock];
    std::uint8_t codes[kTqBlock];
    decode(block, std::span<float>(weights));
    QSF_RETURN_IF_ERROR(take_codes(weights, to_f32(scale), b, codes));
    store_le(to, 0, scale);
    pack_ternary(codes, kTqBlock, kTqBlock, to.data() + 2);
  }
  return ok_status();
}

// Blocks of 64 after the `header` bytes of the row's scale.
Status repack_bn(GgmlRowDecoder decode, std::size_t header, std::size_t block_bytes, float scale,
                 ByteSpan row, MutableByteSpan out) {
  constexpr BlockFormat kTo = block_format(QuantType::kTernaryRow, 0);
  static_assert(kTo.block == kBnBlock);
  std::byte one[4 + 16];  // a row of one block
  std::copy_n(row.begin(), header, one);
  store_le(out, 0, scale);
  for (std::uint64_t b = 0; b < (row.size() - header) / block_bytes; ++b) {
    const ByteSpan block = row.subspan(header + b * block_bytes, block_bytes);
    std::copy(block.begin(), block.end(), one + header);
    float weights[kBnBlock];
    std::uint8_t codes[kBnBlock];
    decode(ByteSpan(one, header + block_bytes), std::span<float>(weights));
    QSF_RETURN_IF_ERROR(take_codes(weights, scale, b, codes));
    pack_2bit(codes, kBnBlock, kBnBlock, out.data() + locate_in_row(kTo, b).codes);
  }
  return ok_status();
}

Status repack_tq1_0(ByteSpan row, MutableByteSpan out) {
  return repack_tq(decode_ggml_tq1_0, 54, row, out);
}
Status repack_tq2_0(ByteSpan row, MutableByteSpan out) {
  return repack_tq(decode_ggml_tq2_0, 66, row, out);
}
Status repack_iq1_bn(ByteSpan row, MutableByteSpan out) {
  return repack_bn(decode_ggml_iq1_bn, 2, 13, ggml_half(row, 0), row, out);
}
Status repack_iq2_bn(ByteSpan row, MutableByteSpan out) {
  return repack_bn(decode_ggml_iq2_bn, 4, 16, load_le<float>(row, 0), row, out);
}

constexpr Kept kKept[] = {
    {GgmlType::kF32, block_format(QuantType::kF32, 0), nullptr},
    {GgmlType::kF16, block_format(QuantType::kF16, 0), nullptr},
    {GgmlType::kBF16, block_format(QuantType::kBF16, 0), nullptr},
    {GgmlType::kQ4_0, {QuantType::kQ4, 32}, repack_q4_0},
    {GgmlType::kQ4_1, {QuantType::kQ4, 32}, repack_q4_1},
    {GgmlType::kQ5_0, {QuantType::kQ8, 32}, repack_q5_0},
    {GgmlType::kQ8_0, {QuantType::kQ8, 32}, repack_q8_0},
    {GgmlType::kQ2K, {QuantType::kQ2K, 16}, repack_q2_k},
    {GgmlType::kQ3K, {QuantType::kQ3K, 16}, repack_q3_k},
    {GgmlType::kQ4K, {QuantType::kQ4Super, 32}, repack_q4_k},
    {GgmlType::kQ5K, {QuantType::kQ5K, 32}, repack_q5_k},
    {GgmlType::kQ6K, {QuantType::kQ6K, 16}, repack_q6_k},
    {GgmlType::kIQ4NL, {QuantType::kQ8, 32}, repack_iq4_nl},
    {GgmlType::kIQ4XS, block_format(QuantType::kQ4Codebook, 0), repack_iq4_xs},
    {GgmlType::kMXFP4, block_format(QuantType::kMxfp4, 0), nullptr},
    {GgmlType::kTQ1_0, {QuantType::kTernary, 256}, nullptr, repack_tq1_0},
    {GgmlType::kTQ2_0, {QuantType::kTernary, 256}, nullptr, repack_tq2_0},
    {GgmlType::kIQ1BN, block_format(QuantType::kTernaryRow, 0), nullptr, repack_iq1_bn},
    {GgmlType::kIQ2BN, block_format(QuantType::kTernaryRow, 0), nullptr, repack_iq2_bn},
};

const Kept* find_kept(std::uint32_t type) noexcept {
  for (const Kept& kept : kKept) {
    if (static_cast<std::uint32_t>(kept.type) == type) return &kept;
  }
  return nullptr;
}

}  // namespace

std::optional<BlockFormat> kept_format(std::uint32_t type) noexcept {
  const Kept* kept = find_kept(type);
  return kept == nullptr ? std::nullopt : std::optional(kept->format);
}

Status repack_ggml_row(std::uint32_t type, ByteSpan row, std::uint32_t n_cols,
                       MutableByteSpan out) {
  const Kept* kept = find_kept(type);
  QSF_CHECK(kept != nullptr && ggml_row_bytes(type, n_cols) == row.size() &&
            row_major_bytes(kept->format, n_cols) == out.size());
  if (kept->repack_row != nullptr) return kept->repack_row(row, out);
  if (kept->repack == nullptr) {
    QSF_RETURN_IF_ERROR(check_blocks(kept->format, Layout::kRowMajor, 1, n_cols, row));
    std::copy(row.begin(), row.end(), out.begin());
    return ok_status();
  }
  const GgmlTypeInfo info = *ggml_type_info(type);
  const std::uint64_t n_blocks = n_cols / info.block_elements;
  const std::uint64_t out_bytes = row_major_bytes(kept->format, info.block_elements);
  for (std::uint64_t b = 0; b < n_blocks; ++b) {
    QSF_RETURN_IF_ERROR(kept->repack(row.subspan(b * info.block_bytes, info.block_bytes), b,
                                     out.subspan(b * out_bytes, out_bytes)));
  }
  return ok_status();
}

}  // namespace qsf
