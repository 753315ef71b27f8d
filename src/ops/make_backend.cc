// SPDX-License-Identifier: MIT

#include "ops/make_backend.h"

#include "kernels/kernel_set.h"
#include "ops/cpu_backend.h"

namespace qsf {

Result<std::unique_ptr<Backend>> make_cpu_backend(ThreadPool& pool) {
  QSF_ASSIGN_OR_RETURN(const kernels::Isa isa, kernels::choose_host_isa());
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(pool, kernels::kernel_set(isa)));
}

}  // namespace qsf
