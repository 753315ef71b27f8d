// SPDX-License-Identifier: MIT
//
// Products with int8 rows in vectors of up to 256 bits (SSE4.2, AVX2, AVX-VNNI): one algorithm over
// a thin wrapper V of a tier's vectors.
//
// Where V has dot (V::kHasDot), that multiplies four unsigned by four signed bytes of every row and
// adds the products up in 32 bits; codes are made unsigned (kSignedOffset). All others have
// maddubs, which multiplies unsigned by signed bytes and adds neighbours to 16 bits, with
// saturation. Codes of up to 4 bits are the unsigned side, and their products are summed in 16 bits
// over as many columns as the largest ones fit, so 32 products of an AVX2 vector cost two
// instructions. 8-bit codes and levels of tables are split into magnitude and sign, and their sums
// leave 16 bits at once.
//
// Two ways through a block of 16 rows:
//
//   up to V::kFewRows rows of x   codes go from the line through registers into the products
//   more rows of x                codes are unpacked to a strip in L1 first, and tiles of kTileRows
//                                 rows of x are multiplied with it from registers
//
// Everything has internal linkage: V is a type of an unnamed namespace of the including file.

#ifndef QSF_KERNELS_MATMUL_MATMUL_I8_MADDUBS_H_
#define QSF_KERNELS_MATMUL_MATMUL_I8_MADDUBS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/matmul/coded_maddubs.h"
#include "kernels/matmul/matmul.h"

