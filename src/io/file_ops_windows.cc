// SPDX-License-Identifier: MIT
//
// FileOps of Windows. Files are opened so that others may read, rename and remove them meanwhile,
// as POSIX does.

#include <windows.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include "io/file_ops.h"
#include "io/overlapped_ring.h"
#include "io/windows_errors.h"
#include "io/windows_handles.h"
#include "platform/wide_text.h"

namespace qsf {
namespace {

constexpr DWORD kShareAll = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

// What the system does not tell of a handle: sectors of direct ones, and what removes a scratch
// file when it is closed.
struct HandleNote {
  std::uint32_t alignment = 0;  // 0: not direct
  std::wstring scratch_path;
  HANDLE remover = INVALID_HANDLE_VALUE;
};

struct HandleNotes {
  std::mutex mutex;
  std::map<int, HandleNote> notes;
};

HandleNotes& handle_notes() {
  static HandleNotes& notes = *new HandleNotes;
  return notes;
}

int last_error() noexcept {
  return -errno_of_windows(::GetLastError());
}

int or_last_error(BOOL succeeded) noexcept {
  return succeeded != 0 ? 0 : last_error();
}

int open_file(const std::string& path, DWORD access, DWORD disposition) {
  HANDLE handle = ::CreateFileW(wide_path(path).c_str(), access, kShareAll, nullptr, disposition,
                                FILE_FLAG_OVERLAPPED, nullptr);
  if (handle != INVALID_HANDLE_VALUE) return handle_number(handle);
  return last_error();
}

std::uint32_t sector_bytes(int handle) {
  constexpr std::uint32_t kUsual = 4096;
  FILE_STORAGE_INFO about = {};
  if (::GetFileInformationByHandleEx(windows_handle(handle), FileStorageInfo, &about,
                                     sizeof about) == 0) {
    return kUsual;
  }
  const std::uint32_t n_bytes = about.FileSystemEffectivePhysicalBytesPerSectorForAtomicity;
  return n_bytes == 0 || (n_bytes & (n_bytes - 1)) != 0 ? kUsual : n_bytes;
}

// The event that this thread waits on for its own transfers, one at a time.
class TransferEvent {
 public:
  TransferEvent() : event_(::CreateEventW(nullptr, TRUE, FALSE, nullptr)) {}
  TransferEvent(const TransferEvent&) = delete;
  TransferEvent& operator=(const TransferEvent&) = delete;
  ~TransferEvent() { ::CloseHandle(event_); }
  HANDLE get() const noexcept { return event_; }

 private:
  HANDLE event_;
};

// Starts a transfer by `start` and waits for its end.
template <typename Start>
std::int64_t transfer(int handle, std::uint64_t offset, const Start& start) {
  thread_local const TransferEvent event;
  OVERLAPPED overlapped = {};
  overlapped.Offset = static_cast<DWORD>(offset);
  overlapped.OffsetHigh = static_cast<DWORD>(offset >> 32);
  overlapped.hEvent = event.get();
  DWORD n_bytes = 0;
  if (start(windows_handle(handle), &overlapped) == 0 && ::GetLastError() != ERROR_IO_PENDING) {
    return read_result_of_windows(::GetLastError());
  }
  if (::GetOverlappedResult(windows_handle(handle), &overlapped, &n_bytes, TRUE) == 0) {
    return read_result_of_windows(::GetLastError());
  }
  return n_bytes;
}

class WindowsFileOps final : public FileOps {
 public:
  std::string_view ring_name() const noexcept override { return "overlapped"; }

