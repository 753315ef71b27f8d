// SPDX-License-Identifier: MIT
//
// Attention over pages of keys and values, and the state of sparse prefill.
//
// Attention: one query row, and as many as make a query tile of a prompt, over a page in cache,
// over the context of one KV head, and over contexts of so many KV heads that they come from
// memory. State (kv/sparse_prefill_state.h): at the size its targets are given for, 32 KV heads,
// chunks of 1,024 positions, memory sets of 512; each target stands beside its work.

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/f16.h"
#include "base/rng.h"
#include "kernels/attend/attend.h"
#include "kernels/kv_rows/kv_store.h"
#include "kv/kv_page_store.h"
#include "kv/sparse_prefill_state.h"
#include "tools/bench/bench_kernels.h"

namespace qsf_tools {
namespace {

using qsf::kernels::AttendKernel;

constexpr std::uint32_t kHeadDim = 128;
constexpr std::uint32_t kHeads = 8;          // that share a KV head
constexpr std::uint32_t kContextPages = 64;  // 4,096 positions
constexpr std::uint32_t kKvHeads = 128;      // whose contexts no cache holds: 268 MB in f16
constexpr std::size_t kLineBytes = 64;

// Bytes at a multiple of 64.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t n_bytes) : bytes_(n_bytes + kLineBytes) {}
  std::byte* data() noexcept {
    const std::size_t past = reinterpret_cast<std::uintptr_t>(bytes_.data()) % kLineBytes;
    return bytes_.data() + (past == 0 ? 0 : kLineBytes - past);
  }

 private:
  std::vector<std::byte> bytes_;
};

// Pages of a type, one KV head's after the other's, all with the same random keys and values.
class Pages {
 public:
  Pages(qsf::KvType type, std::uint32_t n_pages)
      : type_(type), bytes_(n_pages * page_bytes()), n_pages_(n_pages) {
    const qsf::kernels::KvStore store = {qsf::kernels::convert_kernels().back(),
                                         qsf::kernels::kv_row_kernels().back()};
    qsf::Rng rng(1);
    std::vector<float> row(kHeadDim);
    for (std::uint32_t slot = 0; slot < qsf::kKvPageSlots; ++slot) {
      for (float& value : row) value = rng.next_normal();
      qsf::kernels::store_key(store, type, row.data(), bytes_.data(), slot, kHeadDim);
      for (float& value : row) value = rng.next_normal();
      qsf::kernels::store_value(store, type, row.data(), bytes_.data() + block_bytes(), slot,
                                kHeadDim);
    }
    for (std::uint32_t i = 1; i < n_pages; ++i) {
      std::memcpy(bytes_.data() + i * page_bytes(), bytes_.data(), page_bytes());
    }
  }
  qsf::KvType type() const noexcept { return type_; }
  std::uint32_t size() const noexcept { return n_pages_; }
  std::size_t block_bytes() const noexcept { return qsf::kv_block_bytes(type_, kHeadDim); }
  std::size_t page_bytes() const noexcept { return 2 * block_bytes(); }
  const std::byte* page(std::uint32_t i) noexcept { return bytes_.data() + i * page_bytes(); }

 private:
  qsf::KvType type_;
  AlignedBytes bytes_;
  std::uint32_t n_pages_;
};

void bench_pages(const AttendKernel& kernel, Pages& pages, std::uint32_t n_rows, std::uint32_t n_q,
                 const std::string& what, KernelBench& bench) {
  const std::uint32_t n_queries = n_rows * n_q;
  AlignedBytes queries(qsf::kernels::attend_query_bytes(n_queries, kHeadDim));
  AlignedBytes scratch(qsf::kernels::attend_scratch_bytes(n_queries, kHeadDim));
  AlignedBytes acc(std::size_t{n_queries} * kHeadDim * sizeof(float));
  std::vector<float> q(std::size_t{n_queries} * kHeadDim);
  std::vector<qsf::kernels::AttendState> state(n_queries);
  const std::vector<qsf::kernels::AttendRange> visible(n_rows, {0, qsf::kKvPageSlots});
  qsf::Rng rng(2);
  for (float& value : q) value = rng.next_normal();
  auto* const sums = reinterpret_cast<float*>(acc.data());
  kernel.load_queries({.q = q.data(),
                       .row_stride = std::size_t{n_q} * kHeadDim,
                       .n_rows = n_rows,
                       .n_q = n_q,
                       .head_dim = kHeadDim,
                       .scale = 0.1F,
                       .queries = queries.data(),
                       .k_type = pages.type(),
                       .rotate = qsf::kernels::kv_row_kernels().back().rotate});
  qsf::kernels::attend_begin(state.data(), sums, kHeadDim, n_queries);
  const double bytes = static_cast<double>(pages.size() * pages.page_bytes());
  const double operations = 4.0 * n_queries * qsf::kKvPageSlots * kHeadDim * pages.size();
  bench.measure(kernel.name,
                what + ", " + std::string(qsf::kv_type_name(pages.type())) + ", " +
                    std::to_string(n_queries) + (n_queries == 1 ? " query" : " queries"),
                bytes, operations, [&] {
                  for (std::uint32_t i = 0; i < pages.size(); ++i) {
                    const std::byte* page = pages.page(i);
                    const bool more = i + 1 < pages.size();
                    kernel.page({.queries = queries.data(),
                                 .n_rows = n_rows,
                                 .n_q = n_q,
                                 .head_dim = kHeadDim,
                                 .k = page,
                                 .v = page + pages.block_bytes(),
                                 .k_type = pages.type(),
                                 .v_type = pages.type(),
                                 .visible = visible.data(),
                                 .state = state.data(),
                                 .acc = sums,
                                 .acc_stride = kHeadDim,
                                 .scratch = scratch.data(),
                                 .next = more ? pages.page(i + 1) : nullptr,
                                 .next_bytes = more ? pages.page_bytes() : 0});
                  }
                });
}

constexpr qsf::KvType kTypes[] = {qsf::KvType::kF16, qsf::KvType::k8Bit, qsf::KvType::k4Bit,
                                  qsf::KvType::k2Bit};

void bench_decode(const AttendKernel& kernel, KernelBench& bench) {
  const struct {
    const char* what;
    std::uint32_t n_pages;
  } kContexts[] = {{"page", 1}, {"4096", kContextPages}, {"memory", kContextPages * kKvHeads}};
  for (const auto& [what, n_pages] : kContexts) {
    // The scalar tier is far from memory's speed.
    if (n_pages > kContextPages && kernel.isa == qsf::kernels::Isa::kScalar) continue;
    for (const std::uint32_t n_q : {1U, kHeads}) {
      for (const qsf::KvType type : kTypes) {
        Pages pages(type, n_pages);
        bench_pages(kernel, pages, 1, n_q, what, bench);
      }
    }
  }
}

}  // namespace

