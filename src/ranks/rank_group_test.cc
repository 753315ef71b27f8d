// SPDX-License-Identifier: MIT
//
// Groups of ranks in threads: what they agree on, and what they refuse.

#include "ranks/rank_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/testing/step_members.h"
#include "ranks/opening.h"
#include "ranks/testing/local_links.h"

namespace qsf {
namespace {

using namespace testing_support;
using testing::HasSubstr;

// Ranks above 0 in threads of their own.
class Group {
 public:
  explicit Group(unsigned n_ranks) : links_(LocalLink::create(n_ranks)), first_(*links_[0]) {
    for (unsigned rank = 1; rank < n_ranks; ++rank) {
      threads_.emplace_back([this, rank] {
        const Status status = RankGroup(*links_[rank]).serve();
        EXPECT_TRUE(status.ok()) << status.message();
      });
    }
  }
  ~Group() {
    EXPECT_TRUE(first_.end().ok());
    for (std::thread& thread : threads_) thread.join();
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  RankGroup& first() { return first_; }
  LocalLink& link(unsigned rank) { return *links_[rank]; }

 private:
  LocalLink::Group links_;
  RankGroup first_;
  std::vector<std::thread> threads_;
};

EngineOptions group_options() {
  EngineOptions options = step_options(1, 24);
  options.n_threads = 1;
  return options;
}

std::string text_of(Engine& engine) {
  Member member(engine, 1);
  Generation* const generation = member.generation.get();
  run_to_end(engine, {&generation, 1});
  return member.text;
}

TEST(RankGroupTest, OpensModelsOneAfterAnother) {
  const std::string expected = text_of(*open_bundled(group_options()));
  Group group(3);
  for (const std::uint32_t window : {1U, 2U}) {
    auto ranked = group.first().open(kBundled, group_options(), {.window = window, .force = true});
    ASSERT_TRUE(ranked.has_value()) << ranked.error().message();
    EXPECT_EQ(text_of(*ranked->engine), expected);
    EXPECT_FALSE(group.link(0).works());  // else a link that watches would end an idle run
  }
}

TEST(RankGroupTest, RunsOneModelAtATime) {
  Group group(2);
  const auto first = group.first().open(kBundled, group_options(), {.force = true});
  ASSERT_TRUE(first.has_value());
  const auto second = group.first().open(kBundled, group_options(), {.force = true});
  EXPECT_THAT(second.error().message(), HasSubstr("one model at a time"));
}

TEST(RankGroupTest, TakesTheLongestPassThatAllCanHave) {
  EngineOptions options = group_options();
  options.max_context = 0;
  options.rows_per_pass = 0;
  Group group(2);
  const auto ranked = group.first().open(kBundled, options, {.force = true});
  ASSERT_TRUE(ranked.has_value()) << ranked.error().message();
  EXPECT_GT(ranked->engine->plan().rows_per_pass, 0U);
  // Part by part in memory: rows travel once to each rank.
  EXPECT_EQ(ranked->ring->cut().window_ends.size(), 1U);
}

TEST(RankGroupTest, RefusesAModelThatOneProcessRunsFaster) {
  Group group(2);
  const auto refused = group.first().open(kBundled, group_options(), {});
  EXPECT_THAT(refused.error().message(), HasSubstr("is faster than 2 ranks"));
}

TEST(RankGroupTest, RefusesRanksWithoutLayers) {
  Group group(4);
  const auto refused = group.first().open(kBundled, group_options(), {.window = 3, .force = true});
  EXPECT_THAT(refused.error().message(), HasSubstr("so rank 3 would have none"));
  const auto large = group.first().open(kBundled, group_options(), {.window = 9, .force = true});
  EXPECT_THAT(large.error().message(), HasSubstr("windows of 9 layers: the model has 6"));
}

TEST(RankGroupTest, GoesOnAfterAModelThatCannotBeOpened) {
  Group group(2);
  EngineOptions options = group_options();
  options.ram_budget_bytes = 20'000'000;  // the link alone takes 17 MiB
  EXPECT_EQ(group.first().open(kBundled, options, {.force = true}).error().code(),
            StatusCode::kOutOfBudget);
  EXPECT_EQ(group.first().open("/nowhere.qsf", group_options(), {.force = true}).error().code(),
            StatusCode::kNotFound);
  EXPECT_TRUE(group.first().open(kBundled, group_options(), {.force = true}).has_value());
}

TEST(RankGroupTest, RefusesWhatRanksCannotShare) {
  Group group(2);
  EngineOptions options = group_options();
  options.layer_hook.see = [](const LayerView&, void*) {};
  EXPECT_THAT(group.first().open(kBundled, options, {.force = true}).error().message(),
              HasSubstr("layer hook: not with several ranks"));
}

TEST(OpeningTest, GoesThroughBytes) {
  Opening opening;
  opening.version = "1.2";
  opening.path = "model.qsf";
  opening.file_bytes = 1ULL << 33;
  opening.file_crc = 7;
  opening.options.max_context = 99;
  opening.options.k_type = KvType::k4Bit;
  opening.options.quality = 0.5F;
  opening.options.adapters = {{.path = "a", .name = "b"}};
  opening.plan = interleave(5, 2, 2);
  opening.ring_bytes = 1ULL << 34;
  const std::vector<std::byte> bytes = encode_opening(opening);
  const Opening read = decode_opening(bytes).value();
  EXPECT_EQ(read.version, opening.version);
  EXPECT_EQ(read.path, opening.path);
  EXPECT_EQ(read.file_bytes, opening.file_bytes);
  EXPECT_EQ(read.file_crc, opening.file_crc);
  EXPECT_EQ(read.options.max_context, 99U);
  EXPECT_EQ(read.options.k_type, KvType::k4Bit);
  EXPECT_EQ(read.options.quality, 0.5F);
  ASSERT_EQ(read.options.adapters.size(), 1U);
  EXPECT_EQ(read.options.adapters[0].name, "b");
  EXPECT_EQ(read.plan, opening.plan);
  EXPECT_EQ(read.ring_bytes, opening.ring_bytes);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_EQ(decode_opening(ByteSpan(bytes).first(n)).error().code(), StatusCode::kCorrupt) << n;
  }
}

}  // namespace
}  // namespace qsf
