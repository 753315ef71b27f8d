// SPDX-License-Identifier: MIT
//
// The processes that mpirun started, as ranks (MPI 3.1; written for Open MPI 4.1).
//
// One thread makes all calls of MPI after the start and sleeps between them: MPI's own waits spin,
// and two ranks that spin on one core hold each other up. Every rank tells every other twice a
// second that it is alive. A thread that never calls MPI reads the clock and ends the whole run
// when a rank is silent for 5 s, or when this one computes no layer for four
// times the longest time so far and 5 s: MPI notices neither a stopped
// process nor a dead link within minutes. docs/decisions/074-ranks.md has what was measured.

#ifndef QSF_RANKS_MPI_LINK_H_
#define QSF_RANKS_MPI_LINK_H_

#include <memory>

#include "base/result.h"
#include "ranks/link.h"

namespace qsf {

// Joins the processes that mpirun started; null where this one is alone.
// Fails  kUnsupported: started by mpirun or srun, but this build has no MPI, or MPI sees no others;
//        kIo: MPI cannot start
// Threads  the main one, once
Result<std::unique_ptr<Link>> join_ranks();

}  // namespace qsf

#endif  // QSF_RANKS_MPI_LINK_H_
