// SPDX-License-Identifier: MIT
//
// Selective scans and gated delta rules, written once for every tier.

#ifndef QSF_KERNELS_SCAN_SCAN_LANES_H_
#define QSF_KERNELS_SCAN_SCAN_LANES_H_

#include "kernels/scan/scan.h"
#include "kernels/vectors.h"

namespace qsf::kernels::QSF_TIER_NAMESPACE::scan {

// Vectors of columns at a time: as many sums hide what an addition takes, and with the inputs they
// stay in sixteen registers.
constexpr unsigned kStep = 4;

static void take_step(const ScanStep& s) noexcept {
  const F32<kStep> decay = splat<kStep>(s.decay);
  for_blocks<kStep>(s.n_cols, [&](auto get, auto put) QSF_INLINE {
    const F32<kStep> x = get(s.x);
    const F32<kStep> in = x * splat<kStep>(s.step);
    F32<kStep> sum = x * splat<kStep>(s.skip);
    for (std::size_t n = 0; n < s.n_state; ++n) {
      const std::size_t at = n * s.n_cols;
      const F32<kStep> h = decay * get(s.before + at) + in * splat<kStep>(s.b[n]);
      put(s.after + at, h);
      sum = sum + h * splat<kStep>(s.c[n]);
    }
    put(s.y, sum);
  });
}

static void take_delta_step(const DeltaStep& s) noexcept {
  const F32<kStep> decay = splat<kStep>(s.decay);
  for_blocks<kStep>(s.n_cols, [&](auto get, auto put) QSF_INLINE {
    F32<kStep> known = splat<kStep>(0.0F);
    for (std::size_t n = 0; n < s.n_state; ++n) {
      known = known + decay * get(s.before + n * s.n_cols) * splat<kStep>(s.key[n]);
    }
    const F32<kStep> in = (get(s.value) - known) * splat<kStep>(s.rate);
    F32<kStep> sum = splat<kStep>(0.0F);
    for (std::size_t n = 0; n < s.n_state; ++n) {
      const std::size_t at = n * s.n_cols;
      const F32<kStep> h = decay * get(s.before + at) + in * splat<kStep>(s.key[n]);
      put(s.after + at, h);
      sum = sum + h * splat<kStep>(s.query[n]);
    }
    put(s.y, sum);
  });
}

static constexpr ScanKernels kScanKernels = {.name = "scan_" QSF_TIER_NAME,
                                             .isa = kTier,
                                             .exactness = Exactness::kBitExact,
                                             .take_step = take_step,
                                             .take_delta_step = take_delta_step};

}  // namespace qsf::kernels::QSF_TIER_NAMESPACE::scan

#endif  // QSF_KERNELS_SCAN_SCAN_LANES_H_
