// SPDX-License-Identifier: MIT
//
// Probes for NEON: products of bytes are added up in 16 bits.

#include <arm_neon.h>

#include "kernels/probe/probe_loops.h"
#include "kernels/probe/probe_variants.h"

namespace qsf::kernels {

std::uint64_t probe_i8_neon(std::uint32_t n_rounds) noexcept {
  auto a = vdup_n_u8(1);
  const auto b = a;
  const std::uint64_t total = run_chains<std::uint16_t>(
      n_rounds, vdupq_n_u16(0), [&](auto sum) __attribute__((always_inline)) {
        QSF_OPAQUE(a);
        return vmlal_u8(sum, a, b);
      });
  return total & 0xFFFFU;
}

std::uint64_t probe_f32_neon(std::uint32_t n_rounds) noexcept {
  auto a = vdupq_n_f32(1.0F);
  const auto b = a;
  return run_chains<float>(
      n_rounds, vdupq_n_f32(0.0F), [&](auto sum) __attribute__((always_inline)) {
        QSF_OPAQUE(a);
        return vfmaq_f32(sum, a, b);
      });
}

std::uint64_t probe_read_neon(const ReadProbeArgs& args) noexcept {
  return read_memory<16>(args);
}

}  // namespace qsf::kernels
