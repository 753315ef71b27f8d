// SPDX-License-Identifier: MIT
//
// Products with rows of f32, AVX2 tier.
//
// Every output is a chain of fused multiply-adds over up to 64 columns, and the chains of its
// blocks are added in order, whatever the number of rows. Weights come in strips [column][16 rows]
// of f32: lines of f32 are one as they stand, halves are widened on the way into the products when
// there are few rows of x, and everything else is unpacked to a strip of 4 KiB in L1.

#include "kernels/matmul/each.h"
#include "kernels/matmul/matmul_i8_maddubs.h"
#include "kernels/matmul/matmul_variants.h"
#include "kernels/matmul/vectors_avx2.h"

namespace qsf::kernels {
namespace {

using maddubs::in_order;

constexpr std::uint32_t kStripColumns = 64;
constexpr std::uint32_t kFewRows = 4;       // rows of x for which floats need no strip
constexpr std::uint32_t kTileRows = 6;      // times two vectors of weights: twelve sums
constexpr std::uint32_t kRowsAtOnce = 120;  // rows of x that share a strip: 7.5 KiB of totals

// Rows of x from some column on.
struct FloatInputs {
  const std::byte* x;
  std::size_t stride;

  [[gnu::always_inline]] __m256 splat(std::uint32_t row, std::uint32_t column) const noexcept {
    return Avx2::splat_at(x + row * stride + column * sizeof(float));
  }
};

// Sixteen rows of weights in one column, or as many sums.
struct Sixteen {
  __m256 v[2];
};

[[gnu::always_inline]] inline Sixteen load_sixteen(const float* from) noexcept {
  return {{_mm256_load_ps(from), _mm256_load_ps(from + 8)}};
}

// Columns 2 * line and 2 * line + 1 of a half type.
template <QuantType kType>
[[gnu::always_inline]] inline void widen_line(const std::byte* line, Sixteen columns[2]) noexcept {
  each<2>([&](unsigned v) __attribute__((always_inline)) {
    const __m256i words = Avx2::load(line + 32 * v);
    if constexpr (kType == QuantType::kBF16) {
      columns[0].v[v] = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
      columns[1].v[v] = _mm256_castsi256_ps(
          _mm256_and_si256(words, _mm256_set1_epi32(static_cast<int>(0xFFFF0000U))));
    } else {
      // Finite halves: sign, exponent and mantissa to their places, then the exponent rebased.
      const __m256i mask = _mm256_set1_epi32(static_cast<int>(0x8FFFE000U));
      const __m256 rebase = _mm256_set1_ps(0x1p112F);
      const __m256i even = _mm256_srai_epi32(_mm256_slli_epi32(words, 16), 3);
      const __m256i odd = _mm256_srai_epi32(words, 3);
      columns[0].v[v] = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_and_si256(even, mask)), rebase);
      columns[1].v[v] = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_and_si256(odd, mask)), rebase);
    }
  });
}

// Lines of a float type: bytes, and columns of each.
template <QuantType kType>
constexpr std::uint32_t kLineColumns = kType == QuantType::kF32 ? 1 : 2;

// Sums of n_columns columns of a float type's lines with kRows rows of x.
template <QuantType kType, std::uint32_t kRows>
[[gnu::always_inline]] inline void dot_lines(const std::byte* lines, std::uint32_t n_columns,
                                             FloatInputs in, Sixteen sums[kRows]) noexcept {
  each<kRows>([&](unsigned i) __attribute__((always_inline)) {
    sums[i] = {{_mm256_setzero_ps(), _mm256_setzero_ps()}};
  });
  for (std::uint32_t c = 0; c < n_columns; c += kLineColumns<kType>, lines += kLineBytes) {
    Sixteen columns[2];
    if constexpr (kType == QuantType::kF32) {
      columns[0] = load_sixteen(reinterpret_cast<const float*>(lines));
    } else {
      widen_line<kType>(lines, columns);
    }
    each<kLineColumns<kType>>([&](unsigned k) __attribute__((always_inline)) {
      each<kRows>([&](unsigned i) __attribute__((always_inline)) {
        const __m256 x = in_order(in.splat(i, c + k));
        each<2>([&](unsigned v) __attribute__((always_inline)) {
          sums[i].v[v] = in_order(_mm256_fmadd_ps(columns[k].v[v], x, sums[i].v[v]));
        });
      });
    });
  }
}

