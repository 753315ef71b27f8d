// SPDX-License-Identifier: MIT

#include "engine/hidden_rows.h"

#include <gtest/gtest.h>

#include <array>
#include <span>
#include <vector>

namespace qsf {
namespace {

constexpr std::uint32_t kCols = 3;

class HiddenRowsTest : public testing::Test {
 protected:
  HiddenRowsTest() : memory_(HiddenRows::region_bytes(2, 4, kCols)), rows_(2, 4, kCols, memory_) {}

  void add(SequenceId sequence, std::uint32_t position) {
    const auto value = static_cast<float>(100 * sequence + position);
    rows_.add(sequence, position, std::array{value, value + 0.25F, value + 0.5F});
  }
  std::vector<float> first_values(SequenceId sequence) {
    std::vector<float> values;
    for (std::uint32_t p = rows_.begin(sequence); p < rows_.end(sequence); ++p) {
      const std::span<const float> row = rows_.rows(sequence, p, 1);
      EXPECT_EQ(row[2], row[0] + 0.5F);
      values.push_back(row[0]);
    }
    return values;
  }

  std::vector<std::byte> memory_;
  HiddenRows rows_;
};

TEST_F(HiddenRowsTest, KeepsNeighboursOfEachSequence) {
  for (const std::uint32_t position : {7U, 8U, 9U}) add(0, position);
  add(1, 2);
  EXPECT_EQ(first_values(0), (std::vector<float>{7, 8, 9}));
  EXPECT_EQ(first_values(1), (std::vector<float>{102}));
  EXPECT_EQ(rows_.n_free(0), 1U);
  EXPECT_EQ(rows_.rows(0, 8, 2).size(), 2U * kCols);
  rows_.copy(0, 1);
  EXPECT_EQ(first_values(1), (std::vector<float>{7, 8, 9}));
}

TEST_F(HiddenRowsTest, ARowThatIsNotTheNextOneStandsAlone) {
  for (const std::uint32_t position : {0U, 1U, 5U}) add(1, position);
  EXPECT_EQ(first_values(1), (std::vector<float>{105}));
  add(1, 3);
  EXPECT_EQ(first_values(1), (std::vector<float>{103}));
}

TEST_F(HiddenRowsTest, IsCutAtBothEnds) {
  for (std::uint32_t position = 4; position < 8; ++position) add(0, position);
  rows_.cut(0, 9);
  EXPECT_EQ(rows_.n_free(0), 0U);
  rows_.drop_before(0, 6);
  EXPECT_EQ(first_values(0), (std::vector<float>{6, 7}));
  add(0, 8);
  rows_.cut(0, 7);
  EXPECT_EQ(first_values(0), (std::vector<float>{6}));
  rows_.drop_before(0, 3);
  EXPECT_EQ(first_values(0), (std::vector<float>{6}));
  rows_.cut(0, 2);
  EXPECT_EQ(rows_.n_rows(0), 0U);
  EXPECT_EQ(rows_.n_free(0), 4U);
  add(0, 1);
  rows_.drop_before(0, 2);
  EXPECT_EQ(rows_.n_rows(0), 0U);
}

}  // namespace
}  // namespace qsf
