// SPDX-License-Identifier: MIT

#include "import/gguf/gguf_rope.h"
#include "base/portable_math.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace qsf {
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

// A file may have the factor of cosines and sines that the model's own configuration names:
// newer files in yarn_attn_factor, older ones in attn_factor, where 1 is no value. Otherwise it is
// 0.1 ln(factor) + 1, over the same with the logarithm times the multiplier. The model serves its
// original context times the scaling factor, also where the file names the context before scaling.
Status read_yarn(GgufFields& fields, ModelSpec& spec) {
  RopeSpec& rope = spec.rope;
  rope.scaling = RopeScaling::kYarn;
  rope.factor = fields.positive("rope.scaling.factor", 1.0F);
  rope.original_context =
      fields.u32_or("rope.scaling.original_context_length", spec.max_positions, 1, kMaxContext);
  rope.beta_fast = fields.positive("rope.scaling.yarn_beta_fast", rope.beta_fast);
  rope.beta_slow = fields.positive("rope.scaling.yarn_beta_slow", rope.beta_slow);
  const double factor = rope.factor;
  const double multiplier = fields.positive_or("rope.scaling.yarn_log_multiplier", 0.0F);
  const double growth = 0.1 * portable::log(std::max(factor, 1.0));
  const auto rule = static_cast<float>((growth + 1.0) / (multiplier * growth + 1.0));
  const float older = fields.positive("rope.scaling.attn_factor", 1.0F);
  rope.attention_factor =
      fields.positive("rope.scaling.yarn_attn_factor", older != 1.0F ? older : rule);
  fields.refuse_unread("rope.scaling.yarn_ext_factor", 1.0);
  const double served = std::min(factor * rope.original_context, 1.0 * kMaxContext);
  spec.max_positions = std::max(spec.max_positions, static_cast<std::uint32_t>(served));
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
  } else if (type == "yarn") {
    QSF_RETURN_IF_ERROR(read_yarn(fields, spec));
  } else if (type != "none" && type != "longrope") {
    return unsupported(
        "GGUF: rope.scaling.type \"%s\" is not supported; expected none, linear, longrope or yarn",
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
