// SPDX-License-Identifier: MIT
//
// Encodes rows of a source's tensors and measures the errors: column importance, the interface of
// error compensation, work on threads, and the encoding itself.

#ifndef QSF_CONVERT_ENCODE_ENCODE_ROWS_H_
#define QSF_CONVERT_ENCODE_ENCODE_ROWS_H_

#include <algorithm>
#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/run_on_threads.h"
#include "base/status.h"
#include "convert/gptq/gptq.h"
#include "format/qsf_layout.h"
#include "import/model_source.h"
#include "quant/quant_options.h"

namespace qsf {

// A matrix of a model.
struct MatrixPlace {
  TensorKind kind = TensorKind::kAttnQ;
  std::uint32_t layer = 0;   // 0 outside layers
  std::uint16_t expert = 0;  // of the kinds that every expert has

  friend auto operator<=>(const MatrixPlace&, const MatrixPlace&) = default;
};

// The importance of every column of every matrix: the mean square E[x^2] of its input over a
// calibration set.
class ColumnImportance {
 public:
  // Sets the importance of the columns of one matrix.
  // Shapes  weights [n_cols], or [n_heads, n_cols] of a kind of which each head has columns of its
  //         own
  // Fails   kInvalidArgument on a value that is negative or not finite
  Status set(const MatrixPlace& place, std::vector<float> weights);

  // Returns the importance of a matrix; empty when it was not set or has another number of columns.
  // Shapes   as set()
  // Threads  any number at once, but not during set()
  std::span<const float> find(const MatrixPlace& place, std::size_t n_cols) const;

  bool empty() const noexcept { return weights_.empty(); }

 private:
  std::map<MatrixPlace, std::vector<float>> weights_;
};

// The source of the factors of error compensation (convert/gptq/gptq.h) for a conversion.
class ErrorCompensation {
 public:
  virtual ~ErrorCompensation() = default;

  // Returns the factor for a layer's matrix, valid until the next call; null for a matrix without
  // error compensation. Called in the order of the file, possibly more than once for a matrix; a
  // conversion that restarts begins with the first matrix again.
  // Threads  one at a time
  virtual Result<const GptqFactor*> factor_of(TensorKind kind, std::uint32_t layer,
                                              std::uint32_t n_cols) = 0;
};

// Runs work(unit), which returns a Status. An exception on a thread would end the process and leave
// the temporary file behind, so lack of memory becomes a Status.
template <typename Work>
Status run_unit(const Work& work, std::size_t unit) {
  try {
    return work(unit);
  } catch (const std::bad_alloc&) {
    return out_of_budget("not enough memory to convert; use fewer threads");
  }
}

// Runs work(0) .. work(n - 1) on up to n_threads threads. Returns the failure of the lowest unit,
// whichever thread finished first.
template <typename Work>
Status run_units(std::size_t n_units, unsigned n_threads, const Work& work) {
  std::vector<Status> statuses(n_units);
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  const auto loop = [&] {
    // A unit that was taken is always done and units are taken in order, so the lowest failing one
    // is the same at any number of threads.
    while (!failed) {
      const std::size_t unit = next++;
      if (unit >= n_units) return;
      statuses[unit] = run_unit(work, unit);
      if (!statuses[unit].ok()) failed = true;
    }
  };
  run_on_threads(std::clamp<std::size_t>(n_units, 1, n_threads), loop);
  for (Status& status : statuses) QSF_RETURN_IF_ERROR(std::move(status));
  return ok_status();
}

// Rows that one thread takes at a time: the alignment of tiles.
inline constexpr std::uint32_t kUnitRows = kTileRowAlign;
// Rows that error compensation processes together (decision 034).
inline constexpr std::uint32_t kGptqBatchRows = 48;

// Returns the rows that one thread takes at a time with error compensation: whole batches, so that
// every thread has some of a tile, at most kGptqRows. The bytes do not depend on it.
std::uint32_t gptq_unit_rows(std::uint32_t tile_rows, unsigned n_threads) noexcept;

// Sums over weights w and decoded weights q, added in the order of rows: reports do not depend on
// the number of threads.
struct ErrorSums {
  double ww = 0.0;
  double qq = 0.0;
  double wq = 0.0;
  double dd = 0.0;
  // Squared weights and squared errors times the importance of their columns (1 when unknown).
  double weighted_ww = 0.0;
  double weighted_dd = 0.0;

  // Shapes  w, q [n_cols]; importance [n_cols] or empty
  void add(std::span<const float> w, std::span<const float> q,
           std::span<const float> importance) noexcept;
  void add(const ErrorSums& other) noexcept;
  double relative_error() const noexcept;  // root of (squared error / squared weights)
  double cosine() const noexcept;
  // Squared error over squared outputs of the product, with columns taken as uncorrelated; 0 for no
  // weights.
  double weighted_error() const noexcept {
    return weighted_ww > 0.0 ? weighted_dd / weighted_ww : 0.0;
  }
};

struct RowRange {
  std::uint32_t first = 0;
  std::uint32_t n = 0;
};

// How rows are encoded, with ColumnImportance's importance of the whole matrix.
struct RowEncoding {
  BlockFormat format{QuantType::kF32, 4};
  QuantOptions options;
  const GptqFactor* factor = nullptr;  // of error compensation; null: none
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

// Converts rows of layout 0 to the layout of a file.
// Shapes  rows [n_rows * row_major_bytes(format, n_cols)], out [rows_bytes(format, layout, ...)]
void lay_out_rows(BlockFormat format, Layout layout, std::size_t n_rows, std::size_t n_cols,
                  ByteSpan rows, MutableByteSpan out);

struct MeasureOptions {
  unsigned n_threads = 1;
  std::uint32_t max_rows = 0xFFFFFFFFU;  // measures evenly spaced units up to this many rows
  const std::atomic<bool>* cancel = nullptr;
};
// Encodes a tensor and returns only the errors.
// Fails  as encode_rows(), kCancelled
Result<ErrorSums> measure_errors(const ModelSource& source, const SourcePlace& tensor,
                                 const RowEncoding& encoding, const MeasureOptions& options);

// Fails with kCancelled when `cancel` is set.
Status check_cancelled(const std::atomic<bool>* cancel);

}  // namespace qsf

#endif  // QSF_CONVERT_ENCODE_ENCODE_ROWS_H_
