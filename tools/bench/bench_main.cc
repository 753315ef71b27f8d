// SPDX-License-Identifier: MIT
//
// qsf bench: how fast a model runs, and how close that is to the limits of the machine.
//
// Exit code 0 for a result, 1 for a failure, 2 for bad usage.

#include <cstdio>
#include <utility>
#include <vector>

#include "platform/threads.h"
#include "tools/bench/bench_kernels.h"
#include "tools/bench/bench_machine.h"
#include "tools/bench/bench_model.h"
#include "tools/bench/bench_options.h"
#include "tools/bench/bench_report.h"
#include "tools/bench/bench_stream.h"
#include "tools/bench/bench_system.h"
#include "tools/bench/bench_texts.h"
#include "tools/common/console.h"
#include "tools/common/option_parser.h"
#include "tools/common/programs.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {
namespace {

// Runs the peer once, its own warm-up included, and fills in `info`.
// Returns  tokens a second
// Fails    kIo when it cannot be started, kUnsupported when it fails or its output is not that of
//          llama-bench -o json
qsf::Result<double> run_peer(const BenchOptions& options, unsigned n_threads, const BenchTest& test,
                             PeerInfo& info) {
  std::vector<std::string> arguments = {options.peer,
                                        "-m",
                                        options.peer_model,
                                        "-t",
                                        std::to_string(n_threads),
                                        "-p",
                                        std::to_string(test.generate ? 0 : test.n_tokens),
                                        "-n",
                                        std::to_string(test.generate ? test.n_tokens : 0),
                                        "-r",
                                        "1",
                                        "-o",
                                        "json"};
  // Builds without this option still run the tests that do not need it.
  if (test.depth > 0) arguments.insert(arguments.end(), {"-d", std::to_string(test.depth)});
  QSF_ASSIGN_OR_RETURN(const std::string output, output_of_program(arguments));
  const std::optional<double> rate = parse_peer_output(output, info);
  if (!rate) {
    return qsf::unsupported(
        "%s: expected the JSON of llama-bench, an array of objects with avg_ts; got \"%s\"",
        options.peer.c_str(), valid_utf8(output.substr(0, 80)).c_str());
  }
  return *rate;
}

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
    QSF_RETURN_IF_ERROR(model.reach_depth(result.test.depth, result.test.n_sequences));
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
  ProgressLine progress(program_name(), true);
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
                             : !options.texts.empty()   ? bench_texts(options)
                             : !options.streams.empty() ? bench_streams(options)
                                                        : bench_model(options);
  if (!status.ok()) {
    print_error(program_name(), status.message());
    return kFailure;
  }
  if (std::fflush(stdout) != 0) {
    print_error(program_name(), "standard output: cannot write the result");
    return kFailure;
  }
  return kSuccess;
}

}  // namespace

}  // namespace qsf_tools

int qsf_tools::bench_main(int argc, char** argv) {
  ignore_write_signals();
  qsf_tools::BenchOptions options;
  if (const auto code = qsf_tools::parse_bench_options(argc, argv, options)) return *code;
  return qsf_tools::run(options);
}
