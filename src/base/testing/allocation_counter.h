// SPDX-License-Identifier: MIT
//
// Counts what a test program allocates: linking this replaces malloc and its relatives.

#ifndef QSF_BASE_TESTING_ALLOCATION_COUNTER_H_
#define QSF_BASE_TESTING_ALLOCATION_COUNTER_H_

namespace qsf::testing_support {

// Returns whether anything is counted: a sanitizer owns malloc in its builds.
bool counts_allocations() noexcept;

// Returns how often any thread of the process has asked for heap memory so far.
// Threads  any
long n_allocations() noexcept;

}  // namespace qsf::testing_support

#endif  // QSF_BASE_TESTING_ALLOCATION_COUNTER_H_
