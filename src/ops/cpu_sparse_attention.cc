// SPDX-License-Identifier: MIT
//
// The columns of a strip are those of the memory set, in whole pages, then those of the pages that
// hold its chunk: a chunk may begin inside a page, whose slots before it are hidden.

#include "ops/cpu_sparse_attention.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cpu_backend.h"

namespace qsf {
namespace {

using kernels::AttendRange;

constexpr std::uint32_t kStripRows = 64;
// Of a tile: their scores over 1,536 columns are 384 KiB, and with a page they stay in a
// second-level cache.
constexpr std::uint32_t kTileQueries = 64;

std::uint32_t pages_of(std::uint32_t n_slots) {
  return kv_pages_for(n_slots);
}

}  // namespace

SparseAttention::Sizes SparseAttention::sizes_of(const PassLimits& limits) noexcept {
  const H2oOptions& options = limits.h2o->options;
  const KvShape shape = {.n_layers = 1,
                         .n_kv_heads = 1,
                         .head_dim = limits.head_dim,
                         .k_type = limits.h2o->k_type,
                         .v_type = limits.h2o->v_type};
  Sizes sizes{};
  const std::uint32_t group = limits.n_heads / limits.n_kv_heads;
  sizes.tile_rows = std::max(1U, kTileQueries / group);
  sizes.tile_queries = sizes.tile_rows * group;
  sizes.n_strips = static_cast<std::uint32_t>(ceil_div(options.chunk, kStripRows));
  sizes.n_memory_pages = pages_of(h2o_memory_size(options));
  // A chunk touches a page more than it fills when it begins inside one.
  sizes.n_columns =
      (std::size_t{sizes.n_memory_pages} + pages_of(options.chunk) + 1) * kKvPageSlots;
  // Rows that lie a multiple of 4 KiB apart would fall into the same cache sets.
  sizes.weights_stride = sizes.n_columns + kLineBytes / sizeof(float);
  sizes.acc_stride = align_up(limits.head_dim, std::size_t{16});
  sizes.work_bytes =
      kernels::attend_query_bytes(sizes.tile_queries, limits.head_dim) +
      kernels::attend_strip_scratch_bytes(limits.head_dim) +
      align_up((sizes.weights_stride + sizes.acc_stride) * sizes.tile_queries * sizeof(float),
               std::size_t{kLineBytes});
  sizes.block_pair_bytes = static_cast<std::size_t>(shape.block_bytes(KvPart::kKeys) +
                                                    shape.block_bytes(KvPart::kValues));
  sizes.sums_bytes =
      std::size_t{limits.n_kv_heads} * sizes.n_strips * sizes.n_columns * sizeof(float);
  sizes.memory_bytes =
      std::size_t{limits.n_kv_heads} * sizes.n_memory_pages * sizes.block_pair_bytes;
  return sizes;
}

std::uint64_t SparseAttention::scratch_bytes(const PassLimits& limits,
                                             unsigned n_threads) noexcept {
  if (!limits.h2o.has_value()) return 0;
  const Sizes sizes = sizes_of(limits);
  return std::uint64_t{n_threads} * sizes.work_bytes + sizes.sums_bytes + sizes.memory_bytes;
}

void SparseAttention::attach(const PassLimits& limits, MutableByteSpan memory) noexcept {
  limits_ = limits;
  if (!limits.h2o.has_value()) return;
  QSF_CHECK(memory.size() >= scratch_bytes(limits, pool_.n_threads()));
  sizes_ = sizes_of(limits);
  works_ = memory.data();
  std::byte* sums = works_ + pool_.n_threads() * sizes_.work_bytes;
  sums_ = reinterpret_cast<float*>(sums);
  memory_ = sums + sizes_.sums_bytes;
}

SparseAttention::Work SparseAttention::work_of(unsigned worker) const noexcept {
  std::byte* queries = works_ + worker * sizes_.work_bytes;
  std::byte* scratch = queries + kernels::attend_query_bytes(sizes_.tile_queries, limits_.head_dim);
  float* weights =
      reinterpret_cast<float*>(scratch + kernels::attend_strip_scratch_bytes(limits_.head_dim));
  return {queries, scratch, weights, weights + sizes_.tile_queries * sizes_.weights_stride};
}

float* SparseAttention::strip_sums(std::uint32_t kv_head, std::uint32_t strip) const noexcept {
  return sums_ + (std::size_t{kv_head} * sizes_.n_strips + strip) * sizes_.n_columns;
}

MutableByteSpan SparseAttention::gathered(std::uint32_t kv_head, KvPart part,
                                          std::uint32_t n_pages) const noexcept {
  const KvType type = part == KvPart::kKeys ? limits_.h2o->k_type : limits_.h2o->v_type;
  const auto block = static_cast<std::size_t>(kv_block_bytes(type, limits_.head_dim));
  std::byte* of_head = memory_ + kv_head * sizes_.n_memory_pages * sizes_.block_pair_bytes;
  if (part == KvPart::kValues) {
    of_head += sizes_.n_memory_pages * (sizes_.block_pair_bytes - block);
  }
  return {of_head, n_pages * block};
}

void SparseAttention::run(const SparseLayer& layer, H2oState& state, std::uint32_t first,
                          std::uint32_t last, bool outputs) {
  const std::uint32_t index = layer.args.layer;
  const std::uint32_t chunk = state.shape().options.chunk;
  const std::uint32_t start = state.chunk_start(index);
  const std::uint32_t begin = layer.rows[first].kv_slot;
  const std::uint32_t end = begin + (last - first);
  QSF_CHECK(begin == state.scored_end(index) && end <= start + chunk);
  QSF_CHECK(layer.rows[last - 1].kv_slot == end - 1);
  const std::uint32_t first_strip = (begin - start) / kStripRows;
  const Part part = {.layer = layer,
                     .state = state,
                     .first_row = first,
                     .last_row = last,
                     .chunk_start = start,
                     .chunk_end = start + chunk,
                     .n_members = static_cast<std::uint32_t>(state.members(index, 0).size()),
                     .outputs = outputs,
                     .first_strip = first_strip,
                     .n_strips = (end - 1 - start) / kStripRows + 1 - first_strip};
  if (part.n_members != 0) gather(part);
  const std::uint32_t n_kv_heads = limits_.n_kv_heads;
  const auto cancelled = [&] {
    return layer.cancel != nullptr && layer.cancel->load(std::memory_order_relaxed);
  };
  // From the end: the last strips see most.
  pool_.parallel_for(
      std::size_t{part.n_strips} * n_kv_heads, 1,
      [&](std::size_t from, std::size_t to, unsigned worker) {
        for (std::size_t item = from; item < to && !cancelled(); ++item) {
          const auto strip = static_cast<std::uint32_t>(part.n_strips - 1 - item / n_kv_heads);
          run_strip(part, static_cast<std::uint32_t>(item % n_kv_heads), strip, work_of(worker));
        }
      });
  if (cancelled()) return;
  for (std::uint32_t kv_head = 0; kv_head < n_kv_heads; ++kv_head) add_up(part, kv_head);
  state.mark_scored(index, end);
  if (end != part.chunk_end) return;
  QSF_CHECK(state.close_chunk(index).ok());
  if (index + 1 == state.shape().n_layers) QSF_CHECK(state.next_chunk(chunk).ok());
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
            part.state.gather_k_memory(layer.args.layer, kv_head, layer.kv.shape(), layer.pages,
                                       pages, gathered(kv_head, KvPart::kKeys, n_pages));
          } else {
            part.state.gather_v_memory(layer.args.layer, kv_head, layer.kv.shape(), layer.pages,
                                       pages, gathered(kv_head, KvPart::kValues, n_pages));
          }
        }
      });
}

