// SPDX-License-Identifier: MIT
//
// Quantisation of activations, written once for every tier.

#ifndef QSF_KERNELS_QUANTISE_QUANTISE_LANES_H_
#define QSF_KERNELS_QUANTISE_QUANTISE_LANES_H_

#include <cstddef>
#include <cstring>

#include "kernels/quantise/quantise.h"
#include "kernels/vectors.h"

namespace qsf::kernels::QSF_TIER_NAMESPACE::quantise {

constexpr float kSmallestMax = 0x1p-100F;
constexpr float kSmallestRowMax = 1e-5F;
constexpr std::int32_t kInfinityBits = 0x7F800000;

// 64 values.
struct Values64 {
  F32<k16> lanes[4];

  [[gnu::always_inline]] static inline Values64 load_from(const float* x) noexcept {
    Values64 values;
#pragma GCC unroll 4
    for (unsigned k = 0; k < 4; ++k) values.lanes[k] = load<F32<k16>>(x + 16 * k);
    return values;
  }
  // Magnitudes order as their bits do, and what is not finite comes out above all numbers.
  [[gnu::always_inline]] inline I32<k16> max_bits(I32<k16> before) const noexcept {
#pragma GCC unroll 4
    for (unsigned k = 0; k < 4; ++k) {
      before = max_of(before, cast_regs<I32Reg>(abs(lanes[k])));
    }
    return before;
  }
};

[[gnu::always_inline]] static inline float magnitude_of(std::int32_t bits) noexcept {
  float magnitude;
  std::memcpy(&magnitude, &bits, sizeof magnitude);
  return magnitude;
}

// Stores one field of an Int8Block.
//
// Fields go to the row one by one. An activation block that is put together on the stack is read
// back wider than it was written, and such a read waits until every store before it has left the
// core; those to the row wait in turn for lines that other cores have read.
template <typename Value>
[[gnu::always_inline]] static inline void store_field(std::byte* x_block, std::size_t offset,
                                                      Value value) noexcept {
  std::memcpy(x_block + offset, &value, sizeof value);
}

// Stores the codes of 64 values, their sums and the scale.
[[gnu::always_inline]] static inline void store_block64(const Values64& values, float inverse,
                                                        float scale, std::byte* codes,
                                                        std::byte* x_block) noexcept {
  float sums[4];
#pragma GCC unroll 4
  for (unsigned k = 0; k < 4; ++k) {
    const I32<k16> code = round_to_i32(values.lanes[k] * splat<k16>(inverse));
    const U8x16 bytes = to_bytes(code);
    std::memcpy(codes + 16 * k, &bytes, sizeof bytes);
    const std::int32_t sum = sum_lanes(code);
    sums[k] = static_cast<float>(sum);
    const std::size_t place = quarter_place(k) * sizeof(std::int16_t);
    store_field(x_block, offsetof(Int8Block, quarter_sums) + place, static_cast<std::int16_t>(sum));
    store_field(x_block, offsetof(Int8Block, quarter_zeros) + place,
                static_cast<std::int16_t>(-4 * sum));
  }
  // Whole numbers far below 2^24: no sum is rounded.
  const float low = sums[0] + sums[1];
  const float high = sums[2] + sums[3];
  store_field(x_block, offsetof(Int8Block, scale), scale);
  store_field(x_block, offsetof(Int8Block, low_sum), low);
  store_field(x_block, offsetof(Int8Block, high_sum), high);
  store_field(x_block, offsetof(Int8Block, sum), low + high);
}

// Quantises 64 values.
[[gnu::always_inline]] static inline void quantise_block(const float* x, std::byte* codes,
                                                         std::byte* x_block) noexcept {
  const Values64 values = Values64::load_from(x);
  const std::int32_t largest = max_lane(values.max_bits(I32<k16>{}));
  const float max = magnitude_of(largest);
  const bool finite = largest < kInfinityBits;
  if (!finite || max < kSmallestMax) {
    std::memset(codes, 0, kActivationBlockColumns);
    std::memset(x_block, 0, sizeof(Int8Block));
    if (!finite) store_field(x_block, offsetof(Int8Block, scale), __builtin_nanf(""));
    return;
  }
  store_block64(values, 127.0F / max, max / 127.0F, codes, x_block);
}

static void to_int8(const float* x, std::byte* out, std::uint32_t n_cols) noexcept {
  std::byte* x_blocks =
      out + ((std::size_t{n_cols} + kActivationBlockColumns - 1) / kActivationBlockColumns) *
                kActivationBlockColumns;
  std::uint32_t c = 0;
  for (; c + kActivationBlockColumns <= n_cols;
       c += kActivationBlockColumns, x_blocks += sizeof(Int8Block)) {
    quantise_block(x + c, out + c, x_blocks);
  }
  if (c == n_cols) return;
  float rest[kActivationBlockColumns] = {};
  std::memcpy(rest, x + c, (n_cols - c) * sizeof(float));
  quantise_block(rest, out + c, x_blocks);
}

// Calls visit(values, first column) for every 64 values, zeros behind the last.
template <typename Visit>
[[gnu::always_inline]] static inline void for_block64(const float* x, std::uint32_t n_cols,
                                                      const Visit& visit) noexcept {
  std::uint32_t c = 0;
  for (; c + kActivationBlockColumns <= n_cols; c += kActivationBlockColumns)
    visit(Values64::load_from(x + c), c);
  if (c == n_cols) return;
  float rest[kActivationBlockColumns] = {};
  std::memcpy(rest, x + c, (n_cols - c) * sizeof(float));
  visit(Values64::load_from(rest), c);
}

static float row_to_int8(const float* x, std::byte* out, std::uint32_t n_cols) noexcept {
  I32<k16> max_bits = {};
  for_block64(x, n_cols, [&](const Values64& values, std::uint32_t) QSF_INLINE {
    max_bits = values.max_bits(max_bits);
  });
  const std::int32_t largest = max_lane(max_bits);
  const bool finite = largest < kInfinityBits;
  float max = magnitude_of(largest);
  if (!(max > kSmallestRowMax)) max = kSmallestRowMax;
  std::byte* const x_blocks =
      out + ((std::size_t{n_cols} + kActivationBlockColumns - 1) / kActivationBlockColumns) *
                kActivationBlockColumns;
  for_block64(x, n_cols, [&](const Values64& values, std::uint32_t c) QSF_INLINE {
    // Only finite values are converted to integers.
    store_block64(finite ? values : Values64{}, 127.0F / max, 1.0F, out + c,
                  x_blocks + c / kActivationBlockColumns * sizeof(Int8Block));
  });
  return finite ? max / 127.0F : __builtin_nanf("");
}

static constexpr QuantiseKernels kQuantiseKernels = {.name = "quantise_" QSF_TIER_NAME,
                                                     .isa = kTier,
                                                     .exactness = Exactness::kBitExact,
                                                     .to_int8 = to_int8,
                                                     .row_to_int8 = row_to_int8};

}  // namespace qsf::kernels::QSF_TIER_NAMESPACE::quantise

#endif  // QSF_KERNELS_QUANTISE_QUANTISE_LANES_H_
