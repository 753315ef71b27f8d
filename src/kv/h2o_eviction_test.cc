// SPDX-License-Identifier: MIT
//
// Tests of H2oEviction: the choice against a plain sort of all candidates, slots replaced in
// place with the keys and values of their positions, sums that do not stall, what forgetting
// returns to, and contents that a file may bring.

#include "kv/h2o_eviction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kv/testing/h2o_eviction_owner.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing_support::H2oEvictionOwner;

constexpr std::uint32_t kBlock = kEvictionBlock;

H2oEvictionShape shape_of(std::uint32_t window, std::uint32_t heavy, std::uint32_t sinks) {
  return {.kv = {.n_layers = 2,
                 .n_kv_heads = 3,
                 .head_dim = 8,
                 .k_type = KvType::kF32,
                 .v_type = KvType::kF32},
          .kv_size = 1000,
          .options = {.policy = KvPolicy::kH2o, .window = window, .sinks = sinks, .heavy = heavy}};
}

std::vector<std::int32_t> sorted_members(const H2oEviction& heavy, std::uint32_t layer,
                                         std::uint32_t head) {
  const auto members = heavy.members(layer, head);
  std::vector<std::int32_t> sorted(members.begin(), members.begin() + heavy.n_members(layer));
  std::ranges::sort(sorted);
  return sorted;
}

// A number of its own for each layer, head, position and time, some of them equal.
float made_up(std::uint32_t layer, std::uint32_t head, std::uint32_t position, std::uint32_t time) {
  Rng rng(((std::uint64_t{layer} * 7 + head) * 4096 + position) * 64 + time);
  return static_cast<float>(rng.below(40)) * 0.125F;
}

TEST(H2oEvictionTest, StartsEmpty) {
  H2oEvictionOwner heavy(shape_of(100, 70, 4));
  EXPECT_EQ(heavy->scored_end(1), 0U);
  EXPECT_EQ(heavy->n_members(1), 0U);
  EXPECT_THAT(heavy->members(1, 2), testing::Each(-1));
  EXPECT_EQ(heavy->members(1, 2).size(), 70U);
  EXPECT_THAT(heavy->totals(1, 2), testing::Each(0.0F));
  EXPECT_EQ(heavy->recent_totals(1, 2).size(), 164U);
  EXPECT_THAT(heavy->recent_totals(0, 0), testing::Each(0.0F));
  EXPECT_THAT(heavy->block_sums(1, 2).recent, testing::Each(0.0F));
  EXPECT_THAT(heavy->tile_sums(1, 2).heavy, testing::Each(0.0F));
  EXPECT_TRUE(heavy->check(0).ok());
}

TEST(H2oEvictionTest, RefusesShapesThatCannotBe) {
  const auto refusal = [](const H2oEvictionShape& shape) {
    const auto heavy = H2oEviction::create(shape, {});
    EXPECT_FALSE(heavy.has_value());
    return heavy.has_value() ? std::string() : std::string(heavy.error().message());
  };
  EXPECT_THAT(refusal(shape_of(100, 3, 4)), HasSubstr("3 heavy positions for 4 sinks"));
  H2oEvictionShape shape = shape_of(100, 8, 4);
  shape.kv.n_layers = 0;
  EXPECT_THAT(refusal(shape), HasSubstr("0 layers"));
  shape = shape_of(100, 0x7FFFFF00U, 4);
  shape.kv_size = 0x7FFFFFFFU;
  shape.kv.n_layers = shape.kv.n_kv_heads = shape.kv.head_dim = 0x7FFFFFFFU;
  EXPECT_THAT(refusal(shape), HasSubstr("products fit"));
}

// Slots beyond what the window leaves of the context are not planned.
TEST(H2oEvictionTest, RegionFollowsFromWindowAndContext) {
  H2oEvictionShape shape = shape_of(100, 70, 4);
  const std::uint64_t whole = H2oEviction::region_bytes(shape);
  shape.kv_size = 1 << 20;
  EXPECT_EQ(H2oEviction::region_bytes(shape), whole);  // however long the text
  shape.kv_size = 120;
  EXPECT_EQ(shape.n_slots(), 20U);
  EXPECT_LT(H2oEviction::region_bytes(shape), whole);
  shape.kv_size = 90;
  EXPECT_EQ(shape.n_slots(), 0U);
  H2oEvictionOwner all_recent(shape);
  all_recent.advance(0, 90, [](auto...) { return 1.0F; });
  EXPECT_EQ(all_recent->n_members(0), 0U);
  EXPECT_EQ(all_recent->first_recent(0), 0U);
}

