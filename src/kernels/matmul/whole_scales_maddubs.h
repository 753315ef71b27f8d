// SPDX-License-Identifier: MIT
//
// Products with int8 rows in vectors of up to 256 bits, for the types whose scales are whole
// numbers (q2_k, q3_k, q6_k, tables): as matmul_i8_maddubs.h, by activation blocks of 64 columns.
//
// With maddubs, the product that adds the two 16-bit sums of a row multiplies them with the scale
// of their sub-block at once, in the place of ones; with dot the sums of a sub-block are
// multiplied. Only the sums of an activation block become floats. Scales and mins are pairs of 16
// bits, of sub-blocks 0 and 2 and of 1 and 3, as their bytes yield them.

#ifndef QSF_KERNELS_MATMUL_WHOLE_SCALES_MADDUBS_H_
#define QSF_KERNELS_MATMUL_WHOLE_SCALES_MADDUBS_H_

#include "kernels/matmul/matmul_i8_maddubs.h"

namespace qsf::kernels::maddubs {

// The scales and mins of an activation block, of the rows in one vector.
template <typename V>
struct Block64Fields {
  typename V::Ints scales[2];
  typename V::Ints mins[2];  // without meaning for types without
};

template <typename V, QuantType kType>
[[gnu::always_inline]] static inline Block64Fields<V> load_block64_fields(const BlockPlace& place,
                                                                          unsigned v) noexcept {
  using Ints = typename V::Ints;
  const Ints bytes = V::load(place.low + v * sizeof(Ints));
  Block64Fields<V> out;
  out.mins[0] = out.mins[1] = V::zero();
  if constexpr (kType == QuantType::kQ4Codebook) {
    const unsigned x_block = place.k / 4;
    const Ints words = V::widen_words(place.high + v * V::kRows * 2);
    const Ints high = V::down32(V::either(words, V::up32(words, 8)), 2 * x_block);
    const Ints low = V::both(V::down32(bytes, 4 * x_block), V::splat_int(0x000F000F));
    const Ints six = V::either(low, V::both(V::up32(high, 4), V::splat_int(0x00300030)));
    out.scales[0] = out.scales[1] = V::template down_signed<10>(V::template up<10>(six));
  } else if constexpr (is_codebook_type(kType)) {
    // Half a byte to the top of 16 bits, then down with its sign.
    const Ints top =
        V::up32(V::both(V::down32(bytes, place.k / 4 % 2 * 4), V::splat_bytes(0x0F)), 4);
    out.scales[0] = V::template down_signed<12>(V::template up<8>(top));
    out.scales[1] = V::template down_signed<12>(top);
  } else if constexpr (has_min(kType)) {
    const typename V::Ints nibble = V::splat_int(0x000F000F);
    out.scales[0] = V::both(bytes, nibble);
    out.scales[1] = V::both(V::template down<8>(bytes), nibble);
    out.mins[0] = V::both(V::template down<4>(bytes), nibble);
    out.mins[1] = V::template down<12>(bytes);
  } else {
    out.scales[0] = V::template down_signed<8>(V::template up<8>(bytes));
    out.scales[1] = V::template down_signed<8>(bytes);
  }
  return out;
}

// Whether the sum of a sub-block fits 16 bits.
template <typename V, QuantType kType>
static constexpr bool kFitsWords =
    kSignedOffset<V, kType> == 0 && kLargestCode<kType> * 127 * 16 <= 32767;

// The scale of sub-block kQuarter as its sums are multiplied: for both 16-bit sums of a row, or for
// one of 16 or of 32 bits.
template <typename V, QuantType kType, unsigned kQuarter>
[[gnu::always_inline]] static inline typename V::Ints scale_of(
    const Block64Fields<V>& fields) noexcept {
  const typename V::Ints pair = fields.scales[kQuarter % 2];
  if constexpr (V::kHasDot && kFitsWords<V, kType>) {
    return kQuarter < 2 ? V::both(pair, V::splat_int(0xFFFF)) : V::down32(pair, 16);
  } else if constexpr (V::kHasDot) {
    return V::down32_signed(kQuarter < 2 ? V::up32(pair, 16) : pair, 16);
  } else {
    const __m128i lower = _mm_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13);
    const __m128i upper = _mm_setr_epi8(2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15);
    return V::look_up(pair, V::repeat(kQuarter < 2 ? lower : upper));
  }
}

