// SPDX-License-Identifier: MIT

#include "io/atomic_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "io/process_id.h"

namespace qsf {
namespace {

constexpr int kMaxNameAttempts = 100;
constexpr const char* kTemporaryMark = ".tmp-";

// Unique among the processes of this machine and the files of this process; a name that a dead
// process left behind is stepped over.
std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  return path + kTemporaryMark + process_id() + "-" + std::to_string(counter.fetch_add(1));
}

Status create_failed(const std::string& path, int error) {
  if (error == ENOENT || error == ENOTDIR) {
    return io_error("%s: cannot be created: its directory does not exist", path.c_str());
  }
  if (error == EACCES || error == EPERM || error == EROFS) {
    return io_error("%s: cannot be created: no permission to write in its directory (%s)",
                    path.c_str(), std::strerror(error));
  }
  return io_error("%s: cannot be created: %s", path.c_str(), std::strerror(error));
}

Status write_failed(const std::string& path, const char* what, int error) {
  if (error == ENOSPC || error == EDQUOT) {
    return io_error("%s: %s failed: the disk is full (%s); free some space or choose another place",
                    path.c_str(), what, std::strerror(error));
  }
  return io_error("%s: %s failed: %s", path.c_str(), what, std::strerror(error));
}

}  // namespace

Result<AtomicFile> AtomicFile::create(const std::string& path, FileOps& ops) {
  if (path.empty()) return invalid_argument("the name of the output file is empty");
  switch (ops.path_kind(path)) {
    case PathKind::kDirectory:
      return io_error("%s: is a directory, expected the name of a file", path.c_str());
    case PathKind::kOther:
      return io_error("%s: is not a regular file and will not be replaced", path.c_str());
    case PathKind::kMissing:
    case PathKind::kRegular: break;
  }
  // If this fails, creating a file with a name gives the better error.
  if (const int handle = ops.create_unnamed(path); handle >= 0) {
    return AtomicFile(ops, path, "", handle);
  }
  for (int attempt = 0; attempt < kMaxNameAttempts; ++attempt) {
    std::string temporary = temporary_name(path);
    const int handle = ops.create_new(temporary);
    if (handle >= 0) return AtomicFile(ops, path, std::move(temporary), handle);
    if (handle != -EEXIST && handle != -EINTR) return create_failed(path, -handle);
  }
  return create_failed(path, EEXIST);
}

AtomicFile::AtomicFile(FileOps& ops, std::string path, std::string temporary_path,
                       int handle) noexcept
    : ops_(&ops),
      path_(std::move(path)),
      temporary_path_(std::move(temporary_path)),
      handle_(handle) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : ops_(other.ops_),
      path_(std::move(other.path_)),
      temporary_path_(std::exchange(other.temporary_path_, {})),
      handle_(std::exchange(other.handle_, -1)) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(ops_, other.ops_);
  std::swap(path_, other.path_);
  std::swap(temporary_path_, other.temporary_path_);
  std::swap(handle_, other.handle_);
  return *this;
}

AtomicFile::~AtomicFile() {
  abandon();
}

void AtomicFile::abandon() noexcept {
  if (handle_ >= 0) ops_->close(std::exchange(handle_, -1));
  if (!temporary_path_.empty()) ops_->remove(temporary_path_);
  temporary_path_.clear();
}

Status AtomicFile::write_at(std::uint64_t offset, ByteSpan from) {
  while (!from.empty()) {
    const std::size_t part = std::min(from.size(), kMaxTransferBytes);
    const std::int64_t n = ops_->write_at(handle_, from.first(part), offset);
    if (n == -EINTR) continue;
    if (n <= 0) {
      return write_failed(path_, "writing", n == 0 ? EIO : static_cast<int>(-n));
    }
    from = from.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return ok_status();
}

Status AtomicFile::resize(std::uint64_t bytes) {
  int result;
  do {
    result = ops_->resize(handle_, bytes);
  } while (result == -EINTR);
  return result < 0 ? write_failed(path_, "setting the length", -result) : ok_status();
}

int AtomicFile::sync() noexcept {
  int result;
  do {
    result = ops_->sync(handle_);
  } while (result == -EINTR);
  return result;
}

Status AtomicFile::drop_cached() {
  const int result = sync();
  if (result < 0) return write_failed(path_, "writing to the disk", -result);
  ops_->advise(handle_, 0, 0, FileAdvice::kDontNeed);
  return ok_status();
}

// Gives a file without a name the target's, where that is free, or a temporary one.
int AtomicFile::give_name() {
  std::string name = path_;
  int result = ops_->give_name(handle_, name);
  for (int attempt = 0; attempt < kMaxNameAttempts && result == -EEXIST; ++attempt) {
    name = temporary_name(path_);
    result = ops_->give_name(handle_, name);
  }
  if (result == 0) temporary_path_ = std::move(name);
  return result;
}

Status AtomicFile::commit() {
  QSF_CHECK(handle_ >= 0);
  const auto naming_failed = [this](int error) {
    abandon();
    return io_error("%s: renaming the finished file failed: %s", path_.c_str(),
                    std::strerror(error));
  };
  int result = sync();
  if (result == 0 && temporary_path_.empty()) {
    const int named = give_name();
    if (named < 0) return naming_failed(-named);
  }
  if (result == 0) {
    result = ops_->close(std::exchange(handle_, -1));
    if (result == -EINTR) result = 0;  // Linux has closed the handle all the same
  }
  if (result < 0) {
    abandon();
    return write_failed(path_, "writing to the disk", -result);
  }
  if (temporary_path_ != path_) {
    result = ops_->rename(temporary_path_, path_);
    if (result < 0) return naming_failed(-result);
  }
  temporary_path_.clear();
  result = ops_->sync_directory_of(path_);
  if (result < 0) {
    return io_error(
        "%s: is complete, but syncing its directory failed: %s; after a power failure "
        "the file may be missing",
        path_.c_str(), std::strerror(-result));
  }
  return ok_status();
}

std::string final_name(const std::string& name) {
  const std::size_t mark = name.rfind(kTemporaryMark);
  if (mark == std::string::npos) return name;
  const std::string rest = name.substr(mark + std::strlen(kTemporaryMark));
  const bool is_ours = rest.find('-') != std::string::npos &&
                       rest.find_first_not_of("0123456789-") == std::string::npos;
  return is_ours ? name.substr(0, mark) : name;
}

Status write_file(const std::string& path, ByteSpan bytes, FileOps& ops) {
  QSF_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path, ops));
  QSF_RETURN_IF_ERROR(file.write_at(0, bytes));
  return file.commit();
}

}  // namespace qsf
