// SPDX-License-Identifier: MIT

#include "import/gguf/ggml_decode.h"

#include <cstring>

namespace qsf {

void decode_ggml_f32(ByteSpan row, std::span<float> out) noexcept {
  if (!out.empty()) std::memcpy(out.data(), row.data(), out.size_bytes());
}

void decode_ggml_f16(ByteSpan row, std::span<float> out) noexcept {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = ggml_half(row, 2 * i);
}

void decode_ggml_bf16(ByteSpan row, std::span<float> out) noexcept {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = to_f32(load_le<BF16>(row, 2 * i));
}

void decode_ggml_f64(ByteSpan row, std::span<float> out) noexcept {
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(load_le<double>(row, 8 * i));
  }
}

// f16 d, 16 bytes whose low nibbles are elements 0 .. 15: d * (q - 8).
void decode_ggml_q4_0(ByteSpan row, std::span<float> out) noexcept {
  for_each_ggml_block<32, 18>(row, out, [](ByteSpan block, float* y) {
    const float d = ggml_half(block, 0);
    for (unsigned j = 0; j < 16; ++j) {
      const Nibbles q = ggml_nibbles(block, 2 + j);
      y[j] = static_cast<float>(static_cast<int>(q.low) - 8) * d;
      y[j + 16] = static_cast<float>(static_cast<int>(q.high) - 8) * d;
    }
  });
}

// f16 d, f16 m, nibbles: d * q + m.
void decode_ggml_q4_1(ByteSpan row, std::span<float> out) noexcept {
  for_each_ggml_block<32, 20>(row, out, [](ByteSpan block, float* y) {
    const float d = ggml_half(block, 0);
    const float m = ggml_half(block, 2);
    for (unsigned j = 0; j < 16; ++j) {
      const Nibbles q = ggml_nibbles(block, 4 + j);
      y[j] = static_cast<float>(q.low) * d + m;
      y[j + 16] = static_cast<float>(q.high) * d + m;
    }
  });
}

// f16 d, a u32 with bit 4 of element j in bit j, nibbles: d * (q - 16).
void decode_ggml_q5_0(ByteSpan row, std::span<float> out) noexcept {
  for_each_ggml_block<32, 22>(row, out, [](ByteSpan block, float* y) {
    const float d = ggml_half(block, 0);
    const auto high = load_le<std::uint32_t>(block, 2);
    for (unsigned j = 0; j < 16; ++j) {
      const Nibbles q = ggml_nibbles(block, 6 + j);
      const unsigned low = q.low | (high >> j & 1U) << 4U;
      const unsigned top = q.high | (high >> (j + 16) & 1U) << 4U;
      y[j] = static_cast<float>(static_cast<int>(low) - 16) * d;
      y[j + 16] = static_cast<float>(static_cast<int>(top) - 16) * d;
    }
  });
}

// The same with an f16 m behind d: d * q + m.
void decode_ggml_q5_1(ByteSpan row, std::span<float> out) noexcept {
  for_each_ggml_block<32, 24>(row, out, [](ByteSpan block, float* y) {
    const float d = ggml_half(block, 0);
    const float m = ggml_half(block, 2);
    const auto high = load_le<std::uint32_t>(block, 4);
    for (unsigned j = 0; j < 16; ++j) {
      const Nibbles q = ggml_nibbles(block, 8 + j);
      y[j] = static_cast<float>(q.low | (high >> j & 1U) << 4U) * d + m;
      y[j + 16] = static_cast<float>(q.high | (high >> (j + 16) & 1U) << 4U) * d + m;
    }
  });
}

// f16 d, 32 signed bytes: d * q.
void decode_ggml_q8_0(ByteSpan row, std::span<float> out) noexcept {
  for_each_ggml_block<32, 34>(row, out, [](ByteSpan block, float* y) {
    const float d = ggml_half(block, 0);
    for (unsigned j = 0; j < 32; ++j) {
      y[j] = static_cast<float>(load_le<std::int8_t>(block, 2 + j)) * d;
    }
  });
}

// f16 d, nibbles that choose one of 16 levels: d * level.
void decode_ggml_iq4_nl(ByteSpan row, std::span<float> out) noexcept {
  for_each_ggml_block<32, 18>(row, out, [](ByteSpan block, float* y) {
    const float d = ggml_half(block, 0);
    for (unsigned j = 0; j < 16; ++j) {
      const Nibbles q = ggml_nibbles(block, 2 + j);
      y[j] = d * static_cast<float>(kIq4Levels[q.low]);
      y[j + 16] = d * static_cast<float>(kIq4Levels[q.high]);
    }
  });
}

// A byte that is the exponent of a scale, nibbles in the floating-point form E2M1.
void decode_ggml_mxfp4(ByteSpan row, std::span<float> out) noexcept {
  for_each_ggml_block<32, 17>(row, out, [](ByteSpan block, float* y) {
    const float d = mxfp4_scale(ggml_byte(block, 0));
    for (unsigned j = 0; j < 16; ++j) {
      const Nibbles q = ggml_nibbles(block, 1 + j);
      y[j] = static_cast<float>(kMxfp4Levels[q.low]) * d;
      y[j + 16] = static_cast<float>(kMxfp4Levels[q.high]) * d;
    }
  });
}

}  // namespace qsf
