// SPDX-License-Identifier: MIT
//
// Tensor tables of the Hugging Face families: kind, name and storage of every tensor.
//
// A table lists tensors in the order of a .qsf file. Shapes follow from the kind and the ModelSpec
// (format/tensor_rules.h), stored shapes from these and from Storage.

#ifndef QSF_IMPORT_HF_HF_TENSORS_H_
#define QSF_IMPORT_HF_HF_TENSORS_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "format/qsf_layout.h"

namespace qsf {

// How a tensor is stored. An output is a row of a matrix or an element of a vector.
enum class Storage : std::uint8_t {
  kPlain,               // [outputs, inputs] or [outputs]
  kTransposed,          // [inputs, outputs]
  kLessOne,             // plain, every element less one
  kBehindTwoRows,       // plain, behind two unused rows
  kFusedQkv,            // all outputs of q, all of k, all of v
  kFusedQkvTransposed,  // the same, [inputs, outputs]
  kFusedQkvByHead,  // q, k and v of the first head, of the second ...; as many KV heads as heads
  kFusedGateUp,     // all outputs of the gate, all of up
};

// Which models of the family have the tensor.
enum class Presence : std::uint8_t {
  kAlways,
  kQkvBias,  // as HfConfig says; so are the next two
  kAttnOutBias,
  kFfnBias,
  kSequential,  // not with ModelSpec::parallel_block
};

struct TensorPlace {
  TensorKind kind;
  std::string_view name;  // without the prefixes of the base model and of the layer
  Storage storage = Storage::kPlain;
  Presence presence = Presence::kAlways;
};

struct TensorTable {
  std::string_view architecture;           // ModelSpec::architecture
  std::string_view base_prefix;            // before every name but the head's; optional in files
  std::string_view layer_prefix;           // before "N." and the name
  std::span<const TensorPlace> embedding;  // the token embedding first
  std::span<const TensorPlace> layer;
  std::span<const TensorPlace> final;  // without the head, which may be tied
  bool head_bias = false;
};

// Returns the table of an architecture.
// Requires  parse_hf_config sets this `architecture`
// Threads   any
const TensorTable& tensor_table(std::string_view architecture);

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_TENSORS_H_
