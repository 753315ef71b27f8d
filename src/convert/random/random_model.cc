// SPDX-License-Identifier: MIT

#include "convert/random/random_model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/portable_math.h"
#include "base/rng.h"
#include "convert/random/random_blocks.h"
#include "format/tensor_rules.h"
#include "import/hf/hf_tensors.h"
#include "import/model_source.h"
#include "tokenizer/tokenizer_data.h"

namespace qsf {
namespace {

// Every `every`-th layer sees everything, the others a window.
std::vector<std::uint32_t> windows(const ModelSpec& spec, std::uint32_t window,
                                   std::uint32_t every) {
  std::vector<std::uint32_t> all;
  for (std::uint32_t layer = 1; layer <= spec.n_layers; ++layer) {
    all.push_back(layer % every == 0 ? 0 : window);
  }
  return all;
}

void make_gemma3(ModelSpec& spec) {
  spec.head_dim = 256;
  spec.activation = Activation::kGeluTanh;
  spec.tied_head = true;
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
  spec.attention_scale = 1.0F / 16.0F;
  spec.rope.theta = 1000000.0F;
  const bool small = spec.max_positions < 131072;
  if (!small) {
    spec.rope.scaling = RopeScaling::kLinear;
    spec.rope.factor = 8.0F;
  }
  spec.sliding_window = windows(spec, small ? 512 : 1024, 6);
  for (const std::uint32_t window : spec.sliding_window) {
    const LayerRope rope = window == 0 ? LayerRope::kMain : LayerRope::kLocal;
    spec.layer_rope.push_back(static_cast<std::uint32_t>(rope));
  }
}

void set_experts(std::uint32_t n, std::uint32_t used, std::uint32_t ffn, ModelSpec& spec) {
  spec.n_experts = n;
  spec.n_experts_used = used;
  spec.expert_ffn = ffn;
}

void make_gemma4_layers(std::uint32_t window, std::uint32_t every, KvHeads global,
                        ModelSpec& spec) {
  spec.activation = Activation::kGeluTanh;
  spec.tied_head = true;
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
  spec.attention_scale = 1.0F;
  spec.value_norms = true;
  spec.logit_soft_cap = 30.0F;
  spec.rope.theta = 1000000.0F;
  spec.rope.n_turning = 64;
  spec.sliding_window = windows(spec, window, every);
  std::vector<KvHeads> heads;
  for (const std::uint32_t of_layer : spec.sliding_window) {
    const LayerRope rope = of_layer == 0 ? LayerRope::kMain : LayerRope::kLocal;
    spec.layer_rope.push_back(static_cast<std::uint32_t>(rope));
    heads.push_back(of_layer == 0 ? global : KvHeads{spec.n_kv_heads, 256});
  }
  set_layer_heads(std::move(heads), spec);
}

void make_gemma4(ModelSpec& spec) {
  make_gemma4_layers(1024, 6, {spec.n_kv_heads / 4, 512}, spec);
  for (const std::uint32_t window : spec.sliding_window) {
    spec.key_value_layers.push_back(window == 0 ? 1 : 0);
  }
}

void make_gemma4_e2b(ModelSpec& spec) {
  make_gemma4_layers(512, 5, {spec.n_kv_heads, 512}, spec);
  spec.layer_input_dim = 256;
  const std::uint32_t n_sharing = spec.n_layers * 4 / 7;
  QSF_CHECK(share_kv(n_sharing, spec).ok());
  std::vector<std::uint32_t> ffn(spec.n_layers, spec.ffn);
  std::fill(ffn.end() - n_sharing, ffn.end(), 2 * spec.ffn);
  set_layer_ffn(std::move(ffn), spec);
}

void make_gemma3n(ModelSpec& spec) {
  spec.activation = Activation::kGeluTanh;
  spec.tied_head = true;
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
  spec.attention_scale = 1.0F;
  spec.value_norms = true;
  spec.logit_soft_cap = 30.0F;
  spec.rope.theta = 1000000.0F;
  spec.sliding_window = windows(spec, 512, 5);
  for (const std::uint32_t of_layer : spec.sliding_window) {
    const LayerRope rope = of_layer == 0 ? LayerRope::kMain : LayerRope::kLocal;
    spec.layer_rope.push_back(static_cast<std::uint32_t>(rope));
  }
  spec.layer_input_dim = 256;
  spec.layer_input_rows = spec.n_vocab - 256;  // without tokens of images and sound
  spec.n_streams = 4;
  spec.laurel_dim = 64;
  spec.ffn_cutoff = 1.6448534F;
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    spec.ffn_cutoff_layers.push_back(layer < spec.n_layers / 3 ? 1 : 0);
  }
  QSF_CHECK(share_kv(spec.n_layers / 3, spec).ok());
}

void make_gemma4_moe(ModelSpec& spec) {
  make_gemma4(spec);
  set_experts(128, 8, 704, spec);
  spec.expert_renormalised = true;
  spec.experts_beside_ffn = true;
}

void make_smollm3(ModelSpec& spec) {
  spec.tied_head = true;
  spec.rope.theta = 5000000.0F;
  for (std::uint32_t layer = 1; layer <= spec.n_layers; ++layer) {
    const LayerRope rope = layer % 4 == 0 ? LayerRope::kNone : LayerRope::kMain;
    spec.layer_rope.push_back(static_cast<std::uint32_t>(rope));
  }
}

void make_mixtral(ModelSpec& spec) {
  set_experts(8, 2, spec.ffn, spec);
  spec.expert_renormalised = true;
  spec.rope.theta = 1000000.0F;
}

// Keys and values of all heads are products of one row; the first layer has no experts.
void make_deepseek2(ModelSpec& spec) {
  set_experts(64, 6, 1408, spec);
  spec.shared_ffn = 2 * spec.expert_ffn;
  spec.expert_layers.assign(spec.n_layers, 1);
  spec.expert_layers.front() = 0;
  spec.latent_dim = 512;
  spec.latent_key_dim = spec.latent_value_dim = 128;
  spec.rope.dims = 64;
  spec.head_dim = spec.latent_dim + spec.rope.dims;
  spec.attention_scale = 1.0F / std::sqrt(static_cast<float>(spec.query_dim()));
}

void make_qwen3moe(ModelSpec& spec) {
  set_experts(128, 8, 768, spec);
  spec.expert_renormalised = true;
  spec.head_dim = 128;
  spec.rope.theta = 1000000.0F;
}

void make_gpt_oss(ModelSpec& spec) {
  set_experts(32, 4, spec.ffn, spec);
  spec.expert_renormalised = true;
  spec.head_dim = 64;
  spec.activation = Activation::kSwishClamped;
  spec.sliding_window = windows(spec, 128, 2);
  spec.rope.theta = 150000.0F;
  spec.rope.scaling = RopeScaling::kYarn;
  spec.rope.factor = 32.0F;
  spec.rope.original_context = 4096;
  spec.rope.truncate = false;
  spec.rope.attention_factor = 0.1F * static_cast<float>(portable::log(32.0)) + 1.0F;
}

void make_olmoe(ModelSpec& spec) {
  set_experts(64, 8, spec.ffn, spec);
}

// One layer in four attends.
void make_lfm2_moe(ModelSpec& spec) {
  set_experts(32, 4, 1792, spec);
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    const bool attends = layer % 4 == std::min(2U, spec.n_layers - 1);
    const LayerMixer mixer = attends ? LayerMixer::kAttention : LayerMixer::kShortConv;
    spec.layer_mixers.push_back(static_cast<std::uint32_t>(mixer));
    if (spec.n_layers > 2) spec.expert_layers.push_back(layer < 2 ? 0 : 1);
  }
  spec.conv_taps = 3;
  spec.tied_head = true;
  spec.expert_scoring = ExpertScoring::kSigmoid;
  spec.expert_renormalised = true;
  spec.expert_epsilon = 1e-6F;
  spec.rope.theta = 1000000.0F;
}

