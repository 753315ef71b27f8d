// SPDX-License-Identifier: MIT
//
// What the writer writes the reader reads: specs, directories, weights, sections; the same bytes
// for the same calls; nothing left behind when writing fails.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "base/crc32.h"
#include "base/rng.h"
#include "format/qsf_reader.h"
#include "format/qsf_writer.h"
#include "format/testing/small_models.h"
#include "format/tile_codec.h"
#include "io/testing/faulty_file.h"
#include "quant/codec.h"
#include "quant/interleave.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing_support::small_model_bytes;
using testing_support::small_tile;
using testing_support::SmallModel;
using testing_support::write_small_model;

std::vector<SmallModel> all_models() {
  return {testing_support::minimal_model(),    testing_support::types_model(),
          testing_support::compressed_model(), testing_support::full_model(),
          testing_support::longrope_model(),   testing_support::super_model(),
          testing_support::base3_model(),      testing_support::k_quant_model(),
          testing_support::codebook_model(),   testing_support::mxfp4_model(),
          testing_support::trellis_model()};
}

class QsfRoundtripTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() /
                 ("qsf_roundtrip_test." + std::to_string(::getpid()));
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  bool nothing_there() const {
    return std::filesystem::directory_iterator(directory_) == std::filesystem::directory_iterator();
  }

  std::filesystem::path directory_;
};

// Reads every tile and compares it with what was written.
void expect_same_tiles(const QsfReader& reader, const SmallModel& model, std::uint32_t section) {
  const SectionDirectory& d = reader.directories()[section];
  std::vector<std::byte> scratch(kMaxTileBytes);
  for (std::uint32_t t = 0; t < d.tiles.size(); ++t) {
    const TileInfo& tile = d.tiles[t];
    std::vector<std::byte> raw(tile.raw_bytes);
    const Status status = reader.read_tile(d, t, scratch, raw);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(raw, small_tile(section, model.sections[section].tensors,
                              {tile.tensor, tile.first_row, tile.n_rows, tile.raw_bytes}))
        << model.name << " section " << section << " tile " << t;
  }
}

TEST_F(QsfRoundtripTest, EveryModelComesBackAsItWas) {
  for (const SmallModel& model : all_models()) {
    ASSERT_TRUE(write_small_model(model, path(model.name)).ok());
    const auto reader = QsfReader::open(path(model.name));
    ASSERT_TRUE(reader) << reader.error().message();
    EXPECT_EQ(reader->spec(), model.spec);
    EXPECT_EQ(reader->n_layers(), model.spec.n_layers);
    ASSERT_EQ(reader->directories().size(), model.sections.size());
    EXPECT_EQ(reader->embedding().kind, SectionKind::kEmbedding);
    EXPECT_EQ(reader->final_section().kind, SectionKind::kFinal);
    for (std::uint32_t i = 0; i < model.sections.size(); ++i) {
      const SectionDirectory& d = reader->directories()[i];
      EXPECT_EQ(d.tensors, model.sections[i].tensors);
      EXPECT_EQ(d.compression, model.sections[i].compression);
      EXPECT_EQ(d.importance, model.sections[i].importance);
      expect_same_tiles(*reader, model, i);
    }
    EXPECT_EQ(reader->tokenizer_bytes(), model.tokenizer.size());
    if (model.tokenizer.empty()) {
      EXPECT_EQ(reader->read_tokenizer().error().code(), StatusCode::kNotFound);
    } else {
      EXPECT_EQ(reader->read_tokenizer().value(), model.tokenizer);
    }
    const SectionInfo* notes = reader->find_section("extra.notes");
    ASSERT_EQ(notes != nullptr, !model.notes.empty());
    if (notes != nullptr) {
      EXPECT_EQ(reader->read_section(*notes).value(), model.notes);
    }
    EXPECT_GT(reader->heap_bytes(), 0U);
  }
}

