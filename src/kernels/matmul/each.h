// SPDX-License-Identifier: MIT
//
// Loops that are written out; internal linkage.

#ifndef QSF_KERNELS_MATMUL_EACH_H_
#define QSF_KERNELS_MATMUL_EACH_H_

#include <utility>

namespace qsf::kernels {

// Calls f(Index<0>), ... f(Index<kCount - 1>). Written out like this and not as a loop, arrays of
// vectors are registers from the first pass of the compiler on.
template <unsigned kIndex>
struct Index {
  static constexpr unsigned value = kIndex;
  [[gnu::always_inline]] constexpr operator unsigned() const noexcept { return kIndex; }
};
template <typename F, unsigned... kIndex>
[[gnu::always_inline]] static inline void each_of(
    F&& f, std::integer_sequence<unsigned, kIndex...>) noexcept {
  (f(Index<kIndex>{}), ...);
}
template <unsigned kCount, typename F>
[[gnu::always_inline]] static inline void each(F&& f) noexcept {
  each_of(f, std::make_integer_sequence<unsigned, kCount>());
}

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_MATMUL_EACH_H_
