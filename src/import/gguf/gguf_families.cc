// SPDX-License-Identifier: MIT

#include "import/gguf/gguf_families.h"
#include "base/portable_math.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

namespace qsf {
namespace {

constexpr std::uint32_t kMaxGgufWindow = 1U << 30;
constexpr char kWindowKey[] = "attention.sliding_window";
constexpr char kPatternKey[] = "attention.sliding_window_pattern";

// Gives a window to the layers that the file's pattern names, by default all but every
// `period`-th.
void read_local_windows(GgufFields& fields, std::uint32_t window, std::uint32_t period,
                        ModelSpec& spec) {
  if (window == 0) return;
  for (const bool local : fields.pattern(kPatternKey, spec.n_layers, period)) {
    spec.sliding_window.push_back(local ? window : 0);
  }
}

// Sets the RoPE of layers with a window and that of the others.
void set_layer_rope(LayerRope local, LayerRope global, ModelSpec& spec) {
  if (spec.sliding_window.empty()) return;
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    const LayerRope rope = spec.window_of(layer) != 0 ? local : global;
    spec.layer_rope.push_back(static_cast<std::uint32_t>(rope));
  }
}

// Layers with a window do not scale RoPE and may have a base of their own.
void set_local_rope(float theta, ModelSpec& spec) {
  if (spec.sliding_window.empty()) return;
  if (theta == spec.rope.theta && spec.rope.scaling == RopeScaling::kNone) return;
  spec.local_rope_theta = theta;
  set_layer_rope(LayerRope::kLocal, LayerRope::kMain, spec);
}

// Layers with a window rotate, the others do not.
Status read_rope_of_local_layers(GgufFields& fields, ModelSpec& spec) {
  set_layer_rope(LayerRope::kMain, LayerRope::kNone, spec);
  const char* key = "rope.freq_base_swa";
  if (fields.positive(key, spec.rope.theta) != spec.rope.theta) {
    fields.fail(unsupported("GGUF: key \"%s\" differs from rope.freq_base, %g", key,
                            static_cast<double>(spec.rope.theta)));
  }
  return fields.status();
}

// Gemma's embeddings are scaled by the root of their width.
Status finish_gemma(const GgufFile&, GgufFields&, ModelSpec& spec) {
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
  return ok_status();
}

// No key holds the scale of scores: it follows from the width of a head, but for the largest model,
// known by its layers, which takes the width of the residual stream instead.
void set_gemma_scale(std::uint32_t layers_of_27b, ModelSpec& spec) {
  const std::uint32_t width =
      spec.n_layers == layers_of_27b ? spec.hidden / spec.n_heads : spec.head_dim;
  spec.attention_scale = 1.0F / std::sqrt(static_cast<float>(width));
}

Status finish_gemma2(const GgufFile& file, GgufFields& fields, ModelSpec& spec) {
  QSF_RETURN_IF_ERROR(finish_gemma(file, fields, spec));
  set_gemma_scale(46, spec);
  spec.attention_soft_cap = fields.positive("attn_logit_softcapping", 50.0F);
  spec.logit_soft_cap = fields.positive("final_logit_softcapping", 30.0F);
  read_local_windows(fields, fields.u32_or(kWindowKey, 4096, 1, kMaxGgufWindow), 2, spec);
  return fields.status();
}

Status finish_gemma3(const GgufFile& file, GgufFields& fields, ModelSpec& spec) {
  QSF_RETURN_IF_ERROR(finish_gemma(file, fields, spec));
  set_gemma_scale(62, spec);
  spec.logit_soft_cap = fields.positive_or("final_logit_softcapping", 0.0F);
  read_local_windows(fields, fields.u32_or(kWindowKey, 0, 0, kMaxGgufWindow), 6, spec);
  set_local_rope(fields.positive("rope.freq_base_swa", 10000.0F), spec);
  return fields.status();
}

// One window for every layer, 0 for none.
Status finish_windowed(const GgufFile&, GgufFields& fields, ModelSpec& spec) {
  const std::uint32_t window = fields.u32_or(kWindowKey, 0, 0, kMaxGgufWindow);
  if (window == 0) return fields.status();
  spec.sliding_window = {window};
  if (!fields.has(kPatternKey)) return fields.status();
  return unsupported("GGUF: key \"%s\" is not supported for %s", kPatternKey,
                     spec.architecture.c_str());
}

// OLMo 2, and OLMo 3 where there are windows.
Status finish_olmo2(const GgufFile&, GgufFields& fields, ModelSpec& spec) {
  read_local_windows(fields, fields.u32_or(kWindowKey, 0, 0, kMaxGgufWindow), 4, spec);
  set_local_rope(fields.positive("rope.freq_base_swa", spec.rope.theta), spec);
  return fields.status();
}

// The 32B model, known by its layers, has windows without a key too.
Status finish_exaone4(const GgufFile&, GgufFields& fields, ModelSpec& spec) {
  const std::uint32_t fallback = spec.n_layers == 64 ? 4096 : 0;
  read_local_windows(fields, fields.u32_or(kWindowKey, fallback, 0, kMaxGgufWindow), 4, spec);
  return read_rope_of_local_layers(fields, spec);
}

// Every fourth layer does not rotate; no key can say otherwise.
Status finish_smollm3(const GgufFile&, GgufFields&, ModelSpec& spec) {
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    const LayerRope rope = layer % 4 == 3 ? LayerRope::kNone : LayerRope::kMain;
    spec.layer_rope.push_back(static_cast<std::uint32_t>(rope));
  }
  return ok_status();
}

