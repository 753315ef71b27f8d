// SPDX-License-Identifier: MIT
//
// Attention over one page, scalar tier.
//
// First all scores of the page, then one maximum and one correction, then V in strips of 16
// dimensions whose sums stay in registers over all slots. Halves are widened one K row or one V
// strip at a time and serve all heads of the group.

#include "kernels/attend/attend.h"
#include "kernels/math/math_lanes.h"
#include "kernels/variants_scalar.h"

namespace qsf::kernels {
namespace {

using namespace lanes;

constexpr float kNegativeInfinity = -__builtin_inff();
constexpr std::uint32_t kHeadsAtOnce = 8;  // their scores and weights are 2 KiB of stack
constexpr std::uint32_t kStrip = 16;       // dimensions of V summed in registers

// Widens n_values stored elements from element `first` on.
template <KvType kType>
[[gnu::always_inline]] inline void widen(const std::byte* row, std::uint32_t first,
                                         std::uint32_t n_values, float* to) noexcept {
  if constexpr (kType == KvType::kF32) {
    std::memcpy(to, row + std::size_t{first} * 4, std::size_t{n_values} * 4);
  } else {
    const std::byte* from = row + std::size_t{first} * 2;
    std::uint32_t i = 0;
    for (; i + 8 <= n_values; i += 8) {
      const u16x8 halves = load<u16x8>(from + std::size_t{i} * 2);
      store(to + i, high_half_to_f32(first_to_high(halves)));
      store(to + i + 4, high_half_to_f32(last_to_high(halves)));
    }
    for (; i < n_values; ++i) {
      std::uint16_t half;
      std::memcpy(&half, from + std::size_t{i} * 2, 2);
      to[i] = high_half_to_f32(splat_u32(std::uint32_t{half} << 16))[0];
    }
  }
}

// Multiplies with the n_values floats at b: sums over 16 lanes, then over the rest in order.
[[gnu::always_inline]] inline float dot(const float* a, const std::byte* b,
                                        std::uint32_t n_values) noexcept {
  f32x4 sum[4] = {splat(0.0F), splat(0.0F), splat(0.0F), splat(0.0F)};
  std::uint32_t i = 0;
  for (; i + 16 <= n_values; i += 16) {
    for (unsigned v = 0; v < 4; ++v) {
      sum[v] += load<f32x4>(a + i + 4 * v) * load<f32x4>(b + std::size_t{i + 4 * v} * 4);
    }
  }
  for (; i + 4 <= n_values; i += 4)
    sum[0] += load<f32x4>(a + i) * load<f32x4>(b + std::size_t{i} * 4);
  float rest = 0.0F;
  for (; i < n_values; ++i) rest += a[i] * load<float>(b + std::size_t{i} * 4);
  return sum_lanes((sum[0] + sum[2]) + (sum[1] + sum[3])) + rest;
}

// Caps one head's n_slots scores, of the slots from args.first on, and adds the bias of distance.
void cap_and_bias(const AttendPageArgs& args, std::uint32_t head, std::uint32_t n_slots,
                  float* scores) noexcept {
  if (args.soft_cap != 0.0F) {
    const f32x4 cap = splat(args.soft_cap);
    for (std::uint32_t j = 0; j < n_slots; j += 4) {
      const std::uint32_t rest = n_slots - j < 4 ? n_slots - j : 4;
      store_part(scores + j, tanh(load_part(scores + j, rest) / cap) * cap, rest);
    }
  }
  if (args.slopes != nullptr) {
    const float slope = args.slopes[head];
    for (std::uint32_t j = 0; j < n_slots; ++j) {
      scores[j] += slope * static_cast<float>(args.positions[args.first + j] - args.q_position);
    }
  }
}

// Turns one head's scores into weights exp(score - max), updates its state and returns what the
// older sums are multiplied with. Slots behind n_slots up to a multiple of 4 get weight zero.
float weigh(const float* scores, std::uint32_t n_slots, AttendState* state,
            float* weights) noexcept {
  float max = state->max;
  for (std::uint32_t j = 0; j < n_slots; ++j) max = scores[j] > max ? scores[j] : max;
  // Without a finite score yet, subtracting 0 keeps exp(-inf) = 0 and lets NaN through.
  const float base = max == kNegativeInfinity ? 0.0F : max;
  const float correction = exp(splat(state->max - base))[0];
  float sum = 0.0F;
  for (std::uint32_t j = 0; j < n_slots; j += 4) {
    const std::uint32_t rest = n_slots - j < 4 ? n_slots - j : 4;
    store(weights + j, exp(load_part(scores + j, rest) - base));
    for (std::uint32_t i = 0; i < rest; ++i) sum += weights[j + i];
  }
  state->max = max;
  state->sum = state->sum * correction + sum;
  return correction;
}

// Adds the weighted sum of n_slots rows of kStrip floats, row_step bytes apart, to acc.
[[gnu::always_inline]] inline void add_strip(const std::byte* rows, std::size_t row_step,
                                             const float* weights, std::uint32_t n_slots,
                                             float correction, float* acc) noexcept {
  f32x4 sum[4] = {splat(0.0F), splat(0.0F), splat(0.0F), splat(0.0F)};
  for (std::uint32_t j = 0; j < n_slots; ++j) {
    const f32x4 weight = splat(weights[j]);
    for (unsigned v = 0; v < 4; ++v) sum[v] += load<f32x4>(rows + j * row_step + 16 * v) * weight;
  }
  for (unsigned v = 0; v < 4; ++v) {
    store(acc + 4 * v, load<f32x4>(acc + 4 * v) * correction + sum[v]);
  }
}

// One page for at most kHeadsAtOnce heads from `head` on.
template <KvType kType>
void attend_heads(const AttendPageArgs& args, std::uint32_t head, std::uint32_t n_heads) noexcept {
  alignas(64) float k_row[kMaxHeadDim];
  alignas(64) float scores[kHeadsAtOnce][kKvPageSlots];
  alignas(64) float weights[kHeadsAtOnce][kKvPageSlots];
  alignas(64) float strip[kKvPageSlots * kStrip];
  constexpr std::size_t kElement = kType == KvType::kF32 ? 4 : 2;
  const std::size_t row_bytes = args.head_dim * kElement;
  const std::uint32_t n_slots = args.last - args.first;
  const std::byte* k = args.k + args.first * row_bytes;
  const std::byte* v = args.v + args.first * row_bytes;

  for (std::uint32_t j = 0; j < n_slots; ++j) {
    const std::byte* row = k + j * row_bytes;
    if constexpr (kType != KvType::kF32) {
      widen<kType>(row, 0, args.head_dim, k_row);
      row = reinterpret_cast<const std::byte*>(k_row);
    }
    for (std::uint32_t h = 0; h < n_heads; ++h) {
      scores[h][j] = dot(args.q + (head + h) * args.q_stride, row, args.head_dim) * args.scale;
    }
  }
  float corrections[kHeadsAtOnce];
  for (std::uint32_t h = 0; h < n_heads; ++h) {
    cap_and_bias(args, head + h, n_slots, scores[h]);
    corrections[h] = weigh(scores[h], n_slots, args.state + head + h, weights[h]);
  }
  for (std::uint32_t d = 0; d < args.head_dim; d += kStrip) {
    const std::uint32_t width = args.head_dim - d < kStrip ? args.head_dim - d : kStrip;
    // f32 rows serve as they stand; what must be widened or padded goes to the strip.
    const bool in_place = kType == KvType::kF32 && width == kStrip;
    for (std::uint32_t j = 0; !in_place && j < n_slots; ++j) {
      float* row = strip + std::size_t{j} * kStrip;
      for (std::uint32_t i = width; i < kStrip; ++i) row[i] = 0.0F;
      widen<kType>(v + j * row_bytes, d, width, row);
    }
    const std::byte* rows = in_place ? v + d * kElement : reinterpret_cast<const std::byte*>(strip);
    const std::size_t row_step = in_place ? row_bytes : kStrip * sizeof(float);
    for (std::uint32_t h = 0; h < n_heads; ++h) {
      float* acc = args.acc + (head + h) * args.acc_stride + d;
      if (width == kStrip) {
        add_strip(rows, row_step, weights[h], n_slots, corrections[h], acc);
      } else {
        float part[kStrip] = {};
        std::memcpy(part, acc, width * sizeof(float));
        add_strip(rows, row_step, weights[h], n_slots, corrections[h], part);
        std::memcpy(acc, part, width * sizeof(float));
      }
    }
  }
}

template <KvType kType>
void attend_page(const AttendPageArgs& args) noexcept {
  if (args.first >= args.last) return;
  for (std::uint32_t head = 0; head < args.n_q; head += kHeadsAtOnce) {
    attend_heads<kType>(args, head,
                        args.n_q - head < kHeadsAtOnce ? args.n_q - head : kHeadsAtOnce);
  }
}

}  // namespace

void attend_page_f32_scalar(const AttendPageArgs& args) noexcept {
  attend_page<KvType::kF32>(args);
}
void attend_page_f16_scalar(const AttendPageArgs& args) noexcept {
  attend_page<KvType::kF16>(args);
}

}  // namespace qsf::kernels
