// SPDX-License-Identifier: MIT

#include "stream/expert_prefetch.h"

#include "base/check.h"
#include "base/ranges.h"

namespace qsf {
namespace {

// A guess is read where as many of its kind come true. Below that, reads in vain delay the others:
// docs/decisions/050-expert-cache.md.
constexpr float kLeastShare = 0.65F;
constexpr float kFirstShare = 0.7F;      // before anything was measured
constexpr float kNewest = 1.0F / 16.0F;  // weight of the newest guess in a share
constexpr std::uint32_t kPassesBetweenTests = 8;

}  // namespace

ExpertPrefetch::ExpertPrefetch(std::uint32_t n_layers, std::uint32_t experts_used,
                               std::uint64_t pass_bytes)
    : n_ranks_(experts_used),
      pass_bytes_(pass_bytes),
      shares_(std::size_t{n_layers} * experts_used, kFirstShare) {
  guessed_.reserve(std::size_t{kMostGuessedRows} * experts_used);
  missing_.reserve(std::size_t{kMostGuessedRows} * experts_used);
  to_read_.reserve(std::size_t{kMostGuessedRows} * experts_used);
}

std::uint64_t ExpertPrefetch::heap_bytes(std::uint32_t n_layers,
                                         std::uint32_t experts_used) noexcept {
  return std::uint64_t{n_layers} * experts_used * sizeof(float) +
         std::uint64_t{kMostGuessedRows} * experts_used * (sizeof(Missing) + 2 * sizeof(ExpertId));
}

void ExpertPrefetch::start_pass() noexcept {
  QSF_DCHECK(missing_.empty());
  ++pass_;
  bytes_left_ = pass_bytes_;
}

bool ExpertPrefetch::wants(std::uint32_t layer) const noexcept {
  if (pass_ % kPassesBetweenTests == 0) return true;
  const auto of_layer = std::span(shares_).subspan(std::size_t{layer} * n_ranks_, n_ranks_);
  return ranges::any_of(of_layer, [](float share) { return share >= kLeastShare; });
}

std::span<const ExpertId> ExpertPrefetch::start(std::uint32_t layer,
                                                std::uint32_t experts_per_layer,
                                                std::span<const ExpertGuess> guesses,
                                                const ExpertCache& cache) {
  QSF_DCHECK(missing_.empty() && guesses.size() <= missing_.capacity());
  layer_ = layer;
  for (const ExpertGuess& guess : guesses) {
    const ExpertId id = layer * experts_per_layer + guess.expert;
    guessed_.push_back(id);
    if (cache.slot_of(id) != kNoExpertSlot) continue;
    missing_.push_back({guess.expert, guess.rank});
    if (share(layer, guess.rank) >= kLeastShare) to_read_.push_back(id);
  }
  return to_read_;
}

bool ExpertPrefetch::spend(std::uint64_t bytes) noexcept {
  if (bytes > bytes_left_) return false;
  bytes_left_ -= bytes;
  return true;
}

void ExpertPrefetch::learn(std::uint32_t layer, std::span<const ExpertUse> uses) noexcept {
  for (const Missing& guess : missing_) {
    if (layer != layer_) break;
    const bool came_true = ranges::binary_search(uses, guess.expert, {}, &ExpertUse::expert);
    float& of_rank = share(layer, guess.rank);
    of_rank += ((came_true ? 1.0F : 0.0F) - of_rank) * kNewest;
  }
}

void ExpertPrefetch::end() noexcept {
  guessed_.clear();
  missing_.clear();
  to_read_.clear();
}

}  // namespace qsf
