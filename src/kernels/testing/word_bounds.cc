// SPDX-License-Identifier: MIT

#include "kernels/testing/word_bounds.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/attend/attend_word_ranges.h"
#include "kernels/testing/error_bound.h"

namespace qsf::kernels::testing_support {
namespace {

constexpr double kHalf = 0.51;  // what is rounded has been rounded in f32 before
constexpr double kRoundings = 12.0;

double largest_of(const std::vector<double>& x) {
  double largest = 0.0;
  for (const double v : x) largest = std::max(largest, std::fabs(v));
  return largest;
}

}  // namespace

double word_score_error(const std::vector<double>& q, const std::vector<double>& k, KvType type) {
  const auto n = static_cast<std::uint32_t>(q.size());
  const KvType read = type == KvType::kF16 ? type : KvType::k8Bit;
  const double of_q = kHalf / attend_page_internal::largest_query(read, n) * largest_of(q);
  const double of_k = read == KvType::k8Bit
                          ? 0.0
                          : kHalf / attend_page_internal::largest_key(read, n) * largest_of(k);
  double error = 0.0;
  for (std::uint32_t d = 0; d < n; ++d) {
    error += of_q * std::fabs(k[d]) + of_k * (std::fabs(q[d]) + of_q) +
             gamma_of(kRoundings) * std::fabs(q[d] * k[d]);
  }
  return error;
}

double word_value_error(const std::vector<SeenSlot>& seen, KvType type) {
  struct Page {
    double weight = 0.0;
    double value = 0.0;
  };
  std::map<std::size_t, Page> largest;
  double error = 0.0;
  for (const SeenSlot& s : seen) {
    const double of_v = type == KvType::kF16 ? kHalf / attend_page_internal::kLargestElement : 0.0;
    error += s.weight * s.largest_value * (of_v + gamma_of(kRoundings));
    Page& page = largest[s.page];
    page.weight = std::max(page.weight, s.weight);
    page.value = std::max(page.value, s.largest_value);
  }
  for (const SeenSlot& s : seen) {
    const Page& page = largest[s.page];
    error += page.weight * page.value * kHalf / attend_page_internal::kLargestWeight;
  }
  return error;
}

}  // namespace qsf::kernels::testing_support
