// SPDX-License-Identifier: MIT
//
// Holds products of the CPU backend to plain loops in f64, what joins them (bias, activation,
// residual sum) to separate steps, bit for bit, and rows of int8 to their bound. Bits may depend
// neither on threads nor on what shares a pass, nor on how tiles cut a matrix.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/kernel_set.h"
#include "ops/activation_rows.h"
#include "ops/testing/bench.h"
#include "ops/testing/tiled_weights.h"
#include "quant/codec.h"
#include "quant/interleave.h"

namespace qsf {
namespace {

using kernels::ActivationType;
using testing_support::AlignedBytes;
using testing_support::backend_tiers;
using testing_support::BackendTier;
using testing_support::Bench;
using testing_support::random_values;
using testing_support::scalar_backends;

constexpr BlockFormat kF32 = {QuantType::kF32, 4};
constexpr BlockFormat kQ4 = {QuantType::kQ4, 64};
constexpr BlockFormat kTernary32 = {QuantType::kTernary, 32};
constexpr std::uint32_t kWeightRows = 200;
constexpr std::uint32_t kWeightCols = 172;

struct Weights : testing_support::TiledWeights {
  Weights(BlockFormat format, Rng& rng, std::uint32_t n_cols = kWeightCols)
      : TiledWeights(format, kWeightRows, n_cols, rng) {}
};

PassLimits limits(std::uint32_t max_rows) {
  return {.max_rows = max_rows,
          .max_decode_rows = max_rows,
          .max_context = 64,
          .n_heads = 1,
          .n_kv_heads = 1,
          .head_dim = 8,
          .rope_dims = 0,
          .max_cols = 256};
}

using Matrix = std::vector<std::vector<float>>;

Matrix random_rows(std::uint32_t n_rows, std::uint32_t n_cols, Rng& rng) {
  Matrix rows;
  for (std::uint32_t i = 0; i < n_rows; ++i) rows.push_back(random_values(n_cols, rng));
  return rows;
}

void upload(Bench& bench, Buffer to, const Matrix& rows) {
  for (std::uint32_t i = 0; i < rows.size(); ++i) bench.backend().upload_row(to, i, rows[i]);
}

Matrix read(Bench& bench, Buffer from, std::uint32_t n_rows) {
  Matrix rows;
  for (std::uint32_t i = 0; i < n_rows; ++i) {
    const auto row = bench.read_row(from, i);
    rows.emplace_back(row.begin(), row.end());
  }
  return rows;
}

// Rows of int8 with one scale, by the definition, and that scale.
struct IntegerRow {
  std::vector<int> codes;
  float scale;
};
IntegerRow quantised(const std::vector<float>& x) {
  float max = 1e-5F;
  for (const float value : x) max = std::max(max, std::fabs(value));
  IntegerRow row{{}, max / 127.0F};
  for (const float value : x) {
    row.codes.push_back(static_cast<int>(std::nearbyint(value * (127.0F / max))));
  }
  return row;
}

class CpuMatmulTest : public testing::TestWithParam<BackendTier> {
 protected:
  static constexpr std::uint32_t kPassRows = 21;
  static constexpr std::uint32_t kPromptRows = 15;
  CpuMatmulTest() : weights_(kF32, rng_), bench_(2, limits(kPassRows), KvType::kF32, GetParam()) {
    in_ = bench_.buffer(kPassRows, kWeightCols);
    out_ = bench_.buffer(kPassRows, kWeightRows);
    upload(bench_, in_, x_);
  }
  // 172 products of normal values: f32 sums stay within 172 roundings of their magnitude.
  static constexpr double kBound = 172 * 172 * 0x1p-24;

