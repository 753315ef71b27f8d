// SPDX-License-Identifier: MIT
//
// Probe for WebAssembly: words are multiplied and added up in pairs.

#include <wasm_simd128.h>

#include "kernels/probe/probe_loops.h"
#include "kernels/probe/probe_variants.h"

namespace qsf::kernels {

std::uint64_t probe_i8_wasm(std::uint32_t n_rounds) noexcept {
  auto a = wasm_i16x8_splat(1);
  const auto b = a;
  const std::uint64_t total = run_chains<std::uint32_t>(
      n_rounds, wasm_i32x4_splat(0), [&](auto sum) __attribute__((always_inline)) {
        QSF_OPAQUE(a);
        return wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(a, b));
      });
  return total & 0xFFFFU;
}

}  // namespace qsf::kernels
