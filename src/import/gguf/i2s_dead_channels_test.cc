// SPDX-License-Identifier: MIT
//
// Orders of I2_S told by dead channels, of tensors packed here in each of them.

#include "import/gguf/i2s_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "import/gguf/gguf_model.h"
#include "import/testing/gguf_writer.h"
#include "import/testing/hf_folder.h"

namespace qsf {
namespace {

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
