// SPDX-License-Identifier: MIT
//
// GPTQ equals the textbook's algorithm and lowers the error of outputs.

#include "convert/gptq/gptq.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "quant/codec.h"
#include "quant/fields.h"

namespace qsf {
namespace {

using Rows = std::vector<float>;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kCols = 300;  // no multiple of any block's columns but those of floats
constexpr std::size_t kRows = 10;

std::vector<BlockFormat> coded_formats() {
  std::vector<BlockFormat> formats;
  for (const QuantType type : kAllQuantTypes) {
    if (is_float_type(type)) continue;
    if (fixed_block(type) != 0) formats.push_back(block_format(type, 0));
    for (const std::uint32_t block : {32U, 64U, 256U}) {
      if (fixed_block(type) == 0 && is_valid({type, block})) formats.push_back({type, block});
    }
  }
  return formats;
}

std::string name_of(BlockFormat format) {
  return std::string(quant_type_name(format.type)) + "/" + std::to_string(format.block);
}

// Sums x x^T over inputs whose columns follow their neighbours and differ in size, as those of
// layers do. Row-major, the lower triangle; the rest would be noticed.
std::vector<float> correlated_hessian(std::size_t n_cols, std::size_t n_inputs) {
  Rng rng(7);
  std::vector<float> sizes(n_cols);
  for (float& size : sizes) size = std::exp(rng.next_normal());
  std::vector<double> sums(n_cols * n_cols);
  std::vector<float> x(n_cols);
  for (std::size_t s = 0; s < n_inputs; ++s) {
    float state = rng.next_normal();
    for (std::size_t i = 0; i < n_cols; ++i) {
      state = 0.9F * state + 0.45F * rng.next_normal();
      x[i] = state * sizes[i];
    }
    for (std::size_t i = 0; i < n_cols; ++i) {
      for (std::size_t j = 0; j <= i; ++j) sums[i * n_cols + j] += x[i] * x[j];
    }
  }
  std::vector<float> hessian(n_cols * n_cols, NAN);
  for (std::size_t i = 0; i < n_cols; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      hessian[i * n_cols + j] = static_cast<float>(sums[i * n_cols + j]);
    }
  }
  return hessian;
}

std::vector<float> diagonal_hessian(std::size_t n_cols, bool is_identity) {
  Rng rng(9);
  std::vector<float> hessian(n_cols * n_cols);
  for (std::size_t i = 0; i < n_cols; ++i) {
    hessian[i * n_cols + i] = is_identity ? 1.0F : 0.1F + rng.next_f32();
  }
  return hessian;
}

Rows random_rows(std::size_t n_rows, std::size_t n_cols) {
  Rng rng(11);
  Rows rows(n_rows * n_cols);
  for (float& w : rows) w = 0.05F * rng.next_normal();
  return rows;
}

GptqFactor factor_of(std::vector<float> hessian, std::size_t n_cols) {
  return std::move(GptqFactor::create(std::move(hessian), n_cols)).value();
}

Bytes encode_plainly(BlockFormat format, std::size_t n_cols, const Rows& rows,
                     const QuantOptions& options) {
  const std::size_t row_bytes = row_major_bytes(format, n_cols);
  Bytes out(rows.size() / n_cols * row_bytes);
  for (std::size_t r = 0; r < rows.size() / n_cols; ++r) {
    encode_row(format, std::span(rows).subspan(r * n_cols, n_cols), options,
               MutableByteSpan(out).subspan(r * row_bytes, row_bytes));
  }
  return out;
}

Bytes encode_with_gptq(const GptqFactor& factor, BlockFormat format, const Rows& rows,
                       Rounding rounding = Rounding::kSearch) {
  Bytes out(rows.size() / factor.n_cols() * row_major_bytes(format, factor.n_cols()),
            std::byte{0xA5});
  encode_rows_gptq(factor, format, rounding, rows, out);
  return out;
}

Rows decode(BlockFormat format, std::size_t n_cols, const Bytes& bytes) {
  const std::size_t row_bytes = row_major_bytes(format, n_cols);
  Rows rows(bytes.size() / row_bytes * n_cols);
  for (std::size_t r = 0; r < bytes.size() / row_bytes; ++r) {
    decode_row(format, ByteSpan(bytes).subspan(r * row_bytes, row_bytes),
               std::span(rows).subspan(r * n_cols, n_cols));
  }
  return rows;
}

// The sum over all inputs of the squared error of the outputs.
double output_error(const std::vector<float>& hessian, std::size_t n_cols, const Rows& rows,
                    const Rows& decoded) {
  double sum = 0.0;
  std::vector<double> e(n_cols);
  for (std::size_t r = 0; r < rows.size() / n_cols; ++r) {
    for (std::size_t i = 0; i < n_cols; ++i) {
      e[i] = static_cast<double>(rows[r * n_cols + i]) - decoded[r * n_cols + i];
    }
    for (std::size_t i = 0; i < n_cols; ++i) {
      for (std::size_t j = 0; j < i; ++j) sum += 2.0 * e[i] * hessian[i * n_cols + j] * e[j];
      sum += e[i] * hessian[i * n_cols + i] * e[i];
    }
  }
  return sum;
}

// The upper factor U of the inverse of the damped H, H^-1 = U^T U, by the plainest of means.
std::vector<double> textbook_factor(const std::vector<float>& hessian, std::size_t n,
                                    double damping) {
  double mean = 0.0;
  for (std::size_t i = 0; i < n; ++i) mean += hessian[i * n + i] / static_cast<double>(n);
  std::vector<double> h(n * n);
  std::vector<double> inverse(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) h[i * n + j] = h[j * n + i] = hessian[i * n + j];
    h[i * n + i] += damping * mean;
    inverse[i * n + i] = 1.0;
  }
  for (std::size_t k = 0; k < n; ++k) {  // Gauss and Jordan; of a definite matrix without pivots
    const double pivot = h[k * n + k];
    for (std::size_t j = 0; j < n; ++j) {
      h[k * n + j] /= pivot;
      inverse[k * n + j] /= pivot;
    }
    for (std::size_t i = 0; i < n; ++i) {
      const double share = h[i * n + k];
      if (i == k || share == 0.0) continue;
      for (std::size_t j = 0; j < n; ++j) {
        h[i * n + j] -= share * h[k * n + j];
        inverse[i * n + j] -= share * inverse[k * n + j];
      }
    }
  }
  std::vector<double> u(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i; j < n; ++j) {
      double sum = inverse[i * n + j];
      for (std::size_t k = 0; k < i; ++k) sum -= u[k * n + i] * u[k * n + j];
      u[i * n + j] = i == j ? std::sqrt(sum) : sum / u[i * n + i];
    }
  }
  return u;
}

