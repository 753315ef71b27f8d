// SPDX-License-Identifier: MIT
//
// SparsePrefillState: the memory sets of sparse prefill, the earlier positions that the chunks of a
// long prompt attend to.
//
// A prompt is cut into chunks of S positions. A query attends to its own chunk up to itself, and to
// the memory set of the chunk: the last L positions before it, and H heavier ones before those. The
// set is chosen by the attention that each position received: for every layer and KV head the state
// holds the column sums of the attention probabilities.
//
//   current chunk  queries add column sums in f32: chunk_sums for the positions of the chunk,
//                  memory_sums for the members; passes and calls may cut a chunk
//   close_chunk    adds members' sums to their f32 accumulators, and stores the chunk's sums as
//                  scores; then chooses the next memory set from members and chunk
//                  (build_memory_set)
//
// Scores are BF16, in which a long sum would stall (256 + 0.5 = 256). So members are ranked by
// their f32 accumulators, and their scores are these rounded. A position that leaves the memory set
// keeps its last score and never comes back.
//
// Layers are independent: layer 0 may complete all chunks of a pass before layer 1 begins.
//
// All memory lies in a region that the caller plans; nothing is allocated after creation.

#ifndef QSF_KV_SPARSE_PREFILL_STATE_H_
#define QSF_KV_SPARSE_PREFILL_STATE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/f16.h"
#include "base/result.h"
#include "base/status.h"
#include "kv/kv_page_store.h"
#include "kv/kv_policy.h"

namespace qsf {

// Positions of a query tile, counted from the chunk's start. Sums are added tile by tile.
inline constexpr std::uint32_t kSparsePrefillTileRows = 64;

struct SparsePrefillShape {
  std::uint32_t n_layers = 1;
  std::uint32_t n_kv_heads = 1;
  std::uint32_t kv_size = 1;  // positions that a sequence can have
  SparsePrefillOptions options;

  constexpr std::uint32_t memory_size() const noexcept { return memory_set_size(options); }
};

// The completed chunks of every layer. Boundaries are 0, S, 2S ... and the end of the last one.
struct SparsePrefillChunks {
  std::uint32_t current_chunk_index = 0;
  std::uint32_t total_tokens_processed = 0;
  std::span<const std::uint32_t> boundaries;  // [current_chunk_index + 1], of the reserved ones
};
static_assert(sizeof(SparsePrefillChunks) < 128);

// One of the arrays in the region.
struct SparsePrefillBuffer {
  std::string name;  // "h2o_scores_l0"
  MutableByteSpan bytes;
};

// Threads  one at a time; heads of the sums may be written from different threads
class SparsePrefillState {
 public:
  // Bytes of the region that create() wants, saturated; 0 when local and heavy are 0.
  static std::uint64_t region_bytes(const SparsePrefillShape& shape) noexcept;

  // Zeroes the region and starts with no position.
  // Requires  region.size() >= region_bytes(shape), 64-byte aligned, outliving the state
  // Fails     kInvalidArgument when a number of the shape is 0 or too large, or as validate()
  static Result<SparsePrefillState> create(const SparsePrefillShape& shape, MutableByteSpan region);

  SparsePrefillState(SparsePrefillState&&) noexcept = default;
  SparsePrefillState& operator=(SparsePrefillState&&) noexcept = default;
  SparsePrefillState(const SparsePrefillState&) = delete;
  SparsePrefillState& operator=(const SparsePrefillState&) = delete;

  const SparsePrefillShape& shape() const noexcept { return shape_; }
  // Without local and heavy positions there is no state: the spans are empty, and methods that
  // return a Status fail.
  bool is_on() const noexcept { return sparse_prefill_is_on(shape_.options); }

  // The arrays of a layer. Requires  layer < n_layers
  // Shapes  scores          [n_kv_heads][kv_size]
  //         memory_indices  [n_kv_heads][M], positions ascending, then -1 for unused ones
  //         accumulators    [n_kv_heads][M], sums of the members
  //         chunk_sums      [n_kv_heads][S], of the current chunk's complete tiles
  //         memory_sums     [n_kv_heads][M], the same for the members
  //         tile_sums      [n_kv_heads][S + M], of the incomplete tile
  std::span<BF16> scores(std::uint32_t layer) noexcept;
  std::span<const std::int32_t> memory_indices(std::uint32_t layer) const noexcept;
  std::span<float> accumulators(std::uint32_t layer) noexcept;
  std::span<float> chunk_sums(std::uint32_t layer) noexcept;
  std::span<float> memory_sums(std::uint32_t layer) noexcept;
  std::span<float> tile_sums(std::uint32_t layer) noexcept;

