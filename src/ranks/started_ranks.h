// SPDX-License-Identifier: MIT

#ifndef QSF_RANKS_STARTED_RANKS_H_
#define QSF_RANKS_STARTED_RANKS_H_

namespace qsf {

// How many processes the program that started this one says it started, by its environment: mpirun
// of Open MPI and MPICH, or srun. 0: none of them did.
unsigned started_ranks() noexcept;

}  // namespace qsf

#endif  // QSF_RANKS_STARTED_RANKS_H_
