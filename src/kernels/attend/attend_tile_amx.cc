// SPDX-License-Identifier: MIT
//
// Attention of prompt rows over one page, AMX: both products in bf16 tiles with f32 sums, the
// softmax between them in AVX-512.
//
// A page's keys and values are rounded to bf16 once for all queries of a tile, in pairs of the rows
// that a product sums over, as the instruction wants them. Sixteen queries at a time then go
// through scores, weights and values without leaving the L1 cache. Queries of one block may see
// different slots: a hidden slot has weight 0. That hides it but for infinities and NaN, so where
// the page holds such a value each range of slots gets values of its own, zeros elsewhere.

#include <cstring>

#include "kernels/amx_tiles.h"
#include "kernels/attend/attend_lanes_avx512.h"
#include "kernels/attend/attend_page.h"
#include "kernels/attend/attend_variants.h"

namespace qsf::kernels {
namespace {

using attend_page_internal::Avx512Lanes;
using attend_page_internal::Run;
using attend_page_internal::scales_of;
using attend_page_internal::Scratch;

constexpr std::uint32_t kBlockQueries = 16;  // rows of a tile
constexpr std::uint32_t kTileTerms = 32;     // that one tile instruction sums over
constexpr std::uint32_t kTileColumns = 16;
constexpr std::uint32_t kStripTiles = 4;  // tiles of sums: 0 to 3
constexpr std::uint32_t kStripColumns = kStripTiles * kTileColumns;
constexpr unsigned kLeft = 4;   // tiles of operands
constexpr unsigned kRight = 5;  // and 6: loads alternate
static_assert(kStripColumns == kKvPageSlots);

constexpr std::uint32_t round_up(std::uint32_t n, std::uint32_t step) {
  return (n + step - 1) / step * step;
}

// Where a call's scratch lies.
struct Work {
  std::uint32_t* k_pairs;  // [dimensions / 2, padded to 16][kKvPageSlots]
  std::uint32_t* v_pairs;  // [kKvPageSlots / 2][dimensions, padded to 16]
  float* weights;          // [kBlockQueries][kKvPageSlots]: scores first, then weights
  float* sums;             // [kBlockQueries][kStripColumns]
  std::uint16_t* rounded;  // [kBlockQueries][kKvPageSlots]: the weights in bf16
  float* corrections;      // [kBlockQueries]
};

Work work_in(const AttendPageArgs& args) noexcept {
  auto* k_pairs = reinterpret_cast<std::uint32_t*>(args.scratch);
  std::uint32_t* v_pairs = k_pairs + round_up(args.head_dim, kTileTerms) / 2 * kKvPageSlots;
  float* weights = reinterpret_cast<float*>(v_pairs + std::size_t{kKvPageSlots} / 2 *
                                                          round_up(args.head_dim, kTileColumns));
  float* sums = weights + kBlockQueries * kKvPageSlots;
  auto* rounded = reinterpret_cast<std::uint16_t*>(sums + kBlockQueries * kStripColumns);
  return {k_pairs, v_pairs, weights,
          sums,    rounded, reinterpret_cast<float*>(rounded + kBlockQueries * kKvPageSlots)};
}

[[gnu::always_inline]] inline __m256i round_to_bf16(__m512 x) noexcept {
  return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
}

[[gnu::always_inline]] inline __m512 load_part(const float* from, __mmask16 mask) noexcept {
  return _mm512_maskz_loadu_ps(mask, from);
}
[[gnu::always_inline]] inline __m512 load_part(const std::uint16_t* from, __mmask16 mask) noexcept {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from));
}
[[gnu::always_inline]] inline float widen_half(std::uint16_t half) noexcept {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}

// Rows of a block, 16 columns at a time: `load` gives columns [c, c + 16) of a row, zeros where the
// mask is. Codes times scales are exact in f32.
template <typename T>
struct PlainRows {
  const T* at;
  std::size_t stride;
  [[gnu::always_inline]] __m512 load(std::uint32_t row, std::uint32_t c,
                                     __mmask16 mask) const noexcept {
    return load_part(at + row * stride + c, mask);
  }
};

