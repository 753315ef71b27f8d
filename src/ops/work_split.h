// SPDX-License-Identifier: MIT
//
// The work of a product: how it is cut into items, and how workers take them.
//
// Columns are never cut, so one worker computes an output in one order, and the cut changes no bit.
// There are two regimes:
//
//   few rows    Memory-bound: items are equal shares of the product's bytes.
//   many rows   Compute-bound: items are bands of weights that fit a cache, times blocks of rows.
//   Rows
//               are cut only where the weights are too few for all workers, since every block
//               decodes the band again.
//
// Each worker has a queue of neighbouring items, so that its weights are one long stream. If two
// workers took neighbouring items in turn, the prefetched data of each core would belong to the
// other: half of the memory rate is lost at 32 KiB an item, a tenth at 256. A worker whose queue is
// empty takes items from the next one, so that workers end together even when a core is busy.
//
// With fused gate and up, a piece holds the same rows of both matrices, so that one worker has both
// parts, also where their tiles end at different rows.

#ifndef QSF_OPS_WORK_SPLIT_H_
#define QSF_OPS_WORK_SPLIT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ops/backend.h"

namespace qsf {

// Groups of one tile, or of the same rows of a gate and an up tile.
struct WorkPiece {
  const WeightTile* tiles[2] = {nullptr, nullptr};  // the second with fused_gate_up alone
  std::uint32_t first_row = 0;                      // in their matrices; a multiple of 16
  std::uint32_t n_rows = 0;
  // fused_gate_up alone: with this piece the rows of both matrices are computed, here or by an
  // earlier call.
  bool completes = false;
};

// The work that a worker takes at once.
struct WorkItem {
  const WorkPiece* piece = nullptr;
  std::uint32_t first_row = 0;  // of the weights; a multiple of 16
  std::uint32_t n_rows = 0;
  std::uint32_t first_x = 0;  // rows of the input
  std::uint32_t last_x = 0;
};

class WorkSplit {
 public:
  // Allocates all its memory. Requires  n_workers > 0
  explicit WorkSplit(unsigned n_workers);

  // Cuts the product of `tiles` with n_x rows.
  //
  // Requires  tiles.size() <= kMaxMatmulTiles. Joined, tiles of targets 0 (gate) and 1 (up), each
  //           ascending and without gaps from rows_done[target] on, the rows that calls before
  //           computed; otherwise rows_done is not read
  // Threads   one; no allocation
  void cut(std::span<const WeightTile> tiles, std::uint32_t n_x, bool fused_gate_up,
           const std::uint32_t rows_done[2]);

  std::size_t n_items() const noexcept { return bands_.size() * n_blocks_; }
  // Requires  index < n_items(), tiles still there. Threads  any
  WorkItem item(std::size_t index) const noexcept;
  // One for each worker.
  std::size_t n_queues() const noexcept { return n_workers_; }
  // Returns the next item of the queue, or of the first queue behind it with items left; n_items()
  // when none is left. Requires  queue < n_queues(). Threads  any; each item goes to one caller
  std::size_t take(std::size_t queue) noexcept;
  // Bytes of the weights of all items, each once.
  std::uint64_t weight_bytes() const noexcept { return total_bytes_; }

 private:
  struct Band {
    std::uint32_t piece;
    std::uint32_t first_row;
    std::uint32_t n_rows;
  };

  struct alignas(64) Queue {  // a cache line, so that workers do not share one
    std::atomic<std::size_t> next{0};
    std::size_t end = 0;
  };

  void add_piece(const WorkPiece& piece);
  void join_tiles(std::span<const WeightTile> tiles, const std::uint32_t rows_done[2]);
  void cut_by_bytes();
  void cut_by_rows(std::uint32_t n_x);

  std::uint64_t n_workers_;
  std::unique_ptr<Queue[]> queues_;
  std::vector<WorkPiece> pieces_;
  std::vector<Band> bands_;
  std::uint64_t total_bytes_ = 0;
  std::uint32_t n_x_ = 0;
  std::uint32_t n_blocks_ = 1;    // of rows of the input
  std::uint32_t block_rows_ = 0;  // the last may be shorter
};

}  // namespace qsf

#endif  // QSF_OPS_WORK_SPLIT_H_
