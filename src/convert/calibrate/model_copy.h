// SPDX-License-Identifier: MIT
//
// Temporary copies of a model for the engine, with all weights unchanged or some of them rounded.

#ifndef QSF_CONVERT_CALIBRATE_MODEL_COPY_H_
#define QSF_CONVERT_CALIBRATE_MODEL_COPY_H_

#include <string>

#include "base/status.h"
#include "convert/encode/transcode.h"
#include "import/model_source.h"
#include "io/file_ops.h"
#include "io/process_id.h"

namespace qsf {

// Writes an uncompressed .qsf file of a model. Weights are unchanged except for the matrices in
// `options.formats`. With a bounded page cache both files are dropped from it, so the engine has
// the whole budget. Fails  as transcode()
Status write_copy(const ModelSource& source, const std::string& path, TranscodeOptions options,
                  FileOps& ops = system_file_ops());

// A file name that is removed by the destructor.
class TemporaryName {
 public:
  // Makes a name beside `output` that is unique to this process.
  explicit TemporaryName(const std::string& output)
      : path_(output + ".calibration-" + process_id()) {}
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
