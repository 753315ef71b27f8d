// SPDX-License-Identifier: MIT
//
// Tests of WeightPager on files written for the purpose: whatever type, block, layout and
// compression a file uses, the weights that come out are those that codec.h decodes; damage is
// named.

#include "stream/weight_pager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "format/qsf_reader.h"
#include "io/testing/faulty_file.h"
#include "quant/codec.h"
#include "quant/interleave.h"
#include "stream/testing/pager_files.h"

namespace qsf {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using testing_support::expect_same_bits;
using testing_support::open_pager;
using testing_support::open_reader;
using testing_support::OpenedPager;
using testing_support::OpenOptions;
using testing_support::pager_file_path;
using testing_support::PagerFile;

// Opens a pager that keeps everything, and waits for it.
Result<OpenedPager> load(const QsfReader& reader, const OpenOptions& options = {},
                         LoadProgress on_progress = nullptr, void* user = nullptr) {
  QSF_ASSIGN_OR_RETURN(OpenedPager opened, open_pager(reader, options));
  QSF_RETURN_IF_ERROR(opened.pager->load(on_progress, user));
  return opened;
}

class WeightPagerTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  static std::string path() { return pager_file_path(); }

  // Every row of every tensor, by row and by tile.
  static void expect_all_rows(const PagerFile& file, const QsfReader& reader, WeightPager& pager) {
    for (const auto& [key, rows] : file.rows()) {
      const auto [section, index] = key;
      const TensorInfo& tensor = reader.directories()[section].tensors[index];
      std::vector<float> row(tensor.cols);
      for (std::uint32_t r = 0; r < tensor.rows; ++r) {
        ASSERT_TRUE(pager.decode_row(section, index, r, row).ok());
        expect_same_bits(row, rows[r]);
      }
      if (tensor.rows == 1) {
        EXPECT_TRUE(pager.tiles_of(section, index).empty());
        expect_same_bits(pager.vector(section, index).value(), rows[0]);
        continue;
      }
      std::uint32_t next_row = 0;
      for (const TileId id : pager.tiles_of(section, index)) {
        const WeightTile tile = pager.acquire(id).value();
        EXPECT_EQ(tile.tensor, index);
        EXPECT_EQ(tile.first_row, next_row);
        EXPECT_EQ(tile.n_cols, tensor.cols);
        EXPECT_EQ(tile.format, kernel_format(tensor.format));
        EXPECT_EQ(tile.group_bytes, group_bytes(tile.format, tensor.cols));
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tile.bytes) % 64, 0U);
        const ByteSpan bytes(tile.bytes, (tile.n_rows + 15) / 16 * tile.group_bytes);
        EXPECT_TRUE(
            check_blocks(tile.format, Layout::kInterleaved, tile.n_rows, tile.n_cols, bytes).ok());
        for (std::uint32_t r = 0; r < tile.n_rows; ++r) {
          decode_group_row(tile.format, bytes.subspan(r / 16 * tile.group_bytes, tile.group_bytes),
                           r % 16, tile.n_cols, row);
          expect_same_bits(row, rows[next_row + r]);
        }
        next_row += tile.n_rows;
        pager.release(id);
      }
      EXPECT_EQ(next_row, tensor.rows);
    }
  }
};

TEST_F(WeightPagerTest, EveryTypeLayoutAndBlockSizeGivesTheSameWeights) {
  int n_files = 0;
  for (const QuantType type : kAllQuantTypes) {
    for (const std::uint32_t block : {32U, 64U, 128U, 256U}) {
      if (fixed_block(type) != 0 && block != 32) continue;
      if (!is_valid(block_format(type, block))) continue;
      for (const Layout layout : {Layout::kRowMajor, Layout::kInterleaved}) {
        SCOPED_TRACE(std::string(quant_type_name(type)) + " block " + std::to_string(block) +
                     " layout " + std::to_string(static_cast<int>(layout)));
        const PagerFile file(path(), {block_format(type, block), layout, Compression::kNone});
        const QsfReader reader = open_reader(file.path());
        const auto loaded = load(reader);
        ASSERT_TRUE(loaded.has_value()) << loaded.error().message();
        expect_all_rows(file, reader, *loaded->pager);
        ++n_files;
      }
    }
  }
  EXPECT_EQ(n_files, 2 * (3 + 6 * 4 + 3 + 3 * 2 + 4 + 3 + 1 + 2));
}

