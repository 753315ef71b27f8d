// SPDX-License-Identifier: MIT
//
// WeightPager: the weights of a file as tiles that a pass acquires, uses and releases.
//
// A tile is whole rows of one matrix, at most 4 MiB, in the form of the kernels: layout 1, blocks
// of at most 64 columns. As many tiles as the limits allow are resident. The others are streamed
// through a ring of slots by read-ahead, across layers and from the end of one pass to the start of
// the next. Tensors of one row (norms, biases) are widened to f32 and always resident. Rows of an
// embedding that is not resident are read one by one.
//
// The place of a tile, the size of the ring, the number of reading threads and the read path do not
// change a byte that kernels read. The parts are described in docs/streaming.md.

#ifndef QSF_STREAM_WEIGHT_PAGER_H_
#define QSF_STREAM_WEIGHT_PAGER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/status.h"
#include "base/submitted_work.h"
#include "format/qsf_reader.h"
#include "io/read_device.h"
#include "platform/thread.h"
#include "quant/weight_tile.h"
#include "stream/expert_cache.h"
#include "stream/expert_prefetch.h"
#include "stream/pager_stats.h"
#include "stream/residency.h"
#include "stream/row_cache.h"
#include "stream/tile_reader.h"
#include "stream/tile_schedule.h"
#include "stream/tile_table.h"

namespace qsf {

struct PagerOptions {
  const std::atomic<bool>* cancel = nullptr;  // ends every wait; may be set by a signal handler
  // Work that tiles are released after; none: all of it is complete at once.
  SubmittedWork* work = nullptr;
  // Reads by threads; else the thread that runs passes reads where it waits for a tile, by the
  // first queue.
  bool on_threads = has_threads();
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
  // Divides the weights into resident and streamed ones within `limits`, without reading them.
  // Fails  kUnsupported when tables or weights exceed what this build addresses; kOutOfBudget when
  //        limits.bytes is below Residency::least_bytes, with both numbers
  static Result<Residency> plan(const QsfReader& reader, const WeightLimits& limits);

  // Starts the reading threads, if there are to be any. They read the vectors, for which open()
  // waits, then resident and streamed tiles in the order of a pass, as far as there is room.
  // Requires  plan() returned `residency` for this reader; reader, device and region outlive the
  //           pager, and the work the last release() with a ticket of it; `region` has
  //           residency.region_bytes, aligned to kTileAlign; with limits.mapped the device's path
  //           is kMmap
  // Fails     kCorrupt or kIo, naming the section, the tile and its file offset, for vectors;
  //           kCancelled; kOutOfBudget when the system refuses a thread; kIo without a queue
  static Result<std::unique_ptr<WeightPager>> open(const QsfReader& reader,
                                                   const ReadDevice& device,
                                                   const Residency& residency,
                                                   MutableByteSpan region,
                                                   const PagerOptions& options = {});
  // Ends the threads after the reads in flight. Requires  no tile is in use
  ~WeightPager();
  WeightPager(const WeightPager&) = delete;
  WeightPager& operator=(const WeightPager&) = delete;

  // Waits until every resident tile is read, reporting stored bytes from time to time. A pass may
  // also begin without it: acquire() then waits for missing tiles.
  // Fails  kCorrupt or kIo of the resident tile that comes first in the file; kCancelled
  Status load(LoadProgress on_progress = nullptr, void* user = nullptr);

  // Returns the plan of a pass through layers [first, last), and the output head behind them.
  // Requires  first <= last <= layers
  AccessPlan plan_of(std::uint32_t first, std::uint32_t last, bool with_head) const;
  // Announces a pass. Read-ahead follows its plan, and after its end begins with it again, for the
  // next pass. Other tiles may be acquired too, at the price of a restart.
  void start_pass(const AccessPlan& plan);

  // Announces the experts of a layer that the pass will use, ascending and each once: they are read
  // before all else, in this order. A second call ends the first.
  // Requires  the section is a layer's, and its model has these experts
  void want_experts(std::uint32_t section, std::span<const ExpertUse> uses) {
    schedule_.want_experts(section, uses);
  }
  // Tells which experts of a layer are in memory or being read; returns false where all of the
  // model are, and tells nothing.
  // Shapes    in_memory [experts of a layer]
  // Requires  as want_experts
  bool find_experts(std::uint32_t section, std::span<std::uint8_t> in_memory) const {
    return schedule_.find_experts(section, in_memory);
  }
  // Whether it helps to guess the experts of a layer before its router has chosen: not where all
  // are in memory, where other weights are streamed too, or where guesses did not come true.
  // Requires  as want_experts
  bool wants_guesses(std::uint32_t section) const { return schedule_.wants_guesses(section); }
  // Announces the experts that a layer will probably use, the surest first. Missing ones are read
  // when nothing else is to be read, until want_experts() or the next pass.
  // Requires  as want_experts; guesses for kMostGuessedRows rows at most, each expert once
  void guess_experts(std::uint32_t section, std::span<const ExpertGuess> guesses) {
    schedule_.guess_experts(section, guesses);
  }
  // The pass needs an expert no more; it may leave when its tiles are released.
  void expert_done(std::uint32_t section, std::uint32_t expert) {
    schedule_.expert_done(section, expert);
  }