// A weight that was encoded, interleaved, cut into tiles, compressed and read back is the weight.
TEST_F(QsfRoundtripTest, DecodedRowsStayCloseToTheWeights) {
  const SmallModel model = testing_support::types_model();
  ASSERT_TRUE(write_small_model(model, path("m")).ok());
  const QsfReader reader = QsfReader::open(path("m")).value();
  const SectionDirectory& d = reader.layer(0);
  const std::uint32_t down = d.find(TensorKind::kFfnDown).value();
  EXPECT_FALSE(d.find(TensorKind::kHead).has_value());
  const TensorInfo& tensor = d.tensors[down];
  for (std::uint32_t t = 0; t < d.tiles.size(); ++t) {
    if (d.tiles[t].tensor != down) continue;
    std::vector<std::byte> raw(d.tiles[t].raw_bytes);
    ASSERT_TRUE(reader.read_tile(d, t, {}, raw).ok());
    std::vector<float> row(tensor.cols);
    decode_group_row(tensor.format, ByteSpan(raw).first(group_bytes(tensor.format, tensor.cols)), 5,
                     tensor.cols, row);
    const auto expected = testing_support::small_row(1, tensor, d.tiles[t].first_row + 5);
    for (std::size_t c = 0; c < row.size(); ++c) EXPECT_NEAR(row[c], expected[c], 2e-3F);
  }
}

TEST_F(QsfRoundtripTest, TheSameCallsGiveTheSameBytes) {
  for (const SmallModel& model : all_models()) {
    EXPECT_EQ(small_model_bytes(model).value(), small_model_bytes(model).value()) << model.name;
  }
}

TEST_F(QsfRoundtripTest, CompressionShrinksWhatItCanAndLeavesTheRest) {
  const SmallModel model = testing_support::compressed_model();
  ASSERT_TRUE(write_small_model(model, path("m")).ok());
  const QsfReader reader = QsfReader::open(path("m")).value();
  bool any_smaller = false;
  for (std::uint32_t layer = 0; layer < reader.n_layers(); ++layer) {
    for (const TileInfo& tile : reader.layer(layer).tiles) {
      EXPECT_LE(tile.stored_bytes, tile.raw_bytes);
      any_smaller = any_smaller || tile.stored_bytes < tile.raw_bytes;
    }
  }
  EXPECT_TRUE(any_smaller);
  for (const TileInfo& tile : reader.embedding().tiles) {
    EXPECT_EQ(tile.stored_bytes, tile.raw_bytes);
  }
}

TEST_F(QsfRoundtripTest, FailingDisksLeaveNothingBehind) {
  const SmallModel model = testing_support::compressed_model();
  const std::uint64_t file_bytes = small_model_bytes(model).value().size();
  for (std::uint64_t disk = 0; disk < file_bytes; disk += 997) {
    FaultyFileOps ops({.disk_bytes = disk});
    const Status status = write_small_model(model, path("m"), ops);
    if (status.ok()) {  // holes take no disk
      EXPECT_TRUE(QsfReader::open(path("m")).has_value());
      std::filesystem::remove(path("m"));
      continue;
    }
    EXPECT_THAT(status.message(), HasSubstr("disk is full"));
    EXPECT_TRUE(nothing_there()) << disk;
  }
  for (const FaultPlan& plan : {FaultPlan{.sync_errno = EIO}, FaultPlan{.close_errno = ENOSPC},
                                FaultPlan{.give_name_errno = EIO},
                                FaultPlan{.create_unnamed_errno = EOPNOTSUPP, .rename_errno = EIO},
                                FaultPlan{.create_errno = EACCES}}) {
    FaultyFileOps ops(plan);
    EXPECT_EQ(write_small_model(model, path("m"), ops).code(), StatusCode::kIo);
    EXPECT_TRUE(nothing_there());
  }
  FaultyFileOps slow({.max_transfer_bytes = 13, .interrupt_every = 2});
  ASSERT_TRUE(write_small_model(model, path("m"), slow).ok());
  EXPECT_TRUE(QsfReader::open(path("m")).has_value());
}

