// SPDX-License-Identifier: MIT
//
// The loops that probe.cc lists, for it and for the files that define them.

#ifndef QSF_KERNELS_PROBE_PROBE_VARIANTS_H_
#define QSF_KERNELS_PROBE_PROBE_VARIANTS_H_

#include "kernels/probe/probe.h"

namespace qsf::kernels {

std::uint64_t probe_i8_scalar(std::uint32_t n_rounds) noexcept;
std::uint64_t probe_f32_scalar(std::uint32_t n_rounds) noexcept;
std::uint64_t probe_read_scalar(const ReadProbeArgs& args) noexcept;

#if defined(__x86_64__)
std::uint64_t probe_i8_sse42(std::uint32_t n_rounds) noexcept;
std::uint64_t probe_i8_avx2(std::uint32_t n_rounds) noexcept;
std::uint64_t probe_f32_avx2(std::uint32_t n_rounds) noexcept;
std::uint64_t probe_read_avx2(const ReadProbeArgs& args) noexcept;
std::uint64_t probe_i8_avxvnni(std::uint32_t n_rounds) noexcept;
std::uint64_t probe_i8_avx512(std::uint32_t n_rounds) noexcept;
std::uint64_t probe_f32_avx512(std::uint32_t n_rounds) noexcept;
std::uint64_t probe_read_avx512(const ReadProbeArgs& args) noexcept;
std::uint64_t probe_i8_avx512vnni(std::uint32_t n_rounds) noexcept;
std::uint64_t probe_i8_amx(std::uint32_t n_rounds) noexcept;
std::uint64_t probe_bf16_amx(std::uint32_t n_rounds) noexcept;
#elif defined(__aarch64__)
std::uint64_t probe_i8_neon(std::uint32_t n_rounds) noexcept;
std::uint64_t probe_f32_neon(std::uint32_t n_rounds) noexcept;
std::uint64_t probe_read_neon(const ReadProbeArgs& args) noexcept;
std::uint64_t probe_i8_neondot(std::uint32_t n_rounds) noexcept;
std::uint64_t probe_i8_neoni8mm(std::uint32_t n_rounds) noexcept;
#elif defined(__wasm_simd128__)
std::uint64_t probe_i8_wasm(std::uint32_t n_rounds) noexcept;
#endif

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_PROBE_PROBE_VARIANTS_H_
