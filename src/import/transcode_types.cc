// SPDX-License-Identifier: MIT

#include "import/transcode_types.h"

namespace qsf {
namespace {

constexpr std::string_view kNames[] = {
    "f32",      "f16",     "bf16",        "8bit",       "4bit",       "3bit",       "2bit",
    "2bit-sym", "ternary", "ternary-row", "4bit-super", "3bit-super", "2bit-super", "q6_k",
    "q5_k",     "q3_k",    "q2_k",        "mixed",      "keep"};

QuantType mixed_type(TensorKind kind) noexcept {
  switch (kind) {
    case TensorKind::kAttnQ:
    case TensorKind::kAttnK:
    case TensorKind::kAttnV:
    case TensorKind::kFfnGate:
    case TensorKind::kFfnUp:
    case TensorKind::kExpertGate:
    case TensorKind::kExpertUp: return QuantType::kQ2A;
    default: return QuantType::kQ4;
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
    case QuantPreset::kQ6K: return QuantType::kQ6K;
    case QuantPreset::kQ5K: return QuantType::kQ5K;
    case QuantPreset::kQ3K: return vocabulary ? QuantType::kQ6K : QuantType::kQ3K;
    case QuantPreset::kQ2K: return vocabulary ? QuantType::kQ6K : QuantType::kQ2K;
    case QuantPreset::kMixed: return mixed_type(kind);
    case QuantPreset::kKeep: return QuantType::kQ8;
  }
  return QuantType::kF32;
}

std::optional<QuantType> preset_default_type(QuantPreset preset) noexcept {
  if (preset == QuantPreset::kMixed || preset == QuantPreset::kKeep) return std::nullopt;
  return preset_type(preset, TensorKind::kAttnQ);
}

std::optional<QuantType> wider_type(QuantType type) noexcept {
  switch (type) {
    case QuantType::kQ2A: return QuantType::kQ3;
    case QuantType::kQ3: return QuantType::kQ4;
    case QuantType::kQ4: return QuantType::kQ8;
    default: return std::nullopt;
  }
}

}  // namespace qsf
