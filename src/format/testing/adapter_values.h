// SPDX-License-Identifier: MIT
//
// Adapters for tests: values in memory, and the product that an adapter adds, from its definition.

#ifndef QSF_FORMAT_TESTING_ADAPTER_VALUES_H_
#define QSF_FORMAT_TESTING_ADAPTER_VALUES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/f16.h"
#include "base/rng.h"
#include "base/status.h"
#include "format/adapter_spec.h"
#include "format/adapter_writer.h"

namespace qsf::testing_support {

// A and B of one pair.
struct PairValues {
  std::vector<float> a;
  std::vector<float> b;
  friend bool operator==(const PairValues&, const PairValues&) = default;
};

// Adds scale * B (A x) to y, in f64.
// Shapes  x [in], y [out]
inline void apply_adapter(const AdapterPair& pair, const PairValues& values,
                          std::span<const double> x, std::span<double> y) {
  std::vector<double> low(pair.rank, 0.0);
  for (std::uint32_t r = 0; r < pair.rank; ++r) {
    for (std::uint32_t c = 0; c < pair.in; ++c) {
      low[r] += static_cast<double>(values.a[std::size_t{r} * pair.in + c]) * x[c];
    }
  }
  for (std::uint32_t o = 0; o < pair.out; ++o) {
    double sum = 0.0;
    for (std::uint32_t r = 0; r < pair.rank; ++r) {
      sum += static_cast<double>(values.b[std::size_t{o} * pair.rank + r]) * low[r];
    }
    y[o] += static_cast<double>(pair.scale) * sum;
  }
}

// Adapters whose values are all in memory.
class MemoryAdapter final : public AdapterValues {
 public:
  std::vector<PairValues> pairs;

  Status read_pair(std::size_t index, std::span<float> a, std::span<float> b) const override {
    std::ranges::copy(pairs[index].a, a.begin());
    std::ranges::copy(pairs[index].b, b.begin());
    return ok_status();
  }
};

// Draws the values of every pair: of pairs with an even index, such as f16 holds.
inline MemoryAdapter random_adapter_values(const AdapterSpec& spec, std::uint64_t seed) {
  Rng rng(seed);
  MemoryAdapter adapter;
  for (const AdapterPair& pair : spec.pairs) {
    const bool narrow = adapter.pairs.size() % 2 == 0;
    const auto draw = [&](std::uint64_t n) {
      std::vector<float> values(n);
      for (float& value : values) {
        value = 0.1F * rng.next_normal();
        if (narrow) value = to_f32(to_f16(value));
      }
      return values;
    };
    adapter.pairs.push_back({draw(pair.a_values()), draw(pair.b_values())});
  }
  return adapter;
}

// Returns the values of a pair that was read as it is stored.
inline PairValues decoded_pair(const AdapterPair& pair, ByteSpan stored) {
  const std::uint64_t n = adapter_value_bytes(pair.type);
  PairValues values{std::vector<float>(pair.a_values()), std::vector<float>(pair.b_values())};
  decode_adapter_values(stored.first(n * values.a.size()), pair.type, values.a);
  decode_adapter_values(stored.subspan(adapter_a_bytes(pair), n * values.b.size()), pair.type,
                        values.b);
  return values;
}

}  // namespace qsf::testing_support

#endif  // QSF_FORMAT_TESTING_ADAPTER_VALUES_H_
