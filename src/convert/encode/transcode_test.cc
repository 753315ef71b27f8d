// SPDX-License-Identifier: MIT
//
// Conversions end to end: what is in the file, at every preset, block size and layout; equal bytes
// at any number of threads; nothing left behind by a failure.

#include "convert/encode/transcode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "convert/encode/encode_rows.h"
#include "convert/encode/transcode_progress.h"
#include "format/qsf_reader.h"
#include "import/hf/hf_model.h"
#include "import/testing/hf_folder.h"
#include "io/testing/faulty_file.h"
#include "quant/codec.h"
#include "quant/interleave.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace testing_support;

std::unique_ptr<HfModel> open_model(const TemporaryFolder& folder, const TestTensors& tensors) {
  write_model(folder, kTinyLlamaConfig, tensors);
  auto model = HfModel::open(folder.path());
  EXPECT_TRUE(model) << model.error().message();
  return std::move(*model);
}

// Decodes a whole tensor of a file.
std::vector<float> decode_tensor(const QsfReader& reader, const SectionDirectory& directory,
                                 std::uint32_t index) {
  const TensorInfo& info = directory.tensors[index];
  std::vector<float> out(std::size_t{info.rows} * info.cols);
  std::vector<std::byte> stored;
  std::vector<std::byte> raw;
  for (std::uint32_t i = 0; i < directory.tiles.size(); ++i) {
    const TileInfo& tile = directory.tiles[i];
    stored.resize(tile.stored_bytes);
    raw.resize(tile.raw_bytes);
    if (tile.tensor != index && !(tile.tensor == kOneRowTensors && info.rows == 1)) continue;
    const Status status = reader.read_tile(directory, i, stored, raw);
    EXPECT_TRUE(status.ok()) << status.message();
    if (tile.tensor == kOneRowTensors) {
      decode_row(info.format,
                 ByteSpan(raw).subspan(one_row_offset(directory.tensors, index),
                                       row_major_bytes(info.format, info.cols)),
                 out);
      continue;
    }
    EXPECT_TRUE(check_blocks(info.format, info.layout, tile.n_rows, info.cols, raw).ok());
    for (std::uint32_t r = 0; r < tile.n_rows; ++r) {
      const auto row =
          std::span(out).subspan((std::size_t{tile.first_row} + r) * info.cols, info.cols);
      if (info.layout == Layout::kRowMajor) {
        const std::size_t n = row_major_bytes(info.format, info.cols);
        decode_row(info.format, ByteSpan(raw).subspan(r * n, n), row);
      } else {
        const std::size_t n = group_bytes(info.format, info.cols);
        decode_group_row(info.format, ByteSpan(raw).subspan(r / 16 * n, n), r % 16, info.cols, row);
      }
    }
  }
  return out;
}

// What the standard encoder makes of a tensor: the expectation, without the conversion's code.
std::vector<float> encode_and_decode(BlockFormat format, const TestTensor& tensor,
                                     const QuantOptions& options = {}) {
  const std::size_t n_cols = tensor.shape.back();
  std::vector<float> out(tensor.values.size());
  std::vector<std::byte> bytes(row_major_bytes(format, n_cols));
  for (std::size_t at = 0; at < out.size(); at += n_cols) {
    encode_row(format, std::span(tensor.values).subspan(at, n_cols), options, bytes);
    decode_row(format, bytes, std::span(out).subspan(at, n_cols));
  }
  return out;
}

Result<TranscodeReport> convert(const HfModel& model, const std::string& path,
                                const TranscodeOptions& options) {
  return transcode(model, path, options);
}

TEST(CachedBytesTest, IsDueWhenAsManyAsTheBoundHaveComeAndThenAnew) {
  CachedBytes cached(10);
  EXPECT_FALSE(cached.is_due(9));
  EXPECT_TRUE(cached.is_due(1));
  EXPECT_FALSE(cached.is_due(9));
  EXPECT_TRUE(cached.is_due(100));
  EXPECT_FALSE(cached.is_due(9));
  CachedBytes unbounded(0);
  EXPECT_FALSE(unbounded.is_due(100));
}

