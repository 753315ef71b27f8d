// SPDX-License-Identifier: MIT
//
// A generator whose seed is printed with every failure inside its lifetime.
//
// The seed is fixed, so that a run can be repeated; QSF_SEED in the environment sets another.

#ifndef QSF_KERNELS_TESTING_SEEDED_RNG_H_
#define QSF_KERNELS_TESTING_SEEDED_RNG_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/rng.h"

namespace qsf::kernels::testing_support {

inline std::uint64_t test_seed() {
  const char* text = std::getenv("QSF_SEED");
  return text == nullptr ? 20240229U : std::strtoull(text, nullptr, 10);
}

class SeededRng {
 public:
  SeededRng()
      : seed_(test_seed()),
        rng_(seed_),
        trace_(__FILE__, __LINE__, "QSF_SEED=" + std::to_string(seed_)) {}

  Rng& get() noexcept { return rng_; }
  std::uint64_t seed() const noexcept { return seed_; }

  // Uniform in [low, high).
  float uniform(float low, float high) noexcept { return low + (high - low) * rng_.next_f32(); }

 private:
  std::uint64_t seed_;
  Rng rng_;
  ::testing::ScopedTrace trace_;
};

}  // namespace qsf::kernels::testing_support

#endif  // QSF_KERNELS_TESTING_SEEDED_RNG_H_
