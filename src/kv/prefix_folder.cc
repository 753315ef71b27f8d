// SPDX-License-Identifier: MIT
//
// Files by number, found by a hash table of their paths and kept in the order of their use.

#include "kv/prefix_folder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "platform/clock.h"
#include "platform/random_bytes.h"

namespace qsf {
namespace {

constexpr std::string_view kMagic = "QSFPAGE1";
constexpr std::string_view kEnding = ".kv";
constexpr std::size_t kMaxNumberBytes = 10;
// Not every page is worth a line: a full disk stays full for a while.
constexpr std::uint64_t kWarnEveryNs = 60'000'000'000;
// What read_file() says of a file that is not of the expected length.
constexpr int kWrongLength = 1;

constexpr std::uint64_t behind(std::uint64_t offset, std::uint64_t n, std::size_t bytes) noexcept {
  return align_up(offset + n * bytes, 64);
}

// Calls `transfer(at)` until `n_bytes` are moved. Returns 0, a negative errno, or kWrongLength
// where nothing more comes.
template <typename Transfer>
int transfer_all(std::size_t n_bytes, const Transfer& transfer) {
  std::size_t done = 0;
  while (done < n_bytes) {
    const std::int64_t n = transfer(done);
    if (n == -EINTR) continue;
    if (n <= 0) return n == 0 ? kWrongLength : static_cast<int>(n);
    done += static_cast<std::size_t>(n);
  }
  return 0;
}

}  // namespace

std::uint32_t PrefixFolder::n_files(std::uint64_t max_bytes, std::uint64_t page_bytes) noexcept {
  const std::uint64_t n = max_bytes / (kHeaderBytes + page_bytes);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(n, kMaxFiles));
}

std::uint64_t PrefixFolder::region_bytes(std::uint64_t max_bytes,
                                         std::uint64_t page_bytes) noexcept {
  const std::uint32_t n = n_files(max_bytes, page_bytes);
  return behind(behind(0, n, sizeof(File)), std::bit_ceil(n), sizeof(std::uint32_t));
}

Result<std::unique_ptr<PrefixFolder>> PrefixFolder::open(PrefixFolderOptions options,
                                                         MutableByteSpan pages,
                                                         std::uint64_t page_bytes,
                                                         MutableByteSpan region, FileOps& ops) {
  QSF_CHECK(n_files(options.max_bytes, page_bytes) != 0);
  QSF_CHECK(region.size() >= region_bytes(options.max_bytes, page_bytes));
  if (ops.path_kind(options.folder) != PathKind::kDirectory) {
    return io_error("%s: no folder, expected one for pages of the prefix cache; create it",
                    options.folder.c_str());
  }
  SipKey secret;
  QSF_RETURN_IF_ERROR(fill_with_random_bytes(std::as_writable_bytes(std::span(&secret, 1))));
  return std::unique_ptr<PrefixFolder>(
      new PrefixFolder(std::move(options), pages, page_bytes, region, secret, ops));
}

PrefixFolder::PrefixFolder(PrefixFolderOptions options, MutableByteSpan pages,
                           std::uint64_t page_bytes, MutableByteSpan region, const SipKey& secret,
                           FileOps& ops)
    : options_(std::move(options)),
      pages_(pages),
      page_bytes_(page_bytes),
      secret_(secret),
      ops_(ops) {
  const std::uint32_t n = n_files(options_.max_bytes, page_bytes);
  files_ = {reinterpret_cast<File*>(region.data()), n};
  buckets_ = {reinterpret_cast<std::uint32_t*>(region.data() + behind(0, n, sizeof(File))),
              std::bit_ceil(n)};
  std::fill(buckets_.begin(), buckets_.end(), kNone);
  for (std::uint32_t number = n; number > 0; --number) {
    files_[number - 1].newer = std::exchange(first_unused_, number - 1);
  }
  name_.reserve(options_.folder.size() + 6 + kMaxNumberBytes + kEnding.size());
}

PrefixFolder::~PrefixFolder() {
  while (oldest_ != kNone) forget(oldest_);
}

