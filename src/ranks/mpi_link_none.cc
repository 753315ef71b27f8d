// SPDX-License-Identifier: MIT
//
// Builds without MPI.

#include "ranks/mpi_link.h"
#include "ranks/started_ranks.h"

namespace qsf {

Result<std::unique_ptr<Link>> join_ranks() {
  const unsigned n = started_ranks();
  if (n <= 1) return std::unique_ptr<Link>();
  return unsupported(
      "started as one of %u processes, but this build runs models in one; build with "
      "-DQSF_MPI=ON",
      n);
}

}  // namespace qsf
