// SPDX-License-Identifier: MIT
//
// Probes for NEON: products of bytes are added up in 16 bits.

#include <arm_neon.h>

#include "kernels/probe/probe_variants.h"

namespace qsf::kernels {
namespace {

// Reads kStreams parts side by side, a line of each in turn.
template <std::uint32_t kStreams>
[[gnu::always_inline]] inline std::uint64_t read_streams(const ReadProbeArgs& args) noexcept {
  const std::size_t n_stream_bytes = args.n_bytes / kStreams;
  uint64x2_t sums[4] = {vdupq_n_u64(0), vdupq_n_u64(0), vdupq_n_u64(0), vdupq_n_u64(0)};
  for (std::size_t at = 0; at < n_stream_bytes; at += 64) {
#pragma GCC unroll 8
    for (std::uint32_t stream = 0; stream < kStreams; ++stream) {
      const std::byte* const line = args.memory + stream * n_stream_bytes + at;
      if (args.prefetch_bytes != 0) __builtin_prefetch(line + args.prefetch_bytes);
      const auto* const words = reinterpret_cast<const std::uint64_t*>(line);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) sums[i] = vaddq_u64(sums[i], vld1q_u64(words + 2 * i));
    }
  }
  const uint64x2_t all = vaddq_u64(vaddq_u64(sums[0], sums[1]), vaddq_u64(sums[2], sums[3]));
  return vgetq_lane_u64(all, 0) + vgetq_lane_u64(all, 1);
}

}  // namespace

std::uint64_t probe_i8_neon(std::uint32_t n_rounds) noexcept {
  uint16x8_t sums[12];
  for (uint16x8_t& sum : sums) sum = vdupq_n_u16(0);
  uint8x8_t a = vdup_n_u8(1);
  const uint8x8_t b = vdup_n_u8(1);
  for (std::uint32_t round = 0; round < n_rounds; ++round) {
    asm volatile("" : "+w"(a));
#pragma GCC unroll 12
    for (uint16x8_t& sum : sums) sum = vmlal_u8(sum, a, b);
  }
  uint16x8_t all = sums[0];
  for (int i = 1; i < 12; ++i) all = vaddq_u16(all, sums[i]);
  std::uint16_t lanes[8];
  vst1q_u16(lanes, all);
  std::uint64_t total = 0;
  for (const std::uint16_t lane : lanes) total += lane;
  return total & 0xFFFFU;
}

std::uint64_t probe_f32_neon(std::uint32_t n_rounds) noexcept {
  float32x4_t sums[12];
  for (float32x4_t& sum : sums) sum = vdupq_n_f32(0.0F);
  float32x4_t a = vdupq_n_f32(1.0F);
  float32x4_t b = a;
  for (std::uint32_t round = 0; round < n_rounds; ++round) {
    asm volatile("" : "+w"(a), "+w"(b));
#pragma GCC unroll 12
    for (float32x4_t& sum : sums) sum = vfmaq_f32(sum, a, b);
  }
  std::uint64_t total = 0;
  for (const float32x4_t& sum : sums) {
    float lanes[4];
    vst1q_f32(lanes, sum);
    for (const float lane : lanes) total += static_cast<std::uint64_t>(lane);
  }
  return total;
}

std::uint64_t probe_read_neon(const ReadProbeArgs& args) noexcept {
  switch (args.n_streams) {
    case 4: return read_streams<4>(args);
    case 8: return read_streams<8>(args);
    default: return read_streams<1>(args);
  }
}

}  // namespace qsf::kernels
