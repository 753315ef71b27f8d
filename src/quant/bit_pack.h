// SPDX-License-Identifier: MIT
//
// Packing of codes, one byte each, into the code bytes of a layout-0 block and back.
//
//   2-bit  byte j holds code[j + f * block / 4] in bits 2f .. 2f+1     f = 0 .. 3
//   4-bit  byte j holds code[j + f * block / 2] in bits 4f .. 4f+3     f = 0, 1
//   plane  bit i % 8 of byte i / 8 holds bit 0 of code[i]
//
// Codes pair far apart, not with neighbours: one AND and one shift yield runs in weight order.

#ifndef QSF_QUANT_BIT_PACK_H_
#define QSF_QUANT_BIT_PACK_H_

#include <cstddef>
#include <cstdint>

namespace qsf {

// Shapes    codes [block], packed [block / 4], [block / 2] and [block / 8] bytes
// Requires  block is 16, or a multiple of 32 and at most 256; codes are below 4, 16 and 2 when
// packing
void pack_2bit(const std::uint8_t* codes, std::uint32_t block, std::byte* packed) noexcept;
void unpack_2bit(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept;
void pack_4bit(const std::uint8_t* codes, std::uint32_t block, std::byte* packed) noexcept;
void unpack_4bit(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept;
void pack_plane(const std::uint8_t* bits, std::uint32_t block, std::byte* packed) noexcept;
void unpack_plane(const std::byte* packed, std::uint32_t block, std::uint8_t* bits) noexcept;

}  // namespace qsf

#endif  // QSF_QUANT_BIT_PACK_H_