TEST(TranscodeTest, ForgetsWhatItReadAndWroteWhereThePageCacheIsBounded) {
  const TemporaryFolder folder;
  write_model(folder, kTinyLlamaConfig, tiny_llama_tensors());
  std::vector<std::uint64_t> drops_of_input;
  std::vector<std::uint64_t> drops_of_output;
  for (const std::uint64_t bound : {0, 5000, 1}) {
    FaultyFileOps input;
    FaultyFileOps output;
    const auto model = HfModel::open(folder.path(), input);
    ASSERT_TRUE(model) << model.error().message();
    TranscodeOptions options;
    options.max_cached_bytes = bound;
    ASSERT_TRUE(transcode(**model, folder.file(std::to_string(bound)), options, output));
    drops_of_input.push_back(input.drops());
    drops_of_output.push_back(output.drops());
  }
  EXPECT_EQ(drops_of_input.front(), 0U);
  EXPECT_EQ(drops_of_output.front(), 0U);
  EXPECT_GT(drops_of_output[1], 0U);
  EXPECT_GT(drops_of_output[2], drops_of_output[1]) << "once a tile, where a tile is too much";
  EXPECT_GE(drops_of_input[2], drops_of_output[2]);
  EXPECT_EQ(folder.read("0"), folder.read("1"));
}

TEST(TranscodeTest, EveryPresetBlockAndLayoutHoldsTheWeights) {
  const TemporaryFolder folder;
  const TestTensors tensors = tiny_llama_tensors();
  const auto model = open_model(folder, tensors);
  for (const QuantPreset preset : all_quant_presets()) {
    if (preset == QuantPreset::kKeep) continue;
    for (const std::uint32_t block : {32U, 64U, 128U, 256U}) {
      for (const Layout layout : {Layout::kRowMajor, Layout::kInterleaved}) {
        TranscodeOptions options;
        options.preset = preset;
        const QuantType type = preset_type(options.preset, TensorKind::kAttnQ);
        if (!is_valid(block_format(type, block))) continue;
        options.block = block;
        options.layout = layout;
        options.n_threads = 2;
        const std::string path = folder.file("out.qsf");
        const auto report = convert(*model, path, options);
        ASSERT_TRUE(report) << report.error().message();
        const auto reader = QsfReader::open(path);
        ASSERT_TRUE(reader) << reader.error().message();
        EXPECT_EQ(reader->spec().block, block);
        EXPECT_EQ(reader->spec().default_type, preset_default_type(options.preset));
        std::size_t n = 0;
        for (const SectionDirectory& directory : reader->directories()) {
          for (std::uint32_t i = 0; i < directory.tensors.size(); ++i, ++n) {
            const TensorReport& line = report->tensors[n];
            EXPECT_EQ(line.kind, directory.tensors[i].kind);
            EXPECT_EQ(line.format, directory.tensors[i].format);
            const std::vector<float> got = decode_tensor(*reader, directory, i);
            const std::vector<float> want =
                encode_and_decode(line.format, tensors.at(line.source_name));
            ASSERT_EQ(got, want) << quant_preset_name(options.preset) << " " << line.source_name;
            if (options.preset == QuantType::kF32) {
              EXPECT_EQ(got, tensors.at(line.source_name).values);
            }
          }
        }
        EXPECT_EQ(n, report->tensors.size());
      }
    }
  }
}

TEST(TranscodeTest, RoundingAndImportanceReachTheEncoderOfTheirMatrix) {
  const TemporaryFolder folder;
  const TestTensors tensors = tiny_llama_tensors();
  const auto model = open_model(folder, tensors);
  ColumnImportance importance;
  std::vector<float> weights(16);
  for (std::size_t c = 0; c < weights.size(); ++c) weights[c] = c == 5 ? 1e6F : 1.0F;
  ASSERT_TRUE(importance.set({TensorKind::kAttnQ, 1}, weights).ok());
  TranscodeOptions options;
  options.preset = QuantType::kQ2A;
  options.block = 32;
  const auto decode_q = [&](std::uint32_t layer) {
    const std::string path = folder.file("out.qsf");
    const auto report = convert(*model, path, options);
    EXPECT_TRUE(report) << report.error().message();
    const auto reader = QsfReader::open(path);
    const SectionDirectory& section = reader->layer(layer);
    return decode_tensor(*reader, section, *section.find(TensorKind::kAttnQ));
  };
  const auto expected = [&](std::uint32_t layer, const QuantOptions& quant) {
    return encode_and_decode(
        {QuantType::kQ2A, 32},
        tensors.at("model.layers." + std::to_string(layer) + ".self_attn.q_proj.weight"), quant);
  };
  EXPECT_EQ(decode_q(1), expected(1, {}));
  options.rounding = Rounding::kNearest;
  EXPECT_EQ(decode_q(1), expected(1, kNearestRounding));
  EXPECT_NE(expected(1, kNearestRounding), expected(1, {}));
  options.rounding = Rounding::kSearch;
  options.importance = &importance;
  EXPECT_EQ(decode_q(1), expected(1, {.importance = weights}));
  EXPECT_NE(expected(1, {.importance = weights}), expected(1, {}));
  EXPECT_EQ(decode_q(0), expected(0, {}));
}

