// SPDX-License-Identifier: MIT

#include "format/model_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/ranges.h"
#include "base/utf8_text.h"
#include "format/embedding_spec.h"
#include "format/expert_hits.h"
#include "format/layer_checks.h"
#include "format/layer_shapes.h"
#include "format/qsf_layout.h"
#include "format/spec_keys.h"
#include "format/spec_range.h"

namespace qsf {
namespace {

namespace at = header_at;

// Beyond it the angles of rope, up to one radian a position, are not computed exactly.
constexpr std::uint32_t kMaxPositions = 1U << 26;

Status check_positive(const char* name, float value, bool zero_allowed) {
  if (std::isfinite(value) && (value > 0.0F || (zero_allowed && value == 0.0F))) return ok_status();
  return invalid_argument("%s: %g, expected a finite number %s 0", name, static_cast<double>(value),
                          zero_allowed ? ">=" : ">");
}

// Which layers have experts, and what stands beside these.
Status check_expert_layers(const ModelSpec& s) {
  QSF_RETURN_IF_ERROR(check_range({"shared ffn", s.shared_ffn, 0, 1U << 24}));
  if (s.n_experts == 0) {
    if (!s.expert_renormalised && s.expert_layers.empty() && s.shared_ffn == 0 &&
        !s.experts_beside_ffn && s.expert_hits.empty()) {
      return ok_status();
    }
    return invalid_argument(
        "renormalised or shared experts, layers with experts or an FFN beside them, or hits of "
        "experts: there are none");
  }
  QSF_RETURN_IF_ERROR(check_expert_hits(s.expert_hits));
  if (s.expert_layers.empty()) return ok_status();
  if (s.expert_layers.size() != s.n_layers) {
    return invalid_argument("layers with experts: %zu values for %u layers, expected one a layer",
                            s.expert_layers.size(), s.n_layers);
  }
  for (const std::uint32_t here : s.expert_layers) {
    QSF_RETURN_IF_ERROR(check_range({"layers with experts", here, 0, 1}));
  }
  if (std::count(s.expert_layers.begin(), s.expert_layers.end(), 1U) != 0) return ok_status();
  return invalid_argument("layers with experts: none of %u, but the model has experts", s.n_layers);
}

// How a router's products choose experts.
Status check_routing(const ModelSpec& s) {
  QSF_RETURN_IF_ERROR(check_positive("expert scale", s.expert_scale, false));
  QSF_RETURN_IF_ERROR(check_positive("expert epsilon", s.expert_epsilon, true));
  const bool sigmoid = s.expert_scoring == ExpertScoring::kSigmoid;
  const bool softmax = s.expert_scoring == ExpertScoring::kSoftmax;
  if (s.n_experts == 0 && (!softmax || s.expert_scale != 1.0F || s.weighs_expert_inputs)) {
    return invalid_argument("scoring, scale or inputs of experts: the model has none");
  }
  if (!sigmoid && s.expert_epsilon != 0.0F) {
    return invalid_argument("expert epsilon: expected with sigmoid scoring alone");
  }
  const bool grouped = s.expert_groups != 1 || s.expert_groups_used != 1;
  if (grouped && !sigmoid && (!softmax || s.expert_renormalised)) {
    return invalid_argument(
        "expert groups: expected with sigmoid scoring, or softmax without renormalisation");
  }
  QSF_RETURN_IF_ERROR(check_positive("expert margin", s.expert_margin, true));
  if (s.expert_scoring == ExpertScoring::kSparsemixer) {
    if (s.n_experts_used == 2 && !s.expert_renormalised) return ok_status();
    return invalid_argument("sparsemixer: %u experts used%s, expected 2 that are not renormalised",
                            s.n_experts_used, s.expert_renormalised ? ", renormalised" : "");
  }
  if (s.expert_margin != 0.0F) {
    return invalid_argument("expert margin: expected with sparsemixer scoring alone");
  }
  if (!grouped) return ok_status();
  QSF_RETURN_IF_ERROR(check_range({"expert groups", s.expert_groups, 2, s.n_experts / 2}));
  QSF_RETURN_IF_ERROR(
      check_range({"expert groups used", s.expert_groups_used, 1, s.expert_groups}));
  const std::uint32_t in_group = s.n_experts / s.expert_groups;
  if (s.n_experts % s.expert_groups != 0 || in_group * s.expert_groups_used < s.n_experts_used) {
    return invalid_argument(
        "expert groups: %u of %u, expected groups of equal size that have %u of the %u experts",
        s.expert_groups_used, s.expert_groups, s.n_experts_used, s.n_experts);
  }
  return ok_status();
}

Status check_sizes(const ModelSpec& s) {
  const SpecRange ranges[] = {
      {"layers", s.n_layers, 1, 4096},
      {"hidden", s.hidden, 1, 1U << 20},
      {"heads", s.n_heads, 1, 1U << 16},
      {"key-value heads", s.n_kv_heads, 1, s.n_heads},
      {"head dimension", s.head_dim, 1, 1U << 16},
      {"heads x head dimension", std::uint64_t{s.n_heads} * s.head_dim, 1, 1U << 22},
      {"vocabulary", s.n_vocab, 1, 1U << 24},
      {"positions", s.max_positions, 1, kMaxPositions},
      {"ffn", s.ffn, 1, 1U << 24},
      {"experts", s.n_experts, 0, 1U << 16},
      {"experts used", s.n_experts_used, s.n_experts == 0 ? 0U : 1U, s.n_experts},
      {"expert ffn", s.expert_ffn, s.n_experts == 0 ? 0U : 1U, s.n_experts == 0 ? 0U : 1U << 24},
  };
  for (const SpecRange& r : ranges) QSF_RETURN_IF_ERROR(check_range(r));
  QSF_RETURN_IF_ERROR(check_expert_layers(s));
  if (s.activation == Activation::kSwishClamped && !s.gated_ffn) {
    return invalid_argument("activation swish_clamped: the FFN has no gate");
  }
  QSF_RETURN_IF_ERROR(check_routing(s));
  if (s.n_heads % s.n_kv_heads != 0) {
    return invalid_argument("heads: %u is not a multiple of the %u key-value heads", s.n_heads,
                            s.n_kv_heads);
  }
  if (s.block != 32 && s.block != 64 && s.block != 128 && s.block != 256) {
    return invalid_argument("block size: %u, expected 32, 64, 128 or 256", s.block);
  }
  if (!s.layer_rope.empty() && s.layer_rope.size() != s.n_layers) {
    return invalid_argument("rope by layer: %zu values for %u layers, expected one a layer",
                            s.layer_rope.size(), s.n_layers);
  }
  if (s.sliding_window.size() > 1 && s.sliding_window.size() != s.n_layers) {
    return invalid_argument("attention window: %zu values for %u layers, expected 1 or one a layer",
                            s.sliding_window.size(), s.n_layers);
  }
  if (s.bf16_biases && s.positions != PositionEncoding::kAlibi) {
    return invalid_argument("biases in bf16: positions are %.*s, expected alibi",
                            static_cast<int>(position_encoding_name(s.positions).size()),
                            position_encoding_name(s.positions).data());
  }
  if (s.chunked_windows && s.sliding_window.empty()) {
    return invalid_argument("chunked attention: the model has no windows");
  }
  return ok_status();
}

// Latent attention. The scale of scores follows from a head's own key, not from head_dim.
Status check_latent(const ModelSpec& s) {
  QSF_RETURN_IF_ERROR(check_positive("latent epsilon", s.latent_epsilon, false));
  const std::uint32_t most = s.has_latent() ? 1U << 16 : 0;
  const std::uint32_t least = s.has_latent() ? 1 : 0;
  QSF_RETURN_IF_ERROR(check_range({"latent key columns", s.latent_key_dim, least, most}));
  QSF_RETURN_IF_ERROR(check_range({"latent value columns", s.latent_value_dim, least, most}));
  QSF_RETURN_IF_ERROR(check_range({"latent query columns", s.latent_query_dim, 0, most}));
  if (!s.has_latent()) return ok_status();
  const SpecRange products[] = {
      {"heads x query columns", std::uint64_t{s.n_heads} * s.query_dim(), 1, 1U << 22},
      {"heads x value columns", std::uint64_t{s.n_heads} * s.value_dim(), 1, 1U << 22},
  };
  for (const SpecRange& r : products) QSF_RETURN_IF_ERROR(check_range(r));
  if (s.positions != PositionEncoding::kRope || s.n_kv_heads != 1 || s.rope.dims == 0 ||
      s.head_dim != std::uint64_t{s.latent_dim} + s.rope.dims) {
    return invalid_argument(
        "latent attention: %u key-value heads of %u columns, %u latent and %u rotating ones; "
        "expected one head of both together",
        s.n_kv_heads, s.head_dim, s.latent_dim, s.rope.dims);
  }
  if (s.attention_scale != 0.0F) return ok_status();
  return invalid_argument("latent attention: no attention scale");
}

// Divisors of the frequencies theta^(-2i / dims), the largest of which is 1 radian a position.
Status check_factors(const ModelSpec& s, const char* name, std::span<const float> factors) {
  if (factors.size() != s.rope_dims() / 2) {
    return invalid_argument("%s: %zu values, expected %u: one for each pair that rotates", name,
                            factors.size(), s.rope_dims() / 2);
  }
  const double least = static_cast<double>(s.max_positions) / kMaxPositions;
  for (const float factor : factors) {
    QSF_RETURN_IF_ERROR(check_positive(name, factor, false));
    if (static_cast<double>(factor) < least) {
      return invalid_argument("%s: %g, expected at least %g with %u positions", name,
                              static_cast<double>(factor), least, s.max_positions);
    }
  }
  return ok_status();
}

// Below 1 the frequencies would rise above one radian a position.
Status check_theta(const char* name, float theta) {
  if (std::isfinite(theta) && theta >= 1.0F) return ok_status();
  return invalid_argument("%s: %g, expected a finite number of at least 1", name,
                          static_cast<double>(theta));
}

// The rope of each layer, and the scale of queries by position.
Status check_rope_uses(const ModelSpec& s) {
  QSF_RETURN_IF_ERROR(check_positive("query position scale", s.query_position_scale, true));
  QSF_RETURN_IF_ERROR(check_positive("clip of queries, keys and values", s.qkv_clip, true));
  if (s.positions != PositionEncoding::kRope) {
    if (s.layer_rope.empty() && s.query_position_scale == 0.0F && !s.unit_head_norms) {
      return ok_status();
    }
    return invalid_argument(
        "rope by layer, query position scale or unit norms: the model has no rope");
  }
  if (s.query_position_step != 0 && s.query_position_scale == 0.0F) {
    return invalid_argument("query position step: expected with a query position scale alone");
  }
  for (const std::uint32_t rope : s.layer_rope) {
    QSF_RETURN_IF_ERROR(check_range({"rope by layer", rope, 0, 2}));
  }
  if (s.query_position_scale != 0.0F && s.query_position_step == 0 &&
      s.rope.scaling <= RopeScaling::kLinear) {
    return invalid_argument("query position scale: rope scaling %s has no original context",
                            std::string(rope_scaling_name(s.rope.scaling)).c_str());
  }
  return check_theta("rope local theta", s.local_rope_theta);
}

Status check_yarn(const RopeSpec& rope) {
  QSF_RETURN_IF_ERROR(check_positive("rope beta fast", rope.beta_fast, false));
  QSF_RETURN_IF_ERROR(check_positive("rope beta slow", rope.beta_slow, false));
  if (rope.beta_fast > rope.beta_slow && rope.theta > 1.0F) return ok_status();
  return invalid_argument(
      "yarn: beta fast %g, beta slow %g, theta %g; expected beta fast above beta slow and theta "
      "above 1",
      static_cast<double>(rope.beta_fast), static_cast<double>(rope.beta_slow),
      static_cast<double>(rope.theta));
}

Status check_rope(const ModelSpec& s) {
  QSF_RETURN_IF_ERROR(check_rope_uses(s));
  if (s.positions != PositionEncoding::kRope) return ok_status();
  QSF_RETURN_IF_ERROR(check_theta("rope theta", s.rope.theta));
  if (s.rope_dims() > s.head_dim || s.rope_dims() % 2 != 0) {
    return invalid_argument("rope dimensions: %u, expected an even number up to the head's %u",
                            s.rope_dims(), s.head_dim);
  }
  QSF_RETURN_IF_ERROR(check_positive("rope attention factor", s.rope.attention_factor, false));
  QSF_RETURN_IF_ERROR(
      check_positive("rope short attention factor", s.rope.short_attention_factor, true));
  if (s.rope.short_attention_factor != 0.0F && s.rope.scaling != RopeScaling::kLongrope) {
    return invalid_argument("rope short attention factor: expected with longrope alone");
  }
  if (s.rope.scaling == RopeScaling::kLongrope) {
    QSF_RETURN_IF_ERROR(check_factors(s, "rope short factors", s.rope.short_factors));
    QSF_RETURN_IF_ERROR(check_factors(s, "rope long factors", s.rope.long_factors));
    return check_range({"rope original context", s.rope.original_context, 1, 1U << 30});
  }
  if (!s.rope.short_factors.empty() || !s.rope.long_factors.empty()) {
    return invalid_argument("rope short and long factors: expected with longrope alone, got %s",
                            std::string(rope_scaling_name(s.rope.scaling)).c_str());
  }
  if (s.rope.scaling == RopeScaling::kNone) return ok_status();
  if (!std::isfinite(s.rope.factor) || s.rope.factor < 1.0F) {
    return invalid_argument("rope factor: %g, expected at least 1",
                            static_cast<double>(s.rope.factor));
  }
  if (s.rope.scaling == RopeScaling::kLinear) return ok_status();
  QSF_RETURN_IF_ERROR(check_range({"rope original context", s.rope.original_context, 1, 1U << 30}));
  if (s.rope.scaling == RopeScaling::kYarn) return check_yarn(s.rope);
  QSF_RETURN_IF_ERROR(check_positive("rope low frequency factor", s.rope.low_freq_factor, false));
  QSF_RETURN_IF_ERROR(check_positive("rope high frequency factor", s.rope.high_freq_factor, false));
  if (s.rope.high_freq_factor < s.rope.low_freq_factor) {
    return invalid_argument("rope high frequency factor: %g, expected at least the low one, %g",
                            static_cast<double>(s.rope.high_freq_factor),
                            static_cast<double>(s.rope.low_freq_factor));
  }
  return ok_status();
}

Status check_numbers(const ModelSpec& s) {
  QSF_RETURN_IF_ERROR(check_positive("norm epsilon", s.norm_epsilon, false));
  QSF_RETURN_IF_ERROR(check_positive("attention scale", s.attention_scale, true));
  QSF_RETURN_IF_ERROR(check_positive("attention soft cap", s.attention_soft_cap, true));
  QSF_RETURN_IF_ERROR(check_positive("logit soft cap", s.logit_soft_cap, true));
  QSF_RETURN_IF_ERROR(check_positive("logit scale", s.logit_scale, false));
  QSF_RETURN_IF_ERROR(check_positive("embedding scale", s.embedding_scale, false));
  return check_positive("residual scale", s.residual_scale, false);
}

Status check_tokens(const ModelSpec& s) {
  if (s.eos_ids.size() > 1024) {
    return invalid_argument("end-of-text ids: %zu, expected at most 1024", s.eos_ids.size());
  }
  std::vector<std::uint32_t> ids = s.eos_ids;
  if (s.bos_id) ids.push_back(*s.bos_id);
  if (s.pad_id) ids.push_back(*s.pad_id);
  for (const std::uint32_t id : ids) {
    if (id >= s.n_vocab) {
      return invalid_argument("token id %u: the vocabulary has %u tokens", id, s.n_vocab);
    }
  }
  return ok_status();
}

Status check_text(const char* name, std::string_view text) {
  const std::size_t at = find_non_text(text);
  if (at == text.size()) return ok_status();
  return invalid_argument("%s: byte %zu is NUL or no UTF-8", name, at);
}

Status check_texts(const ModelSpec& s) {
  QSF_RETURN_IF_ERROR(check_text("chat template", s.chat_template));
  QSF_RETURN_IF_ERROR(check_text("quantiser", s.quantiser));
  QSF_RETURN_IF_ERROR(check_text("source", s.source));
  for (const MetadataEntry& entry : s.extra.entries()) {
    if (entry.type != ValueType::kText) continue;
    QSF_RETURN_IF_ERROR(check_text(entry.key.c_str(), as_text(entry.value)));
  }
  return ok_status();
}

bool is_architecture_name(std::string_view name) noexcept {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
  });
}

