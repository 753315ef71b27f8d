// SPDX-License-Identifier: MIT
//
// Tests of the spec and its metadata: every field survives, every range and relation is held.

#include "format/model_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "format/qsf_layout.h"
#include "format/spec_keys.h"
#include "format/testing/small_models.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing_support::compressed_model;
using testing_support::embedding_spec;
using testing_support::full_model;
using testing_support::longrope_model;
using testing_support::minimal_model;
using testing_support::shaped_spec;
using testing_support::stream_spec;
using testing_support::types_model;

using HeaderBytes = std::array<std::byte, kHeaderBytes>;

HeaderBytes header_of(const ModelSpec& spec) {
  HeaderBytes header{};
  encode_spec_header(spec, header);
  return header;
}

// The files of the small models are older than this key.
ModelSpec int8_rows_spec() {
  ModelSpec spec = minimal_model().spec;
  spec.int8_rows = true;
  return spec;
}

ModelSpec mtp_spec() {
  ModelSpec spec = minimal_model().spec;
  spec.mtp_block = true;
  return spec;
}

ModelSpec experts_spec() {
  ModelSpec spec = full_model().spec;
  spec.expert_renormalised = true;
  spec.expert_layers = {0, 1};
  spec.shared_ffn = 9;
  spec.expert_hits.assign(16, 0.5F);
  return spec;
}

ModelSpec beside_spec() {
  ModelSpec spec = experts_spec();
  spec.experts_beside_ffn = true;
  return spec;
}

ModelSpec sparsemixer_spec() {
  ModelSpec spec = longrope_model().spec;
  spec.rope.short_attention_factor = 0.75F;
  spec.n_experts = 5;
  spec.n_experts_used = 2;
  spec.expert_ffn = 9;
  spec.expert_scoring = ExpertScoring::kSparsemixer;
  spec.expert_margin = 0.01F;
  return spec;
}

ModelSpec sigmoid_spec() {
  ModelSpec spec = experts_spec();
  spec.n_experts = 12;
  spec.n_experts_used = 4;
  spec.expert_scoring = ExpertScoring::kSigmoid;
  spec.expert_epsilon = 1e-20F;
  spec.expert_scale = 2.5F;
  spec.expert_groups = 4;
  spec.expert_groups_used = 2;
  return spec;
}

ModelSpec states_spec() {
  ModelSpec spec = full_model().spec;
  spec.layer_mixers.assign(spec.n_layers, 0);
  spec.layer_mixers[0] = 1;
  spec.conv_taps = 3;
  return spec;
}

ModelSpec scans_spec() {
  ModelSpec spec = states_spec();
  spec.layer_mixers[0] = 2;
  spec.mixer_heads = 6;
  spec.mixer_head_dim = 5;
  spec.mixer_state = 16;
  spec.mixer_groups = 3;
  return spec;
}

ModelSpec latent_spec() {
  ModelSpec spec = sigmoid_spec();
  spec.positions = PositionEncoding::kRope;
  spec.rope.dims = 8;
  spec.n_kv_heads = 1;
  spec.latent_dim = 24;
  spec.head_dim = 32;
  spec.latent_query_dim = 20;
  spec.latent_key_dim = 12;
  spec.latent_value_dim = 10;
  spec.latent_epsilon = 1e-4F;
  spec.attention_scale = 0.3F;
  return spec;
}

ModelSpec delta_rules_spec() {
  ModelSpec spec = scans_spec();
  spec.layer_mixers[0] = 3;
  spec.mixer_heads_in_turn = true;
  return spec;
}

ModelSpec bf16_biases_spec() {
  ModelSpec spec = minimal_model().spec;
  spec.positions = PositionEncoding::kAlibi;
  spec.rope = {};
  spec.bf16_biases = true;
  return spec;
}

ModelSpec chunks_spec() {
  ModelSpec spec = experts_spec();
  spec.positions = PositionEncoding::kRope;
  spec.rope.dims = 0;
  spec.sliding_window.assign(spec.n_layers, 40);
  spec.chunked_windows = true;
  spec.query_position_scale = 0.1F;
  spec.query_position_step = 30;
  spec.unit_head_norms = true;
  spec.weighs_expert_inputs = true;
  return spec;
}

// One layer without an FFN, the others with one.
ModelSpec single_sublayers_spec() {
  ModelSpec spec = scans_spec();
  spec.ffn_layers.assign(spec.n_layers, 1);
  spec.ffn_layers[0] = 0;
  return spec;
}

