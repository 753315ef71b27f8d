// SPDX-License-Identifier: MIT

#include "stream/weight_pager.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/bit_cast.h"
#include "base/check.h"
#include "base/ranges.h"
#include "quant/interleave.h"

namespace qsf {

Result<Residency> WeightPager::plan(const QsfReader& reader, const WeightLimits& limits) {
  QSF_ASSIGN_OR_RETURN(const TileTable table, TileTable::build(reader, limits));
  Residency residency = table.residency();
  residency.table_bytes += sizeof(WeightPager) + TileSchedule::heap_bytes(table) +
                           limits.n_queues * TileReader::heap_bytes() + RowCache::heap_bytes(table);
  return residency;
}

Result<std::unique_ptr<WeightPager>> WeightPager::open(const QsfReader& reader,
                                                       const ReadDevice& device,
                                                       const Residency& residency,
                                                       MutableByteSpan region,
                                                       const PagerOptions& options) {
  QSF_ASSIGN_OR_RETURN(TileTable table, TileTable::build(reader, residency.limits));
  QSF_CHECK(table.residency().region_bytes == residency.region_bytes);
  QSF_CHECK(region.size() >= residency.region_bytes);
  QSF_CHECK(bit_cast<std::uintptr_t>(region.data()) % kTileAlign == 0);
  QSF_CHECK(!residency.limits.mapped || device.path() == ReadPath::kMmap);
  std::unique_ptr<WeightPager> pager(new WeightPager(std::move(table), device, region, options));
  const TileTable& tiles = pager->table_;
  if (residency.row_cache_bytes > 0) {
    QSF_ASSIGN_OR_RETURN(
        pager->rows_,
        RowCache::create(tiles, device, pager->schedule_,
                         region.subspan(static_cast<std::size_t>(tiles.row_cache_offset()),
                                        static_cast<std::size_t>(residency.row_cache_bytes))));
  }
  const auto staging_bytes =
      static_cast<std::size_t>(residency.staging_bytes / residency.limits.n_queues);
  const auto staging_at = static_cast<std::size_t>(tiles.staging_offset());
  for (unsigned i = 0; i < residency.limits.n_queues; ++i) {
    QSF_ASSIGN_OR_RETURN(
        std::unique_ptr<TileReader> tile_reader,
        TileReader::create(tiles, device, pager->schedule_, region,
                           region.subspan(staging_at + i * staging_bytes, staging_bytes)));
    pager->readers_.push_back(std::move(tile_reader));
    if (!options.on_threads) {
      pager->schedule_.read_while_waiting(*pager->readers_[0]);
      break;
    }
    QSF_RETURN_IF_ERROR(pager->readers_[i]->start_thread());
  }
  QSF_RETURN_IF_ERROR(pager->schedule_.wait_for_vectors());
  return pager;
}

WeightPager::WeightPager(TileTable table, const ReadDevice& device, MutableByteSpan region,
                         const PagerOptions& options)
    : table_(std::move(table)),
      region_(region),
      schedule_(table_, device, region, options.cancel),
      work_(options.work) {
  readers_.reserve(table_.residency().limits.n_queues);
}

WeightPager::~WeightPager() {
  schedule_.stop();
}

Status WeightPager::load(LoadProgress on_progress, void* user) {
  return schedule_.load(on_progress, user);
}

AccessPlan WeightPager::plan_of(std::uint32_t first, std::uint32_t last, bool with_head) const {
  AccessPlan plan;
  plan.add(table_.layer_range(first, last));
  if (with_head) plan.add(table_.head_range());
  return plan;
}

void WeightPager::start_pass(const AccessPlan& plan) {
  release_completed();
  schedule_.start_pass(plan);
}

std::uint64_t WeightPager::drop_residents(std::uint64_t bytes) {
  release_completed();
  return schedule_.drop_residents(bytes);
}

std::span<const TileId> WeightPager::tiles_of(std::uint32_t section,
                                              std::uint32_t tensor) const noexcept {
  return table_.tiles_of(table_.tensor(section, tensor));
}

WeightTile WeightPager::view(TileId id) const noexcept {
  const TileInfo& info = table_.info(id);
  const TensorInfo& tensor = table_.tensor_info(id);
  const BlockFormat format = kernel_format(tensor.format);
  const auto n_group_bytes = static_cast<std::size_t>(group_bytes(format, tensor.cols));
  return {.bytes = schedule_.bytes_of(id),
          .format = format,
          .group_bytes = n_group_bytes,
          .tensor = info.tensor,
          .first_row = info.first_row,
          .n_rows = info.n_rows,
          .n_cols = tensor.cols,
          .id = id,
          .whole_bytes = static_cast<std::uint32_t>((info.n_rows + kRowGroup - 1) / kRowGroup *
                                                    n_group_bytes)};
}

Result<WeightTile> WeightPager::acquire(TileId id) {
  release_completed();
  while (n_pending_ > 0 && schedule_.lacks_room(id)) complete_oldest();
  QSF_RETURN_IF_ERROR(schedule_.acquire(id));
  return view(id);
}

std::uint32_t WeightPager::acquire_ready(TileId first, std::uint32_t max_tiles,
                                         std::span<WeightTile> out) {
  release_completed();
  const auto most = static_cast<std::uint32_t>(std::min<std::size_t>(max_tiles, out.size()));
  const std::uint32_t n = schedule_.acquire_ready(first, most);
  for (std::uint32_t i = 0; i < n; ++i) out[i] = view(first + i);
  return n;
}

void WeightPager::release(TileId id) {
  schedule_.release(id, 1);
}

void WeightPager::release(TileId first, std::uint32_t n_tiles) {
  schedule_.release(first, n_tiles);
}

void WeightPager::release(TileId first, std::uint32_t n_tiles, Ticket ticket) {
  if (n_pending_ == 0 && (ticket == 0 || work_ == nullptr || ticket <= work_->completed())) {
    schedule_.release(first, n_tiles);
    return;
  }
  if (n_pending_ == kMaxPendingReleases) complete_oldest();
  const std::uint32_t at = (first_pending_ + n_pending_++) % kMaxPendingReleases;
  pending_[at] = {.first = first, .n_tiles = n_tiles, .ticket = ticket};
}

void WeightPager::release_completed() {
  if (n_pending_ == 0) return;
  const Ticket completed = work_->completed();
  while (n_pending_ > 0 && pending_[first_pending_].ticket <= completed) {
    const PendingRelease& oldest = pending_[first_pending_];
    schedule_.release(oldest.first, oldest.n_tiles);
    first_pending_ = (first_pending_ + 1) % kMaxPendingReleases;
    --n_pending_;
  }
}

void WeightPager::complete_oldest() {
  work_->wait_for(pending_[first_pending_].ticket);
  release_completed();
}

std::span<const float> WeightPager::vector_space(const PagedTensor& tensor) const noexcept {
  return {reinterpret_cast<const float*>(region_.data() + tensor.vector_offset), tensor.n_cols};
}

Result<std::span<const float>> WeightPager::vector(std::uint32_t section,
                                                   std::uint32_t tensor) const {
  const PagedTensor& t = table_.tensor(section, tensor);
  if (t.n_rows != 1) {
    return invalid_argument("%s: %u rows, expected a tensor of one row",
                            std::string(tensor_kind_name(t.kind)).c_str(), t.n_rows);
  }
  return vector_space(t);
}

Status WeightPager::decode_row(std::uint32_t section, std::uint32_t tensor, std::uint32_t row,
                               std::span<float> out) {
  const PagedTensor& t = table_.tensor(section, tensor);
  QSF_CHECK(out.size() == t.n_cols);
  if (row >= t.n_rows) {
    return invalid_argument("%s: row %u, expected 0 to %u",
                            std::string(tensor_kind_name(t.kind)).c_str(), row, t.n_rows - 1);
  }
  if (t.n_rows == 1) {
    ranges::copy(vector_space(t), out.begin());
    return ok_status();
  }
  const std::span<const TileId> ids = table_.tiles_of(t);
  const auto after = std::upper_bound(
      ids.begin(), ids.end(), row,
      [this](std::uint32_t wanted, TileId id) { return wanted < table_.info(id).first_row; });
  const TileId id = *(after - 1);
  if (section == embedding_section() && !schedule_.is_resident(id)) {
    return rows_->decode(table_.tensor_number(section, tensor), id, row, out);
  }
  QSF_ASSIGN_OR_RETURN(const WeightTile tile, acquire(id));
  const std::uint32_t row_in_tile = row - tile.first_row;
  decode_group_row(tile.format,
                   {tile.bytes + row_in_tile / kRowGroup * tile.group_bytes, tile.group_bytes},
                   row_in_tile % kRowGroup, tile.n_cols, out);
  release(id);
  return ok_status();
}

Status WeightPager::embedding_row(std::uint32_t row, std::span<float> out) {
  return decode_row(embedding_section(), table_.embedding_tensor(), row, out);
}

}  // namespace qsf
