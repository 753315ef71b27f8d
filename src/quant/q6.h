// SPDX-License-Identifier: MIT
//
// Codes of 6 bits, those of q6_k: the lower four packed as 4-bit codes are, then the upper two as
// 2-bit codes are.
//
//   offset  size  bytes  meaning
//   0        N/2  low    byte j holds code[j + f * N/2] & 15 in bits 4f .. 4f+3, f = 0, 1
//   N/2      N/4  high   byte j holds code[j + f * N/4] >> 4 in bits 2f .. 2f+1, f = 0 .. 3

#ifndef QSF_QUANT_Q6_H_
#define QSF_QUANT_Q6_H_

#include <cstddef>
#include <cstdint>

namespace qsf {

// Packs codes, one byte each, into the code bytes of a block, and unpacks them.
// Shapes    codes [block]; those from n_true on stand for columns that do not exist and are zero
void pack_q6(const std::uint8_t* codes, std::uint32_t block, std::uint32_t n_true,
             std::byte* packed) noexcept;
void unpack_q6(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept;

}  // namespace qsf

#endif  // QSF_QUANT_Q6_H_
