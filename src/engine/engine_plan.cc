// SPDX-License-Identifier: MIT
//
// The regions of a plan, and their cost for a context and for the rows of a pass.

#include "engine/engine_plan.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "base/check.h"
#include "engine/budget.h"
#include "engine/draft_model.h"
#include "engine/engine_impl.h"
#include "grammar/grammar_engine.h"
#include "kv/kv_policy.h"
#include "kv/prefix_folder.h"
#include "kv/prefix_tree.h"
#include "kv/spilled_kv_store.h"
#include "model/decoder.h"
#include "model/layer_cut.h"
#include "model/position_tables.h"
#include "model/sketched_head.h"
#include "platform/cpu_count.h"
#include "platform/threads.h"
#include "stream/weight_pager.h"

namespace qsf {
namespace {

constexpr std::uint32_t kDefaultContext = 4096;
// With rope_reindex only the memory of the tokens limits a text: 17 MB.
constexpr std::uint32_t kDefaultReindexedContext = 65536;
constexpr float kMaxAngle = 0x1p26F;  // of kernels/rope, up to which its angles are accurate
constexpr std::uint32_t kDefaultRowsPerPass = 512;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// Memory outside the arena that cannot be computed. Measured (decision 015); each is about twice
// the largest value seen.
constexpr std::uint64_t kMainStackBytes = 256 << 10;     // deepest: reading a chat template
constexpr std::uint64_t kHeapBytes = 2 * kMiB;           // expressions, templates, the line editor
constexpr std::uint64_t kHeapBytesPerPosition = 256;     // of a prompt: its text, pieces and tokens
constexpr std::uint64_t kKernelBytes = kMiB;             // tables of the process and of its files
constexpr std::uint64_t kKernelThreadBytes = 32 << 10;   // stack and tables of a thread
constexpr std::uint64_t kKernelQueueBytes = 64 << 10;    // rings and requests of a reading queue
constexpr std::uint64_t kChargeBatchBytes = 256 << 10;   // taken in advance by each CPU
constexpr std::uint64_t kMappedBytesOfATableByte = 512;  // 8 bytes for 4 KiB
// Regions begin at multiples of a line.
constexpr std::uint64_t kRounding = 64 * kRegionAlign;

[[gnu::format(printf, 1, 2)]] std::string printed(const char* format, ...) {
  char text[200];
  std::va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return text;
}

unsigned long long llu(std::uint64_t value) {
  return value;
}
double megabytes(std::uint64_t bytes) {
  return static_cast<double>(bytes) / 1e6;
}

class Planner {
 public:
  explicit Planner(const PlanInputs& inputs)
      : inputs_(inputs), options_(inputs.options), spec_(inputs.reader.spec()) {}

  Result<EnginePlan> run() {
    choose_budget();
    add_program();
    add_tokenizer();
    QSF_ASSIGN_OR_RETURN(const Residency whole, weights_for(UINT64_MAX));
    QSF_ASSIGN_OR_RETURN(const std::uint64_t table_bytes, most_table_bytes(whole));
    QSF_ASSIGN_OR_RETURN(const BudgetFit fit, choose(whole, table_bytes));
    plan_.max_context = fit.context;
    plan_.rows_per_pass = fit.rows;
    plan_.n_sequences = options_.n_sequences;
    plan_.n_kv_pages = n_kv_pages(fit.context, fit.rows);
    plan_.max_drafts = options_.max_drafts;
    plan_.max_row_delay = max_row_delay(options_.n_sequences, fit.rows,
                                        options_.attention == AttentionKind::kSymmetric);
    QSF_ASSIGN_OR_RETURN(plan_.residency,
                         weights_for(fit.everything_resident ? UINT64_MAX : fit.weight_bytes));
    add_weights();
    add_adapters();
    add_context();
    add_rows();
    plan_.memory.add_external("page_tables", plan_.memory.arena_bytes() / kMappedBytesOfATableByte,
                              "8 bytes for each page of the regions above");
    note_steps();
    note_draft_model();
    if (plan_.memory.total_bytes() > plan_.budget_bytes) {
      return internal_error("the plan takes %llu bytes of a budget of %llu",
                            llu(plan_.memory.total_bytes()), llu(plan_.budget_bytes));
    }
    return std::move(plan_);
  }

 private:
  std::uint32_t wished_context() const { return asked_context(options_, spec_); }
  std::uint32_t wished_rows() const {
    if (options_.rows_per_pass != 0) return std::min(options_.rows_per_pass, wished_context());
    // A prompt that attends to both sides is one pass.
    if (options_.attention == AttentionKind::kSymmetric) return wished_context();
    return std::min(kDefaultRowsPerPass, wished_context());
  }

