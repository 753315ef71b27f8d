// SPDX-License-Identifier: MIT
//
// What an error in each column of each matrix costs: the mean square of what the column is
// multiplied with, gathered from a text. A conversion hands it to the encoder.

#ifndef QSF_CONVERT_ENCODE_COLUMN_IMPORTANCE_H_
#define QSF_CONVERT_ENCODE_COLUMN_IMPORTANCE_H_

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "format/qsf_layout.h"

namespace qsf {

class ColumnImportance {
 public:
  // Sets what the columns of one matrix cost; `layer` is 0 outside layers.
  // Shapes  weights [n_cols]
  // Fails   kInvalidArgument on a weight that is negative or not finite
  Status set(TensorKind kind, std::uint32_t layer, std::vector<float> weights);

  // Returns what was set for that matrix, empty where nothing was or where it was set for another
  // number of columns.
  // Threads  any number at once, while nobody sets
  std::span<const float> find(TensorKind kind, std::uint32_t layer, std::size_t n_cols) const;

  bool empty() const noexcept { return weights_.empty(); }

 private:
  std::map<std::pair<TensorKind, std::uint32_t>, std::vector<float>> weights_;
};

}  // namespace qsf

#endif  // QSF_CONVERT_ENCODE_COLUMN_IMPORTANCE_H_
