// SPDX-License-Identifier: MIT

#include "base/crc32_instruction.h"

namespace qsf {

// For AArch64 alone, which there is no Windows build for.
bool has_crc32_instruction() noexcept {
  return false;
}

}  // namespace qsf
