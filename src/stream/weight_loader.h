// SPDX-License-Identifier: MIT
//
// WeightLoader: fills a region with every weight of a file; the work behind WeightPager::load().
//
// Tiles are independent, so threads take them one by one, each with scratch of its own. A tile that
// the file stores as kernels want it is read straight to its place; others are read to scratch,
// decompressed and re-laid.

#ifndef QSF_STREAM_WEIGHT_LOADER_H_
#define QSF_STREAM_WEIGHT_LOADER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "format/qsf_reader.h"
#include "stream/weight_pager.h"

namespace qsf {

class WeightLoader {
 public:
  // Builds the tables of a pager and what load needs, without touching weights.
  // Fails  as WeightPager::plan
  static Result<Residency> lay_out(const QsfReader& reader, unsigned n_threads, WeightPager& pager);

  // Requires  `pager` was laid out for this reader and has its region
  WeightLoader(const QsfReader& reader, WeightPager& pager, MutableByteSpan scratch,
               const LoadOptions& options);

  // Reads everything. Fails  as WeightPager::load
  Status run();

 private:
  // Where one worker puts bytes that are not yet in kernel form.
  struct Scratch {
    MutableByteSpan stored;  // a compressed tile as the file has it
    MutableByteSpan raw;     // a tile in another layout
  };
  // One tile of the file: its directory, and its number there and among the pager's tiles.
  struct Item {
    std::uint32_t section = 0;
    std::uint32_t tile = 0;
    TileId id = 0;  // meaningless for the tile of one-row tensors
  };

  static void group_tiles(WeightPager& pager, TileId first_id);
  void load_items(std::size_t begin, std::size_t end, unsigned worker);
  Status load_item(const Item& item, const Scratch& scratch);
  Status load_matrix_tile(const SectionDirectory& directory, const Item& item,
                          const Scratch& scratch);
  Status load_vectors(const SectionDirectory& directory, const Item& item, const Scratch& scratch);
  void note_failure(std::size_t index, Status status);

  const QsfReader& reader_;
  WeightPager& pager_;
  const LoadOptions& options_;
  std::vector<Item> items_;
  std::vector<Scratch> scratch_;  // by worker
  std::uint64_t total_bytes_ = 0;
  std::atomic<std::uint64_t> done_bytes_{0};
  std::atomic<bool> cancelled_{false};
  std::atomic<std::size_t> first_failed_;  // index of the first bad tile so far
  std::mutex mutex_;                       // guards failure_
  Status failure_;
};

}  // namespace qsf

#endif  // QSF_STREAM_WEIGHT_LOADER_H_
