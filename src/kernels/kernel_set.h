// SPDX-License-Identifier: MIT
//
// Everything chosen for one instruction-set tier, so that a caller asks once and then only calls.

#ifndef QSF_KERNELS_KERNEL_SET_H_
#define QSF_KERNELS_KERNEL_SET_H_

#include <string>

#include "kernels/activation/activation.h"
#include "kernels/attend/attend.h"
#include "kernels/attend/attend_query_tile.h"
#include "kernels/convert/convert.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/kv_rows/kv_rows.h"
#include "kernels/low_rank/low_rank.h"
#include "kernels/matmul/matmul.h"
#include "kernels/norm/norm.h"
#include "kernels/quantise/quantise.h"
#include "kernels/rope/rope.h"
#include "kernels/sample/sample.h"
#include "kernels/scan/scan.h"
#include "kernels/softmax/softmax.h"
#include "kernels/tier.h"

namespace qsf::kernels {

struct KernelSet {
  Isa best;
  NormKernels norm;
  RopeKernels rope;
  ActivationKernels activation;
  ElementwiseKernels elementwise;
  SoftmaxKernels softmax;
  AttendKernel attend_prompt;
  AttendKernel attend_decode;
  AttendQueryTileKernel attend_query_tile_prompt;
  AttendQueryTileKernel attend_query_tile_decode;
  ConvertKernels convert;
  SampleKernels sample;
  ScanKernels scan;
  QuantiseKernels quantise;
  KvRowKernels kv_rows;
  LowRankKernels low_rank;

  // Requires  as select_matmul
  const MatMulKernel& matmul(BlockFormat format, ActivationType input) const noexcept {
    return select_matmul(format, input, best);
  }
};

// Returns the kernels to use where `best` is the highest tier allowed. The set lives as long as the
// program. Threads  any
const KernelSet& kernel_set(Isa best) noexcept;

// Returns the kernels of this CPU, capped by QSF_ISA (scalar where that names no tier here, which
// whoever makes a backend reports). For what is kBitExact: no result may depend on this choice.
const KernelSet& host_kernel_set() noexcept;

// Returns one line per table, "matmul 4bit/64 i8: matmul_q4g64_i8_scalar", for --verbose.
std::string kernel_set_names(const KernelSet& set);

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_KERNEL_SET_H_
