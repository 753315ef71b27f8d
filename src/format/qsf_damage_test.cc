// SPDX-License-Identifier: MIT
//
// Damaged files: every prefix, every flipped byte of header, index, metadata and directories,
// fields at their limits. Each damage is tried twice, as it is and with all checksums recomputed,
// because a checksum would otherwise hide the parser from the test.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/crc32.h"
#include "format/directory_codec.h"
#include "format/qsf_reader.h"
#include "format/testing/checksum_repair.h"
#include "format/testing/small_models.h"
#include "io/testing/faulty_file.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing_support::ChecksumRepair;
using testing_support::small_model_bytes;
using testing_support::SmallModel;

Result<QsfReader> open_bytes(FileOps& ops, bool verify_crc = true) {
  return QsfReader::open(File::open("m.qsf", ops).value(), {.verify_crc = verify_crc});
}

// Reads everything; damage may surface here or not at all, but only as a Status.
bool reads_whole(const QsfReader& reader) {
  static std::vector<std::byte> scratch(kMaxTileBytes);
  static std::vector<std::byte> raw(kMaxTileBytes);
  bool ok = true;
  for (const SectionDirectory& d : reader.directories()) {
    for (std::uint32_t t = 0; t < d.tiles.size(); ++t) {
      ok = reader.read_tile(d, t, scratch, MutableByteSpan(raw).first(d.tiles[t].raw_bytes)).ok() &&
           ok;
    }
  }
  for (const SectionInfo& s : reader.sections()) ok = reader.read_section(s).has_value() && ok;
  return ok;
}

// Whether two readers tell a caller the same in every respect.
bool tells_the_same(const QsfReader& a, const QsfReader& b) {
  if (!(a.spec() == b.spec() && a.metadata() == b.metadata())) return false;
  for (std::size_t i = 0; i < a.sections().size(); ++i) {
    const SectionInfo& x = a.sections()[i];
    const SectionInfo& y = b.sections()[i];
    if (x.name != y.name || x.file_offset != y.file_offset || x.bytes != y.bytes ||
        x.required != y.required) {
      return false;
    }
  }
  for (std::size_t i = 0; i < a.directories().size(); ++i) {
    const SectionDirectory& x = a.directories()[i];
    const SectionDirectory& y = b.directories()[i];
    if (x.compression != y.compression || x.importance != y.importance || x.tensors != y.tensors ||
        x.tiles != y.tiles) {
      return false;
    }
  }
  return true;
}

// A damaged copy of an intact file, with a reader of each.
class Patient {
 public:
  explicit Patient(const SmallModel& model)
      : bytes_(small_model_bytes(model).value()),
        ops_(bytes_),
        intact_(open_bytes(ops_).value()),
        repair_(intact_, bytes_) {}

  const std::vector<std::byte>& bytes() const { return bytes_; }
  const std::vector<std::byte>& copy() const { return copy_; }  // of the last operation
  const QsfReader& intact() const { return intact_; }
  const ChecksumRepair& repair() const { return repair_; }

  // Opens a copy that `damage` was applied to.
  template <typename F>
  void operate(bool repaired, const F& damage,
               const std::function<void(const Result<QsfReader>&)>& look, bool verify_crc = true) {
    copy_ = bytes_;
    damage(copy_);
    if (repaired) repair_.repair(copy_);
    MemoryFileOps ops(copy_);
    look(open_bytes(ops, verify_crc));
  }

 private:
  std::vector<std::byte> bytes_;
  std::vector<std::byte> copy_;
  MemoryFileOps ops_;
  QsfReader intact_;
  ChecksumRepair repair_;
};

TEST(QsfDamageTest, RepairLeavesAnIntactFileAlone) {
  for (const SmallModel& model :
       {testing_support::minimal_model(), testing_support::full_model()}) {
    Patient patient(model);
    std::vector<std::byte> copy = patient.bytes();
    patient.repair().repair(copy);
    EXPECT_EQ(copy, patient.bytes());
  }
}

