// SPDX-License-Identifier: MIT
//
// The grammar's part of a draw: illegal tokens are dropped before the steps that select.
//
// A mask of the whole vocabulary is made only where it is needed. Without truncation a token is
// drawn and tested, and only a refused one is drawn again among the legal ones: the probability of
// a legal token is p + (1 - P) * p / P = p / P, with P that of all legal ones. With a small top-k
// the candidates are tested, and the k best legal ones are found among them.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/ranges.h"
#include "engine/sampler.h"
#include "grammar/grammar_engine.h"
#include "kernels/kernel_set.h"

namespace qsf {

namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();
constexpr std::uint32_t kMaxTestedTopK = 64;
constexpr std::uint32_t kMaxTested = 512;  // more may be listed where logits are equal
constexpr std::uint32_t kMaxListed = 4096;
constexpr std::uint32_t kMaxGreedyTests = 16;

constexpr std::array<std::uint32_t, 32> kMaskBits = [] {
  std::array<std::uint32_t, 32> bits{};
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = 1U << i;
  return bits;
}();

const kernels::SampleKernels& kernels_of_host() noexcept {
  return kernels::host_kernel_set().sample;
}

}  // namespace

Status Sampler::accept(TokenId token) {
  return matcher_->accept(token);
}

bool Sampler::grammar_is_finished() {
  return matcher_ != nullptr && matcher_->is_finished();
}

// Whether the best logit stays a candidate, and what is drawn may be tested afterwards. Before a
// trigger the few tokens that a grammar refuses may count for top-p and min-p.
bool Sampler::keeps_distribution() const noexcept {
  if (options_.typical_p < 1.0F || options_.xtc_probability > 0.0F) return false;
  const bool all = options_.top_k == 0 || options_.top_k >= logits_.size();
  return matcher_->is_waiting() || (all && options_.top_p == 1.0F && options_.min_p == 0.0F);
}

Sampler::Constraint Sampler::constrain() noexcept {
  const auto n_ids = static_cast<std::uint32_t>(logits_.size());
  const auto best = [&] { return kernels_of_host().argmax(logits_.data(), n_ids); };
  if (options_.temperature == 0.0F) {
    for (std::uint32_t i = 0; i < kMaxGreedyTests; ++i) {
      const TokenId token = best();
      if (logits_[token] == kBanned) break;
      if (matcher_->allows(token)) return Constraint::kReady;
      logits_[token] = kBanned;
    }
    return apply_grammar_mask();
  }
  if (keeps_distribution()) {
    return matcher_->allows(best()) ? Constraint::kTest : apply_grammar_mask();
  }
  const bool small = options_.top_k > 0 && options_.top_k <= kMaxTestedTopK;
  return small && options_.top_k < n_ids ? constrain_top_k() : apply_grammar_mask();
}

// Bans the illegal ones of the 2k best. With k legal ones among them, the k best legal ones of all
// are there, and listed.
Sampler::Constraint Sampler::constrain_top_k() noexcept {
  const auto n_ids = static_cast<std::uint32_t>(logits_.size());
  const std::uint32_t n_wanted = std::min(2 * options_.top_k, n_ids);
  const std::uint32_t n = kernels::list_top_k_candidates(kernels_of_host(), logits_.data(), n_ids,
                                                         n_wanted, order_.data());
  if (n > kMaxTested) return apply_grammar_mask();
  std::uint32_t n_legal = 0;
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::uint32_t token = order_[i];
    if (logits_[token] > kBanned && matcher_->allows(token)) {
      order_[n_legal++] = token;
    } else {
      logits_[token] = kBanned;
    }
  }
  if (n_legal < options_.top_k) return list_legal();
  n_listed_ = n_legal;
  return Constraint::kReady;
}

// Lists the legal ids where there are few of them, so that no logit has to be banned.
Sampler::Constraint Sampler::list_legal() noexcept {
  grammar_status_ = matcher_->fill_mask(grammar_mask_);
  if (!grammar_status_.ok()) return Constraint::kNone;
  std::uint32_t n = 0;
  bool any = false;
  for (std::size_t word = 0; word < grammar_mask_.size(); ++word) {
    for (std::uint32_t bits = grammar_mask_[word]; bits != 0; bits &= bits - 1) {
      const auto token = static_cast<TokenId>(word * 32 + std::countr_zero(bits));
      if (token >= logits_.size() || !(logits_[token] > kBanned)) continue;
      if (n == std::min<std::size_t>(kMaxListed, order_.size())) return ban_illegal();
      any = any || std::isfinite(logits_[token]);
      order_[n++] = token;
    }
  }
  if (!any) return ban_illegal();
  n_listed_ = n;
  return Constraint::kReady;
}

// The best of the candidates that the grammar's step has listed.
TokenId Sampler::best_listed() const noexcept {
  TokenId best = order_[0];
  for (const std::uint32_t token : order_.first(n_listed_)) {
    if (logits_[token] > logits_[best]) best = token;
  }
  return best;
}

Sampler::Constraint Sampler::apply_grammar_mask() noexcept {
  grammar_status_ = matcher_->fill_mask(grammar_mask_);
  return grammar_status_.ok() ? ban_illegal() : Constraint::kNone;
}

Sampler::Constraint Sampler::ban_illegal() noexcept {
  bool any = false;
  for (std::size_t first = 0; first < logits_.size(); first += kMaskBits.size()) {
    const std::size_t word = first / kMaskBits.size();
    const std::uint32_t bits = word < grammar_mask_.size() ? grammar_mask_[word] : 0;
    const std::size_t n = std::min(kMaskBits.size(), logits_.size() - first);
    const std::span<float> logits = logits_.subspan(first, n);
    if (bits == 0) {
      ranges::fill(logits, kBanned);
      continue;
    }
    if (n == kMaskBits.size() && bits != std::numeric_limits<std::uint32_t>::max()) {
      for (std::size_t i = 0; i < kMaskBits.size(); ++i) {  // compiled to vectors
        logits[i] = (bits & kMaskBits[i]) != 0 ? logits[i] : kBanned;
      }
    } else {
      for (std::size_t i = 0; i < n; ++i) {
        if ((bits & kMaskBits[i]) == 0) logits[i] = kBanned;
      }
    }
    any = any || ranges::any_of(logits, [](float logit) { return std::isfinite(logit); });
  }
  if (any) return Constraint::kReady;
  grammar_status_ = invalid_argument(
      "grammar: of the tokens that may come next, none has a finite logit behind bias and "
      "callbacks");
  return Constraint::kNone;
}

// Draws among the candidates that the grammar allows; the best logit is one of them.
TokenId Sampler::redraw(std::uint32_t n_candidates) noexcept {
  const double share = rng_.next_f64();
  grammar_status_ = matcher_->fill_mask(grammar_mask_);
  if (!grammar_status_.ok()) return kNoToken;
  std::uint32_t n = 0;
  for (std::uint32_t i = 0; i < n_candidates; ++i) {
    const TokenId token = order_[i];
    if ((grammar_mask_[token / 32] >> token % 32 & 1) == 0) continue;
    logits_[n] = logits_[i];
    order_[n++] = token;
  }
  if (n == 0) {
    grammar_status_ = invalid_argument("grammar: no token that may come next can be drawn");
    return kNoToken;
  }
  const double total = kernels_of_host().sum_at_least(logits_.data(), n, 0.0F).sum;
  return order_[kernels_of_host().pick(logits_.data(), n, share * total)];
}

}  // namespace qsf
