// SPDX-License-Identifier: MIT
//
// Makes the backend for this machine, so that callers depend on the interface alone.

#ifndef QSF_OPS_MAKE_BACKEND_H_
#define QSF_OPS_MAKE_BACKEND_H_

#include <memory>
#include <string>

#include "base/result.h"
#include "ops/backend.h"

namespace qsf {

class ThreadPool;

// Returns the CPU backend with the best instruction set of this machine that the environment
// variable QSF_ISA allows. `exact`: every product takes f32 activations; else quantised weights
// take int8, or bf16 on a matrix unit. QSF_PREFETCH_BYTES=N sets the prefetch distance of decode
// products, which is measured otherwise.
// Requires  the pool outlives it
// Fails     kInvalidArgument when QSF_ISA names no instruction set or QSF_PREFETCH_BYTES no number
Result<std::unique_ptr<Backend>> make_cpu_backend(ThreadPool& pool, bool exact);

}  // namespace qsf

#endif  // QSF_OPS_MAKE_BACKEND_H_
