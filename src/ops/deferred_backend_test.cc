// SPDX-License-Identifier: MIT
//
// What a backend with memory and a queue of its own may count on, and its callers: held to the
// backend that the tests of decoders run on.

#include "ops/testing/deferred_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"
#include "ops/testing/bench.h"
#include "quant/codec.h"
#include "quant/interleave.h"

namespace qsf {
namespace {

using testing_support::AlignedBytes;
using testing_support::BackendTier;
using testing_support::Bench;
using testing_support::DeferredBackend;
using testing_support::random_values;

constexpr BlockFormat kMatrixFormat = {QuantType::kQ4, 64};
constexpr std::uint32_t kMatrixRows = 48;
constexpr std::uint32_t kMatrixCols = 64;
constexpr std::uint32_t kPassRows = 3;

using Matrix = std::vector<std::vector<float>>;

class DeferredBackendTest : public testing::Test {
 protected:
  DeferredBackendTest() {
    const std::uint64_t row_bytes = row_major_bytes(kMatrixFormat, kMatrixCols);
    std::vector<std::byte> rows(kMatrixRows * row_bytes);
    for (std::uint32_t row = 0; row < kMatrixRows; ++row) {
      encode_row(kMatrixFormat, random_values(kMatrixCols, rng_), kNearestRounding,
                 MutableByteSpan(rows).subspan(row * row_bytes, row_bytes));
    }
    interleave_rows(kMatrixFormat, kMatrixRows, kMatrixCols, rows, weights_.span());
    for (std::uint32_t i = 0; i < kPassRows; ++i) x_.push_back(random_values(kMatrixCols, rng_));
  }

  static PassLimits limits() {
    return {.max_rows = kPassRows,
            .max_decode_rows = kPassRows,
            .max_context = 64,
            .n_heads = 1,
            .n_kv_heads = 1,
            .head_dim = 8,
            .max_cols = kMatrixCols};
  }

  DeferredBackend& deferred() { return static_cast<DeferredBackend&>(bench_.backend()); }

  // Some rows of the matrix, as a part of its tile.
  WeightTile tile(TileId id, std::uint32_t first_row = 0, std::uint32_t n_rows = kMatrixRows) {
    const std::size_t group = group_bytes(kMatrixFormat, kMatrixCols);
    const std::size_t offset = first_row / kRowGroup * group;
    return {.bytes = weights_.span().data() + offset,
            .format = kMatrixFormat,
            .group_bytes = group,
            .first_row = first_row,
            .n_rows = n_rows,
            .n_cols = kMatrixCols,
            .id = id,
            .offset = static_cast<std::uint32_t>(offset),
            .whole_bytes = static_cast<std::uint32_t>(weights_.span().size())};
  }
  void overwrite_weights() { std::ranges::fill(weights_.span(), std::byte{0x5A}); }

  Ticket submit(Bench& bench, Buffer in, Buffer out, const std::vector<WeightTile>& tiles) {
    const MatmulTarget target = {.out = out, .bias = {}};
    return bench.backend().matmul({.in = in,
                                   .rows = {.n_prompt = kPassRows, .n_rows = kPassRows},
                                   .row_list = {},
                                   .tiles = tiles,
                                   .targets = {&target, 1},
                                   .adapters = {},
                                   .epilogue = {}});
  }
  Ticket submit(const std::vector<WeightTile>& tiles) { return submit(bench_, in_, out_, tiles); }
  void upload(Bench& bench, Buffer to) {
    for (std::uint32_t i = 0; i < kPassRows; ++i) bench.backend().upload_row(to, i, x_[i]);
  }
  static Matrix read(Bench& bench, Buffer from) {
    Matrix rows;
    for (std::uint32_t i = 0; i < kPassRows; ++i) {
      const auto row = bench.read_row(from, i);
      rows.emplace_back(row.begin(), row.end());
    }
    return rows;
  }
  // The product by the CPU's backend.
  Matrix expected() {
    Bench bench(1, limits(), KvType::kF32);
    const Buffer in = bench.buffer(kPassRows, kMatrixCols);
    const Buffer out = bench.buffer(kPassRows, kMatrixRows);
    upload(bench, in);
    submit(bench, in, out, {tile(kNoTile)});
    return read(bench, out);
  }

