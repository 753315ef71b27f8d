// SPDX-License-Identifier: MIT
//
// Tests of WeightPager with a mixture of experts: whatever the memory, passes get the right bytes
// of the experts that they name, read what is missing once, and nothing else.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "format/tensor_rules.h"
#include "stream/testing/pager_files.h"
#include "stream/testing/pager_reference.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing_support::open_pager;
using testing_support::open_reader;
using testing_support::OpenedPager;
using testing_support::OpenOptions;
using testing_support::pager_file_path;
using testing_support::PagerFile;
using testing_support::TileReference;
using testing_support::Watchdog;

constexpr std::uint32_t kPagedLayers = 4;
constexpr std::uint32_t kPagedExperts = 9;

class PagerExpertsTest : public testing::Test {
 protected:
  static std::uint64_t everything(const Residency& whole) {
    return whole.region_bytes + whole.mapped_bytes;
  }
  Residency whole(bool mapped = false) const {
    return WeightPager::plan(reader_, {.mapped = mapped}).value();
  }
  std::vector<TileId> tiles_of(const WeightPager& pager, std::uint32_t layer, bool experts,
                               std::uint32_t expert = 0) const {
    std::vector<TileId> ids;
    const std::vector<TensorInfo>& tensors = reader_.layer(layer).tensors;
    for (std::uint32_t t = 0; t < tensors.size(); ++t) {
      if (is_expert(tensors[t].kind) != experts || tensors[t].expert != expert) continue;
      const auto of_tensor = pager.tiles_of(layer_section(layer), t);
      ids.insert(ids.end(), of_tensor.begin(), of_tensor.end());
    }
    std::ranges::sort(ids);
    return ids;
  }
  // Stored pages of an expert.
  std::uint64_t expert_bytes() const {
    std::uint64_t bytes = 0;
    const SectionDirectory& directory = reader_.layer(0);
    for (const TileInfo& tile : directory.tiles) {
      if (tile.tensor == kOneRowTensors) continue;
      const TensorInfo& tensor = directory.tensors[tile.tensor];
      if (!is_expert(tensor.kind) || tensor.expert != 0) continue;
      bytes += align_up(tile.stored_bytes, kTileAlign);
    }
    return bytes;
  }
  void take(WeightPager& pager, TileId id) const {
    const auto tile = pager.acquire(id);
    ASSERT_TRUE(tile.has_value()) << tile.error().message();
    reference_.expect_tile(id, *tile);
    pager.release(id);
  }
  // A pass as a decoder makes it.
  void run_pass(WeightPager& pager, const std::vector<std::vector<std::uint32_t>>& chosen,
                float heat = 1.0F) const {
    pager.start_pass(pager.plan_of(0, kPagedLayers, /*with_head=*/false));
    for (std::uint32_t layer = 0; layer < kPagedLayers; ++layer) {
      for (const TileId id : tiles_of(pager, layer, false)) take(pager, id);
      std::vector<ExpertUse> uses;
      for (const std::uint32_t expert : chosen[layer]) {
        uses.push_back({.expert = expert, .heat = heat, .generates = heat != 0.0F});
      }
      pager.want_experts(layer_section(layer), uses);
      for (const ExpertUse& use : uses) {
        for (const TileId id : tiles_of(pager, layer, true, use.expert)) take(pager, id);
        pager.expert_done(layer_section(layer), use.expert);
      }
    }
  }
  static std::vector<std::vector<std::uint32_t>> all_chosen() {
    std::vector<std::uint32_t> all(kPagedExperts);
    std::iota(all.begin(), all.end(), 0U);
    return {kPagedLayers, all};
  }
  static std::vector<std::vector<std::uint32_t>> random_choice(Rng& rng) {
    std::vector<std::vector<std::uint32_t>> chosen(kPagedLayers);
    for (auto& experts : chosen) {
      for (std::uint32_t expert = 0; expert < kPagedExperts; ++expert) {
        if (rng.below(3) == 0) experts.push_back(expert);
      }
    }
    return chosen;
  }

