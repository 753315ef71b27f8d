// SPDX-License-Identifier: MIT
//
// Matrix-vector product, scalar tier: one group of 16 rows at a time, four rows a vector.
//
// Codes are multiplied as they are and summed over one block; then the block's scale and min come
// in once: sum w x = scale * sum(code x) + min * sum(x). Sums of one block are short, so f32 keeps
// its accuracy over thousands of columns.

#include <cstdint>

#include "kernels/decode_lanes.h"
#include "kernels/matvec/matvec_variants.h"

namespace qsf::kernels {
namespace {

using namespace lanes;

static_assert(kRowGroup == 16 && kLineBytes == 64);

// Adds up `kColumns` activations, a multiple of 4.
template <std::uint32_t kColumns>
[[gnu::always_inline]] inline float sum_columns(const float* x) noexcept {
  f32x4 sum = load<f32x4>(x);
  for (std::uint32_t c = 4; c < kColumns; c += 4) sum += load<f32x4>(x + c);
  return sum_lanes(sum);
}

// Stores the rows that exist of one group's sums.
[[gnu::always_inline]] inline void store_rows(const Rows16& total, float* y,
                                              std::uint32_t n_rows) noexcept {
  for (std::uint32_t i = 0; i < 4; ++i) {
    const std::uint32_t first = 4 * i;
    if (n_rows >= first + 4) {
      store(y + first, total.v[i]);
    } else if (n_rows > first) {
      store_part(y + first, total.v[i], n_rows - first);
    }
  }
}

template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] inline void coded(const MatVecArgs& args) noexcept {
  const std::uint32_t n_blocks = (args.n_cols + kBlock - 1) / kBlock;
  const std::byte* group = args.weights;
  for (std::uint32_t row = 0; row < args.n_rows; row += kRowGroup, group += args.group_bytes) {
    Rows16 total = zero_rows();
    for (std::uint32_t block = 0; block < n_blocks; ++block) {
      const float* x = args.x + std::size_t{block} * kBlock;
      const auto place = BlockPlace<kType, kBlock>::of(group, block);
      Rows16 sum = zero_rows();
      for_block_columns<kType, kBlock>(
          place.codes, [&](unsigned column, const Rows16& codes) __attribute__((always_inline)) {
            const f32x4 value = splat(x[column]);
            for (unsigned i = 0; i < 4; ++i) sum.v[i] += codes.v[i] * value;
          });
      const Rows16 scales = load_half_rows(place.scales);
      if constexpr (kType == QuantType::kQ8) {
        for (unsigned i = 0; i < 4; ++i) total.v[i] += scales.v[i] * sum.v[i];
      } else {
        const Rows16 mins = load_mins<kType>(place.mins, scales);
        const f32x4 x_sum = splat(sum_columns<kBlock>(x));
        for (unsigned i = 0; i < 4; ++i) {
          total.v[i] += scales.v[i] * sum.v[i] + mins.v[i] * x_sum;
        }
      }
    }
    store_rows(total, args.y + row, args.n_rows - row);
  }
}

// Float types have no blocks; sums are cut every 64 columns all the same, for their accuracy.
template <QuantType kType>
[[gnu::always_inline]] inline void floats(const MatVecArgs& args) noexcept {
  constexpr std::size_t kFourColumns = std::size_t{4} * code_bits(kType) / 8 * kRowGroup;
  const std::uint32_t n_padded = (args.n_cols + 3) / 4 * 4;
  const std::byte* group = args.weights;
  for (std::uint32_t row = 0; row < args.n_rows; row += kRowGroup, group += args.group_bytes) {
    Rows16 total = zero_rows();
    for (std::uint32_t first = 0; first < n_padded; first += 64) {
      const std::uint32_t last = first + 64 < n_padded ? first + 64 : n_padded;
      Rows16 sum = zero_rows();
      for (std::uint32_t c = first; c < last; c += 4) {
        const float* x = args.x + c;
        for_float_columns<kType>(
            group + c / 4 * kFourColumns, [&](unsigned column, const Rows16& weights)
                                              __attribute__((always_inline)) {
                                                const f32x4 value = splat(x[column]);
                                                for (unsigned i = 0; i < 4; ++i)
                                                  sum.v[i] += weights.v[i] * value;
                                              });
      }
      for (unsigned i = 0; i < 4; ++i) total.v[i] += sum.v[i];
    }
    store_rows(total, args.y + row, args.n_rows - row);
  }
}

}  // namespace

void matvec_q2sg32_scalar(const MatVecArgs& args) noexcept {
  coded<QuantType::kQ2S, 32>(args);
}
void matvec_q2sg64_scalar(const MatVecArgs& args) noexcept {
  coded<QuantType::kQ2S, 64>(args);
}
void matvec_q2ag32_scalar(const MatVecArgs& args) noexcept {
  coded<QuantType::kQ2A, 32>(args);
}
void matvec_q2ag64_scalar(const MatVecArgs& args) noexcept {
  coded<QuantType::kQ2A, 64>(args);
}
void matvec_q3g32_scalar(const MatVecArgs& args) noexcept {
  coded<QuantType::kQ3, 32>(args);
}
void matvec_q3g64_scalar(const MatVecArgs& args) noexcept {
  coded<QuantType::kQ3, 64>(args);
}
void matvec_q4g32_scalar(const MatVecArgs& args) noexcept {
  coded<QuantType::kQ4, 32>(args);
}
void matvec_q4g64_scalar(const MatVecArgs& args) noexcept {
  coded<QuantType::kQ4, 64>(args);
}
void matvec_ternaryg32_scalar(const MatVecArgs& args) noexcept {
  coded<QuantType::kTernary, 32>(args);
}
void matvec_ternaryg64_scalar(const MatVecArgs& args) noexcept {
  coded<QuantType::kTernary, 64>(args);
}
void matvec_q8g32_scalar(const MatVecArgs& args) noexcept {
  coded<QuantType::kQ8, 32>(args);
}
void matvec_q8g64_scalar(const MatVecArgs& args) noexcept {
  coded<QuantType::kQ8, 64>(args);
}
void matvec_f32_scalar(const MatVecArgs& args) noexcept {
  floats<QuantType::kF32>(args);
}
void matvec_f16_scalar(const MatVecArgs& args) noexcept {
  floats<QuantType::kF16>(args);
}
void matvec_bf16_scalar(const MatVecArgs& args) noexcept {
  floats<QuantType::kBF16>(args);
}

}  // namespace qsf::kernels
