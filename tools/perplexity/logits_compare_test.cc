// SPDX-License-Identifier: MIT
//
// Divergences that can be worked out by hand, in one block and in several.

#include "tools/perplexity/logits_compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace qsf_tools {
namespace {

constexpr int kTarget = 1;

// Gives both rows to a comparison in blocks of `n_block` tokens.
RowComparison compare(const std::vector<float>& reference, const std::vector<float>& model,
                      std::size_t n_block) {
  LogitsComparison comparison(reference.size(), 3);
  const int targets[] = {0, 0, kTarget};
  comparison.begin(targets);
  for (std::size_t at = 0; at < reference.size(); at += n_block) {
    const std::size_t n = std::min(n_block, reference.size() - at);
    comparison.add_reference(2, at, std::span(reference).subspan(at, n));
  }
  for (std::size_t at = 0; at < model.size(); at += n_block) {
    const std::size_t n = std::min(n_block, model.size() - at);
    comparison.add_model(2, at, std::span(model).subspan(at, n));
  }
  return comparison.row(2);
}

TEST(LogitsComparisonTest, TwoTokens) {
  // Probabilities 1/4 and 3/4 against 1/2 and 1/2.
  const RowComparison row = compare({0.0F, std::log(3.0F)}, {7.0F, 7.0F}, 2);
  EXPECT_NEAR(row.divergence, 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-7);
  EXPECT_NEAR(row.log_prob, std::log(0.5), 1e-15);
  EXPECT_NEAR(row.reference_log_prob, std::log(0.75), 1e-7);
  EXPECT_FALSE(row.same_top);  // of equals the smaller id is the top
}

TEST(LogitsComparisonTest, BlocksDoNotMatterAndLogitsAreRelative) {
  const std::vector<float> reference = {-3.0F, 2.5F, 0.0F, 4.0F, -1.0F, 3.5F, 1.0F};
  const std::vector<float> model = {-2.0F, 2.0F, 0.5F, 3.0F, -1.5F, 3.25F, 1.0F};
  double z_reference = 0.0;
  double z_model = 0.0;
  for (const float x : reference) z_reference += std::exp(static_cast<double>(x));
  for (const float x : model) z_model += std::exp(static_cast<double>(x));
  double expected = 0.0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double p = std::exp(static_cast<double>(reference[i])) / z_reference;
    const double q = std::exp(static_cast<double>(model[i])) / z_model;
    expected += p * std::log(p / q);
  }
  std::vector<float> shifted = model;
  for (float& x : shifted) x += 64.0F;
  for (const std::size_t n_block : {1U, 2U, 3U, 7U}) {
    for (const std::vector<float>& m : {model, shifted}) {
      const RowComparison row = compare(reference, m, n_block);
      EXPECT_NEAR(row.divergence, expected, 1e-13);
      EXPECT_NEAR(row.log_prob, 2.0 - std::log(z_model), 1e-13);
      EXPECT_FALSE(row.same_top);
    }
  }
}

TEST(LogitsComparisonTest, ItselfIsAtNoDistance) {
  const std::vector<float> logits = {900.0F, -900.0F, 12.5F, 0.1F, -0.7F};
  for (const std::size_t n_block : {1U, 2U, 5U}) {
    const RowComparison row = compare(logits, logits, n_block);
    EXPECT_EQ(row.divergence, 0.0);
    EXPECT_TRUE(row.same_top);
    EXPECT_EQ(row.log_prob, -1800.0);
  }
}

TEST(LogitsComparisonTest, TokensThatCannotComeCountForNothing) {
  const float never = -INFINITY;
  EXPECT_EQ(compare({1.0F, 1.0F, never}, {1.0F, 1.0F, never}, 1).divergence, 0.0);
  // What the model allows and the reference never does: half of its probability is lost.
  EXPECT_NEAR(compare({1.0F, never, 1.0F, never}, {2.0F, 2.0F, 2.0F, 2.0F}, 4).divergence,
              std::log(2.0), 1e-15);
}

}  // namespace
}  // namespace qsf_tools
