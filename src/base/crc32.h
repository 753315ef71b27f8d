// SPDX-License-Identifier: MIT
//
// CRC-32 as zlib computes it (polynomial 0xEDB88320 reflected, initial and final inversion): the
// checksum of every header, directory and tile of a .qsf file.

#ifndef QSF_BASE_CRC32_H_
#define QSF_BASE_CRC32_H_

#include <cstdint>

#include "base/bytes.h"

namespace qsf {

// Returns the CRC of `bytes`. With `crc` the result of an earlier call it continues that one:
// crc32(b, crc32(a)) == crc32(a followed by b).
// Threads  any
std::uint32_t crc32(ByteSpan bytes, std::uint32_t crc = 0) noexcept;

}  // namespace qsf

#endif  // QSF_BASE_CRC32_H_