constexpr std::string_view kArchitectureNames[] = {"gpt2", "llama", "mistral", "phi"};

// The index of the name, 4 for every other one.
std::uint32_t architecture_code(std::string_view name) noexcept {
  const auto found = std::find(std::begin(kArchitectureNames), std::end(kArchitectureNames), name);
  return static_cast<std::uint32_t>(found - std::begin(kArchitectureNames));
}

std::uint8_t activation_code(Activation activation) noexcept {
  switch (activation) {
    case Activation::kGeluTanh:
    case Activation::kGeluErf: return 0;
    case Activation::kSilu:
    case Activation::kSwishClamped: return 1;
    case Activation::kRelu: return 2;
    case Activation::kReluSquared: return 3;
  }
  return 0;
}

// Returns the value of `E` whose name is `name`.
template <typename E, std::size_t N>
Result<E> parse_name(const char* what, std::string_view name, const std::array<E, N>& values,
                     std::string_view (*name_of)(E) noexcept) {
  for (const E value : values) {
    if (name_of(value) == name) return value;
  }
  return unsupported("%s: \"%.*s\" is not known to this version", what,
                     static_cast<int>(std::min<std::size_t>(name.size(), 64)), name.data());
}

// Reads the header's part of a spec; every byte may hold anything.
Result<ModelSpec> decode_header(ByteSpan h) {
  ModelSpec s;
  s.n_layers = load_le<std::uint32_t>(h, at::kLayers);
  s.hidden = load_le<std::uint32_t>(h, at::kHidden);
  s.n_heads = load_le<std::uint32_t>(h, at::kHeads);
  s.n_kv_heads = load_le<std::uint32_t>(h, at::kKvHeads);
  if (s.n_kv_heads == 0) s.n_kv_heads = s.n_heads;
  s.n_vocab = load_le<std::uint32_t>(h, at::kVocab);
  s.max_positions = load_le<std::uint32_t>(h, at::kMaxPositions);
  s.ffn = load_le<std::uint32_t>(h, at::kFfn);
  s.head_dim = load_le<std::uint32_t>(h, at::kHeadDim);
  const auto type = load_le<std::uint8_t>(h, at::kDefaultType);
  const auto norm = load_le<std::uint8_t>(h, at::kNorm);
  const auto positions = load_le<std::uint8_t>(h, at::kPositions);
  if (type != kMixedType && !is_quant_type(type)) {
    return unsupported("default weight type %u is not known to this version", type);
  }
  if (type != kMixedType) s.default_type = static_cast<QuantType>(type);
  if (norm > 1) return unsupported("normalisation type %u is not known to this version", norm);
  if (positions > 2) {
    return unsupported("position encoding %u is not known to this version", positions);
  }
  s.norm = static_cast<NormType>(norm);
  s.positions = static_cast<PositionEncoding>(positions);
  const auto theta = load_le<float>(h, at::kRopeTheta);
  if (s.positions == PositionEncoding::kRope) {
    s.rope.theta = theta;
  } else if (load_le<std::uint32_t>(h, at::kRopeTheta) != 0) {
    return corrupt("rope theta: %g in a model without rope, expected 0",
                   static_cast<double>(theta));
  }
  const auto bos = load_le<std::uint32_t>(h, at::kBos);
  const auto pad = load_le<std::uint32_t>(h, at::kPad);
  if (bos != kAbsentToken) s.bos_id = bos;
  if (pad != kAbsentToken) s.pad_id = pad;
  s.block = load_le<std::uint16_t>(h, at::kBlock);
  if (s.block == 0) s.block = 64;
  const auto flags = load_le<std::uint16_t>(h, at::kFlags);
  if ((flags & ~(kFlagTiedHead | kFlagCalibrated | kFlagNativelyTernary)) != 0) {
    return unsupported("header flags 0x%04x hold bits not known to this version", flags);
  }
  s.tied_head = (flags & kFlagTiedHead) != 0;
  s.calibrated = (flags & kFlagCalibrated) != 0;
  s.natively_ternary = (flags & kFlagNativelyTernary) != 0;
  return s;
}