// Logits are divided by logit_scale. A model of the hybrid family without state layers comes under
// this name and does not rotate.
Status finish_granite(const GgufFile&, GgufFields& fields, ModelSpec& spec) {
  spec.embedding_scale = fields.positive_or("embedding_scale", 1.0F);
  spec.residual_scale = fields.positive_or("residual_scale", 1.0F);
  spec.attention_scale = fields.positive_or("attention.scale", 0.0F);
  spec.logit_scale = 1.0F / fields.positive("logit_scale", 1.0F);
  if (!fields.boolean("rope.scaling.finetuned", true)) {
    spec.layer_rope.assign(spec.n_layers, static_cast<std::uint32_t>(LayerRope::kNone));
  }
  return fields.status();
}

// Queries grow with their position beyond the context that YaRN begins with.
Status finish_mistral3(const GgufFile&, GgufFields& fields, ModelSpec& spec) {
  spec.query_position_scale = fields.positive_or("attention.temperature_scale", 0.0F);
  fields.refuse_unread("attention.temperature_length", spec.rope.original_context);
  return fields.status();
}

// Reads the sizes of a mixture of experts, whose weights have the sum 1 with `renormalised`.
Status read_experts(GgufFields& fields, bool renormalised, ModelSpec& spec) {
  constexpr std::uint32_t kMostExperts = 1024;  // that check_supported() takes
  spec.n_experts = fields.u32("expert_count", 2, kMostExperts);
  QSF_RETURN_IF_ERROR(fields.status());
  spec.n_experts_used = fields.u32("expert_used_count", 1, spec.n_experts);
  spec.expert_ffn = fields.u32_or("expert_feed_forward_length", spec.ffn, 1, 1U << 24);
  spec.expert_renormalised = fields.boolean("expert_weights_norm", renormalised);
  const bool sigmoid = spec.expert_scoring == ExpertScoring::kSigmoid;
  fields.refuse_unread("expert_gating_func", sigmoid ? 2.0 : 1.0);
  fields.refuse_unread("expert_weights_scale", 1.0);
  fields.refuse_unread("expert_group_count", 1.0);
  fields.refuse_unread("expert_group_used_count", 1.0);
  fields.refuse_unread("expert_shared_count", 0.0);
  fields.refuse_unread("expert_shared_feed_forward_length", 0.0);
  return fields.status();
}

bool has_llama_experts(const GgufFile& file) {
  const auto count = file.keys().get_unsigned("llama.expert_count");
  return count.has_value() && count->value_or(0) != 0;
}

Status finish_mixtral(const GgufFile& file, GgufFields& fields, ModelSpec& spec) {
  QSF_RETURN_IF_ERROR(finish_windowed(file, fields, spec));
  return read_experts(fields, true, spec);
}

// llama.cpp divides the FFN where an expert's width is missing.
Status read_qwen_experts(GgufFields& fields, bool renormalised, ModelSpec& spec) {
  QSF_RETURN_IF_ERROR(read_experts(fields, renormalised, spec));
  if (!fields.has("expert_feed_forward_length")) spec.expert_ffn = spec.ffn / spec.n_experts_used;
  return ok_status();
}

// llama.cpp makes the sum of the weights 1, which published models do.
Status finish_qwen3moe(const GgufFile&, GgufFields& fields, ModelSpec& spec) {
  return read_qwen_experts(fields, true, spec);
}

// In this older family it does not, nor do published models.
Status finish_qwen2moe(const GgufFile&, GgufFields& fields, ModelSpec& spec) {
  spec.shared_ffn = fields.u32_or("expert_shared_feed_forward_length", spec.ffn, 1, 1U << 24);
  return read_qwen_experts(fields, false, spec);
}

// The first layers are dense.
Status read_dense_layers(GgufFields& fields, ModelSpec& spec) {
  const std::uint32_t n_dense = fields.u32_or("leading_dense_block_count", 0, 0, spec.n_layers - 1);
  QSF_RETURN_IF_ERROR(fields.status());
  if (n_dense == 0) return ok_status();
  spec.expert_layers.assign(spec.n_layers, 1);
  std::fill_n(spec.expert_layers.begin(), n_dense, 0);
  return ok_status();
}

