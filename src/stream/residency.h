// SPDX-License-Identifier: MIT
//
// The memory limits of a WeightPager, and the division of the weights into resident ones and ones
// streamed with every pass.

#ifndef QSF_STREAM_RESIDENCY_H_
#define QSF_STREAM_RESIDENCY_H_

#include <cstdint>

namespace qsf {

// Alignment of regions, tiles and reads: pages, as direct reads require.
inline constexpr std::uint64_t kTileAlign = 4096;

struct WeightLimits {
  // Limit of the pager's region and its mapped pages; UINT64_MAX: none, every tile is resident.
  std::uint64_t bytes = UINT64_MAX;
  // Reading threads, each with staging memory for tiles that are compressed or not in the form of
  // the kernels.
  unsigned n_queues = 1;
  std::uint64_t ring_bytes = 0;  // for the disk's full rate; 0: kDefaultRingBytes
  bool mapped = false;           // tiles in kernel form are used from the mapped file
  bool layers_alone = false;     // matrices of embedding and output head are not used here
};

inline constexpr std::uint64_t kDefaultRingBytes = std::uint64_t{16} << 20;

// Computed from the directories alone. "Resident" tiles are read once and stay, "streamed" ones
// pass through the ring with every pass.
struct Residency {
  WeightLimits limits;             // of this plan
  std::uint64_t region_bytes = 0;  // to be carved, kTileAlign aligned
  // Its parts. Of mapped tiles, pins and ring are pages of the file and no part of the region.
  std::uint64_t vector_bytes = 0;           // norms and biases as f32
  std::uint64_t pinned_bytes = 0;           // resident tiles
  std::uint64_t ring_bytes = 0;             // tiles that come and go
  std::uint64_t staging_bytes = 0;          // of the reading threads
  std::uint64_t row_cache_bytes = 0;        // embedding rows that come from the file one by one
  std::uint64_t expert_cache_bytes = 0;     // slots of experts that come and go
  std::uint64_t mapped_bytes = 0;           // pages of the file that stay mapped, beside the region
  std::uint64_t table_bytes = 0;            // heap
  std::uint64_t weight_bytes = 0;           // of all tiles as kernels read them
  std::uint64_t pass_bytes = 0;             // of those that a token multiplies
  std::uint64_t streamed_bytes = 0;         // read from the file by each pass that computes logits,
                                            // without experts
  std::uint64_t expert_pass_bytes = 0;      // stored bytes of the experts that a token uses
  std::uint32_t n_experts = 0;              // of all layers
  std::uint32_t n_expert_slots = 0;         // those that can be in memory at once
  std::uint64_t stored_bytes = 0;           // of all weights in the file
  std::uint64_t resident_stored_bytes = 0;  // of the resident ones, which load() waits for
  std::uint64_t least_bytes = 0;            // the smallest WeightLimits::bytes that works
  bool everything_resident = false;
  // Of the bytes that a pass with logits multiplies; of experts the share that has a slot.
  double resident_share = 0.0;

  // Of a token's uses of experts, the share that is expected in a slot: as on the text of the
  // calibration, else as if any choice were as likely as any other. Texts return to the same
  // experts, so the latter is the least.
  double expert_hits = 1.0;

  // Bytes that a token is expected to read of experts.
  std::uint64_t expert_read_bytes() const noexcept {
    return static_cast<std::uint64_t>(static_cast<double>(expert_pass_bytes) * (1.0 - expert_hits));
  }
};

}  // namespace qsf

#endif  // QSF_STREAM_RESIDENCY_H_
