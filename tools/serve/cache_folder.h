// SPDX-License-Identifier: MIT
//
// The folder of --cache-folder: a subfolder that one server at a time uses. What a killed server
// left there is removed by the next one, so the bound holds for all of them.

#ifndef QSF_TOOLS_SERVE_CACHE_FOLDER_H_
#define QSF_TOOLS_SERVE_CACHE_FOLDER_H_

#include <cstddef>
#include <string>

#include "tools/serve/private_folder.h"

namespace qsf_tools {

class CacheFolder {
 public:
  CacheFolder() = default;
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;
  ~CacheFolder();

  // Makes the subfolder, for its owner alone, with an empty folder for each of `n` models.
  // Returns what is wrong, empty for nothing.
  std::string open(const std::string& parent, std::size_t n);
  // Empty before open().
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
  HeldFolder held_;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_CACHE_FOLDER_H_
