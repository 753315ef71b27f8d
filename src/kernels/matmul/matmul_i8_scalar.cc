// SPDX-License-Identifier: MIT
//
// Products with int8 rows, scalar tier: sixteen-bit lanes of the compiler's own vectors.
//
// A line holds 4 bytes of every row, that is two 16-bit lanes: one for columns 0 and 1 of a field,
// one for columns 2 and 3. Its low bytes are the codes of columns 0 and 2, its high bytes those of
// 1 and 3, so a line yields vectors of codes by shifts and masks alone, and the activations they
// meet are a pattern that repeats every two lanes. Products are summed in 16 bits as long as the
// largest ones fit, then the two lanes of a row are added up in 32.
//
// A block of 16 rows is decoded once, to a strip that stays in L1, for up to kRowsAtOnce rows of x.

#include <cstdint>
#include <cstring>

#include "kernels/decode_lanes.h"
#include "kernels/matmul/matmul_variants.h"

namespace qsf::kernels {
namespace {

using namespace lanes;

typedef std::int16_t i16x8 __attribute__((vector_size(16)));

static_assert(kRowGroup == 16 && kLineBytes == 64);

constexpr std::uint32_t kRowsAtOnce = 32;  // rows of x that share a decoded strip

// The codes of four columns of 16 rows: lanes of vector i are rows 4i .. 4i + 3, two a row.
struct FourColumns {
  i16x8 even[4];  // columns 0 and 2
  i16x8 odd[4];   // columns 1 and 3
};

// Largest magnitude of a code of the type, as it is multiplied.
template <QuantType kType>
constexpr std::int32_t kLargestCode = kType == QuantType::kQ8           ? 127
                                      : is_codebook_type(kType)         ? 127
                                      : kType == QuantType::kTernary    ? 2
                                      : kType == QuantType::kTernaryRow ? 2
                                      : kType == QuantType::kQk256      ? 4
                                      : kType == QuantType::kMxfp4      ? 24
                                      : is_trellis_type(kType)          ? kLargestTrellisValue
                                      : code_zero(kType) != 0           ? code_zero(kType)
                                                              : (1 << code_bits(kType)) - 1;

// Groups of four columns whose products fit 16 bits: a lane sums two of the four.
template <QuantType kType, std::uint32_t kBlock>
constexpr std::uint32_t fours_per_sum() noexcept {
  const std::uint32_t fit = 32767 / (2 * 127 * kLargestCode<kType>);
  std::uint32_t fours = 1;
  while (2 * fours <= fit && 2 * fours <= kBlock / 4) fours *= 2;
  return fours;
}

[[gnu::always_inline]] inline i16x8 masked(u16x8 words, unsigned shift, unsigned mask) noexcept {
  return reinterpret_cast<i16x8>((words >> static_cast<std::uint16_t>(shift)) &
                                 static_cast<std::uint16_t>(mask));
}

// Decodes one field of one line: 4 columns of 2- or 4-bit codes.
template <unsigned kBits>
[[gnu::always_inline]] inline FourColumns decode_field(const std::byte* line,
                                                       unsigned field) noexcept {
  constexpr unsigned kMask = (1U << kBits) - 1U;
  FourColumns out;
  for (unsigned i = 0; i < 4; ++i) {
    const u16x8 words = load<u16x8>(line + 16 * i);
    out.even[i] = masked(words, field * kBits, kMask);
    out.odd[i] = masked(words, 8 + field * kBits, kMask);
  }
  return out;
}

// Joins low bits with those from bit kShift on, and takes the zero of signed codes out.
template <QuantType kType, int kShift>
[[gnu::always_inline]] inline FourColumns join(const FourColumns& low,
                                               const FourColumns& high) noexcept {
  constexpr std::int16_t kZero = code_zero(kType);
  FourColumns out;
  for (unsigned i = 0; i < 4; ++i) {
    out.even[i] = (high.even[i] << kShift) + low.even[i] - kZero;
    out.odd[i] = (high.odd[i] << kShift) + low.odd[i] - kZero;
    if constexpr (is_codebook_type(kType)) {
      out.even[i] = look_up_levels<kType>(out.even[i]);
      out.odd[i] = look_up_levels<kType>(out.odd[i]);
    }
  }
  return out;
}

// Decodes columns 4 * four .. 4 * four + 3 of a block, `codes` its first code line and `half` its
// half of a line that it shares.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] inline FourColumns decode_four(const std::byte* codes,
                                                      [[maybe_unused]] unsigned half,
                                                      std::uint32_t four) noexcept {
  if constexpr (shares_lines(kType)) {
    return join<kType, 1>(decode_field<1>(codes + 2 * kLineBytes, 4 * half + four),
                          decode_field<2>(codes + half * kLineBytes, four));
  } else if constexpr (kIsWide<kType>) {
    constexpr unsigned kHighBits = code_bits(kType) - 4;
    return join<kType, 4>(decode_field<4>(codes + four / 2 * kLineBytes, four % 2),
                          decode_field<kHighBits>(codes + kBlock / 8 * kLineBytes, four));
  } else if constexpr (kType == QuantType::kQ8) {
    FourColumns out;
    for (unsigned i = 0; i < 4; ++i) {
      const u16x8 words = load<u16x8>(codes + four * kLineBytes + 16 * i);
      out.even[i] = reinterpret_cast<i16x8>(words << 8) >> 8;
      out.odd[i] = reinterpret_cast<i16x8>(words) >> 8;
    }
    return out;
  } else if constexpr (code_bits(kType) == 3) {
    constexpr std::uint32_t kHighLines = kBlock / 16;
    FourColumns out = decode_field<2>(codes + four / 4 * kLineBytes, four % 4);
    const FourColumns low = decode_field<1>(codes + (kHighLines + four / 8) * kLineBytes, four % 8);
    for (unsigned i = 0; i < 4; ++i) {
      out.even[i] = out.even[i] + out.even[i] + low.even[i];
      out.odd[i] = out.odd[i] + out.odd[i] + low.odd[i];
    }
    return out;
  } else {
    constexpr unsigned kBits = code_bits(kType);
    constexpr std::uint32_t kFields = 8 / kBits;
    FourColumns out = decode_field<kBits>(codes + four / kFields * kLineBytes, four % kFields);
    if constexpr (kType == QuantType::kQk256) {  // 0, 1, 2, 3 become 0, 1, 3, 4
      for (unsigned i = 0; i < 4; ++i) {
        out.even[i] += out.even[i] >> 1;
        out.odd[i] += out.odd[i] >> 1;
      }
    } else if constexpr (has_levels(kType)) {
      for (unsigned i = 0; i < 4; ++i) {
        out.even[i] = look_up_levels<kType>(out.even[i]);
        out.odd[i] = look_up_levels<kType>(out.odd[i]);
      }
    }
    return out;
  }
}

// Decodes all columns of a trellis block.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] inline void decode_trellis(const std::byte* codes, unsigned lines_back,
                                                  FourColumns* strip) noexcept {
  for_trellis_columns<kType, kBlock>(
      codes, lines_back, [&](unsigned column, const Rows16& rows) __attribute__((always_inline)) {
        FourColumns& four = strip[column / 4];
        i16x8* const to = column % 2 == 0 ? four.even : four.odd;
        for (unsigned r = 0; r < 16; ++r) {
          to[r / 4][r % 4 * 2 + column % 4 / 2] = static_cast<std::int16_t>(rows.v[r / 4][r % 4]);
        }
      });
}