  Rng rng_{3};
  Matrix x_ = random_rows(kPassRows, kWeightCols, rng_);
  Weights weights_;
  Bench bench_;
  Buffer in_, out_;
};

TEST_P(CpuMatmulTest, TilesBiasAndBothRoles) {
  const std::vector<float> bias = random_values(kWeightRows, rng_);
  const WeightTile tiles[] = {weights_.tile(0, 64), weights_.tile(64, 128), weights_.tile(192, 8)};
  const MatmulTarget target = {.out = out_, .bias = bias};
  bench_.backend().matmul({.in = in_,
                           .rows = {.n_prompt = kPromptRows, .n_rows = kPassRows},
                           .row_list = {},
                           .tiles = tiles,
                           .targets = {&target, 1},
                           .adapters = {},
                           .epilogue = {}});
  for (std::uint32_t i = 0; i < kPassRows; ++i) {
    const auto y = bench_.read_row(out_, i);
    for (std::uint32_t r = 0; r < kWeightRows; ++r) {
      EXPECT_NEAR(y[r], weights_.product(r, x_[i]) + bias[r], kBound) << i << ' ' << r;
    }
  }
}

TEST_P(CpuMatmulTest, ARowListTouchesItsRowsAlone) {
  const std::uint32_t list[] = {1, 2, 5, 14, 15, 18};
  const WeightTile tile = weights_.tile(64, 64);
  const MatmulTarget target = {.out = out_, .first_weight_row = 64, .bias = {}};
  bench_.backend().matmul({.in = in_,
                           .rows = {.n_prompt = kPromptRows, .n_rows = kPassRows},
                           .row_list = list,
                           .tiles = {&tile, 1},
                           .targets = {&target, 1},
                           .adapters = {},
                           .epilogue = {}});
  for (std::uint32_t i = 0; i < kPassRows; ++i) {
    const auto y = bench_.read_row(out_, i);
    const bool listed = std::find(std::begin(list), std::end(list), i) != std::end(list);
    for (std::uint32_t r = 0; r < 64; ++r) {
      const double expected = listed ? weights_.product(64 + r, x_[i]) : 0.0;
      EXPECT_NEAR(y[r], expected, listed ? kBound : 0.0) << i << ' ' << r;
    }
    EXPECT_EQ(y[64], 0.0F);
  }
}

TEST_P(CpuMatmulTest, ATargetMayStartAtAnyRowOfItsBuffer) {
  const Buffer tall = bench_.buffer(2 * kPassRows, 64);
  const WeightTile tiles[] = {weights_.tile(0, 64, 0), weights_.tile(64, 64, 1)};
  const MatmulTarget targets[] = {
      {.out = tall, .first_row = 0, .bias = {}},
      {.out = tall, .first_row = kPassRows, .first_weight_row = 64, .bias = {}}};
  bench_.backend().matmul({.in = in_,
                           .rows = {.n_prompt = 0, .n_rows = kPassRows},
                           .row_list = {},
                           .tiles = tiles,
                           .targets = targets,
                           .adapters = {},
                           .epilogue = {}});
  for (std::uint32_t i = 0; i < 2 * kPassRows; ++i) {
    const auto y = bench_.read_row(tall, i);
    for (std::uint32_t r = 0; r < 64; ++r) {
      const std::uint32_t row = i < kPassRows ? r : 64 + r;
      EXPECT_NEAR(y[r], weights_.product(row, x_[i % kPassRows]), kBound) << i << ' ' << r;
    }
  }
}

TEST_P(CpuMatmulTest, BothWorkersRun) {
  if (bench_.pool().n_parallel() < 2) GTEST_SKIP() << "one CPU: workers take turns";
  const WeightTile tile = weights_.tile(0, kWeightRows);
  const MatmulTarget target = {.out = out_, .bias = {}};
  // Items go to whoever is free, so one product alone may be done by either worker.
  const auto both_ran = [&] {
    return bench_.pool().chunks_done(0) > 0 && bench_.pool().chunks_done(1) > 0;
  };
  for (int i = 0; i < 100000 && !both_ran(); ++i) {
    bench_.backend().matmul({.in = in_,
                             .rows = {.n_prompt = kPassRows, .n_rows = kPassRows},
                             .row_list = {},
                             .tiles = {&tile, 1},
                             .targets = {&target, 1},
                             .adapters = {},
                             .epilogue = {}});
    ASSERT_TRUE(bench_.backend().wait().ok());
  }
  EXPECT_GT(bench_.pool().chunks_done(0), 0U);
  EXPECT_GT(bench_.pool().chunks_done(1), 0U);
}

TEST_P(CpuMatmulTest, NormGathersListedRows) {
  const std::vector<float> gain(kWeightCols, 2.0F);
  const Buffer normed = bench_.buffer(kPassRows, kWeightCols);
  const std::uint32_t list[] = {3, 9};
  bench_.backend().norm({.in = in_,
                         .out = normed,
                         .row_list = list,
                         .n_rows = 0,
                         .n_cols = kWeightCols,
                         .kind = NormKind::kRmsNorm,
                         .epsilon = 0.5F,
                         .gain = gain,
                         .bias = {}});
  for (std::uint32_t i = 0; i < 2; ++i) {
    double squares = 0;
    for (const float value : x_[list[i]]) squares += static_cast<double>(value) * value;
    const double scale = 2.0 / std::sqrt(squares / kWeightCols + 0.5);
    const auto y = bench_.read_row(normed, i);
    for (std::uint32_t c = 0; c < kWeightCols; ++c) EXPECT_NEAR(y[c], x_[list[i]][c] * scale, 1e-5);
  }
}

// What a test varies about a product.
struct Setting {
  BackendTier tier;
  unsigned n_threads = 2;
  bool exact = false;
  RowCounts rows = {.n_prompt = 13, .n_rows = 20};  // other rows follow the prompt rows
  std::uint32_t rows_per_call = 20;
};

// Multiplies in calls of some rows each, and returns all outputs.
Matrix multiply(Weights& weights, const Matrix& x, const Setting& setting) {
  Bench bench(setting.n_threads, limits(setting.rows_per_call), KvType::kF32, setting.tier,
              setting.exact);
  const auto n_cols = static_cast<std::uint32_t>(x.front().size());
  const Buffer in = bench.buffer(setting.rows_per_call, n_cols);
  const Buffer out = bench.buffer(setting.rows_per_call, kWeightRows);
  const WeightTile tile = weights.tile(0, kWeightRows);
  const MatmulTarget target = {.out = out, .bias = {}};
  Matrix y;
  for (std::uint32_t done = 0; done < setting.rows.n_rows; done += setting.rows_per_call) {
    const std::uint32_t n = std::min(setting.rows_per_call, setting.rows.n_rows - done);
    const std::uint32_t n_prompt = std::clamp(setting.rows.n_prompt, done, done + n) - done;
    upload(bench, in, Matrix(x.begin() + done, x.begin() + done + n));
    bench.backend().matmul({.in = in,
                            .rows = {.n_prompt = n_prompt, .n_rows = n},
                            .row_list = {},
                            .tiles = {&tile, 1},
                            .targets = {&target, 1},
                            .adapters = {},
                            .epilogue = {}});
    const Matrix part = read(bench, out, n);
    y.insert(y.end(), part.begin(), part.end());
  }
  return y;
}

TEST(CpuMatmulRowsTest, BitsDependNeitherOnThreadsNorOnCompany) {
  Rng rng(21);
  for (const BlockFormat format : {kF32, kQ4, kTernary32}) {
    Weights weights(format, rng);
    const Matrix x = random_rows(20, kWeightCols, rng);
    for (const BackendTier& tier : backend_tiers()) {
      for (const bool exact : {false, true}) {
        const Setting alone = {.tier = tier, .n_threads = 1, .exact = exact};
        const Matrix expected = multiply(weights, x, alone);
        for (const unsigned n_threads : {2U, 3U, 64U}) {
          Setting setting = alone;
          setting.n_threads = n_threads;
          EXPECT_EQ(multiply(weights, x, setting), expected) << tier.name();
        }
        for (const std::uint32_t rows_per_call : {1U, 3U, 7U}) {
          Setting setting = alone;
          setting.rows_per_call = rows_per_call;
          EXPECT_EQ(multiply(weights, x, setting), expected) << tier.name();
        }
      }
    }
  }
}

// Rounding x to int8 moves each value by at most half a step of its chunk, amax / 254, so a product
// by at most the sum of |w| times that. On top come roundings of both sums, of C chunks and 172
// columns, each below 2^-23 of the sum of |w x|, with a min up to 2.1 times as large.
// Weights behind the last column decode to the minimum of their block, so rows must end in zeros.
TEST(CpuMatmulRowsTest, AWiderProductBeforeLeavesNothing) {
  constexpr std::uint32_t kNarrow = 100;
  Rng rng(4);
  for (const BackendTier& tier : backend_tiers()) {
    Bench bench(1, limits(3), KvType::kF32, tier, /*exact=*/true);
    const Buffer in = bench.buffer(3, kWeightCols);
    const Buffer out = bench.buffer(3, kWeightRows);
    Weights weights(kQ4, rng, kNarrow);
    const WeightTile tile = weights.tile(0, kWeightRows);
    const MatmulTarget target = {.out = out, .bias = {}};
    const Matrix x = random_rows(3, kWeightCols, rng);
    upload(bench, in, x);
    bench.backend().matmul({.in = in,
                            .rows = {.n_prompt = 1, .n_rows = 3},
                            .row_list = {},
                            .tiles = {&tile, 1},
                            .targets = {&target, 1},
                            .adapters = {},
                            .epilogue = {}});
    for (std::uint32_t i = 0; i < 3; ++i) {
      const auto y = bench.read_row(out, i);
      for (std::uint32_t r = 0; r < kWeightRows; ++r) {
        EXPECT_NEAR(y[r], weights.product(r, x[i]), 1e-4) << i << ' ' << r;
      }
    }
  }
}

TEST(CpuMatmulRowsTest, Int8RowsStayWithinTheirBound) {
  Rng rng(22);
  for (const BlockFormat format : {kQ4, kTernary32}) {
    Weights weights(format, rng);
    const Matrix x = random_rows(20, kWeightCols, rng);
    const Matrix rounded = multiply(weights, x, {});
    const Matrix exact = multiply(weights, x, {.exact = true});
    double largest_share = 0;
    for (std::uint32_t i = 0; i < x.size(); ++i) {
      for (std::uint32_t r = 0; r < kWeightRows; ++r) {
        double step_bound = 0;
        double magnitude = 0;
        for (std::uint32_t first = 0; first < kWeightCols;
             first += kernels::kActivationBlockColumns) {
          const std::uint32_t last =
              std::min(first + kernels::kActivationBlockColumns, kWeightCols);
          double amax = 0;
          double weight_sum = 0;
          for (std::uint32_t c = first; c < last; ++c) {
            amax = std::max(amax, std::fabs(static_cast<double>(x[i][c])));
            weight_sum += std::fabs(static_cast<double>(weights.row(r)[c]));
          }
          step_bound += weight_sum * amax / 254;
          magnitude += weight_sum * amax;
        }
        const double bound = step_bound + magnitude * 172 * 2.1 * 0x1p-23;
        const double error = std::fabs(static_cast<double>(rounded[i][r]) - exact[i][r]);
        ASSERT_LE(error, bound) << i << ' ' << r;
        largest_share = std::max(largest_share, error / bound);
      }
    }
    EXPECT_GT(largest_share, 0.02) << "the rows were not rounded at all";
  }
}

// f64 products of what read_operand() gives are the kernels', but for the roundings of sums: with
// the row itself int8 products differ far more.
TEST(CpuMatmulRowsTest, OperandsAreWhatProductsMultiply) {
  Rng rng(23);
  for (const BackendTier& tier : scalar_backends()) {
    for (const bool exact : {false, true}) {
      for (const BlockFormat format : {kQ4, kF32}) {
        Bench bench(1, limits(1), KvType::kF32, tier, exact);
        const Buffer in = bench.buffer(1, kWeightCols);
        const Buffer out = bench.buffer(1, kWeightRows);
        Weights weights(format, rng);
        const WeightTile tile = weights.tile(0, kWeightRows);
        const MatmulTarget target = {.out = out, .bias = {}};
        const Matrix x = random_rows(1, kWeightCols, rng);
        upload(bench, in, x);
        bench.backend().matmul({.in = in,
                                .rows = {.n_prompt = 0, .n_rows = 1},
                                .row_list = {},
                                .tiles = {&tile, 1},
                                .targets = {&target, 1},
                                .adapters = {},
                                .epilogue = {}});
        std::vector<float> operand(kWeightCols);
        const auto y = bench.read_row(out, 0);
        const std::vector<float> products(y.begin(), y.end());
        if (!bench.backend().read_operand(in, 0, format, operand)) continue;  // deferred
        double off = 0;
        for (std::uint32_t r = 0; r < kWeightRows; ++r) {
          EXPECT_NEAR(products[r], weights.product(r, operand), 1e-4) << r;
          off = std::max(off, std::fabs(weights.product(r, operand) - weights.product(r, x[0])));
        }
        EXPECT_EQ(off > 1e-3, format == kQ4 && !exact);
      }
    }
  }
}

TEST(CpuMatmulRowsTest, TheRuleOfForms) {
  using kernels::Isa;
  for (const Isa isa : kernels::kAllIsas) {
    for (const QuantType type : kAllQuantTypes) {
      const BlockFormat format = block_format(type, 64);
      const bool matrix_unit = kernels::find_matmul(format, ActivationType::kBf16, isa) != nullptr;
      const ActivationType plain =
          is_float_type(type) ? ActivationType::kF32 : ActivationType::kInt8;
      EXPECT_EQ(product_input(format, true, false, false, isa),
                matrix_unit ? ActivationType::kBf16 : plain);
      EXPECT_EQ(product_input(format, false, false, false, isa), plain);
      EXPECT_EQ(product_input(format, true, true, false, isa), ActivationType::kF32);
      EXPECT_EQ(product_input(format, false, true, false, isa), ActivationType::kF32);
      for (const bool exact : {false, true}) {
        EXPECT_EQ(product_input(format, true, exact, true, isa), plain);
        EXPECT_EQ(product_input(format, false, exact, true, isa), plain);
      }
    }
  }
}

// Forms of rows are kept until their buffer is written, by whichever operator.
TEST(CpuMatmulRowsTest, WrittenBuffersAreFormedAnew) {
  constexpr std::uint32_t kN = 9;
  constexpr std::uint32_t kSquare = 192;  // columns of the input, of which all are outputs too
  Rng rng(23);
  Weights weights(kQ4, rng, kSquare);
  const Matrix x = random_rows(kN, kSquare, rng);
  const Matrix more = random_rows(kN, kSquare, rng);
  const std::vector<float> gain = random_values(kSquare, rng);
  Bench bench(2, limits(kN), KvType::kF32);
  Backend& backend = bench.backend();
  const Buffer in = bench.buffer(kN, kSquare);
  const Buffer other = bench.buffer(kN, kSquare);
  const Buffer out = bench.buffer(kN, kWeightRows);
  bench.begin(kN, RowRole::kPrompt);
  const WeightTile tile = weights.tile(0, kWeightRows);
  const auto product_of = [&](Buffer from) {
    const MatmulTarget target = {.out = out, .bias = {}};
    backend.matmul({.in = from,
                    .rows = {.n_prompt = kN, .n_rows = kN},
                    .row_list = {},
                    .tiles = {&tile, 1},
                    .targets = {&target, 1},
                    .adapters = {},
                    .epilogue = {}});
    return read(bench, out, kN);
  };
  const auto norm_into = [&](Buffer to) {
    backend.norm({.in = other,
                  .out = to,
                  .row_list = {},
                  .n_rows = kN,
                  .n_cols = kSquare,
                  .kind = NormKind::kRmsNorm,
                  .epsilon = 0.5F,
                  .gain = gain,
                  .bias = {}});
  };
  const WeightTile square = weights.tile(0, kSquare);
  const std::function<void()> writers[] = {
      [&] { upload(bench, in, more); },
      [&] { backend.add(in, other); },
      [&] { norm_into(in); },  // forms its rows in one visit, as the product before took them
      [&] {
        const MatmulTarget target = {.out = in, .bias = {}};
        backend.matmul({.in = other,
                        .rows = {.n_prompt = kN, .n_rows = kN},
                        .row_list = {},
                        .tiles = {&square, 1},
                        .targets = {&target, 1},
                        .adapters = {},
                        .epilogue = {}});
      },
      [&] {
        const MatmulTarget target = {.out = out, .bias = {}};
        backend.matmul({.in = other,
                        .rows = {.n_prompt = kN, .n_rows = kN},
                        .row_list = {},
                        .tiles = {&square, 1},
                        .targets = {&target, 1},
                        .adapters = {},
                        .epilogue = {.activation = {}, .add_to = in}});
      },
  };
  upload(bench, in, x);
  upload(bench, other, more);
  for (std::size_t i = 0; i < std::size(writers); ++i) {
    const Matrix before = product_of(in);
    writers[i]();
    const Matrix after = product_of(in);
    EXPECT_NE(after, before) << i;
    // The same values in a buffer that no product has read.
    const Matrix values = read(bench, in, kN);
    EXPECT_EQ(
        multiply(weights, values, {.rows = {.n_prompt = kN, .n_rows = kN}, .rows_per_call = kN}),
        after)
        << i;
  }
}

// A feed-forward's first half, by one product with its activation, or by steps.
class CpuJointTest : public testing::TestWithParam<BackendTier> {
 protected:
  static constexpr std::uint32_t kN = 20;
  static constexpr std::uint32_t kPrompt = 13;
  using Calls = std::vector<std::vector<WeightTile>>;