// Runs the rows of the pass that lie in a strip, number `strip` of the part's.
void SparseAttention::run_strip(const Part& part, std::uint32_t kv_head, std::uint32_t strip,
                                const Work& work) {
  const std::uint32_t begin = part.layer.rows[part.first_row].kv_slot;
  const std::uint32_t strip_start = part.chunk_start + (part.first_strip + strip) * kStripRows;
  const std::uint32_t first = std::max(begin, strip_start) - begin + part.first_row;
  const std::uint32_t last =
      std::min(part.last_row, strip_start + kStripRows - begin + part.first_row);
  float* sums = strip_sums(kv_head, strip);
  std::fill_n(sums, sizes_.n_columns, 0.0F);
  if (begin > strip_start) {  // a pass before this one began it
    const std::uint32_t chunk = part.state.shape().options.chunk;
    const std::uint32_t memory = part.state.shape().memory_size();
    const float* open = part.state.strip_sums(part.layer.args.layer).data() +
                        std::size_t{kv_head} * (chunk + memory);
    const std::size_t n_memory_columns = std::size_t{pages_of(part.n_members)} * kKvPageSlots;
    std::copy_n(open, chunk, sums + n_memory_columns + part.chunk_start % kKvPageSlots);
    std::copy_n(open + chunk, part.n_members, sums);
  }
  for (std::uint32_t row = first; row < last; row += sizes_.tile_rows) {
    run_tile(part, kv_head, row, std::min(sizes_.tile_rows, last - row), sums, work);
  }
}

