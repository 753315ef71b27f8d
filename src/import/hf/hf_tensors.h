// SPDX-License-Identifier: MIT
//
// Where each family of Hugging Face models keeps its tensors: tables of (kind, name, how it is
// stored).
//
// A table is the order of use in a .qsf file. Shapes are not in it: they follow from the kind and
// the ModelSpec (format/tensor_rules.h), and what is stored from them and from Storage.

#ifndef QSF_IMPORT_HF_HF_TENSORS_H_
#define QSF_IMPORT_HF_HF_TENSORS_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "format/qsf_layout.h"

namespace qsf {

// How a stored tensor holds one of ours. An output is a row of a matrix or an element of a vector.
enum class Storage : std::uint8_t {
  kPlain,               // [outputs, inputs] or [outputs]
  kTransposed,          // [inputs, outputs]
  kLessOne,             // plain, with 1 to be added to every element
  kBehindTwoRows,       // plain, behind two rows that are not used
  kFusedQkv,            // all outputs of q, all of k, all of v
  kFusedQkvTransposed,  // the same, [inputs, outputs]
  kFusedQkvByHead,  // q, k and v of the first head, of the second ...; as many KV heads as heads
  kFusedGateUp,     // all outputs of the gate, all of up
};

// When a model of the family has the tensor.
enum class Presence : std::uint8_t {
  kAlways,
  kQkvBias,  // as the configuration says; likewise the next two
  kAttnOutBias,
  kFfnBias,
  kSequential,  // not with ModelSpec::parallel_block
};

struct TensorPlace {
  TensorKind kind;
  std::string_view name;  // behind the prefix of the base model, in layers also behind the layer's
  Storage storage = Storage::kPlain;
  Presence presence = Presence::kAlways;
};

struct TensorTable {
  std::string_view architecture;  // ModelSpec::architecture
  std::string_view base_prefix;   // before every name but the head's; files may leave it out
  std::string_view layer_prefix;  // before "N." and the name
  std::span<const TensorPlace> embedding;  // the token embedding first
  std::span<const TensorPlace> layer;
  std::span<const TensorPlace> final;  // without the head, which may be tied
  bool head_bias = false;
};

// Requires  `architecture` is one that parse_hf_config gives. Threads: any.
const TensorTable& tensor_table(std::string_view architecture);

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_TENSORS_H_
