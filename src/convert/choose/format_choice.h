// SPDX-License-Identifier: MIT
//
// The format of each tensor of a conversion, chosen before anything is written: by the options, by
// the blocks that the source can keep, by native ternary weights, and by the measurements of mixed.

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
  bool natively_ternary = false;  // only weights -m, 0 and m, exact in its type
};

struct FormatChoice {
  std::vector<std::vector<TensorChoice>> sections;  // as sections_of(), by tensor
  bool natively_ternary = false;                    // all matrices of layers are
  std::vector<std::string> warnings;
  std::vector<std::string> widened;  // one line per matrix that mixed widened

  // Returns the type that all matrices share, if they do.
  std::optional<QuantType> common_matrix_type(const ModelSource& source) const;
};

// Requires  options that transcode() accepts
// Fails     as read_rows(), kCancelled, kInvalidArgument on weights beyond a type of mixed
Result<FormatChoice> choose_formats(const ModelSource& source, const TranscodeOptions& options);

// After read_kept_rows() rejected a row: re-encodes the matrices that have such rows
// instead of keeping them. Returns whether there were any. Fails  as read_kept_rows()
// otherwise, kCancelled
Result<bool> give_up_keeping(const ModelSource& source, const TranscodeOptions& options,
                             FormatChoice& choice);

// Returns whether all weights of a matrix are -m, 0 and m. Fails  as read_rows()
Result<bool> is_natively_ternary(const ModelSource& source, const SourcePlace& tensor);

}  // namespace qsf

#endif  // QSF_CONVERT_CHOOSE_FORMAT_CHOICE_H_
