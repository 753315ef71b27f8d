// SPDX-License-Identifier: MIT
//
// What a user may choose about keys and values: which positions are kept (KvPolicy) and how a
// prompt is computed (AttentionKind). AttentionKind::kH2o goes with KvPolicy::kFull alone
// (docs/decisions/030-h2o-eviction.md).
//
// Names are those of the programs' options.

#ifndef QSF_KV_KV_POLICY_H_
#define QSF_KV_KV_POLICY_H_

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace qsf {

// The positions of a sequence whose keys and values are kept.
enum class KvPolicy : std::uint8_t {
  kFull = 0,    // all, up to the context
  kWindow = 1,  // the sinks and the most recent ones
  kH2o = 2,     // those, and the heavy hitters of each layer and KV head
};

// How the attention of a prompt is computed. The numbers are fixed; only kStandard and kH2o can be
// computed.
enum class AttentionKind : std::uint8_t {
  kNone = 0,
  kStandard = 1,   // over every position kept
  kChunked = 2,    // within chunks
  kSymmetric = 3,  // over a window to both sides
  kH2o = 4,  // over the chunk and a memory set of earlier positions (kv/sparse_prefill_state.h)
};

// What heavy hitters are ranked by: the attention paid to a position divided by the queries that
// could have paid it, or the whole of it.
enum class H2oRanking : std::uint8_t { kMean = 0, kSum = 1 };

struct KvPolicyOptions {
  KvPolicy policy = KvPolicy::kFull;
  std::uint32_t window = 1024;  // most recent positions; kWindow and kH2o
  std::uint32_t sinks = 4;      // first positions of a sequence; kWindow, and kH2o out of `heavy`
  std::uint32_t heavy = 256;    // kH2o
  // Queries meet the sinks as at the place that they have behind them in the cache, and not at
  // their distance in the text, which then has no bound. kWindow.
  bool rope_reindex = false;
  friend bool operator==(const KvPolicyOptions&, const KvPolicyOptions&) = default;
};

// Of AttentionKind::kH2o. With local and heavy 0 it is off, and the other fields mean nothing.
struct SparsePrefillOptions {
  std::uint32_t local = 256;   // L: last positions of the chunks so far
  std::uint32_t heavy = 256;   // H: sinks and heavy hitters among the positions before those
  std::uint32_t chunk = 1024;  // S: positions of a chunk; chunks begin at 0, S, 2S ...
  std::uint32_t sinks = 4;     // first positions of the sequence, members of every memory set
  H2oRanking ranking = H2oRanking::kSum;
  friend bool operator==(const SparsePrefillOptions&, const SparsePrefillOptions&) = default;
};

// Positions, or slots, that one sequence, memory set or chunk may count.
inline constexpr std::uint32_t kMaxPolicyPositions = 0x7FFFFFFF;

// M, the positions of a memory set. Requires  validate() accepted the options
constexpr std::uint32_t h2o_memory_size(const SparsePrefillOptions& options) noexcept {
  return options.local + options.heavy;
}
constexpr bool h2o_is_on(const SparsePrefillOptions& options) noexcept {
  return options.local != 0 || options.heavy != 0;
}

constexpr std::string_view kv_policy_name(KvPolicy policy) noexcept {
  constexpr std::string_view kNames[] = {"full", "window", "h2o"};
  return kNames[static_cast<unsigned>(policy)];
}
constexpr std::string_view attention_kind_name(AttentionKind kind) noexcept {
  constexpr std::string_view kNames[] = {"none", "full", "chunked", "symmetric", "h2o"};
  return kNames[static_cast<unsigned>(kind)];
}
constexpr std::string_view h2o_ranking_name(H2oRanking ranking) noexcept {
  constexpr std::string_view kNames[] = {"mean", "sum"};
  return kNames[static_cast<unsigned>(ranking)];
}

// Tell whether options can be used; values outside an enum, which a C caller can pass, included.
// Fails  kInvalidArgument with the values that contradict each other; kUnsupported with the name of
//        an attention kind that cannot be computed
// Threads  any
Status validate(const KvPolicyOptions& options);
Status validate(AttentionKind kind);
Status validate(const SparsePrefillOptions& options);

}  // namespace qsf

#endif  // QSF_KV_KV_POLICY_H_
