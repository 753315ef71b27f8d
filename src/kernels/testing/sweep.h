// SPDX-License-Identifier: MIT
//
// How thoroughly long tests sweep their values.
//
// In an emulator a test takes twenty times as long. QSF_TEST_STRIDE=17 in the environment makes
// sweeps visit every 17th of their values, and the longest rows of products and heads shorter; the
// branches that are taken stay the same. A prime, so that strided bit patterns still show every
// mantissa.

#ifndef QSF_KERNELS_TESTING_SWEEP_H_
#define QSF_KERNELS_TESTING_SWEEP_H_

#include <cstdint>
#include <cstdlib>

namespace qsf::kernels::testing_support {

// Returns the distance between values to visit, 1 unless QSF_TEST_STRIDE says otherwise.
inline std::uint32_t sweep_stride() {
  const char* const text = std::getenv("QSF_TEST_STRIDE");
  const long stride = text == nullptr ? 1 : std::strtol(text, nullptr, 10);
  return stride >= 1 && stride <= 1000 ? static_cast<std::uint32_t>(stride) : 1;
}

// Returns the columns of the longest rows that a test multiplies.
inline std::uint32_t longest_row() {
  return sweep_stride() == 1 ? 4096 : 1024;
}

// Returns the longest head that a test attends to with many rows.
inline std::uint32_t longest_head() {
  return sweep_stride() == 1 ? 1024 : 128;
}

// Returns whether a sweep over 0 to `last` visits a value: every stride-th, and the last.
inline bool sweep_visits(std::uint32_t value, std::uint32_t last) {
  return value % sweep_stride() == 0 || value == last;
}

}  // namespace qsf::kernels::testing_support

#endif  // QSF_KERNELS_TESTING_SWEEP_H_
