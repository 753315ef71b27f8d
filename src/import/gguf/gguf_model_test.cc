// SPDX-License-Identifier: MIT
//
// GGUF models against the folders they were made from: the same tensors bit for bit, the same
// specification; blocks that are kept; and what is refused.

#include "import/gguf/gguf_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "base/rng.h"
#include "convert/encode/transcode.h"
#include "format/qsf_reader.h"
#include "format/tensor_values.h"
#include "import/gguf/ggml_repack.h"
#include "import/gguf/ggml_types.h"
#include "import/gguf/gguf_fields.h"
#include "import/gguf/gguf_rope.h"
#include "import/hf/hf_model.h"
#include "import/testing/gguf_writer.h"
#include "import/testing/hf_folder.h"
#include "import/testing/ternary_llama.h"
#include "io/testing/faulty_file.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

template <typename Visit>
void for_each_section(const ModelSpec& spec, const Visit& visit) {
  visit(SectionKind::kEmbedding, 0U);
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) visit(SectionKind::kLayer, layer);
  visit(SectionKind::kFinal, 0U);
}

std::vector<float> all_rows(const ModelSource& source, SectionKind section, std::uint32_t layer,
                            std::size_t tensor) {
  const SourceTensor& t = source.tensors(section, layer)[tensor];
  std::vector<float> values(std::size_t{t.rows} * t.cols);
  const Status status = source.read_rows(section, layer, tensor, 0, values);
  EXPECT_TRUE(status.ok()) << status.message();
  return values;
}

void expect_equal_tensors(const ModelSource& gguf, const ModelSource& folder) {
  for_each_section(folder.spec(), [&](SectionKind section, std::uint32_t layer) {
    const auto ours = gguf.tensors(section, layer);
    const auto theirs = folder.tensors(section, layer);
    ASSERT_EQ(ours.size(), theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_EQ(ours[i].kind, theirs[i].kind);
      ASSERT_EQ(ours[i].rows, theirs[i].rows) << ours[i].name;
      ASSERT_EQ(ours[i].cols, theirs[i].cols) << ours[i].name;
      EXPECT_EQ(all_rows(gguf, section, layer, i), all_rows(folder, section, layer, i))
          << ours[i].name;
    }
  });
}

class GgufGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(GgufGoldenTest, HasTheTensorsAndTheSpecOfItsFolder) {
  const auto data = std::filesystem::path(QSF_SOURCE_DIR) / "testdata";
  const std::string name = GetParam();
  const auto folder = HfModel::open((data / "golden" / name).string());
  ASSERT_TRUE(folder) << folder.error().message();
  const auto gguf = GgufModel::open((data / "gguf" / (name + ".gguf")).string());
  ASSERT_TRUE(gguf) << gguf.error().message();
  expect_equal_tensors(**gguf, **folder);

  ModelSpec ours = (*gguf)->spec();
  ModelSpec theirs = (*folder)->spec();
  const auto architecture = (*gguf)->file().keys().get_string("general.architecture");
  ASSERT_TRUE(architecture && architecture->has_value());
  EXPECT_EQ(ours.source, "GGUF " + std::string(**architecture));
  EXPECT_EQ(ours.chat_template, "{{ messages[0].content }}");
  EXPECT_EQ(ours.bos_id, 1U);
  EXPECT_EQ(ours.eos_ids, (std::vector<std::uint32_t>{2}));
  EXPECT_TRUE((*gguf)->tokenizer() && (*gguf)->tokenizer()->has_value());
  // What GGUF has no key for: how scores of Gemma are scaled, norms of heads in Llama 4, which its
  // readers know by 128 experts, and the rule behind the divisors of LLaMA 3.
  if (name == "gemma2" || name == "gemma3") theirs.attention_scale = 1.0F / std::sqrt(14.0F);
  if (name == "llama4_dense_layers") theirs.unit_head_norms = true;
  if (theirs.rope.scaling == RopeScaling::kLlama3) {
    EXPECT_EQ(ours.rope.scaling, RopeScaling::kLongrope);
    EXPECT_EQ(ours.rope.long_factors, ours.rope.short_factors);
    ASSERT_EQ(ours.rope.long_factors.size(), theirs.head_dim / 2);
    EXPECT_EQ(ours.rope.long_factors.front(), 1.0F);
    EXPECT_EQ(ours.rope.long_factors.back(), theirs.rope.factor);
    EXPECT_EQ(ours.rope.theta, theirs.rope.theta);
    theirs.rope = ours.rope;
  }
  EXPECT_FLOAT_EQ(ours.rope.attention_factor, theirs.rope.attention_factor);
  theirs.rope.attention_factor = ours.rope.attention_factor;
  for (ModelSpec* spec : {&ours, &theirs}) {
    spec->source.clear();
    spec->chat_template.clear();
    spec->bos_id.reset();
    spec->pad_id.reset();
    spec->eos_ids.clear();
  }
  EXPECT_EQ(ours, theirs);
}

