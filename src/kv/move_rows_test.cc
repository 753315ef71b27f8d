// SPDX-License-Identifier: MIT
//
// Accepted drafts that are moved to the end of their sequence: in memory and in a file, for every
// type, each slot holds the bits of its row as if it had been stored there.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "io/testing/faulty_file.h"
#include "kv/kv_block.h"
#include "kv/spilled_kv_store.h"
#include "kv/testing/aligned_memory.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing_support::AlignedMemory;

constexpr std::uint32_t kMovedPages = 4;
constexpr KvLimits kLimits = {
    .n_pages = kMovedPages, .max_sequences = 1, .max_slots = kMovedPages * kKvPageSlots};
constexpr KvPart kParts[] = {KvPart::kKeys, KvPart::kValues};

KvShape shape_of(KvType k_type, KvType v_type, std::uint32_t head_dim) {
  return {.n_layers = 3, .n_kv_heads = 2, .head_dim = head_dim, .k_type = k_type, .v_type = v_type};
}

// A sequence of made-up rows, by number.
class MovedRows {
 public:
  MovedRows(const KvShape& shape, KvPageStore& store)
      : shape_(shape),
        store_(store),
        tables_(KvCache::region_bytes(kLimits)),
        kv(KvCache::create(shape, kLimits, tables_.span()).value()),
        sequence(kv.create_sequence().value()) {}

  // Appends n rows in a pass, which finds those before it.
  Status append(std::uint32_t n) {
    std::vector<Row> pass;
    const std::uint32_t first = kv.append(sequence, n).value().first_slot;
    for (std::uint32_t i = 0; i < n; ++i) {
      pass.push_back({.sequence = sequence, .kv_slot = first + i});
      rows.push_back(next_row_++);
    }
    store_.begin_pass(pass, kv, nullptr);
    const bool good = store_.status().ok();
    for_blocks([&](std::uint32_t slot, KvPart part, std::byte* block, const std::byte* row) {
      if (slot >= first) {
        copy_slot(shape_, part, {row, 0}, {block, slot % kKvPageSlots});
      } else if (good) {
        expect_row(slot, part, block, row);
      }
    });
    return store_.end_pass();
  }
  // Keeps the rows at `accepted`, slots, of those from `first` on.
  void commit(std::uint32_t first, const std::vector<std::uint32_t>& accepted) {
    std::vector<RowMove> moves(accepted.size());
    moves.resize(kv.commit_path(sequence, first, accepted, moves));
    store_.move_rows(moves);
    for (std::size_t i = 0; i < accepted.size(); ++i) rows[first + i] = rows[accepted[i]];
    rows.resize(first + accepted.size());
  }

 private:
  void expect_row(std::uint32_t slot, KvPart part, const std::byte* block, const std::byte* row) {
    const auto n_bytes = static_cast<std::size_t>(shape_.block_bytes(part));
    std::vector<std::byte> got(n_bytes);
    std::vector<std::byte> want(n_bytes);
    copy_slot(shape_, part, {block, slot % kKvPageSlots}, {got.data(), 0});
    copy_slot(shape_, part, {row, 0}, {want.data(), 0});
    if (got != want) ADD_FAILURE() << "slot " << slot << " of " << rows.size();
  }
  // Calls body(slot, part, block, row) for every head of every layer; `row` is slot 0 of a block.
  void for_blocks(
      const std::function<void(std::uint32_t, KvPart, std::byte*, const std::byte*)>& body) {
    for (std::uint32_t layer = 0; layer < shape_.n_layers; ++layer) {
      const KvLayerPages pages = store_.acquire_layer(layer);
      for (std::uint32_t slot = 0; slot < rows.size(); ++slot) {
        for (std::uint32_t head = 0; head < shape_.n_kv_heads; ++head) {
          for (const KvPart part : kParts) {
            Rng rng(((rows[slot] * 8 + layer) * 8 + head) * 2 + (part == KvPart::kKeys ? 0 : 1));
            std::vector<std::byte> row(static_cast<std::size_t>(shape_.block_bytes(part)));
            for (std::byte& byte : row) byte = static_cast<std::byte>(rng.next_u32());
            body(slot, part,
                 pages.page(kv.page_of(sequence, slot)) + shape_.block_offset(head, part),
                 row.data());
          }
        }
      }
      store_.release_layer(layer);
    }
  }

