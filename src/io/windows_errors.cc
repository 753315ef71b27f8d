// SPDX-License-Identifier: MIT

#include "io/windows_errors.h"

#include <cerrno>

namespace qsf {
namespace {

constexpr std::uint32_t kHandleEof = 38;

struct ErrorPair {
  std::uint32_t windows;
  int number;
};

// Of winerror.h, where the names are.
constexpr ErrorPair kErrors[] = {
    {0, 0},               // success
    {1, ENOSYS},          // INVALID_FUNCTION
    {2, ENOENT},          // FILE_NOT_FOUND
    {3, ENOENT},          // PATH_NOT_FOUND
    {4, EMFILE},          // TOO_MANY_OPEN_FILES
    {5, EACCES},          // ACCESS_DENIED
    {6, EBADF},           // INVALID_HANDLE
    {8, ENOMEM},          // NOT_ENOUGH_MEMORY
    {14, ENOMEM},         // OUTOFMEMORY
    {15, ENOENT},         // INVALID_DRIVE
    {17, EXDEV},          // NOT_SAME_DEVICE
    {19, EROFS},          // WRITE_PROTECT
    {21, ENODEV},         // NOT_READY
    {32, EBUSY},          // SHARING_VIOLATION
    {33, EBUSY},          // LOCK_VIOLATION
    {39, ENOSPC},         // HANDLE_DISK_FULL
    {50, EOPNOTSUPP},     // NOT_SUPPORTED
    {53, ENOENT},         // BAD_NETPATH
    {67, ENOENT},         // BAD_NET_NAME
    {80, EEXIST},         // FILE_EXISTS
    {87, EINVAL},         // INVALID_PARAMETER
    {112, ENOSPC},        // DISK_FULL
    {123, ENOENT},        // INVALID_NAME
    {145, ENOTEMPTY},     // DIR_NOT_EMPTY
    {161, ENOENT},        // BAD_PATHNAME
    {183, EEXIST},        // ALREADY_EXISTS
    {206, ENAMETOOLONG},  // FILENAME_EXCED_RANGE
    {223, EFBIG},         // FILE_TOO_LARGE
    {267, ENOTDIR},       // DIRECTORY
    {303, EBUSY},         // DELETE_PENDING
    {995, ECANCELED},     // OPERATION_ABORTED
    {1295, ENOSPC},       // DISK_QUOTA_EXCEEDED
    {1450, ENOMEM},       // NO_SYSTEM_RESOURCES
    {1453, ENOMEM},       // WORKING_SET_QUOTA
    {1455, ENOMEM},       // COMMITMENT_LIMIT
};

}  // namespace

int errno_of_windows(std::uint32_t error) noexcept {
  for (const ErrorPair& pair : kErrors) {
    if (pair.windows == error) return pair.number;
  }
  return EIO;
}

std::int64_t read_result_of_windows(std::uint32_t error) noexcept {
  return error == kHandleEof ? 0 : -errno_of_windows(error);
}

}  // namespace qsf
