// SPDX-License-Identifier: MIT
//
// Every kernel written over vectors.h, compiled for the tier of the including file.

#ifndef QSF_KERNELS_LANES_LANES_OF_TIER_H_
#define QSF_KERNELS_LANES_LANES_OF_TIER_H_

#include "kernels/activation/activation_lanes.h"
#include "kernels/convert/convert_lanes.h"
#include "kernels/elementwise/elementwise_lanes.h"
#include "kernels/kv_rows/kv_rows_lanes.h"
#include "kernels/lanes/lane_kernels.h"
#include "kernels/low_rank/low_rank_lanes.h"
#include "kernels/norm/norm_lanes.h"
#include "kernels/quantise/quantise_lanes.h"
#include "kernels/rope/rope_lanes.h"
#include "kernels/sample/sample_lanes.h"
#include "kernels/scan/scan_lanes.h"
#include "kernels/softmax/softmax_lanes.h"

namespace qsf::kernels::QSF_TIER_NAMESPACE {

static constexpr LaneKernels kLaneKernels = {
    .activation = activation::kActivationKernels,
    .convert = convert::kConvertKernels,
    .elementwise = elementwise::kElementwiseKernels,
    .kv_rows = kv_rows::kKvRowKernels,
    .low_rank = low_rank::kLowRankKernels,
    .norm = norm::kNormKernels,
    .quantise = quantise::kQuantiseKernels,
    .rope = rope::kRopeKernels,
    .sample = sample::kSampleKernels,
    .scan = scan::kScanKernels,
    .softmax = softmax::kSoftmaxKernels,
};

}  // namespace qsf::kernels::QSF_TIER_NAMESPACE

#endif  // QSF_KERNELS_LANES_LANES_OF_TIER_H_
