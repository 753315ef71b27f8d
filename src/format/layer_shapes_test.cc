// SPDX-License-Identifier: MIT
//
// Heads by layer, keys that are values and pairs that turn: what a file keeps and what is refused.

#include "format/layer_shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "format/spec_keys.h"
#include "format/tensor_rules.h"
#include "format/testing/small_models.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::shaped_spec;
using testing_support::stream_spec;

std::array<std::byte, kHeaderBytes> shaped_header(const ModelSpec& spec) {
  std::array<std::byte, kHeaderBytes> header{};
  encode_spec_header(spec, header);
  return header;
}

TEST(LayerShapesTest, SurviveHeaderAndMetadata) {
  const ModelSpec spec = shaped_spec();
  const Metadata metadata = encode_spec_metadata(spec);
  for (const char* key :
       {keys::kAttentionHeadDims, keys::kAttentionKvHeads, keys::kAttentionKeyValues,
        keys::kAttentionKvLayers, keys::kAttentionValueNorms, keys::kFfnRows,
        keys::kLayerInputColumns, keys::kRopeTurning}) {
    const MetadataEntry* const entry = metadata.find(key);
    ASSERT_NE(entry, nullptr) << key;
    EXPECT_TRUE(entry->required) << key;
  }
  const auto back = decode_spec(shaped_header(spec), metadata);
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(*back, spec);
}

TEST(LayerShapesTest, ASpecOfAlikeLayersHasNoKeyOfThem) {
  ModelSpec spec = shaped_spec();
  spec.layer_heads.clear();
  spec.key_value_layers.clear();
  spec.kv_layers.clear();
  spec.layer_ffn.clear();
  spec.layer_input_dim = 0;
  spec.value_norms = false;
  spec.rope.n_turning = 0;
  const Metadata metadata = encode_spec_metadata(spec);
  for (const char* key :
       {keys::kAttentionHeadDims, keys::kAttentionKvHeads, keys::kAttentionKeyValues,
        keys::kAttentionKvLayers, keys::kAttentionValueNorms, keys::kFfnRows,
        keys::kLayerInputColumns, keys::kRopeTurning}) {
    EXPECT_FALSE(metadata.contains(key)) << key;
  }
}

TEST(LayerShapesTest, SizesOfEachLayerAndTheMostOfAny) {
  const ModelSpec spec = shaped_spec();
  EXPECT_EQ(spec.q_dim(), 96U);
  EXPECT_EQ(spec.kv_dim(), 24U);
  EXPECT_EQ(spec.attention_of(0).q_dim(), 48U);
  EXPECT_EQ(spec.attention_of(0).kv_dim(), 24U);
  EXPECT_EQ(spec.attention_of(1).kv_dim(), 16U);
  EXPECT_EQ(spec.rope_dims_of(0), 8U);
  EXPECT_EQ(spec.rope_dims_of(1), 16U);
  const auto shape = [&spec](std::uint32_t layer, TensorKind kind) {
    const TensorShape found = tensor_shape(spec, layer, kind);
    return std::pair(found.rows, found.cols);
  };
  EXPECT_EQ(shape(0, TensorKind::kAttnQ), std::pair(48U, 24U));
  EXPECT_EQ(shape(1, TensorKind::kAttnQ), std::pair(96U, 24U));
  EXPECT_EQ(shape(1, TensorKind::kAttnK), std::pair(16U, 24U));
  EXPECT_EQ(shape(1, TensorKind::kAttnO), std::pair(24U, 96U));
  EXPECT_EQ(shape(2, TensorKind::kQNorm), std::pair(1U, 8U));
  EXPECT_EQ(shape(1, TensorKind::kFfnUp), std::pair(40U, 24U));
  EXPECT_EQ(shape(2, TensorKind::kFfnGate), std::pair(28U, 24U));
  EXPECT_EQ(shape(2, TensorKind::kFfnDown), std::pair(24U, 28U));
  EXPECT_EQ(shape(0, TensorKind::kLayerEmbedding), std::pair(30U, 12U));
  EXPECT_EQ(shape(1, TensorKind::kLayerInput), std::pair(4U, 24U));
  EXPECT_EQ(shape(1, TensorKind::kLayerInputOut), std::pair(24U, 4U));
  EXPECT_EQ(spec.n_kv_layers(), 2U);
  EXPECT_TRUE(spec.owns_kv(1) && !spec.owns_kv(2) && spec.shares_kv());
  EXPECT_EQ(spec.attention_of(2).kv_layer, 0U);
}

