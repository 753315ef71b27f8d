// SPDX-License-Identifier: MIT

#include "quant/trellis.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "quant/codec.h"
#include "quant/search/trellis_search.h"

namespace qsf {

void TrellisDecoder::decode(std::span<std::uint8_t> codes) noexcept {
  const bool has_refinement = type_ == QuantType::kQ3Trellis;
  const std::uint8_t* const levels = trellis_levels(type_);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const unsigned symbol = has_refinement ? codes[i] >> 1U : codes[i];
    std::uint16_t& window = windows_[i % kTrellisStreams];
    window = static_cast<std::uint16_t>(window >> 2U | symbol << 10U);
    const unsigned refinement = has_refinement && codes[i] % 2 != 0 ? kTrellisRefinement : 0U;
    codes[i] = static_cast<std::uint8_t>(levels[trellis_index(window)] + refinement);
  }
}

unsigned trellis_scale(BlockFormat format, ByteSpan row, std::uint64_t index) noexcept {
  const auto word = load_le<std::uint32_t>(row, locate_in_row(format, index).fields);
  return word >> (4 * (index % kNibbleBlocks)) & 15U;
}

void put_trellis_scale(BlockFormat format, std::uint64_t index, unsigned scale,
                       MutableByteSpan row) noexcept {
  const std::uint64_t at = locate_in_row(format, index).fields;
  const auto shift = static_cast<unsigned>(4 * (index % kNibbleBlocks));
  const auto word = load_le<std::uint32_t>(ByteSpan(row), at);
  store_le(row, at, (word & ~(15U << shift)) | scale << shift);
}

namespace {

// Paths that are searched for a row, each with scales fitted to the one before.
constexpr unsigned kTrellisTurns = 3;

// The scale that makes normal weights of mean square 1 fit the levels best.
float unit_of(QuantType type) noexcept {
  return type == QuantType::kQ2Trellis ? 0.0667F : 0.0894F;
}

// The root mean square of a block, weighted with the costs of errors.
double weighted_rms(std::span<const float> weights, std::span<const float> costs) noexcept {
  double squares = 0.0;
  double total = 0.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    squares += double{costs[i]} * weights[i] * weights[i];
    total += costs[i];
  }
  return total > 0.0 ? std::sqrt(squares / total) : 0.0;
}

// A row with its scales and codes.
struct Encoding {
  float d = 0.0F;
  std::vector<unsigned> scales;
  std::vector<float> block_scales;  // d * scale
  std::vector<std::uint8_t> codes;
  std::vector<float> values;  // less 31.5
};

class RowSearch {
 public:
  RowSearch(QuantType type, std::span<const float> weights, std::span<const float> importance)
      : type_(type),
        weights_(weights),
        costs_(trellis_costs(importance, weights.size())),
        search_(type) {}

  Encoding run(unsigned n_turns) {
    Encoding best = encode(root_mean_squares());
    double error = error_of(best, best.d);
    for (unsigned turn = 1; turn < n_turns; ++turn) {
      Encoding next = encode(fitted_scales(best));
      const double other = error_of(next, next.d);
      if (!(other < error)) break;
      error = other;
      best = std::move(next);
    }
    return best;
  }

