// SPDX-License-Identifier: MIT
//
// Calls about files and pipes that the POSIX systems have each in its own way.

#ifndef QSF_TOOLS_COMMON_POSIX_CALLS_H_
#define QSF_TOOLS_COMMON_POSIX_CALLS_H_

struct stat;
struct timespec;

namespace qsf_tools {

// Returns when the content of a file was changed last.
timespec modification_time(const struct stat& about);

// Tells the kernel to read of an open file what is asked for alone.
void forbid_readahead(int file);

// Opens a pipe that no program started later gets. Returns false on failure, and errno says why.
bool open_pipe(int (&ends)[2]);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_COMMON_POSIX_CALLS_H_
