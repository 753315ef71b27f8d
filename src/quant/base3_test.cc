// SPDX-License-Identifier: MIT
//
// Base-3: every byte, every group of five codes, and the conversion from files to kernel form.

#include "quant/base3.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/f16.h"
#include "base/rng.h"
#include "quant/codec.h"
#include "quant/interleave.h"

namespace qsf {
namespace {

constexpr BlockFormat kBase3 = block_format(QuantType::kTernaryBase3, 0);
constexpr BlockFormat kByRow = block_format(QuantType::kTernaryRow, 0);

TEST(Base3Test, EveryFiveCodesHaveTheirOwnByte) {
  std::set<std::byte> bytes;
  for (unsigned value = 0; value < 243; ++value) {
    std::uint8_t codes[80] = {};
    for (unsigned t = 5, rest = value; t-- > 0; rest /= 3) {
      codes[16 * t + 7] = static_cast<std::uint8_t>(rest % 3);
    }
    std::byte packed[16];
    pack_base3(codes, 80, 80, packed);
    EXPECT_EQ(static_cast<unsigned>(packed[7]), (256 * value + 242) / 243);
    EXPECT_EQ(packed[6], std::byte{0});
    EXPECT_TRUE(are_base3_bytes(packed));
    bytes.insert(packed[7]);
    std::uint8_t back[80];
    unpack_base3(packed, 80, back);
    EXPECT_TRUE(std::equal(codes, codes + 80, back)) << value;
  }
  EXPECT_EQ(bytes.size(), 243U);
  for (unsigned byte = 0; byte < 256; ++byte) {
    const auto one = static_cast<std::byte>(byte);
    EXPECT_EQ(are_base3_bytes(ByteSpan(&one, 1)), bytes.contains(one)) << byte;
  }
}

// Any bytes, the 13 that no writer writes included: codes of rows and of whole lines agree, and
// none is 3, which kernels would take.
TEST(Base3Test, LinesTurnIntoTheCodesOfTheirRows) {
  Rng rng(1);
  std::vector<std::byte> base3(3 * 256);
  for (std::byte& byte : base3) byte = static_cast<std::byte>(rng.below(256));
  for (const std::uint64_t n_lines : {1U, 4U, 5U, 8U, 15U}) {
    std::vector<std::byte> lines(64 * (n_lines + 1), std::byte{0xA5});
    base3_to_2bit_lines(base3.data(), n_lines, lines.data());
    for (std::uint64_t at = 0; at < n_lines * 64; ++at) {
      const std::uint64_t line = at / 64;
      for (unsigned f = 0; f < 4; ++f) {
        std::byte packed[16] = {base3[line / 5 * 256 + f * 64 + at % 64]};
        std::uint8_t codes[80];
        unpack_base3(packed, 80, codes);
        ASSERT_LT(codes[16 * (line % 5)], 3);
        ASSERT_EQ(static_cast<unsigned>(lines[at]) >> (2 * f) & 3U, codes[16 * (line % 5)])
            << "line " << line << " byte " << at % 64 << " field " << f;
      }
    }
    for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(lines[64 * n_lines + i], std::byte{0xA5});
  }
}

// A file of base-3 and one of ternary-row give kernels the same bytes, whatever the layout.
TEST(Base3Test, ConvertsToTernaryRowForKernels) {
  Rng rng(2);
  constexpr std::uint32_t kRows = 21;
  for (const std::uint32_t n_cols :
       {1U, 15U, 16U, 64U, 65U, 79U, 80U, 81U, 128U, 160U, 300U, 320U, 321U, 640U, 1000U}) {
    std::vector<std::byte> by_row(rows_bytes(kByRow, Layout::kRowMajor, kRows, n_cols));
    std::vector<std::byte> base3(rows_bytes(kBase3, Layout::kRowMajor, kRows, n_cols));
    const std::size_t n_by_row = row_major_bytes(kByRow, n_cols);
    const std::size_t n_base3 = row_major_bytes(kBase3, n_cols);
    for (std::uint32_t r = 0; r < kRows; ++r) {
      const float scale = 0.1F + rng.next_f32();
      std::vector<float> row(n_cols);
      for (float& w : row) w = scale * (static_cast<float>(rng.below(3)) - 1.0F);
      const MutableByteSpan to = MutableByteSpan(by_row).subspan(r * n_by_row, n_by_row);
      encode_row(kByRow, row, kNearestRounding, to);
      const MutableByteSpan packed = MutableByteSpan(base3).subspan(r * n_base3, n_base3);
      repack_ternary_row(kByRow, kBase3, n_cols, to, packed);
      std::vector<std::byte> encoded(n_base3);
      encode_row(kBase3, row, kNearestRounding, encoded);
      EXPECT_TRUE(std::equal(encoded.begin(), encoded.end(), packed.begin()));
      std::vector<float> back(n_cols);
      decode_row(kBase3, packed, back);
      EXPECT_EQ(back, row) << n_cols;
    }
    EXPECT_TRUE(check_blocks(kBase3, Layout::kRowMajor, kRows, n_cols, base3).ok());
    std::vector<std::byte> want(rows_bytes(kByRow, Layout::kInterleaved, kRows, n_cols));
    interleave_rows(kByRow, kRows, n_cols, by_row, want);
    std::vector<std::byte> got(want.size(), std::byte{0xA5});
    to_kernel_form(kBase3, Layout::kRowMajor, kRows, n_cols, base3, got);
    EXPECT_EQ(got, want) << n_cols;
    std::vector<std::byte> groups(rows_bytes(kBase3, Layout::kInterleaved, kRows, n_cols));
    interleave_rows(kBase3, kRows, n_cols, base3, groups);
    EXPECT_TRUE(check_blocks(kBase3, Layout::kInterleaved, kRows, n_cols, groups).ok());
    std::fill(got.begin(), got.end(), std::byte{0xA5});
    to_kernel_form(kBase3, Layout::kInterleaved, kRows, n_cols, groups, got);
    EXPECT_EQ(got, want) << n_cols;
  }
}

// A stranger's file may have codes for columns that do not exist; kernels get none of them.
TEST(Base3Test, CodesBehindTheLastColumnAreDropped) {
  Rng rng(4);
  constexpr std::uint32_t kRows = 16;
  constexpr std::uint64_t kCols = 90;
  const std::size_t n_base3 = row_major_bytes(kBase3, kCols);
  std::vector<std::byte> base3(rows_bytes(kBase3, Layout::kRowMajor, kRows, kCols));
  std::vector<float> row(kCols);
  for (std::uint32_t r = 0; r < kRows; ++r) {
    for (float& w : row) w = static_cast<float>(rng.below(3)) - 1.0F;
    encode_row(kBase3, row, kNearestRounding, MutableByteSpan(base3).subspan(r * n_base3, n_base3));
  }
  std::vector<std::byte> want(rows_bytes(kByRow, Layout::kInterleaved, kRows, kCols));
  to_kernel_form(kBase3, Layout::kRowMajor, kRows, kCols, base3, want);
  for (std::uint32_t r = 0; r < kRows; ++r) {
    std::byte* last = base3.data() + (r + 1) * n_base3 - 16;
    std::uint8_t codes[80];
    unpack_base3(last, 80, codes);
    std::fill(codes + kCols % 80, codes + 80, std::uint8_t{2});
    pack_base3(codes, 80, 80, last);
  }
  std::vector<std::byte> got(want.size());
  to_kernel_form(kBase3, Layout::kRowMajor, kRows, kCols, base3, got);
  EXPECT_EQ(got, want);
}

// Blocks of 256 as other formats have them: one scale for a row, zeros under any scale, rows whose
// scales differ.
TEST(Base3Test, BlocksOfOneScaleBecomeARow) {
  constexpr BlockFormat kBlocks = {QuantType::kTernary, 256};
  constexpr std::uint32_t kCols = 700;
  Rng rng(3);
  std::vector<float> row(kCols);
  for (float& w : row) w = 0.375F * (static_cast<float>(rng.below(3)) - 1.0F);
  std::fill_n(row.begin() + 256, 256, 0.0F);
  std::vector<std::byte> blocks(row_major_bytes(kBlocks, kCols));
  encode_row(kBlocks, row, kNearestRounding, blocks);
  for (const float scale_of_zeros : {0.0F, 7.0F}) {
    store_le(MutableByteSpan(blocks), block_bytes(kBlocks), to_f16(scale_of_zeros));
    ASSERT_TRUE(has_one_ternary_scale(kBlocks, kCols, blocks));
    for (const BlockFormat to : {kByRow, kBase3}) {
      std::vector<std::byte> packed(row_major_bytes(to, kCols));
      repack_ternary_row(kBlocks, to, kCols, blocks, packed);
      EXPECT_TRUE(check_blocks(to, Layout::kRowMajor, 1, kCols, packed).ok());
      EXPECT_TRUE(has_one_ternary_scale(to, kCols, packed));
      std::vector<float> back(kCols);
      decode_row(to, packed, back);
      EXPECT_EQ(back, row);
    }
  }
  store_le(MutableByteSpan(blocks), 2 * block_bytes(kBlocks), to_f16(0.5F));
  EXPECT_FALSE(has_one_ternary_scale(kBlocks, kCols, blocks));
}

TEST(Base3Test, TakesFourFifthsOfTernaryRow) {
  EXPECT_EQ(group_bytes(kBase3, 2560), 64U + 2560 * 16 / 5);
  EXPECT_EQ(group_bytes(kByRow, 2560), 64U + 2560 * 16 / 4);
}

// The worked example of docs/format-blocks.md, made there by hand from the definition.
TEST(Base3Test, TheExampleOfTheFormatPage) {
  std::vector<float> row(32);
  for (std::uint32_t i = 0; i < 32; ++i) {
    row[i] = 0.5F * (static_cast<float>((i * i / 3 + i) % 3) - 1.0F);
  }
  const std::uint8_t expected[] = {0x00, 0x00, 0x00, 0x3F, 0x39, 0x8F, 0x00, 0x1D, 0x00, 0x56,
                                   0x00, 0xC8, 0xAB, 0x39, 0x8F, 0x00, 0x1D, 0x00, 0x56, 0x00};
  std::vector<std::byte> bytes(row_major_bytes(kBase3, 32));
  encode_row(kBase3, row, kNearestRounding, bytes);
  ASSERT_EQ(bytes.size(), sizeof expected);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(static_cast<unsigned>(bytes[i]), expected[i]) << i;
  }
}

}  // namespace
}  // namespace qsf
