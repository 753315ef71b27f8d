// SPDX-License-Identifier: MIT
//
// gpt-oss: its published config.json, and its matrices of MXFP4, kept as stored or refused by name.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "import/hf/hf_config.h"
#include "import/hf/hf_model.h"
#include "import/testing/hf_folder.h"
#include "import/testing/published_config.h"
#include "quant/codec.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using K = TensorKind;
using namespace testing_support;

Json gpt_oss_20b() {
  Json json = Json::parse(R"({"architectures":["GptOssForCausalLM"],"attention_bias":true,
    "attention_dropout":0.0,"eos_token_id":200002,"experts_per_token":4,"head_dim":64,
    "hidden_act":"silu","hidden_size":2880,"initial_context_length":4096,
    "intermediate_size":2880,"max_position_embeddings":131072,"model_type":"gpt_oss",
    "num_attention_heads":64,"num_experts_per_tok":4,"num_hidden_layers":24,
    "num_key_value_heads":8,"num_local_experts":32,"pad_token_id":199999,
    "quantization_config":{"modules_to_not_convert":["model.layers.*.self_attn","lm_head"],
      "quant_method":"mxfp4"},
    "rms_norm_eps":1e-05,"rope_scaling":{"beta_fast":32.0,"beta_slow":1.0,"factor":32.0,
      "original_max_position_embeddings":4096,"rope_type":"yarn","truncate":false},
    "rope_theta":150000,"sliding_window":128,"swiglu_limit":7.0,"tie_word_embeddings":false,
    "vocab_size":201088})");
  for (int i = 0; i < 24; ++i) {
    json["layer_types"].push_back(i % 2 == 0 ? "sliding_attention" : "full_attention");
  }
  return json;
}

TEST(HfGptOssTest, Of20BAndOfTheClass) {
  Json json = gpt_oss_20b();
  const HfConfig config = parsed(json);
  const ModelSpec& s = config.spec;
  EXPECT_EQ(s.architecture, "gpt-oss");
  expect_sizes(s, 2880, 24, 64, 8, 64, 2880);
  EXPECT_EQ(s.n_experts, 32U);
  EXPECT_EQ(s.n_experts_used, 4U);
  EXPECT_EQ(s.expert_ffn, 2880U);
  EXPECT_TRUE(s.expert_renormalised && s.gated_ffn && config.qkv_bias && config.attn_out_bias);
  EXPECT_EQ(s.activation, Activation::kSwishClamped);
  for (std::uint32_t i = 0; i < 24; ++i) EXPECT_EQ(s.window_of(i), i % 2 == 0 ? 128U : 0U);
  EXPECT_EQ(s.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(s.rope.theta, 150000.0F);
  EXPECT_EQ(s.rope.factor, 32.0F);
  EXPECT_EQ(s.rope.original_context, 4096U);
  EXPECT_FALSE(s.rope.truncate);
  EXPECT_FLOAT_EQ(s.rope.attention_factor, 1.0F + 0.1F * std::log(32.0F));
  EXPECT_EQ(config.ternary, TernaryStorage::kNone);
  // What the class says where a file does not.
  for (const char* key : {"layer_types", "rope_scaling", "rope_theta", "sliding_window",
                          "swiglu_limit", "attention_bias", "quantization_config"}) {
    json.erase(key);
  }
  EXPECT_EQ(parsed(json).spec, s);
  json["sliding_window"] = nullptr;
  EXPECT_TRUE(parsed(json).spec.sliding_window.empty());
}

TEST(HfGptOssTest, OtherGraphsAreRefusedByName) {
  expect_refused(gpt_oss_20b(), "swiglu_limit", 10.0);
  expect_refused(gpt_oss_20b(), "swiglu_alpha", 1.5);
  expect_refused(gpt_oss_20b(), "hidden_act", "gelu");
  expect_refused(gpt_oss_20b(), "quantization_config", {{"quant_method", "awq"}});
  expect_statuses(gpt_oss_20b(), {"swiglu_alpha"});
  Json llama = Json::parse(R"({"architectures":["LlamaForCausalLM"],"hidden_size":8,
    "intermediate_size":8,"num_hidden_layers":1,"num_attention_heads":1,"vocab_size":8,
    "max_position_embeddings":8,"quantization_config":{"quant_method":"mxfp4"}})");
  EXPECT_THAT(message_of(llama), HasSubstr("quantization_config: method \"mxfp4\""));
}

// A copy of the golden folder in which one thing was changed.
class ChangedFolder {
 public:
  using Change = std::function<void(Json& header, std::string& data)>;
  explicit ChangedFolder(const Change& change) {
    const std::filesystem::path source = QSF_SOURCE_DIR "/testdata/golden/gpt_oss";
    std::filesystem::copy(source, folder_.path(),
                          std::filesystem::copy_options::recursive |
                              std::filesystem::copy_options::overwrite_existing);
    const std::string file = folder_.read("model.safetensors");
    std::uint64_t n = 0;
    std::memcpy(&n, file.data(), 8);
    Json header = Json::parse(file.substr(8, n));
    std::string data = file.substr(8 + n);
    change(header, data);
    folder_.write("model.safetensors", safetensors_file(header.dump(), data));
    auto opened = HfModel::open(folder_.path());
    if (opened) {
      model = *std::move(opened);
    } else {
      message = opened.error().message();
    }
  }

  std::unique_ptr<HfModel> model;
  std::string message;

