// SPDX-License-Identifier: MIT

#include "engine/process_memory.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/isa.h"
#include "kernels/probe/probe.h"
#include "platform/clock.h"
#include "platform/memory.h"
#include "platform/threads.h"

namespace qsf {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{128} << 20;
constexpr std::uint64_t kLeastBytes = std::uint64_t{32} << 20;
constexpr std::size_t kSweepBytes = std::size_t{4} << 20;
constexpr int kSweeps = 3;

}  // namespace

ProcessMemory process_memory() noexcept {
  return {.resident_bytes = resident_bytes(), .peak_resident_bytes = peak_resident_bytes()};
}

double measure_memory_rate(ThreadPool& threads, std::uint64_t most_bytes) {
  const auto isa = kernels::choose_host_isa();
  if (!isa.has_value()) return 0.0;
  if (most_bytes < kLeastBytes) return 0.0;
  const auto n_bytes =
      static_cast<std::size_t>(std::min(kMostBytes, most_bytes)) / kSweepBytes * kSweepBytes;
  const auto memory = map_pages(n_bytes, HugePages::kAllow);
  if (!memory.has_value()) return 0.0;
  const kernels::ReadProbe& probe = kernels::select_read_probe(*isa);
  const auto for_parts = [&](auto work) {
    threads.parallel_for(n_bytes / kSweepBytes, 1,
                         [&](std::size_t first, std::size_t last, unsigned) {
                           for (std::size_t i = first; i < last; ++i)
                             work(memory->data() + i * kSweepBytes);
                         });
  };
  // Pages that were never written are all the same page of zeros.
  for_parts([](std::byte* part) { std::memset(part, 1, kSweepBytes); });
  std::atomic<std::uint64_t> sum{0};  // keeps the compiler from dropping the reads
  double best = 0.0;
  for (int i = 0; i < kSweeps; ++i) {
    const std::uint64_t start = monotonic_ns();
    for_parts([&](const std::byte* part) {
      sum += probe.run({part, kSweepBytes, /*n_streams=*/4, /*prefetch_bytes=*/2048});
    });
    const std::uint64_t elapsed_ns = std::max<std::uint64_t>(monotonic_ns() - start, 1);
    best = std::max(best, static_cast<double>(n_bytes) / static_cast<double>(elapsed_ns) * 1e9);
  }
  unmap_pages(*memory);
  return best;
}

}  // namespace qsf
