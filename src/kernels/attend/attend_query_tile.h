// SPDX-License-Identifier: MIT
//
// Attention that keeps every probability of a query tile: neighbouring query rows, all columns that
// they see.
//
// attend.h holds one page of scores at a time. Here maxima and sums are computed over whole rows
// before any weight, and the sums of the probabilities of each column (the attention mass that a
// position receives) come with them:
//
//   scores      of each page into its 64 columns of a matrix, -inf where a query sees no slot
//   normalise   exp(score - max) / sum, row by row, added to a sum for every column
//   values      of each page, times the weights that stand in its columns
//
// Scores and their masks, caps and biases are those of attend.h, multiplied by the same code.
// Column sums are always of f32 probabilities: tiles of bf16 round them on the way to the values
// alone.

#ifndef QSF_KERNELS_ATTEND_ATTEND_QUERY_TILE_H_
#define QSF_KERNELS_ATTEND_ATTEND_QUERY_TILE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/attend/attend.h"
#include "kernels/tier.h"

namespace qsf::kernels {

// One page of a query tile.
//
// Shapes      page: as AttendPageArgs. `values` alone reads v and updates acc, `scores` alone reads
//             k, queries and what the score's rule needs; state is not used; next is what the
//             following call reads of one of them;
//             scratch: attend_query_tile_scratch_bytes(head_dim), 64-byte aligned
//             weights [n_rows * n_q][stride]: the columns of the page, kKvPageSlots of each row
// Requires    stride at least kKvPageSlots; for `values` weights of slots outside a query's range
//             are 0, as `scores` and `normalise` leave them, or NaN where all of its weights are
// Guarantees  as AttendPageArgs; `scores` writes every column of the page and no other, `values`
//             may change them;
//             from one page to the next the sums of `acc` go on as if slots were of one page
// Threads     any; different rows may run concurrently
struct AttendQueryTileArgs {
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

struct AttendQueryTileKernel {
  const char* name;  // "attend_query_tile_avx2"
  Isa isa;
  Exactness exactness;
  AttendQueryFn load_queries;
  void (*scores)(const AttendQueryTileArgs&) noexcept;
  void (*normalise)(const AttendNormaliseArgs&) noexcept;
  void (*values)(const AttendQueryTileArgs&) noexcept;
};

// Every implementation, best instruction set first, scalar last. Prompt rows alone may take tiles
// of bf16, which one generated row could not fill. Threads  any
std::span<const AttendQueryTileKernel> attend_query_tile_prompt_kernels() noexcept;
std::span<const AttendQueryTileKernel> attend_query_tile_decode_kernels() noexcept;

// A multiple of 64.
std::size_t attend_query_tile_scratch_bytes(std::uint32_t head_dim) noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_ATTEND_ATTEND_QUERY_TILE_H_
