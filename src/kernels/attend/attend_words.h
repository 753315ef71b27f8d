// SPDX-License-Identifier: MIT
//
// Attention over one page with products of 16-bit integers, for prompts: what attend_page.h does
// in f32, at twice its rate. A tier names its vectors in a struct L, which has what attend_page.h
// asks for and the integers of the same width.
//
// Keys and values in f16 are rounded to whole numbers up to kLargestElement of their slot's largest
// one, 12 bits and a sign; codes of 8 bits are taken as they are. Queries are rounded alike, and
// weights up to kLargestWeight of the page's largest one. Sums are exact in 32 bits. A slot's scale
// comes from that slot alone and a weight's from what its query sees, so no hidden slot shows.
// Scores and weights are f32 in between, with the code of attend_page.h; other types take its
// products.
//
// Both products have one form: rows of the page are joined in pairs, a lane of 32 bits holding the
// same column of both, and an instruction multiplies two numbers of a query with them and adds.
//
// All functions have internal linkage: each tier compiles its own.

#ifndef QSF_KERNELS_ATTEND_ATTEND_WORDS_H_
#define QSF_KERNELS_ATTEND_ATTEND_WORDS_H_

#include <immintrin.h>

#include "kernels/attend/attend_page.h"
#include "kernels/attend/attend_variants.h"
#include "kernels/attend/attend_word_ranges.h"

namespace qsf::kernels::attend_page_internal {

constexpr std::uint32_t kWordSlots = 16;  // that are weighed together

// Rounds a query of n_columns, with zeros behind it, to whole numbers up to `largest`; returns its
// scale, NaN where an element is not finite.
template <typename L>
static float round_query(const float* query, std::size_t n_columns, float largest,
                         std::int16_t* words) noexcept {
  using Vec = typename L::Vec;
  const Vec zero = L::splat(0.0F);
  Vec top = zero;
  Vec differences = zero;  // 0, or NaN
  for (std::size_t d = 0; d < n_columns; d += L::kWidth) {
    const Vec x = L::load(query + d);
    top = L::larger(L::larger(x, zero - x), top);
    differences = differences + (x - x);
  }
  const float magnitude = L::largest_lane(top);
  const float not_finite = L::sum_lanes(differences);
  const bool scaled = magnitude > 0.0F && not_finite == 0.0F;
  const Vec inverse = L::splat(scaled ? largest / magnitude : 0.0F);
  for (std::size_t d = 0; d < n_columns; d += kWordSlots) {
    Vec numbers[kWordSlots / L::kWidth];
#pragma GCC unroll 2
    for (unsigned v = 0; v < kWordSlots / L::kWidth; ++v) {
      numbers[v] = L::load(query + d + v * L::kWidth) * inverse;
    }
    L::store_words(words + d, numbers);
  }
  return magnitude / largest + not_finite;
}

template <typename L>
static void load_query_words(const AttendQueryArgs& args) noexcept {
  if (!is_multiplied_as_words(args.k_type)) return attend_load_queries_f32(args);
  const std::uint32_t n_queries = args.n_rows * args.n_q;
  const std::uint32_t n_dims = kv_columns(args.k_type, args.head_dim);
  const std::size_t stride = round_up_columns(n_dims);
  const auto largest = static_cast<float>(largest_query(args.k_type, n_dims));
  auto* words = reinterpret_cast<std::int16_t*>(args.queries);
  auto* scales = reinterpret_cast<float*>(words + n_queries * stride);
  alignas(64) float query[kMaxHeadDim] = {};
  for (std::uint32_t i = 0; i < n_queries; ++i, words += stride) {
    const float* from =
        args.q + i / args.n_q * args.row_stride + std::size_t{i % args.n_q} * args.head_dim;
    for (std::uint32_t d = 0; d < args.head_dim; ++d) query[d] = from[d] * args.scale;
    for (std::uint32_t d = args.head_dim; d < n_dims; ++d) query[d] = 0.0F;
    if (kv_is_quantised(args.k_type)) args.rotate(query, n_dims);
    scales[i] = round_query<L>(query, stride, largest, words);
  }
}

// Where a call's scratch lies.
struct WordScratch {
  std::int32_t* keys;    // [pairs of dimensions][kKvPageSlots]
  std::int32_t* values;  // [kKvPageSlots / 2][value_stride]
  std::size_t value_stride;
  float* key_scales;    // [kKvPageSlots]
  float* value_scales;  // [kKvPageSlots]
  float* ratios;        // [kKvPageSlots]: of weights to their numbers
  float* tops;          // [n_queries]: the largest score of the page
  float* factors;       // [n_queries]: what the page's sums are multiplied with
  Scratch floats;
};

static inline WordScratch word_scratch(const AttendPageArgs& args) noexcept {
  const std::size_t n_queries = std::size_t{args.n_rows} * args.n_q;
  const std::size_t columns = round_up_columns(args.head_dim);
  const std::size_t padded = round_up_columns(static_cast<std::uint32_t>(n_queries));
  WordScratch out;
  out.keys = reinterpret_cast<std::int32_t*>(args.scratch);
  out.values = out.keys + columns / 2 * kKvPageSlots;
  out.value_stride = columns;
  out.key_scales = reinterpret_cast<float*>(out.values + kKvPageSlots / 2 * columns);
  out.value_scales = out.key_scales + kKvPageSlots;
  out.ratios = out.value_scales + kKvPageSlots;
  out.tops = out.ratios + kKvPageSlots;
  out.factors = out.tops + padded;
  float* corrections = out.factors + padded;
  float* panel = corrections + padded;
  float* weights = panel + std::size_t{kStrip} * kStrip;
  out.floats = {weights, panel, corrections, weights + n_queries * kKvPageSlots, kKvPageSlots};
  return out;
}

// The largest magnitude of n halves as bits: infinity and NaN are larger than all numbers.
[[gnu::always_inline]] static inline std::uint16_t largest_magnitude(const std::uint16_t* halves,
                                                                     std::uint32_t n) noexcept {
  const __m256i magnitude = _mm256_set1_epi16(0x7FFF);
  __m256i largest = _mm256_setzero_si256();
  std::uint32_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves + i));
    largest = _mm256_max_epi16(largest, _mm256_and_si256(x, magnitude));
  }
  if (i < n) {
    std::uint16_t rest[16] = {};
    std::memcpy(rest, halves + i, (n - i) * sizeof(rest[0]));
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rest));
    largest = _mm256_max_epi16(largest, _mm256_and_si256(x, magnitude));
  }
  const __m128i eight =
      _mm_max_epi16(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
  // The largest is the complement of the smallest complement.
  const __m128i ones = _mm_set1_epi16(-1);
  const __m128i smallest = _mm_minpos_epu16(_mm_xor_si128(eight, ones));
  return static_cast<std::uint16_t>(~_mm_extract_epi16(smallest, 0));
}