  // Gives at least `bytes` of resident tiles back to the system, as many of each layer as of any,
  // or all of the layers; they are streamed from then on. Returns the bytes given back.
  // Requires  no tile is held, or by completed work alone
  std::uint64_t drop_residents(std::uint64_t bytes);

  std::uint32_t n_tiles() const noexcept { return table_.n_tiles(); }
  // The tiles of a matrix in order of rows, ascending; empty for a tensor of one row. In files of
  // QsfWriter they are consecutive, except that a gate and an up projection alternate; other files
  // may order the tiles of a section as they like.
  // Requires  section and tensor exist
  std::span<const TileId> tiles_of(std::uint32_t section, std::uint32_t tensor) const noexcept;

  // The index of a tile's tensor in its section. Requires  id < n_tiles()
  std::uint32_t tensor_of(TileId id) const noexcept { return table_.info(id).tensor; }

  // Waits until a tile is ready and holds it. Each acquire needs one release. Any order works; the
  // order of the plan is fast: a skipped tile leaves the ring, and a tile that is not in the ring
  // restarts it there. Where tiles released with a ticket leave no room, waits for their work,
  // oldest first.
  // Requires  id < n_tiles()
  // Fails     kIo, kCorrupt: the tile cannot be read, now or later; the message names the section,
  //           the tile and its file offset; kCancelled; kOutOfBudget when the tiles held and not
  //           released leave no room for another, and for an embedding that is not resident where
  //           experts come and go and all else stays: its rows are read one by one
  Result<WeightTile> acquire(TileId id);
  // Holds as many of the tiles first, first + 1 ... as are ready without waiting, at most
  // max_tiles, out.size() and those that exist, and returns how many; 0 means: acquire(first). Of
  // streamed tiles at most half of the ring's bytes are handed out, so that the other half fills.
  std::uint32_t acquire_ready(TileId first, std::uint32_t max_tiles, std::span<WeightTile> out);
  // Requires  the tiles are held (checked), and nothing reads them any more
  void release(TileId id);
  void release(TileId first, std::uint32_t n_tiles);
  // Releases tiles when the work up to a ticket is complete: at once if it is, else in a later
  // call of this class. Until then they are held.
  // Requires  the tiles are held; tickets do not descend
  void release(TileId first, std::uint32_t n_tiles, Ticket ticket);
  // Releases the tiles whose work is complete by now.
  void release_completed();

  // Returns a tensor of one row: n_cols floats, 64-byte aligned, followed by zeros up to a multiple
  // of 16 floats. Requires  section and tensor exist
  // Fails  kInvalidArgument when the tensor has several rows
  Result<std::span<const float>> vector(std::uint32_t section, std::uint32_t tensor) const;

  // Decodes one row of a matrix, or copies the row of a one-row tensor.
  // Shapes    out [n_cols of the tensor]
  // Requires  section and tensor exist; out has that size
  // Fails     kInvalidArgument when the row is out of range, with the range; and as acquire
  Status decode_row(std::uint32_t section, std::uint32_t tensor, std::uint32_t row,
                    std::span<float> out);
  // decode_row of the token embedding.
  Status embedding_row(std::uint32_t row, std::span<float> out);

  const Residency& residency() const noexcept { return table_.residency(); }
  PagerStats stats() const { return schedule_.stats(); }

  // Returns where the queues differ from their device, and why; empty where they do not.
  std::string reading_note() const { return schedule_.reading_note(); }

  // Records the tiles that are read from now on, as many as `events` has room for; an empty span
  // ends it. Requires  `events` outlives the recording
  void set_trace(std::span<TileEvent> events) { schedule_.set_trace(events); }
  std::size_t n_traced() const { return schedule_.n_traced(); }

 private:
  WeightPager(TileTable table, const ReadDevice& device, MutableByteSpan region,
              const PagerOptions& options);
  // Tiles that work not yet complete reads.
  struct PendingRelease {
    TileId first = 0;
    std::uint32_t n_tiles = 0;
    Ticket ticket = 0;
  };
  // Products that may be under way at once; with more, a release waits for the oldest.
  static constexpr std::uint32_t kMaxPendingReleases = 64;

  WeightTile view(TileId id) const noexcept;
  void complete_oldest();
  std::span<const float> vector_space(const PagedTensor& tensor) const noexcept;

  TileTable table_;
  MutableByteSpan region_;
  TileSchedule schedule_;
  SubmittedWork* work_;
  std::array<PendingRelease, kMaxPendingReleases> pending_{};  // a queue
  std::uint32_t first_pending_ = 0;
  std::uint32_t n_pending_ = 0;
  std::unique_ptr<RowCache> rows_;  // where an embedding does not stay
  std::vector<std::unique_ptr<TileReader>> readers_;
};

}  // namespace qsf

#endif  // QSF_STREAM_WEIGHT_PAGER_H_
