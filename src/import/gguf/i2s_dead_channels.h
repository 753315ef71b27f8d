// SPDX-License-Identifier: MIT
//
// The order of Microsoft's I2_S told by dead channels, where a model has any.
//
// A channel of a feed-forward whose norm gain has decayed to nothing is dead: it adds nothing, gets
// no gradient, and its column of the down projection has decayed to zeros as well. In the right one
// of the three orders those columns are zeros throughout, in the two wrong ones most are mixtures
// of others. (Rows of gate and up tell less: a row of zeros has the same bytes in two of the
// orders.)

#ifndef QSF_IMPORT_GGUF_I2S_DEAD_CHANNELS_H_
#define QSF_IMPORT_GGUF_I2S_DEAD_CHANNELS_H_

#include <cstdint>
#include <optional>
#include <span>

#include "base/result.h"
#include "import/gguf/i2s_decoder.h"

namespace qsf {

// Gains smaller than this are dead: others of the same norm are around one.
inline constexpr float kDeadGain = 1e-20F;
inline constexpr std::uint32_t kMinDeadChannels = 16;

// Returns the order in which the columns of dead channels are zeros: at least 99.9 % of their
// codes, and less than 90 % in the other two. Nothing where fewer than kMinDeadChannels are dead,
// more than half are, or no order stands out.
// Shapes   gains [down.cols]
// Fails    whatever `read` fails with; damage is left to be found by those who read the tensor
// Threads  any
Result<std::optional<I2sFlavor>> i2s_order_by_dead_channels(const I2sTensor& down,
                                                            std::span<const float> gains,
                                                            const I2sDecoder::ReadBytes& read);

}  // namespace qsf

#endif  // QSF_IMPORT_GGUF_I2S_DEAD_CHANNELS_H_
