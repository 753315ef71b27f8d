// SPDX-License-Identifier: MIT
//
// Sums of outer products x x^T over rows x, the Hessians of GPTQ: most of its arithmetic.
//
// Rows are gathered in panels of 48 columns, so that a tile of 48 x 48 sums reads two dense panels.
// Products are added to an element one by one in the order of rows, every operation rounded by
// itself: the bits depend neither on the registers nor on how rows are gathered.

#ifndef QSF_CONVERT_GPTQ_OUTER_PRODUCTS_H_
#define QSF_CONVERT_GPTQ_OUTER_PRODUCTS_H_

#include <cstddef>
#include <span>

namespace qsf {

inline constexpr std::size_t kPanelCols = 48;
inline constexpr std::size_t kPanelRows = 256;  // at most

constexpr std::size_t n_panels(std::size_t n_cols) noexcept {
  return (n_cols + kPanelCols - 1) / kPanelCols;
}

// Floats of the panels of rows with n_cols columns.
constexpr std::size_t panel_floats(std::size_t n_cols) noexcept {
  return n_panels(n_cols) * kPanelRows * kPanelCols;
}

// Stores a row at `index` of the panels. Columns past its last one are left as they are.
// Shapes    row [n_cols], panels [panel_floats(n_cols)]
// Requires  index < kPanelRows
void store_in_panels(std::span<const float> row, std::size_t index,
                     std::span<float> panels) noexcept;

// Adds the sum of x x^T over the first n_rows rows to the columns of one panel: to the elements
// (i, k) with i <= k. Elements below the diagonal become undefined in the rows of this panel.
// Shapes    panels [panel_floats(size)], with finite numbers past column `size`;
//           matrix [size * size], in columns of size
// Requires  n_rows <= kPanelRows, panel < n_panels(size)
// Threads   any, on different panels
void add_outer_products(std::span<const float> panels, std::size_t n_rows, std::size_t size,
                        std::size_t panel, std::span<float> matrix) noexcept;

// Adds to the sums of a tile, in columns that are `stride` apart: sums[k][i] += a[r][i] * b[r][k]
// for every r. Shapes  a, b [n_rows, kPanelCols], sums [kPanelCols, kPanelCols]
using SumTileFn = void (*)(const float* a, const float* b, std::size_t n_rows, float* sums,
                           std::size_t stride) noexcept;

struct SumTileMethod {
  const char* name;
  bool (*is_available)() noexcept;  // on this CPU
  SumTileFn run;
};

// Returns every method in this binary, the fastest first; the last one runs everywhere.
std::span<const SumTileMethod> sum_tile_methods() noexcept;

void sum_tile_baseline(const float* a, const float* b, std::size_t n_rows, float* sums,
                       std::size_t stride) noexcept;
void sum_tile_avx2(const float* a, const float* b, std::size_t n_rows, float* sums,
                   std::size_t stride) noexcept;
void sum_tile_avx512(const float* a, const float* b, std::size_t n_rows, float* sums,
                     std::size_t stride) noexcept;

}  // namespace qsf

#endif  // QSF_CONVERT_GPTQ_OUTER_PRODUCTS_H_
