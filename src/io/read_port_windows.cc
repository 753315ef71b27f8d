// SPDX-License-Identifier: MIT
//
// The completion port behind OverlappedRing. A file can belong to one port only, for as long as it
// is open, so that a port opens the files of its reads again, once each: a handle stays open, and
// so names the same file, as long as the ring that reads from it.

#include <windows.h>

#include <cerrno>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "io/overlapped_ring.h"
#include "io/windows_errors.h"
#include "io/windows_handles.h"

namespace qsf {
namespace {

// Windows hands out the address of an operation; the slot stands behind it.
struct Operation {
  OVERLAPPED overlapped;
  std::size_t slot;
};

class WindowsReadPort final : public ReadPort {
 public:
  WindowsReadPort(HANDLE port, unsigned depth) : port_(port), operations_(depth) {}
  ~WindowsReadPort() override {
    for (const auto& [handle, ours] : files_) close_file(ours);
    ::CloseHandle(port_);
  }

  int start(std::size_t slot, int handle, MutableByteSpan to, std::uint64_t offset) override {
    const int file = file_of(handle);
    if (file < 0) return file;
    if (const int checked = check_direct(file, to, offset); checked < 0) return checked;
    Operation& operation = operations_[slot];
    operation = {};
    operation.slot = slot;
    operation.overlapped.Offset = static_cast<DWORD>(offset);
    operation.overlapped.OffsetHigh = static_cast<DWORD>(offset >> 32);
    if (::ReadFile(windows_handle(file), to.data(), static_cast<DWORD>(to.size()), nullptr,
                   &operation.overlapped) != 0) {
      return 0;  // its packet comes all the same
    }
    const DWORD error = ::GetLastError();
    if (error == ERROR_IO_PENDING) return 0;
    return error == ERROR_HANDLE_EOF ? -ENODATA : -errno_of_windows(error);
  }

  int next(PortPacket& packet) override {
    DWORD n_bytes = 0;
    ULONG_PTR key = 0;
    OVERLAPPED* ended = nullptr;
    const bool good = ::GetQueuedCompletionStatus(port_, &n_bytes, &key, &ended, INFINITE) != 0;
    if (ended == nullptr) return -errno_of_windows(::GetLastError());
    packet.slot = reinterpret_cast<const Operation*>(ended)->slot;
    packet.result = good ? std::int64_t{n_bytes} : read_result_of_windows(::GetLastError());
    return 0;
  }

  void cancel() override {
    for (const auto& [handle, ours] : files_) ::CancelIoEx(windows_handle(ours), nullptr);
  }

 private:
  int file_of(int handle) {
    const auto known = files_.find(handle);
    if (known != files_.end()) return known->second;
    const int ours = reopen_file(handle, /*for_writing=*/false, is_direct(handle));
    if (ours < 0) return ours;
    if (::CreateIoCompletionPort(windows_handle(ours), port_, 0, 0) == nullptr) {
      const int error = errno_of_windows(::GetLastError());
      close_file(ours);
      return -error;
    }
    files_[handle] = ours;
    return ours;
  }

  HANDLE port_;
  std::vector<Operation> operations_;
  std::map<int, int> files_;  // a handle of a read: that of the same file for this port
};

}  // namespace

int open_overlapped(unsigned depth, std::unique_ptr<ReadRing>& ring) {
  HANDLE port = ::CreateIoCompletionPort(INVALID_HANDLE_VALUE, nullptr, 0, 1);
  if (port == nullptr) return -errno_of_windows(::GetLastError());
  ring = std::make_unique<OverlappedRing>(std::make_unique<WindowsReadPort>(port, depth), depth);
  return 0;
}

}  // namespace qsf
