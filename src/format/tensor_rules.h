// SPDX-License-Identifier: MIT
//
// Which tensors a section may hold and which shapes follow from the spec: the rules that writer and
// reader both apply.

#ifndef QSF_FORMAT_TENSOR_RULES_H_
#define QSF_FORMAT_TENSOR_RULES_H_

#include <cstdint>
#include <span>

#include "base/status.h"
#include "format/model_spec.h"
#include "format/qsf_layout.h"

namespace qsf {

struct TensorShape {
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
};

// Returns the shape of a kind of tensor of a layer by the spec; for a norm of queries or keys, of
// one head. `layer` is 0 for kinds of other sections.
// Requires  layer < n_layers
TensorShape tensor_shape(const ModelSpec& spec, std::uint32_t layer, TensorKind kind) noexcept;

// Returns whether tensors of this kind are matrices, also where they have one row.
bool is_matrix(TensorKind kind) noexcept;

// Returns whether each expert has a tensor of this kind.
bool is_expert(TensorKind kind) noexcept;

// Returns whether each residual stream but the first has a tensor of this kind.
bool is_of_stream(TensorKind kind) noexcept;

// Checks kinds, shapes, types, layouts, experts and uniqueness of a section's tensors.
// Requires  validate(spec) is OK; layer < n_layers, 0 for other sections
// Fails     kInvalidArgument, naming the tensor; the reader turns that into kCorrupt
Status check_tensors(const ModelSpec& spec, SectionKind section, std::uint32_t layer,
                     std::span<const TensorInfo> tensors);

// Returns the weight type that all tensors of more than one row share, kMixedType when they differ
// or there are none: byte 16 of an index entry, byte 61 of a section entry.
std::uint8_t common_type(std::span<const TensorInfo> tensors) noexcept;

}  // namespace qsf

#endif  // QSF_FORMAT_TENSOR_RULES_H_
