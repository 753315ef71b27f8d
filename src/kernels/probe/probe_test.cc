// SPDX-License-Identifier: MIT
//
// Every probe does the work that its rate is computed from.

#include "kernels/probe/probe.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/testing/guard_pages.h"
#include "kernels/testing/isa_coverage.h"
#include "kernels/testing/seeded_rng.h"

namespace qsf::kernels {
namespace {

using namespace testing_support;

class ArithmeticProbeTest : public testing::TestWithParam<ArithmeticProbe> {};

// Half of the operations are products, and every product is one.
TEST_P(ArithmeticProbeTest, AddsUpEveryProduct) {
  const ArithmeticProbe& probe = GetParam();
  if (!can_run(probe)) GTEST_SKIP() << "this CPU does not run " << isa_name(probe.isa);
  // Emulated tiles are slower by a factor of thousands.
  const bool emulated = probe.isa == Isa::kAmx && !amx_is_native();
  for (const std::uint32_t n_rounds : {0U, 1U, 3U, 20U, emulated ? 40U : kMaxProbeRounds}) {
    const std::uint64_t n_products = std::uint64_t{n_rounds} * probe.operations / 2;
    const std::uint64_t expected =
        probe.kind == ProbeKind::kInt8 ? n_products & 0xFFFFU : n_products;
    EXPECT_EQ(probe.run(n_rounds), expected) << probe.name << ", " << n_rounds << " rounds";
  }
}

INSTANTIATE_TEST_SUITE_P(All, ArithmeticProbeTest, testing::ValuesIn(arithmetic_probes()),
                         KernelName());

class ReadProbeTest : public testing::TestWithParam<ReadProbe> {};

TEST_P(ReadProbeTest, AddsUpEveryWordAndReadsNoMore) {
  const ReadProbe& probe = GetParam();
  if (!can_run(probe)) GTEST_SKIP() << "this CPU does not run " << isa_name(probe.isa);
  SeededRng rng;
  for (const std::size_t n_bytes : {512U, 4096U, 12800U}) {
    const GuardedBytes memory(n_bytes);
    std::uint64_t expected = 0;
    for (std::size_t at = 0; at < n_bytes; at += 8) {
      const std::uint64_t word = rng.get().next_u64();
      std::memcpy(memory.data() + at, &word, 8);
      expected += word;
    }
    for (const std::uint32_t n_streams : {1U, 4U, 8U}) {
      for (const std::uint32_t prefetch_bytes : {0U, 2048U}) {
        EXPECT_EQ(probe.run({memory.data(), n_bytes, n_streams, prefetch_bytes}), expected)
            << probe.name << ", " << n_bytes << " bytes, " << n_streams << " streams";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReadProbeTest, testing::ValuesIn(read_probes()), KernelName());

}  // namespace
}  // namespace qsf::kernels
