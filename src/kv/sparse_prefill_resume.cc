// SPDX-License-Identifier: MIT
//
// SparsePrefillState in files: which of its bytes are kept, and whether bytes from a file can be
// believed.
//
// Where a layer stands follows from the number of positions and the chunk, so no file says it.

#include <algorithm>
#include <bit>

#include "kv/h2o_ranking.h"
#include "kv/sparse_prefill_state.h"

namespace qsf {

namespace {

template <typename T>
MutableByteSpan bytes_of_head(std::span<T> of_layer, std::uint32_t kv_head, std::size_t n_columns,
                              std::size_t first, std::size_t n) noexcept {
  return std::as_writable_bytes(of_layer.subspan(kv_head * n_columns + first, n));
}

}  // namespace

std::array<MutableByteSpan, SparsePrefillState::kSavedParts> SparsePrefillState::saved_parts(
    std::uint32_t layer, std::uint32_t kv_head) noexcept {
  const Progress& progress = progress_[layer];
  const std::uint32_t chunk = shape_.options.chunk;
  const std::uint32_t memory = shape_.memory_size();
  const std::uint32_t n_members = progress.n_members;
  const std::uint32_t n_open = progress.scored_end - progress.chunk_start;
  const std::uint32_t n_in_strip = n_open % kSparsePrefillTileRows;
  const auto strip = strip_sums(layer);
  const std::size_t strip_columns = std::size_t{chunk} + memory;
  return {bytes_of_head(scores(layer), kv_head, shape_.kv_size, 0, progress.chunk_start),
          bytes_of_head(mutable_indices(layer), kv_head, memory, 0, n_members),
          bytes_of_head(accumulators(layer), kv_head, memory, 0, n_members),
          bytes_of_head(chunk_sums(layer), kv_head, chunk, 0, n_open - n_in_strip),
          bytes_of_head(memory_sums(layer), kv_head, memory, 0, n_members),
          bytes_of_head(strip, kv_head, strip_columns, 0, n_in_strip == 0 ? 0 : n_open),
          bytes_of_head(strip, kv_head, strip_columns, chunk, n_in_strip == 0 ? 0 : n_members)};
}

bool SparsePrefillState::stands_at(std::uint32_t n_positions) const noexcept {
  const std::uint32_t chunk_start = n_positions - n_positions % shape_.options.chunk;
  const std::uint32_t n_members = chunk_start == 0 ? 0 : shape_.memory_size();
  return chunk_state_.total_tokens_processed == chunk_start &&
         std::all_of(progress_.begin(), progress_.end(), [&](const Progress& layer) {
           return layer.chunk_start == chunk_start && layer.scored_end == n_positions &&
                  layer.n_members == n_members;
         });
}

void SparsePrefillState::resume_at(std::uint32_t n_positions) noexcept {
  QSF_CHECK(is_on() && stands_at(0) && n_positions <= shape_.kv_size);
  const std::uint32_t chunk = shape_.options.chunk;
  const std::uint32_t n_chunks = n_positions / chunk;
  // Chunks are longer than a memory set, so the first one fills it.
  const Progress there = {n_chunks * chunk, n_positions, n_chunks == 0 ? 0 : shape_.memory_size()};
  std::fill(progress_.begin(), progress_.end(), there);
  for (std::uint32_t i = 0; i <= n_chunks; ++i) boundaries_[i] = i * chunk;
  chunk_state_ = {n_chunks, n_chunks * chunk, boundaries_.first(std::size_t{n_chunks} + 1)};
}

Status SparsePrefillState::check_members(std::uint32_t layer, std::uint32_t kv_head) {
  const SparsePrefillOptions& options = shape_.options;
  const auto indices = members(layer, kv_head);
  const std::uint32_t local_start = progress_[layer].chunk_start - options.local;
  for (std::uint32_t m = 0; m < indices.size(); ++m) {
    const auto position = static_cast<std::uint32_t>(indices[m]);
    std::uint32_t least = m == 0 ? 0 : static_cast<std::uint32_t>(indices[m - 1]) + 1;
    std::uint32_t most = local_start - 1;
    if (m < options.sinks) least = most = m;
    if (m >= options.heavy) least = most = local_start + (m - options.heavy);
    if (position >= least && position <= most) continue;
    return corrupt("layer %u, head %u: member %u is position %d, expected %u to %u", layer, kv_head,
                   m, indices[m], least, most);
  }
  const BF16* const of_head = scores(layer).data() + std::size_t{kv_head} * shape_.kv_size;
  const float* const totals =
      accumulators(layer).data() + std::size_t{kv_head} * shape_.memory_size();
  for (std::uint32_t m = 0; m < indices.size(); ++m) {
    const float score = to_f32(of_head[indices[m]]);
    if (score == to_f32(to_bf16(totals[m]))) continue;
    return corrupt("layer %u, head %u: position %d has the score %g, expected its sum %g rounded",
                   layer, kv_head, indices[m], static_cast<double>(score),
                   static_cast<double>(totals[m]));
  }
  return ok_status();
}

Status SparsePrefillState::check_sums(std::uint32_t layer, std::uint32_t kv_head) {
  const auto parts = saved_parts(layer, kv_head);
  for (std::size_t part = 0; part < kSavedParts; ++part) {
    if (part == 1) continue;  // indices
    const std::size_t size = part == 0 ? sizeof(BF16) : sizeof(float);
    for (std::size_t at = 0; at < parts[part].size(); at += size) {
      const float sum = part == 0 ? to_f32(BF16{load_le<std::uint16_t>(parts[part], at)})
                                  : std::bit_cast<float>(load_le<std::uint32_t>(parts[part], at));
      if (is_attention_sum(sum)) continue;
      return corrupt("layer %u, head %u: %g as a sum of attention, expected 0 or more", layer,
                     kv_head, static_cast<double>(sum));
    }
  }
  return ok_status();
}

Status SparsePrefillState::check_resumed() {
  for (std::uint32_t layer = 0; layer < shape_.n_layers; ++layer) {
    for (std::uint32_t kv_head = 0; kv_head < shape_.n_kv_heads; ++kv_head) {
      QSF_RETURN_IF_ERROR(check_sums(layer, kv_head));
      QSF_RETURN_IF_ERROR(check_members(layer, kv_head));
    }
  }
  return ok_status();
}

}  // namespace qsf
