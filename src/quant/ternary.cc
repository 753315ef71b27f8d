// SPDX-License-Identifier: MIT

#include "quant/ternary.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/f16.h"
#include "quant/bit_pack.h"
#include "quant/block_search.h"

namespace qsf {

void pack_ternary(const std::uint8_t* codes, std::uint32_t block, std::uint32_t n_true,
                  std::byte* packed) noexcept {
  std::uint8_t sign[kMaxBlock] = {};
  std::uint8_t zero[kMaxBlock] = {};
  for (std::uint32_t i = 0; i < n_true; ++i) {
    sign[i] = codes[i] == 0 ? 1 : 0;
    zero[i] = codes[i] == 1 ? 1 : 0;
  }
  pack_plane(sign, block, packed);
  pack_plane(zero, block, packed + block / 8);
}

void unpack_ternary(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept {
  std::uint8_t sign[kMaxBlock];
  unpack_plane(packed, block, sign);
  unpack_plane(packed + block / 8, block, codes);
  constexpr std::uint64_t kOnes = 0x0101010101010101U;
  for (std::uint32_t i = 0; i < block; i += 8) {  // 1 under a zero bit, else 2 - 2 * sign
    std::uint64_t signs;
    std::uint64_t zeros;
    std::memcpy(&signs, sign + i, sizeof(signs));
    std::memcpy(&zeros, codes + i, sizeof(zeros));
    const std::uint64_t eight = zeros | (((signs ^ kOnes) & (zeros ^ kOnes)) << 1U);
    std::memcpy(codes + i, &eight, sizeof(eight));
  }
}

void TernaryScan::add(std::span<const float> weights) noexcept {
  for (std::size_t i = 0; i < weights.size() && single_; ++i) {
    const float magnitude = std::fabs(weights[i]);
    if (magnitude == 0.0F || magnitude == magnitude_) continue;
    single_ = magnitude_ == 0.0F && std::isfinite(magnitude);
    magnitude_ = magnitude;
  }
}

namespace {

// What every weight is measured by: the one magnitude of native weights, else the mean.
struct TernaryFit {
  bool is_native;
  float magnitude;
};

TernaryFit fit_ternary(std::span<const float> weights) noexcept {
  TernaryScan scan;
  scan.add(weights);
  if (scan.is_natively_ternary()) return {true, scan.magnitude()};
  double sum = 0.0;
  for (const float w : weights) sum += std::fabs(w);
  return {false, static_cast<float>(sum / static_cast<double>(weights.size()))};
}

void choose_ternary_codes(std::span<const float> weights, float threshold,
                          std::uint8_t* codes) noexcept {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const bool is_zero = weights[i] == 0.0F || std::fabs(weights[i]) < threshold;
    codes[i] = is_zero ? 1 : weights[i] > 0.0F ? 2 : 0;
  }
}

}  // namespace

void encode_ternary_block(BlockFormat format, std::span<const float> weights,
                          const QuantOptions& options, MutableByteSpan out) {
  const TernaryFit fit = fit_ternary(weights);
  F16 scale = to_f16(fit.magnitude);
  float threshold = fit.is_native ? fit.magnitude : 0.3F * to_f32(scale);
  if (options.rounding == Rounding::kSearch && !fit.is_native) {
    scale = search_scale(weights, options, {.top = 2.0F, .has_min = false, .zero = 1.0F}, scale);
    threshold = 0.5F * to_f32(scale);
  }
  std::uint8_t codes[kMaxBlock] = {};
  choose_ternary_codes(weights, threshold, codes);
  store_le(out, 0, scale);
  pack_ternary(codes, format.block, static_cast<std::uint32_t>(weights.size()), out.data() + 2);
}

void encode_ternary_row(std::span<const float> weights, MutableByteSpan out) {
  constexpr BlockFormat kFormat = block_format(QuantType::kTernaryRow, 0);
  const TernaryFit fit = fit_ternary(weights);
  const float threshold = fit.is_native ? fit.magnitude : 0.3F * fit.magnitude;
  store_le(out, 0, fit.magnitude);
  for (std::size_t first = 0; first < weights.size(); first += kFormat.block) {
    std::uint8_t codes[kFormat.block] = {};
    choose_ternary_codes(
        weights.subspan(first, std::min<std::size_t>(kFormat.block, weights.size() - first)),
        threshold, codes);
    pack_2bit(codes, kFormat.block,
              out.data() + locate_in_row(kFormat, first / kFormat.block).codes);
  }
}

}  // namespace qsf
