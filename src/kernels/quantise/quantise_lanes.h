// SPDX-License-Identifier: MIT
//
// Quantisation of activations, written once for every tier.

#ifndef QSF_KERNELS_QUANTISE_QUANTISE_LANES_H_
#define QSF_KERNELS_QUANTISE_QUANTISE_LANES_H_

#include "kernels/quantise/quantise.h"
#include "kernels/vectors.h"

namespace qsf::kernels::QSF_TIER_NAMESPACE {

constexpr float kSmallestMax = 0x1p-100F;

// Quantises 64 values.
[[gnu::always_inline]] static inline void quantise_chunk(const float* x, std::byte* codes,
                                                         std::byte* chunk) noexcept {
  F32<k16> values[4];
  I32<k16> max_bits = {};
#pragma GCC unroll 4
  for (unsigned k = 0; k < 4; ++k) {
    // Magnitudes order as their bits do, and what is not finite comes out above all numbers.
    values[k] = load<F32<k16>>(x + 16 * k);
    max_bits = max_of(max_bits, cast_regs<I32Reg>(abs(values[k])));
  }
  const std::int32_t largest = max_lane(max_bits);
  float max;
  std::memcpy(&max, &largest, sizeof max);

  Int8Chunk out{.scale = 0.0F, .low_sum = 0.0F, .high_sum = 0.0F, .sum = 0.0F};
  const bool finite = largest < 0x7F800000;
  if (!finite || max < kSmallestMax) {
    if (!finite) out.scale = __builtin_nanf("");
    std::memset(codes, 0, kChunkColumns);
    std::memcpy(chunk, &out, sizeof out);
    return;
  }
  out.scale = max / 127.0F;
  const F32<k16> inverse = splat<k16>(127.0F / max);
  I32<k16> code[4];
#pragma GCC unroll 4
  for (unsigned k = 0; k < 4; ++k) {
    code[k] = round_to_i32(values[k] * inverse);
    const U8x16 bytes = to_bytes(code[k]);
    std::memcpy(codes + 16 * k, &bytes, sizeof bytes);
  }
  const std::int32_t low = sum_lanes(code[0] + code[1]);
  const std::int32_t high = sum_lanes(code[2] + code[3]);
  out.low_sum = static_cast<float>(low);
  out.high_sum = static_cast<float>(high);
  out.sum = static_cast<float>(low + high);
  std::memcpy(chunk, &out, sizeof out);
}

static void to_int8(const float* x, std::byte* out, std::uint32_t n_cols) noexcept {
  std::byte* chunks =
      out + ((std::size_t{n_cols} + kChunkColumns - 1) / kChunkColumns) * kChunkColumns;
  std::uint32_t c = 0;
  for (; c + kChunkColumns <= n_cols; c += kChunkColumns, chunks += sizeof(Int8Chunk)) {
    quantise_chunk(x + c, out + c, chunks);
  }
  if (c == n_cols) return;
  float rest[kChunkColumns] = {};
  std::memcpy(rest, x + c, (n_cols - c) * sizeof(float));
  quantise_chunk(rest, out + c, chunks);
}

static constexpr QuantiseKernels kQuantiseKernels = {.name = "quantise_" QSF_TIER_NAME,
                                                     .isa = kTier,
                                                     .exactness = Exactness::kBitExact,
                                                     .to_int8 = to_int8};

}  // namespace qsf::kernels::QSF_TIER_NAMESPACE

#endif  // QSF_KERNELS_QUANTISE_QUANTISE_LANES_H_
