// SPDX-License-Identifier: MIT
//
// Products with rows of f32, AVX-512.
//
// An activation block of 64 columns of 16 rows is widened to a strip [64][16] of f32, 4 KiB in L1
// (f32 lines are one as they stand), that is multiplied by every row of x in turn, eight rows at a
// time.
//
// One row of x must keep the fused multiply-adds busy alone, so an activation block is summed in
// four sums of 16 columns each, which are then added up in order. More rows keep to the same order:
// an output has the same bits whatever the number of rows.

#include "kernels/matmul/coded_avx512.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_variants.h"

namespace qsf::kernels {
namespace {

using namespace avx512;

constexpr std::uint32_t kQuarter = kActivationBlockColumns / 4;
// Rows of x are taken as a panel of 64 rows x 1,024 columns at a time: 256 KiB, to stay in L2.
// Totals are 4 KiB, and rest in y from one panel to the next.
constexpr std::uint32_t kPanelRows = 64;
constexpr std::uint32_t kPanelColumns = 1024;
constexpr std::uint32_t kFewRows = 8;  // these stream the weights
static_assert(kPanelColumns % kPanelAlign == 0);

struct alignas(64) Strip {
  float weights[kActivationBlockColumns][kRowGroup];
};

// Adds the products of n_columns of a strip with kRows rows of x, `stride` floats apart.
template <unsigned kRows>
[[gnu::always_inline]] inline void add_rows(const float* strip, std::uint32_t n_columns,
                                            const float* x, std::size_t stride,
                                            __m512* totals) noexcept {
  __m512 block_sum[kRows];
#pragma GCC unroll 8
  for (unsigned i = 0; i < kRows; ++i) block_sum[i] = _mm512_setzero_ps();
  for (std::uint32_t first = 0; first < n_columns; first += kQuarter) {
    const std::uint32_t rest = n_columns - first;
    const std::uint32_t last = first + (rest < kQuarter ? rest : kQuarter);
    __m512 sums[kRows];
#pragma GCC unroll 8
    for (unsigned i = 0; i < kRows; ++i) sums[i] = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (std::uint32_t c = first; c < last; ++c) {
      const __m512 weights = _mm512_load_ps(strip + c * kRowGroup);
#pragma GCC unroll 8
      for (unsigned i = 0; i < kRows; ++i) {
        sums[i] = _mm512_fmadd_ps(weights, _mm512_set1_ps(x[i * stride + c]), sums[i]);
      }
    }
#pragma GCC unroll 8
    for (unsigned i = 0; i < kRows; ++i) block_sum[i] = _mm512_add_ps(block_sum[i], sums[i]);
  }
#pragma GCC unroll 8
  for (unsigned i = 0; i < kRows; ++i) totals[i] = _mm512_add_ps(totals[i], block_sum[i]);
}

void add_strip(const float* strip, std::uint32_t n_columns, const float* x, std::size_t stride,
               std::uint32_t n_x, __m512* totals) noexcept {
  std::uint32_t i = 0;
  for (; i + 8 <= n_x; i += 8) add_rows<8>(strip, n_columns, x + i * stride, stride, totals + i);
  for (; i + 4 <= n_x; i += 4) add_rows<4>(strip, n_columns, x + i * stride, stride, totals + i);
  for (; i < n_x; ++i) {
    add_rows<1>(strip, n_columns, x + i * stride, stride, totals + i);
  }
}

[[gnu::noinline]] void add_one_row(const float* strip, std::uint32_t n_columns, const float* x,
                                   __m512* total) noexcept {
  add_rows<1>(strip, n_columns, x, 0, total);
}

// Widens the weights of a coded type, a block at a time.
template <QuantType kType, std::uint32_t kBlock>
class Columns {
 public:
  static constexpr std::uint32_t kUnit = kBlock;  // columns that next() widens

  Columns(const std::byte* group, std::uint32_t column) noexcept : reader_(group, column) {}

