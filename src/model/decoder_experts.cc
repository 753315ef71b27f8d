// SPDX-License-Identifier: MIT
//
// The mixture of experts of a layer: each row goes through the few experts that its router chooses.
//
// The rows of an expert are gathered, so that its weights are read and multiplied once for all of
// them. The pager learns the chosen experts as soon as the router has spoken, and reads those that
// are missing while the others are multiplied. A row's sum takes its experts in ascending order,
// whatever shares its pass and whatever was in memory.

#include <algorithm>
#include <array>
#include <cmath>

#include "model/decoder.h"

namespace qsf {

// hidden += what the shared expert gives, if there is one, and the sum over the chosen experts of
// weight * Wdown(activation(Wgate in) * (Wup in)), without gates Wdown(activation(Wup in)), with
// weight * in for in where the model says so; or the norm of that sum where the model has one
// behind its sublayers
Status Decoder::run_experts(const Pass& pass, const LayerWeights& w, Buffer in) {
  if (spec_.experts_beside_ffn) return run_experts_beside(pass, w, in);
  QSF_RETURN_IF_ERROR(route(pass, w, in));
  if (w.shared_up.rows == 0) {
    backend_.clear(buffers_.projected);
  } else {  // while missing experts are read
    QSF_RETURN_IF_ERROR(run_shared_expert(pass, w, in));
  }
  const Buffer* const shared = w.shared_up.rows == 0 ? nullptr : &buffers_.projected;
  QSF_RETURN_IF_ERROR(guess_experts(pass, w, shared));
  QSF_RETURN_IF_ERROR(multiply_experts(pass, w, in));
  if (!w.ffn_post_norm.empty()) {
    norm(buffers_.projected, buffers_.projected, w.ffn_post_norm, {});
  }
  backend_.add(buffers_.hidden, buffers_.projected);
  return ok_status();
}

// projected += the sum over the chosen experts
Status Decoder::multiply_experts(const Pass& pass, const LayerWeights& w, Buffer in) {
  for (const ExpertUse& use : expert_rows_.uses()) {
    QSF_RETURN_IF_ERROR(run_expert(pass, w.experts[use.expert], use.expert, in));
    pager_.expert_done(w.router.section, use.expert);
  }
  return ok_status();
}

// scores = router in
Status Decoder::score_experts(const Pass& pass, OperatorKind kind, const LayerWeights& w,
                              Buffer in) {
  const Product scores = {&w.router, w.router_bias, buffers_.scores};
  const float scale =
      w.router_norm.empty() ? 1.0F : 1.0F / std::sqrt(static_cast<float>(spec_.hidden));
  QSF_RETURN_IF_ERROR(
      multiply(pass, kind, in, {&scores, 1}, {.activation = {}, .scale = scale, .add_to = {}}));
  return backend_.wait();
}

// Chooses the experts of every row, and announces them to the pager.
Status Decoder::route(const Pass& pass, const LayerWeights& w, Buffer in) {
  QSF_RETURN_IF_ERROR(score_experts(pass, OperatorKind::kRouter, w, in));
  expert_rows_.clear();
  const bool prefers = expert_preference_ > 0.0F && counts_.n_rows > counts_.n_prompt &&
                       pager_.find_experts(w.router.section, in_memory_);
  for (std::uint32_t row = 0; row < counts_.n_rows; ++row) {
    const std::span<const float> of_row =
        backend_.read_row(buffers_.scores, row).first(spec_.n_experts);
    const std::span<ExpertChoice> chosen = expert_rows_.add(of_row, w.router_correction);
    if (prefers && row >= counts_.n_prompt) {
      expert_rows_.prefer(of_row, w.router_correction, in_memory_, expert_preference_);
    }
    if (!w.expert_scales.empty()) {
      for (ExpertChoice& choice : chosen) choice.weight *= w.expert_scales[choice.expert];
    }
    if (routing_hook_ == nullptr) continue;
    routing_hook_->routed(w.router.section - layer_section(0), pass.rows[row], of_row, chosen);
  }
  expert_rows_.sort(pass.rows);
  pager_.want_experts(w.router.section, expert_rows_.uses());
  return ok_status();
}

// Adds an expert's part to the sums of its rows.
Status Decoder::run_expert(const Pass& pass, const ExpertWeights& w, std::uint32_t expert,
                           Buffer in) {
  const std::span<const std::uint32_t> rows = expert_rows_.rows_of(expert);
  const auto first_other = std::lower_bound(rows.begin(), rows.end(), counts_.n_prompt);
  const RowCounts counts = {.n_prompt = static_cast<std::uint32_t>(first_other - rows.begin()),
                            .n_rows = static_cast<std::uint32_t>(rows.size())};
  const ProductRows of_expert = {counts, rows};
  const std::span<const float> weights = expert_rows_.weights_of(expert);
  const bool before = spec_.weighs_expert_inputs;
  backend_.gather_rows(in, buffers_.expert_in, rows, before ? weights : std::span<const float>());
  const std::array<Product, 2> gate_up = {
      {{&w.gate, w.gate_bias, buffers_.gate, expert}, {&w.up, w.up_bias, buffers_.up, expert}}};
  QSF_RETURN_IF_ERROR(multiply_rows(pass, OperatorKind::kGateUp, buffers_.expert_in, of_expert,
                                    gate_up_products(gate_up), gate_up_epilogue()));
  const Product down = {&w.down, w.down_bias, buffers_.expert_out, expert};
  QSF_RETURN_IF_ERROR(
      multiply_rows(pass, OperatorKind::kDown, activated(), of_expert, {&down, 1}, {}));
  backend_.add_to_rows(buffers_.projected, buffers_.expert_out, rows,
                       before ? std::span<const float>() : weights);
  return ok_status();
}

}  // namespace qsf
