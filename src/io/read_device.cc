// SPDX-License-Identifier: MIT

#include "io/read_device.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "base/check.h"
#include "io/pending_read.h"
#include "io/queued_readers.h"
#include "platform/memory.h"
#include "platform/thread.h"

namespace qsf {

struct ReadDevice::State {
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (!mapping.empty()) source.ops->unmap(mapping);
    if (owns_handle) source.ops->close(source.handle);
    if (owns_cached_handle) source.ops->close(source.cached_handle);
  }

  void open_handle(const File& file, const ReadDeviceOptions& options);
  void open_cached_handle(const File& file);
  ByteSpan mapped_pages(std::uint64_t offset, std::uint64_t bytes) const noexcept;
  bool open_mapping(const File& file, const ReadDeviceOptions& options);
  void choose_path(std::optional<ReadPath> wanted);
  void add_reason(const std::string& reason) {
    if (!fall_back.empty()) fall_back += "; ";
    fall_back += reason;
  }

  ReadSource source;
  FileStorage storage;
  ReadPath path = ReadPath::kPread;
  unsigned depth = kDefaultReadDepth;
  std::uint32_t block_bytes = 0;
  bool owns_handle = false;
  bool owns_cached_handle = false;
  bool fills_cache = false;
  std::atomic<std::uint64_t> filled_bytes{0};
  std::string fall_back;
  ByteSpan mapping;
  // The ring that showed that there are rings, for whoever makes the first queue.
  std::mutex mutex;
  std::unique_ptr<ReadRing> spare_ring;
};

namespace {

// Frees memory that was allocated for direct reads.
struct AlignedDelete {
  void operator()(std::byte* memory) const noexcept {
    ::operator delete[](memory, std::align_val_t{kDirectAlign});
  }
};

using AlignedPage = std::unique_ptr<std::byte, AlignedDelete>;

AlignedPage make_page() {
  return AlignedPage(new (std::align_val_t{kDirectAlign}) std::byte[kDirectAlign]);
}

// Reads the first bytes of a handle that was opened directly: some file systems refuse only then.
int try_direct_read(FileOps& ops, int handle) {
  const std::unique_ptr<std::byte, AlignedDelete> page(new (std::align_val_t{kDirectAlign})
                                                           std::byte[kDirectAlign]);
  std::int64_t n;
  do {
    n = ops.read_at(handle, {page.get(), kDirectAlign}, 0);
  } while (n == -EINTR);
  return n < 0 ? static_cast<int>(n) : 0;
}

// Reads the first bytes by a ring: a sandbox may let a program make one and not use it.
int try_ring_read(std::unique_ptr<ReadRing>& ring, int handle) {
  const AlignedPage page = make_page();
  RingDone done;
  do {
    const int submitted = ring->submit(handle, {page.get(), kDirectAlign}, 0, 0);
    if (submitted < 0) return submitted;
    int waited;
    do {
      waited = ring->wait(done);
    } while (waited == -EINTR);
    if (waited < 0) {
      ring.reset();  // before the page: until then the kernel may write there
      return waited;
    }
  } while (done.result == -EINTR);
  return done.result < 0 ? static_cast<int>(done.result) : 0;
}

std::string ring_refusal(int error) {
  switch (error) {
    case ENOSYS: return "this kernel or this build has none";
    case EPERM: return "forbidden here, by a sandbox or by kernel.io_uring_disabled";
    case ENOMEM: return "no memory for its queues; ulimit -l bounds it on old kernels";
    default: return std::strerror(error);
  }
}

// Returns a handle for direct reads, or the reason why there is none.
struct DirectHandle {
  int handle = -1;
  std::string refusal;
};

DirectHandle open_direct(const File& file, const FileStorage& storage) {
  FileOps& ops = file.ops();
  if (storage.is_in_memory) return {.refusal = "the file lies in memory (tmpfs)"};
  if (storage.direct_alignment == 0) return {.refusal = "this file system has none"};
  if (kDirectAlign % storage.direct_alignment != 0) {
    return {.refusal = "they would have to be multiples of " +
                       std::to_string(storage.direct_alignment) + " bytes"};
  }
  const int handle = ops.reopen(file.handle(), /*direct=*/true);
  if (handle < 0) {
    return {.refusal = std::string("opening the file for them failed: ") + std::strerror(-handle)};
  }
  const int tried = try_direct_read(ops, handle);
  if (tried == 0) return {.handle = handle};
  ops.close(handle);
  return {.refusal = std::string("the first one failed: ") + std::strerror(-tried)};
}

}  // namespace

