// SPDX-License-Identifier: MIT
//
// SparsePrefillState: which earlier positions the chunks of a long prompt still attend to.
//
// A prompt is cut into chunks of S positions. A query sees its own chunk up to itself, and the
// members of the memory set that stood when the chunk began: the last L positions before the
// chunk, and H heavier ones before those. The state holds for every layer and KV head what chooses
// them: the attention that queries paid to each position, the column sums of the probabilities.
//
//   open chunk    queries add column sums in f32: chunk_sums for the positions of the chunk,
//                 memory_sums for the members; a chunk may be cut by passes and calls
//   close_chunk   members' sums go to their f32 accumulators, those of the chunk to scores; then
//                 the next memory set is chosen from members and chunk (build_memory_set)
//
// Scores are BF16, which would stall as a sum (256 + 0.5 = 256), so members are ranked by their
// accumulators and BF16 holds these rounded. A position that is no longer a member keeps the score
// it left with and never comes back.
//
// Layers are independent: layer 0 may be through all chunks of a pass before layer 1 begins.
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

// Queries are added to the sums by strips of so many positions, counted from the chunk's start.
inline constexpr std::uint32_t kSparsePrefillTileRows = 64;

struct SparsePrefillShape {
  std::uint32_t n_layers = 1;
  std::uint32_t n_kv_heads = 1;
  std::uint32_t kv_size = 1;  // positions that a sequence can have
  SparsePrefillOptions options;

  constexpr std::uint32_t memory_size() const noexcept { return h2o_memory_size(options); }
};

// Chunks that every layer has closed. Boundaries are 0, S, 2S ... and the end of the last one.
struct H2oChunkState {
  std::uint32_t current_chunk_index = 0;
  std::uint32_t total_tokens_processed = 0;
  std::span<const std::uint32_t> boundaries;  // [current_chunk_index + 1], of the reserved ones
};
static_assert(sizeof(H2oChunkState) < 128);

// One of the arrays in the region.
struct H2oBuffer {
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
  // Without local and heavy positions there is no state: the spans are empty, and what returns a
  // Status fails.
  bool is_on() const noexcept { return h2o_is_on(shape_.options); }

  // The arrays of a layer. Requires  layer < n_layers
  // Shapes  scores          [n_kv_heads][kv_size]
  //         memory_indices  [n_kv_heads][M], positions ascending, then -1 for unused ones
  //         accumulators    [n_kv_heads][M], sums of what memory_indices names
  //         chunk_sums      [n_kv_heads][S], of the open chunk's closed strips
  //         memory_sums     [n_kv_heads][M], the same for the members
  //         strip_sums      [n_kv_heads][S + M], of a strip of queries that a pass has cut
  std::span<BF16> scores(std::uint32_t layer) noexcept;
  std::span<const std::int32_t> memory_indices(std::uint32_t layer) const noexcept;
  std::span<float> accumulators(std::uint32_t layer) noexcept;
  std::span<float> chunk_sums(std::uint32_t layer) noexcept;
  std::span<float> memory_sums(std::uint32_t layer) noexcept;
  std::span<float> strip_sums(std::uint32_t layer) noexcept;

  // The members of a head: the used part of its memory_indices, ascending. Every head of a layer
  // has as many. Requires  layer < n_layers, kv_head < n_kv_heads
  std::span<const std::int32_t> members(std::uint32_t layer, std::uint32_t kv_head) const noexcept;

  // Where the open chunk of a layer begins, and up to which position queries are in its sums.
  std::uint32_t chunk_start(std::uint32_t layer) const noexcept;
  std::uint32_t scored_end(std::uint32_t layer) const noexcept;
  // Says that the sums of a layer hold the queries of all positions below `end`.
  // Requires  scored_end(layer) <= end <= chunk_start(layer) + S and kv_size
  void mark_scored(std::uint32_t layer, std::uint32_t end) noexcept;
  // Ends the open chunk of a layer at scored_end: accumulate_memory_scores with memory_sums when
  // there are members, init_chunk_scores with chunk_sums, build_memory_set.
  // Requires  strip_sums were added to the others
  // Fails     kInvalidArgument when no query of the chunk is in the sums
  Status close_chunk(std::uint32_t layer);

