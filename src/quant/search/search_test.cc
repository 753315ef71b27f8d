// SPDX-License-Identifier: MIT
//
// The scale search of every type that has one is never worse than Rounding::kNearest, much better
// on normal weights (except 2bit-sym, which is always searched), exact where kNearest is exact, and
// guided by column importance.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/f16.h"
#include "base/rng.h"
#include "quant/codec.h"
#include "quant/testing/blocks.h"

namespace qsf {
namespace {

using testing_support::decode;
using testing_support::name_of;

// Types whose scales are searched, in every block that kernels have.
std::vector<BlockFormat> searched_formats() {
  std::vector<BlockFormat> formats;
  for (const QuantType type : kAllQuantTypes) {
    if (!uses_importance(type)) continue;
    if (fixed_block(type) != 0) {
      formats.push_back(block_format(type, 0));
      continue;
    }
    for (const std::uint32_t block : {32U, 64U, 256U}) {
      if (is_valid({type, block})) formats.push_back({type, block});
    }
  }
  return formats;
}

std::vector<std::byte> encode(BlockFormat format, std::span<const float> row,
                              const QuantOptions& options) {
  std::vector<std::byte> bytes(row_major_bytes(format, row.size()));
  encode_row(format, row, options, bytes);
  EXPECT_TRUE(check_blocks(format, Layout::kRowMajor, 1, row.size(), bytes).ok())
      << name_of(format);
  return bytes;
}

// The weighted sum of squared errors, in double and apart from the code under test.
double error_of(BlockFormat format, std::span<const float> row, const QuantOptions& options,
                std::span<const float> importance) {
  const std::vector<float> back = decode(format, encode(format, row, options), row.size());
  double sum = 0.0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double r = static_cast<double>(row[i]) - back[i];
    sum += (importance.empty() ? 1.0 : double{importance[i]}) * r * r;
  }
  return sum;
}

constexpr const char* kKinds[] = {"uniform", "normal", "heavy",  "constant", "zero",     "outlier",
                                  "tiny",    "huge",   "offset", "positive", "two-sided"};

std::vector<float> make_row(const std::string& kind, std::size_t n_cols, Rng& rng) {
  std::vector<float> row(n_cols);
  const float constant = rng.next_normal();
  for (float& w : row) {
    const float normal = rng.next_normal();
    if (kind == "uniform") w = 2.0F * rng.next_f32() - 1.0F;
    if (kind == "normal" || kind == "outlier") w = 0.05F * normal;
    if (kind == "heavy") w = 0.02F * normal * normal * normal;
    if (kind == "constant") w = constant;
    if (kind == "tiny") w = 1e-7F * normal;
    if (kind == "huge") w = std::clamp(40000.0F * normal, -kF16Max, kF16Max);
    if (kind == "offset") w = 5.0F + 0.01F * normal;
    if (kind == "positive") w = std::fabs(normal);
    if (kind == "two-sided") w = normal > 0.0F ? 1.0F : -1.0F;
  }
  if (kind == "outlier") row[rng.below(static_cast<std::uint32_t>(n_cols))] = -30.0F;
  return row;
}

constexpr QuantOptions kSearch = {.rounding = Rounding::kSearch};

TEST(SearchTest, IsNeverWorseThanTheNearestCodes) {
  Rng rng(1);
  for (const BlockFormat format : searched_formats()) {
    for (const char* kind : kKinds) {
      for (const std::size_t n_cols : {1U, 2U, 17U, 64U, 172U, 256U, 300U}) {
        const std::vector<float> row = make_row(kind, n_cols, rng);
        const double nearest = error_of(format, row, kNearestRounding, {});
        const double searched = error_of(format, row, kSearch, {});
        EXPECT_LE(searched, nearest) << name_of(format) << " " << kind << " " << n_cols;
      }
    }
  }
}

TEST(SearchTest, IsNeverWorseByColumnImportance) {
  Rng rng(2);
  for (const BlockFormat format : searched_formats()) {
    for (const char* kind : {"normal", "heavy", "outlier", "huge", "tiny"}) {
      for (const float spread : {1.0F, 4.0F, 20.0F}) {
        // Costs of trellis paths have 16 bits, too few where one column weighs more than all
        // others.
        if (is_trellis_type(format.type) && spread > 4.0F) continue;
        const std::vector<float> row = make_row(kind, 300, rng);
        std::vector<float> importance(row.size());
        for (float& weight : importance) weight = std::exp(spread * rng.next_normal());
        importance[7] = 0.0F;
        const QuantOptions options = {.importance = importance};
        EXPECT_LE(error_of(format, row, options, importance),
                  error_of(format, row, kNearestRounding, importance))
            << name_of(format) << " " << kind << " " << spread;
      }
    }
  }
}

// The sum of squared errors over that of the nearest codes: what is found, rounded up at the fourth
// digit, so that a search that loses a thousandth of its quality shows.
struct Limit {
  BlockFormat format;
  double share;
};

void expect_within(const Limit& limit, std::span<const float> row) {
  const double share =
      error_of(limit.format, row, kSearch, {}) / error_of(limit.format, row, kNearestRounding, {});
  EXPECT_LE(share, limit.share) << name_of(limit.format);
}

TEST(SearchTest, IsMuchBetterOnNormalWeights) {
  Rng rng(3);
  std::vector<float> row(std::size_t{256} * 64);
  for (float& w : row) w = 0.05F * rng.next_normal();
  for (const Limit& limit : {Limit{{QuantType::kQ2A, 64}, 0.5085},
                             Limit{{QuantType::kQ2A, 32}, 0.5698},
                             Limit{{QuantType::kQ3, 64}, 0.7313},
                             Limit{{QuantType::kQ4, 64}, 0.7992},
                             Limit{{QuantType::kQ4, 32}, 0.7647},
                             Limit{{QuantType::kTernary, 64}, 0.6749},
                             Limit{block_format(QuantType::kTernaryRow, 0), 0.6832},
                             Limit{{QuantType::kQ2Super, 64}, 0.4975},
                             Limit{{QuantType::kQ2Super, 32}, 0.5535},
                             Limit{{QuantType::kQ3Super, 64}, 0.7169},
                             Limit{{QuantType::kQ3Super, 32}, 0.7137},
                             Limit{{QuantType::kQ4Super, 64}, 0.7828},
                             Limit{{QuantType::kQ4Super, 32}, 0.7403},
                             Limit{block_format(QuantType::kQ2K, 0), 0.5343},
                             Limit{block_format(QuantType::kQ3K, 0), 0.4984},
                             Limit{block_format(QuantType::kQ5K, 0), 0.7607},
                             Limit{block_format(QuantType::kQ6K, 0), 0.7454},
                             Limit{block_format(QuantType::kQ2Codebook, 0), 0.6330},
                             Limit{block_format(QuantType::kQ3Codebook, 0), 0.6645},
                             Limit{block_format(QuantType::kQ4Codebook, 0), 0.8154}}) {
    expect_within(limit, row);
  }
}

// Weights around 5 in a type that has a min, which f16 rounds by much of a step, and weights whose
// scales are a few units of f16: what is found is rounded while it is searched, not behind it.
TEST(SearchTest, IsMuchBetterWhereF16IsCoarse) {
  Rng rng(11);
  std::vector<float> row(std::size_t{256} * 64);
  for (float& w : row) w = 5.0F + 0.01F * rng.next_normal();
  expect_within({{QuantType::kQ3, 64}, 0.6894}, row);
  expect_within({{QuantType::kQ4, 64}, 0.8095}, row);
  for (float& w : row) w = 3e-7F * rng.next_normal();
  expect_within({{QuantType::kQ3, 32}, 0.6078}, row);
  expect_within({{QuantType::kQ4, 64}, 0.8838}, row);
}

// Weights that nearest rounding gives back are given back by the search, in the same bytes.
TEST(SearchTest, KeepsExactWeights) {
  Rng rng(4);
  std::size_t n_exact = 0;
  for (const BlockFormat format : searched_formats()) {
    for (int trial = 0; trial < 50; ++trial) {
      const std::vector<float> any = make_row(trial % 2 == 0 ? "uniform" : "heavy", 300, rng);
      const std::vector<float> row =
          decode(format, encode(format, any, kNearestRounding), any.size());
      const std::vector<std::byte> nearest = encode(format, row, kNearestRounding);
      if (decode(format, nearest, row.size()) != row) continue;
      ++n_exact;
      EXPECT_EQ(encode(format, row, kSearch), nearest) << name_of(format);
    }
  }
  EXPECT_GT(n_exact, searched_formats().size() * 10);
}

TEST(SearchTest, AColumnOfNoImportanceIsFree) {
  Rng rng(5);
  for (const BlockFormat format : searched_formats()) {
    std::vector<float> row = make_row("normal", 256, rng);
    std::vector<float> importance(row.size(), 1.0F);
    const std::size_t free = rng.below(256);
    importance[free] = 0.0F;
    const QuantOptions options = {.importance = importance};
    row[free] = 0.0F;
    const double without = error_of(format, row, options, importance);
    row[free] = 20.0F;
    EXPECT_LE(error_of(format, row, options, importance), 1.1 * without) << name_of(format);
    EXPECT_GE(error_of(format, row, kSearch, importance), 1.2 * without) << name_of(format);
  }
}

TEST(SearchTest, AColumnOfGreatImportanceIsNearlyExact) {
  Rng rng(6);
  for (const BlockFormat format : searched_formats()) {
    double searched = 0.0;
    double weighted = 0.0;
    for (int trial = 0; trial < 20; ++trial) {
      const std::vector<float> row = make_row("normal", 256, rng);
      std::vector<float> importance(row.size(), 1.0F);
      std::vector<float> only(row.size(), 0.0F);
      const std::size_t great = rng.below(256);
      importance[great] = 1e6F;
      only[great] = 1.0F;
      searched += error_of(format, row, kSearch, only);
      weighted += error_of(format, row, {.importance = importance}, only);
    }
    EXPECT_LT(weighted, 0.05 * searched) << name_of(format);
  }
}

// No importance at all is as good as an equal one, whatever its size.
TEST(SearchTest, OnlyRatiosOfImportanceCount) {
  Rng rng(7);
  for (const BlockFormat format : searched_formats()) {
    const std::vector<float> row = make_row("normal", 300, rng);
    const std::vector<std::byte> plain = encode(format, row, kSearch);
    for (const float same : {0.0F, 1.0F, 1e-30F, 1e30F}) {
      const std::vector<float> importance(row.size(), same);
      EXPECT_EQ(encode(format, row, {.importance = importance}), plain)
          << name_of(format) << " " << same;
    }
    std::vector<float> some(row.size());
    for (float& weight : some) weight = rng.next_f32();
    std::vector<float> more = some;
    for (float& weight : more) weight *= 4096.0F;
    EXPECT_EQ(encode(format, row, {.importance = some}), encode(format, row, {.importance = more}))
        << name_of(format);
  }
}

// Blocks are searched a few at a time; what is found in one must not depend on the others.
TEST(SearchTest, ABlockHasTheSameBytesAloneAndInARow) {
  Rng rng(9);
  for (const BlockFormat format : searched_formats()) {
    if (has_row_scale(format.type)) continue;
    const std::size_t n_cols = is_super_type(format.type) ? kSuperColumns : format.block;
    const std::size_t n_bytes = row_major_bytes(format, n_cols);
    for (const char* kind : {"normal", "heavy", "tiny", "offset", "outlier", "zero"}) {
      std::vector<float> row = make_row(kind, 7 * n_cols, rng);
      std::fill_n(row.begin() + static_cast<std::ptrdiff_t>(2 * n_cols), n_cols, 1e-7F);
      std::vector<float> importance(row.size());
      for (float& cost : importance) cost = std::exp(3.0F * rng.next_normal());
      const QuantOptions options = {.importance = importance};
      const std::vector<std::byte> together = encode(format, row, options);
      for (std::size_t k = 0; k < 7; ++k) {
        const std::vector<std::byte> alone =
            encode(format, std::span(row).subspan(k * n_cols, n_cols),
                   options_of_columns(options, k * n_cols, n_cols));
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(),
                               together.begin() + static_cast<std::ptrdiff_t>(k * n_bytes)))
            << name_of(format) << " " << kind << " " << k;
      }
    }
  }
}

