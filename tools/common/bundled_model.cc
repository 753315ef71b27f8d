// SPDX-License-Identifier: MIT
//
// Where the bundled model lies; see bundled_model.h.

#include "tools/common/bundled_model.h"

#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

namespace qsf_tools {

namespace {

constexpr const char* kBundledModel = "tales-5M-4bit.qsf";

bool is_file(const std::string& path) {
  struct stat about = {};
  return ::stat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode);
}

// Returns this program's path with links resolved. Where /proc is not mounted, as in a bare chroot,
// that is the path it was started by; empty when that cannot be told either.
std::string program_path() {
  char path[PATH_MAX];
  const ssize_t n_bytes = ::readlink("/proc/self/exe", path, sizeof path);
  if (n_bytes > 0) return std::string(path, static_cast<std::size_t>(n_bytes));
  // The kernel hands every program an address as a number.
  const auto* started_by = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
  if (started_by != nullptr && ::realpath(started_by, path) != nullptr) return path;
  return {};
}

}  // namespace

std::string program_folder() {
  const std::string path = program_path();
  return path.substr(0, path.rfind('/') + 1);
}

std::optional<std::string> find_bundled_model(std::string& error) {
  const std::string folder = program_folder();
  if (folder.empty()) {
    error = "no bundled model: this program cannot tell its own place; name a model file instead";
    return std::nullopt;
  }
  // An installation first: what lies three folders above one belongs to somebody else.
  const std::string places[] = {folder + QSF_MODELS_FROM_BIN "/" + kBundledModel,
                                folder + "../../../models/" + kBundledModel};
  for (const std::string& place : places) {
    if (is_file(place)) return place;
  }
  error = "no bundled model: looked for " + places[0] + " and " + places[1] +
          "; name a model file instead";
  return std::nullopt;
}

}  // namespace qsf_tools
