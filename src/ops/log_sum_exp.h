// SPDX-License-Identifier: MIT
//
// log(sum(exp(x))) over logits that arrive in blocks, for callers above the kernels.

#ifndef QSF_OPS_LOG_SUM_EXP_H_
#define QSF_OPS_LOG_SUM_EXP_H_

#include <cstdint>
#include <span>

#include "kernels/kernel_set.h"

namespace qsf {

class LogSumExp {
 public:
  void add(std::span<const float> values) noexcept {
    kernels::host_kernel_set().softmax.log_sum_exp_add(&state_, values.data(),
                                                       static_cast<std::uint32_t>(values.size()));
  }
  // Returns -infinity when nothing but -infinity was added. The bits are the same on every
  // instruction set.
  double value() const noexcept { return kernels::log_sum_exp_value(state_); }

 private:
  kernels::LogSumExpState state_;
};

}  // namespace qsf

#endif  // QSF_OPS_LOG_SUM_EXP_H_