INSTANTIATE_TEST_SUITE_P(
    All, GgufGoldenTest,
    testing::Values("llama_gqa_tied", "llama3", "qwen2", "qwen3", "phi2", "phi3_long", "phi3_gqa",
                    "gemma", "gemma2", "gemma3", "gpt2_untied", "stablelm_parallel", "bloom",
                    "smollm3", "olmo2_gqa", "olmo3", "granite", "ministral3", "glm4", "exaone4",
                    "cohere_biased", "cohere_normed", "granite4", "mpt_clipped", "cohere2",
                    "falcon", "falcon_groups", "gpt_neox", "starcoder2", "mpt", "mixtral",
                    "qwen3_moe", "olmoe", "granitemoe", "qwen2_moe", "gpt_oss", "gpt_oss_floats",
                    "glm4_moe", "granitemoeshared", "phimoe", "lfm2", "lfm2_moe", "granite4h",
                    "granite4h_experts", "deepseek_v2_lite", "deepseek_v3", "glm4_moe_lite",
                    "qwen3_5_moe", "qwen3_next", "llama4", "llama4_dense_layers", "gemma3n",
                    "gemma4", "gemma4_a4b", "gemma4_e", "nemotron_h", "nemotron_h_moe",
                    "falcon_h1"),
    [](const auto& test) { return std::string(test.param); });

TEST(GgufModelTest, StoriesOfBothFormsAreOneModel) {
  const std::string folder = std::string(QSF_SHARED_DIR) + "/models/stories260K";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  const auto hf = HfModel::open(folder);
  ASSERT_TRUE(hf) << hf.error().message();
  const auto gguf = GgufModel::open(folder + "/stories260K-f32.gguf");
  ASSERT_TRUE(gguf) << gguf.error().message();
  expect_equal_tensors(**gguf, **hf);
  EXPECT_TRUE((*gguf)->spec().tied_head);
}

// Six types and byte orders hold the weights of one folder; what is kept of them is ternary.
TEST(GgufModelTest, EveryTernaryTypeIsOneBitnet) {
  const std::string data = QSF_SOURCE_DIR "/testdata/";
  const auto wide = HfModel::open(data + "bitnet/wide");
  ASSERT_TRUE(wide) << wide.error().message();
  const std::pair<const char*, I2sLayout> files[] = {
      {"i2s_a", I2sLayout::kAuto}, {"i2s_b", I2sLayout::kMs64}, {"i2s_c", I2sLayout::kMs4Row},
      {"tq1_0", I2sLayout::kAuto}, {"tq2_0", I2sLayout::kAuto}, {"iq2_bn", I2sLayout::kAuto}};
  for (const auto& [name, layout] : files) {
    const auto gguf = GgufModel::open(data + "gguf/bitnet/" + name + ".gguf", layout);
    ASSERT_TRUE(gguf) << gguf.error().message();
    expect_equal_tensors(**gguf, **wide);
    EXPECT_EQ((*gguf)->spec().architecture, "bitnet-b1.58");
    EXPECT_EQ((*gguf)->spec().activation, Activation::kReluSquared);
    EXPECT_TRUE((*gguf)->spec().int8_rows) << name;
  }
  const auto first = GgufModel::open(data + "gguf/bitnet/i2s_a.gguf");
  ASSERT_TRUE(first) << first.error().message();
  const TemporaryFolder out;
  TranscodeOptions options;
  options.preset = QuantPreset::kKeep;
  const auto report = transcode(**first, out.file("m.qsf"), options);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_TRUE(report->warnings.empty());
  const auto reader = QsfReader::open(out.file("m.qsf"));
  ASSERT_TRUE(reader) << reader.error().message();
  EXPECT_TRUE(reader->spec().natively_ternary);
  const SectionDirectory& layer = reader->directories()[1];
  for (std::uint32_t i = 0; i < layer.tensors.size(); ++i) {
    const auto values = read_tensor_values(*reader, layer, i);
    ASSERT_TRUE(values) << values.error().message();
    EXPECT_EQ(*values, all_rows(**first, SectionKind::kLayer, 0, i));
  }
}

