// SPDX-License-Identifier: MIT
//
// Operators of layers with a state, on the CPU.
//
// A row's convolution adds its taps in one order, the oldest first, so its bits do not depend on
// how a text is cut into passes.

#include <algorithm>

#include "base/check.h"
#include "ops/cpu_backend.h"

namespace qsf {

void CpuBackend::multiply(BufferColumns to, BufferColumns by, std::uint32_t n_cols) {
  const Observation observed(*this, OperatorKind::kState, by.buffer, to.buffer,
                             kernels_.elementwise.name);
  const OperatorTimer timer(profile_[OperatorKind::kState]);
  const Matrix& out = matrix(to.buffer);
  const Matrix& factors = matrix(by.buffer);
  QSF_DCHECK(to.first + n_cols <= out.n_cols && by.first + n_cols <= factors.n_cols);
  activation_rows_.invalidate(to.buffer.id);
  for_rows(static_cast<std::uint32_t>(rows_.size()), [&](std::uint32_t row) {
    float* const x = out.row(row) + to.first;
    kernels_.elementwise.mul(x, factors.row(row) + by.first, x, n_cols);
  });
}

void CpuBackend::convolve(const ConvolveArgs& args) {
  const Observation observed(*this, OperatorKind::kState, args.in.buffer, args.out,
                             kernels_.elementwise.name);
  const OperatorTimer timer(profile_[OperatorKind::kState]);
  QSF_CHECK(states_ != nullptr);
  const Matrix& in = matrix(args.in.buffer);
  const Matrix& out = matrix(args.out);
  const std::uint32_t n = args.n_channels;
  const std::uint32_t n_kept = args.n_taps - 1;
  QSF_DCHECK(args.in.first + n <= in.n_cols && n <= out.n_cols);
  QSF_DCHECK(args.taps.size() == std::size_t{args.n_taps} * n);
  QSF_DCHECK(states_->shape().layer_size >= n_kept * n);
  activation_rows_.invalidate(args.out.id);
  const auto n_rows = static_cast<std::uint32_t>(rows_.size());
  for_rows(n_rows, [&](std::uint32_t row) {
    const std::span<const float> before = states_->before(rows_[row].sequence, args.layer);
    std::uint32_t n_own = 0;  // rows of the pass that the row sees before itself
    while (n_own < n_kept && n_own < row &&
           rows_[row - n_own - 1].sequence == rows_[row].sequence) {
      ++n_own;
    }
    float* const y = out.row(row);
    float product[kColumnAlign];
    for (std::uint32_t at = 0; at < n; at += kColumnAlign) {
      const std::uint32_t width = std::min<std::uint32_t>(kColumnAlign, n - at);
      for (std::uint32_t tap = 0; tap < args.n_taps; ++tap) {
        const std::uint32_t back = n_kept - tap;  // rows before this one
        // With n_own rows of the pass before it, the state's last row is n_own + 1 back.
        const float* const x = back <= n_own ? in.row(row - back) + args.in.first + at
                                             : before.data() + std::size_t{tap + n_own} * n + at;
        const float* const weights = args.taps.data() + std::size_t{tap} * n + at;
        kernels_.elementwise.mul(x, weights, tap == 0 ? y + at : product, width);
        if (tap != 0) kernels_.elementwise.add_in_place(y + at, product, width);
      }
      if (!args.bias.empty()) {
        kernels_.elementwise.add_in_place(y + at, args.bias.data() + at, width);
      }
    }
  });
  for (std::uint32_t first = 0, end = 0; first < n_rows; first = end) {
    while (end < n_rows && rows_[end].sequence == rows_[first].sequence) ++end;
    keep_last_rows(args, first, end);
  }
}

// Leaves the last inputs of rows [first, end), which are one sequence's, in its state.
void CpuBackend::keep_last_rows(const ConvolveArgs& args, std::uint32_t first, std::uint32_t end) {
  const Matrix& in = matrix(args.in.buffer);
  const std::span<const float> before = states_->before(rows_[first].sequence, args.layer);
  const std::span<float> after = states_->after(rows_[first].sequence, args.layer);
  const std::uint32_t n = args.n_channels;
  const std::uint32_t n_kept = args.n_taps - 1;
  const std::uint32_t n_new = std::min(n_kept, end - first);
  const auto kept = before.subspan(std::size_t{n_new} * n, std::size_t{n_kept - n_new} * n);
  std::ranges::copy(kept, after.begin());
  for (std::uint32_t i = 0; i < n_new; ++i) {
    std::copy_n(in.row(end - n_new + i) + args.in.first, n,
                after.begin() + static_cast<std::ptrdiff_t>(std::size_t{n_kept - n_new + i} * n));
  }
}

}  // namespace qsf