ModelSpec scans_and_attention_spec() {
  ModelSpec spec = scans_spec();
  spec.layer_mixers.assign(spec.n_layers, 5);
  return spec;
}

// So they are than these.
ModelSpec yarn_spec() {
  ModelSpec spec = longrope_model().spec;
  spec.rope = {.theta = 500.0F,
               .scaling = RopeScaling::kYarn,
               .factor = 8.0F,
               .original_context = 64,
               .attention_factor = 1.25F,
               .beta_fast = 16.0F,
               .beta_slow = 2.0F,
               .truncate = false};
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer)
    spec.layer_rope.push_back(layer % 3);
  spec.local_rope_theta = 77.0F;
  spec.query_position_scale = 0.1F;
  spec.qkv_clip = 6.0F;
  return spec;
}

TEST(ModelSpecTest, SurvivesHeaderAndMetadata) {
  for (const ModelSpec& spec : {minimal_model().spec,
                                types_model().spec,
                                compressed_model().spec,
                                full_model().spec,
                                longrope_model().spec,
                                int8_rows_spec(),
                                mtp_spec(),
                                yarn_spec(),
                                experts_spec(),
                                sigmoid_spec(),
                                sparsemixer_spec(),
                                states_spec(),
                                scans_spec(),
                                latent_spec(),
                                delta_rules_spec(),
                                shaped_spec(),
                                beside_spec(),
                                chunks_spec(),
                                bf16_biases_spec(),
                                single_sublayers_spec(),
                                scans_and_attention_spec()}) {
    ASSERT_TRUE(validate(spec).ok()) << validate(spec).message();
    const Metadata metadata = encode_spec_metadata(spec);
    const auto back = decode_spec(header_of(spec), metadata);
    ASSERT_TRUE(back) << back.error().message();
    EXPECT_EQ(*back, spec);
    ByteWriter bytes;
    metadata.encode(bytes);
    ByteReader reader(bytes.view());
    EXPECT_EQ(*Metadata::decode(reader, static_cast<std::uint32_t>(metadata.entries().size())),
              metadata);
  }
}

// The full model is only full if every known key is in it or in one of the others.
TEST(ModelSpecTest, TheSmallModelsUseEveryKey) {
  for (const std::string_view key : keys::kAll) {
    bool used = key == keys::kFileBytes;
    for (const ModelSpec& spec : {full_model().spec,  types_model().spec, longrope_model().spec,
                                  int8_rows_spec(),   mtp_spec(),         yarn_spec(),
                                  experts_spec(),     sigmoid_spec(),     sparsemixer_spec(),
                                  states_spec(),      scans_spec(),       latent_spec(),
                                  delta_rules_spec(), shaped_spec(),      beside_spec(),
                                  chunks_spec(),      bf16_biases_spec(), single_sublayers_spec(),
                                  embedding_spec(),   stream_spec()}) {
      used = used || encode_spec_metadata(spec).contains(key);
    }
    EXPECT_TRUE(used) << key;
  }
}

