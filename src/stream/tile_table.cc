// SPDX-License-Identifier: MIT
//
// From directories to tiles with places: what there is, in which order it is used, what stays.

#include "stream/tile_table.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/ranges.h"
#include "format/expert_hits.h"
#include "format/tensor_rules.h"
#include "quant/codec.h"
#include "quant/interleave.h"
#include "stream/tile_ring.h"

namespace qsf {
namespace {

constexpr std::uint64_t kVectorAlign = 64;  // of each one-row tensor
// Rows of the row cache. A generated token looks up one; fewer rows than a prompt has different
// tokens cost a read of some kilobytes for each that comes again.
constexpr std::uint64_t kLeastCachedRows = 16;
constexpr std::uint64_t kWantedCachedRows = 512;

// Returns whether the file's bytes are what kernels read.
bool is_kernel_form(const TensorInfo& tensor) noexcept {
  return tensor.layout == Layout::kInterleaved && kernel_format(tensor.format) == tensor.format;
}

// Returns the bytes of a section's one-row tensors as f32.
std::uint64_t widened_bytes(const SectionDirectory& directory) noexcept {
  std::uint64_t bytes = 0;
  for (const TensorInfo& tensor : directory.tensors) {
    if (tensor.rows == 1) {
      bytes += align_up(std::uint64_t{tensor.cols} * sizeof(float), kVectorAlign);
    }
  }
  return bytes;
}

}  // namespace

Status TileTable::at_tile(TileId id, Status status) const {
  if (status.ok()) return status;
  const std::string& path = reader_->file().path();
  const std::string& message = status.message();
  // Messages of the file layer name it themselves.
  const std::size_t named = message.starts_with(path + ": ") ? path.size() + 2 : 0;
  return {status.code(),
          reader_->tile_label(directory(id), tiles_[id].index) + ": " + message.substr(named)};
}

Status TileTable::check_stored(TileId id, ByteSpan stored) const {
  return reader_->check_tile(directory(id), tiles_[id].index, stored);
}

Status TileTable::decompress(TileDecompressor& decompressor, TileId id, ByteSpan stored,
                             MutableByteSpan raw) const {
  Status status = decompressor.run(directory(id).compression, stored, raw);
  return at_tile(id, std::move(status).with_context("the weights are damaged"));
}

Status TileTable::check_values(TileId id, ByteSpan raw) const {
  const TileInfo& tile = info(id);
  const TensorInfo& tensor = tensor_info(id);
  Status valid = check_blocks(tensor.format, tensor.layout, tile.n_rows, tensor.cols, raw);
  if (valid.ok()) return valid;
  return at_tile(id, std::move(valid).with_context(std::string(tensor_kind_name(tensor.kind)) +
                                                   " from row " + std::to_string(tile.first_row)));
}

std::uint64_t TileTable::kernel_bytes(TileId id) const noexcept {
  if (is_vectors(id)) return widened_bytes(directory(id));
  const TensorInfo& tensor = tensor_info(id);
  return rows_bytes(kernel_format(tensor.format), Layout::kInterleaved, info(id).n_rows,
                    tensor.cols);
}

std::uint64_t TileTable::place_bytes(TileId id) const noexcept {
  return align_up(std::max<std::uint64_t>(info(id).stored_bytes, kernel_bytes(id)), kTileAlign);
}

const PagedTensor& TileTable::tensor(std::uint32_t section, std::uint32_t index) const noexcept {
  return tensors_[tensor_number(section, index)];
}

std::uint32_t TileTable::tensor_number(std::uint32_t section, std::uint32_t index) const noexcept {
  QSF_CHECK(section + std::size_t{1} < first_tensor_.size());
  QSF_CHECK(index < first_tensor_[section + 1] - first_tensor_[section]);
  return first_tensor_[section] + index;
}

Result<TileTable> TileTable::build(const QsfReader& reader, const WeightLimits& limits) {
  QSF_CHECK(limits.n_queues > 0);
  TileTable table(reader);
  QSF_RETURN_IF_ERROR(table.list_tiles(limits));
  table.find_order();
  QSF_RETURN_IF_ERROR(table.count_bytes(limits));
  QSF_RETURN_IF_ERROR(table.choose(limits));
  table.lay_out();
  return table;
}

Status TileTable::list_tiles(const WeightLimits& limits) {
  std::uint64_t n_tiles = 0;
  std::uint64_t n_tensors = 0;
  const std::span<const SectionDirectory> directories = reader_->directories();
  for (const SectionDirectory& directory : directories) {
    n_tiles += directory.tiles.size();
    n_tensors += directory.tensors.size();
  }
  if (n_tiles >= kNoTile) {
    return unsupported("%s: %llu tiles, this version supports at most 2^32",
                       reader_->file().path().c_str(), static_cast<unsigned long long>(n_tiles));
  }
  tiles_.reserve(static_cast<std::size_t>(n_tiles));
  tile_ids_.reserve(static_cast<std::size_t>(n_tiles));
  order_.reserve(static_cast<std::size_t>(n_tiles));
  tensors_.reserve(static_cast<std::size_t>(n_tensors));
  first_tensor_.reserve(directories.size() + 1);
  for (std::uint32_t section = 0; section < directories.size(); ++section) {
    const bool is_layer = directories[section].kind == SectionKind::kLayer;
    list_section(section, limits.mapped, is_layer || !limits.layers_alone);
  }
  first_tensor_.push_back(static_cast<std::uint32_t>(tensors_.size()));
  n_matrix_tiles_ = n_all_tiles();
  share_expert_slots();
  for (std::uint32_t section = 0; section < directories.size(); ++section) {
    const std::vector<TileInfo>& tiles = directories[section].tiles;
    for (std::uint32_t index = 0; index < tiles.size(); ++index) {
      if (tiles[index].tensor != kOneRowTensors) continue;
      tiles_.push_back({.section = section, .index = index, .resident = true, .staged = true});
    }
  }
  const auto embedding = reader_->embedding().find(TensorKind::kTokenEmbedding);
  QSF_CHECK(embedding.has_value());  // the reader refuses files without one
  embedding_tensor_ = *embedding;
  return ok_status();
}

// An expert may take the slot of any other, so either all are used where the file is mapped, or
// none.
void TileTable::share_expert_slots() {
  const bool mapped = ranges::all_of(
      tiles_, [](const PagedTile& tile) { return tile.expert == kNoExpert || tile.mapped; });
  if (mapped) return;
  for (PagedTile& tile : tiles_) tile.mapped = tile.mapped && tile.expert == kNoExpert;
}

// Lists the tensors of a section, and its matrices' tiles where they are used.
void TileTable::list_section(std::uint32_t section, bool mapped, bool used) {
  const SectionDirectory& directory = reader_->directories()[section];
  first_tensor_.push_back(static_cast<std::uint32_t>(tensors_.size()));
  for (const TensorInfo& tensor : directory.tensors) {
    tensors_.push_back({.kind = tensor.kind, .n_rows = tensor.rows, .n_cols = tensor.cols});
  }
  if (!used) return;
  const TileId first_id = n_all_tiles();
  for (std::uint32_t index = 0; index < directory.tiles.size(); ++index) {
    const TileInfo& info = directory.tiles[index];
    if (info.tensor == kOneRowTensors) continue;
    const bool staged =
        info.stored_bytes != info.raw_bytes || !is_kernel_form(directory.tensors[info.tensor]);
    const TensorInfo& tensor = directory.tensors[info.tensor];
    tiles_.push_back(
        {.section = section,
         .index = index,
         .expert = is_expert(tensor.kind) ? expert_of(section, tensor.expert) : kNoExpert,
         .staged = staged,
         .mapped = mapped && !staged});
  }
  group_tiles(section, first_id);
}

// Lists the tiles of a section, those from `first_id` on, by tensor and in order of rows.
void TileTable::group_tiles(std::uint32_t section, TileId first_id) {
  const std::span<PagedTensor> tensors = std::span(tensors_).subspan(first_tensor_[section]);
  auto next = static_cast<std::uint32_t>(tile_ids_.size());
  for (TileId id = first_id; id < tiles_.size(); ++id) ++tensors[info(id).tensor].n_ids;
  for (PagedTensor& tensor : tensors) {
    tensor.first_id = next;
    next += std::exchange(tensor.n_ids, 0);
  }
  tile_ids_.resize(next);
  for (TileId id = first_id; id < tiles_.size(); ++id) {
    PagedTensor& tensor = tensors[info(id).tensor];
    tile_ids_[tensor.first_id + tensor.n_ids++] = id;
  }
}

void TileTable::find_order() {
  const auto n_sections = static_cast<std::uint32_t>(reader_->directories().size());
  const auto is_tied_head = [this](TileId id) {
    return reader_->spec().tied_head && info(id).tensor == embedding_tensor_;
  };
  TileId first_layer_id = 0;
  while (first_layer_id < n_matrix_tiles_ && tiles_[first_layer_id].section == 0) ++first_layer_id;
  for (TileId id = first_layer_id; id < n_matrix_tiles_; ++id) {
    if (tiles_[id].section == n_sections - 1) break;
    if (tiles_[id].expert == kNoExpert) order_.push_back(id);
  }
  head_begin_ = static_cast<std::uint32_t>(order_.size());
  for (TileId id = first_layer_id; id < n_matrix_tiles_; ++id) {
    if (tiles_[id].section == n_sections - 1) order_.push_back(id);
  }
  for (TileId id = 0; id < first_layer_id; ++id) {
    if (is_tied_head(id)) order_.push_back(id);
  }
  head_end_ = static_cast<std::uint32_t>(order_.size());
  for (TileId id = 0; id < first_layer_id; ++id) {
    if (!is_tied_head(id)) order_.push_back(id);
  }
  order_experts();
  for (std::uint32_t position = 0; position < order_.size(); ++position) {
    tiles_[order_[position]].position = position;
  }
}

// Appends the tiles of the experts, expert by expert.
void TileTable::order_experts() {
  const ModelSpec& spec = reader_->spec();
  // A part of a mixture of experts may have none.
  const bool any =
      ranges::any_of(tiles_, [](const PagedTile& tile) { return tile.expert != kNoExpert; });
  if (!any) return;
  const std::size_t n_experts = std::size_t{spec.n_layers} * spec.n_experts;
  const std::size_t first = order_.size();
  for (TileId id = 0; id < n_matrix_tiles_; ++id) {
    if (tiles_[id].expert != kNoExpert) order_.push_back(id);
  }
  std::stable_sort(order_.begin() + static_cast<std::ptrdiff_t>(first), order_.end(),
                   [this](TileId a, TileId b) { return tiles_[a].expert < tiles_[b].expert; });
  expert_begin_.reserve(n_experts + 1);
  auto at = static_cast<std::uint32_t>(first);
  for (ExpertId expert = 0; expert < n_experts; ++expert) {
    expert_begin_.push_back(at);
    while (at < order_.size() && tiles_[order_[at]].expert == expert) ++at;
  }
  expert_begin_.push_back(at);
}

TileRange TileTable::layer_range(std::uint32_t first, std::uint32_t last) const noexcept {
  const std::span<const TileId> layers = order().first(head_begin_);
  const auto start_of = [&](std::uint32_t layer) {
    const auto at = std::partition_point(layers.begin(), layers.end(), [&](TileId id) {
      return tiles_[id].section < layer + 1;  // section 0 has the embeddings
    });
    return static_cast<std::uint32_t>(at - layers.begin());
  };
  return {start_of(first), start_of(last)};
}

Status TileTable::count_bytes(const WeightLimits& limits) {
  std::uint64_t stored_staging = 0;
  std::uint64_t raw_staging = 0;
  std::uint64_t total = 0;
  for (TileId id = 0; id < n_all_tiles(); ++id) {
    const TileInfo& tile = info(id);
    const bool compressed = tile.stored_bytes != tile.raw_bytes;
    const bool relaid = is_vectors(id) || !is_kernel_form(tensor_info(id));
    if (tiles_[id].staged)
      stored_staging = std::max<std::uint64_t>(stored_staging, tile.stored_bytes);
    if (compressed && relaid) raw_staging = std::max<std::uint64_t>(raw_staging, tile.raw_bytes);
    const auto sum = checked_add(total, place_bytes(id));
    if (!sum || *sum > std::numeric_limits<std::size_t>::max() / 4) {
      return unsupported("%s: the weights exceed the address space",
                         reader_->file().path().c_str());
    }
    total = *sum;
    residency_.stored_bytes += tile.stored_bytes;
    if (is_vectors(id)) {
      residency_.vector_bytes += place_bytes(id);
      continue;
    }
    residency_.weight_bytes += kernel_bytes(id);
    all_place_bytes_ += place_bytes(id);
    if (tiles_[id].expert != kNoExpert) continue;
    largest_place_bytes_ = std::max(largest_place_bytes_, place_bytes(id));
    if (tiles_[id].position < head_end_) pass_place_bytes_ += place_bytes(id);
  }
  stored_staging_bytes_ = align_up(stored_staging, kVectorAlign);
  raw_staging_bytes_ = align_up(raw_staging, kVectorAlign);
  residency_.staging_bytes =
      limits.n_queues * align_up(stored_staging_bytes_ + raw_staging_bytes_, kTileAlign);
  measure_rows();
  measure_experts();
  return ok_status();
}

void TileTable::measure_experts() {
  if (expert_begin_.empty()) return;
  const std::size_t n_experts = expert_begin_.size() - 1;
  expert_bytes_.reserve(n_experts);
  std::uint64_t stored_bytes = 0;
  for (ExpertId expert = 0; expert < n_experts; ++expert) {
    std::uint64_t bytes = 0;
    for (const TileId id : tiles_of_expert(expert)) {
      bytes += place_bytes(id);
      stored_bytes += info(id).stored_bytes;
    }
    expert_bytes_.push_back(bytes);
    largest_expert_bytes_ = std::max(largest_expert_bytes_, bytes);
    if (bytes != 0) ++residency_.n_experts;
  }
  const ModelSpec& spec = reader_->spec();
  residency_.expert_pass_bytes = stored_bytes / spec.n_experts * spec.n_experts_used;
}

// Rows are looked up in the matrices of the embedding section.
void TileTable::measure_rows() {
  std::uint64_t n_rows = 0;
  for (TileId id = 0; id < n_matrix_tiles_ && tiles_[id].section == 0; ++id) {
    const TileInfo& tile = info(id);
    row_read_bytes_ = std::max(row_read_bytes_, align_up(tile.stored_bytes, kTileAlign));
    if (tile.stored_bytes != tile.raw_bytes) {
      row_raw_bytes_ = std::max(row_raw_bytes_, align_up(tile.raw_bytes, kTileAlign));
    }
    row_cols_ = std::max(row_cols_, tensor_info(id).cols);
    n_rows += tile.n_rows;
  }
  const std::uint64_t row_bytes = align_up(std::uint64_t{row_cols_} * sizeof(float), kVectorAlign);
  const auto cache_bytes = [&](std::uint64_t rows) {
    return align_up(std::min(rows, n_rows) * row_bytes, kTileAlign) + row_read_bytes_ +
           row_raw_bytes_;
  };
  least_row_bytes_ = cache_bytes(kLeastCachedRows);
  wanted_row_bytes_ = cache_bytes(kWantedCachedRows);
}

Status TileTable::choose(const WeightLimits& limits) {
  Residency& r = residency_;
  r.limits = limits;
  const std::uint64_t experts = std::min(kLeastExpertSlots, r.n_experts) * largest_expert_bytes_;
  const std::uint64_t fixed = r.vector_bytes + r.staging_bytes;
  const std::uint64_t least = fixed + least_row_bytes_ + experts + least_ring_bytes();
  const std::uint64_t everything = fixed + all_place_bytes_;
  r.least_bytes = std::min(least, everything);
  r.everything_resident = everything <= limits.bytes;
  if (r.everything_resident) {
    for (TileId id = 0; id < n_matrix_tiles_; ++id) tiles_[id].resident = true;
  } else if (limits.bytes < least) {
    return out_of_budget("%s: %llu bytes for weights, streaming needs at least %llu",
                         reader_->file().path().c_str(),
                         static_cast<unsigned long long>(limits.bytes),
                         static_cast<unsigned long long>(r.least_bytes));
  } else {
    spend(limits.bytes - least);
  }
  sum_up();
  return ok_status();
}

// Where experts come and go, all the rest may stay even when it is less than a ring.
std::uint64_t TileTable::least_ring_bytes() const noexcept {
  const std::uint64_t ring = kLeastRingTiles * largest_place_bytes_;
  return has_experts() ? std::min(ring, pass_place_bytes_) : ring;
}

// Divides the bytes beyond the least. They go to what every token reads: to keep all of it, or else
// to a ring that keeps the disk busy, to rows, and to tiles that stay. The rest goes to experts.
void TileTable::spend(std::uint64_t spare) {
  Residency& r = residency_;
  const auto take = [&spare](std::uint64_t most) {
    const std::uint64_t bytes = std::min(spare & ~(kTileAlign - 1), most);
    spare -= bytes;
    return bytes;
  };
  const std::uint64_t least_ring = least_ring_bytes();
  const std::uint32_t least_slots = std::min(kLeastExpertSlots, r.n_experts);
  const bool keeps_pass = has_experts() && spare >= pass_place_bytes_ - least_ring;
  if (keeps_pass) {
    spare -= pass_place_bytes_ - least_ring;
    for (const TileId id : order().first(head_end_)) tiles_[id].resident = true;
  } else {
    const std::uint64_t wished_ring =
        align_up(r.limits.ring_bytes != 0 ? r.limits.ring_bytes : kDefaultRingBytes, kTileAlign);
    r.ring_bytes = least_ring + take(std::max(least_ring, wished_ring) - least_ring);
  }
  r.row_cache_bytes = least_row_bytes_ + take(wanted_row_bytes_ - least_row_bytes_);
  if (!keeps_pass) pin(spare);
  if (!has_experts()) return;
  const std::uint64_t more = keeps_pass ? spare / largest_expert_bytes_ : 0;
  r.n_expert_slots =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(r.n_experts, least_slots + more));
  r.expert_cache_bytes = r.n_expert_slots * largest_expert_bytes_;
}

