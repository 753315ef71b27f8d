// SPDX-License-Identifier: MIT
//
// Kernels that are wrong on purpose. A test that does not catch each of them proves nothing.

#ifndef QSF_KERNELS_TESTING_PLANTED_FAULTS_H_
#define QSF_KERNELS_TESTING_PLANTED_FAULTS_H_

#include <span>

#include "kernels/attend/attend.h"
#include "kernels/matmul/matmul.h"

namespace qsf::kernels::testing_support {

template <typename Kernel>
struct PlantedFault {
  const char* what;
  Kernel kernel;
};

// Faults whose numbers are wrong, in 4-bit weights with blocks of 64 and rows of f32 and of int8;
// for more than 2 rows of x and of weights, and columns that end inside an activation block.
std::span<const PlantedFault<MatMulKernel>> planted_matmul_faults() noexcept;

// Faults of a page of attention with a soft cap and slopes, for at most 64 queries.
std::span<const PlantedFault<AttendKernel>> planted_attend_faults() noexcept;

// Faults of pages whose keys and values are both quantised, in heads of at most 128 columns with
// more than one scale a row in 4 bits.
std::span<const PlantedFault<AttendKernel>> planted_quantised_faults() noexcept;

// Faults that touch memory they must not; a guarded run dies of them.
std::span<const PlantedFault<MatMulKernel>> planted_memory_faults() noexcept;

}  // namespace qsf::kernels::testing_support

#endif  // QSF_KERNELS_TESTING_PLANTED_FAULTS_H_
