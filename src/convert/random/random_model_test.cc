// SPDX-License-Identifier: MIT
//
// Files of random weights: readers accept every type and shape, weights have the size that keeps
// logits sane, and a seed determines the bytes.

#include "convert/random/random_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "convert/random/random_blocks.h"
#include "format/qsf_reader.h"
#include "import/testing/hf_folder.h"
#include "io/testing/faulty_file.h"
#include "model/architecture.h"
#include "model/weights.h"
#include "quant/codec.h"
#include "quant/interleave.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

struct Moments {
  double mean = 0.0;
  double rms = 0.0;
};

// Decodes rows in layout 1.
Moments moments_of(BlockFormat format, std::uint32_t n_rows, std::uint32_t n_cols, ByteSpan bytes) {
  std::vector<float> row(n_cols);
  const std::size_t n_group = group_bytes(format, n_cols);
  double sum = 0.0;
  double squares = 0.0;
  for (std::uint32_t r = 0; r < n_rows; ++r) {
    decode_group_row(format, bytes.subspan(r / 16 * n_group, n_group), r % 16, n_cols, row);
    for (const float w : row) {
      sum += w;
      squares += static_cast<double>(w) * w;
    }
  }
  const double n = static_cast<double>(n_rows) * n_cols;
  return {sum / n, std::sqrt(squares / n)};
}

TEST(RandomBlocksTest, EveryTypeIsValidAndOfTheSizeStated) {
  for (const QuantType type : kAllQuantTypes) {
    for (const std::uint32_t block : {32U, 64U, 128U, 256U}) {
      const BlockFormat format = block_format(type, block);
      if (!is_valid(format)) continue;
      for (const Layout layout : {Layout::kRowMajor, Layout::kInterleaved}) {
        for (const std::uint32_t n_cols : {1024U, 1000U, 2U, 33U}) {
          constexpr std::uint32_t kRows = 40;
          SCOPED_TRACE(std::string(quant_type_name(type)) + "/" + std::to_string(block) + " x " +
                       std::to_string(n_cols));
          std::vector<std::byte> bytes(rows_bytes(format, layout, kRows, n_cols), std::byte{0xA5});
          Rng rng(3);
          fill_random_rows(format, layout, kRows, n_cols, rng, bytes);
          const Status valid = check_blocks(format, layout, kRows, n_cols, bytes);
          EXPECT_TRUE(valid.ok()) << valid.message();
          if (layout == Layout::kRowMajor || n_cols < 1000) continue;
          if (type == QuantType::kQk256) continue;  // its levels are fixed
          const Moments m = moments_of(format, kRows, n_cols, bytes);
          EXPECT_NEAR(m.mean, 0.0, 0.001);
          EXPECT_NEAR(m.rms, 0.02, 0.005);
        }
      }
    }
  }
}

// What does not exist is zero, as the standard encoder leaves it.
TEST(RandomBlocksTest, PaddingIsZero) {
  for (const QuantType type : kAllQuantTypes) {
    const BlockFormat format = block_format(type, 64);
    constexpr std::uint32_t kRows = 19;
    constexpr std::uint32_t kCols = 70;
    std::vector<std::byte> bytes(rows_bytes(format, Layout::kInterleaved, kRows, kCols));
    Rng rng(3);
    fill_random_rows(format, Layout::kInterleaved, kRows, kCols, rng, bytes);
    std::vector<std::byte> rows(rows_bytes(format, Layout::kRowMajor, kRows, kCols));
    const std::size_t n_group = group_bytes(format, kCols);
    const std::size_t n_row = row_major_bytes(format, kCols);
    deinterleave_group(format, 16, kCols, ByteSpan(bytes).first(n_group),
                       MutableByteSpan(rows).first(16 * n_row));
    deinterleave_group(format, 3, kCols, ByteSpan(bytes).subspan(n_group),
                       MutableByteSpan(rows).subspan(16 * n_row));
    std::vector<std::byte> again(bytes.size());
    interleave_rows(format, kRows, kCols, rows, again);
    EXPECT_EQ(again, bytes) << quant_type_name(type);
  }
}

