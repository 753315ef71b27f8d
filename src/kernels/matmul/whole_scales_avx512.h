// SPDX-License-Identifier: MIT
//
// Products with int8 rows in 512-bit vectors for the types whose scales are whole numbers (q2_k,
// q3_k, q6_k, tables): the loops, for the tiers that differ in their dot instructions; internal
// linkage.
//
// Scales multiply the sums of their 16 columns as integers, and only the sums of an activation
// block of 64 columns become floats. Fields of a row are pairs of 16 bits, of sub-blocks 0 and 2
// and of 1 and 3, so that one instruction multiplies and adds two of them.
//
// Dot is a class of the tier, with beside those of matmul_i8_avx512.h
//
//   static __m512i words(sums, a, b)
//       adds the products of two and two 16-bit numbers to sums
//   template <QuantType> static __m512i block64(lines, q, scales, sums)
//       adds the sums over 64 columns of scale * code * q, codes read from their lines
//   template <int largest, unsigned n_rows>
//   static void block64_rows(fours, q, stride, scales, sums)
//       the same for decoded codes and n_rows rows of x

#ifndef QSF_KERNELS_MATMUL_WHOLE_SCALES_AVX512_H_
#define QSF_KERNELS_MATMUL_WHOLE_SCALES_AVX512_H_

#include "kernels/matmul/matmul_i8_avx512.h"

namespace qsf::kernels::avx512 {

// Numbers of 16 bits of the four sub-blocks of an activation block: those of 0 and 2, and of 1
// and 3.
struct QuarterPairs {
  __m512i pair[2];
};

// The fields of 64 columns of 16 rows.
struct Block64Fields {
  __m512 d;
  __m512 dmin;  // as `mins` without meaning for types without
  QuarterPairs scales;
  QuarterPairs mins;
};

// Walks one group by 64 columns, from a column that is a multiple of kPanelAlign on.
template <QuantType kType>
class Block64Reader {
 public:
  [[gnu::always_inline]] Block64Reader(const std::byte* group, std::uint32_t column) noexcept
      : at_(group + column / kPanelAlign * kPanelBytes) {}

