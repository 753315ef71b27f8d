// SPDX-License-Identifier: MIT

#include "convert/tune/tune_products.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/run_on_threads.h"

namespace qsf {
namespace {

constexpr std::size_t kInner = 256;     // of k that one block of a sum takes
constexpr std::size_t kPartRows = 252;  // of c that one thread takes at a time: whole strips
constexpr std::size_t kPartCols = 192;  // whole panels
constexpr std::size_t kStripRows = 6;

typedef float Lanes4 __attribute__((vector_size(16)));
typedef float Lanes8 __attribute__((vector_size(32)));

template <typename Lanes>
constexpr std::size_t kPanelCols = 2 * sizeof(Lanes) / sizeof(float);

struct Part {
  std::size_t first_row;
  std::size_t n_rows;
  std::size_t first_col;
  std::size_t n_cols;
};

// The kernels are compiled into each tier's function below, so they must not have one of their own.
#define QSF_TUNE_INLINE [[gnu::always_inline]] inline

// A strip of rows of a, [n_inner][kStripRows], times a panel of columns of b, [n_inner][panel].
template <typename Lanes>
QSF_TUNE_INLINE void multiply_tile(const float* strip, const float* panel, std::size_t n_inner,
                                   float* tile) {
  constexpr std::size_t kCols = kPanelCols<Lanes>;
  Lanes sums[kStripRows][2] = {};
  for (std::size_t k = 0; k < n_inner; ++k) {
    Lanes b0;
    Lanes b1;
    std::memcpy(&b0, panel + k * kCols, sizeof b0);
    std::memcpy(&b1, panel + k * kCols + kCols / 2, sizeof b1);
#pragma GCC unroll 6
    for (std::size_t i = 0; i < kStripRows; ++i) {
      const float a = strip[k * kStripRows + i];
      sums[i][0] += a * b0;
      sums[i][1] += a * b1;
    }
  }
  std::memcpy(tile, sums, sizeof sums);
}

// Copies rows [first, first + n_rows) of columns [k, k + n_inner) into strips; missing rows are 0.
template <std::size_t kRows>
QSF_TUNE_INLINE void pack(MatrixView from, std::size_t first, std::size_t n_rows, std::size_t k,
                          std::size_t n_inner, float* to) {
  for (std::size_t strip = 0; strip < n_rows; strip += kRows) {
    const std::size_t n = std::min(kRows, n_rows - strip);
    for (std::size_t i = 0; i < n; ++i) {
      const float* const row = from.data + (first + strip + i) * from.row + k * from.col;
      for (std::size_t p = 0; p < n_inner; ++p) to[p * kRows + i] = row[p * from.col];
    }
    for (std::size_t i = n; i < kRows; ++i) {
      for (std::size_t p = 0; p < n_inner; ++p) to[p * kRows + i] = 0.0F;
    }
    to += n_inner * kRows;
  }
}

template <typename Lanes>
QSF_TUNE_INLINE void multiply_part(MatrixView a, MatrixView b, std::size_t n_inner_all,
                                   const Part& part, float* c, std::size_t c_stride, bool adds) {
  constexpr std::size_t kCols = kPanelCols<Lanes>;
  const std::size_t n_panels = (part.n_cols + kCols - 1) / kCols;
  std::vector<float> panels(n_panels * kCols * std::min(kInner, n_inner_all));
  std::vector<float> strip(kStripRows * kInner);
  for (std::size_t k = 0; k < n_inner_all; k += kInner) {
    const std::size_t n_inner = std::min(kInner, n_inner_all - k);
    pack<kCols>(b.transposed(), part.first_col, part.n_cols, k, n_inner, panels.data());
    for (std::size_t row = 0; row < part.n_rows; row += kStripRows) {
      const std::size_t n_rows = std::min(kStripRows, part.n_rows - row);
      pack<kStripRows>(a, part.first_row + row, n_rows, k, n_inner, strip.data());
      for (std::size_t panel = 0; panel < n_panels; ++panel) {
        alignas(64) float tile[kStripRows * kCols];
        multiply_tile<Lanes>(strip.data(), panels.data() + panel * kCols * n_inner, n_inner, tile);
        const std::size_t n_cols = std::min(kCols, part.n_cols - panel * kCols);
        for (std::size_t i = 0; i < n_rows; ++i) {
          float* const to =
              c + (part.first_row + row + i) * c_stride + part.first_col + panel * kCols;
          const float* const from = tile + i * kCols;
          if (k == 0 && !adds) {
            std::copy(from, from + n_cols, to);
          } else {
            for (std::size_t j = 0; j < n_cols; ++j) to[j] += from[j];
          }
        }
      }
    }
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void multiply_part_avx2(MatrixView a, MatrixView b, std::size_t k,
                                                        const Part& part, float* c,
                                                        std::size_t c_stride, bool adds) {
  multiply_part<Lanes8>(a, b, k, part, c, c_stride, adds);
}
#endif

void multiply_part_by_cpu(MatrixView a, MatrixView b, std::size_t k, const Part& part, float* c,
                          std::size_t c_stride, bool adds) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return multiply_part_avx2(a, b, k, part, c, c_stride, adds);
#endif
  multiply_part<Lanes4>(a, b, k, part, c, c_stride, adds);
}

}  // namespace

void multiply(MatrixView a, MatrixView b, ProductShape shape, float* c, std::size_t c_stride,
              bool adds, unsigned n_threads) {
  const std::size_t n_down = (shape.m + kPartRows - 1) / kPartRows;
  const std::size_t n_across = (shape.n + kPartCols - 1) / kPartCols;
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < n_down * n_across; i = next++) {
      const std::size_t row = i % n_down * kPartRows;
      const std::size_t col = i / n_down * kPartCols;
      multiply_part_by_cpu(
          a, b, shape.k,
          {row, std::min(kPartRows, shape.m - row), col, std::min(kPartCols, shape.n - col)}, c,
          c_stride, adds);
    }
  };
  run_on_threads(std::clamp<std::size_t>(n_down * n_across, 1, std::max(n_threads, 1U)), work);
}

void multiply(MatrixView a, MatrixView b, ProductShape shape, float* c, std::size_t c_stride,
              bool adds) {
  multiply(a, b, shape, c, c_stride, adds, 1);
}

}  // namespace qsf
