// SPDX-License-Identifier: MIT
//
// Quantised activations: rows of a buffer as int8 or bf16, beside the buffer's f32.
//
// Rows are quantised once for an operator's input and serve every product that reads the buffer
// until it is written again: the tiles of a matrix; query, key and value; gate and up. Only one
// buffer at a time has quantised rows, because a pass reads one input until it has the next.

#ifndef QSF_OPS_ACTIVATION_ROWS_H_
#define QSF_OPS_ACTIVATION_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "kernels/kernel_set.h"
#include "quant/block_format.h"

namespace qsf {

// Returns the activation type of products with weights of `format`. The whole rule: float weights
// and exact engines take f32; prompt rows take bf16 where the tier has a matrix unit for the type;
// everything else takes int8. Models with int8 activations (one scale a row) take these with
// quantised weights, and f32 rows rounded to them with float weights.
// Threads  any
kernels::ActivationType product_input(BlockFormat format, bool prompt, bool exact, bool int8_rows,
                                      kernels::Isa best) noexcept;

// A range of rows; empty when first == last.
struct RowRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

// Rows of one activation type.
struct QuantisedRows {
  const std::byte* data = nullptr;
  std::size_t stride = 0;  // bytes
  const std::byte* row(std::size_t i) const noexcept { return data + i * stride; }
};

class ActivationRows {
 public:
  // Returns the bytes for attach(): passes of `max_rows` rows of at most `max_cols` columns.
  // Without bf16 no product of this tier takes it.
  static std::uint64_t bytes(std::uint32_t max_rows, std::uint32_t max_cols, bool bf16) noexcept;
  // Requires  bytes() bytes, 64-byte aligned
  void attach(std::uint32_t max_rows, std::uint32_t max_cols, bool bf16,
              MutableByteSpan memory) noexcept;

  // Drops the quantised rows of a buffer that is about to be written.
  void invalidate(std::uint32_t buffer) noexcept;
  // Returns whether the rows exist in that type, int8 with one scale a row or not.
  bool has(kernels::ActivationType input, bool int8_rows, std::uint32_t buffer,
           std::uint32_t n_cols, RowRange rows) const noexcept;
  // Announces that rows of `buffer` will be quantised, each by quantise_row; earlier rows are
  // dropped.
  // Requires  input is kInt8 or kBf16; rows within the memory of attach()
  void begin(kernels::ActivationType input, bool int8_rows, std::uint32_t buffer,
             std::uint32_t n_cols, RowRange rows);
  // Quantises one announced row from its f32 values.
  // Threads  any, different rows at once
  void quantise_row(const kernels::KernelSet& kernels, kernels::ActivationType input,
                    std::uint32_t row, const float* values) const noexcept;
  // Requires  has(input, ...)
  QuantisedRows rows(kernels::ActivationType input) const noexcept;

  // The scale of an int8 row, by which its products are multiplied.
  // Requires  has(kInt8, true, ...)
  float row_scale(std::uint32_t row) const noexcept;
  // Dequantises an int8 row. Requires  has(kInt8, true, ...)
  void round_row(std::uint32_t row, float* values) const noexcept;
  // Returns true once for rows of has(kInt8, true, ...): the caller then rounds the buffer.
  bool mark_rounded() noexcept;

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFU;
  struct Quantised {
    std::byte* memory = nullptr;
    std::uint32_t buffer = kNone;
    std::uint32_t n_cols = 0;
    std::size_t stride = 0;
    RowRange rows;
    bool int8_rows = false;
    bool rounded = false;  // the buffer itself was rounded to the codes
  };
  Quantised& of(kernels::ActivationType input) noexcept {
    return input == kernels::ActivationType::kInt8 ? i8_ : bf16_;
  }
  const Quantised& of(kernels::ActivationType input) const noexcept {
    return input == kernels::ActivationType::kInt8 ? i8_ : bf16_;
  }

  Quantised i8_;
  Quantised bf16_;
  std::uint32_t max_rows_ = 0;
  std::uint32_t max_cols_ = 0;
};

}  // namespace qsf

#endif  // QSF_OPS_ACTIVATION_ROWS_H_
