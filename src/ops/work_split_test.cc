// SPDX-License-Identifier: MIT
//
// Whatever the tiles and the number of workers, the items of a product cover every output once,
// and are even enough.

#include "ops/work_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>
#include <utility>
#include <vector>

namespace qsf {
namespace {

constexpr std::uint32_t kTileCols = 2048;
constexpr BlockFormat kTileFormat = {QuantType::kQ4, 64};

WeightTile tile(std::uint32_t target, std::uint32_t first_row, std::uint32_t n_rows) {
  return {.bytes = nullptr,
          .format = kTileFormat,
          .group_bytes = group_bytes(kTileFormat, kTileCols),
          .first_row = first_row,
          .n_rows = n_rows,
          .n_cols = kTileCols,
          .target = target};
}

using Output = std::pair<std::uint32_t, std::uint32_t>;  // target, weight row

// Counts how often items compute each output for each row of the input.
std::map<Output, std::vector<int>> coverage(const WorkSplit& split, std::uint32_t n_x) {
  std::map<Output, std::vector<int>> counts;
  for (std::size_t i = 0; i < split.n_items(); ++i) {
    const WorkItem item = split.item(i);
    EXPECT_GT(item.n_rows, 0U);
    EXPECT_LT(item.first_x, item.last_x);
    EXPECT_LE(item.last_x, n_x);
    EXPECT_EQ(item.first_row % kRowGroup, 0U);
    for (const WeightTile* part : item.piece->tiles) {
      if (part == nullptr) continue;
      EXPECT_GE(item.first_row, part->first_row);
      EXPECT_LE(item.first_row + item.n_rows, part->first_row + part->n_rows);
      for (std::uint32_t row = item.first_row; row < item.first_row + item.n_rows; ++row) {
        auto& by_x = counts.try_emplace({part->target, row}, n_x, 0).first->second;
        for (std::uint32_t x = item.first_x; x < item.last_x; ++x) ++by_x[x];
      }
    }
  }
  return counts;
}

std::size_t total_rows(const std::vector<WeightTile>& tiles) {
  std::size_t n_rows = 0;
  for (const WeightTile& t : tiles) n_rows += t.n_rows;
  return n_rows;
}

TEST(WorkSplitTest, EveryOutputOnce) {
  const std::vector<std::vector<WeightTile>> products = {
      {tile(0, 0, 2048), tile(1, 0, 256), tile(2, 0, 256)},
      {tile(0, 0, 3648), tile(0, 3648, 1984)},
      {tile(0, 64, 7)},
      {tile(0, 0, 16), tile(1, 0, 1000)},
  };
  for (const unsigned n_workers : {1U, 2U, 3U, 64U, 1024U}) {
    WorkSplit split(n_workers);
    for (const auto& tiles : products) {
      for (const std::uint32_t n_x : {1U, 3U, 8U, 9U, 64U, 65U, 512U}) {
        split.cut(tiles, n_x, false, nullptr);
        const auto counts = coverage(split, n_x);
        EXPECT_EQ(counts.size(), total_rows(tiles));
        for (const auto& [output, by_x] : counts) {
          ASSERT_TRUE(std::all_of(by_x.begin(), by_x.end(), [](int n) { return n == 1; }))
              << n_workers << " workers, " << n_x << " rows, row " << output.second;
        }
      }
    }
  }
}

// Gate and up arrive in portions whose tiles end at different rows; over all calls each row is
// completed once, in the call that computes the later of its two parts.
TEST(WorkSplitTest, JointsCompleteEveryRowOnce) {
  constexpr std::uint32_t kRows = 1000;
  const std::vector<std::vector<std::vector<WeightTile>>> sequences = {
      {{tile(0, 0, 512), tile(1, 0, 512), tile(0, 512, 488), tile(1, 512, 488)}},
      {{tile(0, 0, 512)}, {tile(1, 0, 512), tile(0, 512, 488)}, {tile(1, 512, 488)}},
      {{tile(0, 0, 448), tile(0, 448, 552)}, {tile(1, 0, 192), tile(1, 192, 808)}},
      {{tile(1, 0, 320), tile(0, 0, 64)},
       {tile(0, 64, 640), tile(1, 320, 192)},
       {tile(1, 512, 488), tile(0, 704, 296)}},
  };
  for (const unsigned n_workers : {1U, 2U, 64U}) {
    for (const std::uint32_t n_x : {1U, 100U}) {
      for (const auto& calls : sequences) {
        WorkSplit split(n_workers);
        std::uint32_t done[2] = {};
        std::vector<int> completed(kRows, 0);
        for (const auto& tiles : calls) {
          split.cut(tiles, n_x, true, done);
          for (const auto& [output, by_x] : coverage(split, n_x)) {
            ASSERT_TRUE(std::all_of(by_x.begin(), by_x.end(), [](int n) { return n == 1; }));
          }
          for (std::size_t i = 0; i < split.n_items(); ++i) {
            const WorkItem item = split.item(i);
            if (!item.piece->completes || item.first_x != 0) continue;
            for (std::uint32_t r = 0; r < item.n_rows; ++r) ++completed[item.first_row + r];
            // What this item does not compute itself has been computed before.
            for (std::uint32_t target = 0; target < 2; ++target) {
              if (item.piece->tiles[target] == nullptr) {
                EXPECT_LE(item.first_row + item.n_rows, done[target]);
              }
            }
          }
          for (const WeightTile& t : tiles) done[t.target] += t.n_rows;
        }
        EXPECT_EQ(completed, std::vector<int>(kRows, 1)) << n_workers << ' ' << n_x;
      }
    }
  }
}

// The largest item bounds how long the others wait for the last one.
TEST(WorkSplitTest, ItemsAreEvenEnough) {
  const std::vector<WeightTile> tiles = {tile(0, 0, 3648), tile(0, 3648, 1984)};
  for (const unsigned n_workers : {2U, 8U, 64U}) {
    WorkSplit split(n_workers);
    for (const std::uint32_t n_x : {1U, 512U}) {
      split.cut(tiles, n_x, false, nullptr);
      EXPECT_GE(split.n_items(), 2 * n_workers);
      double total = 0;
      std::vector<double> load(n_workers, 0.0);
      for (std::size_t i = 0; i < split.n_items(); ++i) {
        const WorkItem item = split.item(i);
        const double work = static_cast<double>(item.n_rows) * (item.last_x - item.first_x);
        *std::min_element(load.begin(), load.end()) += work;  // whoever is free takes the next
        total += work;
      }
      const double longest = *std::max_element(load.begin(), load.end());
      // 64 workers share 352 groups, or 88 bands of 64 rows times blocks of rows: five or six each.
      EXPECT_LE(longest * n_workers / total, n_workers == 64 ? 1.25 : 1.06)
          << n_workers << ' ' << n_x;
    }
  }
}

TEST(WorkSplitTest, FewRowsAreCutIntoEqualBytes) {
  const std::vector<WeightTile> tiles = {tile(0, 0, 4096)};
  WorkSplit split(2);
  split.cut(tiles, 1, false, nullptr);
  for (std::size_t i = 0; i + 1 < split.n_items(); ++i) {
    EXPECT_EQ(split.item(i).n_rows, split.item(0).n_rows);
    const std::uint64_t bytes =
        split.item(i).n_rows / kRowGroup * group_bytes(kTileFormat, kTileCols);
    EXPECT_GT(bytes, 128U << 10);
    EXPECT_LE(bytes, 512U << 10);
  }
  EXPECT_EQ(split.weight_bytes(), 256 * group_bytes(kTileFormat, kTileCols));
}

// The taker of a queue walks through neighbours, which is what the memory likes, and then helps.
TEST(WorkSplitTest, LanesAreStreamsAndEmptyOnesHelp) {
  const std::vector<WeightTile> tiles = {tile(0, 0, 4096)};
  WorkSplit split(3);
  for (int round = 0; round < 2; ++round) {
    split.cut(tiles, 1, false, nullptr);
    const std::size_t n_items = split.n_items();
    std::vector<int> taken(n_items, 0);
    for (std::size_t queue = 0; queue < split.n_queues(); ++queue) {
      ++taken[n_items * queue / 3];
      EXPECT_EQ(split.take(queue), n_items * queue / 3);
    }
    // Queue 2, then what queues 0 and 1 have left.
    for (const std::size_t queue : {2U, 0U, 1U}) {
      for (std::size_t i = n_items * queue / 3 + 1; i < n_items * (queue + 1) / 3; ++i) {
        ++taken[i];
        EXPECT_EQ(split.take(2), i);
      }
    }
    EXPECT_EQ(taken, std::vector<int>(n_items, 1));
    for (std::size_t queue = 0; queue < split.n_queues(); ++queue) {
      EXPECT_EQ(split.take(queue), n_items);
    }
  }
}

// All threads at the same queue, and then at the next.
TEST(WorkSplitTest, ThreadsTakeEveryItemOnce) {
  const std::vector<WeightTile> tiles = {tile(0, 0, 1U << 20)};
  constexpr unsigned kThreads = 4;
  WorkSplit split(kThreads);
  for (int round = 0; round < 300; ++round) {
    split.cut(tiles, 1, false, nullptr);
    std::vector<std::atomic<int>> taken(split.n_items());
    ASSERT_GT(taken.size(), 1000U);
    std::atomic<unsigned> n_ready{0};
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&] {
        for (++n_ready; n_ready < kThreads;) std::this_thread::yield();
        for (std::size_t i; (i = split.take(0)) < taken.size();) ++taken[i];
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& count : taken) ASSERT_EQ(count.load(), 1);
  }
}

}  // namespace
}  // namespace qsf
