// SPDX-License-Identifier: MIT
//
// Sixteen dimensions at a time are widened to a panel, which stays in the first-level cache, and
// written out by slot: a line of every slot.

#include "kernels/kv_rows/key_values.h"

#include <algorithm>

#include "base/f16.h"

namespace qsf::kernels {
namespace {

constexpr std::uint32_t kDims = 16;
using Panel = float[kDims][kKvPageSlots];

// What the codes of a dimension stand for, in units of their scale.
template <unsigned kBits>
void widen_codes(const std::byte* row, float* slots) noexcept {
  constexpr std::uint32_t kRowBytes = kKvPageSlots * kBits / 8;
  constexpr unsigned kMask = (1U << kBits) - 1;
  for (std::uint32_t slot = 0; slot < kKvPageSlots; ++slot) {
    const unsigned code =
        std::to_integer<unsigned>(row[slot % kRowBytes]) >> slot / kRowBytes * kBits & kMask;
    slots[slot] = static_cast<float>(2 * static_cast<int>(code) - static_cast<int>(kMask));
  }
}

// Widens dimensions [first, first + kDims), which share a scale where there are scales.
void fill_panel(const ConvertKernels& convert, KvType type, const std::byte* keys,
                std::uint32_t head_dim, std::uint32_t first, Panel& panel) noexcept {
  const std::size_t row_bytes = std::size_t{kKvPageSlots} * kv_bits(type) / 8;
  for (std::uint32_t d = 0; d < kDims; ++d) {
    const std::byte* const row = keys + (first + d) * row_bytes;
    switch (type) {
      case KvType::kF32:
        std::copy_n(reinterpret_cast<const float*>(row), kKvPageSlots, panel[d]);
        break;
      case KvType::kF16:
        convert.f16_to_f32(reinterpret_cast<const F16*>(row), panel[d], kKvPageSlots);
        break;
      case KvType::k8Bit:
        for (std::uint32_t slot = 0; slot < kKvPageSlots; ++slot) {
          panel[d][slot] = static_cast<float>(static_cast<std::int8_t>(row[slot]));
        }
        break;
      case KvType::k4Bit: widen_codes<4>(row, panel[d]); break;
      case KvType::k2Bit: widen_codes<2>(row, panel[d]); break;
    }
  }
  if (!kv_is_quantised(type)) return;
  const std::uint32_t group = first / kv_group(type, head_dim);
  const auto* const scales =
      reinterpret_cast<const F16*>(keys + kv_scales_offset(type, head_dim)) + group * kKvPageSlots;
  float wide[kKvPageSlots];
  convert.f16_to_f32(scales, wide, kKvPageSlots);
  for (auto& slots : panel) {
    for (std::uint32_t slot = 0; slot < kKvPageSlots; ++slot) slots[slot] *= wide[slot];
  }
}

}  // namespace

void widen_keys(const ConvertKernels& convert, KvType type, const std::byte* keys,
                AttendRange slots, std::uint32_t head_dim, float* values) noexcept {
  std::fill_n(values, std::size_t{slots.first} * head_dim, 0.0F);
  std::fill_n(values + std::size_t{slots.last} * head_dim,
              std::size_t{kKvPageSlots - slots.last} * head_dim, 0.0F);
  Panel panel;
  for (std::uint32_t first = 0; first < head_dim; first += kDims) {
    fill_panel(convert, type, keys, head_dim, first, panel);
    for (std::uint32_t slot = slots.first; slot < slots.last; ++slot) {
      float* const to = values + std::size_t{slot} * head_dim + first;
      for (std::uint32_t d = 0; d < kDims; ++d) to[d] = panel[d][slot];
    }
  }
}

}  // namespace qsf::kernels