// One layer in ten attends.
void make_granite4_h(ModelSpec& spec) {
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    const bool attends = layer % 10 == std::min(5U, spec.n_layers - 1);
    const LayerMixer mixer = attends ? LayerMixer::kAttention : LayerMixer::kMamba2;
    spec.layer_mixers.push_back(static_cast<std::uint32_t>(mixer));
  }
  spec.layer_rope.assign(spec.n_layers, static_cast<std::uint32_t>(LayerRope::kNone));
  spec.tied_head = true;
  spec.conv_taps = 4;
  spec.mixer_heads = spec.mixer_head_dim = 64;
  spec.mixer_state = 128;
  spec.mixer_groups = 1;
  spec.embedding_scale = 12.0F;
  spec.residual_scale = 0.22F;
  spec.attention_scale = 1.0F / 64.0F;
  spec.logit_scale = 0.125F;
}

// Each layer scans and attends.
void make_falcon_h1(ModelSpec& spec) {
  spec.layer_mixers.assign(spec.n_layers,
                           static_cast<std::uint32_t>(LayerMixer::kMamba2AndAttention));
  spec.head_dim = 64;
  spec.rope.theta = 1e11F;
  spec.conv_taps = 4;
  spec.mixer_heads = 24;
  spec.mixer_head_dim = 64;
  spec.mixer_state = 128;
  spec.mixer_groups = 1;
}

