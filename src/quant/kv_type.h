// SPDX-License-Identifier: MIT
//
// How K and V rows are stored.
//
// A page holds kKvPageSlots slots of one KV head: values by slot, [kKvPageSlots][head_dim], and
// keys by dimension, [head_dim][kKvPageSlots]. So neighbouring elements are what a product of
// attention has side by side in a vector: the slots of scores, the dimensions of the output.
// Neither needs a sum across lanes or a transposition.

#ifndef QSF_QUANT_KV_TYPE_H_
#define QSF_QUANT_KV_TYPE_H_

#include <cstdint>
#include <string_view>

namespace qsf {

enum class KvType : std::uint8_t { kF32 = 0, kF16 = 1 };

inline constexpr KvType kAllKvTypes[] = {KvType::kF32, KvType::kF16};
inline constexpr std::uint32_t kKvPageSlots = 64;

constexpr std::uint64_t kv_row_bytes(KvType type, std::uint64_t head_dim) noexcept {
  return head_dim * (type == KvType::kF32 ? 4U : 2U);
}

constexpr std::string_view kv_type_name(KvType type) noexcept {
  return type == KvType::kF32 ? "f32" : "f16";
}

}  // namespace qsf

#endif  // QSF_QUANT_KV_TYPE_H_
