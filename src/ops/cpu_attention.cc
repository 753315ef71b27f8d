// SPDX-License-Identifier: MIT
//
// Attention over the paged cache. Positions are visited in spans of 512 slots and, inside a span,
// page by page; the spans' online softmax states are merged in ascending order. The cut is the same
// for prompt and decode rows, at any number of rows and threads, and so are the bits.
//
// Prompt rows go in tiles, as many rows of one sequence as make the kernel's tile with the query
// heads of a KV head: each page is read once a tile. Generated and drafted rows go in tiles of up
// to 16 rows of one sequence, cut into their spans, because such rows are few and their contexts
// long.
//
// Drafted rows of a tree skip the slots of other branches. Behind the prefix that they share, each
// reads copies of its path's slots, placed as they are once the path is accepted, so that it has
// the bits of a row of plain text.

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "kernels/kv_rows/key_values.h"
#include "kernels/kv_rows/kv_store.h"
#include "kv/kv_block.h"
#include "ops/cpu_backend.h"

namespace qsf {
namespace {

using kernels::AttendKernel;
using kernels::AttendState;

static_assert(kMaxHeadDim == kernels::kMaxHeadDim);

constexpr std::uint32_t kMaxTileRows = 512;  // their ranges lie on the stack, 14 KiB
constexpr std::uint32_t kMaxDecodeTileRows = 16;
constexpr std::uint32_t kStoreRowsWorthAFork = 8;
constexpr std::uint32_t kStoreChunks = 4;  // of a head's pages, for each worker
// Chunks of decode items per worker: few, since a chunk's pages follow one another in the cache,
// where each next page is fetched ahead.
constexpr std::size_t kDecodeChunks = 4;

// Floats from one accumulator to the next.
std::size_t acc_stride_of(std::uint32_t head_dim) {
  return align_up(head_dim, std::size_t{16});
}

std::size_t state_bytes(std::size_t n_queries) {
  return align_up(n_queries * sizeof(AttendState), std::size_t{kLineBytes});
}

std::size_t partial_bytes(std::size_t n_queries, std::uint32_t head_dim) {
  return state_bytes(n_queries) + n_queries * acc_stride_of(head_dim) * sizeof(float);
}

std::uint32_t group_of(const PassLimits& limits) {
  return limits.n_heads / limits.n_kv_heads;
}

std::uint32_t tile_rows_of(const PassLimits& limits, const AttendKernel& kernel) {
  const std::uint32_t most = std::min(kMaxTileRows, limits.max_rows);
  return std::clamp(kernel.tile_queries / group_of(limits), 1U, most);
}

std::uint32_t decode_tile_rows_of(const PassLimits& limits, const AttendKernel& prompt_kernel) {
  if (!limits.drafts.has_value()) return 1;
  const std::uint32_t most = std::min(kMaxDecodeTileRows, limits.drafts->max_drafts + 1);
  return std::min(most, tile_rows_of(limits, prompt_kernel));  // whose working memory they use
}

// Most spans that a tile of `n_rows` decode rows attends to.
std::uint32_t decode_tile_spans(const PassLimits& limits, std::uint32_t n_rows) {
  const std::uint32_t all = n_spans(limits.max_context);
  if (limits.window == 0) return all;
  return std::min(all, n_spans(limits.sinks) + most_spans(limits.window + n_rows - 1));
}

// Bytes of a K and a V block and their positions.
std::size_t path_page_bytes(const PassLimits& limits) {
  if (!limits.drafts.has_value()) return 0;
  const std::uint64_t v_bytes =
      limits.keys_are_values ? 0 : kv_block_bytes(limits.drafts->v_type, limits.head_dim);
  return static_cast<std::size_t>(kv_block_bytes(limits.drafts->k_type, limits.head_dim) +
                                  v_bytes) +
         kKvPageSlots * sizeof(std::int32_t);
}

// Bytes of the values of a page, where keys are values.
std::size_t widened_bytes(const PassLimits& limits) {
  return limits.keys_are_values ? std::size_t{kKvPageSlots} * limits.head_dim * sizeof(float) : 0;
}

// Bytes of one worker's AttendWork.
std::size_t work_bytes(const PassLimits& limits, const AttendKernel& kernel) {
  const std::size_t n_queries = std::size_t{tile_rows_of(limits, kernel)} * group_of(limits);
  const std::size_t query_bytes = kernels::attend_query_bytes(n_queries, limits.head_dim);
  return query_bytes + (limits.rope_reindex ? query_bytes : 0) +
         kernels::attend_scratch_bytes(n_queries, limits.head_dim) +
         2 * partial_bytes(n_queries, limits.head_dim) + widened_bytes(limits) +
         path_page_bytes(limits);
}

// The limits of a pass through layers with such heads alone.
PassLimits with_heads(PassLimits limits, const KvHeads& heads) {
  limits.n_kv_heads = heads.n_kv_heads;
  limits.head_dim = heads.head_dim;
  limits.heads_by_layer = {};
  return limits;
}

// Returns the most bytes that `bytes_of` has for any layer.
template <typename BytesOf>
std::uint64_t most_of_layers(const PassLimits& limits, const BytesOf& bytes_of) {
  if (limits.heads_by_layer.empty()) return bytes_of(limits);
  std::uint64_t most = 0;
  for (const KvHeads& heads : limits.heads_by_layer) {
    most = std::max<std::uint64_t>(most, bytes_of(with_heads(limits, heads)));
  }
  return most;
}

std::uint64_t most_work_bytes(const PassLimits& limits, const AttendKernel& kernel) {
  return most_of_layers(
      limits, [&kernel](const PassLimits& of_layer) { return work_bytes(of_layer, kernel); });
}

std::size_t angle_bytes(const PassLimits& limits) {
  return align_up(
      std::size_t{limits.n_rotations} * limits.max_rows * (limits.rope_dims / 2) * sizeof(float),
      std::size_t{kLineBytes});
}

// Of the cache position behind the sinks.
std::size_t sink_angle_bytes(const PassLimits& limits) {
  if (!limits.rope_reindex) return 0;
  return align_up(std::size_t{limits.n_rotations} * (limits.rope_dims / 2) * sizeof(float),
                  std::size_t{kLineBytes});
}

// Returns the slots that any row of a tile attends to, from the first to the last of each range.
VisibleRanges visible_to_all(const VisibleRanges* seen, std::uint32_t n_rows) {
  VisibleRanges all = seen[0];
  for (std::uint32_t i = 1; i < n_rows; ++i) {
    for (std::uint32_t r = 0; r < kMaxVisibleRanges; ++r) all[r] = hull(all[r], seen[i][r]);
  }
  return all;
}

// Returns the slots of a range that lie in the page from `page_first` on, counted from there.
SlotRange in_page(SlotRange range, std::uint32_t page_first) {
  const SlotRange seen = intersect(range, {page_first, page_first + kKvPageSlots});
  if (is_empty(seen)) return {0, 0};
  return {seen.first - page_first, seen.last - page_first};
}

// A page of a visible range of a tile.
struct PageVisit {
  std::uint32_t range;
  std::uint32_t page_first;  // slot
};

// The pages of one span, range by range: so each row visits its slots in ascending order.
class PageVisits {
 public:
  explicit PageVisits(const VisibleRanges& seen) noexcept {
    for (std::uint32_t r = 0; r < kMaxVisibleRanges; ++r) {
      const std::uint32_t first = seen[r].first / kKvPageSlots * kKvPageSlots;
      for (std::uint32_t slot = first; !is_empty(seen[r]) && slot < seen[r].last;
           slot += kKvPageSlots) {
        visits_[n_++] = {r, slot};
      }
    }
  }
  std::uint32_t n() const noexcept { return n_; }
  const PageVisit& operator[](std::uint32_t i) const noexcept { return visits_[i]; }

