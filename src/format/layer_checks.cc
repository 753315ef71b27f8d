// SPDX-License-Identifier: MIT

#include "format/layer_checks.h"

#include <cstdint>

#include "base/ranges.h"
#include "format/spec_range.h"

namespace qsf {
namespace {

bool has_mixer(const ModelSpec& s, LayerMixer mixer) noexcept {
  return ranges::find(s.layer_mixers, static_cast<std::uint32_t>(mixer)) != s.layer_mixers.end();
}

bool has_scans(const ModelSpec& s) noexcept {
  return has_mixer(s, LayerMixer::kMamba2) || has_mixer(s, LayerMixer::kMamba2AndAttention);
}

// Of scans and delta rules. Published models have up to 4 MB of states a layer.
Status check_scans(const ModelSpec& s) {
  const bool scans = has_scans(s) || s.has_delta_rule();
  const std::uint32_t least = scans ? 1 : 0;
  for (const SpecRange& r :
       {SpecRange{"heads of scans", s.mixer_heads, least, scans ? 1024U : 0U},
        SpecRange{"columns of a scan's head", s.mixer_head_dim, least, scans ? 256U : 0U},
        SpecRange{"state of a scan", s.mixer_state, least, scans ? 1024U : 0U},
        SpecRange{"groups of scans", s.mixer_groups, least, s.mixer_heads}}) {
    QSF_RETURN_IF_ERROR(check_range(r));
  }
  if (s.mixer_heads_in_turn && !s.has_delta_rule()) {
    return invalid_argument("heads of mixers in turn: expected with delta rules alone");
  }
  if (!scans) return ok_status();
  if (s.mixer_heads % s.mixer_groups != 0) {
    return invalid_argument("groups of scans: %u, expected a divisor of the %u heads",
                            s.mixer_groups, s.mixer_heads);
  }
  if (has_mixer(s, LayerMixer::kShortConv) || (has_scans(s) && s.has_delta_rule())) {
    return invalid_argument(
        "mixers by layer: some of scans, delta rules and short convolutions, expected one of them");
  }
  return ok_status();
}

Status check_mixers(const ModelSpec& s) {
  QSF_RETURN_IF_ERROR(check_scans(s));
  if (s.layer_mixers.empty()) return check_range({"taps of convolutions", s.conv_taps, 0, 0});
  if (s.layer_mixers.size() != s.n_layers) {
    return invalid_argument("mixers by layer: %zu values for %u layers, expected one a layer",
                            s.layer_mixers.size(), s.n_layers);
  }
  for (const std::uint32_t mixer : s.layer_mixers) {
    QSF_RETURN_IF_ERROR(check_range({"mixers by layer", mixer, 0, 5}));
  }
  if (!s.has_state() || s.n_attention_layers() == 0) {
    return invalid_argument(
        "mixers by layer: %u of %u layers attend and %u have a state, expected some of each",
        s.n_attention_layers(), s.n_layers, s.n_state_layers());
  }
  return check_range({"taps of convolutions", s.conv_taps, 2, 16});
}

// A layer has something that mixes positions, or an FFN, or both.
// Requires  check_mixers(s) is OK
Status check_ffn_layers(const ModelSpec& s) {
  if (!s.ffn_layers.empty() && s.ffn_layers.size() != s.n_layers) {
    return invalid_argument("FFN by layer: %zu values for %u layers, expected one a layer",
                            s.ffn_layers.size(), s.n_layers);
  }
  for (std::uint32_t layer = 0; layer < s.ffn_layers.size(); ++layer) {
    QSF_RETURN_IF_ERROR(check_range({"FFN by layer", s.ffn_layers[layer], 0, 1}));
    if (s.has_ffn(layer) || s.mixer_of(layer) != LayerMixer::kNone) continue;
    return invalid_argument("FFN by layer: layer %u has neither a mixer nor an FFN", layer);
  }
  if (s.ffn_layers.empty()) return ok_status();
  std::uint32_t n_sparse = 0;
  for (std::uint32_t layer = 0; layer < s.n_layers; ++layer)
    n_sparse += s.has_experts(layer) ? 1 : 0;
  const bool some = ranges::count(s.ffn_layers, 1U) != 0;
  if (some && (n_sparse != 0 || s.n_experts == 0)) return ok_status();
  return invalid_argument("FFN by layer: none of %u layers has one%s", s.n_layers,
                          some ? " of experts" : "");
}

}  // namespace

Status check_layers(const ModelSpec& spec) {
  QSF_RETURN_IF_ERROR(check_mixers(spec));
  return check_ffn_layers(spec);
}

}  // namespace qsf
