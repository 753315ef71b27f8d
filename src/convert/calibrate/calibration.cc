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
#include "base/ranges.h"

namespace qsf {

std::optional<ProductInput> product_input_of(const CalibratedModel& model, std::uint32_t layer,
                                             TensorKind kind) noexcept {
  switch (kind) {
    case TensorKind::kAttnQ:
      return input_cols(model, {ProductInput::kLatentQuery, layer}) != 0
                 ? ProductInput::kLatentQuery
                 : ProductInput::kQkv;
    case TensorKind::kAttnK:
    case TensorKind::kAttnV:
    case TensorKind::kAttnGate:
    case TensorKind::kMixerIn:
    case TensorKind::kMixerGate:
    case TensorKind::kDeltaRate:
    case TensorKind::kDeltaStep:
    case TensorKind::kLatentQuery: return ProductInput::kQkv;
    case TensorKind::kAttnO: return ProductInput::kAttentionOut;
    case TensorKind::kMixerOut: return ProductInput::kMixerOut;
    case TensorKind::kLatentKeys: return ProductInput::kLatentKeys;
    case TensorKind::kLatentValues: return ProductInput::kLatentValues;
    case TensorKind::kLayerInput: return ProductInput::kLayerInput;
    case TensorKind::kLayerInputGate: return ProductInput::kLayerInputGate;
    case TensorKind::kLayerInputOut: return ProductInput::kLayerInputOut;
    case TensorKind::kFfnGate:
    case TensorKind::kFfnUp:
    case TensorKind::kSharedGate:
    case TensorKind::kSharedUp:
    case TensorKind::kExpertGate:
    case TensorKind::kExpertUp: return ProductInput::kGateUp;
    case TensorKind::kFfnDown:
    case TensorKind::kSharedDown:
    case TensorKind::kExpertDown: return ProductInput::kDown;
    case TensorKind::kHead: return ProductInput::kHead;
    case TensorKind::kTokenEmbedding:
      return model.tied_head ? std::optional(ProductInput::kHead) : std::nullopt;
    default: return std::nullopt;
  }
}

std::optional<InputPlace> input_place_of(const ModelSpec& spec, const CalibratedModel& model,
                                         std::uint32_t layer, TensorKind kind,
                                         std::uint32_t expert) noexcept {
  if (kind == TensorKind::kRouter) {
    if (spec.experts_beside_ffn) return std::nullopt;
    return InputPlace{ProductInput::kGateUp, layer};
  }
  const std::optional<ProductInput> input = product_input_of(model, layer, kind);
  if (!input) return std::nullopt;
  if (*input == ProductInput::kHead) return InputPlace{ProductInput::kHead};
  return InputPlace{*input, layer, expert};
}

namespace {

constexpr TensorKind kMatrices[] = {
    TensorKind::kAttnQ,        TensorKind::kAttnK,       TensorKind::kAttnV,
    TensorKind::kAttnO,        TensorKind::kFfnGate,     TensorKind::kFfnUp,
    TensorKind::kFfnDown,      TensorKind::kSharedGate,  TensorKind::kSharedUp,
    TensorKind::kSharedDown,   TensorKind::kAttnGate,    TensorKind::kMixerIn,
    TensorKind::kMixerGate,    TensorKind::kDeltaRate,   TensorKind::kDeltaStep,
    TensorKind::kMixerOut,     TensorKind::kLatentQuery, TensorKind::kLatentKeys,
    TensorKind::kLatentValues, TensorKind::kLayerInput,  TensorKind::kLayerInputGate,
    TensorKind::kLayerInputOut};
constexpr TensorKind kExpertMatrices[] = {TensorKind::kExpertGate, TensorKind::kExpertUp,
                                          TensorKind::kExpertDown};

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

Status set_weights(ColumnImportance& to, const MatrixPlace& place,
                   std::span<const float> mean_squares) {
  std::vector<float> weights = weights_of(mean_squares);
  return weights.empty() ? ok_status() : to.set(place, std::move(weights));
}

std::span<const float> means_of(const ExpertCalibration& expert, ProductInput input) noexcept {
  return input == ProductInput::kDown ? expert.down_mean_squares : expert.gate_up_mean_squares;
}

// Adds `n_rows` times the means to `sums`.
void add_rows(std::span<double> sums, std::span<const float> means, double n_rows) {
  for (std::size_t c = 0; c < sums.size(); ++c) sums[c] += n_rows * static_cast<double>(means[c]);
}

// Sets the importance of the experts of a layer with a matrix of that kind.
Status set_expert_weights(ColumnImportance& to, TensorKind kind, std::uint32_t layer,
                          std::span<const ExpertCalibration> experts) {
  if (experts.empty()) return ok_status();
  const ProductInput input =
      kind == TensorKind::kExpertDown ? ProductInput::kDown : ProductInput::kGateUp;
  std::vector<double> of_all(means_of(experts.front(), input).size());
  double n_all = 0.0;
  for (const ExpertCalibration& expert : experts) {
    add_rows(of_all, means_of(expert, input), static_cast<double>(expert.n_rows));
    n_all += static_cast<double>(expert.n_rows);
  }
  if (n_all == 0.0) return ok_status();
  std::vector<double> sums;
  std::vector<float> means(of_all.size());
  for (std::size_t e = 0; e < experts.size(); ++e) {
    const auto n_own = static_cast<double>(experts[e].n_rows);
    sums.assign(of_all.size(), 0.0);
    add_rows(sums, means_of(experts[e], input), n_own);
    for (std::size_t c = 0; c < sums.size(); ++c) {
      const double prior = static_cast<double>(kPriorRows) * of_all[c] / n_all;
      means[c] = static_cast<float>((sums[c] + prior) / (n_own + static_cast<double>(kPriorRows)));
    }
    QSF_RETURN_IF_ERROR(set_weights(to, {kind, layer, static_cast<std::uint16_t>(e)}, means));
  }
  return ok_status();
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

// The columns of the places of all rows in a layer, by ProductInput.
std::array<std::uint32_t, kInputsPerLayer> place_cols_of(const ModelSpec& spec,
                                                         std::uint32_t layer) {
  std::array<std::uint32_t, kInputsPerLayer> cols{};
  const auto set = [&cols](ProductInput input, bool present, std::uint32_t n_cols) {
    cols[static_cast<std::size_t>(input)] = present ? n_cols : 0;
  };
  const bool attends = spec.attends(layer);
  const bool latent = spec.has_latent();
  const bool own_ffn = !spec.has_experts(layer) || spec.experts_beside_ffn;
  set(ProductInput::kQkv, spec.mixer_of(layer) != LayerMixer::kNone, spec.hidden);
  set(ProductInput::kAttentionOut, attends, spec.n_heads * spec.attention_of(layer).value_dim);
  set(ProductInput::kGateUp, spec.has_ffn(layer), spec.hidden);
  set(ProductInput::kDown, spec.has_ffn(layer), own_ffn ? spec.ffn_of(layer) : spec.shared_ffn);
  set(ProductInput::kMixerOut, spec.keeps_state(layer), spec.mixer_out());
  set(ProductInput::kLatentQuery, latent, spec.latent_query_dim);
  set(ProductInput::kLatentKeys, latent, spec.n_heads * spec.latent_key_dim);
  set(ProductInput::kLatentValues, latent, spec.n_heads * spec.latent_dim);
  const bool has_input = spec.layer_input_dim != 0;
  set(ProductInput::kLayerInput, has_input, spec.hidden);
  set(ProductInput::kLayerInputGate, has_input, spec.hidden);
  set(ProductInput::kLayerInputOut, has_input, spec.layer_input_dim);
  return cols;
}

// Sets the columns of places where the other sizes do not tell them.
void set_place_cols(const ModelSpec& spec, CalibratedModel& model) {
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    const auto cols = place_cols_of(spec, layer);
    model.place_cols.insert(model.place_cols.end(), cols.begin(), cols.end());
  }
  if (has_default_cols(model)) model.place_cols.clear();
}

}  // namespace

CalibratedModel shape_of(const ModelSpec& spec) {
  const bool mixture = spec.n_experts != 0;
  std::vector<std::uint32_t> expert_layers(mixture ? spec.n_layers : 0);
  for (std::uint32_t layer = 0; layer < expert_layers.size(); ++layer) {
    expert_layers[layer] = spec.has_experts(layer) ? 1 : 0;
  }
  CalibratedModel model = {.architecture = spec.architecture,
                           .n_layers = spec.n_layers,
                           .hidden = spec.hidden,
                           .q_dim = spec.q_dim(),
                           .ffn = spec.ffn,
                           .n_vocab = spec.n_vocab,
                           .tied_head = spec.tied_head,
                           .weights_crc = 0,
                           .n_experts = spec.n_experts,
                           .expert_ffn = mixture ? spec.expert_ffn : 0,
                           .shared_ffn = mixture ? spec.shared_ffn : 0,
                           .expert_layers = std::move(expert_layers),
                           .place_cols = {}};
  set_place_cols(spec, model);
  return model;
}

Status check_calibrated(const ModelSpec& spec) {
  if (spec.embeds_only) {
    return unsupported(
        "calibration of a model that embeds texts alone is not supported; convert it without "
        "calibration");
  }
  if (spec.has_streams()) {
    return unsupported(
        "calibration of a model with several residual streams is not supported; convert it without "
        "calibration");
  }
  return ok_status();
}

Result<CalibratedModel> identify_model(const ModelSource& source) {
  const ModelSpec& spec = source.spec();
  QSF_RETURN_IF_ERROR(check_calibrated(spec));
  CalibratedModel model = shape_of(spec);
  std::uint32_t& crc = model.weights_crc;
  QSF_RETURN_IF_ERROR(add_first_rows(source, SectionKind::kEmbedding, 0, crc));
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    QSF_RETURN_IF_ERROR(add_first_rows(source, SectionKind::kLayer, layer, crc));
  }
  QSF_RETURN_IF_ERROR(add_first_rows(source, SectionKind::kFinal, 0, crc));
  return model;
}

