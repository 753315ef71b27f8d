// SPDX-License-Identifier: MIT

#include "model/alibi_slopes.h"

#include <bit>
#include <cmath>
#include <cstdint>

namespace qsf {

std::vector<float> alibi_slopes(const ModelSpec& spec) {
  std::vector<float> slopes;
  if (spec.positions != PositionEncoding::kAlibi) return slopes;
  slopes.reserve(spec.n_heads);
  const std::uint32_t n = std::bit_floor(spec.n_heads);
  for (std::uint32_t head = 0; head < spec.n_heads; ++head) {
    const double exponent = head < n ? -8.0 * (head + 1) / n : -4.0 * (2 * (head - n) + 1) / n;
    slopes.push_back(static_cast<float>(std::exp2(exponent)));
  }
  return slopes;
}

}  // namespace qsf
