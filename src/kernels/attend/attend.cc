// SPDX-License-Identifier: MIT
//
// The tables of attention kernels, and the begin, merge and finish around them.

#include "kernels/attend/attend.h"

#include <limits>

#include "kernels/attend/attend_query_tile.h"
#include "kernels/attend/attend_variants.h"
#include "kernels/math/math.h"

namespace qsf::kernels {
namespace {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();
constexpr std::size_t kLine = 64;

constexpr AttendKernel f32_kernel(const char* name, Isa isa, AttendPageFn page) {
  // 128 queries: widening a page of 64 slots costs then under 3 % of its two products.
  return {name, isa, Exactness::kBounded, attend_load_queries_f32, page, 128};
}

#if defined(__x86_64__)
constexpr AttendKernel words_kernel(const char* name, Isa isa, AttendQueryFn load_queries,
                                    AttendPageFn page) {
  // 256 queries: rounding a page to whole numbers costs then a twentieth of its two products.
  return {name, isa, Exactness::kBounded, load_queries, page, 256, AttendInputs::kWords};
}
#endif

// The first kPromptOnly are for prompt rows alone: a generated row would not fill a tile, nor pay
// for rounding a page.
constexpr AttendKernel kAttendKernels[] = {
#if defined(__x86_64__)
    // 512 queries: rounding a page then takes a tenth of the time of their softmax.
    {"attend_amx", Isa::kAmx, Exactness::kBounded, attend_load_queries_amx, attend_page_amx, 512,
     AttendInputs::kBf16},
    words_kernel("attend_words_avx512vnni", Isa::kAvx512Vnni, attend_load_queries_words_avx512,
                 attend_page_words_avx512vnni),
    words_kernel("attend_words_avx512", Isa::kAvx512, attend_load_queries_words_avx512,
                 attend_page_words_avx512),
    words_kernel("attend_words_avx2", Isa::kAvx2, attend_load_queries_words_avx2,
                 attend_page_words_avx2),
    f32_kernel("attend_avx512", Isa::kAvx512, attend_page_avx512),
    f32_kernel("attend_avx2", Isa::kAvx2, attend_page_avx2),
#elif defined(__aarch64__)
    f32_kernel("attend_neon", Isa::kNeon, attend_page_neon),
#endif
    f32_kernel("attend_scalar", Isa::kScalar, attend_page_scalar),
};

constexpr AttendQueryTileKernel kQueryTileKernels[] = {
#if defined(__x86_64__)
    {"attend_query_tile_amx", Isa::kAmx, Exactness::kBounded, attend_load_queries_amx,
     attend_query_tile_scores_amx, attend_query_tile_normalise_avx512,
     attend_query_tile_values_amx},
    {"attend_query_tile_avx512", Isa::kAvx512, Exactness::kBounded, attend_load_queries_f32,
     attend_query_tile_scores_avx512, attend_query_tile_normalise_avx512,
     attend_query_tile_values_avx512},
    {"attend_query_tile_avx2", Isa::kAvx2, Exactness::kBounded, attend_load_queries_f32,
     attend_query_tile_scores_avx2, attend_query_tile_normalise_avx2,
     attend_query_tile_values_avx2},
#elif defined(__aarch64__)
    {"attend_query_tile_neon", Isa::kNeon, Exactness::kBounded, attend_load_queries_f32,
     attend_query_tile_scores_neon, attend_query_tile_normalise_neon,
     attend_query_tile_values_neon},
#endif
    {"attend_query_tile_scalar", Isa::kScalar, Exactness::kBounded, attend_load_queries_f32,
     attend_query_tile_scores_scalar, attend_query_tile_normalise_scalar,
     attend_query_tile_values_scalar},
};

#if defined(__x86_64__)
constexpr std::size_t kPromptOnly = 4;
constexpr std::size_t kQueryTilesPromptOnly = 1;
#else
constexpr std::size_t kPromptOnly = 0;
constexpr std::size_t kQueryTilesPromptOnly = 0;
#endif

constexpr std::size_t round_up(std::size_t n, std::size_t step) {
  return (n + step - 1) / step * step;
}

bool saw_nothing(const AttendState& state) noexcept {
  return state.max == kNegativeInfinity && state.sum == 0.0F;
}

void merge_query(AttendState* into, float* into_acc, const AttendState& from, const float* from_acc,
                 std::size_t n_columns) noexcept {
  if (saw_nothing(from)) return;
  if (saw_nothing(*into)) {
    *into = from;
    for (std::size_t d = 0; d < n_columns; ++d) into_acc[d] = from_acc[d];
    return;
  }
  const float max = from.max > into->max ? from.max : into->max;
  const float base = max == kNegativeInfinity ? 0.0F : max;
  const float keep = exp_f32(into->max - base);
  const float take = exp_f32(from.max - base);
  into->max = max;
  into->sum = into->sum * keep + from.sum * take;
  for (std::size_t d = 0; d < n_columns; ++d) {
    into_acc[d] = into_acc[d] * keep + from_acc[d] * take;
  }
}

}  // namespace

std::span<const AttendKernel> attend_prompt_kernels() noexcept {
  return kAttendKernels;
}
std::span<const AttendKernel> attend_decode_kernels() noexcept {
  return std::span(kAttendKernels).subspan(kPromptOnly);
}

std::span<const AttendQueryTileKernel> attend_query_tile_prompt_kernels() noexcept {
  return kQueryTileKernels;
}
std::span<const AttendQueryTileKernel> attend_query_tile_decode_kernels() noexcept {
  return std::span(kQueryTileKernels).subspan(kQueryTilesPromptOnly);
}

std::size_t attend_query_bytes(std::size_t n_queries, std::uint32_t head_dim) noexcept {
  const std::size_t packed = n_queries * round_up(head_dim, 16) * sizeof(float);
  const std::size_t tiles = round_up(n_queries, 16) * round_up(head_dim, 32) * 2;
  return round_up(packed > tiles ? packed : tiles, kLine);
}

// In f32 a panel of 64 x 64, for each query a page of weights and what its older sums are
// multiplied with, and a page of scales for each 16 columns of values. In whole numbers also a page
// of K and of V, three numbers a slot and two more a query. In tiles a page of K and of V in bf16,
// and for 16 queries weights in f32 and bf16, sums, and what older sums are multiplied with.
std::size_t attend_scratch_bytes(std::size_t n_queries, std::uint32_t head_dim) noexcept {
  const std::size_t page = kKvPageSlots * sizeof(float);
  const std::size_t packed = (kKvPageSlots + n_queries + round_up(head_dim, 16) / 16) * page +
                             (round_up(head_dim, 16) + 3) * page +
                             3 * round_up(n_queries, 16) * sizeof(float);
  const std::size_t tiles = (round_up(head_dim, 32) + round_up(head_dim, 16)) * page / 2 +
                            16 * (2 * page + page / 2 + sizeof(float));
  return round_up(packed > tiles ? packed : tiles, kLine);
}

// In f32 a panel of 64 x 64, and a page of scales for each 16 columns of values. In tiles a page of
// K or of V in bf16, and for 16 queries sums, and weights in bf16.
std::size_t attend_query_tile_scratch_bytes(std::uint32_t head_dim) noexcept {
  return attend_scratch_bytes(0, head_dim);
}

void attend_load_queries_f32(const AttendQueryArgs& args) noexcept {
  float* to = reinterpret_cast<float*>(args.queries);
  const std::uint32_t n_columns = kv_columns(args.k_type, args.head_dim);
  for (std::uint32_t i = 0; i < args.n_rows * args.n_q; ++i, to += n_columns) {
    const float* from =
        args.q + i / args.n_q * args.row_stride + std::size_t{i % args.n_q} * args.head_dim;
    for (std::uint32_t d = 0; d < args.head_dim; ++d) to[d] = from[d] * args.scale;
    for (std::uint32_t d = args.head_dim; d < n_columns; ++d) to[d] = 0.0F;
    if (kv_is_quantised(args.k_type)) args.rotate(to, n_columns);
  }
}

void attend_begin(AttendState* state, float* acc, std::size_t acc_stride,
                  std::uint32_t n_queries) noexcept {
  for (std::uint32_t i = 0; i < n_queries; ++i) state[i] = {kNegativeInfinity, 0.0F};
  for (std::size_t d = 0; d < n_queries * acc_stride; ++d) acc[d] = 0.0F;
}

void attend_merge(AttendState* into, float* into_acc, const AttendState* from,
                  const float* from_acc, std::size_t acc_stride, std::uint32_t n_queries) noexcept {
  for (std::uint32_t i = 0; i < n_queries; ++i) {
    merge_query(into + i, into_acc + i * acc_stride, from[i], from_acc + i * acc_stride,
                acc_stride);
  }
}

void attend_add_sinks(AttendState* state, float* acc, std::size_t acc_stride,
                      std::uint32_t n_queries, const float* sinks, std::uint32_t n_q) noexcept {
  for (std::uint32_t i = 0; i < n_queries; ++i) {
    const float sink = sinks[i % n_q];
    const float max = sink > state[i].max ? sink : state[i].max;
    if (max == kNegativeInfinity) continue;
    const float keep = exp_f32(state[i].max - max);
    state[i] = {max, state[i].sum * keep + exp_f32(sink - max)};
    for (std::size_t d = 0; d < acc_stride; ++d) acc[i * acc_stride + d] *= keep;
  }
}

void attend_finish(const AttendFinishArgs& args) noexcept {
  const bool turn = args.rotated;
  const std::uint32_t n_columns = turn ? kv_columns(KvType::k8Bit, args.head_dim) : args.head_dim;
  float turned[kMaxHeadDim];
  for (std::uint32_t i = 0; i < args.n_queries; ++i) {
    const float* from = args.acc + i * args.acc_stride;
    float* out = args.out + i * args.out_stride;
    float* to = turn ? turned : out;
    const float sum = args.state[i].sum;
    for (std::uint32_t d = 0; d < n_columns; ++d) to[d] = sum == 0.0F ? 0.0F : from[d] / sum;
    if (!turn) continue;
    args.rotate(turned, n_columns);
    for (std::uint32_t d = 0; d < args.head_dim; ++d) out[d] = turned[d];
  }
}

}  // namespace qsf::kernels
