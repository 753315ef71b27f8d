// SPDX-License-Identifier: MIT
//
// Cuts a region of memory into arrays.

#ifndef QSF_GRAMMAR_REGION_CARVER_H_
#define QSF_GRAMMAR_REGION_CARVER_H_

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>

#include "base/bytes.h"
#include "base/check.h"

namespace qsf {

inline constexpr std::size_t kCarveAlign = 64;

// Bytes that an array takes in a region.
template <typename T>
constexpr std::size_t carved_bytes(std::size_t n) noexcept {
  return align_up(n * sizeof(T), kCarveAlign);
}

class RegionCarver {
 public:
  // Requires  the region begins at a multiple of kCarveAlign
  explicit RegionCarver(MutableByteSpan region) noexcept : rest_(region) {}

  // Returns the next `n` elements, value-initialised. Requires  they fit
  template <typename T>
  std::span<T> take(std::size_t n) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= kCarveAlign);
    const MutableByteSpan bytes = take_bytes(carved_bytes<T>(n));
    T* const first = reinterpret_cast<T*>(bytes.data());
    std::uninitialized_value_construct_n(first, n);
    return {first, n};
  }
  MutableByteSpan take_bytes(std::size_t n) {
    QSF_CHECK(n <= rest_.size());
    const MutableByteSpan taken = rest_.first(n);
    rest_ = rest_.subspan(n);
    return taken;
  }

 private:
  MutableByteSpan rest_;
};

}  // namespace qsf

#endif  // QSF_GRAMMAR_REGION_CARVER_H_
