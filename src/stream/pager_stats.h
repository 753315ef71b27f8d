// SPDX-License-Identifier: MIT
//
// Counters of a WeightPager, and the trace of its tiles.

#ifndef QSF_STREAM_PAGER_STATS_H_
#define QSF_STREAM_PAGER_STATS_H_

#include <cstdint>

namespace qsf {

// Counters since open(); times in nanoseconds.
struct PagerStats {
  std::uint64_t load_ns = 0;     // from open() to the end of load()
  std::uint64_t bytes_read = 0;  // from the device, whole pages, for tiles and rows
  std::uint64_t tiles_read = 0;  // tiles of one-row tensors included
  std::uint64_t tiles_acquired = 0;
  std::uint64_t rows_read = 0;      // rows that were not in the row cache
  std::uint64_t ring_wraps = 0;     // times that the ring continued at its first byte
  std::uint64_t ring_restarts = 0;  // times that a tile was acquired out of order
  std::uint64_t read_ns = 0;        // with at least one read of a tile in flight
  std::uint64_t decompress_ns = 0;  // decompressing and re-laying, over all reading threads
  std::uint64_t check_ns = 0;       // CRC and values, over all reading threads
  std::uint64_t dropped_bytes = 0;  // of resident tiles, given back to the system
  std::uint64_t wait_ns = 0;        // of acquire(), for a tile to arrive
  // Experts that passes used, by layer and pass, and those of them that were not in memory: with
  // rows that generate, and with rows of prompts alone.
  std::uint64_t experts_used = 0;
  std::uint64_t experts_missed = 0;
  std::uint64_t experts_prompted = 0;
  std::uint64_t experts_prompt_missed = 0;
  // Of the missing ones, those that were guessed and read ahead; and all that were.
  std::uint64_t experts_foreseen = 0;
  std::uint64_t experts_prefetched = 0;
  std::uint64_t expert_bytes_read = 0;
};

// The times of one tile in the pager, of monotonic_ns(); 0: not yet.
struct TileEvent {
  std::uint32_t tile = 0;
  std::uint64_t read_start_ns = 0;
  std::uint64_t read_end_ns = 0;
  std::uint64_t ready_ns = 0;     // checked, decompressed and re-laid
  std::uint64_t acquired_ns = 0;  // for the first time since it was read
  std::uint64_t released_ns = 0;
};

}  // namespace qsf

#endif  // QSF_STREAM_PAGER_STATS_H_
