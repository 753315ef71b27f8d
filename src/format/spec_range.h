// SPDX-License-Identifier: MIT
//
// The range of one number of a model's description, checked alike for all of them.

#ifndef QSF_FORMAT_SPEC_RANGE_H_
#define QSF_FORMAT_SPEC_RANGE_H_

#include <cstdint>

#include "base/status.h"

namespace qsf {

struct SpecRange {
  const char* name;
  std::uint64_t value;
  std::uint64_t low;
  std::uint64_t high;
};

inline Status check_range(const SpecRange& r) {
  if (r.value >= r.low && r.value <= r.high) return ok_status();
  return invalid_argument(
      "%s: %llu, expected %llu to %llu", r.name, static_cast<unsigned long long>(r.value),
      static_cast<unsigned long long>(r.low), static_cast<unsigned long long>(r.high));
}

}  // namespace qsf

#endif  // QSF_FORMAT_SPEC_RANGE_H_
