// SPDX-License-Identifier: MIT
//
// The record of kernels and the check at the end of a run.

#include "kernels/testing/isa_coverage.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <sstream>

#include "kernels/activation/activation.h"
#include "kernels/attend/attend.h"
#include "kernels/attend/attend_query_tile.h"
#include "kernels/convert/convert.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/kv_rows/kv_rows.h"
#include "kernels/low_rank/low_rank.h"
#include "kernels/matmul/matmul.h"
#include "kernels/norm/norm.h"
#include "kernels/probe/probe.h"
#include "kernels/quantise/quantise.h"
#include "kernels/rope/rope.h"
#include "kernels/sample/sample.h"
#include "kernels/scan/scan.h"
#include "kernels/softmax/softmax.h"
#include "platform/cpu.h"

namespace qsf::kernels::testing_support {
namespace {

template <typename Table>
void append(const Table& table, std::vector<KernelId>* kernels) {
  for (const auto& kernel : table) kernels->push_back({kernel.name, kernel.isa});
}

class CoverageCheck : public ::testing::Environment {
 public:
  void TearDown() override {
    std::cout << isa_coverage().report();
    const std::string unmet =
        isa_coverage().unmet(std::getenv("QSF_EXPECT_ISA"), all_kernels(), all_sources());
    if (!unmet.empty()) ADD_FAILURE() << unmet;
  }
};

// Registered before main; the object is linked because every kernel test calls can_run.
[[maybe_unused]] ::testing::Environment* const kRegistered =
    ::testing::AddGlobalTestEnvironment(new CoverageCheck);

}  // namespace

std::vector<KernelId> all_kernels() {
  std::vector<KernelId> kernels;
  append(activation_kernels(), &kernels);
  append(attend_prompt_kernels(), &kernels);
  append(attend_query_tile_prompt_kernels(), &kernels);
  append(convert_kernels(), &kernels);
  append(elementwise_kernels(), &kernels);
  append(kv_row_kernels(), &kernels);
  append(low_rank_kernels(), &kernels);
  append(matmul_kernels(), &kernels);
  append(norm_kernels(), &kernels);
  append(arithmetic_probes(), &kernels);
  append(read_probes(), &kernels);
  append(quantise_kernels(), &kernels);
  append(rope_kernels(), &kernels);
  append(sample_kernels(), &kernels);
  append(scan_kernels(), &kernels);
  append(softmax_kernels(), &kernels);
  return kernels;
}

std::vector<KernelId> all_sources() {
  std::istringstream words(QSF_ISA_SOURCES);  // "norm/scalar norm/avx2", from CMakeLists.txt
  std::vector<KernelId> sources;
  for (std::string word; words >> word;) {
    const std::size_t slash = word.find('/');
    sources.push_back({word.substr(0, slash), parse_isa(word.substr(slash + 1)).value()});
  }
  return sources;
}

bool IsaCoverage::can_run(std::string_view kernel, Isa isa) {
  asked_[isa].emplace(kernel);
  return can_run_isa(cpu_, isa);
}

bool IsaCoverage::is_expected(const KernelId& code, Isa isa) const {
  return code.isa <= isa && can_run_isa(cpu_, code.isa);
}

bool IsaCoverage::has_run(const KernelId& kernel) const {
  const auto tier = asked_.find(kernel.isa);
  return tier != asked_.end() && tier->second.contains(kernel.name);
}

bool IsaCoverage::has_run_of(const KernelId& source) const {
  const auto tier = asked_.find(source.isa);
  if (tier == asked_.end()) return false;
  const auto first = tier->second.lower_bound(source.name);
  return first != tier->second.end() && first->starts_with(source.name);
}

std::string IsaCoverage::unmet(const char* expected, const std::vector<KernelId>& kernels,
                               const std::vector<KernelId>& sources) const {
  if (expected == nullptr || *expected == '\0') return {};
  const auto isa = parse_isa(expected);
  if (!isa.has_value()) return "QSF_EXPECT_ISA: " + isa.error().message();
  const std::string where = std::string("QSF_EXPECT_ISA=") + expected + ": ";
  if (!can_run_isa(cpu_, *isa)) {
    return where + "the best tier found here is " + std::string(isa_name(best_isa(cpu_)));
  }
  std::string text;
  for (const KernelId& kernel : kernels) {
    if (is_expected(kernel, *isa) && !has_run(kernel)) {
      text += where + "no test ran the kernel " + kernel.name + "\n";
    }
  }
  for (const KernelId& source : sources) {
    if (is_expected(source, *isa) && !has_run_of(source)) {
      text += where + "of the sources of " + source.name + " for " +
              std::string(isa_name(source.isa)) + " no kernel ran\n";
    }
  }
  return text;
}

std::string IsaCoverage::report() const {
  std::string text;
  for (const auto& [isa, names] : asked_) {
    text +=
        "tier " + std::string(isa_name(isa)) + ": " + std::to_string(names.size()) +
        (can_run_isa(cpu_, isa) ? " kernels ran\n" : " kernels skipped: " + lacking(isa) + "\n");
  }
  return text;
}

IsaCoverage& isa_coverage() {
  static IsaCoverage coverage;
  return coverage;
}

std::string lacking(Isa isa) {
  return "the CPU lacks the tier " + std::string(isa_name(isa));
}

}  // namespace qsf::kernels::testing_support
