// SPDX-License-Identifier: MIT

#include <mach-o/dyld.h>
#include <sys/param.h>

#include <climits>
#include <cstdint>
#include <cstdlib>

#include "tools/common/bundled_model.h"
#include "tools/common/console.h"

namespace qsf_tools {

std::string program_path() {
  char started_by[MAXPATHLEN];
  std::uint32_t n_bytes = sizeof started_by;
  char path[PATH_MAX];
  if (::_NSGetExecutablePath(started_by, &n_bytes) != 0) return {};
  return ::realpath(started_by, path) != nullptr ? path : started_by;
}

// The C library of macOS has one for small and one for large blocks, whatever the threads.
void share_one_heap() {}

// macOS reads the pages of a program as they are used.
void set_conversion_code_aside() {}

}  // namespace qsf_tools
