// SPDX-License-Identifier: MIT
//
// GGUF files of models with attention and scans beside one another: Nemotron-H, Falcon-H1.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "import/gguf/gguf_model.h"
#include "import/testing/gguf_keys.h"
#include "import/testing/hf_folder.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::GgufKeys;
using testing_support::spec_of;
using testing_support::valid_spec;

// Seven layers: scan, FFN, scan, attention, FFN, scan, FFN.
GgufKeys nemotron_keys(const char* name) {
  GgufKeys keys(name);
  keys.arrays = {{"attention.head_count_kv", {0, 0, 0, 2, 0, 0, 0}},
                 {"feed_forward_length", {0, 80, 0, 0, 80, 0, 80}}};
  keys.numbers = {{"ssm.conv_kernel", 4},
                  {"ssm.inner_size", 96},
                  {"ssm.state_size", 16},
                  {"ssm.time_step_rank", 12},
                  {"ssm.group_count", 2}};
  return keys;
}

GgufKeys nano_keys() {
  GgufKeys keys = nemotron_keys("nemotron_h_moe");
  keys.numbers["expert_count"] = 6;
  keys.numbers["expert_used_count"] = 2;
  keys.numbers["expert_feed_forward_length"] = 24;
  keys.numbers["expert_shared_feed_forward_length"] = 40;
  keys.numbers["expert_shared_count"] = 1;
  keys.numbers["expert_group_count"] = 1;
  keys.floats["expert_weights_scale"] = 2.5F;
  keys.booleans["expert_weights_norm"] = true;
  return keys;
}

TEST(GgufHybridTest, NemotronHasOneSublayerALayer) {
  const ModelSpec s = valid_spec(nemotron_keys("nemotron_h"));
  EXPECT_EQ(s.architecture, "nemotron_h");
  EXPECT_THAT(s.layer_mixers, ElementsAre(2, 4, 2, 0, 4, 2, 4));
  EXPECT_THAT(s.ffn_layers, ElementsAre(0, 1, 0, 0, 1, 0, 1));
  EXPECT_EQ(s.n_kv_heads, 2U);
  EXPECT_EQ(s.ffn, 80U);
  EXPECT_EQ(s.mixer_heads, 12U);
  EXPECT_EQ(s.mixer_head_dim, 8U);
  EXPECT_EQ(s.mixer_groups, 2U);
  EXPECT_EQ(s.activation, Activation::kReluSquared);
  EXPECT_FALSE(s.gated_ffn);
  EXPECT_EQ(s.rope_of(3), LayerRope::kNone);
  EXPECT_EQ(s.n_experts, 0U);
}

TEST(GgufHybridTest, NanoHasExpertsInItsFfns) {
  const ModelSpec s = valid_spec(nano_keys());
  EXPECT_EQ(s.architecture, "nemotron_h_moe");
  EXPECT_EQ(s.n_experts, 6U);
  EXPECT_EQ(s.n_experts_used, 2U);
  EXPECT_EQ(s.expert_ffn, 24U);
  EXPECT_EQ(s.shared_ffn, 40U);
  EXPECT_EQ(s.expert_scale, 2.5F);
  EXPECT_EQ(s.expert_epsilon, 1e-20F);
  EXPECT_EQ(s.expert_scoring, ExpertScoring::kSigmoid);
  EXPECT_TRUE(s.expert_renormalised);
  EXPECT_THAT(s.expert_layers, IsEmpty());
  EXPECT_TRUE(s.has_experts(1) && !s.has_experts(0) && !s.has_experts(3));
  GgufKeys plain = nano_keys();
  plain.booleans["expert_weights_norm"] = false;
  EXPECT_EQ(valid_spec(plain).expert_epsilon, 0.0F);
}

