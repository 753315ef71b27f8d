// SPDX-License-Identifier: MIT
//
// TileSchedule: the state of every tile, the order of reads, and the waits for tiles.
//
// It connects the thread that runs passes with the reading threads. One mutex guards all state:
// tiles have hundreds of kilobytes, so it is taken some thousand times a second. Idle threads
// sleep, because on a small machine the others need the core.
//
// A tile is absent, being read, ready or failed. A streamed tile that is being read or ready has a
// slot of the ring; when it is released or skipped, the slot is freed and the tile is absent again.
// A read that is no longer needed ends in its slot, which belongs to no tile by then, and the slot
// is freed. A failed tile stays failed, and acquire() returns its error.
//
// Streamed tiles are read in the order of an access plan, from its end on at its beginning, for the
// next pass.
//
// Tiles of experts have no part in the plan and no slot of the ring. They are read when a pass
// wants their expert, before all read-ahead, into a slot of the ExpertCache. Experts that the next
// layer will probably use are read when nothing else is.

#ifndef QSF_STREAM_TILE_SCHEDULE_H_
#define QSF_STREAM_TILE_SCHEDULE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/status.h"
#include "io/read_device.h"
#include "stream/access_plan.h"
#include "stream/expert_cache.h"
#include "stream/expert_prefetch.h"
#include "stream/pager_stats.h"
#include "stream/tile_ring.h"
#include "stream/tile_table.h"

namespace qsf {

// One tile to be read.
struct ReadJob {
  TileId tile = kNoTile;
  RingSlot slot = kNoSlot;  // of the ring; none: the tile is resident
  std::byte* place = nullptr;
  bool first = true;     // its bytes were not checked yet
  bool guessed = false;  // of an expert that the pass may not use
};

// Time spent on a job after the read.
struct PrepareTimes {
  std::uint64_t check_ns = 0;
  std::uint64_t decompress_ns = 0;
};

using LoadProgress = void (*)(std::uint64_t done_bytes, std::uint64_t total_bytes, void* user);

// Reads a tile where nobody else does.
class WaitingReader {
 public:
  virtual ~WaitingReader() = default;
  virtual void read_one() = 0;
};

class TileSchedule {
 public:
  // Requires  `table` and `device` outlive it, and `region` is as table.residency() says;
  //           `cancel` may be null
  TileSchedule(const TileTable& table, const ReadDevice& device, MutableByteSpan region,
               const std::atomic<bool>* cancel);

  enum class Claim { kJob, kNothing, kStop };

  // For reading threads, any number at once.
  //
  // Takes the next job; with `wait`, sleeps until there is one or stop() was called, or for
  // `longest`.
  Claim claim(bool wait, ReadJob& job, std::optional<std::chrono::milliseconds> longest = {});
  // Reports that the bytes of a job were read. Returns whether they are still needed.
  bool read_ended(const ReadJob& job);
  // Ends a job. Requires  read_ended(job) was called
  void complete(const ReadJob& job, const PrepareTimes& times, Status status);
  // Stores a queue's note for reading_note().
  void note_queue(std::string_view note);
  // Makes claim() return kStop from now on.
  void stop();

  // Where there are no reading threads: waits read by `reader`, which outlives all calls of them.
  void read_while_waiting(WaitingReader& reader) noexcept { waiting_reader_ = &reader; }

  // For the thread that runs passes.
  Status wait_for_vectors();
  Status load(LoadProgress on_progress, void* user);
  void start_pass(const AccessPlan& plan);
  // Announces the experts of a layer that the pass will use, ascending; a second call ends the
  // first. They are read in this order.
  void want_experts(std::uint32_t section, std::span<const ExpertUse> uses);
  // Whether guesses of a layer's experts are of use.
  bool wants_guesses(std::uint32_t section) const;
  // Announces the experts that a layer will probably use, the surest first. Missing ones are read
  // when nothing else is to be read, until the layer's experts are announced.
  void guess_experts(std::uint32_t section, std::span<const ExpertGuess> guesses);
  // Tells which experts of a layer are in memory or being read; returns false where all of the
  // model are, and tells nothing.
  // Shapes  in_memory [experts of a layer]
  bool find_experts(std::uint32_t section, std::span<std::uint8_t> in_memory) const;
  // The pass needs an expert no more.
  void expert_done(std::uint32_t section, std::uint32_t expert);
  // Returns whether a tile that is not being read waits for room in the ring or for a slot.
  bool lacks_room(TileId id);
  Status acquire(TileId id);
  // Holds ready tiles from `first` on, at most `max_tiles`. Returns how many.
  std::uint32_t acquire_ready(TileId first, std::uint32_t max_tiles);
  void release(TileId first, std::uint32_t n_tiles);
  // Bytes of a tile that is held. Threads  any
  const std::byte* bytes_of(TileId id) const noexcept;
  bool is_resident(TileId id) const noexcept { return uses_[id].resident; }
  // Whether the bytes of a tile were checked since open(); and recording that they were.
  bool is_checked(TileId id);
  void note_checked(TileId id);
  void count_row(std::uint64_t bytes_read);
  std::uint64_t drop_residents(std::uint64_t bytes);

