// SPDX-License-Identifier: MIT
//
// The CPU backend: rows in ordinary memory, kernels of one instruction set, one fork-join an
// operator.
//
// Operators run when they are submitted; wait() has nothing to wait for and no way to fail. All
// threads and all scratch live here: kernels below are leaf functions.

#ifndef QSF_OPS_CPU_BACKEND_H_
#define QSF_OPS_CPU_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernel_set.h"
#include "ops/backend.h"
#include "platform/threads.h"

namespace qsf {

class CpuBackend final : public Backend {
 public:
  // Requires  pool and kernels outlive the backend
  CpuBackend(ThreadPool& pool, const kernels::KernelSet& kernel_set);

  std::string_view instruction_set() const noexcept override;
  std::string describe() const override { return kernels::kernel_set_names(kernels_); }
  BackendTimes times() const noexcept override { return times_; }

  std::uint64_t buffer_bytes(std::uint32_t n_rows, std::uint32_t n_cols) const noexcept override;
  std::uint64_t kv_bytes(const KvShape& shape, std::uint32_t n_pages) const noexcept override;
  std::uint64_t scratch_bytes(const PassLimits& limits) const noexcept override;
  Buffer create_buffer(std::uint32_t n_rows, std::uint32_t n_cols, MutableByteSpan memory) override;
  void attach_kv(const KvShape& shape, MutableByteSpan memory) override;
  void attach_scratch(const PassLimits& limits, MutableByteSpan memory) override;

  void begin_pass(std::span<const Row> rows, const KvCache& kv, const Rotation& rotation,
                  const std::atomic<bool>* cancel) override;
  void upload_row(Buffer to, std::uint32_t row, std::span<const float> values) override;
  void norm(const NormArgs& args) override;
  void matmul(const MatmulArgs& args) override;
  void rope(Buffer x, std::uint32_t n_heads) override;
  void store_kv(std::uint32_t layer, Buffer k, Buffer v) override;
  void attend(const AttendArgs& args) override;
  void activate(ActivationKind kind, Buffer x) override;
  void activate_mul(ActivationKind kind, Buffer gate, Buffer up) override;
  void add(Buffer to, Buffer from) override;
  void soft_cap(Buffer x, std::uint32_t n_rows, std::uint32_t n_cols, float cap) override;
  void copy_page(std::uint32_t from_page, std::uint32_t to_page) override;
  Status wait() override;
  std::span<const float> read_row(Buffer from, std::uint32_t row) override;

 private:
  // Rows are `stride` floats apart. What lies behind n_cols stays zero: kernels read whole blocks
  // of columns.
  struct Matrix {
    float* data;
    std::size_t stride;
    std::uint32_t n_rows;
    std::uint32_t n_cols;
    float* row(std::size_t i) const noexcept { return data + i * stride; }
  };
  // Online softmax of a tile's queries over some positions.
  struct Partial {
    kernels::AttendState* state;  // [queries]
    float* acc;                   // [queries][acc_stride()]
  };
  // What a worker attends with.
  struct AttendWork {
    std::byte* queries;
    std::byte* scratch;
    Partial span;
    Partial total;
  };
  // Neighbouring rows of one sequence, with the query heads of one KV head.
  struct AttendTile {
    std::uint32_t first_row;
    std::uint32_t n_rows;
    std::uint32_t kv_head;
    const kernels::AttendRange* seen;  // [n_rows], slots of the sequence
    const std::int32_t* positions;     // [n_rows]
  };

  Matrix& matrix(Buffer buffer) noexcept;
  bool is_cancelled() const noexcept {
    return cancel_ != nullptr && cancel_->load(std::memory_order_relaxed);
  }
  // Runs body(row) for rows 0 .. n_rows - 1, on all workers when there are enough rows to pay for
  // the fork.
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

  void multiply_band(const MatmulArgs& args, const MatmulTile& tile, std::uint32_t first_group,
                     std::uint32_t last_group);
  void multiply_run(const MatmulArgs& args, const MatmulTile& tile, std::uint32_t first_group,
                    std::uint32_t n_band_rows, std::uint32_t first_row, std::uint32_t last_row);

  std::byte* kv_block(std::uint32_t page, std::uint32_t layer, std::uint32_t kv_head,
                      KvPart part) const noexcept;
  void store_kv_rows(std::uint32_t layer, std::uint32_t kv_head, std::uint32_t first_row,
                     std::uint32_t last_row, const Matrix& keys, const Matrix& values);
  std::uint32_t group_size() const noexcept { return limits_.n_heads / limits_.n_kv_heads; }
  std::size_t acc_stride() const noexcept;
  AttendWork work_of(unsigned worker) const noexcept;
  kernels::AttendRange seen_by(const Row& row, std::uint32_t layer, std::uint32_t kv_head,
                               std::uint32_t window) const noexcept;
  void load_queries(const AttendArgs& args, const kernels::AttendKernel& kernel,
                    const AttendTile& tile, const AttendWork& work);
  void attend_slots(const AttendArgs& args, const kernels::AttendKernel& kernel,
                    const AttendTile& tile, kernels::AttendRange slots, const AttendWork& work,
                    const Partial& partial, const std::byte* following);
  void attend_tile(const AttendArgs& args, const AttendTile& tile, const AttendWork& work);
  void finish_tile(const AttendArgs& args, const AttendTile& tile, const Partial& total);
  void attend_prompt_rows(const AttendArgs& args);
  void attend_decode_rows(const AttendArgs& args);

  ThreadPool& pool_;
  const kernels::KernelSet& kernels_;
  std::vector<Matrix> matrices_;
  BackendTimes times_;

  KvShape kv_shape_{};
  std::byte* kv_memory_ = nullptr;

  PassLimits limits_;
  float* cos_ = nullptr;                  // [max_rows, rope_dims / 2], times Rotation::factor
  float* sin_ = nullptr;                  // the same
  std::byte* attend_memory_ = nullptr;    // [threads] works
  std::byte* decode_partials_ = nullptr;  // [max_decode_rows, n_kv_heads, spans] partials

  std::span<const Row> rows_;
  std::uint32_t n_prompt_ = 0;
  const KvCache* kv_ = nullptr;
  const std::atomic<bool>* cancel_ = nullptr;
};

}  // namespace qsf

#endif  // QSF_OPS_CPU_BACKEND_H_
