// SPDX-License-Identifier: MIT
//
// Packing of codes, one byte each, into the code bytes of a layout-0 block and back.
//
// A block of N columns (N = 16, or a multiple of 32 up to 256), offsets from its first code byte:
//
//   bits     offset     size  contents
//   2        0           N/4  byte j holds code[j + f * N/4] in bits 2f .. 2f+1, f = 0 .. 3
//   3        0           N/8  plane of code & 1
//            N/8         N/4  code >> 1, packed as 2-bit codes
//   4        0           N/2  byte j holds code[j + f * N/2] in bits 4f .. 4f+3, f = 0, 1
//   5        0           N/2  code & 15, packed as 4-bit codes
//            N/2         N/8  plane of code >> 4
//   6        0           N/2  code & 15, packed as 4-bit codes
//            N/2         N/4  code >> 4, packed as 2-bit codes
//   8        0             N  byte i is code[i], two's complement
//   ternary  0           N/8  sign: plane of code == 0
//            N/8         N/8  zero: plane of code == 1; readers ignore the sign bit of a zero
//   qk256    0           N/4  byte b holds code[4b + f] in bits 2f .. 2f+1, f = 0 .. 3
//
// A plane has one bit per column: bit i % 8 of byte i / 8. Codes of one byte are far apart in the
// row, except in qk256, so that one AND and one shift yield runs in weight order. Base-3 packing is
// in quant/base3.h.
//
// Shapes    codes [block]; packed as above
// Requires  codes fit the width when packing; codes from n_true on (columns that do not exist) are
//           zero

#ifndef QSF_QUANT_CODE_PACKING_H_
#define QSF_QUANT_CODE_PACKING_H_

#include <cstddef>
#include <cstdint>

namespace qsf {

using PackCodesFn = void (*)(const std::uint8_t* codes, std::uint32_t block, std::uint32_t n_true,
                             std::byte* packed) noexcept;
using UnpackCodesFn = void (*)(const std::byte* packed, std::uint32_t block,
                               std::uint8_t* codes) noexcept;

void pack_2bit(const std::uint8_t* codes, std::uint32_t block, std::uint32_t n_true,
               std::byte* packed) noexcept;
void pack_3bit(const std::uint8_t* codes, std::uint32_t block, std::uint32_t n_true,
               std::byte* packed) noexcept;
void pack_4bit(const std::uint8_t* codes, std::uint32_t block, std::uint32_t n_true,
               std::byte* packed) noexcept;
void pack_5bit(const std::uint8_t* codes, std::uint32_t block, std::uint32_t n_true,
               std::byte* packed) noexcept;
void pack_6bit(const std::uint8_t* codes, std::uint32_t block, std::uint32_t n_true,
               std::byte* packed) noexcept;
void pack_8bit(const std::uint8_t* codes, std::uint32_t block, std::uint32_t n_true,
               std::byte* packed) noexcept;
void pack_ternary(const std::uint8_t* codes, std::uint32_t block, std::uint32_t n_true,
                  std::byte* packed) noexcept;
void pack_qk256(const std::uint8_t* codes, std::uint32_t block, std::uint32_t n_true,
                std::byte* packed) noexcept;

void unpack_2bit(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept;
void unpack_3bit(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept;
void unpack_4bit(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept;
void unpack_5bit(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept;
void unpack_6bit(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept;
void unpack_8bit(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept;
void unpack_ternary(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept;
void unpack_qk256(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept;

}  // namespace qsf

#endif  // QSF_QUANT_CODE_PACKING_H_
