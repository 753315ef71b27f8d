// SPDX-License-Identifier: MIT
//
// The table of rotation kernels, and the angles, which are the same on every tier.

#include "kernels/rope/rope.h"

#include "kernels/math/math.h"
#include "kernels/variants_scalar.h"

namespace qsf::kernels {
namespace {

constexpr RopeKernels kKernels[] = {
    {.name = "rope_scalar",
     .isa = Isa::kScalar,
     .exactness = Exactness::kBounded,
     .rotate_half = rotate_half_scalar},
};

}  // namespace

void rope_angles(std::uint32_t position, const float* inv_freq, std::uint32_t n_pairs, float* cos,
                 float* sin) noexcept {
  const auto at = static_cast<float>(position);
  for (std::uint32_t i = 0; i < n_pairs; ++i) {
    const float angle = at * inv_freq[i];
    cos[i] = cos_f32(angle);
    sin[i] = sin_f32(angle);
  }
}

std::span<const RopeKernels> rope_kernels() noexcept {
  return kKernels;
}

}  // namespace qsf::kernels
