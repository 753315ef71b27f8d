// SPDX-License-Identifier: MIT
//
// bit_cast: std::bit_cast, or the same where the standard library lacks it (libc++ 13).

#ifndef QSF_BASE_BIT_CAST_H_
#define QSF_BASE_BIT_CAST_H_

#include <type_traits>
#include <version>

#ifdef __cpp_lib_bit_cast
#include <bit>
#endif

namespace qsf {
namespace substitute {

// For libraries that lack it, and for the test that compares them.
template <typename To, typename From>
constexpr To bit_cast(const From& from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  static_assert(std::is_trivially_copyable_v<To> && std::is_trivially_copyable_v<From>);
  return __builtin_bit_cast(To, from);
}

}  // namespace substitute

#ifdef __cpp_lib_bit_cast
using std::bit_cast;
#else
using substitute::bit_cast;
#endif

}  // namespace qsf

#endif  // QSF_BASE_BIT_CAST_H_
