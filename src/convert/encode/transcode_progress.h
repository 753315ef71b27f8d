// SPDX-License-Identifier: MIT
//
// StageProgress: counts the weights that a stage of a conversion is through with.

#ifndef QSF_CONVERT_ENCODE_TRANSCODE_PROGRESS_H_
#define QSF_CONVERT_ENCODE_TRANSCODE_PROGRESS_H_

#include <cstdint>

#include "convert/encode/transcode.h"
#include "import/source_tensors.h"

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

}  // namespace qsf

#endif  // QSF_CONVERT_ENCODE_TRANSCODE_PROGRESS_H_
