// SPDX-License-Identifier: MIT

#include "base/portable_math.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/bit_cast.h"

namespace qsf::portable {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// high + low, where high is that sum rounded.
struct Pair {
  double high;
  double low;
};

// a + b exactly, if |a| >= |b| or a is 0.
constexpr Pair add_smaller(double a, double b) noexcept {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

// a + b exactly.
constexpr Pair add(double a, double b) noexcept {
  const double sum = a + b;
  const double of_b = sum - a;
  return {sum, (a - (sum - of_b)) + (b - of_b)};
}

// a * b exactly, if nothing overflows: |a|, |b| < 2^996.
constexpr Pair multiply(double a, double b) noexcept {
  constexpr double kSplit = 0x1p27 + 1;
  const double a_scaled = a * kSplit;
  const double a_high = a_scaled - (a_scaled - a);
  const double a_low = a - a_high;
  const double b_scaled = b * kSplit;
  const double b_high = b_scaled - (b_scaled - b);
  const double b_low = b - b_high;
  const double product = a * b;
  return {product,
          a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)};
}

constexpr Pair multiply(Pair a, Pair b) noexcept {
  const Pair product = multiply(a.high, b.high);
  return add_smaller(product.high, product.low + (a.high * b.low + a.low * b.high));
}

constexpr Pair add(Pair a, Pair b) noexcept {
  const Pair sum = add(a.high, b.high);
  return add_smaller(sum.high, sum.low + (a.low + b.low));
}

constexpr Pair divide(Pair a, Pair b) noexcept {
  const double quotient = a.high / b.high;
  const Pair product = multiply(quotient, b.high);
  const double rest = ((a.high - product.high) - product.low) + (a.low - quotient * b.low);
  return add_smaller(quotient, rest / b.high);
}

// 2^e, for e of normal numbers.
double power_of_two(int e) noexcept {
  return bit_cast<double>(static_cast<std::uint64_t>(e + 1023) << 52);
}

constexpr int kSteps = 128;  // of the tables, in a factor of two
constexpr Pair kLog2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};

constexpr std::array<Pair, kSteps> make_powers() {
  constexpr Pair kRoot = {0x1.0163da9fb3335p+0, 0x1.b61299ab8cdb7p-54};  // 2^(1 / kSteps)
  std::array<Pair, kSteps> powers = {Pair{1.0, 0.0}};
  for (std::size_t i = 1; i < kSteps; ++i) powers[i] = multiply(powers[i - 1], kRoot);
  return powers;
}

constexpr int kFirstLog = 90;  // below kSteps * sqrt(1/2), and the last above kSteps * sqrt(2)
constexpr int kLastLog = 182;

// log((i + 1) / i) = 2 atanh(1 / (2 i + 1))
constexpr Pair log_of_step(int i) {
  const Pair s = divide({1.0, 0.0}, {2.0 * i + 1.0, 0.0});
  const Pair z = multiply(s, s);
  Pair sum = {0.0, 0.0};
  for (int power = 15; power >= 1; power -= 2) {
    sum = add(multiply(sum, z), divide({1.0, 0.0}, {static_cast<double>(power), 0.0}));
  }
  return multiply({2.0, 0.0}, multiply(s, sum));
}

constexpr std::array<Pair, kLastLog - kFirstLog + 1> make_logs() {
  std::array<Pair, kLastLog - kFirstLog + 1> logs = {};
  for (int i = kSteps; i < kLastLog; ++i) {
    logs[i + 1 - kFirstLog] = add(logs[i - kFirstLog], log_of_step(i));
  }
  for (int i = kSteps; i > kFirstLog; --i) {
    const Pair step = log_of_step(i - 1);
    logs[i - 1 - kFirstLog] = add(logs[i - kFirstLog], Pair{-step.high, -step.low});
  }
  return logs;
}

constexpr std::array<Pair, kSteps> kPowers = make_powers();                // 2^(i / kSteps)
constexpr std::array<Pair, kLastLog - kFirstLog + 1> kLogs = make_logs();  // log(i / kSteps)

// value * 2^exponent, value in about [1, 2].
struct Scaled {
  Pair value;
  int exponent;
};

