// SPDX-License-Identifier: MIT
//
// Quantised keys and values, written once for every tier. Sums run in sixteen lanes.

#ifndef QSF_KERNELS_KV_ROWS_KV_ROWS_LANES_H_
#define QSF_KERNELS_KV_ROWS_KV_ROWS_LANES_H_

#include <utility>

#include "kernels/kv_rows/kv_rows.h"
#include "kernels/vectors.h"

namespace qsf::kernels::QSF_TIER_NAMESPACE::kv_rows {

[[gnu::always_inline]] static inline float sum_lanes_f32(F32<k16> x) noexcept {
  float lanes[16];
  store(lanes, x);
  for (unsigned apart = 8; apart > 0; apart /= 2) {
    for (unsigned i = 0; i < apart; ++i) lanes[i] += lanes[i + apart];
  }
  return lanes[0];
}

// Packs the low kBits of sixteen bytes into a unit, and back, eight bytes at once.
typedef std::uint64_t U64x2 __attribute__((vector_size(16)));

template <unsigned kBits>
[[gnu::always_inline]] static inline void store_unit(std::byte* unit, I32<k16> codes) noexcept {
  const U8x16 bytes = to_bytes(codes);
  if constexpr (kBits == 8) {
    std::memcpy(unit, &bytes, 16);
  } else {
    const U64x2 half = cast_reg<U64x2>(bytes);
    const std::uint64_t pairs = half[0] | half[1] << 4;
    if constexpr (kBits == 4) {
      std::memcpy(unit, &pairs, 8);
    } else {
      const std::uint32_t fours =
          static_cast<std::uint32_t>(pairs) | static_cast<std::uint32_t>(pairs >> 32) << 2;
      std::memcpy(unit, &fours, 4);
    }
  }
}
template <unsigned kBits>
[[gnu::always_inline]] static inline I32<k16> load_unit(const std::byte* unit) noexcept {
  if constexpr (kBits == 8) {
    U8x16 bytes;
    std::memcpy(&bytes, unit, 16);
    return from_bytes(bytes);
  } else {
    std::uint64_t pairs = 0;
    std::uint64_t mask = 0x0F0F0F0F0F0F0F0FU;
    if constexpr (kBits == 4) {
      std::memcpy(&pairs, unit, 8);
    } else {
      std::uint32_t fours;
      std::memcpy(&fours, unit, 4);
      pairs = std::uint64_t{fours} | std::uint64_t{fours >> 2} << 32;
      mask = 0x0303030303030303U;
    }
    return from_bytes(cast_reg<U8x16>(U64x2{pairs & mask, (pairs >> 4) & mask}));
  }
}

// Codes of sixteen values, 1 / step each.
template <unsigned kBits>
[[gnu::always_inline]] static inline I32<k16> nearest_codes(F32<k16> x, F32<k16> inverse) noexcept {
  constexpr float kTop = kBits == 8 ? 127.0F : kBits == 4 ? 15.0F : 3.0F;
  constexpr float kBottom = kBits == 8 ? -127.0F : 0.0F;
  constexpr float kMiddle = kBits == 8 ? 0.0F : kTop / 2.0F;
  const F32<k16> place = x * inverse + splat<k16>(kMiddle);
  return round_to_i32(max_of(splat<k16>(kBottom), min_of(splat<k16>(kTop), place)));
}

// Fits a scale of 2 bits to the codes that it gives. A scale that f16 rounds to 0 stays.
[[gnu::always_inline]] static inline float fit_scale(const float* x, std::uint32_t n_columns,
                                                     float scale) noexcept {
  if (scale < 0x1p-25F) return scale;
  const F32<k16> inverse = splat<k16>(0.5F / scale);
  F32<k16> products = {};
  F32<k16> squares = {};
  for (std::uint32_t c = 0; c < n_columns; c += kKvUnitColumns) {
    const F32<k16> values = load<F32<k16>>(x + c);
    const I32<k16> codes = nearest_codes<2>(values, inverse);
    const F32<k16> levels = to_f32(codes + codes - cast_regs<I32Reg>(splat_u32<k16>(3)));
    products = products + values * levels;
    squares = squares + levels * levels;
  }
  return sum_lanes_f32(products) / sum_lanes_f32(squares);
}

// The scale of a group, or NaN.
template <unsigned kBits>
[[gnu::always_inline]] static inline float group_scale(const float* x,
                                                       std::uint32_t n_columns) noexcept {
  I32<k16> max_bits = {};
  F32<k16> squares = {};
  for (std::uint32_t c = 0; c < n_columns; c += kKvUnitColumns) {
    const F32<k16> values = load<F32<k16>>(x + c);
    max_bits = max_of(max_bits, cast_regs<I32Reg>(abs(values)));
    if constexpr (kBits == 2) squares = squares + values * values;
  }
  const std::int32_t largest = max_lane(max_bits);
  if (largest >= 0x7F800000) return __builtin_nanf("");
  float max;
  std::memcpy(&max, &largest, sizeof max);
  constexpr float kLargestHalf = 65504.0F;
  float scale = max / (kBits == 8 ? 127.0F : 15.0F);
  if constexpr (kBits == 2) {
    scale = __builtin_sqrtf(sum_lanes_f32(squares) / static_cast<float>(n_columns)) * 0.5F;
    for (unsigned fit = 0; fit < kKvFits; ++fit) {
      scale = fit_scale(x, n_columns, scale < kLargestHalf ? scale : kLargestHalf);
    }
  }
  return scale < kLargestHalf ? scale : kLargestHalf;
}

template <unsigned kBits>
static void quantise_row(const float* x, std::byte* row, const KvRowFormat& format) noexcept {
  std::byte* scales = row + std::size_t{format.head_dim} * kBits / 8;
  for (std::uint32_t first = 0; first < format.head_dim; first += format.group, scales += 2) {
    const float wanted = group_scale<kBits>(x + first, format.group);
    const std::uint16_t half = float_to_half(wanted);
    std::memcpy(scales, &half, sizeof half);
    const float scale = half_to_float(half);
    const bool finite = scale == scale;
    const float step = kBits == 8 ? scale : 2.0F * scale;
    const F32<k16> inverse = splat<k16>(finite && scale > 0.0F ? 1.0F / step : 0.0F);
    for (std::uint32_t c = first; c < first + format.group; c += kKvUnitColumns) {
      const I32<k16> codes = nearest_codes<kBits>(load<F32<k16>>(x + c), inverse);
      store_unit<kBits>(row + std::size_t{c} * kBits / 8, finite ? codes : I32<k16>{});
    }
  }
}

template <unsigned kBits>
static void dequantise_row(const std::byte* row, float* x, const KvRowFormat& format) noexcept {
  constexpr std::uint32_t kTop = kBits == 4 ? 15 : 3;
  const std::byte* scales = row + std::size_t{format.head_dim} * kBits / 8;
  for (std::uint32_t first = 0; first < format.head_dim; first += format.group, scales += 2) {
    std::uint16_t half;
    std::memcpy(&half, scales, sizeof half);
    const F32<k16> scale = splat<k16>(half_to_float(half));
    for (std::uint32_t c = first; c < first + format.group; c += kKvUnitColumns) {
      I32<k16> codes = load_unit<kBits>(row + std::size_t{c} * kBits / 8);
      if constexpr (kBits != 8) {
        codes = codes + codes - cast_regs<I32Reg>(splat_u32<k16>(kTop));
      }
      store(x + c, to_f32(codes) * scale);
    }
  }
}

static void quantise(const float* x, std::byte* row, const KvRowFormat& format) noexcept {
  if (format.bits == 8) return quantise_row<8>(x, row, format);
  if (format.bits == 4) return quantise_row<4>(x, row, format);
  quantise_row<2>(x, row, format);
}
static void dequantise(const std::byte* row, float* x, const KvRowFormat& format) noexcept {
  if (format.bits == 8) return dequantise_row<8>(row, x, format);
  if (format.bits == 4) return dequantise_row<4>(row, x, format);
  dequantise_row<2>(row, x, format);
}

// In each pair of lanes that differ in the bit kApart alone, the lower one gets the sum and the
// upper one the difference.
template <unsigned kApart, std::size_t... kLane>
[[gnu::always_inline]] static inline F32Reg butterfly_reg(F32Reg x,
                                                          std::index_sequence<kLane...>) noexcept {
  const F32Reg partner = __builtin_shufflevector(x, x, (kLane ^ kApart)...);
  const U32Reg sign = {((kLane & kApart) != 0 ? 0x80000000U : 0U)...};
  return partner + cast_reg<F32Reg>(cast_reg<U32Reg>(x) ^ sign);
}
template <unsigned kApart>
[[gnu::always_inline]] static inline F32<k16> butterfly(F32<k16> x) noexcept {
  F32<k16> y;
  if constexpr (kApart < kRegLanes) {
    QSF_EACH_REG(i, k16) {
      y.r[i] = butterfly_reg<kApart>(x.r[i], std::make_index_sequence<kRegLanes>());
    }
  } else {
    constexpr unsigned kRegsApart = kApart / kRegLanes;
    QSF_EACH_REG(i, k16) {
      y.r[i] = (i & kRegsApart) == 0 ? x.r[i] + x.r[i | kRegsApart] : x.r[i & ~kRegsApart] - x.r[i];
    }
  }
  return y;
}

static void rotate(float* x, std::uint32_t head_dim) noexcept {
  const std::uint32_t block = head_dim & (~head_dim + 1U);
  const F32<k16> factor = splat<k16>(1.0F / __builtin_sqrtf(static_cast<float>(block)));
  for (std::uint32_t c = 0; c < head_dim; c += 16) {
    F32<k16> values = load<F32<k16>>(x + c) * factor;
    values = butterfly<1>(values);
    values = butterfly<2>(values);
    values = butterfly<4>(values);
    store(x + c, butterfly<8>(values));
  }
  for (std::uint32_t apart = 16; apart < block; apart *= 2) {
    for (std::uint32_t first = 0; first < head_dim; first += 2 * apart) {
      for (std::uint32_t c = first; c < first + apart; c += 16) {
        const F32<k16> low = load<F32<k16>>(x + c);
        const F32<k16> high = load<F32<k16>>(x + c + apart);
        store(x + c, low + high);
        store(x + c + apart, low - high);
      }
    }
  }
}

static constexpr KvRowKernels kKvRowKernels = {.name = "kv_rows_" QSF_TIER_NAME,
                                               .isa = kTier,
                                               .exactness = Exactness::kBitExact,
                                               .quantise = quantise,
                                               .dequantise = dequantise,
                                               .rotate = rotate};

}  // namespace qsf::kernels::QSF_TIER_NAMESPACE::kv_rows

#endif  // QSF_KERNELS_KV_ROWS_KV_ROWS_LANES_H_
