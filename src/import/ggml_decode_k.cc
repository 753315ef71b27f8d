// SPDX-License-Identifier: MIT
//
// The types with super-blocks of 256 columns.

#include "import/ggml_decode.h"

namespace qsf {

// 16 bytes of scale (low nibble) and min of 16 columns each, 64 bytes of 2-bit codes, f16 d, f16
// dmin. Of each half, byte l of 32 holds columns l, l + 32, l + 64 and l + 96 in its bit pairs.
void decode_ggml_q2_k(ByteSpan row, std::span<float> out) noexcept {
  for_each_ggml_block<256, 84>(row, out, [](ByteSpan block, float* y) {
    const float d = ggml_half(block, 80);
    const float dmin = ggml_half(block, 82);
    for (unsigned sub = 0; sub < 16; ++sub) {
      const Nibbles fields = ggml_nibbles(block, sub);
      const float scale = d * static_cast<float>(fields.low);
      const float min = dmin * static_cast<float>(fields.high);
      const unsigned codes = 16 + sub / 8 * 32 + sub % 2 * 16;
      for (unsigned l = 0; l < 16; ++l) {
        const unsigned q = ggml_byte(block, codes + l) >> (sub / 2 % 4 * 2) & 3U;
        y[16 * sub + l] = scale * static_cast<float>(q) - min;
      }
    }
  });
}

// 32 bytes of high bits, 64 bytes of low bit pairs ordered as those of Q2_K, 12 bytes of 16 scales
// (low nibbles in the first 8, high pairs in the last 4), f16 d. A high bit that is clear takes 4
// off; bit 4h + j of byte l is that of column 128h + 32j + l.
void decode_ggml_q3_k(ByteSpan row, std::span<float> out) noexcept {
  for_each_ggml_block<256, 110>(row, out, [](ByteSpan block, float* y) {
    const float d = ggml_half(block, 108);
    for (unsigned sub = 0; sub < 16; ++sub) {
      const unsigned low = ggml_byte(block, 96 + sub % 8) >> (sub / 8 * 4) & 15U;
      const unsigned high = ggml_byte(block, 104 + sub % 4) >> (sub / 4 * 2) & 3U;
      const float scale = d * static_cast<float>(static_cast<int>(low | high << 4U) - 32);
      const unsigned run = sub % 2 * 16;
      for (unsigned l = 0; l < 16; ++l) {
        const unsigned q = ggml_byte(block, 32 + sub / 8 * 32 + run + l) >> (sub / 2 % 4 * 2) & 3U;
        const unsigned top = ggml_byte(block, run + l) >> (sub / 2) & 1U;
        y[16 * sub + l] = scale * static_cast<float>(static_cast<int>(q | top << 2U) - 4);
      }
    }
  });
}

// f16 d, f16 dmin, 12 bytes of scales and mins of 32 columns, 128 bytes of nibbles: of each 64
// columns 32 bytes, the low nibbles first.
void decode_ggml_q4_k(ByteSpan row, std::span<float> out) noexcept {
  for_each_ggml_block<256, 144>(row, out, [](ByteSpan block, float* y) {
    const float d = ggml_half(block, 0);
    const float dmin = ggml_half(block, 2);
    for (unsigned sub = 0; sub < 8; ++sub) {
      const KScaleMin fields = ggml_k_scale_min(block.subspan(4, 12), sub);
      const float scale = d * static_cast<float>(fields.scale);
      const float min = dmin * static_cast<float>(fields.min);
      for (unsigned l = 0; l < 32; ++l) {
        const unsigned q = ggml_byte(block, 16 + sub / 2 * 32 + l) >> (sub % 2 * 4) & 15U;
        y[32 * sub + l] = scale * static_cast<float>(q) - min;
      }
    }
  });
}

// As Q4_K with 32 bytes of high bits before the nibbles: bit k of byte l is that of column
// 32k + l.
void decode_ggml_q5_k(ByteSpan row, std::span<float> out) noexcept {
  for_each_ggml_block<256, 176>(row, out, [](ByteSpan block, float* y) {
    const float d = ggml_half(block, 0);
    const float dmin = ggml_half(block, 2);
    for (unsigned sub = 0; sub < 8; ++sub) {
      const KScaleMin fields = ggml_k_scale_min(block.subspan(4, 12), sub);
      const float scale = d * static_cast<float>(fields.scale);
      const float min = dmin * static_cast<float>(fields.min);
      for (unsigned l = 0; l < 32; ++l) {
        const unsigned q = ggml_byte(block, 48 + sub / 2 * 32 + l) >> (sub % 2 * 4) & 15U;
        const unsigned top = ggml_byte(block, 16 + l) >> sub & 1U;
        y[32 * sub + l] = scale * static_cast<float>(q | top << 4U) - min;
      }
    }
  });
}

// 128 bytes of nibbles, 64 bytes of high bit pairs, 16 signed scales of 16 columns, f16 d. Of each
// half (64 bytes, 32 bytes), column 32p + l has nibble p / 2 of byte 32 (p % 2) + l and pair p of
// byte l.
void decode_ggml_q6_k(ByteSpan row, std::span<float> out) noexcept {
  for_each_ggml_block<256, 210>(row, out, [](ByteSpan block, float* y) {
    const float d = ggml_half(block, 208);
    for (unsigned sub = 0; sub < 16; ++sub) {
      const float scale = d * static_cast<float>(load_le<std::int8_t>(block, 192 + sub));
      const unsigned half = sub / 8;
      const unsigned part = sub / 2 % 4;
      for (unsigned l = sub % 2 * 16, i = 0; i < 16; ++l, ++i) {
        const unsigned low =
            ggml_byte(block, 64 * half + part % 2 * 32 + l) >> (part / 2 * 4) & 15U;
        const unsigned high = ggml_byte(block, 128 + 32 * half + l) >> (part * 2) & 3U;
        y[16 * sub + i] = scale * static_cast<float>(static_cast<int>(low | high << 4U) - 32);
      }
    }
  });
}

// f32 d, 256 signed bytes, 16 sums of codes that decoding does not need.
void decode_ggml_q8_k(ByteSpan row, std::span<float> out) noexcept {
  for_each_ggml_block<256, 292>(row, out, [](ByteSpan block, float* y) {
    const auto d = load_le<float>(block, 0);
    for (unsigned j = 0; j < 256; ++j) {
      y[j] = d * static_cast<float>(load_le<std::int8_t>(block, 4 + j));
    }
  });
}

// f16 d, u16 of high pairs of 8 scales, 4 bytes of their low nibbles, 128 bytes of nibbles: of each
// 32 columns 16 bytes, the low nibbles first; d * (scale - 32) * level.
void decode_ggml_iq4_xs(ByteSpan row, std::span<float> out) noexcept {
  for_each_ggml_block<256, 136>(row, out, [](ByteSpan block, float* y) {
    const float d = ggml_half(block, 0);
    const unsigned high = load_le<std::uint16_t>(block, 2);
    for (unsigned sub = 0; sub < 8; ++sub) {
      const unsigned low = ggml_byte(block, 4 + sub / 2) >> (sub % 2 * 4) & 15U;
      const unsigned six_bits = low | (high >> (2 * sub) & 3U) << 4U;
      const float scale = d * static_cast<float>(static_cast<int>(six_bits) - 32);
      for (unsigned j = 0; j < 16; ++j) {
        const Nibbles q = ggml_nibbles(block, 8 + 16 * sub + j);
        y[32 * sub + j] = scale * static_cast<float>(kIq4Levels[q.low]);
        y[32 * sub + j + 16] = scale * static_cast<float>(kIq4Levels[q.high]);
      }
    }
  });
}

}  // namespace qsf
