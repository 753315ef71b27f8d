// SPDX-License-Identifier: MIT
//
// Attention of query rows over pages of stored K and V, by online softmax.
//
//   out[i] = sum over slots j of softmax_j(score[i][j]) * v[j]
//   score[i][j] = cap(scale * q[i] . k[j]) + slope[h] * (position[j] - position of the row)
//
// where cap(s) is soft_cap * tanh(s / soft_cap), or s without a soft cap, and the second term is
// there with slopes alone (ALiBi). With bf16_bias_scale > 0 that term is, as Falcon computes it,
//
//   bf16_bias_scale * (bias(position[j]) - bias(position of the row))
//   bias(p) = bf16(slope[h] * bf16(p))
//
// A tile is neighbouring rows of one sequence with all query heads that share a KV head: query i is
// head i % n_q of row i / n_q. A caller begins, feeds pages in a fixed order and finishes; spans of
// pages computed apart are merged in a fixed order. K and V are read once a tile, so a decode row
// reads them once for its GQA group and a prompt once for many rows. Masks are ranges of slots. The
// matrix of all scores never exists.
//
// Based on: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al.,
// "FlashAttention", 2022; Press, Smith and Lewis, "Train short, test long", 2022 (ALiBi).

#ifndef QSF_KERNELS_ATTEND_ATTEND_H_
#define QSF_KERNELS_ATTEND_ATTEND_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/tier.h"
#include "quant/kv_type.h"

namespace qsf::kernels {

inline constexpr std::uint32_t kMaxHeadDim = 1024;  // wider heads are refused at load

// What one query has seen: acc[d] = sum of exp(score - max) * v[d], sum = sum of exp(score - max).
// Nothing seen: max = -inf, sum = 0, acc = 0.
struct AttendState {
  float max;
  float sum;
};

// Slots [first, last) of a page.
struct AttendRange {
  std::uint32_t first;
  std::uint32_t last;
};

// Shapes    q: head h of row r at q + r * row_stride + h * head_dim
//           queries: attend_query_bytes(n_rows * n_q, head_dim), 64-byte aligned
// Requires  rotate that of KvRowKernels for keys of a quantised type; unused for others
struct AttendQueryArgs {
  const float* q;          // after RoPE
  std::size_t row_stride;  // floats
  std::uint32_t n_rows;
  std::uint32_t n_q;
  std::uint32_t head_dim;
  float scale;
  std::byte* queries;
  KvType k_type = KvType::kF16;
  void (*rotate)(float* x, std::uint32_t head_dim) noexcept = nullptr;
};

// One page.
//
// Shapes      queries as load_queries of the same kernel left them for k_type
//             k, v: a K block and a V block of quant/kv_type.h, keys by dimension, values by slot
//             visible [n_rows]
//             state [n_rows * n_q], acc [n_rows * n_q][acc_stride], both updated
//             slopes [n_q] or null for none; positions [kKvPageSlots] and q_positions [n_rows],
//             read with slopes alone
//             scratch: attend_scratch_bytes(n_rows * n_q, head_dim), 64-byte aligned
//             next: next_bytes bytes that the following call reads, or null
// Requires    first <= last <= kKvPageSlots in each range; 1 <= head_dim <= kMaxHeadDim
//             acc_stride a multiple of 16, at least head_dim; no alignment beyond the element's
//             soft_cap >= 0, 0 for none; positions from 0 to 2^31 - 1
// Guarantees  a query's result depends on no other query of the tile and on no slot outside its
//             range, bit for bit; what stands in such slots may be read, and is ignored
//             first == last changes nothing; a score of -inf weighs nothing (but a soft cap leaves
//             no score below -soft_cap); in words an infinite element makes its slot NaN
//             acc is written up to the next multiple of 16 columns
// Threads     any; different states may run concurrently
struct AttendPageArgs {
  const std::byte* queries;
  std::uint32_t n_rows;
  std::uint32_t n_q;
  std::uint32_t head_dim;
  const std::byte* k;
  const std::byte* v;
  KvType k_type;
  KvType v_type;
  const AttendRange* visible;
  AttendState* state;
  float* acc;
  std::size_t acc_stride;  // floats
  std::byte* scratch;
  float soft_cap = 0.0F;
  const float* slopes = nullptr;
  float bf16_bias_scale = 0.0F;
  const std::int32_t* positions = nullptr;
  const std::int32_t* q_positions = nullptr;
  const std::byte* next = nullptr;
  std::size_t next_bytes = 0;
};

using AttendQueryFn = void (*)(const AttendQueryArgs&) noexcept;
using AttendPageFn = void (*)(const AttendPageArgs&) noexcept;

// What a kernel multiplies. Words are whole numbers of 16 bits (attend_words.h); keys and values of
// other types than f16 and 8 bits stay f32 there.
enum class AttendInputs : std::uint8_t { kF32, kBf16, kWords };

struct AttendKernel {
  const char* name;  // "attend_avx2"
  Isa isa;
  Exactness exactness;
  AttendQueryFn load_queries;
  AttendPageFn page;
  std::uint32_t tile_queries;  // from here on, a larger tile is no faster
  AttendInputs inputs = AttendInputs::kF32;
};

// Every implementation, best instruction set first, scalar last: of prompt rows, and of generated
// and drafted rows. Threads  any
std::span<const AttendKernel> attend_prompt_kernels() noexcept;
std::span<const AttendKernel> attend_decode_kernels() noexcept;

// Bytes that hold the queries of a tile, and that a page kernel works in; multiples of 64.
std::size_t attend_query_bytes(std::size_t n_queries, std::uint32_t head_dim) noexcept;
std::size_t attend_scratch_bytes(std::size_t n_queries, std::uint32_t head_dim) noexcept;

// Sets the states and accumulators of n_queries queries to "nothing seen".
// Requires  acc_stride as for a page
void attend_begin(AttendState* state, float* acc, std::size_t acc_stride,
                  std::uint32_t n_queries) noexcept;

// Joins `from` into `into`, both with rows acc_stride floats apart. The result depends on which is
// `into`, so callers merge in ascending order of position. A state that saw nothing changes
// nothing.
void attend_merge(AttendState* into, float* into_acc, const AttendState* from,
                  const float* from_acc, std::size_t acc_stride, std::uint32_t n_queries) noexcept;

// Adds a score that has no value to each query: query i takes sinks[i % n_q]. Merging it last keeps
// it out of every cut into spans.
// Shapes    sinks [n_q]
void attend_add_sinks(AttendState* state, float* acc, std::size_t acc_stride,
                      std::uint32_t n_queries, const float* sinks, std::uint32_t n_q) noexcept;

// Shapes    acc [n_queries][acc_stride]; out [n_queries][out_stride], head_dim columns of which are
//           written
// Requires  rotate as for queries where values are rotated; unused elsewhere
struct AttendFinishArgs {
  const AttendState* state;
  const float* acc;
  std::size_t acc_stride;  // floats
  float* out;
  std::size_t out_stride;
  std::uint32_t n_queries;
  std::uint32_t head_dim;
  bool rotated = false;  // values are (kv_rotates_values, or they are keys of a quantised type)
  void (*rotate)(float* x, std::uint32_t head_dim) noexcept = nullptr;
};

// Writes out[i] = acc[i] / sum, turned back where values are rotated, or zeros for a query that saw
// nothing. out may be acc.
void attend_finish(const AttendFinishArgs& args) noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_ATTEND_ATTEND_H_
