// SPDX-License-Identifier: MIT
//
// Which flavour a file of I2_S tensors has: exact sizes, one answer a file, refusals that say why.

#include "import/gguf/i2s_flavor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace qsf {
namespace {

I2sTensor tensor(std::uint64_t rows, std::uint64_t cols, std::uint64_t bytes,
                 std::uint64_t n_sibling_scales = 0) {
  return {"blk.0.attn_q.weight", rows, cols, bytes, false, n_sibling_scales};
}

I2sTensor padded(I2sFlavor flavor, std::uint64_t rows, std::uint64_t cols,
                 std::uint64_t alignment = 32) {
  const std::uint64_t scales =
      flavor == I2sFlavor::kSplit32WithSibling ? ceil_div(rows * cols, 32) : 0;
  return tensor(rows, cols, align_up(*i2s_bytes(flavor, rows, cols), alignment), scales);
}

Result<std::vector<I2sFlavor>> detect(const std::vector<I2sTensor>& tensors,
                                      I2sLayout layout = I2sLayout::kAuto,
                                      std::optional<std::uint64_t> file_type = std::nullopt,
                                      std::uint64_t alignment = 32) {
  return detect_i2s_flavors({tensors, alignment, file_type}, layout);
}

void expect_all(const Result<std::vector<I2sFlavor>>& found, I2sFlavor flavor, std::size_t n) {
  ASSERT_TRUE(found.has_value()) << found.error().message();
  EXPECT_EQ(*found, std::vector<I2sFlavor>(n, flavor));
}

void expect_refused(const Result<std::vector<I2sFlavor>>& found, const std::string& part) {
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code(), StatusCode::kUnsupported);
  EXPECT_NE(found.error().message().find(part), std::string::npos) << found.error().message();
  EXPECT_NE(found.error().message().find("--i2s-layout"), std::string::npos);
}

// The I2_S tensors of the published 2B-4T file, by the sizes that it has.
std::vector<I2sTensor> microsoft_2b_4t() {
  std::vector<I2sTensor> tensors;
  for (int layer = 0; layer < 30; ++layer) {
    for (const std::uint64_t rows : {2560U, 640U, 640U, 2560U}) {
      tensors.push_back(tensor(rows, 2560, rows == 640 ? 409632 : 1638432));
    }
    tensors.push_back(tensor(6912, 2560, 4423712));
    tensors.push_back(tensor(6912, 2560, 4423712));
    tensors.push_back(tensor(2560, 6912, 4423712));
  }
  return tensors;
}

TEST(I2sFlavorTest, AMicrosoftFileIsNeverTakenForQk256) {
  const std::vector<I2sTensor> tensors = microsoft_2b_4t();
  ASSERT_EQ(tensors.size(), 210U);
  expect_all(detect(tensors), I2sFlavor::kMicrosoft128, 210);
  expect_all(detect(tensors, I2sLayout::kAuto, 40), I2sFlavor::kMicrosoft128, 210);
  expect_all(detect(tensors, I2sLayout::kMs64), I2sFlavor::kMicrosoft64, 210);
  expect_all(detect(tensors, I2sLayout::kMs4Row), I2sFlavor::kMicrosoft4Row, 210);
  expect_refused(detect(tensors, I2sLayout::kQk256), "qk256 needs 1638400");
  // The rule with a tolerance misreads every one of them, and is asked for by name alone.
  expect_all(detect(tensors, I2sLayout::kSeed), I2sFlavor::kGgmlQk256NoScale, 210);
}

TEST(I2sFlavorTest, EachFlavourIsToldByItsSize) {
  for (const I2sFlavor flavor :
       {I2sFlavor::kMicrosoft128, I2sFlavor::kBitNet32F16, I2sFlavor::kSplit32WithSibling}) {
    expect_all(detect({padded(flavor, 1024, 1024), padded(flavor, 64, 1024)}), flavor, 2);
  }
  const std::vector<I2sTensor> qk256 = {padded(I2sFlavor::kGgmlQk256NoScale, 2048, 4096)};
  ASSERT_EQ(qk256[0].available_bytes, 2097152U);
  expect_refused(detect(qk256), "qk256 fits");
  expect_all(detect(qk256, I2sLayout::kQk256), I2sFlavor::kGgmlQk256NoScale, 1);
}

