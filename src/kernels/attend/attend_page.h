// SPDX-License-Identifier: MIT
//
// Attention over one page, written once for all tiers that multiply f32: a tier names its vectors
// in a struct L and instantiates attend_page<L>.
//
// Both products of attention have one form, C[i][:] += sum over k of A[i][k] * B[k][:]: scores take
// queries for A and keys, stored by dimension, for B; the output takes the scores' weights for A
// and values for B. So one register block serves both: up to L::kRows queries times L::kVectors
// vectors, each element of C one chain of multiply-adds in ascending k. A query's bits therefore do
// not depend on the block it falls into. Queries of one block see the same slots, so masks are a
// matter of the ends of a range: of the chains over slots, and of -inf in a vector's hidden lanes.
//
// From some queries on, halves and codes are widened once into a panel, not by each block
// (attend_rows.h). Scales of codes come in where they cost least: in 8 bits a slot has one, which
// multiplies its scores and its weights; in fewer bits the scores of a group of dimensions are
// summed apart and multiplied, and values are multiplied as they are widened.
//
// All functions have internal linkage: each tier compiles its own.

#ifndef QSF_KERNELS_ATTEND_ATTEND_PAGE_H_
#define QSF_KERNELS_ATTEND_ATTEND_PAGE_H_

#include "base/f16.h"
#include "kernels/attend/attend.h"
#include "kernels/attend/attend_rows.h"