  // Reads the fields of the next activation block; returns its code lines and moves past them.
  [[gnu::always_inline]] const std::byte* next(Block64Fields* fields) noexcept {
    if (index_ == 0) begin_super_block();
    fields->d = d_;
    fields->dmin = dmin_;
    const __m512i bytes = byte_lines_[is_codebook_type(kType) ? index_ / 2 : index_];
    if constexpr (kType == QuantType::kQ4Codebook) {
      fields->scales.pair[0] = fields->scales.pair[1] = next_six_bits();
    } else if constexpr (is_codebook_type(kType)) {
      // Half a byte to the top of 16 bits, then down with its sign.
      const bool upper = index_ % 2 == 1;
      const __m512i even = upper ? _mm512_slli_epi16(bytes, 8) : _mm512_slli_epi16(bytes, 12);
      const __m512i odd = upper ? bytes : _mm512_slli_epi16(bytes, 4);
      fields->scales.pair[0] = _mm512_srai_epi16(even, 12);
      fields->scales.pair[1] = _mm512_srai_epi16(odd, 12);
    } else if constexpr (has_min(kType)) {
      const __m512i nibble = _mm512_set1_epi16(15);
      fields->scales.pair[0] = _mm512_and_si512(bytes, nibble);
      fields->scales.pair[1] = _mm512_and_si512(_mm512_srli_epi16(bytes, 8), nibble);
      fields->mins.pair[0] = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble);
      fields->mins.pair[1] = _mm512_srli_epi16(bytes, 12);
    } else {
      fields->scales.pair[0] = _mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8);
      fields->scales.pair[1] = _mm512_srai_epi16(bytes, 8);
    }
    const std::byte* lines = at_;
    at_ += kCodeBytes;
    index_ = (index_ + 1) % 4;
    return lines;
  }

  static constexpr std::uint32_t kCodeBytes =
      kActivationBlockColumns / 16 * Lines<kType, 16>::kBytes;  // of an activation block

 private:
  // Of kPanelAlign columns.
  static constexpr std::uint32_t kFieldLines = kType == QuantType::kQ4Codebook ? 4
                                               : is_codebook_type(kType)       ? 5
                                               : has_min(kType)                ? 10
                                                                               : 9;
  // Lines of bytes, or of less, of a super-block.
  static constexpr unsigned kByteLines = kType == QuantType::kQ4Codebook ? 1
                                         : is_codebook_type(kType)       ? 2
                                                                         : 4;
  static constexpr std::uint32_t kPanelBytes =
      kPanelAlign / kActivationBlockColumns * kCodeBytes + kFieldLines * kLineBytes;

  [[gnu::always_inline]] void begin_super_block() noexcept {
    if constexpr (kType == QuantType::kQ4Codebook) {
      d_ = load_halves(at_);
      const __m512i high = _mm512_cvtepu16_epi32(
          _mm256_load_si256(reinterpret_cast<const __m256i*>(at_ + 2 * kRowGroup)));
      high_ = _mm512_or_si512(high, _mm512_slli_epi32(high, 8));
      at_ += kLineBytes;
    } else if constexpr (has_min(kType)) {
      d_ = load_halves(at_);
      dmin_ = load_halves(at_ + 2 * kRowGroup);
      at_ += kLineBytes;
    } else {
      if (!second_) {
        pair_line_ = at_;
        at_ += kLineBytes;
      }
      d_ = load_halves(pair_line_ + (second_ ? 2 * kRowGroup : 0));
      second_ = !second_;
    }
    // All at once: what reads a memory in order is read ahead.
#pragma GCC unroll 4
    for (unsigned line = 0; line < kByteLines; ++line) {
      byte_lines_[line] = load_line(at_ + line * kLineBytes);
    }
    at_ += kByteLines * kLineBytes;
  }

  // The scales of an activation block of 4-bit table, of its first 32 columns and of the others,
  // from the words of low and of high bits; both move on to the next activation block.
  [[gnu::always_inline]] __m512i next_six_bits() noexcept {
    const __m512i low = _mm512_and_si512(byte_lines_[0], _mm512_set1_epi32(0x000F000F));
    const __m512i six = merge(_mm512_slli_epi32(high_, 4), _mm512_set1_epi32(0x00300030), low);
    byte_lines_[0] = _mm512_srli_epi32(byte_lines_[0], 4);
    high_ = _mm512_srli_epi32(high_, 2);
    return _mm512_srai_epi16(_mm512_slli_epi16(six, 10), 10);
  }

  const std::byte* at_;
  const std::byte* pair_line_ = nullptr;  // d of a pair of super-blocks
  std::uint32_t index_ = 0;               // of the next activation block in its super-block
  bool second_ = false;                   // the next super-block is the second of its pair
  __m512 d_ = {};
  __m512 dmin_ = {};
  __m512i byte_lines_[kByteLines] = {};
  __m512i high_ = {};  // of 4-bit table
};

// Two neighbours of an Int8Block's numbers of 16 bits, for every row.
[[gnu::always_inline]] static inline __m512i two_of(const std::byte* words) noexcept {
  return _mm512_set1_epi32(*reinterpret_cast<const std::int32_t*>(words));
}

// The sum of fields times numbers of the quarters of an activation block.
template <typename Dot>
[[gnu::always_inline]] static inline __m512i times_quarters(const QuarterPairs& fields,
                                                            const std::byte* quarters) noexcept {
  const __m512i first = Dot::words(_mm512_setzero_si512(), fields.pair[0], two_of(quarters));
  return Dot::words(first, fields.pair[1], two_of(quarters + 2 * sizeof(std::int16_t)));
}

