// SPDX-License-Identifier: MIT
//
// Pages given back, and the memory of the process by task_info().

#include <mach/mach.h>
#include <malloc/malloc.h>
#include <sys/mman.h>

#include <cstdint>

#include "base/check.h"
#include "platform/memory.h"

namespace qsf {
namespace {

mach_task_basic_info task_memory() noexcept {
  mach_task_basic_info info = {};
  mach_msg_type_number_t n_words = MACH_TASK_BASIC_INFO_COUNT;
  ::task_info(::mach_task_self(), MACH_TASK_BASIC_INFO, reinterpret_cast<task_info_t>(&info),
              &n_words);
  return info;
}

}  // namespace

// Advice would leave the pages to the process until memory is short, with their bytes; a new
// mapping in their place takes them away.
void discard_pages(MutableByteSpan bytes) noexcept {
  const MutableByteSpan pages = whole_pages(bytes, page_bytes());
  if (pages.empty()) return;
  QSF_CHECK(::mmap(pages.data(), pages.size(), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANON | MAP_FIXED, -1, 0) == pages.data());
}

void return_free_heap() noexcept {
  ::malloc_zone_pressure_relief(nullptr, 0);
}

std::uint64_t resident_bytes() noexcept {
  return task_memory().resident_size;
}

std::uint64_t peak_resident_bytes() noexcept {
  return task_memory().resident_size_max;
}

}  // namespace qsf
