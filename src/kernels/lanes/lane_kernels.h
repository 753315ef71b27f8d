// SPDX-License-Identifier: MIT
//
// The kernels that are written once over vectors.h, as one tier has them.
//
// There is no SSE4.2 tier. The scalar sources compiled with -msse4.2 ran, on a Zen 4, as fast as
// with SSE2 but for the narrowing to f16 and bf16 (1.8 and 2.8 times) and the quantisation of
// rows (1.3 times), which is little of a token's time.

#ifndef QSF_KERNELS_LANES_LANE_KERNELS_H_
#define QSF_KERNELS_LANES_LANE_KERNELS_H_

#include "kernels/activation/activation.h"
#include "kernels/convert/convert.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/kv_rows/kv_rows.h"
#include "kernels/low_rank/low_rank.h"
#include "kernels/norm/norm.h"
#include "kernels/quantise/quantise.h"
#include "kernels/rope/rope.h"
#include "kernels/sample/sample.h"
#include "kernels/scan/scan.h"
#include "kernels/softmax/softmax.h"

namespace qsf::kernels {

struct LaneKernels {
  ActivationKernels activation;
  ConvertKernels convert;
  ElementwiseKernels elementwise;
  KvRowKernels kv_rows;
  LowRankKernels low_rank;
  NormKernels norm;
  QuantiseKernels quantise;
  RopeKernels rope;
  SampleKernels sample;
  ScanKernels scan;
  SoftmaxKernels softmax;
};

// Each is defined in lanes_<isa>.cc, on the architectures that have the tier.
extern const LaneKernels kLanesScalar;
extern const LaneKernels kLanesAvx2;
extern const LaneKernels kLanesAvx512;
extern const LaneKernels kLanesNeon;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_LANES_LANE_KERNELS_H_
