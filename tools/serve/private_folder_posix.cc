// SPDX-License-Identifier: MIT

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tools/serve/private_folder.h"

namespace qsf_tools {

std::string temporary_folder() {
  const char* const temporary = std::getenv("TMPDIR");
  return temporary != nullptr ? temporary : "/tmp";
}

std::string make_session_folder(const std::string& parent, std::string& path) {
  std::string name = parent + "/qsf-serve-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) return std::strerror(errno);
  path = name;
  return {};
}

std::string make_inner_folder(const std::string& path) {
  return ::mkdir(path.c_str(), 0700) == 0 ? "" : std::strerror(errno);
}

HeldFolder::~HeldFolder() {
  if (is_held()) ::close(static_cast<int>(handle_));
}

std::string HeldFolder::hold(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return std::strerror(errno);
  const int handle = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (handle < 0) return std::strerror(errno);
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
    return wrong;
  }
  handle_ = handle;
  return {};
}

}  // namespace qsf_tools