// The sum of fields times numbers of the quarters of an activation block.
template <typename V>
[[gnu::always_inline]] static inline typename V::Ints times_quarters(
    const typename V::Ints fields[2], const std::byte* quarters) noexcept {
  return V::add32(V::multiply_words(fields[0], V::splat_four(quarters)),
                  V::multiply_words(fields[1], V::splat_four(quarters + 4)));
}

// What is taken out of the codes of a type as they are multiplied.
template <typename V, QuantType kType>
static constexpr int kCodeZero = code_zero(kType) + kSignedOffset<V, kType>;

// What the sums of an activation block begin with: the share of the zero of the codes.
template <typename V, QuantType kType>
[[gnu::always_inline]] static inline typename V::Ints zeros_of(const typename V::Ints scales[2],
                                                               const std::byte* x_block) noexcept {
  constexpr int kZero = kCodeZero<V, kType>;
  static_assert(kZero == 0 || kZero == 4 || kZero == 32 || kZero == 128);
  if constexpr (kZero == 0) return V::zero();
  const auto fours = times_quarters<V>(scales, x_block + offsetof(Int8Block, quarter_zeros));
  return kZero == 4 ? fours : V::up32(fours, kZero == 32 ? 3 : 5);
}

// Adds the sums of an activation block to the totals of the rows in one vector, in the order of
// matmul.h.
template <typename V, QuantType kType>
[[gnu::always_inline]] static inline typename V::Floats add_block64_sums(
    typename V::Floats total, typename V::Ints sums, typename V::Floats d, typename V::Floats dmin,
    const typename V::Ints mins[2], const std::byte* x_block) noexcept {
  typename V::Floats term = V::multiply(d, V::to_floats(sums));
  if constexpr (has_min(kType)) {
    const auto shifts = times_quarters<V>(mins, x_block + offsetof(Int8Block, quarter_sums));
    term = V::add(term, V::multiply(dmin, V::to_floats(shifts)));
  }
  return V::add(total, V::multiply(term, V::splat_at(x_block)));
}

// Adds the sums of a sub-block by dot, times its scale.
template <typename V, QuantType kType>
[[gnu::always_inline]] static inline typename V::Ints add_scaled(typename V::Ints sums,
                                                                 typename V::Ints dot,
                                                                 typename V::Ints scale) noexcept {
  if constexpr (kFitsWords<V, kType>)
    return V::dot_words(sums, dot, scale);
  else
    return V::add32(sums, V::multiply32(dot, scale));
}

// Products of fours of a sub-block that fit a 16-bit sum.
template <QuantType kType>
static constexpr std::uint32_t kFoursPerSum = fours_per_sum<kType, 16>();

// Adds sub-block kQuarter, times its scales, to the sums of kRows rows of x, by dot.
template <typename V, QuantType kType, unsigned kQuarter, std::uint32_t kRows>
[[gnu::always_inline]] static inline void add_dot_quarter(const std::byte* lines, unsigned v,
                                                          const Block64Fields<V>& fields,
                                                          const std::byte* const x[kRows],
                                                          std::size_t column,
                                                          typename V::Ints sums[kRows]) noexcept {
  using Ints = typename V::Ints;
  const Ints scale = scale_of<V, kType, kQuarter>(fields);
  Ints even[kRows];
  Ints odd[kRows];

#pragma GCC unroll 16
  for (unsigned i = 0; i < kRows; ++i) {
    even[i] = odd[i] = V::zero();
  }
  for_fours<V, kType, 16>(
      lines + quarter_offset<kType>(kQuarter), kQuarter % 2,
      v, [&](unsigned four, Ints codes, bool is_odd) __attribute__((always_inline)) {
        each<kRows>([&](unsigned i) __attribute__((always_inline)) {
          const Ints q = in_order(V::splat_four(x[i] + column + 16 * kQuarter + 4 * four));
          Ints& sum = is_odd ? odd[i] : even[i];
          sum = in_order(V::dot(sum, codes, q));
        });
      });

#pragma GCC unroll 16
  for (unsigned i = 0; i < kRows; ++i) {
    if constexpr (kOddShift<kType> != 0) {
      even[i] = V::add32(even[i], V::down32_signed(odd[i], kOddShift<kType>));
    }
    sums[i] = add_scaled<V, kType>(sums[i], even[i], scale);
  }
}

