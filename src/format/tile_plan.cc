// SPDX-License-Identifier: MIT

#include "format/tile_plan.h"

#include <algorithm>
#include <string>

#include "base/bytes.h"
#include "base/check.h"
#include "format/directory_codec.h"
#include "format/metadata.h"
#include "format/spec_keys.h"

namespace qsf {
namespace {

bool is_gate_up_pair(const TensorInfo& gate, const TensorInfo& up) noexcept {
  const bool kinds = (gate.kind == TensorKind::kFfnGate && up.kind == TensorKind::kFfnUp) ||
                     (gate.kind == TensorKind::kSharedGate && up.kind == TensorKind::kSharedUp) ||
                     (gate.kind == TensorKind::kExpertGate && up.kind == TensorKind::kExpertUp &&
                      gate.expert == up.expert);
  return kinds && gate.rows == up.rows && gate.cols == up.cols && gate.format == up.format &&
         gate.layout == up.layout && gate.rows > 1;
}

// Rows of a full tile of `tensor`: the most that fit, a multiple of 64, at least 64.
Result<std::uint32_t> rows_of_tile(const TensorInfo& tensor, std::uint64_t max_bytes) {
  const std::uint64_t unit = tile_bytes(tensor, kTileRowAlign);
  const std::uint64_t smallest = tile_bytes(tensor, std::min(tensor.rows, kTileRowAlign));
  if (smallest > kMaxTileBytes) {
    return unsupported(
        "%s: 64 rows of %u columns take %llu bytes, a tile holds at most %llu; store "
        "this tensor in fewer bits",
        std::string(tensor_kind_name(tensor.kind)).c_str(), tensor.cols,
        static_cast<unsigned long long>(smallest), static_cast<unsigned long long>(kMaxTileBytes));
  }
  const std::uint64_t n_units = std::max<std::uint64_t>(max_bytes / unit, 1);
  const std::uint64_t n_rows = std::min<std::uint64_t>(n_units * kTileRowAlign, tensor.rows);
  return static_cast<std::uint32_t>(n_rows);
}

}  // namespace

Result<std::vector<TilePlan>> plan_tiles(std::span<const TensorInfo> tensors,
                                         std::uint64_t max_bytes) {
  QSF_CHECK(max_bytes <= kMaxTileBytes);
  std::vector<TilePlan> plan;
  const std::uint64_t one_row_bytes = one_row_tile_bytes(tensors);
  if (one_row_bytes > kMaxTileBytes) {
    return unsupported("the one-row tensors take %llu bytes together, a tile holds at most %llu",
                       static_cast<unsigned long long>(one_row_bytes),
                       static_cast<unsigned long long>(kMaxTileBytes));
  }
  if (one_row_bytes > 0) {
    const auto n = std::count_if(tensors.begin(), tensors.end(),
                                 [](const TensorInfo& t) { return t.rows == 1; });
    plan.push_back({kOneRowTensors, 0, static_cast<std::uint32_t>(n),
                    static_cast<std::uint32_t>(one_row_bytes)});
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& tensor = tensors[i];
    if (tensor.rows == 1) continue;
    QSF_ASSIGN_OR_RETURN(const std::uint32_t full, rows_of_tile(tensor, max_bytes));
    const std::size_t n_alternating =
        i + 1 < tensors.size() && is_gate_up_pair(tensor, tensors[i + 1]) ? 2 : 1;
    for (std::uint32_t row = 0; row < tensor.rows;) {
      const std::uint32_t n_rows = std::min(full, tensor.rows - row);
      for (std::size_t k = 0; k < n_alternating; ++k) {
        plan.push_back({static_cast<std::uint32_t>(i + k), row, n_rows,
                        static_cast<std::uint32_t>(tile_bytes(tensor, n_rows))});
      }
      row += n_rows;
    }
    i += n_alternating - 1;
  }
  return plan;
}

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