namespace qsf::kernels::attend_page_internal {

constexpr std::uint32_t kStrip = 64;  // columns of a panel: a panel of 64 rows is 16 KiB, half an
                                      // L1 cache
constexpr float kNegativeInfinity = -__builtin_inff();
constexpr float kLeastExponent = -87.0F;  // exp below it is no normal number and counts as 0

static_assert(kStrip == kKvPageSlots);

// Where a call's scratch lies.
struct Scratch {
  float* weights;      // [n_queries][stride]: scores first, then weights
  float* panel;        // [kStrip][kStrip]
  float* corrections;  // [n_queries]: what older sums are multiplied with
  float* scales;       // [kKvPageSlots][groups of a row]: of values in 4 or 2 bits
  std::size_t stride;  // floats
};

// The queries [first_query, first_query + n_queries) of a tile, all of which see [first, last).
struct Run {
  std::uint32_t first_query;
  std::uint32_t n_queries;
  std::uint32_t first;
  std::uint32_t last;
};

// The queries of the rows from `row` on that see the same slots; `row` moves behind them.
// Requires  row < args.n_rows
[[gnu::always_inline]] static inline Run next_run(const AttendPageArgs& args,
                                                  std::uint32_t& row) noexcept {
  const std::uint32_t begin = row;
  const AttendRange range = args.visible[begin];
  while (++row < args.n_rows && args.visible[row].first == range.first &&
         args.visible[row].last == range.last) {
  }
  return {begin * args.n_q, (row - begin) * args.n_q, range.first, range.last};
}

// Lines that a later call reads, fetched while this one computes: `step` bytes a step of k.
struct Ahead {
  const std::byte* at;
  const std::byte* end;
  std::size_t step;
};

// exp(x) for x <= 0 or NaN: 2^n exp(r), n = round(x / ln 2), |r| <= ln(2) / 2; ln 2 in two parts.
template <typename L>
[[gnu::always_inline]] static inline typename L::Vec exp_negative(typename L::Vec x) noexcept {
  using Vec = typename L::Vec;
  const Vec magic = L::splat(0x1.8p23F);  // adding it rounds to an integer in the low bits
  const Vec shifted = L::multiply_add(x, L::splat(0x1.715476p+0F), magic);
  const Vec n = shifted - magic;
  Vec r = L::multiply_add(n, L::splat(-0x1.63p-1F), x);
  r = L::multiply_add(n, L::splat(0x1.bd0106p-13F), r);
  // (exp(r) - 1 - r) / r^2, fit error 3.1e-9 relative to exp(r)
  Vec p = L::splat(0x1.6a234ap-10F);
  p = L::multiply_add(p, r, L::splat(0x1.123a6cp-7F));
  p = L::multiply_add(p, r, L::splat(0x1.5558f4p-5F));
  p = L::multiply_add(p, r, L::splat(0x1.55549p-3F));
  p = L::multiply_add(p, r, L::splat(0x1.fffffcp-2F));
  const Vec mantissa = L::multiply_add(r * r, p, r) + L::splat(1.0F);
  return L::scale_unless_less(mantissa, shifted, magic, x, L::splat(kLeastExponent));
}

// Below 0.625 an odd polynomial; above it (1 - e) / (1 + e), e = exp(-2 |x|).
template <typename L>
[[gnu::always_inline]] static inline typename L::Vec tanh(typename L::Vec x) noexcept {
  using Vec = typename L::Vec;
  const Vec zero = L::splat(0.0F);
  const Vec one = L::splat(1.0F);
  const Vec a = L::select_less(x, zero, zero - x, x);
  const Vec z = x * x;
  // (tanh(x) / x - 1) / x^2 over x^2 in [0, 0.4], fit error 4.7e-9
  Vec p = L::splat(-0x1.72fc3ap-8F);
  p = L::multiply_add(p, z, L::splat(0x1.518b12p-6F));
  p = L::multiply_add(p, z, L::splat(-0x1.b8265cp-5F));
  p = L::multiply_add(p, z, L::splat(0x1.11068ep-3F));
  p = L::multiply_add(p, z, L::splat(-0x1.55553p-2F));
  const Vec near = L::multiply_add(x, z * p, x);
  const Vec e = exp_negative<L>(zero - (a + a));
  const Vec far = (one - e) / (one + e);
  return L::select_less(a, L::splat(0.625F), near, L::select_less(x, zero, zero - far, far));
}

// Adds a[r][k] * b[k][:] to sum[r][:] for k in [0, n), rows of `a` a_stride elements apart.
template <typename L, unsigned kR, unsigned kV, typename Rows>
[[gnu::always_inline]] static inline void add_products(typename L::Vec (&sum)[kR][kV],
                                                       const float* a, std::size_t a_stride, Rows b,
                                                       std::uint32_t n,
                                                       const Ahead& ahead) noexcept {
  const std::byte* fetched = ahead.at;
  for (std::uint32_t k = 0; k < n; ++k, b.next(), fetched += ahead.step) {
    __builtin_prefetch(fetched, 0, 2);
    if constexpr (Rows::kFetchesTwice) __builtin_prefetch(fetched + ahead.step / 2, 0, 2);
    typename L::Vec columns[kV];
    b.load(columns);
#pragma GCC unroll 8
    for (unsigned r = 0; r < kR; ++r) {
      const typename L::Vec factor = L::splat(a[r * a_stride + k]);
#pragma GCC unroll 8
      for (unsigned v = 0; v < kV; ++v) {
        sum[r][v] = L::multiply_add(factor, columns[v], sum[r][v]);
      }
    }
  }
}

// One register block of one product; the rest of its arguments are those of add_products.
struct Block {
  const float* a;
  std::size_t a_stride;
  std::uint32_t n;
  float* c;
  std::size_t c_stride;
  // Of each row of c: null for scores, which are added to c, or are set with `start`.
  const float* corrections;
  const std::uint16_t* scales;  // of the columns of scores, or null
  bool start;
};

template <typename L, unsigned kR, unsigned kV, typename Rows>
[[gnu::noinline]] static void run_block(const Block& block, const Rows& b,
                                        const Ahead& ahead) noexcept {
  typename L::Vec sum[kR][kV];
#pragma GCC unroll 8
  for (unsigned r = 0; r < kR; ++r) {
#pragma GCC unroll 8
    for (unsigned v = 0; v < kV; ++v) sum[r][v] = L::splat(0.0F);
  }
  const bool scaled = block.scales != nullptr;
  const bool add = block.corrections == nullptr && !scaled && !block.start;
  if (add) {
#pragma GCC unroll 8
    for (unsigned r = 0; r < kR; ++r) {
#pragma GCC unroll 8
      for (unsigned v = 0; v < kV; ++v) {
        sum[r][v] = L::load(block.c + r * block.c_stride + v * L::kWidth);
      }
    }
  }
  add_products<L, kR, kV>(sum, block.a, block.a_stride, b, block.n, ahead);
#pragma GCC unroll 8
  for (unsigned r = 0; r < kR; ++r) {
    float* c = block.c + r * block.c_stride;
#pragma GCC unroll 8
    for (unsigned v = 0; v < kV; ++v) {
      if (block.corrections != nullptr) {
        const typename L::Vec older = L::load(c + v * L::kWidth);
        sum[r][v] = L::multiply_add(older, L::splat(block.corrections[r]), sum[r][v]);
      } else if (scaled) {
        const typename L::Vec older = block.start ? L::splat(0.0F) : L::load(c + v * L::kWidth);
        sum[r][v] = L::multiply_add(sum[r][v], L::load(block.scales + v * L::kWidth), older);
      }
      L::store(c + v * L::kWidth, sum[r][v]);
    }
  }
}

template <typename L, unsigned kR, typename Rows>
[[gnu::always_inline]] static inline void run_rows(std::uint32_t n_rows, const Block& block,
                                                   bool wide, const Rows& b,
                                                   const Ahead& ahead) noexcept {
  if constexpr (kR > 1) {
    if (n_rows < kR) return run_rows<L, kR - 1>(n_rows, block, wide, b, ahead);
  }
  if constexpr (!Rows::kWhole) {
    if (!wide) return run_block<L, kR, 1>(block, b, ahead);
  }
  run_block<L, kR, L::kVectors>(block, b, ahead);
}

// Runs all queries of a run and n_vectors vectors of columns, block by block.
template <typename L, typename Rows>
static void run_blocks(std::uint32_t n_queries, std::uint32_t n_vectors, const Block& whole,
                       const Rows& b, Ahead* ahead) noexcept {
  const std::uint32_t n_blocks = (n_queries + L::kRows - 1) / L::kRows;
  const std::uint32_t block_rows = (n_queries + n_blocks - 1) / n_blocks;
  for (std::uint32_t i = 0; i < n_queries; i += block_rows) {
    const std::uint32_t n_rows = n_queries - i < block_rows ? n_queries - i : block_rows;
    for (std::uint32_t v = 0; v < n_vectors;) {
      const bool wide = n_vectors - v >= L::kVectors;
      Block block = whole;
      block.a += i * whole.a_stride;
      block.c += i * whole.c_stride + v * L::kWidth;
      if (whole.corrections != nullptr) block.corrections += i;
      if (whole.scales != nullptr) block.scales += v * L::kWidth;
      const Ahead nothing = {reinterpret_cast<const std::byte*>(block.c), nullptr, 0};
      const bool fetch = ahead->at < ahead->end;
      run_rows<L, L::kRows>(n_rows, block, wide, b.from_column(v * L::kWidth),
                            fetch ? *ahead : nothing);
      if (fetch) ahead->at += block.n * ahead->step;
      v += wide ? L::kVectors : 1;
    }
  }
}

// Widens columns [0, n_columns) of n_rows rows, kV vectors at a time, to rows of kStrip floats;
// zeros follow up to the next vector.
template <typename L, unsigned kV, typename Rows>
static void widen_rows(Rows rows, std::uint32_t n_rows, std::uint32_t n_columns,
                       float* panel) noexcept {
  constexpr std::uint32_t kStep = kV * L::kWidth;
  const std::uint32_t n_whole = n_columns / kStep * kStep;
  for (std::uint32_t row = 0; row < n_rows; ++row, rows.next(), panel += kStrip) {
    for (std::uint32_t column = 0; column < n_whole; column += kStep) {
      typename L::Vec columns[kV];
      rows.from_column(column).load(columns);
#pragma GCC unroll 8
      for (unsigned v = 0; v < kV; ++v) L::store(panel + column + v * L::kWidth, columns[v]);
    }
    if constexpr (requires { rows.load_rest(1U); }) {
      if (n_whole < n_columns) {
        L::store(panel + n_whole, rows.from_column(n_whole).load_rest(n_columns - n_whole));
      }
    }
  }
}

template <typename L, typename Rows>
static void fill_panel(const Rows& rows, std::uint32_t n_rows, std::uint32_t n_columns,
                       float* panel) noexcept {
  if (Rows::kWhole || n_columns % (L::kVectors * L::kWidth) == 0) {
    return widen_rows<L, L::kVectors>(rows, n_rows, n_columns, panel);
  }
  if constexpr (!Rows::kWhole) widen_rows<L, 1>(rows, n_rows, n_columns, panel);
}

// Scores of a run, times 1: queries come scaled. Vectors of slots are computed whole; hidden slots
// are masked later. Dimensions are summed `strip` at a time, each strip times its scales, if any:
// rows of kKvPageSlots.
template <typename L, typename Rows>
static void score_strips(const AttendPageArgs& args, const Run& run, const Scratch& scratch,
                         Ahead* ahead, const Rows& keys, std::uint32_t strip,
                         const std::uint16_t* scales) noexcept {
  constexpr std::uint32_t kStep = (Rows::kWhole ? L::kVectors : 1) * L::kWidth;
  const std::uint32_t begin = run.first / kStep * kStep;
  const std::uint32_t n_vectors = (run.last - begin + kStep - 1) / kStep * kStep / L::kWidth;
  const std::uint32_t n_dims = kv_columns(args.k_type, args.head_dim);
  const float* queries =
      reinterpret_cast<const float*>(args.queries) + std::size_t{run.first_query} * n_dims;
  for (std::uint32_t d = 0; d < n_dims; d += strip) {
    const std::uint32_t n = n_dims - d < strip ? n_dims - d : strip;
    const Rows rows = keys.from_row(d).from_column(begin);
    Block block = {.a = queries + d,
                   .a_stride = n_dims,
                   .n = n,
                   .c = scratch.weights + begin,
                   .c_stride = scratch.stride,
                   .corrections = nullptr,
                   .scales = nullptr,
                   .start = d == 0};
    if (scales != nullptr) block.scales = scales + d / strip * kKvPageSlots + begin;
    if (run.n_queries >= Rows::kPanelFrom) {
      fill_panel<L>(rows, n, n_vectors * L::kWidth, scratch.panel);
      run_blocks<L>(run.n_queries, n_vectors, block, Elements<L, float>{scratch.panel, kStrip},
                    ahead);
    } else {
      run_blocks<L>(run.n_queries, n_vectors, block, rows, ahead);
    }
  }
}

// Multiplies what a run has for each slot it sees, and for hidden slots of its vectors, with the
// slot's scale.
template <typename L>
static void scale_slots(const Run& run, const std::uint16_t* scales,
                        const Scratch& scratch) noexcept {
  const std::uint32_t begin = run.first / L::kWidth * L::kWidth;
  float* of_slots = scratch.weights;
  for (std::uint32_t i = 0; i < run.n_queries; ++i, of_slots += scratch.stride) {
    for (std::uint32_t j = begin; j < run.last; j += L::kWidth) {
      L::store(of_slots + j, L::load(of_slots + j) * L::load(scales + j));
    }
  }
}

[[gnu::always_inline]] static inline const std::uint16_t* scales_of(
    const std::byte* block, KvType type, std::uint32_t head_dim) noexcept {
  return reinterpret_cast<const std::uint16_t*>(block + kv_scales_offset(type, head_dim));
}

template <typename L>
static void score_run(const AttendPageArgs& args, const Run& run, const Scratch& scratch,
                      Ahead* ahead) noexcept {
  const auto score = [&]<typename T>(const T* keys) {
    score_strips<L>(args, run, scratch, ahead, Elements<L, T>{keys, kKvPageSlots}, kStrip, nullptr);
  };
  const auto score_codes = [&]<unsigned kBits>() {
    score_strips<L>(args, run, scratch, ahead,
                    KeyCodes<L, kBits>{reinterpret_cast<const std::uint8_t*>(args.k), 0},
                    kv_group(args.k_type, args.head_dim),
                    scales_of(args.k, args.k_type, args.head_dim));
  };
  switch (args.k_type) {
    case KvType::kF32: return score(reinterpret_cast<const float*>(args.k));
    case KvType::kF16: return score(reinterpret_cast<const typename L::Half*>(args.k));
    case KvType::k8Bit:
      score(reinterpret_cast<const std::int8_t*>(args.k));
      return scale_slots<L>(run, scales_of(args.k, args.k_type, args.head_dim), scratch);
    case KvType::k4Bit: return score_codes.template operator()<4>();
    case KvType::k2Bit: return score_codes.template operator()<2>();
  }
}

// Rounds to the nearest bf16, ties to even. Neither to_bf16() nor std::bit_cast: an inline function
// might be emitted with instructions of this tier. Requires  a number
[[gnu::always_inline]] static inline float nearest_bf16(float value) noexcept {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value);
  return __builtin_bit_cast(float, (bits + 0x7FFFU + ((bits >> 16) & 1U)) & 0xFFFF0000U);
}

