// SPDX-License-Identifier: MIT
//
// DraftModel: a second, smaller model of the same vocabulary that drafts tokens for the first, or a
// block of that model for multi-token prediction.
//
// It computes the text as the model does, with weights, keys and values of its own, and draws each
// token with the options and the random number that the model will draw it with. What it drafts is
// checked like any draft (speculation.h), so nothing here can change a text.
//
// Its keys and values follow the text lazily. Before it drafts, the rows that the text no longer
// has are dropped, and missing ones are computed: those of the prompt as prompt rows, the answer's
// and the few before the prompt as generated ones, as the model had them. So sessions that are
// read, parked or cut need no call, and a model that drafts for itself draws what it will draw.
//
// A block is fed with the model's rows instead (take_row()), which are kept for a while
// (hidden_rows.h): row i, with the token behind it, is row i of the block. What it drafts further
// is of its own rows, whose keys and values are dropped again. Where rows of the model are missing,
// behind a session that was read or a prompt that others have computed, its own begin anew: drafts
// are worse until it has seen enough of the text.
//
// All weights are resident. All large memory is planned with that of the engine (regions()), and
// threads are the engine's. A draft allocates nothing.
//
// Threads  one at a time

#ifndef QSF_ENGINE_DRAFT_MODEL_H_
#define QSF_ENGINE_DRAFT_MODEL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "draft/row_times.h"
#include "engine/engine.h"
#include "engine/hidden_rows.h"
#include "format/qsf_reader.h"
#include "io/read_device.h"
#include "kv/kv_cache.h"
#include "kv/kv_page_store.h"
#include "memory/arena.h"
#include "memory/memory_plan.h"
#include "model/decoder.h"
#include "ops/backend.h"
#include "platform/threads.h"
#include "stream/weight_pager.h"

namespace qsf {

// The text that a draft follows.
struct DraftText {
  std::span<const TokenId> tokens;
  TokenId last = 0;  // behind them
  // The newest prompt is tokens [prompt_begin, prompt_end).
  std::uint32_t prompt_begin = 0;
  std::uint32_t prompt_end = 0;
  std::uint32_t n_left = 1;  // that will be generated at most
};

// Who a draft is for.
struct DraftCalls {
  // Draws the token behind `history` from the logits, which it may change; kNoToken ends the draft.
  // Shapes  logits [the model's vocabulary]
  FunctionRef<TokenId(std::span<float> logits, std::span<const TokenId> history)> draw;
  FunctionRef<bool()> is_cancelled;
};

// What a draft is expected to take.
struct DraftTimes {
  std::uint64_t follow_ns = 0;  // rows beyond the first two that the text is ahead, once
  std::uint64_t first_ns = 0;   // the first token
  std::uint64_t next_ns = 0;    // each further one
};

class DraftModel {
 public:
  // Opens and checks a file. Reads no weight.
  // Requires  `threads` outlives it; options.max_drafts > 0
  // Fails     as Engine::open; kUnsupported for a model whose rows cannot be taken back or that
  //           generates no text. The message begins with the path
  static Result<std::unique_ptr<DraftModel>> open(const EngineOptions& options,
                                                  const ModelSpec& model, ThreadPool& threads);
  ~DraftModel();
  DraftModel(const DraftModel&) = delete;
  DraftModel& operator=(const DraftModel&) = delete;

  // Compares both vocabularies, token by token, in memory that is given back.
  // Fails  kInvalidArgument with the first token that differs; kUnsupported without a tokenizer;
  //        kOutOfBudget where it would take more than most_bytes; as QsfReader::read_section
  Status check_vocabulary(const QsfReader& model, std::uint64_t most_bytes) const;

  // The regions for a context, those of the arena in the order in which load() wants them.
  std::vector<Region> regions(std::uint32_t max_context) const;
  // The sum of their bytes, as a plan counts them.
  std::uint64_t region_bytes(std::uint32_t max_context) const;
  std::uint64_t weight_bytes() const noexcept { return residency_.region_bytes; }
  std::size_t directory_bytes() const noexcept { return reader_->heap_bytes(); }
  unsigned n_queues() const noexcept { return device_->n_queues(); }

  // Reads the weights. Requires  the regions of the arena, in order; once; all outlive it
  // Fails     kCorrupt or kIo from the file; kCancelled
  Status load(std::uint32_t max_context, Arena& arena, std::span<const RegionId> regions,
              const std::atomic<bool>& cancel);

  // A session begins. Its rows are kept for a generation of the same key, those of a block are not.
  void begin(SequenceId sequence) noexcept;
  // Sequences of a key share the rows of texts that begin alike; null: with nobody.
  void set_key(SequenceId sequence, const std::string* key);
  // A sequence begins as a copy of another.
  void share(SequenceId from, SequenceId to) noexcept;

