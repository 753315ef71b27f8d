// SPDX-License-Identifier: MIT

#include "convert/calibrate/column_sums.h"

#include "base/check.h"
#include "base/cosine.h"

namespace qsf {

ColumnSums::ColumnSums(const ModelSpec& spec)
    : sums_(1 + std::size_t{spec.n_layers} * kInputsPerLayer), cosines_(spec.n_layers) {
  sums_[0].squares.resize(spec.hidden);
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    for (std::size_t i = 0; i < kInputsPerLayer; ++i) {
      const auto input = static_cast<ProductInput>(i);
      sums_[index(input, layer)].squares.resize(input_cols(spec, input));
    }
  }
}

std::uint64_t ColumnSums::memory_bytes(const ModelSpec& spec) noexcept {
  std::uint64_t n_cols = 0;
  for (std::size_t i = 0; i < kInputsPerLayer; ++i) {
    n_cols += input_cols(spec, static_cast<ProductInput>(i));
  }
  return (n_cols * spec.n_layers + spec.hidden) * sizeof(double);
}

void ColumnSums::take_input(ProductInput input, std::uint32_t layer, std::span<const float> row) {
  Sums& sums = sums_[index(input, layer)];
  QSF_CHECK(row.size() == sums.squares.size());
  for (std::size_t c = 0; c < row.size(); ++c) {
    const double value = row[c];
    sums.squares[c] += value * value;
  }
  ++sums.n_rows;
}

void ColumnSums::take_layer(std::uint32_t layer, std::span<const float> in,
                            std::span<const float> out) {
  double ab = 0.0;
  double aa = 0.0;
  double bb = 0.0;
  for (std::size_t c = 0; c < in.size(); ++c) {
    const double a = in[c];
    const double b = out[c];
    ab += a * b;
    aa += a * a;
    bb += b * b;
  }
  cosines_[layer].sum += cosine_of_sums(ab, aa, bb);
  ++cosines_[layer].n_rows;
}

std::vector<MutableByteSpan> ColumnSums::parts() {
  std::vector<MutableByteSpan> parts = {std::as_writable_bytes(std::span(cosines_))};
  for (Sums& sums : sums_) {
    parts.push_back(std::as_writable_bytes(std::span(sums.squares)));
    parts.push_back(std::as_writable_bytes(std::span(&sums.n_rows, 1)));
  }
  return parts;
}

std::vector<float> ColumnSums::mean_squares(ProductInput input, std::uint32_t layer) const {
  const Sums& sums = sums_[index(input, layer)];
  std::vector<float> means(sums.squares.size());
  if (sums.n_rows == 0) return means;
  for (std::size_t c = 0; c < means.size(); ++c) {
    means[c] = static_cast<float>(sums.squares[c] / static_cast<double>(sums.n_rows));
  }
  return means;
}

double ColumnSums::mean_cosine(std::uint32_t layer) const noexcept {
  const Cosines& cosines = cosines_[layer];
  return cosines.n_rows == 0 ? 1.0 : cosines.sum / static_cast<double>(cosines.n_rows);
}

}  // namespace qsf