std::uint32_t input_cols(const CalibratedModel& model, const InputPlace& place) noexcept {
  const bool down = place.input == ProductInput::kDown;
  if (place.expert != InputPlace::kNoExpert) return down ? model.expert_ffn : model.hidden;
  const auto index = static_cast<std::size_t>(place.input);
  if (!model.place_cols.empty() && place.input != ProductInput::kHead) {
    return model.place_cols[place.layer * kInputsPerLayer + index];
  }
  switch (place.input) {
    case ProductInput::kQkv:
    case ProductInput::kGateUp:
    case ProductInput::kHead: return model.hidden;
    case ProductInput::kAttentionOut: return model.q_dim;
    case ProductInput::kDown: return model.has_experts(place.layer) ? model.shared_ffn : model.ffn;
    default: return 0;
  }
}

bool has_default_cols(const CalibratedModel& model) {
  CalibratedModel other = model;
  other.place_cols.clear();
  for (std::uint32_t layer = 0; layer < model.n_layers; ++layer) {
    for (std::size_t i = 0; i < kInputsPerLayer; ++i) {
      const InputPlace place = {static_cast<ProductInput>(i), layer};
      if (input_cols(model, place) != input_cols(other, place)) return false;
    }
  }
  return true;
}

bool is_loss(double nats) noexcept {
  return std::fabs(nats) <= static_cast<double>(std::numeric_limits<float>::max());
}

