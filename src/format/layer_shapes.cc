// SPDX-License-Identifier: MIT

#include "format/layer_shapes.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "format/spec_keys.h"

namespace qsf {
namespace {

Status check_one_a_layer(const char* name, std::size_t n, const ModelSpec& s) {
  if (n == 0 || n == s.n_layers) return ok_status();
  return invalid_argument("%s: %zu values for %u layers, expected one a layer", name, n,
                          s.n_layers);
}

Status check_heads(const ModelSpec& s) {
  KvHeads most = {.n_kv_heads = 0, .head_dim = 0};
  for (const KvHeads& heads : s.layer_heads) {
    if (heads.n_kv_heads == 0 || heads.head_dim == 0 || s.n_heads % heads.n_kv_heads != 0) {
      return invalid_argument(
          "heads by layer: %u key-value heads of %u columns, expected a divisor of the %u heads "
          "and columns above 0",
          heads.n_kv_heads, heads.head_dim, s.n_heads);
    }
    most.n_kv_heads = std::max(most.n_kv_heads, heads.n_kv_heads);
    most.head_dim = std::max(most.head_dim, heads.head_dim);
  }
  if (most == KvHeads{s.n_kv_heads, s.head_dim}) return ok_status();
  return invalid_argument(
      "heads by layer: at most %u key-value heads and %u columns, but the model has %u and %u",
      most.n_kv_heads, most.head_dim, s.n_kv_heads, s.head_dim);
}

// A rotation has the frequencies of one width.
Status check_rotations(const ModelSpec& s) {
  if (s.positions != PositionEncoding::kRope) return ok_status();
  if (s.rope.scaling > RopeScaling::kLinear) {
    return invalid_argument("heads by layer: not with rope scaling %s",
                            std::string(rope_scaling_name(s.rope.scaling)).c_str());
  }
  std::uint32_t widths[3] = {};
  for (std::uint32_t layer = 0; layer < s.n_layers; ++layer) {
    const LayerRope rope = s.rope_of(layer);
    const std::uint32_t width = s.layer_heads[layer].head_dim;
    std::uint32_t& of_rope = widths[static_cast<unsigned>(rope)];
    if (of_rope == 0) of_rope = width;
    if (rope == LayerRope::kNone) continue;
    if (of_rope != width || s.rope_dims_of(layer) > width || s.rope_dims_of(layer) % 2 != 0) {
      return invalid_argument(
          "heads by layer: layer %u rotates %u of %u columns, expected an even part of the %u that "
          "its rotation has",
          layer, s.rope_dims_of(layer), width, of_rope);
    }
  }
  return ok_status();
}

// Layers that attend to an earlier one's keys and values come behind all that have their own.
Status check_kv_layers(const ModelSpec& s) {
  if (s.kv_layers.empty()) return ok_status();
  if (!s.layer_mixers.empty()) {
    return invalid_argument("shared keys and values: not in a model with mixers by layer");
  }
  const std::uint32_t n_own = s.n_kv_layers();
  for (std::uint32_t layer = 0; layer < s.n_layers; ++layer) {
    const std::uint32_t from = s.kv_layers[layer];
    const bool fits = layer < n_own ? from == layer : from < n_own;
    const bool alike = fits && s.attention_of(layer).head_dim == s.attention_of(from).head_dim &&
                       s.attention_of(layer).n_kv_heads == s.attention_of(from).n_kv_heads;
    if (alike) continue;
    return invalid_argument(
        "shared keys and values: layer %u takes those of layer %u, expected its own or, in the "
        "last layers, those of an earlier one with the same heads",
        layer, from);
  }
  if (n_own < s.n_layers) return ok_status();
  return invalid_argument("shared keys and values: every layer has its own");
}

Status check_layer_ffn(const ModelSpec& s) {
  if (s.layer_ffn.empty()) return ok_status();
  std::uint32_t most = 0;
  for (const std::uint32_t ffn : s.layer_ffn) {
    if (ffn == 0) return invalid_argument("ffn by layer: 0, expected more");
    most = std::max(most, ffn);
  }
  if (most == s.ffn) return ok_status();
  return invalid_argument("ffn by layer: at most %u, but the model has %u", most, s.ffn);
}

// Streams, inputs of layers and a product beside attention come together, in plain layers.
Status check_streams(const ModelSpec& s) {
  constexpr std::uint32_t kMostStreams = 8;
  constexpr std::uint32_t kMostLaurelColumns = 1U << 16;
  if (s.n_streams == 0 || s.n_streams > kMostStreams) {
    return invalid_argument("residual streams: %u, expected 1 to %u", s.n_streams, kMostStreams);
  }
  if (s.laurel_dim == 1 || s.laurel_dim > kMostLaurelColumns) {
    return invalid_argument("columns beside attention: %u, expected 0 or 2 to %u", s.laurel_dim,
                            kMostLaurelColumns);
  }
  if (s.layer_input_rows != 0 && (s.layer_input_dim == 0 || s.layer_input_rows >= s.n_vocab)) {
    return invalid_argument("rows of layer inputs: %u, expected fewer than the %u tokens",
                            s.layer_input_rows, s.n_vocab);
  }
  if (s.has_streams() != (s.laurel_dim != 0) || (s.has_streams() && s.layer_input_dim == 0)) {
    return invalid_argument(
        "%u residual streams with %u columns beside attention and %u of layer inputs, expected all "
        "or none",
        s.n_streams, s.laurel_dim, s.layer_input_dim);
  }
  if (s.has_streams() && (s.n_experts != 0 || !s.layer_mixers.empty() || s.parallel_block)) {
    return invalid_argument("residual streams: not with experts, mixers or parallel blocks");
  }
  const bool plain = !s.has_streams() && s.layer_input_dim == 0 && s.n_experts == 0 &&
                     s.layer_mixers.empty() && !s.parallel_block && !s.has_latent();
  if (s.norms_stream && !plain) {
    return invalid_argument(
        "norms that give the residual stream: not with experts, mixers, latent attention, parallel "
        "blocks, inputs of layers or several streams");
  }
  return ok_status();
}

Status check_cutoff(const ModelSpec& s) {
  bool some = false;
  for (const std::uint32_t cut : s.ffn_cutoff_layers) {
    if (cut > 1) return invalid_argument("layers whose gates are cut: %u, expected 0 or 1", cut);
    some = some || cut == 1;
  }
  if (some != !s.ffn_cutoff_layers.empty()) {
    return invalid_argument("layers whose gates are cut: none of %zu", s.ffn_cutoff_layers.size());
  }
  if (!std::isfinite(s.ffn_cutoff) || (!some && s.ffn_cutoff != 0.0F)) {
    return invalid_argument("cut of gates: %g deviations in %zu layers",
                            static_cast<double>(s.ffn_cutoff), s.ffn_cutoff_layers.size());
  }
  if (!some || (s.gated_ffn && s.n_experts == 0)) return ok_status();
  return invalid_argument("cut of gates: in an FFN without gates or with experts");
}

}  // namespace

std::uint32_t ModelSpec::n_kv_layers() const noexcept {
  if (kv_layers.empty()) return n_attention_layers();
  std::uint32_t n = 0;
  while (n < kv_layers.size() && kv_layers[n] == n) ++n;
  return n;
}

std::uint32_t ModelSpec::kv_dim() const noexcept {
  std::uint32_t most = layer_heads.empty() ? n_kv_heads * head_dim : 0;
  for (const KvHeads& heads : layer_heads) {
    most = std::max(most, heads.n_kv_heads * heads.head_dim);
  }
  return most;
}

void set_layer_heads(std::vector<KvHeads> heads, ModelSpec& spec) {
  const KvHeads first = heads.front();
  spec.n_kv_heads = first.n_kv_heads;
  spec.head_dim = first.head_dim;
  bool alike = true;
  for (const KvHeads& other : heads) {
    alike = alike && other == first;
    spec.n_kv_heads = std::max(spec.n_kv_heads, other.n_kv_heads);
    spec.head_dim = std::max(spec.head_dim, other.head_dim);
  }
  spec.layer_heads = alike ? std::vector<KvHeads>() : std::move(heads);
}

void set_layer_ffn(std::vector<std::uint32_t> ffn, ModelSpec& spec) {
  spec.ffn = *std::max_element(ffn.begin(), ffn.end());
  const bool alike = std::all_of(ffn.begin(), ffn.end(),
                                 [&spec](std::uint32_t of_layer) { return of_layer == spec.ffn; });
  spec.layer_ffn = alike ? std::vector<std::uint32_t>() : std::move(ffn);
}

Status share_kv(std::uint32_t n_sharing, ModelSpec& spec) {
  if (n_sharing == 0) return ok_status();
  const std::uint32_t n_own = spec.n_layers - n_sharing;
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    std::uint32_t from = layer < n_own ? layer : n_own - 1;
    while (from > 0 && spec.window_of(from) != spec.window_of(layer)) --from;
    if (spec.window_of(from) != spec.window_of(layer)) {
      return corrupt(
          "shared keys and values: no layer before the last %u has the window of layer "
          "%u",
          n_sharing, layer);
    }
    spec.kv_layers.push_back(from);
  }
  return ok_status();
}