// What the sums of an activation block begin with: the share of the zero of the codes.
template <typename Dot, QuantType kType>
[[gnu::always_inline]] static inline __m512i zeros_of(const QuarterPairs& scales,
                                                      const std::byte* x_block) noexcept {
  constexpr unsigned kOffset = kSignedOffset<kType>;
  if constexpr (kOffset == 0) return _mm512_setzero_si512();
  const __m512i fours = times_quarters<Dot>(scales, x_block + offsetof(Int8Block, quarter_zeros));
  static_assert(kOffset == 0 || kOffset == 4 || kOffset == 4 << 3 || kOffset == 4 << 5);
  return kOffset <= 4 ? fours : _mm512_slli_epi32(fours, kOffset == 128 ? 5 : 3);
}

// Adds an activation block's products with one row of x to `total`, in the order of matmul.h.
template <typename Dot, QuantType kType>
[[gnu::always_inline]] static inline __m512 add_block64_sums(__m512 total, __m512i sums,
                                                             const Block64Fields& fields,
                                                             const std::byte* x_block) noexcept {
  __m512 term = _mm512_mul_ps(fields.d, _mm512_cvtepi32_ps(sums));
  if constexpr (has_min(kType)) {
    const __m512i mins =
        times_quarters<Dot>(fields.mins, x_block + offsetof(Int8Block, quarter_sums));
    term = _mm512_add_ps(term, _mm512_mul_ps(fields.dmin, _mm512_cvtepi32_ps(mins)));
  }
  const __m512 scale = _mm512_set1_ps(*reinterpret_cast<const float*>(x_block));
  return _mm512_add_ps(total, _mm512_mul_ps(scale, term));
}

// The scale of sub-block `quarter` as a number of 32 bits.
[[gnu::always_inline]] static inline __m512i scale_of(const QuarterPairs& scales,
                                                      unsigned quarter) noexcept {
  const __m512i pair = scales.pair[quarter % 2];
  return _mm512_srai_epi32(quarter < 2 ? _mm512_slli_epi32(pair, 16) : pair, 16);
}

// Decodes the fours of an activation block.
template <QuantType kType>
[[gnu::always_inline]] static inline void decode_block64(const std::byte* lines,
                                                         __m512i* fours) noexcept {
#pragma GCC unroll 4
  for (unsigned k = 0; k < 4; ++k) {
    decode_fours<kType, 16>(lines + quarter_offset<kType>(k), k % 2, fours + 4 * k);
  }
}

// One row of x times all groups.
template <typename Dot, QuantType kType>
[[gnu::always_inline]] static inline void one_whole_row(const MatMulArgs& args) noexcept {
  constexpr std::uint32_t kBytes = Block64Reader<kType>::kCodeBytes;
  const Row x = Row::of(args, 0);
  const auto n_x_blocks = static_cast<std::uint32_t>(int8_blocks(args.n_cols));
  const std::byte* group = args.weights;
  for (std::uint32_t row = 0; row < args.n_rows; row += kRowGroup, group += args.group_bytes) {
    __m512 total = _mm512_setzero_ps();
    Block64Reader<kType> reader(group, 0);
    Block64Fields fields;
    for (std::uint32_t c = 0; c < n_x_blocks; ++c) {
      const std::byte* lines = reader.next(&fields);
      if (args.prefetch_bytes != 0) {
        prefetch_lines<kBytes + kLineBytes>(lines + args.prefetch_bytes);
      }
      const std::byte* x_block = x.x_blocks + c * sizeof(Int8Block);
      const __m512i sums =
          Dot::template block64<kType>(lines, x.codes + c * kActivationBlockColumns, fields.scales,
                                       zeros_of<Dot, kType>(fields.scales, x_block));
      total = add_block64_sums<Dot, kType>(total, sums, fields, x_block);
    }
    store_rows(args.y + row, total, args.n_rows - row);
  }
}

