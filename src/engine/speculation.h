// SPDX-License-Identifier: MIT
//
// Speculation: further rows of a generating sequence whose tokens are guessed, so that one pass may
// yield several tokens.
//
// A pass computes the pending token of a sequence and, behind it, a draft. Each of these rows has
// the logits that it would have alone (batch invariance), and a token is drawn from them row after
// row, with the random numbers, grammar and penalties of its place in the text. The first row whose
// token is not the next one of the draft ends this: what the rows behind it computed is dropped.
// So the text is the same with and without drafts, whatever is drafted.
//
// Drafts are copies of what followed the same tokens before, in this sequence (draft/drafter.h) or
// in answers to other requests of the same prefix key (draft/shared_texts.h), or they come from a
// smaller model (draft_model.h): from whichever is expected to yield more tokens a time.
// How many tokens are drafted follows from what passes take and how many drafts were accepted
// (draft/draft_length.h): these depend on a clock, the text does not.

#ifndef QSF_ENGINE_SPECULATION_H_
#define QSF_ENGINE_SPECULATION_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "draft/draft_length.h"
#include "draft/drafter.h"
#include "draft/row_times.h"
#include "draft/shared_texts.h"
#include "engine/draft_model.h"
#include "engine/engine.h"
#include "format/model_spec.h"

namespace qsf {

// Tokens of a sequence that are searched for its end, the first ones.
inline constexpr std::uint32_t kMaxDraftText = 32768;

// Returns why drafts cannot be made with these options; null where they can.
const char* speculation_obstacle(const EngineOptions& options, const ModelSpec& spec) noexcept;

// Returns EngineOptions::max_drafts as it is used: 0 without speculation and with an obstacle to
// kAuto. kAuto takes at most a thirty-second part of a RAM budget for the logits of drafts.
std::uint32_t chosen_drafts(const EngineOptions& options, const ModelSpec& spec) noexcept;

// What a pass has room for.
struct DraftRequest {
  std::uint32_t n_beside = 0;  // rows of the pass that are planned, without this sequence's
  std::uint32_t n_tokens = 0;  // that the pass yields without drafts, of all sequences
  std::uint32_t most = 0;      // tokens to draft
};

// What became of the drafts of a model.
struct ModelDrafts {
  std::uint64_t n_drafted = 0;
  std::uint64_t n_accepted = 0;
  std::uint64_t ns = 0;  // to make them
};

// The drafts of all sequences of an engine.
// Threads  one at a time
class Speculation {
 public:
  // Bytes of the drafters' memory. With EngineOptions::prefix_cache answers are shared.
  static std::uint64_t region_bytes(const EngineOptions& options,
                                    std::uint32_t max_context) noexcept;

  // Shapes  logits [max_drafts][n_vocab]
  // Requires  max_drafts > 0; region.size() >= region_bytes(); `model` is loaded, or null; all
  //           outlive it
  Speculation(const EngineOptions& options, std::uint32_t max_context, std::uint32_t n_vocab,
              MutableByteSpan region, std::span<float> logits, DraftModel* model = nullptr);

  // A sequence begins, of which nothing is learned yet.
  void begin(SequenceId sequence) noexcept;
  // A sequence begins as a copy of another.
  void fork(SequenceId origin, SequenceId created) noexcept {
    if (model_ != nullptr) model_->share(origin, created);
  }
  // Whose answers a sequence may copy from; null: nobody's.
  void set_key(SequenceId sequence, const std::string* key);
  // Lets others of the key copy from an answer. Requires  shares_answers()
  void share(const std::string& key, std::span<const TokenId> answer) { shared_->add(key, answer); }
  bool shares_answers() const noexcept { return shared_.has_value(); }

  // Writes a draft behind a text and returns its number of tokens; perhaps none.
  // Requires  request.most <= draft.size()
  std::uint32_t draft(SequenceId sequence, const DraftText& text, const DraftRequest& request,
                      const DraftCalls& calls, std::span<TokenId> draft) noexcept;
  // Learns what became of the last draft() of a sequence, also where it had no tokens. A draft
  // whose pass was not computed is not learned from.
  void learn(SequenceId sequence, std::uint32_t n_accepted) noexcept;
  // Learns what a pass without prompt rows took.
  void add_time(std::uint32_t n_rows, std::uint64_t pass_ns, std::uint64_t wait_ns) noexcept {
    times_.add(n_rows, pass_ns, wait_ns);
  }

  const ModelDrafts& model_drafts() const noexcept { return model_drafts_; }

  // Tokens that may be drafted in a pass, for all sequences together.
  std::uint32_t max_drafts() const noexcept { return max_drafts_; }
  // Where the logits of the i-th drafted row of a pass go, and of those behind it.
  std::span<float> logits_from(std::uint32_t i) const noexcept {
    return logits_.subspan(std::size_t{i} * n_vocab_);
  }

 private:
  struct Sequence {
    explicit Sequence(const DrafterOptions& options, MutableByteSpan region)
        : drafter(options, region) {}
    Drafter drafter;
    SharedTextView others;
    DraftLength length;
    DraftOutcome outcome;            // of the draft in a pass
    std::uint32_t match_tokens = 0;  // before that pass, whoever drafted
    std::uint32_t first_row = 0;     // of that pass's times
  };
  // A number of tokens, and what they are expected to yield in a nanosecond.
  struct Choice {
    std::uint32_t n_tokens = 0;
    double rate = 0.0;
  };

  static Choice choose(const DraftLength& length, std::uint32_t match_tokens, PassTimes times,
                       double n_undrafted) noexcept;
  std::uint64_t investment_ns(const DraftTimes& times, const DraftText& text) const noexcept;
  Choice choose_model(SequenceId sequence, const DraftText& text, PassTimes times,
                      double n_undrafted) noexcept;
  std::uint32_t draft_by_model(SequenceId sequence, const DraftText& text, const DraftCalls& calls,
                               std::span<TokenId> draft) noexcept;

  std::uint32_t max_drafts_;
  std::uint32_t n_vocab_;
  bool always_drafts_;
  std::span<float> logits_;
  std::vector<Sequence> sequences_;  // by SequenceId
  std::optional<SharedTexts> shared_;
  RowTimes times_;
  DraftModel* model_;                       // null without one
  DraftLength model_length_;                // one for all sequences: it is the model's
  std::vector<std::uint64_t> model_times_;  // of passes with its drafts
  ModelDrafts model_drafts_;
};

}  // namespace qsf

#endif  // QSF_ENGINE_SPECULATION_H_
