// SPDX-License-Identifier: MIT
//
// Holds every attention kernel to its contract.

#include "kernels/attend/attend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/f16.h"
#include "kernels/kv_rows/kv_store.h"
#include "kernels/testing/error_bound.h"
#include "kernels/testing/guard_pages.h"
#include "kernels/testing/isa_coverage.h"
#include "kernels/testing/planted_faults.h"
#include "kernels/testing/seeded_rng.h"
#include "kernels/testing/special_values.h"
#include "kernels/testing/sweep.h"
#include "kernels/testing/word_bounds.h"

namespace qsf::kernels {
namespace {

using testing_support::gamma_of;
using testing_support::GuardedArray;
using testing_support::GuardedBytes;
using testing_support::kInf;
using testing_support::kNaN;
using testing_support::longest_head;
using testing_support::SeededRng;
using testing_support::SeenSlot;
using testing_support::sweep_visits;
using testing_support::word_score_error;
using testing_support::word_value_error;

class AttendTest : public testing::TestWithParam<AttendKernel> {
 protected:
  void SetUp() override {
    if (!testing_support::can_run(GetParam())) {
      GTEST_SKIP() << testing_support::lacking(GetParam().isa);
    }
  }
};

using Ranges = std::vector<AttendRange>;  // of the rows of a tile

struct Shape {
  std::uint32_t n_rows = 1;
  std::uint32_t n_q = 1;
  std::uint32_t head_dim = 1;
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
};

// Stores are those of the scalar tier, whose bits all tiers share.
KvStore scalar_store() {
  return {convert_kernels().back(), kv_row_kernels().back()};
}

std::size_t acc_stride_of(std::uint32_t head_dim) {
  return (head_dim + 15U) / 16U * 16U;
}

// A tile over pages of random K and V; queries, pages and scratch end at guards.
class Problem {
 public:
  // Shapes  pages: for each page the ranges of the rows, or one that all have
  Problem(const Shape& shape, std::vector<Ranges> pages, float q_size, SeededRng& rng)
      : shape_(shape),
        pages_(std::move(pages)),
        scale_(1.0F / std::sqrt(static_cast<float>(shape.head_dim))),
        values_turned_(shape.v_type == KvType::k2Bit),
        q_(std::size_t{n_queries()} * shape.head_dim) {
    for (float& v : q_) v = q_size * rng.get().next_normal();
    for (Ranges& ranges : pages_) {
      if (ranges.size() == 1) ranges.resize(shape.n_rows, ranges[0]);
      k_.push_back(make_block(shape.k_type, true, rng));
      v_.push_back(make_block(shape.v_type, false, rng));
    }
    for (std::uint32_t row = 0; row < shape.n_rows; ++row) q_positions_.push_back(0);
  }

  void set_soft_cap(float soft_cap) { soft_cap_ = soft_cap; }
  // Slopes 2^-3, 2^-3.5 ... of the heads; slots at odd and unordered positions, the rows behind
  // them all.
  void set_alibi(SeededRng& rng, float bf16_bias_scale = 0.0F) {
    bf16_bias_scale_ = bf16_bias_scale;
    for (std::uint32_t h = 0; h < shape_.n_q; ++h) slopes_.push_back(std::exp2(-3.0F - 0.5F * h));
    for (std::size_t i = 0; i < pages_.size() * kKvPageSlots; ++i) {
      positions_.push_back(static_cast<std::int32_t>(3 * i + rng.get().below(3)));
    }
    for (std::uint32_t row = 0; row < shape_.n_rows; ++row) {
      q_positions_[row] = static_cast<std::int32_t>(3 * positions_.size() + 5 + 2 * row);
    }
  }

  // Feeds rows [first_row, first_row + n_rows) and heads [first_head, first_head + n_q) as one tile
  // through pages [from, to).
  struct Part {
    std::uint32_t first_row, n_rows, first_head, n_q;
    std::size_t from, to;
  };
  Part whole() const { return {0, shape_.n_rows, 0, shape_.n_q, 0, pages_.size()}; }

