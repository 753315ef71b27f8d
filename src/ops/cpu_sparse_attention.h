// SPDX-License-Identifier: MIT
//
// Sparse prefill (kv/sparse_prefill_state.h) and H2O eviction (kv/h2o_eviction.h): attention over
// members, chosen earlier positions, and neighbouring slots in one softmax, with the column sums
// that choose the next members.
//
// Positions are cut into parts: chunks of S, or blocks of 64. A query at position i of the part
// that begins at c attends to the slots from `first slot` to its own, and to its KV head's members:
//
//   out[i] = sum over j in { first slot .. i } and the members of softmax_j(score[i][j]) * v[j]
//
//            first slot       members
//   chunks   c                the memory set at c, gathered once a pass
//   blocks   max(0, c - W)    the heavy hitters at c, read where they are stored
//
// Parts of a layer run one after the other, since each needs the members chosen before it. Inside a
// part query tiles and KV heads run on all workers. The kernels take a query tile in slices, as
// many rows as fit their queries.
//
// The probabilities of each query, summed over the query heads of a KV head, are added row by row
// inside a tile, and tiles to the part's sums in ascending order. The state keeps the sums of a
// tile that a pass cuts. So bits depend neither on passes nor on calls nor on threads. Tiles of
// chunks have 64 positions; tiles of blocks have one slice, so that a block is work for several
// threads.
//
// In sparse prefill the outputs of the first chunk's queries come from plain attention, with the
// same bits, and are only scored here; so are generated rows, which attend to everything. With H2O
// eviction all outputs come from here.