TEST(ModelSpecTest, RefusesEveryFieldOutOfRange) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::function<void(ModelSpec&)> faults[] = {
      [](ModelSpec& s) { s.architecture = ""; },
      [](ModelSpec& s) { s.architecture = "a b"; },
      [](ModelSpec& s) { s.architecture = std::string(65, 'a'); },
      [](ModelSpec& s) { s.n_layers = 0; },
      [](ModelSpec& s) { s.n_layers = 4097; },
      [](ModelSpec& s) { s.hidden = 0; },
      [](ModelSpec& s) { s.hidden = (1U << 20) + 1; },
      [](ModelSpec& s) { s.n_heads = 0; },
      [](ModelSpec& s) { s.n_heads = 3; },
      [](ModelSpec& s) { s.n_kv_heads = 0; },
      [](ModelSpec& s) { s.n_kv_heads = 8; },
      [](ModelSpec& s) { s.head_dim = 0; },
      [](ModelSpec& s) { s.head_dim = 65536, s.n_heads = s.n_kv_heads = 65536; },
      [](ModelSpec& s) { s.n_vocab = 0; },
      [](ModelSpec& s) { s.n_vocab = UINT32_MAX; },
      [](ModelSpec& s) { s.max_positions = 0; },
      [](ModelSpec& s) { s.max_positions = (1U << 26) + 1; },
      [](ModelSpec& s) { s.ffn = 0; },
      [](ModelSpec& s) { s.block = 0; },
      [](ModelSpec& s) { s.block = 96; },
      [](ModelSpec& s) { s.norm_epsilon = 0.0F; },
      [=](ModelSpec& s) { s.norm_epsilon = kNan; },
      [=](ModelSpec& s) { s.rope.theta = kInf; },
      [](ModelSpec& s) { s.rope.theta = 0.0F; },
      [](ModelSpec& s) { s.rope.theta = 0.99F; },
      [](ModelSpec& s) { s.rope.dims = 7; },
      [](ModelSpec& s) { s.rope.dims = 10; },
      [](ModelSpec& s) { s.rope.factor = 0.5F; },
      [](ModelSpec& s) { s.rope.scaling = RopeScaling::kLlama3; },
      [](ModelSpec& s) {
        s.rope.scaling = RopeScaling::kLlama3;
        s.rope.original_context = 8192;
        s.rope.low_freq_factor = 4.5F;
      },
      [](ModelSpec& s) {
        s.sliding_window = {1, 2, 3};
      },
      [=](ModelSpec& s) { s.attention_scale = kNan; },
      [](ModelSpec& s) { s.logit_soft_cap = -1.0F; },
      [](ModelSpec& s) { s.logit_scale = 0.0F; },
      [](ModelSpec& s) { s.n_experts_used = 3; },
      [](ModelSpec& s) {
        s.n_experts = s.n_experts_used = s.expert_ffn = 0;
        s.expert_renormalised = true;
      },
      [](ModelSpec& s) { s.n_experts = 0; },
      [](ModelSpec& s) { s.bos_id = s.n_vocab; },
      [](ModelSpec& s) { s.pad_id = UINT32_MAX; },
      [](ModelSpec& s) {
        s.eos_ids = {1, s.n_vocab};
      },
      [](ModelSpec& s) { s.eos_ids.assign(2000, 1); },
      [](ModelSpec& s) { s.chat_template = "a\xFF"; },
      [](ModelSpec& s) { s.quantiser = std::string(1, '\0'); },
      [](ModelSpec& s) { s.source = "\xC3"; },
      [](ModelSpec& s) { s.extra.set_text("user.x", "\xED\xA0\x80"); },
      [](ModelSpec& s) { s.extra.set_u32(keys::kRopeDims, 4); },
      [](ModelSpec& s) { s.extra.set_u32("user.x", 4, /*required=*/true); },
  };
  int index = 0;
  for (const auto& fault : faults) {
    ModelSpec spec = full_model().spec;
    fault(spec);
    EXPECT_EQ(validate(spec).code(), StatusCode::kInvalidArgument) << "fault " << index;
    ++index;
  }
}

TEST(ModelSpecTest, RefusesEveryExpertFieldOutOfRange) {
  const std::function<void(ModelSpec&)> faults[] = {
      [](ModelSpec& s) { s.expert_layers = {1}; },
      [](ModelSpec& s) {
        s.expert_layers = {1, 2};
      },
      [](ModelSpec& s) {
        s.expert_layers = {0, 0};
      },
      [](ModelSpec& s) { s.shared_ffn = (1U << 24) + 1; },
      [](ModelSpec& s) {
        s = minimal_model().spec;
        s.shared_ffn = 8;
      },
      [](ModelSpec& s) {
        s = minimal_model().spec;
        s.expert_layers.assign(s.n_layers, 1);
      },
      [](ModelSpec& s) {
        s = minimal_model().spec;
        s.expert_hits.assign(16, 0.5F);
      },
      [](ModelSpec& s) { s.expert_hits.pop_back(); },
      [](ModelSpec& s) { s.expert_hits[15] = 1.5F; },
  };
  ASSERT_TRUE(validate(experts_spec()).ok()) << validate(experts_spec()).message();
  int index = 0;
  for (const auto& fault : faults) {
    ModelSpec spec = experts_spec();
    fault(spec);
    EXPECT_EQ(validate(spec).code(), StatusCode::kInvalidArgument) << "fault " << index;
    ++index;
  }
  for (const char* key :
       {keys::kExpertLayers, keys::kExpertSharedFfn, keys::kExpertScoring, keys::kExpertEpsilon,
        keys::kExpertScale, keys::kExpertGroups, keys::kExpertGroupsUsed}) {
    EXPECT_TRUE(encode_spec_metadata(sigmoid_spec()).find(key)->required) << key;
  }
  // It changes no result.
  EXPECT_FALSE(encode_spec_metadata(sigmoid_spec()).find(keys::kExpertHits)->required);
}

