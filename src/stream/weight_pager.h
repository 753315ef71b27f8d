// SPDX-License-Identifier: MIT
//
// WeightPager: the weights of a file as tiles that a pass acquires, uses and releases.
//
// Tiles are what the file stores (whole rows of one matrix, at most 4 MiB) in the form that kernels
// read: layout 1, blocks of at most 64 columns. Today all of them are read, checked and re-laid at
// load and stay resident; the interface is that of streaming, where acquire() waits for a disk and
// acquire_ready() hands out what has arrived. Tensors of one row (norms, biases) are widened to f32
// at load and never page.

#ifndef QSF_STREAM_WEIGHT_PAGER_H_
#define QSF_STREAM_WEIGHT_PAGER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/status.h"
#include "format/qsf_layout.h"
#include "quant/types.h"

namespace qsf {

class QsfReader;
class ThreadPool;

// Numbers the tiles of all matrices in the order of the file, which is the order of use. The tiles
// of one-row tensors have no number.
using TileId = std::uint32_t;

// One tile, ready for kernels. Valid until it is released.
struct WeightTile {
  const std::byte* bytes = nullptr;  // layout 1, groups of 16 rows, 64-byte aligned
  BlockFormat format{};              // block of 32 or 64, 4 for floats
  std::size_t group_bytes = 0;       // from one group of 16 rows to the next
  std::uint32_t tensor = 0;          // index into the section's tensors
  std::uint32_t first_row = 0;       // in its matrix; a multiple of 64
  std::uint32_t n_rows = 0;          // true rows; the last group is padded with zeros
  std::uint32_t n_cols = 0;          // true columns
};

// What load() needs, computed from the directories alone.
struct Residency {
  std::uint64_t resident_bytes = 0;  // region for the weights
  std::uint64_t scratch_bytes = 0;   // region used while loading alone, free to reuse afterwards
  std::uint64_t table_bytes = 0;     // heap that the pager itself takes
  std::uint64_t stored_bytes = 0;    // bytes load() reads from the file
};

struct LoadOptions {
  ThreadPool* threads = nullptr;              // null: the calling thread alone
  const std::atomic<bool>* cancel = nullptr;  // checked before every tile
  // Called by the loading thread after some tiles; bytes of the file.
  void (*on_progress)(std::uint64_t done_bytes, std::uint64_t total_bytes, void* user) = nullptr;
  void* progress_user = nullptr;
};

struct PagerStats {
  std::uint64_t load_ns = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t tiles_read = 0;
  std::uint64_t tiles_acquired = 0;
  std::uint64_t wait_ns = 0;  // time that acquire() waited for a disk
};

// Sections are named by their index in QsfReader::directories().
constexpr std::uint32_t embedding_section() noexcept {
  return 0;
}
constexpr std::uint32_t layer_section(std::uint32_t layer) noexcept {
  return layer + 1;
}
constexpr std::uint32_t final_section(std::uint32_t n_layers) noexcept {
  return n_layers + 1;
}

// Threads  one at a time (the thread that runs passes); tiles may be read by any
class WeightPager {
 public:
  // Returns what loading with `n_threads` threads needs.
  // Fails  kUnsupported when tables or weights exceed what this build addresses
  static Result<Residency> plan(const QsfReader& reader, unsigned n_threads);

  // Reads, checks, decompresses and re-lays every tile.
  // Requires  both regions of at least plan()'s bytes, 64-byte aligned, `region` outliving the
  // pager;
  //           plan() was asked for the threads of options.threads
  // Fails     kCorrupt or kIo, naming the section, the tile and its file offset (the first bad tile
  // of
  //           the file when there are several); kCancelled
  static Result<std::unique_ptr<WeightPager>> load(const QsfReader& reader, MutableByteSpan region,
                                                   MutableByteSpan scratch,
                                                   const LoadOptions& options);

  WeightPager(const WeightPager&) = delete;
  WeightPager& operator=(const WeightPager&) = delete;

  std::uint32_t n_tiles() const noexcept { return static_cast<std::uint32_t>(tiles_.size()); }
  // The tiles of a matrix in order of rows, ascending; empty for a tensor of one row. In files of
  // QsfWriter they are consecutive, except that a gate and an up projection alternate; other files
  // may order the tiles of a section as they like.
  // Requires  section and tensor exist
  std::span<const TileId> tiles_of(std::uint32_t section, std::uint32_t tensor) const noexcept;

  // Waits until a tile is ready and holds it. Each acquire needs one release.
  // Requires  id < n_tiles()
  // Fails     kIo, kCorrupt, kCancelled (none of them while everything is resident)
  Result<WeightTile> acquire(TileId id);
  // Holds as many of the tiles first, first + 1 ... as are ready without waiting, at most
  // max_tiles, out.size() and those that exist, and returns how many; 0 means: acquire(first).
  std::uint32_t acquire_ready(TileId first, std::uint32_t max_tiles, std::span<WeightTile> out);
  // Requires  the tiles are held (checked)
  void release(TileId id);
  void release(TileId first, std::uint32_t n_tiles);

  // Returns a tensor of one row: n_cols floats, 64-byte aligned, followed by zeros up to a multiple
  // of 16 floats. Requires  section and tensor exist Fails     kInvalidArgument when the tensor has
  // several rows
  Result<std::span<const float>> vector(std::uint32_t section, std::uint32_t tensor) const;

  // Decodes one row of a matrix, or copies the row of a one-row tensor.
  // Shapes    out [n_cols of the tensor]
  // Requires  section and tensor exist; out has that size
  // Fails     kInvalidArgument when the row is out of range, with the range; and as acquire
  Status decode_row(std::uint32_t section, std::uint32_t tensor, std::uint32_t row,
                    std::span<float> out);
  // decode_row of the token embedding.
  Status embedding_row(std::uint32_t row, std::span<float> out);

  const PagerStats& stats() const noexcept { return stats_; }

 private:
  friend class WeightLoader;
  struct Tile {
    std::uint64_t offset = 0;  // in region_
    std::uint64_t group_bytes = 0;
    BlockFormat format{};
    std::uint32_t tensor = 0;
    std::uint32_t first_row = 0;
    std::uint32_t n_rows = 0;
    std::uint32_t n_cols = 0;
    std::uint32_t holds = 0;
  };
  struct Tensor {
    TensorKind kind{};
    std::uint32_t n_rows = 0;
    std::uint32_t n_cols = 0;
    std::uint32_t first_id = 0;  // in tile_ids_
    std::uint32_t n_ids = 0;
    std::uint64_t vector_offset = 0;  // in region_, tensors of one row
  };
  WeightPager() = default;
  const Tensor& tensor(std::uint32_t section, std::uint32_t tensor) const noexcept;
  WeightTile view(const Tile& tile) const noexcept;
  // The floats of a one-row tensor with the padding after them.
  std::span<float> vector_space(std::uint32_t section, std::uint32_t tensor) const noexcept;

  MutableByteSpan region_;
  std::vector<Tile> tiles_;
  std::vector<TileId> tile_ids_;             // grouped by tensor
  std::vector<Tensor> tensors_;              // grouped by section
  std::vector<std::uint32_t> first_tensor_;  // by section, and the end
  std::uint32_t embedding_tensor_ = 0;       // in its section
  PagerStats stats_;
};

}  // namespace qsf

#endif  // QSF_STREAM_WEIGHT_PAGER_H_
