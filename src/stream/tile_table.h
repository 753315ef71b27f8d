// SPDX-License-Identifier: MIT
//
// TileTable: every tile and tensor of a file with its place in memory, and the choice of resident
// tiles. It is built from the directories alone; WeightPager::plan and open build the same one.
//
// The order of a pass is that of the file, layer by layer, and then the output head, which for a
// tied head is at the beginning of the file. Embeddings that are looked up row by row come last and
// are resident only when everything is.
//
// The region, every part aligned to kTileAlign:
//
//   vectors | resident head and embeddings | experts | resident layer tiles | ring | staging |
//   row cache
//
// Experts are apart, because a pass reads those alone that its rows choose: they follow the
// embeddings in the order, each one whole, and have slots that they come to and leave
// (ExpertCache). Where everything is resident each has a slot of its own.

#ifndef QSF_STREAM_TILE_TABLE_H_
#define QSF_STREAM_TILE_TABLE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "format/qsf_reader.h"
#include "format/tile_codec.h"
#include "quant/weight_tile.h"
#include "stream/access_plan.h"
#include "stream/expert_cache.h"
#include "stream/residency.h"

namespace qsf {

// TileIds count the tiles of matrices in the order of the file. The tiles of one-row tensors have
// no number that users see; inside they follow the last matrix.

struct PagedTile {
  // Of its place in the region, or in the slot of its expert; for resident tiles and those of
  // experts, where they are not mapped.
  std::uint64_t offset = 0;
  std::uint32_t section = 0;   // in QsfReader::directories()
  std::uint32_t index = 0;     // in the section's tiles
  std::uint32_t position = 0;  // in TileTable::order; matrices alone
  ExpertId expert = kNoExpert;
  bool resident = false;
  bool staged = false;  // compressed, or not in the form of kernels
  bool mapped = false;  // used where the file is mapped
};

struct PagedTensor {
  TensorKind kind{};
  std::uint32_t n_rows = 0;
  std::uint32_t n_cols = 0;
  std::uint32_t first_id = 0;  // in TileTable::tile_ids
  std::uint32_t n_ids = 0;
  std::uint64_t vector_offset = 0;  // in the region, tensors of one row
};

class TileTable {
 public:
  // Fails  kUnsupported when tables or weights exceed what this build addresses; kOutOfBudget when
  //        limits.bytes is below the least that works, with both numbers
  static Result<TileTable> build(const QsfReader& reader, const WeightLimits& limits);

  const QsfReader& reader() const noexcept { return *reader_; }
  const Residency& residency() const noexcept { return residency_; }

  std::uint32_t n_tiles() const noexcept { return n_matrix_tiles_; }
  // Tiles of matrices, then those of one-row tensors.
  std::uint32_t n_all_tiles() const noexcept { return static_cast<std::uint32_t>(tiles_.size()); }
  const PagedTile& tile(TileId id) const noexcept { return tiles_[id]; }
  PagedTile& tile(TileId id) noexcept { return tiles_[id]; }
  const SectionDirectory& directory(TileId id) const noexcept {
    return reader_->directories()[tiles_[id].section];
  }
  const TileInfo& info(TileId id) const noexcept { return directory(id).tiles[tiles_[id].index]; }
  bool is_vectors(TileId id) const noexcept { return id >= n_matrix_tiles_; }
  const TensorInfo& tensor_info(TileId id) const noexcept {
    return directory(id).tensors[info(id).tensor];
  }
  // Prefixes an error with the place of a tile.
  Status at_tile(TileId id, Status status) const;
  // The steps of a tile after its read; check_values for tiles of matrices alone.
  // Fails  kCorrupt, with the tile's place
  Status check_stored(TileId id, ByteSpan stored) const;
  Status decompress(TileDecompressor& decompressor, TileId id, ByteSpan stored,
                    MutableByteSpan raw) const;
  Status check_values(TileId id, ByteSpan raw) const;
  // Bytes of a tile as kernels read it; of one-row tensors, as f32.
  std::uint64_t kernel_bytes(TileId id) const noexcept;
  // Bytes of its place: whole pages, for the stored bytes and for the decoded ones.
  std::uint64_t place_bytes(TileId id) const noexcept;

  const PagedTensor& tensor(std::uint32_t section, std::uint32_t index) const noexcept;
  // Returns the number of a tensor among all.
  std::uint32_t tensor_number(std::uint32_t section, std::uint32_t index) const noexcept;
  std::span<const TileId> tiles_of(const PagedTensor& tensor) const noexcept {
    return std::span(tile_ids_).subspan(tensor.first_id, tensor.n_ids);
  }
  std::uint32_t embedding_tensor() const noexcept { return embedding_tensor_; }

