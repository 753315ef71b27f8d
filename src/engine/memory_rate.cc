// SPDX-License-Identifier: MIT

#include "engine/memory_rate.h"

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

constexpr std::uint64_t kWishedBytes = std::uint64_t{128} << 20;
constexpr std::uint64_t kLeastBytes = std::uint64_t{32} << 20;
constexpr std::size_t kInt8BlockBytes = std::size_t{4} << 20;
constexpr int kSweeps = 3;

}  // namespace

double measure_memory_rate(ThreadPool& threads, std::uint64_t most_bytes) {
  const auto isa = kernels::choose_host_isa();
  if (!isa.has_value()) return 0.0;
  if (most_bytes < kLeastBytes) return 0.0;
  const auto n_bytes = static_cast<std::size_t>(std::min(kWishedBytes, most_bytes)) /
                       kInt8BlockBytes * kInt8BlockBytes;
  const auto memory = map_pages(n_bytes, HugePages::kAllow);
  if (!memory.has_value()) return 0.0;
  const kernels::ReadProbe& probe = kernels::select_read_probe(*isa);
  const auto for_chunks = [&](auto work) {
    threads.parallel_for(n_bytes / kInt8BlockBytes, 1,
                         [&](std::size_t first, std::size_t last, unsigned) {
                           for (std::size_t i = first; i < last; ++i)
                             work(memory->data() + i * kInt8BlockBytes);
                         });
  };
  // Pages that were never written are all the same page of zeros.
  for_chunks([](std::byte* chunk) { std::memset(chunk, 1, kInt8BlockBytes); });
  std::atomic<std::uint64_t> sum{0};  // without a result there is no work
  double best = 0.0;
  for (int i = 0; i < kSweeps; ++i) {
    const std::uint64_t start = monotonic_ns();
    for_chunks([&](const std::byte* chunk) {
      sum += probe.run({chunk, kInt8BlockBytes, /*n_streams=*/4, /*prefetch_bytes=*/2048});
    });
    const std::uint64_t elapsed_ns = std::max<std::uint64_t>(monotonic_ns() - start, 1);
    best = std::max(best, static_cast<double>(n_bytes) / static_cast<double>(elapsed_ns) * 1e9);
  }
  unmap_pages(*memory);
  return best;
}

}  // namespace qsf
