// SPDX-License-Identifier: MIT
//
// Which choices of policy, attention and their sizes fit together.

#include "kv/kv_policy.h"

namespace qsf {
namespace {

// Sums of two sizes, which need not fit 32 bits.
constexpr std::uint64_t sum(std::uint32_t a, std::uint32_t b) noexcept {
  return std::uint64_t{a} + b;
}

}  // namespace

Status validate(const KvPolicyOptions& options) {
  if (options.policy > KvPolicy::kH2o) {
    return invalid_argument("kv policy: %u: expected full (0), window (1) or h2o (2)",
                            static_cast<unsigned>(options.policy));
  }
  if (options.rope_reindex && options.policy != KvPolicy::kWindow) {
    return invalid_argument(
        "rope_reindex: needs kv policy window, got %s; use kv policy window, or leave rope_reindex "
        "out",
        kv_policy_name(options.policy).data());
  }
  if (options.policy == KvPolicy::kFull) return ok_status();
  if (options.window == 0) {
    return invalid_argument(
        "kv policy %s: a window of 0 positions: expected at least 1, because a token attends to "
        "itself",
        kv_policy_name(options.policy).data());
  }
  const bool has_h2o_eviction = options.policy == KvPolicy::kH2o;
  if (has_h2o_eviction && options.heavy < options.sinks) {
    return invalid_argument(
        "kv policy h2o: %u heavy positions for %u sinks (window %u): sinks count as heavy "
        "positions; use at least as many",
        options.heavy, options.sinks, options.window);
  }
  const std::uint64_t n_kept =
      sum(options.window, has_h2o_eviction ? options.heavy : options.sinks);
  if (n_kept > kMaxPolicyPositions) {
    return invalid_argument("kv policy %s: window %u and %s %u: expected at most %u positions",
                            kv_policy_name(options.policy).data(), options.window,
                            has_h2o_eviction ? "heavy" : "sinks",
                            has_h2o_eviction ? options.heavy : options.sinks, kMaxPolicyPositions);
  }
  return ok_status();
}

Status validate(AttentionKind kind) {
  if (kind > AttentionKind::kSparsePrefill) {
    return invalid_argument(
        "attention: %u: expected full (1), chunked (2), symmetric (3) or h2o (4)",
        static_cast<unsigned>(kind));
  }
  if (kind != AttentionKind::kNone) return ok_status();
  return unsupported(
      "attention none (0) cannot be computed: choose full, chunked, symmetric or h2o");
}

Status validate(const PromptMaskOptions& options) {
  if (options.chunk == 0 || options.chunk > kMaxPolicyPositions) {
    return invalid_argument("attention chunked: chunks of %u positions: expected 1 to %u",
                            options.chunk, kMaxPolicyPositions);
  }
  if (options.window > kMaxPolicyPositions) {
    return invalid_argument("attention symmetric: %u positions to each side: expected at most %u",
                            options.window, kMaxPolicyPositions);
  }
  return ok_status();
}

Status validate(const SparsePrefillOptions& options) {
  if (options.ranking > H2oRanking::kSum) {
    return invalid_argument("attention h2o: score %u: expected mean (0) or sum (1)",
                            static_cast<unsigned>(options.ranking));
  }
  if (!sparse_prefill_is_on(options)) return ok_status();
  if (options.chunk > kMaxPolicyPositions) {
    return invalid_argument("attention h2o: chunks of %u positions: expected at most %u",
                            options.chunk, kMaxPolicyPositions);
  }
  if (sum(options.local, options.heavy) >= options.chunk) {
    return invalid_argument(
        "attention h2o: local %u and heavy %u with chunks of %u: expected local + heavy below the "
        "chunk",
        options.local, options.heavy, options.chunk);
  }
  if (options.heavy < options.sinks) {
    return invalid_argument(
        "attention h2o: heavy %u with %u sinks (local %u): sinks count as heavy positions; use at "
        "least as many",
        options.heavy, options.sinks, options.local);
  }
  return ok_status();
}

}  // namespace qsf
