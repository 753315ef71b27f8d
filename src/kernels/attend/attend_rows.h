// SPDX-License-Identifier: MIT
//
// The rows that attention multiplies with, as f32, f16 or codes, for attend_page.h: what `load`
// widens to kV vectors of f32 is the stored number, or for codes whose scale is applied elsewhere
// the code, exactly. So a panel of widened rows and the rows themselves give the same bits.
//
//   kWhole      rows are loaded in blocks of L::kVectors vectors, at multiples of as many columns
//   kPanelFrom  queries from which on a panel is worth its making
//   kFetchesTwice  a page has two lines for a step of a single query
//
// All functions are inlined wherever they are used.

#ifndef QSF_KERNELS_ATTEND_ATTEND_ROWS_H_
#define QSF_KERNELS_ATTEND_ATTEND_ROWS_H_

#include <cstring>

#include "kernels/attend/attend.h"

namespace qsf::kernels::attend_page_internal {

template <typename L, typename T>
struct Elements {
  const T* at;
  std::size_t stride;
  static constexpr bool kWhole = false;
  static constexpr std::uint32_t kPanelFrom = sizeof(T) == 4   ? 0xFFFFFFFFU
                                              : sizeof(T) == 2 ? L::kQueriesWorthAPanel
                                                               : L::kQueriesWorthABytePanel;
  static constexpr bool kFetchesTwice = sizeof(T) > 1;

  template <unsigned kV>
  [[gnu::always_inline]] void load(typename L::Vec (&columns)[kV]) const noexcept {
#pragma GCC unroll 8
    for (unsigned v = 0; v < kV; ++v) columns[v] = L::load(at + v * L::kWidth);
  }
  // The first n < L::kWidth columns, then zeros.
  [[gnu::always_inline]] typename L::Vec load_rest(std::uint32_t n) const noexcept {
    T rest[L::kWidth] = {};
    std::memcpy(rest, at, n * sizeof(T));
    return L::load(rest);
  }
  [[gnu::always_inline]] void next() noexcept {
    at += stride;
  }
  [[gnu::always_inline]] Elements from_row(std::size_t row) const noexcept {
    return {at + row * stride, stride};
  }
  [[gnu::always_inline]] Elements from_column(std::uint32_t column) const noexcept {
    return {at + column, stride};
  }
};

// What codes stand for, in units of their scale: 2 code - 15 in 4 bits, 2 code - 3 in 2.
template <unsigned kBits>
inline constexpr int kTopLevel = kBits == 4 ? 15 : 3;

// Keys in 4 or 2 bits, without their scales.
template <typename L, unsigned kBits>
struct KeyCodes {
  static constexpr std::size_t kRowBytes = kKvPageSlots * kBits / 8;
  const std::uint8_t* at;
  std::uint32_t slot;
  static constexpr bool kWhole = true;
  static constexpr std::uint32_t kPanelFrom = L::kQueriesWorthACodePanel;
  static constexpr bool kFetchesTwice = false;

  template <unsigned kV>
  [[gnu::always_inline]] void load(typename L::Vec (&slots)[kV]) const noexcept {
    L::template load_key_codes<kBits>(at, slot, slots);
  }
  [[gnu::always_inline]] void next() noexcept { at += kRowBytes; }
  [[gnu::always_inline]] KeyCodes from_row(std::size_t row) const noexcept {
    return {at + row * kRowBytes, slot};
  }
  [[gnu::always_inline]] KeyCodes from_column(std::uint32_t column) const noexcept {
    return {at, slot + column};
  }
};

// Values in 4 or 2 bits: code and scale have at most 15 bits together, so their product is exact.
template <typename L, unsigned kBits, unsigned kGroup>
struct ValueCodes {
  const std::uint8_t* at;
  std::size_t stride;
  const float* scales;
  std::size_t n_groups;
  std::uint32_t column;
  static constexpr bool kWhole = L::kVectors * L::kWidth <= 16;
  static constexpr std::uint32_t kPanelFrom = L::kQueriesWorthACodePanel;
  static constexpr bool kFetchesTwice = false;

  template <unsigned kV>
  [[gnu::always_inline]] void load(typename L::Vec (&columns)[kV]) const noexcept {
    L::template load_value_codes<kBits, kGroup>(at, scales, column, columns);
  }
  [[gnu::always_inline]] void next() noexcept {
    at += stride;
    scales += n_groups;
  }
  [[gnu::always_inline]] ValueCodes from_row(std::size_t row) const noexcept {
    return {at + row * stride, stride, scales + row * n_groups, n_groups, column};
  }
  [[gnu::always_inline]] ValueCodes from_column(std::uint32_t more) const noexcept {
    return {at, stride, scales, n_groups, column + more};
  }
};

}  // namespace qsf::kernels::attend_page_internal

#endif  // QSF_KERNELS_ATTEND_ATTEND_ROWS_H_
