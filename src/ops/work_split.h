// SPDX-License-Identifier: MIT
//
// How the work of a product is cut into items, and who takes which.
//
// Columns are never cut, so an output is computed by one worker in one order, and the cut shows in
// no bit. Items are cut in two regimes:
//
//   few rows    A product waits for memory: items are equal shares of its bytes.
//   many rows   A product computes. Bands of weights that stay in a cache meet blocks of rows; rows
//               are cut only where the weights are too few for all workers, since every block
//               decodes the band anew.
//
// Each worker has a lane of neighbouring items, so that its weights are one long stream: where two
// workers take neighbours by turns, what each core has read ahead belongs to the other, and half
// of the memory's rate is lost at 32 KiB an item, a tenth at 256. Who has emptied his lane helps
// with the next one, so that workers end together and one whose core is busy elsewhere leaves its
// share to the others.
//
// Where gate and up are joined by their activation, a piece holds the same rows of both, so that
// the worker that computed them has both parts at hand, also where their tiles end at different
// rows.

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
  const MatmulTile* tiles[2] = {nullptr, nullptr};  // the second with a joint alone
  std::uint32_t first_row = 0;                      // in their matrices; a multiple of 16
  std::uint32_t n_rows = 0;
  // Joint alone: the rows of both matrices are computed when this piece is, here or by a call
  // before.
  bool completes = false;
};

// What one worker computes at a time.
struct WorkItem {
  const WorkPiece* piece = nullptr;
  std::uint32_t first_row = 0;  // of the weights; a multiple of 16
  std::uint32_t n_rows = 0;
  std::uint32_t first_x = 0;  // rows of the input
  std::uint32_t last_x = 0;
};

class WorkSplit {
 public:
  // Allocates all it will need. Requires  n_workers > 0
  explicit WorkSplit(unsigned n_workers);

  // Cuts the product of `tiles` with n_x rows.
  //
  // Requires  tiles.size() <= kMaxMatmulTiles. Joined, tiles of targets 0 (gate) and 1 (up), each
  //           ascending and without gaps from rows_done[target] on, the rows that calls before
  //           computed; otherwise rows_done is not read
  // Threads   one; no allocation
  void cut(std::span<const MatmulTile> tiles, std::uint32_t n_x, bool fused_gate_up,
           const std::uint32_t rows_done[2]);

  std::size_t n_items() const noexcept { return bands_.size() * n_blocks_; }
  // Requires  index < n_items(), tiles still there. Threads  any
  WorkItem item(std::size_t index) const noexcept;
  // One for each worker.
  std::size_t n_lanes() const noexcept { return n_workers_; }
  // Returns the next item of the lane, or of the first one behind it that has some left; n_items()
  // when there are none. Requires  lane < n_lanes(). Threads  any; an item is given to one caller
  std::size_t take(std::size_t lane) noexcept;
  // Bytes of the weights of all items, each once.
  std::uint64_t weight_bytes() const noexcept { return total_bytes_; }

 private:
  struct Band {
    std::uint32_t piece;
    std::uint32_t first_row;
    std::uint32_t n_rows;
  };

  struct alignas(64) Lane {  // of a cache line: workers take from their own undisturbed
    std::atomic<std::size_t> next{0};
    std::size_t end = 0;
  };

  void add_piece(const WorkPiece& piece);
  void join_tiles(std::span<const MatmulTile> tiles, const std::uint32_t rows_done[2]);
  void cut_by_bytes();
  void cut_by_rows(std::uint32_t n_x);

  std::uint64_t n_workers_;
  std::unique_ptr<Lane[]> lanes_;
  std::vector<WorkPiece> pieces_;
  std::vector<Band> bands_;
  std::uint64_t total_bytes_ = 0;
  std::uint32_t n_x_ = 0;
  std::uint32_t n_blocks_ = 1;    // of rows of the input
  std::uint32_t block_rows_ = 0;  // the last may be shorter
};

}  // namespace qsf

#endif  // QSF_OPS_WORK_SPLIT_H_
