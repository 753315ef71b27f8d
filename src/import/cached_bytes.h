// SPDX-License-Identifier: MIT
//
// CachedBytes: keeps what a conversion leaves in the page cache below a bound, so that a memory
// limit on the process need not take its pages away, and other programs keep theirs.

#ifndef QSF_IMPORT_CACHED_BYTES_H_
#define QSF_IMPORT_CACHED_BYTES_H_

#include <cstdint>

#include "format/qsf_writer.h"
#include "import/model_source.h"

namespace qsf {

class CachedBytes {
 public:
  // `max_bytes` 0: no bound.
  CachedBytes(const ModelSource& source, std::uint64_t max_bytes) noexcept
      : source_(source), max_bytes_(max_bytes) {}

  // Notes bytes read, and forgets what is cached of the source when that many have come.
  void add_read(std::uint64_t n_bytes) noexcept {
    if (is_due(n_bytes)) source_.drop_cached();
  }
  // The same of bytes read and written; what was written is brought to the disk. Fails  kIo
  Status add(std::uint64_t n_bytes, QsfWriter& writer) {
    if (!is_due(n_bytes)) return ok_status();
    source_.drop_cached();
    return writer.drop_cached();
  }

 private:
  bool is_due(std::uint64_t n_bytes) noexcept {
    n_bytes_ += n_bytes;
    if (max_bytes_ == 0 || n_bytes_ < max_bytes_) return false;
    n_bytes_ = 0;
    return true;
  }

  const ModelSource& source_;
  std::uint64_t max_bytes_;
  std::uint64_t n_bytes_ = 0;
};

}  // namespace qsf

#endif  // QSF_IMPORT_CACHED_BYTES_H_
