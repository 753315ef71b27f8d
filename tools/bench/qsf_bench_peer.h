// SPDX-License-Identifier: MIT
//
// Runs the llama-bench of a llama.cpp (or a program that takes the same options) for one test.

#ifndef QSF_TOOLS_BENCH_QSF_BENCH_PEER_H_
#define QSF_TOOLS_BENCH_QSF_BENCH_PEER_H_

#include <string>

#include "base/result.h"
#include "tools/bench/qsf_bench_model.h"

namespace qsf_tools {

// What a peer says about itself and its model.
struct PeerInfo {
  std::string commit;
  std::string model_type;
  std::uint64_t model_bytes = 0;
};

// Runs the peer once, its own warm-up included, and fills in `info`.
// Returns  tokens a second
// Fails    kIo when it cannot be started, kUnsupported when it fails or says something else than
//          llama-bench -o json does
qsf::Result<double> run_peer(const BenchOptions& options, unsigned n_threads, const BenchTest& test,
                             PeerInfo& info);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_BENCH_QSF_BENCH_PEER_H_
