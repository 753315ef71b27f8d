// SPDX-License-Identifier: MIT
//
// Sketches of a head from end to end: what is measured at conversion bounds the logits that kernels
// compute, so that a search finds the best tokens of the full head.

#include "convert/head/sketch_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/rng.h"
#include "model/head_search.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using Values = std::vector<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

double dot(const Values& a, const Values& b) {
  return std::inner_product(
      a.begin(), a.end(), b.begin(), 0.0, std::plus<>(),
      [](float x, float y) { return static_cast<double>(x) * static_cast<double>(y); });
}

float dot_f32(std::span<const float> a, std::span<const float> b) {
  float sum = 0.0F;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Values random_row(std::size_t n, Rng& rng) {
  Values row(n);
  for (float& value : row) value = rng.next_normal();
  return row;
}

// Random directions made orthonormal (Gram and Schmidt) and rounded to f32.
Values random_basis(std::size_t n, Rng& rng) {
  std::vector<Values> rows;
  while (rows.size() < n) {
    Values row = random_row(n, rng);
    for (int again = 0; again < 2; ++again) {
      for (const Values& other : rows) {
        const double part = dot(row, other);
        for (std::size_t i = 0; i < n; ++i) row[i] -= static_cast<float>(part) * other[i];
      }
    }
    const double norm = std::sqrt(dot(row, row));
    for (float& value : row) value = static_cast<float>(static_cast<double>(value) / norm);
    rows.push_back(row);
  }
  Values basis;
  for (const Values& row : rows) basis.insert(basis.end(), row.begin(), row.end());
  return basis;
}

// Rounds to multiples of `step`; activations of int8 kernels are such multiples, block by block.
Values rounded(std::span<const float> values, float step) {
  Values result(values.begin(), values.end());
  for (float& value : result) value = std::nearbyint(value / step) * step;
  return result;
}

struct Head {
  Head(std::vector<Values> its_rows, float step, Rng& rng)
      : rows(std::move(its_rows)), n_cols(static_cast<std::uint32_t>(rows[0].size())) {
    basis = random_basis(n_cols, rng);
    Values mean(n_cols, 0.0F);
    for (const Values& row : rows) {
      for (std::size_t i = 0; i < n_cols; ++i) {
        mean[i] += row[i] / static_cast<float>(rows.size());
      }
    }
    Result<SketchErrors> made =
        SketchErrors::create(basis, mean, static_cast<std::uint32_t>(rows.size()), n_cols);
    EXPECT_TRUE(made.has_value());
    std::vector<double> turned(n_cols);
    for (std::uint32_t row = 0; row < rows.size(); ++row) {
      made->turn(rows[row], turned);
      sketches.push_back(rounded(Values(turned.begin(), turned.end()), step));
      EXPECT_TRUE(made->add(row, turned, sketches.back(), std::sqrt(dot(rows[row], rows[row])),
                            std::sqrt(dot(sketches.back(), sketches.back())))
                      .ok());
    }
    errors = (*std::move(made)).finish();
  }

  Values logits(const Values& hidden) const {
    Values result;
    for (const Values& row : rows) result.push_back(dot_f32(row, hidden));
    return result;
  }

  Values turn(const Values& hidden) const {
    Values turned;
    for (std::size_t i = 0; i < n_cols; ++i) {
      turned.push_back(dot_f32(std::span(basis).subspan(i * n_cols, n_cols), hidden));
    }
    return turned;
  }

  // Returns the bounds of all rows; the sketch's kernel takes multiples of `step`.
  Values bounds(const Values& hidden, float step) const {
    Result<HeadBounds> bounds = HeadBounds::create(errors);
    EXPECT_TRUE(bounds.has_value());
    const Values turned = turn(hidden);
    const Values multiplied = step > 0.0F ? rounded(turned, step) : turned;
    EXPECT_TRUE(bounds->prepare({hidden, turned, multiplied}));
    Values scores;
    for (const Values& sketch : sketches) scores.push_back(dot_f32(sketch, multiplied));
    bounds->bound(0, scores);
    return scores;
  }

  std::vector<Values> rows;
  std::uint32_t n_cols;
  Values basis;
  std::vector<Values> sketches;
  HeadErrors errors;
};

// Searches as an engine does; returns the tokens and how many units were read.
std::pair<std::vector<std::uint32_t>, std::uint32_t> search(const Head& head, const Values& hidden,
                                                            float step, std::uint32_t n_best) {
  constexpr std::uint32_t kUnitRows = 16;
  const Values logits = head.logits(hidden);
  Values bounds = head.bounds(hidden, step);
  const std::size_t n_units = bound_units(bounds, kUnitRows, bounds);
  HeadSearch found(static_cast<std::uint32_t>(n_units), n_best);
  found.start(std::span(bounds).first(n_units));
  for (std::uint32_t unit = 0; found.take({&unit, 1}) != 0;) {
    for (std::uint32_t row = unit * kUnitRows;
         row < std::min<std::size_t>((unit + 1) * kUnitRows, logits.size()); ++row) {
      found.add({&row, 1}, {&logits[row], 1});
    }
  }
  std::vector<std::uint32_t> tokens;
  for (const TokenLogit& token : found.best()) tokens.push_back(token.token);
  return {tokens, found.n_taken()};
}

std::vector<std::uint32_t> best_of(const Values& logits, std::size_t n) {
  std::vector<std::uint32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0U);
  std::stable_sort(tokens.begin(), tokens.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return logits[a] > logits[b]; });
  tokens.resize(std::min(n, tokens.size()));
  return tokens;
}

