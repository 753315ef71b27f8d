// SPDX-License-Identifier: MIT
//
// Products with int8 rows, for the 128-bit vectors of WebAssembly: those of SSE4.2 but for the
// products of bytes, which have no instruction here.

#include <wasm_simd128.h>

#include "kernels/matmul/matmul_variants.h"
#include "kernels/matmul/vectors_sse42.h"
#include "kernels/matmul/whole_scales_maddubs.h"

namespace qsf::kernels {
namespace {

struct Wasm : Sse42 {
  // Fewer sums than SSE4.2's, since the products of bytes take more vectors. Not tuned.
  static constexpr std::uint32_t kTileRows = 2;

  // Even and odd bytes apart, in 16 bits. The halves of b, a row of x, are made once for many a.
  [[gnu::always_inline]] static Ints multiply_pairs(Ints a, Ints b) noexcept {
    const auto codes = __builtin_bit_cast(v128_t, a);
    const auto row = __builtin_bit_cast(v128_t, b);
    const v128_t even = wasm_i16x8_mul(wasm_v128_and(codes, wasm_i16x8_splat(0xFF)),
                                       wasm_i16x8_shr(wasm_i16x8_shl(row, 8), 8));
    const v128_t odd = wasm_i16x8_mul(wasm_u16x8_shr(codes, 8), wasm_i16x8_shr(row, 8));
    return __builtin_bit_cast(Ints, wasm_i16x8_add(even, odd));
  }
  // There is no such instruction.
  [[gnu::always_inline]] static void prefetch(const std::byte*) noexcept {}
};

}  // namespace

#define QSF_DEFINE(name, type, block)                             \
  void matmul_##name##_i8_wasm(const MatMulArgs& args) noexcept { \
    maddubs::product<Wasm, QuantType::type, block>(args);         \
  }
QSF_CODED_FORMATS(QSF_DEFINE)
QSF_ROW_FORMATS(QSF_DEFINE)
#undef QSF_DEFINE

#define QSF_DEFINE(name, type, block)                             \
  void matmul_##name##_i8_wasm(const MatMulArgs& args) noexcept { \
    maddubs::super_product<Wasm, QuantType::type, block>(args);   \
  }
QSF_SUPER_FORMATS(QSF_DEFINE)
#undef QSF_DEFINE

}  // namespace qsf::kernels