  int open_read(const std::string& path) override {
    const int handle = open_file(path, GENERIC_READ, OPEN_EXISTING);
    // A folder is refused like a file without permission.
    if (handle == -EACCES && path_kind(path) == PathKind::kDirectory) return -EISDIR;
    return handle;
  }
  // Deleting is renaming too.
  int create_new(const std::string& path) override {
    return open_file(path, GENERIC_READ | GENERIC_WRITE | DELETE, CREATE_NEW);
  }
  int create_unnamed(const std::string&) override { return -EOPNOTSUPP; }
  int give_name(int, const std::string&) override { return -EOPNOTSUPP; }
  int create_scratch(const std::string& path) override {
    const int handle = open_file(path, GENERIC_READ | GENERIC_WRITE, CREATE_NEW);
    if (handle < 0) return handle;
    HandleNotes& known = handle_notes();
    const std::lock_guard lock(known.mutex);
    known.notes[handle].scratch_path = wide_path(path);
    return handle;
  }
  PathKind path_kind(const std::string& path) override {
    const DWORD attributes = ::GetFileAttributesW(wide_path(path).c_str());
    if (attributes == INVALID_FILE_ATTRIBUTES) return PathKind::kMissing;
    if ((attributes & FILE_ATTRIBUTE_DIRECTORY) != 0) return PathKind::kDirectory;
    return (attributes & FILE_ATTRIBUTE_DEVICE) != 0 ? PathKind::kOther : PathKind::kRegular;
  }
  int check_regular(int handle) override {
    return ::GetFileType(windows_handle(handle)) == FILE_TYPE_DISK ? 0 : -EINVAL;
  }
  std::int64_t file_bytes(int handle) override {
    LARGE_INTEGER n_bytes = {};
    if (::GetFileSizeEx(windows_handle(handle), &n_bytes) == 0) return last_error();
    return n_bytes.QuadPart;
  }
  int reopen(int handle, bool direct) override { return reopen_file(handle, false, direct); }
  int reopen_for_writing(int handle, bool direct) override {
    return reopen_file(handle, true, direct);
  }
  FileStorage storage(int handle) override {
    FileStorage result;
    BY_HANDLE_FILE_INFORMATION about = {};
    if (::GetFileInformationByHandle(windows_handle(handle), &about) != 0) {
      result.disk_id = about.dwVolumeSerialNumber;
    }
    result.direct_alignment = sector_bytes(handle);
    return result;
  }
  // The cache of Windows takes no advice about a range.
  int advise(int, std::uint64_t, std::uint64_t, FileAdvice) override { return 0; }
  int map(int handle, std::uint64_t bytes, ByteSpan& mapping) override {
    HANDLE section =
        ::CreateFileMappingW(windows_handle(handle), nullptr, PAGE_READONLY,
                             static_cast<DWORD>(bytes >> 32), static_cast<DWORD>(bytes), nullptr);
    if (section == nullptr) return last_error();
    const auto n = static_cast<std::size_t>(bytes);
    const void* pages = ::MapViewOfFile(section, FILE_MAP_READ, 0, 0, n);
    const int error = pages == nullptr ? last_error() : 0;
    ::CloseHandle(section);  // the view keeps it
    if (error == 0) mapping = {static_cast<const std::byte*>(pages), n};
    return error;
  }
  void unmap(ByteSpan mapping) override { ::UnmapViewOfFile(mapping.data()); }
  int advise_mapping(ByteSpan part, FileAdvice advice) override {
    auto* const first = const_cast<std::byte*>(part.data());
    if (advice == FileAdvice::kWillNeed) {
      WIN32_MEMORY_RANGE_ENTRY range = {.VirtualAddress = first, .NumberOfBytes = part.size()};
      return or_last_error(::PrefetchVirtualMemory(::GetCurrentProcess(), 1, &range, 0));
    }
    // Of pages that are not locked it takes them out of the working set, and says that they are
    // not.
    if (advice == FileAdvice::kDontNeed) ::VirtualUnlock(first, part.size());
    return 0;
  }
  int open_ring(unsigned depth, std::unique_ptr<ReadRing>& ring) override {
    return open_overlapped(depth, ring);
  }
  std::int64_t read_at(int handle, MutableByteSpan to, std::uint64_t offset) override {
    if (offset > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return 0;
    if (const int checked = check_direct(handle, to, offset); checked < 0) return checked;
    return transfer(handle, offset, [to](HANDLE file, OVERLAPPED* overlapped) {
      return ::ReadFile(file, to.data(), static_cast<DWORD>(to.size()), nullptr, overlapped);
    });
  }
  std::int64_t write_at(int handle, ByteSpan from, std::uint64_t offset) override {
    if (offset > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return -EFBIG;
    }
    if (const int checked = check_direct(handle, from, offset); checked < 0) return checked;
    return transfer(handle, offset, [from](HANDLE file, OVERLAPPED* overlapped) {
      return ::WriteFile(file, from.data(), static_cast<DWORD>(from.size()), nullptr, overlapped);
    });
  }
  int allocate(int handle, std::uint64_t bytes) override {
    FILE_ALLOCATION_INFO space = {};
    space.AllocationSize.QuadPart = static_cast<LONGLONG>(bytes);
    if (::SetFileInformationByHandle(windows_handle(handle), FileAllocationInfo, &space,
                                     sizeof space) == 0) {
      const int error = last_error();
      return error == -ENOSPC ? error : -EOPNOTSUPP;
    }
    return resize(handle, bytes);
  }
  int resize(int handle, std::uint64_t bytes) override {
    FILE_END_OF_FILE_INFO end = {};
    end.EndOfFile.QuadPart = static_cast<LONGLONG>(bytes);
    return or_last_error(
        ::SetFileInformationByHandle(windows_handle(handle), FileEndOfFileInfo, &end, sizeof end));
  }
  int sync(int handle) override {
    return or_last_error(::FlushFileBuffers(windows_handle(handle)));
  }
  int close(int handle) override { return close_file(handle); }
  int rename(const std::string& from, const std::string& to) override;
  int remove(const std::string& path) override;
  // Names are durable with the file system's log.
  int sync_directory_of(const std::string&) override { return 0; }
};

// One step for everybody who looks, also where the other file is open.
int WindowsFileOps::rename(const std::string& from, const std::string& to) {
  HANDLE file = ::CreateFileW(wide_path(from).c_str(), DELETE | SYNCHRONIZE, kShareAll, nullptr,
                              OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, nullptr);
  if (file == INVALID_HANDLE_VALUE) return last_error();
  const std::wstring name = wide_path(to);
  const std::size_t name_bytes = name.size() * sizeof(wchar_t);
  std::vector<std::max_align_t> memory(
      (sizeof(FILE_RENAME_INFO) + name_bytes) / sizeof(std::max_align_t) + 1);
  auto* const about = reinterpret_cast<FILE_RENAME_INFO*>(memory.data());
  about->ReplaceIfExists = TRUE;
  about->FileNameLength = static_cast<DWORD>(name_bytes);
  std::memcpy(about->FileName, name.c_str(), name_bytes + sizeof(wchar_t));
  const BOOL renamed = ::SetFileInformationByHandle(
      file, FileRenameInfo, about, static_cast<DWORD>(sizeof(FILE_RENAME_INFO) + name_bytes));
  const int result = or_last_error(renamed);
  ::CloseHandle(file);
  if (result == 0) return 0;
  return or_last_error(::MoveFileExW(wide_path(from).c_str(), name.c_str(),
                                     MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH));
}

// A file that was removed cannot be opened again by its handle, as scratch files are: they keep
// their name and disappear when they are closed, or when the process ends.
int WindowsFileOps::remove(const std::string& path) {
  const std::wstring name = wide_path(path);
  HandleNotes& known = handle_notes();
  const std::lock_guard lock(known.mutex);
  for (auto& [handle, note] : known.notes) {
    if (note.scratch_path != name || note.remover != INVALID_HANDLE_VALUE) continue;
    note.remover = ::CreateFileW(name.c_str(), DELETE, kShareAll, nullptr, OPEN_EXISTING,
                                 FILE_FLAG_DELETE_ON_CLOSE, nullptr);
    return note.remover == INVALID_HANDLE_VALUE ? last_error() : 0;
  }
  return or_last_error(::DeleteFileW(name.c_str()));
}

}  // namespace

void* windows_handle(int handle) noexcept {
  return reinterpret_cast<void*>(static_cast<std::intptr_t>(handle));
}

int handle_number(void* handle) noexcept {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(handle));
}

int reopen_file(int handle, bool for_writing, bool direct) {
  const DWORD access = for_writing ? GENERIC_READ | GENERIC_WRITE : GENERIC_READ;
  const DWORD flags = FILE_FLAG_OVERLAPPED | (direct ? FILE_FLAG_NO_BUFFERING : 0);
  HANDLE opened = ::ReOpenFile(windows_handle(handle), access, kShareAll, flags);
  if (opened == INVALID_HANDLE_VALUE) return last_error();
  const int number = handle_number(opened);
  if (direct) {
    HandleNotes& known = handle_notes();
    const std::lock_guard lock(known.mutex);
    known.notes[number].alignment = sector_bytes(number);
  }
  return number;
}

int close_file(int handle) {
  HANDLE remover = INVALID_HANDLE_VALUE;
  {
    HandleNotes& known = handle_notes();
    const std::lock_guard lock(known.mutex);
    const auto note = known.notes.find(handle);
    if (note != known.notes.end()) {
      remover = note->second.remover;
      known.notes.erase(note);
    }
  }
  const int result = or_last_error(::CloseHandle(windows_handle(handle)));
  if (remover != INVALID_HANDLE_VALUE) ::CloseHandle(remover);
  return result;
}

bool is_direct(int handle) {
  HandleNotes& known = handle_notes();
  const std::lock_guard lock(known.mutex);
  const auto note = known.notes.find(handle);
  return note != known.notes.end() && note->second.alignment != 0;
}

int check_direct(int handle, ByteSpan memory, std::uint64_t offset) {
  HandleNotes& known = handle_notes();
  const std::lock_guard lock(known.mutex);
  const auto note = known.notes.find(handle);
  if (note == known.notes.end() || note->second.alignment == 0) return 0;
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  const bool is_whole = ((address | memory.size() | offset) & (note->second.alignment - 1)) == 0;
  return is_whole ? 0 : -EINVAL;
}

FileOps& system_file_ops() noexcept {
  static WindowsFileOps ops;
  return ops;
}

}  // namespace qsf