 private:
  std::array<PageVisit, std::size_t{kMaxVisibleRanges} * kSpanSlots / kKvPageSlots> visits_;
  std::uint32_t n_ = 0;
};

}  // namespace

std::size_t CpuBackend::acc_stride() const noexcept {
  return acc_stride_of(layer_limits_.head_dim);
}

CpuBackend::AttendWork CpuBackend::work_of(unsigned worker) const noexcept {
  const AttendKernel& kernel = attend_prompt_;
  const std::size_t n_queries = std::size_t{tile_rows_of(layer_limits_, kernel)} * group_size();
  const std::size_t query_bytes = kernels::attend_query_bytes(n_queries, layer_limits_.head_dim);
  std::byte* queries = attend_memory_ + worker * work_bytes(layer_limits_, kernel);
  std::byte* sink_queries = limits_.rope_reindex ? queries + query_bytes : queries;
  std::byte* scratch = sink_queries + query_bytes;
  std::byte* span = scratch + kernels::attend_scratch_bytes(n_queries, layer_limits_.head_dim);
  std::byte* total = span + partial_bytes(n_queries, layer_limits_.head_dim);
  const auto partial_at = [&](std::byte* at) {
    return Partial{reinterpret_cast<AttendState*>(at),
                   reinterpret_cast<float*>(at + state_bytes(n_queries))};
  };
  std::byte* const values = total + partial_bytes(n_queries, layer_limits_.head_dim);
  return {queries,
          sink_queries,
          scratch,
          partial_at(span),
          partial_at(total),
          reinterpret_cast<float*>(values),
          values + widened_bytes(layer_limits_)};
}

std::uint64_t CpuBackend::kv_bytes(const KvShape& shape, std::uint32_t n_pages) const noexcept {
  return ResidentKvStore::region_bytes(shape, n_pages);
}

void CpuBackend::attach_kv(KvPageStore& store) {
  kv_store_ = &store;
  kv_shapes_ = store.shape();
  kv_shape_ = kv_shapes_.of_layer(0);
}

std::uint64_t CpuBackend::attention_scratch_bytes(const PassLimits& limits) const noexcept {
  const std::uint64_t n_angle_bytes = 2 * (angle_bytes(limits) + sink_angle_bytes(limits));
  if (limits.h2o_eviction.has_value()) return n_angle_bytes;  // every row goes through sparse
  return n_angle_bytes + pool_.n_threads() * most_work_bytes(limits, attend_prompt_) +
         most_of_layers(limits, [this](const PassLimits& of_layer) {
           const std::uint32_t n_spans_of_tile =
               decode_tile_spans(of_layer, decode_tile_rows_of(of_layer, attend_prompt_));
           const std::uint64_t n_decode_partials =
               std::uint64_t{of_layer.max_decode_rows} * of_layer.n_kv_heads * n_spans_of_tile;
           return n_decode_partials * partial_bytes(group_of(of_layer), of_layer.head_dim);
         });
}

void CpuBackend::attach_attention_scratch(MutableByteSpan memory) {
  cos_ = reinterpret_cast<float*>(memory.data());
  sin_ = reinterpret_cast<float*>(memory.data() + angle_bytes(limits_));
  std::byte* place = memory.data() + 2 * angle_bytes(limits_);
  sink_cos_ = reinterpret_cast<float*>(place);
  sink_sin_ = reinterpret_cast<float*>(place + sink_angle_bytes(limits_));
  attend_memory_ = place + 2 * sink_angle_bytes(limits_);
  decode_partials_ = attend_memory_ + pool_.n_threads() * most_work_bytes(limits_, attend_prompt_);
  decode_tiles_.reserve(std::size_t{limits_.max_decode_rows} + 1);
}

// Takes the pages of a layer and the numbers of its heads.
void CpuBackend::enter_layer(std::uint32_t layer) {
  kv_pages_ = kv_store_->acquire_layer(layer);
  if (kv_shapes_.by_layer.empty()) return;
  kv_shape_ = kv_shapes_.of_layer(layer);
  layer_limits_ = with_heads(limits_, kv_shapes_.by_layer[layer]);
}

std::byte* CpuBackend::kv_block(std::uint32_t page, std::uint32_t kv_head,
                                KvPart part) const noexcept {
  return kv_pages_.page(page) + kv_shape_.block_offset(kv_head, part);
}

// Stores the rows of one head whose page is number `part` of n_parts.
void CpuBackend::store_kv_rows(std::uint32_t kv_head, std::uint32_t part, std::uint32_t n_parts,
                               const Matrix& keys, const Matrix& values) {
  const kernels::KvStore store = {kernels_.convert, kernels_.kv_rows};
  const std::uint32_t head_dim = kv_shape_.head_dim;
  const std::size_t column = std::size_t{kv_head} * head_dim;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const std::uint32_t page = kv_->page_of(rows_[i].sequence, rows_[i].kv_slot);
    if (page % n_parts != part) continue;
    const std::uint32_t slot = rows_[i].kv_slot % kKvPageSlots;
    kernels::store_key(store, kv_shape_.k_type, keys.row(i) + column,
                       kv_block(page, kv_head, KvPart::kKeys), slot, head_dim);
    if (!kv_shape_.holds(KvPart::kValues)) continue;
    kernels::store_value(store, kv_shape_.v_type, values.row(i) + column,
                         kv_block(page, kv_head, KvPart::kValues), slot, head_dim);
  }
}

