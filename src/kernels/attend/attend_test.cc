// SPDX-License-Identifier: MIT
//
// Holds every attention kernel to its contract.

#include "kernels/attend/attend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/f16.h"
#include "kernels/convert/convert.h"
#include "kernels/testing/error_bound.h"
#include "kernels/testing/guard_pages.h"
#include "kernels/testing/isa_coverage.h"
#include "kernels/testing/planted_faults.h"
#include "kernels/testing/seeded_rng.h"

namespace qsf::kernels {
namespace {

using testing_support::gamma_of;
using testing_support::GuardedArray;
using testing_support::GuardedBytes;
using testing_support::kUnitRoundoff;
using testing_support::SeededRng;

constexpr float kInf = std::numeric_limits<float>::infinity();

class AttendTest : public testing::TestWithParam<AttendKernels> {
 protected:
  void SetUp() override {
    if (!testing_support::can_run(GetParam())) {
      GTEST_SKIP() << testing_support::lacking(GetParam().isa);
    }
  }
};

struct Visible {
  std::uint32_t first;
  std::uint32_t last;
};

// Pages of random K and V; each page ends at a guard.
class Problem {
 public:
  Problem(KvType type, std::uint32_t n_q, std::uint32_t head_dim, std::vector<Visible> visible,
          float q_size, SeededRng& rng)
      : type_(type),
        n_q_(n_q),
        head_dim_(head_dim),
        visible_(std::move(visible)),
        scale_(1.0F / std::sqrt(static_cast<float>(head_dim))),
        q_(std::size_t{n_q} * head_dim) {
    for (float& v : q_) v = q_size * rng.get().next_normal();
    for (std::size_t p = 0; p < visible_.size(); ++p) {
      k_.push_back(make_page(rng));
      v_.push_back(make_page(rng));
    }
  }

  AttendPageArgs page_args(std::size_t page, AttendState* state, float* acc) const {
    return {.q = q_.data(),
            .q_stride = head_dim_,
            .n_q = n_q_,
            .k = k_[page].data(),
            .v = v_[page].data(),
            .head_dim = head_dim_,
            .first = visible_[page].first,
            .last = visible_[page].last,
            .scale = scale_,
            .state = state,
            .acc = acc,
            .acc_stride = head_dim_,
            .soft_cap = soft_cap_,
            .slopes = slopes_.empty() ? nullptr : slopes_.data(),
            .positions = slopes_.empty() ? nullptr : positions_.data() + page * kKvPageSlots,
            .q_position = q_position_};
  }

  void set_soft_cap(float soft_cap) { soft_cap_ = soft_cap; }
  // Slopes 2^-3, 2^-3.5 ... of the heads; slots at odd and unordered positions, the token behind
  // them all.
  void set_alibi(SeededRng& rng) {
    for (std::uint32_t h = 0; h < n_q_; ++h) slopes_.push_back(std::exp2(-3.0F - 0.5F * h));
    for (std::size_t i = 0; i < visible_.size() * kKvPageSlots; ++i) {
      positions_.push_back(static_cast<std::int32_t>(3 * i + rng.get().below(3)));
    }
    q_position_ = static_cast<std::int32_t>(3 * positions_.size() + 5);
  }

  // Runs pages [from, to) into a state.
  void run(const AttendKernels& kernels, std::size_t from, std::size_t to, AttendState* state,
           float* acc) const {
    attend_begin(state, acc, head_dim_, n_q_, head_dim_);
    for (std::size_t p = from; p < to; ++p) kernels.page(type_)(page_args(p, state, acc));
  }

  std::vector<float> run(const AttendKernels& kernels) const {
    std::vector<AttendState> state(n_q_);
    const GuardedArray<float> acc(q_.size());
    run(kernels, 0, visible_.size(), state.data(), acc.data());
    EXPECT_TRUE(acc.front_intact());
    return finish(state, acc.data());
  }

  std::vector<float> finish(const std::vector<AttendState>& state, const float* acc) const {
    const GuardedArray<float> out(q_.size());
    attend_finish(state.data(), acc, head_dim_, out.data(), head_dim_, n_q_, head_dim_);
    return {out.begin(), out.end()};
  }

  // A score is off by gamma(head_dim + 2) times its terms' magnitudes, which moves its weight by as
  // much, relatively. A soft cap divides (1), takes tanh (2 ulp, up to 4) and multiplies (1), and
  // its slope of at most 1 enlarges nothing; a bias is a product (1) and is added (1). Differences
  // to the maximum add u |d|, exp 2 u, the sum over slots one rounding a slot, and each page's
  // correction u |d| + 3 u. Numerator and denominator both carry that, hence twice, times the
  // weighted magnitudes of v.
  ::testing::AssertionResult within_bound(const std::vector<float>& out) const {
    std::vector<double> want;
    std::vector<double> bounds;
    for (std::uint32_t h = 0; h < n_q_; ++h) expect_head(h, &want, &bounds);
    return testing_support::all_within(out.data(), want, bounds);
  }

