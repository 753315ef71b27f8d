// SPDX-License-Identifier: MIT
//
// Counts heap allocations of a test program. Linking this replaces malloc and related functions.

#ifndef QSF_BASE_TESTING_ALLOCATION_COUNTER_H_
#define QSF_BASE_TESTING_ALLOCATION_COUNTER_H_

namespace qsf::testing_support {

// Returns whether allocations are counted: not in builds with sanitizers, which replace malloc too.
bool counts_allocations() noexcept;

// Returns the number of heap allocations of all threads so far.
// Threads  any
long n_allocations() noexcept;

}  // namespace qsf::testing_support

#endif  // QSF_BASE_TESTING_ALLOCATION_COUNTER_H_