namespace qsf::kernels::maddubs {

// Rows of x that share an unpacked block; their totals are 8 KiB.
static constexpr std::uint32_t kRowsAtOnce = 128;

// Bytes of x that stay in L2 while bands of weights pass by.
static constexpr std::size_t kInputBytes = 512 * 1024;

// Magnitude of the largest code, as it is multiplied.
template <QuantType kType>
static constexpr std::int32_t kLargestCode = kType == QuantType::kQ8           ? 127
                                             : is_codebook_type(kType)         ? 127
                                             : kType == QuantType::kTernary    ? 2
                                             : kType == QuantType::kTernaryRow ? 2
                                             : kType == QuantType::kQk256      ? 4
                                             : kType == QuantType::kMxfp4      ? 24
                                             : is_trellis_type(kType) ? kLargestTrellisValue
                                                                      : (1 << code_bits(kType)) - 1;

// Products of four columns that fit a 16-bit sum, a power of two: a lane adds two of the four.
template <QuantType kType, std::uint32_t kBlock>
static constexpr std::uint32_t fours_per_sum() noexcept {
  const std::uint32_t fit = 32767 / (2 * 127 * kLargestCode<kType>);
  std::uint32_t fours = 1;
  while (2 * fours <= fit && 2 * fours <= kBlock / 4) fours *= 2;
  return fours;
}

// Fixes the place of a value among others so fixed. Compilers hoist the loads of a tile in front of
// its products and, with all sixteen registers spoken for, pay for each with a spill.
template <typename Ints>
[[gnu::always_inline]] static inline Ints in_order(Ints value) noexcept {
#if !defined(__wasm__)  // which has no registers to run out of
  asm volatile("" : "+x"(value));
#endif
  return value;
}

// The same for an address: what is loaded from there is loaded anew, and no compiler keeps the
// values of one vector's turn, for want of registers on the stack, for the next.
[[gnu::always_inline]] static inline const std::byte* again(const std::byte* address) noexcept {
  asm volatile("" : "+r"(address));
  return address;
}

// Multiplies the finished sums of one row of x with the scales of the rows, if there are such.
template <typename V, QuantType kType>
[[gnu::always_inline]] static inline void scale_rows(
    const std::byte* group, typename V::Floats totals[V::kVectors]) noexcept {
  if constexpr (has_row_scale(kType)) {
    const auto* scales = reinterpret_cast<const float*>(group);

#pragma GCC unroll 16
    for (unsigned v = 0; v < V::kVectors; ++v) {
      totals[v] = V::multiply(totals[v], V::load_floats(scales + v * V::kRows));
    }
  }
}

// Sums of a block's products, without what kSignedOffset added to its codes.
template <typename V, QuantType kType>
[[gnu::always_inline]] static inline typename V::Ints without_offset(typename V::Ints dot,
                                                                     const std::byte* x_block,
                                                                     std::size_t sum_at) noexcept {
  if constexpr (kSignedOffset<V, kType> == 0)
    return dot;
  else
    return V::subtract32(dot, V::up32(V::to_ints(V::splat_at(x_block + sum_at)), 7));
}

// Adds one block's term to the totals of the rows in one vector, in the order of matmul.h.
template <typename V, QuantType kType>
[[gnu::always_inline]] static inline typename V::Floats add_term(
    typename V::Floats total, typename V::Ints dot, typename V::Floats scale,
    typename V::Floats min, const std::byte* x_block, std::size_t sum_at) noexcept {
  const typename V::Ints exact = without_offset<V, kType>(dot, x_block, sum_at);
  typename V::Floats term = V::multiply(scale, V::to_floats(exact));
  if constexpr (!kMultipliesSigned<kType>) {
    term = V::add(term, V::multiply(min, V::splat_at(x_block + sum_at)));
  }
  return V::add(total, V::multiply(term, V::splat_at(x_block)));
}

// Exact sums of a block's products with kRows rows of x, for the rows of vector v.
template <typename V, QuantType kType, std::uint32_t kBlock, std::uint32_t kRows, typename Beside>
[[gnu::always_inline]] static inline void dot_block(const std::byte* lines, Beside&& beside,
                                                    unsigned v, const std::byte* const x[kRows],
                                                    std::size_t column,
                                                    typename V::Ints dots[kRows]) noexcept {
  using Ints = typename V::Ints;

#pragma GCC unroll 16
  for (unsigned i = 0; i < kRows; ++i) {
    dots[i] = V::zero();
  }
  if constexpr (V::kHasDot) {
    // Several sums, so that none waits for the one before.
    constexpr unsigned kSums = kRows == 1 && kBlock == 64 ? 4 : 2;
    Ints sums[kRows][kSums];

#pragma GCC unroll 16
    for (unsigned i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
      for (unsigned k = 0; k < kSums; ++k) {
        sums[i][k] = V::zero();
      }
    }
    for_fours<V, kType, kBlock>(
        lines, beside, v, [&](unsigned four, Ints codes, bool) __attribute__((always_inline)) {
          each<kRows>([&](unsigned i) __attribute__((always_inline)) {
            Ints& sum = sums[i][four % kSums];
            sum = in_order(V::dot(sum, codes, in_order(V::splat_four(x[i] + column + 4 * four))));
          });
        });

#pragma GCC unroll 16
    for (unsigned i = 0; i < kRows; ++i) {
      Ints even = sums[i][0];
      Ints odd = sums[i][1];
      if constexpr (kSums == 4) {
        even = V::add32(even, sums[i][2]);
        odd = V::add32(odd, sums[i][3]);
      }
      dots[i] = V::add32(even, V::down32_signed(odd, kOddShift<kType>));
    }
  } else if constexpr (kType == QuantType::kQ8) {
    for_fours<V, kType, kBlock>(
        lines, beside, v, [&](unsigned four, Ints codes, bool) __attribute__((always_inline)) {
          const Ints size = V::magnitude(codes);

#pragma GCC unroll 16
          for (unsigned i = 0; i < kRows; ++i) {
            const Ints q = V::with_sign(in_order(V::splat_four(x[i] + column + 4 * four)), codes);
            dots[i] = in_order(V::add32(dots[i], V::add_pairs(V::multiply_pairs(size, q))));
          }
        });
  } else {
    constexpr std::uint32_t kFours = fours_per_sum<kType, kBlock>();
    Ints even[kRows];
    Ints odd[kRows];

#pragma GCC unroll 16
    for (unsigned i = 0; i < kRows; ++i) {
      even[i] = odd[i] = V::zero();
    }
    for_fours<V, kType, kBlock>(
        lines, beside, v, [&](unsigned four, Ints codes, bool) __attribute__((always_inline)) {
          each<kRows>([&](unsigned i) __attribute__((always_inline)) {
            const Ints pairs =
                V::multiply_pairs(codes, in_order(V::splat_four(x[i] + column + 4 * four)));
            Ints& sum = four % 2 == 0 ? even[i] : odd[i];
            sum = in_order(V::add16(sum, pairs));
            if (four % kFours != kFours - 1) return;
            if constexpr (kOddShift<kType> != 0) {
              odd[i] = V::template down_signed<kOddShift<kType>>(odd[i]);
            }
            dots[i] = V::add32(dots[i], V::add_pairs(V::add16(even[i], odd[i])));
            even[i] = odd[i] = V::zero();
          });
        });
  }
}

// Where the sum over a block's columns is in its activation block.
template <std::uint32_t kBlock>
[[gnu::always_inline]] static inline std::size_t sum_offset(std::uint32_t block) noexcept {
  if constexpr (kBlock == kActivationBlockColumns) return offsetof(Int8Block, sum);
  return block % 2 == 0 ? offsetof(Int8Block, low_sum) : offsetof(Int8Block, high_sum);
}

// Asks for the lines that lie `ahead` behind [from, to), across ends of groups.
template <typename V>
[[gnu::always_inline]] static inline void prefetch(const std::byte* from, const std::byte* to,
                                                   std::size_t ahead) noexcept {
  if (ahead == 0) return;
  for (; from < to; from += kLineBytes) V::prefetch(from + ahead);
}

template <typename V>
[[gnu::always_inline]] static inline void store_rows(const typename V::Floats totals[V::kVectors],
                                                     float* y, std::uint32_t n_rows) noexcept {
  if (n_rows >= kRowGroup) {
    for (unsigned v = 0; v < V::kVectors; ++v) V::store(y + v * V::kRows, totals[v]);
    return;
  }
  alignas(64) float all[kRowGroup];
  for (unsigned v = 0; v < V::kVectors; ++v) V::store(all + v * V::kRows, totals[v]);
  std::memcpy(y, all, n_rows * sizeof(float));
}

// The product with the first kRows rows of x: codes stay in registers.
template <typename V, QuantType kType, std::uint32_t kBlock, std::uint32_t kRows>
[[gnu::noinline]] static void few_rows(const MatMulArgs& args) noexcept {
  const std::uint32_t n_blocks = (args.n_cols + kBlock - 1) / kBlock;
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
    BlockFields<V, kType, kBlock> block_fields;
    const std::byte* done = group;
    for (std::uint32_t b = 0; b < n_blocks; ++b) {
      const BlockPlace place = place_of<kType, kBlock>(group, b);
      block_fields.enter(place);
      const std::byte* end = place.codes + kCodeBytes<kType, kBlock>;
      prefetch<V>(done, end, args.prefetch_bytes);
      done = end;
      const std::uint32_t column = b * kBlock;
      const std::size_t x_block =
          int8_blocks_offset(args.n_cols) + column / kActivationBlockColumns * sizeof(Int8Block);
      // No more than this loop is left to run: unrolled as well, code would outgrow the L1.
#pragma GCC unroll 1
      for (unsigned v = 0; v < V::kVectors; ++v) {
        typename V::Ints dots[kRows];
        dot_block<V, kType, kBlock, kRows>(place.codes, block_fields.beside(place, v), v, x, column,
                                           dots);
        const Fields<V> fields = block_fields.of(place, v);

#pragma GCC unroll 16
        for (unsigned i = 0; i < kRows; ++i) {
          totals[i][v] = add_term<V, kType>(totals[i][v], dots[i], fields.scales, fields.mins,
                                            x[i] + x_block, sum_offset<kBlock>(b));
        }
      }
    }

#pragma GCC unroll 16
    for (unsigned i = 0; i < kRows; ++i) {
      scale_rows<V, kType>(group, totals[i]);
      store_rows<V>(totals[i], args.y + i * args.y_stride + row, args.n_rows - row);
    }
  }
}

