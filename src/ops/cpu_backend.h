// SPDX-License-Identifier: MIT
//
// The CPU backend: rows in ordinary memory, kernels of one instruction set, one fork-join per
// operator.
//
// Operators run when they are submitted, and wait() returns at once; only the KV store can fail.
// All threads and all scratch memory belong here: kernels are leaf functions.

#ifndef QSF_OPS_CPU_BACKEND_H_
#define QSF_OPS_CPU_BACKEND_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/kernel_set.h"
#include "ops/activation_rows.h"
#include "ops/backend.h"
#include "ops/cpu_sparse_attention.h"
#include "ops/operator_observer.h"
#include "ops/prefetch_tuner.h"
#include "ops/visible_ranges.h"
#include "ops/work_split.h"
#include "platform/clock.h"
#include "platform/threads.h"

namespace qsf {

struct CpuBackendOptions {
  // Products take f32 rows, whatever the weights, and attention multiplies f32 on every tier.
  bool exact = false;
  std::optional<std::uint32_t> prefetch_bytes;  // of decode products; none: tuned
};

class CpuBackend final : public Backend {
 public:
  // Requires  pool and kernels outlive the backend
  CpuBackend(ThreadPool& pool, const kernels::KernelSet& kernel_set,
             const CpuBackendOptions& options);

  std::string_view instruction_set() const noexcept override;
  std::string describe() const override;
  const OperatorProfile& profile() const noexcept override { return profile_; }
  void set_observer(OperatorObserver* observer) noexcept override { observer_ = observer; }

  std::uint64_t buffer_bytes(std::uint32_t n_rows, std::uint32_t n_cols) const noexcept override;
  std::uint64_t kv_bytes(const KvShape& shape, std::uint32_t n_pages) const noexcept override;
  std::uint64_t scratch_bytes(const PassLimits& limits) const noexcept override;
  Buffer create_buffer(std::uint32_t n_rows, std::uint32_t n_cols, MutableByteSpan memory) override;
  void attach_kv(KvPageStore& store) override;
  void attach_scratch(const PassLimits& limits, MutableByteSpan memory) override;
  void attach_sparse_prefill(std::span<SparsePrefillState> states) override {
    sparse_prefill_states_ = states;
  }
  void attach_h2o_eviction(std::span<H2oEviction> evictions) override {
    h2o_evictions_ = evictions;
  }
  void attach_states(StateCache& states) override { states_ = &states; }

  void begin_pass(std::span<const Row> rows, const KvCache& kv, std::span<const Rotation> rotations,
                  const std::atomic<bool>* cancel) override;
  void reach_layer(std::uint32_t layer, Buffer hidden) override;
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
  void store_kv(std::uint32_t layer, Buffer k, Buffer v) override;
  void attend(const AttendArgs& args) override;
  void add(Buffer to, Buffer from) override;
  void add_columns(BufferColumns to, BufferColumns from, std::uint32_t n_cols) override;
  void clear(Buffer x) override;
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
  void copy_page(std::uint32_t from_page, std::uint32_t to_page) override;
  void move_rows(std::span<const RowMove> moves) override;
  Ticket completed() const noexcept override { return 0; }
  void wait_for(Ticket) noexcept override {}
  Status wait() override;
  Status status() const override;
  Status end_pass() override;
  std::span<const float> read_row(Buffer from, std::uint32_t row) override;
  bool read_operand(Buffer from, std::uint32_t row, BlockFormat format,
                    std::span<float> values) override;

 private:
  // The activation types that products take, of prompt rows and of the others.
  class RoleInputs {
   public:
    // With `int8_rows`, int8 has one scale a row, and f32 is rounded to that.
    explicit RoleInputs(bool int8_rows = false) noexcept : int8_rows_(int8_rows) {}
    bool int8_rows() const noexcept { return int8_rows_; }
    void add(bool prompt, kernels::ActivationType input) noexcept {
      bits_[prompt] |= bit(input);
      if (int8_rows_) bits_[prompt] |= bit(kernels::ActivationType::kInt8);
    }
    // The rows needed in that type; prompt rows are the first n_prompt.
    RowRange range(kernels::ActivationType input, RowCounts rows) const noexcept {
      RowRange range = {rows.n_prompt, rows.n_prompt};
      if ((bits_[true] & bit(input)) != 0) range.first = 0;
      if ((bits_[false] & bit(input)) != 0) range.last = rows.n_rows;
      return range;
    }

