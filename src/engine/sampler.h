// SPDX-License-Identifier: MIT
//
// The sampler: from the logits of one row to the next token.
//
// Order of the steps: logits callback, mask callback, penalties (repetition, then frequency and
// presence), DRY, logit bias, grammar, temperature, top-k, typical-p, top-p, min-p, XTC, draw.
// It is llama.cpp's order but for the bias, its first step, and temperature, its last: here the
// steps that select see the distribution that is drawn from. At temperature 0 the largest logit
// after the bias is taken. A step that is off changes no bit.
//
// The same seed and logits give the same token on every machine: ties break towards the smaller id,
// the kernels behind it give the same bits on every instruction set, and no function of a math
// library is called.
//
// Based on: Meister et al., "Locally Typical Sampling", 2022; p-e-w's DRY and XTC for
// text-generation-webui, 2024. All with the definitions of llama.cpp.

#ifndef QSF_ENGINE_SAMPLER_H_
#define QSF_ENGINE_SAMPLER_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/status.h"
#include "kernels/sample/sample.h"
#include "model/logits_sink.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

class Grammar;         // grammar/grammar_engine.h
class GrammarMatcher;  // the same

struct LogitBias {
  TokenId token;
  float bias;  // finite, or -infinity: the token is never drawn
};

// The base to the power of this many tokens is past all logits, unless it is nearly 1.
inline constexpr std::uint32_t kDryMaxMatch = 1024;

struct SamplingOptions {
  float temperature = 0.7F;          // >= 0; 0 is greedy
  std::uint32_t top_k = 40;          // 0 keeps all
  float top_p = 0.9F;                // in (0, 1]
  float min_p = 0.0F;                // in [0, 1]
  float repeat_penalty = 1.0F;       // > 0
  std::uint32_t repeat_window = 64;  // newest tokens that the three penalties count
  float frequency_penalty = 0.0F;    // finite; off the logit for each time a token occurs there
  float presence_penalty = 0.0F;     // finite; off the logit of each token that occurs there

  // Keeps the tokens whose information is nearest to the entropy, until they hold this probability;
  // of two as near the more likely. In (0, 1]; 1 keeps all. Below 1 and without top-k it ranks the
  // whole vocabulary.
  float typical_p = 1.0F;

  // DRY: where the newest tokens occurred before, `length` of them, the token that followed then
  // loses dry_multiplier * dry_base^(length - dry_allowed_length); of several places the longest
  // match counts, and of none more than kDryMaxMatch tokens. A match holds no breaker and no token
  // beyond the vocabulary, and a breaker loses nothing.
  float dry_multiplier = 0.0F;           // >= 0; 0 is off
  float dry_base = 1.75F;                // >= 1
  std::uint32_t dry_allowed_length = 2;  // 1 to kDryMaxMatch; a shorter match costs nothing
  std::uint32_t dry_window = std::numeric_limits<std::uint32_t>::max();  // newest tokens looked at
  std::vector<TokenId> dry_breakers;

  // XTC: with this probability a draw drops every token whose probability is at least the
  // threshold, but for the least likely of them; of equals the one with the larger id stays.
  float xtc_probability = 0.0F;  // in [0, 1]; 0 is off
  float xtc_threshold = 0.1F;    // in [0, 1]; above 0.5 nothing is dropped

  std::uint64_t seed = 0;
  std::vector<LogitBias> logit_bias;  // biases of one token add up
  std::vector<TokenId> excluded;      // never drawn, whatever the callbacks and the bias say

  // Only tokens that go on with a text of the grammar are drawn: from the beginning, or from behind
  // the first place where grammar_trigger stands in the generated text.
  std::shared_ptr<Grammar> grammar;
  std::string grammar_trigger;
  std::vector<TokenId> grammar_end_tokens;  // that end a text beside the model's own

  // Called by prepare(), or null. A result other than 0 is an error of that draw.
  // May change the logits of all ids that can be drawn.
  int (*on_logits)(std::span<float> logits, void* user) = nullptr;
  // Clears the bits of the ids that may not be drawn; id i is bit i % 32 of word i / 32. All bits
  // are set before.
  int (*on_mask)(std::span<std::uint32_t> allowed, void* user) = nullptr;
  void* callback_user = nullptr;
};

// Fails  kInvalidArgument with the name, the value and the range of the first option out of range.
Status validate(const SamplingOptions& options, std::uint32_t n_vocab);

// A sink that gathers one row and draws from it, or several that it draws from one after another.
class Sampler final : public LogitsSink {
 public:
  // Shapes    logits [n], order [n]: working memory from the engine's plan. n may be less than
  //           n_vocab: ids from n on are never drawn, whatever their logit or bias.
  // Requires  validate(options, n_vocab) is OK; options and both spans outlive the sampler;
  //           n > 0
  Sampler(const SamplingOptions& options, std::span<float> logits, std::span<std::uint32_t> order);
  ~Sampler() override;