// A LLaMA of one layer whose matrices have a type of one's choice, with random blocks.
struct TinyLlama {
  static constexpr std::uint32_t kHidden = 256, kHeads = 4, kKvHeads = 2, kFfn = 256, kVocab = 32;
  std::string architecture = "llama";
  std::uint32_t type = 8;                     // of matrices: Q8_0
  std::map<std::string, std::uint32_t> keys;  // more of them, or others
  std::map<std::string, std::string> texts;
  std::string without_key;  // left out
  std::string without_tensor;
  std::string extra_tensor;
  std::string misshapen;  // a tensor with one row too many
  float q_scale = 1.0F;   // of the matrix of queries, in a tensor of its own
  bool has_head = false;  // one that equals the embedding
  float head_scale = 1.0F;
  std::function<void(std::string_view name, std::string& data)> change;

  std::string block_bytes(std::uint64_t rows, std::uint64_t cols, Rng& rng) const {
    if (type == kGgmlTypeI2S) {  // zeros, and the scale 2
      return std::string(rows * cols / 4, '\x55') + std::string("\0\0\0\x40", 4) +
             std::string(28, '\0');
    }
    const std::uint64_t n_bytes = *ggml_row_bytes(type, cols) * rows;
    std::string data(n_bytes, '\0');
    for (char& c : data) c = static_cast<char>(rng.next_u64());
    const GgmlTypeInfo info = *ggml_type_info(type);
    // Scales that are finite and not zero: f16 of 2^-5 wherever a block of these types has one.
    for (std::uint64_t at = 0; at < n_bytes; at += info.block_bytes) {
      const auto put = [&](std::size_t offset) {
        data[at + offset] = '\0';
        data[at + offset + 1] = '\x28';
      };
      switch (type) {
        case 10:  // Q2_K
          put(80);
          put(82);
          break;
        case 11: put(108); break;  // Q3_K
        case 14: put(208); break;  // Q6_K
        case 3:
        case 12:
        case 13: put(2); [[fallthrough]];  // Q4_1, Q4_K, Q5_K
        default: put(0);
      }
      for (std::uint64_t i = 2; type == 8 && i < 34; ++i) {
        if (data[at + i] == '\x80') data[at + i] = '\0';
      }
    }
    return data;
  }

  std::string write() const {
    GgufWriter writer;
    writer.add_text("general.architecture", architecture);
    std::map<std::string, std::uint32_t> all = {
        {"embedding_length", kHidden},    {"block_count", 1},
        {"attention.head_count", kHeads}, {"attention.head_count_kv", kKvHeads},
        {"context_length", 64},           {"feed_forward_length", kFfn}};
    for (const auto& [name, value] : keys) all[name] = value;
    for (const auto& [name, value] : all) {
      if (name != without_key) writer.add_u32(architecture + "." + name, value);
    }
    for (const auto& [name, value] : texts) writer.add_text(architecture + "." + name, value);
    if (without_key != "attention.layer_norm_rms_epsilon") {
      writer.add_f32(architecture + ".attention.layer_norm_rms_epsilon", 1e-5F);
    }
    Rng rng(7);
    const auto matrix = [&](const std::string& name, std::uint64_t rows, std::uint64_t cols) {
      if (name == without_tensor) return;
      std::string data = block_bytes(rows + (name == misshapen ? 1 : 0), cols, rng);
      if (change) change(name, data);
      writer.add_tensor(name, {cols, rows + (name == misshapen ? 1 : 0)}, type, data);
    };
    const auto norm = [&](const std::string& name) {
      if (name != without_tensor) {
        writer.add_f32_tensor(name, {kHidden}, std::vector<float>(kHidden, 1.0F));
      }
    };
    matrix("token_embd.weight", kVocab, kHidden);
    norm("output_norm.weight");
    norm("blk.0.attn_norm.weight");
    matrix("blk.0.attn_q.weight", kHidden, kHidden);
    matrix("blk.0.attn_k.weight", kHidden / 2, kHidden);
    matrix("blk.0.attn_v.weight", kHidden / 2, kHidden);
    matrix("blk.0.attn_output.weight", kHidden, kHidden);
    norm("blk.0.ffn_norm.weight");
    matrix("blk.0.ffn_gate.weight", kFfn, kHidden);
    matrix("blk.0.ffn_up.weight", kFfn, kHidden);
    matrix("blk.0.ffn_down.weight", kHidden, kFfn);
    if (has_head) {
      rng = Rng(7);
      matrix("output.weight", kVocab, kHidden);
      if (head_scale != 1.0F) writer.add_f32_tensor("output.scale", {1}, {head_scale});
    }
    if (!extra_tensor.empty()) norm(extra_tensor);
    if (q_scale != 1.0F) writer.add_f32_tensor("blk.0.attn_q.scale", {1}, {q_scale});
    return writer.finish();
  }
};

