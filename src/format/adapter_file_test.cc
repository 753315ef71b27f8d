// SPDX-License-Identifier: MIT
//
// Adapter files: what is written is read, and damage of every kind is refused. Each damage is tried
// as it is, and with checksums recomputed where a checksum would hide the parser.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/crc32.h"
#include "base/testing/temporary_path.h"
#include "format/adapter_layout.h"
#include "format/adapter_reader.h"
#include "format/adapter_writer.h"
#include "format/testing/adapter_values.h"
#include "io/atomic_file.h"
#include "io/testing/faulty_file.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing_support::decoded_pair;
using testing_support::MemoryAdapter;
using testing_support::PairValues;
using testing_support::random_adapter_values;

AdapterSpec small_spec() {
  return {.name = "poet",
          .architecture = "llama",
          .base_fingerprint = 0x0123456789ABCDEFU,
          .pairs = {{.kind = TensorKind::kAttnQ, .rank = 2, .in = 5, .out = 3, .scale = 2.0F},
                    {.kind = TensorKind::kFfnDown, .rank = 1, .in = 20, .out = 7, .scale = -0.5F},
                    {.kind = TensorKind::kExpertUp,
                     .layer = 3,
                     .expert = 2,
                     .rank = 3,
                     .in = 4,
                     .out = 5,
                     .scale = 0.0F},
                    {.kind = TensorKind::kHead, .rank = 2, .in = 4, .out = 9, .scale = 1.0F}}};
}

// An adapter file in memory, and reading of changed copies.
class AdapterFileTest : public testing::Test {
 protected:
  AdapterFileTest() : values_(random_adapter_values(small_spec(), 7)), bytes_(written()) {}

  std::vector<std::byte> written() {
    const std::string path = testing_support::temporary_path("adapter.qsfa");
    EXPECT_TRUE(write_adapter_file(path, small_spec(), values_).ok());
    return File::open(path).value().read_all(1U << 20).value();
  }

  static Result<AdapterReader> open(ByteSpan bytes, AdapterReadOptions options = {}) {
    static std::vector<std::unique_ptr<MemoryFileOps>> kept;
    kept.push_back(std::make_unique<MemoryFileOps>(bytes));
    return AdapterReader::open(File::open("a.qsfa", *kept.back()).value(), options);
  }

  // Opens and reads everything; returns the first failure.
  static Status read_all(ByteSpan bytes, AdapterReadOptions options = {}) {
    const auto reader = open(bytes, options);
    if (!reader) return reader.error();
    for (std::size_t i = 0; i < reader->spec().pairs.size(); ++i) {
      std::vector<std::byte> stored(adapter_pair_bytes(reader->spec().pairs[i]));
      QSF_RETURN_IF_ERROR(reader->read_pair(i, stored));
    }
    return ok_status();
  }

  static std::uint64_t entry_at(std::size_t pair) {
    return adapter_entries_offset(9) + pair * kAdapterEntryBytes;  // "poet" and "llama"
  }

  // The file with a field changed, its checksums right.
  template <typename T>
  std::vector<std::byte> with(std::uint64_t at, T value) {
    std::vector<std::byte> bytes = bytes_;
    store_le(MutableByteSpan(bytes), at, value);
    repair_front(bytes);
    return bytes;
  }

  static void repair_front(std::vector<std::byte>& bytes) {
    const ByteSpan front = ByteSpan(bytes).first(adapter_data_offset(9, 4));
    store_le(MutableByteSpan(bytes), adapter_at::kCrc, crc32(front.subspan(adapter_at::kPairs)));
  }

  MemoryAdapter values_;
  std::vector<std::byte> bytes_;
};

TEST_F(AdapterFileTest, ReadsWhatIsWritten) {
  const AdapterReader reader = open(bytes_).value();
  AdapterSpec expected = small_spec();
  for (const std::size_t i : {0U, 2U}) expected.pairs[i].type = AdapterType::kF16;
  EXPECT_EQ(reader.spec(), expected);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < expected.pairs.size(); ++i) {
    const AdapterPair& pair = expected.pairs[i];
    std::vector<std::byte> stored(adapter_pair_bytes(pair));
    ASSERT_TRUE(reader.read_pair(i, stored).ok());
    EXPECT_EQ(decoded_pair(pair, stored), values_.pairs[i]) << i;
    EXPECT_EQ(adapter_a_bytes(pair) % kAdapterAlign, 0U);
    sum += stored.size();
  }
  EXPECT_EQ(reader.values_bytes(), sum);
  EXPECT_EQ(bytes_, written());
}

