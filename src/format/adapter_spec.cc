// SPDX-License-Identifier: MIT

#include "format/adapter_spec.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/bit_cast.h"
#include "base/check.h"
#include "base/f16.h"
#include "base/utf8_text.h"
#include "format/model_fingerprint.h"
#include "format/tensor_rules.h"

namespace qsf {
namespace {

constexpr std::size_t kMaxArchitectureBytes = 64;  // as of a model

bool is_legible(std::string_view name) noexcept {
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
  });
}

Status check_pair_field(const std::string& where, const char* field, std::uint32_t value,
                        std::uint32_t most) {
  if (value >= 1 && value <= most) return ok_status();
  return invalid_argument("%s: %s %u, expected 1 to %u", where.c_str(), field, value, most);
}

// Files say so in their provenance alone.
bool is_rotated(const ModelSpec& spec) noexcept {
  return spec.quantiser.ends_with(" rotated");
}

struct BaseMatrix {
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
};

// Finds the matrix of the base that a pair is for.
Result<BaseMatrix> find_matrix(const AdapterPair& pair, const QsfReader& base) {
  const bool head = pair.kind == TensorKind::kHead;
  if (head && base.spec().embeds_only) {
    return invalid_argument("head: the model embeds texts and has no head");
  }
  if (head && base.spec().tied_head) return BaseMatrix{base.spec().n_vocab, base.spec().hidden};
  if (!head && pair.layer >= base.n_layers()) {
    return invalid_argument("%s: the model has %u layers", adapter_pair_label(pair).c_str(),
                            base.n_layers());
  }
  const SectionDirectory& section = head ? base.final_section() : base.layer(pair.layer);
  const auto index = section.find(pair.kind, static_cast<std::uint16_t>(pair.expert));
  if (!index) {
    return invalid_argument("%s: the model has no such matrix", adapter_pair_label(pair).c_str());
  }
  return BaseMatrix{section.tensors[*index].rows, section.tensors[*index].cols};
}

}  // namespace

bool is_adaptable(TensorKind kind) noexcept {
  switch (kind) {
    case TensorKind::kAttnQ:
    case TensorKind::kAttnK:
    case TensorKind::kAttnV:
    case TensorKind::kAttnO:
    case TensorKind::kAttnGate:
    case TensorKind::kFfnGate:
    case TensorKind::kFfnUp:
    case TensorKind::kFfnDown:
    case TensorKind::kRouter:
    case TensorKind::kExpertGate:
    case TensorKind::kExpertUp:
    case TensorKind::kExpertDown:
    case TensorKind::kSharedGate:
    case TensorKind::kSharedUp:
    case TensorKind::kSharedDown:
    case TensorKind::kMixerIn:
    case TensorKind::kMixerOut:
    case TensorKind::kMixerGate:
    case TensorKind::kDeltaRate:
    case TensorKind::kDeltaStep:
    case TensorKind::kLatentQuery:
    case TensorKind::kHead: return true;
    default: return false;
  }
}

bool comes_before(const AdapterPair& a, const AdapterPair& b) noexcept {
  const auto place = [](const AdapterPair& pair) {
    return std::tuple(pair.kind == TensorKind::kHead, pair.layer,
                      static_cast<std::uint32_t>(pair.kind), pair.expert);
  };
  return place(a) < place(b);
}

std::string adapter_pair_label(const AdapterPair& pair) {
  if (pair.kind == TensorKind::kHead) return "head";
  std::string label = "layer " + std::to_string(pair.layer) + ", ";
  const auto code = static_cast<std::uint32_t>(pair.kind);
  label += is_tensor_kind(code) ? std::string(tensor_kind_name(pair.kind))
                                : "kind " + std::to_string(code);
  if (is_expert(pair.kind)) label += " of expert " + std::to_string(pair.expert);
  return label;
}

std::string_view adapter_type_name(AdapterType type) noexcept {
  return type == AdapterType::kF16 ? "f16" : "f32";
}

std::uint64_t adapter_a_bytes(const AdapterPair& pair) noexcept {
  return align_up(pair.a_values() * adapter_value_bytes(pair.type), kAdapterAlign);
}

std::uint64_t adapter_b_bytes(const AdapterPair& pair) noexcept {
  return align_up(pair.b_values() * adapter_value_bytes(pair.type), kAdapterAlign);
}

std::uint64_t adapter_pair_bytes(const AdapterPair& pair) noexcept {
  return adapter_a_bytes(pair) + adapter_b_bytes(pair);
}