// Each layer scans (M), attends (*) or has experts (E).
void make_nemotron3_nano(ModelSpec& spec) {
  constexpr std::string_view kPattern = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME";
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    const char letter = kPattern[layer % kPattern.size()];
    LayerMixer mixer = letter == '*' ? LayerMixer::kAttention : LayerMixer::kMamba2;
    if (letter == 'E') mixer = LayerMixer::kNone;
    spec.layer_mixers.push_back(static_cast<std::uint32_t>(mixer));
    spec.ffn_layers.push_back(letter == 'E' ? 1 : 0);
  }
  spec.layer_rope.assign(spec.n_layers, static_cast<std::uint32_t>(LayerRope::kNone));
  spec.gated_ffn = false;
  spec.activation = Activation::kReluSquared;
  spec.head_dim = 128;
  spec.conv_taps = 4;
  spec.mixer_heads = spec.mixer_head_dim = 64;
  spec.mixer_state = 128;
  spec.mixer_groups = 8;
  spec.n_experts = 128;
  spec.n_experts_used = 6;
  spec.expert_ffn = 1856;
  spec.shared_ffn = 3712;
  spec.expert_scoring = ExpertScoring::kSigmoid;
  spec.expert_renormalised = true;
  spec.expert_epsilon = 1e-20F;
  spec.expert_scale = 2.5F;
}

// One layer in four attends.
void make_qwen35(ModelSpec& spec) {
  for (std::uint32_t layer = 1; layer <= spec.n_layers; ++layer) {
    const bool attends = layer % std::min(4U, spec.n_layers) == 0;
    const LayerMixer mixer = attends ? LayerMixer::kAttention : LayerMixer::kDeltaNet;
    spec.layer_mixers.push_back(static_cast<std::uint32_t>(mixer));
  }
  spec.tied_head = true;
  spec.head_dim = 256;
  spec.rope.dims = 64;
  spec.rope.theta = 10000000.0F;
  spec.conv_taps = 4;
  spec.mixer_heads = spec.mixer_groups = 16;
  spec.mixer_head_dim = spec.mixer_state = 128;
}