// The last blocks are no layers: they predict further tokens.
Status finish_glm4moe(const GgufFile&, GgufFields& fields, ModelSpec& spec) {
  const std::uint32_t n_further = fields.u32_or("nextn_predict_layers", 0, 0, spec.n_layers - 1);
  QSF_RETURN_IF_ERROR(fields.status());
  spec.n_layers -= n_further;
  QSF_RETURN_IF_ERROR(read_dense_layers(fields, spec));
  spec.expert_scoring = ExpertScoring::kSigmoid;
  spec.expert_scale = fields.positive_or("expert_weights_scale", 1.0F);
  spec.expert_groups = fields.u32_or("expert_group_count", 1, 1, 1U << 16);
  spec.expert_groups_used = fields.u32_or("expert_group_used_count", 1, 1, 1U << 16);
  const std::uint32_t n_shared = fields.u32_or("expert_shared_count", 0, 0, 64);
  QSF_RETURN_IF_ERROR(read_experts(fields, true, spec));
  spec.shared_ffn = n_shared * spec.expert_ffn;
  if (spec.expert_renormalised) spec.expert_epsilon = 1e-20F;
  return ok_status();
}

// What no key holds is as llama.cpp has it: chunks and steps of 8192 positions, every fourth layer
// without rotation, and norms of heads but with 128 experts.
Status finish_llama4(const GgufFile& file, GgufFields& fields, ModelSpec& spec) {
  constexpr std::uint32_t kChunk = 8192;
  QSF_RETURN_IF_ERROR(finish_smollm3(file, fields, spec));
  const std::uint32_t chunk = fields.u32_or(kWindowKey, kChunk, 1, kMaxGgufWindow);
  read_local_windows(fields, chunk, 4, spec);
  spec.chunked_windows = true;
  spec.query_position_scale = fields.positive("attention.temperature_scale", 0.1F);
  spec.query_position_step =
      fields.u32_or("attention.temperature_length", kChunk, 1, kMaxGgufWindow);
  const std::uint32_t step = fields.u32("interleave_moe_layer_step", 1, spec.n_layers);
  QSF_RETURN_IF_ERROR(fields.status());
  for (std::uint32_t layer = 0; step > 1 && layer < spec.n_layers; ++layer) {
    spec.expert_layers.push_back((layer + 1) % step == 0 ? 1 : 0);
  }
  spec.expert_scoring = ExpertScoring::kSigmoid;
  spec.weighs_expert_inputs = true;
  QSF_RETURN_IF_ERROR(read_experts(fields, false, spec));
  spec.shared_ffn = spec.expert_ffn;
  spec.unit_head_norms = spec.n_experts != 128;
  return ok_status();
}

// DeepSeek-V2 and V3, and GLM-4.7-Flash. Keys of the cache are those of one KV head, and the heads'
// own sizes have names of their own; older files have the heads' alone. llama.cpp norms the latent
// rows as all others, the models with an epsilon of their own, and it ranks groups of a softmax by
// two experts, the models by one.
Status finish_deepseek2(const GgufFile& file, GgufFields& fields, ModelSpec& spec) {
  constexpr std::uint32_t kMost = 1U << 16;
  const std::uint32_t n_rope = spec.rope_dims();
  spec.latent_dim = fields.u32("attention.kv_lora_rank", 1, kMost);
  spec.latent_query_dim = fields.u32_or("attention.q_lora_rank", 0, 0, kMost);
  const bool older = !fields.has("attention.key_length_mla");
  const std::uint32_t key =
      fields.u32(older ? "attention.key_length" : "attention.key_length_mla", n_rope + 1, kMost);
  spec.latent_value_dim =
      fields.u32(older ? "attention.value_length" : "attention.value_length_mla", 1, kMost);
  QSF_RETURN_IF_ERROR(fields.status());
  spec.latent_key_dim = key - n_rope;
  spec.n_kv_heads = 1;
  spec.rope.dims = n_rope;
  spec.head_dim = spec.latent_dim + n_rope;
  const float growth = fields.positive_or("rope.scaling.yarn_log_multiplier", 0.0F);
  double scale = 1.0 / std::sqrt(static_cast<double>(key));
  if (spec.rope.scaling == RopeScaling::kYarn && growth != 0.0F) {
    const double mscale =
        static_cast<double>(growth) * portable::log(static_cast<double>(spec.rope.factor)) + 1.0;
    scale *= mscale * mscale;
    spec.rope.attention_factor = 1.0F;  // the same in cosines and scores
  }
  spec.attention_scale = static_cast<float>(scale);
  const std::uint32_t gating = fields.u32_or("expert_gating_func", 1, 1, 2);
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_RETURN_IF_ERROR(finish_glm4moe(file, fields, spec));
  if (gating == 2) return ok_status();
  spec.expert_scoring = ExpertScoring::kSoftmax;
  spec.expert_renormalised = false;
  spec.expert_epsilon = 0.0F;
  return ok_status();
}

bool has_deepseek2_query_row(const GgufFile& file) {
  return file.keys().find_key("deepseek2.attention.q_lora_rank") != nullptr;
}

