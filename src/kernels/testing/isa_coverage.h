// SPDX-License-Identifier: MIT
//
// Which kernels of which tiers a test run really executed.
//
// Kernel tests ask can_run() and skip when the CPU lacks the tier. At the end of the run the
// kernels of each tier are counted and the skipped tiers listed. With QSF_EXPECT_ISA=avx2 in the
// environment the run fails unless the CPU has that tier and every kernel of it and of all lower
// ones was run: neither a machine that lost a CPU feature nor a table that no test walks stays
// green.

#ifndef QSF_KERNELS_TESTING_ISA_COVERAGE_H_
#define QSF_KERNELS_TESTING_ISA_COVERAGE_H_

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/isa.h"

namespace qsf::kernels::testing_support {

struct KernelId {
  std::string name;  // "norm_avx2"; begins with the folder of its code
  Isa isa;
};

// Returns the kernels of all tables.
std::vector<KernelId> all_kernels();

// Returns folder and tier of the code in each per-ISA source of this build, "norm" and kAvx2 for
// lanes/lanes_avx2.cc, for example.
std::vector<KernelId> all_sources();

// What ran and what did not; one global one records the run, others are for its own tests.
class IsaCoverage {
 public:
  explicit IsaCoverage(const CpuFeatures& cpu = host_cpu()) : cpu_(cpu) {}

  // Returns whether this CPU runs `isa`, and keeps note of the answer.
  bool can_run(std::string_view kernel, Isa isa);

  // Returns why `expected`, the value of QSF_EXPECT_ISA, is not met by what ran of `kernels` and
  // `sources`, a line each reason; empty when it is or is null. All tiers up to that one that this
  // CPU runs have to have run.
  std::string unmet(const char* expected, const std::vector<KernelId>& kernels,
                    const std::vector<KernelId>& sources) const;

  // Returns a line for each tier of which a kernel was asked for: how many ran, or were skipped.
  std::string report() const;

 private:
  using Names = std::set<std::string, std::less<>>;

  // Whether a run that is expected up to tier `isa` has to have run that code.
  bool is_expected(const KernelId& code, Isa isa) const;
  bool has_run(const KernelId& kernel) const;
  bool has_run_of(const KernelId& source) const;

  CpuFeatures cpu_;
  std::map<Isa, Names> asked_;
};

IsaCoverage& isa_coverage();

template <typename Kernel>
bool can_run(const Kernel& kernel) {
  return isa_coverage().can_run(kernel.name, kernel.isa);
}

// Returns what a test says when it skips a kernel of that tier.
std::string lacking(Isa isa);

// Names a parameterised test after its kernel.
struct KernelName {
  template <typename Info>
  std::string operator()(const Info& info) const {
    return info.param.name;
  }
};

}  // namespace qsf::kernels::testing_support

#endif  // QSF_KERNELS_TESTING_ISA_COVERAGE_H_
