// SPDX-License-Identifier: MIT
//
// Row: one token of one sequence at one position. A pass carries rows through the layers.

#ifndef QSF_KV_ROW_H_
#define QSF_KV_ROW_H_

#include <bit>
#include <cstdint>

namespace qsf {

using SequenceId = std::uint32_t;

// Chooses the kernels of a row: prompt rows take the prompt kernels, the others the decode kernels.
// The choice does not depend on the other rows of the pass (batch invariance).
enum class RowRole : std::uint8_t { kPrompt, kGenerated, kDrafted };

// Drafted rows of a sequence in a pass: the bits of VisibleSet::ancestors.
inline constexpr std::uint32_t kMaxDrafts = 64;

// The slots of its sequence that a row attends to. Its path is the slots [0, prefix), then
// prefix + i for every bit i of `ancestors`, the row's own last; it attends to the path's first
// `sinks` slots and to those from number `first` on. A row of plain text at slot s has prefix s + 1
// and no ancestors; drafted rows share a prefix, which holds the sinks, and name their path up the
// tree; prompt rows that attend to both sides have a prefix beyond their own slot, of slots of the
// same pass. `first` is 0 where all slots are kept; under a window it is the first slot of the
// row's window, or of its block's.
struct VisibleSet {
  std::uint32_t prefix = 0;
  std::uint64_t ancestors = 0;
  std::uint32_t sinks = 0;
  std::uint32_t first = 0;

  // The slots of the path.
  constexpr std::uint32_t path_end() const noexcept {
    return prefix + static_cast<std::uint32_t>(std::popcount(ancestors));
  }
  // Whether the path leaves out slots of other branches.
  constexpr bool branches() const noexcept { return (ancestors & (ancestors + 1)) != 0; }
  // The i-th slot of the path. Requires  i < path_end()
  constexpr std::uint32_t path_slot(std::uint32_t i) const noexcept {
    if (i < prefix || !branches()) return i;
    std::uint64_t left = ancestors;
    for (std::uint32_t n = i - prefix; n > 0; --n) left &= left - 1;
    return prefix + static_cast<std::uint32_t>(std::countr_zero(left));
  }
};

struct Row {
  SequenceId sequence = 0;
  std::uint32_t token = 0;
  std::int32_t position = 0;  // for rotary and learned position embeddings
  std::uint32_t kv_slot = 0;  // slot of its K and V in its sequence
  RowRole role = RowRole::kPrompt;
  VisibleSet visible;
  std::uint16_t adapter = 0;   // 0: none
  float adapter_scale = 0.0F;  // of what the adapter adds
  bool wants_output = false;   // logits are computed for this row
};

}  // namespace qsf

#endif  // QSF_KV_ROW_H_
