// SPDX-License-Identifier: MIT
//
// Matrix-vector product over stored weights: the kernel that dominates decode.
//
//   y[r] = sum over c of  w[r, c] * x[c]        for r in [0, n_rows)
//
// Decoding one token reads every weight byte once, so a variant is judged by the share of memory
// bandwidth it reaches, not by operations per second.
//
// This header is the whole contract. Implementations sit beside it, one file per instruction set;
// the table in matvec.cc is the only list of them, and dispatch, tests and benchmarks all walk that
// table, so a kernel cannot be reachable and untested.

#ifndef QSF_KERNELS_MATVEC_MATVEC_H_
#define QSF_KERNELS_MATVEC_MATVEC_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/isa.h"
#include "quant/types.h"

namespace qsf::kernels {

// One band of rows, as handed to one thread.
//
// Shapes      weights  ceil(n_rows / 16) groups of layout 1, group_bytes apart
//             x [align_up(n_cols, 64)]  f32, zero from n_cols on
//             y [n_rows]                f32, overwritten
// Requires    group_bytes >= qsf::group_bytes(format, n_cols) and a multiple of 64
//             every scale, min and float of the weights is finite, padding rows included (files are
//             held to that by quant/codec.h check_blocks)
//             weights and x are 64-byte aligned; y needs the alignment of a float alone
//             y overlaps neither weights nor x
// Guarantees  n_rows == 0 does nothing; the last group may be partial: true rows alone are stored
//             y[r] depends on row r and x alone, bit for bit: not on n_rows or on other rows
//             no byte outside the three operands is read or written
//             no allocation, no lock, no failure
// Threads     any; bands of one matrix may run concurrently
struct MatVecArgs {
  const std::byte* weights;
  std::size_t group_bytes;
  const float* x;
  float* y;
  std::uint32_t n_rows;
  std::uint32_t n_cols;
};

using MatVecFn = void (*)(const MatVecArgs&) noexcept;

struct MatVecKernel {
  const char* name;  // "matvec_q4g64_scalar", as printed by tests and benchmarks
  Isa isa;
  BlockFormat format;
  Exactness exactness;
  MatVecFn run;
};

// Every matvec kernel in this binary, best instruction set first, scalar last. Threads  any
std::span<const MatVecKernel> matvec_kernels() noexcept;

// Returns the first kernel for `format` that `best` covers.
// Requires  format is a float type, or a coded type with blocks of 32 or 64 (wider blocks are
//           expanded to 64 at load).
// Threads   any
const MatVecKernel& select_matvec(BlockFormat format, Isa best) noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_MATVEC_MATVEC_H_
