// SPDX-License-Identifier: MIT
//
// Scores, accumulators and memory sets of every layer in one planned region.

#include "kv/sparse_prefill_state.h"

#include <algorithm>
#include <functional>

#include "base/bit_cast.h"
#include "kv/h2o_common.h"
#include "kv/kv_block.h"

namespace qsf {
namespace {

// Boundaries of chunks of which only the last is shorter than S.
std::uint64_t max_boundaries(const SparsePrefillShape& shape) noexcept {
  return ceil_div(shape.kv_size, shape.options.chunk) + 1;
}

template <typename T>
std::span<T> array_at(MutableByteSpan region, std::uint64_t offset, std::uint64_t n) noexcept {
  return {reinterpret_cast<T*>(region.data() + offset), static_cast<std::size_t>(n)};
}

// Members that are added to at once, in registers.
constexpr std::uint32_t kAddBlock = 64;

// Adds `sums` to `totals`, and stores these rounded at their positions. A constant `n` lets the
// compiler take vectors.
// Requires  n <= kAddBlock
[[gnu::always_inline]] inline void add_and_round(float* totals, const float* sums,
                                                 const std::int32_t* positions, BF16* scores,
                                                 std::uint32_t n) noexcept {
  float total[kAddBlock];
  std::uint32_t rounded[kAddBlock];
  std::uint32_t beyond_infinity = 0;  // bit 31
  for (std::uint32_t i = 0; i < n; ++i) total[i] = totals[i] + sums[i];
  for (std::uint32_t i = 0; i < n; ++i) totals[i] = total[i];
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::uint32_t bits = bit_cast<std::uint32_t>(total[i]);
    rounded[i] = bits + 0x7FFFU + (bits >> 16 & 1U);
    beyond_infinity |= 0x7F800000U - (bits & 0x7FFFFFFFU);
  }
  if (beyond_infinity >> 31 != 0) [[unlikely]] {  // a NaN, whose bits may not be rounded
    for (std::uint32_t i = 0; i < n; ++i) scores[positions[i]] = to_bf16(total[i]);
    return;
  }
  const auto narrowed = [&rounded](std::uint32_t i) {
    return static_cast<std::uint16_t>(rounded[i] >> 16);
  };
  if (n == kAddBlock && positions[n - 1] - positions[0] == static_cast<std::int32_t>(n) - 1) {
    BF16* neighbours = scores + positions[0];  // most of the local window
    for (std::uint32_t i = 0; i < n; ++i) neighbours[i].bits = narrowed(i);
    return;
  }
  for (std::uint32_t i = 0; i < n; ++i) scores[positions[i]].bits = narrowed(i);
}

template <typename T>
MutableByteSpan bytes_of_head(std::span<T> of_layer, std::uint32_t kv_head, std::size_t n_columns,
                              std::size_t first, std::size_t n) noexcept {
  return std::as_writable_bytes(of_layer.subspan(kv_head * n_columns + first, n));
}

}  // namespace

SparsePrefillState::Layout SparsePrefillState::layout_of(const SparsePrefillShape& shape) noexcept {
  const std::uint64_t n_heads = shape.n_kv_heads;
  const std::uint64_t chunk = shape.options.chunk;
  const std::uint64_t memory = std::uint64_t{shape.options.local} + shape.options.heavy;
  Layout at{};
  at.memory_indices = offset_behind(0, n_heads, shape.kv_size, sizeof(BF16));
  at.accumulators = offset_behind(at.memory_indices, n_heads, memory, sizeof(std::int32_t));
  at.chunk_sums = offset_behind(at.accumulators, n_heads, memory, sizeof(float));
  at.memory_sums = offset_behind(at.chunk_sums, n_heads, chunk, sizeof(float));
  at.tile_sums = offset_behind(at.memory_sums, n_heads, memory, sizeof(float));
  at.layer_bytes = offset_behind(at.tile_sums, n_heads, chunk + memory, sizeof(float));
  at.progress = offset_behind(0, shape.n_layers, at.layer_bytes, 1);
  at.boundaries = offset_behind(at.progress, shape.n_layers, 1, sizeof(Progress));
  at.keys = offset_behind(at.boundaries, 1, max_boundaries(shape), sizeof(std::uint32_t));
  at.end = offset_behind(at.keys, 2, chunk + memory, sizeof(std::uint64_t));
  return at;
}

