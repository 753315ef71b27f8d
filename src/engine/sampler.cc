// SPDX-License-Identifier: MIT
//
// Sampling of the next token; the contract is in sampler.h.
//
// The order of logits is the order of probabilities, so the k most likely are found first and only
// they are exponentiated. Nothing ever sorts the whole vocabulary: top-p sorts a prefix that grows
// until it holds enough probability.

#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace qsf {

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// How many candidates top-p sorts first; it usually stops within them.
constexpr std::uint32_t kFirstSorted = 64;

}  // namespace

double exp_of_nonpositive(double x) noexcept {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kLn2High = 0x1.62e42feep-1;  // 21 trailing zero bits: n * kLn2High is exact
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  if (!(x >= -708.0)) return 0.0;
  if (x > 0.0) x = 0.0;
  const int n = static_cast<int>(x * kLog2E - 0.5);   // truncation of a non-positive number
  const double r = (x - n * kLn2High) - n * kLn2Low;  // |r| <= ln(2) / 2
  // Taylor series: the first term left out, r^14 / 14!, is below 2^-57.
  constexpr double kInverseFactorials[] = {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0,
                                           1.0 / 3628800.0,    1.0 / 362880.0,    1.0 / 40320.0,
                                           1.0 / 5040.0,       1.0 / 720.0,       1.0 / 120.0,
                                           1.0 / 24.0,         1.0 / 6.0,         0.5};
  double sum = 0.0;
  for (const double coefficient : kInverseFactorials) sum = sum * r + coefficient;
  const double mantissa = 1.0 + (r + r * r * sum);
  return mantissa * std::bit_cast<double>(static_cast<std::uint64_t>(1023 + n) << 52);
}

Status validate(const SamplingOptions& options, std::uint32_t n_vocab) {
  const auto out_of_range = [](const char* name, float value, const char* range) {
    return invalid_argument("%s: %g, expected %s", name, static_cast<double>(value), range);
  };
  if (!(options.temperature >= 0.0F) || std::isinf(options.temperature)) {
    return out_of_range("temperature", options.temperature, "a finite number of at least 0");
  }
  if (!(options.top_p > 0.0F && options.top_p <= 1.0F)) {
    return out_of_range("top_p", options.top_p, "a number above 0 and at most 1");
  }
  if (!(options.min_p >= 0.0F && options.min_p <= 1.0F)) {
    return out_of_range("min_p", options.min_p, "a number from 0 to 1");
  }
  if (!(options.repeat_penalty > 0.0F) || std::isinf(options.repeat_penalty)) {
    return out_of_range("repeat_penalty", options.repeat_penalty, "a finite number above 0");
  }
  for (const LogitBias& entry : options.logit_bias) {
    if (entry.token >= n_vocab) {
      return invalid_argument("logit_bias: token %u, expected an id below the vocabulary's %u",
                              entry.token, n_vocab);
    }
    if (!(entry.bias < std::numeric_limits<float>::infinity())) {
      return invalid_argument("logit_bias: %g for token %u, expected a finite number or -inf",
                              static_cast<double>(entry.bias), entry.token);
    }
  }
  return ok_status();
}

Sampler::Sampler(const SamplingOptions& options, std::span<float> logits,
                 std::span<std::uint32_t> order)
    : options_(options), logits_(logits), order_(order), rng_(options.seed) {
  QSF_CHECK(!logits.empty() && order.size() >= logits.size());
}

void Sampler::consume(std::uint32_t row, std::uint32_t first_token,
                      std::span<const float> logits) noexcept {
  if (row != 0) return;
  if (first_token >= logits_.size()) return;
  const std::size_t n = std::min(logits.size(), logits_.size() - first_token);
  std::copy_n(logits.begin(), n, logits_.begin() + first_token);
}

bool Sampler::has_candidate() const noexcept {
  return std::any_of(logits_.begin(), logits_.end(),
                     [](float logit) { return std::isfinite(logit); });
}

TokenId Sampler::draw(std::span<const TokenId> history) noexcept {
  penalise(history);
  bias();
  if (options_.temperature == 0.0F) return best();

  const float best_logit = logits_[best()];
  std::uint32_t n_candidates = keep_top_k(list_candidates());
  const double total = weigh(n_candidates, best_logit);
  n_candidates = keep_top_p(n_candidates, total);
  return pick(n_candidates);
}

void Sampler::penalise(std::span<const TokenId> history) noexcept {
  if (options_.repeat_penalty == 1.0F) return;
  const std::size_t n_seen = std::min<std::size_t>(history.size(), options_.repeat_window);
  const std::span<const TokenId> window = history.last(n_seen);
  // order_ holds nothing yet: its places mark which tokens of the window still wait.
  for (const TokenId token : window) {
    if (token < logits_.size()) order_[token] = 1;
  }
  for (const TokenId token : window) {
    if (token >= logits_.size() || order_[token] == 0) continue;
    order_[token] = 0;
    float& logit = logits_[token];
    logit = logit > 0.0F ? logit / options_.repeat_penalty : logit * options_.repeat_penalty;
  }
}

