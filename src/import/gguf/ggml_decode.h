// SPDX-License-Identifier: MIT
//
// Row decoders of the GGUF tensor types, used by decode_ggml_row(), and the fields of blocks that
// repacking reads as well.
//
// Products are evaluated in ggml's order, so results round as ggml's do.

#ifndef QSF_IMPORT_GGUF_GGML_DECODE_H_
#define QSF_IMPORT_GGUF_GGML_DECODE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/f16.h"
#include "quant/weight_types.h"

namespace qsf {

// Decodes one row. Shapes  row, the whole row; out [n_cols]
using GgmlRowDecoder = void (*)(ByteSpan row, std::span<float> out) noexcept;

// Floats, and blocks of 32 with one scale each.
void decode_ggml_f32(ByteSpan row, std::span<float> out) noexcept;
void decode_ggml_f16(ByteSpan row, std::span<float> out) noexcept;
void decode_ggml_bf16(ByteSpan row, std::span<float> out) noexcept;
void decode_ggml_f64(ByteSpan row, std::span<float> out) noexcept;
void decode_ggml_q4_0(ByteSpan row, std::span<float> out) noexcept;
void decode_ggml_q4_1(ByteSpan row, std::span<float> out) noexcept;
void decode_ggml_q5_0(ByteSpan row, std::span<float> out) noexcept;
void decode_ggml_q5_1(ByteSpan row, std::span<float> out) noexcept;
void decode_ggml_q8_0(ByteSpan row, std::span<float> out) noexcept;
void decode_ggml_iq4_nl(ByteSpan row, std::span<float> out) noexcept;
void decode_ggml_mxfp4(ByteSpan row, std::span<float> out) noexcept;

// K-quants and IQ4_XS: super-blocks of 256.
void decode_ggml_q2_k(ByteSpan row, std::span<float> out) noexcept;
void decode_ggml_q3_k(ByteSpan row, std::span<float> out) noexcept;
void decode_ggml_q4_k(ByteSpan row, std::span<float> out) noexcept;
void decode_ggml_q5_k(ByteSpan row, std::span<float> out) noexcept;
void decode_ggml_q6_k(ByteSpan row, std::span<float> out) noexcept;
void decode_ggml_q8_k(ByteSpan row, std::span<float> out) noexcept;
void decode_ggml_iq4_xs(ByteSpan row, std::span<float> out) noexcept;

// Ternary types.
void decode_ggml_tq1_0(ByteSpan row, std::span<float> out) noexcept;
void decode_ggml_tq2_0(ByteSpan row, std::span<float> out) noexcept;
void decode_ggml_iq1_bn(ByteSpan row, std::span<float> out) noexcept;
void decode_ggml_iq2_bn(ByteSpan row, std::span<float> out) noexcept;

// Levels of the 4-bit codes of IQ4_NL and IQ4_XS.
inline constexpr auto& kIq4Levels = kCodebook4Levels;

// Fields of blocks.
inline float ggml_half(ByteSpan bytes, std::size_t offset) noexcept {
  return to_f32(load_le<F16>(bytes, offset));
}
inline unsigned ggml_byte(ByteSpan bytes, std::size_t offset) noexcept {
  return static_cast<unsigned>(bytes[offset]);
}

// Bits 0-3 and 4-7 of a byte.
struct Nibbles {
  unsigned low;
  unsigned high;
};
inline Nibbles ggml_nibbles(ByteSpan bytes, std::size_t offset) noexcept {
  const unsigned byte = ggml_byte(bytes, offset);
  return {byte & 15U, byte >> 4U};
}

// The 6-bit scale and min of sub-block k = 0 .. 7 of Q4_K and Q5_K. `scales` has 12 bytes: of the
// first four sub-blocks bits 0-5 of bytes k and k + 4, of the last four the nibbles of byte k + 4
// below bits 6-7 of bytes k - 4 and k.
struct KScaleMin {
  unsigned scale;
  unsigned min;
};
inline KScaleMin ggml_k_scale_min(ByteSpan scales, unsigned k) noexcept {
  if (k < 4) return {ggml_byte(scales, k) & 63U, ggml_byte(scales, k + 4) & 63U};
  const Nibbles low = ggml_nibbles(scales, k + 4);
  return {low.low | (ggml_byte(scales, k - 4) >> 6U) << 4U, low.high | (ggml_byte(scales, k) >> 6U)
                                                                           << 4U};
}

// The codes of one super-block in the order of its columns.
// Shapes  block, one block of the type; codes [256]
void ggml_q2_k_codes(ByteSpan block, std::uint8_t* codes) noexcept;
void ggml_q3_k_codes(ByteSpan block, std::uint8_t* codes) noexcept;
void ggml_q4_k_codes(ByteSpan block, std::uint8_t* codes) noexcept;
void ggml_q5_k_codes(ByteSpan block, std::uint8_t* codes) noexcept;
void ggml_q6_k_codes(ByteSpan block, std::uint8_t* codes) noexcept;
// Returns the scale of sub-block 0 .. 15 of Q3_K, -32 to 31.
int ggml_q3_k_scale(ByteSpan block, unsigned sub) noexcept;
// Returns the scale of sub-block 0 .. 7 of IQ4_XS, -32 to 31.
int ggml_iq4_xs_scale(ByteSpan block, unsigned sub) noexcept;

// Calls decode(block, out) for each block of a row.
template <std::size_t kElements, std::size_t kBytes, typename Decode>
void for_each_ggml_block(ByteSpan row, std::span<float> out, Decode decode) noexcept {
  for (std::size_t first = 0, at = 0; first < out.size(); first += kElements, at += kBytes) {
    decode(row.subspan(at, kBytes), out.data() + first);
  }
}

}  // namespace qsf

#endif  // QSF_IMPORT_GGUF_GGML_DECODE_H_