TEST(ModelSpecTest, RefusesLatentAttentionOutOfRange) {
  const std::function<void(ModelSpec&)> faults[] = {
      [](ModelSpec& s) { s.latent_dim = 0; },
      [](ModelSpec& s) { s.latent_dim = 25; },
      [](ModelSpec& s) { s.head_dim = 33; },
      [](ModelSpec& s) { s.rope.dims = 0; },
      [](ModelSpec& s) { s.n_kv_heads = s.n_heads; },
      [](ModelSpec& s) { s.latent_key_dim = 0; },
      [](ModelSpec& s) { s.latent_value_dim = 0; },
      [](ModelSpec& s) { s.latent_value_dim = (1U << 16) + 1; },
      [](ModelSpec& s) { s.latent_query_dim = (1U << 16) + 1; },
      [](ModelSpec& s) { s.latent_epsilon = 0.0F; },
      [](ModelSpec& s) { s.attention_scale = 0.0F; },
      [](ModelSpec& s) {
        s.positions = PositionEncoding::kAlibi;
        s.rope = {};
      },
  };
  ASSERT_TRUE(validate(latent_spec()).ok()) << validate(latent_spec()).message();
  int index = 0;
  for (const auto& fault : faults) {
    ModelSpec spec = latent_spec();
    fault(spec);
    EXPECT_EQ(validate(spec).code(), StatusCode::kInvalidArgument) << "fault " << index;
    ++index;
  }
  for (const char* key : {keys::kLatentColumns, keys::kLatentQueryColumns, keys::kLatentKeyColumns,
                          keys::kLatentValueColumns, keys::kLatentEpsilon}) {
    EXPECT_TRUE(encode_spec_metadata(latent_spec()).find(key)->required) << key;
  }
}

TEST(ModelSpecTest, RefusesBiasesInBf16WithoutAlibi) {
  ModelSpec spec = bf16_biases_spec();
  EXPECT_TRUE(encode_spec_metadata(spec).find(keys::kAttentionBf16Biases)->required);
  spec.positions = PositionEncoding::kLearned;
  EXPECT_EQ(validate(spec).message(), "biases in bf16: positions are learned, expected alibi");
}

TEST(ModelSpecTest, RefusesChunksStepsAndWeighedInputsOfNothing) {
  const std::function<void(ModelSpec&)> faults[] = {
      [](ModelSpec& s) { s.sliding_window.clear(); },
      [](ModelSpec& s) { s.query_position_scale = 0.0F; },
      [](ModelSpec& s) {
        s.n_experts = s.n_experts_used = s.expert_ffn = s.shared_ffn = 0;
        s.expert_layers.clear();
        s.expert_renormalised = false;
      },
      [](ModelSpec& s) {
        s.positions = PositionEncoding::kAlibi;
        s.query_position_scale = 0.0F;
        s.query_position_step = 0;
        s.layer_rope.clear();
        s.rope = {};
      },
  };
  ASSERT_TRUE(validate(chunks_spec()).ok()) << validate(chunks_spec()).message();
  int index = 0;
  for (const auto& fault : faults) {
    ModelSpec spec = chunks_spec();
    fault(spec);
    EXPECT_EQ(validate(spec).code(), StatusCode::kInvalidArgument) << "fault " << index;
    ++index;
  }
  for (const char* key : {keys::kAttentionChunked, keys::kAttentionPositionStep,
                          keys::kAttentionUnitNorms, keys::kExpertWeighsInputs}) {
    EXPECT_TRUE(encode_spec_metadata(chunks_spec()).find(key)->required) << key;
  }
}

TEST(ModelSpecTest, RefusesStatesOutOfRange) {
  const std::function<void(ModelSpec&)> faults[] = {
      [](ModelSpec& s) { s.layer_mixers = {1}; },
      [](ModelSpec& s) { s.layer_mixers[0] = 2; },
      [](ModelSpec& s) { s.layer_mixers[0] = 0; },
      [](ModelSpec& s) { s.layer_mixers.assign(s.n_layers, 1); },
      [](ModelSpec& s) { s.layer_mixers.clear(); },
      [](ModelSpec& s) { s.conv_taps = 1; },
      [](ModelSpec& s) { s.conv_taps = 17; },
  };
  ASSERT_TRUE(validate(states_spec()).ok()) << validate(states_spec()).message();
  int index = 0;
  for (const auto& fault : faults) {
    ModelSpec spec = states_spec();
    fault(spec);
    EXPECT_EQ(validate(spec).code(), StatusCode::kInvalidArgument) << "fault " << index;
    ++index;
  }
  for (const char* key : {keys::kMixerLayers, keys::kMixerTaps}) {
    EXPECT_TRUE(encode_spec_metadata(states_spec()).find(key)->required) << key;
  }
}

