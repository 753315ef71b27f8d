// SPDX-License-Identifier: MIT

#include "stream/tile_reader.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "platform/clock.h"
#include "quant/codec.h"
#include "quant/interleave.h"

namespace qsf {
namespace {

// Tiles of a mapped file announced to the kernel (madvise) ahead of their use: enough to keep a
// disk busy while a thread checks a tile.
constexpr std::size_t kMappedAhead = 4;

// Between the pieces of a page cache that is filled, so that the cores are free for passes.
constexpr std::chrono::milliseconds kFillPause{20};

// Brings the pages of a mapped tile into memory.
void touch(ByteSpan bytes) noexcept {
  for (std::size_t at = 0; at < bytes.size(); at += kTileAlign) {
    static_cast<void>(*static_cast<const volatile std::byte*>(&bytes[at]));
  }
}

// Adds the time from construction to destruction.
class Timer {
 public:
  explicit Timer(std::uint64_t& sum_ns) noexcept : sum_ns_(sum_ns), start_ns_(monotonic_ns()) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() { sum_ns_ += monotonic_ns() - start_ns_; }

 private:
  std::uint64_t& sum_ns_;
  std::uint64_t start_ns_;
};

}  // namespace

Result<std::unique_ptr<TileReader>> TileReader::create(const TileTable& table,
                                                       const ReadDevice& device,
                                                       TileSchedule& schedule,
                                                       MutableByteSpan region,
                                                       MutableByteSpan staging) {
  QSF_ASSIGN_OR_RETURN(TileDecompressor decompressor, TileDecompressor::create());
  const std::uint64_t ring_end = table.staging_offset();
  const MutableByteSpan ring =
      region.subspan(static_cast<std::size_t>(table.ring_offset()),
                     static_cast<std::size_t>(ring_end - table.ring_offset()));
  QSF_ASSIGN_OR_RETURN(std::unique_ptr<AsyncReader> queue, device.make_queue(ring));
  return std::unique_ptr<TileReader>(new TileReader(table, device, schedule, region, staging,
                                                    std::move(decompressor), std::move(queue)));
}

Status TileReader::start_thread() {
  const int error = thread_.start(&TileReader::run_thread, this);
  if (error == 0) return ok_status();
  return out_of_budget("%s: the system did not start a reading thread: %s",
                       table_.reader().file().path().c_str(), std::strerror(error));
}

TileReader::TileReader(const TileTable& table, const ReadDevice& device, TileSchedule& schedule,
                       MutableByteSpan region, MutableByteSpan staging,
                       TileDecompressor decompressor, std::unique_ptr<AsyncReader> queue)
    : table_(table),
      device_(device),
      schedule_(schedule),
      region_(region),
      stored_staging_(staging.first(static_cast<std::size_t>(table.stored_staging_bytes()))),
      raw_staging_(staging.subspan(static_cast<std::size_t>(table.stored_staging_bytes()),
                                   static_cast<std::size_t>(table.raw_staging_bytes()))),
      decompressor_(std::move(decompressor)),
      queue_(std::move(queue)),
      reading_(queue_->depth()) {
  mapped_.reserve(kMappedAhead);
}

TileReader::~TileReader() {
  if (thread_.is_started()) thread_.join();
}

void* TileReader::run_thread(void* self) {
  static_cast<TileReader*>(self)->run();
  return nullptr;
}

void TileReader::run() {
  note_queue();
  for (;;) {
    const bool goes_on = start_jobs(/*may_wait=*/true);
    if (!mapped_.empty()) {
      finish_mapped();
    } else if (queue_->in_flight() > 0) {
      finish_read();
    } else if (!goes_on) {
      return;
    }
  }
}

void TileReader::read_one() {
  note_queue();
  start_jobs(/*may_wait=*/false);
  if (!mapped_.empty()) {
    finish_mapped();
  } else if (queue_->in_flight() > 0) {
    finish_read();
  }
}

// Starts reads until the queue is full or there is nothing to read; false: the pager is closing.
// Waits for something to read where it may and nothing else is under way.
bool TileReader::start_jobs(bool may_wait) {
  while (queue_->in_flight() < queue_->depth() && mapped_.size() < kMappedAhead) {
    ReadJob job;
    const bool is_idle = may_wait && queue_->in_flight() == 0 && mapped_.empty();
    const TileSchedule::Claim claimed = claim(is_idle, job);
    if (claimed != TileSchedule::Claim::kJob) return claimed == TileSchedule::Claim::kNothing;
    const TileInfo& info = table_.info(job.tile);
    if (table_.tile(job.tile).mapped) {
      device_.will_need(info.file_offset, info.stored_bytes);
      mapped_.push_back(job);
      continue;
    }
    const auto free = std::find_if(reading_.begin(), reading_.end(),
                                   [](const ReadJob& other) { return other.tile == kNoTile; });
    *free = job;
    queue_->start(
        {.offset = info.file_offset,
         .to = {job.place, static_cast<std::size_t>(align_up(info.stored_bytes, kTileAlign))},
         .tag = static_cast<std::uint64_t>(free - reading_.begin())});
  }
  return true;
}

// While there is nothing to read, the page cache is filled where the device does so.
TileSchedule::Claim TileReader::claim(bool is_idle, ReadJob& job) {
  while (is_idle && fills_cache_) {
    const TileSchedule::Claim claimed = schedule_.claim(/*wait=*/true, job, kFillPause);
    if (claimed != TileSchedule::Claim::kNothing) return claimed;
    fills_cache_ = device_.fill_cache();
  }
  return schedule_.claim(is_idle, job);
}

// A queue may find later that it cannot read the way its device does.
void TileReader::note_queue() {
  const std::string_view note = queue_->note();
  if (note.size() != note_chars_) schedule_.note_queue(note);
  note_chars_ = note.size();
}

void TileReader::finish_read() {
  ReadDone done = queue_->wait();
  note_queue();
  finish(std::exchange(reading_[static_cast<std::size_t>(done.tag)], ReadJob{}),
         std::move(done.status));
}

void TileReader::finish_mapped() {
  const ReadJob job = mapped_.front();
  mapped_.erase(mapped_.begin());
  Status status = device_.check_size();
  if (status.ok() && !job.first) {
    const TileInfo& info = table_.info(job.tile);
    touch(device_.mapping().subspan(static_cast<std::size_t>(info.file_offset), info.stored_bytes));
  }
  finish(job, std::move(status));
}

void TileReader::finish(const ReadJob& job, Status status) {
  PrepareTimes times;
  const bool is_wanted = schedule_.read_ended(job);
  start_jobs(/*may_wait=*/false);  // the disk goes on while this tile is checked and unpacked
  status = table_.at_tile(job.tile, std::move(status));
  if (status.ok() && is_wanted) status = prepare(job, times);
  schedule_.complete(job, times, std::move(status));
}

Status TileReader::prepare(const ReadJob& job, PrepareTimes& times) {
  const PagedTile& tile = table_.tile(job.tile);
  const TileInfo& info = table_.info(job.tile);
  const MutableByteSpan stored{job.place, tile.mapped ? 0 : info.stored_bytes};
  if (!tile.staged) {
    if (!job.first) return ok_status();
    const Timer timer(times.check_ns);
    return prepare_in_place(job, stored);
  }
  const MutableByteSpan staged = stored_staging_.first(info.stored_bytes);
  std::memcpy(staged.data(), stored.data(), staged.size());
  if (job.first) {
    const Timer timer(times.check_ns);
    QSF_RETURN_IF_ERROR(table_.check_stored(job.tile, staged));
  }
  return table_.is_vectors(job.tile) ? prepare_vectors(job, staged)
                                     : prepare_staged(job, staged, times);
}

Status TileReader::prepare_in_place(const ReadJob& job, MutableByteSpan bytes) {
  const PagedTile& tile = table_.tile(job.tile);
  const TileInfo& info = table_.info(job.tile);
  const ByteSpan stored =
      tile.mapped
          ? device_.mapping().subspan(static_cast<std::size_t>(info.file_offset), info.stored_bytes)
          : ByteSpan(bytes);
  QSF_RETURN_IF_ERROR(table_.check_stored(job.tile, stored));
  return table_.check_values(job.tile, stored);
}

Status TileReader::prepare_staged(const ReadJob& job, MutableByteSpan stored, PrepareTimes& times) {
  const TileInfo& info = table_.info(job.tile);
  const TensorInfo& tensor = table_.tensor_info(job.tile);
  const bool relaid =
      tensor.layout != Layout::kInterleaved || kernel_format(tensor.format) != tensor.format;
  const MutableByteSpan out{job.place, static_cast<std::size_t>(table_.kernel_bytes(job.tile))};
  MutableByteSpan raw = stored;
  if (info.stored_bytes != info.raw_bytes) {
    raw = relaid ? raw_staging_.first(info.raw_bytes) : out;
    const Timer timer(times.decompress_ns);
    QSF_RETURN_IF_ERROR(table_.decompress(decompressor_, job.tile, stored, raw));
  }
  if (job.first) {
    const Timer timer(times.check_ns);
    QSF_RETURN_IF_ERROR(table_.check_values(job.tile, raw));
  }
  if (relaid) {
    const Timer timer(times.decompress_ns);
    to_kernel_form(tensor.format, tensor.layout, info.n_rows, tensor.cols, raw, out);
  }
  return ok_status();
}

// Widens the one-row tensors of a section to f32, each followed by zeros up to a whole line.
Status TileReader::prepare_vectors(const ReadJob& job, MutableByteSpan stored) {
  const PagedTile& tile = table_.tile(job.tile);
  const TileInfo& info = table_.info(job.tile);
  const std::vector<TensorInfo>& tensors = table_.directory(job.tile).tensors;
  MutableByteSpan raw = stored;
  if (info.stored_bytes != info.raw_bytes) {
    raw = raw_staging_.first(info.raw_bytes);
    QSF_RETURN_IF_ERROR(table_.decompress(decompressor_, job.tile, stored, raw));
  }
  for (std::uint32_t t = 0; t < tensors.size(); ++t) {
    const TensorInfo& tensor = tensors[t];
    if (tensor.rows != 1) continue;
    const ByteSpan row = ByteSpan(raw).subspan(
        static_cast<std::size_t>(one_row_offset(tensors, t)),
        static_cast<std::size_t>(row_major_bytes(tensor.format, tensor.cols)));
    Status valid = check_blocks(tensor.format, Layout::kRowMajor, 1, tensor.cols, row);
    if (!valid.ok()) {
      return table_.at_tile(job.tile, std::move(valid).with_context(tensor_kind_name(tensor.kind)));
    }
    const std::uint64_t at = table_.tensor(tile.section, t).vector_offset;
    const std::span<float> out(reinterpret_cast<float*>(region_.data() + at),
                               static_cast<std::size_t>(align_up(tensor.cols, 16)));
    std::fill(out.begin() + tensor.cols, out.end(), 0.0F);
    decode_row(tensor.format, row, out.first(tensor.cols));
  }
  return ok_status();
}

}  // namespace qsf