Status decode_rope(const Metadata& m, RopeSpec& rope) {
  QSF_ASSIGN_OR_RETURN(rope.dims, m.get_u32(keys::kRopeDims, 0));
  QSF_ASSIGN_OR_RETURN(const std::string scaling, m.get_text(keys::kRopeScaling, "none"));
  QSF_ASSIGN_OR_RETURN(
      rope.scaling,
      parse_name(keys::kRopeScaling, scaling,
                 std::array{RopeScaling::kNone, RopeScaling::kLinear, RopeScaling::kLlama3,
                            RopeScaling::kLongrope, RopeScaling::kYarn},
                 &rope_scaling_name));
  QSF_ASSIGN_OR_RETURN(rope.factor, m.get_f32(keys::kRopeFactor, rope.factor));
  QSF_ASSIGN_OR_RETURN(rope.low_freq_factor, m.get_f32(keys::kRopeLow, rope.low_freq_factor));
  QSF_ASSIGN_OR_RETURN(rope.high_freq_factor, m.get_f32(keys::kRopeHigh, rope.high_freq_factor));
  QSF_ASSIGN_OR_RETURN(rope.original_context, m.get_u32(keys::kRopeOriginalContext, 0));
  QSF_ASSIGN_OR_RETURN(rope.attention_factor, m.get_f32(keys::kRopeAttentionFactor, 1.0F));
  QSF_ASSIGN_OR_RETURN(rope.short_attention_factor,
                       m.get_f32(keys::kRopeShortAttentionFactor, 0.0F));
  QSF_ASSIGN_OR_RETURN(rope.short_factors, m.get_f32_array(keys::kRopeShortFactors));
  QSF_ASSIGN_OR_RETURN(rope.long_factors, m.get_f32_array(keys::kRopeLongFactors));
  QSF_ASSIGN_OR_RETURN(rope.beta_fast, m.get_f32(keys::kRopeBetaFast, rope.beta_fast));
  QSF_ASSIGN_OR_RETURN(rope.beta_slow, m.get_f32(keys::kRopeBetaSlow, rope.beta_slow));
  QSF_ASSIGN_OR_RETURN(rope.truncate, m.get_bool(keys::kRopeTruncate, true));
  return ok_status();
}