  void run(const AttendKernel& kernel, const Part& part, AttendState* state, float* acc) const {
    const std::uint32_t n = part.n_rows * part.n_q;
    const GuardedBytes queries(attend_query_bytes(n, shape_.head_dim));
    const GuardedBytes scratch(attend_scratch_bytes(n, shape_.head_dim));
    const std::size_t row_stride = std::size_t{shape_.n_q} * shape_.head_dim;
    kernel.load_queries(
        {.q = q_.data() + part.first_row * row_stride + part.first_head * shape_.head_dim,
         .row_stride = row_stride,
         .n_rows = part.n_rows,
         .n_q = part.n_q,
         .head_dim = shape_.head_dim,
         .scale = scale_,
         .queries = queries.data(),
         .k_type = shape_.k_type,
         .rotate = kv_row_kernels().back().rotate});
    for (std::size_t page = part.from; page < part.to; ++page) {
      const bool next = page + 1 < part.to;
      kernel.page({.queries = queries.data(),
                   .n_rows = part.n_rows,
                   .n_q = part.n_q,
                   .head_dim = shape_.head_dim,
                   .k = k_[page].data(),
                   .v = v_[page].data(),
                   .k_type = shape_.k_type,
                   .v_type = shape_.v_type,
                   .visible = pages_[page].data() + part.first_row,
                   .state = state,
                   .acc = acc,
                   .acc_stride = acc_stride_of(shape_.head_dim),
                   .scratch = scratch.data(),
                   .soft_cap = soft_cap_,
                   .slopes = slopes_.empty() ? nullptr : slopes_.data() + part.first_head,
                   .bf16_bias_scale = bf16_bias_scale_,
                   .positions = slopes_.empty() ? nullptr : positions_.data() + page * kKvPageSlots,
                   .q_positions = q_positions_.data() + part.first_row,
                   .next = next ? k_[page + 1].data() : nullptr,
                   .next_bytes = next ? k_[page + 1].size() : 0});
    }
    EXPECT_TRUE(queries.front_intact() && scratch.front_intact());
  }

  // Returns the outputs of a part, [n_rows * n_q][head_dim].
  std::vector<float> run(const AttendKernel& kernel, const Part& part) const {
    const std::uint32_t n = part.n_rows * part.n_q;
    std::vector<AttendState> state(n);
    const GuardedArray<float> acc(n * acc_stride_of(shape_.head_dim));
    attend_begin(state.data(), acc.data(), acc_stride_of(shape_.head_dim), n);
    run(kernel, part, state.data(), acc.data());
    EXPECT_TRUE(acc.front_intact());
    return finish(state, acc.data());
  }
  std::vector<float> run(const AttendKernel& kernel) const { return run(kernel, whole()); }

  std::vector<float> finish(const std::vector<AttendState>& state, const float* acc) const {
    const GuardedArray<float> out(state.size() * shape_.head_dim);
    attend_finish({.state = state.data(),
                   .acc = acc,
                   .acc_stride = acc_stride_of(shape_.head_dim),
                   .out = out.data(),
                   .out_stride = shape_.head_dim,
                   .n_queries = static_cast<std::uint32_t>(state.size()),
                   .head_dim = shape_.head_dim,
                   .rotated = values_turned_,
                   .rotate = kv_row_kernels().back().rotate});
    EXPECT_TRUE(out.front_intact());
    return {out.begin(), out.end()};
  }

  // A score is off by gamma(head_dim + 2) times its terms' magnitudes, which moves its weight by as
  // much, relatively. A soft cap divides (1), takes tanh (2 ulp, up to 4) and multiplies (1), and
  // its slope of at most 1 enlarges nothing; a bias is a difference (1, where it is in bf16), a
  // product (1) and is added (1). Differences to the maximum add u |d|, exp 2 u, the sum over slots
  // one rounding a slot, and each page's correction u |d| + 3 u; the scale of a slot's values in 8
  // bits multiplies its weight (1).
  // Numerator and denominator both carry that, hence twice, times the weighted magnitudes of v.
  // Weights below 2^-125 may count as 0: each loses at most that times |v|, which stays below 8.
  //
  // Codes are widened exactly. A rotated query has a rounding a stage, one of its factor and one of
  // `scale`, of the magnitudes that it is the sum of; a score has two more for each group's scale.
  //
  // Tiles of bf16 round q and k, 2^-8 each, which moves a score by as many parts of its terms'
  // magnitudes, and weights and values, 2^-8 each. Products with subnormal factors are lost, each
  // below 2^-126 times 8.
  //
  // Words round an element of q to half of 1 / largest_query of its query's largest one, of k and v
  // in f16 to half of 1 / largest_key or kLargestElement of their slot's, and a weight times its
  // slot's largest value to half of 1 / kLargestWeight of the largest such product of its page; a
  // dozen roundings of f32 come with that.
  ::testing::AssertionResult within_bound(const std::vector<float>& out,
                                          const AttendKernel& kernel) const {
    std::vector<double> want;
    std::vector<double> bounds;
    for (std::uint32_t i = 0; i < n_queries(); ++i) {
      expect_query(i, kernel.inputs, &want, &bounds);
    }
    return testing_support::all_within(out.data(), want, bounds);
  }

