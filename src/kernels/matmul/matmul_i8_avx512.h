// SPDX-License-Identifier: MIT
//
// Products with int8 rows in 512-bit vectors: the loops, for the tiers that differ in their dot
// instruction alone; internal linkage.
//
// One row of x streams the weights: lines go from memory through mask and dot instruction, codes
// are never stored, and a software prefetch runs args.prefetch_bytes ahead. More rows share the
// work of decoding: the fours of 64 columns are made once, stay in registers, and meet every row of
// x in turn, four rows at a time so that no sum waits for the one before; totals live in L1, and as
// many rows are taken as their bytes leave room for in L2.
//
// Dot is a class of the tier:
//
//   template <QuantType, std::uint32_t block> static __m512i lines(lines, beside, q)
//       sums of code * q over the columns of a block, read from its code lines
//   template <int largest, unsigned n_fours, unsigned n_rows> static void rows(fours, q, stride,
//       dots)   the same for decoded codes up to `largest` and n_rows rows of x, `stride` apart
//   kAddsLines, and where it is true
//   static void add_lines(lines, q, sums)   adds the products of 64 columns of 2-bit codes to four
//       sums, those of field f 4^f times as large

#ifndef QSF_KERNELS_MATMUL_MATMUL_I8_AVX512_H_
#define QSF_KERNELS_MATMUL_MATMUL_I8_AVX512_H_

#include "kernels/matmul/coded_avx512.h"
#include "kernels/matmul/matmul.h"

namespace qsf::kernels::avx512 {

// Many rows of x are taken as a panel of 64 rows x 4,096 columns at a time: 384 KiB, to stay in L2.
// Totals are 4 KiB, and rest in y from one panel to the next.
static constexpr std::uint32_t kPanelRows = 64;
static constexpr std::uint32_t kPanelColumns = 4096;
static constexpr std::uint32_t kFewRows = 8;  // these stream the weights as one row does
// Decoded blocks of 64 columns between a prefetch of more rows and its use. One is too late for 16
// rows, which take 70 ns a block.
static constexpr std::uint32_t kBlocksAhead = 4;
static_assert(kPanelColumns % kPanelAlign == 0);

// One row of x.
struct Row {
  const std::byte* codes;
  const std::byte* x_blocks;

  [[gnu::always_inline]] static inline Row of(const MatMulArgs& args, std::uint32_t i) noexcept {
    const std::byte* row = args.x + i * args.x_stride;
    return {row, row + int8_blocks_offset(args.n_cols)};
  }
  // The field of an Int8Block: 0 is its scale, 1 and 2 are the sums of its halves, 3 that of both.
  [[gnu::always_inline]] inline __m512 field(std::uint32_t x_block, unsigned index) const noexcept {
    return _mm512_set1_ps(reinterpret_cast<const float*>(x_blocks)[8 * x_block + index]);
  }
};

// The sum field of a block: `half` counts the blocks of its activation block.
template <std::uint32_t kBlock>
static constexpr unsigned sum_field(unsigned half) noexcept {
  return kBlock == 64 ? 3 : 1 + half;
}

// What has to be taken out of dots, times the sum of x: the offset of signed codes, and the zero
// point of types whose scales are whole numbers. 0 where mins do that.
template <QuantType kType>
static constexpr float kOffset = kMultipliesSigned<kType>          ? kSignedOffset<kType>
                                 : kType == QuantType::kTernaryRow ? 1.0F
                                 : kType == QuantType::kQk256      ? 2.0F
                                 : is_trellis_type(kType)          ? kTrellisZero
                                                                   : 0.0F;

// Adds the products of one block and one row of x to `total`: each operation rounds once, in the
// order that matmul.h gives. Offsets are taken out exactly: both terms of that fused operation and
// its result are whole numbers below 2^24, or of trellis types, times a scale as well, halves of
// such.
template <QuantType kType>
[[gnu::always_inline]] static inline __m512 add_dots(__m512 total, __m512i dots,
                                                     const BlockScales& scales, __m512 sum,
                                                     __m512 block64_scale) noexcept {
  __m512 term = _mm512_cvtepi32_ps(dots);
  if constexpr (kOffset<kType> != 0.0F) {
    term = _mm512_fnmadd_ps(sum, _mm512_set1_ps(kOffset<kType>), term);
    if constexpr (kMultipliesSigned<kType> || is_trellis_type(kType)) {
      term = _mm512_mul_ps(scales.scale, term);
    }
  } else {
    term = _mm512_add_ps(_mm512_mul_ps(scales.scale, term), _mm512_mul_ps(scales.min, sum));
  }
  return _mm512_add_ps(total, _mm512_mul_ps(block64_scale, term));
}

// Multiplies finished sums with the scales of their rows, where the type has such.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] static inline __m512 scale_rows(const BlockReader<kType, kBlock>& reader,
                                                       __m512 total) noexcept {
  if constexpr (!has_row_scale(kType)) return total;
  return _mm512_mul_ps(total, reader.row_scales());
}

