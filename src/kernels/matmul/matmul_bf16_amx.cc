// SPDX-License-Identifier: MIT
//
// Products with many bf16 rows on matrix units: the kernel of prompts where there are some.
//
// Scales of each 64 columns would empty the accumulators at every second instruction, so weights
// are turned into bf16 with scale and min folded in, and all columns are summed in f32 in the
// tiles. Two groups of weight rows, a strip of 512 columns at a time, are decoded to L1 and meet
// 256 rows of x, 32 at a time: four tiles of sums, two of x, two of weights. Sums wait in an array
// on the stack while the next strip is decoded. So a weight is decoded once for 256 rows, about 0.4
// vector operations against 16 products of a tile instruction.
//
// A row of sums starts at zero and takes its columns in order, 32 an instruction, whatever else is
// in the tile.

#include <cstring>

#include "kernels/amx_tiles.h"
#include "kernels/matmul/coded_avx512.h"
#include "kernels/matmul/matmul_variants.h"

namespace qsf::kernels {
namespace {

using namespace avx512;

constexpr std::uint32_t kTileColumns = 32;  // columns of x that a tile holds
constexpr std::uint32_t kStripColumns = 512;
constexpr std::uint32_t kStripTiles = kStripColumns / kTileColumns;
constexpr std::uint32_t kMostRows = 256;  // of x that share a decoded strip
constexpr std::size_t kTileBytes = std::size_t{amx::kTileRows} * amx::kTileRowBytes;

// One group's strip: tiles of 16 lines, a line having two columns of every row of weights.
struct Strip {
  alignas(64) std::byte tiles[kStripTiles][kTileBytes];
};

// The sums of kMostRows rows of x and two groups.
struct Sums {
  alignas(64) float rows[kMostRows][2 * kRowGroup];
};

// Tiles: sums of (rows of x, group) = (0, 0), (0, 1), (1, 0), (1, 1), then rows of x, then groups.
constexpr unsigned kSums00 = 0;
constexpr unsigned kSums01 = 1;
constexpr unsigned kSums10 = 2;
constexpr unsigned kSums11 = 3;
constexpr unsigned kRows0 = 4;
constexpr unsigned kRows1 = 5;
constexpr unsigned kGroup0 = 6;
constexpr unsigned kGroup1 = 7;

// Shapes for n_0 and n_1 rows of x.
[[gnu::always_inline]] inline amx::TileShapes shapes_for(std::uint32_t n_0,
                                                         std::uint32_t n_1) noexcept {
  amx::TileShapes shapes;
  for (const unsigned tile : {kSums00, kSums01, kRows0}) {
    amx::set_shape(&shapes, tile, n_0, amx::kTileRowBytes);
  }
  if (n_1 > 0) {
    for (const unsigned tile : {kSums10, kSums11, kRows1}) {
      amx::set_shape(&shapes, tile, n_1, amx::kTileRowBytes);
    }
  }
  for (const unsigned tile : {kGroup0, kGroup1}) {
    amx::set_shape(&shapes, tile, amx::kTileRows, amx::kTileRowBytes);
  }
  return shapes;
}

// Rounds two columns of 16 rows to bf16 and stores them as a line.
[[gnu::always_inline]] inline void store_line(std::byte* line, __m512 even, __m512 odd) noexcept {
  const __m512i both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
  const __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(both));
  const __m512i high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(both, 1));
  _mm512_store_si512(line, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

// Widens column kColumn of a four.
template <unsigned kColumn>
[[gnu::always_inline]] inline __m512 column_of(__m512i four) noexcept {
  const __m512i moved = _mm512_srli_epi32(four, 8 * kColumn);
  return _mm512_cvtepi32_ps(_mm512_and_si512(moved, _mm512_set1_epi32(0xFF)));
}

// Reads one group of a coded type, strip after strip.
template <QuantType kType, std::uint32_t kBlock>
class StripReader {
 public:
  [[gnu::always_inline]] StripReader(const std::byte* group, std::uint32_t n_cols) noexcept
      : reader_(group, 0), n_left_((n_cols + kBlock - 1) / kBlock) {}

  // Decodes the next kStripColumns columns, zeros behind the last block.
  [[gnu::noinline]] void next(Strip* strip) noexcept {
    std::byte* line = strip->tiles[0];
    for (std::uint32_t block = 0; block < kStripColumns / kBlock; ++block) {
      if (n_left_ == 0) {
        std::memset(line, 0, sizeof(Strip) - static_cast<std::size_t>(line - strip->tiles[0]));
        return;
      }
      --n_left_;
      line = decode_block(line);
    }
  }

 private:
  [[gnu::always_inline]] std::byte* decode_block(std::byte* line) noexcept {
    __m512i fours[kBlock / 4];
    BlockScales scales;
    const std::byte* lines = reader_.next(&scales);
    decode_fours<kType, kBlock>(lines, reader_.beside(), fours);
    if constexpr (scale_form(kType) == ScaleForm::kRowNibble) {
      scales.scale = _mm512_mul_ps(scales.scale, reader_.row_scales());
      scales.min = _mm512_mul_ps(scales.min, reader_.row_scales());
    }
    // Signed codes come with an offset, which their scale takes out exactly.
    const __m512 min = kMultipliesSigned<kType>
                           ? _mm512_mul_ps(scales.scale, _mm512_set1_ps(-kSignedOffset<kType>))
                           : scales.min;
    for (unsigned four = 0; four < kBlock / 4; ++four, line += 2 * kLineBytes) {
      store_line(line, _mm512_fmadd_ps(scales.scale, column_of<0>(fours[four]), min),
                 _mm512_fmadd_ps(scales.scale, column_of<1>(fours[four]), min));
      store_line(line + kLineBytes, _mm512_fmadd_ps(scales.scale, column_of<2>(fours[four]), min),
                 _mm512_fmadd_ps(scales.scale, column_of<3>(fours[four]), min));
    }
    return line;
  }

  BlockReader<kType, kBlock> reader_;
  std::uint32_t n_left_;  // blocks
};

// The same for bf16 weights, whose lines are those of a tile.
template <>
class StripReader<QuantType::kBF16, 4> {
 public:
  [[gnu::always_inline]] StripReader(const std::byte* group, std::uint32_t n_cols) noexcept
      : at_(group), n_left_((std::size_t{n_cols} + 3) / 4 * 2 * kLineBytes) {}

  [[gnu::always_inline]] void next(Strip* strip) noexcept {
    const std::size_t n_bytes = n_left_ < sizeof(Strip) ? n_left_ : sizeof(Strip);
    std::memcpy(strip->tiles[0], at_, n_bytes);
    std::memset(strip->tiles[0] + n_bytes, 0, sizeof(Strip) - n_bytes);
    at_ += n_bytes;
    n_left_ -= n_bytes;
  }

 private:
  const std::byte* at_;
  std::size_t n_left_;  // bytes
};

// Adds the products of n_tiles tiles of two strips and up to 32 rows of x to their sums.
template <bool kTwo>
[[gnu::always_inline]] inline void add_tiles(const Strip strips[2], std::uint32_t n_tiles,
                                             const std::byte* x, std::size_t stride,
                                             float* sums) noexcept {
  constexpr std::size_t kSumsStride = 2 * kRowGroup * sizeof(float);
  constexpr std::size_t kSecondRows = std::size_t{amx::kTileRows} * 2 * kRowGroup;
  amx::load<kSums00>(sums, kSumsStride);
  amx::load<kSums01>(sums + kRowGroup, kSumsStride);
  if constexpr (kTwo) {
    amx::load<kSums10>(sums + kSecondRows, kSumsStride);
    amx::load<kSums11>(sums + kSecondRows + kRowGroup, kSumsStride);
  }
  for (std::uint32_t t = 0; t < n_tiles; ++t) {
    const std::byte* columns = x + t * amx::kTileRowBytes;
    amx::load<kRows0>(columns, stride);
    amx::load<kGroup0>(strips[0].tiles[t], amx::kTileRowBytes);
    amx::dot_bf16<kSums00, kRows0, kGroup0>();
    amx::load<kGroup1>(strips[1].tiles[t], amx::kTileRowBytes);
    amx::dot_bf16<kSums01, kRows0, kGroup1>();
    if constexpr (kTwo) {
      amx::load<kRows1>(columns + amx::kTileRows * stride, stride);
      amx::dot_bf16<kSums10, kRows1, kGroup0>();
      amx::dot_bf16<kSums11, kRows1, kGroup1>();
    }
  }
  amx::store<kSums00>(sums, kSumsStride);
  amx::store<kSums01>(sums + kRowGroup, kSumsStride);
  if constexpr (kTwo) {
    amx::store<kSums10>(sums + kSecondRows, kSumsStride);
    amx::store<kSums11>(sums + kSecondRows + kRowGroup, kSumsStride);
  }
}

// Adds the products of n_tiles tiles of two strips and n_x rows of x to their sums.
[[gnu::noinline]] void add_strip(const Strip strips[2], std::uint32_t n_tiles, const std::byte* x,
                                 std::size_t stride, std::uint32_t n_x, Sums* sums) noexcept {
  constexpr std::uint32_t kPair = 2 * amx::kTileRows;
  std::uint32_t i = 0;
  if (n_x >= kPair) amx::configure(shapes_for(amx::kTileRows, amx::kTileRows));
  for (; i + kPair <= n_x; i += kPair) {
    add_tiles<true>(strips, n_tiles, x + i * stride, stride, sums->rows[i]);
  }
  const std::uint32_t rest = n_x - i;
  if (rest > amx::kTileRows) {
    amx::configure(shapes_for(amx::kTileRows, rest - amx::kTileRows));
    add_tiles<true>(strips, n_tiles, x + i * stride, stride, sums->rows[i]);
  } else if (rest > 0) {
    amx::configure(shapes_for(rest, 0));
    add_tiles<false>(strips, n_tiles, x + i * stride, stride, sums->rows[i]);
  }
}

// Stores n_rows sums, at most 32, of n_x rows of x.
[[gnu::noinline]] void store_sums(const Sums& sums, std::uint32_t n_x, std::uint32_t n_rows,
                                  float* y, std::size_t y_stride) noexcept {
  const std::size_t n_stored = n_rows < 2 * kRowGroup ? n_rows : 2 * kRowGroup;
  for (std::uint32_t i = 0; i < n_x; ++i) {
    std::memcpy(y + i * y_stride, sums.rows[i], n_stored * sizeof(float));
  }
}

template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] inline void multiply(const MatMulArgs& args) noexcept {
  Strip strips[2];
  Sums sums;
  const std::uint32_t n_block64_columns = (args.n_cols + kActivationBlockColumns - 1) /
                                          kActivationBlockColumns * kActivationBlockColumns;
  for (std::uint32_t first = 0; first < args.n_x; first += kMostRows) {
    const std::uint32_t n_x = args.n_x - first < kMostRows ? args.n_x - first : kMostRows;
    const std::byte* x = args.x + first * args.x_stride;
    const std::byte* group = args.weights;
    for (std::uint32_t row = 0; row < args.n_rows; row += 2 * kRowGroup) {
      // A group without a second beside it is multiplied twice; its second sums are not stored.
      const bool two = args.n_rows - row > kRowGroup;
      StripReader<kType, kBlock> readers[2] = {
          {group, args.n_cols}, {two ? group + args.group_bytes : group, args.n_cols}};
      std::memset(sums.rows, 0, n_x * sizeof(sums.rows[0]));
      for (std::uint32_t column = 0; column < n_block64_columns; column += kStripColumns) {
        for (unsigned g = 0; g < 2; ++g) readers[g].next(&strips[g]);
        const std::uint32_t rest = n_block64_columns - column;
        const std::uint32_t n_columns = rest < kStripColumns ? rest : kStripColumns;
        add_strip(strips, n_columns / kTileColumns, x + std::size_t{column} * 2, args.x_stride, n_x,
                  &sums);
      }
      store_sums(sums, n_x, args.n_rows - row, args.y + first * args.y_stride + row, args.y_stride);
      group += 2 * args.group_bytes;
    }
  }
  amx::release();
}

}  // namespace

#define QSF_DEFINE(name, type, block)                              \
  void matmul_##name##_bf16_amx(const MatMulArgs& args) noexcept { \
    multiply<QuantType::type, block>(args);                        \
  }
QSF_CODED_FORMATS(QSF_DEFINE)
QSF_SUPER_FORMATS(QSF_DEFINE)
QSF_ROW_FORMATS(QSF_DEFINE)
QSF_DEFINE(bf16, kBF16, 4)
#undef QSF_DEFINE

}  // namespace qsf::kernels