  CpuJointTest() { upload(bench_, in_, x_); }

  MatmulArgs args(std::span<const WeightTile> tiles, std::span<const MatmulTarget> targets,
                  const MatmulEpilogue& epilogue) const {
    return {.kind = OperatorKind::kGateUp,
            .in = in_,
            .rows = {.n_prompt = kPrompt, .n_rows = kN},
            .row_list = {},
            .tiles = tiles,
            .targets = targets,
            .adapters = {},
            .epilogue = epilogue};
  }

  // act(gate) * up, whole matrices multiplied on their own.
  Matrix by_steps(ActivationKind kind) {
    const kernels::KernelSet& set = kernels::kernel_set(kernels::Isa::kScalar);
    const WeightTile tiles[] = {gate_.tile(0, kWeightRows, 0), up_.tile(0, kWeightRows, 1)};
    const MatmulTarget targets[] = {{.out = gate_out_, .bias = gate_bias_},
                                    {.out = up_out_, .bias = up_bias_}};
    bench_.backend().matmul(args(tiles, targets, {}));
    Matrix gate = read(bench_, gate_out_, kN);
    const Matrix up = read(bench_, up_out_, kN);
    for (std::uint32_t i = 0; i < kN; ++i) {
      float* values = gate[i].data();
      switch (kind) {
        case ActivationKind::kGeluTanh: set.activation.gelu_tanh(values, kWeightRows); break;
        case ActivationKind::kGeluErf: set.activation.gelu_erf(values, kWeightRows); break;
        case ActivationKind::kSilu: set.activation.silu(values, kWeightRows); break;
        case ActivationKind::kRelu: set.activation.relu(values, kWeightRows); break;
        case ActivationKind::kReluSquared: set.activation.relu_squared(values, kWeightRows); break;
        case ActivationKind::kSigmoid:
          set.activation.sigmoid_mul(values, up[i].data(), values, kWeightRows);
          continue;
        case ActivationKind::kSwishClamped:
          set.activation.swish_clamped_mul(values, up[i].data(), values, kWeightRows);
          continue;
      }
      for (std::uint32_t c = 0; c < kWeightRows; ++c) values[c] *= up[i][c];
    }
    return gate;
  }

