// SPDX-License-Identifier: MIT
//
// Error numbers of Windows as those of errno, in which FileOps and ReadRing speak. Plain numbers,
// so that tests run anywhere.

#ifndef QSF_IO_WINDOWS_ERRORS_H_
#define QSF_IO_WINDOWS_ERRORS_H_

#include <cstdint>

namespace qsf {

// Returns the errno that means what `error` of GetLastError() means; EIO for one not known here.
int errno_of_windows(std::uint32_t error) noexcept;

// Returns what a read gives that failed so: 0 at the end of the file, else a negative errno.
std::int64_t read_result_of_windows(std::uint32_t error) noexcept;

}  // namespace qsf

#endif  // QSF_IO_WINDOWS_ERRORS_H_
