// SPDX-License-Identifier: MIT
//
// The machine that figures are measured on: its name, and its limits: bytes read from memory and
// operations per second, with all threads at once.

#ifndef QSF_TOOLS_BENCH_BENCH_MACHINE_H_
#define QSF_TOOLS_BENCH_BENCH_MACHINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "kernels/isa.h"
#include "kernels/probe/probe.h"
#include "platform/threads.h"

namespace qsf_tools {

struct Machine {
  std::string cpu;       // name of the CPU model; "unknown" where the system has none
  std::string features;  // instruction sets that kernels may use
  std::string system;    // kernel and its release
  std::uint64_t memory_bytes = 0;
};

Machine describe_machine();

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

// Measures the limits of a machine, with 1 GiB of memory to read. On a shared machine the rate of
// memory changes by half within a second, so each run of a test is compared with sweeps right
// before and after it, with the streams and prefetch that were fastest.
class MachineProbe {
 public:
  // Fails  kOutOfBudget when there is not 1 GiB of memory to read
  static qsf::Result<MachineProbe> create(unsigned n_threads, qsf::kernels::Isa best);
  MachineProbe(MachineProbe&& other) noexcept;
  ~MachineProbe();
  MachineProbe(const MachineProbe&) = delete;
  MachineProbe& operator=(const MachineProbe&) = delete;

  // Measures everything, for about a second.
  MachineLimits measure();
  // Returns bytes a second of one sweep with the streams and the prefetch of `way`.
  double sweep(const ReadLimit& way);

 private:
  MachineProbe(std::unique_ptr<qsf::ThreadPool> threads, qsf::kernels::Isa best,
               qsf::MutableByteSpan memory) noexcept;

  std::unique_ptr<qsf::ThreadPool> threads_;
  qsf::kernels::Isa best_;
  qsf::MutableByteSpan memory_;
};

// Keeps the better of two measurements of one machine.
void keep_better(const MachineLimits& other, MachineLimits& limits);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_BENCH_BENCH_MACHINE_H_
