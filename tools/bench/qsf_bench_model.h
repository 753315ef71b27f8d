// SPDX-License-Identifier: MIT
//
// Measures prompts and generation of one model.

#ifndef QSF_TOOLS_BENCH_QSF_BENCH_MODEL_H_
#define QSF_TOOLS_BENCH_QSF_BENCH_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "ops/operator_times.h"
#include "tools/bench/qsf_bench_cost.h"
#include "tools/bench/qsf_bench_options.h"

namespace qsf_tools {

struct BenchTest {
  bool generate = false;       // otherwise a prompt
  std::uint32_t n_tokens = 0;  // computed in each run
  std::uint32_t depth = 0;     // in the context before
};

// Returns "prompt 512", "generate 32 at 4096".
std::string test_name(const BenchTest& test);

struct BenchResult {
  BenchTest test;
  std::vector<double> run_seconds;
  std::vector<double> peer_tokens_per_second;
  // Bytes a second that plain sweeps read before and after each run that generates, their mean.
  std::vector<double> read_beside;
  std::uint64_t bytes_read = 0;  // of one run that generates: weights, keys and values once a token
  std::uint64_t operations = 0;  // of one run
  qsf::OperatorProfile operators;  // of all measured runs together

  // Tokens a second of each run.
  std::vector<double> tokens_per_second() const;
};

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

  // Fills the context up to `depth` tokens, or cuts it there.
  qsf::Status reach_depth(std::uint32_t depth);
  // Runs a test once, at its depth.
  // Returns  seconds
  qsf::Result<double> run(const BenchTest& test);
  // Runs what a test runs, briefly, so that the first measured run finds caches and pages warm.
  qsf::Status warm_up(const BenchTest& test);

  // Fills in what one run of the test reads and computes.
  void add_cost(BenchResult& result) const;

 private:
  BenchModel(std::unique_ptr<qsf::Engine> engine, ModelCost cost) noexcept;

  std::unique_ptr<qsf::Engine> engine_;
  bool sparse_ = false;  // prompts attend to chunks and memory sets
  std::unique_ptr<qsf::Session> session_;
  ModelCost cost_;
  std::vector<qsf::TokenId> tokens_;  // any; [max_context]
  std::vector<float> logits_;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_BENCH_QSF_BENCH_MODEL_H_
