// SPDX-License-Identifier: MIT

#include "convert/encode/encode_rows.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/cosine.h"
#include "base/f16.h"
#include "quant/codec.h"
#include "quant/interleave.h"

namespace qsf {

namespace {

// Whether each head has columns of its own.
bool is_of_heads(TensorKind kind) noexcept {
  return kind == TensorKind::kLatentKeys || kind == TensorKind::kLatentValues;
}

}  // namespace

Status ColumnImportance::set(const MatrixPlace& place, std::vector<float> weights) {
  for (std::size_t c = 0; c < weights.size(); ++c) {
    if (std::isfinite(weights[c]) && weights[c] >= 0.0F) continue;
    return invalid_argument(
        "importance of %s, layer %u: %g for column %zu, expected a finite number that is not "
        "negative",
        std::string(tensor_kind_name(place.kind)).c_str(), place.layer,
        static_cast<double>(weights[c]), c);
  }
  weights_[place] = std::move(weights);
  return ok_status();
}

std::span<const float> ColumnImportance::find(const MatrixPlace& place, std::size_t n_cols) const {
  const auto found = weights_.find(place);
  if (found == weights_.end()) return {};
  const std::size_t n = found->second.size();
  const bool fits = is_of_heads(place.kind) ? n % n_cols == 0 : n == n_cols;
  return fits ? std::span<const float>(found->second) : std::span<const float>();
}

namespace {

// Returns the options of a row, whose part of the matrix has an importance of its own.
// Shapes  options.importance [parts, cols] or empty
QuantOptions row_options(QuantOptions options, const SourceTensor& tensor, std::uint32_t row) {
  const std::size_t n_parts = options.importance.size() / tensor.cols;
  if (n_parts <= 1) return options;
  const std::size_t part = row * n_parts / tensor.rows;
  options.importance = options.importance.subspan(part * tensor.cols, tensor.cols);
  return options;
}

static_assert(kGptqRows % kGptqBatchRows == 0);
static_assert(kGptqBatchRows % kRowGroup == 0);

Status check_magnitudes(const SourcePlace& tensor, QuantType type, std::uint32_t first_row,
                        std::span<const float> weights) {
  if (type == QuantType::kF32 || type == QuantType::kBF16) return ok_status();
  const auto at = std::find_if(weights.begin(), weights.end(),
                               [](float w) { return !(std::fabs(w) <= kF16Max); });
  if (at == weights.end()) return ok_status();
  const auto index = static_cast<std::size_t>(at - weights.begin());
  return invalid_argument(
      "%s: weight %g at row %zu, column %zu is beyond the 65504 that %s can "
      "hold; convert to bf16 or f32",
      tensor.full_name().c_str(), static_cast<double>(*at), first_row + index / tensor.source->cols,
      index % tensor.source->cols, std::string(quant_type_name(type)).c_str());
}

}  // namespace

std::uint32_t gptq_unit_rows(std::uint32_t tile_rows, unsigned n_threads) noexcept {
  const std::uint32_t share = ceil_div(tile_rows, n_threads);
  return std::clamp<std::uint32_t>(ceil_div(share, kGptqBatchRows) * kGptqBatchRows, kGptqBatchRows,
                                   kGptqRows);
}

void ErrorSums::add(std::span<const float> w, std::span<const float> q,
                    std::span<const float> importance) noexcept {
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double a = w[i];
    const double b = q[i];
    const double squared = (a - b) * (a - b);
    ww += a * a;
    qq += b * b;
    wq += a * b;
    dd += squared;
    const double importance_of = importance.empty() ? 1.0 : static_cast<double>(importance[i]);
    weighted_ww += importance_of * a * a;
    weighted_dd += importance_of * squared;
  }
}

void ErrorSums::add(const ErrorSums& other) noexcept {
  ww += other.ww;
  qq += other.qq;
  wq += other.wq;
  dd += other.dd;
  weighted_ww += other.weighted_ww;
  weighted_dd += other.weighted_dd;
}

double ErrorSums::relative_error() const noexcept {
  return ww > 0.0 ? std::sqrt(dd / ww) : 0.0;
}

