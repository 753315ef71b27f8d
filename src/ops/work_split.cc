// SPDX-License-Identifier: MIT

#include "ops/work_split.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace qsf {
namespace {

// Up to here a product is bound by memory: a weight is used for this many rows at most.
constexpr std::uint32_t kFewRows = 8;

// Few rows. Short items let workers end together. Those of gate and up change from one matrix to
// the other, where a stream begins anew: of 32 KiB of each, a product took a fifth longer than of
// 180.
constexpr std::uint64_t kMinItemBytes = 32U << 10;
constexpr std::uint64_t kMaxItemBytes = 512U << 10;
constexpr std::uint64_t kMaxItems = 2048;  // of larger products, longer ones

// Many rows.
constexpr std::uint64_t kMaxBandBytes = 128U << 10;  // beside the rows in a second-level cache
constexpr std::uint32_t kMinBandRows = 64;           // kernels take up to four groups at once
constexpr std::uint64_t kItemsPerWorker = 8;
constexpr std::uint32_t kMinBlockRows = 64;  // decoding a weight pays from some ten rows on
constexpr std::uint32_t kBlockAlign = 32;

std::uint64_t groups_of(std::uint64_t n_rows) {
  return ceil_div(n_rows, kRowGroup);
}

std::uint64_t group_bytes_of(const WorkPiece& piece) {
  std::uint64_t bytes = 0;
  for (const WeightTile* tile : piece.tiles) bytes += tile != nullptr ? tile->group_bytes : 0;
  return bytes;
}

}  // namespace

// Pieces: each tile gives one, and each border of fused tiles one more. A piece may end an item
// early. Few rows: most items have an eighth of a worker's share. Many rows: an item has at least
// kMinBandRows, and most have kMaxBandBytes or an eighth of a worker's share.
WorkSplit::WorkSplit(unsigned n_workers)
    : n_workers_(n_workers), queues_(std::make_unique<Queue[]>(n_workers)) {
  pieces_.reserve(2 * kMaxMatmulTiles + 2);
  bands_.reserve(4096 + 64 * std::size_t{n_workers});
}

void WorkSplit::cut(std::span<const WeightTile> tiles, std::uint32_t n_x, bool fused_gate_up,
                    const std::uint32_t rows_done[2]) {
  QSF_CHECK(tiles.size() <= kMaxMatmulTiles);
  pieces_.clear();
  bands_.clear();
  total_bytes_ = 0;
  n_x_ = n_x;
  n_blocks_ = 1;
  block_rows_ = n_x;
  if (fused_gate_up) {
    join_tiles(tiles, rows_done);
  } else {
    for (const WeightTile& tile : tiles) {
      add_piece({.tiles = {&tile, nullptr}, .first_row = tile.first_row, .n_rows = tile.n_rows});
    }
  }
  if (n_x <= kFewRows) {
    cut_by_bytes();
  } else {
    cut_by_rows(n_x);
  }
  for (std::size_t queue = 0; queue < n_workers_; ++queue) {
    queues_[queue].next.store(n_items() * queue / n_workers_, std::memory_order_relaxed);
    queues_[queue].end = n_items() * (queue + 1) / n_workers_;
  }
}

std::size_t WorkSplit::take(std::size_t queue) noexcept {
  for (std::size_t i = 0; i < n_workers_; ++i) {
    Queue& from = queues_[(queue + i) % n_workers_];
    if (from.next.load(std::memory_order_relaxed) >= from.end) continue;
    const std::size_t item = from.next.fetch_add(1, std::memory_order_relaxed);
    if (item < from.end) return item;
  }
  return n_items();
}

void WorkSplit::add_piece(const WorkPiece& piece) {
  total_bytes_ += group_bytes_of(piece) * groups_of(piece.n_rows);
  pieces_.push_back(piece);
}

