// SPDX-License-Identifier: MIT

#include "convert/gptq/outer_products.h"
#include "convert/gptq/sum_tile.h"

namespace qsf {

void sum_tile_avx512(const float* a, const float* b, std::size_t n_rows, float* sums,
                     std::size_t stride) noexcept {
  typedef float Vector __attribute__((vector_size(64)));
  sum_tile<Vector, 3, 8>(a, b, n_rows, sums, stride);
}

}  // namespace qsf