// Turns the magnitudes of 64 slots into their scales, NaN for infinity and NaN, and what their
// elements are multiplied with.
template <typename L>
static void scales_of_magnitudes(const std::uint16_t* magnitudes, std::uint32_t largest_element,
                                 float* scales, float* inverses) noexcept {
  using Vec = typename L::Vec;
  const Vec zero = L::splat(0.0F);
  const Vec whole = L::splat(static_cast<float>(largest_element));
  for (std::uint32_t j = 0; j < kKvPageSlots; j += L::kWidth) {
    const Vec largest = L::load(magnitudes + j);
    L::store(scales + j, largest / whole + (largest - largest));
    L::store(inverses + j, L::select_less(zero, largest, whole / largest, zero));
  }
}

// Up to L::kWidth elements of a row as whole numbers, zeros behind them.
template <typename L>
[[gnu::always_inline]] static inline typename L::Ints whole_numbers(
    const std::uint16_t* halves, std::uint32_t n, typename L::Vec inverse) noexcept {
  const Elements<L, std::uint16_t> row = {halves, 0};
  return L::round((n >= L::kWidth ? L::load(halves) : row.load_rest(n)) * inverse);
}
template <typename L>
[[gnu::always_inline]] static inline typename L::Ints whole_numbers(const std::int8_t* codes,
                                                                    std::uint32_t,
                                                                    typename L::Vec) noexcept {
  return L::load_ints(codes);
}

