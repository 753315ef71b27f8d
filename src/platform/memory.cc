// SPDX-License-Identifier: MIT
//
// Pages by mmap; the memory of the process from /proc.

#include "platform/memory.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace qsf {
namespace {

// Returns the number after `key` in /proc/self/status, in bytes, or 0. Takes no heap: it is called
// while a budget is being held.
std::uint64_t status_field_bytes(const char* key) noexcept {
  char text[4096];
  const int handle = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (handle < 0) return 0;
  const ssize_t n_read = ::read(handle, text, sizeof(text) - 1);
  ::close(handle);
  if (n_read <= 0) return 0;
  text[n_read] = '\0';
  const char* found = std::strstr(text, key);
  if (found == nullptr) return 0;
  return std::strtoull(found + std::strlen(key), nullptr, 10) * 1024;  // the file says kB
}

}  // namespace

std::size_t page_bytes() noexcept {
  static const std::size_t bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

Result<MutableByteSpan> map_pages(std::uint64_t n_bytes, HugePages huge_pages) {
  if (n_bytes == 0) return invalid_argument("memory: a mapping of 0 bytes was asked for");
  if (n_bytes > std::numeric_limits<std::size_t>::max() / 2) {
    return out_of_budget("memory: %llu bytes exceed the address space",
                         static_cast<unsigned long long>(n_bytes));
  }
  const auto length = static_cast<std::size_t>(align_up(n_bytes, page_bytes()));
  void* address =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    return out_of_budget("memory: the system refuses %llu bytes: %s",
                         static_cast<unsigned long long>(n_bytes), std::strerror(errno));
  }
#ifdef MADV_HUGEPAGE
  // Advice: a kernel built without huge pages refuses it, and then there is nothing to advise.
  static_cast<void>(::madvise(address, length,
                              huge_pages == HugePages::kAllow ? MADV_HUGEPAGE : MADV_NOHUGEPAGE));
#else
  static_cast<void>(huge_pages);
#endif
  return MutableByteSpan(static_cast<std::byte*>(address), static_cast<std::size_t>(n_bytes));
}

void unmap_pages(MutableByteSpan pages) noexcept {
  if (pages.empty()) return;
  QSF_CHECK(
      ::munmap(pages.data(), static_cast<std::size_t>(align_up(pages.size(), page_bytes()))) == 0);
}

void discard_pages(MutableByteSpan bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t first = align_up(begin, page_bytes());
  const std::uintptr_t end = (begin + bytes.size()) & ~(page_bytes() - 1);
  if (first >= end) return;
  std::byte* const at = bytes.data() + (first - begin);
  QSF_CHECK(::madvise(at, end - first, MADV_DONTNEED) == 0);
}

void return_free_heap() noexcept {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

void touch_pages(MutableByteSpan bytes) noexcept {
  for (std::size_t at = 0; at < bytes.size(); at += page_bytes()) {
    volatile std::byte& byte = bytes[at];
    byte = byte;
  }
  if (bytes.empty()) return;
  volatile std::byte& last = bytes.back();
  last = last;
}

std::uint64_t resident_bytes() noexcept {
  return status_field_bytes("VmRSS:");
}
std::uint64_t peak_resident_bytes() noexcept {
  return status_field_bytes("VmHWM:");
}

}  // namespace qsf