Status check_layer_shapes(const ModelSpec& s) {
  QSF_RETURN_IF_ERROR(check_one_a_layer("heads by layer", s.layer_heads.size(), s));
  QSF_RETURN_IF_ERROR(
      check_one_a_layer("layers whose keys are values", s.key_value_layers.size(), s));
  QSF_RETURN_IF_ERROR(check_one_a_layer("shared keys and values", s.kv_layers.size(), s));
  QSF_RETURN_IF_ERROR(check_one_a_layer("ffn by layer", s.layer_ffn.size(), s));
  QSF_RETURN_IF_ERROR(check_layer_ffn(s));
  QSF_RETURN_IF_ERROR(
      check_one_a_layer("layers whose gates are cut", s.ffn_cutoff_layers.size(), s));
  QSF_RETURN_IF_ERROR(check_cutoff(s));
  QSF_RETURN_IF_ERROR(check_streams(s));
  constexpr std::uint32_t kMostInputColumns = 1U << 16;
  if (s.layer_input_dim > kMostInputColumns || s.layer_input_dim == 1) {
    return invalid_argument("columns of layer inputs: %u, expected 0 or 2 to %u", s.layer_input_dim,
                            kMostInputColumns);
  }
  for (const std::uint32_t here : s.key_value_layers) {
    if (here <= 1) continue;
    return invalid_argument("layers whose keys are values: %u, expected 0 or 1", here);
  }
  const std::uint32_t n_pairs = s.rope_dims() / 2;
  const bool plain =
      s.positions == PositionEncoding::kRope && s.rope.scaling <= RopeScaling::kLinear;
  if (s.rope.n_turning != 0 && (!plain || s.rope.n_turning > n_pairs)) {
    return invalid_argument(
        "pairs that turn: %u of %u, expected at most all, of a rope that is unscaled or linear",
        s.rope.n_turning, n_pairs);
  }
  const bool shaped = !s.layer_heads.empty() || !s.key_value_layers.empty();
  if (shaped && !s.layer_mixers.empty()) {
    return invalid_argument("heads or values by layer: not in a model with mixers by layer");
  }
  if (!s.layer_heads.empty()) {
    QSF_RETURN_IF_ERROR(check_heads(s));
    QSF_RETURN_IF_ERROR(check_rotations(s));
  }
  return check_kv_layers(s);
}

