// SPDX-License-Identifier: MIT

#include "quant/mxfp4.h"

#include <algorithm>
#include <cmath>

#include "quant/block_format.h"
#include "quant/code_packing.h"
#include "quant/quant_options.h"

namespace qsf {
namespace {

constexpr BlockFormat kMxfp4Format = block_format(QuantType::kMxfp4, 0);

// Chooses the codes of a block under 2^(exponent - 128); returns the sum of squared errors.
double choose_mxfp4_codes(std::span<const float> weights, int exponent,
                          std::uint8_t* codes) noexcept {
  double sum = 0.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    codes[i] = nearest_mxfp4_code(std::ldexp(weights[i], 128 - exponent));
    const double error = weights[i] - std::ldexp(kMxfp4Levels[codes[i]], exponent - 128);
    sum += error * error;
  }
  return sum;
}

void encode_mxfp4_block(std::span<const float> weights, MutableByteSpan out) noexcept {
  float largest = 0.0F;
  for (const float w : weights) largest = std::max(largest, std::fabs(w));
  std::uint8_t codes[kMxfp4Format.block] = {};
  int exponent = 0;
  if (largest > 0.0F) {
    // The largest level is 12: an exponent that takes it to at least half of `largest`, or twice
    // that.
    int power = 0;
    std::frexp(largest, &power);
    exponent = std::max(power - 4 + 128, 0);
    std::uint8_t wider[kMxfp4Format.block] = {};
    const double error = choose_mxfp4_codes(weights, exponent, codes);
    if (choose_mxfp4_codes(weights, exponent + 1, wider) < error) {
      ++exponent;
      std::copy_n(wider, kMxfp4Format.block, codes);
    }
  }
  out[0] = static_cast<std::byte>(exponent);
  pack_4bit(codes, kMxfp4Format.block, static_cast<std::uint32_t>(weights.size()), &out[1]);
}

}  // namespace

std::uint8_t nearest_mxfp4_code(float steps) noexcept {
  const float magnitude = std::fabs(steps);
  std::uint8_t code = 0;
  while (code < 7 && magnitude - static_cast<float>(kMxfp4Levels[code]) >
                         static_cast<float>(kMxfp4Levels[code + 1]) - magnitude) {
    ++code;
  }
  return code == 0 || steps > 0.0F ? code : static_cast<std::uint8_t>(code + 8);
}

void encode_mxfp4_row(std::span<const float> weights, MutableByteSpan out) noexcept {
  constexpr std::size_t kBytes = block_bytes(kMxfp4Format);
  for (std::size_t k = 0; k * kMxfp4Format.block < weights.size(); ++k) {
    encode_mxfp4_block(weights_of_block(weights, kMxfp4Format.block, k),
                       out.subspan(k * kBytes, kBytes));
  }
}

}  // namespace qsf
