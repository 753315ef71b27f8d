// SPDX-License-Identifier: MIT
//
// Which tiers a test run really executed.
//
// Kernel tests ask can_run() and skip when the CPU lacks the tier. At the end of the run the
// skipped kernels are listed, and with QSF_EXPECT_ISA=avx2 in the environment the run fails unless
// a kernel of that tier ran: a runner that lost a CPU feature cannot stay green.

#ifndef QSF_KERNELS_TESTING_ISA_COVERAGE_H_
#define QSF_KERNELS_TESTING_ISA_COVERAGE_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "kernels/isa.h"

namespace qsf::kernels::testing_support {

// What ran and what did not; one global one records the run, others are for its own tests.
class IsaCoverage {
 public:
  // Returns whether this CPU runs `isa`, and keeps note of the answer.
  bool can_run(std::string_view kernel, Isa isa);

  // Returns why `expected`, the value of QSF_EXPECT_ISA, is not met; empty when it is or is null.
  std::string unmet(const char* expected) const;

  const std::set<std::string>& skipped() const noexcept { return skipped_; }

 private:
  std::uint32_t ran_ = 0;  // one bit per tier
  std::set<std::string> skipped_;
};

IsaCoverage& isa_coverage();

template <typename Kernel>
bool can_run(const Kernel& kernel) {
  return isa_coverage().can_run(kernel.name, kernel.isa);
}

// Names a parameterised test after its kernel.
struct KernelName {
  template <typename Info>
  std::string operator()(const Info& info) const {
    return info.param.name;
  }
};

}  // namespace qsf::kernels::testing_support

#endif  // QSF_KERNELS_TESTING_ISA_COVERAGE_H_
