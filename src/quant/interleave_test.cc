// SPDX-License-Identifier: MIT
//
// Holds layout 1 to its definition at the head of quant/block_format.h: places of bits, round trips
// for odd shapes, expansion of large blocks, no write outside.

#include "quant/interleave.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "base/f16.h"
#include "base/rng.h"
#include "quant/codec.h"
#include "quant/testing/blocks.h"

namespace qsf {
namespace {

using testing_support::all_formats;
using testing_support::name_of;

constexpr std::byte kSentinel{0x5A};
constexpr std::size_t kGuard = 64;

// A buffer between sentinels.
class Guarded {
 public:
  explicit Guarded(std::size_t n_bytes) : bytes_(n_bytes + 2 * kGuard, kSentinel) {}
  ~Guarded() {
    for (std::size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(bytes_[i], kSentinel) << "a write in front";
      EXPECT_EQ(bytes_[bytes_.size() - 1 - i], kSentinel) << "a write behind";
    }
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  MutableByteSpan span() {
    return MutableByteSpan(bytes_).subspan(kGuard, bytes_.size() - 2 * kGuard);
  }
  std::vector<std::byte> copy() { return {span().begin(), span().end()}; }

 private:
  std::vector<std::byte> bytes_;
};

std::vector<std::byte> random_rows(BlockFormat format, std::size_t n_rows, std::size_t n_cols,
                                   Rng& rng) {
  const std::size_t n_bytes = row_major_bytes(format, n_cols);
  std::vector<std::byte> rows(n_rows * n_bytes);
  std::vector<float> row(n_cols);
  for (std::size_t r = 0; r < n_rows; ++r) {
    for (float& w : row) w = rng.next_normal();
    encode_row(format, row, kNearestRounding, MutableByteSpan(rows).subspan(r * n_bytes, n_bytes));
  }
  return rows;
}

float half(const std::vector<std::byte>& bytes, std::size_t at) {
  return to_f32(load_le<F16>(bytes, at));
}

// What the codes of one block go with, and where its code lines begin.
struct Place {
  std::size_t codes_at;
  float scale = 1.0F;
  float min = 0.0F;
};

Place super_place_by_definition(BlockFormat format, const std::vector<std::byte>& group, unsigned r,
                                unsigned column) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned>(group[at]); };
  const std::size_t lines = std::size_t{format.block} * code_bits(format.type) * 2;
  const std::size_t super_index = column / 256;
  const unsigned k = column % 256 / format.block;
  std::size_t line_d;
  std::size_t codes_at;
  unsigned low;
  unsigned high;  // the 4 bits of sub-block k
  if (format.block == 64) {
    const std::size_t line_h = super_index / 2 * (5 * 64 + 8 * lines);
    line_d = line_h + 64 + super_index % 2 * (2 * 64 + 4 * lines);
    low = byte(line_d + 64 + 4 * r + k);
    high = byte(line_h + super_index % 2 * 32 + 2 * r + k / 2) >> (k % 2 * 4) & 15U;
    codes_at = line_d + 2 * 64 + k * lines;
  } else {
    line_d = super_index * (4 * 64 + 8 * lines);
    low = byte(line_d + 64 + k / 4 * 64 + 4 * r + k % 4);
    high = byte(line_d + 3 * 64 + 4 * r + k / 2) >> (k % 2 * 4) & 15U;
    codes_at = line_d + 4 * 64 + k * lines;
  }
  return {codes_at,
          half(group, line_d + 2 * r) * static_cast<float>((low & 15U) + 16 * (high & 3U)),
          half(group, line_d + 32 + 2 * r) * static_cast<float>((low >> 4U) + 16 * (high >> 2U))};
}

// Sub-blocks of 16 with one byte of fields.
Place byte_place_by_definition(BlockFormat format, const std::vector<std::byte>& group, unsigned r,
                               unsigned column) {
  const std::size_t super_index = column / 256;
  const std::size_t k = column % 256 / 16;
  const std::size_t lines = std::size_t{16} * code_bits(format.type) * 2;  // of a sub-block
  const bool nibbles = format.type == QuantType::kQ2K;
  const std::size_t unit = 256 + 16 * lines;  // behind the line of d
  const std::size_t d_at = nibbles ? super_index * (64 + unit)
                                   : super_index / 2 * (64 + 2 * unit) + super_index % 2 * 32;
  const std::size_t s_at =
      nibbles ? d_at + 64 : super_index / 2 * (64 + 2 * unit) + 64 + super_index % 2 * unit;
  const auto byte = static_cast<unsigned>(group[s_at + k / 4 * 64 + 4 * r + k % 4]);
  const std::size_t codes_at =
      s_at + 256 + (format.type == QuantType::kQ3K ? k / 2 * 192 : k * lines);
  const float d = half(group, d_at + 2 * r);
  if (nibbles) {
    return {codes_at, d * static_cast<float>(byte % 16),
            half(group, d_at + 32 + 2 * r) * static_cast<float>(byte / 16)};
  }
  return {codes_at, d * static_cast<float>(byte < 128 ? static_cast<int>(byte)
                                                      : static_cast<int>(byte) - 256)};
}

// Sub-blocks of codebook types, with scales of less than a byte.
Place codebook_place_by_definition(BlockFormat format, const std::vector<std::byte>& group,
                                   unsigned r, unsigned column) {
  const std::size_t super_index = column / 256;
  const std::size_t k = column % 256 / format.block;
  const std::size_t lines = std::size_t{format.block} * code_bits(format.type) * 2;
  const std::size_t unit = 128 + 256 / format.block * lines;
  const auto byte = [&](std::size_t at) { return static_cast<unsigned>(group[at]); };
  if (format.block == 32) {
    const std::size_t line_d = super_index * unit;
    const unsigned high = byte(line_d + 32 + 2 * r + k % 2) >> (k / 2 * 2) & 3U;
    const unsigned low = byte(line_d + 64 + 4 * r + k % 2 * 2 + k / 4) >> (k / 2 % 2 * 4) & 15U;
    const int scale = static_cast<int>(16 * high + low) - (high >= 2 ? 64 : 0);
    return {line_d + 128 + k * lines, half(group, line_d + 2 * r) * static_cast<float>(scale)};
  }
  const std::size_t pair = super_index / 2 * (64 + 2 * unit);
  const std::size_t line_t = pair + 64 + super_index % 2 * unit;
  const unsigned bits = byte(line_t + k / 8 * 64 + 4 * r + k % 4) >> (k / 4 % 2 * 4) & 15U;
  const int scale = static_cast<int>(bits) - (bits >= 8 ? 16 : 0);
  return {line_t + 128 + (format.type == QuantType::kQ3Codebook ? k / 2 * 192 : k * lines),
          half(group, pair + super_index % 2 * 32 + 2 * r) * static_cast<float>(scale)};
}

Place place_by_definition(BlockFormat format, const std::vector<std::byte>& group, unsigned r,
                          unsigned column) {
  const std::size_t block = column / format.block;
  const std::size_t lines = std::size_t{format.block} * code_bits(format.type) * 2;
  switch (format.type) {
    case QuantType::kQ2A:
    case QuantType::kQ3:
    case QuantType::kQ4: {
      const std::size_t at = block * (64 + lines);
      return {at + 64, half(group, at + 2 * r), half(group, at + 32 + 2 * r)};
    }
    case QuantType::kQ2Super:
    case QuantType::kQ3Super:
    case QuantType::kQ4Super:
    case QuantType::kQ5K: return super_place_by_definition(format, group, r, column);
    case QuantType::kQ2K:
    case QuantType::kQ3K:
    case QuantType::kQ6K: return byte_place_by_definition(format, group, r, column);
    case QuantType::kQ2Codebook:
    case QuantType::kQ3Codebook:
    case QuantType::kQ4Codebook: return codebook_place_by_definition(format, group, r, column);
    case QuantType::kMxfp4: {
      const std::size_t at = block / 4 * (64 + 4 * lines);
      const auto exponent = static_cast<int>(group[at + 4 * r + block % 4]);
      return {at + 64 + block % 4 * lines, std::ldexp(1.0F, exponent - 127)};
    }
    case QuantType::kQ2Trellis:
    case QuantType::kQ3Trellis: {
      const std::size_t at = 64 + block / 8 * (64 + 8 * lines);
      const auto scale = load_le<std::uint32_t>(group, at + 4 * r) >> (block % 8 * 4) & 15U;
      return {at + 64 + block % 8 * lines,
              load_le<float>(group, 4 * r) * static_cast<float>(scale)};
    }
    case QuantType::kQk256: return {block * lines};
    case QuantType::kTernaryRow: return {64 + block * lines, load_le<float>(group, 4 * r)};
    case QuantType::kTernaryBase3: return {64 + block * 256, load_le<float>(group, 4 * r)};
    default: break;
  }
  const std::size_t pair = block / 2 * (64 + 2 * lines);
  return {pair + 64 + block % 2 * lines, half(group, pair + block % 2 * 32 + 2 * r)};
}

// A weight of a trellis type: from its symbol, the five before it in its stream, and tables that
// are written down here once more.
float trellis_weight_by_definition(BlockFormat format, const std::vector<std::byte>& group,
                                   unsigned r, unsigned column) {
  constexpr int kNewest[] = {11, 3, 12, 14, 15, 7, 8, 10, 3, 11, 4, 6, 7, 15, 0, 2};
  constexpr int kMiddle[] = {6, 5, 11, 14, 7, 3, 2, 12, 0, 4, 1, 8, 9, 13, 10, 15};
  constexpr int kOldest[] = {13, 9, 5, 12, 1, 11, 2, 4, 10, 8, 6, 15, 0, 7, 3, 14};
  constexpr int kLevelsOf2[] = {0, 10, 15, 19, 22, 25, 27, 30, 33, 35, 38, 41, 44, 48, 53, 63};
  constexpr int kLevelsOf3[] = {2, 8, 13, 16, 19, 21, 24, 26, 29, 31, 34, 36, 39, 42, 47, 54};
  const auto symbol = [&](unsigned back) {
    if (column < 4 * back) return 0;
    const unsigned c = column - 4 * back;
    const std::size_t line = place_by_definition(format, group, r, c).codes_at + c % 64 / 16 * 64;
    return static_cast<int>(group[line + 4 * r + c % 4]) >> (c % 16 / 4 * 2) & 3;
  };
  const int index = kNewest[4 * symbol(0) + symbol(1)] ^ kMiddle[4 * symbol(2) + symbol(3)] ^
                    kOldest[4 * symbol(4) + symbol(5)];
  const Place place = place_by_definition(format, group, r, column);
  int value = kLevelsOf2[index];
  if (format.type == QuantType::kQ3Trellis) {
    const auto plane = static_cast<unsigned>(
        group[place.codes_at + 256 + column % 64 / 32 * 64 + 4 * r + column % 4]);
    value = kLevelsOf3[index] + 8 * static_cast<int>(plane >> (column % 32 / 4) & 1U);
  }
  return place.scale * (static_cast<float>(value) - 31.5F);
}

// Reads one weight out of a group by the rules of the layout, bit by bit; shares no code with the
// implementation.
float weight_by_definition(BlockFormat format, const std::vector<std::byte>& group, unsigned r,
                           unsigned column) {
  if (is_float_type(format.type)) {
    if (format.type == QuantType::kF32) return load_le<float>(group, 64 * column + 4 * r);
    const std::size_t at = 64 * (column / 2) + 2 * (2 * r + column % 2);
    return format.type == QuantType::kF16 ? half(group, at) : to_f32(load_le<BF16>(group, at));
  }
  if (is_trellis_type(format.type)) return trellis_weight_by_definition(format, group, r, column);
  const Place place = place_by_definition(format, group, r, column);
  const unsigned i = column % format.block;
  const auto field = [&](std::size_t lines_at, unsigned width) {
    const unsigned per_line = 32 / width;  // columns
    const unsigned in_line = i % per_line;
    const std::size_t at = lines_at + 64 * (i / per_line) + 4 * r + in_line % 4;
    return (static_cast<unsigned>(group[at]) >> (width * (in_line / 4))) & ((1U << width) - 1U);
  };
  switch (format.type) {
    case QuantType::kQ2S:
      return place.scale * (static_cast<float>(field(place.codes_at, 2)) - 1.5F);
    case QuantType::kQk256: {
      constexpr float kLevels[] = {-2.0F, -1.0F, 1.0F, 2.0F};
      return kLevels[field(place.codes_at, 2)];
    }
    case QuantType::kTernaryBase3: {  // code i / 16 of five, the first in the highest place
      const unsigned rest = static_cast<unsigned>(
          group[place.codes_at + 64 * (i % 16 / 4) + 4 * std::size_t{r} + i % 4]);
      unsigned value = rest * 243 / 256;
      for (unsigned digit = i / 16; digit < 4; ++digit) value /= 3;
      return place.scale * (static_cast<float>(value % 3) - 1.0F);
    }
    case QuantType::kTernary:
    case QuantType::kTernaryRow:
      return place.scale * (static_cast<float>(field(place.codes_at, 2)) - 1.0F);
    case QuantType::kQ8:
      return place.scale * static_cast<float>(static_cast<std::int8_t>(field(place.codes_at, 8)));
    case QuantType::kQ5K:
      return place.scale * static_cast<float>(field(place.codes_at, 4) +
                                              16 * field(place.codes_at + 4 * 64, 1)) +
             place.min;
    case QuantType::kQ6K:
      return place.scale * (static_cast<float>(field(place.codes_at, 4) +
                                               16 * field(place.codes_at + 2 * 64, 2)) -
                            32.0F);
    case QuantType::kQ2Codebook: {
      constexpr int kLevels[] = {-127, -43, 18, 90};
      return place.scale * static_cast<float>(kLevels[field(place.codes_at, 2)]);
    }
    case QuantType::kQ4Codebook: {
      constexpr int kLevels[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};
      return place.scale * static_cast<float>(kLevels[field(place.codes_at, 4)]);
    }
    case QuantType::kMxfp4: {
      constexpr float kValues[] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
      const unsigned code = field(place.codes_at, 4);
      return place.scale * (code < 8 ? kValues[code] : -kValues[code - 8]);
    }
    case QuantType::kQ3Codebook:
    case QuantType::kQ3K: {
      const unsigned in_pair = column / 16 % 2;
      const auto plane = static_cast<unsigned>(group[place.codes_at + 128 + 4 * r + i % 4]);
      const unsigned low = plane >> (4 * in_pair + i / 4) & 1U;
      const unsigned high = field(place.codes_at + in_pair * 64, 2);
      constexpr int kLevels[] = {-127, -77, -45, -18, 7, 34, 65, 108};
      return place.scale * static_cast<float>(format.type == QuantType::kQ3Codebook
                                                  ? kLevels[2 * high + low]
                                                  : static_cast<int>(2 * high + low) - 4);
    }
    case QuantType::kQ3:
    case QuantType::kQ3Super: {
      const std::size_t low_at = place.codes_at + 64 * (format.block / 16);
      const unsigned code = 2 * field(place.codes_at, 2) + field(low_at, 1);
      return place.scale * static_cast<float>(code) + place.min;
    }
    default:
      return place.scale * static_cast<float>(field(place.codes_at, code_bits(format.type))) +
             place.min;
  }
}

constexpr std::size_t kInterleavedColumns[] = {1,  3,   31,  32,  63,  64, 65,
                                               96, 172, 256, 300, 512, 600};

TEST(InterleaveTest, EveryWeightLiesAsTheLayoutSays) {
  Rng rng(1);
  for (const BlockFormat format : all_formats()) {
    for (const std::size_t n_cols : kInterleavedColumns) {
      for (const std::uint32_t n_rows : {1U, 5U, 16U}) {
        const std::vector<std::byte> rows = random_rows(format, n_rows, n_cols, rng);
        Guarded group(group_bytes(format, n_cols));
        interleave_group(format, n_rows, n_cols, rows, group.span());
        const std::vector<std::byte> bytes = group.copy();
        const std::size_t row_bytes = row_major_bytes(format, n_cols);
        std::vector<float> expected(n_cols);
        std::vector<float> decoded(n_cols + 1, -7.0F);
        for (std::uint32_t r = 0; r < kRowGroup; ++r) {
          if (r < n_rows) {
            decode_row(format, ByteSpan(rows).subspan(r * row_bytes, row_bytes), expected);
          }
          decode_group_row(format, bytes, r, n_cols, std::span(decoded).first(n_cols));
          ASSERT_EQ(decoded[n_cols], -7.0F);
          for (unsigned c = 0; c < n_cols; ++c) {
            const float zero = format.type == QuantType::kQk256 ? -2.0F : 0.0F;  // of code 0
            const float want = r < n_rows ? expected[c] : zero;
            ASSERT_EQ(decoded[c], want) << name_of(format) << " " << r << "," << c;
            ASSERT_EQ(weight_by_definition(format, bytes, r, c), want)
                << name_of(format) << " row " << r << " column " << c << " of " << n_cols;
          }
        }
        EXPECT_TRUE(check_blocks(format, Layout::kInterleaved, n_rows, n_cols, bytes).ok());
      }
    }
  }
}

TEST(InterleaveTest, RoundTripsAndLeavesPaddingZero) {
  Rng rng(2);
  for (const BlockFormat format : all_formats()) {
    for (const std::size_t n_cols : kInterleavedColumns) {
      const std::uint32_t n_rows = 1 + rng.below(16);
      const std::vector<std::byte> rows = random_rows(format, n_rows, n_cols, rng);
      Guarded group(group_bytes(format, n_cols));
      interleave_group(format, n_rows, n_cols, rows, group.span());
      Guarded back(rows.size());
      deinterleave_group(format, n_rows, n_cols, group.span(), back.span());
      EXPECT_EQ(back.copy(), rows) << name_of(format) << " " << n_rows << "x" << n_cols;
      // Rows that do not exist own bytes 4r .. 4r+3 of code lines; all of those are zero. The sum
      // over scale lines is covered by the decoded zeros above; here: codes of the last row.
      if (n_rows < 16 && is_float_type(format.type)) {
        const std::vector<std::byte> bytes = group.copy();
        for (std::size_t line = 0; line < bytes.size(); line += 64) {
          for (std::size_t i = 60; i < 64; ++i) EXPECT_EQ(bytes[line + i], std::byte{0});
        }
      }
    }
  }
}

TEST(InterleaveTest, ManyRowsAreGroupAfterGroup) {
  Rng rng(3);
  for (const BlockFormat format : all_formats()) {
    const std::size_t n_cols = 172;
    const std::size_t n_rows = 37;
    const std::vector<std::byte> rows = random_rows(format, n_rows, n_cols, rng);
    Guarded all(rows_bytes(format, Layout::kInterleaved, n_rows, n_cols));
    interleave_rows(format, n_rows, n_cols, rows, all.span());
    const std::size_t row_bytes = row_major_bytes(format, n_cols);
    const std::size_t n_bytes = group_bytes(format, n_cols);
    std::vector<float> expected(n_cols);
    std::vector<float> got(n_cols);
    for (std::uint32_t r = 0; r < n_rows; ++r) {
      decode_row(format, ByteSpan(rows).subspan(r * row_bytes, row_bytes), expected);
      decode_group_row(format, all.span().subspan(r / 16 * n_bytes, n_bytes), r % 16, n_cols, got);
      ASSERT_EQ(got, expected) << name_of(format) << " row " << r;
    }
  }
}

TEST(InterleaveTest, LargeBlocksExpandToEqualWeights) {
  Rng rng(4);
  for (const BlockFormat format : all_formats()) {
    if (format.block <= 64) {
      EXPECT_EQ(kernel_format(format), format);
      continue;
    }
    const BlockFormat small = kernel_format(format);
    EXPECT_EQ(small, format.type == QuantType::kTernaryBase3
                         ? block_format(QuantType::kTernaryRow, 0)
                         : (BlockFormat{format.type, 64}));
    for (const std::size_t n_cols : {64U, 65U, 172U, 256U, 300U, 512U, 700U}) {
      const std::size_t n_rows = 21;
      const std::vector<std::byte> rows = random_rows(format, n_rows, n_cols, rng);
      std::vector<std::byte> large(rows_bytes(format, Layout::kInterleaved, n_rows, n_cols));
      interleave_rows(format, n_rows, n_cols, rows, large);
      Guarded expanded(rows_bytes(small, Layout::kInterleaved, n_rows, n_cols));
      expand_rows(format, n_rows, n_cols, large, expanded.span());
      Guarded direct(expanded.span().size());
      to_kernel_form(format, Layout::kRowMajor, n_rows, n_cols, rows, direct.span());
      EXPECT_EQ(direct.copy(), expanded.copy()) << name_of(format) << " columns " << n_cols;
      Guarded through(expanded.span().size());
      to_kernel_form(format, Layout::kInterleaved, n_rows, n_cols, large, through.span());
      EXPECT_EQ(through.copy(), expanded.copy());
      const std::size_t large_bytes = group_bytes(format, n_cols);
      const std::size_t small_bytes = group_bytes(small, n_cols);
      std::vector<float> want(n_cols);
      std::vector<float> got(n_cols);
      for (std::uint32_t r = 0; r < n_rows; ++r) {
        decode_group_row(format, ByteSpan(large).subspan(r / 16 * large_bytes, large_bytes), r % 16,
                         n_cols, want);
        decode_group_row(small, expanded.span().subspan(r / 16 * small_bytes, small_bytes), r % 16,
                         n_cols, got);
        ASSERT_EQ(got, want) << name_of(format) << " row " << r << " columns " << n_cols;
      }
    }
  }
}

TEST(InterleaveTest, KernelFormOfSmallBlocksIsTheInterleavedForm) {
  Rng rng(5);
  const BlockFormat format = {QuantType::kQ4, 32};
  const std::vector<std::byte> rows = random_rows(format, 20, 96, rng);
  std::vector<std::byte> groups(rows_bytes(format, Layout::kInterleaved, 20, 96));
  interleave_rows(format, 20, 96, rows, groups);
  Guarded a(groups.size());
  Guarded b(groups.size());
  to_kernel_form(format, Layout::kRowMajor, 20, 96, rows, a.span());
  to_kernel_form(format, Layout::kInterleaved, 20, 96, groups, b.span());
  EXPECT_EQ(a.copy(), groups);
  EXPECT_EQ(b.copy(), groups);
}

TEST(InterleaveTest, CheckFindsBadFieldsAndCodesInGroups) {
  Rng rng(6);
  for (const BlockFormat format : all_formats()) {
    const std::size_t n_cols = 300;
    const std::vector<std::byte> rows = random_rows(format, 20, n_cols, rng);
    std::vector<std::byte> good(rows_bytes(format, Layout::kInterleaved, 20, n_cols));
    interleave_rows(format, 20, n_cols, rows, good);
    ASSERT_TRUE(check_blocks(format, Layout::kInterleaved, 20, n_cols, good).ok());
    const std::size_t second = group_bytes(format, n_cols);
    std::vector<std::byte> bad = good;
    const GroupBlock at = locate_block(format, blocks_per_row(format, n_cols) - 1);
    if (is_float_type(format.type)) {
      store_le(MutableByteSpan(bad), second + 128, std::uint32_t{0x7FC07FC0});
    } else if (has_row_scale(format.type)) {
      store_le(MutableByteSpan(bad), second + 60, std::uint32_t{0x7F800000});  // of row 31
    } else if (format.type == QuantType::kMxfp4) {
      bad[second + at.scales + 12] = std::byte{255};
    } else if (format.type != QuantType::kQk256) {
      store_le(MutableByteSpan(bad), second + at.scales + 6, std::uint16_t{0x7C00});
    }
    EXPECT_EQ(check_blocks(format, Layout::kInterleaved, 20, n_cols, bad).code(),
              format.type == QuantType::kQk256 ? StatusCode::kOk : StatusCode::kCorrupt)
        << name_of(format);
    if (has_min(format.type)) {
      bad = good;
      store_le(MutableByteSpan(bad), at.mins + 2, std::uint16_t{0xFE00});
      EXPECT_FALSE(check_blocks(format, Layout::kInterleaved, 20, n_cols, bad).ok());
    }
    if (format.type == QuantType::kTernary || scale_form(format.type) == ScaleForm::kRow ||
        format.type == QuantType::kQ8) {
      bad = good;
      bad[at.codes] = format.type == QuantType::kQ8             ? std::byte{0x80}
                      : format.type == QuantType::kTernaryBase3 ? std::byte{0x01}
                                                                : std::byte{0x0C};
      EXPECT_FALSE(check_blocks(format, Layout::kInterleaved, 20, n_cols, bad).ok());
    }
    EXPECT_FALSE(check_blocks(format, Layout::kInterleaved, 20, n_cols,
                              ByteSpan(good).first(good.size() - 1))
                     .ok());
  }
}

// The worked examples of docs/format-blocks.md, made there by hand from the definition.
TEST(InterleaveTest, WorkedExamplesOfTheFormatPage) {
  struct Example {
    QuantType type;
    std::uint32_t modulus;
    const char* block;  // layout 0
    const char* lines;  // row 0 of the code lines of layout 1
  };
  const Example examples[] = {
      {QuantType::kQ2S, 4, "00381451efbe5145befb", "1445fbbe4551beef"},
      {QuantType::kQ2A, 4, "003800bc1451efbe5145befb", "1445fbbe4551beef"},
      {QuantType::kQ3, 8, "003800bcb66ddbb6280875d7088a7df7", "a0a8d55f02805ffdb6db6db6"},
      {QuantType::kQ4, 16, "003800bc5011e3b6998d72778d94bbe31c55affa",
       "90d12376cd54fba395817e7b1859abfe"},
      {QuantType::kTernary, 3, "00385dba74e922448810", "2005500842222005"},
      {QuantType::kQ8, 16, "0038f87f81fe0105faff05fc03fb04fd0702fdf906030100ffff00010306f9fd0207",
       "f87f81fe0105faff05fc03fb04fd0702fdf906030100ffff00010306f9fd0207"}};
  const auto hex = [](ByteSpan bytes) {
    std::string text;
    char two[3];
    for (const std::byte byte : bytes) {
      std::snprintf(two, sizeof(two), "%02x", static_cast<unsigned>(byte));
      text += two;
    }
    return text;
  };
  for (const Example& example : examples) {
    const BlockFormat format = {example.type, 32};
    std::vector<std::uint8_t> codes(32);
    for (std::uint32_t i = 0; i < 32; ++i) {
      codes[i] = static_cast<std::uint8_t>((i * i / 3 + i) % example.modulus);
      if (example.type == QuantType::kQ8) codes[i] = static_cast<std::uint8_t>(codes[i] - 8);
    }
    if (example.type == QuantType::kQ8) {
      codes[1] = 127;
      codes[2] = static_cast<std::uint8_t>(-127);
    }
    std::vector<std::byte> block(block_bytes(format));
    const std::size_t header = has_min(format.type) ? 4 : 2;
    store_le(MutableByteSpan(block), 0, to_f16(0.5F));
    if (header == 4) store_le(MutableByteSpan(block), 2, to_f16(-1.0F));
    block_codec(format.type).pack(codes.data(), 32, 32, block.data() + header);
    EXPECT_EQ(hex(block), example.block) << name_of(format);
    std::vector<std::byte> group(group_bytes(format, 32));
    interleave_group(format, 1, 32, block, group);
    std::string lines;
    for (std::size_t at = 64; at < group.size(); at += 64) {
      lines += hex(ByteSpan(group).subspan(at, 4));
    }
    EXPECT_EQ(lines, example.lines) << name_of(format);
    EXPECT_EQ(hex(ByteSpan(group).first(4)), "00380000");
    EXPECT_EQ(hex(ByteSpan(group).subspan(32, 4)), header == 4 ? "00bc0000" : "00000000");
  }
}

// Not a benchmark: prints the speed so that a fall by a factor is seen in test logs.
TEST(InterleaveTest, ReportsItsSpeed) {
  Rng rng(7);
  for (const BlockFormat format : all_formats()) {
    if (fixed_block(format.type) == 0 && format.block != 64) continue;
    const std::size_t n_rows = 256;
    const std::size_t n_cols = 1024;
    const std::vector<std::byte> rows = random_rows(format, n_rows, n_cols, rng);
    std::vector<std::byte> groups(rows_bytes(format, Layout::kInterleaved, n_rows, n_cols));
    const auto start = std::chrono::steady_clock::now();
    constexpr int kRepeats = 4;
    for (int i = 0; i < kRepeats; ++i) interleave_rows(format, n_rows, n_cols, rows, groups);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    std::printf("interleave %-14s %7.0f MB/s\n", name_of(format).c_str(),
                kRepeats * static_cast<double>(rows.size()) / elapsed.count() / 1e6);
  }
}

}  // namespace
}  // namespace qsf
