// SPDX-License-Identifier: MIT
//
// The table of conversion kernels, and the store of K and V rows.

#include "kernels/convert/convert.h"

#include <cstring>

#include "kernels/variants_scalar.h"

namespace qsf::kernels {
namespace {

constexpr ConvertKernels kKernels[] = {
    {.name = "convert_scalar",
     .isa = Isa::kScalar,
     .exactness = Exactness::kBitExact,
     .f16_to_f32 = f16_to_f32_scalar,
     .bf16_to_f32 = bf16_to_f32_scalar,
     .f32_to_f16 = f32_to_f16_scalar,
     .f32_to_bf16 = f32_to_bf16_scalar},
};

}  // namespace

std::span<const ConvertKernels> convert_kernels() noexcept {
  return kKernels;
}

void store_kv_row(const ConvertKernels& convert, KvType type, const float* from, std::byte* to,
                  std::uint32_t head_dim) noexcept {
  if (type == KvType::kF32) {
    std::memcpy(to, from, std::size_t{head_dim} * sizeof(float));
  } else {
    convert.f32_to_f16(from, reinterpret_cast<F16*>(to), head_dim);
  }
}

}  // namespace qsf::kernels