// The bias of a position where it is a product in bf16.
static inline float bf16_bias(float slope, std::int32_t position) noexcept {
  return nearest_bf16(slope * nearest_bf16(static_cast<float>(position)));
}

static inline void add_bf16_biases(const AttendPageArgs& args, float slope, std::int32_t position,
                                   std::uint32_t begin, std::uint32_t end, float* scores) noexcept {
  const float own = bf16_bias(slope, position);
  for (std::uint32_t j = begin; j < end; ++j) {
    scores[j] += args.bf16_bias_scale * (bf16_bias(slope, args.positions[j]) - own);
  }
}

// Caps the scores of one query and adds the bias of distance.
template <typename L>
static void cap_and_bias(const AttendPageArgs& args, std::uint32_t query, std::uint32_t begin,
                         std::uint32_t end, float* scores) noexcept {
  if (args.soft_cap != 0.0F) {
    const typename L::Vec cap = L::splat(args.soft_cap);
    for (std::uint32_t j = begin; j < end; j += L::kWidth) {
      L::store(scores + j, tanh<L>(L::load(scores + j) / cap) * cap);
    }
  }
  if (args.slopes != nullptr) {
    const float of_head = args.slopes[query % args.n_q];
    const std::int32_t position = args.q_positions[query / args.n_q];
    if (args.bf16_bias_scale != 0.0F) {
      return add_bf16_biases(args, of_head, position, begin, end, scores);
    }
    const typename L::Vec slope = L::splat(of_head);
    for (std::uint32_t j = begin; j < end; j += L::kWidth) {
      const typename L::Vec distance = L::distance(args.positions + j, position);
      L::store(scores + j, L::multiply_add(slope, distance, L::load(scores + j)));
    }
  }
}

