// SPDX-License-Identifier: MIT
//
// Probes in portable C++.

#include <cstring>

#include "kernels/probe/probe_variants.h"

namespace qsf::kernels {
namespace {

constexpr std::uint32_t kChains = 8;

}  // namespace

std::uint64_t probe_i8_scalar(std::uint32_t n_rounds) noexcept {
  std::uint32_t sums[kChains] = {};
  std::uint32_t a = 1;
  std::uint32_t b = 1;
  for (std::uint32_t round = 0; round < n_rounds; ++round) {
#pragma GCC unroll 8
    for (std::uint32_t& sum : sums) {
      // Opaque to the compiler, which would multiply once.
      asm volatile("" : "+r"(a), "+r"(b));
      sum += a * b;
    }
  }
  std::uint64_t total = 0;
  for (const std::uint32_t sum : sums) total += sum;
  return total & 0xFFFFU;
}

std::uint64_t probe_f32_scalar(std::uint32_t n_rounds) noexcept {
  float sums[kChains] = {};
  const volatile float one = 1.0F;
  const float a = one;
  const float b = one;
  for (std::uint32_t round = 0; round < n_rounds; ++round) {
#pragma GCC unroll 8
    for (float& sum : sums) sum = sum * a + b;
  }
  std::uint64_t total = 0;
  for (const float sum : sums) total += static_cast<std::uint64_t>(sum);
  return total;
}

std::uint64_t probe_read_scalar(const ReadProbeArgs& args) noexcept {
  const std::size_t n_stream_bytes = args.n_bytes / args.n_streams;
  std::uint64_t sums[8] = {};
  for (std::size_t at = 0; at < n_stream_bytes; at += 64) {
    for (std::uint32_t stream = 0; stream < args.n_streams; ++stream) {
      const std::byte* const line = args.memory + stream * n_stream_bytes + at;
      if (args.prefetch_bytes != 0) __builtin_prefetch(line + args.prefetch_bytes);
      std::uint64_t words[8];
      std::memcpy(words, line, sizeof(words));
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) sums[i] += words[i];
    }
  }
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace qsf::kernels
