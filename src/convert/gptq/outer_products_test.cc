// SPDX-License-Identifier: MIT
//
// Every method of this CPU gives the bits of plain loops. With QSF_EXPECT_ISA in the environment,
// the methods of that tier must be available.

#include "convert/gptq/outer_products.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/rng.h"
#include "quant/testing/expected_methods.h"

namespace qsf {
namespace {

std::vector<float> random_floats(std::size_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(n);
  for (float& value : values) value = rng.next_normal();
  return values;
}

TEST(OuterProductsTest, EveryMethodSumsInTheOrderOfRows) {
  for (const std::size_t n_rows : {std::size_t{0}, std::size_t{1}, std::size_t{7}, kPanelRows}) {
    const std::vector<float> a = random_floats(n_rows * kPanelCols, 1);
    const std::vector<float> b = random_floats(n_rows * kPanelCols, 2);
    const std::vector<float> before = random_floats(kPanelCols * kPanelCols, 5);
    std::vector<float> expected = before;
    for (std::size_t k = 0; k < kPanelCols; ++k) {
      for (std::size_t r = 0; r < n_rows; ++r) {
        for (std::size_t i = 0; i < kPanelCols; ++i) {
          expected[k * kPanelCols + i] += a[r * kPanelCols + i] * b[r * kPanelCols + k];
        }
      }
    }
    for (const SumTileMethod& method : sum_tile_methods()) {
      if (!method.is_available()) continue;
      std::vector<float> sums = before;
      method.run(a.data(), b.data(), n_rows, sums.data(), kPanelCols);
      EXPECT_TRUE(sums == expected) << method.name << ", " << n_rows << " rows";
    }
  }
}

TEST(OuterProductsTest, MethodsOfTheTierAreAvailable) {
  testing_support::expect_methods_of_tier(sum_tile_methods());
  EXPECT_TRUE(sum_tile_methods().back().is_available());
}

TEST(OuterProductsTest, TriangleAddsUpPanelByPanel) {
  constexpr std::size_t kRowsGiven = 100;
  for (const std::size_t size : {std::size_t{1}, kPanelCols, std::size_t{130}}) {
    const std::vector<float> rows = random_floats(kRowsGiven * size, 3);
    const std::vector<float> before = random_floats(size * size, 4);
    std::vector<float> panels(panel_floats(size));
    for (std::size_t r = 0; r < kRowsGiven; ++r) {
      store_in_panels(std::span(rows).subspan(r * size, size), r, panels);
    }
    std::vector<float> sums = before;
    for (std::size_t panel = 0; panel < n_panels(size); ++panel) {
      add_outer_products(panels, kRowsGiven, size, panel, sums);
    }
    for (std::size_t k = 0; k < size; ++k) {
      for (std::size_t i = 0; i <= k; ++i) {
        float sum = before[k * size + i];
        for (std::size_t r = 0; r < kRowsGiven; ++r) sum += rows[r * size + i] * rows[r * size + k];
        ASSERT_EQ(sums[k * size + i], sum) << i << ", " << k;
      }
      for (std::size_t i = n_panels(k + 1) * kPanelCols; i < size; ++i) {
        ASSERT_EQ(sums[k * size + i], before[k * size + i]) << i << ", " << k;
      }
    }
  }
}

}  // namespace
}  // namespace qsf
