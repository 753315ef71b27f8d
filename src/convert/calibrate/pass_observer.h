// SPDX-License-Identifier: MIT
//
// PassObserver: observes an engine's passes and hands a RowConsumer the input rows of all matrix
// products, each once, and the hidden rows before and after every layer. It can skip a layer: the
// residual stream then passes it unchanged.
//
// Consumers sum squares of columns, or products of columns (Hessians) for error compensation.

#ifndef QSF_CONVERT_CALIBRATE_PASS_OBSERVER_H_
#define QSF_CONVERT_CALIBRATE_PASS_OBSERVER_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "convert/calibrate/calibration.h"
#include "engine/engine.h"
#include "format/qsf_reader.h"
#include "ops/operator_observer.h"

namespace qsf {

// Called on the thread of the pass. Rows of one place and layer come in the order of positions,
// independent of threads, budgets and passes.
class RowConsumer {
 public:
  virtual ~RowConsumer() = default;

  // Shapes  row [input_cols]; the columns of parts without what lies between them
  virtual void take_input(const InputPlace& place, std::span<const float> row) = 0;
  // The residual stream before and after a layer. Shapes  in, out [hidden]
  virtual void take_layer(std::uint32_t layer, std::span<const float> in,
                          std::span<const float> out) = 0;
};

class PassObserver final : public OperatorObserver {
 public:
  // Requires  all rows are prompt rows
  explicit PassObserver(const std::atomic<bool>* cancel) noexcept : cancel_(cancel) {}

  // Sets the consumer of the next passes; null: none.
  void set_consumer(RowConsumer* consumer) noexcept { consumer_ = consumer; }
  // Sets the layer that the next passes skip, if any.
  void set_skipped(std::optional<std::uint32_t> layer) noexcept { skipped_ = layer; }
  // Names the matrices of the file, without which no input is handed over.
  void set_matrices(const QsfReader& reader);
  // Sets the engine to cancel when `cancel` becomes true, and reserves memory for the rows of a
  // pass. Requires  the engine outlives the last pass
  void attach(Engine& engine);
  // Returns the bytes that attach() reserves for passes of `max_rows` rows, and those of a row of
  // parts.
  static std::uint64_t memory_bytes(const ModelSpec& spec, std::uint32_t max_rows) noexcept {
    const std::uint64_t n_joined =
        std::uint64_t{spec.n_heads} * std::max(spec.latent_key_dim, spec.latent_dim);
    return (std::uint64_t{max_rows} * spec.hidden + n_joined) * sizeof(float);
  }

  void pass_began(std::span<const Row> rows) override;
  void operator_ended(Backend& backend, const OperatorEvent& event) override;
  void layer_reached(Backend& backend, std::uint32_t layer, Buffer hidden) override;

 private:
  void end_layer(Backend& backend);
  void take_product(Backend& backend, const OperatorEvent& event);
  bool is_new(const InputPlace& place);
  std::span<const float> input_row(Backend& backend, const OperatorEvent& event, std::uint32_t row);

  const std::atomic<bool>* cancel_;
  Engine* engine_ = nullptr;
  RowConsumer* consumer_ = nullptr;
  std::optional<std::uint32_t> skipped_;
  // By section and tensor: the place of a matrix's input, if it has one.
  std::vector<std::vector<std::optional<InputPlace>>> places_;
  std::uint32_t n_rows_ = 0;             // of the pass
  std::optional<std::uint32_t> layer_;   // that the pass is in
  std::uint32_t taken_ = 0;              // bits of the places of all rows in it
  std::optional<InputPlace> of_expert_;  // the last place of an expert in it
  Buffer hidden_;                        // the residual stream
  std::vector<float> before_;            // [n_rows, hidden], in front of the layer
  std::vector<float> joined_;            // the parts of a row
};

}  // namespace qsf

#endif  // QSF_CONVERT_CALIBRATE_PASS_OBSERVER_H_
