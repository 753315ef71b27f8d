// SPDX-License-Identifier: MIT

#include "tools/bench/qsf_bench_kernels.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "platform/clock.h"
#include "platform/threads.h"
#include "tools/bench/qsf_bench_machine.h"

namespace qsf_tools {
namespace {

// A burst is long for the clock and short for whatever else the machine does.
constexpr double kBurstNs = 1e5;
constexpr double kBudgetNs = 5e7;
constexpr int kMinBursts = 3;

double elapsed_since(std::uint64_t start) {
  return static_cast<double>(qsf::monotonic_ns() - start);
}

}  // namespace

double best_ns(qsf::FunctionRef<void()> call) {
  call();
  std::uint64_t start = qsf::monotonic_ns();
  call();
  const double first_ns = std::max(elapsed_since(start), 1.0);
  const int n_calls = static_cast<int>(std::clamp(kBurstNs / first_ns, 1.0, 1e6));
  double best = first_ns;
  const std::uint64_t begin = qsf::monotonic_ns();
  for (int burst = 0; burst < kMinBursts || elapsed_since(begin) < kBudgetNs; ++burst) {
    start = qsf::monotonic_ns();
    for (int i = 0; i < n_calls; ++i) call();
    best = std::min(best, elapsed_since(start) / n_calls);
  }
  return best;
}

bool KernelBench::wants(std::string_view name, qsf::kernels::Isa isa) const {
  return qsf::kernels::isa_covers(best_, isa) && name.find(filter_) != std::string_view::npos;
}

void KernelBench::measure(std::string kernel, std::string work, double bytes, double operations,
                          qsf::FunctionRef<void()> call) {
  add({std::move(kernel), std::move(work), best_ns(call), bytes, operations});
}

void KernelBench::add(KernelFigure figure) {
  if (!json_) {
    if (figures_.empty()) {
      std::printf("%-32s %-28s %12s %9s %9s\n", "kernel", "work", "ns", "GB/s", "Gop/s");
    }
    std::printf("%-32s %-28s %12.1f %9.2f", figure.kernel.c_str(), figure.work.c_str(), figure.ns,
                figure.bytes / figure.ns);
    if (figure.operations > 0.0) std::printf(" %9.2f", figure.operations / figure.ns);
    std::printf("\n");
    std::fflush(stdout);
  }
  figures_.push_back(std::move(figure));
}

void KernelBench::print_json() const {
  const Machine machine = describe_machine();
  nlohmann::ordered_json json;
  json["tool"] = "qsf-bench";
  json["version"] = QSF_VERSION;
  json["machine"] = {{"cpu", machine.cpu},
                     {"features", machine.features},
                     {"system", machine.system},
                     {"memory_bytes", machine.memory_bytes}};
  json["kernels"] = nlohmann::ordered_json::array();
  for (const KernelFigure& figure : figures_) {
    json["kernels"].push_back({{"kernel", figure.kernel},
                               {"work", figure.work},
                               {"ns", figure.ns},
                               {"bytes", figure.bytes},
                               {"operations", figure.operations}});
  }
  std::printf("%s\n", json.dump(2).c_str());
}

qsf::Status bench_kernels(const BenchOptions& options) {
  QSF_ASSIGN_OR_RETURN(const qsf::kernels::Isa best, qsf::kernels::choose_host_isa());
  KernelBench bench(options, best);
  bench_small_kernels(bench);
  bench_attend_kernels(bench);
  bench_h2o_state(bench);
  bench_encode(bench);
  bench_gptq(bench);
  const unsigned n_threads =
      options.n_threads != 0 ? options.n_threads : qsf::default_thread_count();
  QSF_RETURN_IF_ERROR(bench_matmul_kernels(n_threads, bench));
  if (bench.figures().empty()) {
    return qsf::invalid_argument(
        "no kernel of this machine has \"%s\" in its name; --kernels alone measures all of them",
        options.filter.substr(0, 60).c_str());
  }
  if (options.json) bench.print_json();
  return qsf::ok_status();
}

}  // namespace qsf_tools
