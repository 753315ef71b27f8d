// SPDX-License-Identifier: MIT
//
// ColumnSums: sums of the squares of what every matrix multiplies, column by column, and of the
// cosines between what goes into a layer and what comes out.
//
// Sums are f64 and added in the order of positions, so they have the same bits at any number of
// threads and in any budget. 65,536 rows round each sum by 7e-12 of itself at most.

#ifndef QSF_CONVERT_CALIBRATE_COLUMN_SUMS_H_
#define QSF_CONVERT_CALIBRATE_COLUMN_SUMS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "convert/calibrate/pass_observer.h"
#include "format/model_spec.h"

namespace qsf {

class ColumnSums final : public RowConsumer {
 public:
  explicit ColumnSums(const ModelSpec& spec);
  static std::uint64_t memory_bytes(const ModelSpec& spec) noexcept;

  void take_input(ProductInput input, std::uint32_t layer, std::span<const float> row) override;
  void take_layer(std::uint32_t layer, std::span<const float> in,
                  std::span<const float> out) override;

  // All that it holds, in one order, to be written to a file and read back.
  std::vector<MutableByteSpan> parts();

  // Rows that were taken at a place; means are over them.
  std::uint64_t n_rows(ProductInput input, std::uint32_t layer) const noexcept {
    return sums_[index(input, layer)].n_rows;
  }
  // Returns the mean of the squares of each column; zeros where no row was taken.
  std::vector<float> mean_squares(ProductInput input, std::uint32_t layer) const;
  // Returns the mean cosine of a layer's input and output; 1 where no row was taken.
  double mean_cosine(std::uint32_t layer) const noexcept;

 private:
  struct Sums {
    std::vector<double> squares;  // [input_cols]
    std::uint64_t n_rows = 0;
  };
  struct Cosines {
    double sum = 0.0;
    std::uint64_t n_rows = 0;
  };
  static std::size_t index(ProductInput input, std::uint32_t layer) noexcept {
    // The head's come first.
    if (input == ProductInput::kHead) return 0;
    return 1 + layer * kInputsPerLayer + static_cast<std::size_t>(input);
  }

  std::vector<Sums> sums_;
  std::vector<Cosines> cosines_;  // by layer
};

}  // namespace qsf

#endif  // QSF_CONVERT_CALIBRATE_COLUMN_SUMS_H_
