// SPDX-License-Identifier: MIT
//
// Rotary position embedding in rotate-half order: element i pairs with element i + n_pairs.
//
// Angles are computed once per position and shared by all layers and heads; the rotation runs for
// every head. Based on: Su et al., "RoFormer", 2021.

#ifndef QSF_KERNELS_ROPE_ROPE_H_
#define QSF_KERNELS_ROPE_ROPE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/tier.h"

namespace qsf::kernels {

// Heads of many rows, each row with angles of its own.
//
// Shapes    x: row r's heads start at x + r * row_stride, head_stride floats apart
//           cos, sin [n_rows][n_pairs]
// Requires  head_stride >= 2 * n_pairs (any, when n_heads is 1)
struct RotateRowsArgs {
  float* x;
  std::size_t row_stride;
  const float* cos;
  const float* sin;
  std::uint32_t n_pairs;
  std::uint32_t n_heads;
  std::size_t head_stride;
  std::uint32_t n_rows;
};

struct RopeKernels {
  const char* name;  // "rope_scalar"
  Isa isa;
  Exactness exactness;

  // Writes cos and sin of f32(position) * inv_freq[i], the product rounded to f32 as the reference
  // implementations of these models do.
  // Shapes      inv_freq, cos, sin [n_pairs]
  // Guarantees  within 1 ulp for angles up to 2^26; larger and infinite ones give NaN
  void (*angles)(std::uint32_t position, const float* inv_freq, std::uint32_t n_pairs, float* cos,
                 float* sin) noexcept;

  // The same of the product as it is. Rounded, it would lose what tells a position from the next
  // one where positions grow without bound.
  // Guarantees  within 1 ulp for angles up to 2^26 at positions up to 2^26; larger and infinite
  //             angles give NaN
  void (*unrounded_angles)(std::uint32_t position, const float* inv_freq, std::uint32_t n_pairs,
                           float* cos, float* sin) noexcept;

  // Rotates the first 2 * n_pairs elements of each of n_heads heads in place:
  //   x[i], x[i + n_pairs] = x[i] cos[i] - x[i + n_pairs] sin[i],
  //                          x[i + n_pairs] cos[i] + x[i] sin[i]
  // Shapes    x [n_heads][head_stride], cos and sin [n_pairs]
  // Requires  head_stride >= 2 * n_pairs (any, when n_heads is 1)
  void (*rotate_half)(float* x, const float* cos, const float* sin, std::uint32_t n_pairs,
                      std::uint32_t n_heads, std::size_t head_stride) noexcept;

  // The same for every row of a prompt.
  void (*rotate_half_rows)(const RotateRowsArgs& args) noexcept;
};

// Every implementation, best instruction set first, scalar last. Threads  any
std::span<const RopeKernels> rope_kernels() noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_ROPE_ROPE_H_