  // Tiles by position: a whole pass uses [0, head_end), the head from head_begin on, and experts.
  std::span<const TileId> order() const noexcept { return order_; }
  std::uint32_t head_begin() const noexcept { return head_begin_; }
  std::uint32_t head_end() const noexcept { return head_end_; }
  // The positions of layers [first, last). Requires  first <= last <= layers
  TileRange layer_range(std::uint32_t first, std::uint32_t last) const noexcept;
  TileRange head_range() const noexcept { return {head_begin_, head_end_}; }

  // An expert of a layer's section. Requires  the model has experts
  ExpertId expert_of(std::uint32_t section, std::uint32_t expert) const noexcept {
    return (section - 1) * reader_->spec().n_experts + expert;
  }
  std::span<const TileId> tiles_of_expert(ExpertId id) const noexcept {
    return order().subspan(expert_begin_[id], expert_begin_[id + 1] - expert_begin_[id]);
  }
  // Their slots when the model is opened, and the bytes of each expert in a slot.
  const std::vector<ExpertCache::Slot>& expert_slots() const noexcept { return expert_slots_; }
  std::span<const std::uint64_t> expert_bytes() const noexcept { return expert_bytes_; }
  bool has_experts() const noexcept { return !expert_bytes_.empty(); }

  // Where parts of the region begin.
  std::uint64_t ring_offset() const noexcept { return ring_offset_; }
  std::uint64_t staging_offset() const noexcept { return staging_offset_; }
  std::uint64_t row_cache_offset() const noexcept { return row_cache_offset_; }
  // Bytes of a thread's staging, for stored and for decompressed bytes of one tile.
  std::uint64_t stored_staging_bytes() const noexcept { return stored_staging_bytes_; }
  std::uint64_t raw_staging_bytes() const noexcept { return raw_staging_bytes_; }
  // Bytes at the start of the row cache for stored and for decompressed bytes.
  std::uint64_t row_read_bytes() const noexcept { return row_read_bytes_; }
  std::uint64_t row_raw_bytes() const noexcept { return row_raw_bytes_; }
  std::uint32_t row_cols() const noexcept { return row_cols_; }
  std::uint64_t largest_place_bytes() const noexcept { return largest_place_bytes_; }

 private:
  explicit TileTable(const QsfReader& reader) noexcept : reader_(&reader) {}

  Status list_tiles(const WeightLimits& limits);
  void share_expert_slots();
  void list_section(std::uint32_t section, bool mapped, bool used);
  void group_tiles(std::uint32_t section, TileId first_id);
  void find_order();
  void order_experts();
  Status count_bytes(const WeightLimits& limits);
  void measure_rows();
  void measure_experts();
  std::uint64_t least_ring_bytes() const noexcept;
  void spend(std::uint64_t spare);
  void sum_up();
  Status choose(const WeightLimits& limits);
  void pin(std::uint64_t bytes);
  void pin_evenly(std::uint32_t begin, std::uint32_t end, std::uint64_t total_bytes,
                  std::uint64_t pin_bytes);
  void lay_out();
  std::uint64_t lay_out_experts(std::uint64_t& offset);
  void lay_out_tiles(std::uint32_t begin, std::uint32_t end, std::uint64_t& offset);

  const QsfReader* reader_;
  Residency residency_;
  std::vector<PagedTile> tiles_;
  std::vector<PagedTensor> tensors_;         // grouped by section
  std::vector<std::uint32_t> first_tensor_;  // by section, and the end
  std::vector<TileId> tile_ids_;             // grouped by tensor
  std::vector<TileId> order_;
  std::vector<std::uint32_t> expert_begin_;  // positions, by expert, and the end
  std::vector<std::uint64_t> expert_bytes_;  // of places
  std::vector<ExpertCache::Slot> expert_slots_;
  std::uint32_t n_matrix_tiles_ = 0;
  std::uint32_t embedding_tensor_ = 0;  // in its section
  std::uint32_t head_begin_ = 0;
  std::uint32_t head_end_ = 0;
  std::uint64_t ring_offset_ = 0;
  std::uint64_t staging_offset_ = 0;
  std::uint64_t row_cache_offset_ = 0;
  std::uint64_t stored_staging_bytes_ = 0;
  std::uint64_t raw_staging_bytes_ = 0;
  std::uint64_t row_read_bytes_ = 0;
  std::uint64_t row_raw_bytes_ = 0;
  std::uint64_t least_row_bytes_ = 0;      // of the row cache with its fewest rows
  std::uint64_t wanted_row_bytes_ = 0;     // with as many as help
  std::uint32_t row_cols_ = 0;             // of the widest embedding
  std::uint64_t largest_place_bytes_ = 0;  // without experts
  std::uint64_t largest_expert_bytes_ = 0;
  std::uint64_t pass_place_bytes_ = 0;  // of layers and head, without experts
  std::uint64_t all_place_bytes_ = 0;
};

}  // namespace qsf

#endif  // QSF_STREAM_TILE_TABLE_H_