// The layout of docs/format-adapter.md, by hand.
TEST_F(AdapterFileTest, HasTheDocumentedBytes) {
  EXPECT_EQ(as_text(ByteSpan(bytes_).first(4)), "QSFA");
  EXPECT_EQ(load_le<std::uint32_t>(bytes_, 4), 1U);
  EXPECT_EQ(load_le<std::uint32_t>(bytes_, 12), 4U);
  EXPECT_EQ(load_le<std::uint64_t>(bytes_, 16), bytes_.size());
  EXPECT_EQ(load_le<std::uint64_t>(bytes_, 24), 0x0123456789ABCDEFU);
  EXPECT_EQ(as_text(ByteSpan(bytes_).subspan(40, 9)), "poetllama");
  EXPECT_EQ(load_le<std::uint32_t>(bytes_, 64 + 40), 6U);               // ffn_down
  EXPECT_EQ(load_le<std::uint32_t>(bytes_, 64 + 40 + 16), 20U);         // its columns
  EXPECT_EQ(load_le<float>(bytes_, 64 + 40 + 24), -0.5F);               // its scale
  EXPECT_EQ(load_le<float>(bytes_, 256 + 128), values_.pairs[1].a[0]);  // data at 256, A and B: 64
  EXPECT_EQ(load_le<float>(bytes_, 256 + 128 + 128), values_.pairs[1].b[0]);
  EXPECT_EQ(load_le<F16>(bytes_, 256 + 2), to_f16(values_.pairs[0].a[1]));
}

TEST_F(AdapterFileTest, EveryFlippedByteIsRefused) {
  ASSERT_TRUE(read_all(bytes_).ok());
  for (std::size_t at = 0; at < bytes_.size(); ++at) {
    for (const unsigned bit : {0U, 7U}) {
      std::vector<std::byte> damaged = bytes_;
      damaged[at] ^= std::byte{1} << bit;
      const Status status = read_all(damaged);
      EXPECT_FALSE(status.ok()) << at;
      EXPECT_THAT(status.message(), HasSubstr("a.qsfa")) << at;
    }
  }
}

TEST_F(AdapterFileTest, EveryPrefixAndMoreBytesAreRefused) {
  for (std::size_t n = 0; n < bytes_.size(); ++n) {
    EXPECT_EQ(read_all(ByteSpan(bytes_).first(n)).code(), StatusCode::kCorrupt) << n;
    EXPECT_FALSE(read_all(ByteSpan(bytes_).first(n), {.verify_crc = false}).ok()) << n;
  }
  std::vector<std::byte> longer = bytes_;
  longer.resize(longer.size() + 64);
  EXPECT_FALSE(read_all(longer).ok());
  store_le(MutableByteSpan(longer), adapter_at::kFileBytes, std::uint64_t{longer.size()});
  repair_front(longer);
  EXPECT_THAT(read_all(longer).message(), HasSubstr("for its matrices"));
}

TEST_F(AdapterFileTest, FieldsOutOfRangeAreRefusedByName) {
  using namespace adapter_pair_at;
  const float infinity = std::numeric_limits<float>::infinity();
  const std::pair<std::vector<std::byte>, const char*> cases[] = {
      {with(0, 'q'), "not an adapter file"},
      {with(adapter_at::kVersion, 2U), "version 2"},
      {with(adapter_at::kPairs, 0U), "matrices: 0"},
      {with(adapter_at::kPairs, kMaxAdapterPairs + 1), "matrices: 65537"},
      {with(adapter_at::kPairs, kMaxAdapterPairs), "truncated"},
      {with(adapter_at::kFileBytes, std::uint64_t{bytes_.size() + 1}), "stated size"},
      {with(adapter_at::kNameBytes, 0U), "bytes of the name: 0"},
      {with(adapter_at::kNameBytes, UINT32_MAX), "bytes of the name: 4294967295"},
      {with(adapter_at::kArchitectureBytes, 65U), "bytes of the architecture: 65"},
      {with(kAdapterHeadBytes, '\xFF'), "name"},
      {with(kAdapterHeadBytes + 5, 'L'), "architecture"},
      {with(kAdapterHeadBytes + 9, '\1'), "padding"},
      {with(adapter_data_offset(9, 4) - 1, '\1'), "padding"},
      {with(entry_at(0) + kKind, 14U), "kind 14"},
      {with(entry_at(0) + kKind, 31U), "token_embedding"},
      {with(entry_at(0) + kKind, 7U), "attn_norm"},
      {with(entry_at(0) + kExpert, 1U), "expert 1"},
      {with(entry_at(2) + kExpert, 65536U), "expert 65536"},
      {with(entry_at(0) + kLayer, 4096U), "layer 4096"},
      {with(entry_at(3) + kLayer, 1U), "layer 1"},
      {with(entry_at(0) + kRank, 0U), "rank 0"},
      {with(entry_at(0) + kRank, kMaxAdapterRank + 1), "rank 4097"},
      {with(entry_at(0) + kRank, kMaxAdapterRank), "for its matrices"},
      {with(entry_at(0) + kIn, 0U), "columns 0"},
      {with(entry_at(0) + kIn, kMaxAdapterWidth + 1), "columns 16777217"},
      {with(entry_at(0) + kOut, UINT32_MAX), "rows 4294967295"},
      {with(entry_at(1) + kScale, infinity), "scale inf"},
      {with(entry_at(1) + kType, 2U), "type 2"},
      {with(entry_at(1) + kReserved, 1U), "bytes 36 to 39"},
      {with(entry_at(1) + kKind, 0U), "repeated"},
      {with(entry_at(0) + kLayer, 1U), "ascending"},
  };
  for (const auto& [bytes, message] : cases) {
    const Status status = read_all(bytes);
    EXPECT_THAT(status.message(), HasSubstr(message));
    EXPECT_EQ(status.code(), std::string(message) == "version 2" ? StatusCode::kUnsupported
                                                                 : StatusCode::kCorrupt);
  }
}

