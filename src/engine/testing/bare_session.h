// SPDX-License-Identifier: MIT
//
// For tests of session files: a sequence with keys and values in memory and no engine
// around it.

#ifndef QSF_ENGINE_TESTING_BARE_SESSION_H_
#define QSF_ENGINE_TESTING_BARE_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
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
  explicit BareSession(const KvShape& shape = kBareShape, std::uint32_t max_slots = 200)
      : limits_{.n_pages = kv_pages_for(max_slots), .max_sequences = 1, .max_slots = max_slots},
        tables_(KvCache::region_bytes(limits_)),
        pages_(ResidentKvStore::region_bytes(shape, limits_.n_pages)),
        kv_(KvCache::create(shape, limits_, tables_.bytes()).value()),
        store_(shape, pages_.bytes()),
        sequence_(kv_.create_sequence().value()) {}

  SessionIdentity identity() const {
    SessionIdentity identity;
    identity.fingerprint = 0x0123456789ABCDEFU;
    identity.architecture = "llama";
    identity.n_vocab = kBareVocab;
    return identity;
  }
  SessionPlace place() { return {.kv = kv_, .store = store_, .sequence = sequence_}; }
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
    QSF_CHECK(kv_.append(sequence_, n_tokens).has_value());
    return tokens;
  }

 private:
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

  KvLimits limits_;
  Aligned tables_;
  Aligned pages_;
  KvCache kv_;
  ResidentKvStore store_;
  SequenceId sequence_;
};

}  // namespace qsf::testing_support

#endif  // QSF_ENGINE_TESTING_BARE_SESSION_H_