  // The members of a head: the used part of its memory_indices, ascending. Every head of a layer
  // has as many. Requires  layer < n_layers, kv_head < n_kv_heads
  std::span<const std::int32_t> members(std::uint32_t layer, std::uint32_t kv_head) const noexcept;

  // The start of the current chunk of a layer, and the end of the queries in its sums.
  std::uint32_t chunk_start(std::uint32_t layer) const noexcept;
  std::uint32_t scored_end(std::uint32_t layer) const noexcept;
  // Records that the sums of a layer hold the queries of all positions below `end`.
  // Requires  scored_end(layer) <= end <= chunk_start(layer) + S and kv_size
  void mark_scored(std::uint32_t layer, std::uint32_t end) noexcept;
  // Ends the current chunk of a layer at scored_end: accumulate_memory_scores with memory_sums when
  // there are members, init_chunk_scores with chunk_sums, build_memory_set.
  // Requires  tile_sums were added to the others
  // Fails     kInvalidArgument when no query of the chunk is in the sums
  Status close_chunk(std::uint32_t layer);

  // Stores the scores of a chunk's first `chunk_len` positions, rounded.
  // Shapes  column_sums [n_kv_heads][chunk_len]
  // Fails   kInvalidArgument when the layer does not exist, the chunk is not the current one, is
  // longer
  //         than S or leaves kv_size, or column_sums has another size; nothing has changed then
  Status init_chunk_scores(std::uint32_t layer, std::uint32_t chunk_start, std::uint32_t chunk_len,
                           std::span<const float> column_sums);
  // Adds to the accumulators of the members, and stores them rounded as scores.
  // Shapes  column_sums [n_kv_heads][M]; values beyond the members are not read
  // Fails   as above, and when the layer has no memory set yet
  Status accumulate_memory_scores(std::uint32_t layer, std::span<const float> column_sums);
  // Chooses the memory set for the chunk that begins at `chunk_end`: the L positions before it, the
  // sinks before those, and the highest-ranked of the other members and positions of the chunk, H
  // in all with the sinks. Of equal ranks the smaller position is chosen; NaN ranks lowest. The
  // sums of the current chunk are zeroed.
  // Fails  kInvalidArgument when the layer does not exist, or chunk_end does not lie behind the
  //        chunk's start, within S positions of it and within kv_size; nothing has changed then
  Status build_memory_set(std::uint32_t layer, std::uint32_t chunk_end);

  // Copies the keys (values) of a head's members into page blocks, codes and scales as they are:
  // member m becomes slot m % kKvPageSlots of block m / kKvPageSlots. The slots that remain of the
  // last block are zeros. Their positions are members(layer, kv_head).
  // Shapes    sequence_pages [at least kv_pages_for(last member + 1)]: position p is slot
  //           p % kKvPageSlots of page sequence_pages[p / kKvPageSlots], as under KvPolicy::kFull;
  //           blocks [kv_pages_for(members) * kv.block_bytes(part)]
  // Requires  layer < n_layers, kv_head < n_kv_heads, pages of that layer, members all kept
  // Threads   any number at once while the memory set stands
  void gather_k_memory(std::uint32_t layer, std::uint32_t kv_head, const KvShape& kv,
                       const KvLayerPages& pages, std::span<const std::uint32_t> sequence_pages,
                       MutableByteSpan blocks) const;
  void gather_v_memory(std::uint32_t layer, std::uint32_t kv_head, const KvShape& kv,
                       const KvLayerPages& pages, std::span<const std::uint32_t> sequence_pages,
                       MutableByteSpan blocks) const;

