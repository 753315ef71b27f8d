// SPDX-License-Identifier: MIT
//
// Products with many int8 rows on matrix units: up to 16 rows of x, 16 rows of weights and 64
// columns an instruction. The four-column vectors that a block decodes to are the rows of a B tile
// as they stand, and rows of int8 x are rows of an A tile, so nothing is packed. Sums are taken out
// after every block, since each has a scale of its own, and meet the same float operations as on
// the tiers below: the bits are equal.
//
// One or two rows of x would leave most of a tile empty; they take the kernel of the tier below.

#include "kernels/amx_tiles.h"
#include "kernels/matmul/matmul_variants.h"
#include "kernels/matmul/whole_scales_avx512.h"

namespace qsf::kernels {
namespace {

using namespace avx512;

constexpr std::uint32_t kVnniRows = 2;     // fewer leave most of a tile empty
constexpr std::uint32_t kRowsAtOnce = 64;  // of x: 4 KiB of totals

// Tile numbers. The last rows of x, fewer than 16, have tiles of their own.
constexpr unsigned kSums = 0;
constexpr unsigned kRows = 1;
constexpr unsigned kLastSums = 2;
constexpr unsigned kLastRows = 3;
constexpr unsigned kWeights = 4;

template <std::uint32_t kBlock>
[[gnu::always_inline]] inline amx::TileShapes shapes_for(std::uint32_t n_x) noexcept {
  amx::TileShapes shapes;
  const std::uint32_t n_last = n_x % amx::kTileRows == 0 ? amx::kTileRows : n_x % amx::kTileRows;
  amx::set_shape(&shapes, kSums, amx::kTileRows, amx::kTileRowBytes);
  amx::set_shape(&shapes, kRows, amx::kTileRows, kBlock);
  amx::set_shape(&shapes, kLastSums, n_last, amx::kTileRowBytes);
  amx::set_shape(&shapes, kLastRows, n_last, kBlock);
  amx::set_shape(&shapes, kWeights, kBlock / 4, amx::kTileRowBytes);
  return shapes;
}

// Calls take(i, dots) for n_x rows of x, dots being their products with the block in the weight
// tile.
template <typename Take>
[[gnu::always_inline]] inline void for_dots(const std::byte* codes, std::size_t stride,
                                            std::uint32_t n_x, Take&& take) noexcept {
  alignas(64) std::int32_t dots[amx::kTileRows][kRowGroup];
  for (std::uint32_t first = 0; first < n_x; first += amx::kTileRows) {
    const std::uint32_t rest = n_x - first;
    if (rest >= amx::kTileRows) {
      amx::load<kRows>(codes + first * stride, stride);
      amx::zero<kSums>();
      amx::dot_signed_unsigned<kSums, kRows, kWeights>();
      amx::store<kSums>(dots, sizeof(dots[0]));
    } else {
      amx::load<kLastRows>(codes + first * stride, stride);
      amx::zero<kLastSums>();
      amx::dot_signed_unsigned<kLastSums, kLastRows, kWeights>();
      amx::store<kLastSums>(dots, sizeof(dots[0]));
    }
    for (std::uint32_t i = 0; i < (rest < amx::kTileRows ? rest : amx::kTileRows); ++i) {
      take(first + i, _mm512_load_si512(dots[i]));
    }
  }
}

// Adds the products of the block in the weight tile with n_x rows of x to their totals.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] inline void add_block(const BlockScales& scales, const std::byte* codes,
                                             const std::byte* x_block, unsigned half,
                                             std::size_t stride, std::uint32_t n_x,
                                             __m512* totals) noexcept {
  for_dots(
      codes, stride, n_x, [&](std::uint32_t i, __m512i dots) __attribute__((always_inline)) {
        const float* fields = reinterpret_cast<const float*>(x_block + i * stride);
        totals[i] = add_dots<kType>(totals[i], dots, scales,
                                    _mm512_set1_ps(fields[sum_field<kBlock>(half)]),
                                    _mm512_set1_ps(fields[0]));
      });
}

// How the numbers of 16 bits of an activation block are multiplied.
struct PairWords {
  [[gnu::always_inline]] static inline __m512i words(__m512i sums, __m512i a, __m512i b) noexcept {
    return _mm512_dpwssd_epi32(sums, a, b);
  }
};

// Rows [first, first + n_x) of x times one group of a type with whole scales.
template <QuantType kType>
[[gnu::always_inline]] inline void multiply_whole_group(const std::byte* group, const Row& x,
                                                        std::uint32_t n_x_blocks,
                                                        std::size_t stride, std::uint32_t n_x,
                                                        __m512* totals) noexcept {
  __m512i fours[kActivationBlockColumns / 4];
  __m512i sums[kRowsAtOnce];
  Block64Reader<kType> reader(group, 0);
  Block64Fields fields;
  for (std::uint32_t c = 0; c < n_x_blocks; ++c) {
    decode_block64<kType>(reader.next(&fields), fours);
    const std::byte* x_block = x.x_blocks + c * sizeof(Int8Block);
    for (std::uint32_t i = 0; i < n_x; ++i) {
      sums[i] = zeros_of<PairWords, kType>(fields.scales, x_block + i * stride);
    }
    for (unsigned k = 0; k < 4; ++k) {
      amx::load<kWeights>(fours + 4 * k, amx::kTileRowBytes);
      const __m512i scale = scale_of(fields.scales, k);
      for_dots(
          x.codes + c * kActivationBlockColumns + 16 * k, stride,
          n_x, [&](std::uint32_t i, __m512i dots) __attribute__((always_inline)) {
            sums[i] = _mm512_add_epi32(sums[i], _mm512_mullo_epi32(dots, scale));
          });
    }
    for (std::uint32_t i = 0; i < n_x; ++i) {
      totals[i] =
          add_block64_sums<PairWords, kType>(totals[i], sums[i], fields, x_block + i * stride);
    }
  }
}

// Rows [first, first + n_x) of x times one group.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] inline void multiply_group(const std::byte* group, const Row& x,
                                                  std::uint32_t n_blocks, std::size_t stride,
                                                  std::uint32_t n_x, __m512* totals) noexcept {
  constexpr std::uint32_t kHalves = kActivationBlockColumns / kBlock;
  __m512i fours[kBlock / 4];
  BlockReader<kType, kBlock> reader(group, 0);
  BlockScales scales;
  for (std::uint32_t block = 0; block < n_blocks; ++block) {
    const std::byte* lines = reader.next(&scales);
    decode_fours<kType, kBlock>(lines, reader.beside(), fours);
    amx::load<kWeights>(fours, amx::kTileRowBytes);
    add_block<kType, kBlock>(scales, x.codes + block * kBlock,
                             x.x_blocks + block / kHalves * sizeof(Int8Block), block % kHalves,
                             stride, n_x, totals);
  }
  for (std::uint32_t i = 0; i < n_x; ++i) totals[i] = scale_rows(reader, totals[i]);
}