TEST(QsfDamageTest, EveryPrefixFailsCleanly) {
  for (const SmallModel& model :
       {testing_support::minimal_model(), testing_support::full_model()}) {
    const std::vector<std::byte> bytes = small_model_bytes(model).value();
    const bool small = bytes.size() < 40'000;
    for (std::size_t n = 0; n < bytes.size(); n += small || n < 300 ? 1 : 997) {
      MemoryFileOps ops(ByteSpan(bytes).first(n));
      for (const bool verify_crc : {true, false}) {
        const auto reader = open_bytes(ops, verify_crc);
        ASSERT_FALSE(reader) << n;
        EXPECT_EQ(reader.error().code(), StatusCode::kCorrupt) << n;
      }
    }
  }
}

TEST(QsfDamageTest, EveryPrefixWithARepairedSizeFailsCleanly) {
  Patient patient(testing_support::minimal_model());
  for (std::size_t n = 1; n < patient.bytes().size() / kSectionAlign; ++n) {
    std::vector<std::byte> copy = patient.bytes();
    store_le(copy, header_at::kFileSizeLow, static_cast<std::uint32_t>(n * kSectionAlign));
    patient.repair().repair(copy);
    MemoryFileOps ops(ByteSpan(copy).first(n * kSectionAlign));
    EXPECT_FALSE(open_bytes(ops).has_value()) << n;
  }
}

TEST(QsfDamageTest, AddedBytesAreRefused) {
  const std::vector<std::byte> intact = small_model_bytes(testing_support::minimal_model()).value();
  for (const std::size_t extra : {1U, 100U, 4096U, 8192U}) {
    std::vector<std::byte> bytes = intact;
    bytes.insert(bytes.end(), extra, std::byte{0});
    MemoryFileOps ops(bytes);
    EXPECT_THAT(open_bytes(ops).error().message(), HasSubstr("bytes added"));
    EXPECT_FALSE(open_bytes(ops, /*verify_crc=*/false).has_value());
  }
}

// Without repair every flipped byte of structure is noticed. With repair the file is refused, or it
// says something else than before or its sections no longer read: no byte goes unread.
TEST(QsfDamageTest, EveryFlippedByteOfStructureIsNoticed) {
  for (const SmallModel& model :
       {testing_support::minimal_model(), testing_support::full_model()}) {
    Patient patient(model);
    std::size_t n_accepted = 0;
    for (const ChecksumRepair::Range& range : patient.repair().structure()) {
      for (std::size_t at = range.offset; at < range.offset + range.bytes; ++at) {
        for (const unsigned mask : {0x01U, 0x80U, 0xFFU}) {
          const auto flip = [&](std::vector<std::byte>& copy) {
            copy[at] ^= static_cast<std::byte>(mask);
          };
          patient.operate(false, flip, [&](const Result<QsfReader>& reader) {
            EXPECT_FALSE(reader.has_value()) << model.name << " byte " << at;
          });
          patient.operate(true, flip, [&](const Result<QsfReader>& reader) {
            if (!reader) return;
            // A checksum that repair put right again leaves nothing to notice.
            EXPECT_TRUE(patient.copy() == patient.bytes() ||
                        !tells_the_same(*reader, patient.intact()) || !reads_whole(*reader))
                << model.name << " byte " << at << " mask " << mask;
            ++n_accepted;
          });
        }
      }
    }
    EXPECT_GT(n_accepted, 100U);  // texts, sizes that nothing depends on, tile checksums
  }
}

TEST(QsfDamageTest, EveryFlippedWeightIsFoundWhenRead) {
  Patient patient(testing_support::compressed_model());
  for (const SectionDirectory& d : patient.intact().directories()) {
    for (const TileInfo& tile : d.tiles) {
      for (std::uint32_t at = 0; at < tile.stored_bytes; at += 61) {
        patient.operate(
            false,
            [&](std::vector<std::byte>& copy) {
              copy[static_cast<std::size_t>(tile.file_offset) + at] ^= std::byte{4};
            },
            [&](const Result<QsfReader>& reader) {
              ASSERT_TRUE(reader.has_value());
              EXPECT_FALSE(reads_whole(*reader));
            });
      }
    }
  }
}

