// SPDX-License-Identifier: MIT

#include "quant/floats.h"

#include <bit>
#include <cstring>

#include "base/f16.h"

namespace qsf {

void encode_float_row(QuantType type, std::span<const float> row, MutableByteSpan out) noexcept {
  if (type == QuantType::kF32) {
    if (!row.empty()) std::memcpy(out.data(), row.data(), row.size_bytes());
    return;
  }
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::uint16_t bits = type == QuantType::kF16 ? to_f16(row[i]).bits : to_bf16(row[i]).bits;
    store_le(out, 2 * i, bits);
  }
}

void decode_float_row(QuantType type, ByteSpan row, std::span<float> out) noexcept {
  if (type == QuantType::kF32) {
    if (!out.empty()) std::memcpy(out.data(), row.data(), out.size_bytes());
    return;
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto bits = load_le<std::uint16_t>(row, 2 * i);
    out[i] = type == QuantType::kF16 ? to_f32(F16{bits}) : to_f32(BF16{bits});
  }
}

bool f16_holds_exactly(std::span<const float> values) noexcept {
  for (const float value : values) {
    if (std::bit_cast<std::uint32_t>(to_f32(to_f16(value))) !=
        std::bit_cast<std::uint32_t>(value)) {
      return false;
    }
  }
  return true;
}

}  // namespace qsf