double ErrorSums::cosine() const noexcept {
  return cosine_of_sums(wq, ww, qq);
}

Status check_cancelled(const std::atomic<bool>* cancel) {
  if (cancel == nullptr || !cancel->load()) return ok_status();
  return cancelled("the conversion was interrupted; nothing was written");
}

QuantOptions quant_options(Rounding rounding, const ColumnImportance* importance,
                           const SourcePlace& tensor) {
  QuantOptions options = {.rounding = rounding};
  if (importance != nullptr) {
    const SourceTensor& t = *tensor.source;
    options.importance = importance->find({t.kind, tensor.section.layer, t.expert}, t.cols);
  }
  return options;
}

Result<EncodedRows> encode_rows(const ModelSource& source, const SourcePlace& tensor,
                                const RowEncoding& encoding, RowRange rows) {
  const std::size_t n_cols = tensor.source->cols;
  const BlockFormat format = encoding.format;
  const std::size_t row_bytes = row_major_bytes(format, n_cols);
  std::vector<float> weights(rows.n * n_cols);
  const SectionId id = tensor.section;
  QSF_RETURN_IF_ERROR(source.read_rows(id.kind, id.layer, tensor.index, rows.first, weights));
  QSF_RETURN_IF_ERROR(check_magnitudes(tensor, format.type, rows.first, weights));
  EncodedRows out;
  out.bytes.resize(rows.n * row_bytes);
  const auto row_of = [&](std::size_t r) { return std::span(weights).subspan(r * n_cols, n_cols); };
  const auto bytes_of = [&](std::size_t r) {
    return MutableByteSpan(out.bytes).subspan(r * row_bytes, row_bytes);
  };
  const auto options_of = [&](std::size_t r) {
    return row_options(encoding.options, *tensor.source,
                       rows.first + static_cast<std::uint32_t>(r));
  };
  if (encoding.factor != nullptr) {
    encode_rows_gptq(*encoding.factor, format, encoding.options.rounding, weights, out.bytes);
  } else {
    for (std::size_t r = 0; r < rows.n; ++r) {
      encode_row(format, row_of(r), options_of(r), bytes_of(r));
    }
  }
  std::vector<float> decoded(n_cols);
  for (std::size_t r = 0; r < rows.n; ++r) {
    decode_row(format, bytes_of(r), decoded);
    out.sums.add(row_of(r), decoded, options_of(r).importance);
  }
  return out;
}

void lay_out_rows(BlockFormat format, Layout layout, std::size_t n_rows, std::size_t n_cols,
                  ByteSpan rows, MutableByteSpan out) {
  if (layout == Layout::kInterleaved) {
    interleave_rows(format, n_rows, n_cols, rows, out);
  } else {
    std::copy(rows.begin(), rows.end(), out.begin());
  }
}

Result<ErrorSums> measure_errors(const ModelSource& source, const SourcePlace& tensor,
                                 const RowEncoding& encoding, const MeasureOptions& options) {
  const std::uint32_t n_rows = tensor.source->rows;
  const std::size_t n_units = ceil_div(n_rows, kUnitRows);
  const std::size_t n_taken =
      std::min<std::size_t>(n_units, ceil_div(std::min(options.max_rows, n_rows), kUnitRows));
  std::vector<ErrorSums> sums(n_taken);
  Status status = run_units(n_taken, options.n_threads, [&](std::size_t i) -> Status {
    QSF_RETURN_IF_ERROR(check_cancelled(options.cancel));
    const auto row = static_cast<std::uint32_t>(i * n_units / n_taken * kUnitRows);
    QSF_ASSIGN_OR_RETURN(
        const EncodedRows encoded,
        encode_rows(source, tensor, encoding, {row, std::min(kUnitRows, n_rows - row)}));
    sums[i] = encoded.sums;
    return ok_status();
  });
  QSF_RETURN_IF_ERROR(std::move(status));
  ErrorSums all;
  for (const ErrorSums& part : sums) all.add(part);
  return all;
}

}  // namespace qsf
