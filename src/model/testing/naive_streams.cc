// SPDX-License-Identifier: MIT
//
// Residual streams of NaiveModel beside the first, and gates that are cut.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <vector>

#include "model/testing/naive_activations.h"
#include "model/testing/naive_model.h"

namespace qsf::testing_support {
namespace {

double square_mean(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return sum / static_cast<double>(x.size());
}

// x with the length of another row.
std::vector<double> as_long_as(const std::vector<double>& like, std::vector<double> x) {
  const double factor = std::sqrt(square_mean(like)) / std::sqrt(std::max(square_mean(x), 1e-5));
  for (double& value : x) value *= factor;
  return x;
}

}  // namespace

NaiveModel::Streams NaiveModel::expanded(const std::vector<Row>& rows) const {
  Streams streams;
  for (const Row& row : rows) {
    if (!spec_.has_streams()) break;
    streams.push_back({row});
    for (std::uint32_t i = 0; i + 1 < spec_.n_streams; ++i) {
      streams.back().push_back(as_long_as(row, product(1, TensorKind::kStreamIn, kNone, row, i)));
    }
  }
  return streams;
}

std::vector<double> NaiveModel::routed_streams(std::uint32_t section, const Row& x) const {
  const Row normed = norm(x, weights(section, TensorKind::kRouterNorm), {});
  Row m = product(section, TensorKind::kStreamRouter, kNone, normed);
  for (double& value : m) value = std::tanh(value / spec_.hidden);
  return m;
}

void NaiveModel::predict(std::uint32_t section, Streams& streams, std::vector<Row>& rows) const {
  const std::size_t n = spec_.n_streams;
  const Weights& factors = weights(section, TensorKind::kStreamPredict);
  for (std::size_t position = 0; position < streams.size(); ++position) {
    const std::vector<Row> before = streams[position];
    const std::vector<double> m = routed_streams(section, before[0]);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        double factor = 0;
        for (std::size_t k = 0; k < n; ++k) factor += factors[(i * n + j) * n + k] * m[k];
        for (std::size_t c = 0; c < spec_.hidden; ++c) {
          streams[position][i][c] += factor * before[j][c];
        }
      }
    }
    rows[position] = streams[position][0];
  }
}

// With y behind the layer's FFN; then adds the layer's input to all but the first.
void NaiveModel::correct(std::uint32_t section, std::vector<Row>& streams, const Row& y,
                         const Row& embedded, std::uint32_t token) const {
  const std::size_t n = spec_.n_streams;
  const Weights& factors = weights(section, TensorKind::kStreamCorrect);
  const std::vector<double> m = routed_streams(section, y);
  const Row predicted = streams[0];
  for (std::size_t i = 0; i < n; ++i) {
    double share = 1;
    for (std::size_t k = 0; k < n; ++k) share += factors[i * n + k] * m[k];
    for (std::size_t c = 0; c < y.size(); ++c) streams[i][c] += share * (y[c] - predicted[c]);
  }
  Row first = streams[0];
  for (std::size_t c = 0; c < y.size(); ++c) {
    first[c] *= weights(section, TensorKind::kStreamScale)[c];
  }
  const Row input = layer_input(section, first, embedded, token);
  for (std::size_t i = 1; i < n; ++i) {
    for (std::size_t c = 0; c < y.size(); ++c) streams[i][c] += input[c];
  }
}

NaiveModel::Row NaiveModel::laurel(std::uint32_t section, const Row& x, const Row& normed) const {
  const Row left = product(section, TensorKind::kLaurelLeft, kNone, normed);
  const Row right = norm(product(section, TensorKind::kLaurelRight, kNone, left),
                         weights(section, TensorKind::kLaurelNorm), {});
  Row sum(x.size());
  for (std::size_t c = 0; c < x.size(); ++c) {
    sum[c] = (x[c] + normed[c] + right[c]) / std::numbers::sqrt2;
  }
  return sum;
}

void NaiveModel::merge(const Streams& streams, std::vector<Row>& rows) const {
  for (std::size_t position = 0; position < streams.size(); ++position) {
    const std::vector<Row>& of_row = streams[position];
    Row sum = of_row[0];
    for (std::uint32_t i = 1; i < spec_.n_streams; ++i) {
      const Row out = as_long_as(
          of_row[0], product(spec_.n_layers, TensorKind::kStreamOut, kNone, of_row[i], i - 1));
      for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += out[c];
    }
    for (double& value : sum) value /= spec_.n_streams;
    rows[position] = sum;
  }
}

void NaiveModel::cut(Row& gates) const {
  const auto n = static_cast<double>(gates.size());
  double mean = 0;
  for (const double gate : gates) mean += gate / n;
  double variance = 0;
  for (const double gate : gates) variance += (gate - mean) * (gate - mean) / n;
  const double limit = mean + spec_.ffn_cutoff * std::sqrt(variance);
  for (double& gate : gates) gate = std::max(gate - limit, 0.0);
}

}  // namespace qsf::testing_support
