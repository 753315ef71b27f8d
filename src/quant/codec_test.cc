// SPDX-License-Identifier: MIT
//
// Holds the codecs to docs/format-blocks.md: codes to values, bits to codes, error limits, edges.

#include "quant/codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/f16.h"
#include "base/rng.h"
#include "quant/ternary.h"
#include "quant/testing/blocks.h"

namespace qsf {
namespace {

using testing_support::all_formats;
using testing_support::name_of;

constexpr std::byte kRowSentinel{0xA5};
constexpr std::size_t kRowGuard = 64;

// Encodes between sentinels and fails the test when one of them changed.
std::vector<std::byte> encode_guarded(BlockFormat format, const std::vector<float>& row) {
  const std::size_t n_bytes = row_major_bytes(format, row.size());
  std::vector<std::byte> guarded(n_bytes + 2 * kRowGuard, kRowSentinel);
  encode_row(format, row, kNearestRounding, MutableByteSpan(guarded).subspan(kRowGuard, n_bytes));
  for (std::size_t i = 0; i < kRowGuard; ++i) {
    EXPECT_EQ(guarded[i], kRowSentinel) << "a write in front of the row";
    EXPECT_EQ(guarded[guarded.size() - 1 - i], kRowSentinel) << "a write behind the row";
  }
  return {guarded.begin() + kRowGuard, guarded.end() - kRowGuard};
}

std::vector<float> decode_guarded(BlockFormat format, const std::vector<std::byte>& bytes,
                                  std::size_t n_cols) {
  constexpr float kMark = -12345.0F;
  std::vector<float> guarded(n_cols + 2, kMark);
  decode_row(format, bytes, std::span(guarded).subspan(1, n_cols));
  EXPECT_EQ(guarded.front(), kMark);
  EXPECT_EQ(guarded.back(), kMark);
  return {guarded.begin() + 1, guarded.end() - 1};
}

enum class Data { kUniform, kNormal, kOutlier };

std::vector<float> make_row(Data data, std::size_t n_cols, Rng& rng) {
  std::vector<float> row(n_cols);
  for (float& w : row) {
    w = data == Data::kUniform ? 2.0F * rng.next_f32() - 1.0F : 0.05F * rng.next_normal();
    if (data == Data::kOutlier && rng.below(50) == 0) w *= 40.0F;
  }
  return row;
}

bool has_block_scales(QuantType type) {
  return scale_form(type) == ScaleForm::kBlock || scale_form(type) == ScaleForm::kBlockMin;
}

bool keeps_to_half_a_step(QuantType type) {
  return has_min(type) || type == QuantType::kQ8 || code_zero(type) != 0;
}

std::uint32_t levels_of(QuantType type) {
  return (1U << code_bits(type)) - 1U;
}

TEST(CodecTest, EveryCodeOfTheAsymmetricTypesDecodesAsDefined) {
  for (const QuantType type : {QuantType::kQ2A, QuantType::kQ3, QuantType::kQ4}) {
    for (const std::uint32_t block : {32U, 64U, 128U, 256U}) {
      const BlockFormat format = {type, block};
      for (std::uint32_t code = 0; code <= levels_of(type); ++code) {
        for (std::uint32_t column = 0; column < block; ++column) {
          // Built from the definition with plain bit operations, not with the packers.
          std::vector<std::byte> bytes(block_bytes(format));
          store_le(MutableByteSpan(bytes), 0, to_f16(0.5F));
          store_le(MutableByteSpan(bytes), 2, to_f16(-3.0F));
          const auto set = [&](std::size_t byte, unsigned shift, unsigned bits) {
            bytes[byte] |= static_cast<std::byte>(bits << shift);
          };
          if (type == QuantType::kQ4) {
            set(4 + column % (block / 2), 4 * (column / (block / 2)), code);
          } else if (type == QuantType::kQ2A) {
            set(4 + column % (block / 4), 2 * (column / (block / 4)), code);
          } else {
            set(4 + column / 8, column % 8, code & 1U);
            set(4 + block / 8 + column % (block / 4), 2 * (column / (block / 4)), code >> 1U);
          }
          const std::vector<float> weights = decode_guarded(format, bytes, block);
          for (std::uint32_t i = 0; i < block; ++i) {
            const float expected = -3.0F + (i == column ? 0.5F * static_cast<float>(code) : 0.0F);
            ASSERT_EQ(weights[i], expected) << name_of(format) << " code " << code << " at " << i;
          }
        }
      }
    }
  }
}

TEST(CodecTest, EveryCodeOfTheSymmetricTypesDecodesAsDefined) {
  for (const std::uint32_t block : {32U, 64U, 128U, 256U}) {
    for (std::uint32_t column = 0; column < block; ++column) {
      for (int code = 0; code < 4; ++code) {
        std::vector<std::byte> bytes(block_bytes({QuantType::kQ2S, block}));
        store_le(MutableByteSpan(bytes), 0, to_f16(2.0F));
        bytes[2 + column % (block / 4)] =
            static_cast<std::byte>(code << (2 * (column / (block / 4))));
        EXPECT_EQ(decode_guarded({QuantType::kQ2S, block}, bytes, block)[column],
                  2.0F * static_cast<float>(code) - 3.0F);
      }
      for (int code = -127; code <= 127; ++code) {
        std::vector<std::byte> bytes(block_bytes({QuantType::kQ8, block}));
        store_le(MutableByteSpan(bytes), 0, to_f16(0.25F));
        bytes[2 + column] = static_cast<std::byte>(code);
        EXPECT_EQ(decode_guarded({QuantType::kQ8, block}, bytes, block)[column],
                  0.25F * static_cast<float>(code));
      }
      for (unsigned bits = 0; bits < 4; ++bits) {  // bit 0: sign, bit 1: zero
        std::vector<std::byte> bytes(block_bytes({QuantType::kTernary, block}));
        store_le(MutableByteSpan(bytes), 0, to_f16(1.5F));
        bytes[2 + column / 8] = static_cast<std::byte>((bits & 1U) << (column % 8));
        bytes[2 + block / 8 + column / 8] = static_cast<std::byte>((bits >> 1U) << (column % 8));
        const std::vector<float> w = decode_guarded({QuantType::kTernary, block}, bytes, block);
        EXPECT_EQ(w[column], bits >= 2 ? 0.0F : bits == 1 ? -1.5F : 1.5F);
        EXPECT_EQ(w[(column + 1) % block], 1.5F);
      }
    }
  }
}

// Decoded weights are encoded to the same bytes again, whatever the codes, as long as a block uses
// its outermost codes (else its range is smaller than its codes could say).
TEST(CodecTest, EncodingDecodedWeightsGivesTheSameBytes) {
  Rng rng(1);
  for (const BlockFormat format : all_formats()) {
    if (!has_block_scales(format.type)) continue;
    const BlockCodec& codec = block_codec(format.type);
    const std::size_t header = has_min(format.type) ? 4 : 2;
    for (int trial = 0; trial < 200; ++trial) {
      std::vector<std::uint8_t> codes(format.block);
      for (std::uint8_t& code : codes) {
        switch (format.type) {
          case QuantType::kQ8: code = static_cast<std::uint8_t>(rng.below(255) - 127); break;
          case QuantType::kTernary: code = static_cast<std::uint8_t>(rng.below(3)); break;
          default: code = static_cast<std::uint8_t>(rng.below(levels_of(format.type) + 1)); break;
        }
      }
      codes[3] = 0;
      codes[5] =
          static_cast<std::uint8_t>(format.type == QuantType::kTernary ? 2
                                    : format.type == QuantType::kQ8    ? 127
                                                                       : levels_of(format.type));
      std::vector<std::byte> bytes(block_bytes(format));
      const float scale = std::ldexp(0.5F + rng.next_f32(), static_cast<int>(rng.below(20)) - 13);
      store_le(MutableByteSpan(bytes), 0, to_f16(scale));
      if (header == 4) {
        store_le(MutableByteSpan(bytes), 2, to_f16(scale * 20.0F * (rng.next_f32() - 0.5F)));
      }
      codec.pack(codes.data(), format.block, format.block, bytes.data() + header);
      ASSERT_EQ(encode_guarded(format, decode_guarded(format, bytes, format.block)), bytes)
          << name_of(format) << " trial " << trial;
    }
  }
}

float largest_error_allowed(BlockFormat format, const std::vector<std::byte>& bytes,
                            std::size_t column, float w) {
  const float scale = row_block_scale(format, bytes, column / format.block).scale;
  return 0.5F * scale * 1.0001F + 4e-7F * std::fabs(w);
}

TEST(CodecTest, ErrorsStayWithinHalfAStepAndReachNearIt) {
  Rng rng(2);
  for (const BlockFormat format : all_formats()) {
    if (!keeps_to_half_a_step(format.type)) continue;
    for (const Data data : {Data::kUniform, Data::kNormal, Data::kOutlier}) {
      float worst_share = 0.0F;
      for (int trial = 0; trial < 20; ++trial) {
        const std::vector<float> row = make_row(data, 512, rng);
        const std::vector<std::byte> bytes = encode_guarded(format, row);
        const std::vector<float> back = decode_guarded(format, bytes, row.size());
        for (std::size_t i = 0; i < row.size(); ++i) {
          const float limit = largest_error_allowed(format, bytes, i, row[i]);
          ASSERT_LE(std::fabs(back[i] - row[i]), limit) << name_of(format) << " column " << i;
          worst_share = std::max(worst_share, std::fabs(back[i] - row[i]) / limit);
        }
      }
      // A codec that stored more than its bits, or a test that compares a row with itself, would
      // be far below: the other side of the limit.
      EXPECT_GT(worst_share, 0.8F) << name_of(format);
    }
  }
}

double relative_error(const std::vector<float>& row, const std::vector<float>& back) {
  double error = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    error += std::pow(static_cast<double>(back[i]) - row[i], 2);
    norm += std::pow(static_cast<double>(row[i]), 2);
  }
  return std::sqrt(error / norm);
}

// Root-mean-square errors on normal data at block 64, both sides. Sources: for uniform steps over
// the expected range of 64 normals (4.7 sigma), step / sqrt(12); for the four-level symmetric
// quantiser the optimum for a normal source is 0.345 (Max 1960); ternary from its definition.
TEST(CodecTest, RelativeErrorsOnNormalDataFollowFromTheWidths) {
  struct Limits {
    QuantType type;
    double low, high;
  };
  Rng rng(3);
  const std::vector<float> row = make_row(Data::kNormal, 64 * 256, rng);
  for (const Limits& limits :
       {Limits{QuantType::kQ2S, 0.30, 0.37},          Limits{QuantType::kQ2A, 0.40, 0.50},
        Limits{QuantType::kQ3, 0.17, 0.22},           Limits{QuantType::kQ4, 0.08, 0.105},
        Limits{QuantType::kQ8, 0.004, 0.007},         Limits{QuantType::kTernary, 0.50, 0.60},
        Limits{QuantType::kQ2Super, 0.40, 0.51},      Limits{QuantType::kQ3Super, 0.17, 0.225},
        Limits{QuantType::kQ4Super, 0.08, 0.105},     Limits{QuantType::kQ2K, 0.28, 0.40},
        Limits{QuantType::kQ3K, 0.15, 0.22},          Limits{QuantType::kQ5K, 0.033, 0.046},
        Limits{QuantType::kQ6K, 0.014, 0.021},        Limits{QuantType::kTernaryRow, 0.50, 0.60},
        Limits{QuantType::kTernaryBase3, 0.50, 0.60}, Limits{QuantType::kQ2Codebook, 0.28, 0.40},
        Limits{QuantType::kQ3Codebook, 0.14, 0.20},   Limits{QuantType::kQ4Codebook, 0.07, 0.09},
        Limits{QuantType::kMxfp4, 0.10, 0.125},       Limits{QuantType::kF16, 1e-4, 3e-4},
        Limits{QuantType::kBF16, 1e-3, 2.5e-3}}) {
    const BlockFormat format = block_format(limits.type, 64);
    const double error =
        relative_error(row, decode_guarded(format, encode_guarded(format, row), row.size()));
    EXPECT_GT(error, limits.low) << name_of(format);
    EXPECT_LT(error, limits.high) << name_of(format);
  }
}

TEST(CodecTest, TailsIgnorePaddingColumns) {
  Rng rng(4);
  for (const BlockFormat format : all_formats()) {
    for (const std::size_t n_cols : {1U, 31U, 32U, 33U, 63U, 64U, 65U, 172U, 255U, 257U}) {
      const std::vector<float> row = make_row(Data::kNormal, n_cols, rng);
      const std::vector<std::byte> bytes = encode_guarded(format, row);
      const std::vector<float> back = decode_guarded(format, bytes, n_cols);
      if (keeps_to_half_a_step(format.type)) {
        for (std::size_t i = 0; i < n_cols; ++i) {
          ASSERT_LE(std::fabs(back[i] - row[i]), largest_error_allowed(format, bytes, i, row[i]));
        }
      }
      if (!is_float_type(format.type)) {
        // The codes past the end are zero: unpack the last block and look.
        std::vector<std::uint8_t> codes(format.block);
        const RowBlock last = locate_in_row(format, blocks_per_row(format, n_cols) - 1);
        block_codec(format.type).unpack(bytes.data() + last.codes, format.block, codes.data());
        const std::uint8_t padding = format.type == QuantType::kTernary ? 2 : 0;  // no bit set
        for (std::size_t i = (n_cols - 1) % format.block + 1; i < format.block; ++i) {
          EXPECT_EQ(codes[i], padding) << name_of(format) << " columns " << n_cols;
        }
      }
      EXPECT_TRUE(check_blocks(format, Layout::kRowMajor, 1, n_cols, bytes).ok());
    }
  }
}

TEST(CodecTest, ExtremeRowsStayFiniteAndWithinLimits) {
  const float tiny = 1e-7F;
  const std::vector<std::vector<float>> rows = {
      std::vector<float>(64, 0.0F),
      std::vector<float>(64, -0.0F),
      std::vector<float>(64, 0.3F),
      std::vector<float>(64, -65504.0F),
      std::vector<float>(64, tiny),
      {65504.0F, -65504.0F, 1.0F, 0.0F},
      {tiny, -tiny, 3 * tiny, 0.0F},
      {6e-8F, 0.0F, 1e-30F, std::numeric_limits<float>::denorm_min()},
      {65504.0F, 65503.0F, 65472.0F}};
  for (const BlockFormat format : all_formats()) {
    for (const std::vector<float>& row : rows) {
      const std::vector<std::byte> bytes = encode_guarded(format, row);
      EXPECT_TRUE(check_blocks(format, Layout::kRowMajor, 1, row.size(), bytes).ok())
          << name_of(format);
      const std::vector<float> back = decode_guarded(format, bytes, row.size());
      for (std::size_t i = 0; i < row.size(); ++i) {
        ASSERT_TRUE(std::isfinite(back[i])) << name_of(format);
        if (keeps_to_half_a_step(format.type)) {
          EXPECT_LE(std::fabs(back[i] - row[i]), largest_error_allowed(format, bytes, i, row[i]))
              << name_of(format) << " weight " << row[i];
        }
        if (row[i] == 0.0F && row.size() == 64 && format.type != QuantType::kQk256) {
          EXPECT_EQ(back[i], 0.0F) << name_of(format);
        }
      }
    }
  }
}

TEST(CodecTest, ConstantRowsAreExactWhereF16HoldsTheValue) {
  for (const BlockFormat format : all_formats()) {
    if (format.type == QuantType::kQ2S) continue;  // has no level that equals its scale
    if (format.type == QuantType::kQ8) continue;   // 127 * scale is f16 / 127 rounded
    if (is_super_type(format.type)) continue;      // 63 * dmin is f16 / 63 rounded
    if (format.type == QuantType::kQk256) continue;
    if (is_trellis_type(format.type)) continue;  // a value may be followed by four others alone
    const std::vector<float> row(100, -0.375F);
    EXPECT_EQ(decode_guarded(format, encode_guarded(format, row), 100), row) << name_of(format);
  }
}

TEST(CodecTest, NativelyTernaryBlocksAreExact) {
  Rng rng(5);
  std::vector<float> row(172);
  for (float& w : row) w = 0.0625F * (static_cast<float>(rng.below(3)) - 1.0F);
  for (const std::uint32_t block : {32U, 64U, 128U, 256U}) {
    const BlockFormat format = {QuantType::kTernary, block};
    EXPECT_EQ(decode_guarded(format, encode_guarded(format, row), row.size()), row);
  }
  for (float& w : row) w *= 1.2345678F;  // no f16
  for (const QuantType type : {QuantType::kTernaryRow, QuantType::kTernaryBase3}) {
    const BlockFormat by_row = block_format(type, 0);
    EXPECT_EQ(decode_guarded(by_row, encode_guarded(by_row, row), row.size()), row);
  }
  for (float& w : row) w = 0.0625F * (w > 0.0F ? 1.0F : w < 0.0F ? -1.0F : 0.0F);
  TernaryScan scan;
  scan.add(row);
  scan.add(std::vector<float>(10, 0.0F));
  EXPECT_TRUE(scan.is_natively_ternary());
  EXPECT_EQ(scan.magnitude(), 0.0625F);
  scan.add(std::vector<float>{0.0626F});
  EXPECT_FALSE(scan.is_natively_ternary());
  scan.add(row);
  EXPECT_FALSE(scan.is_natively_ternary());
  EXPECT_FALSE(TernaryScan().is_natively_ternary());
}

TEST(CodecTest, TernaryFollowsTheRuleOnOtherData) {
  // Mean magnitude 1: 0.29 becomes zero, 0.31 does not.
  const std::vector<float> row = {0.29F, -0.29F, 0.31F, -0.31F, 2.4F, -2.4F, 1.0F, 1.0F};
  const std::vector<float> expected = {0, 0, 1, -1, 1, -1, 1, 1};
  for (const BlockFormat format :
       {BlockFormat{QuantType::kTernary, 32}, block_format(QuantType::kTernaryRow, 0),
        block_format(QuantType::kTernaryBase3, 0)}) {
    EXPECT_EQ(decode_guarded(format, encode_guarded(format, row), 8), expected);
  }
}

TEST(CodecTest, FloatsNarrowToNearestAndF16IsChecked) {
  const std::vector<float> row = {1.0F, -2.5F, 1.0F + 0x1.0p-11F, 65504.0F};
  EXPECT_EQ(decode_guarded({QuantType::kF32, 4}, encode_guarded({QuantType::kF32, 4}, row), 4),
            row);
  EXPECT_EQ(decode_guarded({QuantType::kF16, 4}, encode_guarded({QuantType::kF16, 4}, row), 4)[2],
            1.0F);
  EXPECT_EQ(decode_guarded({QuantType::kBF16, 4}, encode_guarded({QuantType::kBF16, 4}, row), 4)[1],
            -2.5F);
  EXPECT_FALSE(f16_holds_exactly(row));
  EXPECT_TRUE(f16_holds_exactly(std::vector<float>{1.0F, -0.0F, 65504.0F, 0x1.0p-24F}));
  EXPECT_FALSE(f16_holds_exactly(std::vector<float>{1e-32F}));
  EXPECT_FALSE(f16_holds_exactly(std::vector<float>{1e6F}));
}

TEST(CheckBlocksTest, RejectsFieldsThatAreNotFiniteAndInvalidCodes) {
  Rng rng(6);
  for (const BlockFormat format : all_formats()) {
    const std::size_t n_cols = 300;
    const std::vector<std::byte> good =
        encode_guarded(format, make_row(Data::kNormal, n_cols, rng));
    ASSERT_TRUE(check_blocks(format, Layout::kRowMajor, 1, n_cols, good).ok());
    const std::size_t last = is_float_type(format.type)
                                 ? 0
                                 : locate_in_row(format, blocks_per_row(format, n_cols) - 1).fields;
    for (const std::size_t field : {0U, 2U}) {
      if (field == 2 && !has_min(format.type)) continue;
      if (format.type == QuantType::kQk256 || format.type == QuantType::kMxfp4) continue;
      for (const std::uint16_t bits : {0x7C00, 0xFC00, 0x7E00}) {
        std::vector<std::byte> bad = good;
        if (format.type == QuantType::kF32) {
          store_le(MutableByteSpan(bad), 8, static_cast<std::uint32_t>(bits | 0x7F80) << 16);
        } else if (has_row_scale(format.type)) {
          store_le(MutableByteSpan(bad), 0, static_cast<std::uint32_t>(bits | 0x7F80) << 16);
        } else if (format.type == QuantType::kBF16) {
          store_le(MutableByteSpan(bad), 8, static_cast<std::uint16_t>(bits | 0x7F80));
        } else {
          store_le(MutableByteSpan(bad), last + field, bits);
        }
        EXPECT_EQ(check_blocks(format, Layout::kRowMajor, 1, n_cols, bad).code(),
                  StatusCode::kCorrupt)
            << name_of(format) << " field " << field;
      }
    }
    EXPECT_FALSE(
        check_blocks(format, Layout::kRowMajor, 1, n_cols, ByteSpan(good).first(good.size() - 1))
            .ok());
    if (format.type == QuantType::kQ8 || scale_form(format.type) == ScaleForm::kRow) {
      std::vector<std::byte> bad = good;
      bad[5] = format.type == QuantType::kQ8           ? std::byte{0x80}
               : format.type == QuantType::kTernaryRow ? std::byte{0x30}
                                                       : std::byte{0x01};
      EXPECT_FALSE(check_blocks(format, Layout::kRowMajor, 1, n_cols, bad).ok());
    }
  }
}

}  // namespace
}  // namespace qsf