  PagerStats stats() const;
  std::string reading_note() const;
  void set_trace(std::span<TileEvent> events);
  std::size_t n_traced() const;

  // Heap bytes for a table.
  static std::uint64_t heap_bytes(const TileTable& table) noexcept;

 private:
  enum class TileState : std::uint8_t { kAbsent, kReading, kReady, kFailed };
  struct TileUse {
    RingSlot slot = kNoSlot;
    std::uint32_t holds = 0;
    std::uint32_t event = kNoEvent;
    TileState state = TileState::kAbsent;
    bool checked = false;
    bool resident = false;
  };
  static constexpr std::uint32_t kNoEvent = 0xFFFFFFFFU;
  // Tiles that read-once experts take from others: enough for reads to go on beside the products.
  static constexpr std::uint64_t kReadOnceBytes = std::uint64_t{32} << 20;
  // Guesses in flight: enough for a disk to be busy, few enough for what is wanted not to wait.
  static constexpr std::uint32_t kMostGuessJobs = 4;
  using Lock = std::unique_lock<std::mutex>;

  // All of these require the mutex to be held.
  TileId pick();
  TileId pick_resident();
  TileId pick_of_expert();
  TileId pick_guessed();
  void end_guesses();
  bool take(TileId id, ReadJob& job);
  bool take_expert_slot(ExpertId expert);
  bool take_guess_slot(ExpertId expert);
  bool is_in_memory(ExpertId expert) const;
  std::uint64_t stored_bytes_of(ExpertId expert) const;
  void evict(ExpertId expert);
  std::uint64_t drop_experts(std::uint64_t bytes);
  ExpertId expert_of(TileId id) const { return table_.tile(id).expert; }
  bool is_of_expert(TileId id) const { return expert_of(id) != kNoExpert; }
  std::uint32_t next_streamed(std::uint32_t position) const;
  bool is_in_ring(TileId id, RingSlot slot) const { return uses_[id].slot == slot; }
  void hold(TileId id);
  void restart_at(TileId id);
  void pass_over(RingSlot slot);
  void pass_over_older(RingSlot slot);
  void leave_ring(TileId id);
  bool is_stuck(TileId id) const;
  Status no_room_for(TileId id) const;
  bool begin_missing(TileId id);
  void wake_readers();
  bool is_cancelled() const { return cancel_ != nullptr && cancel_->load(); }
  void wait_for_tiles(Lock& lock);
  Status failure_of(TileId id) const;
  bool is_settled_before(TileId id) const;
  TileId first_failed(TileId begin, TileId end) const;
  TileEvent* event_of(TileId id);
  std::byte* place_of(TileId id, RingSlot slot) const noexcept;
  bool make_ring(Lock& lock);
  void stop_keeping(TileId id);
  std::uint32_t first_streamed() const;

  const TileTable& table_;
  const ReadDevice& device_;
  MutableByteSpan region_;
  std::uint64_t ring_offset_;
  const std::atomic<bool>* cancel_;

  mutable std::mutex mutex_;
  std::condition_variable work_ready_;       // for reading threads
  std::condition_variable tile_settled_;     // for the thread that runs passes
  WaitingReader* waiting_reader_ = nullptr;  // null: there are reading threads
  bool stopping_ = false;
  bool caller_waits_ = false;
  unsigned n_idle_readers_ = 0;

  std::vector<TileUse> uses_;
  TileRing ring_;
  std::uint32_t cursor_ = kNoPosition;  // position of the streamed tile to be read next
  std::uint32_t resident_cursor_ = 0;   // no resident tile before it is absent
  TileId next_vectors_;                 // tile of one-row tensors to be read next
  TileId urgent_ = kNoTile;             // not of the ring, absent, and waited for
  ExpertCache experts_;
  std::vector<ExpertId> wanted_;  // of a layer, ascending
  std::size_t next_wanted_ = 0;   // all tiles of those before are read or being read
  bool no_slot_ = false;          // no expert can leave; cleared when one might
  ExpertPrefetch prefetch_;
  std::size_t next_guess_ = 0;  // all tiles of those before are read or being read
  AccessPlan plan_;
  std::uint32_t n_residents_unsettled_ = 0;  // matrices' tiles
  std::uint32_t n_vectors_unsettled_ = 0;
  std::uint64_t loaded_bytes_ = 0;  // stored bytes of resident tiles that are ready
  std::uint32_t n_ring_jobs_ = 0;   // claimed and not completed
  std::uint32_t n_expert_jobs_ = 0;
  std::uint32_t n_guess_jobs_ = 0;  // those of guesses
  std::uint32_t n_reading_ = 0;     // claimed and read_ended() not called
  std::uint64_t reading_since_ns_ = 0;
  std::uint64_t held_ring_bytes_ = 0;
  std::uint64_t open_ns_;
  std::vector<std::pair<TileId, Status>> failures_;
  std::span<TileEvent> trace_;
  std::uint32_t n_events_ = 0;
  PagerStats stats_;
  std::string queue_note_;
};

}  // namespace qsf

#endif  // QSF_STREAM_TILE_SCHEDULE_H_
