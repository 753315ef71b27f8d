// SPDX-License-Identifier: MIT
//
// The table of conversion kernels, and the store of K and V rows.

#include "kernels/convert/convert.h"

#include <cstring>

#include "kernels/tiers.h"

namespace qsf::kernels {

extern const ConvertKernels QSF_TIERS_OF(kConvert);

std::span<const ConvertKernels> convert_kernels() noexcept {
  static const ConvertKernels table[] = {QSF_TIERS_OF(kConvert)};
  return table;
}

void store_key(const ConvertKernels& convert, KvType type, const float* from, std::byte* block,
               std::uint32_t slot, std::uint32_t head_dim) noexcept {
  if (type == KvType::kF32) {
    float* to = reinterpret_cast<float*>(block) + slot;
    for (std::uint32_t d = 0; d < head_dim; ++d) to[d * kKvPageSlots] = from[d];
    return;
  }
  constexpr std::uint32_t kAtOnce = 64;
  F16 halves[kAtOnce];
  F16* to = reinterpret_cast<F16*>(block) + slot;
  for (std::uint32_t d = 0; d < head_dim; d += kAtOnce) {
    const std::uint32_t n = head_dim - d < kAtOnce ? head_dim - d : kAtOnce;
    convert.f32_to_f16(from + d, halves, n);
    for (std::uint32_t i = 0; i < n; ++i) to[(d + i) * kKvPageSlots] = halves[i];
  }
}

void store_value(const ConvertKernels& convert, KvType type, const float* from, std::byte* to,
                 std::uint32_t head_dim) noexcept {
  if (type == KvType::kF32) {
    std::memcpy(to, from, std::size_t{head_dim} * sizeof(float));
  } else {
    convert.f32_to_f16(from, reinterpret_cast<F16*>(to), head_dim);
  }
}

}  // namespace qsf::kernels
