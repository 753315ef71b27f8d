// SPDX-License-Identifier: MIT
//
// Attention of one token's query heads over pages of stored K and V rows, by online softmax.
//
//   out[h] = sum over slots j of softmax_j(score[h][j]) * v[j]
//   score[h][j] = cap(scale * q[h] . k[j]) + slope[h] * (position[j] - position of the token)
//
// where cap(s) is soft_cap * tanh(s / soft_cap), or s without a soft cap, and the second term is
// there with slopes alone (ALiBi).
//
// A caller begins, feeds pages in a fixed order and finishes; spans of pages computed apart are
// merged in a fixed order. All query heads that share a KV head are handed over together, so each K
// and V row is read once for the group. The matrix of all scores never exists.
//
// Based on: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Press, Smith
// and Lewis, "Train short, test long", 2022 (ALiBi).

#ifndef QSF_KERNELS_ATTEND_ATTEND_H_
#define QSF_KERNELS_ATTEND_ATTEND_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/isa.h"
#include "quant/kv_type.h"

namespace qsf::kernels {

// Kernels hold one K row as f32 on the stack; models with wider heads are refused at load.
inline constexpr std::uint32_t kMaxHeadDim = 1024;

// What one query head has seen: acc[d] = sum of exp(score - max) * v[d], sum = sum of
// exp(score - max). Nothing seen: max = -inf, sum = 0, acc = 0.
struct AttendState {
  float max;
  float sum;
};

// One page.
//
// Shapes      q [n_q][q_stride], the first head_dim of each; after RoPE
//             k, v [kKvPageSlots][head_dim] of the KV type, row-major
//             state [n_q], acc [n_q][acc_stride], both updated
//             slopes [n_q] or null for none; positions [kKvPageSlots], read with slopes alone
// Requires    first <= last <= kKvPageSlots; slots outside [first, last) are not read
//             head_dim <= kMaxHeadDim; strides >= head_dim; no alignment beyond the element's
//             soft_cap >= 0, 0 for none; positions and q_position from 0 to 2^31 - 1
// Guarantees  a head's result depends neither on n_q nor on the other heads, bit for bit
//             first == last changes nothing; a score of -inf weighs nothing (but a soft cap leaves
//             no score below -soft_cap)
// Threads     any; different states may run concurrently
struct AttendPageArgs {
  const float* q;
  std::size_t q_stride;  // floats
  std::uint32_t n_q;     // query heads of one GQA group, same token
  const std::byte* k;
  const std::byte* v;
  std::uint32_t head_dim;
  std::uint32_t first;
  std::uint32_t last;
  float scale;
  AttendState* state;
  float* acc;
  std::size_t acc_stride;  // floats
  float soft_cap = 0.0F;
  const float* slopes = nullptr;
  const std::int32_t* positions = nullptr;
  std::int32_t q_position = 0;
};

using AttendPageFn = void (*)(const AttendPageArgs&) noexcept;

struct AttendKernels {
  const char* name;  // "attend_scalar"
  Isa isa;
  Exactness exactness;
  AttendPageFn page_f32;
  AttendPageFn page_f16;

  AttendPageFn page(KvType type) const noexcept {
    return type == KvType::kF32 ? page_f32 : page_f16;
  }
};

// Every implementation, best instruction set first, scalar last. Threads  any
std::span<const AttendKernels> attend_kernels() noexcept;

// Sets n_q states and accumulators to "nothing seen".
void attend_begin(AttendState* state, float* acc, std::size_t acc_stride, std::uint32_t n_q,
                  std::uint32_t head_dim) noexcept;

// Joins `from` into `into`, both with rows acc_stride floats apart. The result depends on which is
// `into`, so callers merge in ascending order of position. A state that saw nothing changes
// nothing.
void attend_merge(AttendState* into, float* into_acc, const AttendState* from,
                  const float* from_acc, std::size_t acc_stride, std::uint32_t n_q,
                  std::uint32_t head_dim) noexcept;

// Writes out[h] = acc[h] / sum, or zeros for a head that saw nothing. out may be acc.
// Shapes  acc [n_q][acc_stride], out [n_q][out_stride]
void attend_finish(const AttendState* state, const float* acc, std::size_t acc_stride, float* out,
                   std::size_t out_stride, std::uint32_t n_q, std::uint32_t head_dim) noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_ATTEND_ATTEND_H_
