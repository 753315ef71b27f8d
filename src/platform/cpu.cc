// SPDX-License-Identifier: MIT
//
// CPU features from cpuid and XCR0, and from the system where only that knows.
//
// Based on: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, CPUID, and
// volume 1, 13.3 (XCR0).

#include "platform/cpu.h"

#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace qsf {
namespace {

struct NamedFeature {
  CpuFeature feature;
  std::string_view name;
};

constexpr NamedFeature kNames[] = {
    {CpuFeature::kSse42, "sse4.2"},
    {CpuFeature::kAvx2, "avx2"},
    {CpuFeature::kFma, "fma"},
    {CpuFeature::kF16c, "f16c"},
    {CpuFeature::kAvxVnni, "avxvnni"},
    {CpuFeature::kAvx512F, "avx512f"},
    {CpuFeature::kAvx512Bw, "avx512bw"},
    {CpuFeature::kAvx512Dq, "avx512dq"},
    {CpuFeature::kAvx512Vl, "avx512vl"},
    {CpuFeature::kAvx512Vnni, "avx512vnni"},
    {CpuFeature::kAvx512Vbmi, "avx512vbmi"},
    {CpuFeature::kAvx512Bf16, "avx512bf16"},
    {CpuFeature::kAmxTile, "amx-tile"},
    {CpuFeature::kAmxInt8, "amx-int8"},
    {CpuFeature::kAmxBf16, "amx-bf16"},
    {CpuFeature::kPclmul, "pclmul"},
    {CpuFeature::kNeon, "neon"},
    {CpuFeature::kNeonDot, "neondot"},
    {CpuFeature::kNeonI8mm, "i8mm"},
    {CpuFeature::kWasmSimd, "simd128"},
};

constexpr bool bit(std::uint64_t word, unsigned index) noexcept {
  return ((word >> index) & 1U) != 0;
}

#if defined(__x86_64__)
std::uint64_t read_xcr0() noexcept {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

X86CpuidWords read_cpuid() noexcept {
  X86CpuidWords words;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) words.leaf1_ecx = ecx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    words.leaf7_ebx = ebx;
    words.leaf7_ecx = ecx;
    words.leaf7_edx = edx;
    if (eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) words.leaf7_1_eax = eax;
  }
  constexpr unsigned kOsxsave = 27;
  if (bit(words.leaf1_ecx, kOsxsave)) words.xcr0 = read_xcr0();
  return words;
}
#endif

}  // namespace

CpuFeatures decode_x86_features(const X86CpuidWords& words) noexcept {
  CpuFeatures cpu;
  const std::uint32_t ecx = words.leaf1_ecx;
  if (bit(ecx, 9) && bit(ecx, 19) && bit(ecx, 20) && bit(ecx, 23)) cpu.add(CpuFeature::kSse42);
  if (bit(ecx, 1)) cpu.add(CpuFeature::kPclmul);

  constexpr std::uint64_t kAvxState = 0x6;      // XMM, upper halves of YMM
  constexpr std::uint64_t kAvx512State = 0xE6;  // and opmask, upper ZMM, high ZMM
  constexpr std::uint64_t kAmxState = 0x60000;  // tile configuration and data
  const bool avx = (words.xcr0 & kAvxState) == kAvxState && bit(ecx, 28);
  if (avx && bit(words.leaf7_ebx, 5)) cpu.add(CpuFeature::kAvx2);
  if (avx && bit(ecx, 12)) cpu.add(CpuFeature::kFma);
  if (avx && bit(ecx, 29)) cpu.add(CpuFeature::kF16c);
  if (avx && bit(words.leaf7_1_eax, 4)) cpu.add(CpuFeature::kAvxVnni);

  if (avx && (words.xcr0 & kAvx512State) == kAvx512State && bit(words.leaf7_ebx, 16)) {
    cpu.add(CpuFeature::kAvx512F);
    if (bit(words.leaf7_ebx, 30)) cpu.add(CpuFeature::kAvx512Bw);
    if (bit(words.leaf7_ebx, 17)) cpu.add(CpuFeature::kAvx512Dq);
    if (bit(words.leaf7_ebx, 31)) cpu.add(CpuFeature::kAvx512Vl);
    if (bit(words.leaf7_ecx, 11)) cpu.add(CpuFeature::kAvx512Vnni);
    if (bit(words.leaf7_ecx, 1)) cpu.add(CpuFeature::kAvx512Vbmi);
    if (bit(words.leaf7_1_eax, 5)) cpu.add(CpuFeature::kAvx512Bf16);
  }
  if ((words.xcr0 & kAmxState) == kAmxState && bit(words.leaf7_edx, 24)) {
    cpu.add(CpuFeature::kAmxTile);
    if (bit(words.leaf7_edx, 25)) cpu.add(CpuFeature::kAmxInt8);
    if (bit(words.leaf7_edx, 22)) cpu.add(CpuFeature::kAmxBf16);
  }
  return cpu;
}

CpuFeatures detect_cpu_features() noexcept {
#if defined(__x86_64__)
  CpuFeatures cpu = decode_x86_features(read_cpuid());
  if (cpu.has(CpuFeature::kAmxTile) && !request_tile_state()) {
    for (const CpuFeature tile :
         {CpuFeature::kAmxTile, CpuFeature::kAmxInt8, CpuFeature::kAmxBf16}) {
      cpu.remove(tile);
    }
  }
  return cpu;
#elif defined(__aarch64__)
  CpuFeatures cpu = system_neon_features();
  cpu.add(CpuFeature::kNeon);  // part of the base architecture
  return cpu;
#elif defined(__wasm_simd128__)
  CpuFeatures cpu;
  cpu.add(CpuFeature::kWasmSimd);  // an engine without them does not load the program
  return cpu;
#else
  return {};
#endif
}

const CpuFeatures& host_cpu() noexcept {
  static const CpuFeatures cpu = detect_cpu_features();
  return cpu;
}

std::string cpu_features_text(const CpuFeatures& features) {
  std::string text;
  for (const NamedFeature& named : kNames) {
    if (!features.has(named.feature)) continue;
    if (!text.empty()) text += ' ';
    text += named.name;
  }
  return text;
}

}  // namespace qsf
