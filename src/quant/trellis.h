// SPDX-License-Identifier: MIT
//
// Trellis-coded weights: 2bit-trellis and 3bit-trellis, 2.06 and 3.06 bits a weight and 4 bytes a
// row.
//
//   w = (d * scale) * (value - 31.5)          d: f32 of the row, scale: 0 .. 15 of 64 columns
//
// The columns of a row are four *streams*: stream k has columns k, k + 4, k + 8, ... A code is a
// *symbol* of two bits, in 3bit-trellis symbol * 2 + one *refinement* bit. The value of a column
// depends on its symbol s[t] and the five before it in its stream, the *window*; symbols before the
// first are 0:
//
//   window = s[t] << 10 | s[t-1] << 8 | s[t-2] << 6 | s[t-3] << 4 | s[t-4] << 2 | s[t-5]
//   index  = kNewest[window >> 8] ^ kMiddle[window >> 4 & 15] ^ kOldest[window & 15]
//   value  = level[index], in 3bit-trellis + 8 * refinement
//
// Four values follow a state, and an encoder searches the path through all states (the Viterbi
// algorithm), so 2 bits choose among many more than four values. At equal bits the squared error on
// normal weights is 0.58 of 2bit-table's and 0.70 of 3bit-table's. Tables are 16 bytes, so byte
// shuffles look them up, and values of 6 bits without sign fit the products of maddubs.
//
// Symbols are packed as codes of their width (quant/code_packing.h). In layout 1, field f of a line
// is symbol t of its four streams, so windows are bits of neighbouring lines.
//
// Based on: QTIP (Tseng et al. 2024) for codes of a bitshift trellis;
// docs/decisions/068-trellis-types.md for the tables.

#ifndef QSF_QUANT_TRELLIS_H_
#define QSF_QUANT_TRELLIS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "quant/block_format.h"
#include "quant/quant_options.h"

namespace qsf {

inline constexpr unsigned kTrellisStreams = 4;
inline constexpr unsigned kTrellisWindows = 4096;  // 6 symbols of 2 bits
inline constexpr unsigned kTrellisStates = 1024;   // 5 symbols

// From nibbles of a window to nibbles of an index. kNewest brings the new symbol to the upper two
// bits, so that the values that follow a state are four levels apart.
struct TrellisTables {
  std::uint8_t newest[16];
  std::uint8_t middle[16];
  std::uint8_t oldest[16];
};
inline constexpr TrellisTables kTrellisTables = {
    {11, 3, 12, 14, 15, 7, 8, 10, 3, 11, 4, 6, 7, 15, 0, 2},
    {6, 5, 11, 14, 7, 3, 2, 12, 0, 4, 1, 8, 9, 13, 10, 15},
    {13, 9, 5, 12, 1, 11, 2, 4, 10, 8, 6, 15, 0, 7, 3, 14},
};

// What the refinement bit of 3bit-trellis adds to a level.
inline constexpr std::uint8_t kTrellisRefinement = 8;

inline constexpr std::uint8_t kTrellis2Levels[16] = {0,  10, 15, 19, 22, 25, 27, 30,
                                                     33, 35, 38, 41, 44, 48, 53, 63};
inline constexpr std::uint8_t kTrellis3Levels[16] = {2,  8,  13, 16, 19, 21, 24, 26,
                                                     29, 31, 34, 36, 39, 42, 47, 54};
inline constexpr std::int32_t kLargestTrellisValue = 63;
inline constexpr float kTrellisZero = 31.5F;      // the value of weight 0
inline constexpr std::size_t kTrellisBlock = 64;  // columns of a scale
inline constexpr unsigned kTopTrellisScale = 15;

// Requires  a trellis type
constexpr const std::uint8_t* trellis_levels(QuantType type) noexcept {
  return type == QuantType::kQ2Trellis ? kTrellis2Levels : kTrellis3Levels;
}

// The level of a window, 0 to 15.
constexpr unsigned trellis_index(unsigned window) noexcept {
  return static_cast<unsigned>(kTrellisTables.newest[window >> 8U] ^
                               kTrellisTables.middle[window >> 4U & 15U] ^
                               kTrellisTables.oldest[window & 15U]);
}

// The values of all windows, without refinement. A plain array: kernels read it, and an object of
// theirs must define no operator of a class.
struct TrellisValues {
  std::uint8_t of[kTrellisWindows];
};
template <QuantType kType>
constexpr TrellisValues trellis_values() noexcept {
  TrellisValues values{};
  for (unsigned w = 0; w < kTrellisWindows; ++w)
    values.of[w] = trellis_levels(kType)[trellis_index(w)];
  return values;
}

// Turns the codes of a row into values, in the order of columns from the first on.
class TrellisDecoder {
 public:
  explicit TrellisDecoder(QuantType type) noexcept : type_(type) {}

  // Replaces the codes of the next columns.
  // Shapes    codes: a multiple of 4
  // Requires  a trellis type
  void decode(std::span<std::uint8_t> codes) noexcept;

 private:
  QuantType type_;
  std::array<std::uint16_t, kTrellisStreams> windows_{};
};

// Reads and writes the scale of block `index` of a row in layout 0. Requires  scale <= 15
unsigned trellis_scale(BlockFormat format, ByteSpan row, std::uint64_t index) noexcept;
void put_trellis_scale(BlockFormat format, std::uint64_t index, unsigned scale,
                       MutableByteSpan row) noexcept;

// Encodes one row. Rounding::kNearest takes scales from the root mean squares of blocks;
// Rounding::kSearch fits them to the values chosen as long as the weighted error falls.
// Shapes    weights [n_cols]; options those of the row; out [row_major_bytes]
// Requires  a trellis type; every weight finite and at most 65504 in magnitude
void encode_trellis_row(BlockFormat format, std::span<const float> weights,
                        const QuantOptions& options, MutableByteSpan out);

}  // namespace qsf

#endif  // QSF_QUANT_TRELLIS_H_
