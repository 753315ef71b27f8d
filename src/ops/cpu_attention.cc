// SPDX-License-Identifier: MIT
//
// Attention over the paged cache. Positions are visited in spans of 512 slots and, inside a span,
// page by page; the spans' online softmax states are merged in ascending order. The cut is the same
// for prompt and decode rows, at any number of rows and threads, and so are the bits.

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "ops/cpu_backend.h"
#include "platform/clock.h"

namespace qsf {
namespace {

constexpr std::uint32_t kSpanSlots = 512;
static_assert(kSpanSlots % kKvPageSlots == 0);

static_assert(kMaxHeadDim == kernels::kMaxHeadDim);

constexpr std::size_t kFloatsPerLine = 16;  // partials keep to cache lines of their own

std::uint32_t n_spans(std::uint32_t n_slots) {
  return static_cast<std::uint32_t>(ceil_div(n_slots, kSpanSlots));
}

}  // namespace

std::size_t CpuBackend::partial_floats() const noexcept {
  const std::size_t group = group_size();
  return align_up(2 * group, kFloatsPerLine) + align_up(group * limits_.head_dim, kFloatsPerLine);
}

CpuBackend::Partial CpuBackend::partial_at(float* memory) const noexcept {
  static_assert(sizeof(kernels::AttendState) == 2 * sizeof(float));
  return {reinterpret_cast<kernels::AttendState*>(memory),
          memory + align_up(std::size_t{2} * group_size(), kFloatsPerLine)};
}

std::uint64_t CpuBackend::kv_bytes(const KvShape& shape, std::uint32_t n_pages) const noexcept {
  return saturating_mul(shape.page_bytes(), n_pages);
}

void CpuBackend::attach_kv(const KvShape& shape, MutableByteSpan memory) {
  QSF_CHECK(shape.k_type == shape.v_type);  // the attend kernels read one type for both
  kv_shape_ = shape;
  kv_memory_ = memory.data();
}

std::uint64_t CpuBackend::scratch_bytes(const PassLimits& limits) const noexcept {
  const std::uint64_t group = limits.n_heads / limits.n_kv_heads;
  const std::uint64_t partial =
      align_up(2 * group, kFloatsPerLine) + align_up(group * limits.head_dim, kFloatsPerLine);
  const std::uint64_t angles =
      align_up(std::uint64_t{limits.max_rows} * (limits.rope_dims / 2), kFloatsPerLine);
  const std::uint64_t n_decode_partials =
      std::uint64_t{limits.max_decode_rows} * limits.n_kv_heads * n_spans(limits.max_context);
  return (2 * angles + partial * (2 * std::uint64_t{pool_.n_threads()} + n_decode_partials)) *
         sizeof(float);
}

void CpuBackend::attach_scratch(const PassLimits& limits, MutableByteSpan memory) {
  QSF_CHECK(memory.size() >= scratch_bytes(limits));
  limits_ = limits;
  const std::size_t angles =
      align_up(std::size_t{limits.max_rows} * (limits.rope_dims / 2), kFloatsPerLine);
  cos_ = reinterpret_cast<float*>(memory.data());
  sin_ = cos_ + angles;
  worker_partials_ = sin_ + angles;
  decode_partials_ = worker_partials_ + 2 * partial_floats() * pool_.n_threads();
}

std::byte* CpuBackend::kv_row(std::uint32_t page, std::uint32_t layer, std::uint32_t kv_head,
                              KvPart part, std::uint32_t slot) const noexcept {
  const KvType type = part == KvPart::kKeys ? kv_shape_.k_type : kv_shape_.v_type;
  return kv_memory_ + kv_shape_.block_offset(page, layer, kv_head, part) +
         slot * kv_row_bytes(type, kv_shape_.head_dim);
}

void CpuBackend::store_kv(std::uint32_t layer, Buffer k, Buffer v) {
  const Matrix& keys = matrix(k);
  const Matrix& values = matrix(v);
  for_rows(static_cast<std::uint32_t>(rows_.size()), [&](std::uint32_t i) {
    const Row& row = rows_[i];
    const std::uint32_t page = kv_->page_of(row.sequence, row.kv_slot);
    const std::uint32_t slot = row.kv_slot % kKvPageSlots;
    for (std::uint32_t head = 0; head < kv_shape_.n_kv_heads; ++head) {
      const std::size_t column = std::size_t{head} * kv_shape_.head_dim;
      kernels::store_kv_row(kernels_.convert, kv_shape_.k_type, keys.row(i) + column,
                            kv_row(page, layer, head, KvPart::kKeys, slot), kv_shape_.head_dim);
      kernels::store_kv_row(kernels_.convert, kv_shape_.v_type, values.row(i) + column,
                            kv_row(page, layer, head, KvPart::kValues, slot), kv_shape_.head_dim);
    }
  });
}

void CpuBackend::copy_page(std::uint32_t from_page, std::uint32_t to_page) {
  const std::size_t page_bytes = kv_shape_.page_bytes();
  std::memcpy(kv_memory_ + to_page * page_bytes, kv_memory_ + from_page * page_bytes, page_bytes);
}

void CpuBackend::attend(const AttendArgs& args) {
  QSF_CHECK(args.slopes.empty() || args.slopes.size() == limits_.n_heads);
  const std::uint64_t start = monotonic_ns();
  attend_prompt_rows(args);
  attend_decode_rows(args);
  times_.attention_ns += monotonic_ns() - start;
}

// Returns the first slot a row sees: slots are in ascending order of position.
std::uint32_t CpuBackend::first_visible(const Row& row, std::uint32_t layer, std::uint32_t kv_head,
                                        std::uint32_t window) const noexcept {
  if (window == 0 || row.visible.prefix <= window) return 0;
  std::uint32_t low = 0;
  std::uint32_t high = row.visible.prefix;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    const std::int64_t distance =
        std::int64_t{row.position} - kv_->position(row.sequence, layer, kv_head, middle);
    if (distance >= window) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Runs the pages of span number `span` that the row sees into a fresh partial.
void CpuBackend::attend_span(const AttendArgs& args, std::uint32_t row_index, std::uint32_t kv_head,
                             std::uint32_t span, const Partial& partial) {
  const Row& row = rows_[row_index];
  const std::uint32_t group = group_size();
  const std::uint32_t head_dim = limits_.head_dim;
  kernels::attend_begin(partial.state, partial.acc, head_dim, group, head_dim);
  const std::uint32_t first =
      std::max(first_visible(row, args.layer, kv_head, args.window), span * kSpanSlots);
  const std::uint32_t last = std::min(row.visible.prefix, (span + 1) * kSpanSlots);
  const float* q = matrix(args.q).row(row_index) + std::size_t{kv_head} * group * head_dim;
  const float* slopes =
      args.slopes.empty() ? nullptr : args.slopes.data() + std::size_t{kv_head} * group;
  for (std::uint32_t slot = first; slot < last;) {
    const std::uint32_t page_first = slot / kKvPageSlots * kKvPageSlots;
    const std::uint32_t page_last = std::min(last, page_first + kKvPageSlots);
    const std::uint32_t page = kv_->page_of(row.sequence, slot);
    kernels_.attend.page(kv_shape_.k_type)(
        {.q = q,
         .q_stride = head_dim,
         .n_q = group,
         .k = kv_row(page, args.layer, kv_head, KvPart::kKeys, 0),
         .v = kv_row(page, args.layer, kv_head, KvPart::kValues, 0),
         .head_dim = head_dim,
         .first = slot - page_first,
         .last = page_last - page_first,
         .scale = args.scale,
         .state = partial.state,
         .acc = partial.acc,
         .acc_stride = head_dim,
         .soft_cap = args.soft_cap,
         .slopes = slopes,
         .positions = kv_->page_positions(page, args.layer, kv_head).data(),
         .q_position = row.position});
    slot = page_last;
  }
}

void CpuBackend::finish_row(const AttendArgs& args, std::uint32_t row, std::uint32_t kv_head,
                            const Partial& total) {
  const std::uint32_t group = group_size();
  float* out = matrix(args.out).row(row) + std::size_t{kv_head} * group * limits_.head_dim;
  kernels::attend_finish(total.state, total.acc, limits_.head_dim, out, limits_.head_dim, group,
                         limits_.head_dim);
}

void CpuBackend::attend_prompt_rows(const AttendArgs& args) {
  const std::size_t n_items = std::size_t{n_prompt_} * limits_.n_kv_heads;
  if (n_items == 0) return;
  pool_.parallel_for(n_items, 4, [&](std::size_t begin, std::size_t end, unsigned worker) {
    if (is_cancelled()) return;
    float* memory = worker_partials_ + 2 * partial_floats() * worker;
    const Partial part = partial_at(memory);
    const Partial total = partial_at(memory + partial_floats());
    const std::uint32_t group = group_size();
    for (std::size_t item = begin; item < end; ++item) {
      const auto row = static_cast<std::uint32_t>(item / limits_.n_kv_heads);
      const auto kv_head = static_cast<std::uint32_t>(item % limits_.n_kv_heads);
      kernels::attend_begin(total.state, total.acc, limits_.head_dim, group, limits_.head_dim);
      for (std::uint32_t span = 0; span < n_spans(rows_[row].visible.prefix); ++span) {
        attend_span(args, row, kv_head, span, part);
        kernels::attend_merge(total.state, total.acc, part.state, part.acc, limits_.head_dim, group,
                              limits_.head_dim);
      }
      finish_row(args, row, kv_head, total);
    }
  });
}

// Decode rows are few and their contexts long, so each span is an item of its own; merging follows
// afterwards, in the order of the spans.
void CpuBackend::attend_decode_rows(const AttendArgs& args) {
  const auto n_decode = static_cast<std::uint32_t>(rows_.size()) - n_prompt_;
  if (n_decode == 0) return;
  std::uint32_t spans = 0;
  for (const Row& row : rows_.subspan(n_prompt_))
    spans = std::max(spans, n_spans(row.visible.prefix));
  const std::size_t n_pairs = std::size_t{n_decode} * limits_.n_kv_heads;
  const auto partial_of = [&](std::size_t pair, std::uint32_t span) {
    return partial_at(decode_partials_ + (pair * spans + span) * partial_floats());
  };
  pool_.parallel_for(n_pairs * spans, 1, [&](std::size_t begin, std::size_t end, unsigned) {
    if (is_cancelled()) return;
    for (std::size_t item = begin; item < end; ++item) {
      const std::size_t pair = item / spans;
      const auto span = static_cast<std::uint32_t>(item % spans);
      attend_span(args, n_prompt_ + static_cast<std::uint32_t>(pair / limits_.n_kv_heads),
                  static_cast<std::uint32_t>(pair % limits_.n_kv_heads), span,
                  partial_of(pair, span));
    }
  });
  for (std::size_t pair = 0; pair < n_pairs; ++pair) {
    const std::uint32_t row = n_prompt_ + static_cast<std::uint32_t>(pair / limits_.n_kv_heads);
    const auto kv_head = static_cast<std::uint32_t>(pair % limits_.n_kv_heads);
    const Partial total = partial_at(worker_partials_);
    const std::uint32_t group = group_size();
    kernels::attend_begin(total.state, total.acc, limits_.head_dim, group, limits_.head_dim);
    for (std::uint32_t span = 0; span < n_spans(rows_[row].visible.prefix); ++span) {
      const Partial part = partial_of(pair, span);
      kernels::attend_merge(total.state, total.acc, part.state, part.acc, limits_.head_dim, group,
                            limits_.head_dim);
    }
    finish_row(args, row, kv_head, total);
  }
}

}  // namespace qsf