// Turns the scores of a run into weights exp(score - max) and updates states: first all maxima, so
// that the processor overlaps the queries' reductions, then all weights.
template <typename L>
static void weigh_run(const AttendPageArgs& args, const Run& run, const Scratch& scratch) noexcept {
  using Vec = typename L::Vec;
  const std::uint32_t begin = run.first / L::kWidth * L::kWidth;
  const std::uint32_t end = (run.last + L::kWidth - 1) / L::kWidth * L::kWidth;
  AttendState* states = args.state + run.first_query;
  for (std::uint32_t i = 0; i < run.n_queries; ++i) {
    float* scores = scratch.weights + i * scratch.stride;
    if (args.soft_cap != 0.0F || args.slopes != nullptr) {
      cap_and_bias<L>(args, run.first_query + i, begin, end, scores);
    }
    for (std::uint32_t j = begin; j < run.first; ++j) scores[j] = kNegativeInfinity;
    for (std::uint32_t j = run.last; j < end; ++j) scores[j] = kNegativeInfinity;
    Vec max = L::splat(states[i].max);
    for (std::uint32_t j = begin; j < end; j += L::kWidth) {
      max = L::larger(L::load(scores + j), max);
    }
    scratch.corrections[i] = L::largest_lane(max);
  }
  for (std::uint32_t i = 0; i < run.n_queries; ++i) {
    float* scores = scratch.weights + i * scratch.stride;
    const float max = scratch.corrections[i];
    // Without a finite score yet, subtracting 0 keeps exp(-inf) = 0 and lets NaN through.
    const Vec base = L::splat(max == kNegativeInfinity ? 0.0F : max);
    Vec sums = L::splat(0.0F);
    for (std::uint32_t j = begin; j < end; j += L::kWidth) {
      const Vec weights = exp_negative<L>(L::load(scores + j) - base);
      L::store(scores + j, weights);
      sums = sums + weights;
    }
    float correction = 1.0F;
    if (states[i].max != max) {
      correction = L::first_lane(exp_negative<L>(L::splat(states[i].max) - base));
    }
    scratch.corrections[i] = correction;
    states[i].max = max;
    states[i].sum = states[i].sum * correction + L::sum_lanes(sums);
  }
}

