// SPDX-License-Identifier: MIT
//
// Tests of WeightPager on files written for the purpose: whatever type, block, layout and
// compression a file uses, the weights that come out are those that codec.h decodes; damage is
// named.

#include "stream/weight_pager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "format/qsf_reader.h"
#include "format/qsf_writer.h"
#include "io/faulty_file.h"
#include "memory/arena.h"
#include "platform/threads.h"
#include "quant/codec.h"
#include "quant/interleave.h"

namespace qsf {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// How a test file stores its matrices.
struct Storage {
  BlockFormat format{QuantType::kQ4, 64};
  Layout layout = Layout::kInterleaved;
  Compression compression = Compression::kNone;
};

// 200 and 150 are multiples of neither 16, 64 nor a block; 300 rows make several tiles of 64 rows.
ModelSpec small_spec() {
  ModelSpec spec;
  spec.architecture = "gpt2";
  spec.n_layers = 2;
  spec.hidden = 150;
  spec.n_heads = 5;
  spec.n_kv_heads = 5;
  spec.head_dim = 30;
  spec.n_vocab = 300;
  spec.max_positions = 70;
  spec.ffn = 200;
  spec.gated_ffn = true;
  return spec;
}

using Key = std::pair<std::uint32_t, std::uint32_t>;  // section, tensor

// Writes a file of random weights and keeps what each row decodes to.
class TestFile {
 public:
  TestFile(std::string path, const Storage& storage, float poison = 0.0F)
      : path_(std::move(path)), poison_(poison) {
    const Storage f32{{QuantType::kF32, 4}, storage.layout, storage.compression};
    auto writer = QsfWriter::create(path_, small_spec(),
                                    {.compression = storage.compression, .tile_bytes = 4096});
    EXPECT_TRUE(writer.has_value()) << writer.error().message();
    const auto matrix = [](TensorKind kind, std::uint32_t rows, std::uint32_t cols,
                           const Storage& as) {
      return TensorInfo{kind, rows, cols, as.format, as.layout};
    };
    const auto vector = [](TensorKind kind, std::uint32_t cols, QuantType type) {
      return TensorInfo{kind, 1, cols, {type, 4}, Layout::kRowMajor};
    };
    write(*writer, SectionKind::kEmbedding, 0,
          {matrix(TensorKind::kTokenEmbedding, 300, 150, storage),
           matrix(TensorKind::kPositionEmbedding, 70, 150, f32)});
    for (std::uint32_t layer = 0; layer < 2; ++layer) {
      write(*writer, SectionKind::kLayer, layer,
            {vector(TensorKind::kAttnNorm, 150, QuantType::kF32),
             matrix(TensorKind::kAttnQ, 150, 150, storage),
             vector(TensorKind::kAttnQBias, 150, QuantType::kF16),
             matrix(TensorKind::kFfnGate, 200, 150, storage),
             matrix(TensorKind::kFfnUp, 200, 150, storage),
             vector(TensorKind::kFfnUpBias, 200, QuantType::kBF16),
             matrix(TensorKind::kFfnDown, 150, 200, storage)});
    }
    write(*writer, SectionKind::kFinal, 0,
          {vector(TensorKind::kFinalNorm, 150, QuantType::kF32),
           matrix(TensorKind::kHead, 300, 150, storage)});
    const Status finished = writer->finish();
    EXPECT_TRUE(finished.ok()) << finished.message();
  }
  ~TestFile() { std::filesystem::remove(path_); }

  const std::string& path() const { return path_; }
  // What every row of a tensor decodes to.
  const std::map<Key, std::vector<std::vector<float>>>& rows() const { return rows_; }

 private:
  void write(QsfWriter& writer, SectionKind kind, std::uint32_t layer,
             std::vector<TensorInfo> tensors) {
    ASSERT_TRUE(writer.begin_section(kind, layer, tensors).ok());
    std::vector<std::vector<std::byte>> encoded;
    for (std::uint32_t t = 0; t < tensors.size(); ++t) encoded.push_back(encode(tensors[t], t));
    for (const TilePlan& tile : writer.tiles()) {
      std::vector<std::byte> raw(tile.raw_bytes);
      if (tile.tensor == kOneRowTensors) {
        for (std::size_t t = 0; t < tensors.size(); ++t) {
          if (tensors[t].rows != 1) continue;
          std::copy(encoded[t].begin(), encoded[t].end(),
                    raw.begin() + static_cast<std::ptrdiff_t>(one_row_offset(tensors, t)));
        }
      } else {
        const TensorInfo& tensor = tensors[tile.tensor];
        const ByteSpan plain =
            ByteSpan(encoded[tile.tensor])
                .subspan(tile.first_row * row_bytes(tensor), tile.n_rows * row_bytes(tensor));
        if (tensor.layout == Layout::kRowMajor) {
          std::copy(plain.begin(), plain.end(), raw.begin());
        } else {
          interleave_rows(tensor.format, tile.n_rows, tensor.cols, plain, raw);
        }
      }
      ASSERT_TRUE(writer.write_tile(raw).ok());
    }
    ASSERT_TRUE(writer.end_section().ok());
    ++section_;
  }

