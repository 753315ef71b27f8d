// SPDX-License-Identifier: MIT
//
// Attention of prompt rows over one page, AMX: both products in bf16 tiles with f32 sums
// (attend_pairs_amx.h), the softmax between them in AVX-512.
//
// Sixteen queries at a time go through scores, weights and values without leaving the L1 cache.
// Queries of one block may see different slots: a hidden slot has weight 0. That hides it but for
// infinities and NaN, so where the page holds such a value each range of slots gets values of its
// own, zeros elsewhere.

#include <cstring>

#include "kernels/attend/attend_pairs_amx.h"
#include "kernels/attend/attend_variants.h"

namespace qsf::kernels {
namespace {

using namespace attend_amx_internal;
using attend_page_internal::Scratch;

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
             work.sums, kStripColumns * sizeof(float));
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
  bool alike = true;
  const AttendRange seen = seen_by_any(args, &alike);
  if (seen.first >= seen.last) return;
  const Work work = work_in(args);
  const std::uint32_t row_bytes = round_up(args.head_dim, kTileTerms) * 2;
  amx::configure(whole_tiles());
  make_key_pairs(args, work.k_pairs);
  const bool shared = make_value_pairs(args, seen, work.v_pairs) || alike;
  for (std::uint32_t block = 0; block < n_queries; block += kBlockQueries) {
    const std::uint32_t end = n_queries - block < kBlockQueries ? n_queries : block + kBlockQueries;
    multiply(args.queries + std::size_t{block} * row_bytes, row_bytes,
             reinterpret_cast<const std::byte*>(work.k_pairs), kKvPageSlots * sizeof(std::uint32_t),
             row_bytes / amx::kTileRowBytes, kStripTiles, work.weights,
             kStripColumns * sizeof(float));
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
      make_value_pairs(args, {run.first, run.last}, work.v_pairs);
      add_values(args, run, block, work);
      query += run.n_queries;
    }
  }
  amx::release();
}

}  // namespace qsf::kernels
