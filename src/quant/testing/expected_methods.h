// SPDX-License-Identifier: MIT
//
// For tests of loops that exist for several instruction sets, and skip those that the CPU lacks.

#ifndef QSF_QUANT_TESTING_EXPECTED_METHODS_H_
#define QSF_QUANT_TESTING_EXPECTED_METHODS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace qsf::testing_support {

// Expects the methods that the tier named by QSF_EXPECT_ISA in the environment can run to be there
// and available; without it, the one that runs everywhere. `methods` have a name and
// is_available().
template <typename Methods>
void expect_methods_of_tier(const Methods& methods) {
  const char* const isa = std::getenv("QSF_EXPECT_ISA");
  const std::string_view expected = isa == nullptr ? "" : isa;
  std::vector<std::string_view> names = {"baseline"};
  const bool has_avx512 = expected.starts_with("avx512") || expected == "amx";
  if (has_avx512 || expected == "avx2" || expected == "avxvnni") names.emplace_back("avx2");
  if (has_avx512) names.emplace_back("avx512");
  for (const std::string_view name : names) {
    const auto method =
        std::ranges::find_if(methods, [name](const auto& m) { return m.name == name; });
    ASSERT_NE(method, methods.end()) << "QSF_EXPECT_ISA=" << expected << ": no " << name;
    EXPECT_TRUE(method->is_available()) << "QSF_EXPECT_ISA=" << expected << ": not " << name;
  }
}

}  // namespace qsf::testing_support

#endif  // QSF_QUANT_TESTING_EXPECTED_METHODS_H_