TEST_F(QsfRoundtripTest, ReadsOverABadDisk) {
  const std::vector<std::byte> bytes =
      small_model_bytes(testing_support::compressed_model()).value();
  MemoryFileOps memory(bytes);
  FaultyFileOps slow({.max_transfer_bytes = 5, .interrupt_every = 3}, memory);
  EXPECT_TRUE(QsfReader::open(File::open("m", slow).value()).has_value());
  FaultyFileOps late({}, memory);
  const QsfReader reader = QsfReader::open(File::open("m", late).value()).value();
  const SectionDirectory& d = reader.layer(1);
  std::vector<std::byte> scratch(kMaxTileBytes);
  std::vector<std::byte> raw(d.tiles[1].raw_bytes);
  late.plan.read_error_at = d.tiles[1].file_offset;
  EXPECT_EQ(reader.read_tile(d, 1, scratch, raw).code(), StatusCode::kIo);
  late.plan = {.truncate_at = d.tiles[1].file_offset + 1};
  EXPECT_THAT(reader.read_tile(d, 1, scratch, raw).message(), HasSubstr("truncated"));
  late.plan = {};
  EXPECT_TRUE(reader.read_tile(d, 1, scratch, raw).ok());
}

TEST_F(QsfRoundtripTest, WriterRefusesCallsOutOfTurn) {
  const SmallModel model = testing_support::minimal_model();
  QsfWriter writer = QsfWriter::create(path("m"), model.spec, {}).value();
  const auto& tensors = model.sections;
  const auto is_invalid = [](const Status& s) { return s.code() == StatusCode::kInvalidArgument; };
  EXPECT_TRUE(is_invalid(writer.begin_section(SectionKind::kLayer, 0, tensors[1].tensors)));
  EXPECT_TRUE(is_invalid(writer.begin_section(SectionKind::kEmbedding, 0, tensors[1].tensors)));
  EXPECT_TRUE(is_invalid(writer.finish()));
  EXPECT_TRUE(is_invalid(writer.end_section()));
  EXPECT_TRUE(is_invalid(writer.write_tile({})));
  ASSERT_TRUE(writer.begin_section(SectionKind::kEmbedding, 0, tensors[0].tensors).ok());
  EXPECT_TRUE(is_invalid(writer.set_tokenizer(as_bytes("x"))));
  EXPECT_TRUE(is_invalid(writer.write_tile(as_bytes("short"))));
  EXPECT_TRUE(is_invalid(writer.end_section()));
  ASSERT_TRUE(writer.write_tile(small_tile(0, tensors[0].tensors, writer.tiles()[0])).ok());
  EXPECT_TRUE(is_invalid(writer.write_tile(as_bytes("one more"))));
  EXPECT_TRUE(is_invalid(writer.end_section(0.5F)));
  ASSERT_TRUE(writer.end_section().ok());
  EXPECT_TRUE(is_invalid(writer.add_section("final", as_bytes("x"), false)));
  EXPECT_TRUE(is_invalid(writer.add_section("Bad Name", as_bytes("x"), false)));
  EXPECT_TRUE(is_invalid(writer.add_section("empty", {}, false)));
  ASSERT_TRUE(writer.add_section("twice", as_bytes("x"), false).ok());
  EXPECT_TRUE(is_invalid(writer.add_section("twice", as_bytes("x"), false)));
  EXPECT_TRUE(is_invalid(writer.begin_section(SectionKind::kLayer, 1, tensors[1].tensors)));
  EXPECT_TRUE(is_invalid(writer.finish()));
  ModelSpec bad = model.spec;
  bad.hidden = 0;
  EXPECT_TRUE(is_invalid(QsfWriter::create(path("x"), bad, {}).error()));
  EXPECT_TRUE(is_invalid(
      QsfWriter::create(path("x"), model.spec, {.tile_bytes = kMaxTileBytes + 1}).error()));
}