class TinyGgufTest : public testing::Test {
 protected:
  Result<std::unique_ptr<GgufModel>> open(const TinyLlama& tiny) {
    folder_.write("m.gguf", tiny.write());
    return GgufModel::open(folder_.file("m.gguf"));
  }
  void expect_refused(const TinyLlama& tiny, StatusCode code, const char* part) {
    const auto model = open(tiny);
    ASSERT_FALSE(model) << part;
    EXPECT_EQ(model.error().code(), code) << model.error().message();
    EXPECT_THAT(std::string(model.error().message()), HasSubstr(part));
    EXPECT_THAT(std::string(model.error().message()), HasSubstr("m.gguf"));
  }
  Result<TranscodeReport> keep(const GgufModel& model) {
    TranscodeOptions options;
    options.preset = QuantPreset::kKeep;
    options.n_threads = 2;
    return transcode(model, folder_.file("m.qsf"), options);
  }
  TemporaryFolder folder_;
};

// The values in the file are those that the GGUF decodes to, whatever the type, rows of queries and
// keys in their new order included.
TEST_F(TinyGgufTest, KeptBlocksDecodeToTheSameBits) {
  for (const std::uint32_t type : {2U, 3U, 8U, 10U, 11U, 12U, 13U, 14U}) {
    TinyLlama tiny;
    tiny.type = type;
    const auto model = open(tiny);
    ASSERT_TRUE(model) << model.error().message();
    const auto report = keep(**model);
    ASSERT_TRUE(report) << report.error().message();
    EXPECT_TRUE(report->warnings.empty()) << report->warnings[0];
    const auto reader = QsfReader::open(folder_.file("m.qsf"));
    ASSERT_TRUE(reader) << reader.error().message();
    for (const SectionDirectory& section : reader->directories()) {
      for (std::uint32_t i = 0; i < section.tensors.size(); ++i) {
        const auto values = read_tensor_values(*reader, section, i);
        ASSERT_TRUE(values) << values.error().message();
        if (section.tensors[i].rows > 1) {
          EXPECT_EQ(section.tensors[i].format, *kept_format(type));
        }
        EXPECT_EQ(*values, all_rows(**model, section.kind, section.layer, i));
      }
    }
  }
}