namespace {

// "0, 2", for messages.
std::string layers_with_experts(const CalibratedModel& model) {
  std::string list;
  for (std::uint32_t layer = 0; layer < model.n_layers; ++layer) {
    if (!model.has_experts(layer)) continue;
    list += (list.empty() ? "" : ", ") + std::to_string(layer);
  }
  return list;
}

// The first layer whose places have other columns.
std::uint32_t first_other_layer(const CalibratedModel& a, const CalibratedModel& b) {
  for (std::uint32_t layer = 0; layer < a.n_layers; ++layer) {
    for (std::size_t i = 0; i < kInputsPerLayer; ++i) {
      const InputPlace place = {static_cast<ProductInput>(i), layer};
      if (input_cols(a, place) != input_cols(b, place)) return layer;
    }
  }
  return 0;
}

}  // namespace

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
      {"experts", std::to_string(known.n_experts), std::to_string(model.n_experts)},
      {"FFN size of experts", std::to_string(known.expert_ffn), std::to_string(model.expert_ffn)},
      {"FFN size of the shared expert", std::to_string(known.shared_ffn),
       std::to_string(model.shared_ffn)},
      {"layers with experts", layers_with_experts(known), layers_with_experts(model)},
      {"vocabulary", std::to_string(known.n_vocab), std::to_string(model.n_vocab)},
      {"tied head", std::to_string(known.tied_head), std::to_string(model.tied_head)},
  };
  const auto* const field =
      ranges::find_if(fields, [](const auto& f) { return f.got != f.expected; });
  if (field == std::end(fields)) {
    return invalid_argument(
        "made with another model: its products in layer %u have other columns; calibrate this "
        "model again",
        first_other_layer(known, model));
  }
  return invalid_argument("made with another model: %s %s, expected %s; calibrate this model again",
                          field->name, field->got.c_str(), field->expected.c_str());
}

Result<ColumnImportance> column_importance(const Calibration& calibration) {
  ColumnImportance importance;
  for (std::uint32_t layer = 0; layer < calibration.layers.size(); ++layer) {
    for (const TensorKind kind : kMatrices) {
      const auto input =
          static_cast<std::size_t>(*product_input_of(calibration.model, layer, kind));
      QSF_RETURN_IF_ERROR(
          set_weights(importance, {kind, layer}, calibration.layers[layer].mean_squares[input]));
    }
    for (const TensorKind kind : kExpertMatrices) {
      QSF_RETURN_IF_ERROR(
          set_expert_weights(importance, kind, layer, calibration.layers[layer].experts));
    }
  }
  const TensorKind head =
      calibration.model.tied_head ? TensorKind::kTokenEmbedding : TensorKind::kHead;
  QSF_RETURN_IF_ERROR(set_weights(importance, {head, 0}, calibration.head_mean_squares));
  return importance;
}

ExpertCoverage expert_coverage(const Calibration& calibration) noexcept {
  ExpertCoverage coverage;
  for (const LayerCalibration& layer : calibration.layers) {
    coverage.n_experts += layer.experts.size();
    coverage.n_unused +=
        static_cast<std::uint64_t>(ranges::count(layer.experts, 0U, &ExpertCalibration::n_rows));
  }
  return coverage;
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