  std::uint32_t n_q() const { return n_q_; }
  std::uint32_t head_dim() const { return head_dim_; }
  KvType type() const { return type_; }
  GuardedBytes& k_page(std::size_t page) { return k_[page]; }
  GuardedBytes& v_page(std::size_t page) { return v_[page]; }

 private:
  GuardedBytes make_page(SeededRng& rng) const {
    const std::size_t row_bytes = kv_row_bytes(type_, head_dim_);
    GuardedBytes page(kKvPageSlots * row_bytes);
    std::vector<float> row(head_dim_);
    for (std::uint32_t j = 0; j < kKvPageSlots; ++j) {
      for (float& v : row) v = rng.get().next_normal();
      store_kv_row(convert_kernels().back(), type_, row.data(), page.data() + j * row_bytes,
                   head_dim_);
    }
    return page;
  }

  double stored(const GuardedBytes& page, std::uint32_t slot, std::uint32_t d) const {
    const std::byte* at = page.data() + slot * kv_row_bytes(type_, head_dim_);
    if (type_ == KvType::kF32) {
      float value;
      std::memcpy(&value, at + std::size_t{d} * 4, 4);
      return value;
    }
    F16 half;
    std::memcpy(&half, at + std::size_t{d} * 2, 2);
    return to_f32(half);
  }

  double bias_of(std::uint32_t h, std::size_t page, std::uint32_t slot) const {
    if (slopes_.empty()) return 0.0;
    const std::int32_t distance = positions_[page * kKvPageSlots + slot] - q_position_;
    return static_cast<double>(slopes_[h]) * distance;
  }

  void expect_head(std::uint32_t h, std::vector<double>* want, std::vector<double>* bounds) const {
    std::vector<double> scores;
    double magnitude = 0.0;
    for (std::size_t p = 0; p < visible_.size(); ++p) {
      for (std::uint32_t j = visible_[p].first; j < visible_[p].last; ++j) {
        double score = 0.0;
        double size = 0.0;
        for (std::uint32_t d = 0; d < head_dim_; ++d) {
          const double term = static_cast<double>(q_[h * head_dim_ + d]) * stored(k_[p], j, d);
          score += term;
          size += std::fabs(term);
        }
        const double bias = bias_of(h, p, j);
        const double cap = soft_cap_;
        score *= static_cast<double>(scale_);
        scores.push_back((cap == 0.0 ? score : cap * std::tanh(score / cap)) + bias);
        magnitude = std::max(magnitude, size * static_cast<double>(scale_) + std::fabs(bias));
      }
    }
    double max = -std::numeric_limits<double>::infinity();
    for (const double s : scores) max = std::max(max, s);
    double sum = 0.0;
    double widest = 0.0;
    for (double& s : scores) {
      if (max - s < 104.0) widest = std::max(widest, max - s);
      s = std::exp(s - max);
      sum += s;
    }
    const double pages = static_cast<double>(visible_.size());
    const double roundings =
        head_dim_ + 2.0 + (soft_cap_ == 0.0F ? 0.0 : 6.0) + (slopes_.empty() ? 0.0 : 2.0);
    const double relative = 2.0 * (std::expm1(2.0 * gamma_of(roundings) * magnitude) +
                                   gamma_of(kKvPageSlots + 8.0 + widest + pages * (4.0 + widest)));
    for (std::uint32_t d = 0; d < head_dim_; ++d) {
      double value = 0.0;
      double size = 0.0;
      std::size_t i = 0;
      for (std::size_t p = 0; p < visible_.size(); ++p) {
        for (std::uint32_t j = visible_[p].first; j < visible_[p].last; ++j, ++i) {
          const double term = scores[i] * stored(v_[p], j, d);
          value += term;
          size += std::fabs(term);
        }
      }
      want->push_back(scores.empty() ? 0.0 : value / sum);
      bounds->push_back(scores.empty() ? 0.0 : relative * size / sum + 0x1p-120);
    }
  }

