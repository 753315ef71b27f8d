// SPDX-License-Identifier: MIT
//
// Both products of attention in tiles of bf16 with f32 sums, for the kernels of the amx tier.
//
// A page's keys and values are rounded to bf16 once for all queries of a tile, in pairs of the rows
// that a product sums over, as the instruction wants them.
//
// All functions have internal linkage: each tier compiles its own.

#ifndef QSF_KERNELS_ATTEND_ATTEND_PAIRS_AMX_H_
#define QSF_KERNELS_ATTEND_ATTEND_PAIRS_AMX_H_

#include "kernels/amx_tiles.h"
#include "kernels/attend/attend_lanes_avx512.h"
#include "kernels/attend/attend_page.h"

namespace qsf::kernels::attend_amx_internal {

using attend_page_internal::Avx512Lanes;
using attend_page_internal::Run;
using attend_page_internal::scales_of;

constexpr std::uint32_t kBlockQueries = 16;  // rows of a tile
constexpr std::uint32_t kTileTerms = 32;     // that one tile instruction sums over
constexpr std::uint32_t kTileColumns = 16;
constexpr std::uint32_t kStripTiles = 4;  // tiles of sums: 0 to 3
constexpr std::uint32_t kStripColumns = kStripTiles * kTileColumns;
constexpr unsigned kLeft = 4;   // tiles of operands
constexpr unsigned kRight = 5;  // and 6: loads alternate
static_assert(kStripColumns == kKvPageSlots);

static constexpr std::uint32_t round_up(std::uint32_t n, std::uint32_t step) {
  return (n + step - 1) / step * step;
}

[[gnu::always_inline]] static inline __m256i round_to_bf16(__m512 x) noexcept {
  return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
}

[[gnu::always_inline]] static inline __m512 load_part(const float* from, __mmask16 mask) noexcept {
  return _mm512_maskz_loadu_ps(mask, from);
}
[[gnu::always_inline]] static inline __m512 load_part(const std::uint16_t* from,
                                                      __mmask16 mask) noexcept {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from));
}
[[gnu::always_inline]] static inline float widen_half(std::uint16_t half) noexcept {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}

// Rows of a block, 16 columns at a time: `load` gives columns [c, c + 16) of a row, zeros where the
// mask is. Codes times scales are exact in f32.
template <typename T>
struct PlainRows {
  const T* at;
  std::size_t stride;
  [[gnu::always_inline]] __m512 load(std::uint32_t row, std::uint32_t c,
                                     __mmask16 mask) const noexcept {
    return load_part(at + row * stride + c, mask);
  }
};

// Keys in 8 bits, a scale a column; values, a scale a row.
struct KeyBytes {
  const std::int8_t* codes;
  const std::uint16_t* scales;
  [[gnu::always_inline]] __m512 load(std::uint32_t row, std::uint32_t c,
                                     __mmask16 mask) const noexcept {
    if (mask == 0) return _mm512_setzero_ps();
    return _mm512_mul_ps(Avx512Lanes::load(codes + row * kKvPageSlots + c),
                         Avx512Lanes::load(scales + c));
  }
};
struct ValueBytes {
  const std::int8_t* codes;
  const std::uint16_t* scales;
  std::size_t n_columns;
  [[gnu::always_inline]] __m512 load(std::uint32_t row, std::uint32_t c,
                                     __mmask16 mask) const noexcept {
    if (mask == 0) return _mm512_setzero_ps();
    return _mm512_mul_ps(Avx512Lanes::load(codes + row * n_columns + c),
                         _mm512_set1_ps(widen_half(scales[row])));
  }
};

// The same in 4 or 2 bits, a scale for `group` dimensions.
template <unsigned kBits>
struct KeyCodes {
  const std::uint8_t* codes;
  const std::uint16_t* scales;
  std::uint32_t group;
  [[gnu::always_inline]] __m512 load(std::uint32_t row, std::uint32_t c,
                                     __mmask16 mask) const noexcept {
    if (mask == 0) return _mm512_setzero_ps();
    constexpr std::uint32_t kRowBytes = kKvPageSlots * kBits / 8;
    const std::uint8_t* bytes = codes + row * kRowBytes + c % kRowBytes;
    const __m512i wide =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
    const __m512i shifted = _mm512_srli_epi32(wide, c / kRowBytes * kBits);
    return _mm512_mul_ps(Avx512Lanes::take<kBits>(Avx512Lanes::levels<kBits>(), shifted),
                         Avx512Lanes::load(scales + row / group * kKvPageSlots + c));
  }
};
template <unsigned kBits>
struct ValueCodes {
  const std::uint8_t* codes;
  const std::uint16_t* scales;
  std::size_t n_columns;
  std::uint32_t group;
  [[gnu::always_inline]] __m512 load(std::uint32_t row, std::uint32_t c,
                                     __mmask16 mask) const noexcept {
    if (mask == 0) return _mm512_setzero_ps();
    const __m512i of_unit =
        Avx512Lanes::codes_of_unit<kBits>(codes + (row * n_columns + c) * kBits / 8);
    const float scale = widen_half(scales[row * (n_columns / group) + c / group]);
    return _mm512_mul_ps(Avx512Lanes::take<kBits>(Avx512Lanes::levels<kBits>(), of_unit),
                         _mm512_set1_ps(scale));
  }
};