TEST(TranscodeTest, SmallTilesAndCompressionHoldTheSameWeights) {
  const TemporaryFolder folder;
  TestTensors tensors = tiny_llama_tensors();
  auto config = std::string(kTinyLlamaConfig);
  config.replace(config.find("\"vocab_size\":33"), 15, "\"vocab_size\":700");
  Rng rng(9);
  tensors["model.embed_tokens.weight"] = random_tensor({700, 16}, rng);
  write_model(folder, config, tensors);
  const auto model = HfModel::open(folder.path());
  ASSERT_TRUE(model) << model.error().message();
  for (const Compression compression :
       {Compression::kNone, Compression::kLz4, Compression::kLz4Hc, Compression::kZstd}) {
    TranscodeOptions options;
    options.preset = QuantType::kF32;
    options.compression = compression;
    options.tile_bytes = 4096;
    options.n_threads = 3;
    ASSERT_TRUE(convert(**model, folder.file("out.qsf"), options));
    const auto reader = QsfReader::open(folder.file("out.qsf"));
    ASSERT_TRUE(reader) << reader.error().message();
    EXPECT_EQ(reader->embedding().tiles.size(), 11U);
    EXPECT_EQ(decode_tensor(*reader, reader->embedding(), 0),
              tensors.at("model.embed_tokens.weight").values);
  }
}

// The tiny model with more rows in gate and up than two threads take at once with error
// compensation (2 x 192), so that every number of threads splits them differently.
std::unique_ptr<HfModel> open_tall_model(const TemporaryFolder& folder) {
  TestTensors tensors = tiny_llama_tensors();
  Rng rng(11);
  for (auto& [name, tensor] : tensors) {
    if (name.find("gate_proj") != std::string::npos || name.find("up_proj") != std::string::npos) {
      tensor = random_tensor({400, 16}, rng);
    }
    if (name.find("down_proj") != std::string::npos) tensor = random_tensor({16, 400}, rng);
  }
  std::string config = kTinyLlamaConfig;
  config.replace(config.find(":20,"), 4, ":400,");
  write_model(folder, config, tensors);
  auto model = HfModel::open(folder.path());
  EXPECT_TRUE(model) << model.error().message();
  return std::move(*model);
}

TEST(TranscodeTest, BytesDoNotDependOnThreads) {
  const TemporaryFolder folder;
  const auto model = open_tall_model(folder);
  for (const QuantPreset preset : all_quant_presets()) {
    if (preset == QuantPreset::kKeep) continue;
    std::string first;
    for (const unsigned n_threads : {1U, 2U, 3U, 1U}) {
      TranscodeOptions options;
      options.preset = preset;
      options.compression = Compression::kZstd;
      options.n_threads = n_threads;
      ASSERT_TRUE(convert(*model, folder.file("out.qsf"), options));
      const std::string bytes = folder.read("out.qsf");
      if (first.empty()) first = bytes;
      EXPECT_EQ(bytes, first) << n_threads << " threads";
    }
  }
}

// Replaces the matrices of all layers by weights of -m, 0 and m.
TestTensors ternary_tensors(float m) {
  TestTensors tensors = tiny_llama_tensors();
  Rng rng(3);
  for (auto& [name, tensor] : tensors) {
    if (tensor.shape.size() != 2 || name == "model.embed_tokens.weight") continue;
    for (float& w : tensor.values) w = m * (static_cast<float>(rng.below(3)) - 1.0F);
  }
  return tensors;
}

// Feeds errors back in every matrix of one place, as if its inputs had been seen.
class PlaceCompensation final : public ErrorCompensation {
 public:
  Result<const GptqFactor*> factor_of(TensorKind kind, std::uint32_t layer,
                                      std::uint32_t n_cols) override {
    if (kind != place) return nullptr;
    ++n_calls;
    if (layer == fails_at) return cancelled("no inputs of layer %u", layer);
    std::vector<float> hessian(std::size_t{n_cols} * n_cols);
    for (std::size_t i = 0; i < n_cols; ++i) {
      for (std::size_t j = 0; j <= i; ++j) {
        hessian[i * n_cols + j] = 1.0F / (1.0F + static_cast<float>(i - j + layer));
      }
    }
    factor_.emplace(std::move(GptqFactor::create(std::move(hessian), n_cols)).value());
    return &*factor_;
  }

  TensorKind place = TensorKind::kFfnDown;
  std::uint32_t fails_at = 0xFFFFFFFFU;
  int n_calls = 0;

 private:
  std::optional<GptqFactor> factor_;
};

