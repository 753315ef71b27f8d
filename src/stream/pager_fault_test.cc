// SPDX-License-Identifier: MIT
//
// Tests of the pager with disks that fail and callers that leave: every error reaches who needs the
// tile and nobody else, nothing hangs, nothing leaks.

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "io/testing/faulty_file.h"
#include "stream/testing/pager_files.h"
#include "stream/testing/pager_reference.h"
#include "stream/weight_pager.h"

namespace qsf {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::open_pager;
using testing_support::open_reader;
using testing_support::OpenedPager;
using testing_support::pager_file_path;
using testing_support::PagerFile;
using testing_support::TileReference;
using testing_support::Watchdog;

unsigned n_threads_now() {
  unsigned n = 0;
  DIR* const tasks = ::opendir("/proc/self/task");
  if (tasks == nullptr) return 0;
  while (::readdir(tasks) != nullptr) ++n;
  ::closedir(tasks);
  return n;
}

// A file whose calls fail as `ops.plan` says, once its directories were read.
struct Faulty {
  explicit Faulty(const testing_support::Storage& storage = {})
      : file(pager_file_path(), storage, {.n_layers = 4}),
        reader(QsfReader::open(File::open(file.path(), ops).value()).value()),
        reference(reader),
        least(WeightPager::plan(reader, {}).value().least_bytes) {}

  Result<OpenedPager> open(ReadPath path, const std::atomic<bool>* cancel = nullptr) {
    return open_pager(reader, {.limits = {.bytes = least, .ring_bytes = 1},
                               .device = {.path = path, .direct = path != ReadPath::kMmap},
                               .cancel = cancel});
  }

