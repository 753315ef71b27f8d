// SPDX-License-Identifier: MIT
//
// The parts of an engine, shared by the files of engine/ alone.

#ifndef QSF_ENGINE_ENGINE_IMPL_H_
#define QSF_ENGINE_ENGINE_IMPL_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/budget.h"
#include "engine/draft_model.h"
#include "engine/engine.h"
#include "engine/engine_plan.h"
#include "engine/pass.h"
#include "engine/speculation.h"
#include "engine/tokenizer_texts.h"
#include "format/adapter_reader.h"
#include "format/qsf_reader.h"
#include "grammar/grammar_engine.h"
#include "io/read_device.h"
#include "kv/h2o_eviction.h"
#include "kv/kv_cache.h"
#include "kv/kv_page_store.h"
#include "kv/prefix_folder.h"
#include "kv/prefix_tree.h"
#include "kv/sparse_prefill_state.h"
#include "kv/spilled_kv_store.h"
#include "kv/state_cache.h"
#include "memory/arena.h"
#include "model/adapter_set.h"
#include "model/decoder.h"
#include "model/sketched_head.h"
#include "ops/backend.h"
#include "platform/threads.h"
#include "stream/weight_pager.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

// In the order of construction: each member may use those above it.
struct Engine::Impl {
  EngineOptions options;
  EnginePlan plan;
  std::uint32_t max_context = 0;    // of the plan
  std::uint32_t rows_per_pass = 0;  // of the plan
  std::atomic<bool> cancel{false};
  EngineStats stats;

  std::optional<QsfReader> reader;
  std::unique_ptr<ThreadPool> threads;
  std::optional<Arena> arena;
  std::optional<Tokenizer> tokenizer;
  std::optional<TokenizerTexts> grammar_texts;
  std::unique_ptr<GrammarEngine> grammars;    // null without grammars
  std::vector<AdapterReader> adapter_files;   // until they are loaded
  std::vector<AdapterInfo> adapters;          // of EngineOptions::adapters
  AdapterSet adapter_set;                     // the same
  std::vector<AdapterUse> sequence_adapters;  // by SequenceId
  std::optional<ReadDevice> device;
  std::unique_ptr<WeightPager> pager;
  std::optional<KvCache> kv;
  std::unique_ptr<KvPageStore> kv_store;
  SpilledKvStore* spilled = nullptr;  // kv_store, when the KV cache is in a file
  std::unique_ptr<Backend> backend;
  std::vector<SparsePrefillState> sparse_prefill;  // by SequenceId; empty without sparse prefill
  std::vector<H2oEviction> h2o_eviction;           // by SequenceId; empty without KvPolicy::kH2o
  std::optional<StateCache> states;                // of a model with layers that have one
  std::unique_ptr<PrefixFolder> prefix_folder;     // with EngineOptions::prefix_folder
  std::optional<PrefixTree> prefix_tree;           // with EngineOptions::prefix_cache
  bool ignores_prefix_keys = false;  // asked for a prefix cache that this model cannot have
  // By SequenceId; how many rows, from the first, may enter the prefix cache: prompt rows, whose
  // bits follow from the tokens alone. Rows read from a file may be of any role.
  std::vector<std::uint32_t> n_shareable;
  std::uint64_t n_continued = 0;  // PrefixCacheStats
  std::uint64_t n_folder_hits = 0;
  std::uint64_t n_folder_hit_tokens = 0;
  std::optional<Decoder> decoder;
  std::optional<SketchedHead> head;  // with EngineOptions::head_mode and a sketch
  std::optional<BudgetWatch> watch;

  std::vector<PassInFlight> passes;     // [EngineOptions::max_passes_in_flight]
  std::vector<SequenceChange> changes;  // since the last pass began, where they are recorded
  PassId last_pass = 0;
  std::size_t next_to_generate = 0;         // the member whose turn it is, where rows are too few
  bool prompt_has_turn = false;             // in passes of one row
  bool running = false;                     // a pass is computed or committed
  std::span<float> sample_logits;           // [n_sequences][n_vocab]
  std::span<std::uint32_t> sample_order;    // [n_vocab]
  std::span<float> sample_kept;             // [n_vocab], of LogProbs
  std::unique_ptr<DraftModel> draft_model;  // with EngineOptions::draft_model_path
  std::optional<Speculation> speculation;   // with EngineOptions::speculation

  // Appends tokens to a sequence as rows of one role, in as many passes as they take. Rows whose
  // index in `tokens` is at least `first_output` send logits to `sink`, numbered from 0 in each
  // pass.
  // Fails  as Session::prefill. The sequence then has its old length, or that of the last complete
  //        pass where it cannot be truncated to that
  Status append(SequenceId sequence, std::span<const TokenId> tokens, RowRole role,
                std::size_t first_output, LogitsSink* sink, PromptProgress* progress = nullptr);

  // Takes an empty pass that is not in flight, and numbers it.
  // Fails  kInvalidArgument: all are in flight, or a callback of a pass asks
  Result<PassInFlight*> take_pass();
  // Null when there is none.
  PassInFlight* find_pass(PassId id) noexcept;
  // Adds the rows of one sequence to a pass: they get slots in the KV cache.
  // Requires  a sequence without rows in a pass in flight, prompt rows before others; at most
  //           rows_per_pass rows in all
  // Fails     kOutOfBudget without pages; nothing has changed then
  Status add_part(PassInFlight& pass, PassPart part);
  // Computes a pass.
  // Guarantees  on failure every sequence has its length from before the pass
  // Fails       kCancelled; kCorrupt or kIo from the pager
  Status run_pass(PassInFlight& pass);
  // All of these: a pass of these parts alone.
  // Fails  as each of them; the sequences have their lengths from before the pass then
  Status run_parts(std::span<const PassPart> parts);
  // Computes a pass whose parts were added with `added`, or takes them back, and clears it.
  Status finish_parts(PassInFlight& pass, Status added);
  // Takes the rows of a pass out of the KV cache.
  void take_back(const PassInFlight& pass) noexcept;

