// SPDX-License-Identifier: MIT
//
// BitNet's configurations, and its ternary weights as checkpoints hold them: four codes to a byte
// or the numbers they were rounded from, times a scale or over it. What is damaged or unknown is
// refused by name.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "import/hf/hf_config.h"
#include "import/hf/hf_model.h"
#include "import/testing/hf_folder.h"
#include "import/testing/published_config.h"
#include "quant/codec.h"

namespace qsf {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace testing_support;

// Of microsoft/bitnet-b1.58-2B-4T.
Json microsoft() {
  return Json::parse(R"({"architectures":["BitNetForCausalLM"],"bos_token_id":128000,
    "eos_token_id":128001,"hidden_act":"relu2","hidden_size":2560,"intermediate_size":6912,
    "max_position_embeddings":4096,"model_type":"bitnet","rms_norm_eps":1e-05,
    "num_attention_heads":20,"num_hidden_layers":30,"num_key_value_heads":5,
    "rope_theta":500000.0,"tie_word_embeddings":true,"torch_dtype":"bfloat16","vocab_size":128256,
    "quantization_config":{"quant_method":"bitnet","linear_class":"autobitlinear",
      "quantization_mode":"offline"}})");
}

TEST(HfBitnetTest, MicrosoftsConfiguration) {
  Json json = microsoft();
  const auto config = parse(json);
  ASSERT_TRUE(config) << config.error().message();
  const ModelSpec& s = config->spec;
  EXPECT_EQ(s.architecture, "bitnet-b1.58");
  EXPECT_EQ(s.activation, Activation::kReluSquared);
  EXPECT_EQ(s.norm, NormType::kRmsNorm);
  EXPECT_EQ(s.norm_epsilon, 1e-5F);
  EXPECT_EQ(s.rope.theta, 500000.0F);
  EXPECT_EQ(s.n_kv_heads, 5U);
  EXPECT_EQ(s.head_dim, 128U);
  EXPECT_TRUE(s.gated_ffn && s.tied_head && s.int8_rows);
  EXPECT_EQ(config->ternary, TernaryStorage::kTimesScale);
  // What the class says where the file does not.
  for (const char* key : {"rope_theta", "rms_norm_eps", "num_key_value_heads", "hidden_act"}) {
    json.erase(key);
  }
  const auto bare = parse(json);
  ASSERT_TRUE(bare) << bare.error().message();
  EXPECT_EQ(bare->spec, s);
  // Without a method the class multiplies floats.
  json.erase("quantization_config");
  EXPECT_FALSE(parse(json)->spec.int8_rows);
}

TEST(HfBitnetTest, HowWeightsAreStored) {
  Json json = microsoft();
  json["quantization_config"]["quantization_mode"] = "online";
  EXPECT_EQ(parse(json)->ternary, TernaryStorage::kMasters);
  json["quantization_config"] = {{"quant_method", "bitnet"},
                                 {"modules_to_not_convert", {"lm_head"}}};
  EXPECT_EQ(parse(json)->ternary, TernaryStorage::kOverScale);
  // Of 1bitLLM, and of Falcon3-1.58.
  json["architectures"] = {"BitnetForCausalLM"};
  json["hidden_act"] = "silu";
  json.erase("quantization_config");
  const auto first = parse(json);
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_EQ(first->spec.architecture, "bitnet");
  EXPECT_EQ(first->spec.activation, Activation::kSilu);
  EXPECT_EQ(first->ternary, TernaryStorage::kMasters);
  EXPECT_TRUE(first->spec.int8_rows);
  json["architectures"] = {"LlamaForCausalLM"};
  EXPECT_FALSE(parse(json)->spec.int8_rows);
  json["quantization_config"] = {{"quant_method", "bitnet"}};
  EXPECT_EQ(parse(json)->spec.architecture, "llama");
  EXPECT_EQ(parse(json)->ternary, TernaryStorage::kOverScale);
  EXPECT_TRUE(parse(json)->spec.int8_rows);
}

TEST(HfBitnetTest, RefusesByName) {
  const auto with = [](const Json& change) {
    Json json = microsoft();
    json.merge_patch({{"quantization_config", change}});
    return message_of(json);
  };
  EXPECT_THAT(with({{"quant_method", "gptq"}}), HasSubstr("\"gptq\""));
  EXPECT_THAT(with({{"use_rms_norm", true}}), HasSubstr("use_rms_norm"));
  EXPECT_THAT(with({{"modules_to_not_convert", {"model.layers.0"}}}), HasSubstr("model.layers.0"));
  EXPECT_THAT(with({{"modules_to_not_convert", 1}}), HasSubstr("modules_to_not_convert"));
  EXPECT_THAT(with({{"linear_class", "other"}}), HasSubstr("\"other\""));
  EXPECT_THAT(with({{"quantization_mode", "other"}}), HasSubstr("\"other\""));
  EXPECT_THAT(with({{"linear_class", "bitlinear"}, {"quantization_mode", "online"}}),
              HasSubstr("linear_class"));
  Json json = microsoft();
  json["quantization_config"] = "bitnet";
  EXPECT_THAT(message_of(json), HasSubstr("quantization_config"));
  json = microsoft();
  json["attention_bias"] = true;
  EXPECT_THAT(message_of(json), HasSubstr("attention_bias"));
}

