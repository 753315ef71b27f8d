// SPDX-License-Identifier: MIT
//
// PassObserver: follows an engine's passes and hands out the rows that matrices multiply, each
// once, with the place it was read at; and the rows of the residual stream in front of and behind
// every layer. It can leave a layer out: the stream behind it is then what it was in front.
//
// Whatever is gathered over a model's inputs is a RowConsumer: sums of squares, or sums of products
// of columns for error compensation.

#ifndef QSF_CONVERT_CALIBRATE_PASS_OBSERVER_H_
#define QSF_CONVERT_CALIBRATE_PASS_OBSERVER_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "convert/calibrate/calibration.h"
#include "engine/engine.h"
#include "ops/operator_observer.h"

namespace qsf {

// Called on the thread of the pass. Rows of one place and layer come in the order of positions, the
// same whatever the threads, budgets and passes.
class RowConsumer {
 public:
  virtual ~RowConsumer() = default;

  // `layer` is 0 for the head. Shapes  row [input_cols]
  virtual void take_input(ProductInput input, std::uint32_t layer, std::span<const float> row) = 0;
  // The residual stream in front of a layer and behind it. Shapes  in, out [hidden]
  virtual void take_layer(std::uint32_t layer, std::span<const float> in,
                          std::span<const float> out) = 0;
};

class PassObserver final : public OperatorObserver {
 public:
  // Requires  rows are those of prompts
  explicit PassObserver(const std::atomic<bool>* cancel) noexcept : cancel_(cancel) {}

  // Who takes the rows of the next passes; null: nobody.
  void set_consumer(RowConsumer* consumer) noexcept { consumer_ = consumer; }
  // The layer that the next passes leave out, if any.
  void set_skipped(std::optional<std::uint32_t> layer) noexcept { skipped_ = layer; }
  // The layer that the next passes begin with.
  void set_first_layer(std::uint32_t layer) noexcept { first_layer_ = layer; }
  // The engine to cancel when `cancel` becomes true; outlives the last pass. Reserves room for the
  // rows of a pass.
  void attach(Engine& engine);
  // Returns what attach() takes at most for passes of `max_rows` rows.
  static std::uint64_t memory_bytes(const ModelSpec& spec, std::uint32_t max_rows) noexcept {
    return std::uint64_t{max_rows} * spec.hidden * sizeof(float);
  }

  void pass_began(std::span<const Row> rows) override;
  void operator_ended(Backend& backend, const OperatorEvent& event) override;

 private:
  void begin_layer(Backend& backend, const OperatorEvent& event);
  void end_layer(Backend& backend);
  void take_product(Backend& backend, const OperatorEvent& event);

  const std::atomic<bool>* cancel_;
  Engine* engine_ = nullptr;
  RowConsumer* consumer_ = nullptr;
  std::optional<std::uint32_t> skipped_;
  std::uint32_t first_layer_ = 0;
  std::uint32_t n_rows_ = 0;  // of the pass
  std::uint32_t layer_ = 0;
  bool in_layer_ = false;
  std::optional<ProductInput> input_;  // of the last product
  Buffer hidden_;                      // the residual stream
  std::vector<float> before_;          // [n_rows, hidden], in front of the layer
};

}  // namespace qsf

#endif  // QSF_CONVERT_CALIBRATE_PASS_OBSERVER_H_
