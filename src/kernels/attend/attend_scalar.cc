// SPDX-License-Identifier: MIT
//
// Attention over one page, scalar tier: vectors of four without fused multiply-add, blocks of 4
// queries by 8 columns.

#include "kernels/attend/attend_page.h"
#include "kernels/attend/attend_query_tile_page.h"
#include "kernels/attend/attend_variants.h"
#include "kernels/vectors_scalar.h"

namespace qsf::kernels {
namespace {

using lanes::f32x4;
using lanes::i32x4;

struct Lanes {
  using Vec = f32x4;
  using Half = std::uint16_t;
  static constexpr unsigned kWidth = 4;
  static constexpr unsigned kRows = 4;
  static constexpr unsigned kVectors = 2;
  static constexpr std::uint32_t kQueriesWorthAPanel = 5;
  static constexpr std::uint32_t kQueriesWorthABytePanel = 5;
  static constexpr std::uint32_t kQueriesWorthACodePanel = 5;

  [[gnu::always_inline]] static Vec splat(float value) noexcept { return lanes::splat(value); }
  [[gnu::always_inline]] static Vec load(const float* from) noexcept {
    return lanes::load<f32x4>(from);
  }
  [[gnu::always_inline]] static Vec load(const Half* from) noexcept {
    typedef std::uint16_t u16x4 __attribute__((vector_size(8)));
    return lanes::high_half_to_f32(__builtin_convertvector(lanes::load<u16x4>(from), lanes::u32x4)
                                   << 16);
  }
  [[gnu::always_inline]] static Vec load(const std::int8_t* from) noexcept {
    typedef std::int8_t i8x4 __attribute__((vector_size(4)));
    return lanes::to_f32(__builtin_convertvector(lanes::load<i8x4>(from), i32x4));
  }
  // What the codes stand for that lie `shift` bits up in four bytes.
  template <unsigned kBits>
  [[gnu::always_inline]] static Vec widen(const std::uint8_t* bytes, std::uint32_t shift) noexcept {
    typedef std::uint8_t u8x4 __attribute__((vector_size(4)));
    constexpr int kMask = (1 << kBits) - 1;
    const i32x4 four = __builtin_convertvector(lanes::load<u8x4>(bytes), i32x4);
    const i32x4 codes = (four >> static_cast<int>(shift)) & kMask;
    return lanes::to_f32(codes + codes - attend_page_internal::kTopLevel<kBits>);
  }
  // Slots [slot, slot + 8) of a row of 32 or 16 bytes.
  template <unsigned kBits>
  [[gnu::always_inline]] static void load_key_codes(const std::uint8_t* row, std::uint32_t slot,
                                                    Vec (&slots)[2]) noexcept {
    constexpr std::uint32_t kRowBytes = kKvPageSlots * kBits / 8;
    const std::uint32_t shift = slot / kRowBytes * kBits;
    slots[0] = widen<kBits>(row + slot % kRowBytes, shift);
    slots[1] = widen<kBits>(row + slot % kRowBytes + kWidth, shift);
  }
  // Half of the unit of 8 or 4 bytes that holds 16 columns of values.
  template <unsigned kBits, unsigned kGroup>
  [[gnu::always_inline]] static void load_value_codes(const std::uint8_t* row, const float* scales,
                                                      std::uint32_t column,
                                                      Vec (&columns)[2]) noexcept {
    constexpr std::uint32_t kUnitBytes = 2 * kBits;
    const std::uint8_t* unit = row + column / 16 * kUnitBytes;
#pragma GCC unroll 2
    for (std::uint32_t v = 0; v < 2; ++v) {
      const std::uint32_t j = column % 16 + v * kWidth;
      columns[v] =
          widen<kBits>(unit + j % kUnitBytes, j / kUnitBytes * kBits) * scales[column / kGroup];
    }
  }
  [[gnu::always_inline]] static void store(float* to, Vec x) noexcept {
    lanes::store(to, x);
  }
  [[gnu::always_inline]] static Vec multiply_add(Vec a, Vec b, Vec c) noexcept {
    return a * b + c;
  }
  // The larger, or `old` where `x` is NaN.
  [[gnu::always_inline]] static Vec larger(Vec x, Vec old) noexcept {
    return lanes::select(x > old, x, old);
  }
  [[gnu::always_inline]] static Vec select_less(Vec a, Vec b, Vec yes, Vec no) noexcept {
    return lanes::select(a < b, yes, no);
  }
  // mantissa * 2^n, n = shifted - magic = the low bits of `shifted`, or 0 where x < least.
  [[gnu::always_inline]] static Vec scale_unless_less(Vec mantissa, Vec shifted, Vec, Vec x,
                                                      Vec least) noexcept {
    const lanes::u32x4 power = (lanes::bits_of(shifted) << 23) + (127U << 23);
    return lanes::select(x < least, lanes::splat(0.0F), mantissa * lanes::from_bits(power));
  }
  [[gnu::always_inline]] static Vec distance(const std::int32_t* positions,
                                             std::int32_t from) noexcept {
    return lanes::to_f32(lanes::load<i32x4>(positions) - from);
  }
  [[gnu::always_inline]] static float first_lane(Vec x) noexcept {
    return x[0];
  }
  [[gnu::always_inline]] static float largest_lane(Vec x) noexcept {
    const float a = x[0] > x[2] ? x[0] : x[2];
    const float b = x[1] > x[3] ? x[1] : x[3];
    return a > b ? a : b;
  }
  [[gnu::always_inline]] static float sum_lanes(Vec x) noexcept {
    return lanes::sum_lanes(x);
  }
};

}  // namespace

void attend_page_scalar(const AttendPageArgs& args) noexcept {
  attend_page_internal::attend_page<Lanes>(args);
}
void attend_query_tile_scores_scalar(const AttendQueryTileArgs& args) noexcept {
  attend_page_internal::query_tile_scores<Lanes>(args);
}
void attend_query_tile_normalise_scalar(const AttendNormaliseArgs& args) noexcept {
  attend_page_internal::query_tile_normalise<Lanes>(args);
}
void attend_query_tile_values_scalar(const AttendQueryTileArgs& args) noexcept {
  attend_page_internal::query_tile_values<Lanes>(args);
}

}  // namespace qsf::kernels
