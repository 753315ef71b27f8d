// SPDX-License-Identifier: MIT

#ifndef QSF_BASE_CRC32_INSTRUCTION_H_
#define QSF_BASE_CRC32_INSTRUCTION_H_

namespace qsf {

// Whether this CPU has AArch64's instruction for the CRC-32 of crc32.h, as the system says.
// Threads  any
bool has_crc32_instruction() noexcept;

}  // namespace qsf

#endif  // QSF_BASE_CRC32_INSTRUCTION_H_
