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
#include "engine/engine.h"
#include "engine/engine_plan.h"
#include "format/qsf_reader.h"
#include "io/read_device.h"
#include "kv/h2o_eviction.h"
#include "kv/kv_cache.h"
#include "kv/kv_page_store.h"
#include "kv/sparse_prefill_state.h"
#include "kv/spilled_kv_store.h"
#include "memory/arena.h"
#include "model/decoder.h"
#include "ops/backend.h"
#include "platform/threads.h"
#include "stream/weight_pager.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

// Progress of a prompt, in rows times layers.
struct PromptProgress {
  void (*report)(std::uint64_t done, std::uint64_t total, void* user) = nullptr;
  void* user = nullptr;
  std::uint64_t total_rows = 0;
  std::uint64_t done_rows = 0;  // of completed passes
  std::uint64_t pass_rows = 0;
  std::uint64_t n_layers = 0;
};

// Where the logits of one row of a pass go.
struct PassOutput {
  LogitsSink* sink = nullptr;
  std::uint32_t row = 0;  // its number there
};

// The rows that one sequence has in a pass.
struct PassPart {
  SequenceId sequence = 0;
  std::span<const TokenId> tokens;
  RowRole role = RowRole::kPrompt;
  std::size_t first_output = 0;  // rows of `tokens` from here on send logits to `sink`
  LogitsSink* sink = nullptr;    // rows are numbered from 0 in each part; may be null
  PromptProgress* progress = nullptr;
  std::uint32_t before = 0;  // slots of the sequence before the pass; run_pass() fills it in
};

// The rows that a generation needs next.
struct NextRows {
  std::span<const TokenId> tokens;
  RowRole role = RowRole::kPrompt;
  bool wants_output = false;  // of the last row
};

// A member of a step and what its pass computes for it.
struct Planned {
  Generation* member = nullptr;
  NextRows rows;
};

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
  std::optional<ReadDevice> device;
  std::unique_ptr<WeightPager> pager;
  std::optional<KvCache> kv;
  std::unique_ptr<KvPageStore> kv_store;
  SpilledKvStore* spilled = nullptr;  // kv_store, when the KV cache is in a file
  std::unique_ptr<Backend> backend;
  std::vector<SparsePrefillState> sparse_prefill;  // by SequenceId; empty without sparse prefill
  std::vector<H2oEviction> h2o_eviction;           // by SequenceId; empty without KvPolicy::kH2o
  std::optional<Decoder> decoder;
  std::optional<BudgetWatch> watch;

  std::vector<Row> rows;                  // [rows_per_pass], of the pass in progress
  std::vector<PassOutput> outputs;        // [rows_per_pass], of its rows with logits
  std::vector<PassPart> parts;            // [n_sequences], of the step in progress
  std::vector<Planned> planned;           // [n_sequences], of the same
  std::size_t next_to_generate = 0;       // the member whose turn it is, where rows are too few
  bool prompt_has_turn = false;           // in passes of one row
  bool in_step = false;                   // from the start of a step to its end
  std::span<float> sample_logits;         // [n_sequences][n_vocab]
  std::span<std::uint32_t> sample_order;  // [n_vocab]

  // Appends tokens to a sequence as rows of one role, in as many passes as they take. Rows whose
  // index in `tokens` is at least `first_output` send logits to `sink`, numbered from 0 in each
  // pass.
  // Fails  as Session::prefill. The sequence then has its old length, or that of the last complete
  //        pass where it cannot be truncated to that
  Status append(SequenceId sequence, std::span<const TokenId> tokens, RowRole role,
                std::size_t first_output, LogitsSink* sink, PromptProgress* progress = nullptr);

  // Runs one pass with the rows of several sequences, and makes them part of these sequences.
  // Requires    members of different sequences, prompt rows before others; at most rows_per_pass
  // rows Guarantees  on failure every sequence has its length from before the pass Fails
  // kCancelled; kOutOfBudget without pages; kCorrupt or kIo from the pager
  Status run_pass(std::span<PassPart> members);

  // Runs the next pass of generations (step.cc).
  Result<StepCounts> step(std::span<Generation* const> members);

  // Appends a pass of prompt rows to layers [first, last) of a sequence, as Decoder::run_part.
  Status run_part(SequenceId sequence, std::span<const TokenId> tokens, std::uint32_t first,
                  std::uint32_t last, std::span<float> hidden);

  // Returns the most slots, n_slots at most, that a sequence can be truncated to: all slots that
  // the next row attends to must be held.
  std::uint32_t longest_kept(SequenceId sequence, std::uint32_t n_slots) const noexcept;
  // Drops the slots from n_slots on, and the slots before them that have to be computed again
  // (SparsePrefillState::truncate, H2oEviction::truncate).
  void truncate(SequenceId sequence, std::uint32_t n_slots) noexcept;

  // Appends to `positions` the slots that the next prompt row of a sequence attends to, in one
  // layer and KV head; ascending.
  void add_visible(SequenceId sequence, std::uint32_t layer, std::uint32_t kv_head,
                   std::vector<std::uint32_t>& positions) const;

  // Returns how many ids may be sampled. Embeddings are padded with rows without a token; an
  // end-of-text id that the tokenizer does not list still ends the text.
  std::uint32_t n_drawable() const noexcept;

  // Returns whether cancel() was called, and resets that.
  bool take_cancel() noexcept;

 private:
  // Gives weights back when the memory limit of the process was lowered.
  void keep_within_limits();
  VisibleSet visible_at(std::uint32_t slot) const noexcept;
  Result<StepCounts> step_members(std::span<Generation* const> members);
  std::size_t plan_rows(std::span<Generation* const> members, RowRole role, std::size_t n_rows);
  void count_work(std::span<const PassPart> pass, bool done, std::uint64_t elapsed_ns);
  // Makes room in the KV cache for the rows of a part, and adds them to `rows` and `outputs`.
  Status add_rows(PassPart& part);
};

}  // namespace qsf

#endif  // QSF_ENGINE_ENGINE_IMPL_H_