void TileTable::sum_up() {
  Residency& r = residency_;
  if (r.everything_resident) r.n_expert_slots = r.n_experts;
  std::uint64_t resident_bytes = 0;
  for (const TileId id : order_) {
    const bool in_pass = tiles_[id].position < head_end_;
    if (in_pass) r.pass_bytes += kernel_bytes(id);
    if (in_pass && tiles_[id].resident) resident_bytes += kernel_bytes(id);
    if (in_pass && !tiles_[id].resident) r.streamed_bytes += info(id).stored_bytes;
    if (tiles_[id].resident) r.pinned_bytes += place_bytes(id);
  }
  for (TileId id = 0; id < n_all_tiles(); ++id) {
    if (tiles_[id].resident) r.resident_stored_bytes += info(id).stored_bytes;
  }
  if (has_experts()) {
    std::uint64_t expert_bytes = 0;
    for (const std::uint64_t bytes : expert_bytes_) expert_bytes += bytes;
    const std::uint64_t used =
        expert_bytes / reader_->spec().n_experts * reader_->spec().n_experts_used;
    r.pass_bytes += used;
    resident_bytes += used / r.n_experts * r.n_expert_slots;
    const double cached = static_cast<double>(r.n_expert_slots) / r.n_experts;
    // What is read once is no read of a token's.
    r.expert_hits = cached == 1.0 ? 1.0 : expected_hits(reader_->spec().expert_hits, cached);
  }
  r.resident_share = r.pass_bytes == 0
                         ? 1.0
                         : static_cast<double>(resident_bytes) / static_cast<double>(r.pass_bytes);
}

