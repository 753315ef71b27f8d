// SPDX-License-Identifier: MIT
//
// Products with low-rank adapters, written once for every tier.

#ifndef QSF_KERNELS_LOW_RANK_LOW_RANK_LANES_H_
#define QSF_KERNELS_LOW_RANK_LOW_RANK_LANES_H_

#include "kernels/low_rank/low_rank.h"
#include "kernels/vectors.h"

namespace qsf::kernels::QSF_TIER_NAMESPACE::low_rank {

// Elements of a matrix as they are stored.
struct Floats {
  using Value = float;
  [[gnu::always_inline]] static inline F32<k16> load16(const float* from) noexcept {
    return load<F32<k16>>(from);
  }
};
struct Halves {
  using Value = std::uint16_t;
  [[gnu::always_inline]] static inline F32<k16> load16(const std::uint16_t* from) noexcept {
    F32<k16> x;
    QSF_EACH_REG(i, k16) x.r[i] = load_halves_reg(from + i * kRegLanes);
    return x;
  }
};

// Loads n_values, fewer than sixteen, and zeros behind them.
template <typename Stored>
[[gnu::always_inline]] static inline F32<k16> load_rest(const typename Stored::Value* from,
                                                        std::size_t n_values) noexcept {
  typename Stored::Value values[16] = {};
  std::memcpy(values, from, n_values * sizeof values[0]);
  return Stored::load16(values);
}

// Rows at a time: as many sums hide what an addition takes, and share the loads of x.
constexpr unsigned kDownRows = 4;

template <typename Stored, unsigned N>
[[gnu::always_inline]] static inline void down_rows(const LowRankDown& p,
                                                    std::uint32_t row) noexcept {
  const auto* const a =
      static_cast<const typename Stored::Value*>(p.a.data) + std::size_t{row} * p.n_cols;
  F32<k16> sums[N] = {};
  std::uint32_t i = 0;
  for (; i + 16 <= p.n_cols; i += 16) {
    const F32<k16> x = load<F32<k16>>(p.x + i);
    for (unsigned r = 0; r < N; ++r) {
      __builtin_prefetch(a + (std::size_t{r} + N) * p.n_cols + i);
      sums[r] = sums[r] + Stored::load16(a + std::size_t{r} * p.n_cols + i) * x;
    }
  }
  if (const std::uint32_t rest = p.n_cols - i; rest != 0) {
    const F32<k16> x = load_part<k16>(p.x + i, rest);
    for (unsigned r = 0; r < N; ++r) {
      sums[r] = sums[r] + load_rest<Stored>(a + std::size_t{r} * p.n_cols + i, rest) * x;
    }
  }
  for (unsigned r = 0; r < N; ++r) {
    p.y[row + r] = p.scale * static_cast<float>(sum_lanes(widen(sums[r])));
  }
}

template <typename Stored>
static void down_stored(const LowRankDown& p) noexcept {
  std::uint32_t row = 0;
  for (; row + kDownRows <= p.rank; row += kDownRows) down_rows<Stored, kDownRows>(p, row);
  for (; row < p.rank; ++row) down_rows<Stored, 1>(p, row);
}

// Groups at a time, for the same reason.
constexpr unsigned kUpGroups = 2;

template <typename Stored, unsigned N>
[[gnu::always_inline]] static inline void add_up_groups(const LowRankUp& p,
                                                        std::uint32_t row) noexcept {
  const std::size_t group_values = std::size_t{p.rank} * 16;
  const auto* const b =
      static_cast<const typename Stored::Value*>(p.b.data) + row / 16 * group_values;
  F32<k16> sums[N] = {};
  for (std::uint32_t r = 0; r < p.rank; ++r) {
    const F32<k16> x = splat<k16>(p.x[r]);
    for (unsigned g = 0; g < N; ++g) {
      __builtin_prefetch(b + (g + N) * group_values + std::size_t{r} * 16);
      sums[g] = sums[g] + Stored::load16(b + g * group_values + std::size_t{r} * 16) * x;
    }
  }
  for (unsigned g = 0; g < N; ++g) {
    float* const y = p.y + row + g * 16;
    if (const std::uint32_t left = p.n_rows - row - g * 16; left < 16) {
      store_part(y, load_part<k16>(y, left) + sums[g], left);
    } else {
      store(y, load<F32<k16>>(y) + sums[g]);
    }
  }
}

template <typename Stored>
static void add_up_stored(const LowRankUp& p) noexcept {
  std::uint32_t row = 0;
  for (; row + kUpGroups * 16 <= p.n_rows; row += kUpGroups * 16) {
    add_up_groups<Stored, kUpGroups>(p, row);
  }
  for (; row < p.n_rows; row += 16) add_up_groups<Stored, 1>(p, row);
}

static void down(const LowRankDown& p) noexcept {
  p.a.halves ? down_stored<Halves>(p) : down_stored<Floats>(p);
}
static void add_up(const LowRankUp& p) noexcept {
  p.b.halves ? add_up_stored<Halves>(p) : add_up_stored<Floats>(p);
}

static constexpr LowRankKernels kLowRankKernels = {.name = "low_rank_" QSF_TIER_NAME,
                                                   .isa = kTier,
                                                   .exactness = Exactness::kBitExact,
                                                   .down = down,
                                                   .add_up = add_up};

}  // namespace qsf::kernels::QSF_TIER_NAMESPACE::low_rank

#endif  // QSF_KERNELS_LOW_RANK_LOW_RANK_LANES_H_
