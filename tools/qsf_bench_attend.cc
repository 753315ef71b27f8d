// SPDX-License-Identifier: MIT
//
// Attention over pages of keys and values that lie in cache: of one row, and of as many as make a
// tile of a prompt.

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/f16.h"
#include "base/rng.h"
#include "kernels/attend/attend.h"
#include "qsf_bench_kernels.h"

namespace qsf_tools {
namespace {

using qsf::kernels::AttendKernel;

constexpr std::uint32_t kHeadDim = 128;
constexpr std::uint32_t kHeads = 8;  // that share a KV head
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

void bench_page(const AttendKernel& kernel, std::uint32_t n_rows, const char* what,
                KernelBench& bench) {
  const std::uint32_t n_queries = n_rows * kHeads;
  constexpr std::size_t kPageValues = std::size_t{qsf::kKvPageSlots} * kHeadDim;
  AlignedBytes keys(kPageValues * sizeof(qsf::F16));
  AlignedBytes values(kPageValues * sizeof(qsf::F16));
  AlignedBytes queries(qsf::kernels::attend_query_bytes(n_queries, kHeadDim));
  AlignedBytes scratch(qsf::kernels::attend_scratch_bytes(n_queries, kHeadDim));
  AlignedBytes acc(std::size_t{n_queries} * kHeadDim * sizeof(float));
  std::vector<float> q(std::size_t{n_queries} * kHeadDim);
  std::vector<qsf::kernels::AttendState> state(n_queries);
  const std::vector<qsf::kernels::AttendRange> visible(n_rows, {0, qsf::kKvPageSlots});
  qsf::Rng rng(1);
  for (float& value : q) value = rng.next_normal();
  for (std::byte* const to : {keys.data(), values.data()}) {
    for (std::size_t i = 0; i < kPageValues; ++i) {
      const qsf::F16 value = qsf::to_f16(rng.next_normal());
      std::memcpy(to + i * sizeof(value), &value, sizeof(value));
    }
  }
  auto* const sums = reinterpret_cast<float*>(acc.data());
  kernel.load_queries({.q = q.data(),
                       .row_stride = std::size_t{kHeads} * kHeadDim,
                       .n_rows = n_rows,
                       .n_q = kHeads,
                       .head_dim = kHeadDim,
                       .scale = 0.1F,
                       .queries = queries.data()});
  qsf::kernels::attend_begin(state.data(), sums, kHeadDim, n_queries);
  const double operations = 4.0 * n_queries * static_cast<double>(kPageValues);
  bench.measure(kernel.name, std::string(what) + ", " + std::to_string(n_queries) + " queries",
                2.0 * kPageValues * sizeof(qsf::F16), operations, [&] {
                  kernel.page({.queries = queries.data(),
                               .n_rows = n_rows,
                               .n_q = kHeads,
                               .head_dim = kHeadDim,
                               .k = keys.data(),
                               .v = values.data(),
                               .k_type = qsf::KvType::kF16,
                               .v_type = qsf::KvType::kF16,
                               .visible = visible.data(),
                               .state = state.data(),
                               .acc = sums,
                               .acc_stride = kHeadDim,
                               .scratch = scratch.data()});
                });
}

}  // namespace

void bench_attend_kernels(KernelBench& bench) {
  for (const AttendKernel& kernel : qsf::kernels::attend_decode_kernels()) {
    if (bench.wants(kernel.name, kernel.isa)) bench_page(kernel, 1, "decode, f16", bench);
  }
  for (const AttendKernel& kernel : qsf::kernels::attend_prompt_kernels()) {
    if (!bench.wants(kernel.name, kernel.isa)) continue;
    bench_page(kernel, std::max(1U, kernel.tile_queries / kHeads), "prompt, f16", bench);
  }
}

}  // namespace qsf_tools
