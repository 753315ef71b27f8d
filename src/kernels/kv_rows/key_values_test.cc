// SPDX-License-Identifier: MIT
//
// Holds the values that are made of stored keys to the rows of kernels/kv_rows/kv_rows.h.

#include "kernels/kv_rows/key_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/f16.h"
#include "kernels/kv_rows/kv_store.h"
#include "kernels/testing/guard_pages.h"
#include "kernels/testing/isa_coverage.h"
#include "kernels/testing/seeded_rng.h"

namespace qsf::kernels {
namespace {

using testing_support::GuardedBytes;
using testing_support::SeededRng;

// A key as it is stored: rotated where the type is quantised.
std::vector<float> stored_key(KvType type, std::vector<float> key) {
  if (type == KvType::kF16) {
    for (float& value : key) value = to_f32(to_f16(value));
  }
  if (!kv_is_quantised(type)) return key;
  const KvRowKernels& kv_rows = kv_row_kernels().back();
  const KvRowFormat format = kv_row_format(type, static_cast<std::uint32_t>(key.size()));
  std::vector<std::byte> coded(kv_quantised_row_bytes(format));
  kv_rows.rotate(key.data(), format.head_dim);
  kv_rows.quantise(key.data(), coded.data(), format);
  kv_rows.dequantise(coded.data(), key.data(), format);
  return key;
}

TEST(KeyValuesTest, ValuesAreTheStoredKeysOfTheSlotsAlone) {
  SeededRng rng;
  const KvStore store = {convert_kernels().back(), kv_row_kernels().back()};
  for (const KvType type : kAllKvTypes) {
    for (const std::uint32_t head_dim : {16U, 48U, 96U, 576U, 1024U}) {
      const GuardedBytes keys(kv_block_bytes(type, head_dim));
      std::vector<std::vector<float>> rows;
      for (std::uint32_t slot = 0; slot < kKvPageSlots; ++slot) {
        std::vector<float> key(head_dim);
        for (float& value : key) value = rng.get().next_normal();
        store_key(store, type, key.data(), keys.data(), slot, head_dim);
        rows.push_back(stored_key(type, key));
      }
      for (const AttendRange slots : {AttendRange{0, kKvPageSlots}, {5, 41}, {63, 64}, {7, 7}}) {
        const GuardedBytes bytes(kv_block_bytes(KvType::kF32, head_dim));
        auto* const values = reinterpret_cast<float*>(bytes.data());
        for (const ConvertKernels& convert :
             {convert_kernels().front(), convert_kernels().back()}) {
          if (!testing_support::can_run(convert)) continue;
          std::fill_n(values, std::size_t{kKvPageSlots} * head_dim, 3.0F);
          widen_keys(convert, type, keys.data(), slots, head_dim, values);
          for (std::uint32_t slot = 0; slot < kKvPageSlots; ++slot) {
            const float* const got = values + std::size_t{slot} * head_dim;
            const bool seen = slot >= slots.first && slot < slots.last;
            ASSERT_EQ(std::vector<float>(got, got + head_dim),
                      seen ? rows[slot] : std::vector<float>(head_dim))
                << kv_type_name(type) << ' ' << head_dim << ' ' << slot;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace qsf::kernels
