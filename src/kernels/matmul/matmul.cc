// SPDX-License-Identifier: MIT
//
// The table of matmul kernels and the choice from it.

#include "kernels/matmul/matmul.h"

#include "base/check.h"
#include "kernels/matmul/matmul_variants.h"
#include "quant/interleave.h"

namespace qsf::kernels {
namespace {

#define QSF_ENTRY(kernel, tier, type, block, form, exact) \
  {.name = #kernel,                                       \
   .isa = Isa::tier,                                      \
   .format = {QuantType::type, block},                    \
   .input = ActivationType::form,                         \
   .exactness = Exactness::exact,                         \
   .run = kernel},
#define QSF_I8_SCALAR(name, type, block) \
  QSF_ENTRY(matmul_##name##_i8_scalar, kScalar, type, block, kInt8, kBitExact)
#define QSF_F32_SCALAR(name, type, block) \
  QSF_ENTRY(matmul_##name##_f32_scalar, kScalar, type, block, kF32, kBounded)

#define QSF_I8_NEONDOT(name, type, block) \
  QSF_ENTRY(matmul_##name##_i8_neondot, kNeonDot, type, block, kInt8, kBitExact)
#define QSF_I8_NEON(name, type, block) \
  QSF_ENTRY(matmul_##name##_i8_neon, kNeon, type, block, kInt8, kBitExact)
#define QSF_F32_NEON(name, type, block) \
  QSF_ENTRY(matmul_##name##_f32_neon, kNeon, type, block, kF32, kBounded)
#define QSF_I8_AMX(name, type, block) \
  QSF_ENTRY(matmul_##name##_i8_amx, kAmx, type, block, kInt8, kBitExact)
#define QSF_BF16_AMX(name, type, block) \
  QSF_ENTRY(matmul_##name##_bf16_amx, kAmx, type, block, kBf16, kBounded)
#define QSF_I8_AVX512VNNI(name, type, block) \
  QSF_ENTRY(matmul_##name##_i8_avx512vnni, kAvx512Vnni, type, block, kInt8, kBitExact)
#define QSF_I8_AVX2(name, type, block) \
  QSF_ENTRY(matmul_##name##_i8_avx2, kAvx2, type, block, kInt8, kBitExact)
#define QSF_I8_SSE42(name, type, block) \
  QSF_ENTRY(matmul_##name##_i8_sse42, kSse42, type, block, kInt8, kBitExact)
#define QSF_F32_AVX2(name, type, block) \
  QSF_ENTRY(matmul_##name##_f32_avx2, kAvx2, type, block, kF32, kBounded)

#define QSF_I8_AVX512(name, type, block) \
  QSF_ENTRY(matmul_##name##_i8_avx512, kAvx512, type, block, kInt8, kBitExact)
#define QSF_F32_AVX512(name, type, block) \
  QSF_ENTRY(matmul_##name##_f32_avx512, kAvx512, type, block, kF32, kBounded)

// clang-format off
constexpr MatMulKernel kKernels[] = {
#if defined(__x86_64__)
    QSF_CODED_FORMATS(QSF_I8_AMX)
    QSF_SUPER_FORMATS(QSF_I8_AMX)
    QSF_ROW_FORMATS(QSF_I8_AMX)
    QSF_CODED_FORMATS(QSF_BF16_AMX)
    QSF_SUPER_FORMATS(QSF_BF16_AMX)
    QSF_ROW_FORMATS(QSF_BF16_AMX)
    QSF_BF16_AMX(bf16, kBF16, 4)
    QSF_CODED_FORMATS(QSF_I8_AVX512VNNI)
    QSF_SUPER_FORMATS(QSF_I8_AVX512VNNI)
    QSF_ROW_FORMATS(QSF_I8_AVX512VNNI)
    QSF_CODED_FORMATS(QSF_I8_AVX512)
    QSF_SUPER_FORMATS(QSF_I8_AVX512)
    QSF_ROW_FORMATS(QSF_I8_AVX512)
    QSF_CODED_FORMATS(QSF_F32_AVX512)
    QSF_SUPER_FORMATS(QSF_F32_AVX512)
    QSF_ROW_FORMATS(QSF_F32_AVX512)
    QSF_FLOAT_FORMATS(QSF_F32_AVX512)
    QSF_CODED_FORMATS(QSF_I8_AVX2)
    QSF_SUPER_FORMATS(QSF_I8_AVX2)
    QSF_ROW_FORMATS(QSF_I8_AVX2)
    QSF_CODED_FORMATS(QSF_I8_SSE42)
    QSF_SUPER_FORMATS(QSF_I8_SSE42)
    QSF_ROW_FORMATS(QSF_I8_SSE42)
    QSF_CODED_FORMATS(QSF_F32_AVX2)
    QSF_SUPER_FORMATS(QSF_F32_AVX2)
    QSF_ROW_FORMATS(QSF_F32_AVX2)
    QSF_FLOAT_FORMATS(QSF_F32_AVX2)
#elif defined(__aarch64__)
    QSF_CODED_FORMATS(QSF_I8_NEONDOT)
    QSF_SUPER_FORMATS(QSF_I8_NEONDOT)
    QSF_ROW_FORMATS(QSF_I8_NEONDOT)
    QSF_CODED_FORMATS(QSF_I8_NEON)
    QSF_SUPER_FORMATS(QSF_I8_NEON)
    QSF_ROW_FORMATS(QSF_I8_NEON)
    QSF_FLOAT_FORMATS(QSF_F32_NEON)
#endif
    QSF_CODED_FORMATS(QSF_I8_SCALAR)
    QSF_SUPER_FORMATS(QSF_I8_SCALAR)
    QSF_ROW_FORMATS(QSF_I8_SCALAR)
    QSF_CODED_FORMATS(QSF_F32_SCALAR)
    QSF_SUPER_FORMATS(QSF_F32_SCALAR)
    QSF_ROW_FORMATS(QSF_F32_SCALAR)
    QSF_FLOAT_FORMATS(QSF_F32_SCALAR)};
// clang-format on

#undef QSF_F32_AVX512
#undef QSF_I8_AVX512
#undef QSF_F32_AVX2
#undef QSF_I8_SSE42
#undef QSF_I8_AVX2
#undef QSF_I8_AVX512VNNI
#undef QSF_BF16_AMX
#undef QSF_I8_AMX
#undef QSF_I8_NEONDOT
#undef QSF_I8_NEON
#undef QSF_F32_NEON
#undef QSF_F32_SCALAR
#undef QSF_I8_SCALAR
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