// llama.cpp routes by a softmax, norms without the mean and derives the factor of cosines and
// sines. The model does none of this; what no key holds is the same in both published ones.
Status finish_phimoe(const GgufFile& file, GgufFields& fields, ModelSpec& spec) {
  QSF_RETURN_IF_ERROR(finish_windowed(file, fields, spec));
  QSF_RETURN_IF_ERROR(read_experts(fields, false, spec));
  if (spec.n_experts_used != 2) {
    return unsupported("GGUF: expert_used_count is %u, expected the 2 that sparsemixer chooses",
                       spec.n_experts_used);
  }
  spec.expert_renormalised = false;
  spec.expert_scoring = ExpertScoring::kSparsemixer;
  spec.expert_margin = 0.01F;
  if (spec.rope.scaling == RopeScaling::kLongrope) spec.rope.attention_factor = 1.2431631F;
  return ok_status();
}

Status finish_olmoe(const GgufFile&, GgufFields& fields, ModelSpec& spec) {
  return read_experts(fields, false, spec);
}

Status finish_granitemoe(const GgufFile& file, GgufFields& fields, ModelSpec& spec) {
  QSF_RETURN_IF_ERROR(finish_granite(file, fields, spec));
  spec.shared_ffn = fields.u32_or("expert_shared_feed_forward_length", 0, 0, 1U << 24);
  return read_experts(fields, true, spec);
}

// A value for each head is called the rank of time steps.
Status read_scan(GgufFields& fields, ModelSpec& spec) {
  spec.mixer_heads = fields.u32("ssm.time_step_rank", 1, 1024);
  spec.mixer_state = fields.u32("ssm.state_size", 1, 1024);
  spec.conv_taps = fields.u32("ssm.conv_kernel", 2, 16);
  const std::uint32_t inner = fields.u32("ssm.inner_size", 1, 1U << 18);
  QSF_RETURN_IF_ERROR(fields.status());
  spec.mixer_groups = fields.u32("ssm.group_count", 1, spec.mixer_heads);
  spec.mixer_head_dim = inner / spec.mixer_heads;
  QSF_RETURN_IF_ERROR(fields.status());
  if (inner % spec.mixer_heads == 0) return ok_status();
  return corrupt("GGUF: ssm.inner_size is %u, expected a multiple of the %u heads", inner,
                 spec.mixer_heads);
}

bool has_hybrid_experts(const GgufFile& file) {
  const auto count = file.keys().get_unsigned("granitehybrid.expert_count");
  return count.has_value() && count->value_or(0) != 0;
}

Status finish_granitehybrid(const GgufFile& file, GgufFields& fields, ModelSpec& spec) {
  if (spec.has_state()) QSF_RETURN_IF_ERROR(read_scan(fields, spec));
  return finish_granite(file, fields, spec);
}

Status finish_granitemoehybrid(const GgufFile& file, GgufFields& fields, ModelSpec& spec) {
  if (spec.has_state()) QSF_RETURN_IF_ERROR(read_scan(fields, spec));
  return finish_granitemoe(file, fields, spec);
}

// Every layer has both. Multipliers are in the weights.
Status finish_falcon_h1(const GgufFile&, GgufFields& fields, ModelSpec& spec) {
  spec.layer_mixers.assign(spec.n_layers,
                           static_cast<std::uint32_t>(LayerMixer::kMamba2AndAttention));
  return read_scan(fields, spec);
}

Status finish_nemotron_h(const GgufFile&, GgufFields& fields, ModelSpec& spec) {
  spec.layer_rope.assign(spec.n_layers, static_cast<std::uint32_t>(LayerRope::kNone));
  return read_scan(fields, spec);
}

Status finish_nemotron_h_moe(const GgufFile& file, GgufFields& fields, ModelSpec& spec) {
  QSF_RETURN_IF_ERROR(finish_nemotron_h(file, fields, spec));
  spec.shared_ffn = fields.u32("expert_shared_feed_forward_length", 1, 1U << 24);
  spec.expert_scoring = ExpertScoring::kSigmoid;
  spec.expert_scale = fields.positive_or("expert_weights_scale", 1.0F);
  fields.u32_or("expert_shared_count", 1, 1, 1);
  QSF_RETURN_IF_ERROR(read_qwen_experts(fields, false, spec));
  if (spec.expert_renormalised) spec.expert_epsilon = 1e-20F;
  return ok_status();
}

// No key says that YaRN's bounds are no whole pairs.
Status finish_gpt_oss(const GgufFile&, GgufFields& fields, ModelSpec& spec) {
  spec.rope.truncate = spec.rope.scaling != RopeScaling::kYarn;
  read_local_windows(fields, fields.u32_or(kWindowKey, 128, 0, kMaxGgufWindow), 2, spec);
  QSF_RETURN_IF_ERROR(fields.status());
  return read_experts(fields, true, spec);
}

Status finish_command_r(const GgufFile&, GgufFields& fields, ModelSpec& spec) {
  spec.logit_scale = fields.positive_or("logit_scale", 1.0F);
  return fields.status();
}