std::uint64_t SparsePrefillState::region_bytes(const SparsePrefillShape& shape) noexcept {
  if (!sparse_prefill_is_on(shape.options) || shape.options.chunk == 0) return 0;
  return layout_of(shape).end;
}

Result<SparsePrefillState> SparsePrefillState::create(const SparsePrefillShape& shape,
                                                      MutableByteSpan region) {
  QSF_RETURN_IF_ERROR(validate(shape.options));
  const std::uint64_t n_bytes = region_bytes(shape);
  if (shape.n_layers == 0 || shape.n_kv_heads == 0 || shape.kv_size == 0 ||
      shape.kv_size > kMaxPolicyPositions || n_bytes >= kMaxRegionBytes) {
    return invalid_argument(
        "sparse prefill: %u layers x %u heads x %u positions: expected numbers above 0 whose "
        "products fit",
        shape.n_layers, shape.n_kv_heads, shape.kv_size);
  }
  QSF_CHECK(region.size() >= n_bytes);
  QSF_CHECK(bit_cast<std::uintptr_t>(region.data()) % 64 == 0);

  SparsePrefillState state;
  state.shape_ = shape;
  if (!state.is_on()) return state;
  state.at_ = layout_of(shape);
  state.region_ = region.first(static_cast<std::size_t>(n_bytes));
  state.progress_ = array_at<Progress>(region, state.at_.progress, shape.n_layers);
  state.boundaries_ = array_at<std::uint32_t>(region, state.at_.boundaries, max_boundaries(shape));
  state.keys_ = array_at<std::uint64_t>(
      region, state.at_.keys, 2 * (std::uint64_t{shape.options.chunk} + shape.memory_size()));
  state.clear_all();
  return state;
}

// No position, no memory set, zeros everywhere but in the indices.
void SparsePrefillState::clear_all() noexcept {
  std::fill(region_.begin(), region_.end(), std::byte{0});
  for (std::uint32_t layer = 0; layer < shape_.n_layers; ++layer) {
    const auto indices = mutable_indices(layer);
    std::fill(indices.begin(), indices.end(), -1);
  }
  chunk_state_ = {};
  if (is_on()) chunk_state_.boundaries = boundaries_.first(1);
}

template <typename T>
std::span<T> SparsePrefillState::layer_array(std::uint32_t layer, std::uint64_t offset,
                                             std::uint64_t n_columns) const noexcept {
  if (!is_on()) return {};
  QSF_DCHECK(layer < shape_.n_layers);
  return array_at<T>(region_, layer * at_.layer_bytes + offset, shape_.n_kv_heads * n_columns);
}

std::span<BF16> SparsePrefillState::scores(std::uint32_t layer) noexcept {
  return layer_array<BF16>(layer, 0, shape_.kv_size);
}
std::span<std::int32_t> SparsePrefillState::mutable_indices(std::uint32_t layer) noexcept {
  return layer_array<std::int32_t>(layer, at_.memory_indices, shape_.memory_size());
}
std::span<const std::int32_t> SparsePrefillState::memory_indices(
    std::uint32_t layer) const noexcept {
  return layer_array<const std::int32_t>(layer, at_.memory_indices, shape_.memory_size());
}
std::span<float> SparsePrefillState::accumulators(std::uint32_t layer) noexcept {
  return layer_array<float>(layer, at_.accumulators, shape_.memory_size());
}
std::span<float> SparsePrefillState::chunk_sums(std::uint32_t layer) noexcept {
  return layer_array<float>(layer, at_.chunk_sums, shape_.options.chunk);
}
std::span<float> SparsePrefillState::memory_sums(std::uint32_t layer) noexcept {
  return layer_array<float>(layer, at_.memory_sums, shape_.memory_size());
}
std::span<float> SparsePrefillState::tile_sums(std::uint32_t layer) noexcept {
  return layer_array<float>(layer, at_.tile_sums,
                            std::uint64_t{shape_.options.chunk} + shape_.memory_size());
}