   private:
    static std::uint8_t bit(kernels::ActivationType input) noexcept {
      return static_cast<std::uint8_t>(1U << static_cast<unsigned>(input));
    }
    std::array<std::uint8_t, 2> bits_{};
    bool int8_rows_;
  };
  // The kernels of a tile.
  struct TileKernels {
    const kernels::MatMulKernel* prompt;
    const kernels::MatMulKernel* other;
  };
  // Adds the time from construction to destruction to an operator.
  class OperatorTimer {
   public:
    explicit OperatorTimer(OperatorTimes& times) noexcept : times_(times), start_(monotonic_ns()) {}
    ~OperatorTimer() {
      ++times_.calls;
      times_.ns += monotonic_ns() - start_;
    }
    OperatorTimer(const OperatorTimer&) = delete;
    OperatorTimer& operator=(const OperatorTimer&) = delete;

   private:
    OperatorTimes& times_;
    std::uint64_t start_;
  };
  // Reports an operator to the observer, if any, on destruction.
  class Observation {
   public:
    Observation(CpuBackend& backend, OperatorKind kind, Buffer in, Buffer out,
                std::string_view kernel) noexcept;
    ~Observation();
    Observation(const Observation&) = delete;
    Observation& operator=(const Observation&) = delete;
    void set_product(const MatmulArgs& args);
    void set_layer(std::uint32_t layer) noexcept { event_.layer = layer; }
    void set_listed_rows(std::size_t n_rows) noexcept {
      event_.listed = true;
      event_.n_rows = static_cast<std::uint32_t>(n_rows);
    }

   private:
    CpuBackend& backend_;
    OperatorEvent event_;
  };
  // Rows are `stride` floats apart. Columns behind n_cols stay zero: kernels read whole blocks.
  struct Matrix {
    float* data;
    std::size_t stride;
    std::uint32_t n_rows;
    std::uint32_t n_cols;
    // The activation types of the last products that read this buffer. A norm that writes the
    // buffer quantises its rows at once.
    RoleInputs inputs;
    std::uint32_t input_cols = 0;
    float* row(std::size_t i) const noexcept { return data + i * stride; }
  };
  // Online softmax of a tile's queries over some positions.
  struct Partial {
    kernels::AttendState* state;  // [queries]
    float* acc;                   // [queries][acc_stride()]
  };
  // Working memory of a worker.
  struct AttendWork {
    std::byte* queries;
    std::byte* sink_queries;  // under rope_reindex
    std::byte* scratch;
    Partial span;
    Partial total;
    float* values;         // of a page; where keys are values
    std::byte* path_page;  // K and V block, positions; with limits.drafts
  };
  // Neighbouring rows of one sequence, with the query heads of one KV head.
  struct AttendTile {
    std::uint32_t first_row;
    std::uint32_t n_rows;
    std::uint32_t kv_head;
    const VisibleRanges* visible;           // [n_rows], numbers on the rows' paths
    const std::int32_t* positions;          // [n_rows]
    std::uint32_t shared_end = UINT32_MAX;  // up to here all paths have the same slots
  };
  struct DecodeTile;
  // A page of keys and values of one KV head, and its positions.
  struct PageBlocks {
    const std::byte* k;
    const std::byte* v;
    const std::int32_t* positions;
  };

  Matrix& matrix(Buffer buffer) noexcept;
  bool is_cancelled() const noexcept {
    return cancel_ != nullptr && cancel_->load(std::memory_order_relaxed);
  }
  // Runs body(row) for rows 0 .. n_rows - 1, on all workers when there are enough rows.
  template <typename Body>
  void for_rows(std::uint32_t n_rows, const Body& body) {
    constexpr std::uint32_t kRowsWorthAFork = 8;
    if (n_rows < kRowsWorthAFork) {
      for (std::uint32_t row = 0; row < n_rows; ++row) body(row);
      return;
    }
    pool_.parallel_for(n_rows, 4, [&](std::size_t begin, std::size_t end, unsigned) {
      for (std::size_t row = begin; row < end; ++row) body(static_cast<std::uint32_t>(row));
    });
  }