  // A step, in step.cc.
  Result<PassId> begin_step(std::span<Generation* const> members, StepOptions bounds = {});
  Result<StepCounts> end_step(PassId id);
  Result<StepCounts> step(std::span<Generation* const> members, StepOptions bounds = {});
  // Computes the pass of another engine (pass_executor.cc).
  Status execute(const PassMessage& message, LogitsSink* sink);

  KvPageCounts kv_pages() const noexcept {
    return {kv->limits().n_pages, kv->n_free_pages(), kv->n_unreserved_pages()};
  }

  // Of the prefix cache, in prefix_cache.cc.
  PrefixCacheStats prefix_stats() const noexcept;
  Status check_prefix_key(const std::optional<std::string>& key) const;

  // Of adapters, in adapters.cc.
  Status open_adapters();
  Status load_adapters(MutableByteSpan region);
  Status check_adapter(AdapterUse use) const;
  // Makes a prefix key that of the adapter alone.
  void add_adapter_to_key(SequenceId sequence, std::string& key) const;
  // Reads pages of the members' prompts back from the folder, as many as one pass may.
  void read_prefixes(PassInFlight& pass);

  // Appends a pass of prompt rows to layers [first, last) of a sequence, as Decoder::run_part.
  Status run_part(SequenceId sequence, std::span<const TokenId> tokens, std::uint32_t first,
                  std::uint32_t last, std::span<float> hidden, LogitsSink* sink);

  // Appends a pass of prompt rows, as Decoder::run_to_norm.
  Status run_to_norm(SequenceId sequence, std::span<const TokenId> tokens, const NormedRows& to);

  // Returns the most slots, n_slots at most, that a sequence can be truncated to: all slots that
  // the next row attends to must be held.
  std::uint32_t longest_kept(SequenceId sequence, std::uint32_t n_slots) const noexcept;
  // Drops the slots from n_slots on, and the slots before them that have to be computed again
  // (SparsePrefillState::truncate, H2oEviction::truncate).
  void truncate(SequenceId sequence, std::uint32_t n_slots) noexcept;

  // Lets a sequence return to its present length, whatever passes follow, until a later call.
  void keep_length(SequenceId sequence) noexcept;
  // Makes a sequence of the rows of another.
  Result<SequenceId> fork(SequenceId origin);

  // Appends to `positions` the slots that the next prompt row of a sequence attends to, in one
  // layer and KV head; ascending.
  void add_visible(SequenceId sequence, std::uint32_t layer, std::uint32_t kv_head,
                   std::vector<std::uint32_t>& positions) const;

  // Returns how many ids may be sampled. Embeddings are padded with rows without a token; an
  // end-of-text id that the tokenizer does not list still ends the text.
  std::uint32_t n_drawable() const noexcept;
  // Requires  a tokenizer
  std::vector<TokenId> end_of_text_ids() const;

  FileOps& file_ops() const noexcept {
    return options.file_ops != nullptr ? *options.file_ops : system_file_ops();
  }

  // Keeps what became of a sequence for the next message, where messages are recorded.
  void record(SequenceChange::Kind kind, SequenceId sequence, std::uint32_t value = 0);

  // Whether the rows of a prompt attend to later ones, so that all are rows of one pass.
  bool prompts_are_whole() const noexcept { return options.attention == AttentionKind::kSymmetric; }
  // Fails  kUnsupported for a model without a head of its own
  Status check_generates() const;
  // Fails  kOutOfBudget when a prompt has to be a pass and has more rows
  Status check_pass_of(std::size_t n_prompt_rows) const;
  // Fails  kUnsupported with EngineOptions::cut
  Status check_whole(const char* what) const;
  // Fails  as EngineOptions::pass_hook
  Status announce(const PassInFlight& pass);

  // Returns whether cancel() was called, and resets that.
  bool take_cancel() noexcept;

 private:
  // Appends a pass of prompt rows that `run` computes, with all logits for a sink.
  template <typename Run>
  Status run_alone(SequenceId sequence, std::span<const TokenId> tokens, LogitsSink* sink, Run run);
  // Gives weights back when the memory limit of the process was lowered.
  void keep_within_limits();
  // The slots that a row attends to. A part of prompt rows ends before slot `end`.
  VisibleSet visible_at(std::uint32_t slot, RowRole role, std::uint32_t end) const noexcept;
  void plan_pass(PassInFlight& pass, StepOptions bounds);
  Status compute(PassInFlight& pass);
  bool plan_part(PassInFlight& pass, Generation& member, const NextRows& next, std::size_t n_rows);
  std::size_t plan_prompts(PassInFlight& pass, std::size_t n_rows);
  void plan_generated(PassInFlight& pass, std::size_t n_rows, std::size_t n_drafts);
  void retire(Generation& member, StepCounts& counts);
  void begin_states(const PassInFlight& pass) noexcept;
  void commit_states(const PassInFlight& pass) noexcept;
  void count_work(std::span<const PassPart> parts, bool done, std::uint64_t elapsed_ns);
  Status apply(const SequenceChange& change);
};

}  // namespace qsf

#endif  // QSF_ENGINE_ENGINE_IMPL_H_
