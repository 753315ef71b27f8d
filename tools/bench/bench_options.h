// SPDX-License-Identifier: MIT
//
// The command line of qsf bench, parsed and checked.

#ifndef QSF_TOOLS_BENCH_BENCH_OPTIONS_H_
#define QSF_TOOLS_BENCH_BENCH_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/read_device.h"
#include "tools/common/engine_options.h"

namespace qsf_tools {

struct BenchOptions {
  std::string model;   // empty with `kernels`
  std::string filter;  // of the names of kernels; empty: all
  bool kernels = false;
  std::vector<std::uint32_t> prompts;    // lengths in tokens
  std::vector<std::uint32_t> generate;   // numbers of tokens
  std::vector<std::uint32_t> depths;     // tokens in the context before each test
  std::vector<std::uint32_t> sequences;  // that generate at once
  int n_threads = 0;                     // 0: one for each physical core
  unsigned repetitions = 5;
  KvTypeChoice kv_types;
  KvPolicyChoice kv_policy;
  AttentionChoice attention;
  bool exact = false;          // activations stay f32
  bool pin = false;            // a physical core for each thread
  float quality = 1.0F;        // share of the layers
  int experts = 0;             // that a row takes; 0: the model's
  float expert_margin = 0.0F;  // of substitutes in memory; 0: none
  bool no_probe = false;       // do not measure the machine's limits
  bool json = false;
  std::vector<std::uint64_t> streams;  // memory budgets in bytes to stream within
  std::string timeline;                // file for the tiles of the last streamed run; empty: none
  std::string routing;                 // file of routings to use in place of the model's; or empty
  std::string record_routing;          // file for the routings of the last streamed run; or empty
  std::string texts;                   // file of texts to generate with drafts; or empty
  std::string draft;                   // with texts: the path of a draft model; empty: none
  bool disk = false;                   // measure the disk of the model's file and nothing else
  std::optional<qsf::ReadPath> read_path;
  std::string peer;        // path of a llama-bench; empty: none
  std::string peer_model;  // its GGUF file
};

// Fills in `options`. Returns the exit code where the program ends here: after --help, or after one
// line on stderr for a wrong command line.
std::optional<int> parse_bench_options(int argc, const char* const* argv, BenchOptions& options);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_BENCH_BENCH_OPTIONS_H_