TEST(TranscodeTest, ErrorsAreFedBackWhereAFactorIsKnown) {
  const TemporaryFolder folder;
  const TestTensors tensors = tiny_llama_tensors();
  const auto model = open_model(folder, tensors);
  PlaceCompensation compensation;
  TranscodeOptions options;
  options.preset = QuantType::kQ3;
  options.compensation = &compensation;
  const std::string path = folder.file("out.qsf");
  std::vector<std::byte> bytes;
  for (const unsigned n_threads : {1U, 3U}) {
    options.n_threads = n_threads;
    const auto report = convert(*model, path, options);
    ASSERT_TRUE(report) << report.error().message();
    const auto reader = QsfReader::open(path);
    ASSERT_TRUE(reader) << reader.error().message();
    std::size_t n = 0;
    std::size_t n_fed_back = 0;
    for (const SectionDirectory& directory : reader->directories()) {
      for (std::uint32_t i = 0; i < directory.tensors.size(); ++i, ++n) {
        const TensorReport& line = report->tensors[n];
        const TestTensor& tensor = tensors.at(line.source_name);
        std::vector<float> want = encode_and_decode(line.format, tensor);
        const std::vector<float> got = decode_tensor(*reader, directory, i);
        if (line.kind != TensorKind::kFfnDown) {
          EXPECT_EQ(got, want) << line.source_name;
          continue;
        }
        EXPECT_NE(got, want) << line.source_name;
        const auto factor =
            compensation.factor_of(line.kind, directory.layer, directory.tensors[i].cols);
        bytes.resize(tensor.shape[0] * row_major_bytes(line.format, tensor.shape[1]));
        encode_rows_gptq(**factor, line.format, options.rounding, tensor.values, bytes);
        for (std::size_t r = 0; r < tensor.shape[0]; ++r) {
          const std::size_t n_bytes = row_major_bytes(line.format, tensor.shape[1]);
          decode_row(line.format, ByteSpan(bytes).subspan(r * n_bytes, n_bytes),
                     std::span(want).subspan(r * tensor.shape[1], tensor.shape[1]));
        }
        EXPECT_EQ(got, want) << line.source_name;
        ++n_fed_back;
      }
    }
    EXPECT_EQ(n_fed_back, reader->spec().n_layers);
    EXPECT_TRUE(reader->spec().calibrated);
  }
  compensation.fails_at = 1;
  const auto report = convert(*model, folder.file("none.qsf"), options);
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message(), HasSubstr("no inputs of layer 1"));
  EXPECT_FALSE(std::filesystem::exists(folder.file("none.qsf")));
}

TEST(TranscodeTest, FedBackBytesDoNotDependOnThreads) {
  const TemporaryFolder folder;
  const auto model = open_tall_model(folder);
  PlaceCompensation compensation;
  compensation.place = TensorKind::kFfnUp;
  std::string first;
  for (const unsigned n_threads : {1U, 2U, 3U, 16U}) {
    TranscodeOptions options;
    options.n_threads = n_threads;
    options.compensation = &compensation;
    ASSERT_TRUE(convert(*model, folder.file("out.qsf"), options));
    const std::string bytes = folder.read("out.qsf");
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first) << n_threads << " threads";
  }
}

// Threads share a tile however few rows it has, in whole strips.
TEST(TranscodeTest, CompensationGivesEveryThreadRows) {
  EXPECT_EQ(gptq_unit_rows(1024, 1), 192U);
  EXPECT_EQ(gptq_unit_rows(1024, 2), 192U);
  EXPECT_EQ(gptq_unit_rows(192, 2), 96U);  // 1 MB of 11,008 columns at 4 bits
  EXPECT_EQ(gptq_unit_rows(128, 2), 96U);
  EXPECT_EQ(gptq_unit_rows(128, 16), 48U);
  EXPECT_EQ(gptq_unit_rows(1, 1), 48U);
}

// A file is calibrated where that has decided a code of it.
TEST(TranscodeTest, CompensationWithoutErrorsCalibratesNothing) {
  const TemporaryFolder folder;
  PlaceCompensation compensation;
  const auto is_calibrated = [&](const TestTensors& tensors, QuantPreset preset) {
    TranscodeOptions options;
    options.preset = preset;
    options.vocabulary_type = QuantType::kQ4;  // which has no error compensation
    options.compensation = &compensation;
    const auto report = convert(*open_model(folder, tensors), folder.file("out.qsf"), options);
    EXPECT_TRUE(report) << report.error().message();
    const auto reader = QsfReader::open(folder.file("out.qsf"));
    return reader && reader->spec().calibrated;
  };
  EXPECT_FALSE(is_calibrated(tiny_llama_tensors(), QuantType::kF16));
  EXPECT_TRUE(is_calibrated(tiny_llama_tensors(), QuantType::kQ4));
  // Natively ternary matrices have no errors: nobody is asked for factors, which cost minutes.
  compensation.n_calls = 0;
  EXPECT_FALSE(is_calibrated(ternary_tensors(0.5F), QuantType::kTernary));
  EXPECT_EQ(compensation.n_calls, 0);
  EXPECT_TRUE(is_calibrated(tiny_llama_tensors(), QuantType::kTernaryRow));
}

