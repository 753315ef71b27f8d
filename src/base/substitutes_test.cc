// SPDX-License-Identifier: MIT
//
// What stands in for parts of the standard library that older ones lack, against those parts:
// bit_cast.h, ranges.h and float_text.h.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/bit_cast.h"
#include "base/float_text.h"
#include "base/ranges.h"
#include "base/rng.h"

namespace qsf {
namespace {

struct Named {
  int key = 0;
  int place = 0;
  bool is_odd() const { return key % 2 != 0; }
  bool operator==(const Named&) const = default;
};

std::vector<Named> random_items(Rng& rng, int n) {
  std::vector<Named> items;
  for (int i = 0; i < n; ++i) {
    items.push_back({.key = static_cast<int>(rng.next_u64() % 7), .place = i});
  }
  return items;
}

TEST(BitCastTest, SubstituteGivesTheSameBits) {
  static_assert(substitute::bit_cast<std::uint32_t>(1.0F) == 0x3F800000U);
  for (const double value : {0.0, -0.0, 1.5, -3e300, 5e-324}) {
    EXPECT_EQ(substitute::bit_cast<std::uint64_t>(value), std::bit_cast<std::uint64_t>(value));
  }
}

TEST(RangesTest, SubstitutesFindWhatTheStandardFinds) {
  Rng rng(33);
  for (int n = 0; n < 40; ++n) {
    const std::vector<Named> items = random_items(rng, n);
    const auto is_three = [](int key) { return key == 3; };
    EXPECT_EQ(substitute::find(items, 3, &Named::key), std::ranges::find(items, 3, &Named::key));
    EXPECT_EQ(substitute::find(items, Named{3, 2}), std::ranges::find(items, Named{3, 2}));
    EXPECT_EQ(substitute::find_if(items, is_three, &Named::key),
              std::ranges::find_if(items, is_three, &Named::key));
    EXPECT_EQ(substitute::all_of(items, &Named::is_odd),
              std::ranges::all_of(items, &Named::is_odd));
    EXPECT_EQ(substitute::any_of(items, &Named::is_odd),
              std::ranges::any_of(items, &Named::is_odd));
    EXPECT_EQ(substitute::none_of(items, is_three, &Named::key),
              std::ranges::none_of(items, is_three, &Named::key));
    EXPECT_EQ(substitute::count(items, 3, &Named::key), std::ranges::count(items, 3, &Named::key));
    EXPECT_EQ(substitute::count_if(items, &Named::is_odd),
              std::ranges::count_if(items, &Named::is_odd));
    EXPECT_EQ(substitute::min_element(items, {}, &Named::key),
              std::ranges::min_element(items, {}, &Named::key));
    EXPECT_EQ(substitute::max_element(items, {}, &Named::key),
              std::ranges::max_element(items, {}, &Named::key));
    std::vector<int> keys;
    for (const Named& item : items) keys.push_back(item.key);
    EXPECT_EQ(substitute::adjacent_find(keys), std::ranges::adjacent_find(keys));
    const auto ends = substitute::minmax_element(keys);
    EXPECT_EQ(ends.min, std::ranges::minmax_element(keys).min);
    EXPECT_EQ(ends.max, std::ranges::minmax_element(keys).max);
    std::vector<int> other = keys;
    EXPECT_TRUE(substitute::equal(keys, other));
    if (n > 2) other[static_cast<std::size_t>(n) / 2] = 9;
    EXPECT_EQ(substitute::equal(keys, other), std::ranges::equal(keys, other));
    EXPECT_EQ(substitute::mismatch(keys, other).in1, std::ranges::mismatch(keys, other).in1);
    EXPECT_EQ(substitute::mismatch(keys, other).in2, std::ranges::mismatch(keys, other).in2);
  }
}

TEST(RangesTest, SubstitutesSortAndSearchAsTheStandardDoes) {
  Rng rng(34);
  for (int n = 0; n < 40; ++n) {
    std::vector<Named> items = random_items(rng, n);
    std::vector<Named> expected = items;
    substitute::stable_sort(items, {}, &Named::key);
    std::ranges::stable_sort(expected, {}, &Named::key);
    EXPECT_EQ(items, expected);
    std::vector<int> keys;
    for (const Named& item : items) keys.push_back(item.key);
    EXPECT_TRUE(substitute::is_sorted(keys));
    for (int key = -1; key <= 7; ++key) {
      EXPECT_EQ(substitute::lower_bound(keys, key), std::ranges::lower_bound(keys, key));
      EXPECT_EQ(substitute::upper_bound(keys, key), std::ranges::upper_bound(keys, key));
      EXPECT_EQ(substitute::binary_search(items, key, {}, &Named::key),
                std::ranges::binary_search(items, key, {}, &Named::key));
      const auto below = [key](int other) { return other < key; };
      EXPECT_EQ(substitute::partition_point(items, below, &Named::key),
                std::ranges::partition_point(items, below, &Named::key));
    }
    std::vector<int> descending = keys;
    substitute::sort(descending, std::greater<>());
    EXPECT_TRUE(std::ranges::is_sorted(descending, std::greater<>()));
    EXPECT_EQ(substitute::is_sorted(descending), std::ranges::is_sorted(descending));
    std::vector<int> once = keys;
    const auto rest = substitute::unique(once);
    once.erase(rest.begin(), rest.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    EXPECT_EQ(once, keys);
  }
}

TEST(RangesTest, SubstitutesWriteWhatTheStandardWrites) {
  const std::vector<int> from = {3, 1, 4, 1, 5};
  const std::array<int, 3> shorter = {10, 20, 30};
  std::vector<int> out(5);
  substitute::copy(from, out.begin());
  EXPECT_EQ(out, from);
  substitute::transform(from, out.begin(), [](int value) { return 2 * value; });
  EXPECT_EQ(out, (std::vector<int>{6, 2, 8, 2, 10}));
  substitute::transform(from, shorter, out.begin(), std::plus<>());
  EXPECT_EQ(out, (std::vector<int>{13, 21, 34, 2, 10}));
  substitute::replace(out, 2, 7);
  EXPECT_EQ(out, (std::vector<int>{13, 21, 34, 7, 10}));
  substitute::fill(out, 8);
  EXPECT_EQ(out, std::vector<int>(5, 8));
}

TEST(FloatTextTest, SubstituteReadsWhatTheStandardReads) {
  for (const std::string text : {"0",
                                 "-0",
                                 "-0.0e5",
                                 "1",
                                 "1.",
                                 ".5",
                                 "-.5e-3",
                                 ".",
                                 "",
                                 "-",
                                 "-.",
                                 "+1",
                                 " 1",
                                 "1e",
                                 "1e+",
                                 "1e5",
                                 "1E-5x",
                                 "1.5e3.7",
                                 "1e400",
                                 "-1e400",
                                 "1e-400",
                                 "0e999",
                                 "5e-324",
                                 "2e-324",
                                 "1.7976931348623157e308",
                                 "1.7976931348623159e308",
                                 "9007199254740993",
                                 "0x10",
                                 "inf",
                                 "-Infinity",
                                 "infinit",
                                 "nan",
                                 "NaN(abc_1)",
                                 "nan(",
                                 "-nan",
                                 "in",
                                 "123456789012345678901",
                                 "0.1000000000000000055511151231257827",
                                 "1,5",
                                 "00012",
                                 "1e0000000000000000000001"}) {
    double expected = 7.0;
    double got = 7.0;
    const char* const last = text.data() + text.size();
    const auto end = std::from_chars(text.data(), last, expected);
    const auto ours = substitute::double_from_chars(text.data(), last, got);
    EXPECT_EQ(ours.ptr - text.data(), end.ptr - text.data()) << text;
    EXPECT_EQ(ours.ec, end.ec) << text;
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got)) << text;
    } else {
      EXPECT_EQ(std::bit_cast<std::uint64_t>(got), std::bit_cast<std::uint64_t>(expected)) << text;
    }
  }
}