// Many rows are shared out by head and page: slots of a page share lines of every dimension of a
// key, in 4 bits even bytes, which two workers must not write.
void CpuBackend::store_kv(std::uint32_t layer, Buffer k, Buffer v) {
  const bool floats = kv_shape_.k_type == KvType::kF16 || kv_shape_.k_type == KvType::kF32;
  Observation observed(*this, OperatorKind::kStoreKv, k, v,
                       floats ? kernels_.convert.name : kernels_.kv_rows.name);
  observed.set_layer(layer);
  const OperatorTimer timer(profile_[OperatorKind::kStoreKv]);
  enter_layer(layer);
  if (kv_pages_.base == nullptr) return;  // cancelled
  const Matrix& keys = matrix(k);
  const Matrix& values = matrix(v);
  const auto n_rows = static_cast<std::uint32_t>(rows_.size());
  if (n_rows < kStoreRowsWorthAFork) {
    for (std::uint32_t head = 0; head < kv_shape_.n_kv_heads; ++head) {
      store_kv_rows(head, 0, 1, keys, values);
    }
    return;
  }
  const std::uint32_t n_parts =
      std::min(kv_pages_for(n_rows), std::uint32_t{pool_.n_threads()} * kStoreChunks);
  const std::size_t n_items = std::size_t{n_parts} * kv_shape_.n_kv_heads;
  pool_.parallel_for(n_items, 1, [&](std::size_t begin, std::size_t end, unsigned) {
    for (std::size_t item = begin; item < end; ++item) {
      store_kv_rows(static_cast<std::uint32_t>(item % kv_shape_.n_kv_heads),
                    static_cast<std::uint32_t>(item / kv_shape_.n_kv_heads), n_parts, keys, values);
    }
  });
}

