// SPDX-License-Identifier: MIT
//
// Conversions that keep the input's own blocks: every byte is the source's, and what cannot be
// kept is said and stored in another type.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"
#include "convert/encode/transcode.h"
#include "format/qsf_reader.h"
#include "format/tensor_values.h"
#include "import/hf/hf_model.h"
#include "import/testing/hf_folder.h"
#include "quant/codec.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

constexpr BlockFormat kKept{QuantType::kQ4, 32};

// A folder's model whose matrices claim to be stored in blocks of ours, except those of one kind.
class KeepingSource final : public ModelSource {
 public:
  explicit KeepingSource(std::unique_ptr<HfModel> model) : model_(std::move(model)) {
    add(SectionKind::kEmbedding, 0);
    for (std::uint32_t i = 0; i < spec().n_layers; ++i) add(SectionKind::kLayer, i);
    add(SectionKind::kFinal, 0);
  }

  BlockFormat kept = kKept;
  TensorKind not_kept = TensorKind::kFfnDown;
  TensorKind refused = TensorKind::kRouter;   // kept_format() says yes, read_kept_rows() no
  TensorKind infinite = TensorKind::kRouter;  // has a scale that is not finite

  const ModelSpec& spec() const noexcept override { return model_->spec(); }
  std::span<const SourceTensor> tensors(SectionKind section,
                                        std::uint32_t layer) const noexcept override {
    if (section == SectionKind::kEmbedding) return tensors_.front();
    return section == SectionKind::kFinal ? tensors_.back() : tensors_[1 + layer];
  }
  Status read_rows(SectionKind section, std::uint32_t layer, std::size_t tensor,
                   std::uint32_t first_row, std::span<float> out) const override {
    return model_->read_rows(section, layer, tensor, first_row, out);
  }
  std::optional<BlockFormat> kept_format(SectionKind section, std::uint32_t layer,
                                         std::size_t tensor) const noexcept override {
    if (tensors(section, layer)[tensor].kind == not_kept) return std::nullopt;
    return kept;
  }
  Status read_kept_rows(SectionKind section, std::uint32_t layer, std::size_t tensor,
                        std::uint32_t first_row, std::uint32_t n_rows,
                        MutableByteSpan out) const override {
    const SourceTensor& t = tensors(section, layer)[tensor];
    if (t.kind == refused && first_row + n_rows == t.rows) {
      return unsupported("%s: a code that no type holds", t.name.c_str());
    }
    std::vector<float> weights(std::size_t{n_rows} * t.cols);
    QSF_RETURN_IF_ERROR(read_rows(section, layer, tensor, first_row, weights));
    const std::size_t n_bytes = row_major_bytes(kept, t.cols);
    for (std::uint32_t r = 0; r < n_rows; ++r) {
      encode_row(kept, std::span(weights).subspan(std::size_t{r} * t.cols, t.cols), {},
                 out.subspan(r * n_bytes, n_bytes));
    }
    if (t.kind == infinite) store_le<std::uint16_t>(out, 0, 0x7C00);
    return ok_status();
  }

 private:
  void add(SectionKind section, std::uint32_t layer) {
    const auto own = model_->tensors(section, layer);
    tensors_.emplace_back(own.begin(), own.end());
    for (SourceTensor& t : tensors_.back()) t.type = "Q4_1";
  }

  std::unique_ptr<HfModel> model_;
  std::vector<std::vector<SourceTensor>> tensors_;
};

class TranscodeKeepTest : public testing::Test {
 protected:
  TranscodeKeepTest() {
    write_model(folder_, kTinyLlamaConfig, tiny_llama_tensors());
    auto model = HfModel::open(folder_.path());
    EXPECT_TRUE(model) << model.error().message();
    source_ = std::make_unique<KeepingSource>(std::move(*model));
  }

  Result<TranscodeReport> convert(Layout layout,
                                  QuantType native_ternary = QuantType::kTernaryBase3) {
    TranscodeOptions options;
    options.native_ternary = native_ternary;
    options.preset = QuantPreset::kKeep;
    options.block = 64;
    options.layout = layout;
    options.n_threads = 2;
    return transcode(*source_, folder_.file("out.qsf"), options);
  }