// Keys in 8 bits, a scale a column; values, a scale a row.
struct KeyBytes {
  const std::int8_t* codes;
  const std::uint16_t* scales;
  [[gnu::always_inline]] __m512 load(std::uint32_t row, std::uint32_t c,
                                     __mmask16 mask) const noexcept {
    if (mask == 0) return _mm512_setzero_ps();
    return _mm512_mul_ps(Avx512Lanes::load(codes + row * kKvPageSlots + c),
                         Avx512Lanes::load(scales + c));
  }
};
struct ValueBytes {
  const std::int8_t* codes;
  const std::uint16_t* scales;
  std::size_t n_columns;
  [[gnu::always_inline]] __m512 load(std::uint32_t row, std::uint32_t c,
                                     __mmask16 mask) const noexcept {
    if (mask == 0) return _mm512_setzero_ps();
    return _mm512_mul_ps(Avx512Lanes::load(codes + row * n_columns + c),
                         _mm512_set1_ps(widen_half(scales[row])));
  }
};

// The same in 4 or 2 bits, a scale for `group` dimensions.
template <unsigned kBits>
struct KeyCodes {
  const std::uint8_t* codes;
  const std::uint16_t* scales;
  std::uint32_t group;
  [[gnu::always_inline]] __m512 load(std::uint32_t row, std::uint32_t c,
                                     __mmask16 mask) const noexcept {
    if (mask == 0) return _mm512_setzero_ps();
    constexpr std::uint32_t kRowBytes = kKvPageSlots * kBits / 8;
    const std::uint8_t* bytes = codes + row * kRowBytes + c % kRowBytes;
    const __m512i wide =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
    const __m512i shifted = _mm512_srli_epi32(wide, c / kRowBytes * kBits);
    return _mm512_mul_ps(Avx512Lanes::take<kBits>(Avx512Lanes::levels<kBits>(), shifted),
                         Avx512Lanes::load(scales + row / group * kKvPageSlots + c));
  }
};
template <unsigned kBits>
struct ValueCodes {
  const std::uint8_t* codes;
  const std::uint16_t* scales;
  std::size_t n_columns;
  std::uint32_t group;
  [[gnu::always_inline]] __m512 load(std::uint32_t row, std::uint32_t c,
                                     __mmask16 mask) const noexcept {
    if (mask == 0) return _mm512_setzero_ps();
    const __m512i of_unit =
        Avx512Lanes::codes_of_unit<kBits>(codes + (row * n_columns + c) * kBits / 8);
    const float scale = widen_half(scales[row * (n_columns / group) + c / group]);
    return _mm512_mul_ps(Avx512Lanes::take<kBits>(Avx512Lanes::levels<kBits>(), of_unit),
                         _mm512_set1_ps(scale));
  }
};

// Writes rows 2 p and 2 p + 1, rounded, as row p of `pairs`: zeros for rows outside `valid` and
// columns from n_columns up to the next 16. Returns whether all that was read is finite in bf16.
template <typename Rows>
[[gnu::noinline]] bool make_pairs(const Rows& rows, AttendRange valid, std::uint32_t n_pairs,
                                  std::uint32_t n_columns, std::uint32_t* pairs) noexcept {
  constexpr int kNotFinite = 0x99;  // NaN of both kinds, infinities of both signs
  __mmask16 not_finite = 0;
  for (std::uint32_t pair = 0; pair < n_pairs; ++pair) {
    const std::uint32_t row = 2 * pair;
    const bool first = row >= valid.first && row < valid.last;
    const bool second = row + 1 >= valid.first && row + 1 < valid.last;
    for (std::uint32_t c = 0; c < n_columns; c += kTileColumns, pairs += kTileColumns) {
      const std::uint32_t rest = n_columns - c;
      const auto mask = static_cast<__mmask16>(rest < 16 ? (1U << rest) - 1U : 0xFFFFU);
      const __m512 x = rows.load(row, c, first ? mask : __mmask16{0});
      const __m512 y = rows.load(row + 1, c, second ? mask : __mmask16{0});
      const __m512i low = _mm512_cvtepu16_epi32(round_to_bf16(x));
      const __m512i high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(round_to_bf16(y)), 16);
      const __m512 again = _mm512_castsi512_ps(_mm512_slli_epi32(low, 16));
      not_finite =
          static_cast<__mmask16>(not_finite | _mm512_fpclass_ps_mask(again, kNotFinite) |
                                 _mm512_fpclass_ps_mask(_mm512_castsi512_ps(high), kNotFinite));
      _mm512_storeu_si512(pairs, _mm512_or_si512(low, high));
    }
  }
  return not_finite == 0;
}