Status validate(const AdapterPair& pair) {
  const std::string where = adapter_pair_label(pair);
  if (!is_tensor_kind(static_cast<std::uint32_t>(pair.kind)) || !is_adaptable(pair.kind)) {
    return invalid_argument("%s: adapters of this kind are not supported", where.c_str());
  }
  const bool head = pair.kind == TensorKind::kHead;
  if (pair.layer >= (head ? 1 : kMaxAdapterLayers)) {
    return invalid_argument("%s: layer %u, expected at most %u", where.c_str(), pair.layer,
                            head ? 0 : kMaxAdapterLayers - 1);
  }
  if (pair.expert > (is_expert(pair.kind) ? UINT16_MAX : 0)) {
    return invalid_argument("%s: expert %u, expected at most %u", where.c_str(), pair.expert,
                            is_expert(pair.kind) ? UINT16_MAX : 0);
  }
  QSF_RETURN_IF_ERROR(check_pair_field(where, "rank", pair.rank, kMaxAdapterRank));
  QSF_RETURN_IF_ERROR(check_pair_field(where, "columns", pair.in, kMaxAdapterWidth));
  QSF_RETURN_IF_ERROR(check_pair_field(where, "rows", pair.out, kMaxAdapterWidth));
  if (!std::isfinite(pair.scale)) {
    return invalid_argument("%s: scale %g, expected a finite number", where.c_str(),
                            static_cast<double>(pair.scale));
  }
  if (pair.type != AdapterType::kF32 && pair.type != AdapterType::kF16) {
    return invalid_argument("%s: type %u, expected 0 (f32) or 1 (f16)", where.c_str(),
                            static_cast<unsigned>(pair.type));
  }
  return ok_status();
}

Status validate(const AdapterSpec& spec) {
  if (spec.name.empty() || spec.name.size() > kMaxAdapterNameBytes ||
      find_non_text(spec.name) != spec.name.size()) {
    return invalid_argument("name: %zu bytes, expected 1 to %zu of UTF-8 without zeros",
                            spec.name.size(), kMaxAdapterNameBytes);
  }
  if (spec.architecture.empty() || spec.architecture.size() > kMaxArchitectureBytes ||
      !is_legible(spec.architecture)) {
    return invalid_argument(
        "architecture: %zu bytes, expected 1 to %zu of a-z, 0-9, '_', '.' and '-'",
        spec.architecture.size(), kMaxArchitectureBytes);
  }
  if (spec.pairs.empty() || spec.pairs.size() > kMaxAdapterPairs) {
    return invalid_argument("%zu matrices, expected 1 to %u", spec.pairs.size(), kMaxAdapterPairs);
  }
  for (std::size_t i = 0; i < spec.pairs.size(); ++i) {
    QSF_RETURN_IF_ERROR(validate(spec.pairs[i]));
    if (i == 0 || comes_before(spec.pairs[i - 1], spec.pairs[i])) continue;
    return invalid_argument("%s: repeated, or behind %s, expected ascending layers and kinds",
                            adapter_pair_label(spec.pairs[i]).c_str(),
                            adapter_pair_label(spec.pairs[i - 1]).c_str());
  }
  return ok_status();
}

Status check_adapter_fits(const AdapterSpec& adapter, const QsfReader& base) {
  const char* name = adapter.name.c_str();
  if (adapter.architecture != base.spec().architecture) {
    return invalid_argument("adapter \"%s\": made for a %s, but the model is a %s", name,
                            adapter.architecture.c_str(), base.spec().architecture.c_str());
  }
  if (is_rotated(base.spec())) {
    return invalid_argument(
        "adapter \"%s\": the model's weights are rotated (qsf convert --rotate), and the adapter "
        "is "
        "for unrotated ones; convert the model without --rotate, or with --merge-lora",
        name);
  }
  const std::uint64_t fingerprint = model_fingerprint(base);
  if (adapter.base_fingerprint != 0 && adapter.base_fingerprint != fingerprint) {
    return invalid_argument("adapter \"%s\": made for the model with fingerprint %016" PRIx64
                            ", but this one has %016" PRIx64
                            "; convert the adapter again for this model, or with --any-base",
                            name, adapter.base_fingerprint, fingerprint);
  }
  for (const AdapterPair& pair : adapter.pairs) {
    auto matrix = find_matrix(pair, base);
    if (!matrix) {
      return std::move(matrix).error().with_context("adapter \"" + adapter.name + "\"");
    }
    if (matrix->rows == pair.out && matrix->cols == pair.in) continue;
    return invalid_argument(
        "adapter \"%s\": %s: for a matrix [%u, %u], but the model's is [%u, %u]", name,
        adapter_pair_label(pair).c_str(), pair.out, pair.in, matrix->rows, matrix->cols);
  }
  return ok_status();
}

void encode_adapter_values(std::span<const float> values, AdapterType type, MutableByteSpan bytes) {
  QSF_CHECK(bytes.size() == values.size() * adapter_value_bytes(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (type == AdapterType::kF16) {
      store_le(bytes, 2 * i, to_f16(values[i]));
    } else {
      store_le(bytes, 4 * i, values[i]);
    }
  }
}

void decode_adapter_values(ByteSpan bytes, AdapterType type, std::span<float> values) {
  QSF_CHECK(bytes.size() == values.size() * adapter_value_bytes(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = type == AdapterType::kF16 ? to_f32(load_le<F16>(bytes, 2 * i))
                                          : load_le<float>(bytes, 4 * i);
  }
}

bool fits_f16(std::span<const float> values) noexcept {
  return std::all_of(values.begin(), values.end(), [](float value) {
    return bit_cast<std::uint32_t>(to_f32(to_f16(value))) == bit_cast<std::uint32_t>(value);
  });
}

}  // namespace qsf