TEST(QsfDamageTest, DamagedWeightsAreNamedByPlace) {
  Patient patient(testing_support::compressed_model());
  const SectionDirectory& d = patient.intact().layer(2);
  patient.operate(
      false,
      [&](std::vector<std::byte>& copy) {
        copy[static_cast<std::size_t>(d.tiles[3].file_offset)] ^= std::byte{1};
      },
      [&](const Result<QsfReader>& reader) {
        std::vector<std::byte> scratch(kMaxTileBytes);
        std::vector<std::byte> raw(d.tiles[3].raw_bytes);
        const Status status = reader->read_tile(d, 3, scratch, raw);
        EXPECT_EQ(status.code(), StatusCode::kCorrupt);
        EXPECT_THAT(status.message(), HasSubstr("m.qsf: layer 2: tile 3 at offset " +
                                                std::to_string(d.tiles[3].file_offset) +
                                                ": the weights are damaged"));
      });
}

// Every field at 0, at its largest, and one off, with checksums that are right.
TEST(QsfDamageTest, FieldsAtTheirLimitsNeverGoUnnoticed) {
  Patient patient(testing_support::full_model());
  for (const ChecksumRepair::Range& range : patient.repair().structure()) {
    for (std::size_t at = range.offset; at + 4 <= range.offset + range.bytes; at += 2) {
      const auto value = load_le<std::uint32_t>(patient.bytes(), at);
      for (const std::uint32_t changed :
           {0U, UINT32_MAX, value + 1, value - 1, 0x80000000U, 0x7FFFFFFFU}) {
        if (changed == value) continue;
        patient.operate(
            true, [&](std::vector<std::byte>& copy) { store_le(copy, at, changed); },
            [&](const Result<QsfReader>& reader) {
              if (reader) reads_whole(*reader);
            });
      }
    }
  }
}

// One damage with a right checksum, and what must be said of it.
struct Damage {
  const char* what;
  std::function<void(std::vector<std::byte>&, const QsfReader&)> apply;
  StatusCode code;
  const char* message;
};

template <typename T>
auto store(std::size_t offset, T value) {
  return [=](std::vector<std::byte>& bytes, const QsfReader&) { store_le(bytes, offset, value); };
}

// Adds to a field of tile entry `tile` of layer 0.
template <typename T>
auto add_to_tile(std::uint32_t tile, std::size_t field, T delta) {
  return [=](std::vector<std::byte>& bytes, const QsfReader& reader) {
    const SectionDirectory& d = reader.layer(0);
    const auto at = static_cast<std::size_t>(d.file_offset) +
                    d.tensors.size() * kTensorHeaderBytes + 4 + tile * kTileEntryBytes + field;
    store_le<T>(bytes, at, static_cast<T>(load_le<T>(bytes, at) + delta));
  };
}

template <typename T>
auto set_in_tensor(std::uint32_t tensor, std::size_t field, T value) {
  return [=](std::vector<std::byte>& bytes, const QsfReader& reader) {
    store_le<T>(
        bytes,
        static_cast<std::size_t>(reader.layer(0).file_offset) + tensor * kTensorHeaderBytes + field,
        value);
  };
}

template <typename T>
auto set_in_index(std::uint32_t layer, std::size_t field, T value) {
  return [=](std::vector<std::byte>& bytes, const QsfReader&) {
    const auto index = load_le<std::uint64_t>(bytes, header_at::kIndexOffset);
    store_le<T>(bytes, static_cast<std::size_t>(index) + layer * kIndexEntryBytes + field, value);
  };
}

// Changes a field of the section directory's entry of `name`.
template <typename T>
auto set_in_section(const char* name, std::size_t field, T value) {
  return [=](std::vector<std::byte>& bytes, const QsfReader&) {
    std::string padded(name);
    padded.resize(kSectionNameBytes);
    const std::size_t at = as_text(bytes).rfind(padded);
    ASSERT_NE(at, std::string_view::npos);
    store_le<T>(bytes, at + field, value);
  };
}

constexpr StatusCode kCorrupt = StatusCode::kCorrupt;
constexpr StatusCode kUnsupported = StatusCode::kUnsupported;

