// SPDX-License-Identifier: MIT
//
// TemporaryName: a file that goes when this does.

#ifndef QSF_CONVERT_CALIBRATE_TEMPORARY_NAME_H_
#define QSF_CONVERT_CALIBRATE_TEMPORARY_NAME_H_

#include <unistd.h>

#include <string>

#include "io/file_ops.h"

namespace qsf {

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

#endif  // QSF_CONVERT_CALIBRATE_TEMPORARY_NAME_H_