// Joins rows [n_rows][stride] of the page in pairs. inverse_of(row, column) is what a vector of
// halves is multiplied with.
template <typename L, typename T, typename InverseOf>
[[gnu::always_inline]] static inline void join_rows(const T* rows, std::size_t stride,
                                                    std::uint32_t n_rows, std::uint32_t n_columns,
                                                    const InverseOf& inverse_of, std::int32_t* to,
                                                    std::size_t to_stride) noexcept {
  for (std::uint32_t row = 0; row < n_rows; row += 2, to += to_stride) {
    const T* low = rows + row * stride;
    for (std::uint32_t c = 0; c < n_columns; c += L::kWidth) {
      const std::uint32_t n = n_columns - c;
      typename L::Ints high = L::no_ints();
      if (row + 1 < n_rows) high = whole_numbers<L>(low + stride + c, n, inverse_of(row + 1, c));
      L::store_ints(to + c, L::join_words(whole_numbers<L>(low + c, n, inverse_of(row, c)), high));
    }
  }
}

template <typename L>
static void widen_page_scales(const std::byte* block, KvType type, std::uint32_t head_dim,
                              float* to) noexcept {
  const std::uint16_t* from = scales_of(block, type, head_dim);
  for (std::uint32_t j = 0; j < kKvPageSlots; j += L::kWidth) L::store(to + j, L::load(from + j));
}

template <typename L>
static void make_key_words(const AttendPageArgs& args, const WordScratch& scratch) noexcept {
  const std::uint32_t n_dims = kv_columns(args.k_type, args.head_dim);
  const auto none = [](std::uint32_t, std::uint32_t) __attribute__((always_inline)) {
    return L::splat(0.0F);
  };
  if (args.k_type == KvType::k8Bit) {
    widen_page_scales<L>(args.k, args.k_type, args.head_dim, scratch.key_scales);
    return join_rows<L>(reinterpret_cast<const std::int8_t*>(args.k), kKvPageSlots, n_dims,
                        kKvPageSlots, none, scratch.keys, kKvPageSlots);
  }
  const auto* halves = reinterpret_cast<const std::uint16_t*>(args.k);
  alignas(64) std::uint16_t magnitudes[kKvPageSlots] = {};
  for (std::uint32_t j = 0; j < kKvPageSlots; j += 16) {
    __m256i largest = _mm256_setzero_si256();
    for (std::uint32_t d = 0; d < n_dims; ++d) {
      const __m256i x =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves + d * kKvPageSlots + j));
      largest = _mm256_max_epi16(largest, _mm256_and_si256(x, _mm256_set1_epi16(0x7FFF)));
    }
    _mm256_store_si256(reinterpret_cast<__m256i*>(magnitudes + j), largest);
  }
  alignas(64) float inverses[kKvPageSlots];
  scales_of_magnitudes<L>(magnitudes, largest_key(args.k_type, n_dims), scratch.key_scales,
                          inverses);
  const auto of_slots = [&](std::uint32_t, std::uint32_t slot) __attribute__((always_inline)) {
    return L::load(inverses + slot);
  };
  join_rows<L>(halves, kKvPageSlots, n_dims, kKvPageSlots, of_slots, scratch.keys, kKvPageSlots);
}

template <typename L>
static void make_value_words(const AttendPageArgs& args, const WordScratch& scratch) noexcept {
  const std::uint32_t n_columns = kv_columns(args.v_type, args.head_dim);
  const auto none = [](std::uint32_t, std::uint32_t) __attribute__((always_inline)) {
    return L::splat(0.0F);
  };
  if (args.v_type == KvType::k8Bit) {
    widen_page_scales<L>(args.v, args.v_type, args.head_dim, scratch.value_scales);
    return join_rows<L>(reinterpret_cast<const std::int8_t*>(args.v), n_columns, kKvPageSlots,
                        n_columns, none, scratch.values, scratch.value_stride);
  }
  const auto* halves = reinterpret_cast<const std::uint16_t*>(args.v);
  alignas(64) std::uint16_t magnitudes[kKvPageSlots];
  for (std::uint32_t j = 0; j < kKvPageSlots; ++j) {
    magnitudes[j] = largest_magnitude(halves + std::size_t{j} * n_columns, n_columns);
  }
  alignas(64) float inverses[kKvPageSlots];
  scales_of_magnitudes<L>(magnitudes, kLargestElement, scratch.value_scales, inverses);
  const auto of_slot = [&](std::uint32_t slot, std::uint32_t) __attribute__((always_inline)) {
    return L::splat(inverses[slot]);
  };
  join_rows<L>(halves, n_columns, kKvPageSlots, n_columns, of_slot, scratch.values,
               scratch.value_stride);
}

