// SPDX-License-Identifier: MIT
//
// SipHash-2-4 with 128 bits: a hash under a secret key. Whoever lacks the key can neither find two
// texts of one hash nor forge the hash of a text.
//
// Based on: Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012).

#ifndef QSF_BASE_SIPHASH_H_
#define QSF_BASE_SIPHASH_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bytes.h"

namespace qsf {

struct SipKey {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
};

struct SipHash {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  friend bool operator==(const SipHash&, const SipHash&) = default;
};

// The hash of bytes that come in parts.
class SipHasher {
 public:
  explicit SipHasher(const SipKey& key) noexcept
      : v_{key.first ^ 0x736F6D6570736575U, key.second ^ 0x646F72616E646F6DU ^ 0xEEU,
           key.first ^ 0x6C7967656E657261U, key.second ^ 0x7465646279746573U} {}

  void add(ByteSpan bytes) noexcept {
    n_bytes_ += bytes.size();
    while (n_held_ != 0 && !bytes.empty()) {
      hold(bytes.front());
      bytes = bytes.subspan(1);
    }
    for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
      std::uint64_t word;
      std::memcpy(&word, bytes.data(), 8);
      mix(word);
    }
    for (const std::byte byte : bytes) hold(byte);
  }

  SipHash finish() noexcept {
    mix(held_ | (n_bytes_ << 56U));
    v_[2] ^= 0xEEU;
    for (int i = 0; i < 4; ++i) round();
    const std::uint64_t first = v_[0] ^ v_[1] ^ v_[2] ^ v_[3];
    v_[1] ^= 0xDDU;
    for (int i = 0; i < 4; ++i) round();
    return {first, v_[0] ^ v_[1] ^ v_[2] ^ v_[3]};
  }

 private:
  static_assert(std::endian::native == std::endian::little);

  void hold(std::byte byte) noexcept {
    held_ |= std::to_integer<std::uint64_t>(byte) << (8 * n_held_);
    if (++n_held_ < 8) return;
    mix(held_);
    held_ = 0;
    n_held_ = 0;
  }
  void mix(std::uint64_t word) noexcept {
    v_[3] ^= word;
    round();
    round();
    v_[0] ^= word;
  }
  void round() noexcept {
    v_[0] += v_[1];
    v_[2] += v_[3];
    v_[1] = std::rotl(v_[1], 13) ^ v_[0];
    v_[3] = std::rotl(v_[3], 16) ^ v_[2];
    v_[0] = std::rotl(v_[0], 32);
    v_[2] += v_[1];
    v_[0] += v_[3];
    v_[1] = std::rotl(v_[1], 17) ^ v_[2];
    v_[3] = std::rotl(v_[3], 21) ^ v_[0];
    v_[2] = std::rotl(v_[2], 32);
  }

  std::array<std::uint64_t, 4> v_;
  std::uint64_t held_ = 0;  // fewer than 8 bytes
  unsigned n_held_ = 0;
  std::uint64_t n_bytes_ = 0;
};

}  // namespace qsf

#endif  // QSF_BASE_SIPHASH_H_
