// SPDX-License-Identifier: MIT
//
// The byte layout of session files, version 1: constants and offsets shared by reader and writer.
//
// Based on: docs/format-session.md. Nothing here may change for version 1.

#ifndef QSF_ENGINE_SESSION_LAYOUT_H_
#define QSF_ENGINE_SESSION_LAYOUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kv/h2o_eviction.h"
#include "kv/kv_cache.h"
#include "kv/kv_policy.h"
#include "kv/row.h"

namespace qsf::session_layout {

inline constexpr std::string_view kMagic = "QSFS";
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kByteOrder = 0x01020304U;
inline constexpr std::size_t kHeaderBytes = 32;
inline constexpr std::size_t kEntryBytes = 32;
inline constexpr std::size_t kNameBytes = 16;             // zero-padded
inline constexpr std::uint32_t kSavedSectionVersion = 1;  // of every section so far
inline constexpr std::uint32_t kMaxSections = 4096 + 64;

namespace header_at {
inline constexpr std::size_t kMagic = 0, kByteOrder = 4, kVersion = 8, kSections = 12,
                             kFileBytes = 16, kTableCrc = 24, kCrc = 28;
static_assert(kCrc + 4 == kHeaderBytes);
}  // namespace header_at

namespace entry_at {
inline constexpr std::size_t kName = 0, kVersion = 16, kCrc = 20, kBytes = 24;
static_assert(kBytes + 8 == kEntryBytes);
}  // namespace entry_at

// The names of the state of sparse prefill ("h2o_state") and of H2O eviction ("heavy_hitters") are
// those of version 1.
inline constexpr std::string_view kModel = "model", kCache = "cache", kPolicy = "policy",
                                  kAttention = "attention", kTokens = "tokens",
                                  kPositions = "positions", kChat = "chat",
                                  kSparsePrefillState = "h2o_state", kH2oEviction = "heavy_hitters",
                                  kStates = "states", kAdapter = "adapter", kLayerPrefix = "layer_";

// Section "model": fingerprint, vocabulary size, and the architecture's name.
inline constexpr std::size_t kModelHeadBytes = 12, kMaxArchitectureBytes = 64;
// Section "cache": five numbers, then the names of the K and V types, zero-padded.
inline constexpr std::size_t kTypeNameBytes = 8, kCacheBytes = 5 * 4 + 2 * kTypeNameBytes;
// Section "policy": the policy's name, zero-padded, then window, sinks and heavy positions.
inline constexpr std::size_t kPolicyBytes = kNameBytes + 3 * 4;
inline constexpr std::string_view kReindexedWindow = "window_reindex";
// Section "attention": the names of attention and ranking, zero-padded, then local, heavy, chunk
// and sinks.
inline constexpr std::size_t kAttentionBytes = 2 * kNameBytes + 4 * 4;
// Section "adapter": fingerprint, scale and zeros.
inline constexpr std::size_t kAdapterBytes = 16;
// Section "tokens": how many have keys and values, how many there are, then the tokens.
inline constexpr std::size_t kTokensHeadBytes = 8;
// Section "positions": number of pages, then for each its first slot and the positions of its
// slots.
inline constexpr std::size_t kPositionsHeadBytes = 4, kPagePositionsBytes = 4 + 4 * kKvPageSlots;

inline std::string layer_name(std::uint32_t layer) {
  return std::string(kLayerPrefix) + std::to_string(layer);
}

// Returns the name of a policy in a file. With rope_reindex keys and values differ, so it is a
// policy of its own.
inline std::string_view saved_policy_name(const KvPolicyOptions& policy) noexcept {
  return policy.rope_reindex ? kReindexedWindow : kv_policy_name(policy.policy);
}

// Returns the pages that a sequence holds, in order.
inline std::vector<HeldPage> held_pages(const KvCache& kv, SequenceId sequence) {
  std::vector<HeldPage> pages;
  for (std::uint32_t i = 0; i < kv.n_held_pages(sequence); ++i) {
    pages.push_back(kv.held_page(sequence, i));
  }
  return pages;
}

// Returns the first slot behind the sinks that the next row attends to; `by_last_row`: that the
// last row attended to, which may be computed again. Under KvPolicy::kH2o, that any row of the
// block does.
inline std::uint32_t first_seen_slot(const KvPolicyOptions& policy, std::uint32_t n_slots,
                                     bool by_last_row) {
  if (policy.policy == KvPolicy::kH2o) {
    return first_recent_position(n_slots, policy.window);
  }
  const std::uint64_t n_seen = std::uint64_t{policy.window} + (by_last_row ? 1 : 0);
  if (policy.policy == KvPolicy::kFull || n_slots <= n_seen) return 0;
  return n_slots - static_cast<std::uint32_t>(n_seen);
}

}  // namespace qsf::session_layout

#endif  // QSF_ENGINE_SESSION_LAYOUT_H_
