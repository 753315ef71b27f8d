// SPDX-License-Identifier: MIT
//
// Bookkeeping of a conversion: progress by stage, and a bound on the bytes left in the page cache.

#ifndef QSF_CONVERT_ENCODE_TRANSCODE_PROGRESS_H_
#define QSF_CONVERT_ENCODE_TRANSCODE_PROGRESS_H_

#include <cstdint>

#include "convert/encode/transcode.h"
#include "import/model_source.h"

namespace qsf {

class StageProgress {
 public:
  StageProgress(const char* stage, const ModelSource& source, const TranscodeOptions& options)
      : stage_(stage), options_(options) {
    for (const SourcePlace& tensor : tensors_of(source)) total_ += tensor.n_weights();
  }

  void add(std::uint64_t n_weights) noexcept { done_ += n_weights; }
  void report(const SectionId& id) const {
    if (options_.on_progress) options_.on_progress({stage_, id.label(), done_, total_});
  }

 private:
  const char* stage_;
  const TranscodeOptions& options_;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
};

// Counts bytes that pass through the page cache. Dropping them at a bound keeps the process within
// a memory limit and leaves the cache to other programs.
class CachedBytes {
 public:
  // `max_bytes` 0: no bound.
  explicit CachedBytes(std::uint64_t max_bytes) noexcept : max_bytes_(max_bytes) {}

  // Counts bytes that were read or written. Returns true, and starts again, when the bound is
  // reached: the caller drops its files from the page cache.
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

#endif  // QSF_CONVERT_ENCODE_TRANSCODE_PROGRESS_H_
