// SPDX-License-Identifier: MIT

#include "convert/encode/column_importance.h"

#include <cmath>

namespace qsf {

Status ColumnImportance::set(TensorKind kind, std::uint32_t layer, std::vector<float> weights) {
  for (std::size_t c = 0; c < weights.size(); ++c) {
    if (std::isfinite(weights[c]) && weights[c] >= 0.0F) continue;
    return invalid_argument(
        "importance of %s, layer %u: %g for column %zu, expected a finite number that is not "
        "negative",
        std::string(tensor_kind_name(kind)).c_str(), layer, static_cast<double>(weights[c]), c);
  }
  weights_[{kind, layer}] = std::move(weights);
  return ok_status();
}

std::span<const float> ColumnImportance::find(TensorKind kind, std::uint32_t layer,
                                              std::size_t n_cols) const {
  const auto found = weights_.find({kind, layer});
  if (found == weights_.end() || found->second.size() != n_cols) return {};
  return found->second;
}

}  // namespace qsf