// name, architecture, layers, hidden, FFN, heads, KV heads, vocabulary, positions, int8 rows, the
// rest of the family, type of experts
constexpr RandomShape kShapes[] = {
    {"1b", "llama", 22, 2048, 5632, 32, 4, 32000, 16384},
    {"3b", "llama", 28, 3072, 8192, 24, 8, 32000, 4096},
    {"7b", "llama", 32, 4096, 11008, 32, 32, 32000, 4096},
    {"7b-gqa", "llama", 32, 4096, 14336, 32, 8, 32000, 4096},
    {"13b", "llama", 40, 5120, 13824, 40, 40, 32000, 4096},
    {"gpt2", "gpt2", 12, 768, 3072, 12, 12, 50257, 1024},
    {"gpt2-medium", "gpt2", 24, 1024, 4096, 16, 16, 50257, 1024},
    {"gpt2-large", "gpt2", 36, 1280, 5120, 20, 20, 50257, 1024},
    {"gemma3-270m", "gemma3", 18, 640, 2048, 4, 1, 262144, 32768, false, make_gemma3},
    {"gemma3-4b", "gemma3", 34, 2560, 10240, 8, 4, 262208, 131072, false, make_gemma3},
    {"gemma3n-e2b", "gemma3n", 30, 2048, 8192, 8, 2, 262400, 32768, false, make_gemma3n},
    {"gemma4-31b", "gemma4", 60, 5376, 21504, 32, 16, 262144, 262144, false, make_gemma4},
    {"gemma4-e2b", "gemma4", 35, 1536, 6144, 8, 1, 262144, 131072, false, make_gemma4_e2b},
    {"gemma4-26b-a4b", "gemma4moe", 30, 2816, 2112, 16, 8, 262144, 262144, false, make_gemma4_moe},
    {"smollm3-3b", "smollm3", 36, 2048, 11008, 16, 4, 128256, 65536, false, make_smollm3},
    {"olmoe-7b", "olmoe", 16, 2048, 1024, 16, 16, 50304, 4096, false, make_olmoe},
    {"deepseek-v2-lite", "deepseek2", 27, 2048, 10944, 16, 1, 102400, 163840, false,
     make_deepseek2},
    {"qwen3-30b-a3b", "qwen3moe", 48, 2048, 6144, 32, 4, 151936, 40960, false, make_qwen3moe},
    {"granite4-h-micro", "granitehybrid", 40, 2048, 8192, 32, 8, 100352, 131072, false,
     make_granite4_h},
    {"falcon-h1-0.5b", "falcon-h1", 36, 1024, 2048, 8, 2, 32784, 16384, false, make_falcon_h1},
    {"nemotron3-nano-30b-a3b", "nemotron_h_moe", 52, 2688, 1856, 32, 2, 131072, 262144, false,
     make_nemotron3_nano},
    {"lfm2-8b-a1b", "lfm2moe", 24, 2048, 7168, 32, 8, 65536, 128000, false, make_lfm2_moe},
    {"qwen3.5-0.8b", "qwen35", 24, 1024, 3584, 8, 2, 248320, 262144, false, make_qwen35},
    {"gpt-oss-20b", "gpt-oss", 24, 2880, 2880, 64, 8, 201088, 131072, false, make_gpt_oss,
     QuantType::kMxfp4},
    {"mixtral-8x7b", "mixtral", 32, 4096, 14336, 32, 8, 32000, 32768, false, make_mixtral},
    {"phi2", "phi2", 32, 2560, 10240, 32, 32, 51200, 2048},
    // Few weights under a large vocabulary, where sampling weighs most.
    {"270m", "llama", 18, 640, 2048, 10, 2, 262144, 32768},
    // One layer of 1b, for attention over more positions than all layers are measured with.
    {"1b-layer", "llama", 1, 2048, 5632, 32, 4, 32000, 32768},
    // 1b with positions for prompts of 32,768 tokens and the text after them.
    {"1b-long", "llama", 22, 2048, 5632, 32, 4, 32000, 65536},
    // With int8 activation rows, as in natively ternary models.
    {"1b-int8", "llama", 22, 2048, 5632, 32, 4, 32000, 16384, true},
    // For tests: rows that do not divide by 16 and columns that do not divide by a block.
    {"tiny", "llama", 2, 80, 200, 4, 2, 330, 512},
};

}  // namespace

std::span<const RandomShape> random_shapes() noexcept {
  return kShapes;
}

std::string random_shape_names() {
  std::string names;
  for (const RandomShape& shape : kShapes) {
    if (!names.empty()) names += ", ";
    names += shape.name;
  }
  return names;
}

Result<RandomShape> find_random_shape(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kShapes), std::end(kShapes),
                                         [name](const RandomShape& s) { return s.name == name; });
  if (found != std::end(kShapes)) return *found;
  return invalid_argument("shape: got \"%s\", expected one of %s",
                          std::string(name.substr(0, 40)).c_str(), random_shape_names().c_str());
}