// How a strip's codes are multiplied: what differs between types once they are unpacked.
template <typename V, QuantType kType>
static constexpr QuantType kStripType = V::kHasDot&& code_bits(kType) < 8 ? QuantType::kQ4
                                        : is_trellis_type(kType)          ? QuantType::kQ2Trellis
                                        : code_bits(kType) == 5           ? kType
                                        : kType == QuantType::kMxfp4      ? QuantType::kQ5K
                                        : code_bits(kType) == 8           ? QuantType::kQ8
                                        : code_bits(kType) == 4           ? QuantType::kQ4
                                                                          : QuantType::kQ3;

// Rows of x at the columns of a block, and their activation blocks.
struct Inputs {
  const std::byte* x;
  const std::byte* x_block;
  std::size_t sum_at;  // of the block's sum in the activation block
  std::size_t stride;

  [[gnu::always_inline]] const std::byte* codes(std::uint32_t i) const { return x + i * stride; }
};

// Sums of a tile: kRows rows of x times 16 rows of weights.
template <typename V, std::uint32_t kRows>
struct Tile {
  typename V::Ints sums[kRows][V::kVectors];
};

// Exact sums of kFours fours of columns with kRows rows of x: of dot, or two of 16 bits a row of
// weights. Signed codes go in as magnitudes, and their signs into x.
template <typename V, std::uint32_t kFours, std::uint32_t kRows, bool kSigned = false>
[[gnu::always_inline]] static inline Tile<V, kRows> sum_fours(const std::byte* strip,
                                                              std::uint32_t first,
                                                              const Inputs& in) noexcept {
  using Ints = typename V::Ints;
  Tile<V, kRows> tile;

#pragma GCC unroll 16
  for (unsigned i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (unsigned v = 0; v < V::kVectors; ++v) {
      tile.sums[i][v] = V::zero();
    }
  }
#pragma GCC unroll 16
  for (std::uint32_t four = first; four < first + kFours; ++four) {
    Ints codes[V::kVectors];

#pragma GCC unroll 16
    for (unsigned v = 0; v < V::kVectors; ++v) {
      codes[v] = V::load(strip + four * kLineBytes + v * sizeof(Ints));
    }

#pragma GCC unroll 16
    for (unsigned i = 0; i < kRows; ++i) {
      const Ints q = in_order(V::splat_four(in.codes(i) + 4 * four));

#pragma GCC unroll 16
      for (unsigned v = 0; v < V::kVectors; ++v) {
        Ints& sum = tile.sums[i][v];
        if constexpr (V::kHasDot) {
          sum = in_order(V::dot(sum, codes[v], q));
        } else {
          const Ints pairs =
              kSigned ? V::multiply_pairs(V::magnitude(codes[v]), V::with_sign(q, codes[v]))
                      : V::multiply_pairs(codes[v], q);
          sum = in_order(V::add16(sum, pairs));
        }
      }
    }
  }
  return tile;
}