TEST(LayerShapesTest, SettingHeadsFindsTheMost) {
  ModelSpec spec = shaped_spec();
  set_layer_heads({{1, 8}, {2, 4}, {1, 8}}, spec);
  EXPECT_EQ(spec.n_kv_heads, 2U);
  EXPECT_EQ(spec.head_dim, 8U);
  set_layer_heads({{2, 8}, {2, 8}, {2, 8}}, spec);
  EXPECT_TRUE(spec.layer_heads.empty());
  EXPECT_EQ(spec.head_dim, 8U);
}

TEST(LayerShapesTest, SharingFindsTheLastLayerWithTheSameWindow) {
  ModelSpec spec = shaped_spec();
  spec.n_layers = 6;
  spec.kv_layers.clear();
  spec.sliding_window = {9, 9, 0, 9, 0, 9};
  ASSERT_TRUE(share_kv(3, spec).ok());
  EXPECT_THAT(spec.kv_layers, ElementsAre(0, 1, 2, 1, 2, 1));
  spec.kv_layers.clear();
  ASSERT_TRUE(share_kv(0, spec).ok());
  EXPECT_THAT(spec.kv_layers, IsEmpty());
  EXPECT_THAT(share_kv(4, spec).message(), HasSubstr("no layer before the last 4 has the window"));
}

TEST(LayerShapesTest, SettingFfnsFindsTheMost) {
  ModelSpec spec = shaped_spec();
  set_layer_ffn({8, 12, 10}, spec);
  EXPECT_EQ(spec.ffn, 12U);
  EXPECT_EQ(spec.ffn_of(2), 10U);
  set_layer_ffn({8, 8, 8}, spec);
  EXPECT_THAT(spec.layer_ffn, IsEmpty());
  EXPECT_EQ(spec.ffn_of(2), 8U);
}

TEST(LayerShapesTest, RefusesWhatDoesNotFit) {
  const std::pair<std::function<void(ModelSpec&)>, const char*> faults[] = {
      {[](ModelSpec& s) { s.layer_heads.pop_back(); }, "2 values for 3 layers"},
      {[](ModelSpec& s) { s.layer_heads[0].n_kv_heads = 0; }, "0 key-value heads"},
      {[](ModelSpec& s) { s.layer_heads[0].n_kv_heads = 4; }, "4 key-value heads"},
      {[](ModelSpec& s) { s.layer_heads[1].head_dim = 0; }, "of 0 columns"},
      {[](ModelSpec& s) { s.head_dim = 18; }, "but the model has 3 and 18"},
      {[](ModelSpec& s) { s.n_kv_heads = 6; }, "but the model has 6 and 16"},
      {[](ModelSpec& s) { s.layer_heads[2].head_dim = 6; }, "layer 2 rotates 6 of 6 columns"},
      {[](ModelSpec& s) { s.layer_heads[0].head_dim = s.layer_heads[2].head_dim = 7; },
       "layer 0 rotates 7 of 7 columns"},
      {[](ModelSpec& s) { s.rope.dims = 10; }, "layer 0 rotates 10 of 8 columns"},
      {[](ModelSpec& s) {
         s.rope.n_turning = 0;
         s.rope.scaling = RopeScaling::kYarn;
         s.rope.original_context = 8;
       },
       "not with rope scaling yarn"},
      {[](ModelSpec& s) { s.rope.n_turning = 9; }, "pairs that turn: 9 of 8"},
      {[](ModelSpec& s) {
         s.key_value_layers = {0, 1};
       },
       "2 values for 3 layers"},
      {[](ModelSpec& s) { s.key_value_layers[0] = 2; }, "expected 0 or 1"},
      {[](ModelSpec& s) { s.kv_layers.pop_back(); }, "shared keys and values: 2 values"},
      {[](ModelSpec& s) { s.kv_layers[2] = 1; }, "layer 2 takes those of layer 1"},
      {[](ModelSpec& s) { s.kv_layers[2] = 3; }, "layer 2 takes those of layer 3"},
      {[](ModelSpec& s) {
         s.kv_layers = {1, 1, 0};
       },
       "layer 0 takes those of layer 1"},
      {[](ModelSpec& s) { s.kv_layers[2] = 2; }, "every layer has its own"},
      {[](ModelSpec& s) { s.layer_ffn.pop_back(); }, "ffn by layer: 2 values"},
      {[](ModelSpec& s) { s.layer_ffn[2] = 0; }, "ffn by layer: 0"},
      {[](ModelSpec& s) { s.ffn = 41; }, "at most 40, but the model has 41"},
      {[](ModelSpec& s) { s.layer_input_dim = 1; }, "columns of layer inputs: 1"},
      {[](ModelSpec& s) {
         s.layer_mixers = {0, 1, 0};
         s.conv_taps = 3;
       },
       "not in a model with mixers by layer"},
  };
  ASSERT_TRUE(validate(shaped_spec()).ok()) << validate(shaped_spec()).message();
  for (const auto& [break_it, message] : faults) {
    ModelSpec spec = shaped_spec();
    break_it(spec);
    const Status status = validate(spec);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(status.message(), HasSubstr(message));
  }
}