  Matrix joined(ActivationKind kind, const Calls& calls) {
    MatmulTarget targets[] = {{.out = gate_out_, .bias = gate_bias_},
                              {.out = up_out_, .bias = up_bias_}};
    for (const auto& tiles : calls) {
      bench_.backend().matmul(
          args(tiles, targets, {.activation = kind, .fused_gate_up = true, .add_to = {}}));
      for (const WeightTile& tile : tiles) targets[tile.target].n_rows_done += tile.n_rows;
    }
    return read(bench_, gate_out_, kN);
  }

  Rng rng_{24};
  Weights gate_{kQ4, rng_};
  Weights up_{kTernary32, rng_};
  std::vector<float> gate_bias_ = random_values(kWeightRows, rng_);
  std::vector<float> up_bias_ = random_values(kWeightRows, rng_);
  Matrix x_ = random_rows(kN, kWeightCols, rng_);
  Bench bench_{2, limits(kN), KvType::kF32, GetParam()};
  Buffer in_ = bench_.buffer(kN, kWeightCols);
  Buffer gate_out_ = bench_.buffer(kN, kWeightRows);
  Buffer up_out_ = bench_.buffer(kN, kWeightRows);
};

TEST_P(CpuJointTest, GateAndUpInOneSweepEqualTheSteps) {
  for (const ActivationKind kind :
       {ActivationKind::kSilu, ActivationKind::kGeluTanh, ActivationKind::kGeluErf,
        ActivationKind::kRelu, ActivationKind::kReluSquared, ActivationKind::kSigmoid,
        ActivationKind::kSwishClamped}) {
    const Matrix expected = by_steps(kind);
    EXPECT_EQ(joined(kind, {{gate_.tile(0, kWeightRows, 0), up_.tile(0, kWeightRows, 1)}}),
              expected);
  }
}

TEST_P(CpuJointTest, TilesMayEndAtDifferentRowsAndComeInPortions) {
  const Matrix expected = by_steps(ActivationKind::kSilu);
  const auto gate = [this](std::uint32_t first, std::uint32_t n) {
    return gate_.tile(first, n, 0);
  };
  const auto up = [this](std::uint32_t first, std::uint32_t n) { return up_.tile(first, n, 1); };
  const Calls orders[] = {
      {{gate(0, 128), up(0, 128), gate(128, 72), up(128, 72)}},
      {{gate(0, 64), up(0, 192), gate(64, 136), up(192, 8)}},
      {{gate(0, 64)}, {up(0, 192)}, {gate(64, 136), up(192, 8)}},
      {{up(0, 128)}, {gate(0, 192), up(128, 64)}, {up(192, 8)}, {gate(192, 8)}},
      {{gate(0, kWeightRows)}, {up(0, 64), up(64, 136)}},
  };
  for (const Calls& calls : orders) EXPECT_EQ(joined(ActivationKind::kSilu, calls), expected);
}

TEST_P(CpuJointTest, ActivationScaleCapAndSumEqualTheSteps) {
  const kernels::KernelSet& set = kernels::kernel_set(kernels::Isa::kScalar);
  const WeightTile tiles[] = {gate_.tile(0, 128), gate_.tile(128, 72)};
  const MatmulTarget target = {.out = gate_out_, .bias = gate_bias_};
  const Matrix sums = random_rows(kN, kWeightRows, rng_);
  const Buffer sum = bench_.buffer(kN, kWeightRows);
  bench_.backend().matmul(args(tiles, {&target, 1}, {}));
  Matrix expected = read(bench_, gate_out_, kN);
  for (std::uint32_t i = 0; i < kN; ++i) {
    set.activation.gelu_tanh(expected[i].data(), kWeightRows);
    for (float& value : expected[i]) value *= 0.375F;
    set.activation.soft_cap(expected[i].data(), 1.5F, kWeightRows);
  }
  upload(bench_, sum, sums);
  bench_.backend().matmul(args(
      tiles, {&target, 1},
      {.activation = ActivationKind::kGeluTanh, .scale = 0.375F, .soft_cap = 1.5F, .add_to = sum}));
  EXPECT_EQ(read(bench_, gate_out_, kN), expected);
  const Matrix got = read(bench_, sum, kN);
  for (std::uint32_t i = 0; i < kN; ++i) {
    for (std::uint32_t c = 0; c < kWeightRows; ++c) {
      ASSERT_EQ(got[i][c], sums[i][c] + expected[i][c]) << i << ' ' << c;
    }
  }
}

TEST_P(CpuJointTest, TheProfileCountsCallsBytesAndOperations) {
  const WeightTile tiles[] = {gate_.tile(0, kWeightRows, 0), up_.tile(0, kWeightRows, 1)};
  const MatmulTarget targets[] = {{.out = gate_out_, .bias = {}}, {.out = up_out_, .bias = {}}};
  bench_.backend().matmul(args(tiles, targets, {}));
  ASSERT_TRUE(bench_.backend().wait().ok());
  const OperatorTimes& times = bench_.backend().profile()[OperatorKind::kGateUp];
  EXPECT_EQ(times.calls, 1U);
  EXPECT_GT(times.ns, 0U);
  EXPECT_EQ(times.bytes,
            rows_bytes(kQ4, Layout::kInterleaved, kWeightRows, kWeightCols) +
                rows_bytes(kTernary32, Layout::kInterleaved, kWeightRows, kWeightCols));
  EXPECT_EQ(times.operations, 2U * 2 * kWeightRows * kWeightCols * kN);
  EXPECT_EQ(bench_.backend().profile()[OperatorKind::kInputRows].calls, 1U);
  EXPECT_EQ(bench_.backend().profile()[OperatorKind::kDown].calls, 0U);
  EXPECT_EQ(bench_.backend().profile().product_ns(), times.ns);
}

// Weights of codes -1, 0 and 1 times one scale meet rows of int8 with one scale in whole numbers:
// two roundings are left, by the scale of the weights and by that of the row, on every tier, in
// prompt rows as in others, exact or not.
TEST(CpuInt8RowsTest, TernaryRowsAreMultipliedInWholeNumbers) {
  constexpr BlockFormat kFormat = block_format(QuantType::kTernaryRow, 0);
  constexpr std::uint32_t kWide = 1100;
  constexpr float kScale = 0.37F;
  Rng rng(8);
  std::vector<std::vector<int>> codes(kWeightRows);
  std::vector<std::byte> rows;
  for (std::vector<int>& row : codes) {
    std::vector<float> values;
    for (std::uint32_t c = 0; c < kWide; ++c) {
      row.push_back(static_cast<int>(rng.next_u64() % 3) - 1);
      values.push_back(kScale * static_cast<float>(row.back()));
    }
    std::vector<std::byte> bytes(row_major_bytes(kFormat, kWide));
    encode_row(kFormat, values, kNearestRounding, bytes);
    rows.insert(rows.end(), bytes.begin(), bytes.end());
  }
  AlignedBytes tile_bytes(rows_bytes(kFormat, Layout::kInterleaved, kWeightRows, kWide));
  interleave_rows(kFormat, kWeightRows, kWide, rows, tile_bytes.span());
  const WeightTile tile = {.bytes = tile_bytes.span().data(),
                           .format = kFormat,
                           .group_bytes = group_bytes(kFormat, kWide),
                           .first_row = 0,
                           .n_rows = kWeightRows,
                           .n_cols = kWide,
                           .target = 0};
  const Matrix x = random_rows(9, kWide, rng);
  PassLimits wide = limits(9);
  wide.max_cols = kWide;
  for (const BackendTier& tier : backend_tiers()) {
    for (const bool exact : {false, true}) {
      Bench bench(2, wide, KvType::kF32, tier, exact);
      const Buffer in = bench.buffer(9, kWide);
      const Buffer out = bench.buffer(9, kWeightRows);
      upload(bench, in, x);
      const MatmulTarget target = {.out = out, .bias = {}};
      bench.backend().matmul({.in = in,
                              .rows = {5, 9},
                              .row_list = {},
                              .tiles = {&tile, 1},
                              .targets = {&target, 1},
                              .adapters = {},
                              .epilogue = {},
                              .int8_rows = true});
      const Matrix y = read(bench, out, 9);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const IntegerRow row = quantised(x[i]);
        for (std::uint32_t r = 0; r < kWeightRows; ++r) {
          int dot = 0;
          for (std::uint32_t c = 0; c < kWide; ++c) dot += codes[r][c] * row.codes[c];
          ASSERT_EQ(y[i][r], static_cast<float>(dot) * kScale * row.scale)
              << tier.name() << ' ' << i << ' ' << r;
        }
      }
    }
  }
}

// Float weights take the same rows, rounded once however many tiles read them.
TEST_P(CpuMatmulTest, FloatWeightsTakeRowsRoundedToInt8) {
  const MatmulTarget target = {.out = out_, .bias = {}};
  for (const auto& [first, n] : {std::pair{0U, 64U}, std::pair{64U, kWeightRows - 64U}}) {
    const WeightTile tile = weights_.tile(first, n);
    bench_.backend().matmul({.in = in_,
                             .rows = {kPromptRows, kPassRows},
                             .row_list = {},
                             .tiles = {&tile, 1},
                             .targets = {&target, 1},
                             .adapters = {},
                             .epilogue = {},
                             .int8_rows = true});
  }
  const Matrix y = read(bench_, out_, kPassRows);
  for (std::size_t i = 0; i < x_.size(); ++i) {
    const IntegerRow row = quantised(x_[i]);
    std::vector<float> rounded;
    for (const int code : row.codes) rounded.push_back(static_cast<float>(code) * row.scale);
    for (std::uint32_t r = 0; r < kWeightRows; ++r) {
      EXPECT_NEAR(y[i][r], weights_.product(r, rounded), kBound);
    }
  }
  EXPECT_EQ(bench_.backend().profile()[OperatorKind::kInputRows].calls, 2U);  // formed, rounded
}

INSTANTIATE_TEST_SUITE_P(Backends, CpuMatmulTest, testing::ValuesIn(scalar_backends()),
                         [](const auto& tier) { return tier.param.name(); });

INSTANTIATE_TEST_SUITE_P(Backends, CpuJointTest, testing::ValuesIn(scalar_backends()),
                         [](const auto& tier) { return tier.param.name(); });

}  // namespace
}  // namespace qsf