// A checkpoint under construction: names, types and bytes.
class Folder {
 public:
  // A llama of one layer, hidden 4, 1 head of 4, ffn 8, 3 tokens, with ternary matrices of packed
  // bytes over a scale of 0.5, which make weights of 2.
  explicit Folder(const char* scale_sense = "bitlinear") {
    config_ = Json::parse(R"({"architectures":["LlamaForCausalLM"],"hidden_size":4,
      "intermediate_size":8,"num_hidden_layers":1,"num_attention_heads":1,"vocab_size":3,
      "max_position_embeddings":8,"tie_word_embeddings":true,"hidden_act":"silu"})");
    config_["quantization_config"] = {{"quant_method", "bitnet"}, {"linear_class", scale_sense}};
    floats("model.embed_tokens.weight", {3, 4});
    floats("model.norm.weight", {4});
    floats("model.layers.0.input_layernorm.weight", {4});
    floats("model.layers.0.post_attention_layernorm.weight", {4});
    for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                             "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
      const std::string at = std::string("model.layers.0.") + name + ".weight";
      const bool wide = at.find("down") != std::string::npos;
      const bool tall = at.find("gate") != std::string::npos || at.find("up") != std::string::npos;
      packed(at, {tall ? 2U : 1U, wide ? 8U : 4U}, 0x94);  // codes 0, 1, 1, 2
      floats(at + "_scale", {1}, 0.5F);
    }
  }
  Json& config() { return config_; }
  void floats(const std::string& name, std::vector<std::uint64_t> shape, float value = 0.25F) {
    std::uint64_t n = 1;
    for (const std::uint64_t d : shape) n *= d;
    std::string bytes;
    for (std::uint64_t i = 0; i < n; ++i) {
      bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    tensors_[name] = {"F32", std::move(shape), std::move(bytes)};
  }
  void packed(const std::string& name, std::vector<std::uint64_t> shape, unsigned byte) {
    tensors_[name] = {"U8", shape, std::string(shape[0] * shape[1], static_cast<char>(byte))};
  }
  void set_byte(const std::string& name, std::size_t at, unsigned byte) {
    tensors_.at(name).bytes[at] = static_cast<char>(byte);
  }
  void remove(const std::string& name) { tensors_.erase(name); }

  Result<std::unique_ptr<HfModel>> open() {
    Json header;
    std::string data;
    for (const auto& [name, tensor] : tensors_) {
      const std::size_t begin = data.size();
      data += tensor.bytes;
      header[name] = {
          {"dtype", tensor.type}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
    }
    folder_.write("config.json", config_.dump());
    folder_.write("model.safetensors", safetensors_file(header.dump(), data));
    return HfModel::open(folder_.path());
  }
  std::string message() {
    const auto model = open();
    return model ? "" : model.error().message();
  }

 private:
  struct Tensor {
    std::string type;
    std::vector<std::uint64_t> shape;
    std::string bytes;
  };
  Json config_;
  std::map<std::string, Tensor> tensors_;
  TemporaryFolder folder_;
};

constexpr const char* kGate = "model.layers.0.mlp.gate_proj.weight";

std::size_t index_of(const HfModel& model, TensorKind kind) {
  const auto tensors = model.tensors(SectionKind::kLayer, 0);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].kind == kind) return i;
  }
  ADD_FAILURE();
  return 0;
}

// Reads rows of the gate, 8 x 4.
std::vector<float> read_gate(const HfModel& model, std::uint32_t first, std::uint32_t n) {
  std::vector<float> rows(std::size_t{n} * 4);
  const auto status =
      model.read_rows(SectionKind::kLayer, 0, index_of(model, TensorKind::kFfnGate), first, rows);
  EXPECT_TRUE(status.ok()) << status.message();
  return rows;
}