const Damage kDamages[] = {
    {"magic", store(0, 'q'), kCorrupt, "not a QSF file"},
    {"version 2", store(4, 2U), kUnsupported, "format version 2"},
    {"version 0", store(4, 0U), kUnsupported, "format version 0"},
    {"header size", store(8, 129U), kCorrupt, "header of 129 bytes"},
    {"reserved", store(124, 1U), kCorrupt, "124 to 127"},
    {"file size", store(92, 77U), kCorrupt, "truncated or has bytes added"},
    {"hidden", store(20, 25U), kCorrupt, "expected [83, 25]"},
    {"layers", store(16, 3U), kCorrupt, "attention window: 2 values for 3 layers"},
    {"vocabulary", store(32, 84U), kCorrupt, "shape [83, 24], expected [84, 24]"},
    {"no metadata", store(108, std::uint64_t{0}), kCorrupt, "section metadata: offset 0"},
    {"metadata outside", store(108, std::uint64_t{1} << 60), kCorrupt, "section metadata"},
    {"embedding", store(64, std::uint64_t{8192}), kCorrupt, "the header says 8192"},
    {"no tokenizer", store(100, std::uint64_t{0}), kCorrupt, "the header says 0"},
    {"gap in tiles", add_to_tile<std::uint64_t>(1, tile_at::kOffset, 4096), kCorrupt, "layer 0"},
    {"overlap of tiles", add_to_tile<std::uint64_t>(2, tile_at::kOffset, 0 - 4096ULL), kCorrupt,
     "expected"},
    {"tile raw", add_to_tile<std::uint32_t>(1, tile_at::kRaw, 64), kCorrupt, "rows in"},
    {"tile stored", add_to_tile<std::uint32_t>(0, tile_at::kStored, 1U << 30), kCorrupt,
     "stored in"},
    {"tile rows", add_to_tile<std::uint32_t>(1, tile_at::kRows, 1), kCorrupt, "a tile of"},
    {"tile start", add_to_tile<std::uint32_t>(1, tile_at::kFirstRow, 1), kCorrupt,
     "expected it to start at row 0"},
    {"tile tensor", add_to_tile<std::uint32_t>(1, tile_at::kTensor, 500), kCorrupt,
     "a tile of tensor"},
    {"one-row tile", add_to_tile<std::uint32_t>(0, tile_at::kRows, 1), kCorrupt,
     "the tile of one-row tensors"},
    {"tensor kind", set_in_tensor(1, tensor_at::kKind, 14U), kUnsupported, "kind 14"},
    {"tensor in wrong place", set_in_tensor(1, tensor_at::kKind, 37U), kCorrupt,
     "head (37): does not belong"},
    {"tensor twice", set_in_tensor(2, tensor_at::kKind, 7U), kCorrupt, "attn_norm"},
    {"tensor type", set_in_tensor<std::uint8_t>(1, tensor_at::kType, 31), kUnsupported,
     "weight type 31"},
    {"layout", set_in_tensor<std::uint8_t>(1, tensor_at::kLayoutAndBlock, 2), kUnsupported,
     "layout 2"},
    {"block code", set_in_tensor<std::uint8_t>(1, tensor_at::kLayoutAndBlock, 0x51), kUnsupported,
     "block size code 5"},
    {"block of floats", set_in_tensor<std::uint8_t>(0, tensor_at::kLayoutAndBlock, 0x10), kCorrupt,
     "block size code 1 with type f32"},
    {"interleaved row", set_in_tensor<std::uint8_t>(0, tensor_at::kLayoutAndBlock, 1), kCorrupt,
     "it has one row"},
    {"rows 0", set_in_tensor(1, tensor_at::kRows, 0U), kCorrupt, "shape [0, 24]"},
    {"expert", set_in_tensor<std::uint16_t>(6, tensor_at::kExpert, 2), kCorrupt,
     "expert 2, expected 0 to 1"},
    {"expert of q", set_in_tensor<std::uint16_t>(1, tensor_at::kExpert, 1), kCorrupt,
     "attn_q: number 1, expected 0 to 0"},
    {"tensors", set_in_index<std::uint16_t>(0, index_at::kTensors, 5), kCorrupt, "layer 0"},
    {"no tensors", set_in_index<std::uint16_t>(0, index_at::kTensors, 0), kCorrupt, "layer 0"},
    {"layer compression", set_in_index<std::uint8_t>(1, index_at::kCompression, 4), kUnsupported,
     "layer 1: compression 4"},
    {"layer type", set_in_index<std::uint8_t>(1, index_at::kType, 31), kUnsupported,
     "layer 1: weight type 31"},
    {"layer type of others", set_in_index<std::uint8_t>(1, index_at::kType, 3), kCorrupt,
     "layer 1 at offset"},
    {"importance", set_in_index(1, index_at::kImportance, -1.0F), kCorrupt, "importance -1"},
    {"layer twice", set_in_index(1, index_at::kOffset, std::uint64_t{4096}), kCorrupt, "overlaps"},
    {"layer unaligned", set_in_index(1, index_at::kOffset, std::uint64_t{4097}), kCorrupt,
     "multiple of 4096"},
    {"layer raw", set_in_index<std::uint16_t>(1, index_at::kRawHigh, 1), kCorrupt,
     "the tiles hold"},
    {"layer stored", set_in_index<std::uint16_t>(1, index_at::kStoredHigh, 1), kCorrupt,
     "in a file of"},
    {"section required", set_in_section("extra.notes", section_at::kFlags, 1U), kUnsupported,
     "section extra.notes is required"},
    {"section flags", set_in_section("extra.notes", section_at::kFlags, 2U), kCorrupt, "flags"},
    {"section reserved", set_in_section<std::uint16_t>("final", section_at::kReserved, 1), kCorrupt,
     "zeros at its end"},
    {"section empty", set_in_section("extra.notes", section_at::kBytes, std::uint64_t{0}), kCorrupt,
     "0 bytes"},
    {"section beyond", set_in_section("extra.notes", section_at::kBytes, UINT64_MAX), kCorrupt,
     "in a file of"},
    {"section longer", set_in_section("extra.notes", section_at::kBytes, std::uint64_t{5000}),
     kCorrupt, "overlaps"},
    {"index longer", set_in_section("layer_index", section_at::kBytes, std::uint64_t{96}), kCorrupt,
     "layer_index: 96 bytes, expected 64"},
    {"section fields", set_in_section("extra.notes", section_at::kTensors, 1U), kCorrupt,
     "56 to 61"},
    {"embedding compressed", set_in_section<std::uint8_t>("embedding", section_at::kCompression, 1),
     kUnsupported, "compression 1"},
    {"many tensors", set_in_section("final", section_at::kTensors, 1U << 20), kCorrupt,
     "1048576 tensors"},
    {"name", set_in_section<char>("extra.notes", 0, 'E'), kCorrupt, "its name is not"},
    {"order of names", set_in_section<char>("extra.notes", 0, 'a'), kCorrupt, "sorted"},
};