  // What a tensor of the file must decode to.
  std::vector<float> expected(const SectionDirectory& section, std::uint32_t index) {
    const TensorInfo& info = section.tensors[index];
    std::vector<float> all(std::size_t{info.rows} * info.cols);
    EXPECT_TRUE(source_->read_rows(section.kind, section.layer, index, 0, all).ok());
    std::vector<std::byte> bytes(row_major_bytes(info.format, info.cols));
    for (std::size_t at = 0; at < all.size(); at += info.cols) {
      const auto row = std::span(all).subspan(at, info.cols);
      encode_row(info.format, row, {}, bytes);
      decode_row(info.format, bytes, row);
    }
    return all;
  }

  TemporaryFolder folder_;
  std::unique_ptr<KeepingSource> source_;
};

TEST_F(TranscodeKeepTest, BlocksOfTheSourceReachTheFileInEveryLayout) {
  for (const Layout layout : {Layout::kRowMajor, Layout::kInterleaved}) {
    const auto report = convert(layout);
    ASSERT_TRUE(report) << report.error().message();
    const auto reader = QsfReader::open(folder_.file("out.qsf"));
    ASSERT_TRUE(reader) << reader.error().message();
    EXPECT_EQ(reader->spec().default_type, std::nullopt);
    std::size_t n_kept = 0;
    for (const SectionDirectory& section : reader->directories()) {
      for (std::uint32_t i = 0; i < section.tensors.size(); ++i) {
        const TensorInfo& info = section.tensors[i];
        if (info.rows > 1) {
          const bool kept = info.kind != source_->not_kept;
          EXPECT_EQ(info.format, kept ? kKept : (BlockFormat{QuantType::kQ8, 64}));
          n_kept += kept ? 1 : 0;
        }
        const auto values = read_tensor_values(*reader, section, i);
        ASSERT_TRUE(values) << values.error().message();
        EXPECT_EQ(*values, expected(section, i)) << tensor_kind_name(info.kind);
      }
    }
    EXPECT_GT(n_kept, 0U);
    for (const TensorReport& t : report->tensors) {
      EXPECT_EQ(t.kept, t.rows > 1 && t.kind != source_->not_kept);
      EXPECT_EQ(t.source_type, "Q4_1");
    }
    ASSERT_EQ(report->warnings.size(), 1U);
    EXPECT_THAT(report->warnings[0], HasSubstr("matrices of Q4_1 cannot be kept"));
  }
}

// Weights of -m, 0 and m, one m for each row of each matrix, kept in blocks or rows of ternary.
TEST_F(TranscodeKeepTest, TernaryRowsGetOneScaleAndStayExact) {
  TestTensors tensors = tiny_llama_tensors();
  Rng rng(5);
  for (auto& [name, tensor] : tensors) {
    if (tensor.shape.size() != 2) continue;
    float m = 0.0F;
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      if (i % tensor.shape[1] == 0) m = 0.25F * static_cast<float>(1 + rng.below(9));
      tensor.values[i] = m * (static_cast<float>(rng.below(3)) - 1.0F);
    }
  }
  write_model(folder_, kTinyLlamaConfig, tensors);
  source_ = std::make_unique<KeepingSource>(std::move(*HfModel::open(folder_.path())));
  source_->not_kept = TensorKind::kRouter;
  for (const BlockFormat kept :
       {BlockFormat{QuantType::kTernary, 256}, block_format(QuantType::kTernaryRow, 0)}) {
    for (const QuantType native : {QuantType::kTernaryBase3, QuantType::kTernaryRow}) {
      source_->kept = kept;
      for (const Layout layout : {Layout::kRowMajor, Layout::kInterleaved}) {
        const auto report = convert(layout, native);
        ASSERT_TRUE(report) << report.error().message();
        ASSERT_EQ(report->warnings.size(), 1U);
        EXPECT_THAT(report->warnings[0], HasSubstr("--int8-rows"));
        const auto reader = QsfReader::open(folder_.file("out.qsf"));
        ASSERT_TRUE(reader) << reader.error().message();
        EXPECT_TRUE(reader->spec().natively_ternary);
        EXPECT_FALSE(reader->spec().int8_rows);
        EXPECT_EQ(reader->spec().default_type, native);  // all matrices have it
        for (const SectionDirectory& section : reader->directories()) {
          for (std::uint32_t i = 0; i < section.tensors.size(); ++i) {
            const TensorInfo& info = section.tensors[i];
            if (info.rows == 1) continue;
            EXPECT_EQ(info.format, block_format(native, 0));
            std::vector<float> want(std::size_t{info.rows} * info.cols);
            ASSERT_TRUE(source_->read_rows(section.kind, section.layer, i, 0, want).ok());
            EXPECT_EQ(*read_tensor_values(*reader, section, i), want);
          }
        }
      }
    }
  }
}