  // Where rows 1, 2 ... are gathered, for a pass with drafted rows; other passes gather row 0
  // alone. Shapes  logits [rows, stride] Requires  stride is at least the number of logits of a
  // row; `logits` outlives the pass
  void gather_also(std::span<float> logits, std::size_t stride) noexcept {
    more_rows_ = logits;
    stride_ = stride;
  }
  void consume(std::uint32_t row, std::uint32_t first_token,
               std::span<const float> logits) noexcept override;
  // The best that a draw may take; all where an option may raise another token, or reads all.
  HeadNeed head_need(std::uint32_t row) const noexcept override;
  void expect_some(std::uint32_t row) noexcept override;
  // Has head_need() ask for all logits: of what else reads them.
  void need_all() noexcept { needs_all_ = true; }
  // Chooses the gathered row that is drawn from next. Requires  it was gathered
  void select(std::uint32_t row) noexcept { logits_ = row_of(row); }

  // The gathered row; what draw() leaves of it after that.
  std::span<const float> logits() const noexcept { return logits_; }
  // Returns whether any gathered logit is a finite number: a row of a sound model always has one.
  bool has_candidate() const noexcept;

  // Calls the callbacks for the gathered row, and excludes ids, once before each draw().
  // Fails  kInvalidArgument: a callback failed, or no id is left that can be drawn
  Status prepare();

  // Draws a token from the gathered row, given the tokens so far (for the penalties and DRY).
  // Tokens of `history` beyond the vocabulary are ignored.
  // Guarantees  A NaN logit and one of -infinity are never drawn while there is another; with
  //             nothing else the token is 0. Greedy uses no random number, everything else exactly
  //             one; with an xtc_probability above 0 a second one after it, which says whether
  //             XTC drops; and another one where a grammar refuses what was drawn. Leaves the
  //             gathered logits changed. Allocates nothing. kNoToken where the grammar leaves no
  //             token: see grammar_status().
  TokenId draw(std::span<const TokenId> history) noexcept;

  // Draws from other logits as draw() would, callbacks and grammar left out, with the numbers of
  // `rng`: those of random() give what the next draws would give. Leaves the logits changed.
  // Shapes  logits [at least those of the row]
  TokenId guess(std::span<float> logits, std::span<const TokenId> history, Rng& rng) noexcept;
  const Rng& random() const noexcept { return rng_; }

  // Fails  kInvalidArgument: the grammar allows no token that can be drawn, or is too ambiguous
  const Status& grammar_status() const noexcept { return grammar_status_; }
  // Tells the grammar of the token that comes next. Requires  a grammar
  Status accept(TokenId token);
  // Whether there is a grammar, and its text is complete and cannot go on.
  bool grammar_is_finished();

 private:
  Status mask();
  Status exclude();
  TokenId choose(std::span<const TokenId> history, bool constrained) noexcept;
  // The grammar's steps, in sampler_grammar.cc.
  enum class Constraint { kReady, kTest, kNone };
  Constraint constrain() noexcept;
  Constraint constrain_top_k() noexcept;
  Constraint list_legal() noexcept;
  Constraint apply_grammar_mask() noexcept;
  Constraint ban_illegal() noexcept;
  TokenId best_listed() const noexcept;
  bool keeps_distribution() const noexcept;
  TokenId redraw(std::uint32_t n_candidates) noexcept;

  void penalise(std::span<const TokenId> history) noexcept;
  void penalise_continuations(std::span<const TokenId> history) noexcept;
  void bias() noexcept;
  std::uint32_t weigh_ranked(float best_logit) noexcept;
  std::uint32_t keep_typical(std::uint32_t n_candidates) noexcept;
  std::uint32_t weigh_all(float best_logit) noexcept;
  std::uint32_t complete_share(const kernels::WeightBounds& bounds, std::uint32_t n_candidates,
                               double wanted) noexcept;
  std::uint32_t drop_top_choices(std::uint32_t n_candidates) noexcept;
  void gather(std::uint32_t n_candidates) noexcept;

  std::span<float> row_of(std::uint32_t row) const noexcept {
    if (row == 0) return first_row_;
    return more_rows_.subspan((row - 1) * stride_, first_row_.size());
  }

  const SamplingOptions& options_;
  std::span<float> first_row_;
  std::span<float> more_rows_;
  std::size_t stride_ = 0;
  bool needs_all_ = false;
  // At first the logits of all ids; then of candidates alone, and order_ has their ids.
  std::span<float> logits_;
  std::span<std::uint32_t> order_;
  Rng rng_;
  std::unique_ptr<GrammarMatcher> matcher_;  // null without a grammar
  std::vector<std::uint32_t> grammar_mask_;
  std::uint32_t n_listed_ = 0;  // candidates of top-k that the grammar's step has put into order_
  Status grammar_status_;
};

}  // namespace qsf

#endif  // QSF_ENGINE_SAMPLER_H_
