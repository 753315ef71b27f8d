// SPDX-License-Identifier: MIT
//
// Calibration: statistics of a model's activations on a calibration set, with the losses of skipped
// layers and the sensitivities of matrices. Conversions allocate bits by them.

#ifndef QSF_CONVERT_CALIBRATE_CALIBRATION_H_
#define QSF_CONVERT_CALIBRATE_CALIBRATION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/status.h"
#include "convert/encode/encode_rows.h"
#include "format/model_spec.h"
#include "format/qsf_layout.h"
#include "import/model_source.h"
#include "ops/backend.h"

namespace qsf {

// The input rows of matrix products, by place in a layer. Matrices of one place multiply the same
// rows and share their statistics.
enum class ProductInput : std::uint8_t {
  kQkv = 0,             // of attn_q, attn_k, attn_v and their gate; of all that a mixer begins with
  kAttentionOut = 1,    // of attn_o
  kGateUp = 2,          // of ffn_gate and ffn_up, of a router, of an expert's gate and up
  kDown = 3,            // of ffn_down, of an expert's down
  kMixerOut = 4,        // of mixer_out
  kLatentQuery = 5,     // of attn_q where queries have a row of their own
  kLatentKeys = 6,      // of latent_keys: the columns of each head behind each other
  kLatentValues = 7,    // of latent_values, likewise
  kLayerInput = 8,      // of layer_input
  kLayerInputGate = 9,  // of layer_input_gate
  kLayerInputOut = 10,  // of layer_input_out
  kHead = 11,           // of the head, or of a token embedding that is the head
};
inline constexpr std::size_t kInputsPerLayer = 11;  // all but the head's and the experts'

// Whether the matrices of an input are of parts that multiply columns of their own.
constexpr bool is_in_parts(ProductInput input) noexcept {
  return input == ProductInput::kLatentKeys || input == ProductInput::kLatentValues;
}

// One of these places. In a layer with experts the rows of kGateUp are those of the router and of
// the shared expert, and those of kDown the shared expert's, or both are those of the FFN beside
// the experts; each expert has a kGateUp and a kDown of its own, with the rows that chose it.
struct InputPlace {
  static constexpr std::uint32_t kNoExpert = MatmulArgs::kNoExpert;

  ProductInput input = ProductInput::kQkv;
  std::uint32_t layer = 0;  // 0 for the head
  std::uint32_t expert = kNoExpert;

  friend bool operator==(const InputPlace&, const InputPlace&) = default;
};

// Identifies a model by its weights, in any file format.
struct CalibratedModel {
  std::string architecture;
  std::uint32_t n_layers = 0;
  std::uint32_t hidden = 0;
  std::uint32_t q_dim = 0;
  std::uint32_t ffn = 0;
  std::uint32_t n_vocab = 0;
  bool tied_head = false;
  std::uint32_t weights_crc = 0;  // of the first row of every tensor, as f32
  std::uint32_t n_experts = 0;    // 0: dense
  std::uint32_t expert_ffn = 0;
  std::uint32_t shared_ffn = 0;              // 0: no shared expert
  std::vector<std::uint32_t> expert_layers;  // [n_layers], 1: has experts; empty if dense
  // Columns of the places of all rows, [n_layers, kInputsPerLayer]. Empty where those of every
  // layer are hidden, q_dim, hidden, and ffn or with experts shared_ffn.
  std::vector<std::uint32_t> place_cols;

  friend bool operator==(const CalibratedModel&, const CalibratedModel&) = default;

