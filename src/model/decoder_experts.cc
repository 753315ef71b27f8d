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

#include "model/decoder.h"

namespace qsf {

// hidden += what the shared expert gives, if there is one, and the sum over the chosen experts of
// weight * Wdown(activation(Wgate in) * (Wup in)), or the norm of that sum where the model has one
// behind its sublayers
Status Decoder::run_experts(const Pass& pass, const LayerWeights& w, Buffer in) {
  QSF_RETURN_IF_ERROR(route(pass, w, in));
  if (w.shared_up.rows == 0) {
    backend_.clear(buffers_.projected);
  } else {  // while missing experts are read
    QSF_RETURN_IF_ERROR(run_shared_expert(pass, w, in));
  }
  QSF_RETURN_IF_ERROR(multiply_experts(pass, w, in));
  if (!w.ffn_post_norm.empty()) {
    norm(buffers_.projected, buffers_.projected, w.ffn_post_norm, {});
  }
  backend_.add(buffers_.hidden, buffers_.projected);
  return ok_status();
}

// projected += what the chosen experts give. Where the outputs of all of them fit side by side,
// those in memory are multiplied while the others are read, and added in their order behind that.
Status Decoder::multiply_experts(const Pass& pass, const LayerWeights& w, Buffer in) {
  const std::span<const ExpertUse> uses = expert_rows_.uses();
  const std::uint32_t section = w.router.section;
  if (expert_rows_.n_assigned() > expert_out_rows_) {
    for (const ExpertUse& use : uses) {
      QSF_RETURN_IF_ERROR(run_expert(pass, w.experts[use.expert], use.expert, in, 0));
      add_expert(use.expert, 0);
      pager_.expert_done(section, use.expert);
    }
    return ok_status();
  }
  pager_.keep_ready(section, uses, experts_ready_);
  for (const bool ready : {true, false}) {
    for (std::size_t i = 0; i < uses.size(); ++i) {
      if (experts_ready_[i] != ready) continue;
      const std::uint32_t expert = uses[i].expert;
      QSF_RETURN_IF_ERROR(
          run_expert(pass, w.experts[expert], expert, in, expert_rows_.first_of(expert)));
      pager_.expert_done(section, expert);
    }
  }
  for (const ExpertUse& use : uses) add_expert(use.expert, expert_rows_.first_of(use.expert));
  return ok_status();
}

// Chooses the experts of every row, and announces them to the pager.
Status Decoder::route(const Pass& pass, const LayerWeights& w, Buffer in) {
  const Product scores = {&w.router, w.router_bias, buffers_.scores};
  QSF_RETURN_IF_ERROR(multiply(pass, OperatorKind::kRouter, in, {&scores, 1}, {}));
  QSF_RETURN_IF_ERROR(backend_.wait());
  expert_rows_.clear();
  for (std::uint32_t row = 0; row < counts_.n_rows; ++row) {
    const std::span<const float> of_row =
        backend_.read_row(buffers_.scores, row).first(spec_.n_experts);
    const std::span<ExpertChoice> chosen = expert_rows_.add(of_row, w.router_correction);
    if (routing_hook_ == nullptr) continue;
    routing_hook_->routed(w.router.section - layer_section(0), pass.rows[row], of_row, chosen);
  }
  expert_rows_.sort(pass.rows);
  pager_.want_experts(w.router.section, expert_rows_.uses());
  return ok_status();
}

// expert_out = Wdown(activation(Wgate in) * (Wup in)) of an expert's rows, from row `first_row` on
Status Decoder::run_expert(const Pass& pass, const ExpertWeights& w, std::uint32_t expert,
                           Buffer in, std::uint32_t first_row) {
  const std::span<const std::uint32_t> rows = expert_rows_.rows_of(expert);
  const auto first_other = std::lower_bound(rows.begin(), rows.end(), counts_.n_prompt);
  const RowCounts counts = {.n_prompt = static_cast<std::uint32_t>(first_other - rows.begin()),
                            .n_rows = static_cast<std::uint32_t>(rows.size())};
  backend_.gather_rows(in, buffers_.expert_in, rows);
  const std::array<Product, 2> gate_up = {
      {{&w.gate, w.gate_bias, buffers_.gate, expert}, {&w.up, w.up_bias, buffers_.up, expert}}};
  QSF_RETURN_IF_ERROR(multiply_rows(pass, OperatorKind::kGateUp, buffers_.expert_in, counts,
                                    gate_up, gate_up_epilogue()));
  const Product down = {&w.down, w.down_bias, buffers_.expert_out, expert, first_row};
  return multiply_rows(pass, OperatorKind::kDown, buffers_.gate, counts, {&down, 1}, {});
}

// Adds an expert's outputs to the sums of its rows.
void Decoder::add_expert(std::uint32_t expert, std::uint32_t first_row) {
  backend_.add_to_rows(buffers_.projected, buffers_.expert_out, first_row,
                       expert_rows_.rows_of(expert), expert_rows_.weights_of(expert));
}

}  // namespace qsf
