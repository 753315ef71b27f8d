// SPDX-License-Identifier: MIT

#include "import/gguf/ggml_decode.h"

#include <cstring>

#include "quant/mxfp4.h"

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

// The same with an f16 m after d: d * q + m.
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
    const float d = mxfp4_scale(block[0]);
    for (unsigned j = 0; j < 16; ++j) {
      const Nibbles q = ggml_nibbles(block, 1 + j);
      y[j] = static_cast<float>(kMxfp4Levels[q.low]) * d;
      y[j + 16] = static_cast<float>(kMxfp4Levels[q.high]) * d;
    }
  });
}

// The types with super-blocks of 256 columns.

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

// The ternary types. Base-3 bytes hold trits as a fraction of 256, rounded up, so that multiplying
// by a power of three, modulo 256, brings each to the top.

namespace {

// The top trit of a byte times a power of three, as -1, 0 or 1.
float top_trit(unsigned byte, unsigned power) noexcept {
  const unsigned shifted = byte * power & 255U;
  return static_cast<float>(static_cast<int>(shifted * 3 >> 8U) - 1);
}

}  // namespace

// 48 bytes of 5 trits, 4 bytes of 4 trits, f16 d: d * trit. Trit n of the first 32 bytes is that of
// columns 32n .. 32n + 31, of the next 16 of columns 160 + 16n, of the last 4 of columns 240 + 4n;
// the first trit is on top.
void decode_ggml_tq1_0(ByteSpan row, std::span<float> out) noexcept {
  constexpr unsigned kPowers[] = {1, 3, 9, 27, 81};
  constexpr struct {
    unsigned first_byte, n_bytes, n_trits;
  } kRuns[] = {{0, 32, 5}, {32, 16, 5}, {48, 4, 4}};
  for_each_ggml_block<256, 54>(row, out, [&](ByteSpan block, float* y) {
    const float d = ggml_half(block, 52);
    for (const auto& run : kRuns) {
      for (unsigned n = 0; n < run.n_trits; ++n) {
        for (unsigned m = 0; m < run.n_bytes; ++m) {
          *y++ = top_trit(ggml_byte(block, run.first_byte + m), kPowers[n]) * d;
        }
      }
    }
  });
}

// 64 bytes of codes ordered as those of Q2_K, f16 d: d * (code - 1). Writers use no code 3; it
// decodes to 2 d.
void decode_ggml_tq2_0(ByteSpan row, std::span<float> out) noexcept {
  for_each_ggml_block<256, 66>(row, out, [](ByteSpan block, float* y) {
    const float d = ggml_half(block, 64);
    for (unsigned part = 0; part < 8; ++part) {
      for (unsigned m = 0; m < 32; ++m) {
        const unsigned code = ggml_byte(block, part / 4 * 32 + m) >> (part % 4 * 2) & 3U;
        y[32 * part + m] = static_cast<float>(static_cast<int>(code) - 1) * d;
      }
    }
  });
}

// An f16 scale for the row, then of each 64 columns 12 bytes of 5 trits and one of 4: of each 16
// columns 3 bytes hold the first 15, and trit k of the last byte is column 16k + 15. The first trit
// is at the bottom: what brings it to the top is the largest power.
void decode_ggml_iq1_bn(ByteSpan row, std::span<float> out) noexcept {
  constexpr unsigned kPowers[] = {81, 27, 9, 3, 1};
  const float scale = ggml_half(row, 0);
  for_each_ggml_block<64, 13>(row.subspan(2), out, [&](ByteSpan block, float* y) {
    for (unsigned part = 0; part < 4; ++part) {
      for (unsigned k = 0; k < 15; ++k) {
        *y++ = top_trit(ggml_byte(block, 3 * part + k / 5), kPowers[k % 5]) * scale;
      }
      *y++ = top_trit(ggml_byte(block, 12), kPowers[part]) * scale;
    }
  });
}

// An f32 scale for the row, then of each 64 columns 16 bytes: column j + 16 f in bits 2f, 2f + 1 of
// byte j. Writers use no code 3; it decodes to twice the scale.
void decode_ggml_iq2_bn(ByteSpan row, std::span<float> out) noexcept {
  const auto scale = load_le<float>(row, 0);
  for_each_ggml_block<64, 16>(row.subspan(4), out, [&](ByteSpan block, float* y) {
    for (unsigned i = 0; i < 64; ++i) {
      const unsigned code = ggml_byte(block, i % 16) >> (i / 16 * 2) & 3U;
      y[i] = static_cast<float>(static_cast<int>(code) - 1) * scale;
    }
  });
}

}  // namespace qsf