std::vector<Values> random_rows(std::size_t n, std::size_t n_cols, Rng& rng) {
  std::vector<Values> rows;
  for (std::size_t i = 0; i < n; ++i) rows.push_back(random_row(n_cols, rng));
  return rows;
}

TEST(SketchErrorsTest, BoundsHoldAndASearchFindsTheBest) {
  Rng rng(1);
  const Head head(random_rows(500, 100, rng), 0.25F, rng);
  std::uint32_t n_read = 0;
  for (int i = 0; i < 40; ++i) {
    // Hidden rows that resemble a row of the head have a clear winner.
    Values hidden = random_row(100, rng);
    const Values& like = head.rows[rng.below(500)];
    for (std::size_t k = 0; k < 100; ++k) hidden[k] = 0.3F * hidden[k] + like[k];
    const Values logits = head.logits(hidden);
    for (const float step : {0.0F, 0.05F}) {
      const Values bounds = head.bounds(hidden, step);
      for (std::size_t row = 0; row < 500; ++row) ASSERT_GE(bounds[row], logits[row]);
      for (const std::uint32_t n_best : {1U, 40U}) {
        const auto [tokens, n_units] = search(head, hidden, step, n_best);
        EXPECT_EQ(tokens, best_of(logits, n_best));
        n_read += n_best == 1 ? n_units : 0;
      }
    }
  }
  EXPECT_LT(n_read, 40 * 2 * 32 / 4);  // less than a quarter of the units for the best one
}

// The row that gains most from its sketch's error, found for each row.
TEST(SketchErrorsTest, HoldsForHiddenRowsAlongTheError) {
  Rng rng(2);
  const Head head(random_rows(60, 130, rng), 1.0F, rng);
  for (std::size_t row = 0; row < 60; ++row) {
    Values back(130, 0.0F);  // w - c - Q^T s
    for (std::size_t k = 0; k < 130; ++k) {
      back[k] = head.rows[row][k] - head.errors.shared[k];
      for (std::size_t i = 0; i < 130; ++i) {
        back[k] -= head.basis[i * 130 + k] * head.sketches[row][i];
      }
    }
    const float logit = dot_f32(head.rows[row], back);
    const float bound = head.bounds(back, 0.0F)[row];
    EXPECT_GE(bound, logit) << row;
    // What blocks, steps of norms and roundings add.
    EXPECT_LT(bound, logit + 0.03F * static_cast<float>(dot(back, back))) << row;
  }
}

TEST(SketchErrorsTest, EqualRowsGiveTheSmallestToken) {
  Rng rng(3);
  const Head head(std::vector<Values>(100, random_row(70, rng)), 0.5F, rng);
  const Values hidden = random_row(70, rng);
  EXPECT_THAT(search(head, hidden, 0.0F, 1).first, ElementsAre(0));
  EXPECT_THAT(search(head, hidden, 0.1F, 3).first, ElementsAre(0, 1, 2));
  const Values zeros(70, 0.0F);
  EXPECT_THAT(search(head, zeros, 0.0F, 2).first, ElementsAre(0, 1));
  const Head nothing(std::vector<Values>(20, zeros), 0.5F, rng);
  EXPECT_THAT(search(nothing, hidden, 0.0F, 1).first, ElementsAre(0));
}

// Rows of very different sizes, which share steps of norms.
TEST(SketchErrorsTest, HoldsForRowsOfAllSizes) {
  Rng rng(4);
  std::vector<Values> rows = random_rows(80, 64, rng);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (float& value : rows[row]) value *= std::ldexp(1.0F, static_cast<int>(row) - 60);
  }
  const Head head(rows, 4096.0F, rng);
  for (int i = 0; i < 20; ++i) {
    const Values hidden = random_row(64, rng);
    const Values logits = head.logits(hidden);
    const Values bounds = head.bounds(hidden, 0.0F);
    for (std::size_t row = 0; row < rows.size(); ++row) EXPECT_GE(bounds[row], logits[row]);
    EXPECT_EQ(search(head, hidden, 0.0F, 1).first, best_of(logits, 1));
  }
}

