// SPDX-License-Identifier: MIT

#include "tools/common/posix_calls.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace qsf_tools {

timespec modification_time(const struct stat& about) {
  return about.st_mtimespec;
}

void forbid_readahead(int file) {
  static_cast<void>(::fcntl(file, F_RDAHEAD, 0));
}

bool open_pipe(int (&ends)[2]) {
  if (::pipe(ends) != 0) return false;
  for (const int end : ends) (void)::fcntl(end, F_SETFD, FD_CLOEXEC);
  return true;
}

}  // namespace qsf_tools
