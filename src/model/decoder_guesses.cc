// SPDX-License-Identifier: MIT
//
// Guesses of the next layer's experts, so that missing ones are read before its router has chosen.
// They change what is in memory, and no result.

#include <array>
#include <numeric>

#include "model/decoder.h"

namespace qsf {

// The router of the next layer with experts takes the rows as they are now. What attention and the
// chosen experts add until then is missing; `added`, what every row gets, is not.
Status Decoder::guess_experts(const Pass& pass, const LayerWeights& w, const Buffer* added) {
  if (counts_.n_rows > kMostGuessedRows) return ok_status();
  std::uint32_t layer = w.router.section - layer_section(0) + 1;
  while (layer < last_layer_ && weights_.layers[layer].experts.empty()) ++layer;
  if (layer >= last_layer_) return ok_status();
  const LayerWeights& next = weights_.layers[layer];
  if (!pager_.wants_guesses(next.router.section)) return ok_status();
  std::array<std::uint32_t, kMostGuessedRows> rows;
  std::iota(rows.begin(), rows.end(), 0U);
  const Buffer in = buffers_.expert_in;
  backend_.gather_rows(buffers_.hidden, in, std::span(rows).first(counts_.n_rows), {});
  if (added != nullptr) backend_.add(in, *added);
  if (!next.router_norm.empty()) {
    norm(in, in, next.router_norm, {});
  } else if (!next.ffn_norm.empty()) {
    norm(in, in, next.ffn_norm, next.ffn_norm_bias);
  }
  QSF_RETURN_IF_ERROR(score_experts(pass, OperatorKind::kGuess, next, in));
  expert_rows_.clear_guesses();
  for (std::uint32_t row = 0; row < counts_.n_rows; ++row) {
    const std::span<const float> scores =
        backend_.read_row(buffers_.scores, row).first(spec_.n_experts);
    const std::span<ExpertChoice> guessed = expert_rows_.add_guess(scores, next.router_correction);
    if (routing_hook_ != nullptr) routing_hook_->guessed(layer, pass.rows[row], guessed);
  }
  pager_.guess_experts(next.router.section, expert_rows_.rank_guesses());
  return ok_status();
}

}  // namespace qsf