  // Quantises rows of the buffer for products, unless that is done.
  void quantise_activations(Buffer buffer, std::uint32_t n_cols, const RoleInputs& inputs,
                            RowCounts rows);
  void clear_padding(Matrix& in, std::uint32_t n_cols, std::uint32_t n_rows) noexcept;
  RoleInputs choose_kernels(std::span<const WeightTile> tiles, RowCounts rows, bool int8_rows);
  void compute(const MatmulArgs& args, const WorkItem& item);
  void multiply(const MatmulArgs& args, const WeightTile& tile, const WorkItem& item,
                RowRange rows);
  void quantise_parts(const MatmulArgs& args, std::uint32_t n_cols, const RoleInputs& inputs);
  void multiply_parts(const MatmulArgs& args, const WeightTile& tile, const WorkItem& item,
                      RowRange rows);
  const Row& adapted_row(const AdapterProducts& adapters, std::uint32_t row) const noexcept {
    return rows_[adapters.pass_rows.empty() ? row : adapters.pass_rows[row]];
  }
  void add_adapter(const AdapterProducts& adapters, std::uint32_t matrix, std::uint32_t row,
                   const WorkItem& item, float* piece);
  void run_epilogue(const MatmulArgs& args, const WorkItem& item, RowRange rows);
  void activate(ActivationKind kind, float* x, std::uint32_t n_values) const noexcept;
  void activate_mul(ActivationKind kind, float* gate, const float* up,
                    std::uint32_t n_values) const noexcept;

  // Of the layer that was acquired last.
  std::byte* kv_block(std::uint32_t page, std::uint32_t kv_head, KvPart part) const noexcept;
  void store_kv_rows(std::uint32_t kv_head, std::uint32_t part, std::uint32_t n_parts,
                     const Matrix& keys, const Matrix& values);
  void enter_layer(std::uint32_t layer);
  std::uint32_t group_size() const noexcept {
    return layer_limits_.n_heads / layer_limits_.n_kv_heads;
  }
  std::uint32_t n_pairs_of(std::uint32_t rotation) const noexcept {
    return static_cast<std::uint32_t>(rotations_[rotation].inverse_frequencies.size());
  }
  std::uint32_t head_dim_of(std::uint32_t rotation) const noexcept {
    const std::uint32_t own = rotations_[rotation].head_dim;
    return own == 0 ? limits_.head_dim : own;
  }
  std::size_t acc_stride() const noexcept;
  AttendWork work_of(unsigned worker) const noexcept;
  SlotRange in_window(const Row& row, std::int64_t position, SlotRange slots,
                      std::uint32_t window) const noexcept;
  SlotRange before_window_end(const Row& row, SlotRange slots, std::uint32_t window) const noexcept;
  VisibleRanges visible_to(const AttendArgs& args, const Row& row) const noexcept;
  const char* attend_kernel_name() const noexcept;
  void fill_angles(const Rotation& rotation, std::uint32_t position, float* cos,
                   float* sin) const noexcept;
  void load_queries(const AttendArgs& args, const kernels::AttendKernel& kernel,
                    const AttendTile& tile, bool sees_sinks, const AttendWork& work);
  void attend_slots(const AttendArgs& args, const kernels::AttendKernel& kernel,
                    const AttendTile& tile, SlotRange slots, const AttendWork& work,
                    const Partial& partial, const std::byte* following);
  void attend_tile(const AttendArgs& args, const AttendTile& tile, const AttendWork& work);
  PageBlocks stored_page(SequenceId sequence, std::uint32_t first, std::uint32_t kv_head) const;
  PageBlocks path_page(const Row& row, std::uint32_t first, std::uint32_t kv_head,
                       const AttendWork& work) const;
  void attend_page(const AttendArgs& args, const kernels::AttendKernel& kernel,
                   const AttendTile& tile, const PageBlocks& page, const SlotRange* visible,
                   const std::byte* queries, const AttendWork& work, const Partial& partial,
                   const std::byte* next);
  void attend_path_pages(const AttendArgs& args, const kernels::AttendKernel& kernel,
                         const AttendTile& tile, SlotRange slots, const AttendWork& work,
                         const Partial& partial);
  void finish_tile(const AttendArgs& args, const AttendTile& tile, const Partial& total);
  std::uint64_t attention_scratch_bytes(const PassLimits& limits) const noexcept;
  void attach_attention_scratch(MutableByteSpan memory);
  void count_attention(const AttendArgs& args, OperatorTimes& times) const noexcept;
  void attend_prompt_rows(const AttendArgs& args, std::uint32_t begin_row, std::uint32_t end_row);
  std::uint32_t n_decode_tile_rows(std::uint32_t first_row) const noexcept;
  void attend_decode_rows(const AttendArgs& args);
  // Whether a row is the last prompt row of its sequence.
  bool ends_prompt(std::size_t row) const noexcept {
    return row + 1 == n_prompt_ ||
           (row + 1 < n_prompt_ && rows_[row + 1].sequence != rows_[row].sequence);
  }
  bool is_sparse() const noexcept {
    return !sparse_prefill_states_.empty() || !h2o_evictions_.empty();
  }
  void attend_sparse_rows(const AttendArgs& args);
  void attend_h2o_eviction_rows(const SparseLayer& layer);
  std::uint32_t end_of_part(std::uint32_t first, std::uint32_t end_slot) const noexcept;
  std::uint64_t n_attended(const Row& row) const noexcept;
  void scan_head(const ScanArgs& args, std::uint32_t head);
  void prepare_delta_row(const DeltaRuleArgs& args, std::uint32_t row);
  void run_delta_columns(const DeltaRuleArgs& args, std::uint32_t head, std::uint32_t first);
  void keep_last_rows(const ConvolveArgs& args, std::uint32_t first, std::uint32_t end);
  void count_sparse_attention(OperatorTimes& times) const noexcept;

