// SPDX-License-Identifier: MIT
//
// A backend with memory, threads and a cache of one sequence, for tests, and the kinds of backends
// that tests run on.

#ifndef QSF_OPS_TESTING_BENCH_H_
#define QSF_OPS_TESTING_BENCH_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/sanitizer.h"
#include "kernels/isa.h"
#include "kernels/kernel_set.h"
#include "ops/cpu_backend.h"
#include "ops/testing/aligned_bytes.h"
#include "ops/testing/deferred_backend.h"
#include "platform/cpu.h"

namespace qsf::testing_support {

// What tests of operators run on: a kind of backend, with the kernels of an instruction set. To run
// them on another kind, add it to scalar_backends().
struct BackendTier {
  using Maker = std::unique_ptr<Backend> (*)(ThreadPool& pool, const kernels::KernelSet& kernels,
                                             const CpuBackendOptions& options);
  template <typename Kind>
  static std::unique_ptr<Backend> make_kind(ThreadPool& pool, const kernels::KernelSet& kernels,
                                            const CpuBackendOptions& options) {
    return std::make_unique<Kind>(pool, kernels, options);
  }

  // Implicit: most tests care for the instruction set alone.
  BackendTier(kernels::Isa tier = kernels::Isa::kScalar,  // NOLINT(google-explicit-constructor)
              Maker maker = make_kind<CpuBackend>)
      : isa(tier), make(maker) {}
  operator kernels::Isa() const { return isa; }  // NOLINT(google-explicit-constructor)
  std::string name() const {
    const std::string of_isa(kernels::isa_name(isa));
    return make == make_kind<CpuBackend> ? of_isa : of_isa + "_deferred";
  }

  friend void PrintTo(const BackendTier& tier, std::ostream* out) { *out << tier.name(); }

  kernels::Isa isa;
  Maker make;
};

// A backend with buffers, a cache of one sequence and everything it needs.
class Bench {
 public:
  Bench(unsigned n_threads, const PassLimits& limits, KvType kv_type, const BackendTier& tier = {},
        bool exact = false)
      : pool_(ThreadPool::create(n_threads).value()),
        backend_(tier.make(*pool_, kernels::kernel_set(tier.isa),
                           {.exact = exact, .prefetch_bytes = 0})),
        limits_(limits),
        shape_{.n_layers = 2,
               .n_kv_heads = limits.n_kv_heads,
               .head_dim = limits.head_dim,
               .k_type = kv_type,
               .v_type = kv_type,
               .keys_are_values = limits.keys_are_values} {
    KvLimits kv_limits = {.n_pages = 1,
                          .max_sequences = 1,
                          .max_slots = limits.max_context,
                          .recent_slots = limits.window == 0 ? 0 : limits.window + limits.max_rows,
                          .sinks = limits.sinks};
    kv_limits.n_pages = kv_pages_per_sequence(kv_limits);
    kv_.emplace(
        KvCache::create(shape_, kv_limits, memory(KvCache::region_bytes(kv_limits))).value());
    sequence_ = kv_->create_sequence().value();
    kv_store_.emplace(shape_, memory(backend_->kv_bytes(shape_, kv_limits.n_pages)));
    backend_->attach_kv(*kv_store_);
    backend_->attach_scratch(limits, memory(backend_->scratch_bytes(limits)));
  }

