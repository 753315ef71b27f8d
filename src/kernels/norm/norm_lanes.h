// SPDX-License-Identifier: MIT
//
// RMS norm and layer norm, written once for every tier. Sums run in sixteen double lanes.

#ifndef QSF_KERNELS_NORM_NORM_LANES_H_
#define QSF_KERNELS_NORM_NORM_LANES_H_

#include "kernels/norm/norm.h"
#include "kernels/reductions.h"

namespace qsf::kernels::QSF_TIER_NAMESPACE::norm {

// Sums (x - offset)^kPower in double.
template <int kPower>
[[gnu::always_inline]] static inline double sum_powers(const float* x, std::uint32_t n_values,
                                                       double offset) noexcept {
  constexpr unsigned kWide = 2 * k16;
  const F64<kWide> offsets = splat_f64<kWide>(offset);
  const auto power = [&offsets](F32<k16> values) QSF_INLINE {
    const F64<kWide> d = widen(values) - offsets;
    if constexpr (kPower == 2) return d * d;
    return d;
  };
  F64<kWide> sums = {};
  std::uint32_t i = 0;
  for (; i + 16 <= n_values; i += 16) sums = sums + power(load<F32<k16>>(x + i));
  if (i == n_values) return sum_lanes(sums);
  // The lanes behind the last value add +0, which changes no sum.
  double rest[16];
  store(rest, power(load_part<k16>(x + i, n_values - i)));
  for (std::uint32_t lane = n_values - i; lane < 16; ++lane) rest[lane] = 0.0;
  return sum_lanes(sums + load<F64<kWide>>(rest));
}

static void rms_norm(const float* x, const float* gain, float* y, std::uint32_t n_values,
                     float eps) noexcept {
  const double mean_square = sum_powers<2>(x, n_values, 0.0) / n_values;
  const F32<k16> factor =
      splat<k16>(static_cast<float>(1.0 / __builtin_sqrt(mean_square + static_cast<double>(eps))));
  if (gain == nullptr) {
    for_blocks<k16>(n_values, [&](auto get, auto put) QSF_INLINE { put(y, get(x) * factor); });
  } else {
    for_blocks<k16>(n_values,
                    [&](auto get, auto put) QSF_INLINE { put(y, get(x) * factor * get(gain)); });
  }
}

static void layer_norm(const float* x, const float* gain, const float* bias, float* y,
                       std::uint32_t n_values, float eps) noexcept {
  constexpr unsigned kWide = 2 * k16;
  const double mean = sum_powers<1>(x, n_values, 0.0) / n_values;
  const double variance = sum_powers<2>(x, n_values, mean) / n_values;
  const F64<kWide> factor =
      splat_f64<kWide>(1.0 / __builtin_sqrt(variance + static_cast<double>(eps)));
  const F64<kWide> means = splat_f64<kWide>(mean);
  // The difference is taken in double: a large mean would eat the digits of small deviations.
  for_blocks<k16>(n_values, [&](auto get, auto put) QSF_INLINE {
    F32<k16> unit = narrow<k16>((widen(get(x)) - means) * factor);
    if (gain != nullptr) unit = unit * get(gain);
    if (bias != nullptr) unit = unit + get(bias);
    put(y, unit);
  });
}

static constexpr NormKernels kNormKernels = {.name = "norm_" QSF_TIER_NAME,
                                             .isa = kTier,
                                             .exactness = Exactness::kBitExact,
                                             .rms_norm = rms_norm,
                                             .layer_norm = layer_norm};

}  // namespace qsf::kernels::QSF_TIER_NAMESPACE::norm

#endif  // QSF_KERNELS_NORM_NORM_LANES_H_
