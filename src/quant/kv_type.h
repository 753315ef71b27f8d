// SPDX-License-Identifier: MIT
//
// Storage of K and V rows in the KV cache.
//
// A page holds kKvPageSlots slots of one KV head in a K block and a V block: values by slot,
// [kKvPageSlots][columns], and keys by dimension, [columns][kKvPageSlots]. So neighbouring elements
// fill one vector of an attention product: the slots of scores, the dimensions of the output.
// Neither needs a sum across lanes or a transposition.
//
// f32 and f16 rows have the columns of the head. Quantised rows are zero-padded to a multiple of 16
// columns, keys are rotated (in 2 bits values too), and codes and f16 scales are defined in
// kernels/kv_rows/kv_rows.h, one scale per kv_group columns of a slot. A block has the codes first,
// then the scales:
//
//            K block                                 V block
//   8 bits   int8 [columns][kKvPageSlots]            int8 [kKvPageSlots][columns]
//   4 bits   [columns][kKvPageSlots / 2] bytes,      [kKvPageSlots][columns / 16] units of 8 bytes,
//            byte j holding slot j in bits 0-3       byte j of a unit holding column j in bits 0-3
//            and slot j + 32 in bits 4-7             and column j + 8 in bits 4-7
//   2 bits   [columns][kKvPageSlots / 4] bytes,      [kKvPageSlots][columns / 16] units of 4 bytes,
//            byte j holding slot j + 16 f            byte j of a unit holding column j + 4 f
//            in bits 2f and 2f + 1                   in bits 2f and 2f + 1
//   scales   [columns / group][kKvPageSlots]         [kKvPageSlots][columns / group]
//
// Every block is a multiple of 64 bytes.
//
// Functions are always inlined, because objects of one instruction set may define no inline
// function.

#ifndef QSF_QUANT_KV_TYPE_H_
#define QSF_QUANT_KV_TYPE_H_

#include <cstdint>
#include <string_view>

namespace qsf {

enum class KvType : std::uint8_t { kF32 = 0, kF16 = 1, k8Bit = 2, k4Bit = 3, k2Bit = 4 };

inline constexpr KvType kAllKvTypes[] = {KvType::kF32, KvType::kF16, KvType::k8Bit, KvType::k4Bit,
                                         KvType::k2Bit};
inline constexpr KvType kQuantisedKvTypes[] = {KvType::k8Bit, KvType::k4Bit, KvType::k2Bit};
inline constexpr std::uint32_t kKvPageSlots = 64;

[[gnu::always_inline]] constexpr bool kv_is_quantised(KvType type) noexcept {
  return type == KvType::k8Bit || type == KvType::k4Bit || type == KvType::k2Bit;
}

// Whether values are rotated like keys; attention then rotates its output back
// (docs/decisions/012-kv-cache-layout.md).
[[gnu::always_inline]] constexpr bool kv_rotates_values(KvType type) noexcept {
  return type == KvType::k2Bit;
}

[[gnu::always_inline]] constexpr std::uint32_t kv_bits(KvType type) noexcept {
  constexpr std::uint32_t kBits[] = {32, 16, 8, 4, 2};
  return kBits[static_cast<unsigned>(type)];
}

// Elements of a stored row.
[[gnu::always_inline]] constexpr std::uint32_t kv_columns(KvType type,
                                                          std::uint32_t head_dim) noexcept {
  return kv_is_quantised(type) ? (head_dim + 15) / 16 * 16 : head_dim;
}

// Columns that share a scale: in 8 bits the whole row, in 4 and 2 bits 32, or 16 where the block of
// the rotation is no larger. Meaningless for f32 and f16.
[[gnu::always_inline]] constexpr std::uint32_t kv_group(KvType type,
                                                        std::uint32_t head_dim) noexcept {
  const std::uint32_t columns = kv_columns(type, head_dim);
  if (type == KvType::k8Bit) return columns;
  return columns % 32 == 0 ? 32 : 16;
}

// Scales of a slot; 0 in f32 and f16.
[[gnu::always_inline]] constexpr std::uint32_t kv_groups(KvType type,
                                                         std::uint32_t head_dim) noexcept {
  return kv_is_quantised(type) ? kv_columns(type, head_dim) / kv_group(type, head_dim) : 0;
}

// Bytes of a block, and of its codes, after which its scales follow.
[[gnu::always_inline]] constexpr std::uint64_t kv_scales_offset(KvType type,
                                                                std::uint32_t head_dim) noexcept {
  return std::uint64_t{kKvPageSlots} * kv_columns(type, head_dim) * kv_bits(type) / 8;
}
[[gnu::always_inline]] constexpr std::uint64_t kv_block_bytes(KvType type,
                                                              std::uint32_t head_dim) noexcept {
  return kv_scales_offset(type, head_dim) +
         std::uint64_t{2} * kKvPageSlots * kv_groups(type, head_dim);
}

// The name in options of programs.
constexpr std::string_view kv_type_name(KvType type) noexcept {
  constexpr std::string_view kNames[] = {"f32", "f16", "8", "4", "2"};
  return kNames[static_cast<unsigned>(type)];
}

}  // namespace qsf

#endif  // QSF_QUANT_KV_TYPE_H_
