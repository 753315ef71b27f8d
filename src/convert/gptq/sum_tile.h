// SPDX-License-Identifier: MIT
//
// The loop of outer_products.h for registers of any width.

#ifndef QSF_CONVERT_GPTQ_SUM_TILE_H_
#define QSF_CONVERT_GPTQ_SUM_TILE_H_

#include <cstddef>

#include "convert/gptq/outer_products.h"

namespace qsf {
namespace {

// Sums kVectors registers of rows and kCols columns of a tile at a time. Vector: of floats.
template <typename Vector, std::size_t kVectors, std::size_t kCols>
[[gnu::always_inline]] inline void sum_tile(const float* a, const float* b, std::size_t n_rows,
                                            float* sums_of_tile, std::size_t stride) noexcept {
  constexpr std::size_t kLanes = sizeof(Vector) / sizeof(float);
  constexpr std::size_t kHeight = kVectors * kLanes;
  static_assert(kPanelCols % kHeight == 0 && kPanelCols % kCols == 0);
  for (std::size_t first = 0; first < kPanelCols; first += kCols) {
    for (std::size_t top = 0; top < kPanelCols; top += kHeight) {
      Vector sums[kCols][kVectors];
      const auto each = [&](auto copy) __attribute__((always_inline)) {
#pragma GCC unroll 8
        for (std::size_t k = 0; k < kCols; ++k) {
#pragma GCC unroll 4
          for (std::size_t v = 0; v < kVectors; ++v) {
            copy(sums[k][v], sums_of_tile + (first + k) * stride + top + v * kLanes);
          }
        }
      };
      each([](Vector& sum, const float* at) { __builtin_memcpy(&sum, at, sizeof(Vector)); });
      for (std::size_t r = 0; r < n_rows; ++r) {
        const float* const x = a + r * kPanelCols + top;
        const float* const y = b + r * kPanelCols + first;
        Vector xs[kVectors];
#pragma GCC unroll 4
        for (std::size_t v = 0; v < kVectors; ++v) {
          __builtin_memcpy(&xs[v], x + v * kLanes, sizeof(Vector));
        }
#pragma GCC unroll 8
        for (std::size_t k = 0; k < kCols; ++k) {
          const Vector column = Vector{} + y[k];
#pragma GCC unroll 4
          for (std::size_t v = 0; v < kVectors; ++v) sums[k][v] += xs[v] * column;
        }
      }
      each([](const Vector& sum, float* at) { __builtin_memcpy(at, &sum, sizeof(Vector)); });
    }
  }
}

}  // namespace
}  // namespace qsf

#endif  // QSF_CONVERT_GPTQ_SUM_TILE_H_
