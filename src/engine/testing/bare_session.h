// SPDX-License-Identifier: MIT
//
// For tests of session files: a sequence with keys and values in memory and no engine
// around it.

#ifndef QSF_ENGINE_TESTING_BARE_SESSION_H_
#define QSF_ENGINE_TESTING_BARE_SESSION_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "base/rng.h"
#include "engine/session_file.h"

namespace qsf::testing_support {

inline constexpr KvShape kBareShape = {.n_layers = 2,
                                       .n_kv_heads = 2,
                                       .head_dim = 16,
                                       .k_type = KvType::k8Bit,
                                       .v_type = KvType::k4Bit};
inline constexpr std::uint32_t kBareVocab = 100;

class BareSession {
 public:
  explicit BareSession(const KvShape& shape = kBareShape, std::uint32_t max_slots = 200,
                       const std::optional<SparsePrefillOptions>& sparse = {},
                       const KvPolicyOptions& policy = {})
      : policy_(policy),
        limits_(limits_of(max_slots, policy)),
        tables_(KvCache::region_bytes(limits_)),
        pages_(ResidentKvStore::region_bytes(shape, limits_.n_pages)),
        kv_(KvCache::create(shape, limits_, tables_.bytes()).value()),
        store_(shape, pages_.bytes()),
        sequence_(kv_.create_sequence().value()) {
    if (sparse) {
      const SparsePrefillShape of_state = {shape.n_layers, shape.n_kv_heads, max_slots, *sparse};
      state_memory_.emplace(SparsePrefillState::region_bytes(of_state));
      state_.emplace(SparsePrefillState::create(of_state, state_memory_->bytes()).value());
    }
    if (policy.policy == KvPolicy::kH2o) {
      const H2oEvictionShape eviction_shape = {
          .kv = shape, .kv_size = max_slots, .options = policy};
      state_memory_.emplace(H2oEviction::region_bytes(eviction_shape));
      eviction_.emplace(H2oEviction::create(eviction_shape, state_memory_->bytes()).value());
    }
  }

  SessionIdentity identity() const {
    SessionIdentity identity;
    identity.fingerprint = 0x0123456789ABCDEFU;
    identity.architecture = "llama";
    identity.n_vocab = kBareVocab;
    identity.policy = policy_;
    return identity;
  }
  SessionPlace place() {
    return {.kv = kv_,
            .store = store_,
            .sequence = sequence_,
            .sparse_prefill = state_ ? &*state_ : nullptr,
            .h2o_eviction = eviction_ ? &*eviction_ : nullptr};
  }
  SparsePrefillState& sparse_prefill() { return *state_; }
  H2oEviction& eviction() { return *eviction_; }
  KvCache& kv() { return kv_; }
  SequenceId sequence() const { return sequence_; }
  // The bytes of all pages.
  MutableByteSpan pages() const { return pages_.bytes(); }

  // Takes up n tokens whose keys and values are made up: bytes of small finite numbers.
  std::vector<TokenId> fill(std::uint32_t n_tokens) {
    Rng rng(5);
    for (std::byte& byte : pages_.bytes()) byte = static_cast<std::byte>(rng.below(0x38));
    std::vector<TokenId> tokens(n_tokens);
    for (TokenId& token : tokens) token = rng.below(kBareVocab);
    for (std::uint32_t done = 0; done < n_tokens;) {
      const std::uint32_t n = std::min(kKvPageSlots, n_tokens - done);
      QSF_CHECK(kv_.append(sequence_, n).has_value());
      done += n;
      if (eviction_) pay(rng, done);
    }
    if (state_) attend(rng, n_tokens);
    return tokens;
  }

 private:
  static KvLimits limits_of(std::uint32_t max_slots, const KvPolicyOptions& policy) {
    KvLimits limits = {.n_pages = 1, .max_sequences = 1, .max_slots = max_slots};
    if (policy.policy == KvPolicy::kH2o)
      limits.recent_slots = policy.window + 2 * kEvictionBlock - 1;
    limits.n_pages = kv_pages_per_sequence(limits);
    return limits;
  }
  // Fills the parts of a head from number `first` on with sums that could be.
  template <typename Parts>
  static void fill_sums(Rng& rng, const Parts& parts, std::size_t first) {
    for (std::size_t part = first; part < parts.size(); ++part) {
      for (std::size_t at = 0; at < parts[part].size(); at += sizeof(float)) {
        store_le(parts[part], at, rng.next_f32());
      }
    }
  }
  // A block's sums as attention would leave them: its last rows are in an open tile until it ends.
  void pay(Rng& rng, std::uint32_t end) {
    const KvShape& shape = eviction_->shape().kv;
    const bool is_whole = end % kEvictionBlock == 0;
    for (std::uint32_t layer = 0; layer < shape.n_layers; ++layer) {
      eviction_->mark_scored(layer, is_whole ? end - 1 : end);
      for (std::uint32_t head = 0; head < shape.n_kv_heads; ++head) {
        fill_sums(rng, eviction_->saved_parts(layer, head), 5);
        if (is_whole) {
          eviction_->close_head(layer, head, kv_, sequence_, store_.acquire_layer(layer));
        }
      }
      eviction_->mark_scored(layer, end);
    }
  }
  // Sums as attention would leave them, tile by tile.
  void attend(Rng& rng, std::uint32_t n_positions) {
    const SparsePrefillShape& shape = state_->shape();
    const std::uint32_t chunk = shape.options.chunk;
    for (std::uint32_t start = 0; start < n_positions; start += chunk) {
      const std::uint32_t end = std::min(n_positions, start + chunk);
      for (std::uint32_t layer = 0; layer < shape.n_layers; ++layer) {
        state_->mark_scored(layer, end);
        for (std::uint32_t head = 0; head < shape.n_kv_heads; ++head) {
          fill_sums(rng, state_->saved_parts(layer, head), 3);
        }
        if (end == start + chunk) QSF_CHECK(state_->close_chunk(layer).ok());
      }
      if (end == start + chunk) QSF_CHECK(state_->next_chunk(chunk).ok());
    }
  }

  class Aligned {
   public:
    explicit Aligned(std::uint64_t n_bytes)
        : n_bytes_(static_cast<std::size_t>(n_bytes)),
          data_(::operator new (n_bytes_, std::align_val_t{64})) {
      std::memset(data_, 0, n_bytes_);
    }
    Aligned(const Aligned&) = delete;
    Aligned& operator=(const Aligned&) = delete;
    ~Aligned() { ::operator delete (data_, std::align_val_t{64}); }
    MutableByteSpan bytes() const { return {static_cast<std::byte*>(data_), n_bytes_}; }

   private:
    std::size_t n_bytes_;
    void* data_;
  };

  KvPolicyOptions policy_;
  KvLimits limits_;
  Aligned tables_;
  Aligned pages_;
  KvCache kv_;
  ResidentKvStore store_;
  SequenceId sequence_;
  std::optional<Aligned> state_memory_;
  std::optional<SparsePrefillState> state_;
  std::optional<H2oEviction> eviction_;
};

}  // namespace qsf::testing_support

#endif  // QSF_ENGINE_TESTING_BARE_SESSION_H_
