// SPDX-License-Identifier: MIT

#include "model/head_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace qsf {

HeadSearch::HeadSearch(std::uint32_t n_units, std::uint32_t n_best)
    : bounds_(n_units), queue_(n_units), n_best_(n_best), most_best_(n_best) {
  QSF_CHECK(n_best > 0);
  best_.reserve(n_best);
}

namespace {

// Orders a heap of units by rising bound, of equal ones by falling number.
auto is_later(const std::vector<float>& bounds) noexcept {
  return [&bounds](std::uint32_t a, std::uint32_t b) {
    return bounds[a] < bounds[b] || (bounds[a] == bounds[b] && a > b);
  };
}

}  // namespace

void HeadSearch::set_n_best(std::uint32_t n_best) noexcept {
  QSF_CHECK(n_best > 0 && n_best <= most_best_);
  n_best_ = n_best;
}

void HeadSearch::start(std::span<const float> bounds) noexcept {
  QSF_CHECK(bounds.size() == bounds_.size());
  std::transform(bounds.begin(), bounds.end(), bounds_.begin(), [](float bound) {
    return std::isnan(bound) ? std::numeric_limits<float>::infinity() : bound;
  });
  std::iota(queue_.begin(), queue_.end(), 0U);
  std::make_heap(queue_.begin(), queue_.end(), is_later(bounds_));
  n_queued_ = queue_.size();
  best_.clear();
  n_taken_ = 0;
  is_sorted_ = false;
  has_broken_ = false;
}

// Returns whether a token of a unit may be among the best: of equal logits the smaller token is.
bool HeadSearch::may_matter(float bound) const noexcept {
  if (best_.size() < n_best_) return true;
  const float worst = is_sorted_ ? best_.back().logit : best_.front().logit;
  return bound >= worst;
}

std::size_t HeadSearch::take(std::span<std::uint32_t> units) noexcept {
  std::size_t n = 0;
  while (n < units.size() && n_queued_ > 0 && may_matter(bounds_[queue_.front()])) {
    const auto end = queue_.begin() + static_cast<std::ptrdiff_t>(n_queued_);
    std::pop_heap(queue_.begin(), end, is_later(bounds_));
    units[n++] = queue_[--n_queued_];
  }
  n_taken_ += static_cast<std::uint32_t>(n);
  return n;
}

void HeadSearch::add(std::span<const std::uint32_t> tokens,
                     std::span<const float> logits) noexcept {
  QSF_CHECK(tokens.size() == logits.size());
  if (is_sorted_) std::make_heap(best_.begin(), best_.end(), is_better);
  is_sorted_ = false;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const TokenLogit found = {tokens[i], logits[i]};
    if (std::isnan(found.logit)) {
      has_broken_ = true;
    } else if (best_.size() < n_best_) {
      best_.push_back(found);
      std::push_heap(best_.begin(), best_.end(), is_better);
    } else if (is_better(found, best_.front())) {
      std::pop_heap(best_.begin(), best_.end(), is_better);
      best_.back() = found;
      std::push_heap(best_.begin(), best_.end(), is_better);
    }
  }
}

std::span<const TokenLogit> HeadSearch::best() noexcept {
  if (!is_sorted_) std::sort_heap(best_.begin(), best_.end(), is_better);
  is_sorted_ = true;
  return best_;
}

bool HeadSwitch::is_on() noexcept {
  if (pause_ == 0) return true;
  --pause_;
  return false;
}

void HeadSwitch::record(float share) noexcept {
  mean_ += (share - mean_) / kMemory;
  if (mean_ <= largest_share_) return;
  pause_ = kPause;
  mean_ = 0.0F;
}

}  // namespace qsf
