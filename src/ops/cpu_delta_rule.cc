// SPDX-License-Identifier: MIT
//
// The gated delta rule, on the CPU.
//
// A column of a head's state takes the keys and queries of all rows by itself, so a block of
// columns stays in the first cache while all rows of a pass go by, and threads share nothing. Rows
// take one step after the other in one order, whatever the pass: prompts have no form of their own,
// as others have that solve for a chunk of rows at once.

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/math/math.h"
#include "ops/cpu_backend.h"
#include "ops/softplus.h"

namespace qsf {
namespace {

// Columns of a head whose state lies together, as [n_state][columns]: with keys of 128 columns 16
// KiB.
constexpr std::uint32_t kDeltaBlock = 32;
constexpr float kLengthEpsilon = 1e-6F;  // of every model

// x becomes a vector of this length, nearly: a vector of zeros stays one.
void set_length(float* x, std::uint32_t n, float length) noexcept {
  double squares = 0.0;
  for (std::uint32_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  const auto sum = static_cast<float>(squares);
  const float factor = length / std::sqrt(sum + kLengthEpsilon);
  for (std::uint32_t i = 0; i < n; ++i) x[i] *= factor;
}

}  // namespace

void CpuBackend::delta_rule(const DeltaRuleArgs& args) {
  const Observation observed(*this, OperatorKind::kState, args.in, args.out, kernels_.scan.name);
  const OperatorTimer timer(profile_[OperatorKind::kState]);
  QSF_CHECK(states_ != nullptr);
  QSF_DCHECK(args.n_heads % args.n_groups == 0);
  QSF_DCHECK(states_->shape().layer_size >=
             args.state_at + args.n_heads * args.head_dim * args.n_state);
  for (const Buffer changed : {args.in, args.rate, args.time_step, args.out}) {
    activation_rows_.invalidate(changed.id);
  }
  for_rows(static_cast<std::uint32_t>(rows_.size()),
           [&](std::uint32_t row) { prepare_delta_row(args, row); });
  const std::size_t n_blocks = (args.head_dim + kDeltaBlock - 1) / kDeltaBlock;
  pool_.parallel_for(args.n_heads * n_blocks, 1, [&](std::size_t begin, std::size_t end, unsigned) {
    for (std::size_t i = begin; i < end; ++i) {
      run_delta_columns(args, static_cast<std::uint32_t>(i / n_blocks),
                        static_cast<std::uint32_t>(i % n_blocks) * kDeltaBlock);
    }
  });
}

// Gives keys and queries their lengths, and turns rates and time steps into what a step takes.
void CpuBackend::prepare_delta_row(const DeltaRuleArgs& args, std::uint32_t row) {
  float* const queries = matrix(args.in).row(row);
  float* const keys = queries + std::size_t{args.n_groups} * args.n_state;
  const float scale = 1.0F / std::sqrt(static_cast<float>(args.n_state));
  for (std::uint32_t group = 0; group < args.n_groups; ++group) {
    set_length(queries + std::size_t{group} * args.n_state, args.n_state, scale);
    set_length(keys + std::size_t{group} * args.n_state, args.n_state, 1.0F);
  }
  float* const rates = matrix(args.rate).row(row);
  float* const steps = matrix(args.time_step).row(row);
  for (std::uint32_t head = 0; head < args.n_heads; ++head) {
    rates[head] = 1.0F / (1.0F + kernels::exp_f32(-rates[head]));
    steps[head] = kernels::exp_f32(softplus(steps[head] + args.bias[head]) * args.decay[head]);
  }
}

// Runs up to kDeltaBlock columns of a head through all rows of the pass.
void CpuBackend::run_delta_columns(const DeltaRuleArgs& args, std::uint32_t head,
                                   std::uint32_t first) {
  const Matrix& in = matrix(args.in);
  const std::uint32_t group =
      args.heads_in_turn ? head % args.n_groups : head / (args.n_heads / args.n_groups);
  const std::size_t key_at = std::size_t{args.n_groups + group} * args.n_state;
  const std::size_t column = std::size_t{head} * args.head_dim + first;
  const std::size_t value_at = std::size_t{2} * args.n_groups * args.n_state + column;
  const std::size_t state_at = args.state_at + column * args.n_state;
  const std::uint32_t n_columns = std::min(kDeltaBlock, args.head_dim - first);
  const float* before = nullptr;
  float* after = nullptr;
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    if (row == 0 || rows_[row].sequence != rows_[row - 1].sequence) {
      before = states_->before(rows_[row].sequence, args.layer).data() + state_at;
      after = states_->after(rows_[row].sequence, args.layer).data() + state_at;
    }
    kernels_.scan.take_delta_step({.value = in.row(row) + value_at,
                                   .key = in.row(row) + key_at,
                                   .query = in.row(row) + std::size_t{group} * args.n_state,
                                   .before = before,
                                   .after = after,
                                   .y = matrix(args.out).row(row) + column,
                                   .decay = matrix(args.time_step).row(row)[head],
                                   .rate = matrix(args.rate).row(row)[head],
                                   .n_cols = n_columns,
                                   .n_state = args.n_state});
    before = after;
  }
}

}  // namespace qsf