// Values that no checksum speaks for: NaN, infinities, bytes between the matrices.
TEST_F(AdapterFileTest, ValuesAreChecked) {
  const std::uint64_t data = adapter_data_offset(9, 4);
  const auto changed = [&](std::uint64_t at, auto value) {
    std::vector<std::byte> bytes = bytes_;
    store_le(MutableByteSpan(bytes), data + at, value);
    return read_all(bytes, {.verify_crc = false}).message();
  };
  EXPECT_THAT(changed(18, std::uint16_t{0x7C00}), HasSubstr("layer 0, attn_q: element 9 of A"));
  EXPECT_THAT(changed(64, std::uint16_t{0xFE01}), HasSubstr("element 0 of B"));
  EXPECT_THAT(changed(128 + 76, std::nanf("")), HasSubstr("ffn_down: element 19 of A"));
  EXPECT_THAT(changed(20, '\1'), HasSubstr("the padding of A"));
  EXPECT_THAT(changed(127, '\1'), HasSubstr("the padding of B"));
}

TEST_F(AdapterFileTest, TheWriterRefusesWhatTheReaderWould) {
  const std::string path = testing_support::temporary_path("refused.qsfa");
  AdapterSpec spec = small_spec();
  spec.pairs[1].rank = 0;
  EXPECT_THAT(write_adapter_file(path, spec, values_).message(), HasSubstr("rank 0"));
  spec = small_spec();
  std::swap(spec.pairs[0], spec.pairs[1]);
  EXPECT_EQ(write_adapter_file(path, spec, values_).code(), StatusCode::kInvalidArgument);
  MemoryAdapter wrong = values_;
  wrong.pairs[3].b[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(write_adapter_file(path, small_spec(), wrong).message(),
              HasSubstr("head: element 5 of B"));
  EXPECT_EQ(File::open(path).error().code(), StatusCode::kNotFound);
}

// f16 where it is exact, for the pair as a whole; never where it rounds, overflows or loses a
// zero's sign.
TEST_F(AdapterFileTest, ChoosesF16WhereItIsExact) {
  EXPECT_TRUE(fits_f16(std::vector<float>{0.0F, -0.0F, 1.5F, 65504.0F, 0x1p-24F, -0x1p-14F}));
  for (const float value : {65505.0F, 1.0F + 0x1p-11F, 0x1p-25F, 1e30F, 0.1F}) {
    EXPECT_FALSE(fits_f16({&value, 1})) << value;
  }
  MemoryAdapter mixed = values_;
  mixed.pairs[0].b.back() = 0.1F;
  const std::string path = testing_support::temporary_path("mixed.qsfa");
  ASSERT_TRUE(write_adapter_file(path, small_spec(), mixed).ok());
  EXPECT_EQ(AdapterReader::open(path).value().spec().pairs[0].type, AdapterType::kF32);
}

TEST_F(AdapterFileTest, IsToldFromOtherFiles) {
  const std::string path = testing_support::temporary_path("adapter.qsfa");
  EXPECT_TRUE(is_adapter_file(path).value());
  ASSERT_TRUE(write_file(path, as_bytes("QSF1....")).ok());
  EXPECT_FALSE(is_adapter_file(path).value());
  EXPECT_THAT(AdapterReader::open(path).error().message(), HasSubstr("too short"));
}

}  // namespace
}  // namespace qsf