TEST(I2sFlavorTest, TheLastTensorOfAFileMayLackItsPadding) {
  I2sTensor last = tensor(3, 32, 30);  // 3 blocks of 10 bytes
  expect_refused(detect({last}), "no known layout");
  last.ends_file = true;
  expect_all(detect({last}), I2sFlavor::kBitNet32F16, 1);
  last.available_bytes = 32;
  expect_all(detect({last}), I2sFlavor::kBitNet32F16, 1);
  last.available_bytes = 31;
  expect_refused(detect({last}), "no known layout");
}

// Every number of weights up to 64 KiB, in rows of 128: which sizes two flavours share.
TEST(I2sFlavorTest, OnlyFourSizesAreAmbiguous) {
  std::set<std::uint64_t> ambiguous;
  for (std::uint64_t n = 128; n <= 65536; n += 128) {
    const auto found = detect({padded(I2sFlavor::kMicrosoft128, n / 128, 128)});
    if (!found) {
      expect_refused(found, "fits several layouts");
      ambiguous.insert(n);
      continue;
    }
    expect_all(found, I2sFlavor::kMicrosoft128, 1);
    expect_all(detect({padded(I2sFlavor::kBitNet32F16, n / 128, 128)}), I2sFlavor::kBitNet32F16, 1);
  }
  EXPECT_EQ(ambiguous, (std::set<std::uint64_t>{128, 256, 384, 512}));
}

TEST(I2sFlavorTest, AnAmbiguousTensorFollowsItsFileOrIsRefused) {
  for (const std::uint64_t n : {128U, 256U, 384U, 512U}) {
    const I2sTensor small = padded(I2sFlavor::kMicrosoft128, 1, n);
    ASSERT_EQ(small.available_bytes, padded(I2sFlavor::kBitNet32F16, 1, n).available_bytes);
    for (const I2sFlavor flavor : {I2sFlavor::kMicrosoft128, I2sFlavor::kBitNet32F16}) {
      expect_all(detect({small, padded(flavor, 512, 1024)}), flavor, 2);
    }
    expect_refused(detect({small, small}), "fits several layouts");
    expect_all(detect({small}, I2sLayout::kAuto, 40), I2sFlavor::kMicrosoft128, 1);
    expect_refused(detect({small}, I2sLayout::kAuto, 38), "fits several layouts");
    expect_all(detect({small}, I2sLayout::kInline32), I2sFlavor::kBitNet32F16, 1);
  }
}

TEST(I2sFlavorTest, AlignmentCountsAndNothingElseDoes) {
  // 3 * 384 weights: 320 bytes, and 384 for rows of whole 256s.
  const I2sTensor ms = padded(I2sFlavor::kMicrosoft128, 3, 384, 128);
  ASSERT_EQ(ms.available_bytes, 384U);
  expect_refused(detect({ms}, I2sLayout::kAuto, std::nullopt, 128), "fits several layouts");
  expect_all(
      detect({ms, padded(I2sFlavor::kMicrosoft128, 512, 512, 128)}, I2sLayout::kAuto, {}, 128),
      I2sFlavor::kMicrosoft128, 2);
  for (const int off : {-32, -1, 1, 32, 128}) {
    I2sTensor t = padded(I2sFlavor::kMicrosoft128, 640, 2560);
    t.available_bytes += static_cast<std::uint64_t>(off);
    EXPECT_FALSE(detect({t}).has_value()) << off;
    EXPECT_FALSE(detect({t}, I2sLayout::kMs128).has_value()) << off;
  }
}

TEST(I2sFlavorTest, OneTensorOfAnotherSizeRefusesTheFile) {
  std::vector<I2sTensor> tensors = microsoft_2b_4t();
  tensors[17] = padded(I2sFlavor::kBitNet32F16, 640, 2560);
  tensors[17].name = "blk.2.attn_v.weight";
  expect_refused(detect(tensors), "blk.2.attn_v.weight");
  expect_refused(detect(tensors), "as 209 of the file's 210");
  expect_refused(detect(tensors), "inline32 needs 512000");
}

TEST(I2sFlavorTest, GroupsThatStraddleRowsAreRefusedWithTheReason) {
  const std::vector<I2sTensor> tensors = {padded(I2sFlavor::kMicrosoft128, 64, 8640)};
  expect_refused(detect(tensors), "straddle rows");
  expect_refused(detect(tensors, I2sLayout::kMs128), "straddle rows");
  expect_all(detect(tensors, I2sLayout::kMs64), I2sFlavor::kMicrosoft64, 1);
  expect_refused(detect({padded(I2sFlavor::kMicrosoft64, 64, 96)}, I2sLayout::kMs64), "straddle");
  expect_refused(detect({padded(I2sFlavor::kMicrosoft128, 30, 128)}, I2sLayout::kMs4Row),
                 "no multiple of 4");
}

