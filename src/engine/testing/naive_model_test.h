// SPDX-License-Identifier: MIT
//
// For tests that hold an engine to the definition of a small random model, and its logits to the
// promise that calls, passes and cancellations do not show in them.

#ifndef QSF_ENGINE_TESTING_NAIVE_MODEL_TEST_H_
#define QSF_ENGINE_TESTING_NAIVE_MODEL_TEST_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/testing/temporary_path.h"
#include "engine/engine.h"
#include "model/logits_sink.h"
#include "model/testing/naive_model.h"
#include "ops/operator_observer.h"

namespace qsf::testing_support {

inline constexpr std::uint32_t kNaiveVocab = 90;

inline ModelSpec naive_llama(std::uint32_t n_layers, std::uint32_t max_positions) {
  ModelSpec s;
  s.architecture = "llama";
  s.n_layers = n_layers;
  s.hidden = 32;
  s.n_heads = 6;
  s.n_kv_heads = 2;
  s.head_dim = 8;
  s.n_vocab = kNaiveVocab;
  s.max_positions = max_positions;
  s.ffn = 44;
  s.activation = Activation::kSilu;
  s.gated_ffn = true;
  s.norm = NormType::kRmsNorm;
  s.norm_epsilon = 0.01F;
  s.positions = PositionEncoding::kRope;
  return s;
}

// [rows][vocabulary]
using Logits = std::vector<std::vector<float>>;

// Appends the logits of the rows of one call.
class AppendLogits final : public LogitsSink {
 public:
  explicit AppendLogits(Logits& to) : to_(to), first_(to.size()) {}
  void consume(std::uint32_t row, std::uint32_t first_token,
               std::span<const float> logits) noexcept override {
    if (to_.size() <= first_ + row) to_.resize(first_ + row + 1, std::vector<float>(kNaiveVocab));
    std::copy(logits.begin(), logits.end(), to_[first_ + row].begin() + first_token);
  }

 private:
  Logits& to_;
  std::size_t first_;
};

// Cancels at the n-th attention.
class CancelAtAttention final : public OperatorObserver {
 public:
  void pass_began(std::span<const Row>) override {}
  void operator_ended(Backend&, const OperatorEvent& event) override {
    if (event.kind == OperatorKind::kAttend && n_left > 0 && --n_left == 0) engine->cancel();
  }
  int n_left = 0;
  Engine* engine = nullptr;
};

// The largest difference of two tables, as a share of the largest wanted value; infinite where a
// value is no number or the shapes differ.
inline double largest_difference(const Logits& got, const std::vector<std::vector<double>>& want) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (got.size() != want.size()) return kInfinity;
  double largest = 0;
  double worst = 0;
  for (std::size_t row = 0; row < want.size(); ++row) {
    if (got[row].size() != want[row].size()) return kInfinity;
    for (std::size_t i = 0; i < want[row].size(); ++i) {
      const double difference = std::fabs(static_cast<double>(got[row][i]) - want[row][i]);
      if (!std::isfinite(difference)) return kInfinity;
      largest = std::max(largest, std::fabs(want[row][i]));
      worst = std::max(worst, difference);
    }
  }
  return worst == 0 ? 0 : worst / largest;
}

// A file of random weights, removed behind each test, and tokens to compute.
class NaiveModelTest : public testing::Test {
 protected:
  void make_model(const ModelSpec& spec, std::size_t n_tokens) {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string(test->test_suite_name()) + "_" + test->name() + ".qsf";
    std::ranges::replace(name, '/', '_');  // of tests with parameters
    path_ = temporary_path(name);
    model_.emplace(spec, 5);
    ASSERT_TRUE(model_->write(path_).ok());
    tokens_.clear();
    for (std::size_t i = 0; i < n_tokens; ++i) {
      tokens_.push_back(static_cast<TokenId>((i * i * 31 + 7 * i + 3) % kNaiveVocab));
    }
  }
  void TearDown() override { std::filesystem::remove(path_); }

