// SPDX-License-Identifier: MIT

#include "base/crc32_instruction.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace qsf {

bool has_crc32_instruction() noexcept {
#if defined(__aarch64__)
  return (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#else
  return false;
#endif
}

}  // namespace qsf
