// SPDX-License-Identifier: MIT
//
// A generation: the state machine that extends a session by a prompt and by the tokens sampled
// after it.
//
// Engine::step() runs the next rows of many generations in one pass. A generation has a sampler, a
// random generator, stop strings, a text stream and a cancel flag of its own, so what it generates
// does not depend on the others of a step.

#ifndef QSF_ENGINE_GENERATION_H_
#define QSF_ENGINE_GENERATION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/engine_impl.h"
#include "engine/prompt_log_probs.h"
#include "engine/sampler.h"
#include "engine/speculation.h"
#include "engine/text_stream.h"

namespace qsf {

// Frees a generation. One that is in flight is freed at the end of its pass, even in a callback of
// its own; it calls no callback after this.
struct GenerationDeleter {
  void operator()(Generation* generation) const noexcept;
};
using GenerationPtr = std::unique_ptr<Generation, GenerationDeleter>;

class Generation {
 public:
  // Prepares; computes nothing. Without a prompt it continues after the session's pending token,
  // else after its last token, which is computed again as a prompt row.
  // Requires  the session outlives the generation
  // Fails     kUnsupported without a tokenizer; kInvalidArgument for sampling options out of range,
  //           a prefix key without a prefix cache or too long, or when the session has a
  //           generation; kUnsupported for log probabilities of a prompt under kSymmetric
  static Result<GenerationPtr> create(Session& session, std::span<const TokenId> prompt,
                                      const GenerateOptions& options);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // Ends this generation at the end of its pass, or before its next one. A running pass goes on for
  // the other members, and stops when all are cancelled.
  // Threads  any; async-signal-safe
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }
  bool is_cancelled() const noexcept {
    return cancelled_.load(std::memory_order_relaxed) ||
           session_.cancelled_.load(std::memory_order_relaxed);
  }

  bool finished() const noexcept { return phase_ == Phase::kFinished; }
  // OK, or the error that ended the generation.
  const Status& status() const noexcept { return status_; }
  const GenerateResult& result() const noexcept { return result_; }
  Session& session() noexcept { return session_; }

  // Whether the last step found no KV page for the next row. Other sessions have to be truncated or
  // freed, or this one saved and freed; or finish() ends the generation.
  bool waits_for_pages = false;

  // Checks the prompt against vocabulary and context, and reserves KV pages, once; the first step
  // does it where nobody else did. The session is unchanged.
  // Requires  not in flight
  // Fails     with an error that has ended the generation (finished()); or kOutOfBudget, with too
  //           few KV pages free for now: nothing has changed then
  Status admit();

  // Begins the prompt with the prompt rows that `from` begins with in common: what several texts
  // after one prompt share. Returns how many it has now beyond those that it had; 0 is no error,
  // and always the number with GenerateOptions::on_prompt_token.
  // The last token of the prompt is computed all the same.
  // Requires  admitted by admit()
  // Fails     kInvalidArgument: it has rows of its own already, has ended or is in a pass; `from`
  //           is of another engine, its own session, in a pass or parked. kUnsupported where rows
  //           follow from more than the tokens before them, or are evicted, and with record_passes.
  //           Nothing has changed then
  Result<std::uint32_t> take_prompt(const Session& from);

  // Writes the session's rows to a file of its own and gives back its KV pages, reserved ones too:
  // steps leave the generation out until resume(). Sampler and text stay in memory. What ends a
  // parked generation removes the file and leaves the session empty.
  // Requires    not in flight
  // Guarantees  on failure nothing has changed
  // Fails       kInvalidArgument: it has ended or is parked; kIo; kCancelled (Engine::cancel)
  Status park(const std::string& path);
  // Reserves KV pages again, reads the rows back and removes the file. What follows has the bits of
  // never having been parked.
  // Fails  with an error of the file, which has ended the generation (finished()); kOutOfBudget,
  //        with too few KV pages free for now, and kCancelled (Engine::cancel): nothing has changed
  //        then; kInvalidArgument: not parked
  Status resume();
  bool is_parked() const noexcept { return parked_.has_value(); }

  // The parts of a step, for step.cc.

