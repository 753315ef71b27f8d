// SPDX-License-Identifier: MIT
//
// Measures single kernels: every entry of every kernel table that this machine can run, the best of
// many bursts on data in cache; products with weights from memory as well.

#ifndef QSF_TOOLS_BENCH_BENCH_KERNELS_H_
#define QSF_TOOLS_BENCH_BENCH_KERNELS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "kernels/isa.h"
#include "tools/bench/bench_options.h"

namespace qsf_tools {

// The fastest call of a kernel.
struct KernelFigure {
  std::string kernel;  // name in its table
  std::string work;    // the input of a call
  double ns = 0.0;
  double bytes = 0.0;       // read and written by a call
  double operations = 0.0;  // multiplications and additions; 0 where bytes alone matter
};

// Measures kernels and keeps the figures. Prints each at once, or all at the end as JSON.
class KernelBench {
 public:
  KernelBench(const BenchOptions& options, qsf::kernels::Isa best)
      : filter_(options.filter), best_(best), json_(options.json) {}

  // Returns whether the filter selects the kernel and this machine can run it.
  bool wants(std::string_view name, qsf::kernels::Isa isa) const;
  // Calls `call` in bursts and adds the best of them.
  void measure(std::string kernel, std::string work, double bytes, double operations,
               qsf::FunctionRef<void()> call);
  void add(KernelFigure figure);
  const std::vector<KernelFigure>& figures() const noexcept { return figures_; }

 private:
  std::string filter_;
  qsf::kernels::Isa best_;
  bool json_;
  std::vector<KernelFigure> figures_;
};

// Returns the nanoseconds of the fastest of many short bursts of calls, for each call.
double best_ns(qsf::FunctionRef<void()> call);

// Of the tables of weight products, of attention, and of all others.
qsf::Status bench_matmul_kernels(unsigned n_threads, KernelBench& bench);
void bench_attend_kernels(KernelBench& bench);
void bench_small_kernels(KernelBench& bench);
// Of the state of sparse prefill, which has no table: one implementation for every tier.
void bench_h2o_state(KernelBench& bench);
// Of the converter's encoders, which have none either, and of their error compensation.
void bench_encode(KernelBench& bench);
void bench_gptq(KernelBench& bench);

// Measures what the options ask for and prints it.
// Fails  kInvalidArgument when no kernel has a name with the filter in it
qsf::Status bench_kernels(const BenchOptions& options);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_BENCH_BENCH_KERNELS_H_
