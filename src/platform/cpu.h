// SPDX-License-Identifier: MIT
//
// The instruction-set extensions that the CPU and the operating system support.
//
// Features are flags; kernels/isa.h defines the kernel tiers, each a set of features. A feature
// counts only when the operating system saves its registers (AVX needs XCR0, AMX needs a kernel
// that grants the tile state on request).

#ifndef QSF_PLATFORM_CPU_H_
#define QSF_PLATFORM_CPU_H_

#include <cstdint>
#include <string>

namespace qsf {

enum class CpuFeature : std::uint32_t {
  kSse42 = 1U << 0,  // with SSSE3, SSE4.1 and POPCNT
  kAvx2 = 1U << 1,
  kFma = 1U << 2,
  kF16c = 1U << 3,
  kAvx512F = 1U << 4,
  kAvx512Bw = 1U << 5,
  kAvx512Dq = 1U << 6,
  kAvx512Vl = 1U << 7,
  kAvx512Vnni = 1U << 8,
  kAmxTile = 1U << 9,
  kAmxInt8 = 1U << 10,
  kAmxBf16 = 1U << 11,
  kPclmul = 1U << 12,
  kNeon = 1U << 13,
  kNeonDot = 1U << 14,
  kAvx512Bf16 = 1U << 15,
  kNeonI8mm = 1U << 16,
  kWasmSimd = 1U << 17,
  kAvxVnni = 1U << 18,  // dot products of bytes in 256 bits, without AVX-512
  kAvx512Vbmi = 1U << 19,
};

struct CpuFeatures {
  std::uint32_t bits = 0;

  bool has(CpuFeature feature) const noexcept {
    return (bits & static_cast<std::uint32_t>(feature)) != 0;
  }
  void add(CpuFeature feature) noexcept { bits |= static_cast<std::uint32_t>(feature); }
  void remove(CpuFeature feature) noexcept { bits &= ~static_cast<std::uint32_t>(feature); }
};

// Asks the CPU, and the system for permission to use AMX: a process gets it once, before its
// threads start. Costs some cpuid instructions, so callers keep the result. Threads  any
CpuFeatures detect_cpu_features() noexcept;

// Returns the result of the first detection. Threads  any
const CpuFeatures& host_cpu() noexcept;

// Returns the names of the features, such as "sse4.2 avx2 fma f16c"; empty when there are none.
std::string cpu_features_text(const CpuFeatures& features);

inline constexpr std::uint64_t kUsualCacheBytes = std::uint64_t{32} << 20;

// Returns the bytes of the largest cache, kUsualCacheBytes where the system does not say.
// Threads  any
std::uint64_t last_level_cache_bytes() noexcept;

// What only the system knows, for detect_cpu_features() on x86-64 and on AArch64, and defined there
// alone: whether it grants the tile registers of AMX, and what the CPU has besides NEON.
bool request_tile_state() noexcept;
CpuFeatures system_neon_features() noexcept;

// The raw results of cpuid and xgetbv, so that decoding can be tested on any machine.
struct X86CpuidWords {
  std::uint32_t leaf1_ecx = 0;
  std::uint32_t leaf7_ebx = 0;
  std::uint32_t leaf7_ecx = 0;
  std::uint32_t leaf7_edx = 0;
  std::uint32_t leaf7_1_eax = 0;  // of subleaf 1
  std::uint64_t xcr0 = 0;         // 0 when OSXSAVE is off
};

// Decodes the words. Features whose registers the system does not save are left out.
CpuFeatures decode_x86_features(const X86CpuidWords& words) noexcept;

}  // namespace qsf

#endif  // QSF_PLATFORM_CPU_H_
