// SPDX-License-Identifier: MIT
//
// LayerwiseGptq: error compensation for a conversion, by the inputs that a text gives the model's
// matrices. Hessians are those of the model before conversion, so they do not depend on what other
// layers become, and come in groups of layers: as many as the memory holds are summed together, and
// given up one after the other as the conversion gets to their matrices. The text runs through each
// group once, from the rows that the group in front has left.

#ifndef QSF_CONVERT_GPTQ_LAYERWISE_GPTQ_H_
#define QSF_CONVERT_GPTQ_LAYERWISE_GPTQ_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "convert/calibrate/collect_statistics.h"
#include "convert/encode/encode_rows.h"
#include "convert/gptq/gptq.h"
#include "convert/gptq/hessian_sums.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

class LayerwiseGptq final : public ErrorCompensation {
 public:
  // Layers whose Hessians are gathered together: what half of a budget has room for, at least
  // one; all of them where there is no budget.
  static std::uint32_t layers_at_once(const ModelSpec& spec, std::uint64_t budget_bytes) noexcept;

  LayerwiseGptq(std::unique_ptr<Gatherer> gatherer, std::vector<TokenId> tokens,
                std::uint32_t layers_at_once, unsigned n_threads)
      : gatherer_(std::move(gatherer)),
        tokens_(std::move(tokens)),
        layers_at_once_(layers_at_once),
        n_threads_(n_threads) {}

  // Null for what is looked up, the embedding that is the head included. Runs the model where a
  // layer's Hessians are not there yet.
  // Fails  as Gatherer::feed() and GptqFactor::create()
  Result<const GptqFactor*> factor_of(TensorKind kind, std::uint32_t layer,
                                      std::uint32_t n_cols) override;

 private:
  std::unique_ptr<Gatherer> gatherer_;
  std::vector<TokenId> tokens_;
  std::uint32_t layers_at_once_;
  unsigned n_threads_;
  std::optional<HessianSums> sums_;
  std::optional<GptqFactor> factor_;  // of the place below
  ProductInput input_ = ProductInput::kQkv;
  std::uint32_t layer_ = 0;
};

}  // namespace qsf

#endif  // QSF_CONVERT_GPTQ_LAYERWISE_GPTQ_H_
