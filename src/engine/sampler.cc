// SPDX-License-Identifier: MIT
//
// Sampling of the next token; the contract is in sampler.h.
//
// The order of logits is the order of probabilities, so the k most likely are found first and only
// they are exponentiated. Nothing ever sorts the whole vocabulary: without top-k, top-p looks for
// the bound above which its share lies and sorts the few weights next to it.

#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/ranges.h"
#include "grammar/grammar_engine.h"
#include "kernels/kernel_set.h"

namespace qsf {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kMinusInfinity = -kInfinity;
constexpr std::uint32_t kBreaker = std::numeric_limits<std::uint32_t>::max();  // past all lengths

// 1 / temperature, finite also where that is not: 0 times it has to stay 0.
float inverse_of(float temperature) noexcept {
  return std::min(1.0F / temperature, std::numeric_limits<float>::max());
}

const kernels::SampleKernels& sample() noexcept {
  return kernels::host_kernel_set().sample;
}

std::uint32_t count(std::size_t n) noexcept {
  return static_cast<std::uint32_t>(n);
}

// Finite, so that a token is unlikely, never banned. Multiplies step by step: pow() has other bits
// in other libraries.
float dry_penalty(const SamplingOptions& options, std::uint32_t exponent) noexcept {
  constexpr double kMost = std::numeric_limits<float>::max();
  const auto base = static_cast<double>(options.dry_base);
  auto penalty = static_cast<double>(options.dry_multiplier);
  for (; exponent > 0 && penalty < kMost; --exponent) penalty *= base;
  return static_cast<float>(std::min(penalty, kMost));
}

Status invalid_number(const char* name, float value, const char* range) {
  return invalid_argument("%s: %g, expected %s", name, static_cast<double>(value), range);
}

Status validate_penalties(const SamplingOptions& options, std::uint32_t n_vocab) {
  if (!(options.repeat_penalty > 0.0F) || std::isinf(options.repeat_penalty)) {
    return invalid_number("repeat_penalty", options.repeat_penalty, "a finite number above 0");
  }
  if (!std::isfinite(options.frequency_penalty)) {
    return invalid_number("frequency_penalty", options.frequency_penalty, "a finite number");
  }
  if (!std::isfinite(options.presence_penalty)) {
    return invalid_number("presence_penalty", options.presence_penalty, "a finite number");
  }
  if (!(options.dry_multiplier >= 0.0F) || std::isinf(options.dry_multiplier)) {
    return invalid_number("dry_multiplier", options.dry_multiplier,
                          "a finite number of at least 0");
  }
  if (!(options.dry_base >= 1.0F) || std::isinf(options.dry_base)) {
    return invalid_number("dry_base", options.dry_base, "a finite number of at least 1");
  }
  if (options.dry_allowed_length < 1 || options.dry_allowed_length > kDryMaxMatch) {
    return invalid_argument("dry_allowed_length: %u, expected a number from 1 to %u",
                            options.dry_allowed_length, kDryMaxMatch);
  }
  for (const TokenId token : options.dry_breakers) {
    if (token < n_vocab) continue;
    return invalid_argument("dry_breakers: token %u, expected an id below the vocabulary's %u",
                            token, n_vocab);
  }
  return ok_status();
}

}  // namespace

