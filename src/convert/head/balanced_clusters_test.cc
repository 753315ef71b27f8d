// SPDX-License-Identifier: MIT
//
// Clusters of equal size: all rows once, groups that there are, and rows that are alike.

#include "convert/head/balanced_clusters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "base/rng.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using Rows = std::vector<std::vector<float>>;

Result<std::vector<std::uint32_t>> clusters_of(const Rows& rows, std::uint32_t cluster_rows) {
  const auto read = [&](std::uint32_t row, std::span<float> values) {
    std::copy(rows[row].begin(), rows[row].end(), values.begin());
  };
  const auto n_cols = rows.empty() ? 1U : static_cast<std::uint32_t>(rows[0].size());
  return order_by_clusters(static_cast<std::uint32_t>(rows.size()), n_cols, cluster_rows, read);
}

Rows normal_rows(std::size_t n, std::size_t n_cols, Rng& rng) {
  Rows rows(n, std::vector<float>(n_cols));
  for (auto& row : rows) {
    for (float& value : row) value = rng.next_normal();
  }
  return rows;
}

// The sum of squared distances of rows from the means of their clusters.
double spread(const Rows& rows, const std::vector<std::uint32_t>& order, std::size_t cluster) {
  double total = 0.0;
  for (std::size_t first = 0; first < order.size(); first += cluster) {
    const std::size_t last = std::min(first + cluster, order.size());
    for (std::size_t i = 0; i < rows[0].size(); ++i) {
      double sum = 0.0;
      double squares = 0.0;
      for (std::size_t k = first; k < last; ++k) {
        const auto value = static_cast<double>(rows[order[k]][i]);
        sum += value;
        squares += value * value;
      }
      total += squares - sum * sum / static_cast<double>(last - first);
    }
  }
  return total;
}

TEST(BalancedClustersTest, HasEveryRowOnceAndRowsAscendInAClusterForAllSizes) {
  Rng rng(1);
  for (const std::size_t n : {0U, 1U, 15U, 16U, 17U, 33U, 48U, 100U, 257U}) {
    const Rows rows = normal_rows(n, 5, rng);
    for (const std::uint32_t cluster : {1U, 16U, 1000U}) {
      const auto order = clusters_of(rows, cluster);
      ASSERT_TRUE(order.has_value());
      std::vector<std::uint32_t> sorted = *order;
      std::sort(sorted.begin(), sorted.end());
      std::vector<std::uint32_t> all(n);
      std::iota(all.begin(), all.end(), 0U);
      EXPECT_EQ(sorted, all);
      for (std::size_t i = 1; i < n; ++i) {
        if (i % cluster == 0) continue;
        EXPECT_LT((*order)[i - 1], (*order)[i]);
      }
    }
  }
}

TEST(BalancedClustersTest, FindsGroupsThatThereAre) {
  Rng rng(2);
  Rows rows = normal_rows(160, 12, rng);
  for (std::size_t row = 0; row < 160; ++row) {
    for (float& value : rows[row]) value *= 0.1F;
    rows[row][row * 7 % 10] += 20.0F;  // ten groups, mixed
  }
  const auto order = clusters_of(rows, 16);
  ASSERT_TRUE(order.has_value());
  for (std::size_t cluster = 0; cluster < 10; ++cluster) {
    std::set<std::size_t> groups;
    for (std::size_t i = 0; i < 16; ++i) groups.insert((*order)[cluster * 16 + i] * 7 % 10);
    EXPECT_EQ(groups.size(), 1U) << cluster;
  }
}

// Rows near a plane: 64 clusters along it keep about 4 % of the squares, others nearly all.
TEST(BalancedClustersTest, ClustersAreTight) {
  Rng rng(3);
  Rows rows = normal_rows(1024, 8, rng);
  for (auto& row : rows) {
    for (std::size_t i = 2; i < 8; ++i) row[i] *= 0.05F;
  }
  std::vector<std::uint32_t> as_they_are(rows.size());
  std::iota(as_they_are.begin(), as_they_are.end(), 0U);
  const auto order = clusters_of(rows, 16);
  ASSERT_TRUE(order.has_value());
  EXPECT_LT(spread(rows, *order, 16), 0.06 * spread(rows, as_they_are, 16));
}

// One far row must not decide how the others are halved.
TEST(BalancedClustersTest, StepsMoveRowsFromAFirstLine) {
  Rng rng(4);
  Rows rows = normal_rows(64, 2, rng);
  for (std::size_t row = 0; row < 64; ++row) {
    rows[row][0] = row % 2 == 0 ? -1.0F : 1.0F;
    rows[row][1] *= 0.1F;
  }
  rows[5] = {1.0F, 4.0F};
  const auto order = clusters_of(rows, 32);
  ASSERT_TRUE(order.has_value());
  for (std::size_t i = 1; i < 32; ++i) EXPECT_EQ((*order)[i] % 2, (*order)[0] % 2);
}

TEST(BalancedClustersTest, EqualRowsStayInOrder) {
  const auto order = clusters_of(Rows(10, {1.0F, 2.0F}), 4);
  ASSERT_TRUE(order.has_value());
  EXPECT_THAT(*order, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST(BalancedClustersTest, RefusesValuesThatAreNotFinite) {
  Rng rng(5);
  for (const float broken :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Rows rows = normal_rows(40, 3, rng);
    rows[33][1] = broken;
    const auto order = clusters_of(rows, 8);
    ASSERT_FALSE(order.has_value());
    EXPECT_EQ(order.error().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace qsf
