// SPDX-License-Identifier: MIT

#include <unistd.h>

#include "io/process_id.h"

namespace qsf {

std::string process_id() {
  return std::to_string(::getpid());
}

}  // namespace qsf
