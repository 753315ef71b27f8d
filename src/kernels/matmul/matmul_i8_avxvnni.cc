// SPDX-License-Identifier: MIT
//
// Products with int8 rows, AVX-VNNI tier: AVX2 with one instruction that multiplies four columns of
// 8 rows with four bytes of x and adds the products up in 32 bits.

#include "kernels/dot_bytes_avxvnni.h"
#include "kernels/matmul/matmul_variants.h"
#include "kernels/matmul/vectors_avx2.h"
#include "kernels/matmul/whole_scales_maddubs.h"

namespace qsf::kernels {
namespace {

struct AvxVnni : Avx2 {
  static constexpr bool kHasDot = true;

  [[gnu::always_inline]] static Ints dot(Ints sums, Ints codes, Ints q) noexcept {
    return dot_bytes(sums, codes, q);
  }
  [[gnu::always_inline]] static Ints dot_words(Ints sums, Ints a, Ints b) noexcept {
    return kernels::dot_words(sums, a, b);
  }
  [[gnu::always_inline]] static Ints multiply32(Ints a, Ints b) noexcept {
    return _mm256_mullo_epi32(a, b);
  }
  [[gnu::always_inline]] static Ints subtract32(Ints a, Ints b) noexcept {
    return _mm256_sub_epi32(a, b);
  }
  [[gnu::always_inline]] static Ints flip(Ints a, Ints bits) noexcept {
    return _mm256_xor_si256(a, bits);
  }
  // Of whole numbers.
  [[gnu::always_inline]] static Ints to_ints(Floats a) noexcept { return _mm256_cvttps_epi32(a); }
};

}  // namespace

#define QSF_DEFINE(name, type, block)                                \
  void matmul_##name##_i8_avxvnni(const MatMulArgs& args) noexcept { \
    maddubs::product<AvxVnni, QuantType::type, block>(args);         \
  }
QSF_CODED_FORMATS(QSF_DEFINE)
QSF_ROW_FORMATS(QSF_DEFINE)
#undef QSF_DEFINE

#define QSF_DEFINE(name, type, block)                                \
  void matmul_##name##_i8_avxvnni(const MatMulArgs& args) noexcept { \
    maddubs::super_product<AvxVnni, QuantType::type, block>(args);   \
  }
QSF_SUPER_FORMATS(QSF_DEFINE)
#undef QSF_DEFINE

}  // namespace qsf::kernels