// exp(r) - 1 for |r| <= log(2) / 256.
Pair expm1_near_zero(Pair r) noexcept {
  const Pair square = multiply(r.high, r.high);
  double q = 0x1.a01a01a01a01ap-13;        // 1 / 7!
  q = q * r.high + 0x1.6c16c16c16c17p-10;  // 1 / 6!
  q = q * r.high + 0x1.1111111111111p-7;
  q = q * r.high + 0x1.5555555555555p-5;
  q = q * r.high + 0x1.5555555555555p-3;
  const double tail = square.high * r.high * q;
  const Pair sum = add_smaller(r.high, 0.5 * square.high);
  return add_smaller(sum.high, sum.low + (tail + (r.low + (0.5 * square.low + r.high * r.low))));
}

// 2^(n / kSteps) exp(r)
Scaled exp_of_parts(int n, Pair r) noexcept {
  const int step = n & (kSteps - 1);
  const Pair power = kPowers[static_cast<std::size_t>(step)];
  const Pair growth = multiply(power, expm1_near_zero(r));
  const Pair sum = add_smaller(power.high, growth.high);
  return {add_smaller(sum.high, sum.low + (power.low + growth.low)), (n - step) / kSteps};
}

int nearest_integer(double x) noexcept {
  return static_cast<int>(x < 0.0 ? x - 0.5 : x + 0.5);
}

struct Reduced {
  int n;
  Pair r;
};

// x = n log(2) / kSteps + r, for |x| < 800.
Reduced reduce(Pair x) noexcept {
  // log(2) / kSteps in three parts; n times one of the first two is exact.
  constexpr double kHigh = 0x1.62e42fef80000p-8;
  constexpr double kMiddle = 0x1.1cf79abc80000p-43;
  constexpr double kLow = 0x1.e3b39803f2f6bp-79;
  const int n = nearest_integer(x.high * 0x1.71547652b82fep+7);
  const Pair r = add(x.high - n * kHigh, -(n * kMiddle));
  return {n, add_smaller(r.high, r.low + (x.low - n * kLow))};
}

// Rounds once, also where the result is subnormal.
double round_scaled(Scaled x) noexcept {
  if (x.exponent > 1024) return kInfinity;
  if (x.exponent < -1080) return 0.0;
  const double value = x.value.high;
  if (x.exponent > -1022 || (x.exponent == -1022 && value >= 1.0)) {
    const int half = x.exponent / 2;
    return value * power_of_two(half) * power_of_two(x.exponent - half);
  }
  // Adding `base` leaves no bits below the last place of subnormal numbers.
  const double base = power_of_two(-1022 - x.exponent);
  const Pair rounded = add(base, value);
  const double units =
      ((rounded.high + (rounded.low + x.value.low)) - base) * power_of_two(1074 + x.exponent);
  return units * 0x1p-1074;
}

Scaled exp_scaled(Pair x) noexcept {
  const Reduced reduced = reduce(x);
  return exp_of_parts(reduced.n, reduced.r);
}

// log(x) for finite x > 0.
Pair log_pair(double x) noexcept {
  int exponent = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    exponent = -54;
  }
  // The exponent changes at sqrt(1/2) instead of at 1: subtracting its bits first rounds it so.
  constexpr std::uint64_t kSqrtHalfBits = 0x3FE6A09E667F3BCDU;
  const auto bits = bit_cast<std::uint64_t>(x);
  const std::int64_t change = static_cast<std::int64_t>(bits - kSqrtHalfBits) >> 52;
  exponent += static_cast<int>(change);
  const double m = bit_cast<double>(bits - (static_cast<std::uint64_t>(change) << 52));
  // m = c (1 + s) / (1 - s), c = i / kSteps; log(m) = log(c) + 2 atanh(s)
  const int i = nearest_integer(m * kSteps);
  const double c = static_cast<double>(i) / kSteps;
  const Pair s = divide({m - c, 0.0}, add(m, c));
  const Pair z = multiply(s, s);
  double q = 0x1.c71c71c71c71cp-4;        // 1 / 9
  q = q * z.high + 0x1.2492492492492p-3;  // 1 / 7
  q = q * z.high + 0x1.999999999999ap-3;
  const double tail = q * z.high * z.high;
  constexpr Pair kThird = {0x1.5555555555555p-2, 0x1.5555555555555p-56};
  const Pair third = multiply(z, kThird);
  const Pair factor = add_smaller(third.high, third.low + tail);
  const Pair more = multiply(s, factor);
  const Pair atanh = add_smaller(s.high, more.high);
  // The high part of log(2) has 42 bits, so that its product is exact.
  const Pair whole = {exponent * 0x1.62e42fefa3800p-1, exponent * 0x1.ef35793c76730p-45};
  const Pair of_c = kLogs[static_cast<std::size_t>(i - kFirstLog)];
  const Pair sum = add(whole.high, of_c.high);
  const Pair total = add(sum.high, 2.0 * atanh.high);
  const double low = 2.0 * (atanh.low + (s.low + more.low));
  return add_smaller(total.high, total.low + (sum.low + (whole.low + (of_c.low + low))));
}

