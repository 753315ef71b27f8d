// SPDX-License-Identifier: MIT
//
// Holds models that qsf-convert has rotated to the logits of transformers: every folder of
// testdata/golden, with f32 weights, at the tolerance of those that are not rotated. A model that a
// rotation does not suit is refused by a message that says why.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/model/testing/golden_model.h"
#include "tools/testing/convert_tool.h"

namespace {

using namespace qsf_tools;
using qsf::testing_support::expect_failure;
using qsf::testing_support::Outcome;
using qsf::testing_support::run;
using qsf::testing_support::TemporaryFolder;
namespace fs = std::filesystem;

constexpr double kTolerance = 1e-4;  // docs/testing.md

// A model and why its residual stream cannot be rotated, in a word; null: it can be.
struct Model {
  const char* name;
  const char* refused;                   // why its stream cannot be rotated, null where it can
  const char* refused_values = nullptr;  // the same of its values
};
const Model kModels[] = {{"llama_mha", nullptr},
                         {"llama_gqa_tied", nullptr},
                         {"llama_biased", nullptr},
                         {"llama3", nullptr},
                         {"llama_linear", nullptr},
                         {"mistral", nullptr},
                         {"qwen2", nullptr},
                         {"qwen2_windows", nullptr},
                         {"qwen25", nullptr},
                         {"qwen3", nullptr},
                         {"qwen3_windows", nullptr},
                         {"smollm2", nullptr},
                         {"phi3", nullptr},
                         {"phi3_gqa", nullptr},
                         {"phi3_long", nullptr},
                         {"phi3_short", nullptr},
                         {"gemma", nullptr},
                         {"gemma_biased", nullptr},
                         {"gemma2", "post_attention"},
                         {"gemma2_untied", "post_attention"},
                         {"gpt2", "LayerNorm"},
                         {"gpt2_erf", "LayerNorm"},
                         {"gpt2_relu", "LayerNorm"},
                         {"gpt2_untied", "LayerNorm"},
                         {"phi2", "LayerNorm"},
                         {"phi2_gqa_tied", "LayerNorm"},
                         {"opt", "LayerNorm"},
                         {"opt_unbiased", "LayerNorm"},
                         {"bloom", "LayerNorm"},
                         {"bloom_heads", "LayerNorm"},
                         {"stablelm", "LayerNorm"},
                         {"stablelm_gqa", "LayerNorm"},
                         {"stablelm_parallel", "LayerNorm"},
                         {"gemma3", "post_attention"},
                         {"gemma3_types", "post_attention"},
                         {"gemma3_vision", "post_attention"},
                         {"smollm3", nullptr},
                         {"smollm3_list", nullptr},
                         {"olmo2", "post_attention"},
                         {"olmo2_gqa", "post_attention"},
                         {"olmo3", "post_attention"},
                         {"granite", nullptr},
                         {"granite_tied", nullptr},
                         {"mixtral", nullptr},
                         {"qwen3_moe", nullptr},
                         {"qwen3_moe_stacked", nullptr},
                         {"olmoe", nullptr},
                         {"granitemoe", nullptr},
                         {"gpt_oss", nullptr},
                         {"gpt_oss_floats", nullptr},
                         {"ministral3", nullptr},
                         {"llama_yarn", nullptr},
                         {"qwen3_yarn", nullptr},
                         {"glm4", "post_self_attn"},
                         {"glm4_unbiased", "post_self_attn"},
                         {"exaone4", "post_attention"},
                         {"exaone4_full", "post_attention"},
                         {"cohere", "LayerNorm"},
                         {"cohere_biased", "LayerNorm"},
                         {"cohere_normed", "LayerNorm"},
                         {"granite4", nullptr},
                         {"olmoe_clipped", nullptr, "clamps"},
                         {"mpt_clipped", "LayerNorm", "clamps"},
                         {"llama_dynamic", nullptr},
                         {"cohere2", "LayerNorm"},
                         {"gpt_neox", "LayerNorm"},
                         {"gpt_neox_sequential", "LayerNorm"},
                         {"starcoder2", "LayerNorm"},
                         {"falcon", "LayerNorm"},
                         {"falcon_groups", "LayerNorm"},
                         {"falcon_one_norm", "LayerNorm"},
                         {"falcon_alibi", "LayerNorm"},
                         {"mpt", "LayerNorm"},
                         {"mpt_heads", "LayerNorm"},
                         {"qwen2_moe", nullptr},
                         {"qwen2_moe_dense", nullptr},
                         {"qwen3_moe_dense", nullptr},
                         {"glm4_moe", nullptr},
                         {"glm4_moe_groups", nullptr},
                         {"granitemoeshared", nullptr},
                         {"phimoe", "LayerNorm"},
                         {"phimoe_long_scale", "LayerNorm"},
                         {"phimoe_short", "LayerNorm"},
                         {"deepseek_v2_lite", nullptr, "normed"},
                         {"deepseek_v2", nullptr, "normed"},
                         {"deepseek_v3", nullptr, "normed"},
                         {"glm4_moe_lite", nullptr, "normed"},
                         {"gemma3n", "correct_output_scale", "heads of their own"},
                         {"gemma3n_rows", "correct_output_scale"},
                         {"gemma4", "post_attention", "heads of their own"},
                         {"gemma4_a4b", "post_attention", "heads of their own"},
                         {"gemma4_e", "post_attention", "heads of their own"},
                         {"llama4", nullptr},
                         {"llama4_dense_layers", nullptr},
                         {"lfm2", nullptr},
                         {"lfm2_types", nullptr},
                         {"lfm2_moe", nullptr},
                         {"lfm2_moe_free", nullptr},
                         {"granite4h", nullptr},
                         {"granite4h_experts", nullptr},
                         {"nemotron_h", nullptr},
                         {"nemotron_h_moe", nullptr},
                         {"nemotron_h_mixed", nullptr},
                         {"falcon_h1", nullptr},
                         {"falcon_h1_normed", nullptr},
                         {"qwen3_5", nullptr, "q_proj"},
                         {"qwen3_5_moe", nullptr, "q_proj"},
                         {"qwen3_next", nullptr, "q_proj"}};

fs::path golden_folder() {
  return fs::path(QSF_SOURCE_DIR) / "testdata/golden";
}

class RotatedLogitsTest : public testing::TestWithParam<Model> {
 protected:
  Outcome convert(const std::string& rotation) const {
    return run({"--quiet", "--quant-type", "f32", "--rotate", rotation,
                (golden_folder() / GetParam().name).string(), file(rotation)});
  }
  std::string file(const std::string& rotation) const { return out_.file(rotation + ".qsf"); }

