// SPDX-License-Identifier: MIT
//
// What the sources for Windows share about open files. All are opened for overlapped reads: such
// handles do not make the threads that read from them wait for each other.

#ifndef QSF_IO_WINDOWS_HANDLES_H_
#define QSF_IO_WINDOWS_HANDLES_H_

#include <cstdint>

#include "base/bytes.h"

namespace qsf {

// Handles of Windows have 32 bits that count, of which files never use the first.
void* windows_handle(int handle) noexcept;
int handle_number(void* handle) noexcept;

// Opens the file of a handle again; with `direct` past the page cache. Returns a negative errno on
// failure.
int reopen_file(int handle, bool for_writing, bool direct);
int close_file(int handle);

// Whether reopen_file() opened it with `direct`.
bool is_direct(int handle);

// Windows wants whole sectors for offset, length and address of a direct transfer, and Wine does
// not look. Returns 0, or -EINVAL for other ranges of a direct handle.
int check_direct(int handle, ByteSpan memory, std::uint64_t offset);

}  // namespace qsf

#endif  // QSF_IO_WINDOWS_HANDLES_H_