  // Counts a chunk that every layer has completed.
  // Fails  kInvalidArgument when chunk_len is 0 or above S, exceeds kv_size, or the chunk before
  // was
  //        shorter than S; nothing has changed then
  Status next_chunk(std::uint32_t chunk_len);
  const SparsePrefillChunks& chunk_state() const noexcept { return chunk_state_; }
  std::uint32_t chunk_index() const noexcept { return chunk_state_.current_chunk_index; }
  std::uint32_t total_tokens() const noexcept { return chunk_state_.total_tokens_processed; }
  bool is_memory_initialized() const noexcept;  // of every layer
  bool is_memory_initialized(std::uint32_t layer) const noexcept;

  // Drops the positions from `n_positions` on. Returns the position from which rows have to be
  // computed again, where the state then stands: n_positions when no later query is in any sum;
  // else the start of the current chunk, since sums cannot be undone query by query; else 0, since
  // earlier memory sets are not stored.
  std::uint32_t truncate(std::uint32_t n_positions) noexcept;

  // Every array of every layer, by name.
  std::vector<SparsePrefillBuffer> buffers();

  // The parts of a head in session files: scores of the positions before the current chunk, memory
  // indices, accumulators, sums of the chunk's complete tiles, the members' sums, and of an
  // incomplete tile the sums of the chunk's positions and of the members. Other elements are zeros
  // or not read. The sizes are the same for every head and follow from shape and progress. Requires
  // layer < n_layers, kv_head < n_kv_heads
  static constexpr std::size_t kSavedParts = 7;
  std::array<MutableByteSpan, kSavedParts> saved_parts(std::uint32_t layer,
                                                       std::uint32_t kv_head) noexcept;
  // Returns whether every layer is in the state after n positions: in the chunk of position n, with
  // all n in the sums and complete memory sets.
  bool stands_at(std::uint32_t n_positions) const noexcept;
  // Moves every layer to that state; saved_parts() are zeros then, to be filled by the caller.
  // Requires  no position so far, n_positions <= kv_size
  void resume_at(std::uint32_t n_positions) noexcept;
  // Checks contents filled from a file.
  // Fails  kCorrupt, with layer and head: members not ascending, outside the positions before the
  //        chunk, or without a sink or a local position; sums that are negative or not finite;
  //        members' scores that are not their rounded sums
  Status check_resumed();

 private:
  // Progress of a layer.
  struct Progress {
    std::uint32_t chunk_start;
    std::uint32_t scored_end;
    std::uint32_t n_members;  // of each head; 0: no memory set yet
  };
  // Byte offsets: of a layer's arrays from its part of the region, of the rest from the region.
  struct Layout {
    std::uint64_t memory_indices;
    std::uint64_t accumulators;
    std::uint64_t chunk_sums;
    std::uint64_t memory_sums;
    std::uint64_t tile_sums;
    std::uint64_t layer_bytes;
    std::uint64_t progress;
    std::uint64_t boundaries;
    std::uint64_t keys;
    std::uint64_t end;
  };

  SparsePrefillState() = default;
  static Layout layout_of(const SparsePrefillShape& shape) noexcept;
  template <typename T>
  std::span<T> layer_array(std::uint32_t layer, std::uint64_t offset,
                           std::uint64_t n_columns) const noexcept;
  std::span<std::int32_t> mutable_indices(std::uint32_t layer) noexcept;
  void clear_all() noexcept;
  Status check_layer(const char* method, std::uint32_t layer) const;
  void store_scores(std::uint32_t layer, std::uint32_t kv_head,
                    std::span<const float> column_sums) noexcept;
  std::uint32_t build_head(std::uint32_t layer, std::uint32_t kv_head,
                           std::uint32_t chunk_end) noexcept;
  std::size_t rank_candidates(std::uint32_t layer, std::uint32_t kv_head, std::uint32_t chunk_end,
                              std::uint32_t local_start) noexcept;
  void clear_current_chunk(std::uint32_t layer) noexcept;
  Status check_sums(std::uint32_t layer, std::uint32_t kv_head);
  Status check_members(std::uint32_t layer, std::uint32_t kv_head);

  SparsePrefillShape shape_;
  Layout at_{};
  MutableByteSpan region_;
  std::span<Progress> progress_;         // [n_layers]
  std::span<std::uint32_t> boundaries_;  // all that can be needed
  std::span<std::uint64_t> keys_;        // [2][S + M]: of candidates, and of those to be ordered
  SparsePrefillChunks chunk_state_;
};

}  // namespace qsf

#endif  // QSF_KV_SPARSE_PREFILL_STATE_H_
