// SPDX-License-Identifier: MIT
//
// Holds attention that chooses positions to naive_sparse_attention.h: what came out, what was paid,
// and whether the positions were well chosen by it.

#ifndef QSF_OPS_TESTING_CHOICE_CHECK_H_
#define QSF_OPS_TESTING_CHOICE_CHECK_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kv/h2o_common.h"
#include "kv/kv_policy.h"

namespace qsf::testing_support {

// Of whom a set that serves from position `end` on was chosen, and how.
struct Choice {
  std::vector<std::int32_t> candidates;
  std::uint32_t end = 0;
  std::size_t most = 0;           // members, forced ones included
  std::uint32_t sinks = 0;        // positions below are taken before all others
  std::uint32_t first_local = 0;  // and those from here on
  H2oRanking ranking = H2oRanking::kMean;
  double slack = 0.0;  // relative, of ranks
};

// Holds a set to the sums that the definition finds for every position: it has as many of the
// candidates as it can, those that are forced among them, and none that was dropped ranks above one
// that was kept.
inline void expect_well_chosen(const Choice& choice, const std::vector<std::int32_t>& set,
                               const std::vector<double>& sums) {
  ASSERT_TRUE(std::ranges::is_sorted(set));
  ASSERT_EQ(set.size(), std::min(choice.most, choice.candidates.size()));
  std::size_t n_kept = 0;
  double least_kept = 1e30;
  double most_dropped = -1.0;
  for (const std::int32_t j : choice.candidates) {
    const auto position = static_cast<std::uint32_t>(j);
    const bool kept = std::ranges::binary_search(set, j);
    n_kept += kept ? 1 : 0;
    if (position < choice.sinks || position >= choice.first_local) {
      EXPECT_TRUE(kept) << "position " << j << " at " << choice.end;
      continue;
    }
    const double queries = std::max(kH2oMinQueries, choice.end - position);
    const double rank =
        choice.ranking == H2oRanking::kSum ? sums[position] : sums[position] / queries;
    if (kept) {
      least_kept = std::min(least_kept, rank);
    } else {
      most_dropped = std::max(most_dropped, rank);
    }
  }
  EXPECT_EQ(n_kept, set.size()) << "a member twice, or none of the candidates, at " << choice.end;
  EXPECT_GE(least_kept, most_dropped * (1 - choice.slack)) << "the set from " << choice.end;
}

inline void expect_outputs(const std::vector<std::vector<float>>& got,
                           const std::vector<std::vector<double>>& want, double bound) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(got[i].size(), want[i].size());
    for (std::size_t d = 0; d < want[i].size(); ++d) {
      ASSERT_NEAR(got[i][d], want[i][d], bound) << "row " << i << " column " << d;
    }
  }
}

// Holds what the members of a set were paid to the sums of the definition.
inline void expect_sums(const std::vector<float>& got, const std::vector<std::int32_t>& set,
                        const std::vector<double>& sums, double relative_bound) {
  ASSERT_EQ(got.size(), set.size());
  for (std::size_t m = 0; m < set.size(); ++m) {
    const double sum = sums[static_cast<std::size_t>(set[m])];
    ASSERT_NEAR(got[m], sum, sum * relative_bound + 1e-5) << "position " << set[m];
  }
}

}  // namespace qsf::testing_support

#endif  // QSF_OPS_TESTING_CHOICE_CHECK_H_
