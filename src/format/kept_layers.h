// SPDX-License-Identifier: MIT
//
// Running a model without some of its layers: which ones are left out for a quality, and the spec
// of what remains, which is that of a model without them.
//
// The layers of the least importance are left out, as plan phase 10.1 has it: the first two and the
// last two never are.

#ifndef QSF_FORMAT_KEPT_LAYERS_H_
#define QSF_FORMAT_KEPT_LAYERS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/status.h"
#include "format/model_spec.h"

namespace qsf {

inline constexpr std::uint32_t kKeptEnds = 2;  // layers at each end that are never left out

// Returns the layers that a quality keeps, ascending: the fewest that are at least this share of
// all. Of layers of equal importance the later one is left out first.
// Shapes  importance [layers], of SectionDirectory; 0: not measured
// Fails   kInvalidArgument: quality outside (0, 1], or below the least that the model has, which
//         the message names; or layers without importance, with the option that measures it
Result<std::vector<std::uint32_t>> choose_layers(std::span<const float> importance, float quality);

// Returns what binds layers to others than by the residual stream; null: nothing.
const char* bond_of_layers(const ModelSpec& spec) noexcept;

// What the layers that are kept are to be.
enum class KeptLayers : std::uint8_t {
  kModel,  // a model
  kPart,   // a part of one, of which others run the rest
};

// Makes a spec that of the model without the other layers.
// Requires  kept is ascending, below n_layers
// Fails     kUnsupported where layers depend on each other beyond the residual stream, or where
//           none is left in a model that attends, or that has experts in a mixture of experts
Status keep_layers(std::span<const std::uint32_t> kept, ModelSpec& spec,
                   KeptLayers as = KeptLayers::kModel);

}  // namespace qsf

#endif  // QSF_FORMAT_KEPT_LAYERS_H_
