// SPDX-License-Identifier: MIT
//
// Memory for the tables and pages of a cache, for tests.

#ifndef QSF_KV_TESTING_ALIGNED_MEMORY_H_
#define QSF_KV_TESTING_ALIGNED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace qsf::testing_support {

// n_bytes zeros, aligned to a cache line.
class AlignedMemory {
 public:
  explicit AlignedMemory(std::uint64_t n_bytes)
      : lines_(static_cast<std::size_t>(n_bytes / sizeof(Line) + 1)), n_bytes_(n_bytes) {}
  MutableByteSpan span() {
    return {reinterpret_cast<std::byte*>(lines_.data()), static_cast<std::size_t>(n_bytes_)};
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines_;
  std::uint64_t n_bytes_;
};

}  // namespace qsf::testing_support

#endif  // QSF_KV_TESTING_ALIGNED_MEMORY_H_
