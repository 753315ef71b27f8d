// SPDX-License-Identifier: MIT
//
// The scalar tier's functions behind the tables of the smaller kernels; for those tables alone.
// Contracts are in each kernel's own header. matmul lists its own beside its table.

#ifndef QSF_KERNELS_VARIANTS_SCALAR_H_
#define QSF_KERNELS_VARIANTS_SCALAR_H_

#include <cstddef>
#include <cstdint>

#include "base/f16.h"

namespace qsf::kernels {

struct LogSumExpState;

void rms_norm_scalar(const float* x, const float* gain, float* y, std::uint32_t n_values,
                     float eps) noexcept;
void layer_norm_scalar(const float* x, const float* gain, const float* bias, float* y,
                       std::uint32_t n_values, float eps) noexcept;

void rotate_half_scalar(float* x, const float* cos, const float* sin, std::uint32_t n_pairs,
                        std::uint32_t n_heads, std::size_t head_stride) noexcept;

void to_int8_scalar(const float* x, std::byte* out, std::uint32_t n_cols) noexcept;

void relu_scalar(float* x, std::uint32_t n_values) noexcept;
void relu_squared_scalar(float* x, std::uint32_t n_values) noexcept;
void silu_scalar(float* x, std::uint32_t n_values) noexcept;
void gelu_tanh_scalar(float* x, std::uint32_t n_values) noexcept;
void gelu_erf_scalar(float* x, std::uint32_t n_values) noexcept;
void soft_cap_scalar(float* x, float cap, std::uint32_t n_values) noexcept;
void silu_mul_scalar(const float* gate, const float* up, float* out,
                     std::uint32_t n_values) noexcept;
void gelu_tanh_mul_scalar(const float* gate, const float* up, float* out,
                          std::uint32_t n_values) noexcept;

void add_scalar(const float* a, const float* b, float* out, std::uint32_t n_values) noexcept;
void add_in_place_scalar(float* x, const float* b, std::uint32_t n_values) noexcept;
void mul_scalar(const float* a, const float* b, float* out, std::uint32_t n_values) noexcept;
void scale_scalar(float* x, float factor, std::uint32_t n_values) noexcept;
void copy_scalar(const float* from, float* to, std::uint32_t n_values) noexcept;

float max_value_scalar(const float* x, std::uint32_t n_values) noexcept;
void softmax_in_place_scalar(float* x, std::uint32_t n_values) noexcept;
void softmax_temperature_scalar(float* x, std::uint32_t n_values, float temperature) noexcept;
void log_sum_exp_add_scalar(LogSumExpState* state, const float* x, std::uint32_t n_values) noexcept;

void f16_to_f32_scalar(const F16* from, float* to, std::size_t n_values) noexcept;
void bf16_to_f32_scalar(const BF16* from, float* to, std::size_t n_values) noexcept;
void f32_to_f16_scalar(const float* from, F16* to, std::size_t n_values) noexcept;
void f32_to_bf16_scalar(const float* from, BF16* to, std::size_t n_values) noexcept;

std::uint32_t argmax_scalar(const float* x, std::uint32_t n_values) noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_VARIANTS_SCALAR_H_
