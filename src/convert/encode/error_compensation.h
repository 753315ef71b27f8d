// SPDX-License-Identifier: MIT
//
// ErrorCompensation: where a conversion gets the factors of error compensation
// (convert/gptq/gptq.h) from.

#ifndef QSF_CONVERT_ENCODE_ERROR_COMPENSATION_H_
#define QSF_CONVERT_ENCODE_ERROR_COMPENSATION_H_

#include <cstdint>

#include "base/result.h"
#include "convert/gptq/gptq.h"
#include "format/qsf_layout.h"

namespace qsf {

class ErrorCompensation {
 public:
  virtual ~ErrorCompensation() = default;

  // Returns what the errors of a layer's matrix are fed back by, valid until the next call; null
  // where they stay where they arise. Called for one matrix after the other, in the order of the
  // file, more than once for each; a conversion that begins anew goes back to the first.
  // Threads  one at a time
  virtual Result<const GptqFactor*> factor_of(TensorKind kind, std::uint32_t layer,
                                              std::uint32_t n_cols) = 0;
};

}  // namespace qsf

#endif  // QSF_CONVERT_ENCODE_ERROR_COMPENSATION_H_