  std::uint64_t wished_ring() const {
    return inputs_.reading.ring_bytes != 0 ? inputs_.reading.ring_bytes : kDefaultRingBytes;
  }

  void choose_budget() {
    const ProgramMemory& program = inputs_.machine.program;
    const MemoryLimits& limits = inputs_.machine.limits;
    const std::uint64_t own_bytes = program.anonymous_bytes + program.stack_bytes;
    plan_.budget_named = options_.ram_budget_bytes != 0;
    if (!plan_.budget_named) {
      plan_.budget_bytes = default_budget_bytes(limits, own_bytes);
      return;
    }
    plan_.budget_bytes = std::min(options_.ram_budget_bytes, limits.limit_bytes);
    const std::uint64_t asked = options_.ram_budget_bytes;
    if (asked > limits.limit_bytes && asked - limits.limit_bytes > kMiB) {
      plan_.steps.push_back(printed("budget: %.0f MB requested, but the limit is %.0f MB",
                                    megabytes(asked), megabytes(limits.limit_bytes)));
    }
    if (limits.headroom_bytes < plan_.budget_bytes &&
        limits.headroom_bytes + own_bytes + kMiB + program.file_bytes < plan_.budget_bytes) {
      plan_.steps.push_back(
          printed("budget: only %.0f MB are free now; other processes use part of this budget",
                  megabytes(limits.headroom_bytes)));
    }
  }

  // Memory of the process before the model is opened, and of its threads and the kernel.
  void add_program() {
    MemoryPlan& plan = plan_.memory;
    const ProgramMemory& program = inputs_.machine.program;
    const unsigned n_workers = inputs_.n_threads - 1;
    const DraftModel* const draft = inputs_.draft_model;
    const unsigned n_queues =
        inputs_.reading.n_queues + (spills() ? 1 : 0) + (draft != nullptr ? draft->n_queues() : 0);
    const std::uint64_t directories =
        inputs_.reader.heap_bytes() + (draft != nullptr ? draft->directory_bytes() : 0);
    plan.add_external("program", program.file_bytes,
                      "file pages of the executable and its libraries");
    plan.add_external("process",
                      program.anonymous_bytes - std::min(program.anonymous_bytes, directories) +
                          std::max(program.stack_bytes, kMainStackBytes),
                      "heap, data and stack of the process before the model");
    plan.add_external("thread_stacks", std::uint64_t{n_workers + n_queues} * thread_stack_bytes(),
                      printed("%u workers and %u readers, %zu bytes each", n_workers, n_queues,
                              thread_stack_bytes()));
    plan.add_external(
        "kernel",
        kKernelBytes + inputs_.machine.n_cpus * kChargeBatchBytes +
            (n_workers + n_queues) * kKernelThreadBytes + n_queues * kKernelQueueBytes,
        printed("tables of the process, and %u CPUs that take memory %llu bytes in advance",
                inputs_.machine.n_cpus, llu(kChargeBatchBytes)));
    for (const CallerMemory& memory : options_.caller_memory) {
      plan.add_external(memory.name, memory.bytes, memory.reason);
    }
  }

  void add_tokenizer() {
    const std::uint64_t section = inputs_.reader.tokenizer_bytes();
    if (section == 0 || !has_ends()) return;  // takes token ids alone
    grammar_bytes_ = GrammarEngine::region_bytes(options_.grammar, spec_.n_vocab);
    tokenizer_bytes_ = align_up(section, kRegionAlign) + inputs_.tokenizer_index_bytes;
  }

  Result<Residency> weights_for(std::uint64_t bytes) const {
    return WeightPager::plan(inputs_.reader, {.bytes = bytes,
                                              .n_queues = inputs_.reading.n_queues,
                                              .ring_bytes = inputs_.reading.ring_bytes,
                                              .mapped = inputs_.reading.mapped,
                                              .layers_alone = !has_ends()});
  }

  // Streaming needs further tables, more with a larger ring.
  Result<std::uint64_t> most_table_bytes(const Residency& whole) const {
    std::uint64_t most = whole.table_bytes;
    const std::uint64_t all = whole.region_bytes + whole.mapped_bytes;
    for (const std::uint64_t bytes :
         {whole.least_bytes, whole.least_bytes + wished_ring(), all - 1}) {
      if (bytes < whole.least_bytes || bytes >= all) continue;
      QSF_ASSIGN_OR_RETURN(const Residency streamed, weights_for(bytes));
      most = std::max(most, streamed.table_bytes);
    }
    return most;
  }