void make_key_pairs(const AttendPageArgs& args, const Work& work) noexcept {
  const std::uint32_t n_dims = kv_columns(args.k_type, args.head_dim);
  const std::uint32_t n_pairs = round_up(n_dims, kTileTerms) / 2;
  const auto make = [&](const auto& rows) {
    make_pairs(rows, {0, n_dims}, n_pairs, kKvPageSlots, work.k_pairs);
  };
  const std::uint16_t* scales = scales_of(args.k, args.k_type, args.head_dim);
  const std::uint32_t group = kv_group(args.k_type, args.head_dim);
  switch (args.k_type) {
    case KvType::kF32:
      return make(PlainRows<float>{reinterpret_cast<const float*>(args.k), kKvPageSlots});
    case KvType::kF16:
      return make(
          PlainRows<std::uint16_t>{reinterpret_cast<const std::uint16_t*>(args.k), kKvPageSlots});
    case KvType::k8Bit: return make(KeyBytes{reinterpret_cast<const std::int8_t*>(args.k), scales});
    case KvType::k4Bit:
      return make(KeyCodes<4>{reinterpret_cast<const std::uint8_t*>(args.k), scales, group});
    case KvType::k2Bit:
      return make(KeyCodes<2>{reinterpret_cast<const std::uint8_t*>(args.k), scales, group});
  }
}

// Returns whether the values of slots `valid` are finite.
bool make_value_pairs(const AttendPageArgs& args, AttendRange valid, const Work& work) noexcept {
  const std::uint32_t n_columns = kv_columns(args.v_type, args.head_dim);
  const auto make = [&](const auto& rows) {
    return make_pairs(rows, valid, kKvPageSlots / 2, n_columns, work.v_pairs);
  };
  const std::uint16_t* scales = scales_of(args.v, args.v_type, args.head_dim);
  const std::uint32_t group = kv_group(args.v_type, args.head_dim);
  switch (args.v_type) {
    case KvType::kF32:
      return make(PlainRows<float>{reinterpret_cast<const float*>(args.v), n_columns});
    case KvType::kF16:
      return make(
          PlainRows<std::uint16_t>{reinterpret_cast<const std::uint16_t*>(args.v), n_columns});
    case KvType::k8Bit:
      return make(ValueBytes{reinterpret_cast<const std::int8_t*>(args.v), scales, n_columns});
    case KvType::k4Bit:
      return make(
          ValueCodes<4>{reinterpret_cast<const std::uint8_t*>(args.v), scales, n_columns, group});
    case KvType::k2Bit:
      return make(
          ValueCodes<2>{reinterpret_cast<const std::uint8_t*>(args.v), scales, n_columns, group});
  }
  return false;
}

