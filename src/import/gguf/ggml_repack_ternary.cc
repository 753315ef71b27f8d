// SPDX-License-Identifier: MIT
//
// Codes are taken from the decoded weights, which are exact multiples of the scale, so that there
// is one reading of each type's order of bytes.

#include "import/gguf/ggml_repack.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <span>

#include "import/gguf/ggml_decode.h"
#include "quant/bit_pack.h"
#include "quant/ternary.h"
#include "quant/types.h"

namespace qsf {
namespace {

constexpr std::uint32_t kTqBlock = 256;
constexpr std::uint32_t kBnBlock = 64;

// Turns weights of -scale, 0 and scale into codes.
Status take_codes(std::span<const float> weights, float scale, std::uint64_t block,
                  std::uint8_t* codes) {
  if (!std::isfinite(scale)) {
    return corrupt("block %" PRIu64 ": a scale that is not finite; the file is damaged", block);
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float w = weights[i];
    if (w != 0.0F && w != scale && w != -scale) {
      return unsupported("block %" PRIu64
                         ": a code of 3, which ternary weights do not have; convert to 8bit or f32",
                         block);
    }
    codes[i] = w == 0.0F ? 1 : w == scale ? 2 : 0;
  }
  return ok_status();
}

// Blocks of 256 with an f16 scale behind their codes.
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

// Blocks of 64 behind the `header` bytes of the row's scale.
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
    pack_2bit(codes, kBnBlock, out.data() + locate_in_row(kTo, b).codes);
  }
  return ok_status();
}

}  // namespace

Status repack_ggml_tq1_0(ByteSpan row, MutableByteSpan out) {
  return repack_tq(decode_ggml_tq1_0, 54, row, out);
}
Status repack_ggml_tq2_0(ByteSpan row, MutableByteSpan out) {
  return repack_tq(decode_ggml_tq2_0, 66, row, out);
}
Status repack_ggml_iq1_bn(ByteSpan row, MutableByteSpan out) {
  return repack_bn(decode_ggml_iq1_bn, 2, 13, ggml_half(row, 0), row, out);
}
Status repack_ggml_iq2_bn(ByteSpan row, MutableByteSpan out) {
  return repack_bn(decode_ggml_iq2_bn, 4, 16, load_le<float>(row, 0), row, out);
}

}  // namespace qsf