// Adds the weighted values of a run to its accumulators.
template <typename L, typename Rows>
static void add_strips(const AttendPageArgs& args, const Run& run, const Scratch& scratch,
                       Ahead* ahead, const Rows& values) noexcept {
  const std::uint32_t n_slots = run.last - run.first;
  const std::uint32_t n_all = kv_columns(args.v_type, args.head_dim);
  for (std::uint32_t d = 0; d < n_all; d += kStrip) {
    const std::uint32_t n_columns = n_all - d < kStrip ? n_all - d : kStrip;
    const std::uint32_t n_vectors = (n_columns + L::kWidth - 1) / L::kWidth;
    const Rows rows = values.from_row(run.first).from_column(d);
    const Block block = {.a = scratch.weights + run.first,
                         .a_stride = scratch.stride,
                         .n = n_slots,
                         .c = args.acc + run.first_query * args.acc_stride + d,
                         .c_stride = args.acc_stride,
                         .corrections = scratch.corrections,
                         .scales = nullptr,
                         .start = false};
    if (run.n_queries >= Rows::kPanelFrom || n_columns % L::kWidth != 0) {
      fill_panel<L>(rows, n_slots, n_columns, scratch.panel);
      run_blocks<L>(run.n_queries, n_vectors, block, Elements<L, float>{scratch.panel, kStrip},
                    ahead);
    } else {
      run_blocks<L>(run.n_queries, n_vectors, block, rows, ahead);
    }
  }
}

