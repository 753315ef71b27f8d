// SPDX-License-Identifier: MIT
//
// The inverse frequencies of rotary position embedding, scaled as the model was trained.

#ifndef QSF_MODEL_ROPE_FREQUENCIES_H_
#define QSF_MODEL_ROPE_FREQUENCIES_H_

#include <cstdint>
#include <vector>

#include "format/model_spec.h"

namespace qsf {

// Returns theta^(-2 i / dims) for i in [0, dims / 2), rounded to f32 and scaled:
//   linear   divided by the factor: positions are interpolated
//   llama3   frequencies whose wavelength exceeds original_context / low_freq_factor are divided by
//            the factor, those below original_context / high_freq_factor are kept, and the ones
//            between are blended linearly in original_context / wavelength
//   longrope frequency i is divided by short_factors[i] when `context`, the positions that a
//            sequence may have, is at most original_context, and by long_factors[i] otherwise
// Empty without rotary positions. Based on: Chen et al., "Extending context window of large
// language models via positional interpolation", 2023; the Llama 3.1 model card; Ding et al.,
// "LongRoPE", 2024.
std::vector<float> rope_inverse_frequencies(const ModelSpec& spec, std::uint32_t context);

}  // namespace qsf

#endif  // QSF_MODEL_ROPE_FREQUENCIES_H_