// The same by maddubs.
template <typename V, QuantType kType, unsigned kQuarter, std::uint32_t kRows>
[[gnu::always_inline]] static inline void add_quarter(const std::byte* lines, unsigned v,
                                                      const Block64Fields<V>& fields,
                                                      const std::byte* const x[kRows],
                                                      std::size_t column,
                                                      typename V::Ints sums[kRows]) noexcept {
  using Ints = typename V::Ints;
  const Ints scale = scale_of<V, kType, kQuarter>(fields);
  Ints even[kRows];
  Ints odd[kRows];

#pragma GCC unroll 16
  for (unsigned i = 0; i < kRows; ++i) {
    even[i] = odd[i] = V::zero();
  }
  for_fours<V, kType, 16>(
      lines + quarter_offset<kType>(kQuarter), kQuarter % 2,
      v, [&](unsigned four, Ints codes, bool is_odd) __attribute__((always_inline)) {
        each<kRows>([&](unsigned i) __attribute__((always_inline)) {
          const Ints q = in_order(V::splat_four(x[i] + column + 16 * kQuarter + 4 * four));
          if constexpr (is_codebook_type(kType)) {
            const Ints pairs = V::multiply_pairs(V::magnitude(codes), V::with_sign(q, codes));
            sums[i] = in_order(V::add32(sums[i], V::multiply_words(pairs, scale)));
            return;
          }
          const Ints pairs = V::multiply_pairs(codes, q);
          if (is_odd) {
            odd[i] = in_order(V::add16(odd[i], pairs));
          } else {
            even[i] = in_order(V::add16(even[i], pairs));
          }
          if (four % kFoursPerSum<kType> != kFoursPerSum<kType> - 1) return;
          if constexpr (kOddShift<kType> != 0) {
            even[i] = V::add16(even[i], V::template down_signed<kOddShift<kType>>(odd[i]));
          }
          sums[i] = V::add32(sums[i], V::multiply_words(even[i], scale));
          even[i] = odd[i] = V::zero();
        });
      });
}

// d and dmin of the rows of a super-block.
template <typename V>
struct SuperFields {
  typename V::Floats d[V::kVectors];
  typename V::Floats dmin[V::kVectors];  // 0 of types without

  template <QuantType kType>
  [[gnu::always_inline]] inline void load(const BlockPlace& place) noexcept {
#pragma GCC unroll 16
    for (unsigned v = 0; v < V::kVectors; ++v) {
      d[v] = V::widen_halves(place.scales + v * V::kRows * 2);
      if constexpr (has_min(kType)) dmin[v] = V::widen_halves(place.mins + v * V::kRows * 2);
    }
  }
};

template <QuantType kType>
static constexpr std::size_t kInt8BlockBytes = kCodeBytes<kType, kActivationBlockColumns>;
static constexpr std::uint32_t kSuperBlock64s = kSuperColumns / kActivationBlockColumns;

// The product with the first kRows rows of x: codes stay in registers.
template <typename V, QuantType kType, std::uint32_t kRows>
[[gnu::noinline]] static void few_whole_rows(const MatMulArgs& args) noexcept {
  const auto n_x_blocks = static_cast<std::uint32_t>(int8_blocks(args.n_cols));
  const std::byte* x[kRows];

#pragma GCC unroll 16
  for (unsigned i = 0; i < kRows; ++i) {
    x[i] = args.x + i * args.x_stride;
  }
  const std::byte* group = args.weights;
  for (std::uint32_t row = 0; row < args.n_rows; row += kRowGroup, group += args.group_bytes) {
    typename V::Floats totals[kRows][V::kVectors];

#pragma GCC unroll 16
    for (unsigned i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
      for (unsigned v = 0; v < V::kVectors; ++v) {
        totals[i][v] = V::splat(0.0F);
      }
    }
    SuperFields<V> super = {};
    const std::byte* done = group;
    for (std::uint32_t c = 0; c < n_x_blocks; ++c) {
      const BlockPlace place = place_of<kType, 16>(group, std::size_t{4} * c);
      if (c % kSuperBlock64s == 0) super.template load<kType>(place);
      const std::byte* end = place.codes + kInt8BlockBytes<kType>;
      prefetch<V>(done, end, args.prefetch_bytes);
      done = end;
      const std::size_t column = std::size_t{c} * kActivationBlockColumns;
      const std::size_t x_block = int8_blocks_offset(args.n_cols) + c * sizeof(Int8Block);
      // No more than this loop is left to run: unrolled as well, code would outgrow the L1.
#pragma GCC unroll 1
      for (unsigned v = 0; v < V::kVectors; ++v) {
        const std::byte* rows[kRows];

#pragma GCC unroll 16
        for (unsigned i = 0; i < kRows; ++i) {
          rows[i] = again(x[i]);
        }
        const auto fields = load_block64_fields<V, kType>(place, v);
        typename V::Ints sums[kRows];

#pragma GCC unroll 16
        for (unsigned i = 0; i < kRows; ++i) {
          sums[i] = zeros_of<V, kType>(fields.scales, rows[i] + x_block);
        }
        each<4>([&](auto quarter) __attribute__((always_inline)) {
          constexpr unsigned kQuarter = decltype(quarter)::value;
          if constexpr (V::kHasDot) {
            add_dot_quarter<V, kType, kQuarter, kRows>(place.codes, v, fields, rows, column, sums);
          } else {
            add_quarter<V, kType, kQuarter, kRows>(place.codes, v, fields, rows, column, sums);
          }
        });

#pragma GCC unroll 16
        for (unsigned i = 0; i < kRows; ++i) {
          totals[i][v] = add_block64_sums<V, kType>(totals[i][v], sums[i], super.d[v],
                                                    super.dmin[v], fields.mins, rows[i] + x_block);
        }
      }
    }

#pragma GCC unroll 16
    for (unsigned i = 0; i < kRows; ++i) {
      store_rows<V>(totals[i], args.y + i * args.y_stride + row, args.n_rows - row);
    }
  }
}

