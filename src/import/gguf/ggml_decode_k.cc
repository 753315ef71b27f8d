// SPDX-License-Identifier: MIT
//
// The types with super-blocks of 256 columns.

#include "import/gguf/ggml_decode.h"

namespace qsf {
namespace {

constexpr unsigned kColumns = 256;

// Of each half, byte l of 32 holds columns l, l + 32, l + 64 and l + 96 in its pairs of bits.
unsigned bit_pair(ByteSpan bytes, std::size_t first, unsigned column) noexcept {
  return ggml_byte(bytes, first + column / 128 * 32 + column % 32) >> (column / 32 % 4 * 2) & 3U;
}

// Of each 64 columns 32 bytes, the low nibbles first.
unsigned nibble(ByteSpan bytes, std::size_t first, unsigned column) noexcept {
  return ggml_byte(bytes, first + column / 64 * 32 + column % 32) >> (column / 32 % 2 * 4) & 15U;
}

// (d * scale) * code - dmin * min for blocks of 32 columns.
void decode_with_mins(ByteSpan block, const std::uint8_t* codes, float* y) noexcept {
  const float d = ggml_half(block, 0);
  const float dmin = ggml_half(block, 2);
  for (unsigned sub = 0; sub < 8; ++sub) {
    const KScaleMin fields = ggml_k_scale_min(block.subspan(4, 12), sub);
    const float scale = d * static_cast<float>(fields.scale);
    const float min = dmin * static_cast<float>(fields.min);
    for (unsigned i = 32 * sub; i < 32 * sub + 32; ++i) {
      y[i] = scale * static_cast<float>(codes[i]) - min;
    }
  }
}

}  // namespace

void ggml_q2_k_codes(ByteSpan block, std::uint8_t* codes) noexcept {
  for (unsigned i = 0; i < kColumns; ++i) {
    codes[i] = static_cast<std::uint8_t>(bit_pair(block, 16, i));
  }
}

// Bit 4h + j of byte l of the first 32 is the high bit of column 128h + 32j + l.
void ggml_q3_k_codes(ByteSpan block, std::uint8_t* codes) noexcept {
  for (unsigned i = 0; i < kColumns; ++i) {
    const unsigned high = ggml_byte(block, i % 32) >> (i / 32) & 1U;
    codes[i] = static_cast<std::uint8_t>(bit_pair(block, 32, i) | high << 2U);
  }
}

void ggml_q4_k_codes(ByteSpan block, std::uint8_t* codes) noexcept {
  for (unsigned i = 0; i < kColumns; ++i) {
    codes[i] = static_cast<std::uint8_t>(nibble(block, 16, i));
  }
}

// Bit k of byte l of the 32 before the nibbles is the high bit of column 32k + l.
void ggml_q5_k_codes(ByteSpan block, std::uint8_t* codes) noexcept {
  for (unsigned i = 0; i < kColumns; ++i) {
    const unsigned high = ggml_byte(block, 16 + i % 32) >> (i / 32) & 1U;
    codes[i] = static_cast<std::uint8_t>(nibble(block, 48, i) | high << 4U);
  }
}

// Of each half (64 bytes of nibbles), column 32p + l has nibble p / 2 of byte 32 (p % 2) + l.
void ggml_q6_k_codes(ByteSpan block, std::uint8_t* codes) noexcept {
  for (unsigned i = 0; i < kColumns; ++i) {
    const unsigned byte = ggml_byte(block, i / 128 * 64 + i % 64);
    const unsigned low = byte >> (i / 64 % 2 * 4) & 15U;
    codes[i] = static_cast<std::uint8_t>(low | bit_pair(block, 128, i) << 4U);
  }
}

// 12 bytes of 16 scales: their low nibbles in the first 8, their high pairs in the last 4.
int ggml_q3_k_scale(ByteSpan block, unsigned sub) noexcept {
  const unsigned low = ggml_byte(block, 96 + sub % 8) >> (sub / 8 * 4) & 15U;
  const unsigned high = ggml_byte(block, 104 + sub % 4) >> (sub / 4 * 2) & 3U;
  return static_cast<int>(low | high << 4U) - 32;
}

// 16 bytes of scale (low nibble) and min of 16 columns each, 64 bytes of codes, f16 d, f16 dmin.
void decode_ggml_q2_k(ByteSpan row, std::span<float> out) noexcept {
  for_each_ggml_block<kColumns, 84>(row, out, [](ByteSpan block, float* y) {
    std::uint8_t codes[kColumns];
    ggml_q2_k_codes(block, codes);
    const float d = ggml_half(block, 80);
    const float dmin = ggml_half(block, 82);
    for (unsigned sub = 0; sub < 16; ++sub) {
      const Nibbles fields = ggml_nibbles(block, sub);
      const float scale = d * static_cast<float>(fields.low);
      const float min = dmin * static_cast<float>(fields.high);
      for (unsigned i = 16 * sub; i < 16 * sub + 16; ++i) {
        y[i] = scale * static_cast<float>(codes[i]) - min;
      }
    }
  });
}

// 32 bytes of high bits, 64 bytes of low pairs, 12 bytes of scales, f16 d: (d * scale) * (code -
// 4).
void decode_ggml_q3_k(ByteSpan row, std::span<float> out) noexcept {
  for_each_ggml_block<kColumns, 110>(row, out, [](ByteSpan block, float* y) {
    std::uint8_t codes[kColumns];
    ggml_q3_k_codes(block, codes);
    const float d = ggml_half(block, 108);
    for (unsigned sub = 0; sub < 16; ++sub) {
      const float scale = d * static_cast<float>(ggml_q3_k_scale(block, sub));
      for (unsigned i = 16 * sub; i < 16 * sub + 16; ++i) {
        y[i] = scale * static_cast<float>(static_cast<int>(codes[i]) - 4);
      }
    }
  });
}

// f16 d, f16 dmin, 12 bytes of scales and mins, 128 bytes of nibbles.
void decode_ggml_q4_k(ByteSpan row, std::span<float> out) noexcept {
  for_each_ggml_block<kColumns, 144>(row, out, [](ByteSpan block, float* y) {
    std::uint8_t codes[kColumns];
    ggml_q4_k_codes(block, codes);
    decode_with_mins(block, codes, y);
  });
}

// The same with 32 bytes of high bits before the nibbles.
void decode_ggml_q5_k(ByteSpan row, std::span<float> out) noexcept {
  for_each_ggml_block<kColumns, 176>(row, out, [](ByteSpan block, float* y) {
    std::uint8_t codes[kColumns];
    ggml_q5_k_codes(block, codes);
    decode_with_mins(block, codes, y);
  });
}

// 128 bytes of nibbles, 64 of high pairs, 16 signed scales of 16 columns, f16 d:
// (d * scale) * (code - 32).
void decode_ggml_q6_k(ByteSpan row, std::span<float> out) noexcept {
  for_each_ggml_block<kColumns, 210>(row, out, [](ByteSpan block, float* y) {
    std::uint8_t codes[kColumns];
    ggml_q6_k_codes(block, codes);
    const float d = ggml_half(block, 208);
    for (unsigned sub = 0; sub < 16; ++sub) {
      const float scale = d * static_cast<float>(load_le<std::int8_t>(block, 192 + sub));
      for (unsigned i = 16 * sub; i < 16 * sub + 16; ++i) {
        y[i] = scale * static_cast<float>(static_cast<int>(codes[i]) - 32);
      }
    }
  });
}

// f32 d, 256 signed bytes, 16 sums of codes that decoding does not need.
void decode_ggml_q8_k(ByteSpan row, std::span<float> out) noexcept {
  for_each_ggml_block<kColumns, 292>(row, out, [](ByteSpan block, float* y) {
    const auto d = load_le<float>(block, 0);
    for (unsigned i = 0; i < kColumns; ++i) {
      y[i] = d * static_cast<float>(load_le<std::int8_t>(block, 4 + i));
    }
  });
}

int ggml_iq4_xs_scale(ByteSpan block, unsigned sub) noexcept {
  const unsigned low = ggml_byte(block, 4 + sub / 2) >> (sub % 2 * 4) & 15U;
  const unsigned high = load_le<std::uint16_t>(block, 2);
  return static_cast<int>(low | (high >> (2 * sub) & 3U) << 4U) - 32;
}

// f16 d, u16 of high pairs of 8 scales, 4 bytes of their low nibbles, 128 bytes of nibbles: of each
// 32 columns 16 bytes, the low nibbles first; d * (scale - 32) * level.
void decode_ggml_iq4_xs(ByteSpan row, std::span<float> out) noexcept {
  for_each_ggml_block<kColumns, 136>(row, out, [](ByteSpan block, float* y) {
    const float d = ggml_half(block, 0);
    for (unsigned sub = 0; sub < 8; ++sub) {
      const float scale = d * static_cast<float>(ggml_iq4_xs_scale(block, sub));
      for (unsigned j = 0; j < 16; ++j) {
        const Nibbles q = ggml_nibbles(block, 8 + 16 * sub + j);
        y[32 * sub + j] = scale * static_cast<float>(kIq4Levels[q.low]);
        y[32 * sub + j + 16] = scale * static_cast<float>(kIq4Levels[q.high]);
      }
    }
  });
}

}  // namespace qsf
