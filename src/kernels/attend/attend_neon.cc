// SPDX-License-Identifier: MIT
//
// Attention over one page, NEON: blocks of 6 queries by 16 columns fill 24 of 32 registers.

#include <arm_neon.h>

#include "kernels/attend/attend_page.h"
#include "kernels/attend/attend_query_tile_page.h"
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
  static constexpr std::uint32_t kQueriesWorthABytePanel = 13;
  static constexpr std::uint32_t kQueriesWorthACodePanel = 7;

  [[gnu::always_inline]] static Vec splat(float value) noexcept { return vdupq_n_f32(value); }
  [[gnu::always_inline]] static Vec load(const float* from) noexcept { return vld1q_f32(from); }
  [[gnu::always_inline]] static Vec load(const Half* from) noexcept {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
  }
  [[gnu::always_inline]] static Vec load(const std::int8_t* from) noexcept {
    std::uint32_t four;
    std::memcpy(&four, from, sizeof four);
    const int16x8_t codes = vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(codes)));
  }
  // What 16 codes stand for, whose bits above kBits are ignored.
  template <unsigned kBits>
  [[gnu::always_inline]] static void widen(uint8x16_t bytes, Vec (&columns)[4]) noexcept {
    const uint8x16_t codes = vandq_u8(bytes, vdupq_n_u8((1U << kBits) - 1U));
    const int8x16_t numbers = vsubq_s8(vreinterpretq_s8_u8(vshlq_n_u8(codes, 1)),
                                       vdupq_n_s8(attend_page_internal::kTopLevel<kBits>));
    const int16x8_t low = vmovl_s8(vget_low_s8(numbers));
    const int16x8_t high = vmovl_s8(vget_high_s8(numbers));
    columns[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(low)));
    columns[1] = vcvtq_f32_s32(vmovl_s16(vget_high_s16(low)));
    columns[2] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(high)));
    columns[3] = vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)));
  }
  // Slots [slot, slot + 16) of a row of 32 or 16 bytes.
  template <unsigned kBits>
  [[gnu::always_inline]] static void load_key_codes(const std::uint8_t* row, std::uint32_t slot,
                                                    Vec (&slots)[4]) noexcept {
    constexpr std::uint32_t kRowBytes = kKvPageSlots * kBits / 8;
    const int shift = static_cast<int>(slot / kRowBytes * kBits);
    widen<kBits>(
        vshlq_u8(vld1q_u8(row + slot % kRowBytes), vdupq_n_s8(static_cast<int8_t>(-shift))), slots);
  }
  // The unit of 8 or 4 bytes that holds 16 columns of values.
  template <unsigned kBits, unsigned kGroup>
  [[gnu::always_inline]] static void load_value_codes(const std::uint8_t* row, const float* scales,
                                                      std::uint32_t column,
                                                      Vec (&columns)[4]) noexcept {
    if constexpr (kBits == 4) {
      const uint8x8_t unit = vld1_u8(row + column / 2);
      widen<kBits>(vcombine_u8(unit, vshr_n_u8(unit, 4)), columns);
    } else {
      static constexpr std::int8_t kShifts[16] = {0,  0,  0,  0,  -2, -2, -2, -2,
                                                  -4, -4, -4, -4, -6, -6, -6, -6};
      std::uint32_t unit;
      std::memcpy(&unit, row + column / 4, sizeof unit);
      const uint8x16_t all = vreinterpretq_u8_u32(vdupq_n_u32(unit));
      widen<kBits>(vshlq_u8(all, vld1q_s8(kShifts)), columns);
    }
    const Vec scale = splat(scales[column / kGroup]);
#pragma GCC unroll 4
    for (Vec& vector : columns) vector = vmulq_f32(vector, scale);
  }
  [[gnu::always_inline]] static void store(float* to, Vec x) noexcept {
    vst1q_f32(to, x);
  }
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
  [[gnu::always_inline]] static float first_lane(Vec x) noexcept {
    return vgetq_lane_f32(x, 0);
  }
  [[gnu::always_inline]] static float largest_lane(Vec x) noexcept {
    return vmaxvq_f32(x);
  }
  [[gnu::always_inline]] static float sum_lanes(Vec x) noexcept {
    const float32x2_t y = vadd_f32(vget_low_f32(x), vget_high_f32(x));
    return vget_lane_f32(vpadd_f32(y, y), 0);
  }
};

}  // namespace

void attend_page_neon(const AttendPageArgs& args) noexcept {
  attend_page_internal::attend_page<Lanes>(args);
}
void attend_query_tile_scores_neon(const AttendQueryTileArgs& args) noexcept {
  attend_page_internal::query_tile_scores<Lanes>(args);
}
void attend_query_tile_normalise_neon(const AttendNormaliseArgs& args) noexcept {
  attend_page_internal::query_tile_normalise<Lanes>(args);
}
void attend_query_tile_values_neon(const AttendQueryTileArgs& args) noexcept {
  attend_page_internal::query_tile_values<Lanes>(args);
}

}  // namespace qsf::kernels
