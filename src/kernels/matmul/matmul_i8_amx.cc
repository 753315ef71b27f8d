// SPDX-License-Identifier: MIT
//
// Products with many int8 rows on matrix units: up to 16 rows of x, 16 rows of weights and 64
// columns an instruction. The four-column vectors that a block decodes to are the rows of a B tile
// as they stand, and rows of int8 x are rows of an A tile, so nothing is packed. Sums are taken out
// after every block, since each has a scale of its own, and meet the same float operations as on
// the tiers below: the bits are equal.
//
// One or two rows of x would leave most of a tile empty; they take the kernel of VNNI.

#include "kernels/amx_tiles.h"
#include "kernels/matmul/matmul_i8_avx512.h"
#include "kernels/matmul/matmul_variants.h"

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

// Adds the products of the block in the weight tile with n_x rows of x to their totals.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] inline void add_block(const BlockScales& scales, const std::byte* codes,
                                             const std::byte* chunk, unsigned half,
                                             std::size_t stride, std::uint32_t n_x,
                                             __m512* totals) noexcept {
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
      const float* fields = reinterpret_cast<const float*>(chunk + (first + i) * stride);
      totals[first + i] = add_dots<kType>(totals[first + i], _mm512_load_si512(dots[i]), scales,
                                          _mm512_set1_ps(fields[sum_field<kBlock>(half)]),
                                          _mm512_set1_ps(fields[0]));
    }
  }
}

// Rows [first, first + n_x) of x, at most kRowsAtOnce, times all groups.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] inline void multiply_rows(const MatMulArgs& args, std::uint32_t first,
                                                 std::uint32_t n_x) noexcept {
  constexpr std::uint32_t kHalves = kChunkColumns / kBlock;
  __m512 totals[kRowsAtOnce];
  __m512i fours[kBlock / 4];
  const Row x = Row::of(args, first);
  const std::uint32_t n_blocks = (args.n_cols + kBlock - 1) / kBlock;
  amx::configure(shapes_for<kBlock>(n_x));
  const std::byte* group = args.weights;
  for (std::uint32_t row = 0; row < args.n_rows; row += kRowGroup, group += args.group_bytes) {
    for (std::uint32_t i = 0; i < n_x; ++i) totals[i] = _mm512_setzero_ps();
    BlockReader<kType, kBlock> reader(group, 0);
    BlockScales scales;
    for (std::uint32_t block = 0; block < n_blocks; ++block) {
      const std::byte* lines = reader.next(&scales);
      decode_fours<kType, kBlock>(lines, scales.half, fours);
      amx::load<kWeights>(fours, amx::kTileRowBytes);
      add_block<kType, kBlock>(scales, x.codes + block * kBlock,
                               x.chunks + block / kHalves * sizeof(Int8Chunk), block % kHalves,
                               args.x_stride, n_x, totals);
    }
    for (std::uint32_t i = 0; i < n_x; ++i) {
      store_rows(args.y + (first + i) * args.y_stride + row, scale_rows(reader, totals[i]),
                 args.n_rows - row);
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

#define QSF_DEFINE(name, type, block)                            \
  void matmul_##name##_i8_amx(const MatMulArgs& args) noexcept { \
    if (args.n_x <= kVnniRows) {                                 \
      matmul_##name##_i8_avx512vnni(args);                       \
    } else {                                                     \
      coded_tiles<QuantType::type, block>(args);                 \
    }                                                            \
  }
QSF_CODED_FORMATS(QSF_DEFINE)
QSF_SUPER_FORMATS(QSF_DEFINE)
QSF_ROW_FORMATS(QSF_DEFINE)
#undef QSF_DEFINE

}  // namespace qsf::kernels