// A source that does not say how its model was trained leaves it to the user.
TEST_F(TranscodeKeepTest, RowsOfInt8AreTakenWhereTheUserSaysSo) {
  TestTensors tensors = tiny_llama_tensors();
  Rng rng(8);
  for (auto& [name, tensor] : tensors) {
    for (float& w : tensor.values) {
      if (tensor.shape.size() == 2) w = static_cast<float>(rng.below(3)) - 1.0F;
    }
  }
  write_model(folder_, kTinyLlamaConfig, tensors);
  const auto model = std::move(*HfModel::open(folder_.path()));
  for (const bool int8_rows : {false, true}) {
    TranscodeOptions options;
    options.preset = QuantType::kTernary;
    options.int8_rows = int8_rows;
    const auto report = transcode(*model, folder_.file("out.qsf"), options);
    ASSERT_TRUE(report) << report.error().message();
    EXPECT_EQ(report->warnings.empty(), int8_rows);
    const auto reader = QsfReader::open(folder_.file("out.qsf"));
    ASSERT_TRUE(reader) << reader.error().message();
    EXPECT_EQ(reader->spec().int8_rows, int8_rows);
  }
}

// Scales that differ within a row cannot become one: the blocks stay.
TEST_F(TranscodeKeepTest, TernaryBlocksOfDifferentScalesStayBlocks) {
  std::string config = kTinyLlamaConfig;
  config.replace(config.find(":20"), 3, ":72");
  TestTensors tensors = tiny_llama_tensors();
  Rng rng(6);
  for (auto& [name, tensor] : tensors) {
    if (name.find("mlp.") == std::string::npos) continue;
    const bool down = name.find("down_proj") != std::string::npos;
    tensor = random_tensor(
        down ? std::vector<std::uint64_t>{16, 72} : std::vector<std::uint64_t>{72, 16}, rng);
  }
  write_model(folder_, config.c_str(), tensors);
  source_ = std::make_unique<KeepingSource>(std::move(*HfModel::open(folder_.path())));
  source_->kept = {QuantType::kTernary, 32};
  source_->not_kept = TensorKind::kRouter;
  const auto report = convert(Layout::kInterleaved);
  ASSERT_TRUE(report) << report.error().message();
  for (const TensorReport& t : report->tensors) {
    if (t.rows == 1) continue;
    const BlockFormat one_block = block_format(QuantType::kTernaryBase3, 0);  // of 16 columns
    EXPECT_EQ(t.format, t.cols > 32 ? source_->kept : one_block) << t.source_name;
  }
}

// Found while the file is written, and only in the last rows of a tensor.
TEST_F(TranscodeKeepTest, ATensorThatCannotBeKeptIsRequantisedWithAWarning) {
  source_->refused = TensorKind::kAttnV;
  const auto report = convert(Layout::kInterleaved);
  ASSERT_TRUE(report) << report.error().message();
  ASSERT_FALSE(report->warnings.empty());
  EXPECT_THAT(report->warnings[0], HasSubstr("a code that no type holds; stored as 8bit"));
  const auto reader = QsfReader::open(folder_.file("out.qsf"));
  ASSERT_TRUE(reader) << reader.error().message();
  std::size_t n_seen = 0;
  for (const TensorReport& t : report->tensors) {
    if (t.kind != TensorKind::kAttnV) continue;
    ++n_seen;
    EXPECT_FALSE(t.kept);
    EXPECT_EQ(t.format, (BlockFormat{QuantType::kQ8, 64}));
  }
  EXPECT_EQ(n_seen, source_->spec().n_layers);
  const SectionDirectory& layer = reader->directories()[1];
  for (std::uint32_t i = 0; i < layer.tensors.size(); ++i) {
    const auto values = read_tensor_values(*reader, layer, i);
    ASSERT_TRUE(values);
    EXPECT_EQ(*values, expected(layer, i));
  }
}

TEST_F(TranscodeKeepTest, BlocksThatAFormatMayNotHoldAreRefused) {
  source_->infinite = TensorKind::kAttnQ;
  const auto report = convert(Layout::kInterleaved);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code(), StatusCode::kCorrupt);
  EXPECT_THAT(std::string(report.error().message()), HasSubstr("layer 0"));
  EXPECT_FALSE(QsfReader::open(folder_.file("out.qsf")));
}

}  // namespace
}  // namespace qsf