  const Watchdog watchdog_{240};
  const PagerFile file_{
      pager_file_path(), {}, {.n_layers = kPagedLayers, .n_experts = kPagedExperts}};
  const QsfReader reader_ = open_reader(file_.path());
  const TileReference reference_{reader_};
};

TEST_F(PagerExpertsTest, MemoryGoesToWhatEveryTokenReadsAndThenToExperts) {
  const Residency all = whole();
  EXPECT_TRUE(all.everything_resident);
  EXPECT_EQ(all.n_experts, kPagedLayers * kPagedExperts);
  EXPECT_EQ(all.n_expert_slots, all.n_experts);
  EXPECT_EQ(all.expert_read_bytes(), 0U);
  EXPECT_EQ(WeightPager::plan(reader_, {.bytes = all.least_bytes - 1}).error().code(),
            StatusCode::kOutOfBudget);
  std::uint32_t n_slots = 0;
  bool streamed = true;
  for (std::uint64_t limit = all.least_bytes; limit < everything(all); limit += 4096) {
    const Residency r = WeightPager::plan(reader_, {.bytes = limit}).value();
    ASSERT_LE(r.region_bytes, limit);
    ASSERT_GE(r.n_expert_slots, kLeastExpertSlots);
    ASSERT_GE(r.n_expert_slots, n_slots);
    if (r.streamed_bytes != 0) {
      ASSERT_TRUE(streamed);
      ASSERT_EQ(r.n_expert_slots, kLeastExpertSlots);
    } else {
      ASSERT_EQ(r.ring_bytes, 0U);
      // No room is left for another expert.
      ASSERT_TRUE(r.region_bytes + expert_bytes() > limit || r.n_expert_slots == r.n_experts);
    }
    streamed = r.streamed_bytes != 0;
    n_slots = r.n_expert_slots;
  }
  EXPECT_FALSE(streamed);
  EXPECT_GT(n_slots, 30U);
}

TEST_F(PagerExpertsTest, EveryBudgetGivesTheRightBytes) {
  struct Case {
    bool mapped;
    unsigned n_queues;
  };
  for (const Case& c : {Case{false, 1}, Case{false, 3}, Case{true, 2}}) {
    const Residency all =
        WeightPager::plan(reader_, {.n_queues = c.n_queues, .mapped = c.mapped}).value();
    const std::uint64_t span = everything(all) - all.least_bytes;
    for (const std::uint64_t limit :
         {all.least_bytes, all.least_bytes + span / 9, all.least_bytes + span / 3,
          everything(all) - 1, everything(all)}) {
      const OpenOptions options = {
          .limits = {.bytes = limit, .n_queues = c.n_queues, .mapped = c.mapped},
          .device = {
              .path = c.mapped ? ReadPath::kMmap : ReadPath::kPread, .direct = false, .depth = 2}};
      auto opened = open_pager(reader_, options);
      ASSERT_TRUE(opened.has_value()) << opened.error().message();
      Rng rng(3);
      for (int pass = 0; pass < 12; ++pass) {
        run_pass(*opened->pager, random_choice(rng), pass % 4 == 1 ? 0.0F : 1.0F);
      }
      run_pass(*opened->pager, all_chosen(), 0.0F);
      run_pass(*opened->pager, {{8}, {}, {0, 8}, {}});
    }
  }
}

TEST_F(PagerExpertsTest, CompressedExpertsGiveTheRightBytes) {
  const PagerFile file(file_.path() + ".z",
                       {{QuantType::kQ4, 64}, Layout::kRowMajor, Compression::kZstd},
                       {.n_layers = kPagedLayers, .n_experts = kPagedExperts});
  const QsfReader reader = open_reader(file.path());
  const TileReference reference(reader);
  const std::uint64_t least = WeightPager::plan(reader, {}).value().least_bytes;
  auto opened = open_pager(reader, {.limits = {.bytes = least}}).value();
  for (TileId id = 0; id < opened.pager->n_tiles(); ++id) {
    const auto tile = opened.pager->acquire(id);
    ASSERT_TRUE(tile.has_value()) << tile.error().message();
    reference.expect_tile(id, *tile);
    opened.pager->release(id);
  }
}

