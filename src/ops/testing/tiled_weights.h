// SPDX-License-Identifier: MIT
//
// A random weight matrix that can be cut into tiles in layout 1, for tests of products.

#ifndef QSF_OPS_TESTING_TILED_WEIGHTS_H_
#define QSF_OPS_TESTING_TILED_WEIGHTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"
#include "ops/testing/aligned_bytes.h"
#include "ops/testing/bench.h"
#include "quant/codec.h"
#include "quant/interleave.h"
#include "quant/weight_tile.h"

namespace qsf::testing_support {

class TiledWeights {
 public:
  TiledWeights(BlockFormat format, std::uint32_t n_rows, std::uint32_t n_cols, Rng& rng)
      : format_(format),
        n_cols_(n_cols),
        bytes_(rows_bytes(format, Layout::kInterleaved, n_rows, n_cols)),
        values_(std::size_t{n_rows} * n_cols) {
    const std::uint64_t row_bytes = row_major_bytes(format, n_cols);
    std::vector<std::byte> rows(n_rows * row_bytes);
    for (std::uint32_t row = 0; row < n_rows; ++row) {
      const MutableByteSpan bytes = MutableByteSpan(rows).subspan(row * row_bytes, row_bytes);
      encode_row(format, random_values(n_cols, rng), kNearestRounding, bytes);
      decode_row(format, bytes, std::span(values_).subspan(std::size_t{row} * n_cols, n_cols));
    }
    interleave_rows(format, n_rows, n_cols, rows, bytes_.span());
  }

  WeightTile tile(std::uint32_t first_row, std::uint32_t n_rows, std::uint32_t target = 0) {
    const std::uint64_t group = group_bytes(format_, n_cols_);
    return {.bytes = bytes_.span().data() + first_row / kRowGroup * group,
            .format = format_,
            .group_bytes = group,
            .first_row = first_row,
            .n_rows = n_rows,
            .n_cols = n_cols_,
            .target = target};
  }
  // The values of a row as they are stored.
  std::span<const float> row(std::uint32_t row) const {
    return std::span(values_).subspan(std::size_t{row} * n_cols_, n_cols_);
  }
  double product(std::uint32_t row_index, std::span<const float> x) const {
    double sum = 0;
    for (std::uint32_t c = 0; c < n_cols_; ++c) {
      sum += static_cast<double>(row(row_index)[c]) * x[c];
    }
    return sum;
  }

 private:
  BlockFormat format_;
  std::uint32_t n_cols_;
  AlignedBytes bytes_;
  std::vector<float> values_;
};

}  // namespace qsf::testing_support

#endif  // QSF_OPS_TESTING_TILED_WEIGHTS_H_
