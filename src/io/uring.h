// SPDX-License-Identifier: MIT
//
// The ReadRing of the Linux kernel.

#ifndef QSF_IO_URING_H_
#define QSF_IO_URING_H_

#include <memory>

#include "io/read_ring.h"

namespace qsf {

// Makes a ring for `depth` reads in flight. Returns 0 or a negative errno: ENOSYS where the kernel
// or this build has no io_uring, EPERM where it is forbidden.
// Requires  depth > 0
int open_uring(unsigned depth, std::unique_ptr<ReadRing>& ring);

}  // namespace qsf

#endif  // QSF_IO_URING_H_