// Every choice is that of a sort of all members and of the 64 positions that leave, at windows that
// begin inside pages, and slots of less and more than a page.
TEST(H2oEvictionTest, ChoosesAsASortOfAllCandidates) {
  struct Case {
    std::uint32_t window;
    std::uint32_t heavy;
    std::uint32_t sinks;
  };
  for (const Case& c :
       {Case{64, 16, 4}, {100, 70, 5}, {1, 130, 0}, {130, 4, 4}, {30, 200, 1}, {64, 0, 0}}) {
    SCOPED_TRACE("window " + std::to_string(c.window) + ", heavy " + std::to_string(c.heavy));
    H2oEvictionOwner heavy(shape_of(c.window, c.heavy, c.sinks));
    for (const std::uint32_t layer : {0U, 1U}) {
      std::vector<std::map<std::uint32_t, float>> totals(3);  // of all that was ever seen
      std::vector<std::set<std::uint32_t>> kept(3);
      for (std::uint32_t start = 0, time = 0; start < 12 * kBlock; start += kBlock, ++time) {
        const std::uint32_t end = start + kBlock;
        heavy.advance(layer, end, [&](auto l, auto h, auto p) { return made_up(l, h, p, time); });
        const std::uint32_t first = start > c.window ? start - c.window : 0;
        const std::uint32_t next = end > c.window ? end - c.window : 0;
        ASSERT_EQ(heavy->first_recent(layer), next);
        for (std::uint32_t head = 0; head < 3; ++head) {
          for (const std::uint32_t p : kept[head]) totals[head][p] += made_up(layer, head, p, time);
          for (std::uint32_t p = first; p < end; ++p) {
            totals[head][p] += made_up(layer, head, p, time);
          }
          std::vector<std::pair<double, std::uint32_t>> candidates;  // the best first
          for (std::uint32_t p = first; p < next; ++p) kept[head].insert(p);
          for (const std::uint32_t p : kept[head]) {
            const double queries = std::max(32U, end - p);
            candidates.emplace_back(p < c.sinks ? -1e9 : -totals[head][p] / queries, p);
          }
          std::ranges::sort(candidates);
          candidates.resize(std::min<std::size_t>(candidates.size(), c.heavy));
          kept[head].clear();
          for (const auto& [rank, p] : candidates) kept[head].insert(p);
          EXPECT_EQ(sorted_members(*heavy, layer, head),
                    std::vector<std::int32_t>(kept[head].begin(), kept[head].end()))
              << "layer " << layer << " head " << head << " at " << end;
          const auto members = heavy->members(layer, head);
          for (std::uint32_t m = 0; m < heavy->n_members(layer); ++m) {
            const auto p = static_cast<std::uint32_t>(members[m]);
            EXPECT_EQ(heavy->totals(layer, head)[m], totals[head][p]) << p;
            for (const KvPart part : {KvPart::kKeys, KvPart::kValues}) {
              ASSERT_EQ(heavy.stored(layer, head, part, m),
                        H2oEvictionOwner::number_of(layer, head, part, p))
                  << "slot " << m << " at " << end;
            }
          }
          for (std::uint32_t p = next; p < end; ++p) {
            EXPECT_EQ(heavy->recent_totals(layer, head)[p - next], totals[head][p]);
          }
        }
      }
    }
    EXPECT_TRUE(heavy->check(12 * kBlock).ok());
  }
}

TEST(H2oEvictionTest, EqualRanksAreTakenFromTheSmallerPosition) {
  H2oEvictionOwner heavy(shape_of(64, 6, 2));
  heavy.advance(0, 4 * kBlock, [](auto...) { return 0.0F; });
  EXPECT_EQ(sorted_members(*heavy, 0, 1), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}));
}

