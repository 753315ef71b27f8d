// SPDX-License-Identifier: MIT
//
// The loops of probes for any vector type; everything has internal linkage.

#ifndef QSF_KERNELS_PROBE_PROBE_LOOPS_H_
#define QSF_KERNELS_PROBE_PROBE_LOOPS_H_

#include <cstring>

#include "kernels/probe/probe.h"

// Makes a vector opaque to the compiler, which would otherwise multiply once and reuse the product.
#if defined(__aarch64__)
#define QSF_OPAQUE(vector) asm volatile("" : "+w"(vector))
#elif defined(__wasm__)
#define QSF_OPAQUE(vector) asm volatile("" : "+r"(vector))
#else
#define QSF_OPAQUE(vector) asm volatile("" : "+x"(vector))
#endif

namespace qsf::kernels {

// Independent chains of sums: enough to hide the latency of a multiplication.
constexpr unsigned kProbeChains = 12;

// Runs n_rounds of sum = step(sum) on every chain, from `zero`, and returns the sum of all lanes.
template <typename Lane, typename Vector, typename Step>
[[gnu::always_inline]] static inline std::uint64_t run_chains(std::uint32_t n_rounds, Vector zero,
                                                              Step step) noexcept {
  Vector sums[kProbeChains];
  for (Vector& sum : sums) sum = zero;
  for (std::uint32_t round = 0; round < n_rounds; ++round) {
#pragma GCC unroll 12
    for (Vector& sum : sums) sum = step(sum);
  }
  Lane lanes[kProbeChains * (sizeof(Vector) / sizeof(Lane))];
  std::memcpy(lanes, sums, sizeof(sums));
  std::uint64_t total = 0;
  for (const Lane lane : lanes) total += static_cast<std::uint64_t>(lane);
  return total;
}

// Reads kStreams parts side by side, a line of each in turn, by vectors of kBytes.
template <std::size_t kBytes, std::uint32_t kStreams>
[[gnu::always_inline]] static inline std::uint64_t read_streams(
    const ReadProbeArgs& args) noexcept {
  typedef std::uint64_t Words __attribute__((vector_size(kBytes)));
  constexpr std::size_t kVectors = 64 / kBytes;  // of a line
  const std::size_t n_stream_bytes = args.n_bytes / kStreams;
  Words sums[4] = {};
  for (std::size_t at = 0; at < n_stream_bytes; at += 64) {
#pragma GCC unroll 8
    for (std::uint32_t stream = 0; stream < kStreams; ++stream) {
      const std::byte* const line = args.memory + stream * n_stream_bytes + at;
      if (args.prefetch_bytes != 0) __builtin_prefetch(line + args.prefetch_bytes);
#pragma GCC unroll 4
      for (std::size_t i = 0; i < kVectors; ++i) {
        Words words;
        std::memcpy(&words, line + i * kBytes, kBytes);
        sums[(stream * kVectors + i) % 4] += words;
      }
    }
  }
  const Words all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  std::uint64_t lanes[kBytes / 8];
  std::memcpy(lanes, &all, kBytes);
  std::uint64_t total = 0;
  for (const std::uint64_t lane : lanes) total += lane;
  return total;
}

template <std::size_t kBytes>
[[gnu::always_inline]] static inline std::uint64_t read_memory(const ReadProbeArgs& args) noexcept {
  switch (args.n_streams) {
    case 4: return read_streams<kBytes, 4>(args);
    case 8: return read_streams<kBytes, 8>(args);
    default: return read_streams<kBytes, 1>(args);
  }
}

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_PROBE_PROBE_LOOPS_H_
