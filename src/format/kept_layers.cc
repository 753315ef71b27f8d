// SPDX-License-Identifier: MIT

#include "format/kept_layers.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "base/check.h"
#include "base/ranges.h"

namespace qsf {
namespace {

template <typename T>
void keep_values(std::span<const std::uint32_t> kept, std::vector<T>& of_layers) {
  if (of_layers.empty()) return;
  for (std::size_t i = 0; i < kept.size(); ++i) of_layers[i] = of_layers[kept[i]];
  of_layers.resize(kept.size());
}

}  // namespace

const char* bond_of_layers(const ModelSpec& spec) noexcept {
  if (spec.shares_kv()) return "layers use keys and values of other layers";
  if (spec.has_streams()) return "its residual streams are made and merged by layers";
  if (spec.layer_input_dim != 0) return "tokens have an input for each layer";
  if (spec.norms_stream) return "a layer's norm is that of the sum before it";
  return nullptr;
}

Result<std::vector<std::uint32_t>> choose_layers(std::span<const float> importance, float quality) {
  const auto n_layers = static_cast<std::uint32_t>(importance.size());
  if (!(quality > 0.0F && quality <= 1.0F)) {
    return invalid_argument("quality: %g, expected above 0, and at most 1",
                            static_cast<double>(quality));
  }
  // A share such as 0.8 is not exact in f32; no model has 10,000 layers.
  constexpr double kRounding = 1e-4;
  const auto n_kept =
      static_cast<std::uint32_t>(std::ceil(static_cast<double>(quality) * n_layers - kRounding));
  std::vector<std::uint32_t> layers(n_layers);
  std::iota(layers.begin(), layers.end(), 0U);
  if (n_kept >= n_layers) return layers;
  const std::uint32_t n_least = 2 * kKeptEnds;
  if (n_kept < n_least) {
    return invalid_argument(
        "quality: %g leaves %u of %u layers, but the first and the last %u are always kept; use at "
        "least %.3f",
        static_cast<double>(quality), n_kept, n_layers, kKeptEnds,
        std::min(1.0, std::ceil(1000.0 * n_least / n_layers) / 1000.0));
  }
  if (ranges::count(importance, 0.0F) != 0) {
    return invalid_argument(
        "quality: %g, but the file does not say how important its layers are; convert the model "
        "with 'qsf convert --calibration', or use 1",
        static_cast<double>(quality));
  }
  // The middle ones, those to be left out first in front.
  const std::span<std::uint32_t> middle = std::span(layers).subspan(kKeptEnds, n_layers - n_least);
  ranges::sort(middle, [&](std::uint32_t a, std::uint32_t b) {
    return importance[a] != importance[b] ? importance[a] < importance[b] : a > b;
  });
  layers.erase(layers.begin() + kKeptEnds, layers.begin() + kKeptEnds + (n_layers - n_kept));
  ranges::sort(layers);
  return layers;
}

Status keep_layers(std::span<const std::uint32_t> kept, ModelSpec& spec, KeptLayers as) {
  QSF_CHECK(!kept.empty() && kept.back() < spec.n_layers);
  QSF_CHECK(ranges::is_sorted(kept));
  if (kept.size() == spec.n_layers) return ok_status();
  if (const char* const bond = bond_of_layers(spec); bond != nullptr) {
    return unsupported("quality: no layer of this model can be left out: %s; use 1", bond);
  }
  ModelSpec rest = spec;
  rest.n_layers = static_cast<std::uint32_t>(kept.size());
  for (auto* const of_layers :
       {&rest.layer_rope, &rest.layer_mixers, &rest.ffn_layers, &rest.key_value_layers,
        &rest.layer_ffn, &rest.ffn_cutoff_layers, &rest.expert_layers}) {
    keep_values(kept, *of_layers);
  }
  if (rest.sliding_window.size() > 1) keep_values(kept, rest.sliding_window);
  keep_values(kept, rest.layer_heads);
  std::uint32_t n_sparse = 0;
  for (std::uint32_t layer = 0; layer < rest.n_layers; ++layer) {
    n_sparse += rest.has_experts(layer) ? 1 : 0;
  }
  if (as == KeptLayers::kModel &&
      (rest.n_attention_layers() == 0 || (rest.n_experts != 0 && n_sparse == 0))) {
    return unsupported("quality: of %u layers none is left that %s; use more", spec.n_layers,
                       rest.n_attention_layers() == 0 ? "attends" : "has experts");
  }
  spec = std::move(rest);
  return ok_status();
}

}  // namespace qsf
