// SPDX-License-Identifier: MIT
//
// Rows of keys and values in 8, 4 or 2 bits, and the rotation that makes few bits bearable.
//
// Codes are symmetric around zero, with one f16 scale for each group of columns, or for the row
// when the group is as wide as the row:
//
//   8 bits   value = scale * code,             code in [-127, 127], scale = max |x| / 127
//   4 bits   value = scale * (2 code - 15),    code in [0, 15],     scale = max |x| / 15
//   2 bits   value = scale * (2 code - 3),     code in [0, 3],      scale by least squares
//
// With four levels the largest value of a group is a bad measure: on normal values max / 3 leaves
// 0.207 of the square as error, half the root of the mean square 0.113. That is where kKvFits fits
// begin, each of which codes the group and takes the scale that suits these codes best,
// sum(x c) / sum(c c) with c = 2 code - 3: 0.109.
//
// One row, no padding:
//
//   offset                 size                 field
//        0                 head_dim * bits / 8  codes, in units of 16 columns, 2 * bits bytes each
//   head_dim * bits / 8    2 head_dim / group   scales, f16, of the groups in order
//
//   8 bits   byte j of a unit is column j, two's complement
//   4 bits   byte j of a unit has column j in bits 0-3 and column j + 8 in bits 4-7
//   2 bits   byte j of a unit has column j + 4 f in bits 2f and 2f + 1
//
// The rotation is the Hadamard transform H / sqrt(n) of each block of n columns, n the largest
// power of two that divides the head dimension. It is its own inverse and keeps dot products, so
// keys and queries that are both rotated give the scores they gave; what it changes is that an
// outlier spreads over its block instead of setting the scale of its group.

#ifndef QSF_KERNELS_KV_ROWS_KV_ROWS_H_
#define QSF_KERNELS_KV_ROWS_KV_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/tier.h"

namespace qsf::kernels {

inline constexpr std::uint32_t kKvUnitColumns = 16;
inline constexpr unsigned kKvFits = 2;  // a third one changes no perplexity

// Requires  bits is 8, 4 or 2; group is a multiple of 16 and divides head_dim
struct KvRowFormat {
  std::uint32_t bits;
  std::uint32_t head_dim;
  std::uint32_t group;
};

constexpr std::size_t kv_row_scales_offset(const KvRowFormat& format) noexcept {
  return std::size_t{format.head_dim} * format.bits / 8;
}
constexpr std::size_t kv_quantised_row_bytes(const KvRowFormat& format) noexcept {
  return kv_row_scales_offset(format) + std::size_t{format.head_dim} / format.group * 2;
}
// Columns that one Hadamard transform spans.
constexpr std::uint32_t hadamard_block(std::uint32_t head_dim) noexcept {
  return head_dim & (~head_dim + 1U);
}

// Common to all: no alignment is assumed, operands do not overlap; the same bits on every tier.
struct KvRowKernels {
  const char* name;  // "kv_rows_scalar"
  Isa isa;
  Exactness exactness;

  // Codes are rounded to nearest even against the scale as it is stored, and clamped.
  // Shapes      x [head_dim], row [kv_quantised_row_bytes(format)]
  // Guarantees  a scale above f16's range becomes its largest number; a group with a value that is
  //             not finite has scale NaN and codes 0, and comes back as NaN
  void (*quantise)(const float* x, std::byte* row, const KvRowFormat& format) noexcept;

  void (*dequantise)(const std::byte* row, float* x, const KvRowFormat& format) noexcept;

  // Rotates in place. Requires  head_dim is a multiple of 16
  void (*rotate)(float* x, std::uint32_t head_dim) noexcept;
};

// Every implementation, best instruction set first, scalar last. Threads  any
std::span<const KvRowKernels> kv_row_kernels() noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_KV_ROWS_KV_ROWS_H_