// 64 columns of 16 rows, unpacked.
template <typename V>
struct alignas(64) Block64Strip {
  std::byte codes[kActivationBlockColumns * kRowGroup];
  typename V::Ints scales[4][V::kVectors];  // of each sub-block, by scale_of()
  typename V::Ints pairs[V::kVectors][2];   // of scales
  typename V::Ints mins[V::kVectors][2];
  SuperFields<V> super;
};

// Unpacks activation block `index` of a group; returns the end of its code lines.
template <typename V, QuantType kType>
[[gnu::always_inline]] static inline const std::byte* unpack_block64(
    const std::byte* group, std::size_t index, Block64Strip<V>* strip) noexcept {
  const BlockPlace place = place_of<kType, 16>(group, 4 * index);
  if (index % kSuperBlock64s == 0) strip->super.template load<kType>(place);
  using Ints = typename V::Ints;

#pragma GCC unroll 2
  for (unsigned v = 0; v < V::kVectors; ++v) {
    const auto fields = load_block64_fields<V, kType>(place, v);

#pragma GCC unroll 16
    for (unsigned pair = 0; pair < 2; ++pair) {
      strip->pairs[v][pair] = fields.scales[pair];
      strip->mins[v][pair] = fields.mins[pair];
    }
    each<4>([&](auto quarter) __attribute__((always_inline)) {
      constexpr unsigned kQuarter = decltype(quarter)::value;
      strip->scales[kQuarter][v] = scale_of<V, kType, kQuarter>(fields);
      std::byte* to = strip->codes + 4 * kQuarter * kLineBytes + v * sizeof(Ints);
      for_fours<V, kType, 16>(
          place.codes + quarter_offset<kType>(kQuarter), kQuarter % 2,
          v, [&](unsigned four, Ints codes, bool is_odd) __attribute__((always_inline)) {
            V::store(to + four * kLineBytes,
                     is_odd ? V::template down<kOddShift<kType>>(codes) : codes);
          });
    });
  }
  return place.codes + kInt8BlockBytes<kType>;
}

// How a strip's codes are multiplied: what differs between types once they are unpacked.
template <QuantType kType>
static constexpr QuantType kBlock64StripType = is_codebook_type(kType) ? QuantType::kQ4Codebook
                                                                       : kType;

