// SPDX-License-Identifier: MIT

#include "io/read_device.h"

#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/check.h"
#include "io/blocking_reader.h"
#include "io/pending_read.h"

namespace qsf {

struct ReadDevice::State {
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (owns_handle) source.ops->close(source.handle);
  }

  void add_reason(const std::string& reason) {
    if (!fall_back.empty()) fall_back += "; ";
    fall_back += reason;
  }

  ReadSource source;
  FileStorage storage;
  ReadPath path = ReadPath::kPread;
  unsigned depth = kDefaultReadDepth;
  bool owns_handle = false;
  std::string fall_back;
};

namespace {

// Frees memory that was allocated for direct reads.
struct AlignedDelete {
  void operator()(std::byte* memory) const noexcept {
    ::operator delete[](memory, std::align_val_t{kDirectAlign});
  }
};

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
    case ReadPath::kUring: return "io_uring";
    case ReadPath::kPread: return "pread";
    case ReadPath::kMmap: return "mmap";
  }
  return "unknown";
}

Result<ReadDevice> ReadDevice::open(const File& file, const ReadDeviceOptions& options) {
  QSF_CHECK(options.depth <= kMaxReadDepth);
  FileOps& ops = file.ops();
  auto state = std::make_unique<State>();
  state->source = {.ops = &ops,
                   .name = file.path(),
                   .size_bytes = file.size_bytes(),
                   .handle = file.handle(),
                   .cached_handle = file.handle()};
  state->storage = ops.storage(file.handle());
  if (options.depth != 0) state->depth = options.depth;
  ReadSource& source = state->source;

  if (options.direct) {
    DirectHandle direct = open_direct(file, state->storage);
    if (direct.handle >= 0) {
      source.handle = direct.handle;
      source.alignment = state->storage.direct_alignment;
      state->owns_handle = true;
    } else {
      state->add_reason("direct reads: " + direct.refusal + "; reading through the page cache");
    }
  }
  if (!state->owns_handle) {
    // A handle of its own where there can be one, so that what it says of its reads does not bind
    // other readers of the file.
    const int handle = ops.reopen(file.handle(), /*direct=*/false);
    if (handle >= 0) {
      source.handle = handle;
      state->owns_handle = true;
    }
    source.drop_cached = options.direct || !options.keep_cached;
    if (source.drop_cached) ops.advise(source.handle, 0, 0, FileAdvice::kRandom);
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
    case ReadPath::kPread: return state_->depth;
    case ReadPath::kMmap: return 2;
  }
  return 1;
}

Result<std::unique_ptr<AsyncReader>> ReadDevice::make_queue(MutableByteSpan) const {
  return std::unique_ptr<AsyncReader>(std::make_unique<BlockingReader>(state_->source));
}

ByteSpan ReadDevice::mapping() const noexcept {
  return {};
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
  if (bytes == 0 || !source.drop_cached) return;
  source.ops->advise(source.handle, offset, bytes, FileAdvice::kDontNeed);
}

void ReadDevice::will_need(std::uint64_t, std::uint64_t) const noexcept {}

}  // namespace qsf