// sums[16][:] = left x right, for n_tiles tiles of columns: left [16] rows left_stride bytes apart,
// right rows of pairs right_stride bytes apart, n_steps times 32 terms.
[[gnu::noinline]] void multiply(const std::byte* left, std::size_t left_stride,
                                const std::byte* right, std::size_t right_stride,
                                std::uint32_t n_steps, std::uint32_t n_tiles,
                                float* sums) noexcept {
  constexpr std::size_t kSumStride = kStripColumns * sizeof(float);
  amx::zero<0>();
  amx::zero<1>();
  amx::zero<2>();
  amx::zero<3>();
  for (std::uint32_t step = 0; step < n_steps; ++step) {
    amx::load<kLeft>(left, left_stride);
    amx::load<kRight>(right, right_stride);
    amx::dot_bf16<0, kLeft, kRight>();
    if (n_tiles > 1) {
      amx::load<kRight + 1>(right + amx::kTileRowBytes, right_stride);
      amx::dot_bf16<1, kLeft, kRight + 1>();
    }
    if (n_tiles > 2) {
      amx::load<kRight>(right + 2 * amx::kTileRowBytes, right_stride);
      amx::dot_bf16<2, kLeft, kRight>();
    }
    if (n_tiles > 3) {
      amx::load<kRight + 1>(right + 3 * amx::kTileRowBytes, right_stride);
      amx::dot_bf16<3, kLeft, kRight + 1>();
    }
    left += amx::kTileRowBytes;
    right += amx::kTileRows * right_stride;
  }
  amx::store<0>(sums, kSumStride);
  if (n_tiles > 1) amx::store<1>(sums + kTileColumns, kSumStride);
  if (n_tiles > 2) amx::store<2>(sums + 2 * kTileColumns, kSumStride);
  if (n_tiles > 3) amx::store<3>(sums + 3 * kTileColumns, kSumStride);
}

// Returns the run of queries from `query` on, up to `end`, whose rows see the same slots.
Run run_from(const AttendPageArgs& args, std::uint32_t query, std::uint32_t end) noexcept {
  const AttendRange range = args.visible[query / args.n_q];
  std::uint32_t last = query + 1;
  while (last < end && args.visible[last / args.n_q].first == range.first &&
         args.visible[last / args.n_q].last == range.last) {
    ++last;
  }
  return {query, last - query, range.first, range.last};
}

// Turns the scores of a run, of the block that begins at query `block`, into rounded weights.
void weigh(const AttendPageArgs& args, const Run& run, std::uint32_t block,
           const Work& work) noexcept {
  const std::uint32_t at = run.first_query - block;
  std::uint16_t* rounded = work.rounded + std::size_t{at} * kKvPageSlots;
  std::memset(rounded, 0, run.n_queries * kKvPageSlots * sizeof(*rounded));
  if (run.first >= run.last) {
    for (std::uint32_t i = 0; i < run.n_queries; ++i) work.corrections[at + i] = 1.0F;
    return;
  }
  float* weights = work.weights + std::size_t{at} * kKvPageSlots;
  attend_page_internal::weigh_run<Avx512Lanes>(
      args, run, Scratch{weights, nullptr, work.corrections + at, nullptr, kKvPageSlots});
  for (std::uint32_t i = 0; i < run.n_queries; ++i) {
    for (std::uint32_t j = run.first / 16 * 16; j < run.last; j += 16) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(rounded + i * kKvPageSlots + j),
                          round_to_bf16(_mm512_loadu_ps(weights + i * kKvPageSlots + j)));
    }
  }
}

// Adds the weighted values to the accumulators of a run. The zero at the end takes the sign off a
// zero, which is all that weightless slots can leave behind.
void add_values(const AttendPageArgs& args, const Run& run, std::uint32_t block,
                const Work& work) noexcept {
  const std::uint32_t n_columns = round_up(args.head_dim, kTileColumns);
  const std::uint32_t at = run.first_query - block;
  for (std::uint32_t d = 0; d < n_columns; d += kStripColumns) {
    const std::uint32_t width = n_columns - d < kStripColumns ? n_columns - d : kStripColumns;
    multiply(reinterpret_cast<const std::byte*>(work.rounded), kKvPageSlots * sizeof(std::uint16_t),
             reinterpret_cast<const std::byte*>(work.v_pairs + d),
             n_columns * sizeof(std::uint32_t), kKvPageSlots / kTileTerms, width / kTileColumns,
             work.sums);
    for (std::uint32_t i = 0; i < run.n_queries; ++i) {
      const __m512 correction = _mm512_set1_ps(work.corrections[at + i]);
      const float* sums = work.sums + (at + i) * kStripColumns;
      float* acc = args.acc + (run.first_query + i) * args.acc_stride + d;
      for (std::uint32_t c = 0; c < width; c += kTileColumns) {
        const __m512 sum =
            _mm512_fmadd_ps(_mm512_loadu_ps(acc + c), correction, _mm512_loadu_ps(sums + c));
        _mm512_storeu_ps(acc + c, _mm512_add_ps(sum, _mm512_setzero_ps()));
      }
    }
  }
}