TEST(RandomShapesTest, HaveTheSizesOfTheirNames) {
  std::set<std::string_view> names;
  for (const RandomShape& shape : random_shapes()) {
    EXPECT_TRUE(names.insert(shape.name).second) << shape.name;
    const ModelSpec spec = shape_spec(shape);
    EXPECT_TRUE(validate(spec).ok()) << shape.name;
    EXPECT_TRUE(check_supported(spec).ok()) << shape.name;
    EXPECT_TRUE(shape.complete != nullptr || spec.q_dim() == spec.hidden) << shape.name;
  }
  const auto gqa = find_random_shape("7b-gqa");
  ASSERT_TRUE(gqa);
  EXPECT_EQ(gqa->ffn, 14336U);
  EXPECT_EQ(gqa->n_kv_heads, 8U);
  const auto ternary = find_random_shape("1b-int8");
  ASSERT_TRUE(ternary);
  EXPECT_TRUE(shape_spec(*ternary).int8_rows);
  EXPECT_FALSE(shape_spec(*gqa).int8_rows);
  // That of 1b but for its positions.
  const auto longer = find_random_shape("1b-long");
  ASSERT_TRUE(longer);
  ModelSpec same = shape_spec(*longer);
  EXPECT_GE(same.max_positions, 32768U + 1024U);
  same.max_positions = 16384;
  EXPECT_EQ(same, shape_spec(*find_random_shape("1b")));
  const auto unknown = find_random_shape("8b");
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message(), HasSubstr("\"8b\""));
  EXPECT_THAT(unknown.error().message(), HasSubstr("1b, 3b, 7b, 7b-gqa, 13b, gpt2, gpt2-medium"));
}

// Of a model's tensors with two layers in place of all.
std::uint64_t weights_of(const QsfReader& reader, std::uint32_t n_layers) {
  std::uint64_t n_weights = 0;
  for (const SectionDirectory& directory : reader.directories()) {
    const std::uint32_t times = directory.kind != SectionKind::kLayer ? 1
                                : directory.layer == 0                ? n_layers - 1
                                                                      : 1;
    for (const TensorInfo& t : directory.tensors) {
      n_weights += times * std::uint64_t{t.rows} * t.cols;
    }
  }
  return n_weights;
}

// The decoder takes their files. Published counts, in millions.
TEST(RandomShapesTest, OtherFamiliesHaveTheirTensors) {
  const TemporaryFolder folder;
  const std::pair<const char*, std::uint32_t> counts[] = {{"gemma3-270m", 268},
                                                          {"smollm3-3b", 3075}};
  for (const auto& [name, millions] : counts) {
    RandomShape shape = *find_random_shape(name);
    const std::uint32_t n_layers = std::exchange(shape.n_layers, 2);
    ASSERT_TRUE(write_random_model(shape, folder.file("m"), {.preset = QuantType::kQ2A}));
    const auto reader = QsfReader::open(folder.file("m"));
    ASSERT_TRUE(reader) << reader.error().message();
    EXPECT_TRUE(check_tensors(*reader).ok()) << check_tensors(*reader).message();
    EXPECT_EQ((weights_of(*reader, n_layers) + 500000) / 1000000, millions) << name;
  }
  for (const std::string_view name :
       {"olmoe-7b", "deepseek-v2-lite", "qwen3-30b-a3b", "mixtral-8x7b", "gpt-oss-20b", "gemma3-4b",
        "granite4-h-micro", "lfm2-8b-a1b", "qwen3.5-0.8b", "gemma4-31b", "gemma4-e2b",
        "gemma3n-e2b", "gemma4-26b-a4b", "nemotron3-nano-30b-a3b", "falcon-h1-0.5b"}) {
    RandomShape shape = *find_random_shape(name);
    const bool sixth_differs =
        shape.architecture.starts_with("gemma4") || shape.architecture == "nemotron_h_moe";
    shape.n_layers = sixth_differs ? 6 : 2;
    if (name == "gemma4-e2b") shape.n_layers = 12;   // of which the last six share
    if (name == "gemma3n-e2b") shape.n_layers = 15;  // of which the last five share
    shape.hidden = 64;
    shape.ffn = 48;
    shape.n_vocab = 330;
    ASSERT_TRUE(write_random_model(shape, folder.file("m"), {}));
    const auto reader = QsfReader::open(folder.file("m"));
    ASSERT_TRUE(reader) << reader.error().message();
    EXPECT_TRUE(check_tensors(*reader).ok()) << check_tensors(*reader).message();
  }
}