  Rng rng_{31};
  AlignedBytes weights_{rows_bytes(kMatrixFormat, Layout::kInterleaved, kMatrixRows, kMatrixCols)};
  Matrix x_;
  Bench bench_{
      1, limits(), KvType::kF32, {kernels::Isa::kScalar, BackendTier::make_kind<DeferredBackend>}};
  Buffer in_ = bench_.buffer(kPassRows, kMatrixCols);
  Buffer out_ = bench_.buffer(kPassRows, kMatrixRows);
};

TEST_F(DeferredBackendTest, ResultsAreThereAfterAWaitAlone) {
  const Matrix want = expected();
  upload(bench_, in_);
  const Ticket ticket = submit({tile(1)});
  EXPECT_LT(bench_.backend().completed(), ticket);
  EXPECT_DEATH(static_cast<void>(bench_.backend().read_row(out_, 0)), "check failed");
  ASSERT_TRUE(bench_.backend().wait().ok());
  EXPECT_GE(bench_.backend().completed(), ticket);
  EXPECT_EQ(read(bench_, out_), want);
}

TEST_F(DeferredBackendTest, ArgumentsMayChangeOnceTheyAreSubmitted) {
  const Matrix want = expected();
  upload(bench_, in_);
  for (std::vector<float>& row : x_) std::ranges::fill(row, 7.0F);
  std::vector<WeightTile> tiles = {tile(1)};
  MatmulTarget target = {.out = out_, .bias = {}};
  std::vector<std::uint32_t> list = {0, 2};
  bench_.backend().matmul({.in = in_,
                           .rows = {.n_prompt = kPassRows, .n_rows = kPassRows},
                           .row_list = list,
                           .tiles = tiles,
                           .targets = {&target, 1},
                           .adapters = {},
                           .epilogue = {}});
  tiles[0] = {};
  target = {};
  list = {1, 1};
  const Matrix got = read(bench_, out_);
  EXPECT_EQ(got[0], want[0]);
  EXPECT_EQ(got[1], std::vector<float>(kMatrixRows));
  EXPECT_EQ(got[2], want[2]);
}

TEST_F(DeferredBackendTest, TilesAreReadUntilTheirWorkIsCompleteAndKnownByIdThen) {
  const Matrix want = expected();
  upload(bench_, in_);
  const Ticket first = submit({tile(1)});
  bench_.backend().wait_for(first);
  EXPECT_EQ(bench_.backend().completed(), first);
  overwrite_weights();
  submit({tile(1)});
  EXPECT_EQ(read(bench_, out_), want);
  EXPECT_EQ(deferred().n_tiles_copied(), 1U);
  submit({tile(2)});
  EXPECT_NE(read(bench_, out_), want) << "another tile has the bytes that lie there now";
  EXPECT_EQ(deferred().n_tiles_copied(), 2U);
  submit({tile(kNoTile)});
  submit({tile(kNoTile)});
  EXPECT_TRUE(bench_.backend().wait().ok());
  EXPECT_EQ(deferred().n_tiles_copied(), 4U) << "nothing is kept of a tile without an id";
}

TEST_F(DeferredBackendTest, PartsOfATileAreOneTile) {
  const Matrix want = expected();
  upload(bench_, in_);
  submit({tile(1, 16, 32)});
  submit({tile(1, 0, 16)});
  EXPECT_EQ(read(bench_, out_), want);
  EXPECT_EQ(deferred().n_tiles_copied(), 1U);
}

TEST_F(DeferredBackendTest, WorkIsCompletedInOrderUpToATicket) {
  upload(bench_, in_);
  const Ticket first = submit({tile(1)});
  const Ticket second = submit({tile(2)});
  EXPECT_LT(first, second);
  bench_.backend().wait_for(first);
  EXPECT_EQ(bench_.backend().completed(), first);
  bench_.backend().wait_for(0);
  EXPECT_EQ(bench_.backend().completed(), first);
  EXPECT_TRUE(bench_.backend().wait().ok());
  EXPECT_EQ(bench_.backend().completed(), second);
}

}  // namespace
}  // namespace qsf