TEST(QsfDamageTest, EachDamageHasItsOwnMessage) {
  Patient patient(testing_support::full_model());
  for (const Damage& damage : kDamages) {
    patient.operate(
        true, [&](std::vector<std::byte>& copy) { damage.apply(copy, patient.intact()); },
        [&](const Result<QsfReader>& reader) {
          EXPECT_FALSE(reader.has_value()) << damage.what;
          if (reader) return;
          EXPECT_EQ(reader.error().code(), damage.code)
              << damage.what << ": " << reader.error().message();
          EXPECT_THAT(reader.error().message(), HasSubstr(damage.message)) << damage.what;
          EXPECT_THAT(reader.error().message(), testing::StartsWith("m.qsf: ")) << damage.what;
        });
  }
}

// A tile count that would need gigabytes is refused before anything is allocated for it.
TEST(QsfDamageTest, CountsAreBoundedByTheFile) {
  Patient patient(testing_support::full_model());
  const SectionDirectory& d = patient.intact().layer(0);
  const auto count_at =
      static_cast<std::size_t>(d.file_offset) + d.tensors.size() * kTensorHeaderBytes;
  for (const std::uint32_t n : {0U, 1U, 1000U, 1U << 31, UINT32_MAX}) {
    patient.operate(
        false, [&](std::vector<std::byte>& copy) { store_le(copy, count_at, n); },
        [&](const Result<QsfReader>& reader) {
          ASSERT_FALSE(reader.has_value());
          EXPECT_EQ(reader.error().code(), StatusCode::kCorrupt);
        },
        /*verify_crc=*/false);
  }
}

}  // namespace
}  // namespace qsf