// Importance that no encoder uses does not change the file.
TEST(TranscodeTest, ImportanceThatNoTypeHeedsCalibratesNothing) {
  const TemporaryFolder folder;
  const auto model = open_model(folder, tiny_llama_tensors());
  ColumnImportance importance;
  ASSERT_TRUE(importance.set({TensorKind::kAttnQ, 0}, std::vector<float>(16, 2.0F)).ok());
  for (const auto& [preset, expected] :
       {std::pair(QuantType::kF16, false), std::pair(QuantType::kQ8, false),
        std::pair(QuantType::kTernaryRow, true), std::pair(QuantType::kTernary, true),
        std::pair(QuantType::kQ2S, true), std::pair(QuantType::kQ6K, true)}) {
    TranscodeOptions options;
    options.preset = preset;
    options.importance = &importance;
    ASSERT_TRUE(convert(*model, folder.file("out.qsf"), options));
    const auto reader = QsfReader::open(folder.file("out.qsf"));
    ASSERT_TRUE(reader);
    EXPECT_EQ(reader->spec().calibrated, expected) << quant_preset_name(preset);
  }
}

// Each matrix may be told its format; what is not told follows the preset.
TEST(TranscodeTest, MatricesTakeTheFormatsTheyAreTold) {
  const TemporaryFolder folder;
  const auto model = open_model(folder, tiny_llama_tensors());
  TensorFormats formats;
  ASSERT_TRUE(formats.set(TensorKind::kAttnQ, 1, {QuantType::kQ8, 32}).ok());
  ASSERT_TRUE(formats.set(TensorKind::kTokenEmbedding, 0, {QuantType::kQ6K, 16}).ok());
  EXPECT_FALSE(formats.set(TensorKind::kAttnK, 1, {QuantType::kQ6K, 64}).ok());
  for (const QuantPreset preset :
       {QuantPreset(QuantType::kQ4), QuantPreset::kKeep, QuantPreset::kMixed}) {
    TranscodeOptions options;
    options.preset = preset;
    options.formats = &formats;
    const auto report = convert(*model, folder.file("out.qsf"), options);
    ASSERT_TRUE(report) << report.error().message();
    for (const TensorReport& line : report->tensors) {
      if (line.rows == 1) continue;
      const bool is_q = line.kind == TensorKind::kAttnQ && line.section == "layer 1";
      const bool is_embedding = line.kind == TensorKind::kTokenEmbedding;
      EXPECT_EQ(line.format == (BlockFormat{QuantType::kQ8, 32}), is_q) << line.source_name;
      EXPECT_EQ(line.format == (BlockFormat{QuantType::kQ6K, 16}), is_embedding);
    }
    const auto reader = QsfReader::open(folder.file("out.qsf"));
    ASSERT_TRUE(reader);
    EXPECT_EQ(reader->spec().default_type, std::nullopt);
    EXPECT_THAT(reader->spec().quantiser, HasSubstr("types by tensor"));
  }
}

TEST(TranscodeTest, NativelyTernaryMatricesAreRecognisedAndExact) {
  const TemporaryFolder folder;
  const TestTensors tensors = ternary_tensors(0.1F);  // no f16 number
  const auto model = open_model(folder, tensors);
  const std::pair<QuantPreset, QuantType> cases[] = {
      {QuantType::kTernary, QuantType::kTernaryBase3},
      {QuantType::kTernary, QuantType::kTernaryRow},
      {QuantPreset::kMixed, QuantType::kTernaryBase3},
      {QuantPreset::kMixed, QuantType::kTernaryRow}};
  for (const auto& [preset, native_ternary] : cases) {
    TranscodeOptions options;
    options.preset = preset;
    options.native_ternary = native_ternary;
    const auto report = convert(*model, folder.file("out.qsf"), options);
    ASSERT_TRUE(report) << report.error().message();
    EXPECT_THAT(report->warnings, ElementsAre(HasSubstr("--int8-rows")));
    const auto reader = QsfReader::open(folder.file("out.qsf"));
    EXPECT_TRUE(reader->spec().natively_ternary);
    for (const TensorReport& line : report->tensors) {
      if (line.rows == 1 || line.kind == TensorKind::kTokenEmbedding) continue;
      EXPECT_EQ(line.format.type, native_ternary) << line.source_name;
      EXPECT_EQ(line.relative_error, 0.0) << line.source_name;
    }
    const SectionDirectory& layer = reader->layer(1);
    EXPECT_EQ(decode_tensor(*reader, layer, *layer.find(TensorKind::kFfnDown)),
              tensors.at("model.layers.1.mlp.down_proj.weight").values);
  }
}