  // The same problem with keys and values as f32 numbers, turned where the codes are, and queries
  // as the keys want them, both of whole quantised rows. Requires  both types quantised, head_dim a
  // multiple of 16
  Problem widened() const {
    SeededRng rng;
    Problem wide({shape_.n_rows, shape_.n_q, shape_.head_dim, KvType::kF32, KvType::kF32}, pages_,
                 1.0F, rng);
    wide.scale_ = 1.0F;
    wide.values_turned_ = values_turned_;
    for (std::uint32_t i = 0; i < q_.size(); ++i) wide.q_[i] = q_[i] * scale_;
    for (std::uint32_t i = 0; i < n_queries(); ++i) {
      kv_row_kernels().back().rotate(wide.q_.data() + std::size_t{i} * shape_.head_dim,
                                     shape_.head_dim);
    }
    for (std::size_t p = 0; p < pages_.size(); ++p) {
      auto* k = reinterpret_cast<float*>(wide.k_[p].data());
      auto* v = reinterpret_cast<float*>(wide.v_[p].data());
      for (std::uint32_t slot = 0; slot < kKvPageSlots; ++slot) {
        for (std::uint32_t d = 0; d < shape_.head_dim; ++d) {
          k[d * kKvPageSlots + slot] = static_cast<float>(key(p, slot, d));
          v[slot * shape_.head_dim + d] = static_cast<float>(value(p, slot, d));
        }
      }
    }
    return wide;
  }

  std::uint32_t n_queries() const { return shape_.n_rows * shape_.n_q; }
  const Shape& shape() const { return shape_; }

  // Writes `value` to all elements of one slot.
  void fill_slot(std::size_t page, std::uint32_t slot, float value) {
    const std::vector<float> row(shape_.head_dim, value);
    store_key(scalar_store(), shape_.k_type, row.data(), k_[page].data(), slot, shape_.head_dim);
    store_value(scalar_store(), shape_.v_type, row.data(), v_[page].data(), slot, shape_.head_dim);
  }

 private:
  GuardedBytes make_block(KvType type, bool is_key, SeededRng& rng) const {
    GuardedBytes block(kv_block_bytes(type, shape_.head_dim));
    std::vector<float> row(shape_.head_dim);
    for (std::uint32_t j = 0; j < kKvPageSlots; ++j) {
      for (float& v : row) v = rng.get().next_normal();
      if (is_key) {
        store_key(scalar_store(), type, row.data(), block.data(), j, shape_.head_dim);
      } else {
        store_value(scalar_store(), type, row.data(), block.data(), j, shape_.head_dim);
      }
    }
    return block;
  }

  static double half_at(const GuardedBytes& block, std::size_t offset) {
    F16 half;
    std::memcpy(&half, block.data() + offset, 2);
    return to_f32(half);
  }

  // Elements as quant/kv_type.h lays them out, of a key (column d, slot j) or a value.
  double element(const GuardedBytes& block, bool is_key, std::uint32_t j, std::uint32_t d) const {
    const KvType type = is_key ? shape_.k_type : shape_.v_type;
    const std::size_t columns = kv_columns(type, shape_.head_dim);
    const std::size_t index =
        is_key ? std::size_t{d} * kKvPageSlots + j : std::size_t{j} * columns + d;
    if (type == KvType::kF32) {
      float value;
      std::memcpy(&value, block.data() + index * 4, 4);
      return value;
    }
    if (type == KvType::kF16) return half_at(block, index * 2);
    const std::size_t group = d / kv_group(type, shape_.head_dim);
    const std::size_t n_groups = kv_groups(type, shape_.head_dim);
    const std::size_t codes = kKvPageSlots * columns * kv_bits(type) / 8;
    const double scale =
        half_at(block, codes + 2 * (is_key ? group * kKvPageSlots + j : j * n_groups + group));
    if (type == KvType::k8Bit) return scale * static_cast<std::int8_t>(block.data()[index]);
    if (type == KvType::k4Bit) {
      const std::size_t byte =
          is_key ? std::size_t{d} * 32 + j % 32 : j * columns / 2 + d / 16 * 8 + d % 8;
      const bool high = is_key ? j >= 32 : d % 16 >= 8;
      const int code = static_cast<int>(block.data()[byte]) >> (high ? 4 : 0) & 15;
      return scale * (2 * code - 15);
    }
    const std::size_t byte =
        is_key ? std::size_t{d} * 16 + j % 16 : j * columns / 4 + d / 16 * 4 + d % 4;
    const std::uint32_t field = is_key ? j / 16 : d % 16 / 4;
    const int code = static_cast<int>(block.data()[byte]) >> (2 * field) & 3;
    return scale * (2 * code - 3);
  }
  double key(std::size_t page, std::uint32_t slot, std::uint32_t d) const {
    return element(k_[page], true, slot, d);
  }
  double value(std::size_t page, std::uint32_t slot, std::uint32_t d) const {
    return element(v_[page], false, slot, d);
  }