// The same, the two sums of a row added up.
template <typename V, std::uint32_t kFours, std::uint32_t kBlock, std::uint32_t kRows>
[[gnu::always_inline]] static inline Tile<V, kRows> dot_fours(const Strip& strip,
                                                              std::uint32_t first,
                                                              const Inputs& in) noexcept {
  auto tile = sum_fours<V, kFours, kRows>(strip.codes, first, in);

#pragma GCC unroll 16
  for (unsigned i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (unsigned v = 0; v < V::kVectors; ++v) {
      tile.sums[i][v] = V::add_pairs(tile.sums[i][v]);
    }
  }
  return tile;
}

// Exact sums of a strip's products with kRows rows of x.
template <typename V, QuantType kType, std::uint32_t kBlock, std::uint32_t kRows>
[[gnu::always_inline]] static inline Tile<V, kRows> dot_strip(const Strip& strip,
                                                              const Inputs& in) noexcept {
  constexpr std::uint32_t kFours = fours_per_sum<kType, kBlock>();
  Tile<V, kRows> tile = dot_fours<V, kFours, kBlock, kRows>(strip, 0, in);

#pragma GCC unroll 16
  for (unsigned part = 0; part < kBlock / 4 / kFours - 1; ++part) {
    const auto more = dot_fours<V, kFours, kBlock, kRows>(strip, (part + 1) * kFours, in);

#pragma GCC unroll 16
    for (unsigned i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
      for (unsigned v = 0; v < V::kVectors; ++v) {
        tile.sums[i][v] = V::add32(tile.sums[i][v], more.sums[i][v]);
      }
    }
  }
  return tile;
}