TEST(LayerShapesTest, StreamsSurviveMetadata) {
  const ModelSpec spec = stream_spec();
  const Metadata metadata = encode_spec_metadata(spec);
  const Metadata plain = encode_spec_metadata(shaped_spec());
  for (const char* key : {keys::kStreams, keys::kLaurelColumns, keys::kLayerInputRows,
                          keys::kFfnCutoff, keys::kFfnCutoffLayers}) {
    const MetadataEntry* const entry = metadata.find(key);
    ASSERT_NE(entry, nullptr) << key;
    EXPECT_TRUE(entry->required) << key;
    EXPECT_FALSE(plain.contains(key)) << key;
  }
  const auto back = decode_spec(shaped_header(spec), metadata);
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(*back, spec);
}

TEST(LayerShapesTest, SizesOfStreams) {
  const ModelSpec spec = stream_spec();
  const auto shape = [&spec](TensorKind kind) {
    const TensorShape found = tensor_shape(spec, 1, kind);
    return std::pair(found.rows, found.cols);
  };
  EXPECT_EQ(shape(TensorKind::kLayerEmbedding), std::pair(26U, 12U));
  EXPECT_EQ(shape(TensorKind::kStreamIn), std::pair(24U, 24U));
  EXPECT_EQ(shape(TensorKind::kStreamRouter), std::pair(1U, 72U));
  EXPECT_EQ(shape(TensorKind::kStreamPredict), std::pair(1U, 27U));
  EXPECT_EQ(shape(TensorKind::kStreamCorrect), std::pair(1U, 9U));
  EXPECT_EQ(shape(TensorKind::kLaurelLeft), std::pair(5U, 24U));
  EXPECT_EQ(shape(TensorKind::kLaurelRight), std::pair(24U, 5U));
  EXPECT_TRUE(spec.cuts_gates(0) && !spec.cuts_gates(1));
  TensorInfo tensor = {.kind = TensorKind::kStreamIn, .rows = 24, .cols = 24, .expert = 1};
  EXPECT_TRUE(check_tensors(spec, SectionKind::kLayer, 0, {&tensor, 1}).ok());
  tensor.expert = 2;
  EXPECT_THAT(check_tensors(spec, SectionKind::kLayer, 0, {&tensor, 1}).message(),
              HasSubstr("stream_in: number 2, expected 0 to 1"));
}