TEST(FloatTextTest, SubstituteWritesWhatTheStandardWrites) {
  Rng rng(35);
  std::vector<double> values = {0.0, -0.0, 1.0, 0.1, 1e23, 5e-324, HUGE_VAL, -HUGE_VAL, 1.5e300};
  for (int exponent = -1074; exponent < 1024; ++exponent) {
    values.push_back(std::ldexp(1.0, exponent));
  }
  for (int i = 0; i < 2000; ++i) {
    const double value = std::bit_cast<double>(rng.next_u64());
    if (std::isfinite(value)) values.push_back(value);
    values.push_back(static_cast<double>(rng.next_u64() % 100000) / 1000.0);
  }
  for (const double value : values) {
    char expected[40];
    char got[40];
    const auto end =
        std::to_chars(expected, expected + sizeof expected, value, std::chars_format::scientific);
    const auto ours = substitute::double_to_scientific(got, got + sizeof got, value);
    EXPECT_EQ(std::string(got, ours.ptr), std::string(expected, end.ptr));
    double back = 0.0;
    EXPECT_EQ(double_from_chars(got, ours.ptr, back).ec, std::errc());
    EXPECT_EQ(back, value);
  }
  char small[4];
  EXPECT_EQ(substitute::double_to_scientific(small, small + sizeof small, 1.5).ec,
            std::errc::value_too_large);
}

}  // namespace
}  // namespace qsf