// Adds n_columns columns of a strip times kRows rows of x to their totals [kRows][16].
template <std::uint32_t kRows>
[[gnu::always_inline]] inline void multiply_tile(const float* strip, std::uint32_t n_columns,
                                                 FloatInputs in, float* totals) noexcept {
  Sixteen sums[kRows];
  dot_lines<QuantType::kF32, kRows>(reinterpret_cast<const std::byte*>(strip), n_columns, in, sums);
  each<kRows>([&](unsigned i) __attribute__((always_inline)) {
    each<2>([&](unsigned v) __attribute__((always_inline)) {
      float* total = totals + i * kRowGroup + v * 8;
      _mm256_store_ps(total, _mm256_add_ps(_mm256_load_ps(total), sums[i].v[v]));
    });
  });
}

[[gnu::noinline]] void multiply_strip(const float* strip, std::uint32_t n_columns, FloatInputs in,
                                      std::uint32_t n_x, float* totals) noexcept {
  std::uint32_t i = 0;
  for (; i + kTileRows <= n_x; i += kTileRows, in.x += kTileRows * in.stride) {
    multiply_tile<kTileRows>(strip, n_columns, in, totals + i * kRowGroup);
  }
  for (; i + 2 <= n_x; i += 2, in.x += 2 * in.stride) {
    multiply_tile<2>(strip, n_columns, in, totals + i * kRowGroup);
  }
  if (i < n_x) multiply_tile<1>(strip, n_columns, in, totals + i * kRowGroup);
}

[[gnu::always_inline]] inline void store_sixteen(const Sixteen& rows, float* y,
                                                 std::uint32_t n_rows) noexcept {
  maddubs::store_rows<Avx2>(rows.v, y, n_rows);
}

// The product of a float type with kRows rows of x, weights in registers.
template <QuantType kType, std::uint32_t kRows>
[[gnu::always_inline]] inline void few_rows(const MatMulArgs& args, const std::byte* x,
                                            float* y) noexcept {
  const std::uint32_t n_padded = (args.n_cols + 3) / 4 * 4;
  const std::byte* group = args.weights;
  for (std::uint32_t row = 0; row < args.n_rows; row += kRowGroup, group += args.group_bytes) {
    Sixteen totals[kRows];
    each<kRows>([&](unsigned i) __attribute__((always_inline)) {
      totals[i] = {{_mm256_setzero_ps(), _mm256_setzero_ps()}};
    });
    for (std::uint32_t c = 0; c < n_padded; c += kStripColumns) {
      const std::uint32_t rest = n_padded - c;
      const std::uint32_t n_columns = rest < kStripColumns ? rest : kStripColumns;
      const std::byte* lines = group + std::size_t{c} / kLineColumns<kType> * kLineBytes;
      if (args.prefetch_bytes != 0) {
        for (std::uint32_t line = 0; line < n_columns / kLineColumns<kType>; ++line) {
          Avx2::prefetch(lines + args.prefetch_bytes + line * kLineBytes);
        }
      }
      Sixteen sums[kRows];
      dot_lines<kType, kRows>(lines, n_columns, {x + c * sizeof(float), args.x_stride}, sums);
      each<kRows>([&](unsigned i) __attribute__((always_inline)) {
        each<2>([&](unsigned v) __attribute__((always_inline)) {
          totals[i].v[v] = _mm256_add_ps(totals[i].v[v], sums[i].v[v]);
        });
      });
    }
    each<kRows>([&](unsigned i) __attribute__((always_inline)) {
      store_sixteen(totals[i], y + i * args.y_stride + row, args.n_rows - row);
    });
  }
}

// Returns n_columns columns of a float type from column c of a group on, as a strip.
template <QuantType kType>
[[gnu::always_inline]] inline const float* float_strip(const std::byte* group, std::uint32_t c,
                                                       std::uint32_t n_columns,
                                                       float* room) noexcept {
  const std::byte* lines = group + std::size_t{c} / kLineColumns<kType> * kLineBytes;
  if constexpr (kType == QuantType::kF32) return reinterpret_cast<const float*>(lines);
  for (std::uint32_t k = 0; k < n_columns; k += 2, lines += kLineBytes) {
    Sixteen columns[2];
    widen_line<kType>(lines, columns);
    for (unsigned half = 0; half < 4; ++half) {
      _mm256_store_ps(room + (k + half / 2) * kRowGroup + half % 2 * 8,
                      columns[half / 2].v[half % 2]);
    }
  }
  return room;
}

