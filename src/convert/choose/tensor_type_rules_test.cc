// SPDX-License-Identifier: MIT

#include "convert/choose/tensor_type_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "import/hf/hf_model.h"
#include "import/testing/hf_folder.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

TEST(TensorTypeRuleTest, IsAPatternAndAType) {
  const auto rule = parse_tensor_type_rule("blk\\.(0|1)=?=q6_k");
  ASSERT_TRUE(rule) << rule.error().message();
  EXPECT_EQ(rule->pattern, "blk\\.(0|1)=?");
  EXPECT_EQ(rule->type, QuantType::kQ6K);
  for (const char* text :
       {"", "ffn_down", "=4bit", "ffn_down=", "ffn_down=5bit", "ffn_down=mixed"}) {
    const auto refused = parse_tensor_type_rule(text);
    ASSERT_FALSE(refused) << text;
    EXPECT_THAT(refused.error().message(), HasSubstr("expected PATTERN=TYPE"));
  }
}

// A model of two layers.
class TensorTypeRulesTest : public testing::Test {
 protected:
  void SetUp() override {
    write_model(folder_, kTinyLlamaConfig, tiny_llama_tensors());
    auto model = HfModel::open(folder_.path());
    ASSERT_TRUE(model) << model.error().message();
    model_ = std::move(*model);
    ASSERT_EQ(model_->spec().n_layers, 2U);
  }
  Result<TensorFormats> formats(std::vector<TensorTypeRule> rules, std::uint32_t block = 64) {
    return formats_by_rules(*model_, rules, block);
  }
  std::optional<QuantType> type_of(const TensorFormats& formats, TensorKind kind,
                                   std::uint32_t layer = 0) {
    const auto format = formats.find(kind, layer);
    return format ? std::optional(format->type) : std::nullopt;
  }
  std::string refusal(std::vector<TensorTypeRule> rules, std::uint32_t block = 64) {
    const auto refused = formats(std::move(rules), block);
    if (refused) return "accepted";
    EXPECT_EQ(refused.error().code(), StatusCode::kInvalidArgument);
    return std::string(refused.error().message());
  }
  TemporaryFolder folder_;
  std::unique_ptr<HfModel> model_;
};

TEST_F(TensorTypeRulesTest, FindsNamesOfGguf) {
  const auto found = formats({{"ffn_down", QuantType::kQ6K},
                              {"BLK\\.1\\.attn_output\\.", QuantType::kQ8},
                              {"^token_embd", QuantType::kQ4}},
                             32);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(type_of(*found, TensorKind::kFfnDown, 0), QuantType::kQ6K);
  EXPECT_EQ(type_of(*found, TensorKind::kFfnDown, 1), QuantType::kQ6K);
  EXPECT_EQ(type_of(*found, TensorKind::kAttnO, 0), std::nullopt);
  EXPECT_EQ(found->find(TensorKind::kAttnO, 1), (BlockFormat{QuantType::kQ8, 32}));
  EXPECT_EQ(type_of(*found, TensorKind::kTokenEmbedding), QuantType::kQ4);
  EXPECT_EQ(type_of(*found, TensorKind::kFfnUp, 0), std::nullopt);
}

TEST_F(TensorTypeRulesTest, TheFirstRuleOfANameCounts) {
  const auto found = formats({{"blk\\.0\\.ffn", QuantType::kQ8}, {"ffn_", QuantType::kQ3}});
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(type_of(*found, TensorKind::kFfnUp, 0), QuantType::kQ8);
  EXPECT_EQ(type_of(*found, TensorKind::kFfnUp, 1), QuantType::kQ3);
  EXPECT_TRUE(formats({}).has_value());
}

TEST_F(TensorTypeRulesTest, NormsHaveNoTypeToChoose) {
  EXPECT_THAT(refusal({{"attn_norm", QuantType::kQ8}}), HasSubstr("in no name"));
}

TEST_F(TensorTypeRulesTest, RefusesWhatFindsNothingAndSaysWhatThereIs) {
  // The second is hidden by the first, and still finds a name.
  EXPECT_TRUE(
      formats({{"ffn_down", QuantType::kQ8}, {"blk.*ffn_down", QuantType::kQ4}}).has_value());
  const std::string said = refusal({{"ffn_down", QuantType::kQ8}, {"down_proj", QuantType::kQ8}});
  EXPECT_THAT(said, HasSubstr("--tensor-type down_proj"));
  EXPECT_THAT(said, HasSubstr("blk.0.ffn_down.weight"));
  EXPECT_THAT(refusal({{"ffn_(down", QuantType::kQ8}}), HasSubstr("not a regular expression"));
  EXPECT_THAT(refusal({{"token_embd", QuantType::kTernary}}), HasSubstr("cannot be ternary"));
}

}  // namespace
}  // namespace qsf