  // Calls take(column, weights) for kUnit columns, the first of which is 0.
  template <typename Take>
  [[gnu::always_inline]] void next(std::uint32_t prefetch_bytes, Take&& take) noexcept {
    BlockScales scales;
    const std::byte* lines = reader_.next(&scales);
    prefetch_lines<Lines<kType, kBlock>::kWithFields>(lines + prefetch_bytes);
    if constexpr (scale_form(kType) == ScaleForm::kRowNibble) {
      scales.scale = _mm512_mul_ps(scales.scale, reader_.row_scales());
      scales.min = _mm512_mul_ps(scales.min, reader_.row_scales());
    }
    // Signed codes carry an offset.
    if constexpr (kMultipliesSigned<kType>) {
      scales.min = _mm512_mul_ps(scales.scale, _mm512_set1_ps(-kSignedOffset<kType>));
    }
    for_fours<kType, kBlock>(
        lines, reader_.beside(), [&](unsigned four, __m512i codes) __attribute__((always_inline)) {
#pragma GCC unroll 4
          for (unsigned k = 0; k < 4; ++k) {
            __m512i code = k == 0 ? codes : _mm512_srli_epi32(codes, 8 * k);
            if (k < 3) code = _mm512_and_si512(code, _mm512_set1_epi32(255));
            take(4 * four + k, _mm512_fmadd_ps(scales.scale, _mm512_cvtepi32_ps(code), scales.min));
          }
        });
  }

 private:
  BlockReader<kType, kBlock> reader_;
};

// The same for float types, whose columns are padded to a multiple of four.
template <QuantType kType>
class Columns<kType, 4> {
 public:
  static constexpr std::uint32_t kUnit = 4;

  Columns(const std::byte* group, std::uint32_t column) noexcept
      : at_(group + column / kUnit * kUnitBytes) {}

  template <typename Take>
  [[gnu::always_inline]] void next(std::uint32_t prefetch_bytes, Take&& take) noexcept {
    prefetch_lines<kUnitBytes>(at_ + prefetch_bytes);
    constexpr unsigned kOfLine = kUnit * kLineBytes / kUnitBytes;
#pragma GCC unroll 4
    for (unsigned c = 0; c < kUnit; c += kOfLine) {
      const __m512i line = load_line(at_ + c / kOfLine * kLineBytes);
      if constexpr (kType == QuantType::kF32) {
        take(c, _mm512_castsi512_ps(line));
      } else if constexpr (kType == QuantType::kBF16) {
        const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
        take(c, _mm512_castsi512_ps(_mm512_slli_epi32(line, 16)));
        take(c + 1, _mm512_castsi512_ps(_mm512_and_si512(line, upper)));
      } else {
        const __m512i columns = _mm512_permutexvar_epi16(even_then_odd(), line);
        take(c, _mm512_cvtph_ps(_mm512_castsi512_si256(columns)));
        take(c + 1, _mm512_cvtph_ps(_mm512_extracti64x4_epi64(columns, 1)));
      }
    }
    at_ += kUnitBytes;
  }

  // Moves past n_columns; returns their lines.
  [[gnu::always_inline]] const std::byte* skip(std::uint32_t n_columns) noexcept {
    const std::byte* lines = at_;
    at_ += n_columns / kUnit * kUnitBytes;
    return lines;
  }

 private:
  static constexpr std::uint32_t kUnitBytes = kUnit * code_bits(kType) / 8 * kRowGroup;

  // Lanes 0, 2, 4 ... 30 and then 1, 3, 5 ... 31.
  [[gnu::always_inline]] static __m512i even_then_odd() noexcept {
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m256i even = _mm512_cvtepi32_epi16(_mm512_slli_epi32(lanes, 1));
    return _mm512_inserti64x4(_mm512_castsi256_si512(even),
                              _mm256_add_epi16(even, _mm256_set1_epi16(1)), 1);
  }

