// SPDX-License-Identifier: MIT

#include "tools/bench/bench_machine.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "platform/clock.h"
#include "platform/cpu.h"
#include "platform/memory.h"
#include "tools/bench/bench_system.h"

namespace qsf_tools {
Machine describe_machine() {
  Machine machine;
  machine.cpu = cpu_name();
  machine.features = qsf::cpu_features_text(qsf::host_cpu());
  machine.system = system_name();
  machine.memory_bytes = machine_memory_bytes();
  return machine;
}

namespace {

using qsf::kernels::ArithmeticProbe;
using qsf::kernels::ProbeKind;
using qsf::kernels::ReadProbe;

// Well beyond the last level of cache of any machine that a model is likely to run on.
constexpr std::size_t kReadBytes = std::size_t{1} << 30;
// Short enough for threads to share the work whatever else runs, and long enough not to notice the
// beginning of a chunk.
constexpr std::size_t kInt8BlockBytes = std::size_t{16} << 20;
constexpr int kReadSweeps = 3;
// Many and short, so that some of them find all threads at work and no one else.
constexpr int kBursts = 100;
constexpr double kBurstNs = 1e6;

// Keeps a result whose computation is what is measured.
std::atomic<std::uint64_t> g_result{0};

// Operations a second of all threads together: each runs a burst of its own at the same time.
double measure_arithmetic(qsf::ThreadPool& threads, const ArithmeticProbe& probe) {
  std::uint32_t n_rounds = 1024;
  double elapsed_ns = 0.0;
  for (; n_rounds < qsf::kernels::kMaxProbeRounds; n_rounds *= 2) {
    const std::uint64_t start = qsf::monotonic_ns();
    g_result += probe.run(n_rounds);
    elapsed_ns = static_cast<double>(qsf::monotonic_ns() - start);
    if (elapsed_ns > kBurstNs / 8) break;
  }
  n_rounds = std::min(n_rounds, qsf::kernels::kMaxProbeRounds);
  const auto n_repeats = static_cast<int>(std::max(1.0, kBurstNs / std::max(elapsed_ns, 1.0)));
  double best = 0.0;
  const std::size_t n_threads = threads.n_threads();
  for (int burst = 0; burst < kBursts; ++burst) {
    const std::uint64_t start = qsf::monotonic_ns();
    threads.parallel_for(n_threads, 1, [&](std::size_t first, std::size_t last, unsigned) {
      for (std::size_t i = first; i < last; ++i) {
        for (int repeat = 0; repeat < n_repeats; ++repeat) g_result += probe.run(n_rounds);
      }
    });
    const auto ns = static_cast<double>(qsf::monotonic_ns() - start);
    best = std::max(
        best, static_cast<double>(n_threads) * n_repeats * n_rounds * probe.operations / ns * 1e9);
  }
  return best;
}

}  // namespace

double MachineLimits::peak(ProbeKind kind) const noexcept {
  for (const ArithmeticLimit& limit : arithmetic) {
    if (limit.kind == kind) return limit.operations_per_second;
  }
  return 0.0;
}

MachineProbe::MachineProbe(std::unique_ptr<qsf::ThreadPool> threads, qsf::kernels::Isa best,
                           qsf::MutableByteSpan memory) noexcept
    : threads_(std::move(threads)), best_(best), memory_(memory) {}

MachineProbe::MachineProbe(MachineProbe&& other) noexcept
    : threads_(std::move(other.threads_)),
      best_(other.best_),
      memory_(std::exchange(other.memory_, {})) {}

MachineProbe::~MachineProbe() {
  qsf::unmap_pages(memory_);
}

qsf::Result<MachineProbe> MachineProbe::create(unsigned n_threads, qsf::kernels::Isa best) {
  QSF_ASSIGN_OR_RETURN(std::unique_ptr<qsf::ThreadPool> threads,
                       qsf::ThreadPool::create(n_threads));
  QSF_ASSIGN_OR_RETURN(const qsf::MutableByteSpan memory,
                       qsf::map_pages(kReadBytes, qsf::HugePages::kAllow));
  // Pages that were never written are all the same page of zeros.
  threads->parallel_for(
      kReadBytes / kInt8BlockBytes, 1, [&](std::size_t first, std::size_t last, unsigned) {
        std::memset(memory.data() + first * kInt8BlockBytes, 1, (last - first) * kInt8BlockBytes);
      });
  return MachineProbe(std::move(threads), best, memory);
}

double MachineProbe::sweep(const ReadLimit& way) {
  const ReadProbe& probe = qsf::kernels::select_read_probe(best_);
  const std::uint64_t start = qsf::monotonic_ns();
  threads_->parallel_for(
      memory_.size() / kInt8BlockBytes, 1, [&](std::size_t first, std::size_t last, unsigned) {
        for (std::size_t i = first; i < last; ++i) {
          g_result += probe.run({memory_.data() + i * kInt8BlockBytes, kInt8BlockBytes,
                                 way.n_streams, way.prefetch_bytes});
        }
      });
  const auto elapsed_ns = static_cast<double>(qsf::monotonic_ns() - start);
  return static_cast<double>(memory_.size()) / elapsed_ns * 1e9;
}

MachineLimits MachineProbe::measure() {
  MachineLimits limits;
  for (const ProbeKind kind : {ProbeKind::kInt8, ProbeKind::kF32, ProbeKind::kBf16}) {
    const ArithmeticProbe* const probe = qsf::kernels::find_arithmetic_probe(kind, best_);
    if (probe == nullptr) continue;
    limits.arithmetic.push_back({probe->name, kind, measure_arithmetic(*threads_, *probe)});
  }
  for (const std::uint32_t n_streams : {1U, 4U, 8U}) {
    for (const std::uint32_t prefetch_bytes : {0U, 2048U}) {
      ReadLimit way{0.0, n_streams, prefetch_bytes};
      for (int i = 0; i < kReadSweeps; ++i) {
        way.bytes_per_second = std::max(way.bytes_per_second, sweep(way));
      }
      if (way.bytes_per_second > limits.read.bytes_per_second) limits.read = way;
    }
  }
  return limits;
}

void keep_better(const MachineLimits& other, MachineLimits& limits) {
  if (other.read.bytes_per_second > limits.read.bytes_per_second) limits.read = other.read;
  for (ArithmeticLimit& limit : limits.arithmetic) {
    limit.operations_per_second = std::max(limit.operations_per_second, other.peak(limit.kind));
  }
}

}  // namespace qsf_tools