// The same for 8-bit codes, whose products leave 16 bits at once.
template <typename V, std::uint32_t kBlock, std::uint32_t kRows>
[[gnu::always_inline]] static inline Tile<V, kRows> dot_byte_strip(const Strip& strip,
                                                                   const Inputs& in) noexcept {
  using Ints = typename V::Ints;
  Tile<V, kRows> tile;

#pragma GCC unroll 16
  for (unsigned i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (unsigned v = 0; v < V::kVectors; ++v) {
      tile.sums[i][v] = V::zero();
    }
  }
#pragma GCC unroll 2
  for (std::uint32_t four = 0; four < kBlock / 4; ++four) {
    Ints codes[V::kVectors];
    Ints sizes[V::kVectors];

#pragma GCC unroll 16
    for (unsigned v = 0; v < V::kVectors; ++v) {
      codes[v] = V::load(strip.codes + four * kLineBytes + v * sizeof(Ints));
      sizes[v] = V::magnitude(codes[v]);
    }

#pragma GCC unroll 16
    for (unsigned i = 0; i < kRows; ++i) {
      const Ints q = in_order(V::splat_four(in.codes(i) + 4 * four));

#pragma GCC unroll 16
      for (unsigned v = 0; v < V::kVectors; ++v) {
        const Ints pairs = V::multiply_pairs(sizes[v], V::with_sign(q, codes[v]));
        tile.sums[i][v] = in_order(V::add32(tile.sums[i][v], V::add_pairs(pairs)));
      }
    }
  }
  return tile;
}

// Adds a strip's products with kRows rows of x to their totals [kRows][16].
template <typename V, QuantType kType, std::uint32_t kBlock, std::uint32_t kRows>
[[gnu::always_inline]] static inline void multiply_tile(const Strip& strip, const Inputs& in,
                                                        float* totals) noexcept {
  Tile<V, kRows> tile;
  if constexpr (V::kHasDot) {
    tile = sum_fours<V, kBlock / 4, kRows>(strip.codes, 0, in);
  } else if constexpr (kType == QuantType::kQ8) {
    tile = dot_byte_strip<V, kBlock, kRows>(strip, in);
  } else {
    tile = dot_strip<V, kType, kBlock, kRows>(strip, in);
  }

#pragma GCC unroll 16
  for (unsigned i = 0; i < kRows; ++i) {
    const std::byte* x_block = in.x_block + i * in.stride;

#pragma GCC unroll 16
    for (unsigned v = 0; v < V::kVectors; ++v) {
      float* total = totals + i * kRowGroup + v * V::kRows;
      V::store(total,
               add_term<V, kType>(V::load_floats(total), tile.sums[i][v],
                                  V::load_floats(strip.scales + v * V::kRows),
                                  V::load_floats(strip.mins + v * V::kRows), x_block, in.sum_at));
    }
  }
}

// Adds a strip's products with n_x rows of x to their totals. Not inlined: types share it.
template <typename V, QuantType kType, std::uint32_t kBlock>
[[gnu::noinline]] static void multiply_strip(const Strip& strip, Inputs in, std::uint32_t n_x,
                                             float* totals) noexcept {
  constexpr std::uint32_t kTile = kType == QuantType::kQ8 ? V::kByteTileRows : V::kTileRows;
  std::uint32_t i = 0;
  for (; i + kTile <= n_x; i += kTile) {
    multiply_tile<V, kType, kBlock, kTile>(strip, in, totals + i * kRowGroup);
    in.x += kTile * in.stride;
    in.x_block += kTile * in.stride;
  }
  if constexpr (kTile > 4) {
    for (; i + 4 <= n_x; i += 4) {
      multiply_tile<V, kType, kBlock, 4>(strip, in, totals + i * kRowGroup);
      in.x += 4 * in.stride;
      in.x_block += 4 * in.stride;
    }
  }
  if constexpr (kTile > 2) {
    for (; i + 2 <= n_x; i += 2) {
      multiply_tile<V, kType, kBlock, 2>(strip, in, totals + i * kRowGroup);
      in.x += 2 * in.stride;
      in.x_block += 2 * in.stride;
    }
  }
  if (i < n_x) multiply_tile<V, kType, kBlock, 1>(strip, in, totals + i * kRowGroup);
}

// Stores the sums of n_x rows of x with 16 rows of weights, or with those that exist; `scales`, if
// not null, are those of the rows of weights.
template <typename V>
[[gnu::noinline]] static void store_totals(const float* totals, const float* scales,
                                           std::uint32_t n_x, float* y, std::size_t y_stride,
                                           std::uint32_t n_rows) noexcept {
  for (std::uint32_t i = 0; i < n_x; ++i) {
    typename V::Floats rows[V::kVectors];
    for (unsigned v = 0; v < V::kVectors; ++v) {
      rows[v] = V::load_floats(totals + i * kRowGroup + v * V::kRows);
      if (scales != nullptr) rows[v] = V::multiply(rows[v], V::load_floats(scales + v * V::kRows));
    }
    store_rows<V>(rows, y + i * y_stride, n_rows);
  }
}

