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
// variable QSF_ISA allows. Exact, every product multiplies f32 rows; else rows are int8, or bf16
// where a matrix unit takes them, for weights that are codes. QSF_PREFETCH_BYTES=N sets how far
// decode products prefetch, which is measured otherwise.
// Requires  the pool outlives it
// Fails     kInvalidArgument when QSF_ISA names no instruction set or QSF_PREFETCH_BYTES no number
Result<std::unique_ptr<Backend>> make_cpu_backend(ThreadPool& pool, bool exact);

}  // namespace qsf

#endif  // QSF_OPS_MAKE_BACKEND_H_