Status finish_cohere2(const GgufFile& file, GgufFields& fields, ModelSpec& spec) {
  QSF_RETURN_IF_ERROR(finish_command_r(file, fields, spec));
  read_local_windows(fields, fields.u32(kWindowKey, 1, kMaxGgufWindow), 4, spec);
  return read_rope_of_local_layers(fields, spec);
}

// The blocks behind the layers predict further tokens. Heads of values are the time steps' rank and
// state_size is the width of keys.
Status read_delta_rule(GgufFields& fields, ModelSpec& spec) {
  const std::uint32_t n_blocks = spec.n_layers;
  spec.n_layers -= fields.u32_or("nextn_predict_layers", 0, 0, n_blocks - 1);
  const std::uint32_t every = fields.u32_or("full_attention_interval", 4, 1, 4096);
  const std::vector<bool> states = fields.pattern("attention.recurrent_layers", n_blocks, every);
  QSF_RETURN_IF_ERROR(fields.status());
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    const LayerMixer mixer = states[layer] ? LayerMixer::kDeltaNet : LayerMixer::kAttention;
    spec.layer_mixers.push_back(static_cast<std::uint32_t>(mixer));
  }
  if (spec.has_state()) return read_scan(fields, spec);
  spec.layer_mixers.clear();
  return ok_status();
}

// Converters put the heads of values of one key as far apart as there are keys.
void set_heads_in_turn(ModelSpec& spec) {
  spec.mixer_heads_in_turn = spec.mixer_groups > 1 && spec.mixer_groups < spec.mixer_heads;
}

Status finish_qwen35(const GgufFile&, GgufFields& fields, ModelSpec& spec) {
  QSF_RETURN_IF_ERROR(read_delta_rule(fields, spec));
  set_heads_in_turn(spec);
  return ok_status();
}

Status finish_qwen3next(const GgufFile&, GgufFields& fields, ModelSpec& spec) {
  QSF_RETURN_IF_ERROR(read_delta_rule(fields, spec));
  spec.shared_ffn = fields.u32("expert_shared_feed_forward_length", 1, 1U << 24);
  return read_qwen_experts(fields, true, spec);
}

Status finish_qwen35moe(const GgufFile& file, GgufFields& fields, ModelSpec& spec) {
  QSF_RETURN_IF_ERROR(finish_qwen3next(file, fields, spec));
  set_heads_in_turn(spec);
  return ok_status();
}

// The text part of a model of images: rows are stored in halves, as that kind of RoPE needs them.
bool has_rope_sections(const GgufFile& file) {
  return file.keys().find_key("glm4.rope.dimension_sections") != nullptr;
}

Status finish_lfm2(const GgufFile&, GgufFields& fields, ModelSpec& spec) {
  const std::uint32_t n_taps = fields.u32("shortconv.l_cache", 2, 16);
  if (spec.has_state()) spec.conv_taps = n_taps;
  return fields.status();
}

// No key says that weights have the sum 1, less a little for an epsilon.
Status finish_lfm2moe(const GgufFile& file, GgufFields& fields, ModelSpec& spec) {
  QSF_RETURN_IF_ERROR(finish_lfm2(file, fields, spec));
  QSF_RETURN_IF_ERROR(read_dense_layers(fields, spec));
  spec.expert_scoring = ExpertScoring::kSigmoid;
  spec.expert_scale = fields.positive_or("expert_weights_scale", 1.0F);
  QSF_RETURN_IF_ERROR(read_experts(fields, true, spec));
  if (spec.expert_renormalised) spec.expert_epsilon = 1e-6F;
  return ok_status();
}

// Trained with activations of 8 bits, one scale a token.
Status finish_bitnet(const GgufFile&, GgufFields&, ModelSpec& spec) {
  spec.int8_rows = true;
  return ok_status();
}

constexpr TensorPlace kBitnetEmbedding[] = {{TensorKind::kTokenEmbedding, ""}};
constexpr TensorPlace kBitnetCppLayer[] = {
    {TensorKind::kAttnNorm, ""},   {TensorKind::kAttnQ, ""},       {TensorKind::kAttnK, ""},
    {TensorKind::kAttnV, ""},      {TensorKind::kAttnSubNorm, ""}, {TensorKind::kAttnO, ""},
    {TensorKind::kFfnNorm, ""},    {TensorKind::kFfnGate, ""},     {TensorKind::kFfnUp, ""},
    {TensorKind::kFfnSubNorm, ""}, {TensorKind::kFfnDown, ""}};
constexpr TensorPlace kBitnetFinal[] = {{TensorKind::kFinalNorm, ""}};
constexpr TensorTable kBitnetTable = {"bitnet",        "",          "", kBitnetEmbedding,
                                      kBitnetCppLayer, kBitnetFinal};

// Falcon's first norm is that of the FFN where there are two.
constexpr GgufKindName kFalconTwoNormNames[] = {{TensorKind::kAttnNorm, "attn_norm_2.weight"},
                                                {TensorKind::kAttnNormBias, "attn_norm_2.bias"},
                                                {TensorKind::kFfnNorm, "attn_norm.weight"},
                                                {TensorKind::kFfnNormBias, "attn_norm.bias"}};