TEST(ModelSpecTest, RefusesFfnsByLayerThatDoNotFit) {
  const struct {
    std::function<void(ModelSpec&)> fault;
    const char* message;
  } cases[] = {
      {[](ModelSpec& s) { s.ffn_layers.push_back(1); }, "expected one a layer"},
      {[](ModelSpec& s) { s.ffn_layers[0] = 2; }, "FFN by layer: 2, expected 0 to 1"},
      {[](ModelSpec& s) { s.ffn_layers.assign(s.n_layers, 0); }, "has one"},
      {[](ModelSpec& s) {
         s.layer_mixers.push_back(4);
         s.ffn_layers.push_back(0);
         s.sliding_window.clear();
         ++s.n_layers;
       },
       "has neither a mixer nor an FFN"},
      {[](ModelSpec& s) { s.layer_mixers[1] = 6; }, "mixers by layer: 6, expected 0 to 5"},
      {[](ModelSpec& s) { s.layer_mixers.assign(s.n_layers, 4); }, "heads of scans"},
      {[](ModelSpec& s) {
         s.n_experts = 4;
         s.n_experts_used = 2;
         s.expert_ffn = 8;
         s.expert_layers.assign(s.n_layers, 0);
         s.expert_layers[0] = 1;
       },
       "has one of experts"},
  };
  for (const auto& c : cases) {
    ModelSpec spec = single_sublayers_spec();
    c.fault(spec);
    const Status status = validate(spec);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(status.message(), HasSubstr(c.message));
  }
  EXPECT_TRUE(encode_spec_metadata(single_sublayers_spec()).find(keys::kFfnLayers)->required);
  EXPECT_TRUE(scans_and_attention_spec().has_state());
  EXPECT_EQ(scans_and_attention_spec().n_attention_layers(), scans_spec().n_layers);
}

TEST(ModelSpecTest, RefusesScansOutOfRange) {
  const std::function<void(ModelSpec&)> faults[] = {
      [](ModelSpec& s) { s.layer_mixers[0] = 1; },  // sizes of what no layer has
      [](ModelSpec& s) { s.layer_mixers[0] = 4; },
      [](ModelSpec& s) { s.layer_mixers[1] = 1; },  // both kinds
      [](ModelSpec& s) { s.layer_mixers[1] = 3; },
      [](ModelSpec& s) { s.mixer_heads_in_turn = true; },
      [](ModelSpec& s) { s.mixer_heads = 0; },
      [](ModelSpec& s) { s.mixer_heads = 1026; },
      [](ModelSpec& s) { s.mixer_head_dim = 0; },
      [](ModelSpec& s) { s.mixer_head_dim = 257; },
      [](ModelSpec& s) { s.mixer_state = 0; },
      [](ModelSpec& s) { s.mixer_state = 1025; },
      [](ModelSpec& s) { s.mixer_groups = 0; },
      [](ModelSpec& s) { s.mixer_groups = 4; },  // does not divide 6
      [](ModelSpec& s) { s.mixer_groups = 12; },
      [](ModelSpec& s) { s.conv_taps = 1; },
  };
  ModelSpec largest = scans_spec();
  ASSERT_TRUE(validate(largest).ok()) << validate(largest).message();
  int index = 0;
  for (const auto& fault : faults) {
    ModelSpec spec = scans_spec();
    fault(spec);
    EXPECT_EQ(validate(spec).code(), StatusCode::kInvalidArgument) << "fault " << index;
    ++index;
  }
  for (const char* key :
       {keys::kMixerHeads, keys::kMixerHeadDim, keys::kMixerState, keys::kMixerGroups}) {
    EXPECT_TRUE(encode_spec_metadata(scans_spec()).find(key)->required) << key;
  }
  EXPECT_TRUE(encode_spec_metadata(delta_rules_spec()).find(keys::kMixerHeadsInTurn)->required);
  // Nothing wraps at the limits.
  largest.mixer_heads = largest.mixer_state = largest.mixer_groups = 1024;
  largest.mixer_head_dim = 256;
  ASSERT_TRUE(validate(largest).ok()) << validate(largest).message();
  EXPECT_EQ(largest.scan_values(), 1U << 28);
  EXPECT_EQ(largest.mixer_in(), (1U << 18) + (1U << 18) + (2U << 20) + 1024U);
  largest.layer_mixers[0] = 3;
  ASSERT_TRUE(validate(largest).ok()) << validate(largest).message();
  EXPECT_EQ(largest.mixer_in(), (1U << 18) + (2U << 20));
}

