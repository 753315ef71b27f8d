// SPDX-License-Identifier: MIT

#include "import/gguf/gguf_arch.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <utility>

#include "import/gguf/ggml_types.h"

namespace qsf {

template <typename T>
std::optional<T> GgufFields::take(Result<std::optional<T>> value) {
  if (value) return *value;
  fail(std::move(value).error());
  return std::nullopt;
}

std::uint32_t GgufFields::u32(const char* name, std::uint32_t low, std::uint32_t high) {
  if (!has(name)) {
    fail(corrupt("GGUF: key \"%s%s\" is missing", prefix_.c_str(), name));
    return 0;
  }
  return u32_or(name, low, low, high);
}

std::uint32_t GgufFields::u32_or(const char* name, std::uint32_t fallback, std::uint32_t low,
                                 std::uint32_t high) {
  const auto value = take(gguf_.get_unsigned(prefix_ + name));
  if (!value) return status_.ok() ? fallback : 0;
  if (*value >= low && *value <= high) return static_cast<std::uint32_t>(*value);
  fail(corrupt("GGUF: key \"%s%s\" is %llu, expected %u to %u", prefix_.c_str(), name,
               static_cast<unsigned long long>(*value), low, high));
  return 0;
}

float GgufFields::positive(const char* name, std::optional<float> fallback) {
  const auto value = take(gguf_.get_float(prefix_ + name));
  if (!value) {
    if (!fallback) fail(corrupt("GGUF: key \"%s%s\" is missing", prefix_.c_str(), name));
    return fallback.value_or(1.0F);
  }
  const auto number = static_cast<float>(*value);
  if (std::isfinite(number) && number > 0.0F) return number;
  fail(corrupt("GGUF: key \"%s%s\" is %g, expected a finite number above 0", prefix_.c_str(), name,
               *value));
  return 1.0F;
}

bool GgufFields::boolean(const char* name, bool fallback) {
  return take(gguf_.get_bool(prefix_ + name)).value_or(fallback);
}

std::string GgufFields::text(const char* name, std::string_view fallback) {
  return std::string(take(gguf_.get_string(prefix_ + name)).value_or(fallback));
}

void GgufFields::refuse_unless(const char* name, double only) {
  const GgufKey* key = gguf_.find_key(prefix_ + name);
  if (key == nullptr) return;
  std::optional<double> value;
  if (key->type == GgufType::kF32 || key->type == GgufType::kF64) {
    value = take(gguf_.get_float(prefix_ + name));
  } else if (key->type == GgufType::kBool) {
    value = take(gguf_.get_bool(prefix_ + name)).value_or(false) ? 1.0 : 0.0;
  } else if (const auto integer = take(gguf_.get_unsigned(prefix_ + name)); integer.has_value()) {
    value = static_cast<double>(*integer);
  }
  if (!value || *value == only) return;
  fail(unsupported("GGUF: key \"%s%s\" is %g, which is not supported", prefix_.c_str(), name,
                   *value));
}

namespace {

// Gemma's embeddings are scaled by the root of their width.
Status finish_gemma(GgufFields&, ModelSpec& spec) {
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
  return ok_status();
}

// No key holds the scale of scores: it follows from the width of a head, but for the largest model,
// which has 46 layers and takes the width of the residual stream instead.
Status finish_gemma2(GgufFields& fields, ModelSpec& spec) {
  constexpr std::uint32_t kLayersOf27B = 46;
  QSF_RETURN_IF_ERROR(finish_gemma(fields, spec));
  const std::uint32_t width =
      spec.n_layers == kLayersOf27B ? spec.hidden / spec.n_heads : spec.head_dim;
  spec.attention_scale = 1.0F / std::sqrt(static_cast<float>(width));
  spec.attention_soft_cap = fields.positive("attn_logit_softcapping", 50.0F);
  spec.logit_soft_cap = fields.positive("final_logit_softcapping", 30.0F);
  const std::uint32_t window = fields.u32_or("attention.sliding_window", 4096, 1, 1U << 30);
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    spec.sliding_window.push_back(layer % 2 == 0 ? window : 0);
  }
  return fields.status();
}

// One window for every layer, 0 for none.
Status finish_windowed(GgufFields& fields, ModelSpec& spec) {
  const std::uint32_t window = fields.u32_or("attention.sliding_window", 0, 0, 1U << 30);
  if (window != 0) spec.sliding_window = {window};
  return fields.status();
}

Status finish_stablelm(GgufFields& fields, ModelSpec& spec) {
  spec.parallel_block = fields.boolean("use_parallel_residual", true);
  return fields.status();
}

// Trained with activations of 8 bits, one scale a token.
Status finish_bitnet(GgufFields&, ModelSpec& spec) {
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

constexpr GgufArchitecture kGgufArchitectures[] = {
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

std::string architecture_names() {
  std::string names;
  for (const GgufArchitecture& a : kGgufArchitectures) {
    if (!names.empty()) names += &a + 1 == std::end(kGgufArchitectures) ? " and " : ", ";
    names += a.name;
  }
  return names;
}

// Sizes, norm and vocabulary.
Status read_sizes(const GgufFile& file, const GgufArchitecture& architecture, GgufFields& fields,
                  ModelSpec& spec) {
  spec.hidden = fields.u32("embedding_length", 1, 1U << 20);
  spec.n_layers = fields.u32("block_count", 1, 4096);
  spec.n_heads = fields.u32("attention.head_count", 1, 1U << 16);
  spec.n_kv_heads = fields.u32_or("attention.head_count_kv", spec.n_heads, 1, 1U << 16);
  spec.max_positions = fields.u32("context_length", 1, 1U << 24);
  spec.ffn = fields.u32("feed_forward_length", 1, 1U << 24);
  spec.norm_epsilon =
      fields.positive(spec.norm == NormType::kRmsNorm ? "attention.layer_norm_rms_epsilon"
                                                      : "attention.layer_norm_epsilon",
                      std::nullopt);
  spec.head_dim = fields.u32_or("attention.key_length", 0, 1, 1U << 16);
  QSF_RETURN_IF_ERROR(fields.status());
  if (spec.head_dim == 0) {
    if (spec.hidden % spec.n_heads != 0) {
      return corrupt(
          "GGUF: %u columns are not a multiple of %u heads, and attention.key_length "
          "is missing",
          spec.hidden, spec.n_heads);
    }
    spec.head_dim = spec.hidden / spec.n_heads;
  }
  const std::uint32_t value_length =
      fields.u32_or("attention.value_length", spec.head_dim, 1, 1U << 16);
  if (fields.status().ok() && value_length != spec.head_dim) {
    return unsupported("GGUF: values of %u columns a head and keys of %u are not supported",
                       value_length, spec.head_dim);
  }
  const GgufFile::Entry* embedding = file.find("token_embd.weight");
  if (embedding == nullptr) {
    return corrupt("GGUF: tensor \"token_embd.weight\" is missing: no %s without it",
                   std::string(architecture.name).c_str());
  }
  if (embedding->tensor->dims[1] > (1U << 24)) {
    return corrupt("GGUF: tensor \"token_embd.weight\": %llu rows, expected at most 2^24",
                   static_cast<unsigned long long>(embedding->tensor->dims[1]));
  }
  spec.n_vocab = static_cast<std::uint32_t>(embedding->tensor->dims[1]);
  return fields.status();
}

// What changes the mathematics of a model and is not run.
Status refuse_other_keys(const GgufArchitecture& architecture, GgufFields& fields) {
  if (fields.u32_or("expert_count", 0, 0, 1U << 20) > 0) {
    return unsupported("GGUF: a %s with a mixture of experts is not supported",
                       std::string(architecture.name).c_str());
  }
  fields.refuse_unless("attention.causal", 1.0);
  fields.refuse_unless("attention.scale", 0.0);
  fields.refuse_unless("attention.clamp_kqv", 0.0);
  fields.refuse_unless("embedding_scale", 1.0);
  fields.refuse_unless("residual_scale", 1.0);
  fields.refuse_unless("logit_scale", 1.0);
  fields.refuse_unless("tensor_data_layout", 0.0);
  if (architecture.name != "gemma2") {
    fields.refuse_unless("attn_logit_softcapping", 0.0);
    fields.refuse_unless("final_logit_softcapping", 0.0);
    if (architecture.finish != finish_windowed) fields.refuse_unless("attention.sliding_window", 0);
  }
  return fields.status();
}

struct KindName {
  TensorKind kind;
  const char* name;
};

using K = TensorKind;
constexpr KindName kKindNames[] = {
    {K::kTokenEmbedding, "token_embd.weight"},
    {K::kPositionEmbedding, "position_embd.weight"},
    {K::kEmbeddingNorm, "token_embd_norm.weight"},
    {K::kEmbeddingNormBias, "token_embd_norm.bias"},
    {K::kFinalNorm, "output_norm.weight"},
    {K::kFinalNormBias, "output_norm.bias"},
    {K::kHead, "output.weight"},
    {K::kHeadBias, "output.bias"},
};
constexpr KindName kLayerNames[] = {
    {K::kAttnQ, "attn_q.weight"},
    {K::kAttnK, "attn_k.weight"},
    {K::kAttnV, "attn_v.weight"},
    {K::kAttnO, "attn_output.weight"},
    {K::kFfnGate, "ffn_gate.weight"},
    {K::kFfnUp, "ffn_up.weight"},
    {K::kFfnDown, "ffn_down.weight"},
    {K::kAttnNorm, "attn_norm.weight"},
    {K::kFfnNorm, "ffn_norm.weight"},
    {K::kAttnQBias, "attn_q.bias"},
    {K::kAttnKBias, "attn_k.bias"},
    {K::kAttnVBias, "attn_v.bias"},
    {K::kAttnOBias, "attn_output.bias"},
    {K::kFfnUpBias, "ffn_up.bias"},
    {K::kFfnDownBias, "ffn_down.bias"},
    {K::kFfnGateBias, "ffn_gate.bias"},
    {K::kAttnNormBias, "attn_norm.bias"},
    {K::kFfnNormBias, "ffn_norm.bias"},
    {K::kQNorm, "attn_q_norm.weight"},
    {K::kKNorm, "attn_k_norm.weight"},
    {K::kAttnSubNorm, "attn_sub_norm.weight"},
    {K::kFfnSubNorm, "ffn_sub_norm.weight"},
    {K::kAttnPostNorm, "post_attention_norm.weight"},
    {K::kFfnPostNorm, "post_ffw_norm.weight"},
};

}  // namespace

const TensorTable& gguf_tensor_table(const GgufArchitecture& architecture) {
  return architecture.table != nullptr ? *architecture.table : tensor_table(architecture.family);
}

Result<const GgufArchitecture*> find_gguf_architecture(const GgufReader& gguf) {
  QSF_ASSIGN_OR_RETURN(const auto name, gguf.get_string("general.architecture"));
  if (!name.has_value()) {
    return corrupt("GGUF: key \"general.architecture\" is missing: the file has no model");
  }
  for (const GgufArchitecture& architecture : kGgufArchitectures) {
    if (architecture.name == *name) return &architecture;
  }
  return unsupported("GGUF: architecture \"%s\" is not supported; expected one of %s",
                     shown_gguf_text(*name).c_str(), architecture_names().c_str());
}

Result<ModelSpec> gguf_model_spec(const GgufFile& file, const GgufArchitecture& architecture) {
  GgufFields fields(file.keys(), architecture.name);
  ModelSpec spec;
  spec.architecture = architecture.family;
  spec.norm = architecture.norm;
  spec.activation = architecture.activation;
  spec.gated_ffn = architecture.gated_ffn;
  spec.positions = architecture.positions;
  spec.parallel_block = architecture.parallel_block;
  spec.source = "GGUF " + std::string(architecture.name);
  QSF_RETURN_IF_ERROR(read_sizes(file, architecture, fields, spec));
  QSF_RETURN_IF_ERROR(refuse_other_keys(architecture, fields));
  if (spec.positions == PositionEncoding::kRope) {
    QSF_RETURN_IF_ERROR(read_gguf_rope(file, fields, spec));
    if (architecture.paired_rope && spec.rope_dims() != spec.head_dim) {
      return unsupported(
          "GGUF: rope.dimension_count: %u of a head of %u columns is not supported for %s",
          spec.rope_dims(), spec.head_dim, std::string(architecture.name).c_str());
    }
  }
  if (architecture.finish != nullptr) QSF_RETURN_IF_ERROR(architecture.finish(fields, spec));
  QSF_RETURN_IF_ERROR(fields.status());
  return spec;
}

std::string gguf_tensor_name(TensorKind kind, std::uint32_t layer) {
  for (const KindName& entry : kKindNames) {
    if (entry.kind == kind) return entry.name;
  }
  for (const KindName& entry : kLayerNames) {
    if (entry.kind == kind) return "blk." + std::to_string(layer) + "." + entry.name;
  }
  return {};
}

Result<std::vector<float>> read_gguf_vector(const GgufFile& file, const GgufFile::Entry& entry) {
  const GgufTensor& t = *entry.tensor;
  const std::string name = shown_gguf_text(t.name);
  if (t.dims[0] != t.n_elements || t.n_elements > kMaxGgufVector) {
    return corrupt("tensor \"%s\": %llu elements in %u dimensions, expected one of at most 2^24",
                   name.c_str(), static_cast<unsigned long long>(t.n_elements), t.n_dims);
  }
  const auto row_bytes = ggml_row_bytes(t.type, t.n_elements);
  if (!can_decode(t.type) || !row_bytes || *row_bytes > t.available_bytes) {
    return unsupported("tensor \"%s\": type %s is not supported", name.c_str(), t.type_name);
  }
  std::vector<std::byte> bytes(*row_bytes);
  std::vector<float> values(t.n_elements);
  QSF_RETURN_IF_ERROR(file.read(entry, 0, bytes));
  decode_ggml_row(t.type, bytes, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return corrupt("tensor \"%s\": element %zu is not finite", name.c_str(), i);
  }
  return values;
}

// RoPE of GGUF files: base, rotating columns, and three ways to scale. Linear has a factor as a
// key. LLaMA 3 has a divisor of each frequency in a tensor, rope_freqs.weight; its context is not
// asked about, so both lists of longrope hold the same divisors. Phi 3 has two tensors of them.

namespace {

constexpr std::uint32_t kMaxContext = 1U << 24;

// Reads one list of divisors, which has an element for each pair of columns that rotate.
Result<std::vector<float>> read_factors(const GgufFile& file, const GgufFile::Entry& entry,
                                        const ModelSpec& spec) {
  QSF_ASSIGN_OR_RETURN(std::vector<float> factors, read_gguf_vector(file, entry));
  const std::string name = shown_gguf_text(entry.tensor->name);
  if (factors.size() != spec.rope_dims() / 2) {
    return corrupt("tensor \"%s\": %zu factors, expected %u, one for two columns that rotate",
                   name.c_str(), factors.size(), spec.rope_dims() / 2);
  }
  if (std::any_of(factors.begin(), factors.end(), [](float factor) { return !(factor > 0.0F); })) {
    return corrupt("tensor \"%s\": a factor is not above zero", name.c_str());
  }
  return factors;
}

Status read_linear(GgufFields& fields, ModelSpec& spec) {
  // The older key has another name for the same factor.
  const char* key = fields.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  const float factor = fields.positive(key, 1.0F);
  if (factor == 1.0F) return fields.status();
  spec.rope.scaling = RopeScaling::kLinear;
  spec.rope.factor = factor;
  return fields.status();
}

Status set_factors(std::vector<float> short_factors, std::vector<float> long_factors,
                   std::uint32_t original_context, ModelSpec& spec) {
  if (spec.rope.scaling != RopeScaling::kNone) {
    return unsupported(
        "GGUF: rope.scaling.factor together with a tensor of factors is not supported");
  }
  spec.rope.scaling = RopeScaling::kLongrope;
  spec.rope.short_factors = std::move(short_factors);
  spec.rope.long_factors = std::move(long_factors);
  spec.rope.original_context = original_context;
  return ok_status();
}

}  // namespace

bool is_gguf_rope_tensor(std::string_view name) noexcept {
  return name == "rope_freqs.weight" || name == "rope_factors_long.weight" ||
         name == "rope_factors_short.weight";
}

Status read_gguf_rope(const GgufFile& file, GgufFields& fields, ModelSpec& spec) {
  spec.rope.theta = fields.positive("rope.freq_base", 10000.0F);
  const std::uint32_t dims = fields.u32_or("rope.dimension_count", spec.head_dim, 2, spec.head_dim);
  const std::string type = fields.text("rope.scaling.type", "linear");
  QSF_RETURN_IF_ERROR(fields.status());
  if (dims % 2 != 0)
    return corrupt("GGUF: rope.dimension_count is %u, expected an even number", dims);
  spec.rope.dims = dims == spec.head_dim ? 0 : dims;
  if (type == "linear") {
    QSF_RETURN_IF_ERROR(read_linear(fields, spec));
  } else if (type != "none" && type != "longrope") {
    return unsupported(
        "GGUF: rope.scaling.type \"%s\" is not supported; expected none, linear or longrope",
        shown_gguf_text(type).c_str());
  }
  const GgufFile::Entry* both = file.find("rope_freqs.weight");
  const GgufFile::Entry* shorter = file.find("rope_factors_short.weight");
  const GgufFile::Entry* longer = file.find("rope_factors_long.weight");
  if (both != nullptr) {
    if (shorter != nullptr || longer != nullptr) {
      return corrupt(
          "GGUF: rope_freqs.weight and rope_factors_*.weight are both present, expected one of "
          "them");
    }
    QSF_ASSIGN_OR_RETURN(std::vector<float> factors, read_factors(file, *both, spec));
    std::vector<float> same = factors;
    return set_factors(std::move(factors), std::move(same), spec.max_positions, spec);
  }
  if ((shorter == nullptr) != (longer == nullptr) || (type == "longrope" && longer == nullptr)) {
    return corrupt("GGUF: rope_factors_short.weight and rope_factors_long.weight: expected both");
  }
  if (longer == nullptr) return ok_status();
  QSF_ASSIGN_OR_RETURN(std::vector<float> short_factors, read_factors(file, *shorter, spec));
  QSF_ASSIGN_OR_RETURN(std::vector<float> long_factors, read_factors(file, *longer, spec));
  const std::uint32_t original = fields.u32("rope.scaling.original_context_length", 1, kMaxContext);
  spec.rope.attention_factor = fields.positive("rope.scaling.attn_factor", 1.0F);
  QSF_RETURN_IF_ERROR(fields.status());
  return set_factors(std::move(short_factors), std::move(long_factors), original, spec);
}

}  // namespace qsf