// The weights that the codes of a block can express with the fields that its row has.
Rows levels_of(BlockFormat format, ByteSpan row, std::size_t block) {
  std::vector<std::uint8_t> codes(std::size_t{1} << code_bits(format.type));
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i);
  if (format.type == QuantType::kQ8) codes.erase(codes.begin() + 128);
  if (is_ternary(format.type)) codes.pop_back();
  Rows levels(codes.size());
  decode_codes(format.type, row_block_scale(format, row, block), codes.data(), levels);
  return levels;
}

double distance_to(const Rows& levels, double weight) {
  double nearest = HUGE_VAL;
  for (const float level : levels) nearest = std::min(nearest, std::fabs(weight - level));
  return nearest;
}

// Follows the textbook in double precision: column j takes the code nearest to its weight, its
// error over U[j][j] times U[j][k] goes to all later columns k. What the encoder chose has to be
// nearest at every step.
TEST(GptqTest, EveryCodeEqualsTheTextbook) {
  const std::vector<float> hessian = correlated_hessian(kCols, 1000);
  const GptqFactor factor = factor_of(hessian, kCols);
  ASSERT_EQ(factor.damping(), kGptqDamping);
  const std::vector<double> u = textbook_factor(hessian, kCols, kGptqDamping);
  const Rows rows = random_rows(kRows, kCols);
  for (const BlockFormat format : coded_formats()) {
    if (is_trellis_type(format.type)) continue;  // a path through several columns
    SCOPED_TRACE(name_of(format));
    const Bytes bytes = encode_with_gptq(factor, format, rows);
    const Rows decoded = decode(format, kCols, bytes);
    const std::size_t row_bytes = row_major_bytes(format, kCols);
    for (std::size_t r = 0; r < kRows; ++r) {
      std::vector<double> w(rows.begin() + r * kCols, rows.begin() + (r + 1) * kCols);
      for (std::size_t j = 0; j < kCols; ++j) {
        const double q = decoded[r * kCols + j];
        const Rows levels =
            levels_of(format, ByteSpan(bytes).subspan(r * row_bytes, row_bytes), j / format.block);
        ASSERT_NEAR(std::fabs(w[j] - q), distance_to(levels, w[j]), 1e-6) << r << ", " << j;
        const double error = (w[j] - q) / u[j * kCols + j];
        for (std::size_t k = j; k < kCols; ++k) w[k] -= error * u[j * kCols + k];
      }
    }
  }
}

