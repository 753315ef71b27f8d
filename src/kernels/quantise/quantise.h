// SPDX-License-Identifier: MIT
//
// Quantised activations: rows as int8, which products with coded weights multiply.
//
// One row of n_cols values is cut into activation blocks of 64 columns. The bytes of a row with
// C = ceil(n_cols / 64) activation blocks:
//
//   offset  size  field
//        0  64 C  codes: column c at byte c, two's complement, -127 .. 127; 0 from n_cols on
//     64 C  32 C  an Int8Block for each activation block
//
// Codes are x / scale rounded to the nearest integer, ties to even, with scale = max |x| / 127 over
// the activation block. A product with weights w = s * code + m is then
//
//   sum w x = scale * (s * dot(code, q) + m * sum(q))
//
// with the sum of the codes q, not of x: multiplied with m, the sum of x would carry rounding
// errors that the dot product does not have.
//
// Models that were trained with int8 activations (BitNet) have one scale for the whole row instead.
// Their activation blocks have the scale 1, so that every product is a sum of whole numbers, exact
// in f32 up to 132,104 columns of ternary codes, and the row's scale multiplies what comes out.

#ifndef QSF_KERNELS_QUANTISE_QUANTISE_H_
#define QSF_KERNELS_QUANTISE_QUANTISE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/tier.h"

namespace qsf::kernels {

inline constexpr std::uint32_t kActivationBlockColumns = 64;

// What a product needs of an activation block beside its codes. Sums are of the codes: whole
// numbers.
struct Int8Block {
  float scale;
  float low_sum;                 // of columns 0 to 31
  float high_sum;                // of columns 32 to 63
  float sum;                     // of both
  std::int16_t quarter_sums[4];  // of 16 columns each, placed by quarter_place
  std::int16_t
      quarter_zeros[4];  // the same, times -4: products of them take the zeros of codes out
};
static_assert(sizeof(Int8Block) == 32);

// Where the sum of a quarter stands in quarter_sums and quarter_zeros: bytes 0 and 2 of a word and
// bytes 1 and 3 are pairs of 16 bits after a shift and a mask, so their quarters are pairs as well.
constexpr unsigned quarter_place(unsigned quarter) noexcept {
  return quarter % 2 * 2 + quarter / 2;
}

constexpr std::size_t int8_blocks(std::uint32_t n_cols) noexcept {
  return (std::size_t{n_cols} + kActivationBlockColumns - 1) / kActivationBlockColumns;
}
// Byte offset of the activation blocks' Int8Block array in a row.
constexpr std::size_t int8_blocks_offset(std::uint32_t n_cols) noexcept {
  return int8_blocks(n_cols) * kActivationBlockColumns;
}
// Bytes of a row.
constexpr std::size_t int8_row_bytes(std::uint32_t n_cols) noexcept {
  return int8_blocks(n_cols) * (kActivationBlockColumns + sizeof(Int8Block));
}

// Common to all: every operation rounds once in one order, so every tier gives the same bits.
struct QuantiseKernels {
  const char* name;  // "quantise_scalar"
  Isa isa;
  Exactness exactness;

  // Quantises one row: scale = max / 127 and code = rint(x * (127 / max)) in f32.
  //
  // Shapes      x [n_cols], out [int8_row_bytes(n_cols)]
  // Requires    out is 16-byte aligned and does not overlap x; no alignment of x is assumed
  // Guarantees  an activation block whose max is below 2^-100 has scale 0 and codes 0; one with a
  //             value that is not finite has scale NaN and codes 0: its products are NaN
  // Threads     any
  void (*to_int8)(const float* x, std::byte* out, std::uint32_t n_cols) noexcept;

  // Quantises one row with one scale: max = the largest |x|, at least 1e-5, and code =
  // rint(x * (127 / max)) in f32; the scale of every activation block is 1. Returns max / 127.
  //
  // Shapes, Requires, Threads  as to_int8
  // Guarantees  with a value that is not finite, all codes are 0 and what is returned is NaN
  float (*row_to_int8)(const float* x, std::byte* out, std::uint32_t n_cols) noexcept;
};

// Every implementation, best instruction set first, scalar last. Threads  any
std::span<const QuantiseKernels> quantise_kernels() noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_QUANTISE_QUANTISE_H_
