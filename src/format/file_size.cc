// SPDX-License-Identifier: MIT

#include "format/file_size.h"

#include <vector>

#include "base/bytes.h"
#include "format/directory_codec.h"
#include "format/tile_plan.h"

namespace qsf {

Result<std::uint64_t> section_file_bytes(std::span<const TensorInfo> tensors,
                                         std::uint64_t max_tile_bytes) {
  QSF_ASSIGN_OR_RETURN(const std::vector<TilePlan> tiles, plan_tiles(tensors, max_tile_bytes));
  std::uint64_t sum = align_up(directory_bytes(tensors.size(), tiles.size()), kSectionAlign);
  for (const TilePlan& tile : tiles) sum += align_up(tile.raw_bytes, kSectionAlign);
  return sum;
}

std::uint64_t other_file_bytes(const ModelSpec& spec, std::uint64_t tokenizer_bytes) noexcept {
  // Keys of fixed size take a few KB; these are those that a model can make longer.
  constexpr std::uint64_t kFixedKeys = 48U << 10;
  const std::uint64_t metadata =
      kFixedKeys + spec.chat_template.size() + spec.quantiser.size() + spec.source.size() +
      4 * spec.eos_ids.size() + 4 * spec.sliding_window.size() +
      4 * spec.rope.short_factors.size() + 4 * spec.rope.long_factors.size();
  return kSectionAlign + align_up(tokenizer_bytes, kSectionAlign) +
         align_up(spec.n_layers * kIndexEntryBytes, kSectionAlign) +
         align_up(metadata, kSectionAlign);
}

}  // namespace qsf