// What is in memory is not read, what is missing is read once, as many experts as the memory has.
TEST_F(PagerExpertsTest, ReadsWhatIsMissingAndNothingElse) {
  const Residency all = whole();
  const std::uint64_t limit = all.least_bytes + (everything(all) - all.least_bytes) / 2;
  auto opened = open_pager(reader_, {.limits = {.bytes = limit}}).value();
  WeightPager& pager = *opened.pager;
  ASSERT_GT(pager.residency().n_expert_slots, 8U);
  ASSERT_EQ(pager.residency().streamed_bytes, 0U);
  ASSERT_TRUE(pager.load().ok());
  const std::vector<std::vector<std::uint32_t>> few = {{1, 4}, {0, 8}, {2, 3}, {5, 6}};
  run_pass(pager, few);
  EXPECT_EQ(pager.stats().experts_missed, 8U);
  EXPECT_EQ(pager.stats().expert_bytes_read, 8 * expert_bytes());
  for (int pass = 0; pass < 5; ++pass) run_pass(pager, few);
  EXPECT_EQ(pager.stats().experts_missed, 8U);
  EXPECT_EQ(pager.stats().experts_used, 48U);
  EXPECT_EQ(pager.stats().expert_bytes_read, 8 * expert_bytes());
  // A long prompt reads every expert at most once, and most of those of before are still there.
  run_pass(pager, all_chosen(), 0.0F);
  EXPECT_GE(pager.stats().expert_bytes_read, kPagedLayers * kPagedExperts * expert_bytes());
  EXPECT_LE(pager.stats().expert_bytes_read, (kPagedLayers * kPagedExperts + 3) * expert_bytes());
  EXPECT_EQ(pager.stats().experts_prompted, kPagedLayers * kPagedExperts);
  run_pass(pager, few);
  EXPECT_LE(pager.stats().experts_missed, 11U);
}

TEST_F(PagerExpertsTest, WantedExpertsAreReadBeforeTheyAreAskedFor) {
  const Residency all = whole();
  const std::uint64_t limit = all.least_bytes + (everything(all) - all.least_bytes) / 2;
  auto opened = open_pager(reader_, {.limits = {.bytes = limit}}).value();
  WeightPager& pager = *opened.pager;
  ASSERT_TRUE(pager.load().ok());
  pager.start_pass(pager.plan_of(0, kPagedLayers, false));
  const std::vector<ExpertUse> uses = {{1, 1.0F, true}, {4, 1.0F, true}, {8, 1.0F, true}};
  pager.want_experts(layer_section(2), uses);
  while (pager.stats().expert_bytes_read < 3 * expert_bytes()) {  // the watchdog ends it otherwise
    std::this_thread::yield();
  }
  for (const ExpertUse& use : uses) {
    for (const TileId id : tiles_of(pager, 2, true, use.expert)) take(pager, id);
  }
  EXPECT_EQ(pager.stats().expert_bytes_read, 3 * expert_bytes());
}

