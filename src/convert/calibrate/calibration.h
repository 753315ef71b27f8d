// SPDX-License-Identifier: MIT
//
// Calibration: what a model's float weights did on a text, for conversions to spend bits by.

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
#include "ops/operator_times.h"

namespace qsf {

// ProductInput: the rows that matrices multiply, by place in a layer. Matrices of one place read
// the same rows, so what is known of these is known once for all of them.

enum class ProductInput : std::uint8_t {
  kQkv = 0,           // of attn_q, attn_k and attn_v
  kAttentionOut = 1,  // of attn_o
  kGateUp = 2,        // of ffn_gate and ffn_up
  kDown = 3,          // of ffn_down
  kHead = 4,          // of the head, or of a token embedding that is the head
};
inline constexpr std::size_t kInputsPerLayer = 4;  // all but the head's

// Returns what a matrix of that kind multiplies; nothing for what is looked up and for one-row
// tensors.
std::optional<ProductInput> product_input_of(TensorKind kind, bool tied_head) noexcept;
// The same of a product; nothing for other operators.
std::optional<ProductInput> product_input_of(OperatorKind kind) noexcept;

// Returns the columns of these rows.
std::uint32_t input_cols(const ModelSpec& spec, ProductInput input) noexcept;

// What tells the weights of two models apart, whatever files they come in.
struct CalibratedModel {
  std::string architecture;
  std::uint32_t n_layers = 0;
  std::uint32_t hidden = 0;
  std::uint32_t q_dim = 0;
  std::uint32_t ffn = 0;
  std::uint32_t n_vocab = 0;
  bool tied_head = false;
  std::uint32_t weights_crc = 0;  // of the first row of every tensor, as f32

  friend bool operator==(const CalibratedModel&, const CalibratedModel&) = default;
};

// Reads a row of every tensor. Fails  as ModelSource::read_rows
Result<CalibratedModel> identify_model(const ModelSource& source);

// Returns the columns of a place's rows.
std::uint32_t input_cols(const CalibratedModel& model, ProductInput input) noexcept;

struct LayerCalibration {
  // Mean squares of the columns of a place's rows, by ProductInput.
  std::array<std::vector<float>, kInputsPerLayer> mean_squares;
  double cosine = 1.0;     // mean of a row before and behind the layer
  double skip_loss = 0.0;  // nats a token that the text costs more without the layer
};

// How far the model's next-token distributions go from what they are when matrices of one kind are
// stored in a format that rounds them, those of neighbouring layers together.
struct Probe {
  TensorKind kind = TensorKind::kAttnQ;
  std::uint32_t first_layer = 0;  // 0 outside layers
  std::uint32_t n_layers = 1;     // the same: 1
  BlockFormat format{QuantType::kQ4Super, 32};
  double divergence = 0.0;  // mean Kullback-Leibler divergence of the rows, in nats
  friend bool operator==(const Probe&, const Probe&) = default;
};

struct Calibration {
  CalibratedModel model;
  std::uint32_t context = 0;      // positions of a window
  std::uint64_t n_rows = 0;       // that means are over
  std::uint64_t n_skip_rows = 0;  // that skip_loss is over, of each layer
  double loss = 0.0;              // mean of the rows, in nats
  std::vector<LayerCalibration> layers;
  std::vector<float> head_mean_squares;  // [hidden]
  std::uint64_t n_probe_rows = 0;        // that divergences are means of
  std::vector<Probe> probes;             // empty: nobody measured
};

// Whether a number can be a loss: finite, and in f32 too, which the index of a .qsf file has.
bool is_loss(double nats) noexcept;

// Checks that a calibration is of a model. Fails  kInvalidArgument, naming the first that differs
Status check_calibrated(const Calibration& calibration, const CalibratedModel& model);

// Returns the weight of every column of every matrix that multiplies rows: their mean squares, in
// each matrix at least kLeastShare of their mean, so that no column is given up for what one text
// happened not to show. A place whose rows were all zero has none.
inline constexpr double kLeastShare = 1e-4;
// Fails  kInvalidArgument on a mean that is negative or not finite
Result<ColumnImportance> column_importance(const Calibration& calibration);

// Returns what the index of a .qsf file says of every layer: skip_loss, at least
// kLeastImportance, because 0 means that nobody measured.
inline constexpr float kLeastImportance = 1e-6F;
std::vector<float> layer_importance(const Calibration& calibration);

}  // namespace qsf

#endif  // QSF_CONVERT_CALIBRATE_CALIBRATION_H_