  // Columns turned by the Hadamard transform, and the magnitudes of what each is the sum of.
  static void turn(std::vector<double>* columns, std::vector<double>* sizes) {
    const auto n = static_cast<std::uint32_t>(columns->size());
    const std::uint32_t block = hadamard_block(n);
    const std::vector<double> x = *columns;
    const std::vector<double> size_of = *sizes;
    for (std::uint32_t i = 0; i < n; ++i) {
      (*columns)[i] = (*sizes)[i] = 0.0;
      for (std::uint32_t j = i / block * block; j < i / block * block + block; ++j) {
        const double term = x[j] / std::sqrt(block);
        (*columns)[i] += std::popcount(i % block & j % block) % 2 == 0 ? term : -term;
        (*sizes)[i] += size_of[j] / std::sqrt(block);
      }
    }
  }

  // What a stored key is multiplied with: a query's columns, or for quantised keys those of its
  // Hadamard transform; and the magnitudes of what each is the sum of.
  struct Query {
    std::vector<double> columns;
    std::vector<double> sizes;
  };
  Query query_of(std::uint32_t query) const {
    const std::uint32_t n = kv_columns(shape_.k_type, shape_.head_dim);
    std::vector<double> q(n);
    for (std::uint32_t d = 0; d < shape_.head_dim; ++d) {
      q[d] = static_cast<double>(q_[std::size_t{query} * shape_.head_dim + d]);
    }
    Query as_read = {q, q};
    for (double& size : as_read.sizes) size = std::fabs(size);
    if (kv_is_quantised(shape_.k_type)) turn(&as_read.columns, &as_read.sizes);
    return as_read;
  }
  // A score's, and its query's where that is rotated.
  double score_roundings() const {
    const double columns = kv_columns(shape_.k_type, shape_.head_dim);
    double roundings = columns + 2.0;
    if (kv_is_quantised(shape_.k_type)) {
      const std::uint32_t block = hadamard_block(kv_columns(shape_.k_type, shape_.head_dim));
      roundings += std::log2(block) + 3.0 + 2.0 * kv_groups(shape_.k_type, shape_.head_dim);
    }
    return roundings + (soft_cap_ == 0.0F ? 0.0 : 6.0) + (slopes_.empty() ? 0.0 : 3.0);
  }

  double bias_of(std::uint32_t query, std::size_t page, std::uint32_t slot) const {
    if (slopes_.empty()) return 0.0;
    const std::int32_t position = positions_[page * kKvPageSlots + slot];
    const std::int32_t own = q_positions_[query / shape_.n_q];
    const float slope = slopes_[query % shape_.n_q];
    if (bf16_bias_scale_ == 0.0F) return static_cast<double>(slope) * (position - own);
    const auto bias = [&](std::int32_t at) -> double {
      return to_f32(to_bf16(slope * to_f32(to_bf16(static_cast<float>(at)))));
    };
    return bf16_bias_scale_ * (bias(position) - bias(own));
  }