amx::TileShapes whole_tiles() noexcept {
  amx::TileShapes shapes;
  for (unsigned tile = 0; tile <= kRight + 1; ++tile) {
    amx::set_shape(&shapes, tile, amx::kTileRows, amx::kTileRowBytes);
  }
  return shapes;
}

}  // namespace

void attend_load_queries_amx(const AttendQueryArgs& args) noexcept {
  const std::uint32_t n_columns = round_up(args.head_dim, kTileTerms);
  const std::uint32_t n_queries = args.n_rows * args.n_q;
  auto* to = reinterpret_cast<std::uint16_t*>(args.queries);
  const __m512 scale = _mm512_set1_ps(args.scale);
  alignas(64) float row[kMaxHeadDim] = {};
  for (std::uint32_t i = 0; i < n_queries; ++i) {
    const float* from =
        args.q + i / args.n_q * args.row_stride + std::size_t{i % args.n_q} * args.head_dim;
    for (std::uint32_t d = 0; d < args.head_dim; d += 16) {
      const std::uint32_t rest = args.head_dim - d;
      const auto mask = static_cast<__mmask16>(rest < 16 ? (1U << rest) - 1U : 0xFFFFU);
      _mm512_store_ps(row + d,
                      _mm512_maskz_mul_ps(mask, _mm512_maskz_loadu_ps(mask, from + d), scale));
    }
    if (kv_is_quantised(args.k_type)) args.rotate(row, kv_columns(args.k_type, args.head_dim));
    for (std::uint32_t d = 0; d < n_columns; d += 16, to += 16) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), round_to_bf16(_mm512_load_ps(row + d)));
    }
  }
  const std::size_t n_missing = round_up(n_queries, kBlockQueries) - n_queries;
  std::memset(to, 0, n_missing * n_columns * sizeof(*to));
}

void attend_page_amx(const AttendPageArgs& args) noexcept {
  const std::uint32_t n_queries = args.n_rows * args.n_q;
  AttendRange seen = {kKvPageSlots, 0};
  bool alike = true;
  for (std::uint32_t row = 0; row < args.n_rows; ++row) {
    const AttendRange range = args.visible[row];
    alike = alike && range.first == args.visible[0].first && range.last == args.visible[0].last;
    if (range.first >= range.last) continue;
    seen.first = range.first < seen.first ? range.first : seen.first;
    seen.last = range.last > seen.last ? range.last : seen.last;
  }
  if (seen.first >= seen.last) return;
  const Work work = work_in(args);
  const std::uint32_t row_bytes = round_up(args.head_dim, kTileTerms) * 2;
  amx::configure(whole_tiles());
  make_key_pairs(args, work);
  const bool shared = make_value_pairs(args, seen, work) || alike;
  for (std::uint32_t block = 0; block < n_queries; block += kBlockQueries) {
    const std::uint32_t end = n_queries - block < kBlockQueries ? n_queries : block + kBlockQueries;
    multiply(args.queries + std::size_t{block} * row_bytes, row_bytes,
             reinterpret_cast<const std::byte*>(work.k_pairs), kKvPageSlots * sizeof(std::uint32_t),
             row_bytes / amx::kTileRowBytes, kStripTiles, work.weights);
    for (std::uint32_t query = block; query < end;) {
      const Run run = run_from(args, query, end);
      weigh(args, run, block, work);
      query += run.n_queries;
    }
    if (shared) {
      add_values(args, {block, end - block, seen.first, seen.last}, block, work);
      continue;
    }
    for (std::uint32_t query = block; query < end;) {
      const Run run = run_from(args, query, end);
      make_value_pairs(args, {run.first, run.last}, work);
      add_values(args, run, block, work);
      query += run.n_queries;
    }
  }
  amx::release();
}

}  // namespace qsf::kernels