  static std::size_t row_bytes(const TensorInfo& tensor) {
    return static_cast<std::size_t>(row_major_bytes(tensor.format, tensor.cols));
  }

  std::vector<std::byte> encode(const TensorInfo& tensor, std::uint32_t index) {
    std::vector<std::byte> bytes(tensor.rows * row_bytes(tensor));
    std::vector<std::vector<float>>& decoded = rows_[{section_, index}];
    for (std::uint32_t row = 0; row < tensor.rows; ++row) {
      std::vector<float> weights(tensor.cols);
      for (float& weight : weights) weight = rng_.next_normal() * 0.1F;
      const MutableByteSpan out =
          MutableByteSpan(bytes).subspan(row * row_bytes(tensor), row_bytes(tensor));
      encode_row(tensor.format, weights, out);
      if (poison_ != 0.0F && tensor.kind == TensorKind::kAttnNorm && section_ == 2) {
        store_le(out, 40, poison_);
      }
      decode_row(tensor.format, out, weights);
      decoded.push_back(weights);
    }
    return bytes;
  }

  std::string path_;
  float poison_;
  Rng rng_{7};
  std::uint32_t section_ = 0;
  std::map<Key, std::vector<std::vector<float>>> rows_;
};

QsfReader open_reader(const std::string& path) {
  auto reader = QsfReader::open(path);
  EXPECT_TRUE(reader.has_value()) << reader.error().message();
  return std::move(reader).value();
}

// A pager with the memory it was planned.
struct Loaded {
  Arena arena;
  std::unique_ptr<WeightPager> pager;
};

Result<Loaded> load(const QsfReader& reader, LoadOptions options = {}) {
  const unsigned n_threads = options.threads == nullptr ? 1 : options.threads->n_threads();
  QSF_ASSIGN_OR_RETURN(const Residency needs, WeightPager::plan(reader, n_threads));
  MemoryPlan plan;
  const RegionId weights = plan.add("weights", needs.resident_bytes, "");
  const RegionId scratch = plan.add("scratch", needs.scratch_bytes, "");
  QSF_ASSIGN_OR_RETURN(Arena arena, Arena::create(plan));
  const MutableByteSpan region = arena.carve(weights);
  std::fill(region.begin(), region.end(), std::byte{0xEE});  // nothing may count on zeroed memory
  QSF_ASSIGN_OR_RETURN(std::unique_ptr<WeightPager> pager,
                       WeightPager::load(reader, region, arena.carve(scratch), options));
  return Loaded{std::move(arena), std::move(pager)};
}

void expect_same_bits(std::span<const float> got, std::span<const float> expected) {
  ASSERT_EQ(got.size(), expected.size());
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size_bytes()), 0);
}

class WeightPagerTest : public testing::Test {
 protected:
  static std::string path() {
    return (std::filesystem::temp_directory_path() /
            ("qsf_pager_test." + std::to_string(::getpid()) + "." +
             testing::UnitTest::GetInstance()->current_test_info()->name() + ".qsf"))
        .string();
  }

  // Every row of every tensor, by row and by tile.
  static void expect_all_rows(const TestFile& file, const QsfReader& reader, WeightPager& pager) {
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
        const TestFile file(path(), {block_format(type, block), layout, Compression::kNone});
        const QsfReader reader = open_reader(file.path());
        const auto loaded = load(reader);
        ASSERT_TRUE(loaded.has_value()) << loaded.error().message();
        expect_all_rows(file, reader, *loaded->pager);
        ++n_files;
      }
    }
  }
  EXPECT_EQ(n_files, 2 * (3 + 6 * 4 + 2 + 3 * 2));
}

TEST_F(WeightPagerTest, CompressedFilesAndThreadsGiveTheSameWeights) {
  const auto threads = ThreadPool::create(3).value();
  for (const Compression compression :
       {Compression::kLz4, Compression::kLz4Hc, Compression::kZstd}) {
    for (const BlockFormat format :
         {BlockFormat{QuantType::kF32, 4}, BlockFormat{QuantType::kQ4, 64},
          BlockFormat{QuantType::kTernary, 256}}) {
      for (const Layout layout : {Layout::kRowMajor, Layout::kInterleaved}) {
        const TestFile file(path(), {format, layout, compression});
        const QsfReader reader = open_reader(file.path());
        const auto loaded = load(reader, {.threads = threads.get()});
        ASSERT_TRUE(loaded.has_value()) << loaded.error().message();
        expect_all_rows(file, reader, *loaded->pager);
      }
    }
  }
}

