// SPDX-License-Identifier: MIT
//
// Attention of a long prompt over its chunk and a memory set, with the column sums that choose the
// next memory set (kv/h2o_state.h).
//
// The positions of a sequence are cut into chunks of S. A query at position i of the chunk that
// begins at c sees the positions c to i and the members that its KV head's memory set had at c:
//
//   out[i] = sum over j in { c .. i } and the members of softmax_j(score[i][j]) * v[j]
//
// which is one softmax over both. Chunks of a layer follow one another, since each needs the
// memory set that those before leave; inside a chunk strips of 64 positions and KV heads run on all
// workers. The members' keys and values are copied side by side once for all strips.
//
// The probabilities of each query, summed over the query heads of a KV head, are added row by row
// inside a strip, and strips to the chunk's sums in ascending order; a strip that a pass cuts keeps
// its open sums in the state. So bits depend neither on passes nor on calls nor on threads.
//
// Queries in the first chunk see what plain attention sees and are scored alone: their outputs
// come from plain attention, whose bits they keep. So are generated rows, which see everything.

#ifndef QSF_OPS_CPU_SPARSE_ATTENTION_H_
#define QSF_OPS_CPU_SPARSE_ATTENTION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "kernels/kernel_set.h"
#include "kv/h2o_state.h"
#include "kv/kv_cache.h"
#include "kv/kv_page_store.h"
#include "kv/row.h"
#include "ops/backend.h"
#include "platform/threads.h"

namespace qsf {

// One layer of a pass.
struct SparseLayer {
  const AttendArgs& args;  // `q` and `out` are not read; without a window
  const float* q;          // [rows][n_heads * head_dim], q_stride floats apart
  std::size_t q_stride;
  float* out;
  std::size_t out_stride;
  std::span<const Row> rows;  // of the pass
  const KvCache& kv;
  KvLayerPages pages;
  const std::atomic<bool>* cancel;  // may be null
};

class SparseAttention {
 public:
  // Requires  pool and kernels outlive it
  SparseAttention(ThreadPool& pool, const kernels::KernelSet& kernels) noexcept
      : pool_(pool), kernels_(kernels) {}

  // Bytes that attach() wants; 0 without limits.h2o. A multiple of 64.
  static std::uint64_t scratch_bytes(const PassLimits& limits, unsigned n_threads) noexcept;
  // Requires  memory of scratch_bytes(limits, threads of the pool), 64-byte aligned
  void attach(const PassLimits& limits, MutableByteSpan memory) noexcept;

  // Attends rows [first, last) of a pass that lie in the open chunk of `state`, in ascending
  // order of position, all of one sequence, and adds what they paid to its sums; ends the chunk
  // when they fill it. Without `outputs` nothing else comes of it.
  // Requires  attach(); slots are positions; the first row's is state.scored_end(layer)
  // Guarantees  cancelled, the state is as it was
  void run(const SparseLayer& layer, H2oState& state, std::uint32_t first, std::uint32_t last,
           bool outputs);

 private:
  // The rows of a pass in one chunk.
  struct Part {
    const SparseLayer& layer;
    H2oState& state;
    std::uint32_t first_row;
    std::uint32_t last_row;
    std::uint32_t chunk_start;
    std::uint32_t chunk_end;
    std::uint32_t n_members;
    bool outputs;
    std::uint32_t first_strip;  // of the chunk
    std::uint32_t n_strips;
  };
  // What a worker works in.
  struct Work {
    std::byte* queries;
    std::byte* scratch;
    float* weights;  // [tile queries][stride of the limits]
    float* acc;      // [tile queries][head_dim, padded to 16]
  };
  // Sizes that follow from the limits.
  struct Sizes {
    std::uint32_t tile_rows;
    std::uint32_t tile_queries;
    std::uint32_t n_strips;        // of a chunk
    std::uint32_t n_memory_pages;  // of a memory set
    std::size_t n_columns;         // of a memory set and a chunk, each in whole pages
    std::size_t weights_stride;
    std::size_t acc_stride;
    std::size_t work_bytes;
    std::size_t block_pair_bytes;  // a K and a V block
    std::size_t sums_bytes;        // of all strips and heads
    std::size_t memory_bytes;      // of the gathered blocks of all heads
  };
  static Sizes sizes_of(const PassLimits& limits) noexcept;

  Work work_of(unsigned worker) const noexcept;
  float* strip_sums(std::uint32_t kv_head, std::uint32_t strip) const noexcept;
  MutableByteSpan gathered(std::uint32_t kv_head, KvPart part,
                           std::uint32_t n_pages) const noexcept;
  void gather(const Part& part);
  void run_strip(const Part& part, std::uint32_t kv_head, std::uint32_t strip, const Work& work);
  // The rows of a part that a kernel takes at once, with the query heads of one KV head.
  struct Tile {
    const Part& part;
    std::uint32_t kv_head;
    std::uint32_t first_row;
    std::uint32_t n_rows;
    std::uint32_t n_pages;  // of columns: the memory set's, then the chunk's up to the last row's
    const std::int32_t* positions;  // [n_rows]
  };
  void load_queries(const Tile& tile, const Work& work);
  kernels::AttendStripArgs page_of(const Tile& tile, std::uint32_t page,
                                   kernels::AttendRange* visible, const Work& work) const;
  void finish_tile(const Tile& tile, const Work& work);
  void run_tile(const Part& part, std::uint32_t kv_head, std::uint32_t first_row,
                std::uint32_t n_rows, float* sums, const Work& work);
  void add_up(const Part& part, std::uint32_t kv_head);

  ThreadPool& pool_;
  const kernels::KernelSet& kernels_;
  PassLimits limits_;
  Sizes sizes_{};
  std::byte* works_ = nullptr;   // [threads]
  float* sums_ = nullptr;        // [n_kv_heads][strips][columns]
  std::byte* memory_ = nullptr;  // [n_kv_heads]: K blocks, then V blocks
};

}  // namespace qsf

#endif  // QSF_OPS_CPU_SPARSE_ATTENTION_H_