// Rows of a head, in file order 0, half, 1, half + 1 ...; those that do not rotate stay.
TEST_F(TinyGgufTest, RowsThatRotateInPairsArePutInHalves) {
  constexpr std::uint32_t kHeadDim = TinyLlama::kHidden / TinyLlama::kHeads;
  for (const std::uint32_t dims : {kHeadDim, kHeadDim / 4}) {
    TinyLlama tiny;
    tiny.keys["rope.dimension_count"] = dims;
    const auto llama = open(tiny);
    ASSERT_TRUE(llama) << llama.error().message();
    const std::vector<float> ours = all_rows(**llama, SectionKind::kLayer, 0, 1);
    const GgufFile::Entry& entry = *(*llama)->file().find("blk.0.attn_q.weight");
    const std::size_t row_bytes = *ggml_row_bytes(8, TinyLlama::kHidden);
    std::vector<std::byte> bytes(row_bytes);
    std::vector<float> row(TinyLlama::kHidden);
    for (std::uint32_t r = 0; r < TinyLlama::kHidden; ++r) {
      const std::uint32_t i = r % kHeadDim;
      std::uint32_t stored = r;
      if (i < dims) stored = r - i + (i < dims / 2 ? 2 * i : 2 * i - dims + 1);
      ASSERT_TRUE((*llama)->file().read(entry, stored * row_bytes, bytes).ok());
      decode_ggml_row(8, bytes, row);
      const auto at = ours.begin() + r * TinyLlama::kHidden;
      EXPECT_TRUE(std::equal(row.begin(), row.end(), at)) << dims << " rotate, row " << r;
    }
  }
}

// What GGUF files of InternLM 2 hold; there is no golden folder of it.
TEST_F(TinyGgufTest, InternLm2IsALlamaByAnotherName) {
  std::vector<std::vector<float>> weights[2];
  for (const bool internlm2 : {false, true}) {
    TinyLlama tiny;
    if (internlm2) tiny.architecture = "internlm2";
    const auto model = open(tiny);
    ASSERT_TRUE(model) << model.error().message();
    EXPECT_EQ((*model)->spec().architecture, tiny.architecture);
    for (std::size_t i = 0; i < (*model)->tensors(SectionKind::kLayer, 0).size(); ++i) {
      weights[internlm2 ? 1 : 0].push_back(all_rows(**model, SectionKind::kLayer, 0, i));
    }
  }
  EXPECT_EQ(weights[0], weights[1]);
}

// As in some files of BitNet.
TEST_F(TinyGgufTest, AScaleInATensorOfItsOwnIsApplied) {
  TinyLlama tiny;
  const auto plain = open(tiny);
  ASSERT_TRUE(plain) << plain.error().message();
  std::vector<float> expected = all_rows(**plain, SectionKind::kLayer, 0, 1);
  tiny.q_scale = 0.375F;
  const auto scaled = open(tiny);
  ASSERT_TRUE(scaled) << scaled.error().message();
  for (float& w : expected) w *= 0.375F;
  EXPECT_EQ(all_rows(**scaled, SectionKind::kLayer, 0, 1), expected);
  EXPECT_EQ((*scaled)->kept_format(SectionKind::kLayer, 0, 1), std::nullopt);
  EXPECT_NE((*scaled)->kept_format(SectionKind::kLayer, 0, 2), std::nullopt);
}

TEST_F(TinyGgufTest, FloatsThatAreTernaryAreKeptAsSuch) {
  TinyLlama tiny;
  tiny.type = 0;  // F32
  tiny.change = [](std::string_view name, std::string& data) {
    for (std::size_t i = 0; i < data.size() / 4; ++i) {
      // The embedding has another magnitude for every value, the queries a second one at their end.
      float w = 0.375F * static_cast<float>(static_cast<int>(i * i % 7 % 3) - 1);
      if (name == "token_embd.weight") w = static_cast<float>(i % 100);
      if (name == "blk.0.attn_q.weight" && i + 4 > data.size() / 4) w = 0.25F;
      std::memcpy(data.data() + 4 * i, &w, sizeof w);
    }
  };
  const auto model = open(tiny);
  ASSERT_TRUE(model) << model.error().message();
  const auto report = keep(**model);
  ASSERT_TRUE(report) << report.error().message();
  for (const TensorReport& tensor : report->tensors) {
    if (tensor.rows == 1) continue;
    const bool ternary = tensor.section == "layer 0" && tensor.kind != TensorKind::kAttnQ;
    EXPECT_EQ(tensor.format.type, ternary ? QuantType::kTernaryBase3 : QuantType::kF32)
        << tensor.source_name;
    EXPECT_EQ(tensor.relative_error, 0.0) << tensor.source_name;
  }
}