  void expect_query(std::uint32_t query, AttendInputs inputs, std::vector<double>* want,
                    std::vector<double>* bounds) const {
    const double input_roundoff = inputs == AttendInputs::kBf16 ? 0x1p-8 : 0.0;
    const bool words = inputs == AttendInputs::kWords;
    std::vector<SeenSlot> seen;
    const Query q = query_of(query);
    std::vector<double> k(q.columns.size());
    double word_error = 0.0;
    double magnitude = 0.0;
    double magnitude_read = 0.0;  // of what a tile of bf16 rounds
    double max = -std::numeric_limits<double>::infinity();
    for (std::size_t p = 0; p < pages_.size(); ++p) {
      const AttendRange range = pages_[p][query / shape_.n_q];
      for (std::uint32_t j = range.first; j < range.last; ++j) {
        double score = 0.0;
        double size = 0.0;
        double size_read = 0.0;
        for (std::uint32_t d = 0; d < q.columns.size(); ++d) {
          const double stored = k[d] = key(p, j, d);
          score += q.columns[d] * stored;
          size_read += std::fabs(q.columns[d] * stored);
          size += q.sizes[d] * std::fabs(stored);
        }
        const double bias = bias_of(query, p, j);
        const double cap = soft_cap_;
        score *= static_cast<double>(scale_);
        seen.push_back({p, j, (cap == 0.0 ? score : cap * std::tanh(score / cap)) + bias});
        magnitude = std::max(magnitude, size * static_cast<double>(scale_) + std::fabs(bias));
        magnitude_read = std::max(magnitude_read, size_read * static_cast<double>(scale_));
        max = std::max(max, seen.back().weight);
        if (!words) continue;
        for (std::uint32_t d = 0; d < shape_.head_dim; ++d) {
          double& largest = seen.back().largest_value;
          largest = std::max(largest, std::fabs(value(p, j, d)));
        }
        word_error = std::max(word_error, word_score_error(q.columns, k, shape_.k_type) *
                                              static_cast<double>(scale_));
      }
    }
    double sum = 0.0;
    double widest = 0.0;
    for (SeenSlot& s : seen) {
      if (max - s.weight < 104.0) widest = std::max(widest, max - s.weight);
      s.weight = std::exp(s.weight - max);
      sum += s.weight;
    }
    const double pages = static_cast<double>(pages_.size());
    const double score_error =
        gamma_of(score_roundings()) * magnitude +
        (2.0 * input_roundoff + input_roundoff * input_roundoff) * magnitude_read + word_error;
    const double relative = 2.0 * (std::expm1(2.0 * score_error) + 2.0 * input_roundoff +
                                   gamma_of(kKvPageSlots + 9.0 + widest + pages * (4.0 + widest)));
    double dropped = static_cast<double>(seen.size()) * 0x1p-125 * 8.0;
    if (words && !seen.empty()) dropped += word_value_error(seen, shape_.v_type) / sum;
    std::vector<double> totals(values_turned_ ? (shape_.head_dim + 15) / 16 * 16 : shape_.head_dim);
    std::vector<double> errors(totals.size());
    for (std::uint32_t d = 0; d < totals.size() && !seen.empty(); ++d) {
      double size = 0.0;
      for (const SeenSlot& s : seen) {
        const double term = s.weight * value(s.page, s.slot, d);
        totals[d] += term / sum;
        size += std::fabs(term / sum);
      }
      errors[d] = relative * size + dropped;
    }
    if (values_turned_) turn_outputs(&totals, &errors);
    want->insert(want->end(), totals.begin(), totals.begin() + shape_.head_dim);
    bounds->insert(bounds->end(), errors.begin(), errors.begin() + shape_.head_dim);
  }

  // An output turned back is a sum of what its terms were, with a rounding a stage and one of the
  // transform's factor, each of the terms' magnitudes.
  static void turn_outputs(std::vector<double>* totals, std::vector<double>* errors) {
    const double stages = std::log2(hadamard_block(static_cast<std::uint32_t>(totals->size())));
    for (std::size_t d = 0; d < totals->size(); ++d) {
      (*errors)[d] += gamma_of(stages + 3.0) * (std::fabs((*totals)[d]) + (*errors)[d]);
    }
    turn(totals, errors);
  }

