// SPDX-License-Identifier: MIT
//
// Decodes I2_S tensors that are packed here weight by weight, and detects Microsoft's layouts by
// dead channels.

#include "import/gguf/i2s_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/f16.h"
#include "base/rng.h"
#include "import/gguf/gguf_model.h"
#include "import/testing/gguf_writer.h"
#include "import/testing/hf_folder.h"
#include "quant/codec.h"

namespace qsf {
namespace {

struct Packed {
  I2sFlavor flavor;
  std::uint64_t rows;
  std::uint64_t cols;
  std::vector<std::byte> bytes;
  std::vector<float> sibling_scales = {};

  I2sTensor tensor() const { return {"w", rows, cols, bytes.size(), false, sibling_scales.size()}; }
  Result<I2sDecoder> open() const {
    return I2sDecoder::open(
        flavor, tensor(),
        [this](std::uint64_t offset, MutableByteSpan out) {
          EXPECT_LE(offset + out.size(), bytes.size());
          if (offset + out.size() > bytes.size()) return io_error("past the tensor");
          std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
          return ok_status();
        },
        sibling_scales);
  }
};

// Where the code of weight (row, col) stands.
void place_code(Packed& p, std::uint64_t row, std::uint64_t col, unsigned code) {
  const std::uint64_t e = row * p.cols + col;
  std::uint64_t byte = 0;
  std::uint64_t shift = 0;
  switch (p.flavor) {
    case I2sFlavor::kMicrosoft128:
      byte = e / 128 * 32 + e % 32;
      shift = 6 - e % 128 / 32 * 2;
      break;
    case I2sFlavor::kMicrosoft64:
      byte = e / 64 * 16 + e % 16;
      shift = 6 - e % 64 / 16 * 2;
      break;
    case I2sFlavor::kMicrosoft4Row:
      byte = row / 4 * p.cols + col;
      shift = 6 - row % 4 * 2;
      break;
    case I2sFlavor::kBitNet32F16:
      byte = e / 32 * 10 + e % 32 / 4;
      shift = e % 4 * 2;
      break;
    case I2sFlavor::kSplit32WithSibling:
      byte = e / 4;
      shift = e % 4 * 2;
      break;
    case I2sFlavor::kGgmlQk256NoScale:
      byte = row * ((p.cols + 255) / 256) * 64 + col / 4;
      shift = col % 4 * 2;
      break;
  }
  p.bytes[byte] |= static_cast<std::byte>(code << shift);
}

Packed pack(I2sFlavor flavor, std::uint64_t rows, std::uint64_t cols,
            const std::vector<std::uint8_t>& codes, float scale = 0.37F) {
  Packed p = {flavor, rows, cols, std::vector<std::byte>(*i2s_bytes(flavor, rows, cols))};
  for (std::uint64_t e = 0; e < rows * cols; ++e) place_code(p, e / cols, e % cols, codes[e]);
  if (is_microsoft(flavor)) store_le(MutableByteSpan(p.bytes), rows * cols / 4, scale);
  for (std::uint64_t b = 0; b < (rows * cols + 31) / 32; ++b) {
    const float s = scale * static_cast<float>(b % 7 + 1);
    if (flavor == I2sFlavor::kBitNet32F16) {
      store_le(MutableByteSpan(p.bytes), b * 10 + 8, to_f16(b % 5 == 3 ? -s : s));
    }
    if (flavor == I2sFlavor::kSplit32WithSibling) p.sibling_scales.push_back(s);
  }
  return p;
}

std::vector<std::uint8_t> random_codes(std::uint64_t n, std::uint32_t levels, Rng& rng) {
  std::vector<std::uint8_t> codes(n);
  for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(rng.below(levels));
  return codes;
}

std::vector<float> read(const I2sDecoder& decoder, std::uint64_t first, std::uint64_t n,
                        std::uint64_t cols) {
  std::vector<float> out(n * cols, -9.0F);
  const Status status = decoder.read_rows(first, out);
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

// What is kept says the same as what is decoded, bit for bit, and is what a file may hold.
void expect_kept_exactly(const I2sDecoder& decoder, std::uint64_t rows, std::uint64_t cols) {
  ASSERT_TRUE(decoder.kept_format().has_value());
  const BlockFormat format = *decoder.kept_format();
  std::vector<std::byte> kept(rows_bytes(format, Layout::kRowMajor, rows, cols));
  ASSERT_TRUE(decoder.read_kept_rows(0, rows, kept).ok());
  EXPECT_TRUE(check_blocks(format, Layout::kRowMajor, rows, cols, kept).ok());
  const std::vector<float> expected = read(decoder, 0, rows, cols);
  const std::size_t row_bytes = row_major_bytes(format, cols);
  for (std::uint64_t r = 0; r < rows; ++r) {
    std::vector<float> row(cols);
    decode_row(format, ByteSpan(kept).subspan(r * row_bytes, row_bytes), row);
    for (std::uint64_t c = 0; c < cols; ++c) ASSERT_EQ(row[c], expected[r * cols + c]) << r;
  }
}

TEST(I2sDecoderTest, TheWorkedExampleOfThePublishedLayout) {
  std::vector<std::byte> bytes(64, std::byte{0x55});
  bytes[0] = std::byte{0x95};
  bytes[31] = std::byte{0x54};
  store_le(MutableByteSpan(bytes), 32, 2.5F);
  const Packed p = {I2sFlavor::kMicrosoft128, 1, 128, bytes};
  const auto decoder = p.open();
  ASSERT_TRUE(decoder.has_value());
  const std::vector<float> w = read(*decoder, 0, 1, 128);
  for (std::size_t i = 0; i < 128; ++i) {
    EXPECT_EQ(w[i], i == 0 ? 2.5F : i == 127 ? -2.5F : 0.0F) << i;
  }
}

TEST(I2sDecoderTest, ThreeMicrosoftOrdersOfOneTensorAreOneTensor) {
  Rng rng(7);
  constexpr std::uint64_t kRows = 12;
  constexpr std::uint64_t kCols = 384;
  const std::vector<std::uint8_t> codes = random_codes(kRows * kCols, 3, rng);
  std::vector<std::vector<std::byte>> kept;
  for (const I2sFlavor flavor :
       {I2sFlavor::kMicrosoft128, I2sFlavor::kMicrosoft64, I2sFlavor::kMicrosoft4Row}) {
    const Packed p = pack(flavor, kRows, kCols, codes);
    const auto decoder = p.open();
    ASSERT_TRUE(decoder.has_value());
    const std::vector<float> w = read(*decoder, 0, kRows, kCols);
    for (std::size_t e = 0; e < w.size(); ++e) {
      ASSERT_EQ(w[e], 0.37F * (static_cast<float>(codes[e]) - 1.0F)) << i2s_flavor_name(flavor);
    }
    expect_kept_exactly(*decoder, kRows, kCols);
    const BlockFormat format = *decoder->kept_format();
    EXPECT_EQ(format.type, QuantType::kTernaryRow);
    kept.emplace_back(rows_bytes(format, Layout::kRowMajor, kRows, kCols));
    ASSERT_TRUE(decoder->read_kept_rows(0, kRows, kept.back()).ok());
  }
  EXPECT_EQ(kept[0], kept[1]);
  EXPECT_EQ(kept[0], kept[2]);
}

TEST(I2sDecoderTest, AnyRowsAloneAreThoseOfTheWhole) {
  Rng rng(8);
  constexpr std::uint64_t kRows = 9;
  for (const std::uint64_t cols : {30U, 72U, 128U, 300U, 70000U}) {
    for (unsigned f = 0; f < 6; ++f) {
      const auto flavor = static_cast<I2sFlavor>(f);
      if (flavor == I2sFlavor::kMicrosoft128 && cols % 128 != 0) continue;
      if (flavor == I2sFlavor::kMicrosoft64 && cols % 64 != 0) continue;
      const std::uint64_t rows = flavor == I2sFlavor::kMicrosoft4Row ? 8 : kRows;
      const std::vector<std::uint8_t> codes =
          random_codes(rows * cols, is_microsoft(flavor) ? 3 : 4, rng);
      const Packed p = pack(flavor, rows, cols, codes, 0.5F);
      const auto decoder = p.open();
      ASSERT_TRUE(decoder.has_value()) << decoder.error().message();
      const std::vector<float> whole = read(*decoder, 0, rows, cols);
      for (std::uint64_t first = 0; first < rows; ++first) {
        const std::uint64_t n = std::min<std::uint64_t>(first % 3 + 1, rows - first);
        const std::vector<float> part = read(*decoder, first, n, cols);
        for (std::size_t i = 0; i < part.size(); ++i) {
          ASSERT_EQ(part[i], whole[first * cols + i]) << i2s_flavor_name(flavor) << " " << cols;
        }
      }
      if (decoder->kept_format()) expect_kept_exactly(*decoder, rows, cols);
    }
  }
}

TEST(I2sDecoderTest, BlocksOf32DecodeByTheirOwnScales) {
  Rng rng(9);
  constexpr std::uint64_t kRows = 5;
  constexpr std::uint64_t kCols = 96;
  const std::vector<std::uint8_t> codes = random_codes(kRows * kCols, 4, rng);
  for (const I2sFlavor flavor : {I2sFlavor::kBitNet32F16, I2sFlavor::kSplit32WithSibling}) {
    const Packed p = pack(flavor, kRows, kCols, codes, 0.25F);
    const auto decoder = p.open();
    ASSERT_TRUE(decoder.has_value());
    const std::vector<float> w = read(*decoder, 0, kRows, kCols);
    for (std::size_t e = 0; e < w.size(); ++e) {
      const std::size_t b = e / 32;
      const bool turned = flavor == I2sFlavor::kBitNet32F16 && b % 5 == 3;
      const float scale = (turned ? -0.25F : 0.25F) * static_cast<float>(b % 7 + 1);
      ASSERT_EQ(w[e], scale * (static_cast<float>(codes[e]) - 2.0F)) << e;
    }
    EXPECT_EQ(decoder->kept_format(), (BlockFormat{QuantType::kQ2A, 32}));
    expect_kept_exactly(*decoder, kRows, kCols);
  }
}

TEST(I2sDecoderTest, ScalesThat2BitCannotHoldAreDecodedAlone) {
  const std::vector<std::uint8_t> codes(64, 3);
  Packed split = pack(I2sFlavor::kSplit32WithSibling, 1, 64, codes, 0.1F);  // 0.1 is no f16
  auto decoder = split.open();
  ASSERT_TRUE(decoder.has_value());
  EXPECT_EQ(decoder->kept_format(), std::nullopt);
  EXPECT_EQ(read(*decoder, 0, 1, 64)[40], 0.2F);
  Packed large = pack(I2sFlavor::kBitNet32F16, 1, 64, codes, 0.5F);
  store_le(MutableByteSpan(large.bytes), 18, to_f16(40000.0F));
  decoder = large.open();
  ASSERT_TRUE(decoder.has_value());
  std::vector<std::byte> kept(row_major_bytes(*decoder->kept_format(), 64));
  const Status status = decoder->read_kept_rows(0, 1, kept);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("--quant-type"), std::string::npos);
}

TEST(I2sDecoderTest, Qk256HasFourLevelsAndIsKeptAsItIs) {
  const Packed p = {I2sFlavor::kGgmlQk256NoScale, 64, 256,
                    std::vector<std::byte>(64 * 64, std::byte{0xAA})};
  const auto decoder = p.open();
  ASSERT_TRUE(decoder.has_value());
  EXPECT_EQ(read(*decoder, 0, 64, 256), std::vector<float>(std::size_t{64} * 256, 1.0F));
  std::vector<std::byte> kept(64 * 64);
  ASSERT_TRUE(decoder->read_kept_rows(0, 64, kept).ok());
  EXPECT_EQ(kept, p.bytes);
  const std::vector<std::uint8_t> four = {0, 1, 2, 3};
  const Packed four_levels = pack(I2sFlavor::kGgmlQk256NoScale, 1, 4, four);
  const auto levels = four_levels.open();
  EXPECT_EQ(read(*levels, 0, 1, 4), (std::vector<float>{-2.0F, -1.0F, 1.0F, 2.0F}));
}

TEST(I2sDecoderTest, CodeThreeNamesTensorRowAndOption) {
  Rng rng(10);
  for (const I2sFlavor flavor :
       {I2sFlavor::kMicrosoft128, I2sFlavor::kMicrosoft64, I2sFlavor::kMicrosoft4Row}) {
    Packed p = pack(flavor, 8, 128, random_codes(8 * 128, 3, rng));
    place_code(p, 5, 77, 3);
    const auto decoder = p.open();
    ASSERT_TRUE(decoder.has_value());
    std::vector<float> out(8 * 128);
    const Status status = decoder->read_rows(0, out);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_NE(status.message().find("w: row 5, column 77"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("--i2s-layout"), std::string::npos);
    EXPECT_TRUE(decoder->read_rows(0, std::span(out).first(5 * 128)).ok());
  }
}

TEST(I2sDecoderTest, RefusesScalesAndSizesThatCannotBe) {
  const std::vector<std::uint8_t> codes(128, 1);
  for (const float scale : {0.0F, -1.0F, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    const auto opened = pack(I2sFlavor::kMicrosoft128, 1, 128, codes, scale).open();
    ASSERT_FALSE(opened.has_value());
    EXPECT_EQ(opened.error().code(), StatusCode::kCorrupt);
  }
  for (unsigned f = 0; f < 6; ++f) {
    Packed p = pack(static_cast<I2sFlavor>(f), 4, 256, std::vector<std::uint8_t>(1024, 1));
    p.bytes.pop_back();
    const auto opened = p.open();
    ASSERT_FALSE(opened.has_value()) << f;
    EXPECT_NE(opened.error().message().find("expected"), std::string::npos);
  }
  Packed inline32 = pack(I2sFlavor::kBitNet32F16, 2, 64, codes);
  store_le(MutableByteSpan(inline32.bytes), 28, F16{0x7C00});
  std::vector<float> out(128);
  const Status status = inline32.open()->read_rows(0, out);
  EXPECT_NE(status.message().find("row 1"), std::string::npos) << status.message();
  Packed split = pack(I2sFlavor::kSplit32WithSibling, 2, 64, codes);
  split.sibling_scales[2] = std::nanf("");
  EXPECT_FALSE(split.open().has_value());
  split.sibling_scales.pop_back();
  EXPECT_FALSE(split.open().has_value());
}

using testing::HasSubstr;
using namespace testing_support;

constexpr std::uint64_t kRows = 256;
constexpr std::uint64_t kCols = 256;
constexpr I2sFlavor kOrders[] = {I2sFlavor::kMicrosoft128, I2sFlavor::kMicrosoft64,
                                 I2sFlavor::kMicrosoft4Row};

// Codes of a down projection, row by row, without anything in the columns that are dead.
std::vector<unsigned> random_codes(const std::vector<float>& gains, Rng& rng) {
  std::vector<unsigned> codes(kRows * kCols);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes[i] = gains[i % kCols] < kDeadGain ? 1 : static_cast<unsigned>(rng.below(3));
  }
  return codes;
}

std::string pack(I2sFlavor order, const std::vector<unsigned>& codes) {
  std::string bytes(codes.size() / 4 + 32, '\0');
  for (std::size_t e = 0; e < codes.size(); ++e) {
    const std::size_t row = e / kCols;
    std::size_t byte = row / 4 * kCols + e % kCols;
    std::size_t shift = 6 - row % 4 * 2;
    if (order != I2sFlavor::kMicrosoft4Row) {
      const std::size_t n = order == I2sFlavor::kMicrosoft128 ? 128 : 64;
      byte = e / n * (n / 4) + e % (n / 4);
      shift = 6 - e % n / (n / 4) * 2;
    }
    bytes[byte] = static_cast<char>(static_cast<unsigned char>(bytes[byte]) | codes[e] << shift);
  }
  bytes[codes.size() / 4 + 2] = '\x80';  // a scale of 1
  bytes[codes.size() / 4 + 3] = '\x3F';
  return bytes;
}

std::vector<float> gains_with(std::uint32_t n_dead, Rng& rng) {
  std::vector<float> gains(kCols, 0.7F);
  for (std::uint32_t n = 0; n < n_dead;) {
    float& gain = gains[rng.below(kCols)];
    n += gain > 0.5F ? 1 : 0;
    gain = 1e-32F;
  }
  return gains;
}

std::optional<I2sFlavor> order_of(const std::string& bytes, const std::vector<float>& gains) {
  const auto order = i2s_order_by_dead_channels(
      {"down", kRows, kCols, bytes.size(), true, 0}, gains,
      [&](std::uint64_t offset, MutableByteSpan out) {
        const ByteSpan all = as_bytes(std::string_view(bytes));
        if (offset + out.size() > all.size()) return io_error("past the tensor");
        std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
        return ok_status();
      });
  EXPECT_TRUE(order) << order.error().message();
  return order.has_value() ? *order : std::nullopt;
}

TEST(I2sDeadChannelsTest, EveryOrderIsFound) {
  Rng rng(1);
  for (const std::uint32_t n_dead : {16U, 40U, 100U}) {
    const std::vector<float> gains = gains_with(n_dead, rng);
    const std::vector<unsigned> codes = random_codes(gains, rng);
    for (const I2sFlavor order : kOrders) {
      EXPECT_EQ(order_of(pack(order, codes), gains), order) << n_dead;
    }
  }
}

// Few dead channels, weights in those that are said to be dead, weights that are zeros everywhere.
TEST(I2sDeadChannelsTest, WithoutEvidenceNothingIsSaid) {
  Rng rng(2);
  const std::vector<float> few = gains_with(kMinDeadChannels - 1, rng);
  const std::vector<float> some = gains_with(60, rng);
  const std::vector<float> most = gains_with(kCols / 2 + 1, rng);
  const std::vector<float> none(kCols, 1.0F);
  for (const I2sFlavor order : kOrders) {
    EXPECT_EQ(order_of(pack(order, random_codes(few, rng)), few), std::nullopt);
    EXPECT_EQ(order_of(pack(order, random_codes(most, rng)), most), std::nullopt);
    EXPECT_EQ(order_of(pack(order, random_codes(none, rng)), none), std::nullopt);
    EXPECT_EQ(order_of(pack(order, random_codes(none, rng)), some), std::nullopt);
  }
  EXPECT_EQ(order_of(pack(kOrders[0], std::vector<unsigned>(kRows * kCols, 1)), some),
            std::nullopt);
}

// A BitNet of one layer whose matrices are stored in one of the orders.
std::string bitnet(I2sFlavor order, std::uint32_t n_dead) {
  Rng rng(3);
  GgufWriter writer;
  writer.add_text("general.architecture", "bitnet-b1.58");
  const std::pair<const char*, std::uint32_t> keys[] = {
      {"embedding_length", 256},      {"block_count", 1},     {"attention.head_count", 4},
      {"attention.head_count_kv", 4}, {"context_length", 64}, {"feed_forward_length", 256}};
  for (const auto& [name, value] : keys) writer.add_u32(std::string("bitnet-b1.58.") + name, value);
  writer.add_f32("bitnet-b1.58.attention.layer_norm_rms_epsilon", 1e-5F);
  writer.add_f32_tensor("token_embd.weight", {256, 8}, std::vector<float>(256 * 8, 0.5F));
  const std::vector<float> gains = gains_with(n_dead, rng);
  const std::vector<float> ones(256, 1.0F);
  for (const char* norm : {"attn_norm", "attn_sub_norm", "ffn_norm", "ffn_sub_norm"}) {
    writer.add_f32_tensor(std::string("blk.0.") + norm + ".weight", {256},
                          std::string_view(norm) == "ffn_sub_norm" ? gains : ones);
  }
  writer.add_f32_tensor("output_norm.weight", {256}, ones);
  for (const char* name :
       {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
    const bool is_down = std::string_view(name) == "ffn_down";
    writer.add_tensor(std::string("blk.0.") + name + ".weight", {256, 256}, 36,
                      pack(order, random_codes(is_down ? gains : ones, rng)));
  }
  return writer.finish();
}

// The same weights in three orders are read as the same, with a word about the unusual ones; an
// order that the user names is taken as it is.
TEST(I2sDeadChannelsTest, AModelIsReadInItsOwnOrder) {
  const TemporaryFolder folder;
  std::vector<std::vector<float>> weights;
  for (const I2sFlavor order : kOrders) {
    folder.write("m.gguf", bitnet(order, 40));
    const auto model = GgufModel::open(folder.file("m.gguf"));
    ASSERT_TRUE(model) << model.error().message();
    weights.emplace_back(256 * 256);
    ASSERT_TRUE((*model)->read_rows(SectionKind::kLayer, 0, 1, 0, weights.back()).ok());
    EXPECT_EQ(weights.back(), weights.front());
    ASSERT_EQ((*model)->warnings().size(), order == kOrders[0] ? 0U : 1U);
    if (order == kOrders[1]) {
      EXPECT_THAT((*model)->warnings().front(), HasSubstr("read as ms64: the columns of "
                                                          "blk.0.ffn_down.weight"));
    }
    const auto named = GgufModel::open(folder.file("m.gguf"), I2sLayout::kMs128);
    ASSERT_TRUE(named) << named.error().message();
    EXPECT_TRUE((*named)->warnings().empty());
    std::vector<float> other(256 * 256);
    ASSERT_TRUE((*named)->read_rows(SectionKind::kLayer, 0, 1, 0, other).ok());
    EXPECT_EQ(other == weights.front(), order == kOrders[0]);
  }
  folder.write("m.gguf", bitnet(I2sFlavor::kMicrosoft64, 0));
  const auto silent = GgufModel::open(folder.file("m.gguf"));
  ASSERT_TRUE(silent) << silent.error().message();
  EXPECT_TRUE((*silent)->warnings().empty());
}

}  // namespace
}  // namespace qsf
