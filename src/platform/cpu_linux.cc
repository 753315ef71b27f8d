// SPDX-License-Identifier: MIT
//
// What Linux says about the CPU: by arch_prctl, the auxiliary vector and the C library.

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "platform/cpu.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace qsf {

#if defined(__x86_64__)
// Linux saves the tile registers only for programs that request them.
bool request_tile_state() noexcept {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#elif defined(__aarch64__)
CpuFeatures system_neon_features() noexcept {
  CpuFeatures cpu;
  if ((::getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) cpu.add(CpuFeature::kNeonDot);
  if ((::getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0) cpu.add(CpuFeature::kNeonI8mm);
  return cpu;
}
#endif

std::uint64_t last_level_cache_bytes() noexcept {
  long n_bytes = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE) && defined(_SC_LEVEL3_CACHE_SIZE)
  n_bytes = std::max(::sysconf(_SC_LEVEL2_CACHE_SIZE), ::sysconf(_SC_LEVEL3_CACHE_SIZE));
#endif
  return n_bytes > 0 ? static_cast<std::uint64_t>(n_bytes) : kUsualCacheBytes;
}

}  // namespace qsf
