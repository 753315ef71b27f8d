// SPDX-License-Identifier: MIT
//
// Tests of CPU feature detection.

#include "platform/cpu.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace qsf {
namespace {

constexpr std::uint32_t kSse42Words = 1U << 9 | 1U << 19 | 1U << 20 | 1U << 23;
constexpr std::uint32_t kAvxWords = kSse42Words | 1U << 28 | 1U << 12 | 1U << 29;

TEST(CpuTest, DecodesX86Words) {
  X86CpuidWords words;
  EXPECT_EQ(cpu_features_text(decode_x86_features(words)), "");
  words.leaf1_ecx = kSse42Words | 1U << 1;
  EXPECT_EQ(cpu_features_text(decode_x86_features(words)), "sse4.2 pclmul");
  words.leaf1_ecx = kAvxWords;
  words.leaf7_ebx = 1U << 5;
  words.xcr0 = 0x7;
  EXPECT_EQ(cpu_features_text(decode_x86_features(words)), "sse4.2 avx2 fma f16c");
  words.leaf7_1_eax = 1U << 4;
  EXPECT_EQ(cpu_features_text(decode_x86_features(words)), "sse4.2 avx2 fma f16c avxvnni");
  words.leaf7_ebx |= 1U << 16 | 1U << 17 | 1U << 30 | 1U << 31;
  words.leaf7_ecx = 1U << 11;
  words.leaf7_edx = 1U << 22 | 1U << 24 | 1U << 25;
  words.leaf7_1_eax = 1U << 5;
  EXPECT_EQ(cpu_features_text(decode_x86_features(words)), "sse4.2 avx2 fma f16c");
  words.xcr0 = 0xE7;
  EXPECT_EQ(cpu_features_text(decode_x86_features(words)),
            "sse4.2 avx2 fma f16c avx512f avx512bw avx512dq avx512vl avx512vnni "
            "avx512bf16");
  words.leaf7_ecx |= 1U << 1;
  words.xcr0 = 0x600E7;
  EXPECT_EQ(cpu_features_text(decode_x86_features(words)),
            "sse4.2 avx2 fma f16c avx512f avx512bw avx512dq avx512vl avx512vnni avx512vbmi "
            "avx512bf16 amx-tile amx-int8 amx-bf16");
}

// Registers that the system does not save hide every feature that needs them.
TEST(CpuTest, UnsavedRegistersHideTheirFeatures) {
  X86CpuidWords words;
  words.leaf1_ecx = kAvxWords;
  words.leaf7_ebx = 0xFFFFFFFFU;
  words.leaf7_ecx = 0xFFFFFFFFU;
  words.leaf7_edx = 0xFFFFFFFFU;
  words.leaf7_1_eax = 0xFFFFFFFFU;
  EXPECT_EQ(cpu_features_text(decode_x86_features(words)), "sse4.2");
  words.xcr0 = 0xE0;  // AVX-512 state without the AVX state below it
  EXPECT_EQ(cpu_features_text(decode_x86_features(words)), "sse4.2");
}

TEST(CpuTest, HostAnswerIsStable) {
  EXPECT_EQ(host_cpu().bits, detect_cpu_features().bits);
  EXPECT_EQ(&host_cpu(), &host_cpu());
}

#if defined(__x86_64__)
// The kernel's own list is an independent reading of the same registers.
TEST(CpuTest, AgreesWithTheKernel) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line;
  std::string flags;
  while (std::getline(cpuinfo, line)) {
    if (line.rfind("flags", 0) == 0) {
      flags = line + " ";
      break;
    }
  }
  if (flags.empty()) GTEST_SKIP() << "no flags line in /proc/cpuinfo";
  const auto listed = [&flags](const char* name) {
    return flags.find(" " + std::string(name) + " ") != std::string::npos;
  };
  EXPECT_EQ(host_cpu().has(CpuFeature::kSse42), listed("sse4_2"));
  EXPECT_EQ(host_cpu().has(CpuFeature::kAvx2), listed("avx2"));
  EXPECT_EQ(host_cpu().has(CpuFeature::kFma), listed("fma"));
  EXPECT_EQ(host_cpu().has(CpuFeature::kF16c), listed("f16c"));
  EXPECT_EQ(host_cpu().has(CpuFeature::kAvxVnni), listed("avx_vnni"));
  EXPECT_EQ(host_cpu().has(CpuFeature::kPclmul), listed("pclmulqdq"));
  EXPECT_EQ(host_cpu().has(CpuFeature::kAvx512F), listed("avx512f"));
  EXPECT_EQ(host_cpu().has(CpuFeature::kAvx512Vnni), listed("avx512_vnni"));
  EXPECT_EQ(host_cpu().has(CpuFeature::kAvx512Vbmi), listed("avx512vbmi"));
  EXPECT_EQ(host_cpu().has(CpuFeature::kAvx512Bf16), listed("avx512_bf16"));
  EXPECT_EQ(host_cpu().has(CpuFeature::kAmxTile), listed("amx_tile"));
}
#endif

}  // namespace
}  // namespace qsf