// Keeps tiles of up to `bytes`: those of the head first, then as many of each layer as of any.
void TileTable::pin(std::uint64_t bytes) {
  std::uint64_t head_bytes = 0;
  std::uint64_t layer_bytes = 0;
  for (std::uint32_t p = 0; p < head_end_; ++p) {
    (p < head_begin_ ? layer_bytes : head_bytes) += place_bytes(order_[p]);
  }
  pin_evenly(head_begin_, head_end_, head_bytes, std::min(bytes, head_bytes));
  bytes -= std::min(bytes, head_bytes);
  pin_evenly(0, head_begin_, layer_bytes, std::min(bytes, layer_bytes));
}

// Keeps `pin_bytes` of `total_bytes`, the tiles at positions [begin, end): wherever one looks, the
// share kept so far is the same, give or take a tile.
void TileTable::pin_evenly(std::uint32_t begin, std::uint32_t end, std::uint64_t total_bytes,
                           std::uint64_t pin_bytes) {
  std::uint64_t seen = 0;
  std::uint64_t pinned = 0;
  for (std::uint32_t p = begin; p < end; ++p) {
    const std::uint64_t bytes = place_bytes(order_[p]);
    seen += bytes;
    const double due = static_cast<double>(pin_bytes) *
                       (static_cast<double>(seen) / static_cast<double>(total_bytes));
    const bool fits = pinned + bytes <= pin_bytes;
    if (!fits || static_cast<double>(pinned + bytes) > due + 0.5) continue;
    pinned += bytes;
    tiles_[order_[p]].resident = true;
  }
}

