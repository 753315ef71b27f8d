// SPDX-License-Identifier: MIT
//
// How large the whole numbers are that attend_words.h multiplies: sums of their products fit 32
// bits.
//
// All functions are inlined wherever they are used.

#ifndef QSF_KERNELS_ATTEND_ATTEND_WORD_RANGES_H_
#define QSF_KERNELS_ATTEND_ATTEND_WORD_RANGES_H_

#include <cstddef>
#include <cstdint>

#include "quant/kv_type.h"

namespace qsf::kernels::attend_page_internal {

inline constexpr std::uint32_t kLargestWeight = 8191;
inline constexpr std::uint32_t kLargestElement = 4095;
static_assert(std::uint64_t{kKvPageSlots} * kLargestWeight * kLargestElement < (1U << 31U));

[[gnu::always_inline]] constexpr bool is_multiplied_as_words(KvType type) noexcept {
  return type == KvType::kF16 || type == KvType::k8Bit;
}

// Of keys with n_dims dimensions: long ones leave room for their queries.
[[gnu::always_inline]] constexpr std::uint32_t largest_key(KvType type,
                                                           std::uint32_t n_dims) noexcept {
  if (type == KvType::k8Bit) return 127;
  return n_dims <= 128 ? kLargestElement : kLargestElement / 2;
}
[[gnu::always_inline]] constexpr std::uint32_t largest_query(KvType type,
                                                             std::uint32_t n_dims) noexcept {
  const std::uint32_t fits = 0x7FFFFFFFU / (largest_key(type, n_dims) * n_dims);
  return fits < 16383 ? fits : 16383;
}

// Columns, or queries, in whole vectors of any tier. As many words are from a query to the next,
// with zeros behind its columns; the scales of all queries, f32, follow the last.
[[gnu::always_inline]] constexpr std::size_t round_up_columns(std::uint32_t n) noexcept {
  return (std::size_t{n} + 15) / 16 * 16;
}

}  // namespace qsf::kernels::attend_page_internal

#endif  // QSF_KERNELS_ATTEND_ATTEND_WORD_RANGES_H_
