// SPDX-License-Identifier: MIT
//
// What macOS says about the CPU, by sysctl.

#include <algorithm>

#include "platform/cpu.h"
#include "platform/sysctl_number.h"

namespace qsf {

#if defined(__x86_64__)
// No Mac has tile registers.
bool request_tile_state() noexcept {
  return false;
}
#elif defined(__aarch64__)
CpuFeatures system_neon_features() noexcept {
  CpuFeatures cpu;
  if (sysctl_number("hw.optional.arm.FEAT_DotProd") != 0) cpu.add(CpuFeature::kNeonDot);
  if (sysctl_number("hw.optional.arm.FEAT_I8MM") != 0) cpu.add(CpuFeature::kNeonI8mm);
  return cpu;
}
#endif

std::uint64_t last_level_cache_bytes() noexcept {
  // The first group of cores is the fast one; Apple's processors have no third level.
  const std::uint64_t n_bytes =
      std::max({sysctl_number("hw.perflevel0.l2cachesize"), sysctl_number("hw.l2cachesize"),
                sysctl_number("hw.l3cachesize")});
  return n_bytes > 0 ? n_bytes : kUsualCacheBytes;
}

}  // namespace qsf