// A block behind the layers predicts further tokens, and is in the lists.
TEST(GgufHybridTest, BlocksOfFurtherTokensAreNoLayers) {
  GgufKeys keys = nano_keys();
  keys.numbers["block_count"] = 8;
  keys.numbers["nextn_predict_layers"] = 1;
  keys.arrays["attention.head_count_kv"].push_back(2);
  keys.arrays["feed_forward_length"].push_back(80);
  EXPECT_EQ(valid_spec(keys), valid_spec(nano_keys()));
}

TEST(GgufHybridTest, WrongKeysAreNamed) {
  const struct {
    void (*change)(GgufKeys&);
    const char* message;
  } cases[] = {
      {[](GgufKeys& k) { k.arrays["attention.head_count_kv"][5] = 4; }, "layers of 2 and of 4"},
      {[](GgufKeys& k) { k.arrays["feed_forward_length"][6] = 84; }, "layers of 80 and of 84"},
      {[](GgufKeys& k) { k.arrays["feed_forward_length"][3] = 80; },
       "layer 3 has both attention and an FFN"},
      {[](GgufKeys& k) { k.arrays["feed_forward_length"].pop_back(); }, "6 values, expected 7"},
      {[](GgufKeys& k) { k.arrays["attention.head_count_kv"][3] = 0; }, "no layer with attention"},
      {[](GgufKeys& k) { k.arrays["feed_forward_length"].assign(7, 0); }, "none with an FFN"},
      {[](GgufKeys& k) { k.numbers["moe_latent_size"] = 16; }, "moe_latent_size\" is 16"},
      {[](GgufKeys& k) { k.numbers["expert_shared_count"] = 2; }, "expert_shared_count\" is 2"},
      {[](GgufKeys& k) { k.numbers["expert_group_count"] = 2; }, "expert_group_count\" is 2"},
      {[](GgufKeys& k) { k.numbers.erase("expert_shared_feed_forward_length"); }, "is missing"},
      {[](GgufKeys& k) { k.numbers["ssm.inner_size"] = 97; }, "expected a multiple of the 12"},
  };
  for (const auto& c : cases) {
    GgufKeys keys = nano_keys();
    c.change(keys);
    const auto spec = spec_of(keys);
    ASSERT_FALSE(spec) << c.message;
    EXPECT_THAT(spec.error().message(), HasSubstr(c.message));
  }
}

TEST(GgufHybridTest, FalconHasBothInEveryLayer) {
  GgufKeys keys = nemotron_keys("falcon-h1");
  keys.arrays.clear();
  keys.floats["rope.freq_base"] = 1e11F;
  const ModelSpec s = valid_spec(keys);
  EXPECT_EQ(s.architecture, "falcon-h1");
  EXPECT_EQ(s.layer_mixers, std::vector<std::uint32_t>(7, 5));
  EXPECT_EQ(s.n_attention_layers(), 7U);
  EXPECT_EQ(s.n_state_layers(), 7U);
  EXPECT_EQ(s.mixer_heads, 12U);
  EXPECT_EQ(s.rope_of(0), LayerRope::kMain);
  EXPECT_EQ(s.rope.theta, 1e11F);
  EXPECT_TRUE(s.gated_ffn);
  keys.numbers.erase("ssm.group_count");
  testing_support::expect_refused(keys, StatusCode::kCorrupt, "ssm.group_count\" is missing");
}

// Its multipliers are not those of the embedding.
TEST(GgufHybridTest, AFalconWithoutAHeadIsRefused) {
  const testing_support::TemporaryFolder folder;
  std::ifstream in(QSF_SOURCE_DIR "/testdata/gguf/falcon_h1.gguf", std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const std::string name = "output.weight";
  const std::size_t at = bytes.find(name);
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, name.size(), "outpux.weight");
  std::ofstream(folder.file("m.gguf"), std::ios::binary) << bytes;
  const auto model = GgufModel::open(folder.file("m.gguf"));
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code(), StatusCode::kUnsupported);
  EXPECT_THAT(model.error().message(),
              HasSubstr("\"output.weight\" is missing, and the embedding of a falcon-h1"));
}

}  // namespace
}  // namespace qsf