TEST(LayerShapesTest, NormsGiveThePlainResidualStreamAlone) {
  const ModelSpec plain = testing_support::embedding_spec();
  ASSERT_TRUE(plain.norms_stream);
  EXPECT_TRUE(validate(plain).ok()) << validate(plain).message();
  ModelSpec several = stream_spec();
  ModelSpec inputs = shaped_spec();
  several.norms_stream = inputs.norms_stream = true;
  ModelSpec parallel = plain;
  parallel.parallel_block = true;
  ModelSpec experts = plain;
  experts.n_experts = 4;
  experts.n_experts_used = 2;
  experts.expert_ffn = 8;
  ModelSpec mixers = plain;
  mixers.bidirectional = false;
  mixers.layer_mixers.assign(mixers.n_layers + 1, 1);
  mixers.n_layers += 1;
  mixers.layer_mixers[0] = 0;
  mixers.conv_taps = 3;
  for (const ModelSpec& spec : {several, inputs, parallel, experts, mixers}) {
    const Status status = validate(spec);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << spec.architecture;
    EXPECT_THAT(status.message(), HasSubstr("norms that give the residual stream"));
  }
}

TEST(LayerShapesTest, RefusesStreamsThatDoNotFit) {
  const std::pair<std::function<void(ModelSpec&)>, const char*> faults[] = {
      {[](ModelSpec& s) { s.n_streams = 0; }, "residual streams: 0, expected 1 to 8"},
      {[](ModelSpec& s) { s.n_streams = 9; }, "residual streams: 9"},
      {[](ModelSpec& s) { s.n_streams = 1; }, "1 residual streams with 5 columns"},
      {[](ModelSpec& s) { s.laurel_dim = 0; }, "3 residual streams with 0 columns"},
      {[](ModelSpec& s) { s.laurel_dim = 1; }, "columns beside attention: 1"},
      {[](ModelSpec& s) { s.layer_input_dim = s.layer_input_rows = 0; }, "and 0 of layer inputs"},
      {[](ModelSpec& s) { s.layer_input_dim = 0; }, "rows of layer inputs: 26"},
      {[](ModelSpec& s) { s.layer_input_rows = 30; }, "rows of layer inputs: 30"},
      {[](ModelSpec& s) { s.parallel_block = true; }, "residual streams: not with experts"},
      {[](ModelSpec& s) { s.ffn_cutoff_layers.pop_back(); }, "gates are cut: 2 values"},
      {[](ModelSpec& s) { s.ffn_cutoff_layers[1] = 2; }, "gates are cut: 2, expected 0 or 1"},
      {[](ModelSpec& s) {
         s.ffn_cutoff_layers = {0, 0, 0};
       },
       "gates are cut: none of 3"},
      {[](ModelSpec& s) { s.ffn_cutoff_layers.clear(); }, "0.75 deviations in 0 layers"},
      {[](ModelSpec& s) { s.ffn_cutoff = std::numeric_limits<float>::infinity(); },
       "cut of gates: inf"},
      {[](ModelSpec& s) { s.gated_ffn = false; }, "an FFN without gates"},
  };
  ASSERT_TRUE(validate(stream_spec()).ok()) << validate(stream_spec()).message();
  for (const auto& [break_it, message] : faults) {
    ModelSpec spec = stream_spec();
    break_it(spec);
    const Status status = validate(spec);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(status.message(), HasSubstr(message));
  }
}

TEST(LayerShapesTest, ListsOfOtherLengthsAreCorrupt) {
  Metadata metadata = encode_spec_metadata(shaped_spec());
  metadata.set_u32_array(keys::kAttentionKvHeads, std::vector<std::uint32_t>{3, 1}, true);
  const auto back = decode_spec(shaped_header(shaped_spec()), metadata);
  ASSERT_FALSE(back);
  EXPECT_EQ(back.error().code(), StatusCode::kCorrupt);
  EXPECT_THAT(back.error().message(), HasSubstr("3 and 2 values"));
}

}  // namespace
}  // namespace qsf