TEST(TilePlanTest, CutsAtMultiplesOf64AndAlternatesGateAndUp) {
  const TensorInfo gate{TensorKind::kFfnGate, 200, 64, {QuantType::kQ4, 64}};
  TensorInfo up = gate;
  up.kind = TensorKind::kFfnUp;
  const TensorInfo norm{TensorKind::kFfnNorm, 1, 10, {QuantType::kF32, 4}, Layout::kRowMajor};
  const auto plan = plan_tiles(std::vector{gate, norm, up, norm}, 1).value();
  ASSERT_EQ(plan.size(), 9U);  // not neighbours: one after the other
  EXPECT_EQ(plan[0], (TilePlan{kOneRowTensors, 0, 2, 128}));
  EXPECT_EQ(plan[4], (TilePlan{0, 192, 8, 576}));
  const auto pair = plan_tiles(std::vector{gate, up}, 1).value();
  ASSERT_EQ(pair.size(), 8U);
  for (std::uint32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(pair[i].tensor, i % 2);
    EXPECT_EQ(pair[i].first_row, i / 2 * 64);
  }
  EXPECT_EQ(plan_tiles(std::vector{gate}, kMaxTileBytes).value().size(), 1U);
  EXPECT_EQ(plan_tiles(std::vector{gate}, 128 * 36).value().size(), 2U);
  const TensorInfo wide{TensorKind::kFfnDown, 100, 20000, {QuantType::kF32, 4}};
  EXPECT_EQ(plan_tiles(std::vector{wide}, kMaxTileBytes).error().code(), StatusCode::kUnsupported);
}

TEST(CrcCombineTest, EqualsTheCrcOfTheWhole) {
  Rng rng(1);
  std::vector<std::byte> bytes(10'000);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng.next_u32() & 0xFF);
  for (const std::size_t cut : {0U, 1U, 7U, 4096U, 9999U, 10'000U}) {
    const ByteSpan a = ByteSpan(bytes).first(cut);
    const ByteSpan b = ByteSpan(bytes).subspan(cut);
    EXPECT_EQ(crc32_combine(crc32(a), crc32(b), b.size()), crc32(bytes)) << cut;
  }
}

TEST(TileCodecTest, RefusesDamagedStreams) {
  std::vector<std::byte> raw(20'000, std::byte{7});
  for (std::size_t i = 0; i < raw.size(); i += 3) raw[i] = static_cast<std::byte>(i / 64 & 0xFF);
  for (const Compression c : {Compression::kLz4, Compression::kLz4Hc, Compression::kZstd}) {
    std::vector<std::byte> stored;
    ASSERT_TRUE(compress_tile(c, raw, stored).ok());
    ASSERT_FALSE(stored.empty());
    std::vector<std::byte> back(raw.size());
    ASSERT_TRUE(decompress_tile(c, stored, back).ok());
    EXPECT_EQ(back, raw);
    std::vector<std::byte> other(raw.size() + 1);
    EXPECT_FALSE(decompress_tile(c, stored, other).ok());
    EXPECT_FALSE(decompress_tile(c, stored, MutableByteSpan(back).first(back.size() - 1)).ok());
    for (std::size_t n = 0; n < stored.size(); n += 11) {
      EXPECT_FALSE(decompress_tile(c, ByteSpan(stored).first(n), back).ok()) << n;
    }
    Rng rng(3);
    for (int i = 0; i < 2000; ++i) {  // must not touch memory outside, which sanitizers see
      std::vector<std::byte> bad = stored;
      bad[rng.below(static_cast<std::uint32_t>(bad.size()))] ^= std::byte{0x41};
      static_cast<void>(decompress_tile(c, bad, back).ok());
    }
  }
  std::vector<std::byte> noise(1000);
  Rng rng(4);
  for (std::byte& b : noise) b = static_cast<std::byte>(rng.next_u32() & 0xFF);
  std::vector<std::byte> stored(1);
  ASSERT_TRUE(compress_tile(Compression::kZstd, noise, stored).ok());
  EXPECT_TRUE(stored.empty());
}

}  // namespace
}  // namespace qsf