  // Ends the generation when it was cancelled.
  void take_cancel();
  // Whether it may have rows in a pass.
  bool takes_part() const noexcept { return !finished() && !is_parked() && n_to_read_ == 0; }
  // Whether pages of its prompt are to be read first.
  bool is_reading() const noexcept { return n_to_read_ != 0 && !finished() && !is_parked(); }
  // Reads up to `n_most` of them, and returns how many. What cannot be read is computed.
  // Requires  is_reading()
  std::uint32_t read_prefix(std::uint32_t n_most);
  // Requires  admitted, takes_part()
  NextRows next_rows() const;
  // Puts a draft behind the pending token, where there is one and the engine speculates. The
  // pass's drafts so far are n_drafted.
  // Requires  next_rows() is a generated row
  NextRows draft(const NextRows& next, const DraftRequest& request, std::uint32_t n_drafted);
  SequenceId sequence() const noexcept { return session_.sequence_; }
  bool is_of(const Engine::Impl& engine) const noexcept { return &session_.engine_ == &engine; }
  // Returns where the logits of the first `n_rows` of next_rows() go in the pass that is planned;
  // null where no row has any. Those from `first_output` on have them.
  LogitsSink* plan_outputs(const NextRows& next, std::size_t n_rows, std::size_t& first_output);
  // Null where no part of the prompt is computed.
  PromptProgress* progress() noexcept { return recomputes_last_ ? nullptr : &progress_; }
  // Takes the rows that a pass computed: samples, searches stop strings, delivers text.
  // Returns how many rows of a draft were accepted.
  std::uint32_t commit(const NextRows& done);
  // Ends the generation. An unfinished prompt is dropped where positions were not evicted.
  void finish(StopReason reason);
  void fail(Status status);

  // From begin_step() to end_step().
  bool in_flight() const noexcept { return in_flight_; }
  void set_in_flight(bool in_flight) noexcept { in_flight_ = in_flight; }
  // Ends the reservation of an ended generation.
  void retire();
  bool is_released() const noexcept { return released_; }

 private:
  friend struct GenerationDeleter;
  enum class Phase : std::uint8_t { kNew, kPrompt, kGenerating, kFinished };
  // Where the rows of a parked one are.
  struct Parked {
    std::string path;
    std::size_t n_rows = 0;  // 0: there is no file
  };

  Generation(Session& session, std::span<const TokenId> prompt, const GenerateOptions& options);
  bool ends_text(TokenId token) const;
  bool is_prompt(std::span<const TokenId> rows) const noexcept;
  bool deliver_prompt(bool is_first);
  Status damaged_logits() const;
  void sample();
  std::uint32_t sample_drafts(std::span<const TokenId> drafts);
  void share_answer();
  void drop_prompt();
  Status check_prompt() const;
  Status reserve_pages();
  void discard_parked();
  void remove_parked_file();
  void end(Status status);

  // With a prefix key, in prefix_cache.cc.

  // Begins an empty session with what the cache has of the prompt.
  void adopt_prefix();
  // Takes that back; nothing was computed since.
  void return_prefix();
  // Counts the look-up, once all is read that is to be read.
  void count_prefix();
  // Lets the session's leading rows into the cache.
  void share_prefix();

  Session& session_;
  GenerateOptions options_;
  std::vector<TokenId> prompt_;
  std::size_t n_prompt_done_ = 0;
  std::size_t prompt_start_ = 0;  // tokens of the session before the prompt
  std::uint32_t n_to_read_ = 0;   // pages of the prompt, from the folder of the prefix cache
  std::uint32_t n_read_ = 0;      // the same, so far
  PrefixPath read_path_;          // of the prompt before the next of them
  bool recomputes_last_ = false;  // the prompt is the session's last token
  bool begins_session_ = false;   // before it the session was empty
  Phase phase_ = Phase::kNew;
  Status status_;
  GenerateResult result_;
  std::optional<Parked> parked_;
  std::optional<Sampler> sampler_;
  std::vector<TokenId> drafted_;  // the pending token and its draft; capacity: the longest one
  std::optional<LogProbs> log_probs_;
  std::optional<PromptLogProbs> prompt_log_probs_;
  TextStream text_;
  PromptProgress progress_;
  std::atomic<bool> cancelled_{false};
  bool in_flight_ = false;
  bool released_ = false;  // to be freed at the end of its pass
  std::uint64_t started_ns_ = 0;
  std::uint64_t first_token_ns_ = 0;  // by the clock
};

}  // namespace qsf

#endif  // QSF_ENGINE_GENERATION_H_