TEST_F(PagerExpertsTest, GuessedExpertsAreReadAndCountAsMissing) {
  const Residency all = whole();
  const std::uint64_t limit = all.least_bytes + (everything(all) - all.least_bytes) / 2;
  auto opened = open_pager(reader_, {.limits = {.bytes = limit}}).value();
  WeightPager& pager = *opened.pager;
  ASSERT_TRUE(pager.load().ok());
  run_pass(pager, {{0}, {0}, {0}, {0}});
  const std::uint64_t before = pager.stats().expert_bytes_read;
  pager.start_pass(pager.plan_of(0, kPagedLayers, false));
  ASSERT_TRUE(pager.wants_guesses(layer_section(2)));
  const std::vector<ExpertGuess> guesses = {{7, 0}, {0, 1}, {3, 1}};
  pager.guess_experts(layer_section(2), guesses);
  while (pager.stats().expert_bytes_read < before + 2 * expert_bytes()) {
    std::this_thread::yield();  // the watchdog ends it otherwise
  }
  const std::vector<ExpertUse> uses = {{0, 1.0F, true}, {5, 1.0F, true}, {7, 1.0F, true}};
  pager.want_experts(layer_section(2), uses);
  for (const ExpertUse& use : uses) {
    for (const TileId id : tiles_of(pager, 2, true, use.expert)) take(pager, id);
    pager.expert_done(layer_section(2), use.expert);
  }
  const PagerStats stats = pager.stats();
  EXPECT_EQ(stats.expert_bytes_read, before + 3 * expert_bytes());
  EXPECT_EQ(stats.experts_missed, 4U + 2U);  // 0 was there
  EXPECT_EQ(stats.experts_foreseen, 1U);
  EXPECT_EQ(stats.experts_prefetched, 2U);
}

// A guess that did not come true is the first to leave, in the same pass already.
TEST_F(PagerExpertsTest, AWrongGuessLeavesBeforeWhatIsUsed) {
  const Residency all = whole();
  const std::uint64_t limit = all.least_bytes + (everything(all) - all.least_bytes) / 2;
  auto opened = open_pager(reader_, {.limits = {.bytes = limit}}).value();
  WeightPager& pager = *opened.pager;
  ASSERT_TRUE(pager.load().ok());
  // As many as there is room for, and expert 8 of no layer.
  const std::uint32_t n_slots = pager.residency().n_expert_slots;
  ASSERT_LE(n_slots, kPagedLayers * (kPagedExperts - 1));
  std::vector<std::vector<std::uint32_t>> used(kPagedLayers);
  for (std::uint32_t i = 0; i < n_slots; ++i) used[i % kPagedLayers].push_back(i / kPagedLayers);
  for (int pass = 0; pass < 20; ++pass) run_pass(pager, used);
  const PagerStats before = pager.stats();
  pager.start_pass(pager.plan_of(0, kPagedLayers, false));
  const std::vector<ExpertGuess> wrong = {{8, 0}};
  pager.guess_experts(layer_section(1), wrong);
  while (pager.stats().expert_bytes_read < before.expert_bytes_read + expert_bytes()) {
    std::this_thread::yield();  // the watchdog ends it otherwise
  }
  for (const TileId id : tiles_of(pager, 1, true, 8)) take(pager, id);  // none is being read now
  const auto use = [&](std::uint32_t layer, std::uint32_t expert) {
    const std::vector<ExpertUse> one = {{expert, 1.0F, true}};
    pager.want_experts(layer_section(layer), one);
    for (const TileId id : tiles_of(pager, layer, true, expert)) take(pager, id);
    pager.expert_done(layer_section(layer), expert);
  };
  use(1, 0);
  use(2, 8);
  run_pass(pager, used);
  EXPECT_EQ(pager.stats().experts_prefetched - before.experts_prefetched, 1U);
  // That of layer 2, and the one whose place the guess took.
  EXPECT_EQ(pager.stats().experts_missed - before.experts_missed, 2U);
}

