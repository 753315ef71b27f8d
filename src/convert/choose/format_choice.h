// SPDX-License-Identifier: MIT
//
// Which format a conversion gives to each tensor, before it writes anything: what the options ask
// for, what the source can keep, what is natively ternary, what mixed has to widen.

#ifndef QSF_CONVERT_CHOOSE_FORMAT_CHOICE_H_
#define QSF_CONVERT_CHOOSE_FORMAT_CHOICE_H_

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "convert/encode/transcode.h"
#include "import/model_source.h"

namespace qsf {

struct TensorChoice {
  BlockFormat format{QuantType::kF32, 4};
  bool kept = false;              // the source's blocks are written
  bool natively_ternary = false;  // weights of -m, 0 and m alone, which its type holds exactly
};

struct FormatChoice {
  std::vector<std::vector<TensorChoice>> sections;  // as sections_of(), by tensor
  bool natively_ternary = false;                    // all matrices of layers are
  std::vector<std::string> warnings;
  std::vector<std::string> widened;  // one line for each matrix that mixed gave more bits

  // Returns the type that all matrices share, if they do.
  std::optional<QuantType> common_matrix_type(const ModelSource& source) const;
};

// Requires  options that transcode() accepts
// Fails     as read_rows(), kCancelled, kInvalidArgument on weights beyond a type of mixed
Result<FormatChoice> choose_formats(const ModelSource& source, const TranscodeOptions& options);

// After read_saved_hidden_rows() refused a row: gives up keeping the matrices that have such rows.
// Returns whether there were any. Fails  as read_saved_hidden_rows() does otherwise, kCancelled
Result<bool> give_up_keeping(const ModelSource& source, const TranscodeOptions& options,
                             FormatChoice& choice);

// Returns whether all weights of a matrix are -m, 0 and m. Fails  as read_rows()
Result<bool> is_natively_ternary(const ModelSource& source, const SourcePlace& tensor);

}  // namespace qsf

#endif  // QSF_CONVERT_CHOOSE_FORMAT_CHOICE_H_
