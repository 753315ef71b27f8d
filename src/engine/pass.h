// SPDX-License-Identifier: MIT
//
// A pass of the engine, from its plan to its end: the rows of some sequences and where their logits
// go.

#ifndef QSF_ENGINE_PASS_H_
#define QSF_ENGINE_PASS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/pass_message.h"
#include "kv/row.h"
#include "model/logits_sink.h"

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
  std::uint32_t before = 0;  // slots of the sequence before the pass; add_part() fills it in
};

// The rows that a generation needs next.
struct NextRows {
  std::span<const TokenId> tokens;
  RowRole role = RowRole::kPrompt;
  bool wants_output = false;  // of the last row; with a draft of each row
};

// A member of a step and what its pass computes for it.
struct Planned {
  Generation* member = nullptr;
  NextRows rows;
};

// Its rows have slots in the KV cache. Reserved at open(): filling it allocates nothing, but for
// `changes`.
struct PassInFlight {
  PassId id = 0;                        // 0: not in flight
  std::vector<Row> rows;                // [rows_per_pass], prompt rows first
  std::vector<PassOutput> outputs;      // [rows_per_pass], of the rows with logits
  std::vector<PassPart> parts;          // [n_sequences], of different sequences
  std::vector<Planned> planned;         // [n_sequences], of the same in a step
  std::vector<Generation*> members;     // [n_sequences], of the step, planned or not
  std::vector<SequenceChange> changes;  // since the pass before; with EngineOptions::record_passes
  StepCounts counts;
  bool all_cancelled = false;  // every planned member was cancelled during the pass

  void clear() noexcept {
    id = 0;
    rows.clear();
    outputs.clear();
    parts.clear();
    planned.clear();
    members.clear();
    changes.clear();
    counts = {};
    all_cancelled = false;
  }
};

}  // namespace qsf

#endif  // QSF_ENGINE_PASS_H_
