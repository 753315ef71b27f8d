/* SPDX-License-Identifier: MIT
 *
 * Running a model over several processes ("ranks") that mpirun starts, on one machine or on many,
 * each with a part of the layers. A part of qsf/qsf.h, which has the conventions and includes it.
 *
 * Every process runs the same program. It joins the others first. Rank 0 then goes on as a program
 * of one process does; the others serve it and return when it has ended. Texts have the bits of one
 * process. Libraries without MPI (QSF_MPI in CMake) run alone.
 */
#ifndef QSF_RANKS_H_
#define QSF_RANKS_H_

#ifndef QSF_QSF_H_
#error "include qsf/qsf.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Joins the processes that mpirun started with this one. *rank is this one's number and *n_ranks
 * how many there are: 0 and 1 for a process alone. On rank 0 it returns at once; then
 * qsf_engine_open opens a model on all ranks, one at a time. On the others it returns when rank 0
 * has called qsf_ranks_leave; the process should end then.
 * A rank that is killed, stopped or cut off ends all of them within seconds, with a line on stderr.
 * Called once, before qsf_engine_open, on the main thread.
 * Errors   QSF_UNSUPPORTED: mpirun or srun started several processes, but this library has no MPI,
 *          or MPI does not see the others. QSF_IO: MPI cannot start, or rank 0 is lost */
QSF_API qsf_code qsf_ranks_join(int* rank, int* n_ranks, qsf_error* error);
/* Ends the group. Rank 0 calls it after qsf_free, as the last thing that it does with this library.
 * Does nothing for a process alone. */
QSF_API void qsf_ranks_leave(void);

/* Layers of a window, which a rank computes before the rows go on to the next rank; 0: chosen from
 * the memory and the file. `force`: also run a model with several ranks that one would run faster.
 * Without other ranks neither has an effect.
 * Errors of opening  QSF_INVALID_ARGUMENT: a window that leaves ranks without layers.
 * QSF_UNSUPPORTED: options that ranks cannot share; a model whose layers depend on each other
 * beyond the rows between them; one that has room in rank 0, without `force` */
QSF_API void qsf_config_set_ranks(QSFConfig* config, int window, int force);

#ifdef __cplusplus
}
#endif

#endif /* QSF_RANKS_H_ */
