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

#include "base/check.h"
#include "format/model_spec.h"
#include "format/qsf_layout.h"
#include "format/tensor_rules.h"
#include "import/hf/hf_config.h"

namespace qsf {

// How a tensor is stored. An output is a row of a matrix or an element of a vector.
enum class Storage : std::uint8_t {
  kPlain,               // [outputs, inputs] or [outputs]
  kTransposed,          // [inputs, outputs]
  kLessOne,             // plain, every element less one
  kBehindTwoRows,       // plain, behind two unused rows
  kFusedQkv,            // all outputs of q, all of k, all of v
  kFusedQkvTransposed,  // the same, [inputs, outputs]
  kFusedQkvByGroup,     // the first KV head: q of its query heads, k, v; the same of the second ...
  kFusedGateUp,         // all outputs of the gate, all of up
  kStacked,             // [experts, outputs, inputs]
  kStackedGateUp,       // the same; of each expert all outputs of the gate, all of up
  kStackedPairs,        // stacked; of each expert outputs 2i are the gate's, 2i + 1 those of up
  kStackedTransposed,   // [experts, inputs, outputs]
  kStackedTransposedPairs,   // the same, with outputs in pairs
  kStackedTransposedGateUp,  // the same; all outputs of the gate, then all of up
  kMxfp4,              // stacked; blocks and scales of hf_mxfp4.h, the name is that of the blocks
  kMxfp4Pairs,         // the same, with outputs in pairs
  kConvTaps,           // [channels, 1, taps]
  kFlat,               // a vector, as a matrix of the rows behind each other
  kDecayLog,           // plain, logarithms of what is negated
  kGatedQueries,       // of each head its queries, then as many outputs of the gate
  kByKeyGroup,         // Qwen3-Next: of each group of heads all that matrices of its inputs have
  kPairedRope,         // plain, but columns 2i and 2i + 1 of a head rotate together (rope_pairs.h)
  kPairedRopeOfHeads,  // the same of gains, [heads, columns of a head]
  kLatentQuery,        // of latent attention, in the order of latent_rows.h
  kLatentRow,          // the same, of the row that all heads share
  kLatentKeys,         // plain, of each head its keys, then its values; keys are transposed
  kLatentValues,       // the same tensor's values
};

// Which models of the family have the tensor.
enum class Presence : std::uint8_t {
  kAlways,
  kQkvBias,  // as HfConfig says; so are the next three
  kAttnOutBias,
  kFfnBias,
  kHeadNorms,  // as HfConfig says
  kMixerBias,
  kConvBias,
  kScanNorm,
  kSequential,        // not with ModelSpec::parallel_block
  kBehindFirst,       // layers but the first
  kOwnKeys,           // not where layers share an earlier one's keys and values
  kOwnValues,         // the same, and not where keys are values
  kLayerInput,        // as ModelSpec::layer_input_dim says
  kFirstStreams,      // of each residual stream but the first, in the first layer
  kLastStreams,       // the same in the last layer
  kDense,             // layers without experts
  kExperts,           // layers with experts
  kRouterCorrection,  // the same, as HfConfig says
  kShared,            // the same, where an expert takes every row
  kQueryRow,          // queries of latent attention that are products of a row of their own
  kNoQueryRow,        // the others
};

// Whether layers with keys and values of their own alone have the tensor.
inline bool is_of_own_keys(Presence presence) noexcept {
  return presence == Presence::kOwnKeys || presence == Presence::kOwnValues;
}

struct TensorPlace {
  TensorKind kind;
  std::string_view name;  // without the prefixes of the base model and of the layer
  Storage storage = Storage::kPlain;
  Presence presence = Presence::kAlways;
  bool all_heads = false;  // a norm of queries or keys that runs over all heads, not over each
  // Outside of the layers: a vector that all have, or the rows of each layer behind one another.
  bool of_all_layers = false;
  // Stored with the layer before; outside of the layers with the last one.
  bool of_layer_before = false;
};

struct TensorTable {
  std::string_view architecture;           // ModelSpec::architecture
  std::string_view base_prefix;            // before every name but the head's; optional in files
  std::string_view layer_prefix;           // before "N." and the name
  std::span<const TensorPlace> embedding;  // the token embedding first
  std::span<const TensorPlace> layer;
  std::span<const TensorPlace> final;  // without the head, which may be tied
  bool head_bias = false;
  std::string_view head = "lm_head.weight";  // also found under that name where it has another
  // Behind those of the layer, of each expert: gate, up and down. A '*' in a name is the expert's
  // number. Where the first of a model is missing, the other names are tried.
  std::span<const TensorPlace> experts = {};
  std::span<const TensorPlace> stacked_experts = {};
  // Of layers with a state, in place of `layer`, and of layers that are an FFN alone.
  std::span<const TensorPlace> state_layer = {};
  std::span<const TensorPlace> ffn_layer = {};
  std::string_view other_prefix = {};  // in place of base_prefix in some files
  std::string_view added_row = {};     // of whose rows the first is added to each of the embedding

  // Requires  layer < spec.n_layers
  std::span<const TensorPlace> places_of(const ModelSpec& spec,
                                         std::uint32_t index) const noexcept {
    if (spec.keeps_state(index)) return state_layer;
    return spec.attends(index) ? layer : ffn_layer;
  }
};

// Returns the table of an architecture, or null.
// Threads  any
const TensorTable* find_tensor_table(std::string_view architecture) noexcept;

// Returns the table of an architecture.
// Requires  parse_hf_config sets this `architecture`
// Threads   any
inline const TensorTable& tensor_table(std::string_view architecture) {
  const TensorTable* table = find_tensor_table(architecture);
  QSF_CHECK(table != nullptr);
  return *table;
}

// Returns the table of the files of a configuration.
const TensorTable& hf_tensor_table(const HfConfig& config);

// Returns the shape of a tensor of a table by the spec. Requires  as tensor_shape
TensorShape place_shape(const ModelSpec& spec, std::uint32_t layer,
                        const TensorPlace& place) noexcept;

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_TENSORS_H_
