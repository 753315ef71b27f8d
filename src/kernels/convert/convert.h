// SPDX-License-Identifier: MIT
//
// Arrays between f32 and the half-width storage types, and the store of K and V rows.

#ifndef QSF_KERNELS_CONVERT_CONVERT_H_
#define QSF_KERNELS_CONVERT_CONVERT_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/f16.h"
#include "kernels/isa.h"
#include "quant/kv_type.h"

namespace qsf::kernels {

// Common to all: no alignment beyond the element's; from and to do not overlap. Widening is exact
// and narrowing rounds to nearest even, so every tier gives the same bits (a NaN's payload aside).
struct ConvertKernels {
  const char* name;  // "convert_scalar"
  Isa isa;
  Exactness exactness;

  void (*f16_to_f32)(const F16* from, float* to, std::size_t n_values) noexcept;
  void (*bf16_to_f32)(const BF16* from, float* to, std::size_t n_values) noexcept;
  void (*f32_to_f16)(const float* from, F16* to, std::size_t n_values) noexcept;
  void (*f32_to_bf16)(const float* from, BF16* to, std::size_t n_values) noexcept;
};

// Every implementation, best instruction set first, scalar last. Threads  any
std::span<const ConvertKernels> convert_kernels() noexcept;

// Stores the head_dim values of one key as slot `slot` of a page's K block (quant/kv_type.h): every
// kKvPageSlots-th element. Requires  slot < kKvPageSlots
// Threads  any, for different slots too: no byte of another slot is written
void store_key(const ConvertKernels& convert, KvType type, const float* from, std::byte* block,
               std::uint32_t slot, std::uint32_t head_dim) noexcept;

// Stores one V row of head_dim values at `to`, kv_row_bytes(type, head_dim) bytes.
// Threads  any
void store_value(const ConvertKernels& convert, KvType type, const float* from, std::byte* to,
                 std::uint32_t head_dim) noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_CONVERT_CONVERT_H_
