// SPDX-License-Identifier: MIT
//
// Position encodings of a model as numbers: the inverse frequencies of RoPE, scaled as the model
// was trained, and the slopes of ALiBi.

#ifndef QSF_MODEL_POSITION_TABLES_H_
#define QSF_MODEL_POSITION_TABLES_H_

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
//   yarn     pairs that turn more than beta_fast times over original_context keep their frequency,
//            those below beta_slow turns are divided by the factor, and those between are blended
//            linearly in the pair's number
// Pairs behind the first rope.n_turning, where that is not 0, have the frequency 0.
// Empty without rotary positions. Based on: Chen et al., "Extending context window of large
// language models via positional interpolation", 2023; the Llama 3.1 model card; Ding et al.,
// "LongRoPE", 2024; Peng et al., "YaRN", 2023.
std::vector<float> rope_inverse_frequencies(const ModelSpec& spec, std::uint32_t context);

// Returns the columns of the heads of the first layer with such a rope, head_dim without one.
std::uint32_t rotated_head_dim(const ModelSpec& spec, LayerRope rope) noexcept;

// Returns what multiplies cos and sin of these frequencies in such a context.
float rope_attention_factor(const ModelSpec& spec, std::uint32_t context) noexcept;

// The same of the layers with LayerRope::kLocal, unscaled. Empty where there are none.
std::vector<float> local_rope_inverse_frequencies(const ModelSpec& spec);

// Returns a slope for each query head; to a score is added slope * (key's position - query's
// position). With n the largest power of two not above the heads, head i < n has
// 2^(-8 (i + 1) / n); the heads after them take every other slope of twice as many heads, head
// n + j has 2^(-4 (2 j + 1) / n); all rounded to bf16 where biases are. Empty unless positions are
// ALiBi's.
// Based on: Press, Smith and Lewis, "Train short, test long", 2022, and its published code.
std::vector<float> alibi_slopes(const ModelSpec& spec);

}  // namespace qsf

#endif  // QSF_MODEL_POSITION_TABLES_H_