#ifndef QSF_OPS_CPU_SPARSE_ATTENTION_H_
#define QSF_OPS_CPU_SPARSE_ATTENTION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "kernels/kernel_set.h"
#include "kv/h2o_eviction.h"
#include "kv/kv_cache.h"
#include "kv/kv_page_store.h"
#include "kv/row.h"
#include "kv/sparse_prefill_state.h"
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
  // With `exact` prompt rows take the kernels of generated ones, which multiply f32.
  // Requires  pool and kernels outlive it
  SparseAttention(ThreadPool& pool, const kernels::KernelSet& kernels, bool exact) noexcept
      : pool_(pool),
        kernels_(kernels),
        prompt_(exact ? kernels.attend_query_tile_decode : kernels.attend_query_tile_prompt) {}

  // Bytes that attach() wants; 0 without limits.sparse_prefill and limits.h2o_eviction. A multiple
  // of 64.
  static std::uint64_t scratch_bytes(const PassLimits& limits, unsigned n_threads) noexcept;
  // Requires  memory of scratch_bytes(limits, threads of the pool), 64-byte aligned
  void attach(const PassLimits& limits, MutableByteSpan memory) noexcept;

  // Attends rows [first, last) of a pass and adds their probabilities to the sums of `state`; ends
  // the chunk when they fill it. Writes outputs only with `outputs`.
  // Requires    attach(); the rows lie in the current chunk, in ascending order of position, all of
  //             one sequence and role; slots are positions; the first is state.scored_end(layer)
  // Guarantees  the state is unchanged when cancelled
  void run(const SparseLayer& layer, SparsePrefillState& state, std::uint32_t first,
           std::uint32_t last, bool outputs);
  // The same for rows in the current block of `eviction`.
  void run(const SparseLayer& layer, H2oEviction& eviction, std::uint32_t first,
           std::uint32_t last);

  // The kernel of prompt rows, or of generated ones.
  const kernels::AttendQueryTileKernel& kernel(bool prompt) const noexcept {
    return prompt ? prompt_ : kernels_.attend_query_tile_decode;
  }

 private:
  // The rows of a pass in one chunk or block, of one role. Either state or eviction is not null.
  struct Part {
    const SparseLayer& layer;
    SparsePrefillState* state;
    H2oEviction* eviction;
    std::uint32_t first_row;
    std::uint32_t last_row;
    std::uint32_t start;       // position
    std::uint32_t end;         // of the whole part
    std::uint32_t first_slot;  // that its rows attend to
    std::uint32_t n_members;
    bool outputs;
    std::uint32_t first_tile = 0;  // of the part
    std::uint32_t n_tiles = 0;
  };
  // Members of a KV head: blocks behind each other, and positions.
  struct Memory {
    const std::byte* keys;
    const std::byte* values;
    const std::int32_t* positions;
  };
  // Column sums of a KV head: of members, and of slots from the first.
  struct ColumnSums {
    float* members;
    float* slots;
  };
  // Working memory of a worker.
  struct Work {
    std::byte* queries;
    std::byte* scratch;
    float* weights;  // [slice queries][stride of the limits]
    float* acc;      // [slice queries][head_dim, padded to 16]
  };
  // Sizes that follow from the limits.
  struct Sizes {
    std::uint32_t slice_rows;
    std::uint32_t slice_queries;
    std::uint32_t tile_rows;
    std::uint32_t n_tiles;         // of a part
    std::uint32_t n_memory_pages;  // of all members
    std::uint32_t n_slots;         // that a row attends to
    std::size_t n_columns;         // of members and slots, each in whole pages
    std::size_t weights_stride;
    std::size_t acc_stride;
    std::size_t work_bytes;
    std::size_t block_pair_bytes;  // a K and a V block
    std::size_t sums_bytes;        // of all tiles and heads
    std::size_t memory_bytes;      // of the gathered blocks of all heads
    KvType k_type;
    KvType v_type;
  };
  const kernels::AttendQueryTileKernel& kernel_of(const Part& part) const noexcept {
    return kernel(part.layer.rows[part.first_row].role == RowRole::kPrompt);
  }
  static Sizes sizes_of(const PassLimits& limits) noexcept;

  Work work_of(unsigned worker) const noexcept;
  float* tile_sums(std::uint32_t kv_head, std::uint32_t tile) const noexcept;
  MutableByteSpan gathered(std::uint32_t kv_head, KvPart part,
                           std::uint32_t n_pages) const noexcept;
  void gather(const Part& part);
  static std::size_t first_slot_column(const Part& part) noexcept;
  static std::uint32_t page_start(const Part& part, std::uint32_t page) noexcept;
  Memory memory_of(const Part& part, std::uint32_t kv_head) const noexcept;
  static ColumnSums part_sums(const Part& part, std::uint32_t kv_head) noexcept;
  static ColumnSums open_tile_sums(const Part& part, std::uint32_t kv_head) noexcept;
  bool run_part(Part& part);
  void run_tile(const Part& part, std::uint32_t kv_head, std::uint32_t tile, const Work& work);
  // The rows of a tile that a kernel takes at once, with the query heads of one KV head.
  struct Slice {
    const Part& part;
    std::uint32_t kv_head;
    std::uint32_t first_row;
    std::uint32_t n_rows;
    std::uint32_t n_pages;          // of columns: the members', then those up to the last row's
    const std::int32_t* positions;  // [n_rows]
  };
  void load_queries(const Slice& slice, const Work& work);
  const std::byte* block_of(const Slice& slice, std::uint32_t page, KvPart block) const noexcept;
  kernels::AttendQueryTileArgs page_of(const Slice& slice, std::uint32_t page,
                                       kernels::AttendRange* visible, const Work& work) const;
  void finish_slice(const Slice& slice, const Work& work);
  void run_slice(const Part& part, std::uint32_t kv_head, std::uint32_t first_row,
                 std::uint32_t n_rows, float* sums, const Work& work);
  void add_up(const Part& part, std::uint32_t kv_head);

  ThreadPool& pool_;
  const kernels::KernelSet& kernels_;
  const kernels::AttendQueryTileKernel& prompt_;
  PassLimits limits_;
  Sizes sizes_{};
  std::byte* works_ = nullptr;   // [threads]
  float* sums_ = nullptr;        // [n_kv_heads][tiles][columns]
  std::byte* memory_ = nullptr;  // [n_kv_heads]: K blocks, then V blocks
};

}  // namespace qsf

#endif  // QSF_OPS_CPU_SPARSE_ATTENTION_H_