void CpuBackend::copy_page(std::uint32_t from_page, std::uint32_t to_page) {
  kv_store_->copy_page(from_page, to_page);
}

void CpuBackend::move_rows(std::span<const RowMove> moves) {
  kv_store_->move_rows(moves);
}

// The kernel that the pass's rows go through, or its last prompt row where there are several.
const char* CpuBackend::attend_kernel_name() const noexcept {
  const bool prompt = n_prompt_ > 0;
  const bool sparse = !h2o_evictions_.empty() ||
                      (prompt && !sparse_prefill_states_.empty() &&
                       rows_[n_prompt_ - 1].kv_slot >= limits_.sparse_prefill->options.chunk);
  if (sparse) return sparse_.kernel(prompt).name;
  return prompt ? attend_prompt_.name : kernels_.attend_decode.name;
}

void CpuBackend::attend(const AttendArgs& args) {
  QSF_CHECK(args.slopes.empty() || args.slopes.size() == limits_.n_heads);
  QSF_CHECK(args.sink_scores.empty() ||
            (args.sink_scores.size() == limits_.n_heads && !is_sparse()));
  QSF_CHECK(!rope_at_cache_position_ || args.q_sinks.id != Buffer::kNone);
  QSF_CHECK(!args.bidirectional || (!args.chunked && !rope_at_cache_position_ && !is_sparse()));
  Observation observed(*this, OperatorKind::kAttend, args.q, args.out, attend_kernel_name());
  observed.set_layer(args.layer);
  OperatorTimes& times = profile_[OperatorKind::kAttend];
  const OperatorTimer timer(times);
  activation_rows_.invalidate(args.out.id);
  enter_layer(args.layer);
  if (kv_pages_.base != nullptr) {  // or cancelled
    if (is_sparse()) {
      attend_sparse_rows(args);
    } else {
      attend_prompt_rows(args, 0, n_prompt_);
      attend_decode_rows(args);
    }
  }
  kv_store_->release_layer(args.layer);
  if (is_sparse()) return count_sparse_attention(times);
  count_attention(args, times);
}

// Every KV head's visible keys and values are read once for all prompt rows of a sequence, and once
// for each tile of the others; each query head multiplies and adds twice a column of both.
void CpuBackend::count_attention(const AttendArgs& args, OperatorTimes& times) const noexcept {
  std::uint64_t slots = 0;
  std::uint64_t slots_read = 0;
  VisibleRanges of_tile{};
  std::uint32_t tile_end = 0;  // of decode rows
  for (std::uint32_t i = 0; i < rows_.size(); ++i) {
    const VisibleRanges seen = visible_to(args, rows_[i]);
    slots += count(seen);
    for (std::uint32_t r = 0; r < kMaxVisibleRanges; ++r) of_tile[r] = hull(of_tile[r], seen[r]);
    if (i >= n_prompt_ && i >= tile_end) tile_end = i + n_decode_tile_rows(i);
    if (!ends_prompt(i) && i + 1 != tile_end) continue;
    slots_read += count(of_tile);
    of_tile = {};
  }
  times.bytes += slots_read * layer_limits_.n_kv_heads *
                 (kv_shape_.block_bytes(KvPart::kKeys) + kv_shape_.block_bytes(KvPart::kValues)) /
                 kKvPageSlots;
  times.operations += slots * layer_limits_.n_heads * layer_limits_.head_dim * 4;
}

// Returns the part of `slots`, numbers on the row's path, within the window of a row whose position
// is `position` to them: the last ones, since a path ascends by position.
SlotRange CpuBackend::in_window(const Row& row, std::int64_t position, SlotRange slots,
                                std::uint32_t window) const noexcept {
  std::uint32_t low = slots.first;
  std::uint32_t high = slots.last;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    const std::int64_t distance =
        position - kv_->position(row.sequence, row.visible.path_slot(middle));
    if (distance >= window) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return {low, slots.last};
}

