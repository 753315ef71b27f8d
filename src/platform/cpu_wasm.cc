// SPDX-License-Identifier: MIT
//
// A program of WebAssembly learns nothing of the CPU; its own vectors are known when it is
// compiled.

#include "platform/cpu.h"

namespace qsf {

bool request_tile_state() noexcept {
  return false;
}

CpuFeatures system_neon_features() noexcept {
  return {};
}

std::uint64_t last_level_cache_bytes() noexcept {
  return kUsualCacheBytes;
}

}  // namespace qsf