  // Whether it is fed with rows of the model.
  bool takes_rows() const noexcept { return hidden_.has_value(); }
  // Takes row i of a pass of the model behind its final norm, every row of a pass in order.
  // Requires  takes_rows(); the pass is complete
  void take_row(std::span<const Row> rows, std::uint32_t i, std::span<const float> values) noexcept;

  // Whether it can draft behind a text: there is room, every token has a row, and a block has the
  // model's row of the last token but one.
  bool follows(SequenceId sequence, const DraftText& text) const noexcept;
  // Requires  follows()
  DraftTimes times_of(SequenceId sequence, const DraftText& text) noexcept;
  // Writes a draft and returns its number of tokens: fewer than draft.size() where the context or
  // the text ends, none where pages are missing or it is cancelled.
  // Requires  follows(); draft.size() is at most EngineOptions::max_drafts
  std::uint32_t draft(SequenceId sequence, const DraftText& text, const DraftCalls& calls,
                      std::span<TokenId> draft) noexcept;

  // For tests: rows in the KV cache, and those that were ever computed.
  std::uint32_t n_rows(SequenceId sequence) const noexcept { return kv_->n_slots(sequence); }
  std::uint64_t n_computed() const noexcept { return n_computed_; }

 private:
  struct Sequence {
    std::string key;
    bool is_new = true;
    std::uint64_t last_use = 0;
    std::uint32_t first_position = 0;  // of a block: that of the model's row in its first one
  };

  DraftModel(const EngineOptions& options, std::uint32_t n_vocab);
  Status open_file(ThreadPool& threads);
  std::uint32_t rows_per_pass() const noexcept;
  std::uint32_t context_for(std::uint32_t max_context) const noexcept;
  std::uint64_t hidden_bytes(std::uint32_t n_rows, std::uint32_t n_cols) const noexcept;
  static void keep_last_row(std::uint32_t row, std::span<const float> values, void* user);
  Status make_decoder(Arena& arena, std::span<const RegionId> regions);
  std::span<TokenId> tokens_of(SequenceId sequence) const noexcept {
    return tokens_.subspan(std::size_t{sequence} * context_, context_);
  }
  std::uint32_t n_common(SequenceId sequence, const DraftText& text) const noexcept;
  RowRole role_of(const DraftText& text, std::uint32_t row, std::uint32_t& n_rows) const noexcept;
  void truncate(SequenceId sequence, std::uint32_t n_rows) noexcept;
  void take_from_others(SequenceId sequence, const DraftText& text) noexcept;
  void take(SequenceId from, SequenceId to, std::uint32_t n_rows) noexcept;
  bool follow(SequenceId sequence, const DraftText& text, const DraftCalls& calls) noexcept;
  bool follow_rows(SequenceId sequence, const DraftText& text, const DraftCalls& calls) noexcept;
  std::uint32_t next_position(SequenceId sequence) const noexcept {
    return sequences_[sequence].first_position + kv_->n_slots(sequence);
  }
  std::uint32_t first_missing(SequenceId sequence) noexcept;
  void keep_before(SequenceId sequence, std::uint32_t position) noexcept;
  void compute_known(SequenceId sequence) noexcept;
  std::uint32_t draw(SequenceId sequence, std::uint32_t n_text, const DraftCalls& calls,
                     std::span<TokenId> draft) noexcept;
  bool find_pages(SequenceId sequence, std::uint32_t n_rows) noexcept;
  bool run(SequenceId sequence, std::uint32_t n_rows, RowRole role, bool wants_logits,
           std::span<const float> hidden = {}) noexcept;

  // In the order of construction: each member may use those above it.
  EngineOptions options_;  // the engine's, as far as they hold for this model
  std::uint32_t n_vocab_;  // of the model
  std::uint32_t context_ = 0;
  std::optional<QsfReader> reader_;
  std::optional<ReadDevice> device_;
  Residency residency_;
  const std::atomic<bool>* cancel_ = nullptr;
  std::unique_ptr<WeightPager> pager_;
  std::optional<KvCache> kv_;
  std::unique_ptr<KvPageStore> kv_store_;
  std::unique_ptr<Backend> backend_;
  std::optional<Decoder> decoder_;

  std::vector<Sequence> sequences_;
  std::uint64_t n_uses_ = 0;
  std::vector<Row> rows_;  // of a pass
  // [n_sequences][context], of the rows in the KV cache; of a block those of the text, as far as
  // they were seen
  std::span<TokenId> tokens_;
  std::optional<HiddenRows> hidden_;  // with a block alone
  std::span<float> drafted_row_;      // [hidden], of a block: its newest row behind its last norm
  std::span<float> logits_;           // [the model's vocabulary]
  RowTimes times_;                    // of generated rows
  double prompt_row_ns_ = 0.0;        // 0: not measured
  std::uint64_t n_computed_ = 0;
  bool failed_ = false;
};

}  // namespace qsf

#endif  // QSF_ENGINE_DRAFT_MODEL_H_