TEST_F(TinyGgufTest, AHeadIsTiedWhenItIsTheEmbedding) {
  const auto is_tied = [&](const TinyLlama& tiny) {
    const auto model = open(tiny);
    EXPECT_TRUE(model) << model.error().message();
    if (!model) return false;
    const bool tied = (*model)->spec().tied_head;
    EXPECT_EQ((*model)->tensors(SectionKind::kFinal, 0).size(), tied ? 1U : 2U);
    return tied;
  };
  TinyLlama tiny;
  EXPECT_TRUE(is_tied(tiny));
  tiny.has_head = true;
  EXPECT_TRUE(is_tied(tiny));
  tiny.head_scale = 0.5F;
  EXPECT_FALSE(is_tied(tiny));
  tiny.head_scale = 1.0F;
  tiny.change = [](std::string_view name, std::string& data) {
    if (name == "output.weight") data[data.size() - 40] ^= '\1';
  };
  EXPECT_FALSE(is_tied(tiny));
  tiny.type = kGgmlTypeI2S;
  EXPECT_FALSE(is_tied(tiny));
}

TEST_F(TinyGgufTest, ACodeThatNoTypeHoldsIsRequantisedWithAWarning) {
  TinyLlama tiny;
  tiny.change = [](std::string_view name, std::string& data) {
    if (name == "blk.0.attn_v.weight") data[data.size() - 1] = '\x80';
  };
  const auto model = open(tiny);
  ASSERT_TRUE(model) << model.error().message();
  const auto report = keep(**model);
  ASSERT_TRUE(report) << report.error().message();
  ASSERT_FALSE(report->warnings.empty());
  EXPECT_THAT(report->warnings[0], HasSubstr("blk.0.attn_v.weight"));
}

// Ternary blocks under a name that is not BitNet's say nothing of activations; the user may.
TEST_F(TinyGgufTest, TernaryBlocksOfALlamaLeaveActivationsToTheUser) {
  folder_.write("m.gguf", ternary_llama());
  const auto model = GgufModel::open(folder_.file("m.gguf"));
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_FALSE((*model)->spec().int8_rows);
  for (const bool asked : {false, true}) {
    TranscodeOptions options;
    options.preset = QuantPreset::kKeep;
    options.int8_rows = asked;
    const auto report = transcode(**model, folder_.file("m.qsf"), options);
    ASSERT_TRUE(report) << report.error().message();
    EXPECT_EQ(report->warnings.empty(), asked);
    const auto reader = QsfReader::open(folder_.file("m.qsf"));
    ASSERT_TRUE(reader) << reader.error().message();
    EXPECT_TRUE(reader->spec().natively_ternary);
    EXPECT_EQ(reader->spec().int8_rows, asked);
  }
}

TEST_F(TinyGgufTest, WeightsThatAreNotFiniteAreRefused) {
  TinyLlama tiny;
  tiny.change = [](std::string_view name, std::string& data) {
    if (name == "blk.0.ffn_up.weight") data[1] = '\x7C';  // an infinite scale
  };
  const auto model = open(tiny);
  ASSERT_TRUE(model) << model.error().message();
  std::vector<float> row(TinyLlama::kHidden);
  const auto tensors = (*model)->tensors(SectionKind::kLayer, 0);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].kind != TensorKind::kFfnUp) continue;
    const Status status = (*model)->read_rows(SectionKind::kLayer, 0, i, 0, row);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(std::string(status.message()), HasSubstr("ffn_up"));
  }
  EXPECT_EQ(keep(**model).error().code(), StatusCode::kCorrupt);
}