// Byte [k, c] holds rows k, k + 2, k + 4 and k + 6 of column c, the first in its lowest bits.
TEST(HfBitnetTest, FourRowsShareAByte) {
  Folder folder;
  folder.set_byte(kGate, 0, 0b10'01'00'10);  // row 0, column 0
  folder.set_byte(kGate, 7, 0b00'10'10'00);  // row 1, column 3
  const auto model = folder.open();
  ASSERT_TRUE(model) << model.error().message();
  const std::vector<float> all = read_gate(**model, 0, 8);
  const std::vector<float> expected = {
      2,  -2, -2, -2, -2, -2, -2, -2,  // rows 0 and 1
      -2, 0,  0,  0,  0,  0,  0,  2,   // rows 2 and 3
      0,  0,  0,  0,  0,  0,  0,  2,   // rows 4 and 5
      2,  2,  2,  2,  2,  2,  2,  -2,  // rows 6 and 7
  };
  EXPECT_EQ(all, expected);
  for (std::uint32_t first = 0; first < 8; ++first) {  // in pieces, across the fields
    for (std::uint32_t n = 1; first + n <= 8; ++n) {
      const auto begin = expected.begin() + std::ptrdiff_t{4} * first;
      EXPECT_EQ(read_gate(**model, first, n),
                std::vector<float>(begin, begin + std::ptrdiff_t{4} * n));
    }
  }
}

TEST(HfBitnetTest, BothSensesOfTheScale) {
  Folder times("autobitlinear");
  times.floats(std::string(kGate) + "_scale", {1}, 0.75F);
  const auto model = times.open();
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(read_gate(**model, 6, 1), std::vector<float>(4, 0.75F));
  Folder over;
  over.floats(std::string(kGate) + "_scale", {1}, 0.75F);
  const auto inverted = over.open();
  ASSERT_TRUE(inverted) << inverted.error().message();
  EXPECT_EQ(read_gate(**inverted, 6, 1), std::vector<float>(4, 1.0F / 0.75F));
}

// The mean magnitude is 0.5: what is nearer to it than to nothing becomes it.
TEST(HfBitnetTest, MastersAreRoundedByTheirMean) {
  Folder folder("autobitlinear");
  folder.config()["quantization_config"]["quantization_mode"] = "online";
  for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                           "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
    const std::string at = std::string("model.layers.0.") + name + ".weight";
    const bool wide = at.find("down") != std::string::npos;
    const bool tall = at.find("gate") != std::string::npos || at.find("up") != std::string::npos;
    folder.remove(at + "_scale");
    folder.floats(at, {tall ? 8U : 4U, wide ? 8U : 4U}, 0.5F);
  }
  const float row[4] = {-0.875F, 0.24F, 0.25F, 0.635F};  // a tie goes to the even number
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t b = 0; b < 4; ++b) {
      unsigned char bytes[4];
      std::memcpy(bytes, &row[i], 4);
      folder.set_byte(kGate, 4 * i + b, bytes[b]);
    }
  }
  const auto model = folder.open();
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_THAT(read_gate(**model, 0, 1), ElementsAre(-0.5F, 0.0F, 0.0F, 0.5F));
}

TEST(HfBitnetTest, TernaryMatricesAreKeptAsRowsAndFloatsAsTheyAre) {
  Folder folder;
  const auto model = folder.open();
  ASSERT_TRUE(model) << model.error().message();
  const std::size_t gate = index_of(**model, TensorKind::kFfnGate);
  const BlockFormat format = block_format(QuantType::kTernaryRow, 0);
  EXPECT_EQ((*model)->kept_format(SectionKind::kLayer, 0, gate), format);
  EXPECT_EQ((*model)->kept_format(SectionKind::kEmbedding, 0, 0), block_format(QuantType::kF32, 0));
  std::vector<std::byte> bytes(2 * row_major_bytes(format, 4));
  ASSERT_TRUE((*model)->read_kept_rows(SectionKind::kLayer, 0, gate, 5, 2, bytes).ok());
  const std::vector<float> rows = read_gate(**model, 5, 2);
  for (std::size_t r = 0; r < 2; ++r) {
    std::vector<float> decoded(4);
    decode_row(format, ByteSpan(bytes).subspan(r * bytes.size() / 2, bytes.size() / 2), decoded);
    EXPECT_EQ(decoded, std::vector<float>(rows.begin() + std::ptrdiff_t(4 * r),
                                          rows.begin() + std::ptrdiff_t(4 * r + 4)));
  }
}

TEST(HfBitnetTest, RefusesDamagedWeights) {
  Folder invalid;
  invalid.set_byte(kGate, 3, 0xC0);
  const auto model = invalid.open();
  ASSERT_TRUE(model) << model.error().message();
  std::vector<float> rows(8);
  const Status status =
      (*model)->read_rows(SectionKind::kLayer, 0, index_of(**model, TensorKind::kFfnGate), 6, rows);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("code of 3"));

  Folder without;
  without.remove(std::string(kGate) + "_scale");
  EXPECT_THAT(without.message(), HasSubstr("gate_proj.weight_scale"));
  for (const float scale : {0.0F, -1.0F, 1e-44F}) {  // over the last, nothing is finite
    Folder bad;
    bad.floats(std::string(kGate) + "_scale", {1}, scale);
    EXPECT_THAT(bad.message(), HasSubstr("gate_proj.weight_scale")) << scale;
  }
  Folder odd;
  odd.config()["intermediate_size"] = 6;
  EXPECT_THAT(odd.message(), HasSubstr("multiple of 4"));
  Folder shape;
  shape.packed(kGate, {3, 4}, 0x94);
  EXPECT_THAT(shape.message(), HasSubstr("[3, 4], expected [2, 4]"));
  Folder bytes_elsewhere;
  bytes_elsewhere.packed("model.embed_tokens.weight", {3, 4}, 1);
  EXPECT_THAT(bytes_elsewhere.message(), HasSubstr("dtype U8"));
}

}  // namespace
}  // namespace qsf
