// SPDX-License-Identifier: MIT
//
// Attention of prompt rows by query tiles, AMX: both products in bf16 tiles with f32 sums
// (attend_pairs_amx.h). Probabilities are normalised and summed by column in f32, by the code of
// AVX-512, and rounded on their way to the values alone.

#include <cstring>

#include "kernels/attend/attend_pairs_amx.h"
#include "kernels/attend/attend_query_tile_page.h"
#include "kernels/attend/attend_variants.h"

namespace qsf::kernels {
namespace {

using namespace attend_amx_internal;

constexpr std::size_t kBlockStride = kStripColumns * sizeof(float);

// Where a call's scratch lies: for pairs of keys or of values, sums of a block, its weights in
// bf16.
struct Work {
  std::uint32_t* pairs;    // [dimensions / 2, padded to 16][kKvPageSlots], or the other way round
  float* sums;             // [kBlockQueries][kStripColumns]
  std::uint16_t* rounded;  // [kBlockQueries][kKvPageSlots]
};

Work work_in(const AttendPageArgs& args) noexcept {
  auto* pairs = reinterpret_cast<std::uint32_t*>(args.scratch);
  float* sums = reinterpret_cast<float*>(pairs + round_up(args.head_dim, kTileTerms) / 2 *
                                                     std::size_t{kKvPageSlots});
  return {pairs, sums, reinterpret_cast<std::uint16_t*>(sums + kBlockQueries * kStripColumns)};
}

// Rounds the weights of the block that begins at query `block`; rows behind the last are zeros.
void round_weights(const AttendQueryTileArgs& tile, std::uint32_t block, std::uint32_t n_queries,
                   std::uint16_t* rounded) noexcept {
  for (std::uint32_t i = 0; i < n_queries; ++i, rounded += kKvPageSlots) {
    const float* weights = tile.weights + (block + i) * tile.stride;
    for (std::uint32_t j = 0; j < kKvPageSlots; j += kTileColumns) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(rounded + j),
                          round_to_bf16(_mm512_loadu_ps(weights + j)));
    }
  }
  std::memset(rounded, 0, (kBlockQueries - n_queries) * kKvPageSlots * sizeof(*rounded));
}

// Adds the weighted values to the accumulators of a run, of the block that begins at query `block`.
void add_values(const AttendPageArgs& args, const Run& run, std::uint32_t block,
                const Work& work) noexcept {
  const std::uint32_t n_columns = round_up(args.head_dim, kTileColumns);
  for (std::uint32_t d = 0; d < n_columns; d += kStripColumns) {
    const std::uint32_t width = n_columns - d < kStripColumns ? n_columns - d : kStripColumns;
    multiply(reinterpret_cast<const std::byte*>(work.rounded), kKvPageSlots * sizeof(std::uint16_t),
             reinterpret_cast<const std::byte*>(work.pairs + d), n_columns * sizeof(std::uint32_t),
             kKvPageSlots / kTileTerms, width / kTileColumns, work.sums, kBlockStride);
    for (std::uint32_t i = 0; i < run.n_queries; ++i) {
      const float* sums = work.sums + (run.first_query - block + i) * kStripColumns;
      float* acc = args.acc + (run.first_query + i) * args.acc_stride + d;
      for (std::uint32_t c = 0; c < width; c += kTileColumns) {
        _mm512_storeu_ps(acc + c,
                         _mm512_add_ps(_mm512_loadu_ps(acc + c), _mm512_loadu_ps(sums + c)));
      }
    }
  }
}

}  // namespace

void attend_query_tile_scores_amx(const AttendQueryTileArgs& tile) noexcept {
  const AttendPageArgs& args = tile.page;
  const std::uint32_t n_queries = args.n_rows * args.n_q;
  const std::uint32_t row_bytes = round_up(args.head_dim, kTileTerms) * 2;
  bool alike = true;
  const AttendRange seen = seen_by_any(args, &alike);
  if (seen.first < seen.last) {
    const Work work = work_in(args);
    const auto* keys = reinterpret_cast<const std::byte*>(work.pairs);
    amx::configure(whole_tiles());
    make_key_pairs(args, work.pairs);
    for (std::uint32_t block = 0; block < n_queries; block += kBlockQueries) {
      const bool whole = n_queries - block >= kBlockQueries;
      float* scores = tile.weights + block * tile.stride;
      multiply(args.queries + std::size_t{block} * row_bytes, row_bytes, keys,
               kKvPageSlots * sizeof(std::uint32_t), row_bytes / amx::kTileRowBytes, kStripTiles,
               whole ? scores : work.sums, whole ? tile.stride * sizeof(float) : kBlockStride);
      for (std::uint32_t i = 0; !whole && i < n_queries - block; ++i) {
        std::memcpy(scores + i * tile.stride, work.sums + i * kStripColumns, kBlockStride);
      }
    }
    amx::release();
  }
  attend_page_internal::for_runs(tile, [&](const Run& run, const auto& scratch) {
    attend_page_internal::finish_scores<Avx512Lanes>(args, run, scratch);
  });
}

void attend_query_tile_values_amx(const AttendQueryTileArgs& tile) noexcept {
  const AttendPageArgs& args = tile.page;
  const std::uint32_t n_queries = args.n_rows * args.n_q;
  bool alike = true;
  const AttendRange seen = seen_by_any(args, &alike);
  if (seen.first >= seen.last) return;
  const Work work = work_in(args);
  amx::configure(whole_tiles());
  const bool shared = make_value_pairs(args, seen, work.pairs) || alike;
  for (std::uint32_t block = 0; block < n_queries; block += kBlockQueries) {
    const std::uint32_t end = n_queries - block < kBlockQueries ? n_queries : block + kBlockQueries;
    round_weights(tile, block, end - block, work.rounded);
    if (shared) {
      add_values(args, {block, end - block, seen.first, seen.last}, block, work);
      continue;
    }
    // An infinity or NaN that some rows see: a weight of 0 does not hide it from the others.
    for (std::uint32_t query = block; query < end;) {
      const Run run = run_from(args, query, end);
      make_value_pairs(args, {run.first, run.last}, work.pairs);
      add_values(args, run, block, work);
      query += run.n_queries;
    }
  }
  amx::release();
}

}  // namespace qsf::kernels
