// SPDX-License-Identifier: MIT

#include "ops/log_sum_exp.h"

#include <cstdint>

namespace qsf {

void LogSumExp::add(std::span<const float> values) noexcept {
  // The portable implementation, last in the table: a score must not depend on the instruction set.
  kernels::softmax_kernels().back().log_sum_exp_add(&state_, values.data(),
                                                    static_cast<std::uint32_t>(values.size()));
}

}  // namespace qsf
