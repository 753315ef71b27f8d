// SPDX-License-Identifier: MIT

#include "convert/gptq/outer_products.h"

#include <algorithm>

#include "base/check.h"
#include "base/ranges.h"
#include "convert/gptq/sum_tile.h"

namespace qsf {
namespace {

bool has_any() noexcept {
  return true;
}

#if defined(__x86_64__)
bool has_avx2() noexcept {
  return __builtin_cpu_supports("avx2") != 0;
}
bool has_avx512() noexcept {
  return __builtin_cpu_supports("avx512f") != 0;
}
#endif

constexpr SumTileMethod kMethods[] = {
#if defined(__x86_64__)
    {.name = "avx512", .is_available = has_avx512, .run = sum_tile_avx512},
    {.name = "avx2", .is_available = has_avx2, .run = sum_tile_avx2},
#endif
    {.name = "baseline", .is_available = has_any, .run = sum_tile_baseline},
};

SumTileFn best_method() noexcept {
  static const SumTileFn best =
      ranges::find_if(kMethods, [](const auto& method) { return method.is_available(); })->run;
  return best;
}

}  // namespace

std::span<const SumTileMethod> sum_tile_methods() noexcept {
  return kMethods;
}

void sum_tile_baseline(const float* a, const float* b, std::size_t n_rows, float* sums,
                       std::size_t stride) noexcept {
  typedef float Vector __attribute__((vector_size(16)));
  sum_tile<Vector, 3, 4>(a, b, n_rows, sums, stride);
}

void store_in_panels(std::span<const float> row, std::size_t index,
                     std::span<float> panels) noexcept {
  QSF_DCHECK(index < kPanelRows && panels.size() == panel_floats(row.size()));
  float* to = panels.data() + index * kPanelCols;
  for (std::size_t c = 0; c < row.size(); c += kPanelCols, to += kPanelRows * kPanelCols) {
    std::copy_n(row.data() + c, std::min(kPanelCols, row.size() - c), to);
  }
}

void add_outer_products(std::span<const float> panels, std::size_t n_rows, std::size_t size,
                        std::size_t panel, std::span<float> matrix) noexcept {
  QSF_CHECK(panels.size() == panel_floats(size) && matrix.size() == size * size &&
            n_rows <= kPanelRows && panel < n_panels(size));
  const SumTileFn sum_tile_of = best_method();
  alignas(64) float tile[kPanelCols * kPanelCols] = {};
  const auto panel_of = [&](std::size_t i) { return panels.data() + i * kPanelRows * kPanelCols; };
  const std::size_t first_col = panel * kPanelCols;
  const std::size_t n_cols = std::min(kPanelCols, size - first_col);
  for (std::size_t above = 0; above <= panel; ++above) {
    const std::size_t first = above * kPanelCols;
    const std::size_t n = std::min(kPanelCols, size - first);
    float* const corner = matrix.data() + first_col * size + first;
    if (n == kPanelCols && n_cols == kPanelCols) {
      sum_tile_of(panel_of(above), panel_of(panel), n_rows, corner, size);
      continue;
    }
    for (std::size_t k = 0; k < n_cols; ++k) {
      std::copy_n(corner + k * size, n, tile + k * kPanelCols);
    }
    sum_tile_of(panel_of(above), panel_of(panel), n_rows, tile, kPanelCols);
    for (std::size_t k = 0; k < n_cols; ++k) {
      std::copy_n(tile + k * kPanelCols, n, corner + k * size);
    }
  }
}

}  // namespace qsf
