// SPDX-License-Identifier: MIT
//
// Rows of a source's tensors, encoded, and how far they are from what they were.

#ifndef QSF_CONVERT_ENCODE_ENCODE_ROWS_H_
#define QSF_CONVERT_ENCODE_ENCODE_ROWS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "convert/encode/column_importance.h"
#include "convert/gptq/gptq.h"
#include "import/model_source.h"
#include "import/source_tensors.h"
#include "quant/quant_options.h"

namespace qsf {

// Rows that one thread takes at a time: those at which a tile may start.
inline constexpr std::uint32_t kUnitRows = kTileRowAlign;
// Error compensation works in strips of so many rows (decision 034).
inline constexpr std::uint32_t kGptqBatchRows = 48;

// Returns the rows that one thread takes at a time where errors are fed back: whole strips, as many
// as give every thread some of a tile, at most kGptqRows, beyond which nothing is gained. Bytes do
// not depend on it.
std::uint32_t gptq_unit_rows(std::uint32_t tile_rows, unsigned n_threads) noexcept;

// Sums over weights w and decoded weights q; added up in the order of rows, so that reports do not
// depend on threads.
struct ErrorSums {
  double ww = 0.0;
  double qq = 0.0;
  double wq = 0.0;
  double dd = 0.0;
  // Squared weights and squared errors by the importance of their columns, 1 where none is known.
  double weighted_ww = 0.0;
  double weighted_dd = 0.0;

  // Shapes  w, q [n_cols]; importance [n_cols] or empty
  void add(std::span<const float> w, std::span<const float> q,
           std::span<const float> importance) noexcept;
  void add(const ErrorSums& other) noexcept;
  double relative_error() const noexcept;  // root of (squared error / squared weights)
  double cosine() const noexcept;
  // The share of the squared outputs of a product that is error, as far as columns go by
  // themselves; 0 for no weights.
  double weighted_error() const noexcept {
    return weighted_ww > 0.0 ? weighted_dd / weighted_ww : 0.0;
  }
};

struct RowRange {
  std::uint32_t first = 0;
  std::uint32_t n = 0;
};

// How rows become codes.
struct RowEncoding {
  BlockFormat format{QuantType::kF32, 4};
  QuantOptions options;
  const GptqFactor* factor = nullptr;  // what errors are fed back by; null: they are not
};

struct EncodedRows {
  std::vector<std::byte> bytes;  // in layout 0
  ErrorSums sums;
};

// Returns how the rows of a tensor are encoded. `importance` may be null.
QuantOptions quant_options(Rounding rounding, const ColumnImportance* importance,
                           const SourcePlace& tensor);

// Reads, encodes and measures rows of a tensor.
// Fails    kInvalidArgument on a weight beyond what the type can hold, and as read_rows()
// Threads  any
Result<EncodedRows> encode_rows(const ModelSource& source, const SourcePlace& tensor,
                                const RowEncoding& encoding, RowRange rows);

// Brings rows of layout 0 into the layout of a file.
// Shapes  rows [n_rows * row_major_bytes(format, n_cols)], out [rows_bytes(format, layout, ...)]
void lay_out_rows(BlockFormat format, Layout layout, std::size_t n_rows, std::size_t n_cols,
                  ByteSpan rows, MutableByteSpan out);

struct MeasureOptions {
  unsigned n_threads = 1;
  std::uint32_t max_rows = 0xFFFFFFFFU;  // units of a tensor are left out evenly to keep to it
  const std::atomic<bool>* cancel = nullptr;
};
// Encodes a tensor and keeps nothing but the errors.
// Fails  as encode_rows(), kCancelled
Result<ErrorSums> measure_errors(const ModelSource& source, const SourcePlace& tensor,
                                 const RowEncoding& encoding, const MeasureOptions& options);

// Fails with kCancelled where it was asked for.
Status check_cancelled(const std::atomic<bool>* cancel);

}  // namespace qsf

#endif  // QSF_CONVERT_ENCODE_ENCODE_ROWS_H_
