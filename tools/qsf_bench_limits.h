// SPDX-License-Identifier: MIT
//
// What the machine can do at most: bytes read from memory and operations, a second, with all
// threads at once.

#ifndef QSF_TOOLS_QSF_BENCH_LIMITS_H_
#define QSF_TOOLS_QSF_BENCH_LIMITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/isa.h"
#include "kernels/probe/probe.h"
#include "platform/threads.h"

namespace qsf_tools {

struct ReadLimit {
  double bytes_per_second = 0.0;
  std::uint32_t n_streams = 0;  // of each thread, with which it was reached
  std::uint32_t prefetch_bytes = 0;
};

struct ArithmeticLimit {
  std::string name;  // of the probe
  qsf::kernels::ProbeKind kind = qsf::kernels::ProbeKind::kF32;
  double operations_per_second = 0.0;
};

struct MachineLimits {
  ReadLimit read;
  std::vector<ArithmeticLimit> arithmetic;  // of the best probe of each kind

  // Returns operations a second of that kind, 0 where it was not measured.
  double peak(qsf::kernels::ProbeKind kind) const noexcept;
};

// Measures for about a second.
// Fails  kOutOfBudget when there is not 1 GiB of memory to read
qsf::Result<MachineLimits> measure_limits(qsf::ThreadPool& threads, qsf::kernels::Isa best);

// Keeps the better of two measurements of one machine.
void keep_better(const MachineLimits& other, MachineLimits& limits);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_QSF_BENCH_LIMITS_H_