TEST(ModelSpecTest, RefusesEveryRoutingFieldOutOfRange) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::function<void(ModelSpec&)> faults[] = {
      [](ModelSpec& s) { s.expert_scoring = ExpertScoring::kSoftmax; },
      [](ModelSpec& s) { s.expert_epsilon = -1.0F; },
      [=](ModelSpec& s) { s.expert_epsilon = kNan; },
      [](ModelSpec& s) { s.expert_scale = 0.0F; },
      [](ModelSpec& s) { s.expert_groups = 0; },
      [](ModelSpec& s) { s.expert_groups = 5; },   // does not divide 12
      [](ModelSpec& s) { s.expert_groups = 12; },  // of one expert
      [](ModelSpec& s) { s.expert_groups_used = 0; },
      [](ModelSpec& s) { s.expert_groups_used = 5; },
      [](ModelSpec& s) { s.n_experts_used = 7; },  // of the 6 in two groups
      [](ModelSpec& s) {
        s = minimal_model().spec;
        s.expert_scoring = ExpertScoring::kSigmoid;
      },
      [](ModelSpec& s) {
        s = minimal_model().spec;
        s.expert_scale = 2.0F;
      },
  };
  ASSERT_TRUE(validate(sigmoid_spec()).ok()) << validate(sigmoid_spec()).message();
  int index = 0;
  for (const auto& fault : faults) {
    ModelSpec spec = sigmoid_spec();
    fault(spec);
    EXPECT_EQ(validate(spec).code(), StatusCode::kInvalidArgument) << "fault " << index;
    ++index;
  }
  const std::function<void(ModelSpec&)> sparsemixer_faults[] = {
      [](ModelSpec& s) { s.n_experts_used = 3; },
      [](ModelSpec& s) { s.expert_renormalised = true; },
      [](ModelSpec& s) { s.expert_margin = -0.1F; },
      [](ModelSpec& s) { s.expert_scoring = ExpertScoring::kSoftmax; },
      [](ModelSpec& s) { s.rope.short_attention_factor = -1.0F; },
      [](ModelSpec& s) { s.rope = {.short_attention_factor = 1.0F}; },
  };
  ASSERT_TRUE(validate(sparsemixer_spec()).ok()) << validate(sparsemixer_spec()).message();
  for (const auto& fault : sparsemixer_faults) {
    ModelSpec spec = sparsemixer_spec();
    fault(spec);
    EXPECT_EQ(validate(spec).code(), StatusCode::kInvalidArgument) << "fault " << index;
    ++index;
  }
  for (const char* key : {keys::kExpertMargin, keys::kRopeShortAttentionFactor}) {
    EXPECT_TRUE(encode_spec_metadata(sparsemixer_spec()).find(key)->required) << key;
  }
  Metadata metadata = encode_spec_metadata(sigmoid_spec());
  metadata.set_text(keys::kExpertScoring, "hash", true);
  EXPECT_THAT(decode_spec(header_of(sigmoid_spec()), metadata).error().message(),
              HasSubstr("expert.scoring: \"hash\""));
}

