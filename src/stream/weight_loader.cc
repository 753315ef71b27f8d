// SPDX-License-Identifier: MIT
//
// From directories to tables, and from tiles of a file to tiles of memory.

#include "stream/weight_loader.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "platform/threads.h"
#include "quant/codec.h"
#include "quant/interleave.h"

namespace qsf {
namespace {

constexpr std::uint64_t kRegionAlign = 64;  // of tiles and vectors; what kernels load from

// Returns whether the file's bytes are what kernels read.
bool is_kernel_form(const TensorInfo& tensor) noexcept {
  return tensor.layout == Layout::kInterleaved && kernel_format(tensor.format) == tensor.format;
}

// Bytes of scratch that one worker needs: for compressed tiles, and for tiles to be re-laid.
struct ScratchBytes {
  std::uint64_t stored = 0;
  std::uint64_t raw = 0;
};

ScratchBytes scratch_bytes(const QsfReader& reader) noexcept {
  ScratchBytes bytes;
  for (const SectionDirectory& directory : reader.directories()) {
    for (const TileInfo& tile : directory.tiles) {
      if (tile.stored_bytes != tile.raw_bytes) {
        bytes.stored = std::max<std::uint64_t>(bytes.stored, tile.stored_bytes);
      }
      if (tile.tensor == kOneRowTensors || !is_kernel_form(directory.tensors[tile.tensor])) {
        bytes.raw = std::max<std::uint64_t>(bytes.raw, tile.raw_bytes);
      }
    }
  }
  return {align_up(bytes.stored, kRegionAlign), align_up(bytes.raw, kRegionAlign)};
}

}  // namespace

// Lists the tiles of the last section, those from `first_id` on, by tensor and in order of rows.
void WeightLoader::group_tiles(WeightPager& pager, TileId first_id) {
  const std::span<WeightPager::Tensor> tensors =
      std::span(pager.tensors_).subspan(pager.first_tensor_.back());
  const std::span<const WeightPager::Tile> tiles = std::span(pager.tiles_).subspan(first_id);
  auto next = static_cast<std::uint32_t>(pager.tile_ids_.size());
  for (const WeightPager::Tile& tile : tiles) ++tensors[tile.tensor].n_ids;
  for (WeightPager::Tensor& tensor : tensors) {
    tensor.first_id = next;
    next += std::exchange(tensor.n_ids, 0);
  }
  pager.tile_ids_.resize(next);
  for (TileId id = first_id; id < pager.tiles_.size(); ++id) {
    WeightPager::Tensor& tensor = tensors[pager.tiles_[id].tensor];
    pager.tile_ids_[tensor.first_id + tensor.n_ids++] = id;
  }
}

Result<Residency> WeightLoader::lay_out(const QsfReader& reader, unsigned n_threads,
                                        WeightPager& pager) {
  QSF_CHECK(n_threads > 0);
  Residency needs;
  std::uint64_t offset = 0;
  std::uint64_t n_tiles = 0;
  std::uint64_t n_tensors = 0;
  for (const SectionDirectory& directory : reader.directories()) {
    n_tiles += directory.tiles.size();
    n_tensors += directory.tensors.size();
  }
  if (n_tiles >= std::numeric_limits<TileId>::max()) {
    return unsupported("%s: %llu tiles, this version numbers at most 2^32",
                       reader.file().path().c_str(), static_cast<unsigned long long>(n_tiles));
  }
  pager.tiles_.reserve(static_cast<std::size_t>(n_tiles));
  pager.tile_ids_.reserve(static_cast<std::size_t>(n_tiles));
  pager.tensors_.reserve(static_cast<std::size_t>(n_tensors));
  pager.first_tensor_.reserve(reader.directories().size() + 1);

  // Takes `bytes` of the region; false when 64 bits do not count them.
  const auto place = [&offset](std::uint64_t bytes) {
    const auto end = checked_add(offset, align_up(bytes, kRegionAlign));
    if (!end || *end > std::numeric_limits<std::size_t>::max() / 2) return false;
    offset = *end;
    return true;
  };
  bool fits = true;
  for (const SectionDirectory& directory : reader.directories()) {
    pager.first_tensor_.push_back(static_cast<std::uint32_t>(pager.tensors_.size()));
    const auto first_id = static_cast<TileId>(pager.tiles_.size());
    for (const TensorInfo& tensor : directory.tensors) {
      pager.tensors_.push_back({tensor.kind, tensor.rows, tensor.cols, 0, 0, offset});
      if (tensor.rows == 1) fits = fits && place(std::uint64_t{tensor.cols} * sizeof(float));
    }
    for (const TileInfo& tile : directory.tiles) {
      needs.stored_bytes += tile.stored_bytes;
      if (tile.tensor == kOneRowTensors) continue;
      const TensorInfo& tensor = directory.tensors[tile.tensor];
      const BlockFormat format = kernel_format(tensor.format);
      pager.tiles_.push_back({offset, group_bytes(format, tensor.cols), format, tile.tensor,
                              tile.first_row, tile.n_rows, tensor.cols, 0});
      fits = fits && place(rows_bytes(format, Layout::kInterleaved, tile.n_rows, tensor.cols));
    }
    group_tiles(pager, first_id);
  }
  pager.first_tensor_.push_back(static_cast<std::uint32_t>(pager.tensors_.size()));
  if (!fits) {
    return unsupported("%s: the weights exceed the address space", reader.file().path().c_str());
  }
  const auto embedding = reader.embedding().find(TensorKind::kTokenEmbedding);
  QSF_CHECK(embedding.has_value());  // the reader refuses files without one
  pager.embedding_tensor_ = *embedding;

  const ScratchBytes scratch = scratch_bytes(reader);
  needs.resident_bytes = offset;
  needs.scratch_bytes = n_threads * (scratch.stored + scratch.raw);
  needs.table_bytes = sizeof(WeightPager) + pager.tiles_.capacity() * sizeof(WeightPager::Tile) +
                      pager.tile_ids_.capacity() * sizeof(TileId) +
                      pager.tensors_.capacity() * sizeof(WeightPager::Tensor) +
                      pager.first_tensor_.capacity() * sizeof(std::uint32_t) +
                      n_tiles * sizeof(Item);
  return needs;
}

WeightLoader::WeightLoader(const QsfReader& reader, WeightPager& pager, MutableByteSpan scratch,
                           const LoadOptions& options)
    : reader_(reader),
      pager_(pager),
      options_(options),
      first_failed_(std::numeric_limits<std::size_t>::max()) {
  TileId id = 0;
  std::uint32_t section = 0;
  for (const SectionDirectory& directory : reader.directories()) {
    for (std::uint32_t tile = 0; tile < directory.tiles.size(); ++tile) {
      items_.push_back({section, tile, id});
      total_bytes_ += directory.tiles[tile].stored_bytes;
      if (directory.tiles[tile].tensor != kOneRowTensors) ++id;
    }
    ++section;
  }
  const ScratchBytes bytes = scratch_bytes(reader);
  const unsigned n_workers = options.threads == nullptr ? 1 : options.threads->n_threads();
  QSF_CHECK(scratch.size() >= n_workers * (bytes.stored + bytes.raw));
  for (unsigned worker = 0; worker < n_workers; ++worker) {
    const auto begin = static_cast<std::size_t>(worker * (bytes.stored + bytes.raw));
    const auto n_stored = static_cast<std::size_t>(bytes.stored);
    scratch_.push_back({scratch.subspan(begin, n_stored),
                        scratch.subspan(begin + n_stored, static_cast<std::size_t>(bytes.raw))});
  }
}

Status WeightLoader::run() {
  if (options_.threads == nullptr) {
    load_items(0, items_.size(), 0);
  } else {
    options_.threads->parallel_for(items_.size(), 1,
                                   [this](std::size_t begin, std::size_t end, unsigned worker) {
                                     load_items(begin, end, worker);
                                   });
  }
  if (!failure_.ok()) return std::move(failure_);
  if (cancelled_.load()) {
    return cancelled("%s: loading was cancelled after %llu of %llu bytes",
                     reader_.file().path().c_str(),
                     static_cast<unsigned long long>(done_bytes_.load()),
                     static_cast<unsigned long long>(total_bytes_));
  }
  return ok_status();
}

void WeightLoader::load_items(std::size_t begin, std::size_t end, unsigned worker) {
  for (std::size_t i = begin; i < end; ++i) {
    if (options_.cancel != nullptr && options_.cancel->load()) cancelled_.store(true);
    // Tiles are handed out in ascending order: whoever holds an earlier one still finishes it, so
    // the failure reported is the first of the file with any number of threads.
    if (cancelled_.load() || i > first_failed_.load()) return;
    Status status = load_item(items_[i], scratch_[worker]);
    if (!status.ok()) return note_failure(i, std::move(status));
    const std::uint64_t stored =
        reader_.directories()[items_[i].section].tiles[items_[i].tile].stored_bytes;
    const std::uint64_t done = done_bytes_.fetch_add(stored) + stored;
    if (worker == 0 && options_.on_progress != nullptr) {
      options_.on_progress(done, total_bytes_, options_.progress_user);
    }
  }
}

void WeightLoader::note_failure(std::size_t index, Status status) {
  const std::lock_guard lock(mutex_);
  if (index >= first_failed_.load()) return;
  first_failed_.store(index);
  failure_ = std::move(status);
}

Status WeightLoader::load_item(const Item& item, const Scratch& scratch) {
  const SectionDirectory& directory = reader_.directories()[item.section];
  return directory.tiles[item.tile].tensor == kOneRowTensors
             ? load_vectors(directory, item, scratch)
             : load_matrix_tile(directory, item, scratch);
}

Status WeightLoader::load_matrix_tile(const SectionDirectory& directory, const Item& item,
                                      const Scratch& scratch) {
  const TileInfo& info = directory.tiles[item.tile];
  const TensorInfo& tensor = directory.tensors[info.tensor];
  const WeightPager::Tile& tile = pager_.tiles_[item.id];
  const std::uint64_t out_bytes =
      rows_bytes(tile.format, Layout::kInterleaved, tile.n_rows, tile.n_cols);
  const MutableByteSpan out = pager_.region_.subspan(static_cast<std::size_t>(tile.offset),
                                                     static_cast<std::size_t>(out_bytes));
  const bool in_place = is_kernel_form(tensor);
  const MutableByteSpan raw = in_place ? out : scratch.raw.first(info.raw_bytes);
  QSF_RETURN_IF_ERROR(reader_.read_tile(directory, item.tile, scratch.stored, raw));
  Status valid = check_blocks(tensor.format, tensor.layout, info.n_rows, tensor.cols, raw);
  if (!valid.ok()) {
    return std::move(valid).with_context(
        reader_.file().path() + ": " + section_label(directory.kind, directory.layer) + ": tile " +
        std::to_string(item.tile) + " at offset " + std::to_string(info.file_offset) + ": " +
        std::string(tensor_kind_name(tensor.kind)) + " from row " + std::to_string(info.first_row));
  }
  if (!in_place) {
    to_kernel_form(tensor.format, tensor.layout, info.n_rows, tensor.cols, raw, out);
  }
  return ok_status();
}

Status WeightLoader::load_vectors(const SectionDirectory& directory, const Item& item,
                                  const Scratch& scratch) {
  const TileInfo& info = directory.tiles[item.tile];
  const MutableByteSpan raw = scratch.raw.first(info.raw_bytes);
  QSF_RETURN_IF_ERROR(reader_.read_tile(directory, item.tile, scratch.stored, raw));
  for (std::uint32_t t = 0; t < directory.tensors.size(); ++t) {
    const TensorInfo& tensor = directory.tensors[t];
    if (tensor.rows != 1) continue;
    const ByteSpan row = ByteSpan(raw).subspan(
        static_cast<std::size_t>(one_row_offset(directory.tensors, t)),
        static_cast<std::size_t>(row_major_bytes(tensor.format, tensor.cols)));
    Status valid = check_blocks(tensor.format, Layout::kRowMajor, 1, tensor.cols, row);
    if (!valid.ok()) {
      return std::move(valid).with_context(
          reader_.file().path() + ": " + section_label(directory.kind, directory.layer) +
          ": tile " + std::to_string(item.tile) + " at offset " + std::to_string(info.file_offset) +
          ": " + std::string(tensor_kind_name(tensor.kind)));
    }
    const std::span<float> out = pager_.vector_space(item.section, t);
    std::fill(out.begin() + tensor.cols, out.end(), 0.0F);
    decode_row(tensor.format, row, out.first(tensor.cols));
  }
  return ok_status();
}

}  // namespace qsf
