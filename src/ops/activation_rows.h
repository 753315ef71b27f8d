// SPDX-License-Identifier: MIT
//
// Rows of a buffer in the form that products take them: int8 or bf16 beside the f32 of the buffer.
//
// A form is made once for an operator input and serves every product that reads the buffer until
// the buffer is written again: the tiles of a matrix, query, key and value, gate and up. One buffer
// at a time has forms, because a pass reads one input until it has the next.

#ifndef QSF_OPS_ACTIVATION_ROWS_H_
#define QSF_OPS_ACTIVATION_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "kernels/kernel_set.h"
#include "quant/types.h"

namespace qsf {

// Returns the form in which products of weights of `format` take rows. This is the whole rule:
// float weights and exact engines multiply f32; prompt rows go to a matrix unit where the tier has
// one for the type; everything else is int8. Where the model says that rows are int8 with one scale
// a row, coded weights take nothing else, and float weights f32 rows rounded to that.
// Threads  any
kernels::ActivationType product_input(BlockFormat format, bool prompt, bool exact, bool int8_rows,
                                      kernels::Isa best) noexcept;

// A range of rows; empty when first == last.
struct RowRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

// Rows of one form.
struct FormedRows {
  const std::byte* data = nullptr;
  std::size_t stride = 0;  // bytes
  const std::byte* row(std::size_t i) const noexcept { return data + i * stride; }
};

class ActivationRows {
 public:
  // Returns the bytes of attach(), for passes of `max_rows` rows of at most `max_cols` columns.
  // Without bf16 no product of this tier takes that form.
  static std::uint64_t bytes(std::uint32_t max_rows, std::uint32_t max_cols, bool bf16) noexcept;
  // Requires  bytes() bytes, 64-byte aligned
  void attach(std::uint32_t max_rows, std::uint32_t max_cols, bool bf16,
              MutableByteSpan memory) noexcept;

  // Forgets the forms of a buffer, because it is about to be written.
  void forget(std::uint32_t buffer) noexcept;
  // Returns whether the rows are there in that form, int8 with one scale a row or not.
  bool has(kernels::ActivationType input, bool int8_rows, std::uint32_t buffer,
           std::uint32_t n_cols, RowRange rows) const noexcept;
  // Announces that rows of `buffer` will be formed, each by form_row; what was there is forgotten.
  // Requires  input is kInt8 or kBf16; rows and columns within those of attach()
  void begin(kernels::ActivationType input, bool int8_rows, std::uint32_t buffer,
             std::uint32_t n_cols, RowRange rows);
  // Forms one announced row from its f32 values.
  // Threads  any, different rows at once
  void form_row(const kernels::KernelSet& kernels, kernels::ActivationType input, std::uint32_t row,
                const float* values) const noexcept;
  // Requires  has(input, ...)
  FormedRows rows(kernels::ActivationType input) const noexcept;

  // What products of a row of int8 with one scale have to be multiplied with.
  // Requires  has(kInt8, true, ...)
  float row_scale(std::uint32_t row) const noexcept;
  // Gives a row's values as its int8 codes stand for them. Requires  has(kInt8, true, ...)
  void round_row(std::uint32_t row, float* values) const noexcept;
  // Returns true once for rows that has(kInt8, true, ...) names: round them then.
  bool take_rounding() noexcept;

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFU;
  struct Form {
    std::byte* memory = nullptr;
    std::uint32_t buffer = kNone;
    std::uint32_t n_cols = 0;
    std::size_t stride = 0;
    RowRange rows;
    bool int8_rows = false;
    bool rounded = false;  // the buffer itself was rounded to the codes
  };
  Form& form(kernels::ActivationType input) noexcept {
    return input == kernels::ActivationType::kInt8 ? i8_ : bf16_;
  }
  const Form& form(kernels::ActivationType input) const noexcept {
    return input == kernels::ActivationType::kInt8 ? i8_ : bf16_;
  }

  Form i8_;
  Form bf16_;
  std::uint32_t max_rows_ = 0;
  std::uint32_t max_cols_ = 0;
};

}  // namespace qsf

#endif  // QSF_OPS_ACTIVATION_ROWS_H_
