// SPDX-License-Identifier: MIT

#include "ops/activation_rows.h"

#include <cstring>
#include <utility>

#include "base/check.h"

namespace qsf {
namespace {

using kernels::ActivationType;

// Bytes of a row: int8 rows have room for a scale behind them.
std::size_t activation_bytes(ActivationType input, std::uint32_t n_cols) noexcept {
  return kernels::activation_row_bytes(input, n_cols) +
         (input == ActivationType::kInt8 ? sizeof(float) : 0);
}

// Bytes from one row to the next: lines, and no multiple of 4 KiB, because rows that far apart fall
// into the same cache sets and cost the products half their speed.
std::size_t row_stride(ActivationType input, std::uint32_t n_cols) noexcept {
  constexpr std::size_t kSetStride = 4096;
  const std::size_t lines = align_up(activation_bytes(input, n_cols), kLineBytes);
  return lines % kSetStride == 0 ? lines + kLineBytes : lines;
}

}  // namespace

ActivationType product_input(BlockFormat format, bool prompt, bool exact, bool int8_rows,
                             kernels::Isa best) noexcept {
  if (int8_rows) return is_float_type(format.type) ? ActivationType::kF32 : ActivationType::kInt8;
  const bool matrix_unit =
      prompt && !exact && kernels::find_matmul(format, ActivationType::kBf16, best) != nullptr;
  if (matrix_unit) return ActivationType::kBf16;
  return exact || is_float_type(format.type) ? ActivationType::kF32 : ActivationType::kInt8;
}

std::uint64_t ActivationRows::bytes(std::uint32_t max_rows, std::uint32_t max_cols,
                                    bool bf16) noexcept {
  const std::uint64_t row_bytes = row_stride(ActivationType::kInt8, max_cols) +
                                  (bf16 ? row_stride(ActivationType::kBf16, max_cols) : 0);
  return saturating_mul(row_bytes, max_rows);
}

void ActivationRows::attach(std::uint32_t max_rows, std::uint32_t max_cols, bool bf16,
                            MutableByteSpan memory) noexcept {
  QSF_CHECK(memory.size() >= bytes(max_rows, max_cols, bf16));
  max_rows_ = max_rows;
  max_cols_ = max_cols;
  i8_ = {.memory = memory.data()};
  bf16_ = {};
  if (bf16) bf16_.memory = memory.data() + row_stride(ActivationType::kInt8, max_cols) * max_rows;
}

void ActivationRows::invalidate(std::uint32_t buffer) noexcept {
  if (i8_.buffer == buffer) i8_.buffer = kNone;
  if (bf16_.buffer == buffer) bf16_.buffer = kNone;
}

bool ActivationRows::has(ActivationType input, bool int8_rows, std::uint32_t buffer,
                         std::uint32_t n_cols, RowRange rows) const noexcept {
  const Quantised& found = of(input);
  return found.buffer == buffer && found.int8_rows == int8_rows && found.n_cols == n_cols &&
         found.rows.first <= rows.first && rows.last <= found.rows.last;
}

void ActivationRows::begin(ActivationType input, bool int8_rows, std::uint32_t buffer,
                           std::uint32_t n_cols, RowRange rows) {
  Quantised& to = of(input);
  QSF_CHECK(to.memory != nullptr &&
            rows.last * row_stride(input, n_cols) <= max_rows_ * row_stride(input, max_cols_));
  to = {to.memory, buffer, n_cols, row_stride(input, n_cols), rows, int8_rows, false};
}

void ActivationRows::quantise_row(const kernels::KernelSet& kernels, ActivationType input,
                                  std::uint32_t row, const float* values) const noexcept {
  const Quantised& to = of(input);
  std::byte* out = to.memory + row * to.stride;
  if (input == ActivationType::kInt8 && to.int8_rows) {
    const float scale = kernels.quantise.row_to_int8(values, out, to.n_cols);
    std::memcpy(out + kernels::int8_row_bytes(to.n_cols), &scale, sizeof(scale));
    return;
  }
  if (input == ActivationType::kInt8) {
    kernels.quantise.to_int8(values, out, to.n_cols);
    return;
  }
  auto* halves = reinterpret_cast<BF16*>(out);
  kernels.convert.f32_to_bf16(values, halves, to.n_cols);
  const std::size_t row_bytes = kernels::activation_row_bytes(input, to.n_cols);
  std::memset(out + to.n_cols * sizeof(BF16), 0, row_bytes - to.n_cols * sizeof(BF16));
}

float ActivationRows::row_scale(std::uint32_t row) const noexcept {
  QSF_DCHECK(i8_.int8_rows);
  float scale;
  std::memcpy(&scale, i8_.memory + row * i8_.stride + kernels::int8_row_bytes(i8_.n_cols),
              sizeof(scale));
  return scale;
}

void ActivationRows::round_row(std::uint32_t row, float* values) const noexcept {
  const float scale = row_scale(row);
  const std::byte* codes = i8_.memory + row * i8_.stride;
  for (std::uint32_t c = 0; c < i8_.n_cols; ++c) {
    values[c] = static_cast<float>(static_cast<std::int8_t>(codes[c])) * scale;
  }
}

bool ActivationRows::mark_rounded() noexcept {
  return !std::exchange(i8_.rounded, true);
}

QuantisedRows ActivationRows::rows(ActivationType input) const noexcept {
  const Quantised& from = of(input);
  return {from.memory, from.stride};
}

}  // namespace qsf