ModelSpec shape_spec(const RandomShape& shape) {
  ModelSpec spec;
  spec.architecture = shape.architecture;
  spec.n_layers = shape.n_layers;
  spec.hidden = shape.hidden;
  spec.ffn = shape.ffn;
  spec.n_heads = shape.n_heads;
  spec.n_kv_heads = shape.n_kv_heads;
  spec.head_dim = shape.hidden / shape.n_heads;
  spec.n_vocab = shape.n_vocab;
  spec.max_positions = shape.max_positions;
  spec.int8_rows = shape.int8_rows;
  if (shape.architecture == "gpt2") {
    spec.tied_head = true;
    return spec;
  }
  spec.positions = PositionEncoding::kRope;
  if (shape.architecture == "phi2") {
    spec.rope.dims = spec.head_dim * 2 / 5;
    spec.parallel_block = true;
    return spec;
  }
  spec.norm = NormType::kRmsNorm;
  spec.activation = Activation::kSilu;
  spec.gated_ffn = true;
  if (shape.complete != nullptr) shape.complete(spec);
  return spec;
}

namespace {

// "<unk>", "<s>", "</s>", the 256 bytes, and then pieces that no text is encoded to. One token per
// byte: a prompt has one token more than bytes.
TokenizerData byte_tokenizer(std::uint32_t n_vocab) {
  TokenizerData data;
  data.kind = TokenizerKind::kScoredBpe;
  data.byte_fallback = true;
  data.add_bos = true;
  data.unk = 0;
  data.bos = 1;
  data.eos = 2;
  data.stop_ids = {2};
  data.tokens = {{"<unk>", TokenType::kUnknown, 0.0F},
                 {"<s>", TokenType::kControl, 0.0F},
                 {"</s>", TokenType::kControl, 0.0F}};
  char text[16];
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    data.tokens.push_back({text, TokenType::kByte, 0.0F});
  }
  for (std::uint32_t i = 0; data.tokens.size() < n_vocab; ++i) {
    data.tokens.push_back({"t" + std::to_string(i), TokenType::kNormal, -static_cast<float>(i)});
  }
  return data;
}

// The value of every element of a vector: states of scans fade, and little else has an effect.
float vector_value(TensorKind kind) noexcept {
  switch (kind) {
    case TensorKind::kScanDecay: return -1.0F;
    case TensorKind::kConvTaps:
    case TensorKind::kScanSkip:
    case TensorKind::kScanNorm:
    case TensorKind::kDeltaNorm:
    case TensorKind::kAttnNorm:
    case TensorKind::kFfnNorm:
    case TensorKind::kQNorm:
    case TensorKind::kKNorm:
    case TensorKind::kLatentQueryNorm:
    case TensorKind::kLatentNorm:
    case TensorKind::kLayerScale:
    case TensorKind::kLayerInputNorm:
    case TensorKind::kLayerInputPostNorm:
    case TensorKind::kRouterNorm:
    case TensorKind::kExpertScales:
    case TensorKind::kExpertNorm:
    case TensorKind::kDensePostNorm:
    case TensorKind::kExpertPostNorm:
    case TensorKind::kStreamScale:
    case TensorKind::kLaurelNorm:
    case TensorKind::kAttnPostNorm:
    case TensorKind::kFfnPostNorm:
    case TensorKind::kFinalNorm: return 1.0F;
    default: return 0.0F;
  }
}

class RandomModelWriter {
 public:
  RandomModelWriter(const RandomShape& shape, const RandomModelOptions& options)
      : options_(options),
        spec_(shape_spec(shape)),
        expert_type_(shape.expert_type),
        rng_(options.seed) {
    spec_.bos_id = 1;
    spec_.eos_ids = {2};
    spec_.default_type = preset_default_type(options.preset);
    spec_.block = options.block;
    spec_.source = "random weights of the shape " + std::string(shape.name);
    spec_.quantiser = options.program + (options.program.empty() ? "" : ": ") + "random " +
                      std::string(quant_preset_name(options.preset)) + ", blocks of " +
                      std::to_string(options.block) + ", seed " + std::to_string(options.seed);
  }

  Result<RandomModelReport> write(const std::string& path, FileOps& ops);