std::string_view read_path_name(ReadPath path) noexcept {
  switch (path) {
    case ReadPath::kUring: return system_file_ops().ring_name();
    case ReadPath::kPread: return "pread";
    case ReadPath::kMmap: return "mmap";
  }
  return "unknown";
}

// Returns the whole pages of the mapping that a range touches.
ByteSpan ReadDevice::State::mapped_pages(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  if (bytes == 0 || offset >= mapping.size()) return {};
  const std::uint64_t begin = offset - offset % page_bytes();
  const std::uint64_t end = std::min<std::uint64_t>(mapping.size(), saturating_add(offset, bytes));
  return mapping.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

// Opens the handle that reads go to.
void ReadDevice::State::open_handle(const File& file, const ReadDeviceOptions& options) {
  FileOps& ops = file.ops();
  if (options.direct) {
    const DirectHandle direct = open_direct(file, storage);
    if (direct.handle >= 0) {
      source.handle = direct.handle;
      source.alignment = storage.direct_alignment;
      owns_handle = true;
      fills_cache = options.fill_cache;
      return open_cached_handle(file);
    }
    add_reason("direct reads: " + direct.refusal + "; reading through the page cache");
  }
  // A separate handle where possible, so that advice about its reads does not affect other readers
  // of the file.
  const int handle = ops.reopen(file.handle(), /*direct=*/false);
  if (handle >= 0) {
    source.handle = handle;
    owns_handle = true;
  }
  source.drop_cached = (options.direct && !options.fill_cache) || !options.keep_cached;
  if (source.drop_cached) ops.advise(source.handle, 0, 0, FileAdvice::kRandom);
}

// Opens the handle for the reads that direct reads leave to the page cache, without read-ahead by
// the kernel, whose pages would not be counted.
void ReadDevice::State::open_cached_handle(const File& file) {
  FileOps& ops = file.ops();
  const int handle = ops.reopen(file.handle(), /*direct=*/false);
  if (handle >= 0) {
    source.cached_handle = handle;
    owns_cached_handle = true;
  }
  ops.advise(source.cached_handle, 0, 0, FileAdvice::kRandom);
}

// Maps the file; where that fails it is as before, with a reason.
bool ReadDevice::State::open_mapping(const File& file, const ReadDeviceOptions& options) {
  FileOps& ops = file.ops();
  const int handle = ops.reopen(file.handle(), /*direct=*/false);
  const int mapped_handle = handle >= 0 ? handle : file.handle();
  const int mapped =
      source.size_bytes == 0 ? 0 : ops.map(mapped_handle, source.size_bytes, mapping);
  if (mapped < 0) {
    add_reason(std::string("mmap: ") + std::strerror(-mapped) + "; reading instead");
    if (handle >= 0) ops.close(handle);
    return false;
  }
  path = ReadPath::kMmap;
  source.handle = mapped_handle;
  source.drop_cached = options.direct || !options.keep_cached;
  owns_handle = handle >= 0;
  return true;
}

// Finds the best path that works for reads of the handle.
void ReadDevice::State::choose_path(std::optional<ReadPath> wanted) {
  if (wanted == ReadPath::kPread) return;
  int opened = source.ops->open_ring(depth, spare_ring);
  if (opened == 0) opened = try_ring_read(spare_ring, source.handle);
  if (opened == 0) {
    path = ReadPath::kUring;
    return;
  }
  spare_ring.reset();
  add_reason(std::string(source.ops->ring_name()) + ": " + ring_refusal(-opened) +
             "; reading with threads (pread)");
}

Result<ReadDevice> ReadDevice::open(const File& file, const ReadDeviceOptions& options) {
  QSF_CHECK(options.depth <= kMaxReadDepth);
  auto state = std::make_unique<State>();
  state->source = {.ops = &file.ops(),
                   .name = file.path(),
                   .size_bytes = file.size_bytes(),
                   .handle = file.handle(),
                   .cached_handle = file.handle()};
  state->storage = file.ops().storage(file.handle());
  if (options.depth != 0) state->depth = options.depth;
  state->block_bytes = options.block_bytes;
  if (options.path != ReadPath::kMmap || !state->open_mapping(file, options)) {
    state->open_handle(file, options);
    state->choose_path(options.path);
  }
  return ReadDevice(std::move(state));
}

ReadDevice::ReadDevice(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
ReadDevice::ReadDevice(ReadDevice&& other) noexcept = default;
ReadDevice& ReadDevice::operator=(ReadDevice&& other) noexcept = default;
ReadDevice::~ReadDevice() = default;

ReadPath ReadDevice::path() const noexcept {
  return state_->path;
}
bool ReadDevice::is_direct() const noexcept {
  return state_->source.direct();
}
bool ReadDevice::is_in_memory() const noexcept {
  return state_->storage.is_in_memory;
}
std::uint64_t ReadDevice::disk_id() const noexcept {
  return state_->storage.disk_id;
}
unsigned ReadDevice::depth() const noexcept {
  return state_->depth;
}
std::uint32_t ReadDevice::alignment() const noexcept {
  return state_->source.alignment;
}
std::string_view ReadDevice::fall_back() const noexcept {
  return state_->fall_back;
}

unsigned ReadDevice::n_queues() const noexcept {
  switch (state_->path) {
    case ReadPath::kUring: return 1;
    case ReadPath::kPread: return has_threads() ? state_->depth : 1;
    case ReadPath::kMmap: return has_threads() ? 2 : 1;
  }
  return 1;
}

Result<std::unique_ptr<AsyncReader>> ReadDevice::make_queue(MutableByteSpan registered) const {
  if (state_->path != ReadPath::kUring) return make_blocking_queue();
  std::unique_ptr<ReadRing> ring;
  {
    const std::lock_guard lock(state_->mutex);
    ring = std::move(state_->spare_ring);
  }
  if (ring == nullptr) {
    const int opened = state_->source.ops->open_ring(state_->depth, ring);
    if (opened < 0) {
      return io_error("%s: another queue of %s: %s", state_->source.name.c_str(),
                      std::string(state_->source.ops->ring_name()).c_str(),
                      ring_refusal(-opened).c_str());
    }
  }
  auto queue =
      std::make_unique<RingReader>(state_->source, std::move(ring), state_->depth, registered);
  if (state_->block_bytes == 0) return {std::move(queue)};
  return {std::make_unique<SplitReader>(std::move(queue), state_->block_bytes)};
}

std::unique_ptr<AsyncReader> ReadDevice::make_blocking_queue() const {
  return std::make_unique<BlockingReader>(state_->source);
}

ByteSpan ReadDevice::mapping() const noexcept {
  return state_->mapping;
}

Status ReadDevice::check_size() const {
  const ReadSource& source = state_->source;
  const std::int64_t bytes = source.ops->file_bytes(source.handle);
  if (bytes < 0) {
    return io_error("%s: its size cannot be read: %s", source.name.c_str(),
                    std::strerror(static_cast<int>(-bytes)));
  }
  if (static_cast<std::uint64_t>(bytes) >= source.size_bytes) return ok_status();
  return corrupt(
      "%s: the file has %lld bytes but had %llu when it was opened; it was truncated "
      "meanwhile",
      source.name.c_str(), static_cast<long long>(bytes),
      static_cast<unsigned long long>(source.size_bytes));
}

void ReadDevice::drop(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  const ReadSource& source = state_->source;
  if (offset >= source.size_bytes || bytes == 0) return;
  bytes = std::min(bytes, source.size_bytes - offset);
  // Mapped pages stay in the cache, so the mapping drops them first.
  const ByteSpan mapped = state_->mapped_pages(offset, bytes);
  if (!mapped.empty()) source.ops->advise_mapping(mapped, FileAdvice::kDontNeed);
  if (source.drop_cached) {
    source.ops->advise(source.handle, offset, bytes, FileAdvice::kDontNeed);
  }
}

bool ReadDevice::fill_cache() const noexcept {
  constexpr std::uint64_t kPieceBytes = std::uint64_t{4} << 20;
  if (!state_->fills_cache) return false;
  const ReadSource& source = state_->source;
  const std::uint64_t offset = state_->filled_bytes.fetch_add(kPieceBytes);
  if (offset >= source.size_bytes) return false;
  const std::uint64_t bytes = std::min(kPieceBytes, source.size_bytes - offset);
  source.ops->advise(source.cached_handle, offset, bytes, FileAdvice::kWillNeed);
  return offset + bytes < source.size_bytes;
}

void ReadDevice::will_need(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  const ByteSpan mapped = state_->mapped_pages(offset, bytes);
  if (!mapped.empty()) state_->source.ops->advise_mapping(mapped, FileAdvice::kWillNeed);
}

}  // namespace qsf
