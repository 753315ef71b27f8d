// SPDX-License-Identifier: MIT
//
// log(sum(exp(x))) over logits that arrive in blocks, for callers that may not know kernels.

#ifndef QSF_OPS_LOG_SUM_EXP_H_
#define QSF_OPS_LOG_SUM_EXP_H_

#include <span>

#include "kernels/softmax/softmax.h"

namespace qsf {

class LogSumExp {
 public:
  void add(std::span<const float> values) noexcept;
  // Returns -infinity when nothing but -infinity was added. The same bits on every machine.
  double value() const noexcept { return kernels::log_sum_exp_value(state_); }

 private:
  kernels::LogSumExpState state_;
};

}  // namespace qsf

#endif  // QSF_OPS_LOG_SUM_EXP_H_