TEST_F(TinyGgufTest, WhatIsMissingOrTooMuchIsNamed) {
  TinyLlama tiny;
  for (const char* key :
       {"embedding_length", "block_count", "attention.head_count", "context_length",
        "feed_forward_length", "attention.layer_norm_rms_epsilon"}) {
    tiny.without_key = key;
    expect_refused(tiny, StatusCode::kCorrupt, key);
  }
  tiny = {};
  for (const char* name :
       {"token_embd.weight", "output_norm.weight", "blk.0.attn_q.weight", "blk.0.ffn_norm.weight",
        "blk.0.ffn_gate.weight", "blk.0.ffn_down.weight"}) {
    tiny.without_tensor = name;
    expect_refused(tiny, StatusCode::kCorrupt, name);
  }
  tiny = {};
  for (const char* name : {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.ffn_down.weight"}) {
    tiny.misshapen = name;
    expect_refused(tiny, StatusCode::kCorrupt, name);
  }
  tiny = {};
  for (const char* name : {"blk.1.attn_norm.weight", "blk.0.attn_q_norm.weight", "mm.0.weight"}) {
    tiny.extra_tensor = name;
    expect_refused(tiny, StatusCode::kUnsupported, name);
  }
}

TEST_F(TinyGgufTest, WhatIsNotRunIsRefusedByName) {
  TinyLlama tiny;
  tiny.architecture = "mamba";
  expect_refused(tiny, StatusCode::kUnsupported, "\"mamba\"");
  tiny = {};
  tiny.keys["expert_count"] = 8;
  expect_refused(tiny, StatusCode::kCorrupt, "expert_used_count\" is missing");
  tiny.keys["expert_used_count"] = 9;
  expect_refused(tiny, StatusCode::kCorrupt, "expert_used_count\" is 9, expected 1 to 8");
  tiny.keys["expert_used_count"] = 2;
  expect_refused(tiny, StatusCode::kCorrupt, "blk.0.ffn_gate_inp.weight\" is missing");
  tiny.keys["expert_shared_count"] = 1;
  expect_refused(tiny, StatusCode::kUnsupported, "expert_shared_count");
  tiny.architecture = "qwen2";
  expect_refused(tiny, StatusCode::kUnsupported, "mixture of experts");
  tiny = {};
  tiny.texts["rope.scaling.type"] = "dynamic";
  expect_refused(tiny, StatusCode::kUnsupported, "\"dynamic\"");
  tiny = {};
  tiny.keys["attention.value_length"] = 32;
  expect_refused(tiny, StatusCode::kUnsupported, "values of 32 columns");
  tiny = {};
  tiny.type = 16;  // IQ2_XXS
  expect_refused(tiny, StatusCode::kUnsupported, "IQ2_XXS");
  tiny = {};
  tiny.keys["block_count"] = 4000;
  expect_refused(tiny, StatusCode::kCorrupt, "tensors for 4000 layers");
  tiny.keys["block_count"] = 0;
  expect_refused(tiny, StatusCode::kCorrupt, "block_count");
  tiny = {};
  tiny.keys["attention.head_count"] = 3;
  expect_refused(tiny, StatusCode::kCorrupt, "not a multiple of 3 heads");
}

TEST_F(TinyGgufTest, RopeIsScaledByAFactorWhereTheFileSaysSo) {
  TinyLlama tiny;
  tiny.texts["rope.scaling.type"] = "linear";
  auto model = open(tiny);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ((*model)->spec().rope.scaling, RopeScaling::kNone);
  tiny.texts["rope.scaling.type"] = "none";
  model = open(tiny);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ((*model)->spec().rope.scaling, RopeScaling::kNone);
  GgufWriter keys;
  keys.add_f32("llama.rope.scaling.factor", 4.0F);
  const std::string bytes = keys.finish();
  const auto gguf = GgufReader::parse(as_bytes(bytes), bytes.size());
  ASSERT_TRUE(gguf);
  GgufFields fields(*gguf, "llama");
  folder_.write("m.gguf", tiny.write());
  const auto file = GgufFile::open(folder_.file("m.gguf"));
  ASSERT_TRUE(file);
  ModelSpec spec;
  spec.head_dim = 64;
  ASSERT_TRUE(read_gguf_rope(*file, fields, spec).ok());
  EXPECT_EQ(spec.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(spec.rope.factor, 4.0F);
}

// A model cut anywhere is an error with the file's name, never a crash.
TEST_F(TinyGgufTest, EveryPrefixOfAModelFails) {
  const std::string bytes = TinyLlama().write();
  MemoryFileOps whole(as_bytes(bytes));
  ASSERT_TRUE(GgufModel::open("m.gguf", I2sLayout::kAuto, whole));
  for (std::size_t n = 0; n < bytes.size(); n += n < 4096 ? 1 : 997) {
    MemoryFileOps ops(as_bytes(std::string_view(bytes).substr(0, n)));
    const auto model = GgufModel::open("m.gguf", I2sLayout::kAuto, ops);
    ASSERT_FALSE(model) << n << " bytes";
    EXPECT_THAT(std::string(model.error().message()), HasSubstr("m.gguf"));
  }
}

}  // namespace
}  // namespace qsf