void encode_layer_shapes(const ModelSpec& s, Metadata& m) {
  if (!s.layer_heads.empty()) {
    std::vector<std::uint32_t> widths;
    std::vector<std::uint32_t> counts;
    for (const KvHeads& heads : s.layer_heads) {
      widths.push_back(heads.head_dim);
      counts.push_back(heads.n_kv_heads);
    }
    m.set_u32_array(keys::kAttentionHeadDims, widths, true);
    m.set_u32_array(keys::kAttentionKvHeads, counts, true);
  }
  if (!s.key_value_layers.empty()) {
    m.set_u32_array(keys::kAttentionKeyValues, s.key_value_layers, true);
  }
  if (!s.kv_layers.empty()) m.set_u32_array(keys::kAttentionKvLayers, s.kv_layers, true);
  if (!s.layer_ffn.empty()) m.set_u32_array(keys::kFfnRows, s.layer_ffn, true);
  if (s.layer_input_dim != 0) m.set_u32(keys::kLayerInputColumns, s.layer_input_dim, true);
  if (s.layer_input_rows != 0) m.set_u32(keys::kLayerInputRows, s.layer_input_rows, true);
  if (s.has_streams()) m.set_u32(keys::kStreams, s.n_streams, true);
  if (s.laurel_dim != 0) m.set_u32(keys::kLaurelColumns, s.laurel_dim, true);
  if (!s.ffn_cutoff_layers.empty()) {
    m.set_f32(keys::kFfnCutoff, s.ffn_cutoff, true);
    m.set_u32_array(keys::kFfnCutoffLayers, s.ffn_cutoff_layers, true);
  }
  if (s.value_norms) m.set_bool(keys::kAttentionValueNorms, true, true);
  if (s.rope.n_turning != 0) m.set_u32(keys::kRopeTurning, s.rope.n_turning, true);
}

