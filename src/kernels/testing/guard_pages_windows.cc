// SPDX-License-Identifier: MIT

#include <windows.h>

#include "kernels/testing/guard_pages.h"

namespace qsf::kernels::testing_support {

std::size_t guard_bytes() noexcept {
  SYSTEM_INFO about = {};
  ::GetSystemInfo(&about);
  return about.dwPageSize;
}

// Pages that are reserved and not committed cannot be touched.
std::byte* map_between_guards(std::size_t n_bytes) noexcept {
  auto* const begin =
      static_cast<std::byte*>(::VirtualAlloc(nullptr, n_bytes, MEM_RESERVE, PAGE_NOACCESS));
  const std::size_t page = guard_bytes();
  if (begin == nullptr ||
      ::VirtualAlloc(begin + page, n_bytes - 2 * page, MEM_COMMIT, PAGE_READWRITE) != nullptr) {
    return begin;
  }
  unmap_guarded(begin, n_bytes);
  return nullptr;
}

void unmap_guarded(std::byte* base, std::size_t) noexcept {
  ::VirtualFree(base, 0, MEM_RELEASE);
}

}  // namespace qsf::kernels::testing_support
