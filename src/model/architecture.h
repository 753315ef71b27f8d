// SPDX-License-Identifier: MIT
//
// The tensors of an architecture: which ones a section must hold, and with which shapes.
//
// An architecture is data: the fields of the spec define its graph (model/decoder.cc), and its row
// in the table of architecture.cc lists its extra tensors. A new architecture is a row of that
// table and, where its graph differs, a branch in the decoder that depends on a field of the spec
// or on an optional tensor.

#ifndef QSF_MODEL_ARCHITECTURE_H_
#define QSF_MODEL_ARCHITECTURE_H_

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "format/model_spec.h"
#include "format/qsf_layout.h"

namespace qsf {

// One tensor that a section may or must hold.
struct TensorRule {
  TensorKind kind;
  std::uint32_t rows;
  std::uint32_t cols;
  bool required;
  std::uint16_t expert = 0;
};

// Checks that this version can run a model of this spec.
// Fails  kUnsupported, naming the feature or the architecture and what is supported
Status check_supported(const ModelSpec& spec);

// Whether the FFN of a parallel block has a norm of its own, of the input that attention norms too.
bool has_parallel_ffn_norm(const ModelSpec& spec) noexcept;

// Returns whether every head has a score without a value, which takes weight from all positions.
bool has_attention_sinks(const ModelSpec& spec) noexcept;

// Whether a product of what attention takes gates what it gives.
bool has_attention_gate(const ModelSpec& spec) noexcept;

// Whether the norms of queries and keys take all heads together.
bool has_row_norms(const ModelSpec& spec) noexcept;

// Return the tensors of each section. Requires  check_supported(spec) is OK.
std::vector<TensorRule> embedding_rules(const ModelSpec& spec);
// Requires  layer < spec.n_layers
std::vector<TensorRule> layer_rules(const ModelSpec& spec, std::uint32_t layer);
std::vector<TensorRule> final_rules(const ModelSpec& spec);

}  // namespace qsf

#endif  // QSF_MODEL_ARCHITECTURE_H_
