// SPDX-License-Identifier: MIT
//
// Angles, and rotation of pairs half a head apart, written once for every tier.

#ifndef QSF_KERNELS_ROPE_ROPE_LANES_H_
#define QSF_KERNELS_ROPE_ROPE_LANES_H_

#include "kernels/math/math_vectors.h"
#include "kernels/rope/rope.h"

namespace qsf::kernels::QSF_TIER_NAMESPACE::rope {

static void rope_angles(std::uint32_t position, const float* inv_freq, std::uint32_t n_pairs,
                        float* cos, float* sin) noexcept {
  const F32<1> at = splat<1>(static_cast<float>(position));
  for_blocks<1>(n_pairs, [&](auto get, auto put) QSF_INLINE {
    const SinCos<1> pair = sin_cos(at * get(inv_freq));
    put(cos, pair.cos);
    put(sin, pair.sin);
  });
}

// A position of up to 26 bits and a frequency of 24 have an exact product of 53.
static void rope_unrounded_angles(std::uint32_t position, const float* inv_freq,
                                  std::uint32_t n_pairs, float* cos, float* sin) noexcept {
  const F64<2> at = splat_f64<2>(static_cast<double>(position));
  for_blocks<1>(n_pairs, [&](auto get, auto put) QSF_INLINE {
    const SinCos<1> pair = sin_cos<1>(at * widen(get(inv_freq)));
    put(cos, pair.cos);
    put(sin, pair.sin);
  });
}

static void rotate_half(float* x, const float* cos, const float* sin, std::uint32_t n_pairs,
                        std::uint32_t n_heads, std::size_t head_stride) noexcept {
  for (std::uint32_t head = 0; head < n_heads; ++head) {
    float* low = x + head * head_stride;
    float* high = low + n_pairs;
    for_blocks<k16>(n_pairs, [&](auto get, auto put) QSF_INLINE {
      const auto c = get(cos);
      const auto s = get(sin);
      const auto a = get(low);
      const auto b = get(high);
      put(low, a * c - b * s);
      put(high, b * c + a * s);
    });
  }
}

static void rotate_half_rows(const RotateRowsArgs& args) noexcept {
  for (std::uint32_t row = 0; row < args.n_rows; ++row) {
    const std::size_t angles = std::size_t{row} * args.n_pairs;
    rotate_half(args.x + row * args.row_stride, args.cos + angles, args.sin + angles, args.n_pairs,
                args.n_heads, args.head_stride);
  }
}

static constexpr RopeKernels kRopeKernels = {.name = "rope_" QSF_TIER_NAME,
                                             .isa = kTier,
                                             .exactness = Exactness::kBitExact,
                                             .angles = rope_angles,
                                             .unrounded_angles = rope_unrounded_angles,
                                             .rotate_half = rotate_half,
                                             .rotate_half_rows = rotate_half_rows};

}  // namespace qsf::kernels::QSF_TIER_NAMESPACE::rope

#endif  // QSF_KERNELS_ROPE_ROPE_LANES_H_
