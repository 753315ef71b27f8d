// SPDX-License-Identifier: MIT
//
// Holds the types whose scales are not those of a block (super-blocks, ternary-row, qk256) to
// docs/format-blocks.md in layout 0: any bytes to weights, weights back to bytes, limits, edges.

#include "quant/super_block.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/f16.h"
#include "base/rng.h"
#include "quant/block_format.h"
#include "quant/codec.h"
#include "quant/interleave.h"
#include "quant/testing/blocks.h"

namespace qsf {
namespace {

using testing_support::decode;
using testing_support::name_of;

std::vector<BlockFormat> super_formats() {
  std::vector<BlockFormat> formats;
  for (const QuantType type : kAllQuantTypes) {
    if (scale_form(type) != ScaleForm::kSuperBlock) continue;
    if (is_valid({type, 64})) formats.push_back({type, 64});
    formats.push_back({type, 32});
  }
  return formats;
}

std::vector<std::byte> encode(BlockFormat format, const std::vector<float>& row) {
  std::vector<std::byte> bytes(row_major_bytes(format, row.size()), std::byte{0xA5});
  encode_row(format, row, kNearestRounding, bytes);
  return bytes;
}

// One super-block, field by field, for the definition.
struct Fields {
  std::size_t at;  // of the super-block
  float d;
  float dmin;
  unsigned scale;
  unsigned min;
};

Fields read_fields(BlockFormat format, const std::vector<std::byte>& bytes, std::size_t column) {
  const std::size_t n = 256 / format.block;
  const std::size_t code_bytes_each = std::size_t{format.block} * code_bits(format.type) / 8;
  const std::size_t at = column / 256 * (4 + n + n / 2 + n * code_bytes_each);
  const std::size_t k = column % 256 / format.block;
  const unsigned low = static_cast<unsigned>(bytes[at + 4 + k]);
  const unsigned high = static_cast<unsigned>(bytes[at + 4 + n + k / 2]) >> (k % 2 * 4) & 15U;
  return {at, to_f32(load_le<F16>(bytes, at)), to_f32(load_le<F16>(bytes, at + 2)),
          low % 16 + 16 * (high % 4), low / 16 + 16 * (high / 4)};
}

float super_block_weight(BlockFormat format, const std::vector<std::byte>& bytes,
                         std::size_t column) {
  const Fields fields = read_fields(format, bytes, column);
  const std::size_t n = 256 / format.block;
  const std::size_t code_bytes_each = std::size_t{format.block} * code_bits(format.type) / 8;
  const std::size_t codes =
      fields.at + 4 + n + n / 2 + column % 256 / format.block * code_bytes_each;
  const std::size_t i = column % format.block;
  const auto bits = [&](std::size_t from, std::size_t per_run, unsigned width) {
    return static_cast<unsigned>(bytes[from + i % per_run]) >> (i / per_run * width) &
           ((1U << width) - 1U);
  };
  unsigned code;
  if (format.type == QuantType::kQ2Super) {
    code = bits(codes, format.block / 4, 2);
  } else if (format.type == QuantType::kQ4Super) {
    code = bits(codes, format.block / 2, 4);
  } else if (format.type == QuantType::kQ5K) {
    const std::size_t plane = codes + format.block / 2;
    code = bits(codes, format.block / 2, 4) |
           (static_cast<unsigned>(bytes[plane + i / 8]) >> (i % 8) & 1U) << 4U;
  } else {
    code = (static_cast<unsigned>(bytes[codes + i / 8]) >> (i % 8) & 1U) |
           bits(codes + format.block / 8, format.block / 4, 2) << 1U;
  }
  return fields.d * static_cast<float>(fields.scale) * static_cast<float>(code) +
         fields.dmin * static_cast<float>(fields.min);
}

std::vector<std::byte> random_super_rows(BlockFormat format, std::size_t n_cols, Rng& rng) {
  std::vector<std::byte> bytes(row_major_bytes(format, n_cols));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.below(256));
  for (std::size_t column = 0; column < n_cols; column += 256) {
    const std::size_t at = read_fields(format, bytes, column).at;
    store_le(MutableByteSpan(bytes), at, to_f16(rng.next_normal()));
    store_le(MutableByteSpan(bytes), at + 2, to_f16(rng.next_normal()));  // of either sign
  }
  return bytes;
}

constexpr std::size_t kSuperBlockColumns[] = {1,   31,  32,  64,  65,  172, 255,
                                              256, 257, 320, 321, 512, 600, 777};

TEST(SuperBlockTest, AnyBytesDecodeAsDefinedInBothLayouts) {
  Rng rng(1);
  for (const BlockFormat format : super_formats()) {
    for (const std::size_t n_cols : kSuperBlockColumns) {
      const std::vector<std::byte> bytes = random_super_rows(format, n_cols, rng);
      EXPECT_TRUE(check_blocks(format, Layout::kRowMajor, 1, n_cols, bytes).ok());
      const std::vector<float> row = decode(format, bytes, n_cols);
      std::vector<std::byte> group(group_bytes(format, n_cols));
      interleave_group(format, 1, n_cols, bytes, group);
      EXPECT_TRUE(check_blocks(format, Layout::kInterleaved, 1, n_cols, group).ok());
      std::vector<float> grouped(n_cols);
      decode_group_row(format, group, 0, n_cols, grouped);
      for (std::size_t c = 0; c < n_cols; ++c) {
        ASSERT_EQ(row[c], super_block_weight(format, bytes, c))
            << name_of(format) << " column " << c << " of " << n_cols;
        ASSERT_EQ(grouped[c], row[c]) << name_of(format) << " column " << c << " of " << n_cols;
      }
    }
  }
}

TEST(SuperBlockTest, WeightsAreWithinHalfAStepAndReachNearIt) {
  Rng rng(2);
  for (const BlockFormat format : super_formats()) {
    for (const float offset : {0.0F, 3.0F, -3.0F}) {  // of both signs, all positive, all negative
      float worst_share = 0.0F;
      for (const std::size_t n_cols : kSuperBlockColumns) {
        std::vector<float> row(n_cols);
        for (float& w : row) {
          w = 0.05F * (rng.next_normal() * (rng.below(40) == 0 ? 10.0F : 1.0F) + offset);
        }
        const std::vector<std::byte> bytes = encode(format, row);
        const std::vector<float> back = decode(format, bytes, n_cols);
        for (std::size_t c = 0; c < n_cols; ++c) {
          const Fields fields = read_fields(format, bytes, c);
          ASSERT_LE(fields.dmin, 0.0F);
          const float limit = 0.5F * fields.d * static_cast<float>(fields.scale) * 1.0001F +
                              4e-7F * std::fabs(row[c]);
          ASSERT_LE(std::fabs(back[c] - row[c]), limit) << name_of(format) << " column " << c;
          worst_share = std::max(worst_share, std::fabs(back[c] - row[c]) / limit);
        }
      }
      EXPECT_GT(worst_share, 0.8F) << name_of(format);
    }
  }
}

// As long as the widest sub-block uses the largest scale and min and its outermost codes.
TEST(SuperBlockTest, EncodingDecodedWeightsGivesTheSameBytes) {
  Rng rng(3);
  for (const BlockFormat format : super_formats()) {
    const std::uint32_t n = kSuperColumns / format.block;
    const auto top = static_cast<std::uint8_t>((1U << code_bits(format.type)) - 1U);
    for (int trial = 0; trial < 200; ++trial) {
      const std::size_t n_subs = 1 + rng.below(n);
      std::vector<std::byte> bytes(row_major_bytes(format, n_subs * format.block));
      const float d = std::ldexp(0.5F + rng.next_f32(), static_cast<int>(rng.below(16)) - 12);
      store_le(MutableByteSpan(bytes), 0, to_f16(d));
      store_le(MutableByteSpan(bytes), 2, to_f16(-d * (1.0F + rng.next_f32())));
      std::uint32_t high = 0;
      for (std::uint32_t k = 0; k < n_subs; ++k) {
        // Mins are 0 to 63 and the first is 63; scales are small enough next to it.
        const unsigned scale = k == 0 ? 63 : 1 + rng.below(63);
        const unsigned min = k == 0 ? 63 : rng.below(64);
        bytes[4 + k] = static_cast<std::byte>(scale % 16 + min % 16 * 16);
        high |= (scale / 16 + min / 16 * 4) << (4 * k);
        std::vector<std::uint8_t> codes(format.block);
        for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(rng.below(top + 1U));
        codes[3] = 0;
        codes[5] = top;
        block_codec(format.type)
            .pack(codes.data(), format.block, format.block,
                  bytes.data() + locate_in_row(format, k).codes);
      }
      for (std::uint32_t i = 0; i < n / 2; ++i) {
        bytes[4 + n + i] = static_cast<std::byte>(high >> (8 * i));
      }
      const std::vector<float> row = decode(format, bytes, n_subs * format.block);
      ASSERT_EQ(encode(format, row), bytes) << name_of(format) << " trial " << trial;
    }
  }
}

TEST(SuperBlockTest, FieldsOfPaddingSubBlocksAreZero) {
  Rng rng(4);
  for (const BlockFormat format : super_formats()) {
    const std::uint32_t n = kSuperColumns / format.block;
    std::vector<float> row(format.block + 1);  // two sub-blocks, the second with one column
    for (float& w : row) w = rng.next_normal();
    const std::vector<std::byte> bytes = encode(format, row);
    ASSERT_EQ(bytes.size(), 4 + n + n / 2 + 2 * code_bytes(format));
    for (std::uint32_t k = 2; k < n; ++k) EXPECT_EQ(bytes[4 + k], std::byte{0});
    for (std::uint32_t i = 1; i < n / 2; ++i) EXPECT_EQ(bytes[4 + n + i], std::byte{0});
  }
}

TEST(TernaryRowTest, CodesLieAsOnThePage) {
  const BlockFormat format = block_format(QuantType::kTernaryRow, 0);
  for (std::size_t column = 0; column < 100; ++column) {
    for (unsigned code = 0; code < 3; ++code) {
      std::vector<std::byte> bytes(4 + 2 * 16);
      store_le(MutableByteSpan(bytes), 0, 1.1F);
      const std::size_t i = column % 64;
      bytes[4 + column / 64 * 16 + i % 16] = static_cast<std::byte>(code << (i / 16 * 2));
      const std::vector<float> row = decode(format, bytes, 100);
      EXPECT_EQ(row[column], 1.1F * (static_cast<float>(code) - 1.0F));
      EXPECT_EQ(row[(column + 1) % 100], -1.1F);
    }
  }
}

// The vector that the form came with: 64 rows of 256 columns, every byte 0xAA, inputs of 0.5.
TEST(Qk256Test, SeedVectorGives128) {
  const BlockFormat format = block_format(QuantType::kQk256, 0);
  const std::vector<std::byte> rows(rows_bytes(format, Layout::kRowMajor, 64, 256),
                                    std::byte{0xAA});
  ASSERT_EQ(rows.size(), 64U * 64U);
  std::vector<std::byte> groups(rows_bytes(format, Layout::kInterleaved, 64, 256));
  interleave_rows(format, 64, 256, rows, groups);
  std::vector<float> row(256);
  for (std::uint32_t r = 0; r < 64; ++r) {
    decode_group_row(format, ByteSpan(groups).subspan(r / 16 * 1024, 1024), r % 16, 256, row);
    float sum = 0.0F;
    for (const float w : row) sum += 0.5F * w;
    EXPECT_EQ(sum, 128.0F);
  }
}

TEST(Qk256Test, NeighboursShareAByteAndBitsPastTheEndAreIgnored) {
  const BlockFormat format = block_format(QuantType::kQk256, 0);
  constexpr float kLevels[] = {-2.0F, -1.0F, 1.0F, 2.0F};
  Rng rng(5);
  for (const std::size_t n_cols : {1U, 3U, 63U, 64U, 65U, 172U, 256U, 257U, 300U}) {
    std::vector<std::byte> bytes((n_cols + 255) / 256 * 64);
    ASSERT_EQ(bytes.size(), row_major_bytes(format, n_cols));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.below(256));
    const std::vector<float> row = decode(format, bytes, n_cols);
    for (std::size_t c = 0; c < n_cols; ++c) {
      ASSERT_EQ(row[c], kLevels[static_cast<unsigned>(bytes[c / 4]) >> (c % 4 * 2) & 3U]);
    }
    EXPECT_EQ(decode(format, encode(format, row), n_cols), row);
    // Interleaved and back, the columns are the same and everything past them is zero.
    std::vector<std::byte> group(group_bytes(format, n_cols));
    interleave_group(format, 1, n_cols, bytes, group);
    std::vector<std::byte> back(bytes.size(), std::byte{0xFF});
    deinterleave_group(format, 1, n_cols, group, back);
    EXPECT_EQ(back, encode(format, row));
  }
}

