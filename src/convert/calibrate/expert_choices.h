// SPDX-License-Identifier: MIT
//
// ExpertChoices: the experts that the tokens of a calibration set chose, and what caches of several
// sizes would have found of them.

#ifndef QSF_CONVERT_CALIBRATE_EXPERT_CHOICES_H_
#define QSF_CONVERT_CALIBRATE_EXPERT_CHOICES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "format/model_spec.h"
#include "model/expert_router.h"

namespace qsf {

class ExpertChoices {
 public:
  // Bounds the memory of the choices and the time of the replay.
  static constexpr std::uint64_t kMostTokens = 4096;

  // For a text of n_tokens rows, of which the first kMostTokens are recorded.
  ExpertChoices(const ModelSpec& spec, std::uint64_t n_tokens);
  // Returns the most bytes of choices and replay.
  static std::uint64_t memory_bytes(const ModelSpec& spec) noexcept;

  // Records the choices of a token of the text. Shapes  chosen [n_experts_used]
  void add(std::uint32_t layer, std::uint64_t token, std::span<const ExpertChoice> chosen) noexcept;

  // All choices, for saving to a file and loading.
  MutableByteSpan bytes() noexcept { return std::as_writable_bytes(std::span(chosen_)); }

  // Replays the text token by token in caches of the sizes of format/expert_hits.h and returns the
  // share of uses that each found; the first quarter of the text warms them and is not counted.
  // Empty for a dense model.
  // Requires  all tokens were added
  std::vector<float> hits() const;

 private:
  // Shapes  [n_experts_used], ascending
  std::span<const std::uint16_t> of(std::uint64_t token, std::uint32_t place) const noexcept {
    return std::span(chosen_).subspan((token * layers_.size() + place) * n_used_, n_used_);
  }
  float hits_of(std::uint32_t n_slots) const;

  std::uint32_t n_layers_;
  std::uint32_t n_experts_;
  std::uint32_t n_used_;
  std::uint64_t n_tokens_;
  std::vector<std::uint32_t> layers_;  // those with experts
  std::vector<std::uint16_t> chosen_;  // [tokens, layers with experts, experts used]
};

}  // namespace qsf

#endif  // QSF_CONVERT_CALIBRATE_EXPERT_CHOICES_H_