  // The scale of the row that suits its codes best.
  float fitted_row_scale(const Encoding& encoding) const noexcept {
    Sums sums;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      add(i, encoding.values[i] * static_cast<float>(encoding.scales[i / kTrellisBlock]), sums);
    }
    if (!sums.is_sound()) return encoding.d;
    const auto fitted = static_cast<float>(sums.products / sums.squares);
    return error_of(encoding, fitted) < error_of(encoding, encoding.d) ? fitted : encoding.d;
  }

 private:
  // Of one scale for many values, by least squares.
  struct Sums {
    double products = 0.0;
    double squares = 0.0;
    bool is_sound() const noexcept { return products > 0.0 && squares > 0.0; }
  };
  void add(std::size_t i, float value, Sums& sums) const noexcept {
    sums.products += double{costs_[i]} * weights_[i] * value;
    sums.squares += double{costs_[i]} * value * value;
  }

  std::vector<double> root_mean_squares() const {
    std::vector<double> scales;
    for (std::size_t first = 0; first < weights_.size(); first += kTrellisBlock) {
      const std::size_t n = std::min(kTrellisBlock, weights_.size() - first);
      scales.push_back(
          weighted_rms(weights_.subspan(first, n), std::span(costs_).subspan(first, n)) *
          unit_of(type_));
    }
    return scales;
  }

  std::vector<double> fitted_scales(const Encoding& encoding) const {
    std::vector<double> scales;
    for (std::size_t first = 0; first < weights_.size(); first += kTrellisBlock) {
      Sums sums;
      for (std::size_t i = first; i < std::min(weights_.size(), first + kTrellisBlock); ++i) {
        add(i, encoding.values[i], sums);
      }
      scales.push_back(sums.is_sound() ? sums.products / sums.squares
                                       : encoding.block_scales[first / kTrellisBlock]);
    }
    return scales;
  }

  Encoding encode(const std::vector<double>& wanted) {
    Encoding out;
    out.d = static_cast<float>(*std::max_element(wanted.begin(), wanted.end()) / kTopTrellisScale);
    for (const double scale : wanted) {
      const double steps = out.d > 0.0F ? std::round(scale / out.d) : 0.0;
      // A block that is not zero has a scale that is not.
      const double least = scale > 0.0 && out.d > 0.0F ? 1.0 : 0.0;
      out.scales.push_back(
          static_cast<unsigned>(std::clamp(steps, least, static_cast<double>(kTopTrellisScale))));
      out.block_scales.push_back(out.d * static_cast<float>(out.scales.back()));
    }
    out.codes.resize(weights_.size());
    out.values.resize(weights_.size());
    std::vector<float> scales(weights_.size());
    for (std::size_t i = 0; i < scales.size(); ++i) {
      scales[i] = out.block_scales[i / kTrellisBlock];
    }
    set_trellis_targets(weights_, costs_, scales, targets_);
    search_.start_row();
    search_.next(targets_, out.codes, out.values);
    return out;
  }

  // With another scale of the row than the codes were chosen for.
  double error_of(const Encoding& encoding, float d) const noexcept {
    double error = 0.0;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      const float scale = d * static_cast<float>(encoding.scales[i / kTrellisBlock]);
      const double rest = double{weights_[i]} - scale * encoding.values[i];
      error += costs_[i] * rest * rest;
    }
    return error;
  }

  QuantType type_;
  std::span<const float> weights_;
  std::vector<float> costs_;
  TrellisSearch search_;
  TrellisTargets targets_;
};

}  // namespace

void encode_trellis_row(BlockFormat format, std::span<const float> weights,
                        const QuantOptions& options, MutableByteSpan out) {
  QSF_CHECK(is_trellis_type(format.type));
  std::fill(out.begin(), out.end(), std::byte{0});
  if (weights.empty()) return;
  const bool is_search = options.rounding == Rounding::kSearch;
  RowSearch search(format.type, weights, is_search ? options.importance : std::span<const float>());
  const Encoding encoding = search.run(is_search ? kTrellisTurns : 1);
  store_le(out, 0, is_search ? search.fitted_row_scale(encoding) : encoding.d);
  std::array<std::uint8_t, kTrellisBlock> codes;
  for (std::size_t b = 0; b < encoding.scales.size(); ++b) {
    const std::size_t first = b * kTrellisBlock;
    const std::size_t n = std::min(kTrellisBlock, weights.size() - first);
    const RowBlock at = locate_in_row(format, b);
    put_trellis_scale(format, b, encoding.scales[b], out);
    codes.fill(0);
    std::copy_n(encoding.codes.begin() + static_cast<std::ptrdiff_t>(first), n, codes.begin());
    block_codec(format.type)
        .pack(codes.data(), format.block, static_cast<std::uint32_t>(n), out.data() + at.codes);
  }
}

}  // namespace qsf
