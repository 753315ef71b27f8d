// SPDX-License-Identifier: MIT
//
// The ways of computing a CRC-32, for crc32() to choose from and for tests to walk.

#ifndef QSF_BASE_CRC32_METHODS_H_
#define QSF_BASE_CRC32_METHODS_H_

#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace qsf {

// Continues the register `crc`, which is not inverted before or after, over `bytes`.
using Crc32Fn = std::uint32_t (*)(ByteSpan bytes, std::uint32_t crc) noexcept;

struct Crc32Method {
  const char* name;
  bool (*is_available)() noexcept;  // on this CPU
  Crc32Fn run;
};

// Every method in this binary, the fastest first; the last one, tables, runs everywhere.
std::span<const Crc32Method> crc32_methods() noexcept;

// Returns whether the CPU multiplies polynomials (x86-64 PCLMULQDQ); false on other machines.
bool has_crc32_clmul() noexcept;
// Requires  has_crc32_clmul()
std::uint32_t crc32_clmul(ByteSpan bytes, std::uint32_t crc) noexcept;

// Returns whether the CPU has an instruction for this CRC (AArch64); false on other machines.
bool has_crc32_instruction() noexcept;
// Requires  has_crc32_instruction()
std::uint32_t crc32_instruction(ByteSpan bytes, std::uint32_t crc) noexcept;

// Eight tables, eight bytes a step.
std::uint32_t crc32_tables(ByteSpan bytes, std::uint32_t crc) noexcept;

}  // namespace qsf

#endif  // QSF_BASE_CRC32_METHODS_H_
