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
// From L::kQueriesWorthAPanel queries on, halves are widened once into a panel, not by each block.
//
// All functions have internal linkage: each tier compiles its own.

#ifndef QSF_KERNELS_ATTEND_ATTEND_PAGE_H_
#define QSF_KERNELS_ATTEND_ATTEND_PAGE_H_

#include <cstring>

#include "kernels/attend/attend.h"

namespace qsf::kernels::attend_page_internal {

constexpr std::uint32_t kStrip = 64;  // columns of a panel: a panel of 64 rows is 16 KiB, half an
                                      // L1 cache
constexpr float kNegativeInfinity = -__builtin_inff();
constexpr float kLeastExponent = -87.0F;  // exp below it is no normal number and counts as 0

static_assert(kStrip == kKvPageSlots);

// Where a call's scratch lies.
struct Scratch {
  float* weights;      // [n_queries][kKvPageSlots]: scores first, then weights
  float* panel;        // [kStrip][kStrip]
  float* corrections;  // [n_queries]: what older sums are multiplied with
};

// The queries [first_query, first_query + n_queries) of a tile, all of which see [first, last).
struct Run {
  std::uint32_t first_query;
  std::uint32_t n_queries;
  std::uint32_t first;
  std::uint32_t last;
};

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

// Adds a[r][k] * b[k][:] to sum[r][:] for k in [0, n), rows of `a` and of `b` a_stride and b_stride
// elements apart.
template <typename L, unsigned kR, unsigned kV, typename T>
[[gnu::always_inline]] static inline void add_products(typename L::Vec (&sum)[kR][kV],
                                                       const float* a, std::size_t a_stride,
                                                       const T* b, std::size_t b_stride,
                                                       std::uint32_t n,
                                                       const Ahead& ahead) noexcept {
  const std::byte* fetched = ahead.at;
  for (std::uint32_t k = 0; k < n; ++k, b += b_stride, fetched += ahead.step) {
    __builtin_prefetch(fetched, 0, 2);
    __builtin_prefetch(fetched + ahead.step / 2, 0, 2);
    typename L::Vec columns[kV];
#pragma GCC unroll 8
    for (unsigned v = 0; v < kV; ++v) columns[v] = L::load(b + v * L::kWidth);
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
  std::size_t b_stride;
  std::uint32_t n;
  float* c;
  std::size_t c_stride;
  // Of each row of c: null for scores, which are added to c, or are set with `start`.
  const float* corrections;
  bool start;
};

template <typename L, unsigned kR, unsigned kV, typename T>
[[gnu::noinline]] static void run_block(const Block& block, const T* b,
                                        const Ahead& ahead) noexcept {
  typename L::Vec sum[kR][kV];
#pragma GCC unroll 8
  for (unsigned r = 0; r < kR; ++r) {
#pragma GCC unroll 8
    for (unsigned v = 0; v < kV; ++v) sum[r][v] = L::splat(0.0F);
  }
  const bool add = block.corrections == nullptr && !block.start;
  if (add) {
#pragma GCC unroll 8
    for (unsigned r = 0; r < kR; ++r) {
#pragma GCC unroll 8
      for (unsigned v = 0; v < kV; ++v) {
        sum[r][v] = L::load(block.c + r * block.c_stride + v * L::kWidth);
      }
    }
  }
  add_products<L, kR, kV, T>(sum, block.a, block.a_stride, b, block.b_stride, block.n, ahead);
#pragma GCC unroll 8
  for (unsigned r = 0; r < kR; ++r) {
    float* c = block.c + r * block.c_stride;
#pragma GCC unroll 8
    for (unsigned v = 0; v < kV; ++v) {
      if (block.corrections != nullptr) {
        const typename L::Vec older = L::load(c + v * L::kWidth);
        sum[r][v] = L::multiply_add(older, L::splat(block.corrections[r]), sum[r][v]);
      }
      L::store(c + v * L::kWidth, sum[r][v]);
    }
  }
}

template <typename L, unsigned kR, typename T>
[[gnu::always_inline]] static inline void run_rows(std::uint32_t n_rows, const Block& block,
                                                   bool wide, const T* b,
                                                   const Ahead& ahead) noexcept {
  if constexpr (kR > 1) {
    if (n_rows < kR) return run_rows<L, kR - 1, T>(n_rows, block, wide, b, ahead);
  }
  wide ? run_block<L, kR, L::kVectors, T>(block, b, ahead)
       : run_block<L, kR, 1, T>(block, b, ahead);
}

// Runs all queries of a run and n_vectors vectors of columns, block by block.
template <typename L, typename T>
static void run_blocks(std::uint32_t n_queries, std::uint32_t n_vectors, const Block& whole,
                       const T* b, Ahead* ahead) noexcept {
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
      const T* columns = b + v * L::kWidth;
      const Ahead nothing = {reinterpret_cast<const std::byte*>(columns), nullptr, 0};
      const bool fetch = ahead->at < ahead->end;
      run_rows<L, L::kRows, T>(n_rows, block, wide, columns, fetch ? *ahead : nothing);
      if (fetch) ahead->at += block.n * ahead->step;
      v += wide ? L::kVectors : 1;
    }
  }
}

