// SPDX-License-Identifier: MIT
//
// io_uring in builds without liburing (-DQSF_URING=OFF).

#include <cerrno>

#include "io/uring.h"

namespace qsf {

int open_uring(unsigned, std::unique_ptr<ReadRing>&) {
  return -ENOSYS;
}

}  // namespace qsf
