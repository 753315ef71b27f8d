// SPDX-License-Identifier: MIT
//
// Copies of a model for the engine to run: its weights as they are, or some of them rounded.

#ifndef QSF_CONVERT_CALIBRATE_MODEL_COPY_H_
#define QSF_CONVERT_CALIBRATE_MODEL_COPY_H_

#include <unistd.h>
#include <string>

#include "base/status.h"
#include "convert/encode/transcode.h"
#include "import/model_source.h"
#include "io/file_ops.h"

namespace qsf {

// Writes a .qsf file of a model with every weight as it is but those that `options.formats` names,
// uncompressed. Where the page cache is bounded it forgets both files: the engine has all of the
// budget.
// Fails  as transcode()
Status write_copy(const ModelSource& source, const std::string& path, TranscodeOptions options,
                  FileOps& ops = system_file_ops());

// TemporaryName: a file that goes when this does.

class TemporaryName {
 public:
  // A name beside `output` that only this process uses.
  explicit TemporaryName(const std::string& output)
      : path_(output + ".calibration-" + std::to_string(::getpid())) {}
  ~TemporaryName() { remove(); }
  TemporaryName(const TemporaryName&) = delete;
  TemporaryName& operator=(const TemporaryName&) = delete;

  const std::string& path() const noexcept { return path_; }
  void remove() const { system_file_ops().remove(path_); }

 private:
  std::string path_;
};

}  // namespace qsf

#endif  // QSF_CONVERT_CALIBRATE_MODEL_COPY_H_
