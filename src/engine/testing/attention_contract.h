// SPDX-License-Identifier: MIT
//
// What a kind of attention promises, for tests that hold models with it to the same: calls, passes
// and cancelling do not show, generated rows and KV windows follow the definition, and texts go on
// from forks, session files and spilled caches with the same bits.

#ifndef QSF_ENGINE_TESTING_ATTENTION_CONTRACT_H_
#define QSF_ENGINE_TESTING_ATTENTION_CONTRACT_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "engine/testing/naive_model_test.h"

namespace qsf::testing_support {

// Requires  a model with more than 110 tokens, of which the options' context has room for all
class AttentionContractTest : public NaiveModelTest {
 protected:
  static constexpr std::size_t kPromptRows = 100;  // not a whole number of pages
  static constexpr std::uint32_t kSinks = 3;
  static constexpr std::uint32_t kWindow = 50;
  double most_difference_ = 1e-5;  // from the definition, of exact products and f32 caches
  bool spills_ = true;             // the model's caches may be spilled

  // What the definition gives, for rows that see what `sees` lets them.
  std::vector<std::vector<double>> wanted(std::uint32_t max_context,
                                          const NaiveModel::Sees& sees = nullptr,
                                          const NaiveModel::Cache* cache = nullptr) const {
    return model_->logits({tokens_.begin(), tokens_.end()}, max_context, {}, sees, nullptr, cache);
  }

  static EngineOptions options_of(std::uint32_t max_context, KvType type) {
    EngineOptions options = exact_options(max_context);
    options.k_type = options.v_type = type;
    return options;
  }

  // The model doubles what a type rounds several times over; of 4 and 2 bits the order of magnitude
  // is left.
  void expect_kv_types(std::uint32_t max_context, double limit_of_two_bits) const {
    const auto want = wanted(max_context);
    for (const auto& [type, limit] :
         {std::pair{KvType::kF32, most_difference_}, std::pair{KvType::kF16, 0.01},
          std::pair{KvType::k8Bit, 0.15}, std::pair{KvType::k4Bit, 0.9},
          std::pair{KvType::k2Bit, limit_of_two_bits}}) {
      const Logits got = run(options_of(max_context, type), {tokens_.size()}, tokens_.size());
      const double error = largest_difference(got, want);
      EXPECT_LT(error, limit) << kv_type_name(type);
      RecordProperty(std::string(kv_type_name(type)), std::to_string(error));
    }
  }

  void expect_calls_do_not_show(EngineOptions options) const {
    const std::size_t n_rows = tokens_.size();
    const Logits want = run(options, {n_rows}, n_rows);
    EXPECT_EQ(run(options, {1, 64, 7}, n_rows), want);
    options.rows_per_pass = 16;
    EXPECT_EQ(run(options, {n_rows}, n_rows), want);
    expect_no_trace_of_cancelling(options, {0, 40}, {1, 4}, want);
    expect_truncation_leaves_no_trace(options, {0, 64, kPromptRows}, want);
  }

  void expect_generated_rows(const EngineOptions& options) const {
    const auto engine = open(options);
    const auto session = engine->create_session().value();
    Logits got;
    prefill(*session, 0, kPromptRows, got);
    for (std::size_t token = kPromptRows; token < tokens_.size(); ++token) {
      step(*session, token, got);
    }
    EXPECT_LT(largest_difference(got, wanted(options.max_context)), most_difference_);
  }

  void expect_window(EngineOptions options) const {
    options.kv_policy = {.policy = KvPolicy::kWindow, .window = kWindow, .sinks = kSinks};
    const auto want =
        wanted(options.max_context, [](std::uint32_t, std::uint32_t, std::size_t i, std::size_t j) {
          return j < kSinks || i - j < kWindow;
        });
    EXPECT_LT(largest_difference(run(options, {tokens_.size()}, tokens_.size()), want),
              most_difference_);
  }

  // With the positions of what the window keeps counted anew.
  void expect_reindexed_window(EngineOptions options) const {
    options.kv_policy = {
        .policy = KvPolicy::kWindow, .window = kWindow, .sinks = kSinks, .rope_reindex = true};
    const NaiveModel::Cache cache = {.sinks = kSinks, .window = kWindow};
    const auto want = wanted(options.max_context, nullptr, &cache);
    EXPECT_LT(largest_difference(run(options, {tokens_.size()}, tokens_.size()), want),
              most_difference_);
  }

  void expect_texts_go_on(EngineOptions options) const {
    const std::string saved = path_ + ".session";
    const std::size_t n_rows = tokens_.size();
    options.n_sequences = 2;
    const Logits want = run(options, {n_rows}, n_rows);
    {
      const auto engine = open(options);
      const auto session = engine->create_session().value();
      Logits got;
      prefill(*session, 0, kPromptRows, got);
      ASSERT_TRUE(session->save(saved).ok());
      const auto fork = session->fork().value();
      prefill(*fork, kPromptRows, n_rows, got);
      EXPECT_EQ(got, want) << "forked";
    }
    if (spills_) options.kv_spill_path = path_ + ".kv";
    const auto engine = open(options);
    const auto session = engine->create_session().value();
    const Status status = session->load(saved);
    std::filesystem::remove(saved);
    if (spills_) std::filesystem::remove(options.kv_spill_path);
    ASSERT_TRUE(status.ok()) << status.message();
    Logits rest;
    prefill(*session, kPromptRows, n_rows, rest);
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), want.begin() + std::ptrdiff_t{kPromptRows},
                           want.end()))
        << "saved";
  }

  // The message of the refusal.
  std::string refusal(const EngineOptions& options) const {
    const auto engine = Engine::open(path_, options);
    EXPECT_FALSE(engine.has_value());
    return engine.has_value() ? std::string() : engine.error().message();
  }
};

}  // namespace qsf::testing_support

#endif  // QSF_ENGINE_TESTING_ATTENTION_CONTRACT_H_
