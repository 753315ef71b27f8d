// SPDX-License-Identifier: MIT
//
// Attention over one page, AVX2 with FMA: blocks of 6 queries by 16 columns fill 12 of 16
// registers.

#include <immintrin.h>

#include <cstring>

#include "kernels/attend/attend_page.h"
#include "kernels/attend/attend_query_tile_page.h"
#include "kernels/attend/attend_variants.h"
#include "kernels/attend/attend_words.h"

namespace qsf::kernels {
namespace {

struct Lanes {
  using Vec = __m256;
  using Ints = __m256i;
  using Half = std::uint16_t;
  static constexpr unsigned kWidth = 8;
  static constexpr unsigned kRows = 6;
  static constexpr unsigned kVectors = 2;
  static constexpr std::uint32_t kQueriesWorthAPanel = 24;
  static constexpr std::uint32_t kQueriesWorthABytePanel = 13;
  static constexpr std::uint32_t kQueriesWorthACodePanel = 7;

  [[gnu::always_inline]] static Vec splat(float value) noexcept { return _mm256_set1_ps(value); }
  [[gnu::always_inline]] static Vec load(const float* from) noexcept {
    return _mm256_loadu_ps(from);
  }
  [[gnu::always_inline]] static Vec load(const Half* from) noexcept {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  [[gnu::always_inline]] static Vec load(const std::int8_t* from) noexcept {
    const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
  }
  // 2 code - 15 of codes in the low bits of 16 bytes, whose high bits are 0.
  [[gnu::always_inline]] static void widen(__m128i codes, Vec (&columns)[2]) noexcept {
    const __m128i levels =
        _mm_setr_epi8(-15, -13, -11, -9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 11, 13, 15);
    const __m128i numbers = _mm_shuffle_epi8(levels, codes);
    columns[0] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(numbers));
    columns[1] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(numbers, numbers)));
  }
  // 2 code - 3 of each code in 2 bits, in both halves: what permutes by it ignores higher bits.
  [[gnu::always_inline]] static Vec levels_of_2_bits() noexcept {
    return _mm256_setr_ps(-3.0F, -1.0F, 1.0F, 3.0F, -3.0F, -1.0F, 1.0F, 3.0F);
  }
  // Slots [slot, slot + 16) of a row of 32 or 16 bytes.
  template <unsigned kBits>
  [[gnu::always_inline]] static void load_key_codes(const std::uint8_t* row, std::uint32_t slot,
                                                    Vec (&slots)[2]) noexcept {
    constexpr std::uint32_t kRowBytes = kKvPageSlots * kBits / 8;
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + slot % kRowBytes));
    const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(slot / kRowBytes * kBits));
    const __m128i codes = _mm_srl_epi16(bytes, shift);
    if constexpr (kBits == 4) {
      widen(_mm_and_si128(codes, _mm_set1_epi8(15)), slots);
    } else {
      const __m256i low = _mm256_cvtepu8_epi32(codes);
      const __m256i high = _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(codes, codes));
      slots[0] = _mm256_permutevar_ps(levels_of_2_bits(), low);
      slots[1] = _mm256_permutevar_ps(levels_of_2_bits(), high);
    }
  }
  // The unit of 8 or 4 bytes that holds 16 columns of values.
  template <unsigned kBits, unsigned kGroup>
  [[gnu::always_inline]] static void load_value_codes(const std::uint8_t* row, const float* scales,
                                                      std::uint32_t column,
                                                      Vec (&columns)[2]) noexcept {
    const Vec scale = splat(scales[column / kGroup]);
    const std::uint8_t* at = row + column * kBits / 8;
    if constexpr (kBits == 4) {
      const __m128i unit = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
      const __m128i both = _mm_unpacklo_epi64(unit, _mm_srli_epi16(unit, 4));
      widen(_mm_and_si128(both, _mm_set1_epi8(15)), columns);
      columns[0] = _mm256_mul_ps(columns[0], scale);
      columns[1] = _mm256_mul_ps(columns[1], scale);
    } else {
      std::int32_t unit;
      std::memcpy(&unit, at, sizeof unit);
      const __m256i all = _mm256_set1_epi32(unit);
      const __m256i first = _mm256_setr_epi32(0, 8, 16, 24, 2, 10, 18, 26);
      const __m256i second = _mm256_setr_epi32(4, 12, 20, 28, 6, 14, 22, 30);
      const Vec scaled = _mm256_mul_ps(levels_of_2_bits(), scale);
      columns[0] = _mm256_permutevar_ps(scaled, _mm256_srlv_epi32(all, first));
      columns[1] = _mm256_permutevar_ps(scaled, _mm256_srlv_epi32(all, second));
    }
  }
  [[gnu::always_inline]] static void store(float* to, Vec x) noexcept { _mm256_storeu_ps(to, x); }
  [[gnu::always_inline]] static Vec multiply_add(Vec a, Vec b, Vec c) noexcept {
    return _mm256_fmadd_ps(a, b, c);
  }
  // The larger, or `old` where `x` is NaN.
  [[gnu::always_inline]] static Vec larger(Vec x, Vec old) noexcept {
    return _mm256_max_ps(x, old);
  }
  [[gnu::always_inline]] static Vec select_less(Vec a, Vec b, Vec yes, Vec no) noexcept {
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
  }
  // mantissa * 2^n, n = shifted - magic = the low bits of `shifted`, or 0 where x < least.
  [[gnu::always_inline]] static Vec scale_unless_less(Vec mantissa, Vec shifted, Vec, Vec x,
                                                      Vec least) noexcept {
    const __m256i power = _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(shifted), 23),
                                           _mm256_set1_epi32(127 << 23));
    return _mm256_and_ps(_mm256_mul_ps(mantissa, _mm256_castsi256_ps(power)),
                         _mm256_cmp_ps(x, least, _CMP_NLT_UQ));
  }
  [[gnu::always_inline]] static Vec distance(const std::int32_t* positions,
                                             std::int32_t from) noexcept {
    const __m256i at = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(positions));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(at, _mm256_set1_epi32(from)));
  }
  [[gnu::always_inline]] static float first_lane(Vec x) noexcept { return _mm256_cvtss_f32(x); }
  [[gnu::always_inline]] static float largest_lane(Vec x) noexcept {
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
  }
  [[gnu::always_inline]] static float sum_lanes(Vec x) noexcept {
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
  }

  [[gnu::always_inline]] static Ints no_ints() noexcept { return _mm256_setzero_si256(); }
  [[gnu::always_inline]] static Ints load_ints(const std::int32_t* from) noexcept {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  [[gnu::always_inline]] static Ints load_ints(const std::int8_t* from) noexcept {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }
  [[gnu::always_inline]] static void store_ints(std::int32_t* to, Ints x) noexcept {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x);
  }
  // Two numbers in every lane.
  [[gnu::always_inline]] static Ints splat_words(const std::int16_t* from) noexcept {
    std::int32_t both;
    std::memcpy(&both, from, sizeof both);
    return _mm256_set1_epi32(both);
  }
  [[gnu::always_inline]] static Ints round(Vec x) noexcept { return _mm256_cvtps_epi32(x); }
  [[gnu::always_inline]] static Vec to_floats(Ints x) noexcept { return _mm256_cvtepi32_ps(x); }
  // The lower halves of all lanes, `high` above `low`.
  [[gnu::always_inline]] static Ints join_words(Ints low, Ints high) noexcept {
    return _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xAA);
  }
  // Rounds sixteen weights to whole numbers.
  [[gnu::always_inline]] static void store_words(std::int16_t* to, const Vec (&x)[2]) noexcept {
    const Ints packed = _mm256_packs_epi32(round(x[0]), round(x[1]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(packed, 0xD8));
  }
  // sum + a[0] * b[0] + a[1] * b[1] in each lane.
  [[gnu::always_inline]] static Ints dot_words(Ints sum, Ints a, Ints b) noexcept {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
  }
};

}  // namespace

void attend_page_avx2(const AttendPageArgs& args) noexcept {
  attend_page_internal::attend_page<Lanes>(args);
}
void attend_load_queries_words_avx2(const AttendQueryArgs& args) noexcept {
  attend_page_internal::load_query_words<Lanes>(args);
}
void attend_page_words_avx2(const AttendPageArgs& args) noexcept {
  attend_page_internal::attend_page_words<Lanes>(args);
}
void attend_query_tile_scores_avx2(const AttendQueryTileArgs& args) noexcept {
  attend_page_internal::query_tile_scores<Lanes>(args);
}
void attend_query_tile_normalise_avx2(const AttendNormaliseArgs& args) noexcept {
  attend_page_internal::query_tile_normalise<Lanes>(args);
}
void attend_query_tile_values_avx2(const AttendQueryTileArgs& args) noexcept {
  attend_page_internal::query_tile_values<Lanes>(args);
}

}  // namespace qsf::kernels