  ThreadPool& pool_;
  const kernels::KernelSet& kernels_;
  const bool exact_;
  // Of prompt rows; exact engines take the decode kernel, which does not round to bf16.
  const kernels::AttendKernel& attend_prompt_;
  const bool bf16_inputs_;  // some product of this tier takes bf16
  std::vector<Matrix> matrices_;
  OperatorProfile profile_;
  OperatorObserver* observer_ = nullptr;
  std::vector<ProductPart> observed_parts_;  // of the product in work, where it is observed

  ActivationRows activation_rows_;
  WorkSplit split_;
  std::array<TileKernels, kMaxMatmulTiles> tile_kernels_{};  // of the product in work
  PrefetchTuner prefetch_;
  std::uint64_t product_bytes_ = 0;  // of the pass
  std::uint64_t product_ns_ = 0;

  KvShape kv_shapes_{};  // of all layers
  KvShape kv_shape_{};   // of the layer in work
  KvPageStore* kv_store_ = nullptr;
  KvLayerPages kv_pages_;  // of the layer in work

  SparseAttention sparse_;
  // [sequences] or empty; without either all rows take plain attention.
  std::span<SparsePrefillState> sparse_prefill_states_;
  std::span<H2oEviction> h2o_evictions_;
  StateCache* states_ = nullptr;

  PassLimits limits_;
  PassLimits layer_limits_;  // with the heads of the layer in work
  float* cos_ = nullptr;     // [n_rotations, max_rows, rope_dims / 2], times Rotation::factor
  float* sin_ = nullptr;     // the same
  float* sink_cos_ =
      nullptr;  // [n_rotations, rope_dims / 2], of the cache position behind the sinks
  float* sink_sin_ = nullptr;                // the same
  std::byte* attend_memory_ = nullptr;       // [threads] works
  std::byte* decode_partials_ = nullptr;     // [max_decode_rows, n_kv_heads, spans] partials
  std::vector<std::uint32_t> decode_tiles_;  // first rows of the pass's tiles, then the end

  std::span<const Row> rows_;
  std::span<const Rotation> rotations_;
  std::uint32_t n_prompt_ = 0;
  bool rope_at_cache_position_ = false;  // some row of the pass needs it
  const KvCache* kv_ = nullptr;
  const std::atomic<bool>* cancel_ = nullptr;
};

}  // namespace qsf

#endif  // QSF_OPS_CPU_BACKEND_H_
