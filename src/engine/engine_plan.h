// SPDX-License-Identifier: MIT
//
// The memory plan of an engine: every region of memory that it will take, before it takes any.
//
// A plan follows from the file's directories, the options, and facts about machine and disk. It
// starts nothing and reads no weight; Engine::open and Engine::plan_file make the same plan.
// docs/decisions/015-memory-plan.md has the order in which a budget is spent, and how the regions
// outside the arena were measured.

#ifndef QSF_ENGINE_ENGINE_PLAN_H_
#define QSF_ENGINE_ENGINE_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "format/adapter_reader.h"
#include "format/qsf_reader.h"
#include "kv/h2o_eviction.h"
#include "kv/kv_cache.h"
#include "kv/state_cache.h"
#include "memory/memory_plan.h"
#include "model/decoder.h"
#include "ops/backend.h"
#include "platform/memory_limits.h"
#include "stream/residency.h"

namespace qsf {

// Facts about the machine and this process.
struct MachineFacts {
  MemoryLimits limits;
  ProgramMemory program;
  unsigned n_cpus = 1;  // available to the process
};
// Threads  any
MachineFacts measure_machine();

// Facts about how the file is read.
struct ReadingFacts {
  unsigned n_queues = 1;         // reading threads
  std::uint64_t ring_bytes = 0;  // for the disk's full rate; 0: the pager's default
  bool mapped = false;
};

class DraftModel;  // draft_model.h

struct PlanInputs {
  const QsfReader& reader;
  const Backend& backend;
  const EngineOptions& options;
  unsigned n_threads = 1;
  std::span<const AdapterReader> adapters = {};
  std::uint64_t tokenizer_index_bytes = 0;
  MachineFacts machine;
  ReadingFacts reading;
  const DraftModel* draft_model = nullptr;  // null: none
};

// The regions of the arena, by content.
struct PlanRegions {
  RegionId weights;
  RegionId tokenizer_section;
  RegionId tokenizer_index;
  RegionId grammar;   // only with EngineOptions::grammar
  RegionId adapters;  // only with EngineOptions::adapters
  RegionId kv_tables;
  RegionId kv_cache;
  RegionId prefix_cache;          // only with EngineOptions::prefix_cache
  RegionId sparse_prefill_state;  // only with sparse_prefill_limits()
  RegionId h2o_eviction;          // only with KvPolicy::kH2o
  RegionId states;                // only of a model with layers that have one
  std::vector<RegionId> buffers;  // as Decoder::buffer_shapes
  RegionId relayed_rows;          // only with EngineOptions::cut
  RegionId backend_scratch;
  RegionId head_sketch;  // only with has_sketched_head()
  RegionId sample_logits;
  RegionId sample_order;
  RegionId sample_kept;
  RegionId draft_texts;  // only with EngineOptions::speculation, as the next
  RegionId draft_logits;
  std::vector<RegionId> draft_model;  // those of the arena, as DraftModel::regions
};

struct EnginePlan {
  MemoryPlan memory;
  PlanRegions regions;
  std::uint64_t budget_bytes = kNoMemoryLimit;  // planned for
  bool budget_named = false;                    // by the options, not derived from the machine
  std::uint32_t max_context = 0;
  std::uint32_t rows_per_pass = 0;
  std::uint32_t n_sequences = 1;
  std::uint32_t n_kv_pages = 0;  // of all sequences together
  std::uint32_t max_drafts = 0;  // of a pass
  // The most passes in a row without a row of a generating sequence, because of the others' rows.
  std::uint32_t max_row_delay = 0;
  Residency residency;
  // Reductions made to fit the budget, in this order.
  std::vector<std::string> steps;
  // One line: where the weights are and how they are read. The opener fills in this and the rates,
  // 0 where not measured.
  std::string reading_mode;
  double disk_bytes_per_second = 0.0;
  double memory_bytes_per_second = 0.0;
};

// EnginePlan::max_row_delay where one sequence has a prompt and all others generate. Whole prompts
// may need all rows of a pass (AttentionKind::kSymmetric).
std::uint32_t max_row_delay(std::uint32_t n_sequences, std::uint32_t rows_per_pass,
                            bool whole_prompts = false) noexcept;

// Returns an upper bound of the tokens generated a second: each reads the weights once, resident
// ones at the memory's rate, streamed ones at the disk's. 0 where a rate is unknown.
double predicted_tokens_per_second(const EnginePlan& plan) noexcept;

// Returns the most positions whose rotation angles are accurate.
std::uint32_t most_positions(const EngineOptions& options, const ModelSpec& spec);
// Returns the context asked for, or the default one.
std::uint32_t asked_context(const EngineOptions& options, const ModelSpec& spec);

// Shapes and limits of the parts of an engine.
KvShape kv_shape(const ModelSpec& spec, const EngineOptions& options);
// Of layers with a state; none where the model has none.
StateShape state_shape(const ModelSpec& spec) noexcept;
KvLimits kv_limits(const EngineOptions& options, std::uint32_t max_context,
                   std::uint32_t rows_per_pass);
// None where every prompt fits one chunk, which takes plain attention.
std::optional<SparsePrefillLimits> sparse_prefill_limits(const EngineOptions& options,
                                                         std::uint32_t max_context);
SparsePrefillShape sparse_prefill_shape(const ModelSpec& spec, const EngineOptions& options,
                                        std::uint32_t max_context);
// Of KvPolicy::kH2o.
H2oEvictionShape eviction_shape(const ModelSpec& spec, const EngineOptions& options,
                                std::uint32_t max_context);
// Returns the longest distance of a key from a query in positions, both included. Models that
// rotate by the context length use it as that length (decision 007).
std::uint32_t longest_distance(const EngineOptions& options, std::uint32_t max_context) noexcept;
// Returns what a decoder's buffers depend on.
DecoderOptions decoder_options(const EngineOptions& options,
                               std::span<const AdapterReader> adapters) noexcept;
PassLimits pass_limits(const ModelSpec& spec, const EngineOptions& options,
                       std::uint32_t max_context, std::uint32_t rows_per_pass);

// Returns whether rows that generate read the output head by its sketch, if all weights stay in
// memory.
bool has_sketched_head(const QsfReader& reader, const EngineOptions& options);

// Rejects options that the prefix cache cannot be combined with; prefix_cache.cc.
// Fails  kUnsupported or kInvalidArgument, naming them
Status check_prefix_cache(const EngineOptions& options, std::uint64_t page_bytes);

// Rejects options that no plan can serve.
// Fails  kInvalidArgument, naming the option; kUnsupported for a feature that does not exist, or
//        not for this model
Status check_options(const EngineOptions& options, const ModelSpec& spec);

// Rejects cuts that the model does not allow.
// Fails  kInvalidArgument, naming what is wrong; kUnsupported where layers depend on each other
Status check_cut(const LayerCut& cut, const ModelSpec& spec);

// Plans.
// Requires    check_options() is OK
// Guarantees  memory.total_bytes() <= budget_bytes
// Fails       kOutOfBudget as fit_budget; kUnsupported when the weights exceed the address space
Result<EnginePlan> plan_engine(const PlanInputs& inputs);

}  // namespace qsf

#endif  // QSF_ENGINE_ENGINE_PLAN_H_
