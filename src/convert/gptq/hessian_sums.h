// SPDX-License-Identifier: MIT
//
// HessianSums: sums of x x^T over the rows that the matrices of some layers multiply, for error
// feedback (convert/gptq/gptq.h).
//
// Sums are f32, of 256 rows at a time and in the order of positions, so they have the same bits at
// any number of threads and in any budget.

#ifndef QSF_CONVERT_GPTQ_HESSIAN_SUMS_H_
#define QSF_CONVERT_GPTQ_HESSIAN_SUMS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "convert/calibrate/calibration.h"
#include "convert/calibrate/pass_observer.h"
#include "format/model_spec.h"

namespace qsf {

class HessianSums final : public RowConsumer {
 public:
  // Of layers [first_layer, first_layer + n_layers).
  HessianSums(const ModelSpec& spec, std::uint32_t first_layer, std::uint32_t n_layers,
              unsigned n_threads);
  // What a layer takes.
  static std::uint64_t layer_bytes(const ModelSpec& spec) noexcept;

  void take_input(ProductInput input, std::uint32_t layer, std::span<const float> row) override;
  void take_layer(std::uint32_t /*layer*/, std::span<const float> /*in*/,
                  std::span<const float> /*out*/) override {}

  bool has(std::uint32_t layer) const noexcept {
    return layer >= first_layer_ && layer - first_layer_ < layers_.size();
  }
  // Gives the sum of a place away, [cols * cols], row-major, of which the lower triangle counts;
  // empty when it was given away before. Requires  has(layer); not the head
  std::vector<float> take(ProductInput input, std::uint32_t layer);

 private:
  struct Sum {
    std::vector<float> products;  // [cols * cols]
    std::vector<float> rows;      // that are not in it yet [kBatchRows * cols]
    std::size_t n_rows = 0;
    std::size_t cols = 0;
  };
  void add_rows(Sum& sum) const;

  std::uint32_t first_layer_;
  unsigned n_threads_;
  std::vector<std::array<Sum, kInputsPerLayer>> layers_;
};

}  // namespace qsf

#endif  // QSF_CONVERT_GPTQ_HESSIAN_SUMS_H_
