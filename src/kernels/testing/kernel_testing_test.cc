// SPDX-License-Identifier: MIT
//
// Tests of what kernel tests rest on: comparator, guards, generator, reference, tier record.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "kernels/testing/error_bound.h"
#include "kernels/testing/guard_pages.h"
#include "kernels/testing/isa_coverage.h"
#include "kernels/testing/reference.h"
#include "kernels/testing/seeded_rng.h"
#include "kernels/testing/special_values.h"
#include "quant/interleave.h"

namespace qsf::kernels::testing_support {
namespace {

TEST(ComparatorTest, NaNMatchesNaNAlone) {
  EXPECT_TRUE(is_within(kNaN, std::nan(""), 1.0));
  EXPECT_FALSE(is_within(kNaN, 0.0, 1e30));
  EXPECT_FALSE(is_within(0.0F, std::nan(""), 1e30));
  EXPECT_FALSE(is_within(1.0F, 1.0, std::nan("")));
}

TEST(ComparatorTest, SignsCount) {
  EXPECT_TRUE(is_within(-1.0F, -1.0, 0.0));
  EXPECT_FALSE(is_within(-1.1F, -1.0, 0.05));
  EXPECT_FALSE(is_within(-1.0F, -1.1, 0.05));
  EXPECT_FALSE(is_within(1.0F, -1.0, 0.5));
  EXPECT_TRUE(is_within(0.0F, -0.0, 0.0));
  EXPECT_TRUE(is_within(-0.0F, 0.0, 0.0));
  EXPECT_FALSE(is_within(0x1p-149F, 0.0, 0.0));
}

TEST(ComparatorTest, InfinityOnlyWhereTheTruthLeavesTheRange) {
  EXPECT_TRUE(is_within(kInf, 1e39, 0.0));
  EXPECT_TRUE(is_within(kInf, std::numeric_limits<double>::infinity(), 0.0));
  EXPECT_FALSE(is_within(kInf, 1e38, 1e30));
  EXPECT_FALSE(is_within(kInf, -1e39, 0.0));
  EXPECT_FALSE(is_within(1e38F, std::numeric_limits<double>::infinity(), 1e38));
}

TEST(ComparatorTest, ArraysReportTheFirstThatIsOut) {
  const float got[] = {1.0F, 2.0F, 4.0F};
  EXPECT_TRUE(all_within(got, {1.0, 2.0, 4.0}, {0.0, 0.0, 0.0}));
  const auto result = all_within(got, {1.0, 3.0, 3.0}, {0.0, 0.5, 0.5});
  EXPECT_FALSE(result);
  EXPECT_NE(std::string(result.message()).find("2 of 3"), std::string::npos) << result.message();
  EXPECT_NE(std::string(result.message()).find("[1]"), std::string::npos) << result.message();
  EXPECT_FALSE(all_within(got, {1.0}, {}));
}

TEST(GuardTest, DiesAtTheFirstByteBeyond) {
  const GuardedBytes bytes(100);
  bytes.data()[0] = std::byte{1};
  bytes.data()[99] = std::byte{1};
  EXPECT_TRUE(bytes.front_intact());
  volatile std::byte* data = bytes.data();
  EXPECT_DEATH_IF_SUPPORTED(data[100] = std::byte{1}, "");
}

TEST(GuardTest, NoticesBytesInFront) {
  const GuardedArray<float> array(16);
  EXPECT_TRUE(array.front_intact());
  array.data()[-1] = 0.0F;
  EXPECT_FALSE(array.front_intact());
  EXPECT_EQ(GuardedArray<float>(0).size(), 0U);
}

TEST(SeededRngTest, ValuesVaryAndRepeat) {
  SeededRng first;
  SeededRng second;
  std::set<float> values;
  for (int i = 0; i < 1000; ++i) {
    const float value = first.uniform(-1.0F, 1.0F);
    EXPECT_EQ(value, second.uniform(-1.0F, 1.0F));
    EXPECT_GE(value, -1.0F);
    EXPECT_LT(value, 1.0F);
    values.insert(value);
  }
  EXPECT_GT(values.size(), 990U);
}

// The exact weights, rounded to f32, are those that the codec decodes from the interleaved group:
// two independent readings of the format agree.
TEST(ReferenceTest, AgreesWithTheCodec) {
  SeededRng rng;
  for (const QuantType type : kAllQuantTypes) {
    for (const std::uint32_t block : {32U, 64U}) {
      const BlockFormat format = kernel_format(block_format(type, block));
      for (const Data data : kAllData) {
        const WeightProblem problem(format, 18, 172, 1, data, rng);
        const std::size_t step = qsf::group_bytes(format, 172);
        for (std::uint32_t r = 0; r < 18; ++r) {
          std::vector<float> decoded(172);
          decode_group_row(format, ByteSpan(problem.groups().data() + r / 16 * step, step), r % 16,
                           172, decoded);
          for (std::uint32_t c = 0; c < 172; ++c) {
            const auto exact = static_cast<float>(problem.weights()[r * 172 + c]);
            if (is_trellis_type(type)) {  // their two products are rounded one after the other
              ASSERT_NEAR(exact, decoded[c], 0x1p-23 * std::fabs(exact)) << problem.name();
              continue;
            }
            ASSERT_EQ(exact, decoded[c]) << problem.name() << " row " << r << " column " << c;
          }
        }
      }
    }
  }
}

TEST(ReferenceTest, DataVaries) {
  SeededRng rng;
  for (const Data data : {Data::kUniform, Data::kNormal, Data::kOutliers, Data::kAnyCodes}) {
    const WeightProblem problem({QuantType::kQ4, 64}, 16, 256, 1, data, rng);
    const std::set<double> values(problem.weights().begin(), problem.weights().end());
    EXPECT_GT(values.size(), 200U);
  }
}

CpuFeatures avx2_cpu() {
  CpuFeatures cpu;
  using enum CpuFeature;
  for (const CpuFeature feature : {kSse42, kAvx2, kFma, kF16c}) cpu.add(feature);
  return cpu;
}
CpuFeatures avx512_cpu() {
  CpuFeatures cpu = avx2_cpu();
  using enum CpuFeature;
  for (const CpuFeature feature : {kAvx512F, kAvx512Bw, kAvx512Dq, kAvx512Vl}) cpu.add(feature);
  return cpu;
}

const std::vector<KernelId> kTwoTiers = {{"norm_scalar", Isa::kScalar}, {"norm_avx2", Isa::kAvx2}};
const std::vector<KernelId> kTwoSources = {{"norm", Isa::kScalar}, {"norm", Isa::kAvx2}};

TEST(IsaCoverageTest, EveryKernelUpToTheExpectedTierMustHaveRun) {
  IsaCoverage coverage(avx512_cpu());
  EXPECT_EQ(coverage.unmet(nullptr, kTwoTiers, {}), "");
  EXPECT_EQ(coverage.unmet("", kTwoTiers, {}), "");
  EXPECT_EQ(coverage.unmet("scalar", kTwoTiers, {}),
            "QSF_EXPECT_ISA=scalar: no test ran the kernel norm_scalar\n");
  EXPECT_TRUE(coverage.can_run("norm_scalar", Isa::kScalar));
  EXPECT_EQ(coverage.unmet("scalar", kTwoTiers, {}), "");
  EXPECT_EQ(coverage.unmet("avx512", kTwoTiers, {}),
            "QSF_EXPECT_ISA=avx512: no test ran the kernel norm_avx2\n");
  EXPECT_TRUE(coverage.can_run("norm_avx2", Isa::kAvx2));
  EXPECT_EQ(coverage.unmet("avx512", kTwoTiers, {}), "");
}

TEST(IsaCoverageTest, ExpectedTierMustBeOneOfTheCpu) {
  IsaCoverage coverage(avx2_cpu());
  EXPECT_EQ(coverage.unmet("avx512", {}, {}),
            "QSF_EXPECT_ISA=avx512: the best tier found here is avx2");
  EXPECT_NE(coverage.unmet("neon", {}, {}), "");
  EXPECT_NE(coverage.unmet("no-such-tier", {}, {}), "");
  EXPECT_EQ(coverage.unmet("sse42", {}, {}), "");
}

TEST(IsaCoverageTest, EverySourceMustHaveARunKernel) {
  IsaCoverage coverage(avx2_cpu());
  EXPECT_TRUE(coverage.can_run("norm_scalar", Isa::kScalar));
  EXPECT_TRUE(coverage.can_run("matmul_avx2", Isa::kAvx2));
  EXPECT_EQ(coverage.unmet("avx2", {}, kTwoSources),
            "QSF_EXPECT_ISA=avx2: of the sources of norm for avx2 no kernel ran\n");
  EXPECT_TRUE(coverage.can_run("norm_rms_avx2", Isa::kAvx2));
  EXPECT_EQ(coverage.unmet("avx2", {}, kTwoSources), "");
}

TEST(IsaCoverageTest, SkippedTiersAreReported) {
  IsaCoverage coverage(avx2_cpu());
  EXPECT_FALSE(coverage.can_run("foreign", Isa::kNeon));
  EXPECT_FALSE(coverage.can_run("branch", Isa::kAvxVnni));
  EXPECT_FALSE(coverage.can_run("higher", Isa::kAvx512));
  EXPECT_TRUE(coverage.can_run("lower", Isa::kSse42));
  EXPECT_EQ(coverage.report(),
            "tier sse42: 1 kernels ran\n"
            "tier avxvnni: 1 kernels skipped: the CPU lacks the tier avxvnni\n"
            "tier avx512: 1 kernels skipped: the CPU lacks the tier avx512\n"
            "tier neon: 1 kernels skipped: the CPU lacks the tier neon\n");
}

// The tables and the list of sources that a build has are not empty, and name what there is.
TEST(IsaCoverageTest, TablesAndSourcesAreListed) {
  const std::vector<KernelId> sources = all_sources();
  EXPECT_GE(sources.size(), 10U);
  std::set<std::string> kernels;
  for (const KernelId& kernel : all_kernels()) {
    EXPECT_TRUE(kernels.insert(kernel.name).second) << kernel.name << " stands in two tables";
    EXPECT_TRUE(kernel.name.ends_with(std::string("_") + std::string(isa_name(kernel.isa))))
        << kernel.name << " of tier " << isa_name(kernel.isa);
  }
  for (const KernelId& source : sources) {
    const auto first = kernels.lower_bound(source.name);
    EXPECT_TRUE(first != kernels.end() && first->starts_with(source.name)) << source.name;
  }
}

}  // namespace
}  // namespace qsf::kernels::testing_support