  Shape shape_;
  std::vector<Ranges> pages_;
  float scale_;
  bool values_turned_;  // as stored in 2 bits
  GuardedArray<float> q_;
  std::vector<GuardedBytes> k_;
  std::vector<GuardedBytes> v_;
  float soft_cap_ = 0.0F;
  std::vector<float> slopes_;
  float bf16_bias_scale_ = 0.0F;  // 0: biases are not rounded
  std::vector<std::int32_t> positions_;
  std::vector<std::int32_t> q_positions_;
};

const AttendRange kWholePage = {0, kKvPageSlots};

// Rows of a prompt in the middle of a page, with a window: each row begins and ends a slot later.
std::vector<Ranges> staircase(std::uint32_t n_rows) {
  std::vector<Ranges> pages(3);
  for (std::uint32_t row = 0; row < n_rows; ++row) {
    const std::uint32_t at = std::min(kKvPageSlots, 20 + row);
    pages[0].push_back({std::min(kKvPageSlots, 7 + row), kKvPageSlots});
    pages[1].push_back(kWholePage);
    pages[2].push_back({0, at});
  }
  return pages;
}

// A problem of every feature at once, with scores that its cap bends and positions that matter.
Problem capped_and_biased(KvType type, SeededRng& rng) {
  Problem problem({3, 4, 24, type, type}, staircase(3), 3.0F, rng);
  problem.set_soft_cap(2.0F);
  problem.set_alibi(rng);
  return problem;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_P(AttendTest, MatchesReferenceForEveryHeadSize) {
  SeededRng rng;
  for (const KvType type : kAllKvTypes) {
    for (const std::uint32_t head_dim :
         {1U, 3U, 7U, 8U, 16U, 17U, 63U, 64U, 65U, 80U, 96U, 100U, 128U, 256U, 1024U}) {
      for (const std::uint32_t n_rows : {1U, 9U}) {
        if (n_rows > 1 && head_dim > longest_head()) continue;
        const Problem problem({n_rows, 3, head_dim, type, type},
                              {{kWholePage}, {kWholePage}, {{0, 5}}}, 1.0F, rng);
        EXPECT_TRUE(problem.within_bound(problem.run(GetParam()), GetParam()))
            << kv_type_name(type) << " " << head_dim << " rows " << n_rows;
      }
    }
  }
}

TEST_P(AttendTest, MatchesReferenceForEveryGroupSize) {
  SeededRng rng;
  for (std::uint32_t n_q = 1; n_q <= 12; ++n_q) {
    for (const std::uint32_t n_rows : {1U, 2U, 5U, 16U}) {
      const Problem problem({n_rows, n_q, 40}, staircase(n_rows), 1.0F, rng);
      EXPECT_TRUE(problem.within_bound(problem.run(GetParam()), GetParam()))
          << n_q << " rows " << n_rows;
    }
  }
}

TEST_P(AttendTest, MatchesReferenceWhenTypesDiffer) {
  SeededRng rng;
  for (const std::uint32_t n_rows : {1U, 30U}) {
    for (const KvType k_type : kAllKvTypes) {
      for (const KvType v_type : kAllKvTypes) {
        const Problem problem({n_rows, 2, 72, k_type, v_type}, {{kWholePage}, {{3, 33}}}, 1.0F,
                              rng);
        EXPECT_TRUE(problem.within_bound(problem.run(GetParam()), GetParam()))
            << kv_type_name(k_type) << " " << kv_type_name(v_type);
      }
    }
  }
}

// Groups of query heads over quantised rows, each with heads whose last vectors, blocks of the
// rotation and groups of scales differ.
TEST_P(AttendTest, MatchesReferenceForEveryGroupOfQuantisedRows) {
  SeededRng rng;
  for (const KvType type : kQuantisedKvTypes) {
    for (const std::uint32_t n_q : {1U, 2U, 4U, 7U, 8U}) {
      for (const std::uint32_t head_dim : {64U, 80U, 96U, 128U}) {
        for (const std::uint32_t n_rows : {1U, 5U}) {
          const Problem problem({n_rows, n_q, head_dim, type, type}, staircase(n_rows), 1.0F, rng);
          EXPECT_TRUE(problem.within_bound(problem.run(GetParam()), GetParam()))
              << kv_type_name(type) << " " << head_dim << " rows " << n_rows << " heads " << n_q;
        }
      }
    }
  }
}

// Codes stand for numbers: rows of f32 that hold them give the same. A tile of bf16, whose bounds
// are wide, is held to the same bits, since it rounds the same numbers.
TEST_P(AttendTest, ReadsQuantisedRowsAsTheirNumbers) {
  SeededRng rng;
  for (const KvType k_type : kQuantisedKvTypes) {
    for (const KvType v_type : kQuantisedKvTypes) {
      for (const std::uint32_t head_dim : {16U, 64U, 80U, 96U, 128U}) {
        const Problem problem({6, 4, head_dim, k_type, v_type}, staircase(6), 1.0F, rng);
        const Problem wide = problem.widened();
        const std::vector<float> got = problem.run(GetParam());
        EXPECT_TRUE(wide.within_bound(got, GetParam()))
            << kv_type_name(k_type) << ' ' << kv_type_name(v_type) << ' ' << head_dim;
        if (GetParam().inputs == AttendInputs::kBf16) {
          EXPECT_TRUE(same_bits(got, wide.run(GetParam())))
              << kv_type_name(k_type) << ' ' << kv_type_name(v_type) << ' ' << head_dim;
        }
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
        if (!sweep_visits(at, 64)) continue;
        const Problem problem({1, 2, 20, type, type}, {{{0, at}}, {{at, 64}}}, q_size, rng);
        EXPECT_TRUE(problem.within_bound(problem.run(GetParam()), GetParam()))
            << at << " " << q_size;
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
        Problem problem({2, 9, 40, type, type}, {{kWholePage}, {{0, last}}}, 4.0F, rng);
        problem.set_soft_cap(soft_cap);
        EXPECT_TRUE(problem.within_bound(problem.run(GetParam()), GetParam()))
            << soft_cap << " " << last;
      }
    }
  }
}

TEST_P(AttendTest, MatchesReferenceWithSlopes) {
  SeededRng rng;
  for (const KvType type : kAllKvTypes) {
    for (const std::uint32_t n_q : {1U, 3U, 9U}) {
      for (const std::uint32_t first : {0U, 1U, 37U, 63U}) {
        for (const float bf16_bias_scale : {0.0F, 0.35F}) {
          Problem problem({3, n_q, 20, type, type}, {{{first, 64}}, {kWholePage}, {{0, first}}},
                          2.0F, rng);
          problem.set_alibi(rng, bf16_bias_scale);
          EXPECT_TRUE(problem.within_bound(problem.run(GetParam()), GetParam()))
              << n_q << " " << first << " " << bf16_bias_scale;
        }
      }
    }
    const Problem both = capped_and_biased(type, rng);
    EXPECT_TRUE(both.within_bound(both.run(GetParam()), GetParam()));
  }
}

// The comparison that accepts the right kernels rejects each wrong one.
TEST(AttendFaultsTest, EveryPlantedFaultIsCaught) {
  for (const KvType type : kAllKvTypes) {
    SeededRng rng;
    const Problem problem = capped_and_biased(type, rng);
    for (const auto& fault : testing_support::planted_attend_faults()) {
      EXPECT_FALSE(problem.within_bound(problem.run(fault.kernel), fault.kernel)) << fault.what;
    }
  }
  EXPECT_GE(testing_support::planted_attend_faults().size(), 10U);
}

TEST(AttendFaultsTest, EveryPlantedFaultOfQuantisedRowsIsCaught) {
  for (const KvType type : kQuantisedKvTypes) {
    SeededRng rng;
    const Problem problem({2, 4, 96, type, type}, staircase(2), 1.0F, rng);
    EXPECT_TRUE(problem.within_bound(problem.run(attend_decode_kernels().back()),
                                     attend_decode_kernels().back()));
    for (const auto& fault : testing_support::planted_quantised_faults()) {
      EXPECT_FALSE(problem.within_bound(problem.run(fault.kernel), fault.kernel))
          << fault.what << ' ' << kv_type_name(type);
    }
  }
  EXPECT_GE(testing_support::planted_quantised_faults().size(), 7U);
}

TEST_P(AttendTest, NothingVisibleGivesZeros) {
  SeededRng rng;
  const Problem problem({2, 3, 24}, {{{0, 0}}, {{64, 64}}}, 1.0F, rng);
  for (const float v : problem.run(GetParam())) EXPECT_EQ(v, 0.0F);
}

// Slots outside the range hold NaN and change nothing, also where another row of the tile sees
// them.
TEST_P(AttendTest, HiddenSlotsChangeNothing) {
  for (const KvType type : kAllKvTypes) {
    for (const std::uint32_t n_rows : {1U, 20U}) {
      SeededRng rng;
      std::vector<Ranges> pages = {Ranges(n_rows, AttendRange{10, 50})};
      Problem problem({n_rows, 2, 40, type, type}, pages, 1.0F, rng);
      const std::vector<float> before = problem.run(GetParam());
      for (std::uint32_t slot = 0; slot < kKvPageSlots; ++slot) {
        if (slot < 10 || slot >= 50) {
          problem.fill_slot(0, slot, kNaN);
        }
      }
      EXPECT_TRUE(same_bits(before, problem.run(GetParam())));
    }
    SeededRng rng;
    Problem problem({2, 2, 40, type, type}, {{{0, 30}, {0, 31}}}, 1.0F, rng);
    problem.fill_slot(0, 30, kNaN);
    const std::vector<float> out = problem.run(GetParam());
    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i >= out.size() / 2);
  }
}

// An infinite K gives scores of -inf, which weigh nothing, and NaN is not hidden.
TEST_P(AttendTest, InfiniteScores) {
  float k[kKvPageSlots];
  float v[kKvPageSlots];
  std::fill_n(k, kKvPageSlots, -kInf);
  std::fill_n(v, kKvPageSlots, 7.0F);
  alignas(64) float q[16] = {1.0F};
  alignas(64) float acc[16];
  AttendState state;
  const AttendRange range = {0, 3};
  const GuardedBytes queries(attend_query_bytes(1, 1));
  const GuardedBytes scratch(attend_scratch_bytes(1, 1));
  GetParam().load_queries({.q = q,
                           .row_stride = 1,
                           .n_rows = 1,
                           .n_q = 1,
                           .head_dim = 1,
                           .scale = 1.0F,
                           .queries = queries.data()});
  const AttendPageArgs args{.queries = queries.data(),
                            .n_rows = 1,
                            .n_q = 1,
                            .head_dim = 1,
                            .k = reinterpret_cast<const std::byte*>(k),
                            .v = reinterpret_cast<const std::byte*>(v),
                            .k_type = KvType::kF32,
                            .v_type = KvType::kF32,
                            .visible = &range,
                            .state = &state,
                            .acc = acc,
                            .acc_stride = 16,
                            .scratch = scratch.data()};
  float out = -1.0F;
  const AttendFinishArgs finish{.state = &state,
                                .acc = acc,
                                .acc_stride = 16,
                                .out = &out,
                                .out_stride = 1,
                                .n_queries = 1,
                                .head_dim = 1};
  attend_begin(&state, acc, 16, 1);
  GetParam().page(args);
  attend_finish(finish);
  EXPECT_EQ(out, 0.0F);
  k[1] = 0.5F;
  GetParam().page(args);
  attend_finish(finish);
  EXPECT_EQ(out, 7.0F);
  k[2] = kNaN;
  GetParam().page(args);
  attend_finish(finish);
  EXPECT_TRUE(std::isnan(out));
}

// A query alone has the bits it has in its tile, whatever the cut: by head, by row, by both.
TEST_P(AttendTest, QueriesDoNotDependOnTheirTile) {
  SeededRng rng;
  constexpr std::uint32_t kRows = 37;
  constexpr std::uint32_t kHeads = 11;
  constexpr std::uint32_t kHeadDim = 72;
  for (const KvType type : kAllKvTypes) {
    for (const bool plain : {true, false}) {
      Problem problem({kRows, kHeads, kHeadDim, type, type}, staircase(kRows), 2.0F, rng);
      if (!plain) {
        problem.set_soft_cap(6.0F);
        problem.set_alibi(rng);
      }
      const std::vector<float> whole = problem.run(GetParam());
      for (const std::uint32_t tile_rows : {1U, 7U, 13U}) {
        for (std::uint32_t row = 0; row < kRows; row += tile_rows) {
          if (!sweep_visits(row / tile_rows, (kRows - 1) / tile_rows)) continue;
          const std::uint32_t n = std::min(tile_rows, kRows - row);
          const std::vector<float> part =
              problem.run(GetParam(), {row, n, 0, kHeads, 0, problem.whole().to});
          EXPECT_EQ(std::memcmp(part.data(), &whole[std::size_t{row} * kHeads * kHeadDim],
                                part.size() * sizeof(float)),
                    0)
              << row << " of tiles of " << tile_rows;
        }
      }
      for (std::uint32_t h = 0; h < kHeads; ++h) {
        if (!sweep_visits(h, kHeads - 1)) continue;
        const std::vector<float> part =
            problem.run(GetParam(), {0, kRows, h, 1, 0, problem.whole().to});
        for (std::uint32_t row = 0; row < kRows; ++row) {
          EXPECT_EQ(std::memcmp(&part[std::size_t{row} * kHeadDim],
                                &whole[(std::size_t{row} * kHeads + h) * kHeadDim],
                                kHeadDim * sizeof(float)),
                    0)
              << row << " head " << h;
        }
      }
    }
  }
}

TEST_P(AttendTest, MergedSpansMatchReference) {
  SeededRng rng;
  const Problem problem({1, 3, 40}, {{kWholePage}, {kWholePage}, {kWholePage}, {{0, 9}}}, 5.0F,
                        rng);
  std::vector<AttendState> low(3);
  std::vector<AttendState> high(3);
  std::vector<float> low_acc(3 * 48);
  std::vector<float> high_acc(3 * 48);
  attend_begin(low.data(), low_acc.data(), 48, 3);
  attend_begin(high.data(), high_acc.data(), 48, 3);
  problem.run(GetParam(), {0, 1, 0, 3, 0, 2}, low.data(), low_acc.data());
  problem.run(GetParam(), {0, 1, 0, 3, 2, 4}, high.data(), high_acc.data());
  attend_merge(low.data(), low_acc.data(), high.data(), high_acc.data(), 48, 3);
  EXPECT_TRUE(problem.within_bound(problem.finish(low, low_acc.data()), GetParam()));
}

TEST_P(AttendTest, MergingAnEmptySpanChangesNothing) {
  SeededRng rng;
  const Problem problem({1, 2, 16}, {{{0, 20}}}, 1.0F, rng);
  std::vector<AttendState> state(2);
  std::vector<AttendState> empty(2);
  std::vector<float> acc(32);
  std::vector<float> empty_acc(32);
  attend_begin(state.data(), acc.data(), 16, 2);
  problem.run(GetParam(), problem.whole(), state.data(), acc.data());
  const std::vector<float> alone = problem.finish(state, acc.data());
  attend_begin(empty.data(), empty_acc.data(), 16, 2);
  attend_merge(state.data(), acc.data(), empty.data(), empty_acc.data(), 16, 2);
  EXPECT_EQ(problem.finish(state, acc.data()), alone);
  attend_merge(empty.data(), empty_acc.data(), state.data(), acc.data(), 16, 2);
  EXPECT_EQ(problem.finish(empty, empty_acc.data()), alone);
}

// Prompt and decode rows share the kernels that the prompt's table holds and may have others.
INSTANTIATE_TEST_SUITE_P(Prompt, AttendTest, testing::ValuesIn(attend_prompt_kernels()),
                         testing_support::KernelName{});

}  // namespace
}  // namespace qsf::kernels