TEST(TranscodeTest, TernaryRowsAreExactWhateverTheirMagnitude) {
  const TemporaryFolder folder;
  const TestTensors tensors = ternary_tensors(0.1F);  // no f16 number
  const auto model = open_model(folder, tensors);
  TranscodeOptions options;
  options.preset = QuantType::kTernaryRow;
  const auto report = convert(*model, folder.file("out.qsf"), options);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_THAT(report->warnings, ElementsAre(HasSubstr("--int8-rows")));
  const auto reader = QsfReader::open(folder.file("out.qsf"));
  EXPECT_TRUE(reader->spec().natively_ternary);
  const SectionDirectory& layer = reader->layer(1);
  const std::uint32_t down = *layer.find(TensorKind::kFfnDown);
  EXPECT_EQ(layer.tensors[down].format.type, QuantType::kTernaryRow);
  EXPECT_EQ(decode_tensor(*reader, layer, down),
            tensors.at("model.layers.1.mlp.down_proj.weight").values);
}

TEST(TranscodeTest, SuperBlocksTakeEmbeddingAndHeadAlong) {
  const TemporaryFolder folder;
  const auto model = open_model(folder, tiny_llama_tensors());
  TranscodeOptions options;
  options.preset = QuantType::kQ2Super;
  options.block = 32;
  const auto report = convert(*model, folder.file("out.qsf"), options);
  ASSERT_TRUE(report) << report.error().message();
  for (const TensorReport& line : report->tensors) {
    if (line.rows == 1) continue;
    const bool vocabulary =
        line.kind == TensorKind::kTokenEmbedding || line.kind == TensorKind::kHead;
    EXPECT_EQ(line.format,
              (BlockFormat{vocabulary ? QuantType::kQ4Super : QuantType::kQ2Super, 32}))
        << line.source_name;
  }
  options.block = 128;
  const auto refused = convert(*model, folder.file("out.qsf"), options);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("2bit-super, expected 32 or 64"));
}

TEST(TranscodeTest, OtherModelsAreWarnedOfTernary) {
  const TemporaryFolder folder;
  TestTensors tensors = ternary_tensors(0.1F);
  tensors["model.layers.1.mlp.up_proj.weight"].values[7] = 0.11F;
  const auto model = open_model(folder, tensors);
  TranscodeOptions options;
  options.preset = QuantType::kTernary;
  const auto report = convert(*model, folder.file("out.qsf"), options);
  ASSERT_TRUE(report);
  ASSERT_EQ(report->warnings.size(), 1U);
  EXPECT_THAT(report->warnings[0], HasSubstr("1 of 14 matrices"));
  EXPECT_FALSE(QsfReader::open(folder.file("out.qsf"))->spec().natively_ternary);
}

TEST(TranscodeTest, MixedRaisesWhatItsWidthCannotHold) {
  const TemporaryFolder folder;
  TestTensors tensors = tiny_llama_tensors();
  for (float& w : tensors["model.layers.0.self_attn.k_proj.weight"].values) {
    w = w > 0.0F ? 0.3F : -0.2F;  // two values: 2 bits hold them
  }
  const auto model = open_model(folder, tensors);
  TranscodeOptions options;
  options.preset = QuantPreset::kMixed;
  const auto report = convert(*model, folder.file("out.qsf"), options);
  ASSERT_TRUE(report);
  for (const TensorReport& line : report->tensors) {
    if (line.rows == 1) continue;
    EXPECT_GE(line.cosine, kLowCosine) << line.source_name;
    if (line.section == "layer 0" && line.kind == TensorKind::kAttnK) {
      EXPECT_EQ(line.format.type, QuantType::kQ2K);
    }
    if (line.section == "layer 0" && line.kind == TensorKind::kAttnQ) {
      EXPECT_NE(line.format.type, QuantType::kQ2K);
    }
    // Where they are no fewer bits, super-blocks are closer.
    EXPECT_NE(line.format, (BlockFormat{QuantType::kQ4Super, 64})) << line.source_name;
    EXPECT_NE(line.format.type, QuantType::kQ4) << line.source_name;
  }
  ASSERT_FALSE(report->widened.empty());
  EXPECT_THAT(report->widened[0], HasSubstr("layer 0, model.layers.0.self_attn.q_proj.weight"));
}

TEST(TranscodeTest, NormsAreF16WhereThatIsExact) {
  const TemporaryFolder folder;
  TestTensors tensors = tiny_llama_tensors();
  tensors["model.norm.weight"].values.assign(16, 0.5F);
  tensors["model.layers.0.input_layernorm.weight"].values.assign(16, 1e-32F);
  const auto model = open_model(folder, tensors);
  const auto report = convert(*model, folder.file("out.qsf"), {});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->tensors.back().format.type, QuantType::kF16);
  EXPECT_EQ(report->tensors[1].kind, TensorKind::kAttnNorm);
  EXPECT_EQ(report->tensors[1].format.type, QuantType::kF32);
  EXPECT_EQ(report->tensors[1].relative_error, 0.0);
}

