// SPDX-License-Identifier: MIT
//
// Pages by VirtualAlloc, committed at once: Windows promises memory when it is committed, not when
// it is touched, and the limits of jobs count what is committed. The memory plan asks for what it
// has counted, so committed bytes are planned bytes.

#include <windows.h>
// Needs the types of windows.h.
#include <psapi.h>

#include <cstdint>
#include <limits>

#include "base/check.h"
#include "platform/memory.h"

namespace qsf {
namespace {

PROCESS_MEMORY_COUNTERS memory_counters() noexcept {
  PROCESS_MEMORY_COUNTERS counters = {};
  ::K32GetProcessMemoryInfo(::GetCurrentProcess(), &counters, sizeof counters);
  return counters;
}

}  // namespace

std::size_t page_bytes() noexcept {
  static const std::size_t bytes = [] {
    SYSTEM_INFO about;
    ::GetSystemInfo(&about);
    return std::size_t{about.dwPageSize};
  }();
  return bytes;
}

// Large pages need a privilege that users do not have.
Result<MutableByteSpan> map_pages(std::uint64_t n_bytes, HugePages) {
  if (n_bytes == 0) return invalid_argument("memory: a mapping of 0 bytes was asked for");
  if (n_bytes > std::numeric_limits<std::size_t>::max() / 2) {
    return out_of_budget("memory: %llu bytes exceed the address space",
                         static_cast<unsigned long long>(n_bytes));
  }
  const auto length = static_cast<std::size_t>(align_up(n_bytes, page_bytes()));
  void* address = ::VirtualAlloc(nullptr, length, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
  if (address == nullptr) {
    return out_of_budget("memory: the system refuses to commit %llu bytes: error %lu",
                         static_cast<unsigned long long>(n_bytes), ::GetLastError());
  }
  return MutableByteSpan(static_cast<std::byte*>(address), static_cast<std::size_t>(n_bytes));
}

void unmap_pages(MutableByteSpan pages) noexcept {
  if (pages.empty()) return;
  QSF_CHECK(::VirtualFree(pages.data(), 0, MEM_RELEASE) != 0);
}

// The commitment is given up and taken again, which makes the pages zeros without touching them.
void discard_pages(MutableByteSpan bytes) noexcept {
  const MutableByteSpan pages = whole_pages(bytes, page_bytes());
  if (pages.empty()) return;
  QSF_CHECK(::VirtualFree(pages.data(), pages.size(), MEM_DECOMMIT) != 0);
  QSF_CHECK(::VirtualAlloc(pages.data(), pages.size(), MEM_COMMIT, PAGE_READWRITE) == pages.data());
}

void return_free_heap() noexcept {
  ::HeapCompact(::GetProcessHeap(), 0);
}

std::uint64_t resident_bytes() noexcept {
  return memory_counters().WorkingSetSize;
}
std::uint64_t peak_resident_bytes() noexcept {
  return memory_counters().PeakWorkingSetSize;
}

}  // namespace qsf
