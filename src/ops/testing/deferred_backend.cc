// SPDX-License-Identifier: MIT

#include "ops/testing/deferred_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/isa.h"

namespace qsf::testing_support {

void DeviceKvStore::begin_pass(std::span<const Row> rows, const KvCache& kv,
                               const std::atomic<bool>* cancel) {
  host_.begin_pass(rows, kv, cancel);
  acquired_ = kNoLayer;
  if (memory_ == nullptr) {
    memory_ = std::make_unique<AlignedBytes>(
        static_cast<std::size_t>(shape().layer_bytes() * kv.limits().n_pages));
  }
  pages_.clear();
  for (const Row& row : rows) {
    for (std::uint32_t i = 0; i < kv.n_held_pages(row.sequence); ++i) {
      pages_.push_back(kv.held_page(row.sequence, i).page);
    }
  }
  std::sort(pages_.begin(), pages_.end());
  pages_.erase(std::unique(pages_.begin(), pages_.end()), pages_.end());
}

KvLayerPages DeviceKvStore::acquire_layer(std::uint32_t layer) {
  const std::uint64_t n_bytes = shape().layer_bytes();
  const KvLayerPages device = {memory_->span().data(), n_bytes};
  if (acquired_ == layer) return device;
  host_pages_ = host_.acquire_layer(layer);
  if (host_pages_.base == nullptr) return {};
  acquired_ = layer;
  const auto of_layer = static_cast<std::size_t>(shape().of_layer(layer).layer_bytes());
  for (const std::uint32_t page : pages_) {
    std::memcpy(device.page(page), host_pages_.page(page), of_layer);
  }
  return device;
}

void DeviceKvStore::release_layer(std::uint32_t layer) {
  const std::uint64_t n_bytes = shape().layer_bytes();
  const KvLayerPages device = {memory_->span().data(), n_bytes};
  if (std::exchange(acquired_, kNoLayer) == layer) {
    const auto of_layer = static_cast<std::size_t>(shape().of_layer(layer).layer_bytes());
    for (const std::uint32_t page : pages_) {
      std::memcpy(host_pages_.page(page), device.page(page), of_layer);
    }
  }
  host_.release_layer(layer);
}

Buffer DeferredBackend::create_buffer(std::uint32_t n_rows, std::uint32_t n_cols, MutableByteSpan) {
  return cpu_.create_buffer(n_rows, n_cols, device_memory(cpu_.buffer_bytes(n_rows, n_cols)));
}

void DeferredBackend::attach_kv(KvPageStore& store) {
  kv_.emplace(store);
  cpu_.attach_kv(*kv_);
}

void DeferredBackend::attach_scratch(const PassLimits& limits, MutableByteSpan) {
  cpu_.attach_scratch(limits, device_memory(cpu_.scratch_bytes(limits)));
}

Ticket DeferredBackend::submit(std::function<void()> work) {
  rows_read_.clear();
  queue_.push_back(std::move(work));
  return ++n_submitted_;
}

void DeferredBackend::run_until(Ticket ticket) {
  for (; n_run_ < ticket; ++n_run_) {
    queue_.front()();
    queue_.pop_front();
  }
}

void DeferredBackend::begin_pass(std::span<const Row> rows, const KvCache& kv,
                                 std::span<const Rotation> rotations,
                                 const std::atomic<bool>* cancel) {
  submit([this, rows, &kv, rotations, cancel] { cpu_.begin_pass(rows, kv, rotations, cancel); });
}

void DeferredBackend::upload_row(Buffer to, std::uint32_t row, std::span<const float> values) {
  submit([this, to, row, copy = std::vector<float>(values.begin(), values.end())] {
    cpu_.upload_row(to, row, copy);
  });
}

void DeferredBackend::norm(const NormArgs& args) {
  submit(
      [this, args, list = std::vector<std::uint32_t>(args.row_list.begin(), args.row_list.end())] {
        NormArgs copy = args;
        copy.row_list = list;
        cpu_.norm(copy);
      });
}

namespace {

// The lists of AdapterProducts.
struct AdapterLists {
  explicit AdapterLists(const AdapterProducts& adapters)
      : products(adapters),
        pairs(adapters.pairs.begin(), adapters.pairs.end()),
        rows(adapters.pass_rows.begin(), adapters.pass_rows.end()) {}
  AdapterProducts get() const {
    AdapterProducts copy = products;
    copy.pairs = pairs;
    copy.pass_rows = rows;
    return copy;
  }
  AdapterProducts products;
  std::vector<LowRankPair> pairs;
  std::vector<std::uint32_t> rows;
};

}  // namespace

void DeferredBackend::multiply_low_rank(Buffer in, std::uint32_t n_rows, std::uint32_t n_cols,
                                        const AdapterProducts& adapters) {
  submit([this, in, n_rows, n_cols, lists = AdapterLists(adapters)] {
    cpu_.multiply_low_rank(in, n_rows, n_cols, lists.get());
  });
}

Ticket DeferredBackend::matmul(const MatmulArgs& args) {
  return submit([this, args, adapters = AdapterLists(args.adapters),
                 list = std::vector<std::uint32_t>(args.row_list.begin(), args.row_list.end()),
                 targets = std::vector<MatmulTarget>(args.targets.begin(), args.targets.end()),
                 tiles = std::vector<WeightTile>(args.tiles.begin(), args.tiles.end())] {
    MatmulArgs copy = args;
    copy.adapters = adapters.get();
    copy.row_list = list;
    copy.targets = targets;
    run_matmul(copy, tiles);
  });
}

// Multiplies with copies of the tiles. What the cache drops lives until the product is done.
void DeferredBackend::run_matmul(MatmulArgs args, std::vector<WeightTile> tiles) {
  std::vector<DeviceTile> used;
  for (WeightTile& tile : tiles) {
    used.push_back(on_device(tile));
    tile.bytes = used.back()->span().data() + (tile.id == kNoTile ? 0 : tile.offset);
  }
  args.tiles = tiles;
  cpu_.matmul(args);
}

// Returns the copy of a whole tile; of one without an id, of the part that `tile` is.
DeferredBackend::DeviceTile DeferredBackend::on_device(const WeightTile& tile) {
  const auto known = tiles_.find(tile.id);
  if (known != tiles_.end()) return known->second;
  const std::size_t part_bytes = align_up(tile.n_rows, kRowGroup) / kRowGroup * tile.group_bytes;
  const bool is_kept = tile.id != kNoTile;
  QSF_CHECK(!is_kept || tile.offset + part_bytes <= tile.whole_bytes);
  const std::size_t n_bytes = is_kept ? tile.whole_bytes : part_bytes;
  auto copy = std::make_shared<AlignedBytes>(n_bytes);
  std::memcpy(copy->span().data(), tile.bytes - (is_kept ? tile.offset : 0), n_bytes);
  ++n_tiles_copied_;
  if (!is_kept || max_tiles_ == 0) return copy;
  if (tiles_.size() == max_tiles_) {
    tiles_.erase(tile_ages_.front());
    tile_ages_.pop_front();
  }
  tiles_.emplace(tile.id, copy);
  tile_ages_.push_back(tile.id);
  return copy;
}

void DeferredBackend::rope(Buffer x, std::uint32_t n_heads, std::uint32_t rotation) {
  submit([this, x, n_heads, rotation] { cpu_.rope(x, n_heads, rotation); });
}

void DeferredBackend::rope_at_cache_position(Buffer from, Buffer to, std::uint32_t n_heads,
                                             std::uint32_t rotation) {
  submit([this, from, to, n_heads, rotation] {
    cpu_.rope_at_cache_position(from, to, n_heads, rotation);
  });
}

void DeferredBackend::scale_rows(Buffer x, std::span<const float> factors) {
  submit([this, x, copy = std::vector<float>(factors.begin(), factors.end())] {
    cpu_.scale_rows(x, copy);
  });
}

void DeferredBackend::clamp(Buffer x, float limit) {
  submit([this, x, limit] { cpu_.clamp(x, limit); });
}

void DeferredBackend::clear(Buffer x) {
  submit([this, x] { cpu_.clear(x); });
}

void DeferredBackend::add_columns(BufferColumns to, BufferColumns from, std::uint32_t n_cols) {
  submit([this, to, from, n_cols] { cpu_.add_columns(to, from, n_cols); });
}

void DeferredBackend::multiply(BufferColumns to, BufferColumns by, std::uint32_t n_cols) {
  submit([this, to, by, n_cols] { cpu_.multiply(to, by, n_cols); });
}

void DeferredBackend::copy_parts(const PartColumns& from, const PartColumns& to,
                                 std::uint32_t n_parts, std::uint32_t n_cols) {
  submit([this, from, to, n_parts, n_cols] { cpu_.copy_parts(from, to, n_parts, n_cols); });
}

void DeferredBackend::convolve(const ConvolveArgs& args) {
  submit([this, args] { cpu_.convolve(args); });
}

void DeferredBackend::scan(const ScanArgs& args) {
  submit([this, args] { cpu_.scan(args); });
}

void DeferredBackend::delta_rule(const DeltaRuleArgs& args) {
  submit([this, args] { cpu_.delta_rule(args); });
}

void DeferredBackend::gate(BufferColumns gate, BufferColumns by, std::uint32_t n_cols,
                           ActivationKind activation) {
  submit([this, gate, by, n_cols, activation] { cpu_.gate(gate, by, n_cols, activation); });
}

void DeferredBackend::predict_streams(const StreamArgs& args) {
  submit([this, args] { cpu_.predict_streams(args); });
}

void DeferredBackend::correct_streams(const StreamArgs& args) {
  submit([this, args] { cpu_.correct_streams(args); });
}

void DeferredBackend::match_length(Buffer x, BufferColumns like, std::uint32_t n_cols) {
  submit([this, x, like, n_cols] { cpu_.match_length(x, like, n_cols); });
}

void DeferredBackend::cut(Buffer x, std::uint32_t n_cols, float deviations) {
  submit([this, x, n_cols, deviations] { cpu_.cut(x, n_cols, deviations); });
}

void DeferredBackend::gather_rows(Buffer from, Buffer to, std::span<const std::uint32_t> rows,
                                  std::span<const float> factors) {
  submit([this, from, to, list = std::vector<std::uint32_t>(rows.begin(), rows.end()),
          values = std::vector<float>(factors.begin(), factors.end())] {
    cpu_.gather_rows(from, to, list, values);
  });
}

void DeferredBackend::add_to_rows(Buffer to, Buffer from, std::span<const std::uint32_t> rows,
                                  std::span<const float> factors) {
  submit([this, to, from, list = std::vector<std::uint32_t>(rows.begin(), rows.end()),
          values = std::vector<float>(factors.begin(), factors.end())] {
    cpu_.add_to_rows(to, from, list, values);
  });
}

void DeferredBackend::store_kv(std::uint32_t layer, Buffer k, Buffer v) {
  submit([this, layer, k, v] { cpu_.store_kv(layer, k, v); });
}

void DeferredBackend::attend(const AttendArgs& args) {
  submit([this, args] { cpu_.attend(args); });
}

void DeferredBackend::add(Buffer to, Buffer from) {
  submit([this, to, from] { cpu_.add(to, from); });
}

void DeferredBackend::copy_page(std::uint32_t from_page, std::uint32_t to_page) {
  submit([this, from_page, to_page] { cpu_.copy_page(from_page, to_page); });
}

void DeferredBackend::move_rows(std::span<const RowMove> moves) {
  submit([this, copy = std::vector<RowMove>(moves.begin(), moves.end())] { cpu_.move_rows(copy); });
}

void DeferredBackend::wait_for(Ticket ticket) noexcept {
  QSF_CHECK(ticket <= n_submitted_);
  ++n_partial_waits_;
  run_until(ticket);
}

Status DeferredBackend::wait() {
  run_until(n_submitted_);
  return cpu_.wait();
}

Status DeferredBackend::end_pass() {
  run_until(n_submitted_);
  return cpu_.end_pass();
}

std::unique_ptr<DeferredBackend> make_deferred_backend(ThreadPool& pool, bool exact,
                                                       std::size_t max_tiles) {
  const kernels::Isa isa = kernels::choose_host_isa().value();
  return std::make_unique<DeferredBackend>(pool, kernels::kernel_set(isa),
                                           CpuBackendOptions{.exact = exact, .prefetch_bytes = 0},
                                           max_tiles);
}

std::span<const float> DeferredBackend::read_row(Buffer from, std::uint32_t row) {
  QSF_CHECK(queue_.empty());  // results are there after wait() alone
  const std::span<const float> values = cpu_.read_row(from, row);
  return rows_read_.emplace_back(values.begin(), values.end());
}

}  // namespace qsf::testing_support
