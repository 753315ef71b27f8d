// SPDX-License-Identifier: MIT
//
// The table of attention kernels, and the begin, merge and finish around them.

#include "kernels/attend/attend.h"

#include <limits>

#include "kernels/math/math.h"
#include "kernels/variants_scalar.h"

namespace qsf::kernels {
namespace {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

constexpr AttendKernels kKernels[] = {
    {.name = "attend_scalar",
     .isa = Isa::kScalar,
     .exactness = Exactness::kBounded,
     .page_f32 = attend_page_f32_scalar,
     .page_f16 = attend_page_f16_scalar},
};

bool saw_nothing(const AttendState& state) noexcept {
  return state.max == kNegativeInfinity && state.sum == 0.0F;
}

void merge_head(AttendState* into, float* into_acc, const AttendState& from, const float* from_acc,
                std::uint32_t head_dim) noexcept {
  if (saw_nothing(from)) return;
  if (saw_nothing(*into)) {
    *into = from;
    for (std::uint32_t d = 0; d < head_dim; ++d) into_acc[d] = from_acc[d];
    return;
  }
  const float max = from.max > into->max ? from.max : into->max;
  const float base = max == kNegativeInfinity ? 0.0F : max;
  const float keep = exp_f32(into->max - base);
  const float take = exp_f32(from.max - base);
  into->max = max;
  into->sum = into->sum * keep + from.sum * take;
  for (std::uint32_t d = 0; d < head_dim; ++d) {
    into_acc[d] = into_acc[d] * keep + from_acc[d] * take;
  }
}

}  // namespace

std::span<const AttendKernels> attend_kernels() noexcept {
  return kKernels;
}

void attend_begin(AttendState* state, float* acc, std::size_t acc_stride, std::uint32_t n_q,
                  std::uint32_t head_dim) noexcept {
  for (std::uint32_t h = 0; h < n_q; ++h) {
    state[h] = {kNegativeInfinity, 0.0F};
    for (std::uint32_t d = 0; d < head_dim; ++d) acc[h * acc_stride + d] = 0.0F;
  }
}

void attend_merge(AttendState* into, float* into_acc, const AttendState* from,
                  const float* from_acc, std::size_t acc_stride, std::uint32_t n_q,
                  std::uint32_t head_dim) noexcept {
  for (std::uint32_t h = 0; h < n_q; ++h) {
    merge_head(into + h, into_acc + h * acc_stride, from[h], from_acc + h * acc_stride, head_dim);
  }
}

void attend_finish(const AttendState* state, const float* acc, std::size_t acc_stride, float* out,
                   std::size_t out_stride, std::uint32_t n_q, std::uint32_t head_dim) noexcept {
  for (std::uint32_t h = 0; h < n_q; ++h) {
    const float* from = acc + h * acc_stride;
    float* to = out + h * out_stride;
    const float sum = state[h].sum;
    for (std::uint32_t d = 0; d < head_dim; ++d) to[d] = sum == 0.0F ? 0.0F : from[d] / sum;
  }
}

}  // namespace qsf::kernels
