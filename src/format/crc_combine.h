// SPDX-License-Identifier: MIT
//
// Joins the CRC-32 of two neighbouring byte ranges without their bytes: the writer learns a
// section's directory, which stands first, only after its tiles have gone to disk.

#ifndef QSF_FORMAT_CRC_COMBINE_H_
#define QSF_FORMAT_CRC_COMBINE_H_

#include <cstdint>

namespace qsf {

// Returns crc32(a followed by b) from crc32(a), crc32(b) and the length of b.
// Threads  any
std::uint32_t crc32_combine(std::uint32_t crc_a, std::uint32_t crc_b,
                            std::uint64_t b_bytes) noexcept;

}  // namespace qsf

#endif  // QSF_FORMAT_CRC_COMBINE_H_
