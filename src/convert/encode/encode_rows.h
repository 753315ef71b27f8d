// SPDX-License-Identifier: MIT
//
// Rows of a source's tensors, encoded, and how far they are from what they were.

#ifndef QSF_CONVERT_ENCODE_ENCODE_ROWS_H_
#define QSF_CONVERT_ENCODE_ENCODE_ROWS_H_

#include <algorithm>
#include <atomic>
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

// What an error in each column of each matrix costs: the mean square of what the column is
// multiplied with, gathered from a text. A conversion hands it to the encoder.

class ColumnImportance {
 public:
  // Sets what the columns of one matrix cost; `layer` is 0 outside layers.
  // Shapes  weights [n_cols]
  // Fails   kInvalidArgument on a weight that is negative or not finite
  Status set(TensorKind kind, std::uint32_t layer, std::vector<float> weights);

  // Returns what was set for that matrix, empty where nothing was or where it was set for another
  // number of columns.
  // Threads  any number at once, while nobody sets
  std::span<const float> find(TensorKind kind, std::uint32_t layer, std::size_t n_cols) const;

  bool empty() const noexcept { return weights_.empty(); }

 private:
  std::map<std::pair<TensorKind, std::uint32_t>, std::vector<float>> weights_;
};

// ErrorCompensation: where a conversion gets the factors of error compensation
// (convert/gptq/gptq.h) from.

class ErrorCompensation {
 public:
  virtual ~ErrorCompensation() = default;

  // Returns what the errors of a layer's matrix are fed back by, valid until the next call; null
  // where they stay where they arise. Called for one matrix after the other, in the order of the
  // file, more than once for each; a conversion that begins anew goes back to the first.
  // Threads  one at a time
  virtual Result<const GptqFactor*> factor_of(TensorKind kind, std::uint32_t layer,
                                              std::uint32_t n_cols) = 0;
};

// Work that is cut into numbered units, on threads: the same result whichever thread did what.

// Runs work(unit), which returns a Status. An exception that left a thread would end the process
// and leave the temporary file behind.
template <typename Work>
Status run_unit(const Work& work, std::size_t unit) {
  try {
    return work(unit);
  } catch (const std::bad_alloc&) {
    return out_of_budget("not enough memory to convert; use fewer threads");
  }
}

// Runs work(0) .. work(n - 1) on up to n_threads threads. Returns the failure of the lowest number,
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
