// SPDX-License-Identifier: MIT
//
// TileReader: reads tiles and converts them to the form of the kernels, on a thread of its own, or,
// where there are no threads, on the one that waits for a tile.
//
// Every tile is read directly to its place. Where the stored form differs, the thread copies it to
// its staging memory and decompresses or re-lays it back to the place, so staging holds one tile
// however many reads are in flight. A tile's checksum and values are checked at its first read.

#ifndef QSF_STREAM_TILE_READER_H_
#define QSF_STREAM_TILE_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/status.h"
#include "format/tile_codec.h"
#include "io/async_reader.h"
#include "io/read_device.h"
#include "platform/thread.h"
#include "stream/tile_schedule.h"
#include "stream/tile_table.h"

namespace qsf {

class TileReader final : public WaitingReader {
 public:
  // Makes a reader that works off `schedule` until that is stopped.
  // Shapes    staging [table.stored_staging_bytes() + table.raw_staging_bytes()]
  // Requires  all of them outlive the reader; `region` is the whole one of the pager;
  //           schedule.stop() before the reader is destroyed
  // Fails     kIo when the device gives no queue; kOutOfBudget without memory
  static Result<std::unique_ptr<TileReader>> create(const TileTable& table,
                                                    const ReadDevice& device,
                                                    TileSchedule& schedule, MutableByteSpan region,
                                                    MutableByteSpan staging);
  ~TileReader() override;
  // Starts the thread. May be called once. Fails  kOutOfBudget when the system refuses it
  Status start_thread();
  // Reads and converts one tile, if there is one to read. Requires  no thread was started
  void read_one() override;
  TileReader(const TileReader&) = delete;
  TileReader& operator=(const TileReader&) = delete;

  static std::uint64_t heap_bytes() noexcept {
    return sizeof(TileReader) + TileDecompressor::heap_bytes();
  }

 private:
  TileReader(const TileTable& table, const ReadDevice& device, TileSchedule& schedule,
             MutableByteSpan region, MutableByteSpan staging, TileDecompressor decompressor,
             std::unique_ptr<AsyncReader> queue);

  static void* run_thread(void* self);
  void run();
  bool start_jobs(bool may_wait);
  TileSchedule::Claim claim(bool is_idle, ReadJob& job);
  void finish_read();
  void note_queue();
  void finish_mapped();
  void finish(const ReadJob& job, Status status);
  Status prepare(const ReadJob& job, PrepareTimes& times);
  Status prepare_in_place(const ReadJob& job, MutableByteSpan bytes);
  Status prepare_staged(const ReadJob& job, MutableByteSpan stored, PrepareTimes& times);
  Status prepare_vectors(const ReadJob& job, MutableByteSpan stored);

  const TileTable& table_;
  const ReadDevice& device_;
  TileSchedule& schedule_;
  MutableByteSpan region_;
  MutableByteSpan stored_staging_;
  MutableByteSpan raw_staging_;
  TileDecompressor decompressor_;
  std::unique_ptr<AsyncReader> queue_;
  bool fills_cache_ = true;       // until the device says that it is full
  std::size_t note_chars_ = 0;    // of the queue's note so far
  std::vector<ReadJob> reading_;  // by tag; without a tile when free
  std::vector<ReadJob> mapped_;   // claimed and not yet touched, oldest first
  Thread thread_;
};

}  // namespace qsf

#endif  // QSF_STREAM_TILE_READER_H_