void encode_rope(const RopeSpec& rope, Metadata& m) {
  if (rope.dims != 0) m.set_u32(keys::kRopeDims, rope.dims, true);
  if (rope.attention_factor != 1.0F) {
    m.set_f32(keys::kRopeAttentionFactor, rope.attention_factor, true);
  }
  if (rope.scaling == RopeScaling::kNone) return;
  m.set_text(keys::kRopeScaling, rope_scaling_name(rope.scaling), true);
  if (rope.scaling == RopeScaling::kLongrope) {
    m.set_u32(keys::kRopeOriginalContext, rope.original_context, true);
    if (rope.short_attention_factor != 0.0F) {
      m.set_f32(keys::kRopeShortAttentionFactor, rope.short_attention_factor, true);
    }
    m.set_f32_array(keys::kRopeShortFactors, rope.short_factors, true);
    m.set_f32_array(keys::kRopeLongFactors, rope.long_factors, true);
    return;
  }
  m.set_f32(keys::kRopeFactor, rope.factor, true);
  if (rope.scaling == RopeScaling::kYarn) {
    m.set_u32(keys::kRopeOriginalContext, rope.original_context, true);
    m.set_f32(keys::kRopeBetaFast, rope.beta_fast, true);
    m.set_f32(keys::kRopeBetaSlow, rope.beta_slow, true);
    m.set_bool(keys::kRopeTruncate, rope.truncate, true);
    return;
  }
  if (rope.scaling != RopeScaling::kLlama3) return;
  m.set_f32(keys::kRopeLow, rope.low_freq_factor, true);
  m.set_f32(keys::kRopeHigh, rope.high_freq_factor, true);
  m.set_u32(keys::kRopeOriginalContext, rope.original_context, true);
}