  FaultyFileOps ops;
  PagerFile file;
  QsfReader reader;
  TileReference reference;
  std::uint64_t least;
};

// Acquires every tile in order; returns those that failed with the code expected.
std::vector<TileId> failing_tiles(WeightPager& pager, const TileReference& reference,
                                  StatusCode code) {
  std::vector<TileId> failed;
  for (TileId id = 0; id < pager.n_tiles(); ++id) {
    const auto tile = pager.acquire(id);
    if (!tile.has_value()) {
      EXPECT_EQ(tile.error().code(), code) << tile.error().message();
      failed.push_back(id);
      continue;
    }
    reference.expect_tile(id, *tile);
    pager.release(id);
  }
  return failed;
}

constexpr ReadPath kAllPaths[] = {ReadPath::kUring, ReadPath::kPread, ReadPath::kMmap};

class PagerFaultTest : public testing::Test {
 protected:
  const Watchdog watchdog_{240};
};

TEST_F(PagerFaultTest, AnUnreadableTileFailsAloneAndEveryTime) {
  for (const ReadPath path : {ReadPath::kUring, ReadPath::kPread}) {
    Faulty faulty;
    const std::uint64_t bad_offset = faulty.reader.layer(2).tiles[3].file_offset;
    faulty.ops.plan.read_error_at = bad_offset + 100;
    auto opened = faulty.open(path).value();
    const std::vector<TileId> failed =
        failing_tiles(*opened.pager, faulty.reference, StatusCode::kIo);
    ASSERT_EQ(failed.size(), 1U);
    EXPECT_EQ(failing_tiles(*opened.pager, faulty.reference, StatusCode::kIo), failed);
    const Status status = opened.pager->acquire(failed[0]).error();
    EXPECT_THAT(status.message(), AllOf(HasSubstr(faulty.file.path()), HasSubstr("layer 2: tile 3"),
                                        HasSubstr(std::to_string(bad_offset))));
  }
}

TEST_F(PagerFaultTest, DamageIsSeenOnTheFirstReadOfATile) {
  for (const ReadPath path : kAllPaths) {
    for (const bool mapped : {false, true}) {
      if (mapped && path != ReadPath::kMmap) continue;
      const PagerFile file(pager_file_path(), {}, {.n_layers = 4});
      const QsfReader reader = open_reader(file.path());
      const TileReference reference(reader);
      const std::uint64_t offset = reader.layer(1).tiles[2].file_offset;
      std::FILE* const damaged = std::fopen(file.path().c_str(), "r+b");
      ASSERT_NE(damaged, nullptr);
      std::fseek(damaged, static_cast<long>(offset + 9), SEEK_SET);
      const int byte = std::fgetc(damaged);
      std::fseek(damaged, static_cast<long>(offset + 9), SEEK_SET);
      std::fputc(byte ^ 4, damaged);
      std::fclose(damaged);
      const std::uint64_t least = WeightPager::plan(reader, {.mapped = mapped}).value().least_bytes;
      auto opened =
          open_pager(reader, {.limits = {.bytes = least, .ring_bytes = 1, .mapped = mapped},
                              .device = {.path = path, .direct = false}})
              .value();
      const std::vector<TileId> failed =
          failing_tiles(*opened.pager, reference, StatusCode::kCorrupt);
      ASSERT_EQ(failed.size(), 1U);
      EXPECT_THAT(opened.pager->acquire(failed[0]).error().message(),
                  AllOf(HasSubstr("layer 1: tile 2 at offset " + std::to_string(offset)),
                        HasSubstr("CRC")));
    }
  }
}

TEST_F(PagerFaultTest, ATruncatedFileFailsFromThereOn) {
  for (const ReadPath path : {ReadPath::kUring, ReadPath::kPread}) {
    Faulty faulty;
    faulty.ops.plan.truncate_at = faulty.reader.final_section().tiles[2].file_offset + 10;
    auto opened = faulty.open(path).value();
    const std::vector<TileId> failed =
        failing_tiles(*opened.pager, faulty.reference, StatusCode::kCorrupt);
    ASSERT_FALSE(failed.empty());
    EXPECT_EQ(failed.back(), opened.pager->n_tiles() - 1);
    EXPECT_THAT(opened.pager->acquire(failed[0]).error().message(), HasSubstr("truncated"));
  }
}

// A file that shrinks while it runs: what is read afterwards fails, and nothing dies.
TEST_F(PagerFaultTest, AFileThatShrinksWhileItRunsIsAnError) {
  for (const ReadPath path : kAllPaths) {
    Faulty faulty;
    auto opened = faulty.open(path).value();
    faulty.reference.expect_pass(*opened.pager, true);
    ASSERT_EQ(::truncate(faulty.file.path().c_str(),
                         static_cast<off_t>(faulty.reader.layer(1).tiles[1].file_offset)),
              0);
    opened.pager->start_pass(opened.pager->plan_of(0, faulty.reader.spec().n_layers, true));
    std::size_t n_failed = 0;
    for (TileId id = 0; id < opened.pager->n_tiles(); ++id) {
      const auto tile = opened.pager->acquire(id);
      if (tile.has_value()) {
        opened.pager->release(id);
      } else {
        EXPECT_EQ(tile.error().code(), StatusCode::kCorrupt) << tile.error().message();
        ++n_failed;
      }
    }
    EXPECT_GT(n_failed, 10U);
  }
}

TEST_F(PagerFaultTest, ShortInterruptedAndSlowReadsChangeNothing) {
  for (const ReadPath path : {ReadPath::kUring, ReadPath::kPread}) {
    Faulty faulty;
    faulty.ops.plan.max_transfer_bytes = 5000;
    faulty.ops.plan.interrupt_every = 3;
    faulty.ops.plan.read_delay_us = 200;
    auto opened = faulty.open(path).value();
    for (int pass = 0; pass < 2; ++pass) faulty.reference.expect_pass(*opened.pager, true);
    EXPECT_GT(opened.pager->stats().wait_ns, 0U);
  }
}

TEST_F(PagerFaultTest, WhatTheSystemRefusesIsReplaced) {
  const auto expect_works = [](const FaultPlan& plan, ReadPath asked, ReadPath expected,
                               bool direct) {
    Faulty faulty;
    faulty.ops.plan = plan;
    auto opened = faulty.open(asked).value();
    EXPECT_EQ(opened.device->path(), expected);
    EXPECT_EQ(opened.device->is_direct(), direct);
    EXPECT_FALSE(opened.device->fall_back().empty());
    for (int pass = 0; pass < 2; ++pass) faulty.reference.expect_pass(*opened.pager, true);
  };
  expect_works({.direct_open_errno = EINVAL}, ReadPath::kPread, ReadPath::kPread, false);
  expect_works({.direct_read_errno = EINVAL}, ReadPath::kPread, ReadPath::kPread, false);
  expect_works({.ring_errno = ENOSYS}, ReadPath::kUring, ReadPath::kPread, true);
  expect_works({.ring_errno = EPERM}, ReadPath::kUring, ReadPath::kPread, true);
}

// What a queue finds out by itself is handed on.
TEST_F(PagerFaultTest, NotesOfQueuesAreHandedOn) {
  Faulty faulty;
  faulty.ops.plan.lockable_bytes = kTileAlign;
  auto opened = faulty.open(ReadPath::kUring).value();
  faulty.reference.expect_pass(*opened.pager, true);
  const std::string note = opened.pager->reading_note();
  const bool has_ring = opened.device->path() == ReadPath::kUring;  // not allowed everywhere
  EXPECT_THAT(note, HasSubstr(has_ring ? "not registered" : ""));
  Faulty healthy;
  auto quiet = healthy.open(ReadPath::kPread).value();
  healthy.reference.expect_pass(*quiet.pager, true);
  EXPECT_EQ(quiet.pager->reading_note(), "");
}

// They would take memory of the system's that no plan counts.
TEST_F(PagerFaultTest, RowsOfAnEmbeddingTakeNoRing) {
  Faulty faulty;
  faulty.ops.plan.max_rings = 1;
  const auto opened = faulty.open(ReadPath::kUring);
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  if (opened->device->path() != ReadPath::kUring) GTEST_SKIP() << opened->device->fall_back();
  ASSERT_GT(opened->pager->residency().row_cache_bytes, 0U);
  faulty.reference.expect_pass(*opened->pager, true);
  std::vector<float> row(150);
  EXPECT_TRUE(opened->pager->embedding_row(100, row).ok());
  testing_support::expect_same_bits(row, faulty.file.rows().at({0, 0})[100]);
}

// Rows of an embedding fail as its tiles do.
TEST_F(PagerFaultTest, RowsOfABadTileFail) {
  Faulty faulty;
  faulty.ops.plan.read_error_at = faulty.reader.embedding().tiles[1].file_offset;
  auto opened = faulty.open(ReadPath::kPread).value();
  std::vector<float> row(150);
  EXPECT_TRUE(opened.pager->embedding_row(63, row).ok());
  EXPECT_EQ(opened.pager->embedding_row(64, row).code(), StatusCode::kIo);
  EXPECT_EQ(opened.pager->embedding_row(64, row).code(), StatusCode::kIo);
  EXPECT_TRUE(opened.pager->embedding_row(128, row).ok());
}

// A disk that never answers in time: the caller leaves when it is told to, and the pager goes on.
TEST_F(PagerFaultTest, CancellingEndsAWait) {
  Faulty faulty;
  std::atomic<bool> cancel{false};
  auto opened = faulty.open(ReadPath::kPread, &cancel).value();
  faulty.reference.expect_pass(*opened.pager, true);
  cancel.store(true);
  Status status;
  for (TileId id = opened.pager->n_tiles(); status.ok() && id-- > 0;) {  // never the next one
    const auto tile = opened.pager->acquire(id);
    if (tile.has_value()) {
      opened.pager->release(id);
    } else {
      status = tile.error();
    }
  }
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  cancel.store(false);
  faulty.reference.expect_pass(*opened.pager, true);
}

// Callers that stop anywhere, ask for anything, and leave with reads in flight.
TEST_F(PagerFaultTest, AThousandRandomStopsLeaveNoThreadAndNoHold) {
  Faulty faulty;
  const std::uint64_t everything = WeightPager::plan(faulty.reader, {}).value().region_bytes;
  const unsigned n_threads = n_threads_now();
  std::atomic<bool> cancel{false};
  std::optional<OpenedPager> opened;
  Rng rng(21);
  int n_cancelled = 0;
  for (int stop = 0; stop < 1000; ++stop) {
    if (!opened.has_value() || rng.below(8) == 0) {
      opened.reset();  // with reads in flight
      cancel.store(false);
      const ReadPath path = kAllPaths[rng.below(3)];
      const std::uint64_t limit =
          faulty.least + rng.below(static_cast<std::uint32_t>(everything - faulty.least));
      auto made = open_pager(
          faulty.reader,
          {.limits = {.bytes = limit + 40000, .n_queues = 1 + rng.below(3), .ring_bytes = 1},
           .device = {.path = path, .direct = path != ReadPath::kMmap},
           .cancel = &cancel});
      ASSERT_TRUE(made.has_value()) << made.error().message();
      opened = std::move(*made);
    }
    WeightPager& pager = *opened->pager;
    cancel.store(rng.below(4) == 0);
    pager.start_pass(pager.plan_of(0, faulty.reader.spec().n_layers, rng.below(2) == 0));
    TileId next = rng.below(2) == 0 ? 7 : rng.below(pager.n_tiles());
    const std::uint32_t n_steps = rng.below(30);
    for (std::uint32_t step = 0; step < n_steps && next < pager.n_tiles(); ++step) {
      std::vector<WeightTile> tiles(8);
      std::uint32_t n = pager.acquire_ready(next, 8, tiles);
      if (n == 0) {
        const auto tile = pager.acquire(next);
        if (!tile.has_value()) {
          ASSERT_EQ(tile.error().code(), StatusCode::kCancelled) << tile.error().message();
          ++n_cancelled;
          break;
        }
        tiles[0] = *tile;
        n = 1;
      }
      for (std::uint32_t i = 0; i < n; ++i) faulty.reference.expect_tile(next + i, tiles[i]);
      pager.release(next, n);
      next += n;
    }
  }
  EXPECT_GT(n_cancelled, 10);
  cancel.store(false);
  faulty.reference.expect_pass(*opened->pager, true);
  opened.reset();
  EXPECT_EQ(n_threads_now(), n_threads);
}

// Pinned memory that is given back while it runs is streamed from then on, with the same bytes.
TEST_F(PagerFaultTest, DroppedResidentsAreStreamed) {
  for (const bool mapped : {false, true}) {
    for (const std::uint64_t share : {80U, 90U, 100U}) {
      Faulty faulty;
      const Residency whole = WeightPager::plan(faulty.reader, {.mapped = mapped}).value();
      const std::uint64_t everything = whole.region_bytes + whole.mapped_bytes;
      const std::uint64_t limit =
          share == 100 ? UINT64_MAX : faulty.least + (everything - faulty.least) * share / 100;
      auto opened =
          open_pager(
              faulty.reader,
              {.limits = {.bytes = limit, .ring_bytes = 30000, .mapped = mapped},
               .device = {.path = mapped ? ReadPath::kMmap : ReadPath::kPread, .direct = false}})
              .value();
      WeightPager& pager = *opened.pager;
      ASSERT_TRUE(pager.load().ok());
      faulty.reference.expect_pass(pager, true);
      const std::uint64_t wanted = pager.residency().pinned_bytes / 4;
      const std::uint64_t given = pager.drop_residents(wanted);
      EXPECT_GE(given, wanted);
      EXPECT_LE(given, wanted + 20000);
      EXPECT_EQ(pager.stats().dropped_bytes, given);
      const std::uint64_t before = pager.stats().bytes_read;
      for (int pass = 0; pass < 3; ++pass) faulty.reference.expect_pass(pager, true);
      EXPECT_GE(pager.stats().bytes_read - before, 2 * given);
      pager.drop_residents(UINT64_MAX);
      for (int pass = 0; pass < 3; ++pass) faulty.reference.expect_pass(pager, true);
      EXPECT_EQ(pager.drop_residents(1), 0U);
      std::vector<float> row(150);
      EXPECT_TRUE(pager.embedding_row(100, row).ok());
      testing_support::expect_same_bits(row, faulty.file.rows().at({0, 0})[100]);
    }
  }
}

// A tile that a cancelled wait asked for, and that then stops staying, is not read out of its turn:
// the ring begins with the first tile of a pass that is not in memory.
TEST_F(PagerFaultTest, ATileOfACancelledWaitThatIsDroppedWaitsForItsTurn) {
  Faulty faulty;
  const TileTable table = TileTable::build(faulty.reader, {}).value();
  const ReadDevice device =
      ReadDevice::open(faulty.reader.file(), {.path = ReadPath::kPread}).value();
  std::vector<std::byte> region(static_cast<std::size_t>(table.residency().region_bytes));
  std::atomic<bool> cancel{false};
  TileSchedule schedule(table, device, region, &cancel);  // no thread reads
  const std::span<const TileId> layers = table.order().first(table.head_begin());
  std::thread other([&cancel] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    cancel.store(true);
  });
  EXPECT_EQ(schedule.acquire(layers.back()).code(), StatusCode::kCancelled);
  other.join();
  EXPECT_EQ(schedule.drop_residents(1), 0U);  // none is there yet; the last ones become a ring
  const auto first_streamed = std::find_if(layers.begin(), layers.end(),
                                           [&](TileId id) { return !schedule.is_resident(id); });
  ASSERT_LT(first_streamed, layers.end() - 1);
  ReadJob job;
  do {
    ASSERT_EQ(schedule.claim(/*wait=*/false, job), TileSchedule::Claim::kJob);
  } while (job.slot == kNoSlot);
  EXPECT_EQ(job.tile, *first_streamed);
}

// When nothing is left to read, the page cache is told of the whole file; a pager that closes
// meanwhile waits for a piece at most.
TEST(PagerFillTest, FillsThePageCacheWhenAllIsRead) {
  const Watchdog watchdog{60};
  Faulty faulty;
  const std::uint64_t file_bytes = faulty.reader.file().size_bytes();
  for (const bool fills : {false, true}) {
    auto opened = open_pager(
        faulty.reader,
        {.limits = {.n_queues = 2}, .device = {.path = ReadPath::kPread, .fill_cache = fills}});
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    if (!opened->device->is_direct()) GTEST_SKIP() << opened->device->fall_back();
    ASSERT_TRUE(opened->pager->load().ok());
    for (int i = 0; fills && i < 3000 && faulty.ops.announced_bytes() < file_bytes; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(faulty.ops.announced_bytes(), fills ? file_bytes : 0U);
  }
}

}  // namespace
}  // namespace qsf