  std::vector<BufferShape> buffer_shapes(std::uint32_t rows) const {
    return Decoder::buffer_shapes(spec_, rows, decoder_options(options_, inputs_.adapters));
  }
  // Whether embedding and output head are used here.
  bool has_ends() const { return options_.cut == nullptr || options_.cut->has_ends; }
  std::uint64_t relayed_row_bytes(std::uint32_t rows) const {
    return options_.cut == nullptr ? 0 : std::uint64_t{rows} * spec_.hidden * sizeof(float);
  }
  bool windowed() const { return options_.kv_policy.policy != KvPolicy::kFull; }
  bool spills() const { return !options_.kv_spill_path.empty(); }
  std::uint32_t n_kv_pages(std::uint32_t context, std::uint32_t rows) const {
    return kv_limits(options_, context, rows).n_pages;
  }
  // In memory: the whole KV cache, or two layers of it.
  std::uint64_t kv_bytes(std::uint32_t context, std::uint32_t rows, bool spilled) const {
    const KvShape shape = kv_shape(spec_, options_);
    const std::uint32_t n_pages = n_kv_pages(context, rows);
    if (!spilled) return inputs_.backend.kv_bytes(shape, n_pages);
    return SpilledKvStore::region_bytes(shape, n_pages);
  }
  std::uint64_t spill_table_bytes(std::uint32_t context, std::uint32_t rows, bool spilled) const {
    return spilled ? SpilledKvStore::heap_bytes(n_kv_pages(context, rows)) : 0;
  }
  std::uint64_t sparse_prefill_bytes(std::uint32_t context) const {
    if (!sparse_prefill_limits(options_, context).has_value()) return 0;
    const std::uint64_t bytes =
        SparsePrefillState::region_bytes(sparse_prefill_shape(spec_, options_, context));
    return saturating_mul(align_up(bytes, kRegionAlign), options_.n_sequences);
  }
  std::uint64_t h2o_eviction_bytes(std::uint32_t context) const {
    if (options_.kv_policy.policy != KvPolicy::kH2o) return 0;
    const std::uint64_t bytes = H2oEviction::region_bytes(eviction_shape(spec_, options_, context));
    return saturating_mul(align_up(bytes, kRegionAlign), options_.n_sequences);
  }
  std::uint64_t state_bytes() const {
    return StateCache::region_bytes(state_shape(spec_), options_.n_sequences);
  }
  std::uint64_t prefix_cache_bytes(std::uint32_t context, std::uint32_t rows) const {
    if (!options_.prefix_cache) return 0;
    const std::uint64_t tree = PrefixTree::region_bytes(n_kv_pages(context, rows));
    return options_.prefix_folder.empty()
               ? tree
               : tree + PrefixFolder::region_bytes(options_.prefix_folder_bytes,
                                                   kv_shape(spec_, options_).page_bytes());
  }
  // Tokens of the sequences, and a prompt while it is encoded.
  std::uint64_t token_bytes(std::uint32_t context) const {
    return std::uint64_t{context} * options_.n_sequences * sizeof(TokenId) +
           std::uint64_t{context} * kHeapBytesPerPosition;
  }
  std::uint64_t scratch_bytes(std::uint32_t rows, std::uint32_t context) const {
    return inputs_.backend.scratch_bytes(pass_limits(spec_, options_, context, rows));
  }
  std::uint64_t expert_table_bytes() const {
    return std::uint64_t{spec_.n_layers} * spec_.n_experts * sizeof(ExpertWeights);
  }
  // A row for each sequence, which a step samples from.
  std::uint64_t sample_logit_bytes() const {
    return std::uint64_t{options_.n_sequences} * spec_.n_vocab * sizeof(float);
  }
  bool speculates() const { return options_.speculation != SpeculationKind::kOff; }
  std::uint64_t draft_logit_bytes() const {
    if (!speculates()) return 0;
    return std::uint64_t{options_.max_drafts} * spec_.n_vocab * sizeof(float);
  }
  std::uint64_t draft_text_bytes(std::uint32_t context) const {
    return speculates() ? Speculation::region_bytes(options_, context) : 0;
  }
  std::uint64_t draft_model_bytes(std::uint32_t context) const {
    return inputs_.draft_model == nullptr ? 0 : inputs_.draft_model->region_bytes(context);
  }
  std::uint64_t row_list_bytes(std::uint32_t rows) const {
    const std::uint64_t n_passes = options_.max_passes_in_flight;
    return rows * (n_passes * (sizeof(Row) + sizeof(PassOutput)) + sizeof(std::uint32_t)) +
           ExpertRows::heap_bytes(spec_, rows);
  }

