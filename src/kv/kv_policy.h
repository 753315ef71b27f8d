// SPDX-License-Identifier: MIT
//
// Options of attention and the KV cache: which positions are kept (KvPolicy), how prompts attend
// (AttentionKind), and their defaults. Every kind but kStandard requires KvPolicy::kFull. The names
// are the values of the programs' options.

#ifndef QSF_KV_KV_POLICY_H_
#define QSF_KV_KV_POLICY_H_

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "kv/row.h"

namespace qsf {

// The positions of a sequence whose keys and values are kept.
enum class KvPolicy : std::uint8_t {
  kFull = 0,    // all, up to the context
  kWindow = 1,  // the sinks and the most recent ones (StreamingLLM)
  kH2o = 2,     // these and the heavy hitters of each layer and KV head (H2O eviction)
};

// How the attention of a prompt is computed. Generated tokens attend to every position kept. The
// numbers are fixed; kNone cannot be computed.
enum class AttentionKind : std::uint8_t {
  kNone = 0,
  kStandard = 1,       // over every position kept
  kChunked = 2,        // within chunks (PromptMaskOptions)
  kSymmetric = 3,      // to both sides (PromptMaskOptions); a prompt is one pass
  kSparsePrefill = 4,  // over the chunk and a memory set (kv/sparse_prefill_state.h)
};

// Ranking of heavy hitters: the attention that a position received, per query that could attend to
// it or in total.
enum class H2oRanking : std::uint8_t { kMean = 0, kSum = 1 };

struct KvPolicyOptions {
  KvPolicy policy = KvPolicy::kFull;
  std::uint32_t window = 1024;  // most recent positions; kWindow and kH2o
  std::uint32_t sinks = 4;      // first positions of a sequence; kWindow, and kH2o out of `heavy`
  std::uint32_t heavy = 256;    // kH2o
  // Sinks are rotated to their cache position, right before the window, instead of their position
  // in the text, whose length is then not limited (StreamingLLM). kWindow.
  bool rope_reindex = false;
  friend bool operator==(const KvPolicyOptions&, const KvPolicyOptions&) = default;
};

// Of AttentionKind::kChunked and kSymmetric.
struct PromptMaskOptions {
  // kChunked: a position attends to those of its chunk up to itself; chunks begin at 0, S, 2S ...
  std::uint32_t chunk = 1024;
  // kSymmetric: positions to each side, of the prompt and before it; 0: all of them.
  std::uint32_t window = 0;
  friend bool operator==(const PromptMaskOptions&, const PromptMaskOptions&) = default;
};

// Of AttentionKind::kSparsePrefill. With local = heavy = 0 it is off, and the other fields are
// ignored.
struct SparsePrefillOptions {
  std::uint32_t local = 256;   // L: last positions of the chunks so far
  std::uint32_t heavy = 256;   // H: sinks and heavy hitters before these
  std::uint32_t chunk = 1024;  // S: positions of a chunk; chunks begin at 0, S, 2S ...
  std::uint32_t sinks = 4;     // first positions of the sequence, members of every memory set
  H2oRanking ranking = H2oRanking::kSum;
  friend bool operator==(const SparsePrefillOptions&, const SparsePrefillOptions&) = default;
};

// Largest number of positions of a sequence, memory set or chunk.
inline constexpr std::uint32_t kMaxPolicyPositions = 0x7FFFFFFF;

// M, the positions of a memory set. Requires  validate() accepted the options
constexpr std::uint32_t memory_set_size(const SparsePrefillOptions& options) noexcept {
  return options.local + options.heavy;
}
constexpr bool sparse_prefill_is_on(const SparsePrefillOptions& options) noexcept {
  return options.local != 0 || options.heavy != 0;
}

// Returns the slots that a row of plain text attends to: of those that the policy keeps the ones up
// to its own. Requires  kFull or kWindow
constexpr VisibleSet visible_under(const KvPolicyOptions& options, std::uint32_t slot) noexcept {
  const std::uint32_t prefix = slot + 1;
  if (options.policy == KvPolicy::kFull || prefix <= options.window) {
    return {.prefix = prefix, .ancestors = 0};
  }
  return {.prefix = prefix,
          .ancestors = 0,
          .sinks = options.sinks < prefix ? options.sinks : prefix,
          .first = prefix - options.window};
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

// Check options, including values outside an enum, which a C caller can pass.
// Fails  kInvalidArgument with the values that contradict each other; kUnsupported with the name of
//        an attention kind that is not implemented
// Threads  any
Status validate(const KvPolicyOptions& options);
Status validate(AttentionKind kind);
Status validate(const PromptMaskOptions& options);
Status validate(const SparsePrefillOptions& options);

}  // namespace qsf

#endif  // QSF_KV_KV_POLICY_H_