  // Stores the scores of a chunk's first `chunk_len` positions, rounded.
  // Shapes  column_sums [n_kv_heads][chunk_len]
  // Fails   kInvalidArgument when the layer does not exist, the chunk is not its open one, is
  // longer
  //         than S or leaves kv_size, or column_sums has another size; nothing has changed then
  Status init_chunk_scores(std::uint32_t layer, std::uint32_t chunk_start, std::uint32_t chunk_len,
                           std::span<const float> column_sums);
  // Adds to the accumulators of the members, and stores them rounded as scores.
  // Shapes  column_sums [n_kv_heads][M]; values beyond the members are not read
  // Fails   as above, and when the layer has no memory set yet
  Status accumulate_memory_scores(std::uint32_t layer, std::span<const float> column_sums);
  // Chooses the memory set for the chunk that begins at `chunk_end`: the L positions before it, the
  // sinks before those, and what ranks highest among the other members and positions of the chunk
  // until H are taken. Equal ranks are taken from the smaller position; NaN ranks lowest. The sums
  // of the open chunk are zeroed.
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

  // Counts a chunk that every layer has closed.
  // Fails  kInvalidArgument when chunk_len is 0 or above S, exceeds kv_size, or the chunk before
  // was
  //        shorter than S; nothing has changed then
  Status next_chunk(std::uint32_t chunk_len);
  const H2oChunkState& chunk_state() const noexcept { return chunk_state_; }
  std::uint32_t chunk_index() const noexcept { return chunk_state_.current_chunk_index; }
  std::uint32_t total_tokens() const noexcept { return chunk_state_.total_tokens_processed; }
  bool is_memory_initialized() const noexcept;  // of every layer
  bool is_memory_initialized(std::uint32_t layer) const noexcept;

  // Forgets the positions from `n_positions` on, and returns the position from which rows have to
  // be computed again: the state is then what it was there. That is n_positions when no later query
  // is in any sum; else the start of the open chunk, since sums cannot be taken back query by
  // query; else 0, since earlier memory sets are not kept.
  std::uint32_t truncate(std::uint32_t n_positions) noexcept;

  // Every array of every layer, by name.
  std::vector<H2oBuffer> buffers();

  // What session files hold of a head: of scores the positions before the open chunk, memory
  // indices, accumulators, sums of the open chunk's whole strips, the members' sums, and of an
  // open strip the sums of the chunk's positions so far and of the members. Elements beside those
  // are zeros or are not read. Sizes are those of every head, and follow from shape and progress.
  // Requires  layer < n_layers, kv_head < n_kv_heads
  static constexpr std::size_t kSavedParts = 7;
  std::array<MutableByteSpan, kSavedParts> saved_parts(std::uint32_t layer,
                                                       std::uint32_t kv_head) noexcept;
  // Tells whether every layer is where n positions lead that came one after the other: in the chunk
  // of position n, with all n in the sums and whole memory sets.
  bool stands_at(std::uint32_t n_positions) const noexcept;
  // Takes every layer there; what saved_parts() names then is zeros, to be filled in.
  // Requires  no position so far, n_positions <= kv_size
  void resume_at(std::uint32_t n_positions) noexcept;
  // Tells whether what every layer holds can have come from attention.
  // Fails  kCorrupt, with layer and head: members that do not ascend, or leave the positions before
  //        the chunk, or lack a sink or a local one; sums that are negative or not finite; scores
  //        of members that are not their rounded sums
  Status check_resumed();

 private:
  // Where a layer stands.
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
    std::uint64_t strip_sums;
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
  void forget_all() noexcept;
  Status check_layer(const char* method, std::uint32_t layer) const;
  void store_scores(std::uint32_t layer, std::uint32_t kv_head,
                    std::span<const float> column_sums) noexcept;
  std::uint32_t build_head(std::uint32_t layer, std::uint32_t kv_head,
                           std::uint32_t chunk_end) noexcept;
  std::size_t rank_candidates(std::uint32_t layer, std::uint32_t kv_head, std::uint32_t chunk_end,
                              std::uint32_t local_start) noexcept;
  void clear_open_chunk(std::uint32_t layer) noexcept;
  Status check_sums(std::uint32_t layer, std::uint32_t kv_head);
  Status check_members(std::uint32_t layer, std::uint32_t kv_head);

  SparsePrefillShape shape_;
  Layout at_{};
  MutableByteSpan region_;
  std::span<Progress> progress_;         // [n_layers]
  std::span<std::uint32_t> boundaries_;  // all that can be needed
  std::span<std::uint64_t> keys_;        // [2][S + M]: of candidates, and of those to be ordered
  H2oChunkState chunk_state_;
};

}  // namespace qsf

#endif  // QSF_KV_SPARSE_PREFILL_STATE_H_
