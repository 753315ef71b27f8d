// SPDX-License-Identifier: MIT
//
// RoPE parameters: rope_scaling of older files and rope_parameters of newer ones, which hold the
// same keys, in the latter theta and the rotating share of a head as well.

#include <cmath>
#include <nlohmann/json.hpp>

#include "import/hf/hf_families.h"

namespace qsf {
namespace {

constexpr std::uint32_t kMaxContext = 1U << 24;
constexpr std::size_t kMaxFactors = 1U << 15;

void parse_linear(ConfigFields& inner, RopeSpec& rope) {
  rope.scaling = RopeScaling::kLinear;
  rope.factor = inner.positive("factor", std::nullopt);
}

void parse_llama3(ConfigFields& inner, RopeSpec& rope) {
  rope.scaling = RopeScaling::kLlama3;
  rope.factor = inner.positive("factor", std::nullopt);
  rope.low_freq_factor = inner.positive("low_freq_factor", std::nullopt);
  rope.high_freq_factor = inner.positive("high_freq_factor", std::nullopt);
  rope.original_context = inner.u32("original_max_position_embeddings", 1, kMaxContext);
}

// The original context stands beside the other sizes in some files and among the parameters in
// others. Without a stated factor of cos and sin it follows from how far the context was stretched.
void parse_longrope(ConfigFields& outer, ConfigFields& inner, std::uint32_t default_context,
                    ModelSpec& spec) {
  RopeSpec& rope = spec.rope;
  rope.scaling = RopeScaling::kLongrope;
  rope.short_factors = inner.numbers("short_factor", kMaxFactors);
  rope.long_factors = inner.numbers("long_factor", kMaxFactors);
  const char* original = "original_max_position_embeddings";
  const std::uint32_t among = inner.u32_or(original, default_context, 2, kMaxContext);
  rope.original_context = outer.u32_or(original, among, 2, kMaxContext);
  const float stretch = inner.positive(
      "factor", static_cast<float>(spec.max_positions) / static_cast<float>(rope.original_context));
  const double factor =
      stretch <= 1.0F ? 1.0 : std::sqrt(1.0 + std::log(stretch) / std::log(rope.original_context));
  rope.attention_factor = inner.positive("attention_factor", static_cast<float>(factor));
}

Status parse_scaling(ConfigFields& outer, ConfigFields& inner, const char* key,
                     std::uint32_t default_context, ModelSpec& spec) {
  const std::string type = inner.text("rope_type", inner.text("type", "default"));
  if (type == "linear") {
    parse_linear(inner, spec.rope);
  } else if (type == "llama3") {
    parse_llama3(inner, spec.rope);
  } else if (type == "longrope" || type == "su") {  // its name before it was published
    parse_longrope(outer, inner, default_context, spec);
  } else if (type != "default" && inner.status().ok()) {
    return unsupported(
        "%s: type \"%s\" is not known to this version, which has linear, llama3 and longrope", key,
        type.substr(0, 64).c_str());
  }
  if (!inner.status().ok()) return Status(inner.status()).with_context(key);
  return outer.status();
}

// In files of other families each type of layers has an object of parameters of its own; read as
// one, such a file would seem to have no parameters at all.
Status check_flat(const char* key, const nlohmann::json& object) {
  for (const auto& [name, value] : object.items()) {
    if (!value.is_object()) continue;
    return unsupported(
        "%s: %s is an object; parameters by type of layer are not known to this "
        "version",
        key, ConfigFields::shown(name).c_str());
  }
  return ok_status();
}

// Sets how many columns of a head rotate.
Status set_rotating_columns(double share, bool may_be_partial, ModelSpec& spec) {
  const auto dims = static_cast<std::uint32_t>(spec.head_dim * share);
  if (dims == spec.head_dim) return ok_status();
  if (!may_be_partial) {
    return unsupported("partial_rotary_factor: %g is not known to this version for a %s", share,
                       spec.architecture.c_str());
  }
  if (dims == 0 || dims % 2 != 0) {
    return corrupt(
        "partial_rotary_factor: %g of a head of %u columns is %u, expected an even number", share,
        spec.head_dim, dims);
  }
  spec.rope.dims = dims;
  return ok_status();
}

}  // namespace

Status parse_rope(ConfigFields& fields, const DecoderDefaults& defaults, ModelSpec& spec) {
  spec.rope.theta = fields.positive("rope_theta", defaults.rope_theta);
  double share = fields.fraction("partial_rotary_factor", defaults.partial_rotary.value_or(1.0));
  // Where a file has both, transformers takes rope_scaling unless it is empty.
  const nlohmann::json* scaling = fields.find("rope_scaling");
  const bool has_scaling = scaling != nullptr && !scaling->empty();
  const char* key = has_scaling ? "rope_scaling" : fields.either("rope_parameters", "rope_scaling");
  const nlohmann::json* object = fields.find(key);
  QSF_RETURN_IF_ERROR(fields.status());
  if (object != nullptr) {
    if (!object->is_object()) {
      return corrupt("%s: %s, expected an object", key, ConfigFields::shown(*object).c_str());
    }
    QSF_RETURN_IF_ERROR(check_flat(key, *object));
    ConfigFields inner(*object);
    spec.rope.theta = inner.positive("rope_theta", spec.rope.theta);
    share = inner.fraction("partial_rotary_factor", share);
    const std::uint32_t context =
        defaults.rope_original_context != 0 ? defaults.rope_original_context : spec.max_positions;
    QSF_RETURN_IF_ERROR(parse_scaling(fields, inner, key, context, spec));
  }
  return set_rotating_columns(share, defaults.partial_rotary.has_value(), spec);
}

}  // namespace qsf