// One register block of one product.
struct WordBlock {
  const std::int16_t* a;
  std::size_t a_stride;
  const std::int32_t* b;
  std::size_t b_stride;
  std::uint32_t n_pairs;
  float* c;
  std::size_t c_stride;
  const float* factors;        // of each row of c
  const float* column_scales;  // of scores, which are set; null: c, times its corrections, is
                               // added to
  const float* corrections;
};

// Fixes the place of a value among others so fixed: compilers keep two copies of every sum.
template <typename Ints>
[[gnu::always_inline]] static inline Ints in_place(Ints value) noexcept {
  asm volatile("" : "+v"(value));
  return value;
}

template <typename L, unsigned kR, unsigned kV>
[[gnu::noinline]] static void multiply_words(const WordBlock& block) noexcept {
  using Vec = typename L::Vec;
  typename L::Ints sum[kR][kV];
#pragma GCC unroll 8
  for (unsigned r = 0; r < kR; ++r) {
#pragma GCC unroll 8
    for (unsigned v = 0; v < kV; ++v) sum[r][v] = L::no_ints();
  }
  const std::int16_t* a = block.a;
  const std::int32_t* b = block.b;
  for (std::uint32_t k = 0; k < block.n_pairs; ++k, a += 2, b += block.b_stride) {
    typename L::Ints columns[kV];
#pragma GCC unroll 8
    for (unsigned v = 0; v < kV; ++v) columns[v] = L::load_ints(b + v * L::kWidth);
#pragma GCC unroll 8
    for (unsigned r = 0; r < kR; ++r) {
      const typename L::Ints factor = in_place(L::splat_words(a + r * block.a_stride));
#pragma GCC unroll 8
      for (unsigned v = 0; v < kV; ++v) {
        sum[r][v] = in_place(L::dot_words(sum[r][v], factor, columns[v]));
      }
    }
  }
  const bool scores = block.column_scales != nullptr;
#pragma GCC unroll 8
  for (unsigned r = 0; r < kR; ++r) {
    float* c = block.c + r * block.c_stride;
    const Vec factor = L::splat(block.factors[r]);
#pragma GCC unroll 8
    for (unsigned v = 0; v < kV; ++v, c += L::kWidth) {
      const Vec x = L::to_floats(sum[r][v]) * factor;
      if (scores) {
        L::store(c, x * L::load(block.column_scales + v * L::kWidth));
      } else {
        L::store(c, L::multiply_add(L::load(c), L::splat(block.corrections[r]), x));
      }
    }
  }
}

template <typename L, unsigned kR>
[[gnu::always_inline]] static inline void multiply_word_rows(std::uint32_t n_rows,
                                                             const WordBlock& block,
                                                             bool wide) noexcept {
  if constexpr (kR > 1) {
    if (n_rows < kR) return multiply_word_rows<L, kR - 1>(n_rows, block, wide);
  }
  if (wide) return multiply_words<L, kR, L::kVectors>(block);
  multiply_words<L, kR, 1>(block);
}

// Fetches a step of what a later call reads.
static inline void fetch(Ahead* ahead) noexcept {
  for (std::size_t i = 0; i < ahead->step && ahead->at < ahead->end; i += 64, ahead->at += 64) {
    __builtin_prefetch(ahead->at, 0, 2);
  }
}

// Runs all rows of a product and n_vectors vectors of columns, block by block.
template <typename L>
static void multiply_word_blocks(std::uint32_t n_rows, std::uint32_t n_vectors,
                                 const WordBlock& whole, Ahead* ahead) noexcept {
  for (std::uint32_t i = 0; i < n_rows; i += L::kRows) {
    fetch(ahead);
    for (std::uint32_t v = 0; v < n_vectors;) {
      const bool wide = n_vectors - v >= L::kVectors;
      WordBlock block = whole;
      block.a += i * whole.a_stride;
      block.b += v * L::kWidth;
      block.c += i * whole.c_stride + v * L::kWidth;
      block.factors += i;
      if (whole.column_scales != nullptr) block.column_scales += v * L::kWidth;
      if (whole.corrections != nullptr) block.corrections += i;
      multiply_word_rows<L, L::kRows>(n_rows - i < L::kRows ? n_rows - i : L::kRows, block, wide);
      v += wide ? L::kVectors : 1;
    }
  }
}

