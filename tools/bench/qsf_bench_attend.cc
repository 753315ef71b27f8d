// SPDX-License-Identifier: MIT
//
// Attention over pages of keys and values, of one row and of as many as make a tile of a prompt:
// over a page that lies in cache, over a context of one KV head, and over contexts of so many that
// they come from memory.

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/attend/attend.h"
#include "kernels/kv_rows/kv_store.h"
#include "tools/bench/qsf_bench_kernels.h"

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

}  // namespace qsf_tools