TEST(TranscodeTest, WeightsBeyondTheTypeAreRefused) {
  const TemporaryFolder folder;
  TestTensors tensors = tiny_llama_tensors();
  tensors["model.layers.1.mlp.down_proj.weight"].values[45] = 70000.0F;
  const auto model = open_model(folder, tensors);
  for (const QuantPreset preset :
       {QuantPreset(QuantType::kF16), QuantPreset(QuantType::kQ4), QuantPreset::kMixed}) {
    TranscodeOptions options;
    options.preset = preset;
    options.n_threads = 3;
    const auto report = convert(*model, folder.file("out.qsf"), options);
    ASSERT_FALSE(report);
    EXPECT_THAT(report.error().message(),
                HasSubstr("down_proj.weight: weight 70000 at row 2, column 5"));
    EXPECT_FALSE(std::filesystem::exists(folder.file("out.qsf")));
  }
  TranscodeOptions options;
  options.preset = QuantType::kBF16;
  EXPECT_TRUE(convert(*model, folder.file("out.qsf"), options));
}

// What the file takes is said before it takes anything, and whoever hears it may refuse.
TEST(TranscodeTest, TheSizeIsAnnouncedBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  const auto model = open_model(folder, tiny_llama_tensors());
  const std::string path = folder.file("out.qsf");
  const std::vector<std::byte> tokenizer(200'000, std::byte{7});
  for (const QuantPreset preset :
       {QuantPreset(QuantType::kF32), QuantPreset(QuantType::kQ4), QuantPreset(QuantType::kQ2Super),
        QuantPreset::kMixed, QuantPreset::kKeep}) {
    for (const bool with_tokenizer : {false, true}) {
      TranscodeOptions options;
      options.preset = preset;
      options.tile_bytes = 4096;
      if (with_tokenizer) options.tokenizer = tokenizer;
      std::uint64_t announced = 0;
      options.on_size = [&](std::uint64_t bytes) {
        EXPECT_FALSE(std::filesystem::exists(path));
        announced = bytes;
        return ok_status();
      };
      ASSERT_TRUE(convert(*model, path, options));
      const std::uint64_t bytes = std::filesystem::file_size(path);
      EXPECT_EQ(announced, bytes) << quant_preset_name(preset);
      EXPECT_EQ(*transcoded_bytes(*model, options), bytes) << quant_preset_name(preset);
      std::filesystem::remove(path);
      options.on_size = [](std::uint64_t) { return io_error("no room for it"); };
      const auto refused = convert(*model, path, options);
      ASSERT_FALSE(refused);
      EXPECT_THAT(std::string(refused.error().message()), HasSubstr("no room for it"));
      EXPECT_FALSE(std::filesystem::exists(path));
    }
  }
}

// Embedding and head have the type that is asked for, the rest what the preset says.
TEST(TranscodeTest, TheVocabularyMayHaveATypeOfItsOwn) {
  const TemporaryFolder folder;
  const auto model = open_model(folder, tiny_llama_tensors());
  const std::string path = folder.file("out.qsf");
  for (const QuantPreset preset : {QuantPreset(QuantType::kF16), QuantPreset(QuantType::kQ2A),
                                   QuantPreset::kMixed, QuantPreset::kKeep}) {
    TranscodeOptions options;
    options.preset = preset;
    const auto plain = convert(*model, path, options);
    ASSERT_TRUE(plain) << plain.error().message();
    for (const QuantType type : {QuantType::kQ6K, QuantType::kQ2A}) {
      options.vocabulary_type = type;
      const auto report = convert(*model, path, options);
      ASSERT_TRUE(report) << report.error().message();
      std::size_t n_asked = 0;
      for (std::size_t i = 0; i < report->tensors.size(); ++i) {
        const TensorReport& t = report->tensors[i];
        const bool asked = t.kind == TensorKind::kTokenEmbedding || t.kind == TensorKind::kHead;
        n_asked += asked ? 1 : 0;
        EXPECT_EQ(t.format, asked ? block_format(type, 64) : plain->tensors[i].format);
      }
      EXPECT_GE(n_asked, 1U);
    }
  }
  TranscodeOptions odd;
  odd.block = 128;
  odd.vocabulary_type = QuantType::kQ4Super;
  EXPECT_EQ(convert(*model, path, odd).error().code(), StatusCode::kInvalidArgument);
}

TEST(TranscodeTest, FailuresLeaveNothingBehindAndTheOldFileInPlace) {
  TestTensors tensors = tiny_llama_tensors();
  const TemporaryFolder out;
  {
    const TemporaryFolder folder;
    tensors["model.norm.weight"].values[3] = std::nanf("");
    const auto model = open_model(folder, tensors);
    const auto report = convert(*model, out.file("out.qsf"), {});
    ASSERT_FALSE(report);
    EXPECT_THAT(report.error().message(), HasSubstr("\"model.norm.weight\": element 3 is NaN"));
    EXPECT_TRUE(out.names().empty());
  }
  const TemporaryFolder folder;
  const auto model = open_model(folder, tiny_llama_tensors());
  out.write("out.qsf", "old");
  // A disk that is full after any number of bytes, up to what the whole file needs.
  std::uint64_t needed = 0;
  for (std::uint64_t disk_bytes = 0;; disk_bytes += 5000) {
    FaultyFileOps ops({.disk_bytes = disk_bytes});
    const auto report = transcode(*model, out.file("out.qsf"), {}, ops);
    if (report) {
      needed = disk_bytes;
      break;
    }
    EXPECT_EQ(report.error().code(), StatusCode::kIo);
    EXPECT_THAT(out.names(), ElementsAre("out.qsf"));
    EXPECT_EQ(out.read("out.qsf"), "old");
  }
  EXPECT_GT(needed, 20000U);
  EXPECT_THAT(out.names(), ElementsAre("out.qsf"));
  EXPECT_TRUE(QsfReader::open(out.file("out.qsf")));
  const auto missing = convert(*model, out.file("no/such/folder/out.qsf"), {});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), StatusCode::kIo);
}