// Returns the part of `slots` whose positions are less than `window` beyond the row's.
SlotRange CpuBackend::before_window_end(const Row& row, SlotRange slots,
                                        std::uint32_t window) const noexcept {
  std::uint32_t low = slots.first;
  std::uint32_t high = slots.last;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    const std::int64_t distance =
        std::int64_t{kv_->position(row.sequence, row.visible.path_slot(middle))} - row.position;
    if (distance < window) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return {slots.first, low};
}

// Returns the slots of its path that a row attends to: those that the KV policy keeps, within the
// model's own window. The first range is empty unless slots behind the sinks were evicted.
VisibleRanges CpuBackend::visible_to(const AttendArgs& args, const Row& row) const noexcept {
  const VisibleSet& visible = row.visible;
  const std::uint32_t end = visible.path_end();
  VisibleRanges seen = {SlotRange{0, visible.sinks}, SlotRange{visible.first, end}};
  if (visible.first <= visible.sinks) seen = {SlotRange{0, 0}, SlotRange{0, end}};
  const std::uint32_t window = args.window_at(row.position);
  if (window == 0 || end <= window) return seen;
  const std::int64_t sink_position =
      limits_.rope_reindex ? cache_position_behind_sinks(limits_) : row.position;
  seen[0] = in_window(row, sink_position, seen[0], window);
  seen[1] = in_window(row, row.position, seen[1], window);
  if (args.bidirectional) seen[1] = before_window_end(row, seen[1], window);
  return seen;
}

void CpuBackend::load_queries(const AttendArgs& args, const AttendKernel& kernel,
                              const AttendTile& tile, bool sees_sinks, const AttendWork& work) {
  const std::uint32_t group = group_size();
  const auto load = [&](Buffer from, std::byte* to) {
    const Matrix& q = matrix(from);
    kernel.load_queries(
        {.q = q.row(tile.first_row) + std::size_t{tile.kv_head} * group * layer_limits_.head_dim,
         .row_stride = q.stride,
         .n_rows = tile.n_rows,
         .n_q = group,
         .head_dim = layer_limits_.head_dim,
         .scale = args.scale,
         .queries = to,
         .k_type = kv_shape_.k_type,
         .rotate = kernels_.kv_rows.rotate});
  };
  load(args.q, work.queries);
  if (limits_.rope_reindex && sees_sinks) load(args.q_sinks, work.sink_queries);
}

CpuBackend::PageBlocks CpuBackend::stored_page(SequenceId sequence, std::uint32_t first,
                                               std::uint32_t kv_head) const {
  const std::uint32_t page = kv_->page_of(sequence, first);
  return {kv_block(page, kv_head, KvPart::kKeys), kv_block(page, kv_head, KvPart::kValues),
          kv_->page_positions(page).data()};
}

// Copies the slots of a row's path from number `first` on, a page, to working memory.
CpuBackend::PageBlocks CpuBackend::path_page(const Row& row, std::uint32_t first,
                                             std::uint32_t kv_head, const AttendWork& work) const {
  const std::uint32_t n = std::min(kKvPageSlots, row.visible.path_end() - first);
  const auto k_bytes = static_cast<std::size_t>(kv_shape_.block_bytes(KvPart::kKeys));
  const auto v_bytes = static_cast<std::size_t>(kv_shape_.block_bytes(KvPart::kValues));
  QSF_DCHECK(limits_.drafts->k_type == kv_shape_.k_type &&
             limits_.drafts->v_type == kv_shape_.v_type);
  std::byte* const k = work.path_page;
  std::byte* const v = k + k_bytes;
  auto* const positions = reinterpret_cast<std::int32_t*>(v + v_bytes);
  std::memset(k, 0,
              k_bytes + v_bytes);  // slots outside a range are masked, which takes finite ones
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::uint32_t slot = row.visible.path_slot(first + i);
    const PageBlocks from = stored_page(row.sequence, slot, kv_head);
    copy_slot(kv_shape_, KvPart::kKeys, {from.k, slot % kKvPageSlots}, {k, i});
    copy_slot(kv_shape_, KvPart::kValues, {from.v, slot % kKvPageSlots}, {v, i});
    positions[i] = from.positions[slot % kKvPageSlots];
  }
  std::fill(positions + n, positions + kKvPageSlots, 0);
  return {k, v, positions};
}