std::span<const std::int32_t> SparsePrefillState::members(std::uint32_t layer,
                                                          std::uint32_t kv_head) const noexcept {
  if (!is_on()) return {};
  QSF_DCHECK(kv_head < shape_.n_kv_heads);
  return memory_indices(layer).subspan(std::size_t{kv_head} * shape_.memory_size(),
                                       progress_[layer].n_members);
}

std::uint32_t SparsePrefillState::chunk_start(std::uint32_t layer) const noexcept {
  QSF_DCHECK(layer < progress_.size());
  return progress_[layer].chunk_start;
}
std::uint32_t SparsePrefillState::scored_end(std::uint32_t layer) const noexcept {
  QSF_DCHECK(layer < progress_.size());
  return progress_[layer].scored_end;
}

void SparsePrefillState::mark_scored(std::uint32_t layer, std::uint32_t end) noexcept {
  QSF_CHECK(layer < progress_.size());
  Progress& progress = progress_[layer];
  QSF_CHECK(end >= progress.scored_end && end <= shape_.kv_size &&
            end - progress.chunk_start <= shape_.options.chunk);
  progress.scored_end = end;
}

Status SparsePrefillState::check_layer(const char* method, std::uint32_t layer) const {
  if (!is_on()) {
    return invalid_argument("h2o %s: local and heavy are 0, so there is no state", method);
  }
  if (layer < shape_.n_layers) return ok_status();
  return invalid_argument("h2o %s: layer %u: expected one below %u", method, layer,
                          shape_.n_layers);
}

Status SparsePrefillState::close_chunk(std::uint32_t layer) {
  QSF_RETURN_IF_ERROR(check_layer("close_chunk", layer));
  const Progress progress = progress_[layer];
  const std::uint32_t chunk_len = progress.scored_end - progress.chunk_start;
  if (chunk_len == 0) {
    return invalid_argument("h2o close_chunk: layer %u has no query of the chunk at %u", layer,
                            progress.chunk_start);
  }
  if (progress.n_members != 0) {
    QSF_RETURN_IF_ERROR(accumulate_memory_scores(layer, memory_sums(layer)));
  }
  for (std::uint32_t kv_head = 0; kv_head < shape_.n_kv_heads; ++kv_head) {
    store_scores(layer, kv_head,
                 chunk_sums(layer).subspan(std::size_t{kv_head} * shape_.options.chunk, chunk_len));
  }
  return build_memory_set(layer, progress.scored_end);
}

// Rounds the column sums of a head's current chunk.
void SparsePrefillState::store_scores(std::uint32_t layer, std::uint32_t kv_head,
                                      std::span<const float> column_sums) noexcept {
  BF16* to =
      scores(layer).data() + std::size_t{kv_head} * shape_.kv_size + progress_[layer].chunk_start;
  for (std::size_t i = 0; i < column_sums.size(); ++i) to[i] = to_bf16(column_sums[i]);
}

Status SparsePrefillState::init_chunk_scores(std::uint32_t layer, std::uint32_t chunk_start,
                                             std::uint32_t chunk_len,
                                             std::span<const float> column_sums) {
  QSF_RETURN_IF_ERROR(check_layer("init_chunk_scores", layer));
  Progress& progress = progress_[layer];
  if (chunk_start != progress.chunk_start || chunk_len == 0 || chunk_len > shape_.options.chunk ||
      chunk_len > shape_.kv_size - chunk_start) {
    return invalid_argument(
        "h2o init_chunk_scores: %u positions from %u: layer %u expects 1 to %u from %u, of %u in "
        "all",
        chunk_len, chunk_start, layer, shape_.options.chunk, progress.chunk_start, shape_.kv_size);
  }
  if (column_sums.size() != std::size_t{shape_.n_kv_heads} * chunk_len) {
    return invalid_argument("h2o init_chunk_scores: %zu column sums: expected %u heads x %u",
                            column_sums.size(), shape_.n_kv_heads, chunk_len);
  }
  for (std::uint32_t kv_head = 0; kv_head < shape_.n_kv_heads; ++kv_head) {
    store_scores(layer, kv_head, column_sums.subspan(std::size_t{kv_head} * chunk_len, chunk_len));
  }
  progress.scored_end = std::max(progress.scored_end, chunk_start + chunk_len);
  return ok_status();
}

