// SPDX-License-Identifier: MIT
//
// Operators of layers with a state, on the CPU.
//
// A row's convolution adds its taps in one order, the oldest first, so its bits do not depend on
// how a text is cut into passes.

#include <algorithm>

#include "base/check.h"
#include "base/ranges.h"
#include "kernels/math/math.h"
#include "ops/cpu_backend.h"
#include "ops/softplus.h"

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
      if (args.activation.has_value()) activate(*args.activation, y + at, width);
    }
  });
  for (std::uint32_t first = 0, end = 0; first < n_rows; first = end) {
    while (end < n_rows && rows_[end].sequence == rows_[first].sequence) ++end;
    keep_last_rows(args, first, end);
  }
}

void CpuBackend::gate(BufferColumns gate, BufferColumns by, std::uint32_t n_cols,
                      ActivationKind activation) {
  const Observation observed(*this, OperatorKind::kState, by.buffer, gate.buffer,
                             kernels_.activation.name);
  const OperatorTimer timer(profile_[OperatorKind::kState]);
  const Matrix& out = matrix(gate.buffer);
  const Matrix& factors = matrix(by.buffer);
  QSF_DCHECK(gate.first + n_cols <= out.n_cols && by.first + n_cols <= factors.n_cols);
  activation_rows_.invalidate(gate.buffer.id);
  for_rows(static_cast<std::uint32_t>(rows_.size()), [&](std::uint32_t row) {
    activate_mul(activation, out.row(row) + gate.first, factors.row(row) + by.first, n_cols);
  });
}

// A head's state stays in a cache while all rows pass it, so prompts need no form of their own.
void CpuBackend::scan(const ScanArgs& args) {
  const Observation observed(*this, OperatorKind::kState, args.in, args.out, kernels_.scan.name);
  const OperatorTimer timer(profile_[OperatorKind::kState]);
  QSF_CHECK(states_ != nullptr);
  QSF_DCHECK(args.n_heads % args.n_groups == 0);
  QSF_DCHECK(states_->shape().layer_size >=
             args.state_at + args.n_heads * args.head_dim * args.n_state);
  activation_rows_.invalidate(args.out.id);
  pool_.parallel_for(args.n_heads, 1, [&](std::size_t begin, std::size_t end, unsigned) {
    for (std::size_t head = begin; head < end; ++head) {
      scan_head(args, static_cast<std::uint32_t>(head));
    }
  });
}

void CpuBackend::scan_head(const ScanArgs& args, std::uint32_t head) {
  const Matrix& in = matrix(args.in);
  const Matrix& out = matrix(args.out);
  const Matrix& steps = matrix(args.time_step.buffer);
  const std::uint32_t group = head / (args.n_heads / args.n_groups);
  const std::size_t n_inner = std::size_t{args.n_heads} * args.head_dim;
  const std::size_t n_values = std::size_t{args.head_dim} * args.n_state;
  const std::size_t at = args.state_at + head * n_values;
  const float* before = nullptr;
  float* state = nullptr;
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    if (row == 0 || rows_[row].sequence != rows_[row - 1].sequence) {
      before = states_->before(rows_[row].sequence, args.layer).data() + at;
      state = states_->after(rows_[row].sequence, args.layer).data() + at;
    }
    const float* const x = in.row(row) + std::size_t{head} * args.head_dim;
    const float* const b = in.row(row) + n_inner + std::size_t{group} * args.n_state;
    const float step = softplus(steps.row(row)[args.time_step.first + head] + args.bias[head]);
    kernels_.scan.take_step({.x = x,
                             .b = b,
                             .c = b + std::size_t{args.n_groups} * args.n_state,
                             .before = before,
                             .after = state,
                             .y = out.row(row) + std::size_t{head} * args.head_dim,
                             .decay = kernels::exp_f32(step * args.decay[head]),
                             .step = step,
                             .skip = args.skip[head],
                             .n_cols = args.head_dim,
                             .n_state = args.n_state});
    before = state;
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
  ranges::copy(kept, after.begin());
  for (std::uint32_t i = 0; i < n_new; ++i) {
    std::copy_n(in.row(end - n_new + i) + args.in.first, n,
                after.begin() + static_cast<std::ptrdiff_t>(std::size_t{n_kept - n_new + i} * n));
  }
}

}  // namespace qsf
