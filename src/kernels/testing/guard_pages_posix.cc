// SPDX-License-Identifier: MIT

#include <sys/mman.h>
#include <unistd.h>

#include "kernels/testing/guard_pages.h"

namespace qsf::kernels::testing_support {

std::size_t guard_bytes() noexcept {
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

std::byte* map_between_guards(std::size_t n_bytes) noexcept {
  void* const base = mmap(nullptr, n_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(base);
  const std::size_t page = guard_bytes();
  if (mprotect(begin + page, n_bytes - 2 * page, PROT_READ | PROT_WRITE) == 0) return begin;
  munmap(base, n_bytes);
  return nullptr;
}

void unmap_guarded(std::byte* base, std::size_t n_bytes) noexcept {
  munmap(base, n_bytes);
}

}  // namespace qsf::kernels::testing_support