// Right, wrong and late guesses in caches of every size: the bytes stay right, and passes end.
TEST_F(PagerExpertsTest, GuessesChangeNoBytes) {
  const Residency all = whole();
  const std::uint64_t span = everything(all) - all.least_bytes;
  for (const std::uint64_t limit : {all.least_bytes, all.least_bytes + span / 9,
                                    all.least_bytes + span / 2, all.least_bytes + span * 2 / 3}) {
    auto opened = open_pager(reader_, {.limits = {.bytes = limit}}).value();
    WeightPager& pager = *opened.pager;
    Rng rng(6);
    for (int pass = 0; pass < 40; ++pass) {
      const std::vector<std::vector<std::uint32_t>> chosen = random_choice(rng);
      pager.start_pass(pager.plan_of(0, kPagedLayers, /*with_head=*/false));
      for (std::uint32_t layer = 0; layer < kPagedLayers; ++layer) {
        for (const TileId id : tiles_of(pager, layer, false)) take(pager, id);
        std::vector<ExpertUse> uses;
        for (const std::uint32_t expert : chosen[layer]) uses.push_back({expert, 1.0F, true});
        pager.want_experts(layer_section(layer), uses);
        if (layer + 1 < kPagedLayers) {
          // Most are right; a wrong one joins some.
          std::vector<ExpertGuess> guesses;
          for (const std::uint32_t expert : chosen[layer + 1]) {
            if (guesses.size() < 2 && rng.below(8) != 0) guesses.push_back({expert, 0});
          }
          if (guesses.size() < 2) {
            const std::uint32_t any = rng.below(kPagedExperts);
            const bool known =
                std::ranges::find(guesses, any, &ExpertGuess::expert) != guesses.end();
            if (!known) guesses.push_back({any, 1});
          }
          pager.guess_experts(layer_section(layer + 1), guesses);
        }
        for (const ExpertUse& use : uses) {
          for (const TileId id : tiles_of(pager, layer, true, use.expert)) take(pager, id);
          pager.expert_done(layer_section(layer), use.expert);
        }
      }
    }
    if (pager.residency().streamed_bytes == 0) {
      EXPECT_GT(pager.stats().experts_foreseen, 0U);
    }
  }
}

TEST_F(PagerExpertsTest, NothingIsGuessedWhereItDoesNotHelp) {
  const Residency all = whole();
  auto resident = open_pager(reader_, {}).value();
  ASSERT_TRUE(resident.pager->load().ok());
  EXPECT_FALSE(resident.pager->wants_guesses(layer_section(1)));
  auto streamed = open_pager(reader_, {.limits = {.bytes = all.least_bytes}}).value();
  ASSERT_GT(streamed.pager->residency().streamed_bytes, 0U);
  EXPECT_FALSE(streamed.pager->wants_guesses(layer_section(1)));
}

TEST_F(PagerExpertsTest, ThreeExpertsInMemoryAreEnough) {
  auto opened = open_pager(reader_, {.limits = {.bytes = whole().least_bytes}}).value();
  WeightPager& pager = *opened.pager;
  ASSERT_EQ(pager.residency().n_expert_slots, 3U);
  for (int pass = 0; pass < 3; ++pass) run_pass(pager, all_chosen(), 0.0F);
  run_pass(pager, {{0}, {0}, {0}, {6, 7, 8}});
  run_pass(pager, {{0}, {0}, {0}, {1, 6, 7, 8}});  // the first is missing, the others are there
  run_pass(pager, {{0}, {0}, {0}, {1, 2, 6, 7, 8}}, 0.0F);
}

TEST_F(PagerExpertsTest, TilesMayBeAskedForInAnyOrder) {
  const Residency all = whole();
  for (const std::uint64_t limit : {all.least_bytes, everything(all) - 1, everything(all)}) {
    auto opened = open_pager(reader_, {.limits = {.bytes = limit}}).value();
    WeightPager& pager = *opened.pager;
    pager.start_pass(pager.plan_of(0, kPagedLayers, true));
    Rng rng(4);
    const TileId first = pager.tiles_of(layer_section(0), 1).front();  // behind the embeddings
    for (int i = 0; i < 400; ++i) take(pager, first + rng.below(pager.n_tiles() - first));
  }
}

TEST_F(PagerExpertsTest, ExpertsAllInUseAreAnError) {
  auto opened = open_pager(reader_, {.limits = {.bytes = whole().least_bytes}}).value();
  WeightPager& pager = *opened.pager;
  std::vector<TileId> held;
  for (const std::uint32_t expert : {0U, 1U, 2U}) {
    held.push_back(tiles_of(pager, 0, true, expert).front());
    ASSERT_TRUE(pager.acquire(held.back()).has_value());
  }
  const auto none = pager.acquire(tiles_of(pager, 0, true, 3).front());
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code(), StatusCode::kOutOfBudget);
  EXPECT_THAT(none.error().message(), HasSubstr("the 3 experts in memory are all in use"));
  for (const TileId id : held) pager.release(id);
  take(pager, tiles_of(pager, 0, true, 3).front());
}