  Result<BudgetFit> choose(const Residency& whole, std::uint64_t table_bytes) const {
    Result<BudgetFit> fit =
        fit_budget(costs_of(whole, table_bytes, spills()), wishes(), options_.budget_refusal);
    if (fit.has_value()) return fit;
    Status refusal = std::move(fit).error();
    if (would_fit_spilled(whole, table_bytes)) {
      refusal = out_of_budget("%s; it would fit with the KV cache in a file (kv_spill)",
                              refusal.message().c_str());
    }
    if (plan_.budget_named) return refusal;
    return std::move(refusal).with_context(
        "no budget was named, so it is the free memory of the machine");
  }

  bool would_fit_spilled(const Residency& whole, std::uint64_t table_bytes) const {
    if (spills()) return false;
    BudgetCosts costs = costs_of(whole, table_bytes, true);
    costs.base_bytes += thread_stack_bytes() + kKernelThreadBytes + kKernelQueueBytes;
    return fit_budget(costs, wishes()).has_value();
  }

  BudgetWishes wishes() const {
    return {.budget_bytes = plan_.budget_bytes,
            .context = wished_context(),
            .context_named = options_.max_context != 0,
            .rows = wished_rows()};
  }

  BudgetCosts costs_of(const Residency& whole, std::uint64_t table_bytes, bool spilled) const {
    BudgetCosts costs;
    costs.all_weight_bytes = whole.region_bytes + whole.mapped_bytes;
    costs.least_weight_bytes = std::min(whole.least_bytes, costs.all_weight_bytes);
    costs.ring_weight_bytes =
        std::min(costs.least_weight_bytes + wished_ring(), costs.all_weight_bytes);
    costs.base_bytes = plan_.memory.total_bytes() + kRounding + kHeapBytes + table_bytes +
                       inputs_.reader.heap_bytes() + expert_table_bytes() + sample_bytes() +
                       tokenizer_bytes_ + grammar_bytes_ + adapter_bytes() +
                       AdapterSet::heap_bytes(inputs_.adapters) + state_bytes();
    costs.base_bytes +=
        (adapter_bytes() + tokenizer_bytes_ + grammar_bytes_ + sample_bytes() + state_bytes()) /
        kMappedBytesOfATableByte;
    costs.context_bytes = [this](std::uint32_t context) {
      return saturating_add(
          token_bytes(context) + draft_text_bytes(context) + draft_model_bytes(context),
          saturating_add(sparse_prefill_bytes(context), h2o_eviction_bytes(context)));
    };
    // A KV window has room for the rows of a pass as well.
    costs.rows_bytes = [this, spilled](std::uint32_t rows, std::uint32_t context) {
      std::uint64_t bytes = saturating_add(
          kv_bytes(context, rows, spilled),
          spill_table_bytes(context, rows, spilled) + scratch_bytes(rows, context) +
              row_list_bytes(rows) + KvCache::region_bytes(kv_limits(options_, context, rows)) +
              align_up(relayed_row_bytes(rows), kRegionAlign) + prefix_cache_bytes(context, rows));
      for (const BufferShape& shape : buffer_shapes(rows)) {
        bytes = saturating_add(
            bytes,
            align_up(inputs_.backend.buffer_bytes(shape.n_rows, shape.n_cols), kRegionAlign));
      }
      return bytes;
    };
    return costs;
  }

  std::uint64_t adapter_bytes() const { return AdapterSet::region_bytes(inputs_.adapters); }

  std::uint64_t head_sketch_bytes() const {
    if (!has_sketched_head(inputs_.reader, options_)) return 0;
    return SketchedHead::region_bytes(inputs_.backend, spec_,
                                      *inputs_.reader.find_section(kHeadSketchSection));
  }
  std::uint64_t head_heap_bytes() const {
    return has_sketched_head(inputs_.reader, options_) ? SketchedHead::heap_bytes(spec_) : 0;
  }

  std::uint64_t sample_bytes() const {
    return head_sketch_bytes() + head_heap_bytes() + sample_logit_bytes() + draft_logit_bytes() +
           spec_.n_vocab * (sizeof(std::uint32_t) + sizeof(float));
  }