 private:
  bool is_present(Presence presence, std::uint32_t layer) const noexcept;
  Result<std::vector<TensorInfo>> tensors(SectionKind section, std::uint32_t layer) const;
  Result<TensorInfo> tensor(std::uint32_t layer, const TensorPlace& place,
                            std::uint32_t expert = 0) const;
  Status write_section(SectionKind section, std::uint32_t layer, QsfWriter& writer);
  Status check_cancelled() const {
    if (options_.cancel == nullptr || !options_.cancel->load()) return ok_status();
    return cancelled("interrupted; no file was written");
  }

  const RandomModelOptions& options_;
  ModelSpec spec_;
  std::optional<QuantType> expert_type_;
  Rng rng_;
  std::vector<std::byte> tile_;
  std::uint64_t done_weights_ = 0;
  std::uint64_t total_weights_ = 0;
};

Result<TensorInfo> RandomModelWriter::tensor(std::uint32_t layer, const TensorPlace& place,
                                             std::uint32_t expert) const {
  const TensorKind kind = place.kind;
  const TensorShape shape = place_shape(spec_, layer, place);
  if (shape.rows == 1) {
    return TensorInfo{kind,
                      1,
                      shape.cols,
                      block_format(QuantType::kF32, 0),
                      Layout::kRowMajor,
                      static_cast<std::uint16_t>(expert)};
  }
  BlockFormat format = preset_format(options_.preset, kind, options_.block);
  if (options_.head_type && is_vocabulary(kind)) {
    format = block_format(*options_.head_type, options_.block);
  }
  const bool of_expert = kind == TensorKind::kExpertGate || kind == TensorKind::kExpertUp ||
                         kind == TensorKind::kExpertDown;
  if (expert_type_ && of_expert) format = block_format(*expert_type_, options_.block);
  if (!is_valid(format)) {
    return invalid_argument("%s: block size %u is not possible with type %s",
                            std::string(tensor_kind_name(kind)).c_str(), options_.block,
                            std::string(quant_type_name(format.type)).c_str());
  }
  return TensorInfo{kind,   shape.rows,      shape.cols,
                    format, options_.layout, static_cast<std::uint16_t>(expert)};
}

bool RandomModelWriter::is_present(Presence presence, std::uint32_t layer) const noexcept {
  switch (presence) {
    case Presence::kAlways: return true;
    case Presence::kBehindFirst: return layer != 0;
    case Presence::kOwnKeys: return spec_.owns_kv(layer);
    case Presence::kOwnValues:
      return spec_.owns_kv(layer) && !spec_.attention_of(layer).values_are_keys;
    case Presence::kLayerInput: return spec_.layer_input_dim != 0;
    case Presence::kFirstStreams: return layer == 0;
    case Presence::kLastStreams: return layer + 1 == spec_.n_layers;
    case Presence::kDense: return !spec_.has_experts(layer);
    case Presence::kExperts: return spec_.has_experts(layer);
    case Presence::kShared: return spec_.has_experts(layer) && spec_.shared_ffn != 0;
    case Presence::kRouterCorrection:
      return spec_.has_experts(layer) && spec_.expert_scoring == ExpertScoring::kSigmoid;
    case Presence::kQueryRow: return spec_.latent_query_dim != 0;
    case Presence::kNoQueryRow: return spec_.latent_query_dim == 0;
    default: return false;
  }
}

// The tensors in the order of imported models, without those that only some models of the family
// have.
Result<std::vector<TensorInfo>> RandomModelWriter::tensors(SectionKind section,
                                                           std::uint32_t layer) const {
  const TensorTable& table = tensor_table(spec_.architecture);
  std::vector<TensorPlace> places;
  for (const TensorPlace& place : section == SectionKind::kEmbedding ? table.embedding
                                  : section == SectionKind::kLayer   ? table.places_of(spec_, layer)
                                                                     : table.final) {
    if (is_present(place.presence, layer)) places.push_back(place);
  }
  if (section == SectionKind::kFinal && !spec_.tied_head) {
    places.push_back({TensorKind::kHead, ""});
    if (table.head_bias) places.push_back({TensorKind::kHeadBias, ""});
  }
  std::vector<TensorInfo> infos;
  for (const TensorPlace& place : places) {
    const std::uint32_t n = is_of_stream(place.kind) ? spec_.n_streams - 1 : 1;
    for (std::uint32_t i = 0; i < n; ++i) {
      QSF_ASSIGN_OR_RETURN(const TensorInfo info, tensor(layer, place, i));
      infos.push_back(info);
    }
  }
  if (section != SectionKind::kLayer || !spec_.has_experts(layer)) return infos;
  for (std::uint32_t expert = 0; expert < spec_.n_experts; ++expert) {
    for (const TensorPlace& place : table.experts) {
      QSF_ASSIGN_OR_RETURN(const TensorInfo info, tensor(layer, place, expert));
      infos.push_back(info);
    }
  }
  return infos;
}

