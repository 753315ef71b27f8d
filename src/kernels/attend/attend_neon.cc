// SPDX-License-Identifier: MIT
//
// Attention over one page, NEON: blocks of 6 queries by 16 columns fill 24 of 32 registers.

#include <arm_neon.h>

#include "kernels/attend/attend_page.h"
#include "kernels/attend/attend_variants.h"

namespace qsf::kernels {
namespace {

struct Lanes {
  using Vec = float32x4_t;
  using Half = std::uint16_t;
  static constexpr unsigned kWidth = 4;
  static constexpr unsigned kRows = 6;
  static constexpr unsigned kVectors = 4;
  static constexpr std::uint32_t kQueriesWorthAPanel = 24;

  [[gnu::always_inline]] static Vec splat(float value) noexcept { return vdupq_n_f32(value); }
  [[gnu::always_inline]] static Vec load(const float* from) noexcept { return vld1q_f32(from); }
  [[gnu::always_inline]] static Vec load(const Half* from) noexcept {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
  }
  [[gnu::always_inline]] static void store(float* to, Vec x) noexcept { vst1q_f32(to, x); }
  [[gnu::always_inline]] static Vec multiply_add(Vec a, Vec b, Vec c) noexcept {
    return vfmaq_f32(c, a, b);
  }
  // The larger, or `old` where `x` is NaN.
  [[gnu::always_inline]] static Vec larger(Vec x, Vec old) noexcept {
    return vbslq_f32(vcgtq_f32(x, old), x, old);
  }
  [[gnu::always_inline]] static Vec select_less(Vec a, Vec b, Vec yes, Vec no) noexcept {
    return vbslq_f32(vcltq_f32(a, b), yes, no);
  }
  // mantissa * 2^n, n = shifted - magic = the low bits of `shifted`, or 0 where x < least.
  [[gnu::always_inline]] static Vec scale_unless_less(Vec mantissa, Vec shifted, Vec, Vec x,
                                                      Vec least) noexcept {
    const int32x4_t power =
        vaddq_s32(vshlq_n_s32(vreinterpretq_s32_f32(shifted), 23), vdupq_n_s32(127 << 23));
    const uint32x4_t scaled =
        vreinterpretq_u32_f32(vmulq_f32(mantissa, vreinterpretq_f32_s32(power)));
    return vreinterpretq_f32_u32(vbicq_u32(scaled, vcltq_f32(x, least)));
  }
  [[gnu::always_inline]] static Vec distance(const std::int32_t* positions,
                                             std::int32_t from) noexcept {
    return vcvtq_f32_s32(vsubq_s32(vld1q_s32(positions), vdupq_n_s32(from)));
  }
  [[gnu::always_inline]] static float first_lane(Vec x) noexcept { return vgetq_lane_f32(x, 0); }
  [[gnu::always_inline]] static float largest_lane(Vec x) noexcept { return vmaxvq_f32(x); }
  [[gnu::always_inline]] static float sum_lanes(Vec x) noexcept {
    const float32x2_t y = vadd_f32(vget_low_f32(x), vget_high_f32(x));
    return vget_lane_f32(vpadd_f32(y, y), 0);
  }
};

}  // namespace

void attend_page_neon(const AttendPageArgs& args) noexcept {
  attend_page_internal::attend_page<Lanes>(args);
}

}  // namespace qsf::kernels
