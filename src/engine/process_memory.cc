// SPDX-License-Identifier: MIT
//
// The platform's numbers about this process, passed on.

#include "engine/process_memory.h"

#include "platform/memory.h"

namespace qsf {

ProcessMemory process_memory() noexcept {
  return {.resident_bytes = resident_bytes(), .peak_resident_bytes = peak_resident_bytes()};
}

}  // namespace qsf