void Sampler::bias() noexcept {
  for (const LogitBias& entry : options_.logit_bias) {
    if (entry.token >= logits_.size()) continue;
    float& logit = logits_[entry.token];
    logit = entry.bias == kMinusInfinity ? kMinusInfinity : logit + entry.bias;
  }
}

TokenId Sampler::best() const noexcept {
  TokenId best_token = 0;
  float best_logit = kMinusInfinity;
  for (std::uint32_t token = 0; token < logits_.size(); ++token) {
    if (logits_[token] > best_logit) {
      best_logit = logits_[token];
      best_token = token;
    }
  }
  return best_token;
}

// Lists the ids whose logit is a number above -infinity, in ascending order.
std::uint32_t Sampler::list_candidates() noexcept {
  std::uint32_t n_candidates = 0;
  for (std::uint32_t token = 0; token < logits_.size(); ++token) {
    order_[n_candidates] = token;
    n_candidates += logits_[token] > kMinusInfinity ? 1 : 0;
  }
  return n_candidates;
}

// Moves the k most likely candidates to the front, best first.
std::uint32_t Sampler::keep_top_k(std::uint32_t n_candidates) noexcept {
  if (options_.top_k == 0 || options_.top_k >= n_candidates) return n_candidates;
  const auto more_likely = [this](std::uint32_t a, std::uint32_t b) {
    return logits_[a] != logits_[b] ? logits_[a] > logits_[b] : a < b;
  };
  std::partial_sort(order_.begin(), order_.begin() + options_.top_k, order_.begin() + n_candidates,
                    more_likely);
  return options_.top_k;
}

// Replaces the candidates' logits by weights proportional to their probability at the temperature,
// the best one's being 1, and returns their sum.
double Sampler::weigh(std::uint32_t n_candidates, float best_logit) noexcept {
  const double temperature = static_cast<double>(options_.temperature);
  double total = 0.0;
  for (const std::uint32_t token : order_.first(n_candidates)) {
    float& logit = logits_[token];
    // Equality first: an infinite best logit would make the difference NaN.
    const double below =
        logit == best_logit ? 0.0 : static_cast<double>(logit) - static_cast<double>(best_logit);
    logit = static_cast<float>(exp_of_nonpositive(below / temperature));
    total += static_cast<double>(logit);
  }
  return total;
}

// Keeps the smallest set of most likely candidates that holds the share top_p of `total`, then
// those among them whose weight reaches min_p.
std::uint32_t Sampler::keep_top_p(std::uint32_t n_candidates, double total) noexcept {
  if (options_.top_p < 1.0F) {
    const auto heavier = [this](std::uint32_t a, std::uint32_t b) {
      return logits_[a] != logits_[b] ? logits_[a] > logits_[b] : a < b;
    };
    const double wanted = static_cast<double>(options_.top_p) * total;
    double held = 0.0;
    std::uint32_t n_sorted = 0;
    std::uint32_t n_kept = 0;
    while (n_kept < n_candidates && (n_kept == 0 || held < wanted)) {
      if (n_kept == n_sorted) {
        const std::uint32_t n_more =
            std::min(n_candidates - n_sorted, std::max(kFirstSorted, 3 * n_sorted));
        std::partial_sort(order_.begin() + n_sorted, order_.begin() + n_sorted + n_more,
                          order_.begin() + n_candidates, heavier);
        n_sorted += n_more;
      }
      held += static_cast<double>(logits_[order_[n_kept++]]);
    }
    n_candidates = n_kept;
  }
  std::uint32_t n_kept = 0;
  for (std::uint32_t i = 0; i < n_candidates; ++i) {
    if (logits_[order_[i]] >= options_.min_p) order_[n_kept++] = order_[i];
  }
  return n_kept;
}

// Draws one of the candidates by weight.
TokenId Sampler::pick(std::uint32_t n_candidates) noexcept {
  const std::span<const std::uint32_t> candidates = order_.first(n_candidates);
  double total = 0.0;
  for (const std::uint32_t token : candidates) total += static_cast<double>(logits_[token]);
  const double target = rng_.next_f64() * total;
  double passed = 0.0;
  TokenId last = 0;
  for (const std::uint32_t token : candidates) {
    if (logits_[token] == 0.0F) continue;
    passed += static_cast<double>(logits_[token]);
    if (target < passed) return token;
    last = token;
  }
  return last;  // rounding left target at the very end
}

}  // namespace qsf
