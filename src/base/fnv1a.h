// SPDX-License-Identifier: MIT
//
// FNV-1a, 64 bits: a hash that tells the files of one user apart, and no more than that.
//
// Based on: Fowler, Noll and Vo, "The FNV non-cryptographic hash algorithm".

#ifndef QSF_BASE_FNV1A_H_
#define QSF_BASE_FNV1A_H_

#include <cstdint>

#include "base/bytes.h"

namespace qsf {

inline constexpr std::uint64_t kFnv1aStart = 0xCBF29CE484222325ULL;

// Continues a hash with further bytes.
constexpr std::uint64_t fnv1a(ByteSpan bytes, std::uint64_t hash = kFnv1aStart) noexcept {
  for (const std::byte byte : bytes) {
    hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001B3ULL;
  }
  return hash;
}

}  // namespace qsf

#endif  // QSF_BASE_FNV1A_H_