// Runs one page of a tile into a partial. visible [rows of the tile], slots of the page.
void CpuBackend::attend_page(const AttendArgs& args, const AttendKernel& kernel,
                             const AttendTile& tile, const PageBlocks& page,
                             const SlotRange* visible, const std::byte* queries,
                             const AttendWork& work, const Partial& partial,
                             const std::byte* next) {
  const std::uint32_t group = group_size();
  const float* slopes =
      args.slopes.empty() ? nullptr : args.slopes.data() + std::size_t{tile.kv_head} * group;
  const std::byte* v = page.v;
  if (kv_shape_.keys_are_values) {
    SlotRange seen = visible[0];
    for (std::uint32_t i = 1; i < tile.n_rows; ++i) seen = hull(seen, visible[i]);
    kernels::widen_keys(kernels_.convert, kv_shape_.k_type, page.k, seen, layer_limits_.head_dim,
                        work.values);
    v = reinterpret_cast<const std::byte*>(work.values);
  }
  kernel.page({.queries = queries,
               .n_rows = tile.n_rows,
               .n_q = group,
               .head_dim = layer_limits_.head_dim,
               .k = page.k,
               .v = v,
               .k_type = kv_shape_.k_type,
               .v_type = kv_shape_.keys_are_values ? KvType::kF32 : kv_shape_.v_type,
               .visible = visible,
               .state = partial.state,
               .acc = partial.acc,
               .acc_stride = acc_stride(),
               .scratch = work.scratch,
               .soft_cap = args.soft_cap,
               .slopes = slopes,
               .bf16_bias_scale = args.bf16_biases ? args.scale : 0.0F,
               .positions = page.positions,
               .q_positions = tile.positions,
               .next = next,
               .next_bytes = static_cast<std::size_t>(
                   next == nullptr ? 0
                                   : kv_shape_.block_bytes(KvPart::kKeys) +
                                         kv_shape_.block_bytes(KvPart::kValues))});
}

// Runs the pages of `slots`, one span, that the tile's rows see into a fresh partial, each fetching
// the next and the last one what `following`, which may be null, points to: a page of the same
// layer.
void CpuBackend::attend_slots(const AttendArgs& args, const AttendKernel& kernel,
                              const AttendTile& tile, SlotRange slots, const AttendWork& work,
                              const Partial& partial, const std::byte* following) {
  kernels::attend_begin(partial.state, partial.acc, acc_stride(), tile.n_rows * group_size());
  const SequenceId sequence = rows_[tile.first_row].sequence;
  const PageVisits visits(intersect(visible_to_all(tile.visible, tile.n_rows), slots));
  const auto is_shared = [&](const PageVisit& visit) {
    return visit.range == 0 || visit.page_first + kKvPageSlots <= tile.shared_end;
  };
  std::uint32_t v = 0;
  for (; v < visits.n() && is_shared(visits[v]); ++v) {
    const std::uint32_t page_first = visits[v].page_first;
    SlotRange visible[kMaxTileRows];
    for (std::uint32_t i = 0; i < tile.n_rows; ++i) {
      visible[i] = in_page(tile.visible[i][visits[v].range], page_first);
    }
    const std::byte* next = v + 1 < visits.n()
                                ? stored_page(sequence, visits[v + 1].page_first, tile.kv_head).k
                                : following;
    attend_page(args, kernel, tile, stored_page(sequence, page_first, tile.kv_head), visible,
                visits[v].range == 0 ? work.sink_queries : work.queries, work, partial, next);
  }
  if (v == visits.n()) return;
  attend_path_pages(args, kernel, tile, {visits[v].page_first, slots.last}, work, partial);
}

// Goes on with the pages of `slots` row by row, since paths differ there. Overwrites the queries.
void CpuBackend::attend_path_pages(const AttendArgs& args, const AttendKernel& kernel,
                                   const AttendTile& tile, SlotRange slots, const AttendWork& work,
                                   const Partial& partial) {
  const std::uint32_t group = group_size();
  for (std::uint32_t i = 0; i < tile.n_rows; ++i) {
    const Row& row = rows_[tile.first_row + i];
    const AttendTile alone = {tile.first_row + i, 1, tile.kv_head, tile.visible + i,
                              tile.positions + i};
    const Partial own = {partial.state + std::size_t{i} * group,
                         partial.acc + std::size_t{i} * group * acc_stride()};
    load_queries(args, kernel, alone, false, work);
    const SlotRange seen = intersect(tile.visible[i][1], slots);
    for (std::uint32_t first = slots.first; first < seen.last; first += kKvPageSlots) {
      const SlotRange visible = in_page(seen, first);
      if (is_empty(visible)) continue;
      const PageBlocks page = row.visible.branches()
                                  ? path_page(row, first, tile.kv_head, work)
                                  : stored_page(row.sequence, first, tile.kv_head);
      attend_page(args, kernel, alone, page, &visible, work.queries, work, own, nullptr);
    }
  }
}