 private:
  TemporaryFolder folder_;
};

constexpr char kExperts[] = "model.layers.1.mlp.experts.";

std::size_t offset_of(const Json& header, const std::string& name) {
  return header.at(kExperts + name).at("data_offsets").at(0).get<std::size_t>();
}

std::size_t index_of(const HfModel& model, K kind, std::uint32_t expert) {
  const auto list = model.tensors(SectionKind::kLayer, 1);
  std::size_t i = 0;
  while (list[i].kind != kind || list[i].expert != expert) ++i;
  return i;
}

// Every block and scale of every expert's matrix, from the bytes of the file itself.
TEST(HfGptOssTest, Mxfp4IsKeptAsStored) {
  Json header;
  std::string data;
  const ChangedFolder folder([&](Json& h, std::string& d) {
    header = h;
    data = d;
  });
  ASSERT_NE(folder.model, nullptr) << folder.message;
  constexpr float kValues[] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  for (const auto& [kind, name, step, first] : {std::tuple{K::kExpertGate, "gate_up_proj", 2, 0},
                                                std::tuple{K::kExpertUp, "gate_up_proj", 2, 1},
                                                std::tuple{K::kExpertDown, "down_proj", 1, 0}}) {
    const auto* blocks = data.data() + offset_of(header, std::string(name) + "_blocks");
    const auto* scales = data.data() + offset_of(header, std::string(name) + "_scales");
    for (std::uint32_t expert = 0; expert < 5; ++expert) {
      const std::size_t index = index_of(*folder.model, kind, expert);
      const SourceTensor& t = folder.model->tensors(SectionKind::kLayer, 1)[index];
      EXPECT_EQ(t.type, "MXFP4");
      EXPECT_EQ(folder.model->kept_format(SectionKind::kLayer, 1, index),
                block_format(QuantType::kMxfp4, 0));
      std::vector<float> floats(std::size_t{t.rows} * t.cols);
      ASSERT_TRUE(folder.model->read_rows(SectionKind::kLayer, 1, index, 0, floats).ok());
      const std::size_t row_bytes = row_major_bytes(block_format(QuantType::kMxfp4, 0), t.cols);
      std::vector<std::byte> kept(t.rows * row_bytes);
      ASSERT_TRUE(
          folder.model->read_kept_rows(SectionKind::kLayer, 1, index, 0, t.rows, kept).ok());
      for (std::uint32_t r = 0; r < t.rows; ++r) {
        std::vector<float> row(t.cols);
        decode_row(block_format(QuantType::kMxfp4, 0),
                   ByteSpan(kept).subspan(r * row_bytes, row_bytes), row);
        const std::size_t stored = std::size_t{expert} * t.rows * step + r * step + first;
        for (std::uint32_t c = 0; c < t.cols; ++c) {
          const auto byte = static_cast<unsigned char>(blocks[(stored * t.cols + c) / 2]);
          const unsigned code = byte >> (c % 2 * 4) & 15U;
          const auto scale = static_cast<unsigned char>(scales[(stored * t.cols + c) / 32]);
          const float value = std::ldexp(kValues[code % 8], static_cast<int>(scale) - 127);
          ASSERT_EQ(row[c], code < 8 ? value : -value) << t.name << " " << expert << " " << r;
          ASSERT_EQ(floats[std::size_t{r} * t.cols + c], row[c]);
        }
      }
    }
  }
}

TEST(HfGptOssTest, DamagedMxfp4IsNamed) {
  const std::string scales = "gate_up_proj_scales";
  for (const unsigned char bad : {255, 253}) {
    const ChangedFolder folder([&](Json& header, std::string& data) {
      data[offset_of(header, scales)] = static_cast<char>(bad);
    });
    ASSERT_NE(folder.model, nullptr) << folder.message;
    const std::size_t index = index_of(*folder.model, K::kExpertGate, 0);
    std::vector<float> row(folder.model->tensors(SectionKind::kLayer, 1)[index].cols);
    const Status status = folder.model->read_rows(SectionKind::kLayer, 1, index, 0, row);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr(kExperts + scales));
    EXPECT_THAT(status.message(), HasSubstr(bad == 255 ? "255, not a number" : "f32 lacks"));
  }
  const auto message = [&](const ChangedFolder::Change& change) {
    return ChangedFolder(change).message;
  };
  const std::string missing = message([&](Json& header, std::string&) {
    header["other"] = header[kExperts + scales];
    header.erase(kExperts + scales);
  });
  EXPECT_THAT(missing, HasSubstr("\"" + std::string(kExperts) + scales + "\" is missing"));
  const std::string shape = message([&](Json& header, std::string&) {
    header[kExperts + scales]["shape"] = {header[kExperts + scales]["shape"][0], 64, 2};
  });
  EXPECT_THAT(shape, HasSubstr(scales + "\": shape [5, 64, 2], expected [5, 128, 1]"));
  const std::string type =
      message([&](Json& header, std::string&) { header[kExperts + scales]["dtype"] = "I8"; });
  EXPECT_THAT(type, HasSubstr(scales + "\": dtype I8"));
  const std::string extra = message([&](Json& header, std::string& data) {
    header["model.layers.0.self_attn.q_norm.weight"] = {
        {"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {data.size(), data.size() + 4}}};
    data += std::string(4, '\1');
  });
  EXPECT_THAT(extra, HasSubstr("self_attn.q_norm.weight"));
}

}  // namespace
}  // namespace qsf