// Writes rows 2 p and 2 p + 1, rounded, as row p of `pairs`: zeros for rows outside `valid` and
// columns from n_columns up to the next 16. Returns whether all that was read is finite in bf16.
template <typename Rows>
[[gnu::noinline]] static bool make_pairs(const Rows& rows, AttendRange valid, std::uint32_t n_pairs,
                                         std::uint32_t n_columns, std::uint32_t* pairs) noexcept {
  constexpr int kNotFinite = 0x99;  // NaN of both kinds, infinities of both signs
  __mmask16 not_finite = 0;
  for (std::uint32_t pair = 0; pair < n_pairs; ++pair) {
    const std::uint32_t row = 2 * pair;
    const bool first = row >= valid.first && row < valid.last;
    const bool second = row + 1 >= valid.first && row + 1 < valid.last;
    for (std::uint32_t c = 0; c < n_columns; c += kTileColumns, pairs += kTileColumns) {
      const std::uint32_t rest = n_columns - c;
      const auto mask = static_cast<__mmask16>(rest < 16 ? (1U << rest) - 1U : 0xFFFFU);
      const __m512 x = rows.load(row, c, first ? mask : __mmask16{0});
      const __m512 y = rows.load(row + 1, c, second ? mask : __mmask16{0});
      const __m512i low = _mm512_cvtepu16_epi32(round_to_bf16(x));
      const __m512i high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(round_to_bf16(y)), 16);
      const __m512 again = _mm512_castsi512_ps(_mm512_slli_epi32(low, 16));
      not_finite =
          static_cast<__mmask16>(not_finite | _mm512_fpclass_ps_mask(again, kNotFinite) |
                                 _mm512_fpclass_ps_mask(_mm512_castsi512_ps(high), kNotFinite));
      _mm512_storeu_si512(pairs, _mm512_or_si512(low, high));
    }
  }
  return not_finite == 0;
}

static void make_key_pairs(const AttendPageArgs& args, std::uint32_t* pairs) noexcept {
  const std::uint32_t n_dims = kv_columns(args.k_type, args.head_dim);
  const std::uint32_t n_pairs = round_up(n_dims, kTileTerms) / 2;
  const auto make = [&](const auto& rows) {
    make_pairs(rows, {0, n_dims}, n_pairs, kKvPageSlots, pairs);
  };
  const std::uint16_t* scales = scales_of(args.k, args.k_type, args.head_dim);
  const std::uint32_t group = kv_group(args.k_type, args.head_dim);
  switch (args.k_type) {
    case KvType::kF32:
      return make(PlainRows<float>{reinterpret_cast<const float*>(args.k), kKvPageSlots});
    case KvType::kF16:
      return make(
          PlainRows<std::uint16_t>{reinterpret_cast<const std::uint16_t*>(args.k), kKvPageSlots});
    case KvType::k8Bit: return make(KeyBytes{reinterpret_cast<const std::int8_t*>(args.k), scales});
    case KvType::k4Bit:
      return make(KeyCodes<4>{reinterpret_cast<const std::uint8_t*>(args.k), scales, group});
    case KvType::k2Bit:
      return make(KeyCodes<2>{reinterpret_cast<const std::uint8_t*>(args.k), scales, group});
  }
}