Status decode_routing(const Metadata& m, ModelSpec& s) {
  QSF_ASSIGN_OR_RETURN(const std::string scoring, m.get_text(keys::kExpertScoring, "softmax"));
  QSF_ASSIGN_OR_RETURN(s.expert_scoring,
                       parse_name(keys::kExpertScoring, scoring,
                                  std::array{ExpertScoring::kSoftmax, ExpertScoring::kSigmoid,
                                             ExpertScoring::kSparsemixer},
                                  &expert_scoring_name));
  QSF_ASSIGN_OR_RETURN(s.expert_epsilon, m.get_f32(keys::kExpertEpsilon, 0.0F));
  QSF_ASSIGN_OR_RETURN(s.expert_margin, m.get_f32(keys::kExpertMargin, 0.0F));
  QSF_ASSIGN_OR_RETURN(s.expert_scale, m.get_f32(keys::kExpertScale, 1.0F));
  QSF_ASSIGN_OR_RETURN(s.expert_groups, m.get_u32(keys::kExpertGroups, 1));
  QSF_ASSIGN_OR_RETURN(s.expert_groups_used, m.get_u32(keys::kExpertGroupsUsed, 1));
  return ok_status();
}

Status decode_latent(const Metadata& m, ModelSpec& s) {
  QSF_ASSIGN_OR_RETURN(s.latent_dim, m.get_u32(keys::kLatentColumns, 0));
  QSF_ASSIGN_OR_RETURN(s.latent_query_dim, m.get_u32(keys::kLatentQueryColumns, 0));
  QSF_ASSIGN_OR_RETURN(s.latent_key_dim, m.get_u32(keys::kLatentKeyColumns, 0));
  QSF_ASSIGN_OR_RETURN(s.latent_value_dim, m.get_u32(keys::kLatentValueColumns, 0));
  QSF_ASSIGN_OR_RETURN(s.latent_epsilon, m.get_f32(keys::kLatentEpsilon, s.latent_epsilon));
  return ok_status();
}

