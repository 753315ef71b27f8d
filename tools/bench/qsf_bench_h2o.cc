// SPDX-License-Identifier: MIT
//
// The state of sparse prefill (kv/sparse_prefill_state.h) at the size its targets are given for: 32
// KV heads, chunks of 1,024 positions, memory sets of 512. Targets stand beside the work.

#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/f16.h"
#include "base/rng.h"
#include "kv/kv_page_store.h"
#include "kv/sparse_prefill_state.h"
#include "tools/bench/qsf_bench_kernels.h"

namespace qsf_tools {
namespace {

constexpr std::uint32_t kHeads = 32;
constexpr std::uint32_t kChunk = 1024;
constexpr std::uint32_t kMemory = 512;
constexpr std::uint32_t kLayers = 32;
constexpr std::uint32_t kPositions = 4096;
constexpr std::uint32_t kHeadDim = 128;
constexpr std::align_val_t kLineAlign{64};

// Bytes at a multiple of 64, not touched before they are used.
class UntouchedBytes {
 public:
  explicit UntouchedBytes(std::uint64_t n_bytes)
      : size_(static_cast<std::size_t>(n_bytes)),
        bytes_(static_cast<std::byte*>(::operator new(size_, kLineAlign))) {}
  qsf::MutableByteSpan span() const noexcept { return {bytes_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* bytes) const noexcept { ::operator delete(bytes, kLineAlign); }
  };
  std::size_t size_;
  std::unique_ptr<std::byte, Free> bytes_;
};

// A state with what it lies in.
struct State {
  UntouchedBytes memory;
  qsf::SparsePrefillState h2o;
  explicit State(const qsf::SparsePrefillShape& shape)
      : memory(qsf::SparsePrefillState::region_bytes(shape)),
        h2o(qsf::SparsePrefillState::create(shape, memory.span()).value()) {}
};

std::vector<float> random_sums(std::size_t n) {
  qsf::Rng rng(1);
  std::vector<float> sums(n);
  for (float& sum : sums) sum = rng.next_f32();
  return sums;
}

bool wants(std::string_view name, const KernelBench& bench) {
  return bench.wants(name, qsf::kernels::Isa::kScalar);
}

void bench_create(KernelBench& bench) {
  const qsf::SparsePrefillShape shape{
      .n_layers = kLayers, .n_kv_heads = kHeads, .kv_size = kPositions, .options = {}};
  const auto n_bytes = static_cast<double>(qsf::SparsePrefillState::region_bytes(shape));
  bench.measure("h2o_create", "32 layers, 4096: < 1e8 ns", n_bytes, 0.0,
                [&] { const State state(shape); });
}

void bench_scores(KernelBench& bench) {
  State state({.n_layers = 1, .n_kv_heads = kHeads, .kv_size = kPositions, .options = {}});
  const auto scores = state.h2o.scores(0);
  qsf::Rng rng(1);
  std::vector<std::uint32_t> places(10000);
  for (auto& place : places) place = rng.below(kHeads) * kPositions + rng.below(kPositions);
  volatile float sink = 0.0F;
  bench.measure("h2o_scores", "10000 at random: < 1e7 ns", 2.0 * places.size(), 0.0, [&] {
    float sum = 0.0F;
    for (const std::uint32_t place : places) sum += qsf::to_f32(scores[place]);
    sink = sum;
  });
}

void bench_build(KernelBench& bench) {
  constexpr std::uint32_t kChunks = 16;
  State state({.n_layers = 1, .n_kv_heads = kHeads, .kv_size = kChunks * kChunk, .options = {}});
  const auto scores = state.h2o.scores(0);
  std::vector<qsf::BF16> random;
  for (const float sum : random_sums(scores.size())) random.push_back(qsf::to_bf16(sum));
  std::uint32_t end = kChunks * kChunk;
  // One call in sixteen starts anew; the fastest does not.
  bench.measure("h2o_build_memory_set", "32 heads, S 1024: < 1e6 ns",
                kHeads * (2.0 * kChunk + 8.0 * kMemory), 0.0, [&] {
                  if (end == kChunks * kChunk) {
                    end = state.h2o.truncate(0);
                    std::memcpy(scores.data(), random.data(), scores.size_bytes());
                  }
                  end += kChunk;
                  const qsf::Status built = state.h2o.build_memory_set(0, end);
                  QSF_CHECK(built.ok());
                });
}

void bench_accumulate(KernelBench& bench) {
  State state({.n_layers = 1, .n_kv_heads = kHeads, .kv_size = kPositions, .options = {}});
  const auto sums = random_sums(std::size_t{kHeads} * kChunk);
  for (std::uint32_t at = 0; at < kPositions; at += kChunk) {
    QSF_CHECK(state.h2o.init_chunk_scores(0, at, kChunk, sums).ok());
    QSF_CHECK(state.h2o.build_memory_set(0, at + kChunk).ok());
  }
  const auto paid = std::span(sums).first(std::size_t{kHeads} * kMemory);
  bench.measure("h2o_accumulate_memory_scores", "32 heads, M 512: < 1e4 ns",
                14.0 * kHeads * kMemory, 0.0,
                [&] { QSF_CHECK(state.h2o.accumulate_memory_scores(0, paid).ok()); });
}

void bench_gather(KernelBench& bench) {
  State state({.n_layers = 1, .n_kv_heads = 1, .kv_size = kPositions, .options = {}});
  const auto sums = random_sums(kChunk);
  for (std::uint32_t at = 0; at < kPositions; at += kChunk) {
    QSF_CHECK(state.h2o.init_chunk_scores(0, at, kChunk, sums).ok());
    QSF_CHECK(state.h2o.build_memory_set(0, at + kChunk).ok());
  }
  std::vector<std::uint32_t> sequence_pages(qsf::kv_pages_for(kPositions));
  for (std::uint32_t i = 0; i < sequence_pages.size(); ++i) sequence_pages[i] = i;
  for (const qsf::KvType type : qsf::kAllKvTypes) {
    const qsf::KvShape kv{1, 1, kHeadDim, type, type};
    UntouchedBytes pages(kv.page_bytes() * sequence_pages.size());
    std::memset(pages.span().data(), 0x11, pages.span().size());
    qsf::ResidentKvStore store(kv, pages.span());
    const qsf::KvLayerPages layer = store.acquire_layer(0);
    UntouchedBytes blocks(kMemory / qsf::kKvPageSlots * kv.block_bytes(qsf::KvPart::kKeys));
    const std::string work = "M 512, 128 of " + std::string(qsf::kv_type_name(type));
    const double n_bytes = 2.0 * static_cast<double>(blocks.span().size());
    bench.measure("h2o_gather_k_memory", work, n_bytes, 0.0, [&] {
      state.h2o.gather_k_memory(0, 0, kv, layer, sequence_pages, blocks.span());
    });
    bench.measure("h2o_gather_v_memory", work, n_bytes, 0.0, [&] {
      state.h2o.gather_v_memory(0, 0, kv, layer, sequence_pages, blocks.span());
    });
  }
}

}  // namespace

void bench_h2o_state(KernelBench& bench) {
  if (wants("h2o_create", bench)) bench_create(bench);
  if (wants("h2o_scores", bench)) bench_scores(bench);
  if (wants("h2o_build_memory_set", bench)) bench_build(bench);
  if (wants("h2o_accumulate_memory_scores", bench)) bench_accumulate(bench);
  if (wants("h2o_gather_k_memory", bench) || wants("h2o_gather_v_memory", bench)) {
    bench_gather(bench);
  }
}

}  // namespace qsf_tools
