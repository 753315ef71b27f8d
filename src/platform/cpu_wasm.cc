// SPDX-License-Identifier: MIT
//
// A program of WebAssembly learns nothing of the CPU; its own vectors are known when it is
// compiled.

#include "platform/cpu.h"

namespace qsf {

bool request_tile_state() noexcept {
  return false;
}

bool system_reports_neon_dot() noexcept {
  return false;
}

std::uint64_t last_level_cache_bytes() noexcept {
  return kUsualCacheBytes;
}

}  // namespace qsf
