// SPDX-License-Identifier: MIT
//
// Bytes that nobody can guess, from the operating system.

#ifndef QSF_PLATFORM_RANDOM_BYTES_H_
#define QSF_PLATFORM_RANDOM_BYTES_H_

#include "base/bytes.h"
#include "base/status.h"

namespace qsf {

// Fills `to`. Requires  at most 256 bytes
// Fails  kIo where the system has no source of them
Status fill_with_random_bytes(MutableByteSpan to);

}  // namespace qsf

#endif  // QSF_PLATFORM_RANDOM_BYTES_H_