// Gives the tiles that stay their places, in the order of positions [begin, end).
void TileTable::lay_out_tiles(std::uint32_t begin, std::uint32_t end, std::uint64_t& offset) {
  for (std::uint32_t p = begin; p < end; ++p) {
    PagedTile& tile = tiles_[order_[p]];
    if (!tile.resident || tile.mapped) continue;
    tile.offset = offset;
    offset += place_bytes(order_[p]);
  }
}

// Gives experts their slots, and their tiles places in these. Returns the bytes of slots that are
// not those of resident tiles.
std::uint64_t TileTable::lay_out_experts(std::uint64_t& offset) {
  const Residency& r = residency_;
  const bool resident = r.everything_resident;
  bool copies = false;
  expert_slots_.reserve(r.n_expert_slots);
  for (ExpertId expert = 0; expert < expert_bytes_.size(); ++expert) {
    std::uint64_t at = 0;  // in its slot, which holds no mapped tile
    for (const TileId id : tiles_of_expert(expert)) {
      if (tiles_[id].mapped) continue;
      tiles_[id].offset = at;
      at += place_bytes(id);
    }
    copies = copies || at != 0;
    if (!resident || expert_bytes_[expert] == 0) continue;
    expert_slots_.push_back(
        {.offset = offset, .region_bytes = at, .bytes = expert_bytes_[expert], .expert = expert});
    offset += at;
  }
  if (resident) return 0;
  for (std::uint32_t slot = 0; slot < r.n_expert_slots; ++slot) {
    const std::uint64_t region_bytes = copies ? largest_expert_bytes_ : 0;
    expert_slots_.push_back(
        {.offset = offset, .region_bytes = region_bytes, .bytes = largest_expert_bytes_});
    offset += region_bytes;
  }
  return r.expert_cache_bytes;
}