void SparseAttention::load_queries(const Tile& tile, const Work& work) {
  const SparseLayer& layer = tile.part.layer;
  const std::uint32_t group = limits_.n_heads / limits_.n_kv_heads;
  kernels_.attend_strip.load_queries({.q = layer.q + tile.first_row * layer.q_stride +
                                           std::size_t{tile.kv_head} * group * limits_.head_dim,
                                      .row_stride = layer.q_stride,
                                      .n_rows = tile.n_rows,
                                      .n_q = group,
                                      .head_dim = limits_.head_dim,
                                      .scale = layer.args.scale,
                                      .queries = work.queries,
                                      .k_type = limits_.h2o->k_type,
                                      .rotate = kernels_.kv_rows.rotate});
}

// What the kernels take for a page of a tile's columns; what its rows see there goes to `visible`.
kernels::AttendStripArgs SparseAttention::page_of(const Tile& tile, std::uint32_t page,
                                                  AttendRange* visible, const Work& work) const {
  const Part& part = tile.part;
  const SparseLayer& layer = part.layer;
  const AttendArgs& args = layer.args;
  const KvShape& shape = layer.kv.shape();
  const std::uint32_t group = limits_.n_heads / limits_.n_kv_heads;
  const std::uint32_t n_memory_pages = pages_of(part.n_members);
  const std::byte* k;
  const std::byte* v;
  const std::int32_t* positions;
  if (page < n_memory_pages) {
    const std::uint32_t first_member = page * kKvPageSlots;
    std::fill_n(visible, tile.n_rows,
                AttendRange{0, std::min(kKvPageSlots, part.n_members - first_member)});
    k = gathered(tile.kv_head, KvPart::kKeys, page + 1)
            .last(shape.block_bytes(KvPart::kKeys))
            .data();
    v = gathered(tile.kv_head, KvPart::kValues, page + 1)
            .last(shape.block_bytes(KvPart::kValues))
            .data();
    positions = part.state.members(args.layer, tile.kv_head).data() + first_member;
  } else {
    const Row& row = layer.rows[tile.first_row];
    const std::uint32_t page_start =
        (part.chunk_start / kKvPageSlots + page - n_memory_pages) * kKvPageSlots;
    const std::uint32_t first = std::max(part.chunk_start, page_start) - page_start;
    for (std::uint32_t i = 0; i < tile.n_rows; ++i) {
      const std::uint32_t end = std::max(row.kv_slot + i + 1, page_start) - page_start;
      visible[i] = {std::min(first, end), std::min(end, kKvPageSlots)};
    }
    const std::uint32_t number = layer.kv.page_of(row.sequence, page_start);
    k = layer.pages.page(number) + shape.block_offset(tile.kv_head, KvPart::kKeys);
    v = layer.pages.page(number) + shape.block_offset(tile.kv_head, KvPart::kValues);
    positions = layer.kv.page_positions(number, args.layer, tile.kv_head).data();
  }
  const float* slopes =
      args.slopes.empty() ? nullptr : args.slopes.data() + std::size_t{tile.kv_head} * group;
  return {{.queries = work.queries,
           .n_rows = tile.n_rows,
           .n_q = group,
           .head_dim = limits_.head_dim,
           .k = k,
           .v = v,
           .k_type = shape.k_type,
           .v_type = shape.v_type,
           .visible = visible,
           .state = nullptr,
           .acc = work.acc,
           .acc_stride = sizes_.acc_stride,
           .scratch = work.scratch,
           .soft_cap = args.soft_cap,
           .slopes = slopes,
           .positions = positions,
           .q_positions = tile.positions},
          work.weights + std::size_t{page} * kKvPageSlots,
          sizes_.weights_stride};
}

