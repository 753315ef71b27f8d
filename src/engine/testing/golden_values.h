// SPDX-License-Identifier: MIT
//
// Golden files of an engine's tests: reading their numbers, and how far values are from them.

#ifndef QSF_ENGINE_TESTING_GOLDEN_VALUES_H_
#define QSF_ENGINE_TESTING_GOLDEN_VALUES_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qsf::testing_support {

// Reads u32 and f32, little-endian, behind a name of 8 bytes.
class GoldenReader {
 public:
  GoldenReader(const std::filesystem::path& path, std::string_view name)
      : in_(path, std::ios::binary) {
    std::string found(name.size(), '\0');
    in_.read(found.data(), static_cast<std::streamsize>(found.size()));
    if (found != name) in_.setstate(std::ios::failbit);
  }
  // False when it has another name, or ended too early.
  bool ok() const { return in_.good(); }
  std::uint32_t number() {
    std::uint32_t value = 0;
    in_.read(reinterpret_cast<char*>(&value), 4);
    return value;
  }
  std::vector<float> values(std::size_t n) {
    std::vector<float> list(n);
    in_.read(reinterpret_cast<char*>(list.data()), static_cast<std::streamsize>(n * 4));
    return list;
  }

 private:
  std::ifstream in_;
};

// Returns the largest difference as a share of the largest wanted value; infinite where one is not
// finite. Requires  got.size() >= want.size()
inline double relative_error(std::span<const float> got, std::span<const float> want) {
  double largest = 0;
  double worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double error = std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    if (!std::isfinite(error)) return HUGE_VAL;
    worst = std::max(worst, error);
    largest = std::max(largest, std::fabs(static_cast<double>(want[i])));
  }
  return worst / largest;
}

}  // namespace qsf::testing_support

#endif  // QSF_ENGINE_TESTING_GOLDEN_VALUES_H_