// The product with n_x <= kRowsAtOnce rows of x, unpacked codes in a strip.
template <typename V, QuantType kType, std::uint32_t kBlock>
[[gnu::noinline]] static void many_rows(const MatMulArgs& args, const std::byte* x, float* y,
                                        std::uint32_t n_x) noexcept {
  alignas(64) float totals[kRowsAtOnce * kRowGroup];
  Strip strip;
  const std::uint32_t n_blocks = (args.n_cols + kBlock - 1) / kBlock;
  const std::byte* x_blocks = x + int8_blocks_offset(args.n_cols);
  const std::byte* group = args.weights;
  for (std::uint32_t row = 0; row < args.n_rows; row += kRowGroup, group += args.group_bytes) {
    std::memset(totals, 0, n_x * kRowGroup * sizeof(float));
    BlockFields<V, kType, kBlock> block_fields;
    const std::byte* done = group;
    for (std::uint32_t block = 0; block < n_blocks; ++block) {
      const std::byte* end = unpack(group, block, &block_fields, &strip);
      prefetch<V>(done, end, args.prefetch_bytes);
      done = end;
      const std::uint32_t column = block * kBlock;
      const Inputs in{.x = x + column,
                      .x_block = x_blocks + column / kActivationBlockColumns * sizeof(Int8Block),
                      .sum_at = sum_offset<kBlock>(block),
                      .stride = args.x_stride};
      multiply_strip<V, kStripType<V, kType>, kBlock>(strip, in, n_x, totals);
    }
    store_totals<V>(totals, has_row_scale(kType) ? reinterpret_cast<const float*>(group) : nullptr,
                    n_x, y + row, args.y_stride, args.n_rows - row);
  }
}

// Rows of x that are taken at once: at most `most`, and whole tiles whose bytes stay in L2.
[[gnu::always_inline]] static inline std::uint32_t rows_at_once(std::size_t x_stride,
                                                                std::uint32_t most,
                                                                std::uint32_t tile_rows) noexcept {
  std::uint32_t rows = most / tile_rows * tile_rows;
  while (rows > tile_rows && rows * x_stride > kInputBytes) rows -= tile_rows;
  return rows;
}

// What a format's kernel is made of.
struct FormatParts {
  MatMulFn one_row;
  MatMulFn two_rows;  // null where V::kFewRows is 1
  void (*many_rows)(const MatMulArgs& args, const std::byte* x, float* y,
                    std::uint32_t n_x) noexcept;
};

// Up to V::kFewRows rows of x in ones and twos, more by way of strips.
template <typename V>
[[gnu::noinline]] static void multiply_rows(MatMulArgs args, const FormatParts& parts) noexcept {
  if (args.n_x > V::kFewRows) {
    const std::uint32_t step = rows_at_once(args.x_stride, kRowsAtOnce, V::kTileRows);
    for (std::uint32_t first = 0; first < args.n_x; first += step) {
      const std::uint32_t rest = args.n_x - first;
      parts.many_rows(args, args.x + first * args.x_stride, args.y + first * args.y_stride,
                      rest < step ? rest : step);
    }
    return;
  }
  while (args.n_x > 0) {
    const std::uint32_t n_rows = V::kFewRows > 2 && args.n_x >= 2 ? 2 : 1;
    (n_rows == 2 ? parts.two_rows : parts.one_row)(args);
    args.n_x -= n_rows;
    args.x += n_rows * args.x_stride;
    args.y += n_rows * args.y_stride;
  }
}

// The kernel of one format.
template <typename V, QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] static inline void product(const MatMulArgs& args) noexcept {
  FormatParts parts = {few_rows<V, kType, kBlock, 1>, nullptr, many_rows<V, kType, kBlock>};
  if constexpr (V::kFewRows > 2) parts.two_rows = few_rows<V, kType, kBlock, 2>;
  multiply_rows<V>(args, parts);
}

}  // namespace qsf::kernels::maddubs

#endif  // QSF_KERNELS_MATMUL_MATMUL_I8_MADDUBS_H_