void CpuBackend::finish_tile(const AttendArgs& args, const AttendTile& tile, const Partial& total) {
  const Matrix& out = matrix(args.out);
  const std::uint32_t group = group_size();
  const std::size_t column = std::size_t{tile.kv_head} * group * layer_limits_.head_dim;
  if (!args.sink_scores.empty()) {
    kernels::attend_add_sinks(total.state, total.acc, acc_stride(), tile.n_rows * group,
                              args.sink_scores.data() + std::size_t{tile.kv_head} * group, group);
  }
  for (std::uint32_t i = 0; i < tile.n_rows; ++i) {
    const std::size_t query = std::size_t{i} * group;
    kernels::attend_finish({.state = total.state + query,
                            .acc = total.acc + query * acc_stride(),
                            .acc_stride = acc_stride(),
                            .out = out.row(tile.first_row + i) + column,
                            .out_stride = layer_limits_.head_dim,
                            .n_queries = group,
                            .head_dim = layer_limits_.head_dim,
                            .rotated = kv_shape_.rotates_values(),
                            .rotate = kernels_.kv_rows.rotate});
  }
}

// All spans of a tile of prompt rows.
void CpuBackend::attend_tile(const AttendArgs& args, const AttendTile& tile,
                             const AttendWork& work) {
  const AttendKernel& kernel = attend_prompt_;
  const std::uint32_t n_queries = tile.n_rows * group_size();
  const VisibleRanges seen = visible_to_all(tile.visible, tile.n_rows);
  const VisibleSpans spans(seen);
  load_queries(args, kernel, tile, !is_empty(seen[0]), work);
  kernels::attend_begin(work.total.state, work.total.acc, acc_stride(), n_queries);
  for (std::uint32_t i = 0; i < spans.n(); ++i) {
    attend_slots(args, kernel, tile, span_slots(spans.span(i)), work, work.span, nullptr);
    kernels::attend_merge(work.total.state, work.total.acc, work.span.state, work.span.acc,
                          acc_stride(), n_queries);
  }
  finish_tile(args, tile, work.total);
}

// Tiles are handed out from the end: the last rows see most, and what is left over for a worker at
// the end is small.
void CpuBackend::attend_prompt_rows(const AttendArgs& args, std::uint32_t begin_row,
                                    std::uint32_t end_row) {
  if (begin_row == end_row) return;
  const std::uint32_t tile_rows = tile_rows_of(layer_limits_, attend_prompt_);
  const std::size_t n_tiles = ceil_div(end_row - begin_row, tile_rows);
  const std::size_t n_items = n_tiles * layer_limits_.n_kv_heads;
  pool_.parallel_for(n_items, 1, [&](std::size_t begin, std::size_t end, unsigned worker) {
    if (is_cancelled()) return;
    for (std::size_t item = begin; item < end; ++item) {
      const auto from = static_cast<std::uint32_t>(n_tiles - 1 - item / layer_limits_.n_kv_heads);
      const auto kv_head = static_cast<std::uint32_t>(item % layer_limits_.n_kv_heads);
      const std::uint32_t stop = std::min(end_row, begin_row + (from + 1) * tile_rows);
      for (std::uint32_t first = begin_row + from * tile_rows; first < stop;) {
        VisibleRanges seen[kMaxTileRows];
        std::int32_t positions[kMaxTileRows];
        std::uint32_t n = 0;
        for (; first + n < stop && rows_[first + n].sequence == rows_[first].sequence; ++n) {
          seen[n] = visible_to(args, rows_[first + n]);
          positions[n] = rows_[first + n].position;
        }
        attend_tile(args, {first, n, kv_head, seen, positions}, work_of(worker));
        first += n;
      }
    }
  });
}

// Returns the rows of the decode tile that begins at a row.
std::uint32_t CpuBackend::n_decode_tile_rows(std::uint32_t first_row) const noexcept {
  const std::uint32_t most = decode_tile_rows_of(layer_limits_, attend_prompt_);
  std::uint32_t n = 1;
  while (n < most && first_row + n < rows_.size() &&
         rows_[first_row + n].sequence == rows_[first_row].sequence) {
    ++n;
  }
  return n;
}

// A decode tile, and the slots and spans that its rows attend to.
struct CpuBackend::DecodeTile {
  DecodeTile(const CpuBackend& backend, const AttendArgs& args, std::uint32_t first,
             std::uint32_t n)
      : first_row(first), n_rows(n) {
    for (std::uint32_t i = 0; i < n; ++i) {
      const Row& row = backend.rows_[first + i];
      visible[i] = backend.visible_to(args, row);
      positions[i] = row.position;
      if (row.visible.branches()) shared_end = std::min(shared_end, row.visible.prefix);
    }
    seen = visible_to_all(visible, n);
  }
  AttendTile of_head(std::uint32_t kv_head) const noexcept {
    return {first_row, n_rows, kv_head, visible, positions, shared_end};
  }
  // The slots of the i-th span that the tile sees; none behind the last.
  SlotRange span(std::uint32_t i) const noexcept {
    const VisibleSpans spans(seen);
    return i < spans.n() ? span_slots(spans.span(i)) : SlotRange{0, 0};
  }