Status SparsePrefillState::accumulate_memory_scores(std::uint32_t layer,
                                                    std::span<const float> column_sums) {
  QSF_RETURN_IF_ERROR(check_layer("accumulate_memory_scores", layer));
  const std::uint32_t memory = shape_.memory_size();
  if (column_sums.size() != std::size_t{shape_.n_kv_heads} * memory) {
    return invalid_argument("h2o accumulate_memory_scores: %zu column sums: expected %u heads x %u",
                            column_sums.size(), shape_.n_kv_heads, memory);
  }
  const std::uint32_t n_members = progress_[layer].n_members;
  if (n_members == 0) {
    return invalid_argument(
        "h2o accumulate_memory_scores: layer %u has no memory set: build one first", layer);
  }
  for (std::uint32_t kv_head = 0; kv_head < shape_.n_kv_heads; ++kv_head) {
    const std::size_t first = std::size_t{kv_head} * memory;
    const float* sums = column_sums.data() + first;
    const std::int32_t* positions = memory_indices(layer).data() + first;
    float* totals = accumulators(layer).data() + first;
    BF16* to = scores(layer).data() + std::size_t{kv_head} * shape_.kv_size;
    std::uint32_t m = 0;
    for (; m + kAddBlock <= n_members; m += kAddBlock) {
      add_and_round(totals + m, sums + m, positions + m, to, kAddBlock);
    }
    add_and_round(totals + m, sums + m, positions + m, to, n_members - m);
  }
  return ok_status();
}

Status SparsePrefillState::build_memory_set(std::uint32_t layer, std::uint32_t chunk_end) {
  QSF_RETURN_IF_ERROR(check_layer("build_memory_set", layer));
  Progress& progress = progress_[layer];
  if (chunk_end <= progress.chunk_start || chunk_end > shape_.kv_size ||
      chunk_end - progress.chunk_start > shape_.options.chunk) {
    return invalid_argument(
        "h2o build_memory_set: a chunk that ends at %u: layer %u expects 1 to %u positions from "
        "%u, of %u in all",
        chunk_end, layer, shape_.options.chunk, progress.chunk_start, shape_.kv_size);
  }
  std::uint32_t n_members = 0;
  for (std::uint32_t kv_head = 0; kv_head < shape_.n_kv_heads; ++kv_head) {
    n_members = build_head(layer, kv_head, chunk_end);
  }
  clear_current_chunk(layer);
  progress = {chunk_end, chunk_end, n_members};
  return ok_status();
}

// Writes keys of all positions that may become heavy members, in ascending order of positions, to
// the first half of keys_. Returns how many.
std::size_t SparsePrefillState::rank_candidates(std::uint32_t layer, std::uint32_t kv_head,
                                                std::uint32_t chunk_end,
                                                std::uint32_t local_start) noexcept {
  const SparsePrefillOptions& options = shape_.options;
  const auto key_of = [&options, chunk_end](float sum, std::uint32_t position) {
    if (position < options.sinks) return h2o_sink_key(position);
    return h2o_rank_key(h2o_rank(options.ranking, sum, position, chunk_end), position);
  };
  std::size_t n = 0;
  const auto old_members = members(layer, kv_head);
  const float* totals = accumulators(layer).data() + std::size_t{kv_head} * shape_.memory_size();
  for (std::size_t m = 0; m < old_members.size(); ++m) {
    const auto position = static_cast<std::uint32_t>(old_members[m]);
    if (position >= local_start) break;
    keys_[n++] = key_of(totals[m], position);
  }
  const BF16* chunk_scores = scores(layer).data() + std::size_t{kv_head} * shape_.kv_size;
  for (std::uint32_t position = chunk_start(layer); position < local_start; ++position) {
    keys_[n++] = key_of(to_f32(chunk_scores[position]), position);
  }
  return n;
}

