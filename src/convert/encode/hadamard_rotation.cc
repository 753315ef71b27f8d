// SPDX-License-Identifier: MIT

#include "convert/encode/hadamard_rotation.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/rng.h"

namespace qsf {
namespace {

constexpr std::size_t kPanelColumns = 64;  // with a block of 256 rows 64 KiB, for the cache

void scale(std::span<float> x, float factor) noexcept {
  for (float& value : x) value *= factor;
}

}  // namespace

HadamardRotation::HadamardRotation(std::uint32_t n, std::uint32_t most, std::uint64_t seed) {
  while (2 * block_ <= most && n % (2 * block_) == 0) block_ *= 2;
  Rng rng(seed);
  const auto sign = [&] { return rng.below(2) == 0 ? 1.0F : -1.0F; };
  const float root = std::sqrt(1.0F / static_cast<float>(block_));
  before_.resize(n);
  after_.resize(n);
  for (std::uint32_t i = 0; i < n; ++i) {
    before_[i] = sign();
    after_[i] = sign() * root;
  }
}

void HadamardRotation::rotate(std::span<float> x) const noexcept {
  const std::size_t n = before_.size();
  QSF_DCHECK(x.size() % n == 0);
  for (std::size_t at = 0; at < x.size(); at += n) {
    const std::span<float> vector = x.subspan(at, n);
    for (std::size_t i = 0; i < n; ++i) vector[i] *= before_[i];
    for (std::size_t step = block_ / 2; step > 0; step /= 2) {
      for (std::size_t first = 0; first < n; first += 2 * step) {
        for (std::size_t i = first; i < first + step; ++i) {
          const float a = vector[i];
          const float b = vector[i + step];
          vector[i] = a + b;
          vector[i + step] = a - b;
        }
      }
    }
    for (std::size_t i = 0; i < n; ++i) vector[i] *= after_[i];
  }
}

void HadamardRotation::rotate_columns(std::uint32_t first_row, std::size_t n_cols,
                                      std::span<float> rows) const noexcept {
  QSF_DCHECK(first_row % block_ == 0 && rows.size() == block_ * n_cols);
  const std::size_t at = first_row % before_.size();
  for (std::size_t col = 0; col < n_cols; col += kPanelColumns) {
    const std::size_t width = std::min(kPanelColumns, n_cols - col);
    const auto row = [&](std::size_t r) { return rows.subspan(r * n_cols + col, width); };
    for (std::size_t r = 0; r < block_; ++r) scale(row(r), before_[at + r]);
    for (std::size_t step = block_ / 2; step > 0; step /= 2) {
      for (std::size_t r = 0; r < block_; ++r) {
        if ((r & step) != 0) continue;
        const std::span<float> upper = row(r);
        const std::span<float> lower = row(r + step);
        for (std::size_t c = 0; c < width; ++c) {
          const float a = upper[c];
          const float b = lower[c];
          upper[c] = a + b;
          lower[c] = a - b;
        }
      }
    }
    for (std::size_t r = 0; r < block_; ++r) scale(row(r), after_[at + r]);
  }
}

}  // namespace qsf
