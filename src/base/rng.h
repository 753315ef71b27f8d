// SPDX-License-Identifier: MIT
//
// A small seeded generator: the same numbers on every machine and library version.
//
// Based on: Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021
// (xoshiro256++), seeded through SplitMix64.

#ifndef QSF_BASE_RNG_H_
#define QSF_BASE_RNG_H_

#include <array>
#include <bit>
#include <cstdint>

namespace qsf {

class Rng {
 public:
  explicit Rng(std::uint64_t seed) noexcept {
    for (std::uint64_t& word : state_) {
      seed += 0x9E3779B97F4A7C15U;
      std::uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
      word = z ^ (z >> 31);
    }
  }

  std::uint64_t next_u64() noexcept {
    const std::uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }
  std::uint32_t next_u32() noexcept { return static_cast<std::uint32_t>(next_u64() >> 32); }

  // Uniform in [0, bound). Requires  bound > 0. Bias below 2^-32 (Lemire's multiply-shift).
  std::uint32_t below(std::uint32_t bound) noexcept {
    return static_cast<std::uint32_t>((static_cast<std::uint64_t>(next_u32()) * bound) >> 32);
  }
  // Uniform in [0, 1), 24 bits.
  float next_f32() noexcept { return static_cast<float>(next_u64() >> 40) * 0x1.0p-24F; }
  // Uniform in [0, 1), 53 bits.
  double next_f64() noexcept { return static_cast<double>(next_u64() >> 11) * 0x1.0p-53; }
  // Approximately normal, mean 0, variance 1: the sum of twelve uniforms less six.
  float next_normal() noexcept {
    float sum = -6.0F;
    for (int i = 0; i < 12; ++i) sum += next_f32();
    return sum;
  }

 private:
  std::array<std::uint64_t, 4> state_;
};

}  // namespace qsf

#endif  // QSF_BASE_RNG_H_
