// SPDX-License-Identifier: MIT
//
// Attention of query rows over pages of stored K and V with every probability at hand.
//
// Where attend.h never holds more than a page of scores, a strip holds those of its queries over
// all columns that they see, so that exact maxima and sums come before any weight, and column sums
// of the probabilities fall off on the way to the output:
//
//   scores      of each page into its 64 columns of a matrix, -inf where a query sees no slot
//   normalise   exp(score - max) / sum, row by row, added to a sum for every column
//   values      of each page, times the weights that stand in its columns
//
// Scores and their masks, caps and biases are those of attend.h, multiplied by the same code.
// Column sums are always of f32 probabilities: tiles of bf16 round them on the way to the values
// alone.

#ifndef QSF_KERNELS_ATTEND_ATTEND_STRIP_H_
#define QSF_KERNELS_ATTEND_ATTEND_STRIP_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/attend/attend.h"
#include "kernels/tier.h"

namespace qsf::kernels {

// One page of a strip.
//
// Shapes      page: as AttendPageArgs. `values` alone reads v and updates acc, `scores` alone reads
//             k, queries and what the score's rule needs; state is not used; next is what the
//             following call reads of one of them;
//             scratch: attend_strip_scratch_bytes(head_dim), 64-byte aligned
//             weights [n_rows * n_q][stride]: the columns of the page, kKvPageSlots of each row
// Requires    stride at least kKvPageSlots; for `values` weights of slots outside a query's range
//             are 0, as `scores` and `normalise` leave them, or NaN where all of its weights are
// Guarantees  as AttendPageArgs; `scores` writes every column of the page and no other, `values`
//             may change them;
//             from one page to the next the sums of `acc` go on as if slots were of one page
// Threads     any; different rows may run concurrently
struct AttendStripArgs {
  AttendPageArgs page;
  float* weights;
  std::size_t stride;  // floats
};

// Shapes      weights [n_queries][stride], of which n_columns are normalised in place
//             column_sums [n_columns], to which each query's are added, queries in ascending order
// Requires    n_columns a multiple of kKvPageSlots
// Guarantees  columns of -inf at the end change nothing, bit for bit; a row without any finite
//             score becomes zeros; NaN in a row becomes NaN in all of it and in the sums
// Threads     any
struct AttendNormaliseArgs {
  float* weights;
  std::size_t stride;
  std::uint32_t n_queries;
  std::uint32_t n_columns;
  float* column_sums;
};

struct AttendStripKernel {
  const char* name;  // "attend_strip_avx2"
  Isa isa;
  Exactness exactness;
  AttendQueryFn load_queries;
  void (*scores)(const AttendStripArgs&) noexcept;
  void (*normalise)(const AttendNormaliseArgs&) noexcept;
  void (*values)(const AttendStripArgs&) noexcept;
};

// Every implementation, best instruction set first, scalar last. Prompt rows alone may take tiles
// of bf16, which one generated row could not fill. Threads  any
std::span<const AttendStripKernel> attend_strip_prompt_kernels() noexcept;
std::span<const AttendStripKernel> attend_strip_decode_kernels() noexcept;

// A multiple of 64.
std::size_t attend_strip_scratch_bytes(std::uint32_t head_dim) noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_ATTEND_ATTEND_STRIP_H_
