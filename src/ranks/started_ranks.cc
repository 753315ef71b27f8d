// SPDX-License-Identifier: MIT

#include "ranks/started_ranks.h"

#include <cstdlib>

namespace qsf {

unsigned started_ranks() noexcept {
  // SLURM_NTASKS is set in a batch script too, of which there is one process; in it no step runs.
  const bool in_step = std::getenv("SLURM_STEP_ID") != nullptr;
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}) {
    if (name[0] == 'S' && !in_step) continue;
    const char* const text = std::getenv(name);
    if (text == nullptr) continue;
    const long n = std::strtol(text, nullptr, 10);
    return n < 1 || n > 65536 ? 0 : static_cast<unsigned>(n);
  }
  return 0;
}

}  // namespace qsf
