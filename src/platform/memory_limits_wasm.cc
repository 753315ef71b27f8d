// SPDX-License-Identifier: MIT
//
// The limit is the memory that the page made for the module (web/qsf.js), which does not grow.

#include <emscripten/heap.h>

#include <cstdint>

#include "platform/memory.h"
#include "platform/memory_limits.h"

// Where static data and the stack end, by the linker.
extern "C" std::byte __heap_base;

namespace qsf {

MemoryLimits read_memory_limits(const std::string&) {
  const std::uint64_t all = ::emscripten_get_heap_size();
  return {.limit_bytes = all, .headroom_bytes = all - resident_bytes()};
}

MemoryLimitWatch::MemoryLimitWatch(const std::string&) {}

std::uint64_t MemoryLimitWatch::limit_bytes() const noexcept {
  return kNoMemoryLimit;
}

ProgramMemory program_memory() {
  return {.anonymous_bytes = reinterpret_cast<std::uintptr_t>(&__heap_base)};
}

}  // namespace qsf
