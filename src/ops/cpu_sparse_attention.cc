// SPDX-License-Identifier: MIT
//
// The columns of a tile are those of the members, in whole pages, then those of the pages that
// hold its slots: the first slot may lie inside a page, whose earlier slots are masked.

#include "ops/cpu_sparse_attention.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cpu_backend.h"

namespace qsf {
namespace {

using kernels::AttendRange;

constexpr std::uint32_t kTileRows = kSparsePrefillTileRows;
// Queries of a slice: their scores over 1,536 columns are 384 KiB, which fit a second-level cache
// with a page.
constexpr std::uint32_t kTileQueries = 64;

std::uint32_t pages_of(std::uint32_t n_slots) {
  return kv_pages_for(n_slots);
}

bool is_on(const PassLimits& limits) {
  return limits.sparse_prefill.has_value() || limits.h2o_eviction.has_value();
}

}  // namespace

SparseAttention::Sizes SparseAttention::sizes_of(const PassLimits& limits) noexcept {
  Sizes sizes{};
  const std::uint32_t group = limits.n_heads / limits.n_kv_heads;
  sizes.slice_rows = std::max(1U, kTileQueries / group);
  sizes.slice_queries = sizes.slice_rows * group;
  std::uint32_t part_rows = kEvictionBlock;
  if (limits.h2o_eviction.has_value()) {
    sizes.tile_rows = eviction_tile_rows(group);
    sizes.n_memory_pages = pages_of(limits.h2o_eviction->n_slots);
    sizes.n_slots = limits.h2o_eviction->n_recent;
    sizes.k_type = limits.h2o_eviction->k_type;
    sizes.v_type = limits.h2o_eviction->v_type;
  } else {
    sizes.tile_rows = kTileRows;
    sizes.n_memory_pages = pages_of(memory_set_size(limits.sparse_prefill->options));
    sizes.n_slots = part_rows = limits.sparse_prefill->options.chunk;
    sizes.k_type = limits.sparse_prefill->k_type;
    sizes.v_type = limits.sparse_prefill->v_type;
  }
  sizes.n_tiles = static_cast<std::uint32_t>(ceil_div(part_rows, sizes.tile_rows));
  // Slots touch a page more than they fill when they begin inside one.
  sizes.n_columns =
      (std::size_t{sizes.n_memory_pages} + pages_of(sizes.n_slots) + 1) * kKvPageSlots;
  // Rows that lie a multiple of 4 KiB apart would fall into the same cache sets.
  sizes.weights_stride = sizes.n_columns + kLineBytes / sizeof(float);
  sizes.acc_stride = align_up(limits.head_dim, std::size_t{16});
  sizes.work_bytes =
      kernels::attend_query_bytes(sizes.slice_queries, limits.head_dim) +
      kernels::attend_query_tile_scratch_bytes(limits.head_dim) +
      align_up((sizes.weights_stride + sizes.acc_stride) * sizes.slice_queries * sizeof(float),
               std::size_t{kLineBytes});
  sizes.block_pair_bytes = static_cast<std::size_t>(kv_block_bytes(sizes.k_type, limits.head_dim) +
                                                    kv_block_bytes(sizes.v_type, limits.head_dim));
  sizes.sums_bytes =
      std::size_t{limits.n_kv_heads} * sizes.n_tiles * sizes.n_columns * sizeof(float);
  if (!limits.h2o_eviction.has_value()) {
    sizes.memory_bytes =
        std::size_t{limits.n_kv_heads} * sizes.n_memory_pages * sizes.block_pair_bytes;
  }
  return sizes;
}

std::uint64_t SparseAttention::scratch_bytes(const PassLimits& limits,
                                             unsigned n_threads) noexcept {
  if (!is_on(limits)) return 0;
  const Sizes sizes = sizes_of(limits);
  return std::uint64_t{n_threads} * sizes.work_bytes + sizes.sums_bytes + sizes.memory_bytes;
}

void SparseAttention::attach(const PassLimits& limits, MutableByteSpan memory) noexcept {
  limits_ = limits;
  if (!is_on(limits)) return;
  QSF_CHECK(memory.size() >= scratch_bytes(limits, pool_.n_threads()));
  sizes_ = sizes_of(limits);
  works_ = memory.data();
  std::byte* sums = works_ + pool_.n_threads() * sizes_.work_bytes;
  sums_ = reinterpret_cast<float*>(sums);
  memory_ = sums + sizes_.sums_bytes;
}

SparseAttention::Work SparseAttention::work_of(unsigned worker) const noexcept {
  std::byte* queries = works_ + worker * sizes_.work_bytes;
  std::byte* scratch =
      queries + kernels::attend_query_bytes(sizes_.slice_queries, limits_.head_dim);
  float* weights = reinterpret_cast<float*>(
      scratch + kernels::attend_query_tile_scratch_bytes(limits_.head_dim));
  return {queries, scratch, weights, weights + sizes_.slice_queries * sizes_.weights_stride};
}

float* SparseAttention::tile_sums(std::uint32_t kv_head, std::uint32_t tile) const noexcept {
  return sums_ + (std::size_t{kv_head} * sizes_.n_tiles + tile) * sizes_.n_columns;
}

MutableByteSpan SparseAttention::gathered(std::uint32_t kv_head, KvPart part,
                                          std::uint32_t n_pages) const noexcept {
  const KvType type = part == KvPart::kKeys ? sizes_.k_type : sizes_.v_type;
  const auto block = static_cast<std::size_t>(kv_block_bytes(type, limits_.head_dim));
  std::byte* of_head = memory_ + kv_head * sizes_.n_memory_pages * sizes_.block_pair_bytes;
  if (part == KvPart::kValues) {
    of_head += sizes_.n_memory_pages * (sizes_.block_pair_bytes - block);
  }
  return {of_head, n_pages * block};
}

void SparseAttention::run(const SparseLayer& layer, SparsePrefillState& state, std::uint32_t first,
                          std::uint32_t last, bool outputs) {
  const std::uint32_t index = layer.args.layer;
  const std::uint32_t chunk = state.shape().options.chunk;
  const std::uint32_t start = state.chunk_start(index);
  const std::uint32_t end = layer.rows[last - 1].kv_slot + 1;
  QSF_CHECK(layer.rows[first].kv_slot == state.scored_end(index));
  Part part = {.layer = layer,
               .state = &state,
               .eviction = nullptr,
               .first_row = first,
               .last_row = last,
               .start = start,
               .end = start + chunk,
               .first_slot = start,
               .n_members = static_cast<std::uint32_t>(state.members(index, 0).size()),
               .outputs = outputs};
  if (part.n_members != 0) gather(part);
  if (!run_part(part)) return;
  state.mark_scored(index, end);
  if (end != part.end) return;
  QSF_CHECK(state.close_chunk(index).ok());
  if (index + 1 == state.shape().n_layers) QSF_CHECK(state.next_chunk(chunk).ok());
}

void SparseAttention::run(const SparseLayer& layer, H2oEviction& eviction, std::uint32_t first,
                          std::uint32_t last) {
  const std::uint32_t index = layer.args.layer;
  const std::uint32_t start = eviction.block_start(index);
  QSF_CHECK(layer.rows[first].kv_slot == eviction.scored_end(index));
  Part part = {.layer = layer,
               .state = nullptr,
               .eviction = &eviction,
               .first_row = first,
               .last_row = last,
               .start = start,
               .end = start + kEvictionBlock,
               .first_slot = eviction.first_recent(index),
               .n_members = eviction.n_members(index),
               .outputs = true};
  if (run_part(part)) eviction.mark_scored(index, layer.rows[last - 1].kv_slot + 1);
}

// Attends the rows of a part, adds their probabilities to the sums, and closes the heads of a block
// that they fill. Returns false when cancelled before any sum was changed.
bool SparseAttention::run_part(Part& part) {
  const SparseLayer& layer = part.layer;
  const std::uint32_t begin = layer.rows[part.first_row].kv_slot;
  const std::uint32_t end = begin + (part.last_row - part.first_row);
  QSF_CHECK(end <= part.end && layer.rows[part.last_row - 1].kv_slot == end - 1);
  part.first_tile = (begin - part.start) / sizes_.tile_rows;
  part.n_tiles = (end - 1 - part.start) / sizes_.tile_rows + 1 - part.first_tile;
  const std::uint32_t n_kv_heads = limits_.n_kv_heads;
  const auto cancelled = [&] {
    return layer.cancel != nullptr && layer.cancel->load(std::memory_order_relaxed);
  };
  // From the end: the last tiles have the most columns.
  pool_.parallel_for(
      std::size_t{part.n_tiles} * n_kv_heads, 1,
      [&](std::size_t from, std::size_t to, unsigned worker) {
        for (std::size_t item = from; item < to && !cancelled(); ++item) {
          const auto tile = static_cast<std::uint32_t>(part.n_tiles - 1 - item / n_kv_heads);
          run_tile(part, static_cast<std::uint32_t>(item % n_kv_heads), tile, work_of(worker));
        }
      });
  if (cancelled()) return false;
  const bool closes = part.eviction != nullptr && end == part.end;
  const auto settle = [&](std::size_t from, std::size_t to, unsigned) {
    for (std::size_t item = from; item < to; ++item) {
      const auto kv_head = static_cast<std::uint32_t>(item);
      add_up(part, kv_head);
      if (!closes) continue;
      part.eviction->close_head(layer.args.layer, kv_head, layer.kv,
                                layer.rows[part.first_row].sequence, layer.pages);
    }
  };
  // A generated row's sums are added before other workers would have woken up.
  if (closes || part.n_tiles > 1) {
    pool_.parallel_for(n_kv_heads, 1, settle);
  } else {
    settle(0, n_kv_heads, 0);
  }
  return true;
}

void SparseAttention::gather(const Part& part) {
  const SparseLayer& layer = part.layer;
  const std::uint32_t n_pages = pages_of(part.n_members);
  const auto pages = layer.kv.whole_pages(layer.rows[part.first_row].sequence);
  const std::size_t n_parts = part.outputs ? 2 : 1;  // without values there are no outputs
  pool_.parallel_for(
      limits_.n_kv_heads * n_parts, 1, [&](std::size_t from, std::size_t to, unsigned) {
        for (std::size_t item = from; item < to; ++item) {
          const auto kv_head = static_cast<std::uint32_t>(item / n_parts);
          if (item % n_parts == 0) {
            part.state->gather_k_memory(layer.args.layer, kv_head, layer.kv.shape(), layer.pages,
                                        pages, gathered(kv_head, KvPart::kKeys, n_pages));
          } else {
            part.state->gather_v_memory(layer.args.layer, kv_head, layer.kv.shape(), layer.pages,
                                        pages, gathered(kv_head, KvPart::kValues, n_pages));
          }
        }
      });
}

// The first slot of a page, counted from the one that holds the part's first slot.
std::uint32_t SparseAttention::page_start(const Part& part, std::uint32_t page) noexcept {
  return (part.first_slot / kKvPageSlots + page) * kKvPageSlots;
}

// The column of a part's first slot.
std::size_t SparseAttention::first_slot_column(const Part& part) noexcept {
  return std::size_t{pages_of(part.n_members)} * kKvPageSlots + part.first_slot % kKvPageSlots;
}

SparseAttention::Memory SparseAttention::memory_of(const Part& part,
                                                   std::uint32_t kv_head) const noexcept {
  const std::uint32_t layer = part.layer.args.layer;
  if (part.n_members == 0) return {nullptr, nullptr, nullptr};
  if (part.eviction != nullptr) {
    return {part.eviction->kv_block(layer, kv_head, KvPart::kKeys, 0),
            part.eviction->kv_block(layer, kv_head, KvPart::kValues, 0),
            part.eviction->members(layer, kv_head).data()};
  }
  return {gathered(kv_head, KvPart::kKeys, 1).data(), gathered(kv_head, KvPart::kValues, 1).data(),
          part.state->members(layer, kv_head).data()};
}

// Sums of the part's complete tiles.
SparseAttention::ColumnSums SparseAttention::part_sums(const Part& part,
                                                       std::uint32_t kv_head) noexcept {
  const std::uint32_t layer = part.layer.args.layer;
  if (part.eviction != nullptr) {
    const H2oEviction::Sums sums = part.eviction->block_sums(layer, kv_head);
    return {sums.heavy.data(), sums.recent.data()};
  }
  const SparsePrefillShape& shape = part.state->shape();
  return {part.state->memory_sums(layer).data() + std::size_t{kv_head} * shape.memory_size(),
          part.state->chunk_sums(layer).data() + std::size_t{kv_head} * shape.options.chunk};
}

// Sums of the tile that an earlier pass has begun.
SparseAttention::ColumnSums SparseAttention::open_tile_sums(const Part& part,
                                                            std::uint32_t kv_head) noexcept {
  const std::uint32_t layer = part.layer.args.layer;
  if (part.eviction != nullptr) {
    const H2oEviction::Sums sums = part.eviction->tile_sums(layer, kv_head);
    return {sums.heavy.data(), sums.recent.data()};
  }
  const SparsePrefillShape& shape = part.state->shape();
  float* slots = part.state->tile_sums(layer).data() +
                 std::size_t{kv_head} * (shape.options.chunk + shape.memory_size());
  return {slots + shape.options.chunk, slots};
}

// Runs the rows of the pass that lie in a tile, number `tile` of the part's.
void SparseAttention::run_tile(const Part& part, std::uint32_t kv_head, std::uint32_t tile,
                               const Work& work) {
  const std::uint32_t begin = part.layer.rows[part.first_row].kv_slot;
  const std::uint32_t tile_start = part.start + (part.first_tile + tile) * sizes_.tile_rows;
  const std::uint32_t first = std::max(begin, tile_start) - begin + part.first_row;
  const std::uint32_t last =
      std::min(part.last_row, tile_start + sizes_.tile_rows - begin + part.first_row);
  float* sums = tile_sums(kv_head, tile);
  std::fill_n(sums, sizes_.n_columns, 0.0F);
  if (begin > tile_start) {
    const ColumnSums open = open_tile_sums(part, kv_head);
    std::copy_n(open.slots, begin - part.first_slot, sums + first_slot_column(part));
    std::copy_n(open.members, part.n_members, sums);
  }
  for (std::uint32_t row = first; row < last; row += sizes_.slice_rows) {
    run_slice(part, kv_head, row, std::min(sizes_.slice_rows, last - row), sums, work);
  }
}

void SparseAttention::load_queries(const Slice& slice, const Work& work) {
  const SparseLayer& layer = slice.part.layer;
  const std::uint32_t group = limits_.n_heads / limits_.n_kv_heads;
  kernel_of(slice.part)
      .load_queries({.q = layer.q + slice.first_row * layer.q_stride +
                          std::size_t{slice.kv_head} * group * limits_.head_dim,
                     .row_stride = layer.q_stride,
                     .n_rows = slice.n_rows,
                     .n_q = group,
                     .head_dim = limits_.head_dim,
                     .scale = layer.args.scale,
                     .queries = work.queries,
                     .k_type = sizes_.k_type,
                     .rotate = kernels_.kv_rows.rotate});
}

// Keys (values) of a page of a slice's columns.
const std::byte* SparseAttention::block_of(const Slice& slice, std::uint32_t page,
                                           KvPart block) const noexcept {
  const Part& part = slice.part;
  const SparseLayer& layer = part.layer;
  const KvShape& shape = layer.kv.shape();
  const std::uint32_t n_memory_pages = pages_of(part.n_members);
  if (page < n_memory_pages) {
    const Memory memory = memory_of(part, slice.kv_head);
    const std::byte* blocks = block == KvPart::kKeys ? memory.keys : memory.values;
    return blocks + page * shape.block_bytes(block);
  }
  const std::uint32_t number = layer.kv.page_of(layer.rows[slice.first_row].sequence,
                                                page_start(part, page - n_memory_pages));
  return layer.pages.page(number) + shape.block_offset(slice.kv_head, block);
}

// The kernel arguments for a page of a slice's columns; its rows' visible slots go to `visible`.
kernels::AttendQueryTileArgs SparseAttention::page_of(const Slice& slice, std::uint32_t page,
                                                      AttendRange* visible,
                                                      const Work& work) const {
  const Part& part = slice.part;
  const SparseLayer& layer = part.layer;
  const AttendArgs& args = layer.args;
  const KvShape& shape = layer.kv.shape();
  const std::uint32_t group = limits_.n_heads / limits_.n_kv_heads;
  const std::uint32_t n_memory_pages = pages_of(part.n_members);
  const std::int32_t* positions;
  if (page < n_memory_pages) {
    const std::uint32_t first_member = page * kKvPageSlots;
    std::fill_n(visible, slice.n_rows,
                AttendRange{0, std::min(kKvPageSlots, part.n_members - first_member)});
    positions = memory_of(part, slice.kv_head).positions + first_member;
  } else {
    const Row& row = layer.rows[slice.first_row];
    const std::uint32_t page_first = page_start(part, page - n_memory_pages);
    const std::uint32_t first = std::max(part.first_slot, page_first) - page_first;
    for (std::uint32_t i = 0; i < slice.n_rows; ++i) {
      const std::uint32_t end = std::max(row.kv_slot + i + 1, page_first) - page_first;
      visible[i] = {std::min(first, end), std::min(end, kKvPageSlots)};
    }
    positions = layer.kv.page_positions(layer.kv.page_of(row.sequence, page_first)).data();
  }
  const float* slopes =
      args.slopes.empty() ? nullptr : args.slopes.data() + std::size_t{slice.kv_head} * group;
  return {{.queries = work.queries,
           .n_rows = slice.n_rows,
           .n_q = group,
           .head_dim = limits_.head_dim,
           .k = block_of(slice, page, KvPart::kKeys),
           .v = block_of(slice, page, KvPart::kValues),
           .k_type = shape.k_type,
           .v_type = shape.v_type,
           .visible = visible,
           .state = nullptr,
           .acc = work.acc,
           .acc_stride = sizes_.acc_stride,
           .scratch = work.scratch,
           .soft_cap = args.soft_cap,
           .slopes = slopes,
           .bf16_bias_scale = args.bf16_biases ? args.scale : 0.0F,
           .positions = positions,
           .q_positions = slice.positions},
          work.weights + std::size_t{page} * kKvPageSlots,
          sizes_.weights_stride};
}

void SparseAttention::finish_slice(const Slice& slice, const Work& work) {
  constexpr kernels::AttendState kNormalised = {0.0F, 1.0F};
  const SparseLayer& layer = slice.part.layer;
  const std::uint32_t group = limits_.n_heads / limits_.n_kv_heads;
  for (std::uint32_t i = 0; i < slice.n_rows * group; ++i) {
    const std::size_t head = std::size_t{slice.kv_head} * group + i % group;
    float* out = layer.out + (slice.first_row + i / group) * layer.out_stride;
    kernels::attend_finish({.state = &kNormalised,
                            .acc = work.acc + i * sizes_.acc_stride,
                            .acc_stride = sizes_.acc_stride,
                            .out = out + head * limits_.head_dim,
                            .out_stride = limits_.head_dim,
                            .n_queries = 1,
                            .head_dim = limits_.head_dim,
                            .rotated = kv_rotates_values(sizes_.v_type),
                            .rotate = kernels_.kv_rows.rotate});
  }
}

void SparseAttention::run_slice(const Part& part, std::uint32_t kv_head, std::uint32_t first_row,
                                std::uint32_t n_rows, float* sums, const Work& work) {
  const kernels::AttendQueryTileKernel& kernel = kernel_of(part);
  const std::uint32_t n_queries = n_rows * (limits_.n_heads / limits_.n_kv_heads);
  AttendRange visible[kTileRows];
  std::int32_t positions[kTileRows];
  for (std::uint32_t i = 0; i < n_rows; ++i) {
    positions[i] = part.layer.rows[first_row + i].position;
  }
  const std::uint32_t last_slot = part.layer.rows[first_row].kv_slot + n_rows - 1;
  const std::uint32_t n_pages =
      pages_of(part.n_members) + last_slot / kKvPageSlots + 1 - part.first_slot / kKvPageSlots;
  const Slice slice = {part, kv_head, first_row, n_rows, n_pages, positions};
  load_queries(slice, work);
  // Each page fetches the next one of its kind, and the last keys the first values.
  const auto fetch = [&](kernels::AttendQueryTileArgs& args, std::uint32_t page, KvPart block) {
    args.page.next = block_of(slice, page, block);
    args.page.next_bytes = static_cast<std::size_t>(part.layer.kv.shape().block_bytes(block));
  };
  for (std::uint32_t page = 0; page < n_pages; ++page) {
    kernels::AttendQueryTileArgs args = page_of(slice, page, visible, work);
    if (page + 1 < n_pages) {
      fetch(args, page + 1, KvPart::kKeys);
    } else if (part.outputs) {
      fetch(args, 0, KvPart::kValues);
    }
    kernel.scores(args);
  }
  kernel.normalise({.weights = work.weights,
                    .stride = sizes_.weights_stride,
                    .n_queries = n_queries,
                    .n_columns = n_pages * kKvPageSlots,
                    .column_sums = sums});
  if (!part.outputs) return;
  std::fill_n(work.acc, n_queries * sizes_.acc_stride, 0.0F);
  for (std::uint32_t page = 0; page < n_pages; ++page) {
    kernels::AttendQueryTileArgs args = page_of(slice, page, visible, work);
    if (page + 1 < n_pages) fetch(args, page + 1, KvPart::kValues);
    kernel.values(args);
  }
  finish_slice(slice, work);
}

// Adds the sums of complete tiles to those of the part, and stores those of an incomplete tile.
void SparseAttention::add_up(const Part& part, std::uint32_t kv_head) {
  const std::uint32_t begin = part.layer.rows[part.first_row].kv_slot;
  const std::uint32_t end = part.layer.rows[part.last_row - 1].kv_slot + 1;
  const ColumnSums whole = part_sums(part, kv_head);
  for (std::uint32_t tile = 0; tile < part.n_tiles; ++tile) {
    const float* sums = tile_sums(kv_head, tile);
    const float* of_slots = sums + first_slot_column(part);
    const std::uint32_t tile_end =
        std::min(part.end, part.start + (part.first_tile + tile + 1) * sizes_.tile_rows);
    if (tile_end > end) {
      const ColumnSums open = open_tile_sums(part, kv_head);
      std::copy_n(of_slots, end - part.first_slot, open.slots);
      std::copy_n(sums, part.n_members, open.members);
      return;
    }
    for (std::uint32_t j = 0; j < tile_end - part.first_slot; ++j) whole.slots[j] += of_slots[j];
    for (std::uint32_t m = 0; m < part.n_members; ++m) whole.members[m] += sums[m];
    if (tile == 0 && begin > part.start + part.first_tile * sizes_.tile_rows) {
      // The state must not depend on where passes have cut the tile.
      const ColumnSums open = open_tile_sums(part, kv_head);
      std::fill_n(open.slots, begin - part.first_slot, 0.0F);
      std::fill_n(open.members, part.n_members, 0.0F);
    }
  }
}

void CpuBackend::attend_sparse_rows(const AttendArgs& args) {
  QSF_CHECK(args.window == 0 || args.window >= limits_.max_context);
  const Matrix& q = matrix(args.q);
  const Matrix& out = matrix(args.out);
  const SparseLayer layer = {args,  q.data, q.stride,  out.data, out.stride,
                             rows_, *kv_,   kv_pages_, cancel_};
  if (!h2o_evictions_.empty()) return attend_h2o_eviction_rows(layer);
  const std::uint32_t chunk = limits_.sparse_prefill->options.chunk;
  // Plain attention of the first chunks; each sequence may have later rows between them.
  for (std::uint32_t first = 0; first < n_prompt_;) {
    std::uint32_t last = first;
    while (last < n_prompt_ && rows_[last].kv_slot < chunk) ++last;
    attend_prompt_rows(args, first, last);
    first = last;
    while (first < n_prompt_ && rows_[first].kv_slot >= chunk) ++first;
  }
  attend_decode_rows(args);
  for (std::uint32_t first = 0; first < rows_.size() && !is_cancelled();) {
    const bool is_prompt = first < n_prompt_;
    SparsePrefillState& state = sparse_prefill_states_[rows_[first].sequence];
    const std::uint32_t last = end_of_part(first, state.chunk_start(args.layer) + chunk);
    sparse_.run(layer, state, first, last, is_prompt && rows_[first].kv_slot >= chunk);
    first = last;
  }
}

void CpuBackend::attend_h2o_eviction_rows(const SparseLayer& layer) {
  for (std::uint32_t first = 0; first < rows_.size() && !is_cancelled();) {
    H2oEviction& eviction = h2o_evictions_[rows_[first].sequence];
    const std::uint32_t last =
        end_of_part(first, eviction.block_start(layer.args.layer) + kEvictionBlock);
    sparse_.run(layer, eviction, first, last);
    first = last;
  }
}

// Returns the end of the rows from `first` on that are of its sequence and role and whose slots lie
// before `end_slot`.
std::uint32_t CpuBackend::end_of_part(std::uint32_t first, std::uint32_t end_slot) const noexcept {
  const std::size_t stop = first < n_prompt_ ? n_prompt_ : rows_.size();
  std::uint32_t last = first + 1;
  while (last < stop && rows_[last].sequence == rows_[first].sequence &&
         rows_[last].kv_slot < end_slot) {
    ++last;
  }
  return last;
}

// Returns the number of members and slots in a row's softmax.
std::uint64_t CpuBackend::n_attended(const Row& row) const noexcept {
  if (!h2o_evictions_.empty()) {
    const H2oEvictionShape& shape = h2o_evictions_[row.sequence].shape();
    const std::uint32_t n_before = first_recent_position(row.kv_slot, shape.options.window);
    return row.kv_slot + 1 - n_before + std::min(n_before, shape.n_slots());
  }
  const SparsePrefillOptions& options = limits_.sparse_prefill->options;
  const std::uint32_t n_members = row.kv_slot < options.chunk ? 0 : memory_set_size(options);
  return row.kv_slot % options.chunk + 1 + n_members;
}

// As count_attention; rows scored beside plain attention multiply their keys twice.
void CpuBackend::count_sparse_attention(OperatorTimes& times) const noexcept {
  std::uint64_t products = 0;  // of a query head with a key or a value
  std::uint64_t slots_read = 0;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const std::uint32_t slot = rows_[i].kv_slot;
    const std::uint64_t in_union = n_attended(rows_[i]);
    const bool plain =
        h2o_evictions_.empty() && (i >= n_prompt_ || slot < limits_.sparse_prefill->options.chunk);
    products += plain ? 2 * std::uint64_t{slot + 1} + in_union : 2 * in_union;
    const std::uint64_t seen = plain ? slot + 1 : in_union;
    if (i >= n_prompt_ || ends_prompt(i)) slots_read += seen;
  }
  times.bytes += slots_read * limits_.n_kv_heads *
                 (kv_shape_.block_bytes(KvPart::kKeys) + kv_shape_.block_bytes(KvPart::kValues)) /
                 kKvPageSlots;
  times.operations += products * limits_.n_heads * limits_.head_dim * 2;
}

}  // namespace qsf
