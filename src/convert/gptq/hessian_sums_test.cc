// SPDX-License-Identifier: MIT

#include "convert/gptq/layerwise_gptq.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/rng.h"

namespace qsf {
namespace {

constexpr std::uint32_t kHidden = 300;  // in two parts
constexpr std::uint32_t kFfn = 40;
constexpr std::uint32_t kFirstLayer = 2;
constexpr std::size_t kHiddenRows = 600;  // two batches and a rest

ModelSpec small_spec() {
  ModelSpec spec;
  spec.n_layers = 5;
  spec.hidden = kHidden;
  spec.n_heads = 3;
  spec.n_kv_heads = 1;
  spec.head_dim = 20;
  spec.ffn = kFfn;
  return spec;
}

std::vector<float> row_of(std::uint32_t layer, std::size_t i, std::size_t cols) {
  Rng rng(1000 * layer + i);
  std::vector<float> row(cols);
  for (float& value : row) value = rng.next_normal();
  return row;
}

void feed(HessianSums& sums, ProductInput input, std::size_t cols) {
  for (std::size_t i = 0; i < kHiddenRows; ++i) {
    for (std::uint32_t layer = 0; layer < small_spec().n_layers; ++layer) {
      sums.take_input({input, layer}, row_of(layer, i, cols));
    }
  }
}

TEST(HessianSumsTest, SumsProductsOfColumnsForEachPlaceOfItsLayers) {
  const ModelSpec spec = small_spec();
  HessianSums sums(spec, kFirstLayer, 2, 3);
  EXPECT_FALSE(sums.has(1));
  EXPECT_TRUE(sums.has(2));
  EXPECT_TRUE(sums.has(3));
  EXPECT_FALSE(sums.has(4));
  for (const ProductInput input : {ProductInput::kQkv, ProductInput::kDown}) {
    feed(sums, input, input_cols(shape_of(spec), {input}));
  }
  sums.take_input({ProductInput::kHead}, row_of(0, 0, kHidden));
  for (const ProductInput input : {ProductInput::kQkv, ProductInput::kDown}) {
    const std::size_t cols = input_cols(shape_of(spec), {input});
    for (const std::uint32_t layer : {2U, 3U}) {
      std::vector<double> want(cols * cols);
      for (std::size_t r = 0; r < kHiddenRows; ++r) {
        const std::vector<float> row = row_of(layer, r, cols);
        for (std::size_t i = 0; i < cols; ++i) {
          for (std::size_t j = 0; j <= i; ++j) {
            want[i * cols + j] += static_cast<double>(row[i]) * row[j];
          }
        }
      }
      const std::vector<float> got = sums.take(input, layer);
      ASSERT_EQ(got.size(), cols * cols);
      for (std::size_t i = 0; i < cols; ++i) {
        for (std::size_t j = 0; j <= i; ++j) {
          // kHiddenRows roundings of at most 2^-24 of sums of about kHiddenRows.
          ASSERT_NEAR(got[i * cols + j], want[i * cols + j], 0x1p-24 * kHiddenRows * kHiddenRows)
              << i << ", " << j;
        }
      }
      EXPECT_TRUE(sums.take(input, layer).empty());
    }
  }
  for (const float value : sums.take(ProductInput::kGateUp, 2)) ASSERT_EQ(value, 0.0F);
}

TEST(HessianSumsTest, BitsDoNotDependOnThreads) {
  std::vector<float> one;
  for (const unsigned n_threads : {1U, 2U, 5U}) {
    HessianSums sums(small_spec(), kFirstLayer, 1, n_threads);
    feed(sums, ProductInput::kQkv, kHidden);
    const std::vector<float> got = sums.take(ProductInput::kQkv, kFirstLayer);
    if (one.empty()) one = got;
    EXPECT_TRUE(got == one) << n_threads;
  }
}

// A budget decides how many rows of a layer a pass has.
TEST(HessianSumsTest, BitsDoNotDependOnTheRowsOfAPass) {
  std::vector<float> one;
  for (const std::size_t n_at_once : {std::size_t{1}, std::size_t{7}, kHiddenRows}) {
    HessianSums sums(small_spec(), kFirstLayer, 2, 2);
    for (std::size_t first = 0; first < kHiddenRows; first += n_at_once) {
      for (const std::uint32_t layer : {kFirstLayer, kFirstLayer + 1}) {
        for (std::size_t i = first; i < std::min(first + n_at_once, kHiddenRows); ++i) {
          sums.take_input({ProductInput::kDown, layer}, row_of(layer, i, kFfn));
        }
      }
    }
    sums.finish();
    const std::vector<float> got = sums.take(ProductInput::kDown, kFirstLayer + 1);
    if (one.empty()) one = got;
    EXPECT_TRUE(got == one) << n_at_once;
  }
}

TEST(HessianSumsTest, BytesAreThoseOfSumsAndRows) {
  // 300, 60, 300 and 40 columns, whose rows stand in panels of 48.
  EXPECT_EQ(HessianSums::layer_bytes(small_spec()),
            4U * (2U * 300U * 300U + 60U * 60U + 40U * 40U));
  EXPECT_EQ(HessianSums::gathered_bytes(small_spec()), 4U * 256U * (336U + 96U + 336U + 48U));
}

}  // namespace
}  // namespace qsf