// Scales of types that have none below 0, where one column is worth nearly all; and where that
// column is so close to 0 that the scale which suits it best is a rounding below 0.
TEST(SearchTest, UnsignedScalesAreNotNegative) {
  constexpr float kNearZero[] = {-0x1.90162ep-9F,  0x1.0cf014p-4F,  0x1.4665ecp-7F,
                                 -0x1.30c05ap-9F,  -0x1.7ec45cp-5F, -0x1.080afp-10F,
                                 -0x1.a271e6p-11F, 0x1.5638d4p-32F};
  constexpr float kWorth[] = {
      0x1.a6c488p-65F, 0x1.0f6f52p+17F, 0x1.200d4cp+47F, 0.0F, 0x1.b85c02p+24F, 0.0F, 0.0F,
      0x1.556142p+59F};
  Rng rng(10);
  for (const BlockFormat format : {BlockFormat{QuantType::kQ2S, 64}, {QuantType::kTernary, 64}}) {
    const auto scale_of = [format](std::span<const float> row, std::span<const float> importance) {
      return row_block_scale(format, encode(format, row, {.importance = importance}), 0).scale;
    };
    EXPECT_GE(scale_of(kNearZero, kWorth), 0.0F) << name_of(format);
    for (int trial = 0; trial < 2000; ++trial) {
      const std::vector<float> row = make_row("normal", 64, rng);
      std::vector<float> importance(row.size());
      for (float& cost : importance) cost = std::exp(12.0F * rng.next_normal());
      ASSERT_GE(scale_of(row, importance), 0.0F) << name_of(format) << " " << trial;
    }
  }
}

TEST(SearchTest, NearestRoundingIgnoresImportance) {
  Rng rng(8);
  for (const BlockFormat format : searched_formats()) {
    const std::vector<float> row = make_row("heavy", 300, rng);
    std::vector<float> importance(row.size());
    for (float& weight : importance) weight = rng.next_f32();
    EXPECT_EQ(encode(format, row, {.rounding = Rounding::kNearest, .importance = importance}),
              encode(format, row, kNearestRounding));
  }
}

}  // namespace
}  // namespace qsf