// Spreads two codes over the lanes of every row.
[[gnu::always_inline]] inline i16x8 pattern(std::byte first, std::byte second) noexcept {
  const auto low = static_cast<std::uint16_t>(static_cast<std::int8_t>(first));
  const auto high = static_cast<std::uint16_t>(static_cast<std::int8_t>(second));
  return reinterpret_cast<i16x8>(splat_u32(std::uint32_t{low} | std::uint32_t{high} << 16));
}

// Exact sums of code * q over one block, row by row.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] inline void dot_block(const FourColumns* strip, const std::byte* q,
                                             i32x4 dots[4]) noexcept {
  constexpr std::uint32_t kFours = fours_per_sum<kType, kBlock>();
  for (unsigned i = 0; i < 4; ++i) dots[i] = i32x4{};
  for (std::uint32_t first = 0; first < kBlock / 4; first += kFours) {
    i16x8 sums[4] = {};
    for (std::uint32_t four = first; four < first + kFours; ++four) {
      const i16x8 even = pattern(q[4 * four], q[4 * four + 2]);
      const i16x8 odd = pattern(q[4 * four + 1], q[4 * four + 3]);
      for (unsigned i = 0; i < 4; ++i) {
        sums[i] += strip[four].even[i] * even + strip[four].odd[i] * odd;
      }
    }
    for (unsigned i = 0; i < 4; ++i) {
      const i32x4 pairs = reinterpret_cast<i32x4>(sums[i]);
      dots[i] +=
          (reinterpret_cast<i32x4>(reinterpret_cast<u32x4>(pairs) << 16) >> 16) + (pairs >> 16);
    }
  }
}

