// SPDX-License-Identifier: MIT

#include "tools/serve/cache_folder.h"

#include <filesystem>
#include <system_error>

#include "tools/common/file_path.h"

namespace qsf_tools {

namespace {

namespace fs = std::filesystem;

constexpr const char* kSubfolder = "/qsf-cache";
constexpr const char* kFolderOption = "--cache-folder: ";

// Removes what is in a folder. Returns what is wrong.
std::error_code empty_folder(const std::string& path) {
  std::error_code error;
  for (fs::directory_iterator at(file_path(path), error), end; !error && at != end;
       at.increment(error)) {
    fs::remove_all(at->path(), error);
    if (error) break;
  }
  return error;
}

}  // namespace

CacheFolder::~CacheFolder() {
  if (held_.is_held()) empty_folder(path_);
}

std::string CacheFolder::open(const std::string& parent, std::size_t n) {
  const std::string path = parent + kSubfolder;
  const auto problem = [&path](const std::string& what) {
    return kFolderOption + path + ": " + what;
  };
  if (const std::string wrong = held_.hold(path); !wrong.empty()) return problem(wrong);
  path_ = path;
  if (const std::error_code error = empty_folder(path_)) return problem(error.message());
  for (std::size_t i = 0; i < n; ++i) {
    const std::string wrong = make_inner_folder(path_ + "/" + std::to_string(i));
    if (!wrong.empty()) return problem(wrong);
  }
  return {};
}

}  // namespace qsf_tools