// The same with neighbours far apart.
std::vector<float> spread_hessian(std::size_t n_cols, std::size_t n_inputs) {
  constexpr std::size_t kStep = 77;  // has no factor in common with kCols
  const std::vector<float> near = correlated_hessian(n_cols, n_inputs);
  std::vector<float> hessian(n_cols * n_cols, NAN);
  for (std::size_t i = 0; i < n_cols; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      const std::size_t a = i * kStep % n_cols;
      const std::size_t b = j * kStep % n_cols;
      hessian[i * n_cols + j] = near[std::max(a, b) * n_cols + std::min(a, b)];
    }
  }
  return hessian;
}

TEST(GptqTest, OutputErrorsAreSmallerThanByRoundingOfSingleBlocks) {
  const Rows rows = random_rows(kRows, kCols);
  for (const BlockFormat format : coded_formats()) {
    // Columns of one block of a trellis type do not compensate each other.
    const bool is_trellis = is_trellis_type(format.type);
    const std::vector<float> hessian =
        is_trellis ? spread_hessian(kCols, 1000) : correlated_hessian(kCols, 1000);
    const GptqFactor factor = factor_of(hessian, kCols);
    const auto error = [&](const Bytes& bytes) {
      return output_error(hessian, kCols, rows, decode(format, kCols, bytes));
    };
    const double nearest = error(encode_plainly(format, kCols, rows, kNearestRounding));
    const double weighted =
        error(encode_plainly(format, kCols, rows, {Rounding::kSearch, factor.importance()}));
    const double fed_back = error(encode_with_gptq(factor, format, rows));
    EXPECT_LT(fed_back, nearest) << name_of(format);
    EXPECT_LT(fed_back, weighted) << name_of(format);
  }
}

// Fields come from weights that have all errors in front of their block, or super-block.
TEST(GptqTest, FieldsFollowFromCompensatedWeights) {
  const std::vector<float> hessian = correlated_hessian(kCols, 1000);
  const GptqFactor factor = factor_of(hessian, kCols);
  const Rows rows = random_rows(kRows, kCols);
  for (const BlockFormat format : {BlockFormat{QuantType::kQ4, 32}, {QuantType::kQ2Super, 32}}) {
    const std::size_t unit = is_super_type(format.type) ? kSuperColumns : format.block;
    const Rows decoded = decode(format, kCols, encode_with_gptq(factor, format, rows));
    for (std::size_t first = 0; first < kCols; first += unit) {
      const std::size_t n = std::min(unit, kCols - first);
      // Encodes the adjusted weights of the unit alone, as the first columns of a shorter row.
      Rows adjusted(kRows * n);
      for (std::size_t r = 0; r < kRows; ++r) {
        for (std::size_t i = 0; i < n; ++i) {
          double w = rows[r * kCols + first + i];
          for (std::size_t k = 0; k < first; ++k) {
            w += (static_cast<double>(rows[r * kCols + k]) - decoded[r * kCols + k]) *
                 factor.compensation(first + i)[k];
          }
          adjusted[r * n + i] = static_cast<float>(w);
        }
      }
      const Bytes expected = encode_plainly(
          format, n, adjusted, {Rounding::kSearch, factor.importance().subspan(first, n)});
      for (std::size_t r = 0; r < kRows; ++r) {
        const ByteSpan row = ByteSpan(expected).subspan(r * row_major_bytes(format, n));
        for (std::size_t i = 0; i < n; ++i) {
          const Rows levels = levels_of(format, row, i / format.block);
          // An f16 field may have been rounded to the other side.
          const float range = levels.back() - levels.front();
          ASSERT_LE(distance_to(levels, decoded[r * kCols + first + i]), 0x1p-9 * range)
              << name_of(format) << ": " << r << ", " << first + i;
        }
      }
    }
  }
}

