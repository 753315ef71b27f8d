// SPDX-License-Identifier: MIT
//
// GPTQ for a whole model: the Hessians of its layers, from the activations that a calibration set
// produces, as the conversion needs them.
//
// Hessians are those of the model before conversion, so they do not depend on how other layers are
// encoded. They are summed for groups of layers, as many as fit into memory, and released one after
// the other as the conversion reaches their matrices. The calibration set runs through each group
// once, from the hidden rows that the previous group has produced. That of the head comes with
// those of all layers, or from a pass of its own.

#ifndef QSF_CONVERT_GPTQ_LAYERWISE_GPTQ_H_
#define QSF_CONVERT_GPTQ_LAYERWISE_GPTQ_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "convert/calibrate/calibration.h"
#include "convert/calibrate/collect_statistics.h"
#include "convert/calibrate/pass_observer.h"
#include "convert/encode/encode_rows.h"
#include "convert/gptq/gptq.h"
#include "format/model_spec.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

// Sums of x x^T over the input rows of the matrices of some layers (the Hessians of GPTQ), but for
// the experts that rows choose: a Hessian for each would take more memory than the model.
//
// Sums are f32, in the order of positions, so they have the same bits with any number of threads,
// in any budget and on any CPU.
class HessianSums final : public RowConsumer {
 public:
  // Sums the layers [first_layer, first_layer + n_layers).
  HessianSums(const ModelSpec& spec, std::uint32_t first_layer, std::uint32_t n_layers,
              unsigned n_threads);
  // Sums the head too, or alone where no layers are summed.
  void add_head(const ModelSpec& spec);
  // Memory of one layer, the largest, of the head, and of the rows of layers that are gathered.
  static std::uint64_t layer_bytes(const ModelSpec& spec) noexcept;
  static std::uint64_t head_bytes(const ModelSpec& spec) noexcept;
  static std::uint64_t gathered_bytes(const ModelSpec& spec) noexcept;

  void take_input(const InputPlace& place, std::span<const float> row) override;
  void take_layer(std::uint32_t /*layer*/, std::span<const float> /*in*/,
                  std::span<const float> /*out*/) override {}

  bool has(std::uint32_t layer) const noexcept {
    return layer >= first_layer_ && layer - first_layer_ < layers_.size();
  }
  bool has_head() const noexcept { return head_.cols != 0; }
  // Adds the rows that are gathered, and releases their memory. No rows may follow.
  void finish();
  // Moves the sum of a place out: [cols * cols], row-major, only the lower triangle is valid; empty
  // if it was taken before. Requires  has(layer), or has_head() for the head
  std::vector<float> take(ProductInput input, std::uint32_t layer);

 private:
  struct Sum {
    std::vector<float> products;  // [cols * cols]
    std::size_t cols = 0;
  };
  // Rows of one place that are not yet added.
  struct Gathered {
    std::vector<float> panels;
    std::size_t n_rows = 0;
    std::uint32_t layer = 0;
  };
  Sum& sum_of(std::size_t input, std::uint32_t layer) noexcept {
    return input == kHeadInput ? head_ : layers_[layer - first_layer_][input];
  }
  void add_rows(std::size_t input);

  static constexpr auto kHeadInput = static_cast<std::size_t>(ProductInput::kHead);
  static_assert(kHeadInput == kInputsPerLayer);

  std::uint32_t first_layer_;
  unsigned n_threads_;
  std::vector<std::array<Sum, kInputsPerLayer>> layers_;
  Sum head_;
  std::array<Gathered, kInputsPerLayer + 1> gathered_;
};

class LayerwiseGptq final : public ErrorCompensation {
 public:
  // Number of layers whose Hessians are summed together: as many as fit into half of a budget, at
  // least one; all layers without a budget.
  static std::uint32_t layers_at_once(const ModelSpec& spec, std::uint64_t budget_bytes) noexcept;

  // Opens a collector with room for the Hessians of so many layers, or of fewer.
  using Open =
      std::function<Result<std::unique_ptr<StatisticsCollector>>(std::uint32_t& layers_at_once)>;

  LayerwiseGptq(std::unique_ptr<StatisticsCollector> collector, std::vector<TokenId> tokens,
                std::uint32_t layers_at_once, unsigned n_threads)
      : spec_(collector->spec()),
        collector_(std::move(collector)),
        tokens_(std::move(tokens)),
        layers_at_once_(layers_at_once),
        n_threads_(n_threads) {}
  // With the sums of all layers. `open` is called when those of a layer are asked for again.
  LayerwiseGptq(const ModelSpec& spec, HessianSums sums, Open open, std::vector<TokenId> tokens,
                unsigned n_threads)
      : spec_(spec),
        open_(std::move(open)),
        tokens_(std::move(tokens)),
        layers_at_once_(spec.n_layers),
        n_threads_(n_threads),
        sums_(std::move(sums)) {}

  // Returns null for embeddings that are not the head, for experts that rows choose and for
  // matrices of which each head has columns of its own. Runs the model if a Hessian is not summed
  // yet. Fails  as StatisticsCollector::run_layers() and GptqFactor::create()
  Result<const GptqFactor*> factor_of(TensorKind kind, std::uint32_t layer,
                                      std::uint32_t n_cols) override;

 private:
  Status open_collector();
  Result<const GptqFactor*> head_factor(std::uint32_t n_cols);

  const ModelSpec spec_;
  Open open_;
  std::unique_ptr<StatisticsCollector> collector_;  // null until open_ is called
  std::vector<TokenId> tokens_;
  std::uint32_t layers_at_once_;
  unsigned n_threads_;
  std::optional<HessianSums> sums_;
  // Of one layer, by ProductInput: matrices of one input need not stand side by side in the file,
  // and a factor takes the memory of its Hessian.
  std::array<std::optional<GptqFactor>, kInputsPerLayer> factors_;
  std::uint32_t layer_ = 0;
  std::optional<GptqFactor> head_factor_;  // until a layer is asked for
};

}  // namespace qsf

#endif  // QSF_CONVERT_GPTQ_LAYERWISE_GPTQ_H_