// Widens columns [0, n_columns) of n_rows rows, from_stride elements apart, to rows of kStrip
// floats; zeros follow up to the next vector.
template <typename L, typename T>
static void fill_panel(const T* from, std::size_t from_stride, std::uint32_t n_rows,
                       std::uint32_t n_columns, float* panel) noexcept {
  const std::uint32_t n_whole = n_columns / L::kWidth * L::kWidth;
  for (std::uint32_t row = 0; row < n_rows; ++row, from += from_stride, panel += kStrip) {
    std::uint32_t column = 0;
    for (; column < n_whole; column += L::kWidth) L::store(panel + column, L::load(from + column));
    if (column == n_columns) continue;
    T rest[L::kWidth] = {};
    std::memcpy(rest, from + column, (n_columns - column) * sizeof(T));
    L::store(panel + column, L::load(rest));
  }
}

// Scores of a run, times 1: queries come scaled. Vectors of slots are computed whole; hidden slots
// are masked later.
template <typename L, typename T>
static void score_run(const AttendPageArgs& args, const Run& run, const Scratch& scratch,
                      Ahead* ahead) noexcept {
  const std::uint32_t begin = run.first / L::kWidth * L::kWidth;
  const std::uint32_t n_vectors = (run.last - begin + L::kWidth - 1) / L::kWidth;
  const bool use_panel = sizeof(T) != sizeof(float) && run.n_queries >= L::kQueriesWorthAPanel;
  const float* queries =
      reinterpret_cast<const float*>(args.queries) + std::size_t{run.first_query} * args.head_dim;
  for (std::uint32_t d = 0; d < args.head_dim; d += kStrip) {
    const std::uint32_t n = args.head_dim - d < kStrip ? args.head_dim - d : kStrip;
    const T* keys = reinterpret_cast<const T*>(args.k) + std::size_t{d} * kKvPageSlots + begin;
    const Block block = {.a = queries + d,
                         .a_stride = args.head_dim,
                         .b_stride = kKvPageSlots,
                         .n = n,
                         .c = scratch.weights + begin,
                         .c_stride = kKvPageSlots,
                         .corrections = nullptr,
                         .start = d == 0};
    if (use_panel) {
      fill_panel<L, T>(keys, kKvPageSlots, n, n_vectors * L::kWidth, scratch.panel);
      run_blocks<L, float>(run.n_queries, n_vectors, block, scratch.panel, ahead);
    } else {
      run_blocks<L, T>(run.n_queries, n_vectors, block, keys, ahead);
    }
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
    const typename L::Vec slope = L::splat(args.slopes[query % args.n_q]);
    const std::int32_t position = args.q_positions[query / args.n_q];
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
    float* scores = scratch.weights + std::size_t{i} * kKvPageSlots;
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
    float* scores = scratch.weights + std::size_t{i} * kKvPageSlots;
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
template <typename L, typename T>
static void add_values(const AttendPageArgs& args, const Run& run, const Scratch& scratch,
                       Ahead* ahead) noexcept {
  const std::uint32_t n_slots = run.last - run.first;
  const bool many = sizeof(T) != sizeof(float) && run.n_queries >= L::kQueriesWorthAPanel;
  const T* rows = reinterpret_cast<const T*>(args.v) + std::size_t{run.first} * args.head_dim;
  for (std::uint32_t d = 0; d < args.head_dim; d += kStrip) {
    const std::uint32_t n_columns = args.head_dim - d < kStrip ? args.head_dim - d : kStrip;
    const std::uint32_t n_vectors = (n_columns + L::kWidth - 1) / L::kWidth;
    Block block = {.a = scratch.weights + run.first,
                   .a_stride = kKvPageSlots,
                   .b_stride = args.head_dim,
                   .n = n_slots,
                   .c = args.acc + run.first_query * args.acc_stride + d,
                   .c_stride = args.acc_stride,
                   .corrections = scratch.corrections,
                   .start = false};
    if (many || n_columns % L::kWidth != 0) {
      fill_panel<L, T>(rows + d, args.head_dim, n_slots, n_columns, scratch.panel);
      block.b_stride = kStrip;
      run_blocks<L, float>(run.n_queries, n_vectors, block, scratch.panel, ahead);
    } else {
      run_blocks<L, T>(run.n_queries, n_vectors, block, rows + d, ahead);
    }
  }
}

// Spreads the fetch of what follows over the steps that this page takes.
template <typename L>
static Ahead plan_ahead(const AttendPageArgs& args) noexcept {
  constexpr std::size_t kLine = 64;
  if (args.next == nullptr) return {nullptr, nullptr, 0};
  const std::size_t n_blocks = (std::size_t{args.n_rows} * args.n_q + L::kRows - 1) / L::kRows;
  const std::size_t width = std::size_t{L::kVectors} * L::kWidth;
  const std::size_t n_steps = n_blocks * 2 * args.head_dim * (kKvPageSlots / width);
  const std::size_t n_lines = args.next_bytes / kLine;
  return {args.next, args.next + args.next_bytes, (n_lines + n_steps - 1) / n_steps * kLine};
}

template <typename L>
static void attend_page(const AttendPageArgs& args) noexcept {
  const std::size_t n_queries = std::size_t{args.n_rows} * args.n_q;
  float* memory = reinterpret_cast<float*>(args.scratch);
  const Scratch scratch = {memory + std::size_t{kStrip} * kStrip, memory,
                           memory + kStrip * kStrip + n_queries * kKvPageSlots};
  Ahead ahead = plan_ahead<L>(args);
  for (std::uint32_t row = 0; row < args.n_rows;) {
    const AttendRange range = args.visible[row];
    std::uint32_t end = row + 1;
    while (end < args.n_rows && args.visible[end].first == range.first &&
           args.visible[end].last == range.last) {
      ++end;
    }
    const Run run = {row * args.n_q, (end - row) * args.n_q, range.first, range.last};
    row = end;
    if (range.first >= range.last) continue;
    if (args.k_type == KvType::kF32) {
      score_run<L, float>(args, run, scratch, &ahead);
    } else {
      score_run<L, typename L::Half>(args, run, scratch, &ahead);
    }
    weigh_run<L>(args, run, scratch);
    if (args.v_type == KvType::kF32) {
      add_values<L, float>(args, run, scratch, &ahead);
    } else {
      add_values<L, typename L::Half>(args, run, scratch, &ahead);
    }
  }
}

}  // namespace qsf::kernels::attend_page_internal

#endif  // QSF_KERNELS_ATTEND_ATTEND_PAGE_H_
