// SPDX-License-Identifier: MIT

#include "quant/ternary.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/f16.h"
#include "quant/code_packing.h"
#include "quant/search/block_search.h"
#include "quant/search/search_loops.h"

namespace qsf {

void TernaryScan::add(std::span<const float> weights) noexcept {
  for (std::size_t i = 0; i < weights.size() && single_; ++i) {
    const float magnitude = std::fabs(weights[i]);
    if (magnitude == 0.0F || magnitude == magnitude_) continue;
    single_ = magnitude_ == 0.0F && std::isfinite(magnitude);
    magnitude_ = magnitude;
  }
}

namespace {

// The magnitude that weights are compared with: the only one of native weights, else the mean.
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

void encode_ternary_blocks(BlockFormat format, std::span<const float> weights,
                           const QuantOptions& options, MutableByteSpan out) {
  constexpr CodeGrid kGrid = {.top = 2.0F, .has_min = false, .zero = 1.0F};
  const std::size_t n_blocks = (weights.size() + format.block - 1) / format.block;
  std::array<Fields, kBlocksPerBatch> fields;
  std::array<float, kBlocksPerBatch> thresholds;
  std::array<bool, kBlocksPerBatch> is_native{};
  for (std::size_t k = 0; k < n_blocks; ++k) {
    const TernaryFit fit = fit_ternary(weights_of_block(weights, format.block, k));
    const float scale = to_f32(to_f16(fit.magnitude));
    fields[k] = {scale, kGrid.tied_min(scale)};
    thresholds[k] = fit.is_native ? fit.magnitude : 0.3F * scale;
    is_native[k] = fit.is_native;
  }
  if (options.rounding == Rounding::kSearch) {
    std::array<Fields, kBlocksPerBatch> found = fields;
    search_blocks(weights, format.block, options, kGrid, std::span(found).first(n_blocks));
    for (std::size_t k = 0; k < n_blocks; ++k) {
      if (is_native[k]) continue;
      fields[k] = found[k];
      thresholds[k] = 0.5F * fields[k].scale;
    }
  }
  for (std::size_t k = 0; k < n_blocks; ++k) {
    const auto part = weights_of_block(weights, format.block, k);
    std::uint8_t codes[kMaxBlock] = {};
    choose_ternary_codes(part, thresholds[k], codes);
    const MutableByteSpan bytes = out.subspan(k * block_bytes(format), block_bytes(format));
    store_le(bytes, 0, to_f16(fields[k].scale));
    pack_ternary(codes, format.block, static_cast<std::uint32_t>(part.size()), bytes.data() + 2);
  }
}

namespace {

// Sums over the weights beyond a threshold.
struct Beyond {
  double n = 0.0;       // cost
  double weight = 0.0;  // cost * magnitude

  // The sum of costed squares that the best scale for them takes off the error.
  double gain() const noexcept { return n > 0.0 ? weight * weight / n : 0.0; }
};

// Searches the scale of a row that is not natively ternary: first the best of 256 thresholds up to
// four times the mean magnitude, then scale and nearest codes in turn. Returns `start`, whose
// codes begin at `threshold`, where nothing is better.
float search_row_scale(std::span<const float> weights, const QuantOptions& options, float start,
                       float threshold) noexcept {
  const float unit = largest_cost(options);
  const auto cost_of = [&](std::size_t i) {
    return unit > 0.0F ? double{options.importance[i]} / unit : 1.0;
  };
  constexpr std::size_t kBins = 256;
  const double bins_each = kBins / (4.0 * start);
  std::array<Beyond, kBins> bins{};
  double start_gain = 0.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double magnitude = std::fabs(weights[i]);
    const double cost = cost_of(i);
    Beyond& bin = bins[static_cast<std::size_t>(std::min(magnitude * bins_each, kBins - 1.0))];
    bin.n += cost;
    bin.weight += cost * magnitude;
    if (magnitude >= threshold) start_gain += cost * start * (2.0 * magnitude - start);
  }
  Beyond beyond;
  Beyond best;
  for (std::size_t bin = kBins; bin-- > 0;) {
    beyond.n += bins[bin].n;
    beyond.weight += bins[bin].weight;
    if (beyond.gain() > best.gain()) best = beyond;
  }
  constexpr int kTurns = 4;
  float scale = start;
  for (int turn = 0; turn < kTurns && best.n > 0.0; ++turn) {
    scale = static_cast<float>(best.weight / best.n);
    Beyond next;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double magnitude = std::fabs(weights[i]);
      if (magnitude < 0.5 * scale) continue;
      next.n += cost_of(i);
      next.weight += cost_of(i) * magnitude;
    }
    if (!(next.gain() > best.gain())) break;
    best = next;
  }
  return best.gain() > start_gain * (1.0 + 0x1p-20) ? scale : start;
}

}  // namespace

void encode_ternary_row(std::span<const float> weights, const QuantOptions& options,
                        MutableByteSpan out) {
  constexpr BlockFormat kFormat = block_format(QuantType::kTernaryRow, 0);
  const TernaryFit fit = fit_ternary(weights);
  float scale = fit.magnitude;
  float threshold = fit.is_native ? scale : 0.3F * scale;
  if (options.rounding == Rounding::kSearch && !fit.is_native && scale > 0.0F) {
    scale = search_row_scale(weights, options, fit.magnitude, threshold);
    if (scale != fit.magnitude) threshold = 0.5F * scale;
  }
  store_le(out, 0, scale);
  for (std::size_t first = 0; first < weights.size(); first += kFormat.block) {
    std::uint8_t codes[kFormat.block] = {};
    choose_ternary_codes(weights_of_block(weights, kFormat.block, first / kFormat.block), threshold,
                         codes);
    pack_2bit(codes, kFormat.block, kFormat.block,
              out.data() + locate_in_row(kFormat, first / kFormat.block).codes);
  }
}

}  // namespace qsf