TEST(TranscodeTest, StopsWhenAskedTo) {
  const TemporaryFolder folder;
  const auto model = open_model(folder, tiny_llama_tensors());
  std::atomic<bool> cancel{false};
  int n_calls = 0;
  TranscodeOptions options;
  options.cancel = &cancel;
  options.on_progress = [&](const TranscodeProgress& progress) {
    EXPECT_LE(progress.done_weights, progress.total_weights);
    if (++n_calls == 3) cancel = true;
  };
  const TemporaryFolder out;
  const auto report = convert(*model, out.file("out.qsf"), options);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code(), StatusCode::kCancelled);
  EXPECT_EQ(n_calls, 3);
  EXPECT_TRUE(out.names().empty());
}

TEST(TranscodeTest, ProgressEndsAtTheWhole) {
  const TemporaryFolder folder;
  const auto model = open_model(folder, tiny_llama_tensors());
  TranscodeProgress last;
  TranscodeOptions options;
  options.preset = QuantPreset::kMixed;
  options.on_progress = [&](const TranscodeProgress& progress) { last = progress; };
  const auto report = convert(*model, folder.file("out.qsf"), options);
  ASSERT_TRUE(report);
  EXPECT_STREQ(last.stage, "converting");
  EXPECT_EQ(last.done_weights, last.total_weights);
  EXPECT_EQ(report->n_weights, last.total_weights);
}

TEST(TranscodeTest, BadOptionsAreStatuses) {
  const TemporaryFolder folder;
  const auto model = open_model(folder, tiny_llama_tensors());
  TranscodeOptions options;
  options.block = 48;
  EXPECT_EQ(convert(*model, folder.file("out.qsf"), options).error().code(),
            StatusCode::kInvalidArgument);
  options.block = 64;
  options.n_threads = 0;
  EXPECT_EQ(convert(*model, folder.file("out.qsf"), options).error().code(),
            StatusCode::kInvalidArgument);
}

// The golden models of every architecture: f32 keeps every weight, 8-bit comes within its error.
TEST(TranscodeTest, GoldenModelsConvert) {
  const std::filesystem::path golden = std::filesystem::path(QSF_SOURCE_DIR) / "testdata/golden";
  const TemporaryFolder out;
  std::size_t n_models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(golden)) {
    if (!std::filesystem::exists(entry.path() / "config.json")) continue;
    ++n_models;
    const auto model = HfModel::open(entry.path().string());
    ASSERT_TRUE(model) << model.error().message();
    for (const QuantPreset preset : {QuantType::kF32, QuantType::kQ8}) {
      TranscodeOptions options;
      options.preset = preset;
      const auto report = convert(**model, out.file("out.qsf"), options);
      ASSERT_TRUE(report) << report.error().message();
      for (const TensorReport& line : report->tensors) {
        EXPECT_LE(line.relative_error, preset == QuantType::kF32 ? 0.0 : 0.01)
            << entry.path() << " " << line.source_name;
      }
      EXPECT_TRUE(QsfReader::open(out.file("out.qsf")));
    }
  }
  EXPECT_GE(n_models, 9U);
}

}  // namespace
}  // namespace qsf