  // First in the arena, so that tiles begin at a page.
  void add_weights() {
    const Residency& r = plan_.residency;
    MemoryPlan& plan = plan_.memory;
    const std::string experts =
        r.expert_cache_bytes == 0
            ? ""
            : printed("; %u experts of %u come and go in %llu bytes", r.n_expert_slots, r.n_experts,
                      llu(r.expert_cache_bytes));
    plan_.regions.weights =
        plan.add("weights", r.region_bytes,
                 r.everything_resident
                     ? printed("every tile, ready for the kernels; norms and biases as f32")
                     : printed("%.1f %% of the tiles stay (%llu bytes), a ring of %llu bytes, "
                               "%llu to unpack, %llu of embedding rows",
                               100 * r.resident_share, llu(r.pinned_bytes), llu(r.ring_bytes),
                               llu(r.staging_bytes), llu(r.row_cache_bytes)) +
                           experts);
    if (r.mapped_bytes != 0) {
      plan.add_external("mapped_weights", r.mapped_bytes, "pages of the file that stay mapped");
    }
    plan.add_external("directories",
                      inputs_.reader.heap_bytes() + r.table_bytes + expert_table_bytes(),
                      "tensors and tiles of the file, and where each tile lies in memory");
    if (tokenizer_bytes_ != 0) {
      plan_.regions.tokenizer_section = plan.add("tokenizer", inputs_.reader.tokenizer_bytes(),
                                                 "vocabulary and merges as stored in the file");
      plan_.regions.tokenizer_index = plan.add("tokenizer_index", inputs_.tokenizer_index_bytes,
                                               "hash slots of vocabulary and merges");
    }
    if (grammar_bytes_ != 0) {
      plan_.regions.grammar =
          plan.add("grammar", grammar_bytes_,
                   printed("the vocabulary as a trie, masks of tokens, states of %u grammars",
                           options_.grammar.max_grammars));
    }
  }

  void add_adapters() {
    if (inputs_.adapters.empty()) return;
    std::uint64_t n_pairs = 0;
    for (const AdapterReader& adapter : inputs_.adapters) n_pairs += adapter.spec().pairs.size();
    plan_.regions.adapters = plan_.memory.add(
        "adapters", adapter_bytes(),
        printed("%zu adapters of %llu matrices", inputs_.adapters.size(), llu(n_pairs)));
    plan_.memory.add_external("adapter_tables", AdapterSet::heap_bytes(inputs_.adapters),
                              "which matrix an adapter changes");
  }

  void add_context() {
    MemoryPlan& plan = plan_.memory;
    const std::uint32_t context = plan_.max_context;
    const std::uint32_t rows = plan_.rows_per_pass;
    const KvLimits limits = kv_limits(options_, context, rows);
    plan_.regions.kv_tables = plan.add("kv_tables", KvCache::region_bytes(limits),
                                       "page tables and the position of every slot");
    const std::uint64_t bytes = kv_bytes(context, rows, spills());
    plan_.regions.kv_cache = plan.add("kv_cache", bytes, kv_note(limits, bytes));
    if (options_.prefix_cache) {
      plan_.regions.prefix_cache =
          plan.add("prefix_cache", prefix_cache_bytes(context, rows),
                   printed("tokens and keys of callers of up to %u pages%s", limits.n_pages,
                           options_.prefix_folder.empty() ? "" : ", and the files of a folder"));
    }
    if (sparse_prefill_bytes(context) != 0) {
      plan_.regions.sparse_prefill_state =
          plan.add("sparse_prefill_state", sparse_prefill_bytes(context),
                   printed("%u sequences: scores, memory sets and column sums of each layer and KV "
                           "head (h2o_scores, h2o_mem_idx, h2o_mem_acc, h2o_chunk_sum ...)",
                           options_.n_sequences));
    }
    if (h2o_eviction_bytes(context) != 0) {
      plan_.regions.h2o_eviction = plan.add(
          "h2o_eviction", h2o_eviction_bytes(context),
          printed("%u sequences: keys and values of the %u heaviest positions before the "
                  "window, %u sinks among them, and the attention they received, for each layer "
                  "and KV head",
                  options_.n_sequences, options_.kv_policy.heavy, options_.kv_policy.sinks));
    }
    if (state_bytes() != 0) {
      const StateShape shape = state_shape(spec_);
      plan_.regions.states = plan.add(
          "states", state_bytes(),
          printed("%u sequences: %u points to return to, %u layers of %u f32 each",
                  options_.n_sequences, StateCache::kBuffers, shape.n_layers, shape.layer_size));
    }
    plan.add_external(
        "heap", kHeapBytes + token_bytes(context) + spill_table_bytes(context, rows, spills()),
        "expressions of the tokenizer, the chat's template, prompts and tokens");
  }