// Turns an unpacked block into a strip of weights.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] inline void widen_strip(const maddubs::Strip& from, float* to) noexcept {
  constexpr bool kSignedCodes = kType == QuantType::kQ8 || is_codebook_type(kType);
  const Sixteen scales = load_sixteen(from.scales);
  const Sixteen mins = load_sixteen(from.mins);
  for (std::uint32_t four = 0; four < kBlock / 4; ++four) {
    each<2>([&](unsigned v) __attribute__((always_inline)) {
      const __m256i words = Avx2::load(from.codes + four * kLineBytes + v * 32);
      each<4>([&](auto k) __attribute__((always_inline)) {
        constexpr int kAt = 8 * static_cast<int>(decltype(k)::value);
        __m256i codes;
        if constexpr (kSignedCodes) {
          codes = _mm256_srai_epi32(_mm256_slli_epi32(words, 24 - kAt), 24);
        } else {
          codes = _mm256_and_si256(_mm256_srli_epi32(words, kAt), _mm256_set1_epi32(0xFF));
        }
        const __m256 values = _mm256_cvtepi32_ps(codes);
        _mm256_store_ps(to + (4 * four + k) * kRowGroup + v * 8,
                        kSignedCodes ? _mm256_mul_ps(values, scales.v[v])
                                     : _mm256_fmadd_ps(values, scales.v[v], mins.v[v]));
      });
    });
  }
}

// Returns a block of a coded type as a strip.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] inline const float* coded_strip(
    const std::byte* group, std::uint32_t c, maddubs::BlockFields<Avx2, kType, kBlock>* fields,
    float* room) noexcept {
  maddubs::Strip strip;
  maddubs::unpack(group, c / kBlock, fields, &strip);
  widen_strip<kType, kBlock>(strip, room);
  return room;
}

// The product with n_x <= kRowsAtOnce rows of x, kColumns columns of weights at a time in a strip.
template <QuantType kType, std::uint32_t kColumns>
[[gnu::always_inline]] inline void many_rows(const MatMulArgs& args, const std::byte* x, float* y,
                                             std::uint32_t n_x) noexcept {
  alignas(64) float totals[kRowsAtOnce * kRowGroup];
  alignas(64) float room[kColumns * kRowGroup];
  constexpr std::uint32_t kAlign = is_float_type(kType) ? 4 : kColumns;
  const std::uint32_t n_padded = (args.n_cols + kAlign - 1) / kAlign * kAlign;
  const std::byte* group = args.weights;
  for (std::uint32_t row = 0; row < args.n_rows; row += kRowGroup, group += args.group_bytes) {
    std::memset(totals, 0, n_x * kRowGroup * sizeof(float));
    [[maybe_unused]] maddubs::BlockFields<Avx2, kType, kColumns> fields;
    for (std::uint32_t c = 0; c < n_padded; c += kColumns) {
      const std::uint32_t n_columns = n_padded - c < kColumns ? n_padded - c : kColumns;
      const float* strip;
      if constexpr (is_float_type(kType)) {
        strip = float_strip<kType>(group, c, n_columns, room);
      } else {
        strip = coded_strip<kType, kColumns>(group, c, &fields, room);
      }
      multiply_strip(strip, n_columns, {x + c * sizeof(float), args.x_stride}, n_x, totals);
    }
    for (std::uint32_t i = 0; i < n_x; ++i) {
      Sixteen rows = load_sixteen(totals + i * kRowGroup);
      maddubs::scale_rows<Avx2, kType>(group, rows.v);
      store_sixteen(rows, y + i * args.y_stride + row, args.n_rows - row);
    }
  }
}

template <QuantType kType, std::uint32_t kColumns>
[[gnu::always_inline]] inline void product(const MatMulArgs& args) noexcept {
  const std::uint32_t step = maddubs::rows_at_once(args.x_stride, kRowsAtOnce, kTileRows);
  for (std::uint32_t first = 0; first < args.n_x; first += step) {
    const std::byte* x = args.x + first * args.x_stride;
    float* y = args.y + first * args.y_stride;
    const std::uint32_t rest = args.n_x - first;
    if constexpr (is_float_type(kType)) {
      switch (rest) {
        case 1: few_rows<kType, 1>(args, x, y); return;
        case 2: few_rows<kType, 2>(args, x, y); return;
        case 3: few_rows<kType, 3>(args, x, y); return;
        case kFewRows: few_rows<kType, kFewRows>(args, x, y); return;
        default: break;
      }
    }
    many_rows<kType, kColumns>(args, x, y, rest < step ? rest : step);
  }
}

}  // namespace

#define QSF_DEFINE(name, type, block)                              \
  void matmul_##name##_f32_avx2(const MatMulArgs& args) noexcept { \
    product<QuantType::type, block>(args);                         \
  }
QSF_CODED_FORMATS(QSF_DEFINE)
QSF_SUPER_FORMATS(QSF_DEFINE)
QSF_ROW_FORMATS(QSF_DEFINE)
#undef QSF_DEFINE

#define QSF_DEFINE(name, type, block)                              \
  void matmul_##name##_f32_avx2(const MatMulArgs& args) noexcept { \
    product<QuantType::type, kStripColumns>(args);                 \
  }
QSF_FLOAT_FORMATS(QSF_DEFINE)
#undef QSF_DEFINE

}  // namespace qsf::kernels