void SparseAttention::finish_tile(const Tile& tile, const Work& work) {
  constexpr kernels::AttendState kNormalised = {0.0F, 1.0F};
  const SparseLayer& layer = tile.part.layer;
  const std::uint32_t group = limits_.n_heads / limits_.n_kv_heads;
  for (std::uint32_t i = 0; i < tile.n_rows * group; ++i) {
    const std::size_t head = std::size_t{tile.kv_head} * group + i % group;
    float* out = layer.out + (tile.first_row + i / group) * layer.out_stride;
    kernels::attend_finish({.state = &kNormalised,
                            .acc = work.acc + i * sizes_.acc_stride,
                            .acc_stride = sizes_.acc_stride,
                            .out = out + head * limits_.head_dim,
                            .out_stride = limits_.head_dim,
                            .n_queries = 1,
                            .head_dim = limits_.head_dim,
                            .v_type = limits_.h2o->v_type,
                            .rotate = kernels_.kv_rows.rotate});
  }
}

void SparseAttention::run_tile(const Part& part, std::uint32_t kv_head, std::uint32_t first_row,
                               std::uint32_t n_rows, float* sums, const Work& work) {
  const kernels::AttendStripKernel& kernel = kernels_.attend_strip;
  const std::uint32_t n_queries = n_rows * (limits_.n_heads / limits_.n_kv_heads);
  AttendRange visible[kStripRows];
  std::int32_t positions[kStripRows];
  for (std::uint32_t i = 0; i < n_rows; ++i) {
    positions[i] = part.layer.rows[first_row + i].position;
  }
  const std::uint32_t last_slot = part.layer.rows[first_row].kv_slot + n_rows - 1;
  const std::uint32_t n_pages =
      pages_of(part.n_members) + last_slot / kKvPageSlots + 1 - part.chunk_start / kKvPageSlots;
  const Tile tile = {part, kv_head, first_row, n_rows, n_pages, positions};
  load_queries(tile, work);
  for (std::uint32_t page = 0; page < n_pages; ++page) {
    kernel.scores(page_of(tile, page, visible, work));
  }
  kernel.normalise({.weights = work.weights,
                    .stride = sizes_.weights_stride,
                    .n_queries = n_queries,
                    .n_columns = n_pages * kKvPageSlots,
                    .column_sums = sums});
  if (!part.outputs) return;
  std::fill_n(work.acc, n_queries * sizes_.acc_stride, 0.0F);
  for (std::uint32_t page = 0; page < n_pages; ++page) {
    kernel.values(page_of(tile, page, visible, work));
  }
  finish_tile(tile, work);
}

