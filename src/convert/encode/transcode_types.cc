// SPDX-License-Identifier: MIT

#include "convert/encode/transcode_types.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace qsf {

namespace {

// The formats that mixed tries, one after the other: at each width the type with the lowest
// perplexity (docs/quality.md).
constexpr BlockFormat kRungs[] = {{QuantType::kQ2K, 16},     {QuantType::kQ3Codebook, 16},
                                  {QuantType::kQ4Super, 32}, {QuantType::kQ5K, 32},
                                  {QuantType::kQ6K, 16},     {QuantType::kQ8, 64}};
constexpr BlockFormat kTwoBits = kRungs[0];
constexpr BlockFormat kFourBits = kRungs[2];

BlockFormat mixed_format(TensorKind kind) noexcept {
  switch (kind) {
    case TensorKind::kAttnQ:
    case TensorKind::kAttnK:
    case TensorKind::kAttnV:
    case TensorKind::kMixerIn:
    case TensorKind::kLatentQuery:
    case TensorKind::kMixerGate:
    case TensorKind::kAttnGate:
    case TensorKind::kFfnGate:
    case TensorKind::kFfnUp:
    case TensorKind::kExpertGate:
    case TensorKind::kExpertUp:
    case TensorKind::kSharedGate:
    case TensorKind::kSharedUp: return kTwoBits;
    default: return kFourBits;
  }
}

}  // namespace

std::vector<QuantPreset> all_quant_presets() {
  std::vector<QuantPreset> presets;
  for (const QuantType type : kAllQuantTypes) {
    if (type_traits(type).placement.is_preset) presets.emplace_back(type);
  }
  presets.push_back(QuantPreset::kMixed);
  presets.push_back(QuantPreset::kKeep);
  return presets;
}

std::string_view quant_preset_name(QuantPreset preset) noexcept {
  if (preset == QuantPreset::kMixed) return "mixed";
  if (preset == QuantPreset::kKeep) return "keep";
  return quant_type_name(*preset.type());
}

std::optional<QuantPreset> find_quant_preset(std::string_view name) {
  for (const QuantPreset preset : all_quant_presets()) {
    if (quant_preset_name(preset) == name) return preset;
  }
  return std::nullopt;
}

QuantType preset_type(QuantPreset preset, TensorKind kind) noexcept {
  const bool coded = !preset.type() || !is_float_type(*preset.type());
  if (coded && kind == TensorKind::kPositionEmbedding) return QuantType::kF16;
  // Of one row a text, which is the answer.
  const bool dense = kind == TensorKind::kDenseUp || kind == TensorKind::kDenseDown;
  if (coded && dense) return QuantType::kF16;
  // Few, and what they decide lasts for many rows.
  const bool lasting = kind == TensorKind::kDeltaRate || kind == TensorKind::kDeltaStep;
  if (coded && lasting) return QuantType::kF16;
  if (kind == TensorKind::kRouter) return QuantType::kF32;  // small, and its errors change experts
  if (preset == QuantPreset::kMixed) return mixed_format(kind).type;
  if (preset == QuantPreset::kKeep) return QuantType::kQ8;
  const bool vocabulary = kind == TensorKind::kTokenEmbedding || kind == TensorKind::kHead;
  return vocabulary ? type_traits(*preset.type()).placement.vocabulary : *preset.type();
}

std::optional<QuantType> preset_default_type(QuantPreset preset) noexcept {
  return preset.type();
}

BlockFormat preset_format(QuantPreset preset, TensorKind kind, std::uint32_t block) noexcept {
  const QuantType type = preset_type(preset, kind);
  const bool chooses_block = preset == QuantPreset::kMixed && !is_float_type(type);
  return chooses_block ? mixed_format(kind) : block_format(type, block);
}

std::optional<BlockFormat> wider_format(BlockFormat format) noexcept {
  const BlockFormat* const rung = std::find(std::begin(kRungs), std::end(kRungs), format);
  if (rung == std::end(kRungs) || rung + 1 == std::end(kRungs)) return std::nullopt;
  return rung[1];
}

Status TensorFormats::set(TensorKind kind, std::uint32_t layer, BlockFormat format) {
  if (!is_valid(format)) {
    return invalid_argument("%s, layer %u: blocks of %u columns are not valid for %s",
                            std::string(tensor_kind_name(kind)).c_str(), layer, format.block,
                            std::string(quant_type_name(format.type)).c_str());
  }
  formats_.insert_or_assign({kind, layer}, format);
  return ok_status();
}

std::optional<BlockFormat> TensorFormats::find(TensorKind kind, std::uint32_t layer) const {
  const auto found = formats_.find({kind, layer});
  if (found == formats_.end()) return std::nullopt;
  return found->second;
}

}  // namespace qsf