// Reads the fields whose keys may be missing.
Status decode_optional(const Metadata& m, ModelSpec& s) {
  if (s.positions == PositionEncoding::kRope) QSF_RETURN_IF_ERROR(decode_rope(m, s.rope));
  QSF_ASSIGN_OR_RETURN(s.layer_rope, m.get_u32_array(keys::kRopeLayers));
  QSF_ASSIGN_OR_RETURN(s.local_rope_theta, m.get_f32(keys::kRopeLocalTheta, s.local_rope_theta));
  QSF_ASSIGN_OR_RETURN(s.qkv_clip, m.get_f32(keys::kAttentionClip, 0.0F));
  QSF_ASSIGN_OR_RETURN(s.query_position_scale, m.get_f32(keys::kAttentionPositionScale, 0.0F));
  QSF_RETURN_IF_ERROR(decode_layer_shapes(m, s));
  QSF_RETURN_IF_ERROR(decode_embedding(m, s));
  QSF_ASSIGN_OR_RETURN(s.layer_mixers, m.get_u32_array(keys::kMixerLayers));
  QSF_ASSIGN_OR_RETURN(s.ffn_layers, m.get_u32_array(keys::kFfnLayers));
  QSF_ASSIGN_OR_RETURN(s.conv_taps, m.get_u32(keys::kMixerTaps, 0));
  QSF_ASSIGN_OR_RETURN(s.mixer_heads, m.get_u32(keys::kMixerHeads, 0));
  QSF_ASSIGN_OR_RETURN(s.mixer_head_dim, m.get_u32(keys::kMixerHeadDim, 0));
  QSF_ASSIGN_OR_RETURN(s.mixer_state, m.get_u32(keys::kMixerState, 0));
  QSF_ASSIGN_OR_RETURN(s.mixer_groups, m.get_u32(keys::kMixerGroups, 0));
  QSF_ASSIGN_OR_RETURN(s.mixer_heads_in_turn, m.get_bool(keys::kMixerHeadsInTurn, false));
  QSF_ASSIGN_OR_RETURN(s.sliding_window, m.get_u32_array(keys::kAttentionWindow));
  QSF_ASSIGN_OR_RETURN(s.bf16_biases, m.get_bool(keys::kAttentionBf16Biases, false));
  QSF_ASSIGN_OR_RETURN(s.chunked_windows, m.get_bool(keys::kAttentionChunked, false));
  QSF_ASSIGN_OR_RETURN(s.unit_head_norms, m.get_bool(keys::kAttentionUnitNorms, false));
  QSF_ASSIGN_OR_RETURN(s.query_position_step, m.get_u32(keys::kAttentionPositionStep, 0));
  QSF_ASSIGN_OR_RETURN(s.weighs_expert_inputs, m.get_bool(keys::kExpertWeighsInputs, false));
  QSF_ASSIGN_OR_RETURN(s.parallel_block, m.get_bool(keys::kBlockParallel, false));
  QSF_ASSIGN_OR_RETURN(s.norms_stream, m.get_bool(keys::kNormStream, false));
  QSF_ASSIGN_OR_RETURN(s.int8_rows, m.get_bool(keys::kInt8Rows, false));
  QSF_ASSIGN_OR_RETURN(s.attention_scale, m.get_f32(keys::kAttentionScale, 0.0F));
  QSF_ASSIGN_OR_RETURN(s.attention_soft_cap, m.get_f32(keys::kAttentionSoftCap, 0.0F));
  QSF_ASSIGN_OR_RETURN(s.logit_soft_cap, m.get_f32(keys::kLogitSoftCap, 0.0F));
  QSF_ASSIGN_OR_RETURN(s.logit_scale, m.get_f32(keys::kLogitScale, 1.0F));
  QSF_ASSIGN_OR_RETURN(s.embedding_scale, m.get_f32(keys::kEmbeddingScale, 1.0F));
  QSF_ASSIGN_OR_RETURN(s.residual_scale, m.get_f32(keys::kResidualScale, 1.0F));
  QSF_ASSIGN_OR_RETURN(s.n_experts, m.get_u32(keys::kExpertCount, 0));
  QSF_ASSIGN_OR_RETURN(s.n_experts_used, m.get_u32(keys::kExpertUsed, 0));
  QSF_ASSIGN_OR_RETURN(s.expert_ffn, m.get_u32(keys::kExpertFfn, 0));
  QSF_ASSIGN_OR_RETURN(s.expert_renormalised, m.get_bool(keys::kExpertRenormalised, false));
  QSF_RETURN_IF_ERROR(decode_routing(m, s));
  QSF_RETURN_IF_ERROR(decode_latent(m, s));
  QSF_ASSIGN_OR_RETURN(s.expert_layers, m.get_u32_array(keys::kExpertLayers));
  QSF_ASSIGN_OR_RETURN(s.experts_beside_ffn, m.get_bool(keys::kExpertBesideFfn, false));
  QSF_ASSIGN_OR_RETURN(s.expert_hits, m.get_f32_array(keys::kExpertHits));
  QSF_ASSIGN_OR_RETURN(s.shared_ffn, m.get_u32(keys::kExpertSharedFfn, 0));
  QSF_ASSIGN_OR_RETURN(s.mtp_block, m.get_bool(keys::kMtpBlock, false));
  QSF_ASSIGN_OR_RETURN(s.eos_ids, m.get_u32_array(keys::kEosIds));
  QSF_ASSIGN_OR_RETURN(s.chat_template, m.get_text(keys::kChatTemplate, ""));
  QSF_ASSIGN_OR_RETURN(s.quantiser, m.get_text(keys::kQuantiser, ""));
  QSF_ASSIGN_OR_RETURN(s.source, m.get_text(keys::kSource, ""));
  return ok_status();
}

// Compares the fields that are in both header and metadata.
Status check_agreement(ByteSpan h, const Metadata& m, const ModelSpec& s) {
  const auto architecture = load_le<std::uint32_t>(h, at::kArchitecture);
  if (architecture != architecture_code(s.architecture)) {
    return corrupt("architecture code %u, but the metadata says \"%.64s\"", architecture,
                   s.architecture.c_str());
  }
  const auto activation = load_le<std::uint8_t>(h, at::kActivation);
  if (activation != activation_code(s.activation)) {
    return corrupt("activation code %u, but the metadata says \"%s\"", activation,
                   std::string(activation_name(s.activation)).c_str());
  }
  const auto eos = load_le<std::uint32_t>(h, at::kEos);
  if (eos != (s.eos_ids.empty() ? kAbsentToken : s.eos_ids[0])) {
    return corrupt("end-of-text id %u is not the first of the metadata", eos);
  }
  QSF_ASSIGN_OR_RETURN(const bool tied, m.get_bool(keys::kHeadTied, false));
  if (tied != s.tied_head) return corrupt("header and metadata differ on the tied head");
  return ok_status();
}

}  // namespace

std::uint32_t ModelSpec::widest_ffn() const noexcept {
  bool dense = false;
  for (std::uint32_t layer = 0; layer < n_layers; ++layer) {
    dense = dense || (has_ffn(layer) && (!has_experts(layer) || experts_beside_ffn));
  }
  return std::max({dense ? ffn : 0U, expert_ffn, shared_ffn});
}

std::uint32_t ModelSpec::n_attention_layers() const noexcept {
  std::uint32_t n = 0;
  for (std::uint32_t layer = 0; layer < n_layers; ++layer) n += attends(layer) ? 1 : 0;
  return n;
}

