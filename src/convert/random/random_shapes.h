// SPDX-License-Identifier: MIT
//
// The shapes of known models, by name: what a file of random weights takes from the model it stands
// in for. Speed, memory and file size follow from a shape alone.

#ifndef QSF_CONVERT_RANDOM_RANDOM_SHAPES_H_
#define QSF_CONVERT_RANDOM_RANDOM_SHAPES_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "format/model_spec.h"

namespace qsf {

// One model. What the family implies (norms, positions, activation, ties) is in shape_spec.
struct RandomShape {
  std::string_view name;
  std::string_view architecture;  // "llama", "gpt2" or "phi2"
  std::uint32_t n_layers;
  std::uint32_t hidden;
  std::uint32_t ffn;
  std::uint32_t n_heads;
  std::uint32_t n_kv_heads;
  std::uint32_t n_vocab;
  std::uint32_t max_positions;
  bool int8_rows = false;  // ModelSpec::int8_rows
};

// Every shape, in the order in which messages list them.
std::span<const RandomShape> random_shapes() noexcept;

// Returns their names, "1b, 3b, ...", for help texts and messages.
std::string random_shape_names();

// Returns the shape of that name. Fails  kInvalidArgument, listing the names
Result<RandomShape> find_random_shape(std::string_view name);

// Returns the spec of a model of this shape, tokens and provenance left out.
ModelSpec shape_spec(const RandomShape& shape);

}  // namespace qsf

#endif  // QSF_CONVERT_RANDOM_RANDOM_SHAPES_H_