Status RandomModelWriter::write_section(SectionKind section, std::uint32_t layer,
                                        QsfWriter& writer) {
  QSF_ASSIGN_OR_RETURN(const std::vector<TensorInfo> infos, tensors(section, layer));
  QSF_RETURN_IF_ERROR(writer.begin_section(section, layer, infos));
  for (const TilePlan& tile : writer.tiles()) {
    QSF_RETURN_IF_ERROR(check_cancelled());
    tile_.assign(tile.raw_bytes, std::byte{0});
    if (tile.tensor == kOneRowTensors) {
      for (std::size_t i = 0; i < infos.size(); ++i) {
        if (infos[i].rows != 1) continue;
        done_weights_ += infos[i].cols;
        const std::uint64_t offset = one_row_offset(infos, i);
        for (std::uint32_t c = 0; c < infos[i].cols; ++c) {
          store_le(MutableByteSpan(tile_), offset + 4U * c, vector_value(infos[i].kind));
        }
      }
    } else {
      const TensorInfo& info = infos[tile.tensor];
      fill_random_rows(info.format, info.layout, tile.n_rows, info.cols, rng_, tile_);
      done_weights_ += std::uint64_t{tile.n_rows} * info.cols;
    }
    QSF_RETURN_IF_ERROR(writer.write_tile(tile_));
    if (options_.on_progress) options_.on_progress(done_weights_, total_weights_);
  }
  return writer.end_section();
}

Result<RandomModelReport> RandomModelWriter::write(const std::string& path, FileOps& ops) {
  const auto count = [this](SectionKind section, std::uint32_t layer) {
    auto infos = tensors(section, layer);
    if (!infos) return std::move(infos).error();
    for (const TensorInfo& info : *infos) total_weights_ += std::uint64_t{info.rows} * info.cols;
    return ok_status();
  };
  QSF_RETURN_IF_ERROR(count(SectionKind::kEmbedding, 0));
  for (std::uint32_t layer = 0; layer < spec_.n_layers; ++layer) {
    QSF_RETURN_IF_ERROR(count(SectionKind::kLayer, layer));
  }
  QSF_RETURN_IF_ERROR(count(SectionKind::kFinal, 0));
  QSF_ASSIGN_OR_RETURN(
      QsfWriter writer,
      QsfWriter::create(path, spec_, {options_.compression, options_.tile_bytes}, ops));
  QSF_ASSIGN_OR_RETURN(const std::vector<std::byte> tokenizer,
                       write_tokenizer_section(byte_tokenizer(spec_.n_vocab)));
  QSF_RETURN_IF_ERROR(writer.set_tokenizer(tokenizer));
  QSF_RETURN_IF_ERROR(write_section(SectionKind::kEmbedding, 0, writer));
  for (std::uint32_t layer = 0; layer < spec_.n_layers; ++layer) {
    QSF_RETURN_IF_ERROR(write_section(SectionKind::kLayer, layer, writer));
  }
  QSF_RETURN_IF_ERROR(write_section(SectionKind::kFinal, 0, writer));
  const RandomModelReport report{total_weights_, writer.raw_bytes(), writer.stored_bytes()};
  QSF_RETURN_IF_ERROR(check_cancelled());
  QSF_RETURN_IF_ERROR(writer.finish());
  return report;
}

}  // namespace

Result<RandomModelReport> write_random_model(const RandomShape& shape, const std::string& path,
                                             const RandomModelOptions& options, FileOps& ops) {
  return RandomModelWriter(shape, options).write(path, ops);
}

}  // namespace qsf