void bench_attend_kernels(KernelBench& bench) {
  for (const AttendKernel& kernel : qsf::kernels::attend_decode_kernels()) {
    if (bench.wants(kernel.name, kernel.isa)) bench_decode(kernel, bench);
  }
  for (const AttendKernel& kernel : qsf::kernels::attend_prompt_kernels()) {
    if (!bench.wants(kernel.name, kernel.isa)) continue;
    for (const qsf::KvType type : kTypes) {
      Pages pages(type, 1);
      bench_pages(kernel, pages, std::max(1U, kernel.tile_queries / kHeads), kHeads, "prompt",
                  bench);
    }
  }
}

namespace {

constexpr std::uint32_t kStateHeads = 32;
constexpr std::uint32_t kChunk = 1024;
constexpr std::uint32_t kMemory = 512;
constexpr std::uint32_t kLayers = 32;
constexpr std::uint32_t kPositions = 4096;
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
      .n_layers = kLayers, .n_kv_heads = kStateHeads, .kv_size = kPositions, .options = {}};
  const auto n_bytes = static_cast<double>(qsf::SparsePrefillState::region_bytes(shape));
  bench.measure("h2o_create", "32 layers, 4096: < 1e8 ns", n_bytes, 0.0,
                [&] { const State state(shape); });
}

void bench_scores(KernelBench& bench) {
  State state({.n_layers = 1, .n_kv_heads = kStateHeads, .kv_size = kPositions, .options = {}});
  const auto scores = state.h2o.scores(0);
  qsf::Rng rng(1);
  std::vector<std::uint32_t> places(10000);
  for (auto& place : places) place = rng.below(kStateHeads) * kPositions + rng.below(kPositions);
  volatile float sink = 0.0F;
  bench.measure("h2o_scores", "10000 at random: < 1e7 ns", 2.0 * places.size(), 0.0, [&] {
    float sum = 0.0F;
    for (const std::uint32_t place : places) sum += qsf::to_f32(scores[place]);
    sink = sum;
  });
}

void bench_build(KernelBench& bench) {
  constexpr std::uint32_t kChunks = 16;
  State state(
      {.n_layers = 1, .n_kv_heads = kStateHeads, .kv_size = kChunks * kChunk, .options = {}});
  const auto scores = state.h2o.scores(0);
  std::vector<qsf::BF16> random;
  for (const float sum : random_sums(scores.size())) random.push_back(qsf::to_bf16(sum));
  std::uint32_t end = kChunks * kChunk;
  // One call in sixteen starts anew; the fastest does not.
  bench.measure("h2o_build_memory_set", "32 heads, S 1024: < 1e6 ns",
                kStateHeads * (2.0 * kChunk + 8.0 * kMemory), 0.0, [&] {
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
  State state({.n_layers = 1, .n_kv_heads = kStateHeads, .kv_size = kPositions, .options = {}});
  const auto sums = random_sums(std::size_t{kStateHeads} * kChunk);
  for (std::uint32_t at = 0; at < kPositions; at += kChunk) {
    QSF_CHECK(state.h2o.init_chunk_scores(0, at, kChunk, sums).ok());
    QSF_CHECK(state.h2o.build_memory_set(0, at + kChunk).ok());
  }
  const auto paid = std::span(sums).first(std::size_t{kStateHeads} * kMemory);
  bench.measure("h2o_accumulate_memory_scores", "32 heads, M 512: < 1e4 ns",
                14.0 * kStateHeads * kMemory, 0.0,
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