// Whatever the preset, its experts are MXFP4.
TEST(RandomShapesTest, GptOssHasItsWeights) {
  const TemporaryFolder folder;
  RandomShape shape = *find_random_shape("gpt-oss-20b");
  const ModelSpec spec = shape_spec(shape);
  EXPECT_EQ(spec.q_dim(), 4096U);
  EXPECT_EQ(spec.window_of(0), 128U);
  EXPECT_EQ(spec.window_of(1), 0U);
  shape.n_layers = 1;
  shape.hidden = 64;
  shape.ffn = 96;
  shape.n_vocab = 330;
  ASSERT_TRUE(write_random_model(shape, folder.file("m"), {.preset = QuantType::kBF16}));
  const auto reader = QsfReader::open(folder.file("m"));
  ASSERT_TRUE(reader) << reader.error().message();
  std::size_t n_experts = 0;
  for (const TensorInfo& t : reader->layer(0).tensors) {
    const bool of_expert = t.kind == TensorKind::kExpertGate || t.kind == TensorKind::kExpertUp ||
                           t.kind == TensorKind::kExpertDown;
    n_experts += of_expert ? 1 : 0;
    if (of_expert || t.kind == TensorKind::kAttnQ) {
      EXPECT_EQ(t.format.type, of_expert ? QuantType::kMxfp4 : QuantType::kBF16);
    }
  }
  EXPECT_EQ(n_experts, 96U);
}

RandomShape small_shape(std::string_view architecture) {
  RandomShape shape = *find_random_shape("tiny");
  shape.architecture = architecture;
  shape.n_kv_heads = architecture == "llama" ? 2 : shape.n_heads;
  return shape;
}

TEST(RandomModelTest, EveryPresetOfEveryFamilyIsAFile) {
  const TemporaryFolder folder;
  const std::string path = folder.file("m.qsf");
  for (const char* architecture : {"llama", "gpt2", "phi2"}) {
    for (const QuantPreset preset : all_quant_presets()) {
      if (preset == QuantPreset::kKeep) continue;
      RandomModelOptions options;
      options.preset = preset;
      const auto report = write_random_model(small_shape(architecture), path, options);
      ASSERT_TRUE(report) << report.error().message();
      const auto reader = QsfReader::open(path);
      ASSERT_TRUE(reader) << reader.error().message();
      EXPECT_EQ(reader->spec().default_type, preset_default_type(options.preset));
      std::uint64_t n_weights = 0;
      for (const SectionDirectory& directory : reader->directories()) {
        for (const TensorInfo& t : directory.tensors) n_weights += std::uint64_t{t.rows} * t.cols;
      }
      EXPECT_EQ(report->n_weights, n_weights);
    }
  }
}

TEST(RandomModelTest, ASeedDeterminesTheBytes) {
  const TemporaryFolder folder;
  RandomModelOptions options;
  const RandomShape tiny = *find_random_shape("tiny");
  ASSERT_TRUE(write_random_model(tiny, folder.file("a"), options));
  ASSERT_TRUE(write_random_model(tiny, folder.file("b"), options));
  options.seed = 2;
  ASSERT_TRUE(write_random_model(tiny, folder.file("c"), options));
  EXPECT_EQ(folder.read("a"), folder.read("b"));
  EXPECT_NE(folder.read("a"), folder.read("c"));
}

TEST(RandomModelTest, HeadTypeAppliesToEmbeddingAndHeadOnly) {
  const TemporaryFolder folder;
  RandomModelOptions options;
  options.preset = QuantType::kQ2A;
  options.head_type = QuantType::kQ8;
  ASSERT_TRUE(write_random_model(*find_random_shape("tiny"), folder.file("m"), options));
  const auto reader = QsfReader::open(folder.file("m"));
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->embedding().tensors[0].format.type, QuantType::kQ8);
  for (const SectionDirectory& directory : reader->directories()) {
    for (const TensorInfo& t : directory.tensors) {
      if (t.rows == 1) continue;
      const bool outer = directory.kind != SectionKind::kLayer;
      EXPECT_EQ(t.format.type, outer ? QuantType::kQ8 : QuantType::kQ2A);
    }
  }
}

TEST(RandomModelTest, FailuresLeaveNothing) {
  const TemporaryFolder folder;
  const RandomShape tiny = *find_random_shape("tiny");
  RandomModelOptions options;
  options.block = 48;
  EXPECT_FALSE(write_random_model(tiny, folder.file("m"), options));
  options.block = 64;
  const std::atomic<bool> cancel{true};
  options.cancel = &cancel;
  const auto stopped = write_random_model(tiny, folder.file("m"), options);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code(), StatusCode::kCancelled);
  EXPECT_TRUE(folder.names().empty());
}

}  // namespace
}  // namespace qsf
