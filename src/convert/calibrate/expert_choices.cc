// SPDX-License-Identifier: MIT

#include "convert/calibrate/expert_choices.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/ranges.h"
#include "format/expert_hits.h"
#include "stream/expert_replay.h"

namespace qsf {
namespace {

std::vector<std::uint32_t> layers_with_experts(const ModelSpec& spec) {
  std::vector<std::uint32_t> layers;
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    if (spec.has_experts(layer)) layers.push_back(layer);
  }
  return layers;
}

}  // namespace

ExpertChoices::ExpertChoices(const ModelSpec& spec, std::uint64_t n_tokens)
    : n_layers_(spec.n_layers),
      n_experts_(spec.n_experts),
      n_used_(spec.n_experts_used),
      n_tokens_(std::min(n_tokens, kMostTokens)),
      layers_(layers_with_experts(spec)),
      chosen_(n_tokens_ * layers_.size() * n_used_) {}

std::uint64_t ExpertChoices::memory_bytes(const ModelSpec& spec) noexcept {
  const std::uint64_t n_experts = std::uint64_t{spec.n_layers} * spec.n_experts;
  return kMostTokens * spec.n_layers * spec.n_experts_used * sizeof(std::uint16_t) +
         ExpertReplay::heap_bytes(static_cast<std::uint32_t>(n_experts));
}

void ExpertChoices::add(std::uint32_t layer, std::uint64_t token,
                        std::span<const ExpertChoice> chosen) noexcept {
  if (token >= n_tokens_) return;
  const auto place =
      static_cast<std::size_t>(ranges::lower_bound(layers_, layer) - layers_.begin());
  QSF_DCHECK(chosen.size() == n_used_ && place < layers_.size() && layers_[place] == layer);
  const std::span<std::uint16_t> to =
      std::span(chosen_).subspan((token * layers_.size() + place) * n_used_, n_used_);
  ranges::transform(chosen, to.begin(), [](const ExpertChoice& choice) {
    return static_cast<std::uint16_t>(choice.expert);
  });
  ranges::sort(to);
}

float ExpertChoices::hits_of(std::uint32_t n_slots) const {
  ExpertReplay replay(n_layers_, n_experts_, n_slots);
  std::vector<std::uint32_t> experts(n_used_);
  std::uint64_t n_hits = 0;
  std::uint64_t n_uses = 0;
  for (std::uint64_t token = 0; token < n_tokens_; ++token) {
    replay.start_token();
    for (std::uint32_t place = 0; place < layers_.size(); ++place) {
      ranges::copy(of(token, place), experts.begin());
      const std::uint32_t n_found = replay.use(layers_[place], experts);
      if (token < n_tokens_ / 4) continue;
      n_hits += n_found;
      n_uses += n_used_;
    }
  }
  return static_cast<float>(static_cast<double>(n_hits) / static_cast<double>(n_uses));
}

std::vector<float> ExpertChoices::hits() const {
  std::vector<float> hits;
  if (chosen_.empty()) return hits;
  const auto n_experts = static_cast<double>(layers_.size() * n_experts_);
  for (std::uint32_t i = 0; i < kExpertHitSizes; ++i) {
    hits.push_back(
        hits_of(static_cast<std::uint32_t>(std::lround(n_experts * expert_hit_size(i)))));
  }
  return hits;
}

}  // namespace qsf