// One row of x times all groups.
template <typename Dot, QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] static inline void one_row(const MatMulArgs& args) noexcept {
  constexpr std::uint32_t kHalves = kActivationBlockColumns / kBlock;
  constexpr std::uint32_t kLines = Lines<kType, kBlock>::kWithFields;
  const Row x = Row::of(args, 0);
  const std::uint32_t n_blocks = (args.n_cols + kBlock - 1) / kBlock;
  const std::byte* group = args.weights;
  for (std::uint32_t row = 0; row < args.n_rows; row += kRowGroup, group += args.group_bytes) {
    __m512 total = _mm512_setzero_ps();
    BlockReader<kType, kBlock> reader(group, 0);
    BlockScales scales;
    for (std::uint32_t block = 0; block < n_blocks; block += kHalves) {
      const std::uint32_t x_block = block / kHalves;
#pragma GCC unroll 4
      for (unsigned half = 0; half < kHalves; ++half) {
        if (kHalves == 2 && half == 1 && block + 1 == n_blocks) break;
        const std::byte* lines = reader.next(&scales);
        prefetch_lines<kLines>(lines + args.prefetch_bytes);
        const __m512i dots = Dot::template lines<kType, kBlock>(lines, reader.beside(),
                                                                x.codes + (block + half) * kBlock);
        total = add_dots<kType>(total, dots, scales, x.field(x_block, sum_field<kBlock>(half)),
                                x.field(x_block, 0));
      }
    }
    total = scale_rows<kType>(reader, total);
    store_rows(args.y + row, total, args.n_rows - row);
  }
}

// Columns of a row whose sums of ternary codes times int8 stay below 2^24: whole numbers that f32
// holds, so that they may be added as integers just as well.
static constexpr std::uint32_t kExactColumns = (1U << 24U) / 127U;