constexpr GgufKindName kGemma3nNames[] = {{TensorKind::kRouterNorm, "altup_router_norm.weight"}};
// What follows attention is the norm before the FFN here.
constexpr GgufKindName kLateFfnNormNames[] = {{TensorKind::kFfnNorm, "post_attention_norm.weight"}};
constexpr std::array kScanNames = std::to_array<GgufKindName>({
    {TensorKind::kMixerIn, "ssm_in.weight"},
    {TensorKind::kMixerInBias, "ssm_in.bias"},
    {TensorKind::kConvTaps, "ssm_conv1d.weight"},
    {TensorKind::kConvBias, "ssm_conv1d.bias"},
    {TensorKind::kScanDecay, "ssm_a"},
    {TensorKind::kScanBias, "ssm_dt.bias"},
    {TensorKind::kScanSkip, "ssm_d"},
    {TensorKind::kScanNorm, "ssm_norm.weight"},
    {TensorKind::kMixerOut, "ssm_out.weight"},
    {TensorKind::kMixerOutBias, "ssm_out.bias"},
});
// The same, and what the norm before an FFN is called.
constexpr std::array<GgufKindName, kScanNames.size() + 1> scan_names(const char* ffn_norm) {
  std::array<GgufKindName, kScanNames.size() + 1> names = {};
  std::copy(kScanNames.begin(), kScanNames.end(), names.begin());
  names.back() = {TensorKind::kFfnNorm, ffn_norm};
  return names;
}
constexpr std::array kNemotronNames = scan_names("attn_norm.weight");  // one norm a layer
constexpr std::array kFalconH1Names = scan_names("ffn_norm");          // a name without an ending
constexpr GgufKindName kQwen35Names[] = {{TensorKind::kFfnNorm, "post_attention_norm.weight"},
                                         {TensorKind::kAttnGate, "attn_q.weight"},
                                         {TensorKind::kMixerIn, "attn_qkv.weight"},
                                         {TensorKind::kMixerGate, "attn_gate.weight"},
                                         {TensorKind::kDeltaRate, "ssm_beta.weight"},
                                         {TensorKind::kDeltaStep, "ssm_alpha.weight"},
                                         {TensorKind::kConvTaps, "ssm_conv1d.weight"},
                                         {TensorKind::kScanDecay, "ssm_a"},
                                         {TensorKind::kScanBias, "ssm_dt.bias"},
                                         {TensorKind::kDeltaNorm, "ssm_norm.weight"},
                                         {TensorKind::kMixerOut, "ssm_out.weight"}};
constexpr GgufKindName kQwen3NextNames[] = {{TensorKind::kFfnNorm, "post_attention_norm.weight"},
                                            {TensorKind::kAttnGate, "attn_q.weight"},
                                            {TensorKind::kMixerIn, "attn_qkv.weight"},
                                            {TensorKind::kMixerGate, "attn_gate.weight"},
                                            {TensorKind::kDeltaRate, "ssm_ba.weight"},
                                            {TensorKind::kDeltaStep, "ssm_ba.weight"},
                                            {TensorKind::kConvTaps, "ssm_conv1d.weight"},
                                            {TensorKind::kScanDecay, "ssm_a"},
                                            {TensorKind::kScanBias, "ssm_dt.bias"},
                                            {TensorKind::kDeltaNorm, "ssm_norm.weight"},
                                            {TensorKind::kMixerOut, "ssm_out.weight"}};
constexpr GgufKindName kNomicBertNames[] = {{TensorKind::kAttnNorm, "layer_output_norm.weight"},
                                            {TensorKind::kAttnNormBias, "layer_output_norm.bias"},
                                            {TensorKind::kFfnNorm, "attn_output_norm.weight"},
                                            {TensorKind::kFfnNormBias, "attn_output_norm.bias"}};
// The final norm of LFM2 has the name of a norm of embeddings.
constexpr GgufKindName kLfm2Names[] = {{TensorKind::kFinalNorm, "token_embd_norm.weight"}};

constexpr GgufKindName kDeepseek2Names[] = {{TensorKind::kAttnK, "attn_kv_a_mqa.weight"}};
constexpr GgufKindName kDeepseek2QueryRowNames[] = {{TensorKind::kAttnQ, "attn_q_b.weight"},
                                                    {TensorKind::kAttnK, "attn_kv_a_mqa.weight"}};

