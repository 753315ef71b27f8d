// SPDX-License-Identifier: MIT
//
// The table of matmul kernels and the choice from it.

#include "kernels/matmul/matmul.h"

#include "base/check.h"
#include "kernels/matmul/matmul_variants.h"
#include "quant/interleave.h"

namespace qsf::kernels {
namespace {

#define QSF_ENTRY(name_of_format, type, block, suffix, tier, form, exact) \
  {.name = "matmul_" #name_of_format "_" #suffix,                         \
   .isa = Isa::tier,                                                      \
   .format = {QuantType::type, block},                                    \
   .input = ActivationType::form,                                         \
   .exactness = Exactness::exact,                                         \
   .run = matmul_##name_of_format##_##suffix},
constexpr MatMulKernel kKernels[] = {QSF_MATMUL_KERNELS(QSF_ENTRY)};
#undef QSF_ENTRY

constexpr bool has_scalar(BlockFormat format, ActivationType input) {
  for (const MatMulKernel& kernel : kKernels) {
    if (kernel.isa == Isa::kScalar && kernel.format == format && kernel.input == input) return true;
  }
  return false;
}

constexpr bool every_format_has_scalar() {
  for (const QuantType type : kAllQuantTypes) {
    for (const std::uint32_t block : {32U, 64U}) {
      const BlockFormat format = kernel_format(block_format(type, block));
      if (!has_scalar(format, ActivationType::kF32)) return false;
      if (!is_float_type(type) && !has_scalar(format, ActivationType::kInt8)) return false;
    }
  }
  return true;
}
static_assert(every_format_has_scalar(), "a format without a scalar kernel runs nowhere");

}  // namespace

std::string_view activation_type_name(ActivationType input) noexcept {
  switch (input) {
    case ActivationType::kF32: return "f32";
    case ActivationType::kInt8: return "i8";
    case ActivationType::kBf16: return "bf16";
  }
  return "unknown";
}

std::span<const MatMulKernel> matmul_kernels() noexcept {
  return kKernels;
}

const MatMulKernel* find_matmul(BlockFormat format, ActivationType input, Isa best) noexcept {
  for (const MatMulKernel& kernel : kKernels) {
    if (kernel.format == format && kernel.input == input && isa_covers(best, kernel.isa)) {
      return &kernel;
    }
  }
  return nullptr;
}

const MatMulKernel& select_matmul(BlockFormat format, ActivationType input, Isa best) noexcept {
  const MatMulKernel* found = find_matmul(format, input, best);
  QSF_CHECK(found != nullptr);
  return *found;
}

}  // namespace qsf::kernels
