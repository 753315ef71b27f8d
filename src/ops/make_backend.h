// SPDX-License-Identifier: MIT
//
// Makes the backend for this machine; callers above know backends by their interface alone.

#ifndef QSF_OPS_MAKE_BACKEND_H_
#define QSF_OPS_MAKE_BACKEND_H_

#include <memory>
#include <string>

#include "base/result.h"
#include "ops/backend.h"

namespace qsf {

class ThreadPool;

// Returns the CPU backend with the best instruction set that this machine has and the environment
// variable QSF_ISA allows. Requires  the pool outlives it
// Fails  kInvalidArgument when QSF_ISA names no instruction set
Result<std::unique_ptr<Backend>> make_cpu_backend(ThreadPool& pool);

}  // namespace qsf

#endif  // QSF_OPS_MAKE_BACKEND_H_