TEST(I2sFlavorTest, SplitNeedsAScaleForEveryBlock) {
  I2sTensor t = padded(I2sFlavor::kSplit32WithSibling, 64, 1024);
  expect_all(detect({t}), I2sFlavor::kSplit32WithSibling, 1);
  t.n_sibling_scales = 1;  // as some converters write beside other types
  expect_refused(detect({t}), "there are 1");
  expect_refused(detect({t}, I2sLayout::kSplit32), "no tensor beside it");
  I2sTensor ms = padded(I2sFlavor::kMicrosoft128, 64, 1024);
  ms.n_sibling_scales = 1;
  expect_all(detect({ms}), I2sFlavor::kMicrosoft128, 1);
}

TEST(I2sFlavorTest, SeedTakesWhatIsWithin128BytesInItsOwnOrder) {
  const std::uint64_t need = 64 * 64;  // of 64 * 256 weights
  for (const int off : {-128, -32, 0, 32, 128}) {
    const std::uint64_t bytes = need + static_cast<std::uint64_t>(off);
    expect_all(detect({tensor(64, 256, bytes)}, I2sLayout::kSeed), I2sFlavor::kGgmlQk256NoScale, 1);
    // qk256 comes first, so scales beside it change nothing.
    expect_all(detect({tensor(64, 256, bytes, 512)}, I2sLayout::kSeed),
               I2sFlavor::kGgmlQk256NoScale, 1);
  }
  for (const int off : {-129, 129}) {
    expect_refused(
        detect({tensor(64, 256, need + static_cast<std::uint64_t>(off))}, I2sLayout::kSeed),
        "unsupported layout");
  }
  for (const int off : {-128, 0, 128}) {
    const std::uint64_t bytes = 10 * 512 + static_cast<std::uint64_t>(off);
    expect_all(detect({tensor(64, 256, bytes)}, I2sLayout::kSeed), I2sFlavor::kBitNet32F16, 1);
  }
  // Its known hole: small inline32 tensors are within its tolerance of qk256.
  expect_all(detect({tensor(8, 256, 640)}, I2sLayout::kSeed), I2sFlavor::kGgmlQk256NoScale, 1);
  // Split is within reach where the last 256 are far from whole, with the sibling alone.
  const I2sTensor split = tensor(1, 264, 72 + 128, 9);
  expect_all(detect({split}, I2sLayout::kSeed), I2sFlavor::kGgmlQk256NoScale, 1);
}

TEST(I2sFlavorTest, RefusesShapesThatCannotBe) {
  for (const I2sLayout layout : {I2sLayout::kAuto, I2sLayout::kMs128, I2sLayout::kSeed}) {
    for (const I2sTensor& t : {tensor(0, 128, 32), tensor(128, 0, 32),
                               tensor(1ULL << 40U, 1ULL << 40U, 32), tensor(1ULL << 63U, 1, 32)}) {
      const auto found = detect({t}, layout);
      ASSERT_FALSE(found.has_value());
      EXPECT_EQ(found.error().code(), StatusCode::kCorrupt);
    }
  }
  EXPECT_TRUE(detect({}).has_value());
}

TEST(I2sFlavorTest, NamesGoThereAndBack) {
  for (std::size_t i = 0; i < std::size(kI2sLayoutNames); ++i) {
    EXPECT_EQ(find_i2s_layout(kI2sLayoutNames[i]), static_cast<I2sLayout>(i));
    if (i >= 1 && i <= 6) {
      EXPECT_EQ(i2s_flavor_name(static_cast<I2sFlavor>(i - 1)), kI2sLayoutNames[i]);
    }
  }
  EXPECT_EQ(find_i2s_layout("ms256"), std::nullopt);
}

TEST(I2sFlavorTest, ScalesAreLookedForUnderTheirNamesInOrder) {
  const std::vector<std::string> names = i2s_scale_names("blk.0.attn_q.weight");
  EXPECT_EQ(names[0], "blk.0.attn_q.scale");
  EXPECT_EQ(names[1], "blk.0.attn_q.scales");
  for (const char* name :
       {"blk.0.attn_q._scale", "blk.0.attn_q_scales", "blk.0.attn_q.qh", "blk.0.attn_q.s",
        "blk.0.attn_q.weight.scale", "blk.0.attn_q.weight._scales"}) {
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  EXPECT_EQ(i2s_scale_names("x.qweight")[1], "x.scales");
  EXPECT_EQ(i2s_scale_names("plain")[0], "plain.scale");
}

}  // namespace
}  // namespace qsf
