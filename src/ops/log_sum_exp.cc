// SPDX-License-Identifier: MIT

#include "ops/log_sum_exp.h"

#include <cstdint>

#include "kernels/kernel_set.h"

namespace qsf {

void LogSumExp::add(std::span<const float> values) noexcept {
  // The same bits on every tier: a score must not depend on the instruction set.
  kernels::host_kernel_set().softmax.log_sum_exp_add(&state_, values.data(),
                                                     static_cast<std::uint32_t>(values.size()));
}

}  // namespace qsf