constexpr GgufArchitecture kGgufArchitectures[] = {
    {.name = "llama",
     .family = "mixtral",
     .paired_rope = true,
     .finish = finish_mixtral,
     .holds = has_llama_experts},
    {.name = "llama", .family = "llama", .paired_rope = true, .finish = finish_windowed},
    {.name = "qwen2", .family = "qwen2"},
    {.name = "qwen3", .family = "qwen3"},
    {.name = "phi2",
     .family = "phi2",
     .norm = NormType::kLayerNorm,
     .activation = Activation::kGeluTanh,
     .gated_ffn = false,
     .parallel_block = true},
    {.name = "phi3", .family = "phi3", .finish = finish_windowed},
    {.name = "gemma",
     .family = "gemma",
     .activation = Activation::kGeluTanh,
     .finish = finish_gemma},
    {.name = "gemma2",
     .family = "gemma2",
     .activation = Activation::kGeluTanh,
     .finish = finish_gemma2},
    {.name = "gemma3",
     .family = "gemma3",
     .activation = Activation::kGeluTanh,
     .finish = finish_gemma3},
    {.name = "gemma3n",
     .family = "gemma3n",
     .activation = Activation::kGeluTanh,
     .heads_by_layer = true,
     .finish = finish_gemma3n,
     .names = kGemma3nNames},
    {.name = "gemma4",
     .family = "gemma4moe",
     .activation = Activation::kGeluTanh,
     .heads_by_layer = true,
     .finish = finish_gemma4moe,
     .holds = has_gemma4_experts},
    {.name = "gemma4",
     .family = "gemma4",
     .activation = Activation::kGeluTanh,
     .heads_by_layer = true,
     .finish = finish_gemma4},
    {.name = "gpt2",
     .family = "gpt2",
     .norm = NormType::kLayerNorm,
     .activation = Activation::kGeluTanh,
     .gated_ffn = false,
     .positions = PositionEncoding::kLearned},
    {.name = "stablelm",
     .family = "stablelm",
     .norm = NormType::kLayerNorm,
     .finish = finish_stablelm},
    {.name = "bloom",
     .family = "bloom",
     .norm = NormType::kLayerNorm,
     .activation = Activation::kGeluTanh,
     .gated_ffn = false,
     .positions = PositionEncoding::kAlibi},
    {.name = "smollm3", .family = "smollm3", .paired_rope = true, .finish = finish_smollm3},
    {.name = "olmo2", .family = "olmo2", .finish = finish_olmo2},
    {.name = "granite", .family = "granite", .paired_rope = true, .finish = finish_granite},
    {.name = "granitemoe",
     .family = "granitemoe",
     .paired_rope = true,
     .finish = finish_granitemoe},
    {.name = "granitehybrid",
     .family = "granitemoehybrid",
     .paired_rope = true,
     .state = LayerMixer::kMamba2,
     .finish = finish_granitemoehybrid,
     .names = kScanNames,
     .holds = has_hybrid_experts},
    {.name = "granitehybrid",
     .family = "granitehybrid",
     .paired_rope = true,
     .state = LayerMixer::kMamba2,
     .finish = finish_granitehybrid,
     .names = kScanNames},
    {.name = "falcon-h1",
     .family = "falcon-h1",
     .own_head = true,
     .finish = finish_falcon_h1,
     .names = kFalconH1Names},
    {.name = "nemotron_h",
     .family = "nemotron_h",
     .activation = Activation::kReluSquared,
     .gated_ffn = false,
     .state = LayerMixer::kMamba2,
     .single_sublayers = true,
     .finish = finish_nemotron_h,
     .names = kNemotronNames},
    {.name = "nemotron_h_moe",
     .family = "nemotron_h_moe",
     .activation = Activation::kReluSquared,
     .gated_ffn = false,
     .state = LayerMixer::kMamba2,
     .single_sublayers = true,
     .finish = finish_nemotron_h_moe,
     .names = kNemotronNames},
    {.name = "phimoe", .family = "phimoe", .norm = NormType::kLayerNorm, .finish = finish_phimoe},
    {.name = "glm4moe", .family = "glm4moe", .finish = finish_glm4moe, .names = kLateFfnNormNames},
    {.name = "deepseek2",
     .family = "deepseek2",
     .latent = true,
     .finish = finish_deepseek2,
     .names = kDeepseek2QueryRowNames,
     .holds = has_deepseek2_query_row},
    {.name = "deepseek2",
     .family = "deepseek2",
     .latent = true,
     .finish = finish_deepseek2,
     .names = kDeepseek2Names},
    {.name = "llama4", .family = "llama4", .paired_rope = true, .finish = finish_llama4},
    {.name = "qwen2moe", .family = "qwen2moe", .finish = finish_qwen2moe},
    {.name = "qwen3moe", .family = "qwen3moe", .finish = finish_qwen3moe},
    {.name = "olmoe", .family = "olmoe", .finish = finish_olmoe},
    {.name = "gpt-oss",
     .family = "gpt-oss",
     .activation = Activation::kSwishClamped,
     .finish = finish_gpt_oss,
     .names = kLateFfnNormNames},
    {.name = "mistral3", .family = "mistral3", .paired_rope = true, .finish = finish_mistral3},
    {.name = "glm4", .family = "glm4", .holds = has_rope_sections},
    {.name = "glm4", .family = "glm4", .paired_rope = true},
    {.name = "exaone4", .family = "exaone4", .finish = finish_exaone4},
    {.name = "command-r",
     .family = "command-r",
     .norm = NormType::kLayerNorm,
     .parallel_block = true,
     .paired_rope = true,
     .finish = finish_command_r},
    {.name = "cohere2",
     .family = "cohere2",
     .norm = NormType::kLayerNorm,
     .parallel_block = true,
     .paired_rope = true,
     .finish = finish_cohere2},
    {.name = "falcon",
     .family = "falcon-two-norms",
     .norm = NormType::kLayerNorm,
     .activation = Activation::kGeluErf,
     .gated_ffn = false,
     .parallel_block = true,
     .finish = finish_falcon,
     .names = kFalconTwoNormNames,
     .holds = has_falcon_attention_norm},
    {.name = "falcon",
     .family = "falcon",
     .norm = NormType::kLayerNorm,
     .activation = Activation::kGeluErf,
     .gated_ffn = false,
     .parallel_block = true,
     .finish = finish_falcon},
    {.name = "gptneox",
     .family = "gptneox",
     .norm = NormType::kLayerNorm,
     .activation = Activation::kGeluErf,
     .gated_ffn = false,
     .finish = finish_gptneox},
    {.name = "starcoder2",
     .family = "starcoder2",
     .norm = NormType::kLayerNorm,
     .activation = Activation::kGeluTanh,
     .gated_ffn = false,
     .finish = finish_windowed},
    {.name = "internlm2", .family = "internlm2", .paired_rope = true},
    {.name = "mpt",
     .family = "mpt",
     .norm = NormType::kLayerNorm,
     .activation = Activation::kGeluErf,
     .gated_ffn = false,
     .positions = PositionEncoding::kAlibi,
     .finish = finish_mpt},
    {.name = "gemma-embedding",
     .family = "gemma3",
     .activation = Activation::kGeluTanh,
     .finish = finish_gemma_embedding},
    {.name = "modern-bert",
     .family = "modernbert",
     .norm = NormType::kLayerNorm,
     .activation = Activation::kGeluErf,
     .finish = finish_modernbert},
    {.name = "nomic-bert",
     .family = "nomic-bert",
     .norm = NormType::kLayerNorm,
     .finish = finish_nomic_bert,
     .names = kNomicBertNames},
    {.name = "lfm2",
     .family = "lfm2",
     .state = LayerMixer::kShortConv,
     .finish = finish_lfm2,
     .names = kLfm2Names},
    {.name = "lfm2moe",
     .family = "lfm2moe",
     .state = LayerMixer::kShortConv,
     .finish = finish_lfm2moe,
     .names = kLfm2Names},
    {.name = "qwen35",
     .family = "qwen35",
     .gated_queries = true,
     .finish = finish_qwen35,
     .names = kQwen35Names},
    {.name = "qwen35moe",
     .family = "qwen35moe",
     .gated_queries = true,
     .finish = finish_qwen35moe,
     .names = kQwen35Names},
    {.name = "qwen3next",
     .family = "qwen3next",
     .gated_queries = true,
     .rates_by_group = true,
     .finish = finish_qwen3next,
     .names = kQwen3NextNames},
    // BitNet files have no key for the activation; it follows from the architecture's name.
    {.name = "bitnet", .family = "bitnet", .finish = finish_bitnet, .table = &kBitnetTable},
    {.name = "bitnet-25",
     .family = "bitnet-25",
     .activation = Activation::kReluSquared,
     .finish = finish_bitnet,
     .table = &kBitnetTable},
    {.name = "bitnet-b1.58",
     .family = "bitnet-b1.58",
     .activation = Activation::kReluSquared,
     .finish = finish_bitnet,
     .table = &kBitnetTable},
};