TEST_F(PagerExpertsTest, MemoryGivenBackMakesResidentExpertsComeAndGo) {
  for (const bool loads : {true, false}) {
    const Residency all = whole();
    auto opened = open_pager(reader_, {}).value();
    WeightPager& pager = *opened.pager;
    if (loads) {
      ASSERT_TRUE(pager.load().ok());
    }
    run_pass(pager, all_chosen());
    const std::uint64_t read = pager.stats().expert_bytes_read;
    EXPECT_EQ(read, kPagedLayers * kPagedExperts * expert_bytes());
    const std::uint64_t dropped = pager.drop_residents(10 * expert_bytes());
    EXPECT_EQ(dropped, 10 * expert_bytes());
    run_pass(pager, all_chosen());
    const std::uint64_t again = pager.stats().expert_bytes_read - read;
    EXPECT_GE(again, 10 * expert_bytes());
    EXPECT_GE(pager.drop_residents(UINT64_MAX), 20 * expert_bytes());
    Rng rng(8);
    for (int pass = 0; pass < 6; ++pass) run_pass(pager, random_choice(rng));
    run_pass(pager, all_chosen(), 0.0F);
    EXPECT_LE(pager.drop_residents(UINT64_MAX), all.pinned_bytes / 4);
    run_pass(pager, all_chosen());
  }
}

// Some tiles of a compressed file are smaller, others are stored as they are, expert by expert.
TEST_F(PagerExpertsTest, MappedExpertsShareTheirSlots) {
  const PagerFile file(file_.path() + ".lz4",
                       {{QuantType::kF32, 4}, Layout::kInterleaved, Compression::kLz4},
                       {.n_layers = kPagedLayers, .n_experts = kPagedExperts, .noisy_experts = 4});
  const QsfReader reader = open_reader(file.path());
  const TileReference reference(reader);
  const OpenOptions options = {.limits = {.mapped = true},
                               .device = {.path = ReadPath::kMmap, .direct = false, .depth = 2}};
  auto opened = open_pager(reader, options).value();
  WeightPager& pager = *opened.pager;
  ASSERT_TRUE(pager.load().ok());
  for (int i = 0; i < 10; ++i) ASSERT_GT(pager.drop_residents(1), 0U);  // a slot each
  Rng rng(2);
  const TileId first = pager.tiles_of(layer_section(0), 1).front();
  for (int i = 0; i < 600; ++i) {
    const TileId id = first + rng.below(pager.n_tiles() - first);
    const auto tile = pager.acquire(id);
    ASSERT_TRUE(tile.has_value()) << tile.error().message();
    reference.expect_tile(id, *tile);
    pager.release(id);
  }
}

TEST_F(PagerExpertsTest, AfterACancelledPassTheNextOneRuns) {
  std::atomic<bool> cancel = false;
  auto opened =
      open_pager(reader_, {.limits = {.bytes = whole().least_bytes}, .cancel = &cancel}).value();
  WeightPager& pager = *opened.pager;
  pager.start_pass(pager.plan_of(0, kPagedLayers, false));
  std::vector<ExpertUse> uses;
  for (std::uint32_t expert = 0; expert < kPagedExperts; ++expert)
    uses.push_back({expert, 1.0F, true});
  pager.want_experts(layer_section(2), uses);
  const TileId first = tiles_of(pager, 2, true, 0).front();
  ASSERT_TRUE(pager.acquire(first).has_value());
  cancel = true;
  const auto ended = pager.acquire(tiles_of(pager, 3, true, 5).front());
  if (!ended.has_value()) {
    EXPECT_EQ(ended.error().code(), StatusCode::kCancelled);
  } else {
    pager.release(ended->id);
  }
  pager.release(first);
  cancel = false;
  run_pass(pager, all_chosen());
}

}  // namespace
}  // namespace qsf