std::uint32_t ModelSpec::n_state_layers() const noexcept {
  std::uint32_t n = 0;
  for (std::uint32_t layer = 0; layer < n_layers; ++layer) n += keeps_state(layer) ? 1 : 0;
  return n;
}

bool ModelSpec::has_delta_rule() const noexcept {
  return ranges::find(layer_mixers, static_cast<std::uint32_t>(LayerMixer::kDeltaNet)) !=
         layer_mixers.end();
}

Status validate(const ModelSpec& spec) {
  if (!is_architecture_name(spec.architecture)) {
    return invalid_argument("architecture name: %zu bytes, expected 1 to 64 of a-z 0-9 _ . -",
                            spec.architecture.size());
  }
  QSF_RETURN_IF_ERROR(check_sizes(spec));
  QSF_RETURN_IF_ERROR(check_numbers(spec));
  QSF_RETURN_IF_ERROR(check_rope(spec));
  QSF_RETURN_IF_ERROR(check_layers(spec));
  QSF_RETURN_IF_ERROR(check_latent(spec));
  QSF_RETURN_IF_ERROR(check_layer_shapes(spec));
  QSF_RETURN_IF_ERROR(check_embedding(spec));
  QSF_RETURN_IF_ERROR(check_tokens(spec));
  QSF_RETURN_IF_ERROR(check_texts(spec));
  for (const MetadataEntry& entry : spec.extra.entries()) {
    if (keys::is_known(entry.key) || entry.required) {
      return invalid_argument(
          "extra metadata key \"%s\": is a field of the spec or marked required",
          entry.key.c_str());
    }
  }
  return ok_status();
}

void encode_spec_header(const ModelSpec& spec, MutableByteSpan h) {
  QSF_CHECK(h.size() == kHeaderBytes);
  store_le(h, at::kArchitecture, architecture_code(spec.architecture));
  store_le(h, at::kLayers, spec.n_layers);
  store_le(h, at::kHidden, spec.hidden);
  store_le(h, at::kHeads, spec.n_heads);
  store_le(h, at::kKvHeads, spec.n_kv_heads);
  store_le(h, at::kVocab, spec.n_vocab);
  store_le(h, at::kMaxPositions, spec.max_positions);
  store_le(h, at::kFfn, spec.ffn);
  store_le(h, at::kHeadDim, spec.head_dim);
  store_le(h, at::kDefaultType,
           spec.default_type ? static_cast<std::uint8_t>(*spec.default_type) : kMixedType);
  store_le(h, at::kActivation, activation_code(spec.activation));
  store_le(h, at::kNorm, static_cast<std::uint8_t>(spec.norm));
  store_le(h, at::kPositions, static_cast<std::uint8_t>(spec.positions));
  store_le(h, at::kRopeTheta, spec.positions == PositionEncoding::kRope ? spec.rope.theta : 0.0F);
  store_le(h, at::kBos, spec.bos_id.value_or(kAbsentToken));
  store_le(h, at::kEos, spec.eos_ids.empty() ? kAbsentToken : spec.eos_ids[0]);
  store_le(h, at::kPad, spec.pad_id.value_or(kAbsentToken));
  store_le(h, at::kBlock, static_cast<std::uint16_t>(spec.block));
  store_le(h, at::kFlags,
           static_cast<std::uint16_t>((spec.tied_head ? kFlagTiedHead : 0) |
                                      (spec.calibrated ? kFlagCalibrated : 0) |
                                      (spec.natively_ternary ? kFlagNativelyTernary : 0)));
}