// The slots of a run, and those around them that are computed with them.
struct WordRange {
  std::uint32_t begin;
  std::uint32_t end;
};
[[gnu::always_inline]] static inline WordRange word_range(const Run& run) noexcept {
  return {run.first / kWordSlots * kWordSlots,
          (run.last + kWordSlots - 1) / kWordSlots * kWordSlots};
}

template <typename L>
static void score_words(const AttendPageArgs& args, const Run& run, const WordScratch& scratch,
                        Ahead* ahead) noexcept {
  const WordRange range = word_range(run);
  const std::uint32_t n_dims = kv_columns(args.k_type, args.head_dim);
  const std::size_t stride = round_up_columns(n_dims);
  const auto* queries = reinterpret_cast<const std::int16_t*>(args.queries);
  const auto* scales =
      reinterpret_cast<const float*>(queries + std::size_t{args.n_rows} * args.n_q * stride);
  multiply_word_blocks<L>(run.n_queries, (range.end - range.begin) / L::kWidth,
                          {.a = queries + run.first_query * stride,
                           .a_stride = stride,
                           .b = scratch.keys + range.begin,
                           .b_stride = kKvPageSlots,
                           .n_pairs = (n_dims + 1) / 2,
                           .c = scratch.floats.weights + range.begin,
                           .c_stride = scratch.floats.stride,
                           .factors = scales + run.first_query,
                           .column_scales = scratch.key_scales + range.begin,
                           .corrections = nullptr},
                          ahead);
}

// Sets what weights of a run are multiplied with to become whole numbers, 0 for hidden slots;
// returns what a sum of their products is multiplied with.
static inline float set_ratios(const Run& run, const WordScratch& scratch) noexcept {
  const WordRange range = word_range(run);
  float largest = 0.0F;
  float not_finite = 0.0F;
  for (std::uint32_t j = run.first; j < run.last; ++j) {
    const float scale = scratch.value_scales[j];
    largest = scale > largest ? scale : largest;
    not_finite += scale - scale;
  }
  const float ratio = largest > 0.0F ? static_cast<float>(kLargestWeight) / largest : 0.0F;
  for (std::uint32_t j = range.begin; j < range.end; ++j) {
    const bool seen = j >= run.first && j < run.last;
    scratch.ratios[j] = seen ? scratch.value_scales[j] * ratio : 0.0F;
  }
  return largest / static_cast<float>(kLargestWeight) + not_finite;
}

// Caps, biases and masks the scores of a run and finds the largest of each query, then moves the
// states' maxima: corrections and factors are exp(old - new) and exp(page - new).
template <typename L>
static void move_maxima(const AttendPageArgs& args, const Run& run,
                        const WordScratch& scratch) noexcept {
  using Vec = typename L::Vec;
  const WordRange range = word_range(run);
  AttendState* states = args.state + run.first_query;
  for (std::uint32_t i = 0; i < run.n_queries; ++i) {
    float* scores = scratch.floats.weights + i * scratch.floats.stride;
    if (args.soft_cap != 0.0F || args.slopes != nullptr) {
      cap_and_bias<L>(args, run.first_query + i, range.begin, range.end, scores);
    }
    for (std::uint32_t j = range.begin; j < run.first; ++j) scores[j] = kNegativeInfinity;
    for (std::uint32_t j = run.last; j < range.end; ++j) scores[j] = kNegativeInfinity;
    Vec max = L::splat(kNegativeInfinity);
    for (std::uint32_t j = range.begin; j < range.end; j += L::kWidth) {
      max = L::larger(L::load(scores + j), max);
    }
    const float top = L::largest_lane(max);
    const float old = states[i].max;
    const float now = top > old ? top : old;
    const float base = now == kNegativeInfinity ? 0.0F : now;
    scratch.tops[i] = top;
    scratch.factors[i] = top - base;
    scratch.floats.corrections[i] = old - base;
    states[i].max = now;
  }
  for (std::uint32_t i = 0; i < run.n_queries; i += L::kWidth) {
    L::store(scratch.factors + i, exp_negative<L>(L::load(scratch.factors + i)));
    L::store(scratch.floats.corrections + i,
             exp_negative<L>(L::load(scratch.floats.corrections + i)));
  }
}