  // A short prompt and a long one, each with the generated tokens behind it.
  void expect_golden_logits(const std::string& rotation) const {
    const Golden golden(golden_folder() / GetParam().name / "expected.bin");
    ASSERT_EQ(golden.cases.size(), 8U);
    const EnginePtr engine = open_engine(file(rotation), QSF_KV_F32, 0, 2);
    ASSERT_NE(engine, nullptr);
    for (const std::size_t i : {std::size_t{1}, std::size_t{5}}) {
      const Golden::Case& item = golden.cases[i];
      const double error = largest_error(run_case(engine.get(), golden, item), item.rows);
      EXPECT_LE(error, kTolerance * golden.largest) << rotation << ", " << item.prompt_length;
      RecordProperty(rotation + "_" + std::to_string(item.prompt_length),
                     std::to_string(error / golden.largest));
    }
  }

  TemporaryFolder out_;
};

TEST_P(RotatedLogitsTest, RotationChangesNoLogitsOrIsRefused) {
  const Outcome plain = convert("none");
  ASSERT_EQ(plain.code, 0) << plain.err;
  const Outcome values = convert("values");
  const char* const refused_values = GetParam().refused_values;
  if (refused_values != nullptr) {
    expect_failure(values, 1, refused_values);
  } else {
    ASSERT_EQ(values.code, 0) << values.err;
    EXPECT_NE(out_.read("values.qsf"), out_.read("none.qsf"));
    expect_golden_logits("values");
  }

  for (const char* rotation : {"stream", "all"}) {
    const Outcome outcome = convert(rotation);
    const bool all = rotation == std::string("all");
    const char* const why = all && refused_values != nullptr ? refused_values : GetParam().refused;
    if (why != nullptr) {
      expect_failure(outcome, 1, why);
      EXPECT_FALSE(fs::exists(file(rotation)));
      continue;
    }
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const char* const other = refused_values != nullptr ? "none.qsf" : "values.qsf";
    EXPECT_NE(out_.read(std::string(rotation) + ".qsf"), out_.read(other));
    expect_golden_logits(rotation);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RotatedLogitsTest, testing::ValuesIn(kModels),
                         [](const auto& model) { return std::string(model.param.name); });

// Every golden model is here.
TEST(RotatedModelsTest, AreAllOfThem) {
  std::size_t n_models = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(golden_folder())) {
    if (entry.is_directory()) ++n_models;
  }
  EXPECT_EQ(std::size(kModels), n_models);
}

}  // namespace