// Rows [first, first + n_x) of x, at most kRowsAtOnce, times all groups.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] inline void multiply_rows(const MatMulArgs& args, std::uint32_t first,
                                                 std::uint32_t n_x) noexcept {
  __m512 totals[kRowsAtOnce];
  const Row x = Row::of(args, first);
  amx::configure(shapes_for < kWholeScales<kType> ? 16 : kBlock > (n_x));
  const std::byte* group = args.weights;
  for (std::uint32_t row = 0; row < args.n_rows; row += kRowGroup, group += args.group_bytes) {
    for (std::uint32_t i = 0; i < n_x; ++i) totals[i] = _mm512_setzero_ps();
    if constexpr (kWholeScales<kType>) {
      const auto n_x_blocks = static_cast<std::uint32_t>(int8_blocks(args.n_cols));
      multiply_whole_group<kType>(group, x, n_x_blocks, args.x_stride, n_x, totals);
    } else {
      const std::uint32_t n_blocks = (args.n_cols + kBlock - 1) / kBlock;
      multiply_group<kType, kBlock>(group, x, n_blocks, args.x_stride, n_x, totals);
    }
    for (std::uint32_t i = 0; i < n_x; ++i) {
      store_rows(args.y + (first + i) * args.y_stride + row, totals[i], args.n_rows - row);
    }
  }
  amx::release();
}

template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] inline void coded_tiles(const MatMulArgs& args) noexcept {
  for (std::uint32_t first = 0; first < args.n_x; first += kRowsAtOnce) {
    const std::uint32_t rest = args.n_x - first;
    multiply_rows<kType, kBlock>(args, first, rest < kRowsAtOnce ? rest : kRowsAtOnce);
  }
}

}  // namespace

#define QSF_DEFINE(name, type, block, tier)                      \
  void matmul_##name##_i8_amx(const MatMulArgs& args) noexcept { \
    if (args.n_x <= kVnniRows) {                                 \
      matmul_##name##_i8_##tier(args);                           \
    } else {                                                     \
      coded_tiles<QuantType::type, block>(args);                 \
    }                                                            \
  }
QSF_BLOCK_FORMATS(QSF_DEFINE, avx512vnni)
QSF_TRELLIS_FORMATS(QSF_DEFINE, avx512vbmi)
QSF_SUPER_FORMATS(QSF_DEFINE, avx512vnni)
QSF_ROW_FORMATS(QSF_DEFINE, avx512vnni)
#undef QSF_DEFINE

}  // namespace qsf::kernels