  std::string kv_note(const KvLimits& limits, std::uint64_t bytes) const {
    const std::uint32_t kept = kv_pages_per_sequence(limits) * kKvPageSlots;
    const bool whole = !windowed() || kept >= plan_.max_context;
    const std::uint32_t most = whole ? plan_.max_context : kept;
    const std::uint64_t n_positions = std::uint64_t{limits.n_pages} * kKvPageSlots;
    const bool shared = n_positions < std::uint64_t{most} * options_.n_sequences;
    std::string note = spills() ? "two layers of " : "";
    if (shared) note += printed("%llu positions for ", llu(n_positions));
    note += printed("%u sequences of %s%u positions", options_.n_sequences,
                    shared || !whole ? "up to " : "", most);
    if (!whole) {
      note += ": ";
      if (limits.sinks != 0) note += printed("%u sinks, ", limits.sinks);
      note += printed("the last %u, a pass of %u and the rest of their pages",
                      options_.kv_policy.window, plan_.rows_per_pass);
    }
    if (spills()) return note + "; the rest is in the file";
    return note + printed(", %llu bytes each", llu(bytes / limits.n_pages / kKvPageSlots));
  }

  void add_rows() {
    MemoryPlan& plan = plan_.memory;
    const std::uint32_t rows = plan_.rows_per_pass;
    for (const BufferShape& shape : buffer_shapes(rows)) {
      plan_.regions.buffers.push_back(plan.add(
          "rows_" + std::string(shape.name),
          inputs_.backend.buffer_bytes(shape.n_rows, shape.n_cols),
          printed("%u rows of %u f32, padded to whole blocks", shape.n_rows, shape.n_cols)));
    }
    if (options_.cut != nullptr) {
      plan_.regions.relayed_rows = plan.add("relayed_rows", relayed_row_bytes(rows),
                                            "rows from and to the layers of other processes");
    }
    plan_.regions.backend_scratch =
        plan.add("scratch", scratch_bytes(rows, plan_.max_context),
                 "rotation angles, partial attention states, rows as int8 and bf16");
    if (has_sketched_head(inputs_.reader, options_)) {
      plan_.regions.head_sketch =
          plan.add("head_sketch", head_sketch_bytes(),
                   printed("a sketch of the output head, and bounds of the logits of %u rows",
                           SketchedHead::kMaxRows));
      plan.add_external("head_search", head_heap_bytes(), "which of its rows are read");
    }
    plan_.regions.sample_logits = plan.add("sample_logits", sample_logit_bytes(),
                                           "the logits that each sequence samples from");
    plan_.regions.sample_order =
        plan.add("sample_order", spec_.n_vocab * sizeof(std::uint32_t), "its candidates");
    plan_.regions.sample_kept = plan.add("sample_kept", spec_.n_vocab * sizeof(float),
                                         "logits as they were, for log probabilities");
    if (speculates()) {
      plan_.regions.draft_texts =
          plan.add("draft_texts", draft_text_bytes(plan_.max_context),
                   printed("%u sequences: where tokens occurred before%s", options_.n_sequences,
                           options_.prefix_cache ? "; answers to others" : ""));
      plan_.regions.draft_logits =
          plan.add("draft_logits", draft_logit_bytes(),
                   printed("the logits of %u drafted rows", options_.max_drafts));
    }
    plan.add_external("row_lists", row_list_bytes(rows), "the rows of a pass");
    add_draft_model();
  }

  void add_draft_model() {
    if (inputs_.draft_model == nullptr) return;
    MemoryPlan& plan = plan_.memory;
    for (const Region& region : inputs_.draft_model->regions(plan_.max_context)) {
      if (region.external) {
        plan.add_external(region.name, region.bytes, region.reason);
      } else {
        plan_.regions.draft_model.push_back(plan.add(region.name, region.bytes, region.reason));
      }
    }
  }

  // What the memory of a draft model would do for a model that is streamed.
  void note_draft_model() {
    const Residency& r = plan_.residency;
    const std::uint64_t bytes = draft_model_bytes(plan_.max_context);
    if (bytes == 0 || r.everything_resident) return;
    const Result<Residency> without = weights_for(r.limits.bytes + bytes);
    if (!without.has_value()) return;
    plan_.steps.push_back(printed(
        "draft model: takes %.1f MB; without it each pass would read %.1f MB of the file",
        megabytes(bytes), megabytes(without->streamed_bytes + without->expert_read_bytes())));
  }

