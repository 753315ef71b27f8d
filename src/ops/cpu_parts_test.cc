// SPDX-License-Identifier: MIT
//
// Holds products of parts of a row to the same products of rows that have one part each, bit for
// bit, on every instruction set, for prompt and generated rows and any cut into tiles.

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/rng.h"
#include "ops/testing/bench.h"
#include "quant/codec.h"
#include "quant/interleave.h"

namespace qsf {
namespace {

using testing_support::AlignedBytes;
using testing_support::backend_tiers;
using testing_support::BackendTier;
using testing_support::Bench;
using testing_support::random_values;

constexpr std::uint32_t kParts = 5;
constexpr std::uint32_t kPartRows = 48;  // tiles of 64 rows begin inside parts
constexpr std::uint32_t kOutStride = 56;
constexpr std::uint32_t kOutFirst = 6;
constexpr std::uint32_t kOutCols = kParts * kOutStride;
constexpr RowCounts kCounts = {.n_prompt = 5, .n_rows = 9};

PassLimits parts_limits(std::uint32_t n_cols) {
  return {.max_rows = kCounts.n_rows,
          .max_decode_rows = kCounts.n_rows,
          .max_context = 64,
          .n_heads = 1,
          .n_kv_heads = 1,
          .head_dim = 8,
          .max_cols = part_columns(kParts, n_cols)};
}

class CpuPartsTest : public testing::TestWithParam<BackendTier> {};

// A random matrix of all parts' rows.
class PartsMatrix {
 public:
  PartsMatrix(BlockFormat format, std::uint32_t n_cols, Rng& rng)
      : format_(format),
        n_cols_(n_cols),
        bytes_(rows_bytes(format, Layout::kInterleaved, kParts * kPartRows, n_cols)) {
    const std::uint64_t row_bytes = row_major_bytes(format, n_cols);
    std::vector<std::byte> rows(kParts * kPartRows * row_bytes);
    for (std::uint32_t row = 0; row < kParts * kPartRows; ++row) {
      encode_row(format, random_values(n_cols, rng), kNearestRounding,
                 MutableByteSpan(rows).subspan(row * row_bytes, row_bytes));
    }
    interleave_rows(format, kParts * kPartRows, n_cols, rows, bytes_.span());
  }
  WeightTile tile(std::uint32_t first_row, std::uint32_t n_rows) {
    const std::uint64_t group = group_bytes(format_, n_cols_);
    return {.bytes = bytes_.span().data() + first_row / kRowGroup * group,
            .format = format_,
            .group_bytes = group,
            .first_row = first_row,
            .n_rows = n_rows,
            .n_cols = n_cols_};
  }

 private:
  BlockFormat format_;
  std::uint32_t n_cols_;
  AlignedBytes bytes_;
};

TEST_P(CpuPartsTest, APartHasTheBitsOfARowOfItsOwn) {
  for (const std::uint32_t n_cols : {20U, 64U, 150U}) {
    for (const BlockFormat format :
         {block_format(QuantType::kF32, 0), block_format(QuantType::kF16, 0),
          block_format(QuantType::kQ4, 64), block_format(QuantType::kQ8, 32)}) {
      Rng rng(n_cols);
      PartsMatrix weights(format, n_cols, rng);
      Bench bench(3, parts_limits(n_cols), KvType::kF32, GetParam());
      Backend& backend = bench.backend();
      const Buffer in = bench.buffer(kCounts.n_rows, kParts * n_cols);
      const Buffer apart = bench.buffer(kCounts.n_rows, kParts * part_stride(n_cols));
      const Buffer out = bench.buffer(kCounts.n_rows, kOutCols);
      const Buffer one = bench.buffer(kCounts.n_rows, n_cols);
      const Buffer want = bench.buffer(kCounts.n_rows, kPartRows);
      bench.begin(kCounts.n_rows, RowRole::kPrompt);
      std::vector<std::vector<float>> rows;
      for (std::uint32_t i = 0; i < kCounts.n_rows; ++i) {
        rows.push_back(random_values(kParts * n_cols, rng));
        backend.upload_row(in, i, rows[i]);
        backend.upload_row(out, i, std::vector<float>(kOutCols, 7.0F));
      }
      backend.copy_parts({in, 0, n_cols}, {apart, 0, part_stride(n_cols)}, kParts, n_cols);
      const MatmulTarget target = {.out = out, .bias = {}};
      // In two calls, as tiles arrive.
      for (const auto& [first, n] : {std::pair(0U, 128U), {128U, kParts * kPartRows - 128U}}) {
        const std::vector<WeightTile> tiles =
            n == 128U ? std::vector{weights.tile(0, 64), weights.tile(64, 64)}
                      : std::vector{weights.tile(first, n)};
        backend.matmul({.in = apart,
                        .rows = kCounts,
                        .row_list = {},
                        .tiles = tiles,
                        .targets = {&target, 1},
                        .adapters = {},
                        .epilogue = {},
                        .parts = {.n_parts = kParts,
                                  .n_rows = kPartRows,
                                  .in_stride = part_stride(n_cols),
                                  .out_first = kOutFirst,
                                  .out_stride = kOutStride}});
      }
      std::vector<std::vector<float>> got;
      for (std::uint32_t i = 0; i < kCounts.n_rows; ++i) {
        const auto row = bench.read_row(out, i);
        got.emplace_back(row.begin(), row.end());
      }
      for (std::uint32_t part = 0; part < kParts; ++part) {
        for (std::uint32_t i = 0; i < kCounts.n_rows; ++i) {
          backend.upload_row(one, i, std::span(rows[i]).subspan(part * n_cols, n_cols));
        }
        const MatmulTarget own = {.out = want, .first_weight_row = part * kPartRows, .bias = {}};
        const WeightTile tile = weights.tile(part * kPartRows, kPartRows);
        backend.matmul({.in = one,
                        .rows = kCounts,
                        .row_list = {},
                        .tiles = {&tile, 1},
                        .targets = {&own, 1},
                        .adapters = {},
                        .epilogue = {}});
        for (std::uint32_t i = 0; i < kCounts.n_rows; ++i) {
          const auto row = bench.read_row(want, i);
          const float* const at = got[i].data() + kOutFirst + part * kOutStride;
          ASSERT_EQ(std::vector<float>(at, at + kPartRows),
                    std::vector<float>(row.begin(), row.begin() + kPartRows))
              << n_cols << ' ' << quant_type_name(format.type) << ' ' << part << ' ' << i;
        }
      }
      for (const std::vector<float>& row : got) {  // what lies between the parts stays
        for (std::uint32_t c = 0; c < kOutCols; ++c) {
          const std::uint32_t in_part = (c + kOutStride - kOutFirst) % kOutStride;
          if (c < kOutFirst || in_part >= kPartRows) {
            ASSERT_EQ(row[c], 7.0F) << c;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CpuPartsTest, testing::ValuesIn(backend_tiers()));

}  // namespace
}  // namespace qsf
