// SPDX-License-Identifier: MIT
//
// portable_math.h against values of 200 bits (scripts/golden/make_math_vectors.py), the special
// values of C, and the functions of the C library where models used those before.

#include "base/portable_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace qsf {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNotNumber = std::numeric_limits<double>::quiet_NaN();

double portable_value(const std::string& name, const std::vector<double>& arguments) {
  if (name == "pow") return portable::pow(arguments.at(0), arguments.at(1));
  using Function = double (*)(double);
  static const std::map<std::string, Function> kFunctions = {{"exp", portable::exp},
                                                             {"exp2", portable::exp2},
                                                             {"log", portable::log},
                                                             {"tanh", portable::tanh}};
  return kFunctions.at(name)(arguments.at(0));
}

TEST(PortableMathTest, RoundsCorrectlyAlsoWhereThatIsHard) {
  std::ifstream file(QSF_SOURCE_DIR "/testdata/math/vectors.txt");
  std::map<std::string, int> counts;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    std::vector<double> numbers;
    for (std::string word; words >> word;) numbers.push_back(std::strtod(word.c_str(), nullptr));
    ASSERT_GE(numbers.size(), 2U) << line;
    const double expected = numbers.back();
    numbers.pop_back();
    EXPECT_EQ(portable_value(name, numbers), expected) << line;
    ++counts[name];
  }
  EXPECT_EQ(counts.size(), 5U);
  for (const auto& [name, count] : counts) EXPECT_GE(count, 200) << name;
}

// Everything that Annex F of C names, and arguments around the largest odd integer.
TEST(PortableMathTest, SpecialValuesAreThoseOfC) {
  const std::vector<double> values = {0.0,
                                      -0.0,
                                      1.0,
                                      -1.0,
                                      2.0,
                                      -2.0,
                                      0.5,
                                      -0.5,
                                      1.5,
                                      -1.5,
                                      3.0,
                                      -3.0,
                                      kInf,
                                      -kInf,
                                      kNotNumber,
                                      5e-324,
                                      -5e-324,
                                      1e308,
                                      -1e308,
                                      0x1p53,
                                      -0x1p53,
                                      4503599627370497.0,
                                      4503599627370496.5,
                                      0x1p1000,
                                      0x1p-1000};
  const auto same = [](double got, double expected) {
    return std::bit_cast<std::uint64_t>(got) == std::bit_cast<std::uint64_t>(expected) ||
           (std::isnan(got) && std::isnan(expected));
  };
  for (const double x : values) {
    EXPECT_PRED2(same, portable::exp(x), std::exp(x)) << x;
    EXPECT_PRED2(same, portable::exp2(x), std::exp2(x)) << x;
    EXPECT_PRED2(same, portable::log(x), std::log(x)) << x;
    EXPECT_PRED2(same, portable::tanh(x), std::tanh(x)) << x;
    for (const double y : values) {
      EXPECT_PRED2(same, portable::pow(x, y), std::pow(x, y)) << x << " " << y;
    }
  }
}

TEST(PortableMathTest, ResultsLeaveTheRangeWhereTheTrueOnesDo) {
  EXPECT_EQ(portable::exp(0x1.62e42fefa39efp+9), 0x1.fffffffffff2ap+1023);
  EXPECT_EQ(portable::exp(0x1.62e42fefa39f0p+9), kInf);
  EXPECT_EQ(portable::exp(-0x1.74910d52d3051p+9), 0x1p-1074);
  EXPECT_EQ(portable::exp(-0x1.74910d52d3052p+9), 0.0);
  EXPECT_EQ(portable::exp2(-1074.9), 0x1p-1074);
  EXPECT_EQ(portable::exp2(-1075.0), 0.0);  // the middle, to even
  EXPECT_EQ(portable::pow(-10.0, 309.0), -kInf);
  EXPECT_EQ(portable::pow(-10.0, 308.0), 1e308);
  EXPECT_TRUE(std::signbit(portable::pow(-10.0, -325.0)));
}

// Half of the results just below the normal numbers lie in the middle of two subnormal ones, but
// for bits beyond the 53 of a double.
TEST(PortableMathTest, SubnormalResultsAreRoundedOnce) {
  for (int i = 0; i < 2000; ++i) {
    const double x = -1022.0 - i * 0x1.93p-10;
    const long double units = std::exp2(static_cast<long double>(x) + 1074);
    const long double got = std::ldexp(static_cast<long double>(portable::exp2(x)), 1074);
    EXPECT_LE(std::fabs(got - units), 0.5L + 0x1p-12L) << x;
  }
}

// Files and golden logits made with the C library's functions keep their bits.
TEST(PortableMathTest, RotationsAndSlopesOfModelsKeepTheirBits) {
  for (const double theta : {1e4, 5e4, 1e5, 1.5e5, 1.6e5, 2.5e5, 5e5, 1e6, 5e6, 1e7, 1e9}) {
    for (int dims = 16; dims <= 512; dims += 16) {
      for (int pair = 0; pair < dims / 2; ++pair) {
        const double power = -2.0 * pair / dims;
        EXPECT_EQ(static_cast<float>(portable::pow(theta, power)),
                  static_cast<float>(std::pow(theta, power)))
            << theta << " " << pair << " of " << dims;
      }
    }
  }
  for (int n = 1; n <= 128; ++n) {
    for (int head = 0; head < n; ++head) {
      const double power = -8.0 * (head + 1) / n;
      EXPECT_EQ(static_cast<float>(portable::exp2(power)), static_cast<float>(std::exp2(power)));
    }
  }
  for (const double factor : {2.0, 4.0, 8.0, 16.0, 32.0, 40.0, 64.0, 128.0}) {
    EXPECT_EQ(portable::log(factor), std::log(factor)) << factor;
  }
}

TEST(PortableMathTest, SweepsStayWithinAUnitOfTheCLibrary) {
  for (int i = -200000; i <= 200000; ++i) {
    const double x = i * 0x1.91p-10;
    const double tolerance = 2 * std::numeric_limits<double>::epsilon();
    EXPECT_NEAR(portable::exp(x) / std::exp(x), 1.0, tolerance) << x;
    EXPECT_NEAR(portable::exp2(x) / std::exp2(x), 1.0, tolerance) << x;
    EXPECT_NEAR(portable::tanh(x), std::tanh(x), tolerance * std::min(std::fabs(x), 1.0)) << x;
    if (i <= 0) continue;
    EXPECT_NEAR(portable::log(x), std::log(x), tolerance * std::fabs(std::log(x))) << x;
    const double power = portable::pow(x, 1.7);
    EXPECT_NEAR(power, std::pow(x, 1.7), tolerance * power) << x;
  }
}

}  // namespace
}  // namespace qsf