template <typename L>
static void add_values(const AttendPageArgs& args, const Run& run, const Scratch& scratch,
                       Ahead* ahead) noexcept {
  const std::size_t n_columns = kv_columns(args.v_type, args.head_dim);
  const auto add = [&]<typename T>(const T* values) {
    add_strips<L>(args, run, scratch, ahead, Elements<L, T>{values, n_columns});
  };
  const auto add_groups = [&]<unsigned kBits, unsigned kGroup>() {
    add_strips<L>(
        args, run, scratch, ahead,
        ValueCodes<L, kBits, kGroup>{reinterpret_cast<const std::uint8_t*>(args.v),
                                     n_columns * kBits / 8, scratch.scales, n_columns / kGroup, 0});
  };
  const auto add_codes = [&]<unsigned kBits>() {
    if (kv_group(args.v_type, args.head_dim) == 32) {
      return add_groups.template operator()<kBits, 32>();
    }
    add_groups.template operator()<kBits, 16>();
  };
  switch (args.v_type) {
    case KvType::kF32: return add(reinterpret_cast<const float*>(args.v));
    case KvType::kF16: return add(reinterpret_cast<const typename L::Half*>(args.v));
    case KvType::k8Bit:
      scale_slots<L>(run, scales_of(args.v, args.v_type, args.head_dim), scratch);
      return add(reinterpret_cast<const std::int8_t*>(args.v));
    case KvType::k4Bit: return add_codes.template operator()<4>();
    case KvType::k2Bit: return add_codes.template operator()<2>();
  }
}

// Widens the scales of values in 4 or 2 bits, all of a page.
template <typename L>
static void widen_scales(const AttendPageArgs& args, float* to) noexcept {
  if (args.v_type != KvType::k4Bit && args.v_type != KvType::k2Bit) return;
  const std::uint16_t* from = scales_of(args.v, args.v_type, args.head_dim);
  const std::size_t n = std::size_t{kKvPageSlots} * kv_groups(args.v_type, args.head_dim);
  for (std::size_t i = 0; i < n; i += L::kWidth) L::store(to + i, L::load(from + i));
}

// Spreads the fetch of what follows over the steps that a page takes, of both products or of one.
template <typename L>
static Ahead plan_ahead(const AttendPageArgs& args, unsigned n_products) noexcept {
  if (args.next == nullptr) return {nullptr, nullptr, 0};
  const std::size_t n_blocks = (std::size_t{args.n_rows} * args.n_q + L::kRows - 1) / L::kRows;
  const std::size_t width = std::size_t{L::kVectors} * L::kWidth;
  const std::size_t n_steps = n_blocks * n_products * args.head_dim * (kKvPageSlots / width);
  return {args.next, args.next + args.next_bytes, (args.next_bytes + n_steps - 1) / n_steps};
}

template <typename L>
static void attend_page(const AttendPageArgs& args) noexcept {
  const std::size_t n_queries = std::size_t{args.n_rows} * args.n_q;
  float* memory = reinterpret_cast<float*>(args.scratch);
  float* weights = memory + std::size_t{kStrip} * kStrip;
  float* corrections = weights + n_queries * kKvPageSlots;
  const Scratch scratch = {weights, memory, corrections, corrections + n_queries, kKvPageSlots};
  widen_scales<L>(args, scratch.scales);
  Ahead ahead = plan_ahead<L>(args, 2);
  for (std::uint32_t row = 0; row < args.n_rows;) {
    const Run run = next_run(args, row);
    if (run.first >= run.last) continue;
    score_run<L>(args, run, scratch, &ahead);
    weigh_run<L>(args, run, scratch);
    add_values<L>(args, run, scratch, &ahead);
  }
}

}  // namespace qsf::kernels::attend_page_internal

#endif  // QSF_KERNELS_ATTEND_ATTEND_PAGE_H_