  // Exact products of two threads, keys and values in f32.
  static EngineOptions exact_options(std::uint32_t max_context) {
    EngineOptions options;
    options.n_threads = 2;
    options.max_context = max_context;
    options.k_type = KvType::kF32;
    options.v_type = KvType::kF32;
    options.exact = true;
    return options;
  }
  std::unique_ptr<Engine> open(const EngineOptions& options) const {
    auto engine = Engine::open(path_, options);
    EXPECT_TRUE(engine.has_value()) << engine.error().message();
    return std::move(*engine);
  }
  std::span<const TokenId> tokens(std::size_t first, std::size_t last) const {
    return std::span(tokens_).subspan(first, last - first);
  }
  void prefill(Session& session, std::size_t first, std::size_t last, Logits& logits) const {
    AppendLogits sink(logits);
    const Status status = session.prefill_rows(tokens(first, last), sink);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  void step(Session& session, std::size_t token, Logits& logits) const {
    AppendLogits sink(logits);
    const Status status = session.step(tokens_[token], &sink);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  // The logits of the first n rows, in calls of `sizes` in turns.
  Logits run(const EngineOptions& options, const std::vector<std::size_t>& sizes,
             std::size_t n) const {
    const auto engine = open(options);
    const auto session = engine->create_session().value();
    Logits logits;
    for (std::size_t done = 0, call = 0; done < n; ++call) {
      const std::size_t size = std::min(sizes[call % sizes.size()], n - done);
      prefill(*session, done, done + size, logits);
      done += size;
    }
    return logits;
  }

  // Computes the first n rows after calls of `before` rows that are cancelled at attentions
  // number `cancel_at`, and holds them to `want`.
  void expect_no_trace_of_cancelling(EngineOptions options, const std::vector<std::size_t>& before,
                                     const std::vector<int>& cancel_at, const Logits& want) const {
    CancelAtAttention canceller;
    options.observer = &canceller;
    const auto engine = open(options);
    canceller.engine = engine.get();
    for (const std::size_t n_before : before) {
      for (const int n : cancel_at) {
        const auto session = engine->create_session().value();
        Logits got;
        if (n_before > 0) prefill(*session, 0, n_before, got);
        canceller.n_left = n;
        Logits ignored;
        AppendLogits sink(ignored);
        EXPECT_EQ(session->prefill_rows(tokens(n_before, want.size()), sink).code(),
                  StatusCode::kCancelled);
        EXPECT_EQ(session->length(), n_before);
        prefill(*session, n_before, want.size(), got);
        EXPECT_EQ(got, want) << n_before << " rows before, cancelled at attention " << n;
      }
    }
  }
  // Computes all rows of `want`, discards those behind each of `keep`, and computes them again.
  void expect_truncation_leaves_no_trace(const EngineOptions& options,
                                         const std::vector<std::size_t>& keep,
                                         const Logits& want) const {
    const auto engine = open(options);
    const auto session = engine->create_session().value();
    for (const std::size_t n_kept : keep) {
      Logits all;
      prefill(*session, session->length(), want.size(), all);
      ASSERT_EQ(session->longest_kept(n_kept), n_kept);
      ASSERT_TRUE(session->truncate(n_kept).ok());
      ASSERT_EQ(session->length(), n_kept);
      Logits rest;
      prefill(*session, n_kept, want.size(), rest);
      EXPECT_TRUE(std::equal(rest.begin(), rest.end(), want.begin() + static_cast<long>(n_kept),
                             want.end()))
          << "kept " << n_kept;
      ASSERT_TRUE(session->truncate(0).ok());
    }
  }

  std::string path_;
  std::optional<NaiveModel> model_;
  std::vector<TokenId> tokens_;
};

}  // namespace qsf::testing_support

#endif  // QSF_ENGINE_TESTING_NAIVE_MODEL_TEST_H_
