// SPDX-License-Identifier: MIT
//
// qsf-bench: how fast a model runs, and how much of the machine that takes.
//
// Exit code 0 for a result, 1 for a failure, 2 for bad usage.

#include <csignal>
#include <cstdio>
#include <utility>

#include "platform/threads.h"
#include "tools/bench/qsf_bench_kernels.h"
#include "tools/bench/qsf_bench_limits.h"
#include "tools/bench/qsf_bench_model.h"
#include "tools/bench/qsf_bench_options.h"
#include "tools/bench/qsf_bench_peer.h"
#include "tools/bench/qsf_bench_report.h"
#include "tools/bench/qsf_bench_stream.h"
#include "tools/common/programs.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {
namespace {

qsf::Result<std::optional<MachineProbe>> make_probe(const BenchOptions& options,
                                                    const BenchModel& model) {
  if (options.no_probe) return std::optional<MachineProbe>();
  QSF_ASSIGN_OR_RETURN(const qsf::kernels::Isa best,
                       qsf::kernels::parse_isa(model.engine().instruction_set()));
  QSF_ASSIGN_OR_RETURN(MachineProbe probe, MachineProbe::create(model.engine().n_threads(), best));
  return std::optional<MachineProbe>(std::move(probe));
}

void add_difference(const qsf::OperatorProfile& after, const qsf::OperatorProfile& before,
                    qsf::OperatorProfile& sum) {
  for (std::size_t i = 0; i < qsf::kOperatorKinds; ++i) {
    const auto kind = static_cast<qsf::OperatorKind>(i);
    sum[kind].calls += after[kind].calls - before[kind].calls;
    sum[kind].ns += after[kind].ns - before[kind].ns;
    sum[kind].bytes += after[kind].bytes - before[kind].bytes;
    sum[kind].operations += after[kind].operations - before[kind].operations;
  }
}

// Runs one test, in turns with the peer and with sweeps of memory where there are such.
qsf::Status measure(const BenchOptions& options, BenchModel& model,
                    std::optional<MachineProbe>& probe, BenchReport& report, BenchResult& result,
                    ProgressLine& progress) {
  const bool sweeps = probe && result.test.generate;
  QSF_RETURN_IF_ERROR(model.warm_up(result.test));
  for (unsigned i = 0; i < options.repetitions; ++i) {
    if (progress.due()) {
      progress.show(test_name(result.test) + ", run " + std::to_string(i + 1) + " of " +
                    std::to_string(options.repetitions));
    }
    // What fills the context before a run is not part of it.
    QSF_RETURN_IF_ERROR(model.reach_depth(result.test.depth));
    const double swept = sweeps ? probe->sweep(report.limits->read) : 0.0;
    const qsf::OperatorProfile before = model.engine().stats().operators;
    QSF_ASSIGN_OR_RETURN(const double seconds, model.run(result.test));
    result.run_seconds.push_back(seconds);
    if (sweeps) result.read_beside.push_back((swept + probe->sweep(report.limits->read)) / 2);
    add_difference(model.engine().stats().operators, before, result.operators);
    if (!options.peer_model.empty()) {
      if (!report.peer) report.peer.emplace();
      QSF_ASSIGN_OR_RETURN(const double rate, run_peer(options, model.engine().n_threads(),
                                                       result.test, *report.peer));
      result.peer_tokens_per_second.push_back(rate);
    }
  }
  model.add_cost(result);
  return qsf::ok_status();
}

qsf::Status bench_model(const BenchOptions& options) {
  QSF_ASSIGN_OR_RETURN(BenchModel model, BenchModel::open(options));
  BenchReport report;
  QSF_ASSIGN_OR_RETURN(std::optional<MachineProbe> probe, make_probe(options, model));
  if (probe) report.limits = probe->measure();
  ProgressLine progress(kBenchTool, true);
  for (const BenchTest& test : model.tests(options)) {
    BenchResult result;
    result.test = test;
    QSF_RETURN_IF_ERROR(measure(options, model, probe, report, result, progress));
    report.results.push_back(std::move(result));
  }
  // A machine with neighbours is not always as fast as it can be.
  if (probe) keep_better(probe->measure(), *report.limits);
  progress.clear();
  (options.json ? print_json : print_tables)(options, model, report);
  return qsf::ok_status();
}

int run(const BenchOptions& options) {
  const qsf::Status status = options.kernels            ? bench_kernels(options)
                             : options.disk             ? bench_disk(options)
                             : !options.streams.empty() ? bench_streams(options)
                                                        : bench_model(options);
  if (!status.ok()) {
    print_error(kBenchTool, status.message());
    return kFailure;
  }
  if (std::fflush(stdout) != 0) {
    print_error(kBenchTool, "standard output: cannot write the result");
    return kFailure;
  }
  return kSuccess;
}

}  // namespace
}  // namespace qsf_tools

int qsf_tools::bench_main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  qsf_tools::BenchOptions options;
  if (const auto code = qsf_tools::parse_bench_options(argc, argv, options)) return *code;
  return qsf_tools::run(options);
}
