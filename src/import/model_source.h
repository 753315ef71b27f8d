// SPDX-License-Identifier: MIT
//
// ModelSource: where a conversion gets its weights, whatever the input's format.

#ifndef QSF_IMPORT_MODEL_SOURCE_H_
#define QSF_IMPORT_MODEL_SOURCE_H_

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "format/model_spec.h"
#include "format/qsf_layout.h"

namespace qsf {

// One tensor in the order and orientation of a .qsf file: `rows` outputs of `cols` inputs each.
struct SourceTensor {
  TensorKind kind = TensorKind::kAttnQ;
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  std::string name;  // in the input, for messages
};

class ModelSource {
 public:
  virtual ~ModelSource() = default;

  // Everything but natively_ternary, default_type, block and quantiser, which a conversion decides.
  virtual const ModelSpec& spec() const noexcept = 0;

  // The tensors of a section in order of use. `layer` is 0 except for layers.
  virtual std::span<const SourceTensor> tensors(SectionKind section,
                                                std::uint32_t layer) const noexcept = 0;

  // Reads whole rows of tensors(section, layer)[tensor] as f32.
  // Shapes      out [n_rows, cols], rows from first_row on
  // Guarantees  every weight is finite
  // Fails       kCorrupt on a weight that is not finite, kIo; naming the tensor
  // Threads     any number at once
  virtual Status read_rows(SectionKind section, std::uint32_t layer, std::size_t tensor,
                           std::uint32_t first_row, std::span<float> out) const = 0;
};

}  // namespace qsf

#endif  // QSF_IMPORT_MODEL_SOURCE_H_