Status decode_layer_shapes(const Metadata& m, ModelSpec& s) {
  QSF_ASSIGN_OR_RETURN(const std::vector<std::uint32_t> widths,
                       m.get_u32_array(keys::kAttentionHeadDims));
  QSF_ASSIGN_OR_RETURN(const std::vector<std::uint32_t> counts,
                       m.get_u32_array(keys::kAttentionKvHeads));
  if (widths.size() != counts.size()) {
    return corrupt("metadata keys \"%s\" and \"%s\": %zu and %zu values, expected one a layer",
                   keys::kAttentionHeadDims, keys::kAttentionKvHeads, widths.size(), counts.size());
  }
  for (std::size_t i = 0; i < widths.size(); ++i) {
    s.layer_heads.push_back({.n_kv_heads = counts[i], .head_dim = widths[i]});
  }
  QSF_ASSIGN_OR_RETURN(s.key_value_layers, m.get_u32_array(keys::kAttentionKeyValues));
  QSF_ASSIGN_OR_RETURN(s.kv_layers, m.get_u32_array(keys::kAttentionKvLayers));
  QSF_ASSIGN_OR_RETURN(s.layer_ffn, m.get_u32_array(keys::kFfnRows));
  QSF_ASSIGN_OR_RETURN(s.layer_input_dim, m.get_u32(keys::kLayerInputColumns, 0));
  QSF_ASSIGN_OR_RETURN(s.layer_input_rows, m.get_u32(keys::kLayerInputRows, 0));
  QSF_ASSIGN_OR_RETURN(s.n_streams, m.get_u32(keys::kStreams, 1));
  QSF_ASSIGN_OR_RETURN(s.laurel_dim, m.get_u32(keys::kLaurelColumns, 0));
  QSF_ASSIGN_OR_RETURN(s.ffn_cutoff, m.get_f32(keys::kFfnCutoff, 0.0F));
  QSF_ASSIGN_OR_RETURN(s.ffn_cutoff_layers, m.get_u32_array(keys::kFfnCutoffLayers));
  QSF_ASSIGN_OR_RETURN(s.value_norms, m.get_bool(keys::kAttentionValueNorms, false));
  QSF_ASSIGN_OR_RETURN(s.rope.n_turning, m.get_u32(keys::kRopeTurning, 0));
  return ok_status();
}

}  // namespace qsf
