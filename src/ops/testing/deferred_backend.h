// SPDX-License-Identifier: MIT
//
// DeferredBackend: a backend as one of a GPU would be, made of the CPU's, to test whoever uses
// backends. docs/adding-a-backend.md points here.
//
// All its memory is its own ("device memory"): buffers, scratch, pages of keys and values, and
// tiles of weights, which it knows by their ids and copies once. Operators are recorded when they
// are submitted and run when they are waited for, no sooner: a caller that reads too early, changes
// too early what an operator points to, or gives a tile back too early does not go unnoticed.

#ifndef QSF_OPS_TESTING_DEFERRED_BACKEND_H_
#define QSF_OPS_TESTING_DEFERRED_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "ops/cpu_backend.h"
#include "ops/testing/aligned_bytes.h"

namespace qsf::testing_support {

// Pages of keys and values in device memory, one layer of a pass at a time. The store of the host,
// in memory or in a file, has them between passes.
class DeviceKvStore final : public KvPageStore {
 public:
  explicit DeviceKvStore(KvPageStore& host) : host_(host) {}
  const KvShape& shape() const noexcept override { return host_.shape(); }
  void begin_pass(std::span<const Row> rows, const KvCache& kv,
                  const std::atomic<bool>* cancel) override;
  KvLayerPages acquire_layer(std::uint32_t layer) override;
  void release_layer(std::uint32_t layer) override;
  void copy_page(std::uint32_t from_page, std::uint32_t to_page) override {
    host_.copy_page(from_page, to_page);
  }
  void move_rows(std::span<const RowMove> moves) override { host_.move_rows(moves); }
  Status end_pass() override { return host_.end_pass(); }
  Status status() const override { return host_.status(); }

 private:
  static constexpr std::uint32_t kNoLayer = 0xFFFFFFFFU;

  KvPageStore& host_;
  std::unique_ptr<AlignedBytes> memory_;  // a layer of every page
  std::vector<std::uint32_t> pages_;      // of the pass's sequences
  KvLayerPages host_pages_;               // of the layer that is acquired
  std::uint32_t acquired_ = kNoLayer;
};

class DeferredBackend final : public Backend {
 public:
  // Keeps copies of at most `max_tiles` tiles with an id, the newest.
  // Requires  pool and kernels outlive the backend
  DeferredBackend(ThreadPool& pool, const kernels::KernelSet& kernels,
                  const CpuBackendOptions& options, std::size_t max_tiles = SIZE_MAX)
      : cpu_(pool, kernels, options), max_tiles_(max_tiles) {}

  // Whether all that was submitted is complete.
  bool is_idle() const noexcept { return n_run_ == n_submitted_; }
  // Tiles copied to the device so far.
  std::uint64_t n_tiles_copied() const noexcept { return n_tiles_copied_; }
  // How often wait_for() was called, as by a pager that has no room.
  std::uint64_t n_partial_waits() const noexcept { return n_partial_waits_; }

  std::string_view instruction_set() const noexcept override { return cpu_.instruction_set(); }
  std::string describe() const override { return "deferred\n" + cpu_.describe(); }
  const OperatorProfile& profile() const noexcept override { return cpu_.profile(); }
  void set_observer(OperatorObserver* observer) noexcept override { cpu_.set_observer(observer); }

  // Nothing of the host's memory but the store of keys and values.
  std::uint64_t buffer_bytes(std::uint32_t, std::uint32_t) const noexcept override { return 0; }
  std::uint64_t scratch_bytes(const PassLimits&) const noexcept override { return 0; }
  std::uint64_t kv_bytes(const KvShape& shape, std::uint32_t n_pages) const noexcept override {
    return cpu_.kv_bytes(shape, n_pages);
  }
  Buffer create_buffer(std::uint32_t n_rows, std::uint32_t n_cols, MutableByteSpan) override;
  void attach_kv(KvPageStore& store) override;
  void attach_scratch(const PassLimits& limits, MutableByteSpan) override;
  void attach_sparse_prefill(std::span<SparsePrefillState> states) override {
    cpu_.attach_sparse_prefill(states);
  }
  void attach_h2o_eviction(std::span<H2oEviction> evictions) override {
    cpu_.attach_h2o_eviction(evictions);
  }
  void attach_states(StateCache& states) override { cpu_.attach_states(states); }

