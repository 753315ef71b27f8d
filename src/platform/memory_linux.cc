// SPDX-License-Identifier: MIT
//
// Pages given back, and the memory of the process from /proc.

#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "platform/memory.h"
#include "platform/memory_limits.h"

namespace qsf {
namespace {

// Returns the number after `key` in /proc/self/status, in bytes, or 0. Takes no heap: it is called
// while a budget is being held.
std::uint64_t status_field_bytes(std::string_view key) noexcept {
  char text[4096];
  const int handle = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (handle < 0) return 0;
  const ssize_t n_read = ::read(handle, text, sizeof text);
  ::close(handle);
  if (n_read <= 0) return 0;
  return table_number({text, static_cast<std::size_t>(n_read)}, key) * 1024;  // the file says kB
}

}  // namespace

void discard_pages(MutableByteSpan bytes) noexcept {
  const MutableByteSpan pages = whole_pages(bytes, page_bytes());
  if (pages.empty()) return;
  QSF_CHECK(::madvise(pages.data(), pages.size(), MADV_DONTNEED) == 0);
}

void return_free_heap() noexcept {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

std::uint64_t resident_bytes() noexcept {
  return status_field_bytes("VmRSS:");
}
std::uint64_t peak_resident_bytes() noexcept {
  return status_field_bytes("VmHWM:");
}

}  // namespace qsf
