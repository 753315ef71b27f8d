// SPDX-License-Identifier: MIT
//
// Encoders: models whose rows attend to both sides, which embed texts.

#include <vector>

#include "import/hf/hf_families.h"

namespace qsf {

// A head that predicts masked tokens is left out. Windows have half their length to each side; the
// row's own position is counted beside.
Status parse_modernbert(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "modernbert";
  const DecoderDefaults defaults = {.norm = NormType::kLayerNorm,
                                    .epsilon_key = "norm_eps",
                                    .epsilon = 1e-5F,
                                    .rope_theta_key = "global_rope_theta",
                                    .rope_theta = 160000.0F,
                                    .rope_by_layer = true};
  QSF_RETURN_IF_ERROR(parse_decoder(fields, defaults, spec));
  for (const char* key : {"norm_bias", "attention_bias", "mlp_bias"}) {
    QSF_RETURN_IF_ERROR(refuse(fields, key, true));
  }
  const char* activation = "hidden_activation";
  const std::string name = fields.text(activation, "gelu");
  const std::uint32_t window = fields.u32_or("local_attention", 128, 2, 1U << 30);
  const std::uint32_t every = fields.u32_or("global_attn_every_n_layers", 3, 1, 4096);
  const float theta = fields.positive("local_rope_theta", 10000.0F);
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_ASSIGN_OR_RETURN(spec.activation, parse_activation(activation, name));
  std::vector<bool> local;
  if (fields.find("layer_types") != nullptr) {
    QSF_ASSIGN_OR_RETURN(local, local_layers(fields, spec.n_layers, 0));
  } else {
    for (std::uint32_t i = 0; i < spec.n_layers; ++i) local.push_back(i % every != 0);
  }
  set_local_windows(local, window / 2 + 1, spec);
  spec.bidirectional = true;
  return parse_local_rope(fields, local, theta, spec);
}

}  // namespace qsf