TEST_F(WeightPagerTest, CompressedFilesAndThreadsGiveTheSameWeights) {
  for (const Compression compression :
       {Compression::kLz4, Compression::kLz4Hc, Compression::kZstd}) {
    for (const BlockFormat format :
         {BlockFormat{QuantType::kF32, 4}, BlockFormat{QuantType::kQ4, 64},
          BlockFormat{QuantType::kTernary, 256}}) {
      for (const Layout layout : {Layout::kRowMajor, Layout::kInterleaved}) {
        const PagerFile file(path(), {format, layout, compression});
        const QsfReader reader = open_reader(file.path());
        const auto loaded = load(reader, {.limits = {.n_queues = 3}});
        ASSERT_TRUE(loaded.has_value()) << loaded.error().message();
        expect_all_rows(file, reader, *loaded->pager);
      }
    }
  }
}

TEST_F(WeightPagerTest, PlanCountsWhatLoadingReads) {
  const PagerFile file(path(), {});
  const QsfReader reader = open_reader(file.path());
  const Residency needs = WeightPager::plan(reader, {.n_queues = 2}).value();
  std::uint64_t stored_bytes = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t n_tiles = 0;
  for (const SectionDirectory& directory : reader.directories()) {
    for (const TileInfo& tile : directory.tiles) {
      stored_bytes += tile.stored_bytes;
      read_bytes += align_up(tile.stored_bytes, kTileAlign);
    }
    n_tiles += directory.tiles.size();
  }
  EXPECT_TRUE(needs.everything_resident);
  EXPECT_EQ(needs.resident_share, 1.0);
  EXPECT_EQ(needs.streamed_bytes, 0U);
  EXPECT_EQ(needs.ring_bytes, 0U);
  EXPECT_EQ(needs.row_cache_bytes, 0U);
  EXPECT_EQ(needs.stored_bytes, stored_bytes);
  EXPECT_EQ(needs.resident_stored_bytes, stored_bytes);
  EXPECT_GT(needs.weight_bytes, stored_bytes / 2);
  EXPECT_EQ(needs.region_bytes, needs.vector_bytes + needs.pinned_bytes + needs.staging_bytes);
  EXPECT_EQ(needs.staging_bytes, 2 * WeightPager::plan(reader, {}).value().staging_bytes);
  EXPECT_GT(needs.table_bytes, n_tiles * 32);

  const auto loaded = load(reader);
  EXPECT_EQ(loaded->pager->stats().bytes_read, read_bytes);
  EXPECT_EQ(loaded->pager->stats().tiles_read, n_tiles);
  EXPECT_GT(loaded->pager->stats().load_ns, 0U);
  EXPECT_GT(loaded->pager->stats().read_ns, 0U);
}

// Matrices stored as kernels read them need staging for one-row tensors alone.
TEST_F(WeightPagerTest, TilesInKernelFormNeedNoStaging) {
  const PagerFile file(path(), {});
  const QsfReader reader = open_reader(file.path());
  EXPECT_EQ(WeightPager::plan(reader, {}).value().staging_bytes,
            align_up(one_row_tile_bytes(reader.layer(0).tensors), kTileAlign));
}