TEST(GptqTest, DiagonalHessiansLeaveTheEncoderAlone) {
  const Rows rows = random_rows(kRows, kCols);
  for (const bool is_identity : {true, false}) {
    const GptqFactor factor = factor_of(diagonal_hessian(kCols, is_identity), kCols);
    for (const BlockFormat format : coded_formats()) {
      if (is_ternary(format.type)) continue;       // whose encoder has wider zeros than the nearest
      if (is_trellis_type(format.type)) continue;  // paths of whole rows there, of parts here
      for (const Rounding rounding : {Rounding::kNearest, Rounding::kSearch}) {
        EXPECT_TRUE(encode_with_gptq(factor, format, rows, rounding) ==
                    encode_plainly(format, kCols, rows, {rounding, factor.importance()}))
            << name_of(format) << (rounding == Rounding::kSearch ? ", searched" : "");
      }
    }
  }
}

// Encoders find most fields again that weights were decoded from, after some rounds all but a few.
TEST(GptqTest, ExactWeightsStayExact) {
  const GptqFactor factor = factor_of(correlated_hessian(kCols, 1000), kCols);
  for (const BlockFormat format : coded_formats()) {
    if (is_trellis_type(format.type)) continue;  // scales of rows are fitted to no exact code
    for (const Rounding rounding : {Rounding::kNearest, Rounding::kSearch}) {
      const QuantOptions options = {rounding, factor.importance()};
      Rows rows = random_rows(kRows, kCols);
      for (int round = 0; round < 8; ++round) {
        rows = decode(format, kCols, encode_plainly(format, kCols, rows, options));
      }
      const Rows plain = decode(format, kCols, encode_plainly(format, kCols, rows, options));
      const Rows fed_back = decode(format, kCols, encode_with_gptq(factor, format, rows, rounding));
      std::size_t n_kept = 0;
      for (std::size_t r = 0; r < kRows; ++r) {
        const auto is_kept = [&](const Rows& decoded) {
          return std::equal(rows.begin() + r * kCols, rows.begin() + (r + 1) * kCols,
                            decoded.begin() + r * kCols);
        };
        EXPECT_TRUE(!is_kept(plain) || is_kept(fed_back)) << name_of(format) << ", row " << r;
        n_kept += is_kept(plain) ? 1 : 0;
      }
      EXPECT_GT(n_kept, kRows / 2) << name_of(format);
    }
  }
}

