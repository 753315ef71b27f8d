// SPDX-License-Identifier: MIT
//
// Pages by mmap.

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "platform/memory.h"

namespace qsf {

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

}  // namespace qsf
