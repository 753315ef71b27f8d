// SPDX-License-Identifier: MIT

#include <windows.h>

#include "io/process_id.h"

namespace qsf {

std::string process_id() {
  return std::to_string(::GetCurrentProcessId());
}

}  // namespace qsf
