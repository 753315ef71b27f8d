// SPDX-License-Identifier: MIT
//
// One model under test: its runs of prompts and of generation, and the bytes and operations that a
// pass over it costs, from the shapes in its file.

#ifndef QSF_TOOLS_BENCH_BENCH_MODEL_H_
#define QSF_TOOLS_BENCH_BENCH_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "format/qsf_reader.h"
#include "ops/operator_times.h"
#include "quant/kv_type.h"
#include "tools/bench/bench_options.h"

namespace qsf_tools {

// The bytes and operations of a pass over a model, from the shapes in its file.
class ModelCost {
 public:
  // `n_kept`: most positions that a row attends to; 0: all. `h2o`: the sizes of sparse prefill, or
  // none.
  ModelCost(const qsf::QsfReader& reader, qsf::KvType k_type, qsf::KvType v_type,
            std::uint64_t n_kept, const std::optional<qsf::SparsePrefillOptions>& h2o);

  // Returns the bytes of weights that a generated row reads: every matrix of the layers and the
  // output head, as stored in memory, and of experts as many as a row uses. Rows of the embedding
  // are not counted.
  std::uint64_t weight_bytes() const noexcept { return weight_bytes_; }
  // Returns the bytes of keys and values that a row at `position` reads.
  std::uint64_t kv_bytes(std::uint64_t position) const noexcept;
  // Returns the multiplications and additions of a row at `position`: products with weights, and
  // scores and sums of attention over the positions it sees; with the head where `with_logits`.
  std::uint64_t operations(std::uint64_t position, bool with_logits, bool generated) const noexcept;
  // Returns whether more than half of the weights are stored as floats.
  bool float_weights() const noexcept { return float_weights_; }
  // "4bit" of most layers' weights and "8bit" of the head.
  const std::string& layer_type() const noexcept { return layer_type_; }
  const std::string& head_type() const noexcept { return head_type_; }

 private:
  // Positions that a row at `position` sees, summed over the layers.
  std::uint64_t visible(std::uint64_t position, bool generated) const noexcept;

  qsf::ModelSpec spec_;
  qsf::KvType k_type_;
  qsf::KvType v_type_;
  std::uint64_t n_kept_;
  std::optional<qsf::SparsePrefillOptions> h2o_;
  std::uint64_t weight_bytes_ = 0;
  std::uint64_t layer_weights_ = 0;
  std::uint64_t head_weights_ = 0;
  bool float_weights_ = false;
  std::string layer_type_;
  std::string head_type_;
};

struct BenchTest {
  bool generate = false;          // otherwise a prompt
  std::uint32_t n_tokens = 0;     // computed in each run
  std::uint32_t depth = 0;        // in the context before
  std::uint32_t n_sequences = 1;  // that each compute so many tokens, in the same passes
};

// Returns "prompt 512", "generate 32 at 4096", "generate 32 x 8".
std::string test_name(const BenchTest& test);

struct BenchResult {
  BenchTest test;
  std::vector<double> run_seconds;
  std::vector<double> peer_tokens_per_second;
  // Bytes a second that plain sweeps read before and after each run that generates, their mean.
  std::vector<double> read_beside;
  // Of one run that generates: weights once a pass, keys and values once a token.
  std::uint64_t bytes_read = 0;
  std::uint64_t operations = 0;    // of one run
  qsf::OperatorProfile operators;  // of all measured runs together

  // Tokens a second of each run.
  std::vector<double> tokens_per_second() const;
};

// The options of an engine that all runs have in common.
qsf::EngineOptions engine_settings(const BenchOptions& options, std::uint64_t ram_budget_bytes);

// A model and the context that tests run in.
class BenchModel {
 public:
  // `ram_budget_bytes` bounds all memory; 0: what the machine has to spare.
  static qsf::Result<BenchModel> open(const BenchOptions& options,
                                      std::uint64_t ram_budget_bytes = 0);

  const qsf::Engine& engine() const noexcept { return *engine_; }
  qsf::Engine& engine() noexcept { return *engine_; }
  const ModelCost& cost() const noexcept { return cost_; }
  std::vector<BenchTest> tests(const BenchOptions& options) const;

  // Fills the contexts of the sequences up to `depth` tokens, or cuts them there.
  qsf::Status reach_depth(std::uint32_t depth, std::uint32_t n_sequences);
  // Runs a test once, at its depth.
  // Returns  seconds
  qsf::Result<double> run(const BenchTest& test);
  // Runs what a test runs, briefly, so that the first measured run finds caches and pages warm.
  qsf::Status warm_up(const BenchTest& test);

  // Fills in what one run of the test reads and computes.
  void add_cost(BenchResult& result) const;

 private:
  qsf::Status reach_depth(qsf::Session& session, std::uint32_t depth);
  qsf::Status generate(std::span<const qsf::TokenId> tokens, std::uint32_t n_sequences);
  BenchModel(std::unique_ptr<qsf::Engine> engine, ModelCost cost) noexcept;

  std::unique_ptr<qsf::Engine> engine_;
  bool sparse_ = false;  // prompts attend to chunks and memory sets
  std::vector<std::unique_ptr<qsf::Session>> sessions_;
  ModelCost cost_;
  std::vector<qsf::TokenId> tokens_;        // any; [max_context]
  std::vector<std::vector<float>> logits_;  // by sequence
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_BENCH_BENCH_MODEL_H_
