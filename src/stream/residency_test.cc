// SPDX-License-Identifier: MIT
//
// Tests of what WeightPager::plan makes of a limit: never more bytes than it, a floor that is
// named, the head first and layers evenly.

#include "stream/residency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "stream/testing/pager_files.h"

namespace qsf {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::open_reader;
using testing_support::pager_file_path;
using testing_support::PagerFile;
using testing_support::Storage;

// More than any tile of the files here: 64 rows of at most 200 columns of 4 bits.
constexpr std::uint64_t kLargestTile = 16384;

// Stored bytes of a table's streamed tiles between two positions, and of all there.
struct Span {
  std::uint64_t streamed = 0;
  std::uint64_t all = 0;
};
Span bytes_between(const TileTable& table, std::uint32_t begin, std::uint32_t end) {
  Span span;
  for (std::uint32_t p = begin; p < end; ++p) {
    const TileId id = table.order()[p];
    span.all += table.place_bytes(id);
    if (!table.tile(id).resident) span.streamed += table.place_bytes(id);
  }
  return span;
}

TEST(ResidencyTest, EveryLimitIsKeptAndMoreMemoryStreamsLess) {
  for (const bool tied : {false, true}) {
    for (const bool mapped : {false, true}) {
      for (const Storage& storage :
           {Storage{}, Storage{{QuantType::kQ4, 64}, Layout::kRowMajor, Compression::kZstd}}) {
        const PagerFile file(pager_file_path(), storage, {.n_layers = 8, .tied_head = tied});
        const QsfReader reader = open_reader(file.path());
        const Residency whole = WeightPager::plan(reader, {.mapped = mapped}).value();
        const std::uint64_t everything =
            whole.vector_bytes + whole.pinned_bytes + whole.staging_bytes;
        EXPECT_EQ(whole.region_bytes + whole.mapped_bytes, everything);
        EXPECT_EQ(whole.mapped_bytes > 0, mapped && storage.compression == Compression::kNone);
        std::uint64_t streamed = std::uint64_t{1} << 40;
        std::uint64_t n_partial = 0;
        for (std::uint64_t limit = whole.least_bytes; limit < everything + 20000; limit += 5000) {
          const Residency r =
              WeightPager::plan(reader, {.bytes = limit, .ring_bytes = 60000, .mapped = mapped})
                  .value();
          EXPECT_LE(r.region_bytes + r.mapped_bytes, limit);
          EXPECT_EQ(
              r.region_bytes + r.mapped_bytes,
              r.vector_bytes + r.pinned_bytes + r.ring_bytes + r.staging_bytes + r.row_cache_bytes);
          EXPECT_LE(r.streamed_bytes, streamed + kLargestTile);
          EXPECT_EQ(r.everything_resident, limit >= everything);
          EXPECT_EQ(r.least_bytes, whole.least_bytes);
          EXPECT_EQ(r.ring_bytes + r.row_cache_bytes == 0, r.everything_resident);
          if (r.resident_share > 0.0 && r.resident_share < 1.0) ++n_partial;
          streamed = r.streamed_bytes;
        }
        EXPECT_EQ(streamed, 0U);
        EXPECT_GT(n_partial, 5U);
      }
    }
  }
}

TEST(ResidencyTest, TheFloorIsNamed) {
  const PagerFile file(pager_file_path(), {}, {.n_layers = 8});
  const QsfReader reader = open_reader(file.path());
  const std::uint64_t least = WeightPager::plan(reader, {}).value().least_bytes;
  EXPECT_TRUE(WeightPager::plan(reader, {.bytes = least}).has_value());
  const auto refused = WeightPager::plan(reader, {.bytes = least - 1});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), StatusCode::kOutOfBudget);
  EXPECT_THAT(refused.error().message(),
              AllOf(HasSubstr(std::to_string(least - 1)), HasSubstr(std::to_string(least))));
}

TEST(ResidencyTest, TheHeadStaysFirstAndThenLayersEvenly) {
  for (const bool tied : {false, true}) {
    const PagerFile file(pager_file_path(), {}, {.n_layers = 12, .tied_head = tied});
    const QsfReader reader = open_reader(file.path());
    const std::uint64_t least = WeightPager::plan(reader, {}).value().least_bytes;
    bool saw_head_alone = false;
    bool saw_layers = false;
    for (std::uint64_t more = 0; more < 600000; more += 4096) {
      const auto built = TileTable::build(reader, {.bytes = least + more, .ring_bytes = 1});
      ASSERT_TRUE(built.has_value());
      const TileTable& table = built.value();
      if (table.residency().everything_resident) break;
      const std::uint32_t n = table.head_begin();
      const Span head = bytes_between(table, n, table.head_end());
      const Span layers = bytes_between(table, 0, n);
      EXPECT_TRUE(layers.streamed == layers.all || head.streamed == 0);
      saw_head_alone = saw_head_alone || (head.streamed == 0 && layers.streamed == layers.all);
      if (layers.streamed == layers.all || layers.streamed == 0) continue;
      saw_layers = true;
      const double share = static_cast<double>(layers.streamed) / static_cast<double>(layers.all);
      for (std::uint32_t begin = 0; begin < n; begin += n / 12) {
        const Span layer = bytes_between(table, begin, begin + n / 12);
        EXPECT_NEAR(static_cast<double>(layer.streamed), share * static_cast<double>(layer.all),
                    2.0 * static_cast<double>(table.largest_place_bytes()));
      }
    }
    EXPECT_TRUE(saw_head_alone);
    EXPECT_TRUE(saw_layers);
  }
}

// Rows are looked up in the embedding, so only a tied one is part of a pass.
TEST(ResidencyTest, StreamedBytesAreThoseOfAPass) {
  const PagerFile file(pager_file_path(), {}, {.n_layers = 4});
  const QsfReader reader = open_reader(file.path());
  const std::uint64_t least = WeightPager::plan(reader, {}).value().least_bytes;
  const Residency r = WeightPager::plan(reader, {.bytes = least}).value();
  std::uint64_t pass_bytes = 0;
  for (std::uint32_t section = 1; section < reader.directories().size(); ++section) {
    for (const TileInfo& tile : reader.directories()[section].tiles) {
      if (tile.tensor != kOneRowTensors) pass_bytes += tile.stored_bytes;
    }
  }
  EXPECT_EQ(r.streamed_bytes, pass_bytes);
  EXPECT_EQ(r.pinned_bytes, 0U);
  EXPECT_EQ(r.resident_share, 0.0);
}

}  // namespace
}  // namespace qsf
