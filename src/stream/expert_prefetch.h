// SPDX-License-Identifier: MIT
//
// ExpertPrefetch: which experts of the next layer are read ahead of its router.
//
// The next layer's router, run on the rows of this layer, names most of the experts that it will
// choose: fewer in the first layers, which change a row most, and fewer among its last choices. So
// the share of guesses that came true is measured for each layer and rank, over those of
// experts that were missing: the others cost nothing. Guesses are read where that share is large
// enough, and at most as many bytes a pass as its experts have.
//
// It reads nothing: TileSchedule does.

#ifndef QSF_STREAM_EXPERT_PREFETCH_H_
#define QSF_STREAM_EXPERT_PREFETCH_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "stream/expert_cache.h"

namespace qsf {

// An expert that a row is expected to choose. Rank 0 is the surest one of a row.
struct ExpertGuess {
  std::uint32_t expert = 0;
  std::uint32_t rank = 0;
};

// Most rows of a pass whose experts are guessed: many rows use most experts anyway.
inline constexpr std::uint32_t kMostGuessedRows = 4;

class ExpertPrefetch {
 public:
  ExpertPrefetch() = default;
  // `pass_bytes`: the most that is read ahead in a pass
  ExpertPrefetch(std::uint32_t n_layers, std::uint32_t experts_used, std::uint64_t pass_bytes);

  static std::uint64_t heap_bytes(std::uint32_t n_layers, std::uint32_t experts_used) noexcept;

  // Starts a pass. Requires  no guesses
  void start_pass() noexcept;
  // Whether guesses for a layer are of use: some would be read, or it is time to measure again.
  bool wants(std::uint32_t layer) const noexcept;
  // Takes the guesses for a layer, the surest first. Returns the experts to be read, in order.
  // Requires  no guesses; at most kMostGuessedRows * experts_used of them, each expert once
  std::span<const ExpertId> start(std::uint32_t layer, std::uint32_t experts_per_layer,
                                  std::span<const ExpertGuess> guesses, const ExpertCache& cache);
  // The experts to be read, as start() returned them, and all that are guessed; none after end().
  std::span<const ExpertId> experts() const noexcept { return to_read_; }
  std::span<const ExpertId> guessed() const noexcept { return guessed_; }
  // Takes the bytes of a read, or returns false when the pass has none left.
  bool spend(std::uint64_t bytes) noexcept;
  // A layer has chosen: learns which guesses came true if they were for it. Requires  uses
  // ascending
  void learn(std::uint32_t layer, std::span<const ExpertUse> uses) noexcept;
  // Ends the guesses.
  void end() noexcept;

 private:
  struct Missing {
    std::uint32_t expert = 0;
    std::uint32_t rank = 0;
  };
  float& share(std::uint32_t layer, std::uint32_t rank) noexcept {
    return shares_[std::size_t{layer} * n_ranks_ + rank];
  }

  std::uint32_t n_ranks_ = 0;
  std::uint64_t pass_bytes_ = 0;
  std::uint64_t bytes_left_ = 0;
  std::uint32_t pass_ = 0;
  std::uint32_t layer_ = 0;
  std::vector<float> shares_;  // [layers, ranks], of guesses that came true
  std::vector<ExpertId> guessed_;
  std::vector<Missing> missing_;
  std::vector<ExpertId> to_read_;
};

}  // namespace qsf

#endif  // QSF_STREAM_EXPERT_PREFETCH_H_