// Candidates are those of a sort, with what they received; ranks begin as the mean.
TEST(H2oEvictionTest, ARankerReplacesTheMeanAttention) {
  struct Seen {
    std::size_t n_calls = 0;
    std::vector<std::vector<std::int32_t>> positions;  // of layer 1, head 2
  } seen;
  H2oEvictionShape shape = shape_of(64, 6, 2);
  shape.ranker = {
      [](const H2oCandidates& candidates, std::span<float> ranks, void* user) {
        Seen& to = *static_cast<Seen*>(user);
        ++to.n_calls;
        EXPECT_EQ(candidates.n_kept, 6U);
        EXPECT_EQ(candidates.end % kBlock, 0U);
        ASSERT_EQ(candidates.positions.size(), ranks.size());
        ASSERT_EQ(candidates.sums.size(), ranks.size());
        for (std::size_t i = 0; i < ranks.size(); ++i) {
          const auto p = static_cast<std::uint32_t>(candidates.positions[i]);
          // Every block since its own, of which all rows pay together.
          const std::uint32_t n_paid = candidates.end / kBlock - p / kBlock;
          EXPECT_EQ(candidates.sums[i], 2.0F * static_cast<float>(n_paid)) << p;
          EXPECT_EQ(ranks[i],
                    candidates.sums[i] / static_cast<float>(std::max(32U, candidates.end - p)))
              << p;
          ranks[i] = p % 10 == 7 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(p);
        }
        if (candidates.layer != 1 || candidates.kv_head != 2) return;
        to.positions.emplace_back(candidates.positions.begin(), candidates.positions.end());
      },
      &seen};
  H2oEvictionOwner heavy(shape);
  heavy.advance(1, 3 * kBlock, [](auto...) { return 2.0F; });
  // The newest, but those that end in 7; the sinks stay.
  EXPECT_EQ(sorted_members(*heavy, 1, 2), (std::vector<std::int32_t>{0, 1, 123, 124, 125, 126}));
  EXPECT_EQ(seen.n_calls, 2U * 3U);
  ASSERT_EQ(seen.positions.size(), 2U);
  std::vector<std::int32_t> first(kBlock);
  std::iota(first.begin(), first.end(), 0);
  EXPECT_EQ(seen.positions[0], first);
  EXPECT_EQ(seen.positions[1].size(), 6U + kBlock);
}

