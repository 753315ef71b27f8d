// SPDX-License-Identifier: MIT
//
// Keys and values in a file against the resident store: random passes, forks, truncations and
// passes that are given up, on every reading path; and disks that fail.

#include "kv/spilled_kv_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "io/atomic_file.h"
#include "io/testing/faulty_file.h"
#include "kv/testing/aligned_memory.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing_support::AlignedMemory;

constexpr std::uint32_t kStorePages = 12;
constexpr std::uint32_t kContext = 5 * kKvPageSlots;

std::string scratch_path() {
  return std::string(QSF_BIN_DIR) + "/spilled_kv_store." + std::to_string(::getpid()) + "." +
         testing::UnitTest::GetInstance()->current_test_info()->name();
}

// How a pass ends.
enum class End { kEnded, kGivenUp };

// Both stores under one cache. Every pass writes the same bytes to both, and sees that they hold
// the same of the rows before it.
class BothStores {
 public:
  explicit BothStores(const KvShape& shape, const FaultPlan& plan = {},
                      std::optional<ReadPath> path = {})
      : shape_(shape),
        ops(plan),
        tables_(KvCache::region_bytes(kLimits)),
        kv(KvCache::create(shape, kLimits, tables_.span()).value()),
        resident_memory_(ResidentKvStore::region_bytes(shape, kStorePages)),
        resident_(shape, resident_memory_.span()),
        windows_(SpilledKvStore::region_bytes(shape, kStorePages)) {
    auto file = ScratchFile::create(scratch_path(), SpilledKvStore::file_bytes(shape, kStorePages),
                                    path, ops);
    opened = file.has_value() ? ok_status() : file.error();
    if (!opened.ok()) return;
    store = SpilledKvStore::open(shape, kStorePages, std::move(*file), windows_.span()).value();
  }

  // Appends rows to a sequence in a pass that stops before layer `stop`.
  Status run(SequenceId sequence, std::uint32_t n_rows, End end = End::kEnded,
             std::uint32_t stop = UINT32_MAX) {
    const std::uint32_t before = kv.n_slots(sequence);
    cancel.store(cancel_at == 0U);
    const Appended appended = kv.append(sequence, n_rows).value();
    if (appended.copy.has_value()) {
      ++n_copies;
      store->copy_page(appended.copy->from_page, appended.copy->to_page);
      resident_.copy_page(appended.copy->from_page, appended.copy->to_page);
    }
    std::vector<Row> rows;
    for (std::uint32_t i = 0; i < n_rows; ++i) {
      rows.push_back({.sequence = sequence, .kv_slot = appended.first_slot + i});
    }
    store->begin_pass(rows, kv, &cancel);
    for (std::uint32_t layer = 0; layer < std::min(shape_.n_layers, stop); ++layer) {
      if (cancel_at == layer + 1) cancel.store(true);
      run_layer(sequence, before, layer);
    }
    if (cancel_at == shape_.n_layers + 1) cancel.store(true);
    Status status = end == End::kEnded ? store->end_pass() : cancelled("given up");
    if (!status.ok()) kv.truncate(sequence, before);
    return status;
  }

 private:
  static constexpr KvLimits kLimits = {
      .n_pages = kStorePages, .max_sequences = 4, .max_slots = kContext};

  // Slot s of a page is the s-th 64th of its bytes here: slots of before are compared, those of the
  // pass written.
  void run_layer(SequenceId sequence, std::uint32_t before, std::uint32_t layer) {
    const KvLayerPages spilled = store->acquire_layer(layer);
    if (spilled.base == nullptr) {
      EXPECT_EQ(store->status().code(), StatusCode::kCancelled);
      return store->release_layer(layer);
    }
    const KvLayerPages resident = resident_.acquire_layer(layer);
    const bool good = store->status().ok();
    const std::size_t slot_bytes = shape_.layer_bytes() / kKvPageSlots;
    for (std::uint32_t slot = 0; slot < kv.n_slots(sequence); ++slot) {
      const std::uint32_t page = kv.page_of(sequence, slot);
      std::byte* const s = spilled.page(page) + slot % kKvPageSlots * slot_bytes;
      std::byte* const r = resident.page(page) + slot % kKvPageSlots * slot_bytes;
      if (slot >= before && slot % kKvPageSlots == 0) {
        const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
        EXPECT_TRUE(std::all_of(s, s + shape_.layer_bytes(), is_zero)) << "a new page";
      }
      if (slot >= before) {
        for (std::size_t i = 0; i < slot_bytes; ++i) r[i] = static_cast<std::byte>(rng_.next_u32());
        std::memcpy(s, r, slot_bytes);
      } else if (good && std::memcmp(s, r, slot_bytes) != 0) {
        ADD_FAILURE() << "layer " << layer << ", slot " << slot << " of page " << page;
      }
    }
    store->release_layer(layer);
  }

