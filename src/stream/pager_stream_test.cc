// SPDX-License-Identifier: MIT
//
// Tests of streaming: whatever the path, the ring and the order, tiles have the bytes that the file
// has; rows too; and all of it in passes as a decoder makes them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "stream/testing/pager_files.h"
#include "stream/testing/pager_reference.h"
#include "stream/weight_pager.h"

namespace qsf {
namespace {

using testing_support::FileShape;
using testing_support::open_pager;
using testing_support::open_reader;
using testing_support::pager_file_path;
using testing_support::PagerFile;
using testing_support::Storage;
using testing_support::TileReference;
using testing_support::Watchdog;

const Storage kStorages[] = {
    {},
    {{QuantType::kQ4, 64}, Layout::kRowMajor, Compression::kNone},
    {{QuantType::kQ4, 128}, Layout::kInterleaved, Compression::kNone},
    {{QuantType::kQ4, 64}, Layout::kInterleaved, Compression::kLz4},
    {{QuantType::kQ4, 64}, Layout::kInterleaved, Compression::kZstd},
    {{QuantType::kF32, 4}, Layout::kRowMajor, Compression::kZstd},
};

struct Path {
  ReadPath path;
  bool direct;
  bool mapped;
  bool on_threads = true;
};
const Path kPaths[] = {
    {ReadPath::kUring, true, false},         {ReadPath::kUring, false, false},
    {ReadPath::kPread, true, false},         {ReadPath::kPread, false, false},
    {ReadPath::kMmap, false, false},         {ReadPath::kMmap, false, true},
    {ReadPath::kPread, false, false, false}, {ReadPath::kUring, false, false, false},
    {ReadPath::kMmap, false, true, false}};

// The limits from the floor to everything, by sixths.
std::vector<std::uint64_t> limits_of(const QsfReader& reader, unsigned n_queues, bool mapped) {
  const Residency whole =
      WeightPager::plan(reader, {.n_queues = n_queues, .mapped = mapped}).value();
  const std::uint64_t everything = whole.region_bytes + whole.mapped_bytes;
  std::vector<std::uint64_t> limits;
  for (std::uint64_t sixth = 0; sixth < 6; ++sixth) {
    limits.push_back(whole.least_bytes + (everything - whole.least_bytes) * sixth / 5);
  }
  limits.push_back(UINT64_MAX);
  return limits;
}

class PagerStreamTest : public testing::Test {
 protected:
  const Watchdog watchdog_{240};
};

// Runs passes over every path and limit and holds tiles, counters and rows to the file.
TEST_F(PagerStreamTest, EveryPathRingAndStorageGivesTheSameBytes) {
  std::set<std::string> missing;  // ways of reading that this machine does not have
  std::uint64_t n_wrapped = 0;
  for (const Storage& storage : kStorages) {
    for (const bool tied : {false, true}) {
      const FileShape shape{.n_layers = 3, .tied_head = tied};
      const PagerFile file(pager_file_path(), storage, shape);
      const QsfReader reader = open_reader(file.path());
      const TileReference reference(reader);
      for (const Path& path : kPaths) {
        const ReadDeviceOptions device{.path = path.path, .direct = path.direct};
        const ReadDevice tried = ReadDevice::open(reader.file(), device).value();
        if (tried.path() != path.path || tried.is_direct() != path.direct) {
          EXPECT_FALSE(tried.fall_back().empty());
          missing.emplace(tried.fall_back());
          continue;
        }
        for (const std::uint64_t limit : limits_of(reader, tried.n_queues(), path.mapped)) {
          auto opened = open_pager(reader, {.limits = {.bytes = limit,
                                                       .n_queues = 0,
                                                       .ring_bytes = 100000,
                                                       .mapped = path.mapped},
                                            .device = device,
                                            .on_threads = path.on_threads});
          ASSERT_TRUE(opened.has_value()) << opened.error().message();
          ASSERT_EQ(opened->device->path(), path.path);
          WeightPager& pager = *opened->pager;
          const Residency& r = pager.residency();
          constexpr int kPasses = 3;
          for (int pass = 0; pass < kPasses; ++pass) reference.expect_pass(pager, true);
          for (std::uint32_t row = 0; row < 300; row += 7) {
            std::vector<float> values(150);
            ASSERT_TRUE(pager.embedding_row(row, values).ok());
            testing_support::expect_same_bits(values, file.rows().at({0, 0})[row]);
          }
          const PagerStats stats = pager.stats();
          EXPECT_GE(stats.bytes_read, kPasses * r.streamed_bytes);
          if (storage == Storage{}) {
            EXPECT_GE(static_cast<double>(r.streamed_bytes) + 1.0,
                      (1.0 - r.resident_share) * static_cast<double>(reference.pass_bytes()));
          }
          if (r.streamed_bytes > r.ring_bytes) {
            EXPECT_GT(stats.ring_wraps, 0U);
            ++n_wrapped;
          }
          EXPECT_EQ(stats.ring_restarts, 0U);
        }
      }
    }
  }
  EXPECT_GT(n_wrapped, 15U);
  if (!missing.empty()) GTEST_SKIP() << "not by every path: " << *missing.begin();
}

TEST_F(PagerStreamTest, PassesWithoutTheHeadDoNotReadIt) {
  const PagerFile file(pager_file_path(), {}, {.n_layers = 6});
  const QsfReader reader = open_reader(file.path());
  const TileReference reference(reader);
  const std::uint64_t least = WeightPager::plan(reader, {}).value().least_bytes;
  auto opened = open_pager(reader, {.limits = {.bytes = least, .ring_bytes = 1}}).value();
  reference.expect_pass(*opened.pager, false);
  const std::uint64_t before = opened.pager->stats().tiles_read;
  const std::uint64_t n_restarts = opened.pager->stats().ring_restarts;
  for (int pass = 0; pass < 4; ++pass) reference.expect_pass(*opened.pager, false);
  EXPECT_EQ(opened.pager->stats().ring_restarts, n_restarts);
  // Give or take what the ring holds of the next pass.
  const std::uint64_t slack = opened.pager->residency().ring_bytes / kTileAlign;
  const std::uint64_t n_layer_tiles = reference.n_layer_tiles();
  EXPECT_GE(opened.pager->stats().tiles_read - before + slack, 4 * n_layer_tiles);
  EXPECT_LE(opened.pager->stats().tiles_read - before, 4 * n_layer_tiles + slack);
  reference.expect_pass(*opened.pager, true);
  reference.expect_pass(*opened.pager, true);
}

// Runs a pass over the tiles of a plan's ranges of ids, and returns the stored bytes of what was
// read meanwhile.
std::uint64_t bytes_of_pass(WeightPager& pager, const TileReference& reference,
                            const AccessPlan& plan, const std::vector<TileId>& ids) {
  const std::uint64_t before = pager.stats().bytes_read;
  pager.start_pass(plan);
  for (const TileId id : ids) {
    const auto tile = pager.acquire(id);
    EXPECT_TRUE(tile.has_value());
    reference.expect_tile(id, *tile);
    pager.release(id);
  }
  return pager.stats().bytes_read - before;
}

std::uint64_t read_bytes(const QsfReader& reader, std::uint32_t section) {
  std::uint64_t bytes = 0;
  for (const TileInfo& tile : reader.directories()[section].tiles) {
    if (tile.tensor != kOneRowTensors) bytes += align_up(tile.stored_bytes, kTileAlign);
  }
  return bytes;
}

// A window of layers reads its own tiles, pass after pass, and at most a ring of the next pass.
TEST_F(PagerStreamTest, AWindowOfLayersReadsNoOther) {
  const PagerFile file(pager_file_path(), {}, {.n_layers = 9});
  const QsfReader reader = open_reader(file.path());
  const TileReference reference(reader);
  const std::uint64_t least = WeightPager::plan(reader, {}).value().least_bytes;
  for (const auto& [first, last] : {std::pair{0U, 2U}, {3U, 7U}, {8U, 9U}}) {
    auto opened = open_pager(reader, {.limits = {.bytes = least, .ring_bytes = 1}}).value();
    WeightPager& pager = *opened.pager;
    std::vector<TileId> ids;
    std::uint64_t window_bytes = 0;
    for (std::uint32_t layer = first; layer < last; ++layer) {
      window_bytes += read_bytes(reader, layer_section(layer));
      for (std::uint32_t tensor = 0; tensor < 7; ++tensor) {
        const auto of_tensor = pager.tiles_of(layer_section(layer), tensor);
        ids.insert(ids.end(), of_tensor.begin(), of_tensor.end());
      }
    }
    std::sort(ids.begin(), ids.end());
    const AccessPlan plan = pager.plan_of(first, last, /*with_head=*/false);
    ASSERT_EQ(plan.n_tiles(), ids.size());
    bytes_of_pass(pager, reference, plan, ids);  // with what was read ahead before it was announced
    std::uint64_t bytes = 0;
    constexpr std::uint64_t kPasses = 5;
    for (std::uint64_t pass = 0; pass < kPasses; ++pass) {
      bytes += bytes_of_pass(pager, reference, plan, ids);
    }
    const std::uint64_t ring_bytes = pager.residency().ring_bytes;
    // The first pass may have read a ring of the second, whose tiles take whole pages of the file.
    EXPECT_GE(bytes + 2 * ring_bytes, kPasses * window_bytes);
    EXPECT_LE(bytes, kPasses * window_bytes + ring_bytes) << "layers " << first << " to " << last;
  }
}

// A part of every layer, and of others a few tiles: as layers with experts will be read.
TEST_F(PagerStreamTest, APlanOfChosenTilesReadsNoOther) {
  const PagerFile file(pager_file_path(), {}, {.n_layers = 9});
  const QsfReader reader = open_reader(file.path());
  const TileReference reference(reader);
  const std::uint64_t least = WeightPager::plan(reader, {}).value().least_bytes;
  auto opened = open_pager(reader, {.limits = {.bytes = least, .ring_bytes = 1}}).value();
  WeightPager& pager = *opened.pager;
  const TileId layers = pager.tiles_of(layer_section(0), 1).front();
  Rng rng(6);
  std::vector<TileId> ids;
  AccessPlan plan;
  std::uint64_t plan_bytes = 0;
  for (std::uint32_t layer = 0; layer < 9; ++layer) {
    const SectionDirectory& directory = reader.layer(layer);
    std::uint32_t index = 0;
    for (const TileInfo& tile : directory.tiles) {
      if (tile.tensor == kOneRowTensors) continue;
      const TileId id = pager.tiles_of(layer_section(layer), 1).front() + index++;
      if (tile.tensor != 1 && rng.below(4) != 0) continue;
      ids.push_back(id);
      plan.add({id - layers, id - layers + 1});
      plan_bytes += align_up(tile.stored_bytes, kTileAlign);
    }
  }
  ASSERT_GT(plan.ranges().size(), 9U);
  bytes_of_pass(pager, reference, plan, ids);
  const std::uint64_t n_restarts = pager.stats().ring_restarts;
  std::uint64_t bytes = 0;
  for (int pass = 0; pass < 5; ++pass) bytes += bytes_of_pass(pager, reference, plan, ids);
  EXPECT_EQ(pager.stats().ring_restarts, n_restarts);
  const std::uint64_t ring_bytes = pager.residency().ring_bytes;
  EXPECT_LE(bytes, 5 * plan_bytes + ring_bytes);
  EXPECT_GE(bytes + ring_bytes, 5 * plan_bytes);
}

// Tiles outside of the plan may be asked for; reading goes on with the plan behind them.
TEST_F(PagerStreamTest, PlansMayChangeAndBeLeft) {
  const PagerFile file(pager_file_path(), {}, {.n_layers = 5, .tied_head = true});
  const QsfReader reader = open_reader(file.path());
  const TileReference reference(reader);
  const std::uint64_t least = WeightPager::plan(reader, {}).value().least_bytes;
  Rng rng(9);
  for (const std::uint64_t limit : {least, least + 50000, least + 200000}) {
    auto opened = open_pager(reader, {.limits = {.bytes = limit, .ring_bytes = 1}}).value();
    WeightPager& pager = *opened.pager;
    for (int pass = 0; pass < 60; ++pass) {
      const std::uint32_t first = rng.below(5);
      const std::uint32_t last = first + rng.below(6 - first);
      pager.start_pass(pager.plan_of(first, last, rng.below(2) == 0));
      for (int step = 0; step < 6; ++step) {
        TileId id = rng.below(pager.n_tiles());
        for (std::uint32_t n = rng.below(12); n > 0 && id < pager.n_tiles(); --n, ++id) {
          const auto tile = pager.acquire(id);
          ASSERT_TRUE(tile.has_value()) << tile.error().message();
          reference.expect_tile(id, *tile);
          pager.release(id);
        }
      }
    }
    reference.expect_pass(pager, true);
  }
}

// Tiles in any order, some of them held while others are asked for.
TEST_F(PagerStreamTest, AnyOrderGivesTheSameBytes) {
  for (const Storage& storage : kStorages) {
    const PagerFile file(pager_file_path(), storage, {.n_layers = 3});
    const QsfReader reader = open_reader(file.path());
    const TileReference reference(reader);
    Rng rng(11);
    for (const std::uint64_t limit : limits_of(reader, 3, false)) {
      auto opened =
          open_pager(reader, {.limits = {.bytes = limit, .n_queues = 3, .ring_bytes = 1}}).value();
      WeightPager& pager = *opened.pager;
      std::vector<TileId> held;
      for (int step = 0; step < 400; ++step) {
        if (held.size() == 2 || (!held.empty() && rng.below(2) == 0)) {
          pager.release(held.front());
          held.erase(held.begin());
          continue;
        }
        const TileId id = rng.below(pager.n_tiles());
        const auto tile = pager.acquire(id);
        if (!tile.has_value()) {  // two large tiles may leave no room for a third
          ASSERT_EQ(tile.error().code(), StatusCode::kOutOfBudget) << tile.error().message();
          ASSERT_FALSE(held.empty());
          continue;
        }
        reference.expect_tile(id, *tile);
        held.push_back(id);
      }
      for (const TileId id : held) {
        const auto again = pager.acquire(id);
        reference.expect_tile(id, again.value());
        pager.release(id);
        pager.release(id);
      }
      reference.expect_pass(pager, true);
    }
  }
}

TEST_F(PagerStreamTest, ReadyTilesTakeAtMostHalfOfTheRing) {
  const PagerFile file(pager_file_path(), {}, {.n_layers = 8});
  const QsfReader reader = open_reader(file.path());
  const std::uint64_t least = WeightPager::plan(reader, {}).value().least_bytes;
  auto opened =
      open_pager(reader, {.limits = {.bytes = least + 60000, .ring_bytes = 200000}}).value();
  WeightPager& pager = *opened.pager;
  const std::uint64_t ring_bytes = pager.residency().ring_bytes;
  const TileId first = pager.tiles_of(layer_section(0), 1).front();
  std::vector<WeightTile> tiles(64);
  ASSERT_TRUE(pager.acquire(first).has_value());
  pager.release(first);
  std::uint32_t most = 0;
  for (int pass = 0; pass < 20; ++pass) {
    pager.start_pass(pager.plan_of(0, reader.spec().n_layers, true));
    for (TileId next = first; next < pager.n_tiles();) {
      std::uint32_t n = pager.acquire_ready(next, 64, tiles);
      if (n == 0) {
        ASSERT_TRUE(pager.acquire(next).has_value());
        n = 1;
      }
      std::uint64_t bytes = 0;
      for (std::uint32_t i = 0; i < n; ++i) {
        bytes += align_up((tiles[i].n_rows + 15) / 16 * tiles[i].group_bytes, kTileAlign);
      }
      EXPECT_TRUE(n == 1 || bytes <= ring_bytes / 2);
      most = std::max(most, n);
      pager.release(next, n);
      next += n;
    }
  }
  EXPECT_GT(most, 1U);
}

// The first tiles of the next pass are on their way while the last ones are in use.
TEST_F(PagerStreamTest, ReadingGoesOnAcrossPasses) {
  const PagerFile file(pager_file_path(), {}, {.n_layers = 6});
  const QsfReader reader = open_reader(file.path());
  const TileReference reference(reader);
  const std::uint64_t least = WeightPager::plan(reader, {}).value().least_bytes;
  auto opened = open_pager(reader, {.limits = {.bytes = least, .ring_bytes = 1}}).value();
  reference.expect_pass(*opened.pager, true);
  const TileId first = opened.pager->tiles_of(layer_section(0), 1).front();
  std::vector<WeightTile> tiles(1);
  for (int i = 0; i < 2000 && opened.pager->acquire_ready(first, 1, tiles) == 0; ++i) {
    ::usleep(1000);
  }
  ASSERT_NE(tiles[0].bytes, nullptr);
  reference.expect_tile(first, tiles[0]);
  opened.pager->release(first);
}

TEST_F(PagerStreamTest, RowsComeThroughACacheAndSmallReads) {
  for (const Storage& storage : kStorages) {
    const PagerFile file(pager_file_path(), storage, {.n_layers = 3});
    const QsfReader reader = open_reader(file.path());
    const std::uint64_t least = WeightPager::plan(reader, {}).value().least_bytes;
    auto opened = open_pager(reader, {.limits = {.bytes = least, .ring_bytes = 1}}).value();
    WeightPager& pager = *opened.pager;
    Rng rng(5);
    std::vector<float> values(150);
    for (int step = 0; step < 300; ++step) {
      const std::uint32_t tensor = rng.below(2);
      const std::uint32_t row = rng.below(tensor == 0 ? 300 : 70);
      ASSERT_TRUE(pager.decode_row(0, tensor, row, values).ok());
      testing_support::expect_same_bits(values, file.rows().at({0, tensor})[row]);
    }
    const std::uint64_t n_read = pager.stats().rows_read;
    EXPECT_GT(n_read, 100U);
    EXPECT_LT(n_read, 300U);
    ASSERT_TRUE(pager.decode_row(0, 0, 17, values).ok());
    const std::uint64_t n_before = pager.stats().rows_read;
    ASSERT_TRUE(pager.decode_row(0, 0, 17, values).ok());
    EXPECT_EQ(pager.stats().rows_read, n_before);
    EXPECT_FALSE(pager.decode_row(0, 0, 300, values).ok());
  }
}

TEST_F(PagerStreamTest, TraceFollowsEveryTile) {
  const PagerFile file(pager_file_path(), {}, {.n_layers = 6});
  const QsfReader reader = open_reader(file.path());
  const TileReference reference(reader);
  const std::uint64_t least = WeightPager::plan(reader, {}).value().least_bytes;
  auto opened = open_pager(reader, {.limits = {.bytes = least, .ring_bytes = 1}}).value();
  std::vector<TileEvent> events(40);
  reference.expect_pass(*opened.pager, true);
  opened.pager->set_trace(events);
  for (int pass = 0; pass < 3; ++pass) reference.expect_pass(*opened.pager, true);
  EXPECT_EQ(opened.pager->n_traced(), events.size());
  for (const TileEvent& event : events) {
    EXPECT_GT(event.read_start_ns, 0U);
    EXPECT_GE(event.read_end_ns, event.read_start_ns);
    EXPECT_GE(event.ready_ns, event.read_end_ns);
    EXPECT_GE(event.acquired_ns, event.ready_ns);
    EXPECT_GE(event.released_ns, event.acquired_ns);
  }
  opened.pager->set_trace({});
  const PagerStats stats = opened.pager->stats();
  EXPECT_GT(stats.read_ns, 0U);
  EXPECT_GT(stats.check_ns, 0U);
}

}  // namespace
}  // namespace qsf