bool is_integer(double y) noexcept {
  return std::trunc(y) == y;
}

bool is_odd(double y) noexcept {
  return is_integer(y) && !is_integer(0.5 * y);
}

// |x|^y for finite x other than 0 and 1, and finite y other than 0.
double power_of_positive(double x, double y) noexcept {
  const Pair log_x = log_pair(x);
  const double about = y * log_x.high;
  if (about > 750.0) return kInfinity;
  if (about < -750.0) return 0.0;
  return round_scaled(exp_scaled(multiply(Pair{y, 0.0}, log_x)));
}

// x^y where x or y is infinite, or x is 0; y is not 0, x is not 1.
double power_of_special(double x, double y) noexcept {
  const double size = std::fabs(x);
  if (std::isinf(y)) {
    if (size == 1.0) return 1.0;
    return (size > 1.0) == (y > 0.0) ? kInfinity : 0.0;
  }
  const double result = (size == 0.0) == (y < 0.0) ? kInfinity : 0.0;
  return is_odd(y) ? std::copysign(result, x) : result;
}

}  // namespace

double exp(double x) noexcept {
  if (std::isnan(x)) return x;
  if (x > 710.0) return kInfinity;
  if (x < -746.0) return 0.0;
  return round_scaled(exp_scaled({x, 0.0}));
}

double exp2(double x) noexcept {
  if (std::isnan(x)) return x;
  if (x >= 1024.0) return kInfinity;
  if (x < -1076.0) return 0.0;
  const int n = nearest_integer(x * kSteps);
  const double rest = x - static_cast<double>(n) / kSteps;
  return round_scaled(exp_of_parts(n, multiply(Pair{rest, 0.0}, kLog2)));
}

double log(double x) noexcept {
  if (std::isnan(x) || x == kInfinity) return x;
  if (x == 0.0) return -kInfinity;
  if (x < 0.0) return kNan;
  return log_pair(x).high;
}

double pow(double x, double y) noexcept {
  if (y == 0.0 || x == 1.0) return 1.0;
  if (std::isnan(x) || std::isnan(y)) return kNan;
  if (x == 0.0 || std::isinf(x) || std::isinf(y)) return power_of_special(x, y);
  if (x < 0.0 && !is_integer(y)) return kNan;
  const double size = x == -1.0 ? 1.0 : power_of_positive(std::fabs(x), y);
  return x < 0.0 && is_odd(y) ? -size : size;
}

double tanh(double x) noexcept {
  const double size = std::fabs(x);
  if (std::isnan(x) || size < 0x1p-28) return x;  // rounds to x: x^3 / 3 is too small
  if (size > 20.0) return std::copysign(1.0, x);
  const Reduced reduced = reduce({2.0 * size, 0.0});
  Pair growth = {};  // exp(2 size) - 1
  if (reduced.n == 0) {
    growth = expm1_near_zero(reduced.r);
  } else {
    const Scaled power = exp_of_parts(reduced.n, reduced.r);
    const double scale = power_of_two(power.exponent);
    growth = add(Pair{power.value.high * scale, power.value.low * scale}, Pair{-1.0, 0.0});
  }
  return std::copysign(divide(growth, add(growth, Pair{2.0, 0.0})).high, x);
}

}  // namespace qsf::portable
