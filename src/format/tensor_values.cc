// SPDX-License-Identifier: MIT

#include "format/tensor_values.h"

#include <span>
#include <string>

#include "base/check.h"
#include "quant/codec.h"
#include "quant/interleave.h"

namespace qsf {
namespace {

constexpr std::uint64_t kMaxWeights = std::uint64_t{1} << 28;  // 1 GiB of f32

void decode_rows(const TensorInfo& tensor, ByteSpan raw, std::uint32_t n_rows,
                 std::span<float> out) {
  const auto unit = static_cast<std::size_t>(tensor.layout == Layout::kRowMajor
                                                 ? row_major_bytes(tensor.format, tensor.cols)
                                                 : group_bytes(tensor.format, tensor.cols));
  for (std::uint32_t r = 0; r < n_rows; ++r) {
    const std::span<float> row = out.subspan(std::size_t{r} * tensor.cols, tensor.cols);
    if (tensor.layout == Layout::kRowMajor) {
      decode_row(tensor.format, raw.subspan(r * unit, unit), row);
    } else {
      decode_group_row(tensor.format, raw.subspan(r / kRowGroup * unit, unit), r % kRowGroup,
                       tensor.cols, row);
    }
  }
}

}  // namespace

Result<std::vector<float>> read_tensor_values(const QsfReader& reader,
                                              const SectionDirectory& directory,
                                              std::uint32_t tensor) {
  QSF_CHECK(tensor < directory.tensors.size());
  const TensorInfo& info = directory.tensors[tensor];
  const std::uint64_t n_weights = std::uint64_t{info.rows} * info.cols;
  if (n_weights > kMaxWeights) {
    return out_of_budget("%s: %s: %llu weights are too many to decode at once",
                         reader.file().path().c_str(),
                         std::string(tensor_kind_name(info.kind)).c_str(),
                         static_cast<unsigned long long>(n_weights));
  }
  std::vector<float> values(static_cast<std::size_t>(n_weights));
  std::vector<std::byte> scratch;
  std::vector<std::byte> raw;
  for (std::uint32_t t = 0; t < directory.tiles.size(); ++t) {
    const TileInfo& tile = directory.tiles[t];
    const bool shared = tile.tensor == kOneRowTensors && info.rows == 1;
    if (tile.tensor != tensor && !shared) continue;
    scratch.resize(tile.stored_bytes);
    raw.resize(tile.raw_bytes);
    QSF_RETURN_IF_ERROR(reader.read_tile(directory, t, scratch, raw));
    if (shared) {
      const auto offset = static_cast<std::size_t>(one_row_offset(directory.tensors, tensor));
      decode_rows(info, ByteSpan(raw).subspan(offset), 1, values);
    } else {
      decode_rows(info, raw, tile.n_rows,
                  std::span(values).subspan(std::size_t{tile.first_row} * info.cols));
    }
  }
  return values;
}

}  // namespace qsf
