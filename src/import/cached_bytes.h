// SPDX-License-Identifier: MIT
//
// CachedBytes: keeps what a conversion leaves in the page cache below a bound, so that a memory
// limit on the process need not take its pages away, and other programs keep theirs.

#ifndef QSF_IMPORT_CACHED_BYTES_H_
#define QSF_IMPORT_CACHED_BYTES_H_

#include <cstdint>

namespace qsf {

class CachedBytes {
 public:
  // `max_bytes` 0: no bound.
  explicit CachedBytes(std::uint64_t max_bytes) noexcept : max_bytes_(max_bytes) {}

  // Notes bytes that were read or written. Returns whether as many as the bound have come since it
  // last said so: it is time to forget what is cached of their files.
  bool is_due(std::uint64_t n_bytes) noexcept {
    n_bytes_ += n_bytes;
    if (max_bytes_ == 0 || n_bytes_ < max_bytes_) return false;
    n_bytes_ = 0;
    return true;
  }

 private:
  std::uint64_t max_bytes_;
  std::uint64_t n_bytes_ = 0;
};

}  // namespace qsf

#endif  // QSF_IMPORT_CACHED_BYTES_H_