// Stores the rows of weights that exist, for every row of x.
void store_totals(const Rows16* totals, const MatMulArgs& args, std::uint32_t first_x,
                  std::uint32_t n_x, std::uint32_t first_row) noexcept {
  const std::uint32_t rest = args.n_rows - first_row;
  for (std::uint32_t i = 0; i < n_x; ++i) {
    std::memcpy(args.y + (first_x + i) * args.y_stride + first_row, &totals[i],
                (rest < kRowGroup ? rest : kRowGroup) * sizeof(float));
  }
}

// Adds one block of one group to the totals of n_x rows of x.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] inline void add_block(const MatMulArgs& args, const std::byte* group,
                                             std::uint32_t block, std::uint32_t first_x,
                                             std::uint32_t n_x, Rows16* totals) noexcept {
  FourColumns strip[kBlock / 4];
  const BlockFields fields = load_fields<kType, kBlock>(group, block);
  if constexpr (is_trellis_type(kType)) {
    decode_trellis<kType, kBlock>(fields.codes, fields.half, strip);
  } else {
    for (std::uint32_t four = 0; four < kBlock / 4; ++four) {
      strip[four] = decode_four<kType, kBlock>(fields.codes, fields.half, four);
    }
  }
  const std::uint32_t column = block * kBlock;
  const std::size_t block64_at =
      int8_blocks_offset(args.n_cols) + column / kActivationBlockColumns * sizeof(Int8Block);
  for (std::uint32_t i = 0; i < n_x; ++i) {
    const std::byte* x = args.x + (first_x + i) * args.x_stride;
    Int8Block x_block;
    std::memcpy(&x_block, x + block64_at, sizeof(x_block));
    const float sum = kBlock == 64                            ? x_block.sum
                      : column % kActivationBlockColumns == 0 ? x_block.low_sum
                                                              : x_block.high_sum;
    i32x4 dots[4];
    dot_block<kType, kBlock>(strip, x + column, dots);
    for (unsigned v = 0; v < 4; ++v) {
      f32x4 term = fields.scales.v[v] * to_f32(dots[v]);
      if constexpr (!kMultipliesSigned<kType>) term += fields.mins.v[v] * sum;
      totals[i].v[v] += term * x_block.scale;
    }
  }
}

// The scales and mins of the four sub-blocks of an activation block.
struct Block64Fields {
  Rows16 d;
  Rows16 dmin;
  i32x4 scales[4][4];  // of sub-block k, rows 4v .. 4v + 3
  i32x4 mins[4][4];
};

template <QuantType kType>
[[gnu::always_inline]] inline Block64Fields load_block64_fields(const BlockPlace& place) noexcept {
  Block64Fields out;
  out.d = load_half_rows(place.scales);
  if constexpr (has_min(kType)) out.dmin = load_half_rows(place.mins);
  if constexpr (is_codebook_type(kType)) {
    for (unsigned k = 0; k < 4; ++k) {
      BlockPlace quarter = place;
      quarter.k += k;
      const Words16 scales = load_codebook_scales<kType, 16>(quarter);
      for (unsigned v = 0; v < 4; ++v) out.scales[k][v] = reinterpret_cast<i32x4>(scales.v[v]);
    }
    return out;
  }
  const Words16 bytes = load_line(place.low);
  for (unsigned k = 0; k < 4; ++k) {
    for (unsigned v = 0; v < 4; ++v) {
      if constexpr (has_min(kType)) {
        const u32x4 fields = bytes.v[v] >> (8 * k);
        out.scales[k][v] = reinterpret_cast<i32x4>(fields & 15U);
        out.mins[k][v] = reinterpret_cast<i32x4>((fields >> 4) & 15U);
      } else {
        out.scales[k][v] = reinterpret_cast<i32x4>(bytes.v[v] << (24 - 8 * k)) >> 24;
      }
    }
  }
  return out;
}

