// SPDX-License-Identifier: MIT

#include <windows.h>

#include <algorithm>
#include <cstddef>

#include "platform/cpu.h"

namespace qsf {

// Windows asks for the tile registers by a call that MinGW's headers do not have.
bool request_tile_state() noexcept {
  return false;
}

std::uint64_t last_level_cache_bytes() noexcept {
  alignas(SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX) static std::byte records[std::size_t{64} << 10];
  static const std::uint64_t n_bytes = [] {
    DWORD n = sizeof records;
    auto* first = reinterpret_cast<SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX*>(records);
    if (::GetLogicalProcessorInformationEx(RelationCache, first, &n) == 0) return kUsualCacheBytes;
    std::uint64_t largest = 0;
    for (DWORD at = 0; at < n;) {
      const auto* record =
          reinterpret_cast<const SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX*>(records + at);
      largest = std::max<std::uint64_t>(largest, record->Cache.CacheSize);
      at += record->Size;
    }
    return largest == 0 ? kUsualCacheBytes : largest;
  }();
  return n_bytes;
}

}  // namespace qsf
