// SPDX-License-Identifier: MIT
//
// Tests of the tiers' names, order and choice, and of the kernel sets made from them.

#include "kernels/isa.h"

#include <gtest/gtest.h>

#include "kernels/kernel_set.h"

namespace qsf::kernels {
namespace {

CpuFeatures with(std::initializer_list<CpuFeature> features) {
  CpuFeatures cpu;
  for (const CpuFeature feature : features) cpu.add(feature);
  return cpu;
}

TEST(IsaTest, NamesGoBothWays) {
  for (const Isa isa : kAllIsas) EXPECT_EQ(parse_isa(isa_name(isa)).value(), isa);
  const auto unknown = parse_isa("avx3");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(unknown.error().message(),
            "instruction set \"avx3\": unknown, expected one of scalar, sse42, avx2, avxvnni, "
            "avx512, avx512vnni, avx512vbmi, amx, neon, neondot, neoni8mm, wasm");
  EXPECT_FALSE(parse_isa("").has_value());
  EXPECT_FALSE(parse_isa("AVX2").has_value());
}

TEST(IsaTest, CoversLowerTiersOfItsArchitecture) {
  for (const Isa best : kAllIsas) {
    EXPECT_TRUE(isa_covers(best, Isa::kScalar));
    EXPECT_TRUE(isa_covers(best, best));
  }
  EXPECT_TRUE(isa_covers(Isa::kAmx, Isa::kAvx2));
  EXPECT_FALSE(isa_covers(Isa::kAvx2, Isa::kAvx512));
  EXPECT_TRUE(isa_covers(Isa::kAvxVnni, Isa::kAvx2));
  EXPECT_FALSE(isa_covers(Isa::kAvx512, Isa::kAvxVnni));
  EXPECT_FALSE(isa_covers(Isa::kAmx, Isa::kAvxVnni));
  EXPECT_TRUE(isa_covers(Isa::kNeonI8mm, Isa::kNeonDot));
  EXPECT_FALSE(isa_covers(Isa::kNeonDot, Isa::kNeonI8mm));
  EXPECT_FALSE(isa_covers(Isa::kNeonI8mm, Isa::kAvx2));
  EXPECT_FALSE(isa_covers(Isa::kAmx, Isa::kNeon));
  EXPECT_FALSE(isa_covers(Isa::kScalar, Isa::kSse42));
  EXPECT_FALSE(isa_covers(Isa::kWasm, Isa::kSse42));
  EXPECT_FALSE(isa_covers(Isa::kWasm, Isa::kNeon));
}

TEST(IsaTest, BestNeedsEveryTierBelow) {
  using enum CpuFeature;
  EXPECT_EQ(best_isa({}), Isa::kScalar);
  EXPECT_EQ(best_isa(with({kSse42})), Isa::kSse42);
  EXPECT_EQ(best_isa(with({kSse42, kAvx2, kFma})), Isa::kSse42);  // no F16C
  EXPECT_EQ(best_isa(with({kSse42, kAvx2, kFma, kF16c})), Isa::kAvx2);
  EXPECT_EQ(best_isa(with({kAvx2, kFma, kF16c})), Isa::kScalar);
  const CpuFeatures avx512 =
      with({kSse42, kAvx2, kFma, kF16c, kAvx512F, kAvx512Bw, kAvx512Dq, kAvx512Vl});
  EXPECT_EQ(best_isa(avx512), Isa::kAvx512);
  CpuFeatures amx = avx512;
  for (const CpuFeature f : {kAmxTile, kAmxInt8, kAmxBf16}) amx.add(f);
  EXPECT_EQ(best_isa(amx), Isa::kAvx512);  // no VNNI
  amx.add(kAvx512Vnni);
  EXPECT_EQ(best_isa(amx), Isa::kAvx512Vnni);  // no VBMI
  amx.add(kAvx512Vbmi);
  EXPECT_EQ(best_isa(amx), Isa::kAvx512Vbmi);  // no bf16 beside the tiles
  amx.add(kAvx512Bf16);
  EXPECT_EQ(best_isa(amx), Isa::kAmx);
  EXPECT_EQ(best_isa(with({kWasmSimd})), Isa::kWasm);
  EXPECT_EQ(best_isa(with({kNeon})), Isa::kNeon);
  EXPECT_EQ(best_isa(with({kNeon, kNeonDot})), Isa::kNeonDot);
  EXPECT_EQ(best_isa(with({kNeon, kNeonDot, kNeonI8mm})), Isa::kNeonI8mm);
  EXPECT_EQ(best_isa(with({kNeon, kNeonI8mm})), Isa::kNeon);
}

#if defined(__x86_64__)
// A branch beside AVX-512: CPUs may have either, neither or both, and then take the latter.
TEST(IsaTest, AvxVnniIsABranch) {
  using enum CpuFeature;
#if defined(QSF_EVEX_VNNI)
  const CpuFeatures laptop = with({kSse42, kAvx2, kFma, kF16c, kAvx512Vl, kAvx512Vnni});
#else
  const CpuFeatures laptop = with({kSse42, kAvx2, kFma, kF16c, kAvxVnni});
#endif
  EXPECT_EQ(best_isa(laptop), Isa::kAvxVnni);
  EXPECT_EQ(choose_isa(laptop, "avx512vnni").value(), Isa::kAvxVnni);
  EXPECT_EQ(choose_isa(laptop, "avx2").value(), Isa::kAvx2);
  EXPECT_EQ(best_isa(with({kAvxVnni, kAvx512Vl, kAvx512Vnni})), Isa::kScalar);
  CpuFeatures avx512 =
      with({kSse42, kAvx2, kFma, kF16c, kAvx512F, kAvx512Bw, kAvx512Dq, kAvx512Vl});
  EXPECT_FALSE(can_run_isa(avx512, Isa::kAvxVnni));
  EXPECT_EQ(choose_isa(avx512, "avxvnni").value(), Isa::kAvx2);
  avx512.bits |= laptop.bits;
  EXPECT_TRUE(can_run_isa(avx512, Isa::kAvxVnni));
  EXPECT_GE(best_isa(avx512), Isa::kAvx512);
  EXPECT_EQ(choose_isa(avx512, "avxvnni").value(), Isa::kAvxVnni);
  EXPECT_EQ(choose_isa(avx512, "avx512").value(), Isa::kAvx512);
}

TEST(IsaTest, CapLowersAndNeverRaises) {
  using enum CpuFeature;
  const CpuFeatures avx2 = with({kSse42, kAvx2, kFma, kF16c});
  EXPECT_EQ(choose_isa(avx2, nullptr).value(), Isa::kAvx2);
  EXPECT_EQ(choose_isa(avx2, "").value(), Isa::kAvx2);
  EXPECT_EQ(choose_isa(avx2, "scalar").value(), Isa::kScalar);
  EXPECT_EQ(choose_isa(avx2, "sse42").value(), Isa::kSse42);
  EXPECT_EQ(choose_isa(avx2, "amx").value(), Isa::kAvx2);
  EXPECT_EQ(choose_isa(avx2, "fast").error().message().substr(0, 9), "QSF_ISA: ");
  EXPECT_EQ(choose_isa(avx2, "neon").error().code(), StatusCode::kInvalidArgument);
}
#endif

#if defined(QSF_EMULATE_AMX)
TEST(IsaTest, EmulatedTilesRunWhenNamed) {
  using enum CpuFeature;
  const CpuFeatures vbmi = with({kSse42, kAvx2, kFma, kF16c, kAvx512F, kAvx512Bw, kAvx512Dq,
                                 kAvx512Vl, kAvx512Vnni, kAvx512Vbmi, kAvx512Bf16});
  EXPECT_TRUE(can_run_isa(vbmi, Isa::kAmx));
  EXPECT_EQ(choose_isa(vbmi, nullptr).value(), Isa::kAvx512Vbmi);
  EXPECT_EQ(choose_isa(vbmi, "amx").value(), Isa::kAmx);
  EXPECT_EQ(choose_isa(vbmi, "avx512vnni").value(), Isa::kAvx512Vnni);
  EXPECT_FALSE(can_run_isa(with({kSse42, kAvx2, kFma, kF16c, kAvx512Bf16}), Isa::kAmx));
}
#endif

TEST(KernelSetTest, EverySetHoldsWhatItsTierCovers) {
  for (const Isa best : kAllIsas) {
    const KernelSet& set = kernel_set(best);
    EXPECT_EQ(&set, &kernel_set(best));
    EXPECT_EQ(set.best, best);
    EXPECT_TRUE(isa_covers(best, set.norm.isa));
    EXPECT_TRUE(isa_covers(best, set.attend_prompt.isa));
    EXPECT_TRUE(isa_covers(best, set.attend_decode.isa));
    EXPECT_NE(set.norm.rms_norm, nullptr);
    EXPECT_NE(set.norm.layer_norm, nullptr);
    EXPECT_NE(set.rope.rotate_half, nullptr);
    EXPECT_NE(set.attend_prompt.page, nullptr);
    EXPECT_NE(set.attend_decode.page, nullptr);
    EXPECT_NE(set.sample.argmax, nullptr);
  }
}

TEST(KernelSetTest, NamesEveryTable) {
  const std::string names = kernel_set_names(kernel_set(Isa::kScalar));
  for (const char* line :
       {"matmul 4bit/64 i8: matmul_q4g64_i8_scalar\n", "matmul f16 f32: matmul_f16_f32_scalar\n",
        "norm: norm_scalar\n", "sample: sample_scalar\n", "kv_rows: kv_rows_scalar\n"}) {
    EXPECT_NE(names.find(line), std::string::npos) << names;
  }
}

// Every table of the smaller kernels has every tier that one of them has.
TEST(KernelSetTest, SmallKernelsComeInTheSameTiers) {
  for (const Isa best : kAllIsas) {
    const KernelSet& set = kernel_set(best);
    for (const Isa isa : {set.rope.isa, set.activation.isa, set.elementwise.isa, set.softmax.isa,
                          set.convert.isa, set.sample.isa, set.quantise.isa, set.kv_rows.isa}) {
      EXPECT_EQ(isa, set.norm.isa) << isa_name(best);
    }
  }
#if defined(__x86_64__)
  EXPECT_EQ(kernel_set(Isa::kAvx2).norm.isa, Isa::kAvx2);
  EXPECT_EQ(kernel_set(Isa::kAvxVnni).norm.isa, Isa::kAvx2);
  EXPECT_EQ(kernel_set(Isa::kAmx).norm.isa, Isa::kAvx512);
#elif defined(__aarch64__)
  EXPECT_EQ(kernel_set(Isa::kNeonI8mm).norm.isa, Isa::kNeon);
#endif
}

}  // namespace
}  // namespace qsf::kernels