// The sum of the codes of a row. Four sums, so that no addition waits for the one before.
// Requires  n_x_blocks * kActivationBlockColumns <= kExactColumns
[[gnu::always_inline]] static inline std::int32_t sum_of_codes(const Row& x,
                                                               std::uint32_t n_x_blocks) noexcept {
  float sums[4] = {};
  const auto* at =
      reinterpret_cast<const float*>(x.x_blocks) + offsetof(Int8Block, sum) / sizeof(float);
  constexpr std::size_t kStep = sizeof(Int8Block) / sizeof(float);
  std::uint32_t x_block = 0;
  for (; x_block + 4 <= n_x_blocks; x_block += 4, at += 4 * kStep) {
    for (unsigned i = 0; i < 4; ++i) sums[i] += at[kStep * i];
  }
  for (; x_block < n_x_blocks; ++x_block, at += kStep) sums[0] += *at;
  return static_cast<std::int32_t>((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// One row of x whose activation blocks have the scale 1 times all groups of ternary-row: whole
// numbers to the end of the row, where they are shifted, less the sum of x, and converted once.
//
// One group after the other. Two that share the loads of x are a seventh faster in cache and a
// tenth slower from memory: the hardware reads one long stream ahead better than two.
template <typename Dot>
[[gnu::always_inline]] static inline void one_row_of_units(const MatMulArgs& args) noexcept {
  constexpr std::uint32_t kBytes = Lines<QuantType::kTernaryRow, kActivationBlockColumns>::kBytes;
  const Row x = Row::of(args, 0);
  const auto n_x_blocks = static_cast<std::uint32_t>(int8_blocks(args.n_cols));
  const __m512i code_sum = _mm512_set1_epi32(sum_of_codes(x, n_x_blocks));
  const std::byte* group = args.weights;
  for (std::uint32_t row = 0; row < args.n_rows; row += kRowGroup, group += args.group_bytes) {
    const std::byte* lines = group + kLineBytes;
    __m512i sums[4] = {};
    for (std::uint32_t x_block = 0; x_block < n_x_blocks; ++x_block, lines += kBytes) {
      prefetch_lines<kBytes>(lines + args.prefetch_bytes);
      Dot::add_lines(lines, x.codes + x_block * kActivationBlockColumns, sums);
    }
#pragma GCC unroll 4
    for (unsigned field = 1; field < 4; ++field) {
      sums[0] = _mm512_add_epi32(sums[0], _mm512_srai_epi32(sums[field], 2 * field));
    }
    const __m512 total = _mm512_cvtepi32_ps(_mm512_sub_epi32(sums[0], code_sum));
    const auto* scales = reinterpret_cast<const float*>(group);
    store_rows(args.y + row, _mm512_mul_ps(total, _mm512_load_ps(scales)), args.n_rows - row);
  }
}

// The weights of 64 columns of a group, decoded; of fewer where a row ends with half an activation
// block.
template <QuantType kType, std::uint32_t kBlock>
struct Block64 {
  __m512i fours[kActivationBlockColumns / 4];
  BlockScales scales[kActivationBlockColumns / kBlock];
};

// Adds the products of kBlocks blocks with kRows rows of x, the first of them `x`, to the totals.
template <typename Dot, QuantType kType, std::uint32_t kBlock, unsigned kBlocks, unsigned kRows>
[[gnu::always_inline]] static inline void add_rows(const Block64<kType, kBlock>& weights,
                                                   const std::byte* codes, const std::byte* x_block,
                                                   std::size_t stride, __m512* totals) noexcept {
  constexpr unsigned kFours = kBlock / 4;
  __m512 sums[kRows];
#pragma GCC unroll 4
  for (unsigned i = 0; i < kRows; ++i) sums[i] = totals[i];
#pragma GCC unroll 4
  for (unsigned half = 0; half < kBlocks; ++half) {
    __m512i dots[kRows];
    Dot::template rows<Lines<kType, kBlock>::kLargest, kFours, kRows>(
        weights.fours + half * kFours, codes + half * kBlock, stride, dots);
#pragma GCC unroll 4
    for (unsigned i = 0; i < kRows; ++i) {
      const float* fields = reinterpret_cast<const float*>(x_block + i * stride);
      sums[i] = add_dots<kType>(sums[i], dots[i], weights.scales[half],
                                _mm512_set1_ps(fields[sum_field<kBlock>(half)]),
                                _mm512_set1_ps(fields[0]));
    }
  }
#pragma GCC unroll 4
  for (unsigned i = 0; i < kRows; ++i) totals[i] = sums[i];
}

// Decodes kBlocks blocks and adds their products with n_x rows to the totals.
template <typename Dot, QuantType kType, std::uint32_t kBlock, unsigned kBlocks>
[[gnu::always_inline]] static inline void add_block64(BlockReader<kType, kBlock>* reader,
                                                      const std::byte* codes,
                                                      const std::byte* x_block,
                                                      const MatMulArgs& args, std::uint32_t n_x,
                                                      __m512* totals) noexcept {
  constexpr std::uint32_t kLines = Lines<kType, kBlock>::kWithFields;
  Block64<kType, kBlock> weights;
#pragma GCC unroll 4
  for (unsigned half = 0; half < kBlocks; ++half) {
    const std::byte* lines = reader->next(&weights.scales[half]);
    // Many rows take so long that the lines of a few blocks are all that is worth asking for.
    prefetch_lines<kLines>(
        lines + (n_x > kFewRows ? kBlocksAhead * kBlocks * kLines : args.prefetch_bytes));
    decode_fours<kType, kBlock>(lines, reader->beside(), weights.fours + half * (kBlock / 4));
  }
  const std::size_t stride = args.x_stride;
  std::uint32_t i = 0;
  if constexpr (kBlocks * kBlock == kActivationBlockColumns) {
    for (; i + 4 <= n_x; i += 4) {
      add_rows<Dot, kType, kBlock, kBlocks, 4>(weights, codes, x_block, stride, totals + i);
      codes += 4 * stride;
      x_block += 4 * stride;
    }
  }
  for (; i < n_x; ++i) {
    add_rows<Dot, kType, kBlock, kBlocks, 1>(weights, codes, x_block, stride, totals + i);
    codes += stride;
    x_block += stride;
  }
}

// n_columns from first_column on, and rows [first, first + n_x) of x, times all groups.
template <typename Dot, QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] static inline void one_panel(const MatMulArgs& args,
                                                    std::uint32_t first_column,
                                                    std::uint32_t n_columns, std::uint32_t first,
                                                    std::uint32_t n_x) noexcept {
  constexpr std::uint32_t kHalves = kActivationBlockColumns / kBlock;
  __m512 totals[kPanelRows];
  const Row x = Row::of(args, first);
  const std::uint32_t n_blocks = (n_columns + kBlock - 1) / kBlock;
  const std::byte* codes = x.codes + first_column;
  const std::byte* x_blocks =
      x.x_blocks + first_column / kActivationBlockColumns * sizeof(Int8Block);
  const std::byte* group = args.weights;
  for (std::uint32_t row = 0; row < args.n_rows; row += kRowGroup, group += args.group_bytes) {
    float* y = args.y + first * args.y_stride + row;
    const std::uint32_t n_rows = args.n_rows - row;
    for (std::uint32_t i = 0; i < n_x; ++i) {
      totals[i] =
          first_column == 0 ? _mm512_setzero_ps() : load_rows(y + i * args.y_stride, n_rows);
    }
    BlockReader<kType, kBlock> reader(group, first_column);
    std::uint32_t c = 0;
    for (; c < n_blocks / kHalves; ++c) {
      add_block64<Dot, kType, kBlock, kHalves>(&reader, codes + c * kActivationBlockColumns,
                                               x_blocks + c * sizeof(Int8Block), args, n_x, totals);
    }
    if (n_blocks % kHalves != 0) {
      add_block64<Dot, kType, kBlock, 1>(&reader, codes + c * kActivationBlockColumns,
                                         x_blocks + c * sizeof(Int8Block), args, n_x, totals);
    }
    for (std::uint32_t i = 0; i < n_x; ++i) {
      if (first_column + n_columns == args.n_cols) totals[i] = scale_rows<kType>(reader, totals[i]);
      store_rows(y + i * args.y_stride, totals[i], n_rows);
    }
  }
}

template <typename Dot, QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] static inline void coded(const MatMulArgs& args) noexcept {
  if (args.n_x == 1) {
    if constexpr (kType == QuantType::kTernaryRow && Dot::kAddsLines) {
      if (args.unit_scales && args.n_cols <= kExactColumns) {
        one_row_of_units<Dot>(args);
        return;
      }
    }
    one_row<Dot, kType, kBlock>(args);
    return;
  }
  const std::uint32_t panel = args.n_x > kFewRows ? kPanelColumns : args.n_cols;
  for (std::uint32_t first = 0; first < args.n_x; first += kPanelRows) {
    const std::uint32_t n_x = args.n_x - first < kPanelRows ? args.n_x - first : kPanelRows;
    for (std::uint32_t c = 0; c < args.n_cols; c += panel) {
      const std::uint32_t n_columns = args.n_cols - c < panel ? args.n_cols - c : panel;
      one_panel<Dot, kType, kBlock>(args, c, n_columns, first, n_x);
    }
  }
}

}  // namespace qsf::kernels::avx512

#endif  // QSF_KERNELS_MATMUL_MATMUL_I8_AVX512_H_