TEST(GptqTest, RowsDoNotDependOnEachOther) {
  const GptqFactor factor = factor_of(correlated_hessian(kCols, 400), kCols);
  const std::size_t n_rows = kGptqRows + 70;
  const Rows rows = random_rows(n_rows, kCols);
  for (const BlockFormat format : coded_formats()) {
    const Bytes all = encode_with_gptq(factor, format, rows);
    Bytes parts;
    for (std::size_t first = 0, n = 1; first < n_rows; first += n, n = 3 * n + 1) {
      n = std::min(n, n_rows - first);
      const Bytes part = encode_with_gptq(
          factor, format, Rows(rows.begin() + first * kCols, rows.begin() + (first + n) * kCols));
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_TRUE(all == parts) << name_of(format);
  }
}

TEST(GptqTest, BytesAreValidForAnyNumberOfColumns) {
  for (const std::size_t n_cols : {1U, 2U, 31U, 64U, 256U, 257U, 520U}) {
    const GptqFactor factor = factor_of(correlated_hessian(n_cols, 50), n_cols);
    const Rows rows = random_rows(3, n_cols);
    for (const BlockFormat format : coded_formats()) {
      const Bytes bytes = encode_with_gptq(factor, format, rows);
      EXPECT_TRUE(check_blocks(format, Layout::kRowMajor, 3, n_cols, bytes).ok())
          << name_of(format) << ", " << n_cols;
    }
  }
}

// Fewer inputs than columns, and columns that no input used.
TEST(GptqTest, SingularHessiansAreDamped) {
  constexpr BlockFormat kFormat = {QuantType::kQ3Super, 64};
  const Rows rows = random_rows(kRows, kCols);
  std::vector<float> hessian = correlated_hessian(kCols, 5);
  for (std::size_t i = 0; i < kCols; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      if (i % 7 == 0 || j % 7 == 0) hessian[i * kCols + j] = 0.0F;
    }
  }
  const GptqFactor factor = factor_of(hessian, kCols);
  for (std::size_t j = 0; j < kCols; ++j) {
    EXPECT_GT(factor.importance()[j], 0.0F);
    for (std::size_t i = 0; i < j; ++i) {
      ASSERT_TRUE(std::isfinite(factor.compensation(j)[i]));
      const bool is_unused = i % 7 == 0 || j % 7 == 0;
      ASSERT_TRUE(!is_unused || factor.compensation(j)[i] == 0.0F);
    }
  }
  const auto error = [&](const Bytes& bytes) {
    return output_error(hessian, kCols, rows, decode(kFormat, kCols, bytes));
  };
  EXPECT_LT(
      error(encode_with_gptq(factor, kFormat, rows)),
      0.25 * error(encode_plainly(kFormat, kCols, rows, {Rounding::kSearch, factor.importance()})));
}

TEST(GptqTest, HessianOfNoInputsHasNoEffect) {
  constexpr BlockFormat kFormat = {QuantType::kQ4Super, 32};
  const GptqFactor factor = factor_of(std::vector<float>(kCols * kCols), kCols);
  const Rows rows = random_rows(kRows, kCols);
  EXPECT_TRUE(encode_with_gptq(factor, kFormat, rows) ==
              encode_plainly(kFormat, kCols, rows, {Rounding::kSearch, factor.importance()}));
}

TEST(GptqTest, DampingIsRaisedUntilTheFactorIsSound) {
  // 1 3 / 3 1 has the eigenvalues 4 and -2, so 1 % and 10 % and 100 % of 1 are too little.
  const auto factor = GptqFactor::create({1.0F, 0.0F, 3.0F, 1.0F}, 2);
  ASSERT_TRUE(factor.has_value());
  EXPECT_FLOAT_EQ(factor->damping(), 10.0F);
  EXPECT_FLOAT_EQ(factor->importance()[0], 11.0F);
  EXPECT_FLOAT_EQ(factor->compensation(1)[0], 3.0F / 11.0F);
}

TEST(GptqTest, RejectsMatricesThatAreNoSumOfProducts) {
  const auto message = [](std::vector<float> hessian) {
    const auto factor = GptqFactor::create(std::move(hessian), 2);
    EXPECT_FALSE(factor.has_value());
    return factor.has_value() ? "" : factor.error().message();
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_THAT(message({1.0F, 0.0F, kNan, 1.0F}), testing::HasSubstr("row 1, column 0: got nan"));
  EXPECT_THAT(message({kNan, 0.0F, 0.0F, 1.0F}), testing::HasSubstr("row 0, column 0: got nan"));
  EXPECT_THAT(message({1.0F, 0.0F, 0.0F, kInf}), testing::HasSubstr("row 1, column 1: got inf"));
  EXPECT_THAT(message({1.0F, 0.0F, 0.0F, -1.0F}), testing::HasSubstr("column 1: got -1"));
  EXPECT_THAT(message({1.0F, 0.0F, 1e8F, 1.0F}), testing::HasSubstr("not positive definite"));
}

}  // namespace
}  // namespace qsf