TEST_F(WeightPagerTest, TilesAreNumberedInOrderOfUseAndHeldByCount) {
  const PagerFile file(path(), {{QuantType::kF32, 4}, Layout::kInterleaved, Compression::kNone});
  const QsfReader reader = open_reader(file.path());
  const auto loaded = load(reader);
  WeightPager& pager = *loaded->pager;
  // Tiles of 64 rows: token embedding 5, position embedding 2, then the first layer.
  EXPECT_THAT(pager.tiles_of(embedding_section(), 0), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(pager.tiles_of(layer_section(0), 1), ElementsAre(7, 8, 9));
  EXPECT_THAT(pager.tiles_of(layer_section(0), 3), ElementsAre(10, 12, 14, 16));  // gate
  EXPECT_THAT(pager.tiles_of(layer_section(0), 4), ElementsAre(11, 13, 15, 17));  // up
  EXPECT_EQ(pager.tiles_of(final_section(2), 1).back() + 1, pager.n_tiles());

  WeightTile tiles[8];
  ASSERT_EQ(pager.acquire_ready(10, 8, tiles), 8U);
  EXPECT_EQ(tiles[0].tensor, 3U);
  EXPECT_EQ(tiles[1].tensor, 4U);
  EXPECT_EQ(tiles[7].n_rows, 200U - 192U);
  EXPECT_EQ(pager.acquire_ready(10, 3, tiles), 3U);
  EXPECT_EQ(pager.acquire_ready(pager.n_tiles() - 2, 8, tiles), 2U);
  EXPECT_EQ(pager.acquire_ready(pager.n_tiles(), 8, tiles), 0U);
  EXPECT_EQ(pager.stats().tiles_acquired, 13U);
  pager.release(10, 8);
  pager.release(10, 3);
  EXPECT_DEATH(pager.release(10), "check failed");
  EXPECT_DEATH(pager.release(9), "check failed");
  EXPECT_DEATH(static_cast<void>(pager.acquire(pager.n_tiles())), "check failed");
}

TEST_F(WeightPagerTest, RowsAndVectorsOutOfRangeAreRefused) {
  const PagerFile file(path(), {});
  const QsfReader reader = open_reader(file.path());
  const auto loaded = load(reader);
  std::vector<float> row(150);
  EXPECT_TRUE(loaded->pager->embedding_row(299, row).ok());
  expect_same_bits(row, file.rows().at({0, 0})[299]);
  const Status status = loaded->pager->embedding_row(300, row);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("row 300, expected 0 to 299"));
  EXPECT_FALSE(loaded->pager->embedding_row(UINT32_MAX, row).ok());
  EXPECT_EQ(loaded->pager->vector(layer_section(0), 1).error().code(),
            StatusCode::kInvalidArgument);
  EXPECT_DEATH(static_cast<void>(loaded->pager->vector(layer_section(0), 7)), "check failed");
  EXPECT_DEATH(static_cast<void>(loaded->pager->vector(4, 0)), "check failed");
}

TEST_F(WeightPagerTest, VectorsEndInZeros) {
  const PagerFile file(path(), {});
  const QsfReader reader = open_reader(file.path());
  const auto loaded = load(reader);
  const std::span<const float> norm = loaded->pager->vector(layer_section(1), 0).value();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(norm.data()) % 64, 0U);
  for (std::size_t i = norm.size(); i < 160; ++i) EXPECT_EQ(norm.data()[i], 0.0F);
}

// A flipped bit in any tile: the message has section, tile and offset; with several bad tiles it is
// the first, whatever the number of threads.
TEST_F(WeightPagerTest, DamageNamesTheFirstBadTile) {
  for (const Compression compression : {Compression::kNone, Compression::kZstd}) {
    const PagerFile file(path(), {{QuantType::kQ4, 64}, Layout::kRowMajor, compression});
    const QsfReader good = open_reader(file.path());
    for (const std::uint32_t first_bad : {0U, 3U, 7U}) {
      std::vector<std::byte> bytes = good.file().read_all(1U << 24).value();
      for (std::uint32_t bad = first_bad; bad < good.layer(1).tiles.size(); ++bad) {
        bytes[good.layer(1).tiles[bad].file_offset + 5] ^= std::byte{0x10};
      }
      MemoryFileOps ops(bytes);
      const QsfReader reader = QsfReader::open(File::open("damaged.qsf", ops).value()).value();
      for (const unsigned n_queues : {1U, 4U}) {
        const auto loaded = load(reader, {.limits = {.n_queues = n_queues}});
        ASSERT_FALSE(loaded.has_value());
        EXPECT_EQ(loaded.error().code(), StatusCode::kCorrupt);
        EXPECT_THAT(loaded.error().message(),
                    AllOf(HasSubstr("damaged.qsf: layer 1: tile " + std::to_string(first_bad) +
                                    " at offset " +
                                    std::to_string(good.layer(1).tiles[first_bad].file_offset)),
                          HasSubstr("CRC")));
      }
    }
  }
}

