// SPDX-License-Identifier: MIT
//
// The plan of an engine: every region of memory that it will take, before it takes any.
//
// A plan follows from the file's directories, the options and what is known of machine and disk; it
// starts nothing and touches no weight. What an engine is opened with and what is told about one
// that is not opened are the same plan. docs/decisions/015-memory-plan.md tells the order in which a
// budget is spent, and how the regions outside the arena were measured.

#ifndef QSF_ENGINE_ENGINE_PLAN_H_
#define QSF_ENGINE_ENGINE_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "format/qsf_reader.h"
#include "kv/h2o_eviction.h"
#include "kv/kv_cache.h"
#include "memory/memory_plan.h"
#include "ops/backend.h"
#include "platform/memory_limits.h"
#include "stream/residency.h"

namespace qsf {

// What the plan has to know of the machine and of this process.
struct MachineFacts {
  MemoryLimits limits;
  ProgramMemory program;
  unsigned n_cpus = 1;  // that the process may run on
};
// Threads  any
MachineFacts measure_machine();

// What the plan has to know of how the file is read.
struct ReadingFacts {
  unsigned n_queues = 1;         // reading threads
  std::uint64_t ring_bytes = 0;  // for the disk's full rate; 0: the pager's default
  bool mapped = false;
};

struct PlanInputs {
  const QsfReader& reader;
  const Backend& backend;
  const EngineOptions& options;
  unsigned n_threads = 1;
  std::uint64_t tokenizer_index_bytes = 0;
  MachineFacts machine;
  ReadingFacts reading;
};

// The regions of the plan that are carved, by what fills them.
struct PlanRegions {
  RegionId weights;
  RegionId tokenizer_section;
  RegionId tokenizer_index;
  RegionId kv_tables;
  RegionId kv_cache;
  RegionId sparse_prefill_state;  // of sparse_limits() alone
  RegionId h2o_eviction;          // of KvPolicy::kH2o alone
  std::vector<RegionId> buffers;  // as Decoder::buffer_shapes
  RegionId backend_scratch;
  RegionId sample_logits;
  RegionId sample_order;
};

struct EnginePlan {
  MemoryPlan memory;
  PlanRegions regions;
  std::uint64_t budget_bytes = kNoMemoryLimit;  // that it was made for
  bool budget_named = false;                    // by the options, not taken from the machine
  std::uint32_t max_context = 0;
  std::uint32_t rows_per_pass = 0;
  Residency residency;
  // What was given up of what the options ask for or leave to the engine, in the order in which it
  // was.
  std::vector<std::string> steps;
  // One line: where the weights are and how they are read. Filled in by the opener, which knows the
  // disk; so are the rates, 0 where nobody measured.
  std::string reading_mode;
  double disk_bytes_per_second = 0.0;
  double memory_bytes_per_second = 0.0;
};

// Returns how many tokens a second can be generated at most: each reads the weights once, those in
// memory at its rate, the others at the disk's. 0 where a rate that is needed is not known.
double predicted_tokens_per_second(const EnginePlan& plan) noexcept;

// What the parts of an engine are made from.
KvShape kv_shape(const ModelSpec& spec, const EngineOptions& options);
KvLimits kv_limits(const EngineOptions& options, std::uint32_t max_context,
                   std::uint32_t rows_per_pass);
// None where every prompt fits one chunk, whose attention is the plain one.
std::optional<SparseLimits> sparse_limits(const EngineOptions& options, std::uint32_t max_context);
SparsePrefillShape sparse_prefill_shape(const ModelSpec& spec, const EngineOptions& options,
                                        std::uint32_t max_context);
// Of KvPolicy::kH2o.
H2oEvictionShape eviction_shape(const ModelSpec& spec, const EngineOptions& options,
                                std::uint32_t max_context);
// Returns how far away a query meets a key at most, in positions and both counted: models that
// rotate by the context take it for that (decision 007).
std::uint32_t longest_distance(const EngineOptions& options, std::uint32_t max_context) noexcept;
PassLimits pass_limits(const ModelSpec& spec, const EngineOptions& options,
                       std::uint32_t max_context, std::uint32_t rows_per_pass);

// Refuses options that no plan can serve.
// Fails  kInvalidArgument, naming the option; kUnsupported for what cannot be computed, or not of
//        this model
Status check_options(const EngineOptions& options, const ModelSpec& spec);

// Plans.
// Requires    check_options() is OK
// Guarantees  memory.total_bytes() <= budget_bytes
// Fails       kOutOfBudget as fit_budget; kUnsupported when the weights exceed the address space
Result<EnginePlan> plan_engine(const PlanInputs& inputs);

}  // namespace qsf

#endif  // QSF_ENGINE_ENGINE_PLAN_H_