TEST(SketchErrorsTest, CodesAreNormsRoundedUp) {
  constexpr std::uint32_t kRows = 300;
  Rng rng(5);
  Values identity(std::size_t{70} * 70, 0.0F);
  for (std::size_t i = 0; i < 70; ++i) identity[i * 71] = 1.0F;
  Result<SketchErrors> made = SketchErrors::create(identity, {}, kRows, 70);
  ASSERT_TRUE(made.has_value());
  EXPECT_LT(made->defect(), 1e-9F);
  double largest = 0.0;
  std::vector<std::vector<double>> left(kRows, std::vector<double>(2, 0.0));
  for (std::uint32_t row = 0; row < kRows; ++row) {
    const Values values = random_row(70, rng);
    const Values sketch = rounded(values, 0.5F);
    std::vector<double> turned(70);
    made->turn(values, turned);
    for (std::size_t i = 0; i < 70; ++i) {
      EXPECT_EQ(turned[i], static_cast<double>(values[i]));
      const double error = static_cast<double>(values[i]) - static_cast<double>(sketch[i]);
      left[row][i / 64] += error * error;
    }
    ASSERT_TRUE(made->add(row, turned, sketch, 2.0, 1.0).ok());
    largest = std::max(largest, std::sqrt(dot(sketch, sketch)));
  }
  const HeadErrors errors = (*std::move(made)).finish();
  EXPECT_EQ(errors.head_magnitude, 2.0F);
  EXPECT_EQ(errors.sketch_magnitude, 1.0F);
  // Of the two blocks the first has nearly all.
  EXPECT_GT(static_cast<double>(errors.sketch_norms[0]), 0.8 * largest);
  EXPECT_LT(static_cast<double>(errors.sketch_norms[0]), 1.001 * largest);
  EXPECT_GT(errors.sketch_norms[1], 0.0F);
  double longest = 0.0;
  for (const auto& squares : left) {
    longest = std::max(longest, std::sqrt(squares[0] + squares[1]));
  }
  EXPECT_GE(static_cast<double>(errors.error_norm), longest);
  EXPECT_LT(static_cast<double>(errors.error_norm), 1.001 * longest);
  for (std::size_t block = 0; block < 2; ++block) {
    const auto step = static_cast<double>(errors.steps[block]);
    for (std::size_t row = 0; row < kRows; ++row) {
      const double stored = step * static_cast<double>(errors.codes[block * kRows + row]);
      EXPECT_GE(stored, std::sqrt(left[row][block]));
      EXPECT_LT(stored, std::sqrt(left[row][block]) + 1.001 * step);
    }
  }
}

TEST(SketchErrorsTest, MeasuresTheDefect) {
  Values basis(16, 0.0F);
  for (std::size_t i = 0; i < 4; ++i) basis[i * 5] = 1.1F;
  const Result<SketchErrors> made = SketchErrors::create(basis, {}, 1, 4);
  ASSERT_TRUE(made.has_value());
  EXPECT_NEAR(made->defect(), 2.0 * 0.21, 1e-6);  // the Frobenius norm of 0.21 I
}

TEST(SketchErrorsTest, RefusesWhatBoundsNothing) {
  const auto code = [](const Values& basis, const Values& shared) {
    const Result<SketchErrors> made = SketchErrors::create(basis, shared, 1, 2);
    return made.has_value() ? StatusCode::kOk : made.error().code();
  };
  EXPECT_EQ(code({1, 0, 0, 1}, {}), StatusCode::kOk);
  EXPECT_EQ(code({1, 0, 1, 0}, {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({1, 0, 0, kNotANumber}, {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({1, 0, 0, 1}, {0, kInfinity}), StatusCode::kInvalidArgument);
  Result<SketchErrors> made = SketchErrors::create({1, 0, 0, 1}, {}, 1, 2);
  ASSERT_TRUE(made.has_value());
  const std::vector<double> turned = {1.0, 2.0};
  EXPECT_TRUE(made->add(0, turned, Values{1, 2}, 1.0, 1.0).ok());
  const double none = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(made->add(0, std::vector<double>{1.0, none}, Values{1, 2}, 1.0, 1.0).ok());
  EXPECT_FALSE(made->add(0, turned, Values{kInfinity, 2}, 1.0, 1.0).ok());
  EXPECT_FALSE(made->add(0, turned, Values{1, 2}, none, 1.0).ok());
  EXPECT_FALSE(made->add(0, turned, Values{1, 2}, 1.0, none).ok());
}

TEST(SketchBitsTest, GoWhereTheyNarrowBoundsMostForTheirBytes) {
  const std::vector<std::uint32_t> bits = {0, 2, 4};
  const std::vector<double> bytes = {1.0, 19.0, 35.0};
  const std::vector<double> norms = {10.0, 4.0, 1.0, 10.0, 4.0, 1.0, 10.0, 4.0, 1.0};
  const auto chosen = [&](double limit) {
    return choose_sketch_bits(std::vector<double>{4.0, 1.0, 0.0}, norms, bits, bytes, limit);
  };
  EXPECT_THAT(chosen(3.0), ElementsAre(0, 0, 0));
  EXPECT_THAT(chosen(21.0), ElementsAre(2, 0, 0));
  EXPECT_THAT(chosen(37.0), ElementsAre(4, 0, 0));
  EXPECT_THAT(chosen(55.0), ElementsAre(4, 2, 0));
  // A block without effect takes nothing.
  EXPECT_THAT(chosen(1000.0), ElementsAre(4, 4, 0));
}

}  // namespace
}  // namespace qsf
