// SPDX-License-Identifier: MIT
//
// CRC-32 as zlib computes it (polynomial 0xEDB88320 reflected, initial and final inversion): the
// checksum of every header, directory and tile of a .qsf file.

#ifndef QSF_BASE_CRC32_H_
#define QSF_BASE_CRC32_H_

#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace qsf {

// Returns the CRC of `bytes`. With `crc` the result of an earlier call it continues that one:
// crc32(b, crc32(a)) == crc32(a followed by b).
// Threads  any
std::uint32_t crc32(ByteSpan bytes, std::uint32_t crc = 0) noexcept;

// Returns crc32(a followed by b) from crc32(a), crc32(b) and the length of b, without their bytes.
// Threads  any
std::uint32_t crc32_combine(std::uint32_t crc_a, std::uint32_t crc_b,
                            std::uint64_t b_bytes) noexcept;

// A way of computing the CRC. `run` continues the register `crc`, which is not inverted before or
// after, over `bytes`.
struct Crc32Method {
  const char* name;
  bool (*is_available)() noexcept;  // on this CPU
  std::uint32_t (*run)(ByteSpan bytes, std::uint32_t crc) noexcept;
};

// Returns every method in this binary, the fastest first; the last one, tables, runs everywhere.
// crc32() uses the first available one; tests try them all.
std::span<const Crc32Method> crc32_methods() noexcept;

}  // namespace qsf

#endif  // QSF_BASE_CRC32_H_