  void note_steps() {
    std::vector<std::string>& steps = plan_.steps;
    const Residency& r = plan_.residency;
    if (plan_.rows_per_pass < std::min(wished_rows(), plan_.max_context)) {
      steps.push_back(printed(
          "rows per pass: %u instead of %u; a longer prompt %s", plan_.rows_per_pass, wished_rows(),
          options_.attention == AttentionKind::kSymmetric ? "is refused" : "takes more passes"));
    }
    if (!r.everything_resident && inputs_.reading.mapped) {
      steps.push_back(
          printed("weights: %.1f MB of the file may be in memory at once; the kernel "
                  "decides which",
                  megabytes(r.mapped_bytes)));
    } else if (!r.everything_resident) {
      steps.push_back(
          printed("weights: %.1f %% stay in memory; each pass reads %.1f MB of the file",
                  100 * r.resident_share, megabytes(r.streamed_bytes + r.expert_read_bytes())));
      if (r.n_experts != 0) {
        steps.push_back(
            spec_.expert_hits.empty()
                ? printed("experts: %.0f %% of a token's are in memory if any choice is as likely "
                          "as any other; texts return to the same ones and read less",
                          100 * r.expert_hits)
                : printed("experts: %.0f %% of a token's are expected in memory, as on the text of "
                          "the calibration",
                          100 * r.expert_hits));
      }
      if (r.ring_bytes < wished_ring() && r.ring_bytes < r.streamed_bytes) {
        steps.push_back(printed("ring: %.1f MB instead of %.1f MB; the disk may have to wait",
                                megabytes(r.ring_bytes), megabytes(wished_ring())));
      }
    }
    if (plan_.max_context < wished_context()) {
      steps.push_back(
          printed("context: %u positions instead of %u; name a context to get an error instead",
                  plan_.max_context, wished_context()));
    }
  }

  const PlanInputs& inputs_;
  const EngineOptions& options_;
  const ModelSpec& spec_;
  EnginePlan plan_;
  std::uint64_t tokenizer_bytes_ = 0;  // in the arena
  std::uint64_t grammar_bytes_ = 0;    // the same
};

}  // namespace

bool has_sketched_head(const QsfReader& reader, const EngineOptions& options) {
  return options.head_mode != HeadMode::kFull &&
         reader.find_section(kHeadSketchSection) != nullptr &&
         SketchedHead::why_unbounded(reader) == nullptr;
}

std::uint32_t most_positions(const EngineOptions& options, const ModelSpec& spec) {
  float fastest = 1.0F;  // radians a position
  for (const float f : rope_inverse_frequencies(spec, longest_distance(options, UINT32_MAX))) {
    fastest = std::max(fastest, f);
  }
  return static_cast<std::uint32_t>(kMaxAngle / fastest);
}

std::uint32_t asked_context(const EngineOptions& options, const ModelSpec& spec) {
  if (options.max_context != 0) return options.max_context;
  if (options.kv_policy.rope_reindex) {
    const std::uint32_t wished = std::max(spec.max_positions, kDefaultReindexedContext);
    return std::min(wished, most_positions(options, spec));
  }
  // Under a window the KV cache does not grow with the text.
  return options.kv_policy.policy != KvPolicy::kFull
             ? spec.max_positions
             : std::min(spec.max_positions, kDefaultContext);
}

double predicted_tokens_per_second(const EnginePlan& plan) noexcept {
  const Residency& residency = plan.residency;
  if (plan.memory_bytes_per_second <= 0) return 0.0;
  double seconds = static_cast<double>(residency.pass_bytes) / plan.memory_bytes_per_second;
  const std::uint64_t read_bytes = residency.streamed_bytes + residency.expert_read_bytes();
  if (read_bytes != 0) {
    if (plan.disk_bytes_per_second <= 0) return 0.0;
    // Reading and computing overlap.
    seconds = std::max(seconds, static_cast<double>(read_bytes) / plan.disk_bytes_per_second);
  }
  return seconds > 0 ? 1 / seconds : 0.0;
}

MachineFacts measure_machine() {
  return {.limits = read_memory_limits(""),
          .program = program_memory(),
          .n_cpus = static_cast<unsigned>(allowed_cpus().size())};
}

namespace {

// The pages of all sequences: those asked for, or all of one sequence and a reservation for each of
// the others. At least what one sequence can hold, at most what all can, but for a prefix cache.
std::uint32_t n_kv_pages(const EngineOptions& options, std::uint32_t pages_per_sequence) {
  const std::uint64_t most =
      options.prefix_cache ? UINT32_MAX : std::uint64_t{pages_per_sequence} * options.n_sequences;
  const std::uint64_t each = std::min(pages_per_sequence, kv_pages_for(kDefaultReserve));
  const std::uint64_t asked = options.kv_positions != 0
                                  ? std::max(kv_pages_for(options.kv_positions), pages_per_sequence)
                                  : pages_per_sequence + each * (options.n_sequences - 1);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>({asked, most, UINT32_MAX}));
}

}  // namespace