TEST(H2oEvictionTest, SinksAreKeptWhateverTheirSums) {
  H2oEvictionOwner heavy(shape_of(64, 6, 3));
  heavy.advance(0, 6 * kBlock, [](auto, auto, auto p) { return p < 3 ? -1.0F : 1.0F + p; });
  const auto kept = sorted_members(*heavy, 0, 2);
  EXPECT_EQ(std::vector(kept.begin(), kept.begin() + 3), (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_GT(kept[3], 2);
}

// A newcomer takes the slot of who is dropped; nobody else moves.
TEST(H2oEvictionTest, SlotsAreReplacedInPlace) {
  H2oEvictionOwner heavy(shape_of(64, 8, 0));
  // Of the first block seven, and 20 before 50; of the second 70 and 80, which outrank 20 and 0.
  const auto paid = [](auto, auto, std::uint32_t p) {
    if (p == 70 || p == 80) return 9.0F;
    if (p == 20 || p == 50) return p == 20 ? 2.0F : 1.0F;
    return p < kBlock && p % 10 == 0 ? 5.0F : p == 1 || p == 3 ? 5.0F : 0.0F;
  };
  heavy.advance(0, 2 * kBlock, paid);
  const auto before = heavy->members(0, 0);
  ASSERT_EQ(std::vector(before.begin(), before.end()),
            (std::vector<std::int32_t>{0, 1, 3, 10, 20, 30, 40, 60}));
  heavy.advance(0, 3 * kBlock, paid);
  const auto after = heavy->members(0, 0);
  EXPECT_EQ(std::vector(after.begin(), after.end()),
            (std::vector<std::int32_t>{70, 1, 3, 10, 80, 30, 40, 60}));
}

TEST(H2oEvictionTest, SumsDoNotStall) {
  H2oEvictionOwner heavy(shape_of(64, 4, 1));
  constexpr std::uint32_t kBlocks = 15;
  std::uint32_t n_rows = 0;
  for (std::uint32_t block = 0; block < kBlocks; ++block) {
    heavy.advance(0, (block + 1) * kBlock - 1, [](auto...) { return 0.0F; });
    // As rows add: one after the other, here more of them than there are.
    while (n_rows < 4096 * (block + 1) / kBlocks) {
      const auto sums = heavy->block_sums(0, 0);
      (heavy->n_members(0) != 0 ? sums.heavy[0] : sums.recent[0]) += 0.5F;
      ++n_rows;
    }
    heavy.advance(0, (block + 1) * kBlock, [](auto...) { return 0.0F; });
  }
  EXPECT_EQ(heavy->members(0, 0)[0], 0);
  EXPECT_EQ(heavy->totals(0, 0)[0], 2048.0F);
}

TEST(H2oEvictionTest, NaNRanksLowest) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  H2oEvictionOwner heavy(shape_of(64, 10, 2));
  heavy.advance(0, 4 * kBlock, [nan](auto, auto, auto p) {
    return p % 2 == 0 ? nan : p % 8 == 1 ? -std::numeric_limits<float>::infinity() : 1.0F;
  });
  ASSERT_EQ(sorted_members(*heavy, 0, 0).size(), 10U);
  for (const std::int32_t p : sorted_members(*heavy, 0, 0)) {
    EXPECT_TRUE(p == 0 || p % 2 == 1) << p;  // a sink, and numbers
  }
  EXPECT_TRUE(heavy->check(0).code() == StatusCode::kCorrupt);  // layer 1 has seen nothing
}

// All that there is to keep.
std::vector<std::byte> contents(H2oEvictionOwner& heavy) {
  std::vector<std::byte> all;
  for (std::uint32_t layer = 0; layer < heavy->shape().kv.n_layers; ++layer) {
    for (std::uint32_t head = 0; head < heavy->shape().kv.n_kv_heads; ++head) {
      for (const ByteSpan part : heavy->saved_parts(layer, head)) {
        all.insert(all.end(), part.begin(), part.end());
      }
    }
  }
  return all;
}

TEST(H2oEvictionTest, ForgettingReturnsToTheOpenBlockOrToTheBeginning) {
  const H2oEvictionShape shape = shape_of(64, 20, 4);
  const auto paid = [](auto l, auto h, auto p) { return made_up(l, h, p, 0); };
  H2oEvictionOwner fresh(shape);
  H2oEvictionOwner closed(shape);  // as far as the block before
  for (const std::uint32_t layer : {0U, 1U}) closed.advance(layer, 3 * kBlock, paid);
  struct Case {
    std::uint32_t keep;
    std::uint32_t want;
  };
  for (const auto& [keep, want] : {Case{3 * kBlock + 30, 3 * kBlock + 30},
                                   {3 * kBlock + 29, 3 * kBlock},
                                   {3 * kBlock, 3 * kBlock},
                                   {3 * kBlock - 1, 0},
                                   {1, 0},
                                   {0, 0}}) {
    H2oEvictionOwner heavy(shape);
    for (const std::uint32_t layer : {0U, 1U}) {
      heavy.advance(layer, 3 * kBlock + 30, paid);
      heavy->block_sums(layer, 1).heavy[3] = 1.0F;
      heavy->tile_sums(layer, 2).recent[5] = 1.0F;
    }
    EXPECT_EQ(heavy->truncate(keep), want);
    EXPECT_TRUE(heavy->check(want).ok());
    if (want % kBlock == 0) {
      EXPECT_EQ(contents(heavy), contents(want == 0 ? fresh : closed));
    }
  }
}

// A pass that was broken off: the layers that it reached are ahead of the others.
TEST(H2oEvictionTest, LayersThatDifferReturnToWhereAllWere) {
  const H2oEvictionShape shape = shape_of(64, 20, 4);
  const auto paid = [](auto...) { return 1.0F; };
  struct Case {
    std::uint32_t first;
    std::uint32_t second;
    std::uint32_t want;
  };
  for (const auto& [first, second, want] : {Case{150, 140, 128}, {192, 140, 0}, {150, 128, 128}}) {
    H2oEvictionOwner heavy(shape);
    heavy.advance(0, first, paid);
    heavy.advance(1, second, paid);
    EXPECT_EQ(heavy->truncate(190), want) << first << " and " << second;
  }
}

TEST(H2oEvictionTest, ContentsCanBeTakenElsewhereAndGoOn) {
  const H2oEvictionShape shape = shape_of(100, 70, 4);
  const auto paid = [](auto l, auto h, auto p) { return made_up(l, h, p, 0); };
  H2oEvictionOwner from(shape);
  H2oEvictionOwner to(shape);
  for (const std::uint32_t layer : {0U, 1U}) from.advance(layer, 500, paid);
  to->resume_at(500);
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    for (std::uint32_t head = 0; head < shape.kv.n_kv_heads; ++head) {
      const auto parts = from->saved_parts(layer, head);
      const auto into = to->saved_parts(layer, head);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        ASSERT_EQ(parts[i].size(), into[i].size());
        std::ranges::copy(parts[i], into[i].begin());
      }
    }
  }
  ASSERT_TRUE(to->check(500).ok());
  EXPECT_EQ(contents(from), contents(to));
  EXPECT_TRUE(std::ranges::equal(to->members(1, 2), from->members(1, 2)));
  EXPECT_EQ(to->scored_end(1), 500U);
}