// Returns the number of members.
std::uint32_t SparsePrefillState::build_head(std::uint32_t layer, std::uint32_t kv_head,
                                             std::uint32_t chunk_end) noexcept {
  const std::uint32_t n_local = shape_.options.local;
  const std::uint32_t n_heavy = shape_.options.heavy;
  const std::uint32_t local_start = chunk_end > n_local ? chunk_end - n_local : 0;
  const std::size_t n_candidates = rank_candidates(layer, kv_head, chunk_end, local_start);
  std::uint64_t least_key = 0;
  if (n_heavy == 0) {
    least_key = UINT64_MAX;  // a sink's, and without heavy positions there are no sinks
  } else if (n_candidates > n_heavy) {
    const auto ordered = keys_.subspan(keys_.size() / 2, n_candidates);
    std::copy_n(keys_.begin(), n_candidates, ordered.begin());
    const auto last = ordered.begin() + (n_heavy - 1);
    std::nth_element(ordered.begin(), last, ordered.end(), std::greater<>());
    least_key = *last;
  }

  // In ascending order, over the old set: never more is written of it than was read.
  const std::uint32_t memory = shape_.memory_size();
  std::int32_t* indices = mutable_indices(layer).data() + std::size_t{kv_head} * memory;
  float* totals = accumulators(layer).data() + std::size_t{kv_head} * memory;
  const std::uint64_t* key = keys_.data();
  std::uint32_t n = 0;
  const auto take = [&](std::uint32_t position, float total) {
    if (position < local_start && *key++ < least_key) return;
    indices[n] = static_cast<std::int32_t>(position);
    totals[n++] = total;
  };
  for (std::uint32_t m = 0; m < progress_[layer].n_members; ++m) {
    take(static_cast<std::uint32_t>(indices[m]), totals[m]);
  }
  const BF16* chunk_scores = scores(layer).data() + std::size_t{kv_head} * shape_.kv_size;
  for (std::uint32_t position = chunk_start(layer); position < chunk_end; ++position) {
    take(position, to_f32(chunk_scores[position]));
  }
  std::fill(indices + n, indices + memory, -1);
  std::fill(totals + n, totals + memory, 0.0F);
  return n;
}

void SparsePrefillState::clear_current_chunk(std::uint32_t layer) noexcept {
  for (const auto sums : {chunk_sums(layer), memory_sums(layer), tile_sums(layer)}) {
    std::fill(sums.begin(), sums.end(), 0.0F);
  }
}

void SparsePrefillState::gather_k_memory(std::uint32_t layer, std::uint32_t kv_head,
                                         const KvShape& kv, const KvLayerPages& pages,
                                         std::span<const std::uint32_t> sequence_pages,
                                         MutableByteSpan blocks) const {
  gather_rows(kv, KvPart::kKeys, kv_head, pages, sequence_pages, members(layer, kv_head), blocks);
}
void SparsePrefillState::gather_v_memory(std::uint32_t layer, std::uint32_t kv_head,
                                         const KvShape& kv, const KvLayerPages& pages,
                                         std::span<const std::uint32_t> sequence_pages,
                                         MutableByteSpan blocks) const {
  gather_rows(kv, KvPart::kValues, kv_head, pages, sequence_pages, members(layer, kv_head), blocks);
}

Status SparsePrefillState::next_chunk(std::uint32_t chunk_len) {
  QSF_RETURN_IF_ERROR(check_layer("next_chunk", 0));
  const std::uint32_t chunk = shape_.options.chunk;
  const std::uint32_t total = chunk_state_.total_tokens_processed;
  if (chunk_len == 0 || chunk_len > chunk || chunk_len > shape_.kv_size - total) {
    return invalid_argument("h2o next_chunk: %u positions after %u: expected 1 to %u, of %u in all",
                            chunk_len, total, chunk, shape_.kv_size);
  }
  if (total % chunk != 0) {
    return invalid_argument(
        "h2o next_chunk: the chunk before ended at %u, short of a multiple of %u, and was the last",
        total, chunk);
  }
  chunk_state_.total_tokens_processed = total + chunk_len;
  boundaries_[++chunk_state_.current_chunk_index] = total + chunk_len;
  chunk_state_.boundaries = boundaries_.first(std::size_t{chunk_state_.current_chunk_index} + 1);
  return ok_status();
}