TEST(ModelSpecTest, RefusesEveryLongropeFieldOutOfRange) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::function<void(ModelSpec&)> faults[] = {
      [](ModelSpec& s) { s.rope.original_context = 0; },
      [](ModelSpec& s) { s.rope.attention_factor = 0.0F; },
      [=](ModelSpec& s) { s.rope.attention_factor = kInf; },
      [](ModelSpec& s) { s.rope.short_factors.pop_back(); },
      [](ModelSpec& s) { s.rope.short_factors.clear(); },
      [](ModelSpec& s) { s.rope.long_factors.push_back(1.0F); },
      [](ModelSpec& s) { s.rope.long_factors[0] = 0.0F; },
      [](ModelSpec& s) { s.rope.long_factors[3] = -2.0F; },
      [=](ModelSpec& s) { s.rope.short_factors[1] = kNan; },
      [=](ModelSpec& s) { s.rope.short_factors[1] = kInf; },
      // 19 positions at over 2^26 / 19 radians each: angles that are no longer exact
      [](ModelSpec& s) { s.rope.short_factors[2] = 0x1p-22F; },
      [](ModelSpec& s) { s.rope.scaling = RopeScaling::kNone; },
      [](ModelSpec& s) { s.rope.scaling = RopeScaling::kLinear; },
      [](ModelSpec& s) { s.rope.dims = 6; },
  };
  ASSERT_TRUE(validate(longrope_model().spec).ok());
  int index = 0;
  for (const auto& fault : faults) {
    ModelSpec spec = longrope_model().spec;
    fault(spec);
    EXPECT_EQ(validate(spec).code(), StatusCode::kInvalidArgument) << "fault " << index;
    ++index;
  }
}

TEST(ModelSpecTest, RefusesEveryYarnFieldOutOfRange) {
  const std::function<void(ModelSpec&)> faults[] = {
      [](ModelSpec& s) { s.rope.original_context = 0; },
      [](ModelSpec& s) { s.rope.factor = 0.5F; },
      [](ModelSpec& s) { s.rope.beta_fast = s.rope.beta_slow; },
      [](ModelSpec& s) { s.rope.beta_slow = 0.0F; },
      [](ModelSpec& s) { s.rope.beta_fast = std::numeric_limits<float>::infinity(); },
      [](ModelSpec& s) { s.rope.theta = 1.0F; },
      [](ModelSpec& s) { s.layer_rope.push_back(0); },
      [](ModelSpec& s) { s.layer_rope[0] = 3; },
      [](ModelSpec& s) { s.local_rope_theta = 0.5F; },
      [](ModelSpec& s) { s.query_position_scale = -0.1F; },
      [](ModelSpec& s) { s.qkv_clip = -1.0F; },
      [](ModelSpec& s) { s.rope.scaling = RopeScaling::kLinear; },
      [](ModelSpec& s) { s.positions = PositionEncoding::kAlibi; },
  };
  ASSERT_TRUE(validate(yarn_spec()).ok()) << validate(yarn_spec()).message();
  int index = 0;
  for (const auto& fault : faults) {
    ModelSpec spec = yarn_spec();
    fault(spec);
    EXPECT_EQ(validate(spec).code(), StatusCode::kInvalidArgument) << "fault " << index;
    ++index;
  }
}

// A reader from before a key refuses the file by name, because every such key is marked required.
TEST(ModelSpecTest, MarksWhatChangesTheModelAsRequired) {
  const Metadata metadata = encode_spec_metadata(longrope_model().spec);
  for (const char* key : {keys::kRopeAttentionFactor, keys::kRopeScaling, keys::kRopeShortFactors,
                          keys::kRopeLongFactors, keys::kRopeOriginalContext}) {
    ASSERT_TRUE(metadata.contains(key)) << key;
    EXPECT_TRUE(metadata.find(key)->required) << key;
  }
  EXPECT_FALSE(metadata.contains(keys::kRopeFactor));
}

TEST(ModelSpecTest, RefusesWhatItDoesNotKnow) {
  const ModelSpec spec = types_model().spec;
  const struct {
    std::size_t offset;
    std::uint8_t value;
    const char* message;
  } cases[] = {
      {header_at::kDefaultType, 31, "default weight type 31"},
      {header_at::kDefaultType, 0xFF, "default weight type 255"},
      {header_at::kNorm, 2, "normalisation type 2"},
      {header_at::kPositions, 3, "position encoding 3"},
      {header_at::kFlags, 8, "header flags"},
  };
  for (const auto& c : cases) {
    HeaderBytes header = header_of(spec);
    store_le(header, c.offset, c.value);
    const auto result = decode_spec(header, encode_spec_metadata(spec));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), StatusCode::kUnsupported);
    EXPECT_THAT(result.error().message(), HasSubstr(c.message));
  }
  Metadata metadata = encode_spec_metadata(spec);
  metadata.set_u32("attention.sinks", 4, /*required=*/true);
  EXPECT_EQ(decode_spec(header_of(spec), metadata).error().code(), StatusCode::kUnsupported);
  metadata.set_u32("attention.sinks", 4, /*required=*/false);
  EXPECT_TRUE(decode_spec(header_of(spec), metadata)->extra.contains("attention.sinks"));
  metadata.set_text(keys::kRopeScaling, "proportional", true);
  EXPECT_EQ(decode_spec(header_of(spec), metadata).error().code(), StatusCode::kUnsupported);
}