// Adds the sums of whole strips to those of the chunk, and keeps those of one that goes on.
void SparseAttention::add_up(const Part& part, std::uint32_t kv_head) {
  H2oState& state = part.state;
  const std::uint32_t layer = part.layer.args.layer;
  const std::uint32_t chunk = state.shape().options.chunk;
  const std::uint32_t memory = state.shape().memory_size();
  const std::uint32_t end = part.layer.rows[part.last_row - 1].kv_slot + 1;
  const std::size_t chunk_column =
      std::size_t{pages_of(part.n_members)} * kKvPageSlots + part.chunk_start % kKvPageSlots;
  float* chunk_sums = state.chunk_sums(layer).data() + std::size_t{kv_head} * chunk;
  float* memory_sums = state.memory_sums(layer).data() + std::size_t{kv_head} * memory;
  for (std::uint32_t strip = 0; strip < part.n_strips; ++strip) {
    const float* sums = strip_sums(kv_head, strip);
    const std::uint32_t strip_end =
        std::min(part.chunk_end, part.chunk_start + (part.first_strip + strip + 1) * kStripRows);
    if (strip_end > end) {
      float* open = state.strip_sums(layer).data() + std::size_t{kv_head} * (chunk + memory);
      std::copy_n(sums + chunk_column, chunk, open);
      std::copy_n(sums, part.n_members, open + chunk);
      return;
    }
    for (std::uint32_t j = 0; j < strip_end - part.chunk_start; ++j) {
      chunk_sums[j] += sums[chunk_column + j];
    }
    for (std::uint32_t m = 0; m < part.n_members; ++m) memory_sums[m] += sums[m];
  }
}

void CpuBackend::attend_sparse_rows(const AttendArgs& args) {
  QSF_CHECK(args.window == 0 || args.window >= limits_.max_context);
  const std::uint32_t chunk = limits_.h2o->options.chunk;
  const Matrix& q = matrix(args.q);
  const Matrix& out = matrix(args.out);
  const SparseLayer layer = {args,  q.data, q.stride,  out.data, out.stride,
                             rows_, *kv_,   kv_pages_, cancel_};
  const auto prompt = rows_.first(n_prompt_);
  const auto after_first_chunk = std::find_if(
      prompt.begin(), prompt.end(), [chunk](const Row& row) { return row.kv_slot >= chunk; });
  attend_prompt_rows(args, static_cast<std::uint32_t>(after_first_chunk - prompt.begin()));
  attend_decode_rows(args);
  for (std::uint32_t first = 0; first < rows_.size() && !is_cancelled();) {
    const bool is_prompt = first < n_prompt_;
    const std::size_t stop = is_prompt ? n_prompt_ : rows_.size();
    const SequenceId sequence = rows_[first].sequence;
    H2oState& state = h2o_states_[sequence];
    const std::uint32_t chunk_end = state.chunk_start(args.layer) + chunk;
    std::uint32_t last = first + 1;
    while (last < stop && rows_[last].sequence == sequence && rows_[last].kv_slot < chunk_end) {
      ++last;
    }
    sparse_.run(layer, state, first, last, is_prompt && rows_[first].kv_slot >= chunk);
    first = last;
  }
}

// As count_attention; keys of rows that are scored beside plain attention are multiplied twice.
void CpuBackend::count_sparse_attention(OperatorTimes& times) const noexcept {
  const H2oOptions& options = limits_.h2o->options;
  std::uint64_t products = 0;  // of a query head with a key or a value
  std::uint64_t slots_read = 0;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const std::uint32_t slot = rows_[i].kv_slot;
    const std::uint64_t members = slot < options.chunk ? 0 : h2o_memory_size(options);
    const std::uint64_t in_union = slot % options.chunk + 1 + members;
    const bool plain = i >= n_prompt_ || slot < options.chunk;
    products += plain ? 2 * std::uint64_t{slot + 1} + in_union : 2 * in_union;
    const std::uint64_t seen = plain ? slot + 1 : in_union;
    if (i >= n_prompt_ || i + 1 == n_prompt_) slots_read += seen;
  }
  times.bytes += slots_read * limits_.n_kv_heads *
                 (kv_shape_.block_bytes(KvPart::kKeys) + kv_shape_.block_bytes(KvPart::kValues)) /
                 kKvPageSlots;
  times.operations += products * limits_.n_heads * limits_.head_dim * 2;
}

}  // namespace qsf
