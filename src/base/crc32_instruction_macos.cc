// SPDX-License-Identifier: MIT

#include "base/crc32_instruction.h"

namespace qsf {

// All of Apple's processors for AArch64 are of ARMv8.3 or newer, where it is not optional.
bool has_crc32_instruction() noexcept {
#if defined(__aarch64__)
  return true;
#else
  return false;
#endif
}

}  // namespace qsf
