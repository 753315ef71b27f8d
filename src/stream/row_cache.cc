// SPDX-License-Identifier: MIT

#include "stream/row_cache.h"

#include <utility>

#include "base/check.h"
#include "base/ranges.h"
#include "quant/codec.h"
#include "quant/interleave.h"

namespace qsf {
namespace {

std::uint64_t row_bytes(const TileTable& table) noexcept {
  return align_up(table.row_cols(), 16) * sizeof(float);
}

std::size_t n_entries(const TileTable& table) noexcept {
  const std::uint64_t bytes =
      table.residency().row_cache_bytes - table.row_read_bytes() - table.row_raw_bytes();
  return static_cast<std::size_t>(bytes / row_bytes(table));
}

}  // namespace

std::uint64_t RowCache::heap_bytes(const TileTable& table) noexcept {
  if (table.residency().row_cache_bytes == 0) return 0;
  return sizeof(RowCache) + n_entries(table) * sizeof(Entry) + TileDecompressor::heap_bytes();
}

Result<std::unique_ptr<RowCache>> RowCache::create(const TileTable& table, const ReadDevice& device,
                                                   TileSchedule& schedule, MutableByteSpan memory) {
  QSF_ASSIGN_OR_RETURN(TileDecompressor decompressor, TileDecompressor::create());
  return std::unique_ptr<RowCache>(
      new RowCache(table, schedule, memory, std::move(decompressor), device.make_blocking_queue()));
}

RowCache::RowCache(const TileTable& table, TileSchedule& schedule, MutableByteSpan memory,
                   TileDecompressor decompressor, std::unique_ptr<AsyncReader> queue)
    : table_(table),
      schedule_(schedule),
      read_(memory.first(static_cast<std::size_t>(table.row_read_bytes()))),
      raw_(memory.subspan(read_.size(), static_cast<std::size_t>(table.row_raw_bytes()))),
      decompressor_(std::move(decompressor)),
      queue_(std::move(queue)),
      entries_(n_entries(table)) {
  rows_ = memory.subspan(read_.size() + raw_.size());
}

std::span<float> RowCache::values(std::size_t entry, std::size_t n_cols) const noexcept {
  std::byte* at = rows_.data() + entry * row_bytes(table_);
  return {reinterpret_cast<float*>(at), n_cols};
}

// Some hundred entries are looked through in less time than a row takes to decode.
Status RowCache::decode(std::uint32_t tensor, TileId id, std::uint32_t row, std::span<float> out) {
  ++n_uses_;
  std::size_t oldest = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].tensor == tensor && entries_[i].row == row) {
      entries_[i].last_use = n_uses_;
      ranges::copy(values(i, out.size()), out.begin());
      return ok_status();
    }
    if (entries_[i].last_use < entries_[oldest].last_use) oldest = i;
  }
  QSF_RETURN_IF_ERROR(read_row(id, row - table_.info(id).first_row, out));
  ranges::copy(out, values(oldest, out.size()).begin());
  entries_[oldest] = {.tensor = tensor, .row = row, .last_use = n_uses_};
  return ok_status();
}

Status RowCache::read_row(TileId id, std::uint32_t row_in_tile, std::span<float> out) {
  const TileInfo& info = table_.info(id);
  const TensorInfo& tensor = table_.tensor_info(id);
  const bool grouped = tensor.layout == Layout::kInterleaved;
  const std::uint64_t bytes = grouped ? group_bytes(tensor.format, tensor.cols)
                                      : row_major_bytes(tensor.format, tensor.cols);
  const std::uint64_t offset = bytes * (grouped ? row_in_tile / kRowGroup : row_in_tile);
  ByteSpan found;
  if (info.stored_bytes == info.raw_bytes && schedule_.is_checked(id)) {
    QSF_ASSIGN_OR_RETURN(found, read_range(id, offset, bytes));
  } else {
    QSF_ASSIGN_OR_RETURN(const ByteSpan raw, read_whole(id));
    found = raw.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(bytes));
  }
  if (grouped) {
    decode_group_row(tensor.format, found, row_in_tile % kRowGroup, tensor.cols, out);
  } else {
    decode_row(tensor.format, found, out);
  }
  return ok_status();
}

// Reads a part of a tile's stored bytes.
Result<ByteSpan> RowCache::read_range(TileId id, std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t begin = offset & ~(kTileAlign - 1);
  const std::uint64_t length = align_up(offset + bytes, kTileAlign) - begin;
  queue_->start({.offset = table_.info(id).file_offset + begin,
                 .to = read_.first(static_cast<std::size_t>(length)),
                 .tag = 0});
  QSF_RETURN_IF_ERROR(table_.at_tile(id, queue_->wait().status));
  schedule_.count_row(length);
  return ByteSpan(read_).subspan(static_cast<std::size_t>(offset - begin),
                                 static_cast<std::size_t>(bytes));
}

// Reads, checks and decompresses a tile; what comes back is as the file would hold it uncompressed.
Result<ByteSpan> RowCache::read_whole(TileId id) {
  const TileInfo& info = table_.info(id);
  QSF_ASSIGN_OR_RETURN(const ByteSpan stored, read_range(id, 0, info.stored_bytes));
  const bool first = !schedule_.is_checked(id);
  if (first) QSF_RETURN_IF_ERROR(table_.check_stored(id, stored));
  ByteSpan raw = stored;
  if (info.stored_bytes != info.raw_bytes) {
    const MutableByteSpan to = raw_.first(info.raw_bytes);
    QSF_RETURN_IF_ERROR(table_.decompress(decompressor_, id, stored, to));
    raw = to;
  }
  if (!first) return raw;
  QSF_RETURN_IF_ERROR(table_.check_values(id, raw));
  schedule_.note_checked(id);
  return raw;
}

}  // namespace qsf