// Each name once: rows that ask something of a file come before the one that does not.
std::string gguf_architecture_names() {
  std::string names;
  for (const GgufArchitecture& a : kGgufArchitectures) {
    if (a.holds != nullptr) continue;
    if (!names.empty()) names += &a + 1 == std::end(kGgufArchitectures) ? " and " : ", ";
    names += a.name;
  }
  return names;
}

}  // namespace

Result<const GgufArchitecture*> find_gguf_architecture(const GgufFile& file) {
  QSF_ASSIGN_OR_RETURN(const auto name, file.keys().get_string("general.architecture"));
  if (!name.has_value()) {
    return corrupt("GGUF: key \"general.architecture\" is missing: the file has no model");
  }
  for (const GgufArchitecture& architecture : kGgufArchitectures) {
    if (architecture.name != *name) continue;
    if (architecture.holds == nullptr || architecture.holds(file)) return &architecture;
  }
  return unsupported("GGUF: architecture \"%s\" is not supported; expected one of %s",
                     shown_gguf_text(*name).c_str(), gguf_architecture_names().c_str());
}

const GgufArchitecture* find_gguf_architecture(std::string_view name,
                                               std::string_view family) noexcept {
  const GgufArchitecture* found = nullptr;
  for (const GgufArchitecture& architecture : kGgufArchitectures) {
    if (architecture.name != name || architecture.family != family) continue;
    if (found != nullptr) return nullptr;
    found = &architecture;
  }
  return found;
}

}  // namespace qsf
