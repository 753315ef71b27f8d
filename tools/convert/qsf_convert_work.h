// SPDX-License-Identifier: MIT
//
// qsf-convert --work-folder: what is done of a conversion, so that the same command goes on where
// it was interrupted (decision 033).

#ifndef QSF_TOOLS_CONVERT_QSF_CONVERT_WORK_H_
#define QSF_TOOLS_CONVERT_QSF_CONVERT_WORK_H_

#include <cstddef>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "convert/encode/saved_sections.h"
#include "import/model_source.h"
#include "tools/convert/qsf_convert_options.h"

namespace qsf_tools {

class WorkFolder {
 public:
  // Makes the folder, or opens that of an earlier start of this very conversion. `tokenizer` is the
  // section of the output.
  // Fails  kInvalidArgument when it is another conversion's, holds strange files, is to hold what
  //        stays, or is in use; kIo
  static qsf::Result<std::unique_ptr<WorkFolder>> open(const ConvertOptions& options,
                                                       const qsf::ModelSource& source,
                                                       qsf::ByteSpan tokenizer);
  // Removes a folder in which nothing was kept.
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  const std::string& path() const noexcept { return path_; }
  const qsf::SavedSections& sections() const noexcept { return sections_; }
  // Whether it was there before, and how many sections were done by then.
  bool goes_on() const noexcept { return goes_on_; }
  std::size_t n_done() const noexcept { return n_done_; }

  // Removes what it holds, and the folder: the output is whole. What cannot be removed stays, and
  // so do a link and the folder that it names.
  void remove();

 private:
  explicit WorkFolder(const std::string& path) : path_(path), sections_(path) {}
  qsf::Status lock();
  qsf::Status check_conversion(const std::string& expected);

  std::string path_;
  qsf::SavedSections sections_;
  int lock_ = -1;  // handle of a file that is locked as long as this lives
  bool is_ours_ = false;
  bool goes_on_ = false;
  std::size_t n_done_ = 0;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_CONVERT_QSF_CONVERT_WORK_H_
