// SPDX-License-Identifier: MIT
//
// A whole tensor as f32: for inspection, tests and comparison with other readers, not for
// inference.

#ifndef QSF_FORMAT_TENSOR_VALUES_H_
#define QSF_FORMAT_TENSOR_VALUES_H_

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "format/qsf_reader.h"

namespace qsf {

// Returns the weights of tensor `tensor` of `directory`, row-major [rows, cols].
// Requires  tensor < directory.tensors.size()
// Fails     as QsfReader::read_tile; kOutOfBudget when it has more than 2^28 weights
Result<std::vector<float>> read_tensor_values(const QsfReader& reader,
                                              const SectionDirectory& directory,
                                              std::uint32_t tensor);

}  // namespace qsf

#endif  // QSF_FORMAT_TENSOR_VALUES_H_
