// SPDX-License-Identifier: MIT
//
// Handing out tiles that are all resident.

#include "stream/weight_pager.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/check.h"
#include "format/qsf_reader.h"
#include "platform/clock.h"
#include "platform/threads.h"
#include "quant/interleave.h"
#include "stream/weight_loader.h"

namespace qsf {

Result<Residency> WeightPager::plan(const QsfReader& reader, unsigned n_threads) {
  WeightPager pager;
  return WeightLoader::lay_out(reader, n_threads, pager);
}

Result<std::unique_ptr<WeightPager>> WeightPager::load(const QsfReader& reader,
                                                       MutableByteSpan region,
                                                       MutableByteSpan scratch,
                                                       const LoadOptions& options) {
  const std::uint64_t start_ns = monotonic_ns();
  std::unique_ptr<WeightPager> pager(new WeightPager);
  const unsigned n_threads = options.threads == nullptr ? 1 : options.threads->n_threads();
  QSF_ASSIGN_OR_RETURN(const Residency needs, WeightLoader::lay_out(reader, n_threads, *pager));
  QSF_CHECK(region.size() >= needs.resident_bytes && scratch.size() >= needs.scratch_bytes);
  QSF_CHECK(std::bit_cast<std::uintptr_t>(region.data()) % 64 == 0);
  pager->region_ = region;
  QSF_RETURN_IF_ERROR(WeightLoader(reader, *pager, scratch, options).run());
  pager->stats_.bytes_read = needs.stored_bytes;
  for (const SectionDirectory& directory : reader.directories()) {
    pager->stats_.tiles_read += directory.tiles.size();
  }
  pager->stats_.load_ns = monotonic_ns() - start_ns;
  return pager;
}

const WeightPager::Tensor& WeightPager::tensor(std::uint32_t section,
                                               std::uint32_t index) const noexcept {
  QSF_CHECK(section + 1 < first_tensor_.size());
  QSF_CHECK(index < first_tensor_[section + 1] - first_tensor_[section]);
  return tensors_[first_tensor_[section] + index];
}

std::span<const TileId> WeightPager::tiles_of(std::uint32_t section,
                                              std::uint32_t index) const noexcept {
  const Tensor& t = tensor(section, index);
  return std::span(tile_ids_).subspan(t.first_id, t.n_ids);
}

WeightTile WeightPager::view(const Tile& tile) const noexcept {
  return {region_.data() + tile.offset,
          tile.format,
          static_cast<std::size_t>(tile.group_bytes),
          tile.tensor,
          tile.first_row,
          tile.n_rows,
          tile.n_cols};
}

Result<WeightTile> WeightPager::acquire(TileId id) {
  QSF_CHECK(id < tiles_.size());
  ++tiles_[id].holds;
  ++stats_.tiles_acquired;
  return view(tiles_[id]);
}

std::uint32_t WeightPager::acquire_ready(TileId first, std::uint32_t max_tiles,
                                         std::span<WeightTile> out) {
  QSF_CHECK(first <= tiles_.size());
  const auto n = static_cast<std::uint32_t>(
      std::min<std::size_t>({max_tiles, out.size(), tiles_.size() - first}));
  for (std::uint32_t i = 0; i < n; ++i) {
    ++tiles_[first + i].holds;
    out[i] = view(tiles_[first + i]);
  }
  stats_.tiles_acquired += n;
  return n;
}

void WeightPager::release(TileId id) {
  release(id, 1);
}

void WeightPager::release(TileId first, std::uint32_t n_tiles) {
  QSF_CHECK(first <= tiles_.size() && n_tiles <= tiles_.size() - first);
  for (std::uint32_t i = 0; i < n_tiles; ++i) {
    QSF_CHECK(tiles_[first + i].holds > 0);
    --tiles_[first + i].holds;
  }
}

std::span<float> WeightPager::vector_space(std::uint32_t section,
                                           std::uint32_t index) const noexcept {
  const Tensor& t = tensor(section, index);
  return {reinterpret_cast<float*>(region_.data() + t.vector_offset),
          static_cast<std::size_t>(align_up(t.n_cols, 16))};
}

Result<std::span<const float>> WeightPager::vector(std::uint32_t section,
                                                   std::uint32_t index) const {
  const Tensor& t = tensor(section, index);
  if (t.n_rows != 1) {
    return invalid_argument("%s: %u rows, expected a tensor of one row",
                            std::string(tensor_kind_name(t.kind)).c_str(), t.n_rows);
  }
  return std::span<const float>(vector_space(section, index).first(t.n_cols));
}

Status WeightPager::decode_row(std::uint32_t section, std::uint32_t index, std::uint32_t row,
                               std::span<float> out) {
  const Tensor& t = tensor(section, index);
  QSF_CHECK(out.size() == t.n_cols);
  if (row >= t.n_rows) {
    return invalid_argument("%s: row %u, expected 0 to %u",
                            std::string(tensor_kind_name(t.kind)).c_str(), row, t.n_rows - 1);
  }
  if (t.n_rows == 1) {
    std::ranges::copy(vector_space(section, index).first(t.n_cols), out.begin());
    return ok_status();
  }
  const std::span<const TileId> ids = tiles_of(section, index);
  const auto after = std::upper_bound(
      ids.begin(), ids.end(), row,
      [this](std::uint32_t wanted, TileId id) { return wanted < tiles_[id].first_row; });
  const TileId id = *(after - 1);
  QSF_ASSIGN_OR_RETURN(const WeightTile tile, acquire(id));
  const std::uint32_t row_in_tile = row - tile.first_row;
  decode_group_row(tile.format,
                   {tile.bytes + row_in_tile / kRowGroup * tile.group_bytes, tile.group_bytes},
                   row_in_tile % kRowGroup, tile.n_cols, out);
  release(id);
  return ok_status();
}

Status WeightPager::embedding_row(std::uint32_t row, std::span<float> out) {
  return decode_row(embedding_section(), embedding_tensor_, row, out);
}

}  // namespace qsf
