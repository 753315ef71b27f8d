// SPDX-License-Identifier: MIT

#include "import/hf/hf_families.h"

namespace qsf {

// BitNet b1.58: a llama with norms before the attention output and the down projection, whose
// products take ternary weights and rows of int8. Two classes have almost the same name: BitNet is
// Microsoft's; Bitnet is the older class of 1bitLLM, with other names for the norms.

namespace {

Status parse_graph(ConfigFields& fields, const DecoderDefaults& defaults, std::string_view act,
                   HfConfig& config) {
  ModelSpec& spec = config.spec;
  QSF_RETURN_IF_ERROR(parse_decoder(fields, defaults, spec));
  QSF_RETURN_IF_ERROR(refuse(fields, "attention_bias", true));
  const std::string name = fields.text("hidden_act", act);
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_ASSIGN_OR_RETURN(spec.activation, parse_activation("hidden_act", name));
  return ok_status();
}

// Layers that stay floats would take other rows than the others.
Status check_all_converted(const ConfigFields& quantisation) {
  const char* key = "modules_to_not_convert";
  const JsonValue* names = quantisation.find(key);
  if (names == nullptr) return ok_status();
  if (!names->is_array()) return corrupt("%s: expected a list of names", key);
  for (const JsonValue& name : names->elements()) {
    if (name.text() == "lm_head" || name.text() == "lm_head.weight") continue;
    return unsupported("%s: %s is not supported; only lm_head may stay unconverted", key,
                       name.shown().c_str());
  }
  return ok_status();
}

Result<TernaryStorage> parse_storage(ConfigFields& quantisation, const ModelSpec& spec) {
  const std::string method = quantisation.text("quant_method", "");
  // The names of the tensors say which are of that type.
  if (method == "mxfp4" && spec.architecture == "gpt-oss") return TernaryStorage::kNone;
  if (method != "bitnet") {
    return unsupported(
        "method \"%s\": the weights are already quantised; convert the original model",
        method.substr(0, 64).c_str());
  }
  QSF_RETURN_IF_ERROR(refuse(quantisation, "use_rms_norm", true));
  QSF_RETURN_IF_ERROR(check_all_converted(quantisation));
  const std::string linear = quantisation.text("linear_class", "bitlinear");
  const std::string mode = quantisation.text("quantization_mode", "offline");
  QSF_RETURN_IF_ERROR(quantisation.status());
  if (linear == "bitlinear" && mode == "offline") return TernaryStorage::kOverScale;
  if (linear == "autobitlinear" && mode == "offline") return TernaryStorage::kTimesScale;
  if (linear == "autobitlinear" && mode == "online") return TernaryStorage::kMasters;
  return unsupported("linear_class \"%s\" with quantization_mode \"%s\" is not supported",
                     linear.substr(0, 64).c_str(), mode.substr(0, 64).c_str());
}

}  // namespace

Status parse_bitnet(ConfigFields& fields, HfConfig& config) {
  config.spec.architecture = "bitnet-b1.58";
  return parse_graph(fields, {.epsilon = 1e-5F, .n_kv_heads = 5, .rope_theta = 500000.0F}, "relu2",
                     config);
}

Status parse_bitnet_1bit(ConfigFields& fields, HfConfig& config) {
  config.spec.architecture = "bitnet";
  config.ternary = TernaryStorage::kMasters;
  return parse_graph(fields, {}, "silu", config);
}

Status parse_quantisation(const JsonValue& object, HfConfig& config) {
  const char* key = "quantization_config";
  if (!object.is_object()) return corrupt("%s: expected an object", key);
  ConfigFields quantisation(object);
  auto storage = parse_storage(quantisation, config.spec);
  if (!storage) return std::move(storage).error().with_context(key);
  config.ternary = *storage;
  return ok_status();
}

}  // namespace qsf
