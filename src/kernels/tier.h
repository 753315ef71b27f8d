// SPDX-License-Identifier: MIT
//
// The instruction-set tiers that kernels come in. isa.h chooses one; this header is all that the
// kernels themselves need, and costs their compilation nothing.
//
// A tier builds on another one, and a CPU that has it has that one too, so the choice is a single
// value, "the best", and a kernel may run when best covers its tier. On AArch64 and WebAssembly the
// tiers of an architecture are a chain; on x86-64 kAvxVnni is a branch, since CPUs with AVX-512 may
// lack it.

#ifndef QSF_KERNELS_TIER_H_
#define QSF_KERNELS_TIER_H_

#include <cstdint>
#include <string_view>

namespace qsf::kernels {

// In the order in which a CPU that has several prefers them: kSse42 .. kAmx are x86, kNeon ..
// kNeonI8mm are AArch64, kWasm is WebAssembly.
enum class Isa : std::uint8_t {
  kScalar = 0,  // portable C++ at the compiler's baseline (SSE2 on x86-64, NEON on AArch64)
  kSse42 = 1,
  kAvx2 = 2,     // with FMA and F16C
  kAvxVnni = 3,  // kAvx2 with dot products of bytes; what lies above does not build on it
  kAvx512 = 4,   // F, BW, DQ, VL
  kAvx512Vnni = 5,
  kAvx512Vbmi = 6,  // look-ups in tables of 64 bytes
  kAmx = 7,         // tiles, int8, bf16, and AVX-512 BF16
  kNeon = 8,
  kNeonDot = 9,
  kNeonI8mm = 10,  // products of 2x8 and 8x2 bytes
  kWasm = 11,      // 128-bit vectors
};

inline constexpr Isa kAllIsas[] = {Isa::kScalar, Isa::kSse42,      Isa::kAvx2,       Isa::kAvxVnni,
                                   Isa::kAvx512, Isa::kAvx512Vnni, Isa::kAvx512Vbmi, Isa::kAmx,
                                   Isa::kNeon,   Isa::kNeonDot,    Isa::kNeonI8mm,   Isa::kWasm};

// What a kernel promises about its results on another tier.
enum class Exactness : std::uint8_t {
  kBitExact,  // the same bits on every tier
  kBounded,   // inside the bound of testing/error_bound.h; the same bits on every run of one tier
};

// Returns the name used by QSF_ISA and in kernel names: "scalar", "avx512vnni". Threads  any
std::string_view isa_name(Isa isa) noexcept;

// Returns whether code of tier `isa` may run where `best` is the tier in use: whether `best` is it
// or builds on it. Threads  any
bool isa_covers(Isa best, Isa isa) noexcept;

// Returns whether this CPU has the tiles of kAmx. Threads  any
bool amx_is_native() noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_TIER_H_