bool SparsePrefillState::is_memory_initialized() const noexcept {
  return is_on() && std::all_of(progress_.begin(), progress_.end(),
                                [](const Progress& layer) { return layer.n_members != 0; });
}
bool SparsePrefillState::is_memory_initialized(std::uint32_t layer) const noexcept {
  return is_on() && progress_[layer].n_members != 0;
}

std::uint32_t SparsePrefillState::truncate(std::uint32_t n_positions) noexcept {
  if (!is_on()) return n_positions;
  const auto by_end = [](const Progress& a, const Progress& b) {
    return a.scored_end < b.scored_end;
  };
  const auto [least, most] = std::minmax_element(progress_.begin(), progress_.end(), by_end);
  // After an incomplete pass the layers differ; the smallest end is common to all.
  std::uint32_t keep = n_positions;
  if (least->scored_end != most->scored_end) keep = std::min(keep, least->scored_end);
  for (bool settled = false; !settled;) {
    settled = true;
    for (const Progress& layer : progress_) {
      if (layer.scored_end <= keep || layer.chunk_start == keep) continue;
      keep = layer.chunk_start < keep ? layer.chunk_start : 0;
      settled = false;
      if (keep == 0) break;
    }
    if (keep == 0) break;
  }
  if (keep == 0) {
    clear_all();
    return 0;
  }
  for (std::uint32_t layer = 0; layer < shape_.n_layers; ++layer) {
    Progress& progress = progress_[layer];
    if (progress.scored_end <= keep) continue;
    clear_current_chunk(layer);
    for (std::uint32_t kv_head = 0; kv_head < shape_.n_kv_heads; ++kv_head) {
      const auto of_head =
          scores(layer).subspan(std::size_t{kv_head} * shape_.kv_size, shape_.kv_size);
      std::fill(of_head.begin() + keep, of_head.begin() + progress.scored_end, BF16{0});
    }
    progress.scored_end = keep;
  }
  return keep;
}

std::vector<SparsePrefillBuffer> SparsePrefillState::buffers() {
  std::vector<SparsePrefillBuffer> all;
  const auto add = [&all](const char* name, std::uint32_t layer, auto array) {
    all.push_back({name + std::to_string(layer), std::as_writable_bytes(array)});
  };
  if (!is_on()) return all;
  for (std::uint32_t layer = 0; layer < shape_.n_layers; ++layer) {
    add("h2o_scores_l", layer, scores(layer));
    add("h2o_mem_idx_l", layer, mutable_indices(layer));
    add("h2o_mem_acc_l", layer, accumulators(layer));
    add("h2o_chunk_sum_l", layer, chunk_sums(layer));
    add("h2o_mem_sum_l", layer, memory_sums(layer));
    add("h2o_tile_sum_l", layer, tile_sums(layer));
  }
  return all;
}

// Session files. Where a layer stands follows from the number of positions, so no file holds it.

std::array<MutableByteSpan, SparsePrefillState::kSavedParts> SparsePrefillState::saved_parts(
    std::uint32_t layer, std::uint32_t kv_head) noexcept {
  const Progress& progress = progress_[layer];
  const std::uint32_t chunk = shape_.options.chunk;
  const std::uint32_t memory = shape_.memory_size();
  const std::uint32_t n_members = progress.n_members;
  const std::uint32_t n_open = progress.scored_end - progress.chunk_start;
  const std::uint32_t n_in_tile = n_open % kSparsePrefillTileRows;
  const auto tile = tile_sums(layer);
  const std::size_t tile_columns = std::size_t{chunk} + memory;
  return {bytes_of_head(scores(layer), kv_head, shape_.kv_size, 0, progress.chunk_start),
          bytes_of_head(mutable_indices(layer), kv_head, memory, 0, n_members),
          bytes_of_head(accumulators(layer), kv_head, memory, 0, n_members),
          bytes_of_head(chunk_sums(layer), kv_head, chunk, 0, n_open - n_in_tile),
          bytes_of_head(memory_sums(layer), kv_head, memory, 0, n_members),
          bytes_of_head(tile, kv_head, tile_columns, 0, n_in_tile == 0 ? 0 : n_open),
          bytes_of_head(tile, kv_head, tile_columns, chunk, n_in_tile == 0 ? 0 : n_members)};
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
                                  : bit_cast<float>(load_le<std::uint32_t>(parts[part], at));
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
