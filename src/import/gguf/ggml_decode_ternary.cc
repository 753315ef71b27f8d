// SPDX-License-Identifier: MIT
//
// The ternary types. Base-3 bytes hold trits as a fraction of 256, rounded up, so that multiplying
// by a power of three, modulo 256, brings each to the top.

#include "import/gguf/ggml_decode.h"

namespace qsf {
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
