// SPDX-License-Identifier: MIT
//
// The record of tiers and the check at the end of a run.

#include "kernels/testing/isa_coverage.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "platform/cpu.h"

namespace qsf::kernels::testing_support {
namespace {

constexpr std::uint32_t mask_of(Isa isa) {
  return 1U << static_cast<unsigned>(isa);
}

class CoverageCheck : public ::testing::Environment {
 public:
  void TearDown() override {
    for (const std::string& kernel : isa_coverage().skipped()) {
      std::cout << "skipped, the CPU lacks the tier: " << kernel << "\n";
    }
    const std::string unmet = isa_coverage().unmet(std::getenv("QSF_EXPECT_ISA"));
    if (!unmet.empty()) ADD_FAILURE() << unmet;
  }
};

// Registered before main; the object is linked because every kernel test calls can_run.
[[maybe_unused]] ::testing::Environment* const kRegistered =
    ::testing::AddGlobalTestEnvironment(new CoverageCheck);

}  // namespace

bool IsaCoverage::can_run(std::string_view kernel, Isa isa) {
  if (isa_covers(best_isa(host_cpu()), isa)) {
    ran_ |= mask_of(isa);
    return true;
  }
  skipped_.emplace(kernel);
  return false;
}

std::string IsaCoverage::unmet(const char* expected) const {
  if (expected == nullptr || *expected == '\0') return {};
  const auto isa = parse_isa(expected);
  if (!isa.has_value()) return "QSF_EXPECT_ISA: " + isa.error().message();
  if ((ran_ & mask_of(*isa)) != 0) return {};
  return std::string("QSF_EXPECT_ISA=") + expected + ": no kernel of that tier ran";
}

IsaCoverage& isa_coverage() {
  static IsaCoverage coverage;
  return coverage;
}

}  // namespace qsf::kernels::testing_support