  KvShape shape_;
  KvPageStore& store_;
  AlignedMemory tables_;
  std::uint64_t next_row_ = 0;

 public:
  KvCache kv;
  SequenceId sequence;
  std::vector<std::uint64_t> rows;  // [slots]
};

// Within a page and over its end, some rows staying; one round behind another.
void expect_moved(const KvShape& shape, KvPageStore& store) {
  MovedRows moved(shape, store);
  const struct {
    std::uint32_t n_drafts;
    std::vector<std::uint32_t> accepted;  // of the drafts
  } rounds[] = {{10, {0, 2, 5, 9}}, {44, {}}, {60, {1, 30, 31, 59}}, {64, {0, 1, 2}}, {5, {4}}};
  ASSERT_TRUE(moved.append(50).ok());
  for (const auto& round : rounds) {
    const std::uint32_t first = moved.kv.n_slots(moved.sequence);
    ASSERT_TRUE(moved.append(round.n_drafts).ok());
    std::vector<std::uint32_t> accepted = round.accepted;
    for (std::uint32_t& slot : accepted) slot += first;
    moved.commit(first, accepted);
    ASSERT_EQ(moved.kv.n_slots(moved.sequence), first + accepted.size());
    ASSERT_TRUE(moved.append(1).ok());
  }
}

class MoveRowsTest : public testing::TestWithParam<KvType> {};

TEST_P(MoveRowsTest, RowsInMemoryHaveTheBitsOfTheirNewPlace) {
  for (const std::uint32_t head_dim : {20U, 64U}) {
    const KvShape shape = shape_of(GetParam(), GetParam(), head_dim);
    AlignedMemory memory(ResidentKvStore::region_bytes(shape, kMovedPages));
    ResidentKvStore store(shape, memory.span());
    expect_moved(shape, store);
  }
}

class SpilledStore {
 public:
  explicit SpilledStore(const KvShape& shape)
      : windows_(SpilledKvStore::region_bytes(shape, kMovedPages)) {
    const std::string path = std::string(QSF_BIN_DIR) + "/move_rows." + std::to_string(::getpid());
    auto file = ScratchFile::create(path, SpilledKvStore::file_bytes(shape, kMovedPages),
                                    ReadPath::kPread, ops);
    store = SpilledKvStore::open(shape, kMovedPages, std::move(*file), windows_.span()).value();
  }
  FaultyFileOps ops{{}};

 private:
  AlignedMemory windows_;

 public:
  std::unique_ptr<SpilledKvStore> store;
};

TEST_P(MoveRowsTest, RowsInAFileHaveTheBitsOfTheirNewPlace) {
  const KvShape shape = shape_of(GetParam(), GetParam(), 20);
  SpilledStore spilled(shape);
  expect_moved(shape, *spilled.store);
}

INSTANTIATE_TEST_SUITE_P(, MoveRowsTest, testing::ValuesIn(kAllKvTypes), [](const auto& type) {
  return "kv" + std::string(kv_type_name(type.param));
});

TEST(MoveRowsStoreTest, KeysAndValuesMayDiffer) {
  const KvShape shape = shape_of(KvType::k8Bit, KvType::k4Bit, 64);
  SpilledStore spilled(shape);
  expect_moved(shape, *spilled.store);
}

TEST(MoveRowsStoreTest, RowsThatCouldNotBeMovedAreNeverRead) {
  const KvShape shape = shape_of(KvType::kF16, KvType::kF16, 20);
  SpilledStore spilled(shape);
  MovedRows moved(shape, *spilled.store);
  ASSERT_TRUE(moved.append(60).ok());
  ASSERT_TRUE(moved.append(10).ok());
  spilled.ops.plan.write_error_at = SpilledKvStore::file_bytes(shape, kMovedPages) / 3;  // layer 1
  moved.commit(60, {63, 69});
  for (int i = 0; i < 2; ++i) {
    const Status status = moved.append(1);
    EXPECT_EQ(status.code(), StatusCode::kIo);
    EXPECT_THAT(status.message(), HasSubstr("begin it anew"));
    moved.kv.truncate(moved.sequence, 62);
    moved.rows.resize(62);
    spilled.ops.plan.write_error_at = UINT64_MAX;
  }
}

}  // namespace
}  // namespace qsf
