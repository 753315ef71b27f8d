// SPDX-License-Identifier: MIT

#include "format/file_size.h"

#include <vector>

#include "base/bytes.h"
#include "format/directory_codec.h"
#include "format/metadata.h"
#include "format/spec_keys.h"
#include "format/tile_plan.h"

namespace qsf {

Result<std::uint64_t> section_file_bytes(std::span<const TensorInfo> tensors,
                                         std::uint64_t max_tile_bytes) {
  QSF_ASSIGN_OR_RETURN(const std::vector<TilePlan> tiles, plan_tiles(tensors, max_tile_bytes));
  std::uint64_t sum = align_up(directory_bytes(tensors.size(), tiles.size()), kSectionAlign);
  for (const TilePlan& tile : tiles) sum += align_up(tile.raw_bytes, kSectionAlign);
  return sum;
}

std::uint64_t other_file_bytes(const ModelSpec& spec, std::uint64_t tokenizer_bytes) {
  Metadata metadata = encode_spec_metadata(spec);
  metadata.set_u64(keys::kFileBytes, 0, true);
  ByteWriter pairs;
  metadata.encode(pairs);
  const std::uint64_t n_sections = tokenizer_bytes == 0 ? 2 : 3;  // embedding and final besides
  return kSectionAlign + align_up(tokenizer_bytes, kSectionAlign) +
         align_up(spec.n_layers * kIndexEntryBytes, kSectionAlign) +
         align_up(kMetadataHeaderBytes + pairs.size() + n_sections * kSectionEntryBytes,
                  kSectionAlign);
}

}  // namespace qsf