  MutableByteSpan memory(std::size_t n) {
    blocks_.push_back(std::make_unique<AlignedBytes>(n));
    return blocks_.back()->span();
  }
  Buffer buffer(std::uint32_t n_rows, std::uint32_t n_cols) {
    return backend_->create_buffer(n_rows, n_cols, memory(backend_->buffer_bytes(n_rows, n_cols)));
  }
  // Starts a pass of `n` rows at the end of the sequence. Within a window of the limits each sees
  // the sinks and the last slots up to its own.
  void begin(std::uint32_t n, RowRole role, std::vector<Rotation> rotations = {}) {
    rotations_ = std::move(rotations);
    const std::uint32_t first = kv_->append(sequence_, n).value().first_slot;
    rows_.clear();
    for (std::uint32_t i = 0; i < n; ++i) {
      rows_.push_back(row_at(first + i, {.prefix = first + i + 1}, role));
    }
    backend_->begin_pass(rows_, *kv_, rotations_, nullptr);
  }
  // Starts a pass of generated rows with these adapters and scales.
  struct RowAdapter {
    std::uint16_t adapter = 0;
    float scale = 1.0F;
  };
  void begin_adapted(std::span<const RowAdapter> adapters) {
    const auto n = static_cast<std::uint32_t>(adapters.size());
    const std::uint32_t first = kv_->append(sequence_, n).value().first_slot;
    rows_.clear();
    for (std::uint32_t i = 0; i < n; ++i) {
      rows_.push_back(row_at(first + i, {.prefix = first + i + 1}, RowRole::kGenerated));
      rows_.back().adapter = adapters[i].adapter;
      rows_.back().adapter_scale = adapters[i].scale;
    }
    backend_->begin_pass(rows_, *kv_, {}, nullptr);
  }
  // Starts a pass of n prompt rows that see what `visible` says of their slot and the pass's end.
  template <typename Visible>
  void begin_masked(std::uint32_t n, const Visible& visible) {
    const std::uint32_t first = kv_->append(sequence_, n).value().first_slot;
    rows_.clear();
    for (std::uint32_t slot = first; slot < first + n; ++slot) {
      rows_.push_back(row_at(slot, {.prefix = slot + 1}, RowRole::kPrompt));
      rows_.back().visible = visible(slot, first + n);
    }
    backend_->begin_pass(rows_, *kv_, {}, nullptr);
  }
  // Starts a pass of a tree of drafted rows at the end of the sequence: ancestors[i] has bit i and
  // those of the rows above row i.
  void begin_tree(std::span<const std::uint64_t> ancestors) {
    const std::uint32_t prefix = kv_->n_slots(sequence_);
    std::vector<std::int32_t> positions;
    rows_.clear();
    for (std::uint32_t i = 0; i < ancestors.size(); ++i) {
      rows_.push_back(
          row_at(prefix + i, {.prefix = prefix, .ancestors = ancestors[i]}, RowRole::kDrafted));
      positions.push_back(rows_.back().position);
    }
    EXPECT_TRUE(kv_->append_at(sequence_, positions).has_value());
    backend_->begin_pass(rows_, *kv_, {}, nullptr);
  }

  // Completes what was submitted and reads a row.
  std::span<const float> read_row(Buffer from, std::uint32_t row) {
    EXPECT_TRUE(backend_->wait().ok());
    return backend_->read_row(from, row);
  }

  Backend& backend() { return *backend_; }
  KvCache& kv() { return *kv_; }
  SequenceId sequence() const { return sequence_; }
  ThreadPool& pool() { return *pool_; }

 private:
  // A row whose path is given; a window of the limits chooses what it sees of that.
  Row row_at(std::uint32_t slot, VisibleSet visible, RowRole role) const {
    const std::uint32_t end = visible.path_end();
    const bool all = limits_.window == 0 || end <= limits_.window;
    visible.sinks = std::min(limits_.sinks, visible.prefix);
    visible.first = all ? 0 : end - limits_.window;
    return {.sequence = sequence_,
            .token = 0,
            .position = static_cast<std::int32_t>(end - 1),
            .kv_slot = slot,
            .role = role,
            .visible = visible,
            .adapter = 0,
            .wants_output = false};
  }

  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Backend> backend_;
  PassLimits limits_;
  KvShape shape_;
  std::vector<std::unique_ptr<AlignedBytes>> blocks_;
  std::optional<KvCache> kv_;
  std::optional<ResidentKvStore> kv_store_;
  SequenceId sequence_ = 0;
  std::vector<Row> rows_;
  std::vector<Rotation> rotations_;  // of the pass
};

// Tests that repeat much take is_emulated() for a reason to repeat less: emulated tiles are thirty
// times slower than any other tier.
inline bool is_emulated(kernels::Isa isa) {
  return isa == kernels::Isa::kAmx && !kernels::amx_is_native();
}

// The tiers whose code runs here, scalar among them, and that of matrix units where their tiles are
// emulated.
inline std::vector<kernels::Isa> host_tiers() {
  std::vector<kernels::Isa> tiers;
  for (const kernels::Isa isa : kernels::kAllIsas) {
    if (kernels::can_run_isa(host_cpu(), isa)) tiers.push_back(isa);
  }
  return tiers;
}

// Every kind of backend, with the scalar kernels.
inline std::vector<BackendTier> scalar_backends() {
  return {{kernels::Isa::kScalar},
          {kernels::Isa::kScalar, BackendTier::make_kind<DeferredBackend>}};
}

// The same, and that of the CPU with each of the other tiers. With a sanitizer, which does not
// check kernels of intrinsics, with the best one alone.
inline std::vector<BackendTier> backend_tiers() {
  std::vector<BackendTier> tiers = scalar_backends();
  for (const kernels::Isa isa : host_tiers()) {
    if (isa == kernels::Isa::kScalar) continue;
#ifdef QSF_WITH_SANITIZER
    if (isa != kernels::best_isa(host_cpu())) continue;
#endif
    tiers.emplace_back(isa);
  }
  return tiers;
}

inline std::vector<float> random_values(std::size_t n, Rng& rng) {
  std::vector<float> values(n);
  for (float& value : values) value = rng.next_normal();
  return values;
}

}  // namespace qsf::testing_support

#endif  // QSF_OPS_TESTING_BENCH_H_