Status validate(const SamplingOptions& options, std::uint32_t n_vocab) {
  if (!(options.temperature >= 0.0F) || std::isinf(options.temperature)) {
    return invalid_number("temperature", options.temperature, "a finite number of at least 0");
  }
  if (!(options.top_p > 0.0F && options.top_p <= 1.0F)) {
    return invalid_number("top_p", options.top_p, "a number above 0 and at most 1");
  }
  if (!(options.min_p >= 0.0F && options.min_p <= 1.0F)) {
    return invalid_number("min_p", options.min_p, "a number from 0 to 1");
  }
  if (!(options.typical_p > 0.0F && options.typical_p <= 1.0F)) {
    return invalid_number("typical_p", options.typical_p, "a number above 0 and at most 1");
  }
  if (!(options.xtc_probability >= 0.0F && options.xtc_probability <= 1.0F)) {
    return invalid_number("xtc_probability", options.xtc_probability, "a number from 0 to 1");
  }
  if (!(options.xtc_threshold >= 0.0F && options.xtc_threshold <= 1.0F)) {
    return invalid_number("xtc_threshold", options.xtc_threshold, "a number from 0 to 1");
  }
  QSF_RETURN_IF_ERROR(validate_penalties(options, n_vocab));
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
    : options_(options), first_row_(logits), logits_(logits), order_(order), rng_(options.seed) {
  QSF_CHECK(!logits.empty() && order.size() >= logits.size());
  if (options.grammar == nullptr) return;
  matcher_ = std::make_unique<GrammarMatcher>(options.grammar, options.grammar_trigger,
                                              options.grammar_end_tokens);
  grammar_mask_.resize(mask_words(options.grammar->engine().vocabulary().n_tokens()));
}

Sampler::~Sampler() = default;

void Sampler::consume(std::uint32_t row, std::uint32_t first_token,
                      std::span<const float> logits) noexcept {
  if (row != 0 && (stride_ == 0 || row > more_rows_.size() / stride_)) return;
  const std::span<float> to = row_of(row);
  if (first_token >= to.size()) return;
  const std::size_t n = std::min(logits.size(), to.size() - first_token);
  std::copy_n(logits.begin(), n, to.begin() + first_token);
}

HeadNeed Sampler::head_need(std::uint32_t /*row*/) const noexcept {
  const SamplingOptions& o = options_;
  const bool penalises = o.repeat_penalty != 1.0F || o.frequency_penalty != 0.0F ||
                         o.presence_penalty != 0.0F || o.dry_multiplier != 0.0F;
  if (needs_all_ || penalises || matcher_ != nullptr || o.on_logits != nullptr ||
      o.on_mask != nullptr || !o.logit_bias.empty()) {
    return {};
  }
  HeadNeed need = {.n_best = 0, .n_tokens = count(first_row_.size()), .most_suffice = true};
  const bool ranks_all = o.top_k == 0 || o.top_k >= first_row_.size();
  if (o.temperature == 0.0F || !ranks_all) {
    need.n_best = (o.temperature == 0.0F ? 1 : o.top_k) + count(o.excluded.size());
  }
  return need;
}

void Sampler::expect_some(std::uint32_t row) noexcept {
  if (row != 0 && (stride_ == 0 || row > more_rows_.size() / stride_)) return;
  ranges::fill(row_of(row), kMinusInfinity);
}

bool Sampler::has_candidate() const noexcept {
  return std::any_of(logits_.begin(), logits_.end(),
                     [](float logit) { return std::isfinite(logit); });
}

Status Sampler::prepare() {
  if (options_.on_logits != nullptr) {
    const int code = options_.on_logits(logits_, options_.callback_user);
    if (code != 0) return invalid_argument("logits callback: returned %d", code);
    if (!has_candidate()) return invalid_argument("logits callback: left no finite logit");
  }
  if (options_.on_mask != nullptr) QSF_RETURN_IF_ERROR(mask());
  return options_.excluded.empty() ? ok_status() : exclude();
}

Status Sampler::exclude() {
  for (const TokenId token : options_.excluded) {
    if (token < logits_.size()) logits_[token] = kMinusInfinity;
  }
  if (has_candidate()) return ok_status();
  return invalid_argument("sampling: only tokens are left that may not be drawn");
}

Status Sampler::mask() {
  constexpr std::size_t kBits = 32;
  // order_ holds nothing yet: its first places are the mask.
  const std::span<std::uint32_t> allowed = order_.first((logits_.size() + kBits - 1) / kBits);
  std::fill(allowed.begin(), allowed.end(), std::numeric_limits<std::uint32_t>::max());
  const int code = options_.on_mask(allowed, options_.callback_user);
  if (code != 0) return invalid_argument("mask callback: returned %d", code);
  for (std::size_t id = 0; id < logits_.size(); ++id) {
    if ((allowed[id / kBits] >> (id % kBits) & 1) == 0) logits_[id] = kMinusInfinity;
  }
  if (!has_candidate()) return invalid_argument("mask callback: allows no token");
  return ok_status();
}

TokenId Sampler::draw(std::span<const TokenId> history) noexcept {
  return choose(history, matcher_ != nullptr);
}

TokenId Sampler::guess(std::span<float> logits, std::span<const TokenId> history,
                       Rng& rng) noexcept {
  const std::span<float> own = std::exchange(logits_, logits.first(logits_.size()));
  std::swap(rng_, rng);
  for (const TokenId token : options_.excluded) {
    if (token < logits_.size()) logits_[token] = kMinusInfinity;
  }
  const TokenId token = choose(history, false);
  std::swap(rng_, rng);
  logits_ = own;
  return token;
}

TokenId Sampler::choose(std::span<const TokenId> history, bool constrained) noexcept {
  penalise(history);
  penalise_continuations(history);
  bias();
  Constraint constraint = Constraint::kReady;
  n_listed_ = 0;
  if (constrained) constraint = constrain();
  if (constraint == Constraint::kNone) return kNoToken;
  const TokenId best =
      n_listed_ > 0 ? best_listed() : sample().argmax(logits_.data(), count(logits_.size()));
  float best_logit = logits_[best];
  const bool any = best_logit > kMinusInfinity;
  if (options_.temperature == 0.0F) return any ? best : 0;

  const double share = rng_.next_f64();
  const bool drops_top = options_.xtc_probability > 0.0F &&
                         rng_.next_f64() < static_cast<double>(options_.xtc_probability);
  if (!any) return 0;
  if (best_logit == kInfinity) {  // differences to it would be NaN
    for (float& logit : logits_) logit = logit == kInfinity ? 0.0F : kMinusInfinity;
    best_logit = 0.0F;
  }
  const bool all = options_.top_k == 0 || options_.top_k >= logits_.size();
  const bool ranks = !all || options_.typical_p < 1.0F;
  std::uint32_t n = ranks ? weigh_ranked(best_logit) : weigh_all(best_logit);
  if (drops_top) n = drop_top_choices(n);
  const double total = sample().sum_at_least(logits_.data(), n, 0.0F).sum;
  const TokenId token = order_[sample().pick(logits_.data(), n, share * total)];
  return constraint == Constraint::kTest && !matcher_->allows(token) ? redraw(n) : token;
}

void Sampler::penalise(std::span<const TokenId> history) noexcept {
  const bool counts = options_.frequency_penalty != 0.0F || options_.presence_penalty != 0.0F;
  if (options_.repeat_penalty == 1.0F && !counts) return;
  const std::size_t n_seen = std::min<std::size_t>(history.size(), options_.repeat_window);
  const std::span<const TokenId> window = history.last(n_seen);
  // order_ holds nothing yet: its places count the tokens of the window that still wait.
  for (const TokenId token : window) {
    if (token < logits_.size()) order_[token] = 0;
  }
  for (const TokenId token : window) {
    if (token < logits_.size()) ++order_[token];
  }
  for (const TokenId token : window) {
    if (token >= logits_.size() || order_[token] == 0) continue;
    const auto n_times = static_cast<float>(order_[token]);
    order_[token] = 0;
    float& logit = logits_[token];
    logit = logit > 0.0F ? logit / options_.repeat_penalty : logit * options_.repeat_penalty;
    if (counts) logit -= n_times * options_.frequency_penalty + options_.presence_penalty;
  }
}

// Finds at each place of the window how many tokens up to it are those up to the newest: the
// Z-algorithm, from the newest token back, which is linear.
void Sampler::penalise_continuations(std::span<const TokenId> history) noexcept {
  if (options_.dry_multiplier == 0.0F) return;
  const std::size_t n_seen = std::min<std::size_t>(history.size(), options_.dry_window);
  const std::span<const TokenId> window = history.last(n_seen);
  const auto newest = [&](std::size_t n_back) { return window[n_seen - 1 - n_back]; };
  // order_ holds nothing yet: its places say which tokens are breakers, and then the length of the
  // longest match that a token would continue.
  for (const TokenId token : window) {
    if (token < logits_.size()) order_[token] = 0;
  }
  for (const TokenId token : options_.dry_breakers) {
    if (token < logits_.size()) order_[token] = kBreaker;
  }
  const auto breaks = [&](TokenId token) {
    return token >= logits_.size() || order_[token] == kBreaker;
  };
  std::uint32_t most = 0;
  while (most < kDryMaxMatch && most < n_seen && !breaks(newest(most))) ++most;
  if (most < options_.dry_allowed_length) return;

  std::array<std::uint32_t, kDryMaxMatch> lengths;  // of the matches that end n_back ago
  std::size_t box = 0;  // the match that reaches furthest back starts here and ends before box_end
  std::size_t box_end = 0;
  for (std::size_t n_back = 1; n_back < n_seen; ++n_back) {
    std::uint32_t length = 0;
    if (n_back < box_end) length = std::min(lengths[n_back - box], count(box_end - n_back));
    while (length < most && n_back + length < n_seen && newest(n_back + length) == newest(length)) {
      ++length;
    }
    if (n_back + length > box_end) {
      box = n_back;
      box_end = n_back + length;
    }
    if (n_back < most) lengths[n_back] = length;
    const TokenId next = newest(n_back - 1);
    if (length < options_.dry_allowed_length || breaks(next)) continue;
    order_[next] = std::max(order_[next], length);
  }
  for (const TokenId token : window) {
    if (breaks(token) || order_[token] == 0) continue;
    logits_[token] -= dry_penalty(options_, order_[token] - options_.dry_allowed_length);
    order_[token] = 0;
  }
}

void Sampler::bias() noexcept {
  for (const LogitBias& entry : options_.logit_bias) {
    if (entry.token >= logits_.size()) continue;
    float& logit = logits_[entry.token];
    logit = entry.bias == kMinusInfinity ? kMinusInfinity : logit + entry.bias;
  }
}

// Moves the logits or weights of the ids in order_, which ascend, to the front.
void Sampler::gather(std::uint32_t n_candidates) noexcept {
  for (std::uint32_t i = 0; i < n_candidates; ++i) logits_[i] = logits_[order_[i]];
}

// Replaces the logits of the k most likely by weights proportional to their probability at the
// temperature, the best one's being 1, and returns how many pass typical-p, top-p and min-p.
std::uint32_t Sampler::weigh_ranked(float best_logit) noexcept {
  const std::uint32_t n_ids = count(logits_.size());
  const std::uint32_t k = options_.top_k == 0 ? n_ids : options_.top_k;
  std::uint32_t n = n_listed_;
  if (n == 0) n = kernels::list_top_k_candidates(sample(), logits_.data(), n_ids, k, order_.data());
  gather(n);
  n = kernels::top_k_select(logits_.data(), order_.data(), n, k);
  if (options_.typical_p < 1.0F) {
    n = keep_typical(n);
    best_logit = logits_[0];
  }
  const double total =
      sample().exp_weights(logits_.data(), n, best_logit, inverse_of(options_.temperature));
  const double wanted = static_cast<double>(options_.top_p) * total;
  double held = 0.0;
  std::uint32_t n_kept = 0;
  while (n_kept < n && logits_[n_kept] >= options_.min_p) {
    if (options_.top_p < 1.0F && n_kept > 0 && held >= wanted) break;
    held += static_cast<double>(logits_[n_kept++]);
  }
  return n_kept;
}

// Moves the typical of the ranked candidates to the front and returns how many. With the best
// weight 1, information less entropy is the mean of ln(weight) less ln(weight), which logits give
// without a logarithm. It grows down the ranks, so what is kept are neighbours around its zero.
std::uint32_t Sampler::keep_typical(std::uint32_t n_candidates) noexcept {
  const float best = logits_[0];
  const float factor = inverse_of(options_.temperature);
  const auto log_weight = [&](std::uint32_t i) {
    return (static_cast<double>(logits_[i]) - static_cast<double>(best)) *
           static_cast<double>(factor);
  };
  const auto weight = [&](std::uint32_t i) {
    float value = logits_[i];
    return sample().exp_weights(&value, 1, best, factor);
  };
  double total = 0.0;
  double mean = 0.0;
  for (std::uint32_t i = 0; i < n_candidates; ++i) {
    const double w = weight(i);
    total += w;
    mean += w * log_weight(i);
  }
  mean /= total;

  std::uint32_t first = 0;
  while (first < n_candidates && log_weight(first) > mean) ++first;
  std::uint32_t last = first;
  const double wanted = static_cast<double>(options_.typical_p) * total;
  double held = 0.0;
  while (held < wanted && (first > 0 || last < n_candidates)) {
    const bool takes_better = last == n_candidates || (first > 0 && log_weight(first - 1) - mean <=
                                                                        mean - log_weight(last));
    held += weight(takes_better ? --first : last++);
  }
  if (first == 0) return last;
  // Of equals that are kept in part, those with the smaller ids.
  const float edge = logits_[first];
  std::uint32_t equals = first;
  while (equals > 0 && logits_[equals - 1] == edge) --equals;
  for (std::uint32_t i = 0; first + i < last; ++i) {
    const bool in_part = logits_[first + i] == edge;
    order_[i] = order_[(in_part ? equals : first) + i];
    logits_[i] = logits_[first + i];
  }
  return last - first;
}

// The same for all ids; what is kept stands in no order but a fixed one.
std::uint32_t Sampler::weigh_all(float best_logit) noexcept {
  const std::uint32_t n_ids = count(logits_.size());
  const double total =
      sample().exp_weights(logits_.data(), n_ids, best_logit, inverse_of(options_.temperature));
  const double wanted = static_cast<double>(options_.top_p) * total;
  kernels::WeightBounds bounds{.at_least = std::numeric_limits<float>::denorm_min(),
                               .above = kInfinity};
  if (options_.top_p < 1.0F) {
    bounds = kernels::find_weight_bounds(sample(), logits_.data(), n_ids, wanted);
  }
  const float bound = std::max(bounds.at_least, options_.min_p);
  const std::uint32_t n = sample().list_at_least(logits_.data(), n_ids, bound, 0, order_.data());
  gather(n);
  return options_.top_p < 1.0F ? complete_share(bounds, n, wanted) : n;
}

// Keeps what lies above the bounds and of what lies between them as many as complete the share,
// best first. Returns how many are kept.
std::uint32_t Sampler::complete_share(const kernels::WeightBounds& bounds,
                                      std::uint32_t n_candidates, double wanted) noexcept {
  std::uint32_t n_kept = 0;
  for (std::uint32_t i = 0; i < n_candidates; ++i) {
    if (logits_[i] < bounds.above) continue;
    std::swap(logits_[i], logits_[n_kept]);
    std::swap(order_[i], order_[n_kept++]);
  }
  double held = sample().sum_at_least(logits_.data(), n_kept, 0.0F).sum;
  const std::uint32_t n_between = n_candidates - n_kept;
  const double most = (wanted - held) / static_cast<double>(bounds.at_least) + 2.0;
  const std::uint32_t n_sorted = most < n_between ? static_cast<std::uint32_t>(most) : n_between;
  kernels::top_k_select(logits_.data() + n_kept, order_.data() + n_kept, n_between, n_sorted);
  const std::uint32_t last = n_kept + n_sorted;
  while (n_kept < last && (n_kept == 0 || held < wanted)) {
    held += static_cast<double>(logits_[n_kept++]);
  }
  return n_kept;
}

// Drops the top choices of XTC and returns how many candidates are left, in the same order.
std::uint32_t Sampler::drop_top_choices(std::uint32_t n_candidates) noexcept {
  const double bound = static_cast<double>(options_.xtc_threshold) *
                       sample().sum_at_least(logits_.data(), n_candidates, 0.0F).sum;
  const auto is_top = [&](std::uint32_t i) {
    return logits_[i] > 0.0F && static_cast<double>(logits_[i]) >= bound;
  };
  std::uint32_t least = n_candidates;
  for (std::uint32_t i = 0; i < n_candidates; ++i) {
    if (!is_top(i)) continue;
    if (least == n_candidates || logits_[i] < logits_[least] ||
        (logits_[i] == logits_[least] && order_[i] > order_[least])) {
      least = i;
    }
  }
  std::uint32_t n_left = 0;
  for (std::uint32_t i = 0; i < n_candidates; ++i) {
    if (is_top(i) && i != least) continue;
    logits_[n_left] = logits_[i];
    order_[n_left++] = order_[i];
  }
  return n_left;
}

}  // namespace qsf