Metadata encode_spec_metadata(const ModelSpec& spec) {
  Metadata m = spec.extra;
  const auto set_f32_unless = [&m](const char* key, float value, float absent) {
    if (value != absent) m.set_f32(key, value, true);
  };
  const auto set_u32_unless = [&m](const char* key, std::uint32_t value, std::uint32_t absent) {
    if (value != absent) m.set_u32(key, value, true);
  };
  const auto set_text = [&m](const char* key, std::string_view value) {
    if (!value.empty()) m.set_text(key, value);
  };
  m.set_text(keys::kArchitecture, spec.architecture, true);
  m.set_f32(keys::kNormEpsilon, spec.norm_epsilon, true);
  m.set_text(keys::kFfnActivation, activation_name(spec.activation), true);
  m.set_bool(keys::kFfnGated, spec.gated_ffn, true);
  m.set_bool(keys::kHeadTied, spec.tied_head, true);
  if (spec.positions == PositionEncoding::kRope) encode_rope(spec.rope, m);
  if (!spec.layer_rope.empty()) m.set_u32_array(keys::kRopeLayers, spec.layer_rope, true);
  set_f32_unless(keys::kRopeLocalTheta, spec.local_rope_theta, 10000.0F);
  set_f32_unless(keys::kAttentionClip, spec.qkv_clip, 0.0F);
  set_f32_unless(keys::kAttentionPositionScale, spec.query_position_scale, 0.0F);
  encode_layer_shapes(spec, m);
  encode_embedding(spec, m);
  if (!spec.layer_mixers.empty()) {
    m.set_u32_array(keys::kMixerLayers, spec.layer_mixers, true);
    m.set_u32(keys::kMixerTaps, spec.conv_taps, true);
    set_u32_unless(keys::kMixerHeads, spec.mixer_heads, 0);
    set_u32_unless(keys::kMixerHeadDim, spec.mixer_head_dim, 0);
    set_u32_unless(keys::kMixerState, spec.mixer_state, 0);
    set_u32_unless(keys::kMixerGroups, spec.mixer_groups, 0);
    if (spec.mixer_heads_in_turn) m.set_bool(keys::kMixerHeadsInTurn, true, true);
  }
  if (!spec.ffn_layers.empty()) m.set_u32_array(keys::kFfnLayers, spec.ffn_layers, true);
  if (!spec.sliding_window.empty()) {
    m.set_u32_array(keys::kAttentionWindow, spec.sliding_window, true);
  }
  if (spec.bf16_biases) m.set_bool(keys::kAttentionBf16Biases, true, true);
  if (spec.chunked_windows) m.set_bool(keys::kAttentionChunked, true, true);
  if (spec.unit_head_norms) m.set_bool(keys::kAttentionUnitNorms, true, true);
  set_u32_unless(keys::kAttentionPositionStep, spec.query_position_step, 0);
  if (spec.weighs_expert_inputs) m.set_bool(keys::kExpertWeighsInputs, true, true);
  if (spec.parallel_block) m.set_bool(keys::kBlockParallel, true, true);
  if (spec.norms_stream) m.set_bool(keys::kNormStream, true, true);
  if (spec.int8_rows) m.set_bool(keys::kInt8Rows, true, true);
  set_f32_unless(keys::kAttentionScale, spec.attention_scale, 0.0F);
  set_f32_unless(keys::kAttentionSoftCap, spec.attention_soft_cap, 0.0F);
  set_f32_unless(keys::kLogitSoftCap, spec.logit_soft_cap, 0.0F);
  set_f32_unless(keys::kLogitScale, spec.logit_scale, 1.0F);
  set_f32_unless(keys::kEmbeddingScale, spec.embedding_scale, 1.0F);
  set_f32_unless(keys::kResidualScale, spec.residual_scale, 1.0F);
  set_u32_unless(keys::kExpertCount, spec.n_experts, 0);
  set_u32_unless(keys::kExpertUsed, spec.n_experts_used, 0);
  set_u32_unless(keys::kExpertFfn, spec.expert_ffn, 0);
  if (spec.expert_renormalised) m.set_bool(keys::kExpertRenormalised, true, true);
  if (spec.expert_scoring != ExpertScoring::kSoftmax) {
    m.set_text(keys::kExpertScoring, expert_scoring_name(spec.expert_scoring), true);
  }
  set_f32_unless(keys::kExpertEpsilon, spec.expert_epsilon, 0.0F);
  set_f32_unless(keys::kExpertMargin, spec.expert_margin, 0.0F);
  set_f32_unless(keys::kExpertScale, spec.expert_scale, 1.0F);
  set_u32_unless(keys::kExpertGroups, spec.expert_groups, 1);
  set_u32_unless(keys::kExpertGroupsUsed, spec.expert_groups_used, 1);
  if (!spec.expert_layers.empty()) m.set_u32_array(keys::kExpertLayers, spec.expert_layers, true);
  if (spec.experts_beside_ffn) m.set_bool(keys::kExpertBesideFfn, true, true);
  set_u32_unless(keys::kExpertSharedFfn, spec.shared_ffn, 0);
  set_u32_unless(keys::kLatentColumns, spec.latent_dim, 0);
  set_u32_unless(keys::kLatentQueryColumns, spec.latent_query_dim, 0);
  set_u32_unless(keys::kLatentKeyColumns, spec.latent_key_dim, 0);
  set_u32_unless(keys::kLatentValueColumns, spec.latent_value_dim, 0);
  set_f32_unless(keys::kLatentEpsilon, spec.latent_epsilon, 1e-6F);
  if (spec.mtp_block) m.set_bool(keys::kMtpBlock, true, true);
  if (!spec.expert_hits.empty()) m.set_f32_array(keys::kExpertHits, spec.expert_hits);
  if (!spec.eos_ids.empty()) m.set_u32_array(keys::kEosIds, spec.eos_ids);
  set_text(keys::kChatTemplate, spec.chat_template);
  set_text(keys::kQuantiser, spec.quantiser);
  set_text(keys::kSource, spec.source);
  return m;
}

Result<ModelSpec> decode_spec(ByteSpan header, const Metadata& metadata) {
  QSF_CHECK(header.size() == kHeaderBytes);
  QSF_ASSIGN_OR_RETURN(ModelSpec spec, decode_header(header));
  for (const char* key : {keys::kArchitecture, keys::kNormEpsilon, keys::kFfnActivation,
                          keys::kFfnGated, keys::kHeadTied}) {
    if (!metadata.contains(key)) return corrupt("metadata key \"%s\" is missing", key);
  }
  QSF_ASSIGN_OR_RETURN(spec.architecture, metadata.get_text(keys::kArchitecture, ""));
  QSF_ASSIGN_OR_RETURN(spec.norm_epsilon, metadata.get_f32(keys::kNormEpsilon, 0.0F));
  QSF_ASSIGN_OR_RETURN(const std::string activation, metadata.get_text(keys::kFfnActivation, ""));
  QSF_ASSIGN_OR_RETURN(
      spec.activation,
      parse_name(keys::kFfnActivation, activation,
                 std::array{Activation::kGeluTanh, Activation::kGeluErf, Activation::kSilu,
                            Activation::kRelu, Activation::kReluSquared, Activation::kSwishClamped},
                 &activation_name));
  QSF_ASSIGN_OR_RETURN(spec.gated_ffn, metadata.get_bool(keys::kFfnGated, false));
  QSF_RETURN_IF_ERROR(decode_optional(metadata, spec));
  QSF_RETURN_IF_ERROR(check_agreement(header, metadata, spec));
  for (const MetadataEntry& entry : metadata.entries()) {
    if (keys::is_known(entry.key)) continue;
    if (entry.required) {
      return unsupported(
          "metadata key \"%s\" is required to run this model and not known to this "
          "version",
          entry.key.c_str());
    }
    spec.extra.set(entry);
  }
  const Status valid = validate(spec);
  if (!valid.ok()) return Status(StatusCode::kCorrupt, valid.message());
  return spec;
}

}  // namespace qsf