  const std::byte* at_;
};

// Returns the next n_columns as a strip: `strip`, or the lines where they are one.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::noinline]] const float* next_strip(Columns<kType, kBlock>* columns, std::uint32_t n_columns,
                                          std::uint32_t prefetch_bytes, Strip* strip) noexcept {
  if constexpr (kType == QuantType::kF32) {
    return reinterpret_cast<const float*>(columns->skip(n_columns));
  } else {
    for (std::uint32_t c = 0; c < n_columns; c += kBlock) {
      columns->next(
          prefetch_bytes, [&](unsigned column, __m512 weights) __attribute__((always_inline)) {
            _mm512_store_ps(strip->weights[c + column], weights);
          });
    }
    return strip->weights[0];
  }
}

// One row of x times all groups: weights go from memory to their products. A block of more than 16
// columns has a sum for each quarter of an activation block that it fills, a smaller one is a part
// of a sum.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::noinline]] void one_row(const MatMulArgs& args) noexcept {
  constexpr std::uint32_t kStep = kBlock < kQuarter ? kQuarter : kBlock;  // columns of whole sums
  const float* x = reinterpret_cast<const float*>(args.x);
  const std::uint32_t end = (args.n_cols + kBlock - 1) / kBlock * kBlock;
  const std::byte* group = args.weights;
  for (std::uint32_t row = 0; row < args.n_rows; row += kRowGroup, group += args.group_bytes) {
    Columns<kType, kBlock> columns(group, 0);
    __m512 total = _mm512_setzero_ps();
    std::uint32_t c = 0;
    for (; c + kActivationBlockColumns <= end; c += kActivationBlockColumns) {
      __m512 block_sum = _mm512_setzero_ps();
#pragma GCC unroll 1
      for (std::uint32_t part = c; part < c + kActivationBlockColumns; part += kStep) {
        __m512 sums[kStep / kQuarter] = {};
#pragma GCC unroll 4
        for (std::uint32_t first = 0; first < kStep; first += kBlock) {
          columns.next(
              args.prefetch_bytes, [&](unsigned column,
                                       __m512 weights) __attribute__((always_inline)) {
                __m512& sum = sums[(first + column) / kQuarter];
                sum = _mm512_fmadd_ps(weights, _mm512_set1_ps(x[part + first + column]), sum);
              });
        }
#pragma GCC unroll 4
        for (const __m512 sum : sums) block_sum = _mm512_add_ps(block_sum, sum);
      }
      total = _mm512_add_ps(total, block_sum);
    }
    if (c < end) {
      Strip strip;
      const float* weights = next_strip(&columns, end - c, args.prefetch_bytes, &strip);
      add_one_row(weights, end - c, x + c, &total);
    }
    store_rows(args.y + row, total, args.n_rows - row);
  }
}

// Columns [first_column, last_column) and rows [first, first + n_x) of x, times all groups.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::noinline]] void one_panel(const MatMulArgs& args, std::uint32_t first_column,
                                 std::uint32_t last_column, std::uint32_t first,
                                 std::uint32_t n_x) noexcept {
  Strip strip;
  __m512 totals[kPanelRows];
  const std::size_t stride = args.x_stride / sizeof(float);
  const float* x = reinterpret_cast<const float*>(args.x + first * args.x_stride);
  const std::uint32_t end = (last_column + kBlock - 1) / kBlock * kBlock;
  const std::byte* group = args.weights;
  for (std::uint32_t row = 0; row < args.n_rows; row += kRowGroup, group += args.group_bytes) {
    float* y = args.y + first * args.y_stride + row;
    const std::uint32_t n_rows = args.n_rows - row;
    for (std::uint32_t i = 0; i < n_x; ++i) {
      totals[i] =
          first_column == 0 ? _mm512_setzero_ps() : load_rows(y + i * args.y_stride, n_rows);
    }
    Columns<kType, kBlock> columns(group, first_column);
    for (std::uint32_t c = first_column; c < end; c += kActivationBlockColumns) {
      const std::uint32_t n_columns =
          end - c < kActivationBlockColumns ? end - c : kActivationBlockColumns;
      const float* weights = next_strip(&columns, n_columns, args.prefetch_bytes, &strip);
      add_strip(weights, n_columns, x + c, stride, n_x, totals);
    }
    for (std::uint32_t i = 0; i < n_x; ++i) {
      store_rows(y + i * args.y_stride, totals[i], n_rows);
    }
  }
}

template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] inline void all_rows(const MatMulArgs& args) noexcept {
  if (args.n_x == 1) {
    one_row<kType, kBlock>(args);
    return;
  }
  const std::uint32_t panel = args.n_x > kFewRows ? kPanelColumns : args.n_cols;
  for (std::uint32_t first = 0; first < args.n_x; first += kPanelRows) {
    const std::uint32_t n_x = args.n_x - first < kPanelRows ? args.n_x - first : kPanelRows;
    for (std::uint32_t c = 0; c < args.n_cols; c += panel) {
      one_panel<kType, kBlock>(args, c, args.n_cols - c < panel ? args.n_cols : c + panel, first,
                               n_x);
    }
  }
}

}  // namespace

#define QSF_DEFINE(name, type, block)                                \
  void matmul_##name##_f32_avx512(const MatMulArgs& args) noexcept { \
    all_rows<QuantType::type, block>(args);                          \
  }
QSF_CODED_FORMATS(QSF_DEFINE)
QSF_SUPER_FORMATS(QSF_DEFINE)
QSF_ROW_FORMATS(QSF_DEFINE)
QSF_FLOAT_FORMATS(QSF_DEFINE)
#undef QSF_DEFINE

}  // namespace qsf::kernels
