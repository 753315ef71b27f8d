// SPDX-License-Identifier: MIT
//
// The work folder of a conversion (--work-folder): saved progress, from which the same command
// resumes after an interruption.

#ifndef QSF_TOOLS_CONVERT_CONVERT_WORK_H_
#define QSF_TOOLS_CONVERT_CONVERT_WORK_H_

#include <cstddef>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "convert/encode/merged_model.h"
#include "convert/encode/saved_sections.h"
#include "import/model_source.h"
#include "tools/common/system_files.h"
#include "tools/convert/convert_options.h"

namespace qsf_tools {

class WorkFolder {
 public:
  // Creates the folder, or opens the folder of an earlier start of the same conversion.
  // `merged`: the part of the source with adapters, null: none. `tokenizer`: the section of the
  // output.
  // Fails  kInvalidArgument when the folder belongs to another conversion, holds other files, would
  //        hold a result, or is in use; kIo
  static qsf::Result<std::unique_ptr<WorkFolder>> open(const ConvertOptions& options,
                                                       const qsf::ModelSource& source,
                                                       const qsf::MergedModel* merged,
                                                       qsf::ByteSpan tokenizer);
  // Removes a folder without progress.
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  const std::string& path() const noexcept { return path_; }
  const qsf::SavedSections& sections() const noexcept { return sections_; }
  // Returns whether the folder existed before, and how many sections were complete then.
  bool goes_on() const noexcept { return goes_on_; }
  std::size_t n_done() const noexcept { return n_done_; }

  // Removes the folder and its files, once the output is complete. Files that cannot be removed
  // stay, and so do a link and the folder it names.
  void remove();

 private:
  explicit WorkFolder(const std::string& path) : path_(path), sections_(path) {}
  qsf::Status lock();
  qsf::Status check_conversion(const std::string& expected);

  std::string path_;
  qsf::SavedSections sections_;
  FileLock lock_;  // held as long as this lives
  bool is_ours_ = false;
  bool goes_on_ = false;
  std::size_t n_done_ = 0;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_CONVERT_CONVERT_WORK_H_
