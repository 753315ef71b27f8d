// SPDX-License-Identifier: MIT
//
// ranges: the algorithms of std::ranges, or those of them that this project uses where the standard
// library lacks them (libc++ 13). Add one to the substitutes before its first use; a checker
// refuses std::ranges in src/.

#ifndef QSF_BASE_RANGES_H_
#define QSF_BASE_RANGES_H_

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>
#include <version>

namespace qsf {

// For libraries that lack them, and for the test that compares them. They take whole ranges, and
// never return std::ranges::dangling.
namespace substitute {

struct Identity {
  template <typename T>
  constexpr T&& operator()(T&& value) const noexcept {
    return std::forward<T>(value);
  }
};

// Compares projections: comp(proj(a), proj(b)).
template <typename Comp, typename Proj>
constexpr auto projected(Comp& comp, Proj& proj) {
  return [&comp, &proj](auto&& a, auto&& b) {
    return static_cast<bool>(std::invoke(comp, std::invoke(proj, a), std::invoke(proj, b)));
  };
}

template <typename R, typename Pred, typename Proj = Identity>
constexpr auto find_if(R&& range, Pred pred, Proj proj = {}) {
  return std::find_if(std::begin(range), std::end(range), [&](auto&& value) {
    return static_cast<bool>(std::invoke(pred, std::invoke(proj, value)));
  });
}

template <typename R, typename T, typename Proj = Identity>
constexpr auto find(R&& range, const T& wanted, Proj proj = {}) {
  return find_if(
      range, [&](auto&& value) { return value == wanted; }, std::ref(proj));
}

template <typename R, typename Pred, typename Proj = Identity>
constexpr bool any_of(R&& range, Pred pred, Proj proj = {}) {
  return find_if(range, std::ref(pred), std::ref(proj)) != std::end(range);
}

template <typename R, typename Pred, typename Proj = Identity>
constexpr bool none_of(R&& range, Pred pred, Proj proj = {}) {
  return !any_of(range, std::ref(pred), std::ref(proj));
}

template <typename R, typename Pred, typename Proj = Identity>
constexpr bool all_of(R&& range, Pred pred, Proj proj = {}) {
  return none_of(
      range, [&](auto&& value) { return !std::invoke(pred, value); }, std::ref(proj));
}

template <typename R, typename Pred, typename Proj = Identity>
constexpr auto count_if(R&& range, Pred pred, Proj proj = {}) {
  return std::count_if(std::begin(range), std::end(range), [&](auto&& value) {
    return static_cast<bool>(std::invoke(pred, std::invoke(proj, value)));
  });
}

template <typename R, typename T, typename Proj = Identity>
constexpr auto count(R&& range, const T& wanted, Proj proj = {}) {
  return count_if(
      range, [&](auto&& value) { return value == wanted; }, std::ref(proj));
}

template <typename R>
constexpr auto adjacent_find(R&& range) {
  return std::adjacent_find(std::begin(range), std::end(range));
}

template <typename A, typename B>
constexpr bool equal(A&& a, B&& b) {
  return std::equal(std::begin(a), std::end(a), std::begin(b), std::end(b));
}

template <typename A, typename B>
struct In1In2 {
  A in1;
  B in2;
};

template <typename A, typename B>
constexpr auto mismatch(A&& a, B&& b) {
  const auto found = std::mismatch(std::begin(a), std::end(a), std::begin(b), std::end(b));
  return In1In2<decltype(std::begin(a)), decltype(std::begin(b))>{found.first, found.second};
}

template <typename R, typename T>
constexpr void fill(R&& range, const T& value) {
  std::fill(std::begin(range), std::end(range), value);
}

template <typename R, typename T>
constexpr void replace(R&& range, const T& from, const T& to) {
  std::replace(std::begin(range), std::end(range), from, to);
}

template <typename R, typename Out>
constexpr void copy(R&& range, Out out) {
  std::copy(std::begin(range), std::end(range), out);
}

template <typename R, typename Out, typename Function>
constexpr void transform(R&& range, Out out, Function function) {
  for (auto&& value : range) *out++ = std::invoke(function, value);
}

template <typename A, typename B, typename Out, typename Function>
constexpr void transform(A&& a, B&& b, Out out, Function function) {
  auto in2 = std::begin(b);
  for (auto in1 = std::begin(a); in1 != std::end(a) && in2 != std::end(b); ++in1, ++in2) {
    *out++ = std::invoke(function, *in1, *in2);
  }
}

template <typename R, typename Comp = std::less<>, typename Proj = Identity>
constexpr void sort(R&& range, Comp comp = {}, Proj proj = {}) {
  std::sort(std::begin(range), std::end(range), projected(comp, proj));
}

template <typename R, typename Comp = std::less<>, typename Proj = Identity>
void stable_sort(R&& range, Comp comp = {}, Proj proj = {}) {
  std::stable_sort(std::begin(range), std::end(range), projected(comp, proj));
}

template <typename R>
constexpr bool is_sorted(R&& range) {
  return std::is_sorted(std::begin(range), std::end(range));
}

template <typename R, typename Pred, typename Proj = Identity>
constexpr auto partition_point(R&& range, Pred pred, Proj proj = {}) {
  return std::partition_point(std::begin(range), std::end(range), [&](auto&& value) {
    return static_cast<bool>(std::invoke(pred, std::invoke(proj, value)));
  });
}

template <typename R, typename T, typename Comp = std::less<>, typename Proj = Identity>
constexpr auto lower_bound(R&& range, const T& bound, Comp comp = {}, Proj proj = {}) {
  return partition_point(
      range, [&](auto&& value) { return std::invoke(comp, value, bound); }, std::ref(proj));
}

template <typename R, typename T, typename Comp = std::less<>, typename Proj = Identity>
constexpr auto upper_bound(R&& range, const T& bound, Comp comp = {}, Proj proj = {}) {
  return partition_point(
      range, [&](auto&& value) { return !std::invoke(comp, bound, value); }, std::ref(proj));
}

template <typename R, typename T, typename Comp = std::less<>, typename Proj = Identity>
constexpr bool binary_search(R&& range, const T& wanted, Comp comp = {}, Proj proj = {}) {
  const auto found = lower_bound(range, wanted, std::ref(comp), std::ref(proj));
  return found != std::end(range) && !std::invoke(comp, wanted, std::invoke(proj, *found));
}

template <typename R, typename Comp = std::less<>, typename Proj = Identity>
constexpr auto min_element(R&& range, Comp comp = {}, Proj proj = {}) {
  return std::min_element(std::begin(range), std::end(range), projected(comp, proj));
}

template <typename R, typename Comp = std::less<>, typename Proj = Identity>
constexpr auto max_element(R&& range, Comp comp = {}, Proj proj = {}) {
  return std::max_element(std::begin(range), std::end(range), projected(comp, proj));
}

template <typename Iterator>
struct MinMax {
  Iterator min;
  Iterator max;
};

template <typename R>
constexpr auto minmax_element(R&& range) {
  const auto found = std::minmax_element(std::begin(range), std::end(range));
  return MinMax<decltype(std::begin(range))>{found.first, found.second};
}

template <typename Iterator>
class Subrange {
 public:
  constexpr Subrange(Iterator begin, Iterator end) : begin_(begin), end_(end) {}
  constexpr Iterator begin() const { return begin_; }
  constexpr Iterator end() const { return end_; }

 private:
  Iterator begin_;
  Iterator end_;
};

template <typename R>
constexpr auto unique(R&& range) {
  return Subrange<decltype(std::begin(range))>(std::unique(std::begin(range), std::end(range)),
                                               std::end(range));
}

}  // namespace substitute

#ifdef __cpp_lib_ranges
namespace ranges = std::ranges;
#else
namespace ranges = substitute;
#endif

}  // namespace qsf

#endif  // QSF_BASE_RANGES_H_