PrefixPath PrefixFolder::path_of(std::string_view key) const noexcept {
  SipHasher hasher(secret_);
  hasher.add(std::as_bytes(std::span(key.data(), key.size())));
  return hasher.finish();
}

PrefixPath PrefixFolder::path_of(const PrefixPath& before,
                                 std::span<const std::uint32_t> tokens) const noexcept {
  SipHasher hasher(secret_);
  hasher.add(std::as_bytes(std::span(&before, 1)));
  hasher.add(std::as_bytes(tokens));
  return hasher.finish();
}

MutableByteSpan PrefixFolder::bytes_of(std::uint32_t page) const noexcept {
  const auto n_bytes = static_cast<std::size_t>(page_bytes_);
  return pages_.subspan(page * n_bytes, n_bytes);
}

std::uint32_t& PrefixFolder::bucket_of(const PrefixPath& path) const noexcept {
  return buckets_[path.first % buckets_.size()];
}

std::uint32_t PrefixFolder::find(const PrefixPath& path) const noexcept {
  std::uint32_t number = bucket_of(path);
  while (number != kNone && files_[number].path != path) number = files_[number].next;
  return number;
}

// Makes a file the newest.
void PrefixFolder::link(std::uint32_t number) noexcept {
  files_[number].newer = kNone;
  files_[number].older = newest_;
  (newest_ == kNone ? oldest_ : files_[newest_].newer) = number;
  newest_ = number;
}

void PrefixFolder::unlink(std::uint32_t number) noexcept {
  const File& file = files_[number];
  (file.newer == kNone ? newest_ : files_[file.newer].older) = file.older;
  (file.older == kNone ? oldest_ : files_[file.older].newer) = file.newer;
}

void PrefixFolder::touch(std::uint32_t number) noexcept {
  unlink(number);
  link(number);
}

// Removes a file.
void PrefixFolder::forget(std::uint32_t number) noexcept {
  unlink(number);
  std::uint32_t* at = &bucket_of(files_[number].path);
  while (*at != number) at = &files_[*at].next;
  *at = files_[number].next;
  files_[number].newer = std::exchange(first_unused_, number);
  ops_.remove(name_of(number));
  --counts_.n_files;
}

// Returns the number of a file that is not there, and removes the oldest one for it if need be.
std::uint32_t PrefixFolder::take_number() noexcept {
  if (first_unused_ == kNone) {
    forget(oldest_);
    ++counts_.n_removed;
  }
  return std::exchange(first_unused_, files_[first_unused_].newer);
}

const std::string& PrefixFolder::name_of(std::uint32_t number) noexcept {
  char digits[kMaxNumberBytes];
  const std::to_chars_result end = std::to_chars(digits, digits + sizeof digits, number);
  name_ = options_.folder;
  name_ += "/page-";
  name_.append(digits, static_cast<std::size_t>(end.ptr - digits));
  name_ += kEnding;
  return name_;
}

void PrefixFolder::make_header(const PrefixPath& path, ByteSpan page,
                               std::span<std::byte> header) const {
  SipHasher hasher(secret_);
  hasher.add(std::as_bytes(std::span(&path, 1)));
  hasher.add(page);
  const SipHash hash = hasher.finish();
  std::memset(header.data(), 0, header.size());
  std::memcpy(header.data(), kMagic.data(), kMagic.size());
  std::memcpy(header.data() + 8, &page_bytes_, 8);
  std::memcpy(header.data() + 16, &path, sizeof path);
  std::memcpy(header.data() + 32, &hash, sizeof hash);
}

// Returns 0 or a negative errno.
int PrefixFolder::write_file(std::uint32_t number, ByteSpan header, ByteSpan page) noexcept {
  const std::string& name = name_of(number);
  ops_.remove(name);
  const int handle = ops_.create_scratch(name);
  if (handle < 0) return handle;
  const auto write = [&](ByteSpan bytes, std::uint64_t offset) {
    return transfer_all(bytes.size(), [&](std::size_t at) {
      return ops_.write_at(handle, bytes.subspan(at), offset + at);
    });
  };
  int result = write(header, 0);
  if (result == 0) result = write(page, header.size());
  // Also starts writing to the disk, without waiting for it.
  if (options_.drop_cached) ops_.advise(handle, 0, 0, FileAdvice::kDontNeed);
  const int closed = ops_.close(handle);
  if (result == 0 && closed != -EINTR) result = closed;
  if (result != 0) ops_.remove(name);
  return result;
}

