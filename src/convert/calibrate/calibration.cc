// SPDX-License-Identifier: MIT

#include "convert/calibrate/calibration.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/crc32.h"

namespace qsf {

std::optional<ProductInput> product_input_of(TensorKind kind, bool tied_head) noexcept {
  switch (kind) {
    case TensorKind::kAttnQ:
    case TensorKind::kAttnK:
    case TensorKind::kAttnV: return ProductInput::kQkv;
    case TensorKind::kAttnO: return ProductInput::kAttentionOut;
    case TensorKind::kFfnGate:
    case TensorKind::kFfnUp: return ProductInput::kGateUp;
    case TensorKind::kFfnDown: return ProductInput::kDown;
    case TensorKind::kHead: return ProductInput::kHead;
    case TensorKind::kTokenEmbedding:
      return tied_head ? std::optional(ProductInput::kHead) : std::nullopt;
    default: return std::nullopt;
  }
}

std::optional<ProductInput> product_input_of(OperatorKind kind) noexcept {
  switch (kind) {
    case OperatorKind::kQkv: return ProductInput::kQkv;
    case OperatorKind::kAttentionOut: return ProductInput::kAttentionOut;
    case OperatorKind::kGateUp: return ProductInput::kGateUp;
    case OperatorKind::kDown: return ProductInput::kDown;
    case OperatorKind::kHead: return ProductInput::kHead;
    default: return std::nullopt;
  }
}

std::uint32_t input_cols(const ModelSpec& spec, ProductInput input) noexcept {
  switch (input) {
    case ProductInput::kAttentionOut: return spec.q_dim();
    case ProductInput::kDown: return spec.ffn;
    case ProductInput::kQkv:
    case ProductInput::kGateUp:
    case ProductInput::kHead: break;
  }
  return spec.hidden;
}

namespace {

constexpr TensorKind kMatrices[] = {TensorKind::kAttnQ,  TensorKind::kAttnK,   TensorKind::kAttnV,
                                    TensorKind::kAttnO,  TensorKind::kFfnGate, TensorKind::kFfnUp,
                                    TensorKind::kFfnDown};

// Returns nothing where every column is zero.
std::vector<float> weights_of(std::span<const float> mean_squares) {
  double sum = 0.0;
  for (const float value : mean_squares) sum += static_cast<double>(value);
  if (sum == 0.0) return {};
  const auto least =
      static_cast<float>(kLeastShare * sum / static_cast<double>(mean_squares.size()));
  std::vector<float> weights(mean_squares.begin(), mean_squares.end());
  for (float& weight : weights) weight = std::max(weight, least);
  return weights;
}

Status set_weights(ColumnImportance& to, TensorKind kind, std::uint32_t layer,
                   std::span<const float> mean_squares) {
  std::vector<float> weights = weights_of(mean_squares);
  return weights.empty() ? ok_status() : to.set(kind, layer, std::move(weights));
}

Status add_first_rows(const ModelSource& source, SectionKind section, std::uint32_t layer,
                      std::uint32_t& crc) {
  const std::span<const SourceTensor> tensors = source.tensors(section, layer);
  std::vector<float> row;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    row.resize(tensors[i].cols);
    QSF_RETURN_IF_ERROR(source.read_rows(section, layer, i, 0, row));
    crc = crc32(std::as_bytes(std::span(row)), crc);
  }
  return ok_status();
}

}  // namespace

Result<CalibratedModel> identify_model(const ModelSource& source) {
  const ModelSpec& spec = source.spec();
  if (spec.has_state()) {
    return unsupported(
        "calibration of a model with layers that have a state is not supported; convert it without "
        "calibration");
  }
  CalibratedModel model = {.architecture = spec.architecture,
                           .n_layers = spec.n_layers,
                           .hidden = spec.hidden,
                           .q_dim = spec.q_dim(),
                           .ffn = spec.ffn,
                           .n_vocab = spec.n_vocab,
                           .tied_head = spec.tied_head};
  std::uint32_t& crc = model.weights_crc;
  QSF_RETURN_IF_ERROR(add_first_rows(source, SectionKind::kEmbedding, 0, crc));
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    QSF_RETURN_IF_ERROR(add_first_rows(source, SectionKind::kLayer, layer, crc));
  }
  QSF_RETURN_IF_ERROR(add_first_rows(source, SectionKind::kFinal, 0, crc));
  return model;
}

std::uint32_t input_cols(const CalibratedModel& model, ProductInput input) noexcept {
  if (input == ProductInput::kAttentionOut) return model.q_dim;
  return input == ProductInput::kDown ? model.ffn : model.hidden;
}

bool is_loss(double nats) noexcept {
  return std::fabs(nats) <= static_cast<double>(std::numeric_limits<float>::max());
}

Status check_calibrated(const Calibration& calibration, const CalibratedModel& model) {
  const CalibratedModel& known = calibration.model;
  if (known == model) return ok_status();
  CalibratedModel other_weights = model;
  other_weights.weights_crc = known.weights_crc;
  if (known == other_weights) {
    return invalid_argument(
        "made with other weights (checksum %08x, expected %08x); calibrate this model again",
        known.weights_crc, model.weights_crc);
  }
  const struct {
    const char* name;
    std::string got;
    std::string expected;
  } fields[] = {
      {"architecture", known.architecture, model.architecture},
      {"layers", std::to_string(known.n_layers), std::to_string(model.n_layers)},
      {"hidden size", std::to_string(known.hidden), std::to_string(model.hidden)},
      {"columns of queries", std::to_string(known.q_dim), std::to_string(model.q_dim)},
      {"FFN size", std::to_string(known.ffn), std::to_string(model.ffn)},
      {"vocabulary", std::to_string(known.n_vocab), std::to_string(model.n_vocab)},
      {"tied head", std::to_string(known.tied_head), std::to_string(model.tied_head)},
  };
  const auto* const field =
      std::ranges::find_if(fields, [](const auto& f) { return f.got != f.expected; });
  QSF_CHECK(field != std::end(fields));
  return invalid_argument("made with another model: %s %s, expected %s; calibrate this model again",
                          field->name, field->got.c_str(), field->expected.c_str());
}

Result<ColumnImportance> column_importance(const Calibration& calibration) {
  ColumnImportance importance;
  for (std::uint32_t layer = 0; layer < calibration.layers.size(); ++layer) {
    for (const TensorKind kind : kMatrices) {
      const auto input = static_cast<std::size_t>(*product_input_of(kind, false));
      QSF_RETURN_IF_ERROR(
          set_weights(importance, kind, layer, calibration.layers[layer].mean_squares[input]));
    }
  }
  const TensorKind head =
      calibration.model.tied_head ? TensorKind::kTokenEmbedding : TensorKind::kHead;
  QSF_RETURN_IF_ERROR(set_weights(importance, head, 0, calibration.head_mean_squares));
  return importance;
}

std::vector<float> layer_importance(const Calibration& calibration) {
  std::vector<float> importance;
  importance.reserve(calibration.layers.size());
  for (const LayerCalibration& layer : calibration.layers) {
    importance.push_back(std::max(static_cast<float>(layer.skip_loss), kLeastImportance));
  }
  return importance;
}

}  // namespace qsf