// The worked examples of docs/format-blocks.md, made there from the definition alone.
TEST(WorkedExamplesTest, EqualThePage) {
  struct Example {
    BlockFormat format;
    std::size_t n_cols;
    const char* row;    // layout 0, up to the zeros at its end
    const char* group;  // row 0 of every line of layout 1: its first 4 bytes
  };
  const Example examples[] = {
      {block_format(QuantType::kTernaryRow, 0), 32, "0000003f08090004000100060208090004000100",
       "0000003f20055008422220050000000000000000"},
      {block_format(QuantType::kQk256, 0), 32, "b4e5f1b4e5f1b4e5",
       "1445fbbe4551beef0000000000000000"},
      {{QuantType::kQ2Super, 32},
       32,
       "003800bc6500000000000000060000001451efbe5145befb",
       "003800006500000000000000060000001445fbbe4551beef"},
      {{QuantType::kQ2Super, 64},
       128,
       "003800bc65fa0000c6001445fbbe4551beef5114effb1445fbbe1445fbbe4551beef5114effb1445fbbe",
       "c60000000038000065fa0000"}};
  for (const Example& example : examples) {
    const std::string_view text = example.row;
    std::vector<std::byte> row(row_major_bytes(example.format, example.n_cols));
    ASSERT_LE(text.size() / 2, row.size()) << name_of(example.format);
    for (std::size_t i = 0; i < text.size() / 2; ++i) {
      row[i] = static_cast<std::byte>(std::stoi(std::string(text.substr(2 * i, 2)), nullptr, 16));
    }
    const std::vector<float> weights = decode(example.format, row, example.n_cols);
    for (std::size_t c = 0; c < example.n_cols; ++c) {
      const std::size_t i = c % 64;
      const auto code = static_cast<float>((i * i / 3 + i) % 4);
      const auto three = static_cast<float>((i * i / 3 + i) % 3);
      const float want = example.format.type == QuantType::kTernaryRow ? 0.5F * (three - 1.0F)
                         : example.format.type == QuantType::kQk256
                             ? code - 2.0F + (code > 1.0F ? 1.0F : 0.0F)
                         : c < 64 ? 18.5F * code - 22.0F
                                  : 5.0F * code - 63.0F;
      ASSERT_EQ(weights[c], want) << name_of(example.format) << " column " << c;
    }
    std::vector<std::byte> group(group_bytes(example.format, example.n_cols));
    interleave_group(example.format, 1, example.n_cols, row, group);
    std::string lines;
    for (std::size_t at = 0; at < group.size() && lines.size() < std::strlen(example.group);
         at += 64) {
      for (std::size_t i = 0; i < 4; ++i) {
        char two[3];
        std::snprintf(two, sizeof(two), "%02x", static_cast<unsigned>(group[at + i]));
        lines += two;
      }
    }
    EXPECT_EQ(lines, example.group) << name_of(example.format);
    if (is_super_type(example.format.type)) {  // dmin of row 0
      const std::size_t line_d = example.format.block == 64 ? 64 : 0;
      EXPECT_EQ(to_f32(load_le<F16>(group, line_d + 32)), -1.0F);
    }
  }
}

}  // namespace
}  // namespace qsf