// Turns the scores of a run into weights, as whole numbers in the first half of each row, and
// updates states. Weights are relative to the page's largest one, so that a page far below the
// maximum keeps all its bits.
template <typename L>
static void weigh_words(const AttendPageArgs& args, const Run& run,
                        const WordScratch& scratch) noexcept {
  using Vec = typename L::Vec;
  const WordRange range = word_range(run);
  const float value_factor = set_ratios(run, scratch);
  move_maxima<L>(args, run, scratch);
  AttendState* states = args.state + run.first_query;
  for (std::uint32_t i = 0; i < run.n_queries; ++i) {
    const float* scores = scratch.floats.weights + i * scratch.floats.stride;
    auto* words =
        reinterpret_cast<std::int16_t*>(scratch.floats.weights + i * scratch.floats.stride);
    const float top = scratch.tops[i];
    const Vec base = L::splat(top == kNegativeInfinity ? 0.0F : top);
    Vec sums = L::splat(0.0F);
    for (std::uint32_t j = range.begin; j < range.end; j += kWordSlots) {
      Vec weights[kWordSlots / L::kWidth];
#pragma GCC unroll 2
      for (unsigned v = 0; v < kWordSlots / L::kWidth; ++v) {
        const std::uint32_t at = j + v * L::kWidth;
        const Vec weight = exp_negative<L>(L::load(scores + at) - base);
        sums = sums + weight;
        weights[v] = weight * L::load(scratch.ratios + at);
      }
      L::store_words(words + j, weights);
    }
    states[i].sum =
        states[i].sum * scratch.floats.corrections[i] + L::sum_lanes(sums) * scratch.factors[i];
    scratch.factors[i] *= value_factor;
  }
}

template <typename L>
static void add_words(const AttendPageArgs& args, const Run& run, const WordScratch& scratch,
                      Ahead* ahead) noexcept {
  const WordRange range = word_range(run);
  const std::uint32_t n_columns = kv_columns(args.v_type, args.head_dim);
  const auto* weights = reinterpret_cast<const std::int16_t*>(scratch.floats.weights);
  multiply_word_blocks<L>(run.n_queries, (n_columns + L::kWidth - 1) / L::kWidth,
                          {.a = weights + range.begin,
                           .a_stride = 2 * scratch.floats.stride,
                           .b = scratch.values + range.begin / 2 * scratch.value_stride,
                           .b_stride = scratch.value_stride,
                           .n_pairs = (range.end - range.begin) / 2,
                           .c = args.acc + run.first_query * args.acc_stride,
                           .c_stride = args.acc_stride,
                           .factors = scratch.factors,
                           .column_scales = nullptr,
                           .corrections = scratch.floats.corrections},
                          ahead);
}

// Spreads the fetch of what follows over the rows of blocks that a page takes.
template <typename L>
static Ahead plan_words_ahead(const AttendPageArgs& args) noexcept {
  if (args.next == nullptr) return {nullptr, nullptr, 0};
  const std::size_t n_blocks =
      2 * ((std::size_t{args.n_rows} * args.n_q + L::kRows - 1) / L::kRows);
  return {args.next, args.next + args.next_bytes, (args.next_bytes + n_blocks - 1) / n_blocks};
}

template <typename L>
static void attend_page_words(const AttendPageArgs& args) noexcept {
  const bool keys = is_multiplied_as_words(args.k_type);
  const bool values = is_multiplied_as_words(args.v_type);
  const WordScratch scratch = word_scratch(args);
  if (keys) make_key_words<L>(args, scratch);
  if (values) make_value_words<L>(args, scratch);
  widen_scales<L>(args, scratch.floats.scales);
  Ahead ahead = plan_words_ahead<L>(args);
  Ahead nothing = {nullptr, nullptr, 0};
  for (std::uint32_t row = 0; row < args.n_rows;) {
    const Run run = next_run(args, row);
    if (run.first >= run.last) continue;
    if (keys) {
      score_words<L>(args, run, scratch, &ahead);
    } else {
      score_run<L>(args, run, scratch.floats, &nothing);
    }
    if (values) {
      weigh_words<L>(args, run, scratch);
      add_words<L>(args, run, scratch, &ahead);
    } else {
      weigh_run<L>(args, run, scratch.floats);
      add_values<L>(args, run, scratch.floats, &nothing);
    }
  }
}

}  // namespace qsf::kernels::attend_page_internal

#endif  // QSF_KERNELS_ATTEND_ATTEND_WORDS_H_