std::uint32_t max_row_delay(std::uint32_t n_sequences, std::uint32_t rows_per_pass,
                            bool whole_prompts) noexcept {
  const std::uint32_t n_generating = n_sequences - 1;  // beside at least one prompt
  if (n_generating == 0) return 0;
  if (rows_per_pass == 1 || whole_prompts) {  // every second pass is a prompt's
    return 2 * ((n_generating - 1) / rows_per_pass + 1) - 1;
  }
  const std::uint32_t n_decode = rows_per_pass - 1;
  return (n_generating - 1) / n_decode;
}

// The first row of a pass attends to the whole window before it, so the window and the pass are
// held at once.
KvLimits kv_limits(const EngineOptions& options, std::uint32_t max_context,
                   std::uint32_t rows_per_pass) {
  KvLimits limits = {.n_pages = 1, .max_sequences = options.n_sequences, .max_slots = max_context};
  switch (options.kv_policy.policy) {
    case KvPolicy::kFull: break;
    case KvPolicy::kWindow:
      limits.recent_slots = options.kv_policy.window + rows_per_pass;
      limits.sinks = options.kv_policy.sinks;
      break;
    case KvPolicy::kH2o:  // the window ends where the row's block begins
      limits.recent_slots = options.kv_policy.window + (kEvictionBlock - 1) + rows_per_pass;
      break;
  }
  limits.n_pages = n_kv_pages(options, kv_pages_per_sequence(limits));
  return limits;
}

std::optional<SparsePrefillLimits> sparse_prefill_limits(const EngineOptions& options,
                                                         std::uint32_t max_context) {
  const bool on = options.attention == AttentionKind::kSparsePrefill &&
                  sparse_prefill_is_on(options.sparse_prefill);
  if (!on || max_context <= options.sparse_prefill.chunk) return std::nullopt;
  return SparsePrefillLimits{options.sparse_prefill, options.k_type, options.v_type};
}

SparsePrefillShape sparse_prefill_shape(const ModelSpec& spec, const EngineOptions& options,
                                        std::uint32_t max_context) {
  return {.n_layers = spec.n_layers,
          .n_kv_heads = spec.n_kv_heads,
          .kv_size = max_context,
          .options = options.sparse_prefill};
}

H2oEvictionShape eviction_shape(const ModelSpec& spec, const EngineOptions& options,
                                std::uint32_t max_context) {
  return {.kv = kv_shape(spec, options),
          .kv_size = max_context,
          .options = options.kv_policy,
          .ranker = options.h2o_ranker};
}

std::uint32_t longest_distance(const EngineOptions& options, std::uint32_t max_context) noexcept {
  const KvPolicyOptions& policy = options.kv_policy;
  return policy.rope_reindex ? std::min(max_context, policy.sinks + policy.window) : max_context;
}

PassLimits pass_limits(const ModelSpec& spec, const EngineOptions& options,
                       std::uint32_t max_context, std::uint32_t rows_per_pass) {
  PassLimits limits = {
      .max_rows = rows_per_pass,
      .max_decode_rows = std::min(options.n_sequences + options.max_drafts, rows_per_pass),
      .max_context = max_context,
      .n_heads = spec.n_heads,
      .n_kv_heads = spec.n_kv_heads,
      .head_dim = spec.head_dim,
      .heads_by_layer = spec.layer_heads,
      .rope_dims = spec.positions == PositionEncoding::kRope ? spec.rope_dims() : 0,
      .n_rotations = local_rope_inverse_frequencies(spec).empty() ? 1U : 2U,
      .max_cols = Decoder::max_product_cols(spec),
      .keys_are_values = spec.has_latent(),
      .sparse_prefill = sparse_prefill_limits(options, max_context)};
  if (options.max_drafts != 0) {
    limits.drafts = {options.max_drafts, options.k_type, kv_shape(spec, options).v_type};
  }
  if (options.kv_policy.policy == KvPolicy::kWindow) {
    limits.window = options.kv_policy.window;
    limits.sinks = options.kv_policy.sinks;
    limits.rope_reindex = options.kv_policy.rope_reindex;
  }
  if (options.kv_policy.policy == KvPolicy::kH2o) {
    const H2oEvictionShape shape = eviction_shape(spec, options, max_context);
    limits.h2o_eviction = {.n_slots = shape.n_slots(),
                           .n_recent = shape.n_recent(),
                           .k_type = options.k_type,
                           .v_type = options.v_type};
  }
  return limits;
}

Result<EnginePlan> plan_engine(const PlanInputs& inputs) {
  return Planner(inputs).run();
}

}  // namespace qsf
