// SPDX-License-Identifier: MIT
//
// Product of stored weights with many rows of activations: the kernel of prompts.
//
//   y[i, r] = sum over c of  w[r, c] * x[i, c]        for i in [0, n_x), r in [0, n_rows)
//
// A block of weights is decoded once and used for many rows of x, so a variant is judged by
// operations per second. Weights are never widened beyond one block of 16 rows.

#ifndef QSF_KERNELS_MATMUL_MATMUL_H_
#define QSF_KERNELS_MATMUL_MATMUL_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/isa.h"
#include "quant/types.h"

namespace qsf::kernels {

// One band of weight rows times all rows of x.
//
// An x_stride that is a multiple of 1,024 floats puts all rows into the same cache sets: 16 floats
// more keep matmul_q4g64_scalar at 29 GFLOP/s a core where 2,048 fall to 13 to 29, as the load of
// the second-level cache goes (EPYC Zen 3, 64 rows of x).
//
// Shapes      weights  ceil(n_rows / 16) groups of layout 1, group_bytes apart
//             x [n_x, align_up(n_cols, 64)]  row i at x + i * x_stride; zero from n_cols on
//             y [n_x, n_rows]                row i at y + i * y_stride, overwritten
// Requires    group_bytes >= qsf::group_bytes(format, n_cols) and a multiple of 64
//             x_stride >= align_up(n_cols, 64) and a multiple of 16; y_stride >= n_rows
//             every scale, min and float of the weights is finite, padding rows included (files are
//             held to that by quant/codec.h check_blocks)
//             weights and x are 64-byte aligned; y needs the alignment of a float alone
//             y overlaps neither weights nor x
// Guarantees  n_rows == 0 or n_x == 0 does nothing; elements between n_rows and y_stride stay
//             y[i, r] depends on row r and x row i alone, bit for bit: neither n_x nor how rows
//             are grouped into calls shows in it. It need not equal matvec's bits.
//             no byte outside the three operands is read or written
//             no allocation, no lock, no failure
// Threads     any; bands of one matrix may run concurrently
struct MatMulArgs {
  const std::byte* weights;
  std::size_t group_bytes;
  const float* x;
  std::size_t x_stride;  // floats
  float* y;
  std::size_t y_stride;  // floats
  std::uint32_t n_x;
  std::uint32_t n_rows;
  std::uint32_t n_cols;
};

using MatMulFn = void (*)(const MatMulArgs&) noexcept;

struct MatMulKernel {
  const char* name;  // "matmul_q4g64_scalar"
  Isa isa;
  BlockFormat format;
  Exactness exactness;
  MatMulFn run;
};

// Every matmul kernel in this binary, best instruction set first, scalar last. Threads  any
std::span<const MatMulKernel> matmul_kernels() noexcept;

// Returns the first kernel for `format` that `best` covers.
// Requires  as select_matvec. Threads  any
const MatMulKernel& select_matmul(BlockFormat format, Isa best) noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_MATMUL_MATMUL_H_
