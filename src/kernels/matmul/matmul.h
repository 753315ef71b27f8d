// SPDX-License-Identifier: MIT
//
// Products of stored weights with rows of activations: the kernels that dominate every pass.
//
//   y[i, r] = sum over c of  w[r, c] * x[i, c]        for i in [0, n_x), r in [0, n_rows)
//
// Decode is the product with one row: it reads every weight byte once, so there a variant is judged
// by the share of memory bandwidth it reaches. Prompts are products with many rows: a block of
// weights is decoded once and used for all of them, so there operations per second count. Both are
// one family, since an output has the same bits whatever the number of rows.
//
// A kernel states the activation type of its rows:
//
//   kF32   f32; every weight type; the reference for the others
//   kInt8  kernels/quantise/quantise.h; coded weights. Integer sums are exact and every float
//          operation is a separate rounding in one order, so all tiers give the same bits: for
//          every block of columns in ascending order, with s and m its scale and min, q the codes
//          of x and a the scale of their activation block,
//
//            acc = acc + a * (s * dot(code, q) + m * sum(q))
//
//          where a type without a min takes m = -1.5 s (2-bit symmetric), m = -s (ternary) or
//          leaves the second term out (8-bit, q3_k and q6_k, whose codes are taken less 4 and 32,
//          and tables, whose codes are taken as levels). Sub-blocks of super-blocks have s = d *
//          scale and m = dmin * min. ternary-row has s = 1 and m = -1, and acc is multiplied by the
//          scale of the row at the end; qk256 has s = 1, m = -2 and 0, 1, 3, 4 for its codes. q2_k,
//          q3_k, q6_k and tables, whose scales are bytes or less, are added up in whole numbers
//          over an activation block of 64 columns, which may be rounded once, when they become
//          floats:
//
//            acc = acc + a * (d * sum(scale * dot(code, q)) + dmin * sum(min * sum(q)))
//   kBf16  bf16 bits; matrix units
//
// This header is the whole contract. Implementations sit beside it, one file per activation type
// and instruction set; the table in matmul.cc is the only list of them, and dispatch, tests and
// benchmarks all walk that table, so a kernel cannot be reachable and untested.

#ifndef QSF_KERNELS_MATMUL_MATMUL_H_
#define QSF_KERNELS_MATMUL_MATMUL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/quantise/quantise.h"
#include "kernels/tier.h"
#include "quant/block_format.h"

namespace qsf::kernels {

enum class ActivationType : std::uint8_t { kF32, kInt8, kBf16 };

// Returns "f32", "i8" or "bf16", as in kernel names.
std::string_view activation_type_name(ActivationType input) noexcept;

// Bytes of one row of x. Rows of floats are padded with zeros to whole activation blocks of 64
// columns.
constexpr std::size_t activation_row_bytes(ActivationType input, std::uint32_t n_cols) noexcept {
  if (input == ActivationType::kInt8) return int8_row_bytes(n_cols);
  return int8_blocks(n_cols) * kActivationBlockColumns * (input == ActivationType::kF32 ? 4 : 2);
}

// One band of weight rows times all rows of x.
//
// An x_stride that is a multiple of 4 KiB puts all rows into the same cache sets and may cost half
// the speed of many rows; callers avoid it.
//
// Shapes      weights  ceil(n_rows / 16) groups of layout 1, group_bytes apart
//             x [n_x, activation_row_bytes(input, n_cols) bytes]  row i at x + i * x_stride
//             y [n_x, n_rows]  f32, row i at y + i * y_stride, overwritten
// Requires    group_bytes >= qsf::group_bytes(format, n_cols) and a multiple of 64
//             x_stride is a multiple of 64 and, for n_x > 1, at least a row; y_stride >= n_rows
//             every scale, min and float of the weights is finite, padding rows included (files are
//             held to that by quant/codec.h check_blocks)
//             weights and x are 64-byte aligned; y needs the alignment of a float alone
//             y overlaps neither weights nor x
// Guarantees  n_rows == 0 or n_x == 0 does nothing; the last group may be partial: true rows alone
//             are stored; elements between n_rows and y_stride stay
//             y[i, r] depends on row r and x row i alone, bit for bit: neither n_x nor how rows
//             are grouped into calls shows in it
//             no byte outside the three operands is read or written (a prefetch is no read)
//             no allocation, no lock, no failure
// Threads     any; bands of one matrix may run concurrently
struct MatMulArgs {
  const std::byte* weights;
  std::size_t group_bytes;
  const std::byte* x;
  std::size_t x_stride;  // bytes
  float* y;
  std::size_t y_stride;  // floats
  std::uint32_t n_x;
  std::uint32_t n_rows;
  std::uint32_t n_cols;
  // How far ahead of the weights in work a kernel may prefetch when n_x is small; 0: not at all. A
  // hint, which kernels may ignore.
  std::uint32_t prefetch_bytes = 0;
  // Of int8 rows: the scale of every activation block is 1, as QuantiseKernels::row_to_int8 leaves
  // it. A hint as well: kernels may then add whole numbers across activation blocks, which gives
  // the same bits as long as every sum is below 2^24.
  bool unit_scales = false;
};

using MatMulFn = void (*)(const MatMulArgs&) noexcept;

struct MatMulKernel {
  const char* name;  // "matmul_q4g64_i8_scalar", as printed by tests and benchmarks
  Isa isa;
  BlockFormat format;
  ActivationType input;
  Exactness exactness;
  MatMulFn run;
};

// Every kernel in this binary, best instruction set first, scalar last. Threads  any
std::span<const MatMulKernel> matmul_kernels() noexcept;

// Returns the first kernel for `format` and `input` that `best` covers, or null: only coded types
// have int8 kernels, and only matrix units bf16 ones.
// Requires  format is a float type, or a coded type with blocks that kernels know (wider ones are
//           cut at load, quant/interleave.h kernel_format)
// Threads   any
const MatMulKernel* find_matmul(BlockFormat format, ActivationType input, Isa best) noexcept;

// Returns the same where there is one. Requires  input is kF32, or kInt8 with a coded type.
const MatMulKernel& select_matmul(BlockFormat format, ActivationType input, Isa best) noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_MATMUL_MATMUL_H_