TEST(ModelSpecTest, HoldsHeaderAndMetadataToEachOther) {
  const ModelSpec spec = types_model().spec;
  const Metadata metadata = encode_spec_metadata(spec);
  for (const std::size_t offset :
       {header_at::kArchitecture, header_at::kActivation, header_at::kEos, header_at::kFlags}) {
    HeaderBytes header = header_of(spec);
    header[offset] ^= std::byte{1};
    EXPECT_EQ(decode_spec(header, metadata).error().code(), StatusCode::kCorrupt) << offset;
  }
  for (const std::string_view key : {keys::kArchitecture, keys::kNormEpsilon, keys::kFfnActivation,
                                     keys::kFfnGated, keys::kHeadTied}) {
    Metadata without = metadata;
    without.erase(key);
    EXPECT_THAT(decode_spec(header_of(spec), without).error().message(), HasSubstr("is missing"));
    without.set_f32_array(key, {});
    EXPECT_THAT(decode_spec(header_of(spec), without).error().message(), HasSubstr("type 7"));
  }
}

TEST(MetadataTest, ReturnsFallbacksAndRefusesOtherTypes) {
  Metadata m;
  m.set_u32("a", 7);
  EXPECT_EQ(m.get_u32("a", 1).value(), 7U);
  EXPECT_EQ(m.get_u32("b", 1).value(), 1U);
  EXPECT_EQ(m.get_text("b", "x").value(), "x");
  EXPECT_EQ(m.get_f32("a", 0).error().code(), StatusCode::kCorrupt);
  m.set_u32("a", 8);
  EXPECT_EQ(m.entries().size(), 1U);
  m.set({"bad", ValueType::kU32, false, std::vector<std::byte>(3)});
  EXPECT_EQ(m.get_u32("bad", 0).error().code(), StatusCode::kCorrupt);
}

TEST(MetadataTest, KeepsValuesOfTypesItDoesNotKnow) {
  Metadata m;
  m.set({"new", static_cast<ValueType>(99), false, std::vector<std::byte>(5, std::byte{3})});
  ByteWriter bytes;
  m.encode(bytes);
  ByteReader reader(bytes.view());
  EXPECT_EQ(Metadata::decode(reader, 1).value(), m);
}

TEST(MetadataTest, RefusesTextThatIsNone) {
  for (const std::string_view text : {std::string_view("a\xFF"), std::string_view("a\0b", 3)}) {
    Metadata m;
    m.set_text("user.note", text);
    EXPECT_EQ(m.get_text("user.note", "").error().code(), StatusCode::kCorrupt);
    ByteWriter bytes;
    m.encode(bytes);
    ByteReader reader(bytes.view());
    const auto decoded = Metadata::decode(reader, 1);
    ASSERT_FALSE(decoded);
    EXPECT_EQ(decoded.error().code(), StatusCode::kCorrupt);
    EXPECT_THAT(decoded.error().message(), HasSubstr("\"user.note\": byte 1 of its text"));
  }
}

TEST(MetadataTest, RefusesUnsortedRepeatedAndCutKeys) {
  Metadata a;
  a.set_u32("a", 1);
  Metadata b;
  b.set_u32("b", 1);
  const auto decode = [](const std::vector<const Metadata*>& parts, std::size_t cut,
                         std::uint32_t n_keys) {
    ByteWriter bytes;
    for (const Metadata* part : parts) part->encode(bytes);
    ByteReader reader(bytes.view().first(bytes.size() - cut));
    return Metadata::decode(reader, n_keys).has_value();
  };
  EXPECT_TRUE(decode({&a, &b}, 0, 2));
  EXPECT_FALSE(decode({&b, &a}, 0, 2));
  EXPECT_FALSE(decode({&a, &a}, 0, 2));
  EXPECT_FALSE(decode({&a, &b}, 0, 3));
  for (std::size_t cut = 1; cut < 12; ++cut) EXPECT_FALSE(decode({&a, &b}, cut, 2)) << cut;
}

}  // namespace
}  // namespace qsf