// Returns whether the values of slots `valid` are finite.
static bool make_value_pairs(const AttendPageArgs& args, AttendRange valid,
                             std::uint32_t* pairs) noexcept {
  const std::uint32_t n_columns = kv_columns(args.v_type, args.head_dim);
  const auto make = [&](const auto& rows) {
    return make_pairs(rows, valid, kKvPageSlots / 2, n_columns, pairs);
  };
  const std::uint16_t* scales = scales_of(args.v, args.v_type, args.head_dim);
  const std::uint32_t group = kv_group(args.v_type, args.head_dim);
  switch (args.v_type) {
    case KvType::kF32:
      return make(PlainRows<float>{reinterpret_cast<const float*>(args.v), n_columns});
    case KvType::kF16:
      return make(
          PlainRows<std::uint16_t>{reinterpret_cast<const std::uint16_t*>(args.v), n_columns});
    case KvType::k8Bit:
      return make(ValueBytes{reinterpret_cast<const std::int8_t*>(args.v), scales, n_columns});
    case KvType::k4Bit:
      return make(
          ValueCodes<4>{reinterpret_cast<const std::uint8_t*>(args.v), scales, n_columns, group});
    case KvType::k2Bit:
      return make(
          ValueCodes<2>{reinterpret_cast<const std::uint8_t*>(args.v), scales, n_columns, group});
  }
  return false;
}

// sums[16][:] = left x right, for n_tiles tiles of columns: left [16] rows left_stride bytes apart,
// right rows of pairs right_stride bytes apart, sums rows sums_stride bytes apart, n_steps times 32
// terms.
[[gnu::noinline]] static void multiply(const std::byte* left, std::size_t left_stride,
                                       const std::byte* right, std::size_t right_stride,
                                       std::uint32_t n_steps, std::uint32_t n_tiles, float* sums,
                                       std::size_t sums_stride) noexcept {
  amx::zero<0>();
  amx::zero<1>();
  amx::zero<2>();
  amx::zero<3>();
  for (std::uint32_t step = 0; step < n_steps; ++step) {
    amx::load<kLeft>(left, left_stride);
    amx::load<kRight>(right, right_stride);
    amx::dot_bf16<0, kLeft, kRight>();
    if (n_tiles > 1) {
      amx::load<kRight + 1>(right + amx::kTileRowBytes, right_stride);
      amx::dot_bf16<1, kLeft, kRight + 1>();
    }
    if (n_tiles > 2) {
      amx::load<kRight>(right + 2 * amx::kTileRowBytes, right_stride);
      amx::dot_bf16<2, kLeft, kRight>();
    }
    if (n_tiles > 3) {
      amx::load<kRight + 1>(right + 3 * amx::kTileRowBytes, right_stride);
      amx::dot_bf16<3, kLeft, kRight + 1>();
    }
    left += amx::kTileRowBytes;
    right += amx::kTileRows * right_stride;
  }
  amx::store<0>(sums, sums_stride);
  if (n_tiles > 1) amx::store<1>(sums + kTileColumns, sums_stride);
  if (n_tiles > 2) amx::store<2>(sums + 2 * kTileColumns, sums_stride);
  if (n_tiles > 3) amx::store<3>(sums + 3 * kTileColumns, sums_stride);
}

// Returns the run of queries from `query` on, up to `end`, whose rows see the same slots.
[[maybe_unused]] static Run run_from(const AttendPageArgs& args, std::uint32_t query,
                                     std::uint32_t end) noexcept {
  const AttendRange range = args.visible[query / args.n_q];
  std::uint32_t last = query + 1;
  while (last < end && args.visible[last / args.n_q].first == range.first &&
         args.visible[last / args.n_q].last == range.last) {
    ++last;
  }
  return {query, last - query, range.first, range.last};
}

// Returns the slots that any row of a tile sees, from the first to the last; and in `alike` whether
// all rows see the same. Without any the range is not a range.
static AttendRange seen_by_any(const AttendPageArgs& args, bool* alike) noexcept {
  AttendRange seen = {kKvPageSlots, 0};
  *alike = true;
  for (std::uint32_t row = 0; row < args.n_rows; ++row) {
    const AttendRange range = args.visible[row];
    *alike = *alike && range.first == args.visible[0].first && range.last == args.visible[0].last;
    if (range.first >= range.last) continue;
    seen.first = range.first < seen.first ? range.first : seen.first;
    seen.last = range.last > seen.last ? range.last : seen.last;
  }
  return seen;
}

// The tiles that multiply() works with.
static amx::TileShapes whole_tiles() noexcept {
  amx::TileShapes shapes;
  for (unsigned tile = 0; tile <= kRight + 1; ++tile) {
    amx::set_shape(&shapes, tile, amx::kTileRows, amx::kTileRowBytes);
  }
  return shapes;
}

}  // namespace qsf::kernels::attend_amx_internal

#endif  // QSF_KERNELS_ATTEND_ATTEND_PAIRS_AMX_H_
