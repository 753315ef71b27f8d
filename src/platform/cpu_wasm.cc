// SPDX-License-Identifier: MIT
//
// A program of WebAssembly learns nothing of the CPU.

#include "platform/cpu.h"

namespace qsf {

std::uint64_t last_level_cache_bytes() noexcept {
  return kUsualCacheBytes;
}

}  // namespace qsf
