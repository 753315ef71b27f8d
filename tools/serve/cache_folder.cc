// SPDX-License-Identifier: MIT

#include "tools/serve/cache_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace qsf_tools {

namespace {

namespace fs = std::filesystem;

constexpr const char* kSubfolder = "/qsf-cache";
constexpr const char* kFolderOption = "--cache-folder: ";

// Removes what is in a folder. Returns what is wrong.
std::error_code empty_folder(const std::string& path) {
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    fs::remove_all(at->path(), error);
    if (error) break;
  }
  return error;
}

}  // namespace

CacheFolder::~CacheFolder() {
  if (handle_ < 0) return;
  empty_folder(path_);
  ::close(handle_);
}

std::string CacheFolder::open(const std::string& parent, std::size_t n) {
  const std::string path = parent + kSubfolder;
  const auto problem = [&path](const std::string& what) {
    return kFolderOption + path + ": " + what;
  };
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return problem(std::strerror(errno));
  const int handle = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (handle < 0) return problem(std::strerror(errno));
  struct stat about = {};
  std::string wrong;
  if (::fstat(handle, &about) != 0) {
    wrong = std::strerror(errno);
  } else if (about.st_uid != ::geteuid() || (about.st_mode & 0077U) != 0) {
    wrong = "is not this user's alone (mode 0700); remove it or name another folder";
  } else if (::flock(handle, LOCK_EX | LOCK_NB) != 0) {
    wrong =
        errno == EWOULDBLOCK ? "another server uses it; name another folder" : std::strerror(errno);
  }
  if (!wrong.empty()) {
    ::close(handle);
    return problem(wrong);
  }
  handle_ = handle;
  path_ = path;
  if (const std::error_code error = empty_folder(path_)) return problem(error.message());
  for (std::size_t i = 0; i < n; ++i) {
    const std::string folder = path_ + "/" + std::to_string(i);
    if (::mkdir(folder.c_str(), 0700) != 0) return problem(std::strerror(errno));
  }
  return {};
}

}  // namespace qsf_tools
