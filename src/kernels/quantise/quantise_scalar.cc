// SPDX-License-Identifier: MIT
//
// Quantisation of activations, scalar tier.

#include <cstring>

#include "kernels/lanes.h"
#include "kernels/quantise/quantise.h"
#include "kernels/variants_scalar.h"

namespace qsf::kernels {
namespace {

using namespace lanes;

constexpr float kSmallestMax = 0x1p-100F;
constexpr float kRoundingMagic = 0x1.8p23F;  // adding it rounds to an integer, ties to even

// Quantises 64 values.
void quantise_chunk(const float* x, std::byte* codes, std::byte* chunk) noexcept {
  u32x4 max_bits = splat_u32(0);
  for (std::uint32_t c = 0; c < kChunkColumns; c += 4) {
    // Magnitudes order as their bits do, and what is not finite comes out above all numbers.
    const u32x4 bits = bits_of(abs(load<f32x4>(x + c)));
    max_bits = select_bits(reinterpret_cast<i32x4>(bits > max_bits), bits, max_bits);
  }
  std::uint32_t largest = max_bits[0];
  for (unsigned i = 1; i < 4; ++i) largest = max_bits[i] > largest ? max_bits[i] : largest;
  float max;
  std::memcpy(&max, &largest, sizeof(max));

  Int8Chunk out{.scale = 0.0F, .low_sum = 0.0F, .high_sum = 0.0F, .sum = 0.0F};
  const bool finite = largest < 0x7F800000U;
  if (!finite || max < kSmallestMax) {
    if (!finite) out.scale = __builtin_nanf("");
    std::memset(codes, 0, kChunkColumns);
    std::memcpy(chunk, &out, sizeof(out));
    return;
  }
  out.scale = max / 127.0F;
  const float inverse = 127.0F / max;
  std::int32_t sums[2] = {0, 0};
  for (std::uint32_t c = 0; c < kChunkColumns; c += 4) {
    const f32x4 shifted = load<f32x4>(x + c) * inverse + kRoundingMagic;
    const u32x4 code = bits_of(shifted) - bits_of(splat(kRoundingMagic));
    for (unsigned i = 0; i < 4; ++i) {
      codes[c + i] = static_cast<std::byte>(code[i]);
      sums[c / 32] += static_cast<std::int32_t>(code[i]);
    }
  }
  out.low_sum = static_cast<float>(sums[0]);
  out.high_sum = static_cast<float>(sums[1]);
  out.sum = static_cast<float>(sums[0] + sums[1]);
  std::memcpy(chunk, &out, sizeof(out));
}

}  // namespace

void to_int8_scalar(const float* x, std::byte* out, std::uint32_t n_cols) noexcept {
  std::byte* chunks = out + int8_chunks_offset(n_cols);
  std::uint32_t c = 0;
  for (; c + kChunkColumns <= n_cols; c += kChunkColumns, chunks += sizeof(Int8Chunk)) {
    quantise_chunk(x + c, out + c, chunks);
  }
  if (c == n_cols) return;
  float rest[kChunkColumns] = {};
  std::memcpy(rest, x + c, (n_cols - c) * sizeof(float));
  quantise_chunk(rest, out + c, chunks);
}

}  // namespace qsf::kernels
