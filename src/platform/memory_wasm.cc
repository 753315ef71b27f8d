// SPDX-License-Identifier: MIT
//
// The memory of a WebAssembly module is one array of bytes, all of which count from the start.

#include <emscripten/heap.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "platform/memory.h"

namespace qsf {

void discard_pages(MutableByteSpan bytes) noexcept {
  const MutableByteSpan pages = whole_pages(bytes, page_bytes());
  if (!pages.empty()) std::memset(pages.data(), 0, pages.size());
}

void return_free_heap() noexcept {}

// What the heap has reached: it never gets smaller.
std::uint64_t resident_bytes() noexcept {
  return reinterpret_cast<std::uintptr_t>(::sbrk(0));
}

std::uint64_t peak_resident_bytes() noexcept {
  return resident_bytes();
}

}  // namespace qsf