void PrefixFolder::write(const PrefixPath& path, std::uint32_t page) noexcept {
  if (const std::uint32_t held = find(path); held != kNone) return touch(held);
  if (n_written_in_pass_ == kPagesPerPass) {
    ++counts_.n_dropped;
    return;
  }
  ++n_written_in_pass_;
  const ByteSpan bytes = bytes_of(page);
  std::array<std::byte, kHeaderBytes> header;
  make_header(path, bytes, header);
  const std::uint32_t number = take_number();
  if (const int error = write_file(number, header, bytes); error != 0) {
    files_[number].newer = std::exchange(first_unused_, number);
    ++counts_.n_write_errors;
    return warn(number, "writing", error);
  }
  files_[number].path = path;
  files_[number].next = std::exchange(bucket_of(path), number);
  link(number);
  ++counts_.n_files;
  counts_.n_written_bytes += header.size() + bytes.size();
}

// Returns 0, a negative errno, or kWrongLength.
int PrefixFolder::read_file(std::uint32_t number, MutableByteSpan header,
                            MutableByteSpan page) noexcept {
  const int handle = ops_.open_read(name_of(number));
  if (handle < 0) return handle;
  const auto read = [&](MutableByteSpan to, std::uint64_t offset) {
    return transfer_all(to.size(), [&](std::size_t at) {
      return ops_.read_at(handle, to.subspan(at), offset + at);
    });
  };
  int result = ops_.check_regular(handle) == 0 ? 0 : kWrongLength;
  if (result == 0) {
    const std::int64_t n_bytes = ops_.file_bytes(handle);
    if (n_bytes != static_cast<std::int64_t>(header.size() + page.size())) result = kWrongLength;
  }
  if (result == 0) result = read(header, 0);
  if (result == 0) result = read(page, header.size());
  if (options_.drop_cached) ops_.advise(handle, 0, 0, FileAdvice::kDontNeed);
  ops_.close(handle);
  return result;
}

bool PrefixFolder::read(const PrefixPath& path, std::uint32_t page) noexcept {
  const std::uint32_t number = find(path);
  if (number == kNone) return false;
  const MutableByteSpan bytes = bytes_of(page);
  std::array<std::byte, kHeaderBytes> header;
  std::array<std::byte, kHeaderBytes> expected;
  const int error = read_file(number, header, bytes);
  if (error == 0) make_header(path, bytes, expected);
  if (error != 0 || header != expected) {
    ++counts_.n_read_errors;
    warn(number, "reading", error == 0 ? kWrongLength : error);
    forget(number);
    // Masked slots are multiplied by 0, which removes finite numbers alone.
    std::memset(bytes.data(), 0, bytes.size());
    return false;
  }
  touch(number);
  counts_.n_read_bytes += header.size() + bytes.size();
  return true;
}

void PrefixFolder::warn(std::uint32_t number, const char* what, int error) noexcept {
  const std::uint64_t now = monotonic_ns();
  if (warned_ns_ != 0 && now - warned_ns_ < kWarnEveryNs) return;
  warned_ns_ = now;
  const bool is_full = error == -ENOSPC || error == -EDQUOT;
  char line[400];
  std::snprintf(line, sizeof line,
                "%s: %s a page of the prefix cache failed: %s; it is computed again when it is "
                "wanted%s",
                name_of(number).c_str(), what,
                error < 0 ? std::strerror(-error) : "the file was cut or changed",
                is_full ? "; free some space or name a smaller size" : "");
  options_.log.warning(line);
}

PrefixFolderStats PrefixFolder::stats() const noexcept {
  PrefixFolderStats stats = counts_;
  stats.n_bytes = stats.n_files * (kHeaderBytes + page_bytes_);
  return stats;
}

}  // namespace qsf
