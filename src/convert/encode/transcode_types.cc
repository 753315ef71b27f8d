// SPDX-License-Identifier: MIT

#include "convert/encode/transcode_types.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace qsf {

namespace {

constexpr std::string_view kNames[] = {
    "f32",        "f16",        "bf16",       "8bit",        "4bit",       "3bit",
    "2bit",       "2bit-sym",   "ternary",    "ternary-row", "4bit-super", "3bit-super",
    "2bit-super", "4bit-table", "3bit-table", "2bit-table",  "q6_k",       "q5_k",
    "q3_k",       "q2_k",       "mixed",      "keep"};

// What mixed tries, one after the other: of the types of about so many bits those that cost a text
// least (docs/quality.md).
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
    case TensorKind::kFfnGate:
    case TensorKind::kFfnUp:
    case TensorKind::kExpertGate:
    case TensorKind::kExpertUp: return kTwoBits;
    default: return kFourBits;
  }
}

}  // namespace

std::string_view quant_preset_name(QuantPreset preset) noexcept {
  return kNames[static_cast<std::size_t>(preset)];
}

std::optional<QuantPreset> find_quant_preset(std::string_view name) noexcept {
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return static_cast<QuantPreset>(i);
  }
  return std::nullopt;
}

QuantType preset_type(QuantPreset preset, TensorKind kind) noexcept {
  const bool coded =
      preset != QuantPreset::kF32 && preset != QuantPreset::kF16 && preset != QuantPreset::kBF16;
  if (coded && kind == TensorKind::kPositionEmbedding) return QuantType::kF16;
  const bool vocabulary = kind == TensorKind::kTokenEmbedding || kind == TensorKind::kHead;
  switch (preset) {
    case QuantPreset::kF32: return QuantType::kF32;
    case QuantPreset::kF16: return QuantType::kF16;
    case QuantPreset::kBF16: return QuantType::kBF16;
    case QuantPreset::k8Bit: return QuantType::kQ8;
    case QuantPreset::k4Bit: return QuantType::kQ4;
    case QuantPreset::k3Bit: return QuantType::kQ3;
    case QuantPreset::k2Bit: return vocabulary ? QuantType::kQ4 : QuantType::kQ2A;
    case QuantPreset::k2BitSym: return vocabulary ? QuantType::kQ4 : QuantType::kQ2S;
    case QuantPreset::kTernary: return vocabulary ? QuantType::kQ4 : QuantType::kTernary;
    case QuantPreset::kTernaryRow: return vocabulary ? QuantType::kQ4 : QuantType::kTernaryRow;
    case QuantPreset::k4BitSuper: return QuantType::kQ4Super;
    case QuantPreset::k3BitSuper: return QuantType::kQ3Super;
    case QuantPreset::k2BitSuper: return vocabulary ? QuantType::kQ4Super : QuantType::kQ2Super;
    case QuantPreset::k4BitCodebook: return QuantType::kQ4Codebook;
    case QuantPreset::k3BitCodebook:
      return vocabulary ? QuantType::kQ4Codebook : QuantType::kQ3Codebook;
    case QuantPreset::k2BitCodebook:
      return vocabulary ? QuantType::kQ4Codebook : QuantType::kQ2Codebook;
    case QuantPreset::kQ6K: return QuantType::kQ6K;
    case QuantPreset::kQ5K: return QuantType::kQ5K;
    case QuantPreset::kQ3K: return vocabulary ? QuantType::kQ6K : QuantType::kQ3K;
    case QuantPreset::kQ2K: return vocabulary ? QuantType::kQ6K : QuantType::kQ2K;
    case QuantPreset::kMixed: return mixed_format(kind).type;
    case QuantPreset::kKeep: return QuantType::kQ8;
  }
  return QuantType::kF32;
}

std::optional<QuantType> preset_default_type(QuantPreset preset) noexcept {
  if (preset == QuantPreset::kMixed || preset == QuantPreset::kKeep) return std::nullopt;
  return preset_type(preset, TensorKind::kAttnQ);
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
    return invalid_argument("%s, layer %u: blocks of %u columns, which %s does not have",
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