  KvType type_;
  std::uint32_t n_q_;
  std::uint32_t head_dim_;
  std::vector<Visible> visible_;
  float scale_;
  GuardedArray<float> q_;
  std::vector<GuardedBytes> k_;
  std::vector<GuardedBytes> v_;
  float soft_cap_ = 0.0F;
  std::vector<float> slopes_;
  std::vector<std::int32_t> positions_;
  std::int32_t q_position_ = 0;
};

// A problem of every feature at once, with scores that its cap bends and positions that matter.
Problem capped_and_biased(KvType type, SeededRng& rng) {
  Problem problem(type, 4, 24, {{0, 64}, {0, 64}, {5, 41}}, 3.0F, rng);
  problem.set_soft_cap(2.0F);
  problem.set_alibi(rng);
  return problem;
}

TEST_P(AttendTest, MatchesReferenceForEveryShape) {
  SeededRng rng;
  for (const KvType type : kAllKvTypes) {
    for (const std::uint32_t head_dim : {1U, 3U, 8U, 16U, 17U, 64U, 80U, 100U, 128U, 1024U}) {
      for (const std::uint32_t n_q : {1U, 4U, 9U}) {
        const Problem problem(type, n_q, head_dim, {{0, 64}, {0, 64}, {0, 5}}, 1.0F, rng);
        EXPECT_TRUE(problem.within_bound(problem.run(GetParam())))
            << kv_type_name(type) << " " << head_dim << " heads " << n_q;
      }
    }
  }
}

// Every number of visible slots, from either end; scores from flat to steep.
TEST_P(AttendTest, MatchesReferenceForEveryRange) {
  SeededRng rng;
  for (const KvType type : kAllKvTypes) {
    for (const float q_size : {0.0F, 1.0F, 30.0F}) {
      for (std::uint32_t at = 0; at <= 64; ++at) {
        const Problem problem(type, 2, 20, {{0, at}, {at, 64}}, q_size, rng);
        EXPECT_TRUE(problem.within_bound(problem.run(GetParam()))) << at << " " << q_size;
      }
    }
  }
}

// From caps that every score reaches to one that none does.
TEST_P(AttendTest, MatchesReferenceWithSoftCap) {
  SeededRng rng;
  for (const KvType type : kAllKvTypes) {
    for (const float soft_cap : {0.5F, 2.0F, 50.0F, 1e30F}) {
      for (const std::uint32_t last : {1U, 3U, 30U, 64U}) {
        Problem problem(type, 9, 40, {{0, 64}, {0, last}}, 4.0F, rng);
        problem.set_soft_cap(soft_cap);
        EXPECT_TRUE(problem.within_bound(problem.run(GetParam()))) << soft_cap << " " << last;
      }
    }
  }
}

TEST_P(AttendTest, MatchesReferenceWithSlopes) {
  SeededRng rng;
  for (const KvType type : kAllKvTypes) {
    for (const std::uint32_t n_q : {1U, 3U, 9U}) {
      for (const std::uint32_t first : {0U, 1U, 37U, 63U}) {
        Problem problem(type, n_q, 20, {{first, 64}, {0, 64}, {0, first}}, 2.0F, rng);
        problem.set_alibi(rng);
        EXPECT_TRUE(problem.within_bound(problem.run(GetParam()))) << n_q << " " << first;
      }
    }
    const Problem both = capped_and_biased(type, rng);
    EXPECT_TRUE(both.within_bound(both.run(GetParam())));
  }
}

// The comparison that accepts the right kernels rejects each wrong one.
TEST(AttendFaultsTest, EveryPlantedFaultIsCaught) {
  for (const KvType type : kAllKvTypes) {
    SeededRng rng;
    const Problem problem = capped_and_biased(type, rng);
    for (const auto& fault : testing_support::planted_attend_faults()) {
      EXPECT_FALSE(problem.within_bound(problem.run(fault.kernel))) << fault.what;
    }
  }
  EXPECT_GE(testing_support::planted_attend_faults().size(), 6U);
}

TEST_P(AttendTest, NothingVisibleGivesZeros) {
  SeededRng rng;
  const Problem problem(KvType::kF16, 3, 24, {{0, 0}, {64, 64}}, 1.0F, rng);
  for (const float v : problem.run(GetParam())) EXPECT_EQ(v, 0.0F);
}

// Slots outside the range hold NaN and change nothing.
TEST_P(AttendTest, HiddenSlotsAreNotRead) {
  for (const KvType type : kAllKvTypes) {
    SeededRng rng;
    Problem problem(type, 2, 32, {{10, 50}}, 1.0F, rng);
    const std::vector<float> before = problem.run(GetParam());
    const std::size_t row_bytes = kv_row_bytes(type, 32);
    for (GuardedBytes* page : {&problem.k_page(0), &problem.v_page(0)}) {
      std::memset(page->data(), 0xFF, 10 * row_bytes);
      std::memset(page->data() + 50 * row_bytes, 0xFF, 14 * row_bytes);
    }
    const std::vector<float> after = problem.run(GetParam());
    EXPECT_EQ(std::memcmp(before.data(), after.data(), before.size() * sizeof(float)), 0);
  }
}

// An infinite K gives scores of -inf, which weigh nothing, and NaN is not hidden.
TEST_P(AttendTest, InfiniteScores) {
  float q = 1.0F;
  float k[kKvPageSlots];
  float v[kKvPageSlots];
  std::fill_n(k, kKvPageSlots, -kInf);
  std::fill_n(v, kKvPageSlots, 7.0F);
  AttendState state;
  float acc = 0.0F;
  AttendPageArgs args{.q = &q,
                      .q_stride = 1,
                      .n_q = 1,
                      .k = reinterpret_cast<const std::byte*>(k),
                      .v = reinterpret_cast<const std::byte*>(v),
                      .head_dim = 1,
                      .first = 0,
                      .last = 3,
                      .scale = 1.0F,
                      .state = &state,
                      .acc = &acc,
                      .acc_stride = 1};
  float out = -1.0F;
  attend_begin(&state, &acc, 1, 1, 1);
  GetParam().page_f32(args);
  attend_finish(&state, &acc, 1, &out, 1, 1, 1);
  EXPECT_EQ(out, 0.0F);
  k[1] = 0.5F;
  GetParam().page_f32(args);
  attend_finish(&state, &acc, 1, &out, 1, 1, 1);
  EXPECT_EQ(out, 7.0F);
  k[2] = std::numeric_limits<float>::quiet_NaN();
  GetParam().page_f32(args);
  attend_finish(&state, &acc, 1, &out, 1, 1, 1);
  EXPECT_TRUE(std::isnan(out));
}

// A head alone has the bits it has in its group.
TEST_P(AttendTest, HeadsDoNotDependOnTheirGroup) {
  SeededRng rng;
  for (const KvType type : kAllKvTypes) {
    Problem problem(type, 11, 72, {{3, 64}, {0, 64}, {0, 31}}, 2.0F, rng);
    problem.set_soft_cap(6.0F);
    problem.set_alibi(rng);
    const std::vector<float> whole = problem.run(GetParam());
    for (std::uint32_t h = 0; h < 11; ++h) {
      AttendState state;
      std::vector<float> acc(72);
      attend_begin(&state, acc.data(), 72, 1, 72);
      for (std::size_t p = 0; p < 3; ++p) {
        AttendPageArgs args = problem.page_args(p, &state, acc.data());
        args.q += h * args.q_stride;
        args.slopes += h;
        args.n_q = 1;
        GetParam().page(type)(args);
      }
      attend_finish(&state, acc.data(), 72, acc.data(), 72, 1, 72);
      EXPECT_EQ(std::memcmp(acc.data(), &whole[h * 72], 72 * sizeof(float)), 0) << h;
    }
  }
}

TEST_P(AttendTest, MergedSpansMatchReference) {
  SeededRng rng;
  const Problem problem(KvType::kF16, 3, 40, {{0, 64}, {0, 64}, {0, 64}, {0, 9}}, 5.0F, rng);
  std::vector<AttendState> low(3);
  std::vector<AttendState> high(3);
  std::vector<float> low_acc(120);
  std::vector<float> high_acc(120);
  problem.run(GetParam(), 0, 2, low.data(), low_acc.data());
  problem.run(GetParam(), 2, 4, high.data(), high_acc.data());
  attend_merge(low.data(), low_acc.data(), high.data(), high_acc.data(), 40, 3, 40);
  EXPECT_TRUE(problem.within_bound(problem.finish(low, low_acc.data())));
}

TEST_P(AttendTest, MergingAnEmptySpanChangesNothing) {
  SeededRng rng;
  const Problem problem(KvType::kF32, 2, 16, {{0, 20}}, 1.0F, rng);
  std::vector<AttendState> state(2);
  std::vector<AttendState> empty(2);
  std::vector<float> acc(32);
  std::vector<float> empty_acc(32);
  problem.run(GetParam(), 0, 1, state.data(), acc.data());
  const std::vector<float> alone = problem.finish(state, acc.data());
  attend_begin(empty.data(), empty_acc.data(), 16, 2, 16);
  attend_merge(state.data(), acc.data(), empty.data(), empty_acc.data(), 16, 2, 16);
  EXPECT_EQ(problem.finish(state, acc.data()), alone);
  attend_merge(empty.data(), empty_acc.data(), state.data(), acc.data(), 16, 2, 16);
  EXPECT_EQ(problem.finish(empty, empty_acc.data()), alone);
}

INSTANTIATE_TEST_SUITE_P(All, AttendTest, testing::ValuesIn(attend_kernels()),
                         testing_support::KernelName{});

}  // namespace
}  // namespace qsf::kernels