void TileTable::lay_out() {
  Residency& r = residency_;
  std::uint64_t offset = 0;
  for (TileId id = n_matrix_tiles_; id < n_all_tiles(); ++id) {
    tiles_[id].offset = offset;
    const std::vector<TensorInfo>& tensors = directory(id).tensors;
    std::uint64_t at = offset;
    for (std::uint32_t t = 0; t < tensors.size(); ++t) {
      if (tensors[t].rows != 1) continue;
      tensors_[first_tensor_[tiles_[id].section] + t].vector_offset = at;
      at += align_up(std::uint64_t{tensors[t].cols} * sizeof(float), kVectorAlign);
    }
    offset += place_bytes(id);
  }
  const auto n_positions = static_cast<std::uint32_t>(order_.size());
  lay_out_tiles(head_begin_, has_experts() ? expert_begin_[0] : n_positions, offset);
  const std::uint64_t slot_bytes = lay_out_experts(offset);
  lay_out_tiles(0, head_begin_, offset);
  r.mapped_bytes = r.vector_bytes + r.pinned_bytes + slot_bytes - offset;
  ring_offset_ = offset;
  const bool copies = std::any_of(tiles_.begin(), tiles_.begin() + n_matrix_tiles_,
                                  [](const PagedTile& tile) { return !tile.mapped; });
  (copies ? offset : r.mapped_bytes) += r.ring_bytes;
  staging_offset_ = offset;
  offset += r.staging_bytes;
  row_cache_offset_ = offset;
  r.region_bytes = offset + r.row_cache_bytes;
  r.table_bytes =
      tiles_.capacity() * sizeof(PagedTile) + expert_begin_.capacity() * sizeof(std::uint32_t) +
      expert_bytes_.capacity() * sizeof(std::uint64_t) +
      expert_slots_.capacity() * sizeof(ExpertCache::Slot) +
      tensors_.capacity() * sizeof(PagedTensor) + first_tensor_.capacity() * sizeof(std::uint32_t) +
      (tile_ids_.capacity() + order_.capacity()) * sizeof(TileId);
}

}  // namespace qsf