// Adds a strip's products with kRows rows of x to their totals [kRows][16].
template <typename V, QuantType kType, std::uint32_t kRows>
[[gnu::always_inline]] static inline void multiply_block64_tile(const Block64Strip<V>& strip,
                                                                const Inputs& in,
                                                                float* totals) noexcept {
  Tile<V, kRows> sums;

#pragma GCC unroll 16
  for (unsigned i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (unsigned v = 0; v < V::kVectors; ++v) {
      sums.sums[i][v] = zeros_of<V, kType>(strip.pairs[v], in.x_block + i * in.stride);
    }
  }
  constexpr std::uint32_t kFours = V::kHasDot ? 4 : kFoursPerSum<kType>;
#pragma GCC unroll 4
  for (unsigned four = 0; four < kActivationBlockColumns / 4; four += kFours) {
    const auto tile = sum_fours<V, kFours, kRows, is_codebook_type(kType)>(strip.codes, four, in);

#pragma GCC unroll 16
    for (unsigned i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
      for (unsigned v = 0; v < V::kVectors; ++v) {
        const typename V::Ints scale = strip.scales[four / 4][v];
        if constexpr (V::kHasDot) {
          sums.sums[i][v] = add_scaled<V, kType>(sums.sums[i][v], tile.sums[i][v], scale);
        } else {
          sums.sums[i][v] = V::add32(sums.sums[i][v], V::multiply_words(tile.sums[i][v], scale));
        }
      }
    }
  }

#pragma GCC unroll 16
  for (unsigned i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (unsigned v = 0; v < V::kVectors; ++v) {
      float* total = totals + i * kRowGroup + v * V::kRows;
      V::store(total, add_block64_sums<V, kType>(V::load_floats(total), sums.sums[i][v],
                                                 strip.super.d[v], strip.super.dmin[v],
                                                 strip.mins[v], in.x_block + i * in.stride));
    }
  }
}

// Adds a strip's products with n_x rows of x to their totals.
template <typename V, QuantType kType>
[[gnu::noinline]] static void multiply_block64_strip(const Block64Strip<V>& strip, Inputs in,
                                                     std::uint32_t n_x, float* totals) noexcept {
  std::uint32_t i = 0;
  for (; i + V::kWholeTileRows <= n_x; i += V::kWholeTileRows) {
    multiply_block64_tile<V, kType, V::kWholeTileRows>(strip, in, totals + i * kRowGroup);
    in.x += V::kWholeTileRows * in.stride;
    in.x_block += V::kWholeTileRows * in.stride;
  }
  for (; i + 2 <= n_x; i += 2) {
    multiply_block64_tile<V, kType, 2>(strip, in, totals + i * kRowGroup);
    in.x += 2 * in.stride;
    in.x_block += 2 * in.stride;
  }
  for (; i < n_x; ++i) {
    multiply_block64_tile<V, kType, 1>(strip, in, totals + i * kRowGroup);
    in.x += in.stride;
    in.x_block += in.stride;
  }
}

// The product with n_x <= kRowsAtOnce rows of x, unpacked codes in a strip.
template <typename V, QuantType kType>
[[gnu::noinline]] static void many_whole_rows(const MatMulArgs& args, const std::byte* x, float* y,
                                              std::uint32_t n_x) noexcept {
  alignas(64) float totals[kRowsAtOnce * kRowGroup];
  Block64Strip<V> strip = {};
  const auto n_x_blocks = static_cast<std::uint32_t>(int8_blocks(args.n_cols));
  const std::byte* group = args.weights;
  for (std::uint32_t row = 0; row < args.n_rows; row += kRowGroup, group += args.group_bytes) {
    std::memset(totals, 0, n_x * kRowGroup * sizeof(float));
    const std::byte* done = group;
    for (std::uint32_t c = 0; c < n_x_blocks; ++c) {
      const std::byte* end = unpack_block64<V, kType>(group, c, &strip);
      prefetch<V>(done, end, args.prefetch_bytes);
      done = end;
      const Inputs in{.x = x + std::size_t{c} * kActivationBlockColumns,
                      .x_block = x + int8_blocks_offset(args.n_cols) + c * sizeof(Int8Block),
                      .sum_at = 0,
                      .stride = args.x_stride};
      multiply_block64_strip<V, kBlock64StripType<kType>>(strip, in, n_x, totals);
    }
    store_totals<V>(totals, nullptr, n_x, y + row, args.y_stride, args.n_rows - row);
  }
}

// The kernel of one format of super-blocks.
template <typename V, QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] static inline void super_product(const MatMulArgs& args) noexcept {
  if constexpr (!kWholeScales<kType>) {
    product<V, kType, kBlock>(args);
  } else {
    FormatParts parts = {few_whole_rows<V, kType, 1>, nullptr, many_whole_rows<V, kType>};
    if constexpr (V::kFewRows > 2) parts.two_rows = few_whole_rows<V, kType, 2>;
    multiply_rows<V>(args, parts);
  }
}

}  // namespace qsf::kernels::maddubs

#endif  // QSF_KERNELS_MATMUL_WHOLE_SCALES_MADDUBS_H_
