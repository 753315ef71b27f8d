// SPDX-License-Identifier: MIT
//
// Rotation of pairs half a head apart, scalar tier.

#include "kernels/lanes.h"
#include "kernels/rope/rope.h"
#include "kernels/variants_scalar.h"

namespace qsf::kernels {

using namespace lanes;

void rotate_half_scalar(float* x, const float* cos, const float* sin, std::uint32_t n_pairs,
                        std::uint32_t n_heads, std::size_t head_stride) noexcept {
  for (std::uint32_t head = 0; head < n_heads; ++head) {
    float* low = x + head * head_stride;
    float* high = low + n_pairs;
    std::uint32_t i = 0;
    for (; i + 4 <= n_pairs; i += 4) {
      const f32x4 c = load<f32x4>(cos + i);
      const f32x4 s = load<f32x4>(sin + i);
      const f32x4 a = load<f32x4>(low + i);
      const f32x4 b = load<f32x4>(high + i);
      store(low + i, a * c - b * s);
      store(high + i, b * c + a * s);
    }
    for (; i < n_pairs; ++i) {
      const float a = low[i];
      const float b = high[i];
      low[i] = a * cos[i] - b * sin[i];
      high[i] = b * cos[i] + a * sin[i];
    }
  }
}

}  // namespace qsf::kernels