TEST(H2oEvictionTest, DamagedContentsAreRefused) {
  const H2oEvictionShape shape = shape_of(100, 70, 4);
  const auto message = [&](std::uint32_t n_positions, const auto& damage) {
    H2oEvictionOwner heavy(shape);
    for (const std::uint32_t layer : {0U, 1U}) {
      heavy.advance(layer, 3 * kBlock, [](auto...) { return 1.0F; });
    }
    damage(*heavy);
    const Status status = heavy->check(n_positions);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    heavy->truncate(0);
    EXPECT_TRUE(heavy->check(0).ok());
    return std::string(status.message());
  };
  const auto nothing = [](H2oEviction&) {};
  // 92 positions left the window, 70 of them are kept.
  const auto slot = [](H2oEviction& heavy, std::uint32_t layer, std::uint32_t head,
                       std::uint32_t m) -> std::int32_t& {
    return const_cast<std::int32_t&>(heavy.members(layer, head)[m]);
  };
  EXPECT_THAT(message(3 * kBlock + 1, nothing), HasSubstr("is at position 192: expected 193"));
  EXPECT_THAT(message(1001, nothing), HasSubstr("expected at most 1000"));
  EXPECT_THAT(message(3 * kBlock, [&](H2oEviction& h) { slot(h, 1, 2, 9) = 92; }),
              HasSubstr("layer 1, head 2: slot 9 holds position 92"));
  EXPECT_THAT(message(3 * kBlock, [&](H2oEviction& h) { slot(h, 0, 0, 69) = -1; }),
              HasSubstr("slot 69"));
  EXPECT_THAT(message(3 * kBlock, [&](H2oEviction& h) { slot(h, 0, 1, 9) = slot(h, 0, 1, 10); }),
              HasSubstr("appears twice"));
  const auto replace_sink = [&](H2oEviction& heavy) {
    const auto members = sorted_members(heavy, 0, 1);
    std::int32_t other = 91;
    while (std::ranges::binary_search(members, other)) --other;
    for (std::uint32_t m = 0; m < members.size(); ++m) {
      if (slot(heavy, 0, 1, m) == 3) slot(heavy, 0, 1, m) = other;
    }
  };
  EXPECT_THAT(message(3 * kBlock, replace_sink), HasSubstr("position 3, a sink, is missing"));
  for (const KvPart part : {KvPart::kKeys, KvPart::kValues}) {
    EXPECT_THAT(message(3 * kBlock,
                        [&](H2oEviction& h) {
                          const float nan = std::numeric_limits<float>::quiet_NaN();
                          auto* at = const_cast<std::byte*>(h.kv_block(0, 2, part, 1));
                          std::memcpy(at + 64, &nan, sizeof nan);
                        }),
                HasSubstr("not finite"));
  }
  for (const float value : {-1.0F, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THAT(message(3 * kBlock, [&](H2oEviction& h) { h.block_sums(1, 0).heavy[3] = value; }),
                HasSubstr("as a sum of attention"));
    EXPECT_THAT(message(3 * kBlock, [&](H2oEviction& h) { h.tile_sums(1, 0).recent[3] = value; }),
                HasSubstr("as a sum of attention"));
  }
  // Fewer positions than slots: the others have to be marked.
  H2oEvictionOwner young(shape);
  for (const std::uint32_t layer : {0U, 1U}) {
    young.advance(layer, 2 * kBlock, [](auto...) { return 1.0F; });
  }
  ASSERT_TRUE(young->check(2 * kBlock).ok());
  slot(*young, 0, 0, 28) = 5;
  EXPECT_THAT(young->check(2 * kBlock).message(), HasSubstr("-1 from slot 28"));
}

}  // namespace
}  // namespace qsf
