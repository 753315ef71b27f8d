// SPDX-License-Identifier: MIT
//
// Memory aligned as backends and kernels want it, for tests.

#ifndef QSF_OPS_TESTING_ALIGNED_BYTES_H_
#define QSF_OPS_TESTING_ALIGNED_BYTES_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "base/bytes.h"

namespace qsf::testing_support {

// Zeroed bytes, 64-byte aligned.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t n) : storage_(n + 64) {}
  MutableByteSpan span() {
    void* p = storage_.data();
    std::size_t space = storage_.size();
    std::align(64, space - 64, p, space);
    return {static_cast<std::byte*>(p), storage_.size() - 64};
  }

 private:
  std::vector<std::byte> storage_;
};

}  // namespace qsf::testing_support

#endif  // QSF_OPS_TESTING_ALIGNED_BYTES_H_
