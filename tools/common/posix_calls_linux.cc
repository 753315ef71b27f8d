// SPDX-License-Identifier: MIT

#include "tools/common/posix_calls.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace qsf_tools {

timespec modification_time(const struct stat& about) {
  return about.st_mtim;
}

void forbid_readahead(int file) {
  static_cast<void>(::posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM));
}

bool open_pipe(int (&ends)[2]) {
  return ::pipe2(ends, O_CLOEXEC) == 0;
}

}  // namespace qsf_tools