  bool has_experts(std::uint32_t layer) const noexcept {
    return n_experts != 0 && expert_layers[layer] != 0;
  }
};

// Returns the shape of a model, without `weights_crc`.
CalibratedModel shape_of(const ModelSpec& spec);

// Fails  kUnsupported for a model whose inputs cannot be collected, and says why
Status check_calibrated(const ModelSpec& spec);

// Reads a row of every tensor. Fails  as check_calibrated and ModelSource::read_rows
Result<CalibratedModel> identify_model(const ModelSource& source);

// Returns the input of a matrix of that kind in that layer; nothing for embeddings that are looked
// up, routers and one-row tensors. Requires  layer < n_layers
std::optional<ProductInput> product_input_of(const CalibratedModel& model, std::uint32_t layer,
                                             TensorKind kind) noexcept;
// Returns the place whose rows a matrix of that kind multiplies; of a router, that of the FFN
// unless it reads other rows. `expert` is kNoExpert for matrices that no expert has.
std::optional<InputPlace> input_place_of(const ModelSpec& spec, const CalibratedModel& model,
                                         std::uint32_t layer, TensorKind kind,
                                         std::uint32_t expert) noexcept;
// Returns the number of columns of these rows; 0 where the layer has no such product.
// Requires  an expert only of a layer that has experts
std::uint32_t input_cols(const CalibratedModel& model, const InputPlace& place) noexcept;
// Returns whether every layer has the columns that an empty `place_cols` stands for.
bool has_default_cols(const CalibratedModel& model);

// Calls visit(InputPlace) for every place of a layer: those of all rows in the order of
// ProductInput, then the two of each expert.
template <typename Visit>
void for_each_place(const CalibratedModel& model, std::uint32_t layer, const Visit& visit) {
  for (std::size_t i = 0; i < kInputsPerLayer; ++i) {
    visit(InputPlace{static_cast<ProductInput>(i), layer});
  }
  for (std::uint32_t e = 0; model.has_experts(layer) && e < model.n_experts; ++e) {
    visit(InputPlace{ProductInput::kGateUp, layer, e});
    visit(InputPlace{ProductInput::kDown, layer, e});
  }
}

// An expert's statistics over the rows that chose it; zeros without rows.
struct ExpertCalibration {
  std::uint64_t n_rows = 0;
  float largest = 0.0F;                     // magnitude in the input of its down projection
  std::vector<float> gate_up_mean_squares;  // [hidden]
  std::vector<float> down_mean_squares;     // [expert_ffn]
};

struct LayerCalibration {
  // Mean squares of the columns, by ProductInput.
  std::array<std::vector<float>, kInputsPerLayer> mean_squares;
  double cosine = 1.0;     // mean cosine of a row before and after the layer
  double skip_loss = 0.0;  // rise of the loss when the layer is skipped, in nats a token
  std::vector<ExpertCalibration> experts;  // [n_experts] or empty
};

// One sensitivity measurement: the divergence of the next-token distributions when the matrices of
// one kind in neighbouring layers are rounded to a format.
struct Probe {
  TensorKind kind = TensorKind::kAttnQ;
  std::uint32_t first_layer = 0;  // 0 outside layers
  std::uint32_t n_layers = 1;     // 1 outside layers
  BlockFormat format{QuantType::kQ4Super, 32};
  double divergence = 0.0;  // mean Kullback-Leibler divergence of the rows, in nats
  friend bool operator==(const Probe&, const Probe&) = default;
};

struct Calibration {
  CalibratedModel model;
  std::uint32_t context = 0;      // positions of a window
  std::uint64_t n_rows = 0;       // averaged by the means
  std::uint64_t n_skip_rows = 0;  // averaged by each skip_loss
  double loss = 0.0;              // mean of the rows of the first windows, in nats
  std::vector<LayerCalibration> layers;
  std::vector<float> head_mean_squares;  // [hidden]
  std::vector<float> expert_hits;        // format/expert_hits.h; empty if dense
  std::uint64_t n_probe_rows = 0;        // averaged by each divergence
  std::vector<Probe> probes;             // sensitivities; empty: not measured
};

// Returns whether a number is a valid loss: finite in f32 as well, the type of a .qsf index.
bool is_loss(double nats) noexcept;

// Checks that a calibration belongs to a model. Fails  kInvalidArgument, naming the first
// difference
Status check_calibrated(const Calibration& calibration, const CalibratedModel& model);

// The least importance of a column, as a share of its matrix's mean: a column that the calibration
// set did not use is not given up.
inline constexpr double kLeastShare = 1e-4;
// Rows of the mean of a layer's experts that are added to an expert's own: few rows say little.
inline constexpr std::uint64_t kPriorRows = 16;
// Returns the importance of every column of every matrix: mean squares, at least kLeastShare of
// their mean. Inputs that were all zero have none. The means of an expert are taken over its own
// rows and kPriorRows of its layer's mean, so one that no row chose has the layer's.
// Fails  kInvalidArgument on a mean that is negative or not finite
Result<ColumnImportance> column_importance(const Calibration& calibration);

// How many experts of a model no row chose.
struct ExpertCoverage {
  std::uint64_t n_experts = 0;  // of all layers
  std::uint64_t n_unused = 0;
};
ExpertCoverage expert_coverage(const Calibration& calibration) noexcept;

// The least layer importance; 0 means that it was not measured.
inline constexpr float kLeastImportance = 1e-6F;
// Returns the importance of every layer for the index of a .qsf file: skip_loss, at least
// kLeastImportance.
std::vector<float> layer_importance(const Calibration& calibration);

}  // namespace qsf

#endif  // QSF_CONVERT_CALIBRATE_CALIBRATION_H_