  void begin_pass(std::span<const Row> rows, const KvCache& kv, std::span<const Rotation> rotations,
                  const std::atomic<bool>* cancel) override;
  void upload_row(Buffer to, std::uint32_t row, std::span<const float> values) override;
  void norm(const NormArgs& args) override;
  Ticket matmul(const MatmulArgs& args) override;
  void multiply_low_rank(Buffer in, std::uint32_t n_rows, std::uint32_t n_cols,
                         const AdapterProducts& adapters) override;
  void rope(Buffer x, std::uint32_t n_heads, std::uint32_t rotation) override;
  void rope_at_cache_position(Buffer from, Buffer to, std::uint32_t n_heads,
                              std::uint32_t rotation) override;
  void scale_rows(Buffer x, std::span<const float> factors) override;
  void clamp(Buffer x, float limit) override;
  void clear(Buffer x) override;
  void add_columns(BufferColumns to, BufferColumns from, std::uint32_t n_cols) override;
  void multiply(BufferColumns to, BufferColumns by, std::uint32_t n_cols) override;
  void copy_parts(const PartColumns& from, const PartColumns& to, std::uint32_t n_parts,
                  std::uint32_t n_cols) override;
  void convolve(const ConvolveArgs& args) override;
  void scan(const ScanArgs& args) override;
  void delta_rule(const DeltaRuleArgs& args) override;
  void gate(BufferColumns gate, BufferColumns by, std::uint32_t n_cols,
            ActivationKind activation) override;
  void predict_streams(const StreamArgs& args) override;
  void correct_streams(const StreamArgs& args) override;
  void match_length(Buffer x, BufferColumns like, std::uint32_t n_cols) override;
  void cut(Buffer x, std::uint32_t n_cols, float deviations) override;
  void gather_rows(Buffer from, Buffer to, std::span<const std::uint32_t> rows,
                   std::span<const float> factors) override;
  void add_to_rows(Buffer to, Buffer from, std::span<const std::uint32_t> rows,
                   std::span<const float> factors) override;
  void store_kv(std::uint32_t layer, Buffer k, Buffer v) override;
  void attend(const AttendArgs& args) override;
  void add(Buffer to, Buffer from) override;
  void copy_page(std::uint32_t from_page, std::uint32_t to_page) override;
  void move_rows(std::span<const RowMove> moves) override;
  Ticket completed() const noexcept override { return n_run_; }
  void wait_for(Ticket ticket) noexcept override;
  Status wait() override;
  Status status() const override { return cpu_.status(); }
  Status end_pass() override;
  std::span<const float> read_row(Buffer from, std::uint32_t row) override;

 private:
  using DeviceTile = std::shared_ptr<AlignedBytes>;

  Ticket submit(std::function<void()> work);
  void run_until(Ticket ticket);
  DeviceTile on_device(const WeightTile& tile);
  void run_matmul(MatmulArgs args, std::vector<WeightTile> tiles);

  MutableByteSpan device_memory(std::uint64_t n_bytes) {
    memory_.push_back(std::make_unique<AlignedBytes>(static_cast<std::size_t>(n_bytes)));
    return memory_.back()->span();
  }

  CpuBackend cpu_;
  std::vector<std::unique_ptr<AlignedBytes>> memory_;
  std::optional<DeviceKvStore> kv_;
  std::size_t max_tiles_;
  std::map<TileId, DeviceTile> tiles_;
  std::deque<TileId> tile_ages_;  // of tiles_, oldest first
  std::uint64_t n_tiles_copied_ = 0;
  std::uint64_t n_partial_waits_ = 0;
  std::deque<std::function<void()>> queue_;
  Ticket n_submitted_ = 0;
  Ticket n_run_ = 0;
  std::deque<std::vector<float>> rows_read_;  // since the last operator
};

// With the kernels that make_cpu_backend() chooses, so that bits can be compared.
std::unique_ptr<DeferredBackend> make_deferred_backend(ThreadPool& pool, bool exact,
                                                       std::size_t max_tiles = SIZE_MAX);

}  // namespace qsf::testing_support

#endif  // QSF_OPS_TESTING_DEFERRED_BACKEND_H_
