// SPDX-License-Identifier: MIT
//
// CRC-32 by the instruction that AArch64 has for this very polynomial, eight bytes each. One
// chain: its latency of two or three cycles still makes 8 GB/s at 3 GHz.

#include "base/crc32_methods.h"

#if defined(__aarch64__) && defined(__linux__)

#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include <cstddef>

namespace qsf {

bool has_crc32_instruction() noexcept {
  return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}

[[gnu::target("+crc")]] std::uint32_t crc32_instruction(ByteSpan bytes,
                                                        std::uint32_t crc) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) crc = __crc32d(crc, load_le<std::uint64_t>(bytes, i));
  for (; i < bytes.size(); ++i) crc = __crc32b(crc, static_cast<std::uint8_t>(bytes[i]));
  return crc;
}

}  // namespace qsf

#else

namespace qsf {

bool has_crc32_instruction() noexcept {
  return false;
}
std::uint32_t crc32_instruction(ByteSpan bytes, std::uint32_t crc) noexcept {
  return crc32_tables(bytes, crc);
}

}  // namespace qsf

#endif
