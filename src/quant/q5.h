// SPDX-License-Identifier: MIT
//
// Codes of 5 bits, those of q5_k: the lower four packed as 4-bit codes are, then a plane.
//
//   offset  size  bytes  meaning
//   0        N/2  low    byte j holds code[j + f * N/2] & 15 in bits 4f .. 4f+3, f = 0, 1
//   N/2      N/8  high   bit i % 8 of byte i / 8 is code[i] >> 4

#ifndef QSF_QUANT_Q5_H_
#define QSF_QUANT_Q5_H_

#include <cstddef>
#include <cstdint>

namespace qsf {

// Packs codes, one byte each, into the code bytes of a block, and unpacks them.
// Shapes    codes [block]; those from n_true on stand for columns that do not exist and are zero
void pack_q5(const std::uint8_t* codes, std::uint32_t block, std::uint32_t n_true,
             std::byte* packed) noexcept;
void unpack_q5(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept;

}  // namespace qsf

#endif  // QSF_QUANT_Q5_H_
