// SPDX-License-Identifier: MIT
//
// Holds attention over a cache whose keys are its values to attention over one that stores the same
// rows as both: bit for bit in the types that code keys and values alike and that no kernel rounds
// apart, else to plain loops in f64 over the rows as they are stored.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/testing/stored_rows.h"

namespace qsf {
namespace {

using testing_support::as_stored;
using testing_support::backend_tiers;
using testing_support::BackendTier;
using testing_support::Bench;
using testing_support::random_values;

constexpr std::uint32_t kStoredHeads = 4;
constexpr std::uint32_t kStoredHeadDim = 48;
constexpr std::uint32_t kPrompt = 131;  // two pages and a part
constexpr std::uint32_t kRows = 140;

using Rows = std::vector<std::vector<float>>;

class CpuKeyValuesTest : public testing::TestWithParam<BackendTier> {
 protected:
  CpuKeyValuesTest() {
    Rng rng(5);
    for (std::uint32_t i = 0; i < kRows; ++i) {
      q_.push_back(random_values(kStoredHeads * kStoredHeadDim, rng));
      k_.push_back(random_values(kStoredHeadDim, rng));
    }
  }

  // Attends the prompt in one pass and the others row by row.
  Rows run(KvType type, bool keys_are_values, std::uint32_t window = 0) const {
    const PassLimits limits = {.max_rows = kPrompt,
                               .max_decode_rows = 1,
                               .max_context = kRows,
                               .n_heads = kStoredHeads,
                               .n_kv_heads = 1,
                               .head_dim = kStoredHeadDim,
                               .rope_dims = 0,
                               .keys_are_values = keys_are_values};
    Bench bench(2, limits, type, GetParam());
    Backend& backend = bench.backend();
    const Buffer q = bench.buffer(kPrompt, kStoredHeads * kStoredHeadDim);
    const Buffer k = bench.buffer(kPrompt, kStoredHeadDim);
    const Buffer out = bench.buffer(kPrompt, kStoredHeads * kStoredHeadDim);
    Rows outputs;
    for (std::uint32_t done = 0; done < kRows;) {
      const std::uint32_t n = done == 0 ? kPrompt : 1;
      bench.begin(n, done == 0 ? RowRole::kPrompt : RowRole::kGenerated);
      for (std::uint32_t i = 0; i < n; ++i) {
        backend.upload_row(q, i, q_[done + i]);
        backend.upload_row(k, i, k_[done + i]);
      }
      backend.store_kv(1, k, k);
      backend.attend({.layer = 1,
                      .q = q,
                      .out = out,
                      .scale = 0.3F,
                      .window = window,
                      .slopes = {},
                      .sink_scores = {}});
      for (std::uint32_t i = 0; i < n; ++i) {
        const auto row = bench.read_row(out, i);
        outputs.emplace_back(row.begin(), row.end());
      }
      done += n;
    }
    return outputs;
  }

  Rows q_;
  Rows k_;
};

// Prompts in words round stored values of f16, but not those made from keys, which are f32.
TEST_P(CpuKeyValuesTest, HasTheBitsOfValuesThatAreStored) {
  const bool words =
      kernels::kernel_set(GetParam()).attend_prompt.inputs == kernels::AttendInputs::kWords;
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::k2Bit}) {
    for (const std::uint32_t window : {0U, 70U}) {
      const Rows got = run(type, true, window);
      const Rows want = run(type, false, window);
      for (std::uint32_t row = 0; row < kRows; ++row) {
        if (!words || type != KvType::kF16 || row >= kPrompt) {
          ASSERT_EQ(got[row], want[row]) << kv_type_name(type) << window << ' ' << row;
          continue;
        }
        for (std::size_t i = 0; i < want[row].size(); ++i) {
          ASSERT_NEAR(got[row][i], want[row][i], 0x1p-9) << window << ' ' << row << ' ' << i;
        }
      }
    }
  }
}

TEST_P(CpuKeyValuesTest, ValuesAreTheStoredKeys) {
  for (const KvType type : kAllKvTypes) {
    const Rows got = run(type, true);
    Rows stored;
    for (const std::vector<float>& k : k_)
      stored.push_back(as_stored(k, type, kStoredHeadDim, true));
    for (const std::uint32_t row : {0U, 1U, 63U, 64U, 130U, 131U, 139U}) {
      for (std::uint32_t head = 0; head < kStoredHeads; ++head) {
        std::vector<double> weights;
        double total = 0;
        for (std::uint32_t j = 0; j <= row; ++j) {
          double score = 0;
          for (std::uint32_t d = 0; d < kStoredHeadDim; ++d) {
            score += static_cast<double>(q_[row][head * kStoredHeadDim + d]) * stored[j][d];
          }
          weights.push_back(std::exp(0.3F * score));
          total += weights.back();
        }
        for (std::uint32_t d = 0; d < kStoredHeadDim; ++d) {
          double want = 0;
          for (std::uint32_t j = 0; j <= row; ++j) want += weights[j] / total * stored[j][d];
          // Prompt rows of a matrix unit are rounded to bf16.
          ASSERT_NEAR(got[row][head * kStoredHeadDim + d], want, 0.04)
              << kv_type_name(type) << ' ' << row << ' ' << head << ' ' << d;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CpuKeyValuesTest, testing::ValuesIn(backend_tiers()));

}  // namespace
}  // namespace qsf
