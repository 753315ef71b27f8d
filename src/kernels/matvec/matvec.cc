// SPDX-License-Identifier: MIT
//
// The table of matvec kernels and the choice from it.

#include "kernels/matvec/matvec.h"

#include "base/check.h"
#include "kernels/matvec/matvec_variants.h"

namespace qsf::kernels {
namespace {

constexpr MatVecKernel kKernels[] = {
    {.name = "matvec_q2sg32_scalar",
     .isa = Isa::kScalar,
     .format = {QuantType::kQ2S, 32},
     .exactness = Exactness::kBounded,
     .run = matvec_q2sg32_scalar},
    {.name = "matvec_q2sg64_scalar",
     .isa = Isa::kScalar,
     .format = {QuantType::kQ2S, 64},
     .exactness = Exactness::kBounded,
     .run = matvec_q2sg64_scalar},
    {.name = "matvec_q2ag32_scalar",
     .isa = Isa::kScalar,
     .format = {QuantType::kQ2A, 32},
     .exactness = Exactness::kBounded,
     .run = matvec_q2ag32_scalar},
    {.name = "matvec_q2ag64_scalar",
     .isa = Isa::kScalar,
     .format = {QuantType::kQ2A, 64},
     .exactness = Exactness::kBounded,
     .run = matvec_q2ag64_scalar},
    {.name = "matvec_q3g32_scalar",
     .isa = Isa::kScalar,
     .format = {QuantType::kQ3, 32},
     .exactness = Exactness::kBounded,
     .run = matvec_q3g32_scalar},
    {.name = "matvec_q3g64_scalar",
     .isa = Isa::kScalar,
     .format = {QuantType::kQ3, 64},
     .exactness = Exactness::kBounded,
     .run = matvec_q3g64_scalar},
    {.name = "matvec_q4g32_scalar",
     .isa = Isa::kScalar,
     .format = {QuantType::kQ4, 32},
     .exactness = Exactness::kBounded,
     .run = matvec_q4g32_scalar},
    {.name = "matvec_q4g64_scalar",
     .isa = Isa::kScalar,
     .format = {QuantType::kQ4, 64},
     .exactness = Exactness::kBounded,
     .run = matvec_q4g64_scalar},
    {.name = "matvec_ternaryg32_scalar",
     .isa = Isa::kScalar,
     .format = {QuantType::kTernary, 32},
     .exactness = Exactness::kBounded,
     .run = matvec_ternaryg32_scalar},
    {.name = "matvec_ternaryg64_scalar",
     .isa = Isa::kScalar,
     .format = {QuantType::kTernary, 64},
     .exactness = Exactness::kBounded,
     .run = matvec_ternaryg64_scalar},
    {.name = "matvec_q8g32_scalar",
     .isa = Isa::kScalar,
     .format = {QuantType::kQ8, 32},
     .exactness = Exactness::kBounded,
     .run = matvec_q8g32_scalar},
    {.name = "matvec_q8g64_scalar",
     .isa = Isa::kScalar,
     .format = {QuantType::kQ8, 64},
     .exactness = Exactness::kBounded,
     .run = matvec_q8g64_scalar},
    {.name = "matvec_f32_scalar",
     .isa = Isa::kScalar,
     .format = {QuantType::kF32, 4},
     .exactness = Exactness::kBounded,
     .run = matvec_f32_scalar},
    {.name = "matvec_f16_scalar",
     .isa = Isa::kScalar,
     .format = {QuantType::kF16, 4},
     .exactness = Exactness::kBounded,
     .run = matvec_f16_scalar},
    {.name = "matvec_bf16_scalar",
     .isa = Isa::kScalar,
     .format = {QuantType::kBF16, 4},
     .exactness = Exactness::kBounded,
     .run = matvec_bf16_scalar},
};

constexpr bool has_scalar(BlockFormat format) {
  for (const MatVecKernel& kernel : kKernels) {
    if (kernel.isa == Isa::kScalar && kernel.format == format) return true;
  }
  return false;
}

constexpr bool every_format_has_scalar() {
  for (const QuantType type : kAllQuantTypes) {
    if (!has_scalar(block_format(type, 32)) || !has_scalar(block_format(type, 64))) return false;
  }
  return true;
}
static_assert(every_format_has_scalar(), "a format without a scalar kernel runs nowhere");

}  // namespace

std::span<const MatVecKernel> matvec_kernels() noexcept {
  return kKernels;
}

const MatVecKernel& select_matvec(BlockFormat format, Isa best) noexcept {
  const MatVecKernel* found = nullptr;
  for (const MatVecKernel& kernel : kKernels) {
    if (found == nullptr && kernel.format == format && isa_covers(best, kernel.isa)) {
      found = &kernel;
    }
  }
  QSF_CHECK(found != nullptr);
  return *found;
}

}  // namespace qsf::kernels