// Numbers that no CRC protects from: a file may be written wrong.
TEST_F(WeightPagerTest, ValuesThatAreNotFiniteAreRefused) {
  for (const float poison :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    const PagerFile file(path(), {}, {.poison = poison});
    const QsfReader reader = open_reader(file.path());
    const auto loaded = load(reader);
    ASSERT_FALSE(loaded.has_value());
    EXPECT_EQ(loaded.error().code(), StatusCode::kCorrupt);
    EXPECT_THAT(loaded.error().message(),
                AllOf(HasSubstr("layer 1: tile 0"), HasSubstr("attn_norm")));
  }
}

TEST_F(WeightPagerTest, ReadErrorsAreReportedWithTheirPlace) {
  const PagerFile file(path(), {});
  FaultyFileOps ops;
  const QsfReader reader = QsfReader::open(File::open(file.path(), ops).value()).value();
  ops.plan.max_transfer_bytes = 1000;  // short and interrupted reads alone change nothing
  ops.plan.interrupt_every = 3;
  EXPECT_TRUE(load(reader).has_value());
  ops.plan.read_error_at = reader.layer(0).tiles[2].file_offset;
  EXPECT_EQ(load(reader).error().code(), StatusCode::kIo);
  ops.plan.read_error_at = UINT64_MAX;
  ops.plan.truncate_at = reader.final_section().tiles[1].file_offset + 10;
  EXPECT_EQ(load(reader).error().code(), StatusCode::kCorrupt);
}

TEST_F(WeightPagerTest, CancelStopsLoading) {
  const PagerFile file(path(), {});
  FaultyFileOps ops;
  const QsfReader reader = QsfReader::open(File::open(file.path(), ops).value()).value();
  std::atomic<bool> cancel{true};
  EXPECT_EQ(load(reader, {.cancel = &cancel}).error().code(), StatusCode::kCancelled);

  struct Progress {
    std::atomic<bool> cancel{false};
    std::uint64_t done_bytes = 0;
    std::uint64_t total_bytes = 0;
    int n_calls = 0;
    int cancel_at = 0;
  } progress;
  const auto note = [](std::uint64_t done_bytes, std::uint64_t total_bytes, void* user) {
    Progress& seen = *static_cast<Progress*>(user);
    EXPECT_GT(done_bytes, seen.done_bytes);
    seen.done_bytes = done_bytes;
    seen.total_bytes = total_bytes;
    if (++seen.n_calls == seen.cancel_at) seen.cancel.store(true);
  };
  EXPECT_TRUE(load(reader, {.cancel = &progress.cancel}, note, &progress).has_value());
  EXPECT_EQ(progress.done_bytes, progress.total_bytes);
  EXPECT_EQ(progress.total_bytes, WeightPager::plan(reader, {}).value().stored_bytes);
  EXPECT_GE(progress.n_calls, 1);

  progress.done_bytes = 0;
  progress.n_calls = 0;
  progress.cancel_at = 1;
  const auto cancelled = load(reader, {.cancel = &progress.cancel}, note, &progress);
  EXPECT_EQ(cancelled.error().code(), StatusCode::kCancelled);
  EXPECT_THAT(cancelled.error().message(), HasSubstr("bytes"));
  EXPECT_EQ(progress.n_calls, 1);
}

}  // namespace
}  // namespace qsf
