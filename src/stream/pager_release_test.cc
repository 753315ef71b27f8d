// SPDX-License-Identifier: MIT
//
// Tests of tiles that are released by ticket: they keep their bytes until the work is complete, and
// a pager without room completes the oldest work instead of waiting for ever.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "stream/testing/pager_files.h"
#include "stream/testing/pager_reference.h"
#include "stream/weight_pager.h"

namespace qsf {
namespace {

using testing_support::open_pager;
using testing_support::open_reader;
using testing_support::OpenedPager;
using testing_support::pager_file_path;
using testing_support::PagerFile;
using testing_support::TileReference;
using testing_support::Watchdog;

// Work that is complete when it is waited for, or when `lag` newer pieces were submitted. It reads
// its tiles then, not before.
class LateWork final : public SubmittedWork {
 public:
  LateWork(const TileReference& reference, std::size_t lag) : reference_(reference), lag_(lag) {}

  Ticket submit(std::vector<WeightTile> tiles) {
    queue_.push_back(std::move(tiles));
    ++n_submitted_;
    while (queue_.size() > lag_) run_oldest();
    return n_submitted_;
  }
  Ticket completed() const noexcept override { return n_submitted_ - queue_.size(); }
  void wait_for(Ticket ticket) noexcept override {
    waits_.push_back(ticket);
    while (completed() < ticket) run_oldest();
  }
  const std::vector<Ticket>& waits() const { return waits_; }

 private:
  void run_oldest() {
    for (const WeightTile& tile : queue_.front()) reference_.expect_tile(tile.id, tile);
    queue_.pop_front();
  }

  const TileReference& reference_;
  std::size_t lag_;
  std::deque<std::vector<WeightTile>> queue_;
  Ticket n_submitted_ = 0;
  std::vector<Ticket> waits_;
};

constexpr std::size_t kNeverAlone = 1000000;

class PagerReleaseTest : public testing::Test {
 protected:
  OpenedPager open(SubmittedWork& work, std::uint64_t limit) {
    return open_pager(reader_, {.limits = {.bytes = limit, .ring_bytes = 1}, .work = &work})
        .value();
  }
  std::uint64_t least() const { return WeightPager::plan(reader_, {}).value().least_bytes; }

  // All matrices of layers and head, as a decoder takes them.
  void submit_pass(WeightPager& pager, LateWork& work) {
    pager.start_pass(pager.plan_of(0, reader_.spec().n_layers, /*with_head=*/true));
    const TileId end = pager.n_tiles();
    std::vector<WeightTile> tiles(4);
    for (TileId next = pager.tiles_of(layer_section(0), 1).front(); next < end;) {
      std::uint32_t n = pager.acquire_ready(next, end - next, tiles);
      if (n == 0) {
        tiles[0] = pager.acquire(next).value();
        n = 1;
      }
      for (std::uint32_t i = 0; i < n; ++i) ASSERT_EQ(tiles[i].id, next + i);
      pager.release(next, n, work.submit({tiles.begin(), tiles.begin() + n}));
      next += n;
    }
  }

  const Watchdog watchdog_{120};
  const PagerFile file_{pager_file_path(), {}, {.n_layers = 6}};
  const QsfReader reader_ = open_reader(file_.path());
  const TileReference reference_{reader_};
};

// The ring holds three tiles; nothing is complete before the pager asks for it.
TEST_F(PagerReleaseTest, WithoutRoomTheOldestWorkIsCompleted) {
  for (const std::uint64_t more : {0U, 20000U, 60000U}) {
    LateWork work(reference_, kNeverAlone);
    OpenedPager opened = open(work, least() + more);
    for (int pass = 0; pass < 3; ++pass) submit_pass(*opened.pager, work);
    EXPECT_GT(work.waits().size(), 10U);
    EXPECT_TRUE(std::is_sorted(work.waits().begin(), work.waits().end()));
    EXPECT_EQ(opened.pager->stats().ring_restarts, 0U);
  }
}

TEST_F(PagerReleaseTest, CompletedWorkIsNeverWaitedFor) {
  LateWork work(reference_, 0);
  OpenedPager opened = open(work, least());
  for (int pass = 0; pass < 3; ++pass) submit_pass(*opened.pager, work);
  EXPECT_TRUE(work.waits().empty());
}

// Complete work gives its tiles back at once, work that ends by itself in a later call.
TEST_F(PagerReleaseTest, TilesAreReleasedWhenTheirWorkIsComplete) {
  LateWork work(reference_, 1);
  OpenedPager opened = open(work, UINT64_MAX);
  WeightPager& pager = *opened.pager;
  ASSERT_TRUE(pager.load().ok());  // no thread is at work when the death tests fork
  const TileId first = pager.tiles_of(layer_section(0), 1).front();
  const Ticket early = work.submit({pager.acquire(first).value()});
  pager.release(first, 1, early);
  EXPECT_EXIT(
      {
        pager.release(first);  // still held
        ::_exit(0);
      },
      testing::ExitedWithCode(0), "");
  work.submit({pager.acquire(first + 1).value()});
  pager.release_completed();
  EXPECT_DEATH(pager.release(first), "check failed");
  const WeightTile again = pager.acquire(first).value();
  ASSERT_EQ(again.id, first);
  pager.release(first, 1, early);
  EXPECT_DEATH(pager.release(first), "check failed");
}

TEST_F(PagerReleaseTest, TooManyPiecesOfWorkWaitForTheOldest) {
  LateWork work(reference_, kNeverAlone);
  OpenedPager opened = open(work, UINT64_MAX);
  const TileId first = opened.pager->tiles_of(layer_section(0), 1).front();
  for (int i = 0; i < 70; ++i) {
    const WeightTile tile = opened.pager->acquire(first).value();
    opened.pager->release(first, 1, work.submit({tile}));
  }
  EXPECT_EQ(work.waits(), (std::vector<Ticket>{1, 2, 3, 4, 5, 6}));
}

// Tiles that nobody has released are no reason to wait.
TEST_F(PagerReleaseTest, HeldTilesFailAnAcquireAsBefore) {
  LateWork work(reference_, kNeverAlone);
  OpenedPager opened = open(work, least());
  WeightPager& pager = *opened.pager;
  Status refused = ok_status();
  const TileId first = pager.tiles_of(layer_section(0), 1).front();
  for (TileId id = first; id < pager.n_tiles() && refused.ok(); ++id) {
    const auto tile = pager.acquire(id);
    if (!tile.has_value()) refused = tile.error();
  }
  EXPECT_EQ(refused.code(), StatusCode::kOutOfBudget) << refused.message();
}

}  // namespace
}  // namespace qsf