  std::uint32_t first_row;
  std::uint32_t n_rows;
  std::uint32_t shared_end = UINT32_MAX;
  VisibleRanges visible[kMaxDecodeTileRows];
  std::int32_t positions[kMaxDecodeTileRows];
  VisibleRanges seen;  // by any row
};

// Each span is an item of its own; merging follows afterwards, in the order of the spans.
void CpuBackend::attend_decode_rows(const AttendArgs& args) {
  if (n_prompt_ == rows_.size()) return;
  const AttendKernel& kernel = kernels_.attend_decode;
  const std::uint32_t group = group_size();
  const std::uint32_t n_heads = layer_limits_.n_kv_heads;
  decode_tiles_.clear();
  std::uint32_t spans = 0;  // of the tile that sees most
  for (std::uint32_t first = n_prompt_; first < rows_.size();) {
    const std::uint32_t n = n_decode_tile_rows(first);
    decode_tiles_.push_back(first);
    spans = std::max(spans, VisibleSpans(DecodeTile(*this, args, first, n).seen).n());
    first += n;
  }
  const std::size_t items_per_tile = std::size_t{spans} * n_heads;
  const std::size_t n_items = decode_tiles_.size() * items_per_tile;
  decode_tiles_.push_back(static_cast<std::uint32_t>(rows_.size()));
  const auto tile_of = [&](std::size_t item) {
    const std::size_t tile = item / items_per_tile;
    const std::uint32_t first = decode_tiles_[tile];
    return DecodeTile(*this, args, first, decode_tiles_[tile + 1] - first);
  };
  const auto head_of = [&](std::size_t item) {
    return static_cast<std::uint32_t>(item / spans % n_heads);
  };
  // Partials of a tile take the room of its rows.
  const auto partial_of = [&](std::size_t item, const DecodeTile& tile) {
    const std::size_t before = (tile.first_row - n_prompt_) * items_per_tile;
    const std::size_t in_tile = item % items_per_tile * tile.n_rows;
    std::byte* at =
        decode_partials_ + (before + in_tile) * partial_bytes(group, layer_limits_.head_dim);
    return Partial{reinterpret_cast<AttendState*>(at),
                   reinterpret_cast<float*>(at + state_bytes(std::size_t{tile.n_rows} * group))};
  };
  // The keys that an item begins with, if it sees any.
  const auto first_page = [&](const DecodeTile& tile, std::size_t item) {
    const VisibleRanges seen =
        intersect(tile.seen, tile.span(static_cast<std::uint32_t>(item % spans)));
    const SlotRange first = is_empty(seen[0]) ? seen[1] : seen[0];
    const SequenceId sequence = rows_[tile.first_row].sequence;
    return is_empty(first) ? nullptr : stored_page(sequence, first.first, head_of(item)).k;
  };
  const std::size_t grain = std::max<std::size_t>(1, n_items / (pool_.n_threads() * kDecodeChunks));
  pool_.parallel_for(n_items, grain, [&](std::size_t begin, std::size_t end, unsigned worker) {
    if (is_cancelled()) return;
    const AttendWork work = work_of(worker);
    std::optional<DecodeTile> tile;  // of the item
    for (std::size_t item = begin; item < end; ++item) {
      if (!tile || item % items_per_tile == 0) tile.emplace(tile_of(item));
      const SlotRange slots = tile->span(static_cast<std::uint32_t>(item % spans));
      const AttendTile of_head = tile->of_head(head_of(item));
      load_queries(args, kernel, of_head, !is_empty(intersect(tile->seen[0], slots)), work);
      const bool same_tile = (item + 1) % items_per_tile != 0;
      const std::byte* following = nullptr;
      if (item + 1 < end) following = first_page(same_tile ? *tile : tile_of(item + 1), item + 1);
      attend_slots(args, kernel, of_head, slots, work, partial_of(item, *tile), following);
    }
  });
  const Partial total = work_of(0).total;
  for (std::size_t item = 0; item < n_items; item += spans) {
    const DecodeTile tile = tile_of(item);
    const std::uint32_t n_queries = tile.n_rows * group;
    kernels::attend_begin(total.state, total.acc, acc_stride(), n_queries);
    for (std::size_t span = 0; span < spans; ++span) {
      const Partial part = partial_of(item + span, tile);
      kernels::attend_merge(total.state, total.acc, part.state, part.acc, acc_stride(), n_queries);
    }
    finish_tile(args, tile.of_head(head_of(item)), total);
  }
}

}  // namespace qsf