TEST_F(WeightPagerTest, PlanCountsWhatLoadingReads) {
  const TestFile file(path(), {});
  const QsfReader reader = open_reader(file.path());
  const Residency needs = WeightPager::plan(reader, 2).value();
  std::uint64_t stored_bytes = 0;
  std::uint64_t n_tiles = 0;
  for (const SectionDirectory& directory : reader.directories()) {
    for (const TileInfo& tile : directory.tiles) stored_bytes += tile.stored_bytes;
    n_tiles += directory.tiles.size();
  }
  EXPECT_EQ(needs.stored_bytes, stored_bytes);
  EXPECT_GT(needs.resident_bytes, stored_bytes / 2);
  EXPECT_LT(needs.resident_bytes, stored_bytes * 2);
  EXPECT_EQ(needs.scratch_bytes, 2 * WeightPager::plan(reader, 1).value().scratch_bytes);
  EXPECT_GT(needs.table_bytes, n_tiles * 32);

  const auto loaded = load(reader);
  EXPECT_EQ(loaded->pager->stats().bytes_read, stored_bytes);
  EXPECT_EQ(loaded->pager->stats().tiles_read, n_tiles);
  EXPECT_GT(loaded->pager->stats().load_ns, 0U);
}

// Matrices stored as kernels read them need no scratch but for the one-row tensors and compression.
TEST_F(WeightPagerTest, TilesInKernelFormNeedNoScratch) {
  const TestFile file(path(), {});
  const QsfReader reader = open_reader(file.path());
  EXPECT_EQ(WeightPager::plan(reader, 1).value().scratch_bytes,
            one_row_tile_bytes(reader.layer(0).tensors));
}

TEST_F(WeightPagerTest, TilesAreNumberedInOrderOfUseAndHeldByCount) {
  const TestFile file(path(), {{QuantType::kF32, 4}, Layout::kInterleaved, Compression::kNone});
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
  const TestFile file(path(), {});
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
  const TestFile file(path(), {});
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
    const TestFile file(path(), {{QuantType::kQ4, 64}, Layout::kRowMajor, compression});
    const QsfReader good = open_reader(file.path());
    for (const std::uint32_t first_bad : {0U, 3U, 7U}) {
      std::vector<std::byte> bytes = good.file().read_all(1U << 24).value();
      for (std::uint32_t bad = first_bad; bad < good.layer(1).tiles.size(); ++bad) {
        bytes[good.layer(1).tiles[bad].file_offset + 5] ^= std::byte{0x10};
      }
      MemoryFileOps ops(bytes);
      const QsfReader reader = QsfReader::open(File::open("damaged.qsf", ops).value()).value();
      const auto threads = ThreadPool::create(4).value();
      for (ThreadPool* pool : {static_cast<ThreadPool*>(nullptr), threads.get()}) {
        const auto loaded = load(reader, {.threads = pool});
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
    const TestFile file(path(), {}, poison);
    const QsfReader reader = open_reader(file.path());
    const auto loaded = load(reader);
    ASSERT_FALSE(loaded.has_value());
    EXPECT_EQ(loaded.error().code(), StatusCode::kCorrupt);
    EXPECT_THAT(loaded.error().message(),
                AllOf(HasSubstr("layer 1: tile 0"), HasSubstr("attn_norm")));
  }
}

TEST_F(WeightPagerTest, ReadErrorsAreReportedWithTheirPlace) {
  const TestFile file(path(), {});
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

TEST_F(WeightPagerTest, CancelStopsAtTheNextTile) {
  const TestFile file(path(), {});
  const QsfReader reader = open_reader(file.path());
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
  const LoadOptions options{
      .cancel = &progress.cancel, .on_progress = note, .progress_user = &progress};
  EXPECT_TRUE(load(reader, options).has_value());
  EXPECT_EQ(progress.done_bytes, progress.total_bytes);
  EXPECT_EQ(progress.total_bytes, WeightPager::plan(reader, 1).value().stored_bytes);
  const int n_tiles = progress.n_calls;

  progress.done_bytes = 0;
  progress.n_calls = 0;
  progress.cancel_at = 3;
  const auto cancelled = load(reader, options);
  EXPECT_EQ(cancelled.error().code(), StatusCode::kCancelled);
  EXPECT_THAT(cancelled.error().message(), HasSubstr(std::to_string(progress.done_bytes)));
  EXPECT_EQ(progress.n_calls, 3);
  EXPECT_GT(n_tiles, 20);
}

}  // namespace
}  // namespace qsf