// Walks the rows of gate and up side by side; every border of either ends a piece.
void WorkSplit::join_tiles(std::span<const WeightTile> tiles, const std::uint32_t rows_done[2]) {
  constexpr std::uint32_t kEnd = std::numeric_limits<std::uint32_t>::max();
  struct Walk {
    std::size_t tile;    // the one it is in
    std::uint32_t row;   // the next to hand out; kEnd behind the last tile
    std::uint32_t done;  // rows computed by calls before
  } walks[2];
  const auto seek = [&](std::uint32_t target, std::size_t from) {
    Walk& walk = walks[target];
    for (walk.tile = from; walk.tile < tiles.size() && tiles[walk.tile].target != target;) {
      ++walk.tile;
    }
    walk.row = walk.tile < tiles.size() ? tiles[walk.tile].first_row : kEnd;
  };
  for (std::uint32_t target = 0; target < 2; ++target) {
    walks[target].done = rows_done[target];
    seek(target, 0);
    QSF_DCHECK(walks[target].row == kEnd || walks[target].row == walks[target].done);
  }
  for (;;) {
    const std::uint32_t row = std::min(walks[0].row, walks[1].row);
    if (row == kEnd) return;
    std::uint32_t end = kEnd;
    WorkPiece piece = {.first_row = row, .completes = true};
    for (std::uint32_t target = 0; target < 2; ++target) {
      const Walk& walk = walks[target];
      if (walk.row == row) {
        const WeightTile& tile = tiles[walk.tile];
        piece.tiles[target] = &tile;
        end = std::min(end, tile.first_row + tile.n_rows);
      } else if (row < walk.done) {
        end = std::min(end, walk.done);
      } else {
        piece.completes = false;
        end = std::min(end, walk.row);
      }
    }
    piece.n_rows = end - row;
    add_piece(piece);
    for (std::uint32_t target = 0; target < 2; ++target) {
      Walk& walk = walks[target];
      if (walk.row != row) continue;
      walk.row = end;
      const WeightTile& tile = tiles[walk.tile];
      if (end == tile.first_row + tile.n_rows) seek(target, walk.tile + 1);
    }
  }
}

void WorkSplit::cut_by_bytes() {
  const std::uint64_t share = total_bytes_ / (kItemsPerWorker * n_workers_);
  const std::uint64_t item_bytes =
      std::max(std::clamp(share, kMinItemBytes, kMaxItemBytes), total_bytes_ / kMaxItems);
  for (std::uint32_t p = 0; p < pieces_.size(); ++p) {
    const WorkPiece& piece = pieces_[p];
    const std::uint64_t groups = std::max<std::uint64_t>(1, item_bytes / group_bytes_of(piece));
    for (std::uint32_t row = 0; row < piece.n_rows;) {
      const auto n_rows = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(groups * kRowGroup, piece.n_rows - row));
      bands_.push_back({p, piece.first_row + row, n_rows});
      row += n_rows;
    }
  }
}

void WorkSplit::cut_by_rows(std::uint32_t n_x) {
  const std::uint64_t share_bytes =
      std::min(kMaxBandBytes, total_bytes_ / (kItemsPerWorker * n_workers_));
  for (std::uint32_t p = 0; p < pieces_.size(); ++p) {
    const WorkPiece& piece = pieces_[p];
    const std::uint64_t band_rows =
        std::max<std::uint64_t>(kMinBandRows, share_bytes / group_bytes_of(piece) * kRowGroup);
    for (std::uint32_t row = 0; row < piece.n_rows;) {
      const auto n_rows =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(band_rows, piece.n_rows - row));
      bands_.push_back({p, piece.first_row + row, n_rows});
      row += n_rows;
    }
  }
  const std::uint64_t wanted =
      ceil_div(kItemsPerWorker * n_workers_, std::max<std::size_t>(bands_.size(), 1));
  const std::uint64_t blocks = std::clamp<std::uint64_t>(n_x / kMinBlockRows, 1, wanted);
  block_rows_ = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(align_up(ceil_div(n_x, blocks), kBlockAlign), n_x));
  n_blocks_ = static_cast<std::uint32_t>(ceil_div(n_x, block_rows_));
}

WorkItem WorkSplit::item(std::size_t index) const noexcept {
  const Band& band = bands_[index / n_blocks_];
  const auto block = static_cast<std::uint32_t>(index % n_blocks_);
  const std::uint32_t first_x = block * block_rows_;
  return {.piece = &pieces_[band.piece],
          .first_row = band.first_row,
          .n_rows = band.n_rows,
          .first_x = first_x,
          .last_x = std::min(first_x + block_rows_, n_x_)};
}

}  // namespace qsf