// Adds the products of a decoded activation block with kRows rows of x to the totals.
template <typename Dot, QuantType kType, unsigned kRows>
[[gnu::always_inline]] static inline void add_whole_rows(
    const __m512i* fours, const Block64Fields& fields, const std::byte* codes,
    const std::byte* x_block, std::size_t stride, __m512* totals) noexcept {
  __m512i sums[kRows];
#pragma GCC unroll 4
  for (unsigned i = 0; i < kRows; ++i) {
    sums[i] = zeros_of<Dot, kType>(fields.scales, x_block + i * stride);
  }
  Dot::template block64_rows<Lines<kType, 16>::kLargest, kRows>(fours, codes, stride, fields.scales,
                                                                sums);
#pragma GCC unroll 4
  for (unsigned i = 0; i < kRows; ++i) {
    totals[i] = add_block64_sums<Dot, kType>(totals[i], sums[i], fields, x_block + i * stride);
  }
}

// n_columns from first_column on, and rows [first, first + n_x) of x, times all groups.
template <typename Dot, QuantType kType>
[[gnu::always_inline]] static inline void one_whole_panel(const MatMulArgs& args,
                                                          std::uint32_t first_column,
                                                          std::uint32_t n_columns,
                                                          std::uint32_t first,
                                                          std::uint32_t n_x) noexcept {
  constexpr std::uint32_t kBytes = Block64Reader<kType>::kCodeBytes;
  __m512 totals[kPanelRows];
  const Row x = Row::of(args, first);
  const auto n_x_blocks = static_cast<std::uint32_t>(int8_blocks(n_columns));
  const std::size_t stride = args.x_stride;
  const std::byte* group = args.weights;
  for (std::uint32_t row = 0; row < args.n_rows; row += kRowGroup, group += args.group_bytes) {
    float* y = args.y + first * args.y_stride + row;
    const std::uint32_t n_rows = args.n_rows - row;
    for (std::uint32_t i = 0; i < n_x; ++i) {
      totals[i] =
          first_column == 0 ? _mm512_setzero_ps() : load_rows(y + i * args.y_stride, n_rows);
    }
    Block64Reader<kType> reader(group, first_column);
    const std::byte* codes = x.codes + first_column;
    const std::byte* x_block =
        x.x_blocks + first_column / kActivationBlockColumns * sizeof(Int8Block);
    for (std::uint32_t c = 0; c < n_x_blocks; ++c) {
      Block64Fields fields;
      __m512i fours[kActivationBlockColumns / 4];
      const std::byte* lines = reader.next(&fields);
      prefetch_lines<kBytes + kLineBytes>(lines + (n_x > kFewRows ? kBytes : args.prefetch_bytes));
      decode_block64<kType>(lines, fours);
      std::uint32_t i = 0;
      for (; i + 4 <= n_x; i += 4) {
        add_whole_rows<Dot, kType, 4>(fours, fields, codes + i * stride, x_block + i * stride,
                                      stride, totals + i);
      }
      for (; i < n_x; ++i) {
        add_whole_rows<Dot, kType, 1>(fours, fields, codes + i * stride, x_block + i * stride,
                                      stride, totals + i);
      }
      codes += kActivationBlockColumns;
      x_block += sizeof(Int8Block);
    }
    for (std::uint32_t i = 0; i < n_x; ++i) store_rows(y + i * args.y_stride, totals[i], n_rows);
  }
}

// The kernel of one format of super-blocks.
template <typename Dot, QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] static inline void super(const MatMulArgs& args) noexcept {
  if constexpr (!kWholeScales<kType>) {
    coded<Dot, kType, kBlock>(args);
  } else if (args.n_x == 1) {
    one_whole_row<Dot, kType>(args);
  } else {
    const std::uint32_t panel = args.n_x > kFewRows ? kPanelColumns : args.n_cols;
    for (std::uint32_t first = 0; first < args.n_x; first += kPanelRows) {
      const std::uint32_t n_x = args.n_x - first < kPanelRows ? args.n_x - first : kPanelRows;
      for (std::uint32_t c = 0; c < args.n_cols; c += panel) {
        const std::uint32_t n_columns = args.n_cols - c < panel ? args.n_cols - c : panel;
        one_whole_panel<Dot, kType>(args, c, n_columns, first, n_x);
      }
    }
  }
}

}  // namespace qsf::kernels::avx512

#endif  // QSF_KERNELS_MATMUL_WHOLE_SCALES_AVX512_H_
