// SPDX-License-Identifier: MIT
//
// The taps of convolutions over positions. Files keep those of a channel side by side, oldest
// position first; the engine all channels of a position.

#ifndef QSF_IMPORT_CONV_TAPS_H_
#define QSF_IMPORT_CONV_TAPS_H_

#include <cstddef>
#include <span>

namespace qsf {

// Shapes  stored [channels, n_taps], taps [n_taps, channels]
inline void transpose_taps(std::span<const float> stored, std::size_t n_taps,
                           std::span<float> taps) noexcept {
  const std::size_t n_channels = stored.size() / n_taps;
  for (std::size_t i = 0; i < stored.size(); ++i) {
    taps[i % n_taps * n_channels + i / n_taps] = stored[i];
  }
}

}  // namespace qsf

#endif  // QSF_IMPORT_CONV_TAPS_H_