  KvShape shape_;

 public:
  FaultyFileOps ops;

 private:
  AlignedMemory tables_;

 public:
  KvCache kv;

 private:
  AlignedMemory resident_memory_;
  ResidentKvStore resident_;
  AlignedMemory windows_;
  Rng rng_{7};

 public:
  Status opened;
  std::unique_ptr<SpilledKvStore> store;
  std::uint32_t n_copies = 0;
  // Whether passes are cancelled, and before what: 0 all of it, 1 + l layer l, and then the end.
  std::optional<std::uint32_t> cancel_at;
  std::atomic<bool> cancel{false};
};

KvShape shape_of(std::uint32_t n_layers, KvType type = KvType::kF16) {
  return {.n_layers = n_layers, .n_kv_heads = 2, .head_dim = 20, .k_type = type, .v_type = type};
}

// Random sequences of appending, forking, truncating and giving up.
void run_randomly(BothStores& both, std::uint64_t seed, int n_steps) {
  Rng rng(seed);
  std::vector<SequenceId> sequences;
  for (int step = 0; step < n_steps; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const std::uint32_t action = rng.below(12);
    if (sequences.empty() || (action == 0 && sequences.size() < 4)) {
      sequences.push_back(both.kv.create_sequence().value());
      continue;
    }
    const std::size_t which = rng.below(static_cast<std::uint32_t>(sequences.size()));
    const SequenceId sequence = sequences[which];
    const std::uint32_t n_slots = both.kv.n_slots(sequence);
    const std::uint32_t n_rows = rng.below(3) == 0 ? 1 + rng.below(130) : 1;
    const bool fits =
        n_slots + n_rows <= kContext && both.kv.n_free_pages() > kv_pages_for(n_rows) + 1;
    if (action == 1 && sequences.size() < 4) {
      sequences.push_back(both.kv.fork(sequence).value());
    } else if (action == 2 || !fits) {
      both.kv.truncate(sequence, rng.below(n_slots + 1));
    } else if (action == 3) {
      both.kv.free_sequence(sequence);
      sequences.erase(sequences.begin() + static_cast<std::ptrdiff_t>(which));
    } else {
      const End end = action == 4 ? End::kGivenUp : End::kEnded;
      const std::uint32_t stop = end == End::kGivenUp ? rng.below(4) : UINT32_MAX;
      const Status status = both.run(sequence, n_rows, end, stop);
      EXPECT_EQ(status.ok(), end == End::kEnded) << status.message();
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(SpilledKvStoreTest, HoldsWhatTheResidentStoreHolds) {
  for (const ReadPath path : {ReadPath::kUring, ReadPath::kPread, ReadPath::kMmap}) {
    for (const std::uint32_t n_layers : {1U, 2U, 3U, 4U, 5U}) {
      for (const KvType type : {KvType::kF16, KvType::k2Bit}) {
        SCOPED_TRACE(std::to_string(n_layers) + " layers by " + std::string(read_path_name(path)));
        BothStores both(shape_of(n_layers, type), {}, path);
        ASSERT_TRUE(both.opened.ok()) << both.opened.message();
        run_randomly(both, 11 * n_layers, 150);
        ASSERT_FALSE(testing::Test::HasFailure());
        EXPECT_GT(both.n_copies, 0U);
        const KvSpillStats stats = both.store->stats();
        EXPECT_GT(stats.bytes_written, 0U);
        EXPECT_GT(stats.bytes_read, 0U);
      }
    }
  }
}

TEST(SpilledKvStoreTest, SurvivesShortAndInterruptedTransfers) {
  for (const bool direct : {true, false}) {
    FaultPlan plan;
    plan.max_transfer_bytes = direct ? kDirectAlign + 512 : 1000;
    plan.interrupt_every = 3;
    plan.direct_open_errno = direct ? 0 : EINVAL;
    BothStores both(shape_of(3), plan, ReadPath::kPread);
    ASSERT_TRUE(both.opened.ok()) << both.opened.message();
    if (!direct) {
      EXPECT_FALSE(both.store->device().is_direct());
      EXPECT_THAT(both.store->device().fall_back(), HasSubstr("direct"));
    }
    run_randomly(both, 5, 100);
  }
}

// A layer of a sequence is one read of neighbouring bytes, and of the file no more is written than
// the pages that got rows.
TEST(SpilledKvStoreTest, ReadsAndWritesOnlyWhatAPassNeeds) {
  const KvShape shape = shape_of(6);
  BothStores both(shape);
  ASSERT_TRUE(both.opened.ok());
  const SequenceId sequence = both.kv.create_sequence().value();
  const std::uint64_t stride = SpilledKvStore::file_bytes(shape, 1) / shape.n_layers;
  EXPECT_EQ(stride % 4096, 0U);
  ASSERT_TRUE(both.run(sequence, 3 * kKvPageSlots + 1).ok());
  EXPECT_EQ(both.store->stats().bytes_written, 6 * 4 * stride);
  const std::uint64_t read = both.store->stats().bytes_read;
  ASSERT_TRUE(both.run(sequence, 1).ok());
  ASSERT_TRUE(both.run(sequence, 1).ok());
  ASSERT_TRUE(both.run(sequence, 1).ok());
  EXPECT_EQ(both.store->stats().bytes_written, 6 * 7 * stride);
  // Reads for the pass that follows may be under way.
  EXPECT_GE(both.store->stats().bytes_read - read, (3 * 6 - 2) * 4 * stride);
  EXPECT_LE(both.store->stats().bytes_read - read, (3 * 6 + 2) * 4 * stride);
}

TEST(SpilledKvStoreTest, AFailedReadEndsThePassAndLosesNothing) {
  const KvShape shape = shape_of(5);
  for (const ReadPath path : {ReadPath::kUring, ReadPath::kPread}) {
    BothStores both(shape, {}, path);
    const SequenceId sequence = both.kv.create_sequence().value();
    ASSERT_TRUE(both.run(sequence, 200).ok());
    ASSERT_TRUE(both.run(sequence, 1).ok());
    const std::uint64_t layer_bytes = SpilledKvStore::file_bytes(shape, kStorePages) / 5;
    for (const std::uint32_t layer : {3U, 4U}) {
      both.ops.plan.read_error_at = layer * layer_bytes + 100;
      const Status status = both.run(sequence, 1);
      EXPECT_EQ(status.code(), StatusCode::kIo);
      EXPECT_THAT(status.message(), HasSubstr("keys and values: "));
      EXPECT_THAT(status.message(), HasSubstr(scratch_path()));
    }
    both.ops.plan.read_error_at = UINT64_MAX;
    EXPECT_EQ(both.kv.n_slots(sequence), 201U);
    EXPECT_TRUE(both.run(sequence, 1).ok());
    EXPECT_TRUE(both.run(sequence, 70).ok());
  }
}

TEST(SpilledKvStoreTest, AFullDiskEndsThePassAndLosesNothing) {
  FaultPlan plan;
  plan.allocate_errno = EOPNOTSUPP;  // or the space would have been taken when the file was made
  BothStores both(shape_of(5), plan);
  ASSERT_TRUE(both.opened.ok());
  const SequenceId sequence = both.kv.create_sequence().value();
  ASSERT_TRUE(both.run(sequence, 100).ok());
  for (const std::uint64_t room : {std::uint64_t{0}, std::uint64_t{4096}, std::uint64_t{50'000}}) {
    both.ops.plan.disk_bytes = both.store->stats().bytes_written + room;
    const Status status = both.run(sequence, 100);
    EXPECT_EQ(status.code(), StatusCode::kIo);
    EXPECT_THAT(status.message(), HasSubstr("the disk is full"));
    EXPECT_EQ(both.kv.n_slots(sequence), 100U);
  }
  both.ops.plan.disk_bytes = UINT64_MAX;
  EXPECT_TRUE(both.run(sequence, 100).ok());
  EXPECT_TRUE(both.run(sequence, 1).ok());
}

// Also in the last layer, when no product asks any more how things are.
TEST(SpilledKvStoreTest, AFailedWriteEndsThePassAndLosesNothing) {
  const KvShape shape = shape_of(5);
  BothStores both(shape);
  const SequenceId sequence = both.kv.create_sequence().value();
  ASSERT_TRUE(both.run(sequence, 100).ok());
  for (std::uint32_t layer = 0; layer < 5; ++layer) {
    both.ops.plan.write_error_at = layer * SpilledKvStore::file_bytes(shape, kStorePages) / 5 +
                                   SpilledKvStore::file_bytes(shape, 1) / 5;
    const Status status = both.run(sequence, 1);
    EXPECT_EQ(status.code(), StatusCode::kIo) << layer;
    EXPECT_THAT(status.message(), HasSubstr("writing"));
  }
  both.ops.plan.write_error_at = UINT64_MAX;
  EXPECT_TRUE(both.run(sequence, 1).ok());
  EXPECT_TRUE(both.run(sequence, 1).ok());
}

TEST(SpilledKvStoreTest, APageThatCouldNotBeCopiedIsNeverRead) {
  const KvShape shape = shape_of(3);
  BothStores both(shape);
  const SequenceId parent = both.kv.create_sequence().value();
  ASSERT_TRUE(both.run(parent, 70).ok());
  const SequenceId child = both.kv.fork(parent).value();
  both.ops.plan.write_error_at = SpilledKvStore::file_bytes(shape, 2) / 3;
  for (int i = 0; i < 2; ++i) {
    const Status status = both.run(child, 1);
    EXPECT_EQ(status.code(), StatusCode::kIo);
    EXPECT_THAT(status.message(), HasSubstr("begin it anew"));
    both.ops.plan.write_error_at = UINT64_MAX;
  }
  EXPECT_TRUE(both.run(parent, 1).ok());
  both.kv.truncate(child, 64);
  EXPECT_TRUE(both.run(child, 10).ok());
  EXPECT_TRUE(both.run(child, 1).ok());
}

// On a disk so slow that nothing is there when it is wanted: a pass that waits all the same ends
// well instead.
TEST(SpilledKvStoreTest, ACancelledWaitEndsThePassAndLosesNothing) {
  BothStores both(shape_of(3), {.read_delay_us = 60'000}, ReadPath::kPread);
  const SequenceId parent = both.kv.create_sequence().value();
  ASSERT_TRUE(both.run(parent, 100).ok());
  for (std::uint32_t step = 0; step < 5; ++step) {
    SCOPED_TRACE(step);
    ASSERT_TRUE(both.run(parent, 1).ok());
    both.cancel_at = step;
    EXPECT_EQ(both.run(parent, 30).code(), StatusCode::kCancelled);
    both.cancel_at.reset();
  }
  EXPECT_TRUE(both.run(parent, 1).ok());
  // The page of a fork is copied in the end, whoever waited for it.
  const SequenceId child = both.kv.fork(parent).value();
  both.cancel_at = 0;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(both.run(child, 1).code(), StatusCode::kCancelled);
  }
  both.cancel_at.reset();
  EXPECT_EQ(both.n_copies, 1U);
  EXPECT_TRUE(both.run(parent, 1).ok());
  EXPECT_TRUE(both.run(child, 1).ok());
}

TEST(SpilledKvStoreTest, NoFileIsLeftAndNoFileIsTouched) {
  const std::string path = scratch_path();
  {
    BothStores both(shape_of(2));
    ASSERT_TRUE(both.opened.ok());
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  const std::string text = "somebody else's";
  ASSERT_TRUE(write_file(path, as_bytes(text)).ok());
  const BothStores both(shape_of(2));
  EXPECT_EQ(both.opened.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(both.opened.message(), HasSubstr(path));
  EXPECT_EQ(std::filesystem::file_size(path), text.size());
  std::filesystem::remove(path);
}

TEST(SpilledKvStoreTest, AFileThatCannotBeMadeIsRefused) {
  struct Case {
    FaultPlan plan;
    std::string expected;
  };
  std::vector<Case> cases(5);
  cases[0].plan.disk_bytes = 1000;
  cases[0].expected = "the disk has no room for";
  cases[1].plan.create_errno = EACCES;
  cases[1].expected = "cannot be created";
  cases[2].plan.reopen_errno = EMFILE;
  cases[2].expected = "cannot be opened for writing";
  cases[3].plan.allocate_errno = EIO;
  cases[3].expected = "setting its length";
  cases[4].plan.create_errno = ENOENT;
  cases[4].expected = "cannot be created";
  for (const Case& c : cases) {
    const BothStores both(shape_of(2), c.plan);
    EXPECT_EQ(both.opened.code(), StatusCode::kIo);
    EXPECT_THAT(both.opened.message(), HasSubstr(c.expected));
    EXPECT_FALSE(std::filesystem::exists(scratch_path()));
  }
}

}  // namespace
}  // namespace qsf
