// SPDX-License-Identifier: MIT
//
// Holds q2_k, q3_k, q5_k and q6_k to docs/format-blocks.md: weights have the bits of GGUF's
// K-quants, any bytes decode as the page says, encoders keep their limits.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/f16.h"
#include "base/rng.h"
#include "quant/block_format.h"
#include "quant/codec.h"
#include "quant/interleave.h"
#include "quant/super_block.h"
#include "quant/testing/blocks.h"

namespace qsf {
namespace {

using Bytes = std::vector<std::byte>;
using testing_support::at;

void copy(const Bytes& from, std::size_t first, std::size_t n_bytes, Bytes& to, std::size_t where) {
  std::memcpy(to.data() + where, from.data() + first, n_bytes);
}

// A half with its sign flipped.
void copy_negated(const Bytes& from, std::size_t first, Bytes& to, std::size_t where) {
  copy(from, first, 2, to, where);
  to[where + 1] ^= std::byte{0x80};
}

// Packs the codes of a super-block of a row that is one.
void put_codes(BlockFormat format, const std::vector<std::uint8_t>& codes, Bytes& row) {
  for (std::uint32_t k = 0; k < 256 / format.block; ++k) {
    block_codec(format.type)
        .pack(&codes[std::size_t{k} * format.block], format.block, format.block,
              row.data() + locate_in_row(format, k).codes);
  }
}

Bytes from_q6_k(const Bytes& ggml) {
  const BlockFormat format = block_format(QuantType::kQ6K, 0);
  Bytes row(210);
  copy(ggml, 208, 2, row, 0);
  copy(ggml, 192, 16, row, 2);
  std::vector<std::uint8_t> codes(256);
  for (unsigned c = 0; c < 256; ++c) {
    const unsigned h = c / 128, g = c / 32 % 4, l = c % 32;
    const unsigned low = at(ggml, 64 * h + 32 * (g % 2) + l) >> (4 * (g / 2)) & 15U;
    const unsigned high = at(ggml, 128 + 32 * h + l) >> (2 * g) & 3U;
    codes[c] = static_cast<std::uint8_t>(low | high << 4U);
  }
  put_codes(format, codes, row);
  return row;
}

// Q4_K, and Q5_K with its bits on top.
Bytes from_q4_k(const Bytes& ggml, bool five_bits) {
  const BlockFormat format =
      five_bits ? block_format(QuantType::kQ5K, 0) : BlockFormat{QuantType::kQ4Super, 32};
  Bytes row(row_major_bytes(format, 256));
  copy(ggml, 0, 2, row, 0);
  copy_negated(ggml, 2, row, 2);
  std::uint32_t upper = 0;
  for (unsigned k = 0; k < 8; ++k) {
    const auto scales = [&](unsigned i) { return at(ggml, 4 + i); };
    const unsigned scale =
        k < 4 ? scales(k) & 63U : (scales(k + 4) & 15U) | (scales(k - 4) >> 6U) << 4U;
    const unsigned min =
        k < 4 ? scales(k + 4) & 63U : scales(k + 4) >> 4U | (scales(k) >> 6U) << 4U;
    row[4 + k] = static_cast<std::byte>((scale & 15U) | (min & 15U) << 4U);
    upper |= (scale >> 4U | min >> 4U << 2U) << (4 * k);
  }
  store_le(MutableByteSpan(row), 12, upper);
  std::vector<std::uint8_t> codes(256);
  for (unsigned c = 0; c < 256; ++c) {
    const unsigned h = c / 64, g = c / 32 % 2, l = c % 32;
    codes[c] =
        static_cast<std::uint8_t>(at(ggml, (five_bits ? 48 : 16) + 32 * h + l) >> (4 * g) & 15U);
    if (five_bits && (at(ggml, 16 + l) >> (2 * h + g) & 1U) != 0) codes[c] |= 16U;
  }
  put_codes(format, codes, row);
  return row;
}

Bytes from_q3_k(const Bytes& ggml) {
  const BlockFormat format = block_format(QuantType::kQ3K, 0);
  Bytes row(114);
  copy(ggml, 108, 2, row, 0);
  for (unsigned k = 0; k < 16; ++k) {
    const unsigned low = at(ggml, 96 + k % 8) >> (k < 8 ? 0 : 4) & 15U;
    const unsigned high = at(ggml, 104 + k % 4) >> (2 * (k / 4)) & 3U;
    row[2 + k] = static_cast<std::byte>(static_cast<int>(low | high << 4U) - 32);
  }
  std::vector<std::uint8_t> codes(256);
  for (unsigned c = 0; c < 256; ++c) {
    const unsigned h = c / 128, g = c / 32 % 4, l = c % 32;
    const unsigned low = at(ggml, 32 + 32 * h + l) >> (2 * g) & 3U;
    const unsigned high = at(ggml, l) >> (4 * h + g) & 1U;
    codes[c] = static_cast<std::uint8_t>(low | high << 2U);
  }
  put_codes(format, codes, row);
  return row;
}

Bytes from_q2_k(const Bytes& ggml) {
  const BlockFormat format = block_format(QuantType::kQ2K, 0);
  Bytes row(84);
  copy(ggml, 80, 2, row, 0);
  copy_negated(ggml, 82, row, 2);
  copy(ggml, 0, 16, row, 4);
  std::vector<std::uint8_t> codes(256);
  for (unsigned c = 0; c < 256; ++c) {
    const unsigned h = c / 128, g = c / 32 % 4, l = c % 32;
    codes[c] = static_cast<std::uint8_t>(at(ggml, 16 + 32 * h + l) >> (2 * g) & 3U);
  }
  put_codes(format, codes, row);
  return row;
}

struct KQuant {
  const char* name;
  BlockFormat format;
  std::size_t ggml_bytes;
  Bytes (*repack)(const Bytes&);
};

const KQuant kKQuants[] = {
    {"q2_k", block_format(QuantType::kQ2K, 0), 84, from_q2_k},
    {"q3_k", block_format(QuantType::kQ3K, 0), 110, from_q3_k},
    {"q4_k", {QuantType::kQ4Super, 32}, 144, [](const Bytes& b) { return from_q4_k(b, false); }},
    {"q5_k", block_format(QuantType::kQ5K, 0), 176,
     [](const Bytes& b) { return from_q4_k(b, true); }},
    {"q6_k", block_format(QuantType::kQ6K, 0), 210, from_q6_k}};

std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// The files are what the gguf package decodes blocks of random bits to (testdata/README.md).
TEST(KQuantTest, WeightsHaveTheBitsOfGgml) {
  for (const KQuant& k : kKQuants) {
    std::ifstream file(std::string(QSF_SOURCE_DIR) + "/testdata/k_quants/" + k.name + ".bin",
                       std::ios::binary);
    const std::string all{std::istreambuf_iterator<char>(file), {}};
    ASSERT_EQ(all.size(), 2 * (k.ggml_bytes + 1024)) << k.name;
    Bytes bytes(all.size());
    std::memcpy(bytes.data(), all.data(), all.size());
    Bytes row;  // of two super-blocks
    for (std::size_t b = 0; b < 2; ++b) {
      const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(b * k.ggml_bytes);
      const Bytes super = k.repack(Bytes(first, first + static_cast<std::ptrdiff_t>(k.ggml_bytes)));
      row.insert(row.end(), super.begin(), super.end());
    }
    ASSERT_TRUE(check_blocks(k.format, Layout::kRowMajor, 1, 512, row).ok()) << k.name;
    std::vector<float> weights(512);
    decode_row(k.format, row, weights);
    Bytes group(group_bytes(k.format, 512));
    interleave_group(k.format, 1, 512, row, group);
    std::vector<float> grouped(512);
    decode_group_row(k.format, group, 0, 512, grouped);
    for (std::size_t c = 0; c < 512; ++c) {
      const auto want = load_le<std::uint32_t>(bytes, 2 * k.ggml_bytes + 4 * c);
      ASSERT_EQ(bits_of(weights[c]), want) << k.name << " column " << c;
      ASSERT_EQ(bits_of(grouped[c]), want) << k.name << " column " << c;
    }
  }
}

// The types with one byte of fields, by the page.
float byte_type_weight(BlockFormat format, const Bytes& row, std::size_t column) {
  const bool nibbles = format.type == QuantType::kQ2K;
  const std::size_t head = nibbles ? 20 : 18;
  const std::size_t size = nibbles ? 4 : format.type == QuantType::kQ3K ? 6 : 12;
  const std::size_t start = column / 256 * (head + 16 * size);
  const std::size_t k = column % 256 / 16;
  const std::size_t codes = start + head + k * size;
  const std::size_t i = column % 16;
  const auto two_bits = [&](std::size_t first) {
    return at(row, first + i % 4) >> (i / 4 * 2) & 3U;
  };
  const float d = to_f32(load_le<F16>(row, start));
  const unsigned byte = at(row, start + head - 16 + k);
  if (nibbles) {
    return d * static_cast<float>(byte % 16) * static_cast<float>(two_bits(codes)) +
           to_f32(load_le<F16>(row, start + 2)) * static_cast<float>(byte / 16);
  }
  const float scale = d * static_cast<float>(static_cast<std::int8_t>(byte));
  if (format.type == QuantType::kQ3K) {
    const unsigned low = at(row, codes + i / 8) >> (i % 8) & 1U;
    return scale * (static_cast<float>(2 * two_bits(codes + 2) + low) - 4.0F);
  }
  const unsigned low = at(row, codes + i % 8) >> (i / 8 * 4) & 15U;
  return scale * (static_cast<float>(low + 16 * two_bits(codes + 8)) - 32.0F);
}

constexpr QuantType kByteTypes[] = {QuantType::kQ2K, QuantType::kQ3K, QuantType::kQ6K};
constexpr std::size_t kByteTypeColumns[] = {1,   15,  16,  17,  64,  65,  172,
                                            255, 256, 257, 320, 512, 600, 777};

TEST(KQuantTest, AnyBytesDecodeAsDefinedInBothLayouts) {
  Rng rng(1);
  for (const QuantType type : kByteTypes) {
    const BlockFormat format = block_format(type, 0);
    for (const std::size_t n_cols : kByteTypeColumns) {
      Bytes row(row_major_bytes(format, n_cols));
      for (std::byte& byte : row) byte = static_cast<std::byte>(rng.below(256));
      for (std::size_t c = 0; c < n_cols; c += 256) {
        const std::uint64_t fields = locate_in_row(format, c / 16).fields;
        store_le(MutableByteSpan(row), fields, to_f16(rng.next_normal()));
        if (has_min(type)) {
          store_le(MutableByteSpan(row), fields + 2, to_f16(rng.next_normal()));
        }
      }
      EXPECT_TRUE(check_blocks(format, Layout::kRowMajor, 1, n_cols, row).ok());
      std::vector<float> weights(n_cols);
      decode_row(format, row, weights);
      Bytes group(group_bytes(format, n_cols));
      interleave_group(format, 1, n_cols, row, group);
      EXPECT_TRUE(check_blocks(format, Layout::kInterleaved, 1, n_cols, group).ok());
      std::vector<float> grouped(n_cols);
      decode_group_row(format, group, 0, n_cols, grouped);
      for (std::size_t c = 0; c < n_cols; ++c) {
        ASSERT_EQ(weights[c], byte_type_weight(format, row, c))
            << quant_type_name(type) << " column " << c << " of " << n_cols;
        ASSERT_EQ(grouped[c], weights[c]) << quant_type_name(type) << " column " << c;
      }
    }
  }
}

// As long as one sub-block uses the largest scale and its outermost codes on one side.
TEST(KQuantTest, EncodingDecodedWeightsGivesTheSameBytes) {
  Rng rng(2);
  for (const QuantType type : {QuantType::kQ3K, QuantType::kQ6K}) {
    const BlockFormat format = block_format(type, 0);
    const auto top = static_cast<std::uint8_t>(2 * code_zero(type) - 1);
    const unsigned top_scale = type == QuantType::kQ6K ? 127 : 31;
    for (int trial = 0; trial < 200; ++trial) {
      const std::uint32_t n_subs = 1 + rng.below(16);
      Bytes row(row_major_bytes(format, n_subs * 16));
      const float d = std::ldexp(0.5F + rng.next_f32(), static_cast<int>(rng.below(16)) - 12);
      store_le(MutableByteSpan(row), 0, to_f16(d));
      for (std::uint32_t k = 0; k < n_subs; ++k) {
        row[2 + k] = static_cast<std::byte>(k == 0 ? top_scale : 1 + rng.below(top_scale));
        std::vector<std::uint8_t> codes(16);
        for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(1 + rng.below(top));
        codes[rng.below(16)] = trial % 2 == 0 ? top : std::uint8_t{1};
        block_codec(type).pack(codes.data(), 16, 16, row.data() + locate_in_row(format, k).codes);
      }
      std::vector<float> weights(n_subs * 16);
      decode_row(format, row, weights);
      Bytes again(row.size());
      encode_row(format, weights, kNearestRounding, again);
      ASSERT_EQ(again, row) << quant_type_name(type) << " trial " << trial;
    }
  }
}

// The worked example of docs/format-blocks.md, made there from the definition.
TEST(KQuantTest, WorkedExampleOfTheFormatPage) {
  const BlockFormat format = block_format(QuantType::kQ6K, 0);
  constexpr unsigned kRow[] = {0x00, 0x38, 0x03, 0xFE, 0,    0,    0,    0,    0,    0,    0,
                               0,    0,    0,    0,    0,    0,    0,    0xD0, 0x41, 0xB3, 0x36,
                               0xC9, 0x5D, 0xF2, 0xA7, 0xD0, 0x20, 0x24, 0x74, 0x85, 0x91, 0xBE,
                               0xEB, 0x19, 0x58, 0xA7, 0xF7, 0x96, 0xEB, 0x3F, 0x40};
  constexpr unsigned kLines[] = {0x90, 0xD1, 0x23, 0x76, 0xCD, 0x54, 0xFB, 0xA3,
                                 0xD0, 0x20, 0x24, 0x74, 0x95, 0x81, 0x7E, 0x7B,
                                 0x18, 0x59, 0xAB, 0xFE, 0x96, 0xEB, 0x3F, 0x40};
  Bytes row;
  for (const unsigned byte : kRow) row.push_back(static_cast<std::byte>(byte));
  std::vector<float> weights(32);
  decode_row(format, row, weights);
  for (unsigned i = 0; i < 32; ++i) {
    const float code = static_cast<float>((i * i / 3 + i) % 64);
    EXPECT_EQ(weights[i], (i < 16 ? 1.5F : -1.0F) * (code - 32.0F)) << i;
  }
  Bytes group(group_bytes(format, 32));
  ASSERT_EQ(group.size(), 17U * 64U);
  interleave_group(format, 1, 32, row, group);
  EXPECT_EQ(at(group, 1), 0x38U);
  EXPECT_EQ(at(group, 64), 0x03U);
  EXPECT_EQ(at(group, 65), 0xFEU);
  for (std::size_t i = 0; i < std::size(kLines); ++i) {
    EXPECT_EQ(at(group, (5 + i / 4) * 64 + i % 4), kLines[i]) << i;
  }
}

}  // namespace
}  // namespace qsf
