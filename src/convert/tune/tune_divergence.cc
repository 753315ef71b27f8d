// SPDX-License-Identifier: MIT

#include "convert/tune/tune_divergence.h"

#include <algorithm>

#include "base/check.h"
#include "base/portable_math.h"
#include "convert/encode/encode_rows.h"
#include "convert/tune/tune_products.h"
#include "kernels/kernel_set.h"

namespace qsf {
namespace {

constexpr std::uint32_t kHeadRows = 1024;  // of the head that are multiplied at a time
constexpr std::size_t kRowsPerUnit = 16;   // that one thread takes

// Turns logits into probabilities of the whole vocabulary.
void to_probabilities(std::span<float> logits, double log_z) {
  const auto& softmax = kernels::host_kernel_set().softmax;
  const auto n = static_cast<std::uint32_t>(logits.size());
  kernels::LogSumExpState state;
  softmax.log_sum_exp_add(&state, logits.data(), n);
  softmax.softmax_in_place(logits.data(), n);
  const auto share = static_cast<float>(portable::exp(kernels::log_sum_exp_value(state) - log_z));
  for (float& p : logits) p *= share;
}

// Calls work(row) for all rows.
template <typename Work>
void for_each_row(std::size_t n_rows, unsigned n_threads, const Work& work) {
  const Status done = run_units(ceil_div(n_rows, kRowsPerUnit), n_threads, [&](std::size_t unit) {
    const std::size_t end = std::min(n_rows, (unit + 1) * kRowsPerUnit);
    for (std::size_t row = unit * kRowsPerUnit; row < end; ++row) work(row);
    return ok_status();
  });
  QSF_CHECK(done.ok());
}

}  // namespace

std::uint64_t TuneDivergence::memory_bytes(std::uint32_t n_vocab, std::uint32_t hidden,
                                           std::size_t n_rows) noexcept {
  const std::uint64_t chunk = std::min(n_vocab, kHeadRows);
  return chunk * 2 * (n_rows + 2 * std::uint64_t{hidden}) * sizeof(float);
}

std::uint32_t TuneDivergence::chunk_rows(std::uint32_t first) const noexcept {
  return std::min(kHeadRows, n_vocab_ - first);
}

Status TuneDivergence::load_logits(TuneWeights& weights, std::uint32_t first,
                                   std::span<const float> rows, std::vector<float>& head,
                                   std::vector<float>& logits) const {
  const std::size_t n = chunk_rows(first);
  const std::size_t n_rows = rows.size() / hidden_;
  head.resize(n * hidden_);
  QSF_RETURN_IF_ERROR(weights.load_head(first, head));
  logits.resize(n_rows * n);
  multiply(by_rows(rows.data(), hidden_), by_rows(head.data(), hidden_).transposed(),
           {n_rows, n, hidden_}, logits.data(), n, false, n_threads_);
  return ok_status();
}

Status TuneDivergence::find_log_z(TuneWeights& weights, std::span<const float> rows,
                                  std::span<double> log_z) {
  const auto& softmax = kernels::host_kernel_set().softmax;
  std::vector<kernels::LogSumExpState> states(log_z.size());
  std::vector<float> head;
  std::vector<float> logits;
  for (std::uint32_t first = 0; first < n_vocab_; first += kHeadRows) {
    QSF_RETURN_IF_ERROR(load_logits(weights, first, rows, head, logits));
    const std::uint32_t n = chunk_rows(first);
    for_each_row(log_z.size(), n_threads_, [&](std::size_t row) {
      softmax.log_sum_exp_add(&states[row], logits.data() + row * n, n);
    });
  }
  for (std::size_t row = 0; row < log_z.size(); ++row) {
    log_z[row] = kernels::log_sum_exp_value(states[row]);
  }
  return ok_status();
}

Result<double> TuneDivergence::measure(TuneWeights& original, const OriginalRows& expected,
                                       TunedModel& tuned, std::span<const float> rows,
                                       std::span<float> dx) {
  const std::size_t n_rows = expected.log_z.size();
  std::vector<double> log_z(n_rows);
  QSF_RETURN_IF_ERROR(find_log_z(tuned, rows, log_z));
  std::vector<double> sums(n_rows);
  std::vector<float> head, p, q;
  std::fill(dx.begin(), dx.end(), 0.0F);
  const float mean = 1.0F / static_cast<float>(n_rows);
  for (std::uint32_t first = 0; first < n_vocab_; first += kHeadRows) {
    QSF_RETURN_IF_ERROR(load_logits(original, first, expected.rows, head, p));
    QSF_RETURN_IF_ERROR(load_logits(tuned, first, rows, head, q));
    const std::size_t n = chunk_rows(first);
    for_each_row(n_rows, n_threads_, [&](std::size_t row) {
      const std::span<float> p_row = std::span(p).subspan(row * n, n);
      const std::span<float> q_row = std::span(q).subspan(row * n, n);
      std::vector<float> difference(n);  // of logits
      for (std::size_t i = 0; i < n; ++i) difference[i] = p_row[i] - q_row[i];
      to_probabilities(p_row, expected.log_z[row]);
      double sum = 0.0;
      for (std::size_t i = 0; i < n; ++i) {
        sum += static_cast<double>(p_row[i]) * static_cast<double>(difference[i]);
      }
      sums[row] += sum;
      if (dx.empty()) return;
      to_probabilities(q_row, log_z[row]);
      for (std::size_t i = 0; i < n; ++i) q_row[i] = (q_row[i] - p_row[i]) * mean;
    });
    if (dx.empty()) continue;
    multiply(by_rows(q.data(), n), by_rows(head.data(), hidden_), {n_rows, hidden_, n}, dx.data(),
             hidden_, true, n_threads_);
    tuned.add_head_gradients(q, head, rows);
  }
  double sum = 0.0;
  for (std::size_t row = 0; row < n_rows; ++row)
    sum += sums[row] + log_z[row] - expected.log_z[row];
  return sum / static_cast<double>(n_rows);
}

}  // namespace qsf