// Adds one activation block of a type with whole scales to the totals of n_x rows of x.
template <QuantType kType>
[[gnu::always_inline]] inline void add_block64(const MatMulArgs& args, const std::byte* group,
                                               std::uint32_t index, std::uint32_t first_x,
                                               std::uint32_t n_x, Rows16* totals) noexcept {
  FourColumns strip[kActivationBlockColumns / 4];
  const BlockPlace place = place_of<kType, 16>(group, std::size_t{4} * index);
  const Block64Fields fields = load_block64_fields<kType>(place);
  for (unsigned four = 0; four < kActivationBlockColumns / 4; ++four) {
    const unsigned k = four / 4;
    strip[four] = decode_four<kType, 16>(place.codes + quarter_offset<kType>(k), k % 2, four % 4);
  }
  for (std::uint32_t i = 0; i < n_x; ++i) {
    const std::byte* x = args.x + (first_x + i) * args.x_stride;
    Int8Block x_block;
    std::memcpy(&x_block, x + int8_blocks_offset(args.n_cols) + index * sizeof(x_block),
                sizeof(x_block));
    i32x4 scaled[4] = {};
    i32x4 shifts[4] = {};
    for (unsigned k = 0; k < 4; ++k) {
      i32x4 dots[4];
      dot_block<kType, 16>(strip + 4 * k, x + index * kActivationBlockColumns + 16 * k, dots);
      for (unsigned v = 0; v < 4; ++v) {
        scaled[v] += fields.scales[k][v] * dots[v];
        if constexpr (has_min(kType)) {
          shifts[v] += fields.mins[k][v] * x_block.quarter_sums[quarter_place(k)];
        }
      }
    }
    for (unsigned v = 0; v < 4; ++v) {
      f32x4 term = fields.d.v[v] * to_f32(scaled[v]);
      if constexpr (has_min(kType)) term += fields.dmin.v[v] * to_f32(shifts[v]);
      totals[i].v[v] += term * x_block.scale;
    }
  }
}

template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] inline void coded(const MatMulArgs& args) noexcept {
  Rows16 totals[kRowsAtOnce];
  constexpr std::uint32_t kColumns = kWholeScales<kType> ? kActivationBlockColumns : kBlock;
  const std::uint32_t n_blocks = (args.n_cols + kColumns - 1) / kColumns;
  for (std::uint32_t first = 0; first < args.n_x; first += kRowsAtOnce) {
    const std::uint32_t n_x = args.n_x - first < kRowsAtOnce ? args.n_x - first : kRowsAtOnce;
    const std::byte* group = args.weights;
    for (std::uint32_t row = 0; row < args.n_rows; row += kRowGroup, group += args.group_bytes) {
      for (std::uint32_t i = 0; i < n_x; ++i) totals[i] = zero_rows();
      for (std::uint32_t block = 0; block < n_blocks; ++block) {
        if constexpr (kWholeScales<kType>) {
          add_block64<kType>(args, group, block, first, n_x, totals);
        } else {
          add_block<kType, kBlock>(args, group, block, first, n_x, totals);
        }
      }
      scale_totals<kType>(group, totals, n_x);
      store_totals(totals, args, first, n_x, row);
    }
  }
}

}  // namespace

#define QSF_DEFINE(name, type, block)                               \
  void matmul_##name##_i8_scalar(const MatMulArgs& args) noexcept { \
    coded<QuantType::type, block>(args);                            \
  }
QSF_CODED_FORMATS(QSF_DEFINE)
QSF_SUPER_FORMATS(QSF_DEFINE)
QSF_ROW_FORMATS(QSF_DEFINE)
#undef QSF_DEFINE

}  // namespace qsf::kernels
