// SPDX-License-Identifier: MIT
//
// TensorFormats: the format of each matrix by itself, where a conversion is told.

#ifndef QSF_IMPORT_TENSOR_FORMATS_H_
#define QSF_IMPORT_TENSOR_FORMATS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/status.h"
#include "format/qsf_layout.h"
#include "quant/types.h"

namespace qsf {

class TensorFormats {
 public:
  // Sets the format of one matrix; `layer` is 0 outside layers.
  // Fails  kInvalidArgument on a format that no file may hold
  Status set(TensorKind kind, std::uint32_t layer, BlockFormat format);

  // Returns what was set for that matrix, if anything.
  // Threads  any number at once, while nobody sets
  std::optional<BlockFormat> find(TensorKind kind, std::uint32_t layer) const;

 private:
  std::map<std::pair<TensorKind, std::uint32_t>, BlockFormat> formats_;
};

}  // namespace qsf

#endif  // QSF_IMPORT_TENSOR_FORMATS_H_
