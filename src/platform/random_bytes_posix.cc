// SPDX-License-Identifier: MIT

#include <sys/random.h>  // has it on macOS
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "platform/random_bytes.h"

namespace qsf {

Status fill_with_random_bytes(MutableByteSpan to) {
  if (::getentropy(to.data(), to.size()) == 0) return ok_status();
  return io_error("random bytes: the system gives none: %s", std::strerror(errno));
}

}  // namespace qsf
