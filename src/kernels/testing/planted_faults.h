// SPDX-License-Identifier: MIT
//
// Kernels that are wrong on purpose. A test that does not catch each of them proves nothing.

#ifndef QSF_KERNELS_TESTING_PLANTED_FAULTS_H_
#define QSF_KERNELS_TESTING_PLANTED_FAULTS_H_

#include <span>

#include "kernels/attend/attend.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matvec/matvec.h"

namespace qsf::kernels::testing_support {

template <typename Kernel>
struct PlantedFault {
  const char* what;
  Kernel kernel;
};

// Faults whose numbers are wrong; all in 4-bit weights with blocks of 64.
std::span<const PlantedFault<MatVecKernel>> planted_matvec_faults() noexcept;
std::span<const PlantedFault<MatMulKernel>> planted_matmul_faults() noexcept;

// Faults of a page of attention with a soft cap and slopes, for at most 16 heads.
std::span<const PlantedFault<AttendKernels>> planted_attend_faults() noexcept;

// Faults that touch memory they must not; a guarded run dies of them.
std::span<const PlantedFault<MatVecKernel>> planted_memory_faults() noexcept;

}  // namespace qsf::kernels::testing_support

#endif  // QSF_KERNELS_TESTING_PLANTED_FAULTS_H_
