// SPDX-License-Identifier: MIT
//
// GGUF files opened from a disk: parts that belong together, directories of any length, and every
// way in which bytes can fail to be one.

#include "import/gguf/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "import/testing/gguf_writer.h"
#include "import/testing/hf_folder.h"
#include "io/testing/faulty_file.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

constexpr std::uint32_t kF32 = 0;

// A part with one tensor of four numbers.
std::string part(std::uint32_t number, std::uint32_t count, const std::string& tensor,
                 std::uint32_t n_tensors = 2) {
  GgufWriter writer;
  if (number == 0) writer.add_text("general.architecture", "llama");
  writer.add_u32("split.no", number);
  writer.add_u32("split.count", count);
  writer.add_u32("split.tensors.count", n_tensors);
  writer.add_f32_tensor(tensor, {4}, {1.0F, 2.0F, 3.0F, static_cast<float>(number)});
  return writer.finish();
}

Status open_error(const std::string& path) {
  const auto file = GgufFile::open(path);
  EXPECT_FALSE(file);
  return file ? ok_status() : Status(file.error());
}

Status parse_error(const std::string& bytes) {
  const auto gguf = GgufReader::parse(as_bytes(bytes), bytes.size());
  EXPECT_FALSE(gguf);
  return gguf ? ok_status() : Status(gguf.error());
}

TEST(GgufFileTest, PartsAreOneModelWhicheverIsNamed) {
  const TemporaryFolder folder;
  folder.write("m-00001-of-00002.gguf", part(0, 2, "b"));
  folder.write("m-00002-of-00002.gguf", part(1, 2, "a"));
  for (const char* name : {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}) {
    const auto file = GgufFile::open(folder.file(name));
    ASSERT_TRUE(file) << file.error().message();
    EXPECT_EQ(file->n_parts(), 2U);
    EXPECT_NE(file->keys().find_key("general.architecture"), nullptr);
    ASSERT_EQ(file->tensors().size(), 2U);
    for (const auto& [tensor, last] : {std::pair("a", 1.0F), std::pair("b", 0.0F)}) {
      const GgufFile::Entry* entry = file->find(tensor);
      ASSERT_NE(entry, nullptr);
      std::byte bytes[4];
      ASSERT_TRUE(file->read(*entry, 12, bytes).ok());
      EXPECT_EQ(load_le<float>(bytes, 0), last);
    }
    EXPECT_EQ(file->find("c"), nullptr);
  }
}

TEST(GgufFileTest, PartsThatDoNotBelongTogetherAreRefused) {
  const TemporaryFolder folder;
  const std::string first = folder.file("m-00001-of-00002.gguf");
  folder.write("m-00001-of-00002.gguf", part(0, 2, "b"));
  EXPECT_EQ(open_error(first).code(), StatusCode::kNotFound);
  folder.write("m-00002-of-00002.gguf", part(1, 3, "a"));
  EXPECT_THAT(std::string(open_error(first).message()), HasSubstr("part 2 of 3, expected 2 of 2"));
  folder.write("m-00002-of-00002.gguf", part(1, 2, "b"));
  EXPECT_THAT(std::string(open_error(first).message()), HasSubstr("\"b\" appears in two parts"));
  folder.write("m-00001-of-00002.gguf", part(0, 2, "a", 3));
  EXPECT_THAT(std::string(open_error(first).message()), HasSubstr("2 tensors in all parts"));
  folder.write("renamed.gguf", part(0, 2, "a"));
  EXPECT_THAT(std::string(open_error(folder.file("renamed.gguf")).message()),
              HasSubstr("keep the published"));
  folder.write("m-00001-of-99999.gguf", part(0, 99999, "a"));
  EXPECT_THAT(std::string(open_error(folder.file("m-00001-of-99999.gguf")).message()),
              HasSubstr("at most 4096"));
}

// Longer than the first piece that is read, so that it is read twice.
TEST(GgufFileTest, ADirectoryMayBeLong) {
  const TemporaryFolder folder;
  GgufWriter writer;
  writer.add_text("long", std::string(3 << 20, 'x'));
  writer.add_f32_tensor("t", {1}, {7.0F});
  folder.write("m.gguf", writer.finish());
  const auto file = GgufFile::open(folder.file("m.gguf"));
  ASSERT_TRUE(file) << file.error().message();
  std::byte bytes[4];
  ASSERT_TRUE(file->read(*file->find("t"), 0, bytes).ok());
  EXPECT_EQ(load_le<float>(bytes, 0), 7.0F);
}

TEST(GgufFileTest, EveryPrefixFails) {
  GgufWriter writer;
  writer.add_text("general.architecture", "llama");
  writer.add_texts("tokens", {"a", "bc", ""});
  writer.add_f32_tensor("t", {4, 2}, std::vector<float>(8, 1.0F));
  writer.add_f32_tensor("u", {8}, std::vector<float>(8, 2.0F));
  const std::string bytes = writer.finish();
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    MemoryFileOps ops(as_bytes(std::string_view(bytes).substr(0, n)));
    const auto file = GgufFile::open("m.gguf", ops);
    ASSERT_FALSE(file) << n << " bytes";
    EXPECT_THAT(std::string(file.error().message()), HasSubstr("m.gguf"));
  }
  MemoryFileOps whole(as_bytes(bytes));
  EXPECT_TRUE(GgufFile::open("m.gguf", whole));
}

// What stands in the place of a model is called by its name, and what to do is said.
TEST(GgufFileTest, WhatIsNoModelSaysWhatItIs) {
  const std::pair<std::string, const char*> files[] = {
      {"<!DOCTYPE html><html>", "begins with \"<!DOCTYP\", expected \"GGUF\": a web page"},
      {"version https://git-lfs.github.com/spec/v1\noid", "a Git LFS pointer"},
      {std::string("PK\3\4archive", 11), "begins with \"PK??arch\", expected \"GGUF\": a zip"},
      {"QSF1" + std::string(60, '\0'), "a .qsf file"},
      {std::string(64, '\0'), "downloaded whole"},
      {"GGUF", "expected at least the 24 of its header"},
      {std::string("GGUF\0\0\0\3", 8) + std::string(16, '\0'), "the file is big-endian"},
      {std::string("GGUF\1\0\0\0", 8) + std::string(16, '\0'), "newer llama.cpp"},
      {std::string("GGUF\4\0\0\0", 8) + std::string(16, '\0'), "newer than this program"}};
  for (const auto& [bytes, part] : files) {
    EXPECT_THAT(std::string(parse_error(bytes).message()), HasSubstr(part));
  }
}

TEST(GgufFileTest, AZeroDimensionIsRefused) {
  GgufWriter writer;
  writer.add_tensor("t", {4, 0}, kF32, "");
  EXPECT_THAT(std::string(parse_error(writer.finish()).message()),
              HasSubstr("dimension 1 is 0: zero or too large"));
}

TEST(GgufFileTest, AProductThatOverflowsIsRefused) {
  for (const std::uint64_t dim : {std::uint64_t{1} << 32, std::uint64_t{1} << 63}) {
    GgufWriter writer;
    writer.add_tensor("t", {dim, dim}, kF32, std::string(64, 'x'));
    EXPECT_THAT(std::string(parse_error(writer.finish()).message()),
                HasSubstr("zero or too large"));
  }
}

TEST(GgufFileTest, AStringLongerThanTheFileIsRefused) {
  for (const std::uint64_t length : {std::uint64_t{1} << 20, std::uint64_t{1} << 40,
                                     std::numeric_limits<std::uint64_t>::max()}) {
    GgufWriter writer;
    writer.add_text("k", "value");
    std::string bytes = writer.finish();
    // 24 bytes of header, the key's name of 8 + 1, its type of 4, then the length of the value.
    std::memcpy(bytes.data() + 24 + 9 + 4, &length, sizeof length);
    EXPECT_THAT(std::string(parse_error(bytes).message()), HasSubstr("truncated or damaged"));
  }
}

TEST(GgufFileTest, AlignmentsThatAreNoneAreRefused) {
  for (const std::uint64_t alignment : {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{48}}) {
    GgufWriter writer;
    writer.add_u32("general.alignment", static_cast<std::uint32_t>(alignment));
    EXPECT_THAT(std::string(parse_error(writer.finish()).message()), HasSubstr("power of two"));
  }
  GgufWriter text;
  text.add_text("general.alignment", "32");
  EXPECT_THAT(std::string(parse_error(text.finish()).message()), HasSubstr("power of two"));
  GgufWriter wide;
  wide.alignment = 4096;
  wide.add_f32_tensor("t", {4}, {1.0F, 2.0F, 3.0F, 4.0F});
  wide.add_f32_tensor("u", {4}, {1.0F, 2.0F, 3.0F, 4.0F});
  const std::string bytes = wide.finish();
  const auto gguf = GgufReader::parse(as_bytes(bytes), bytes.size());
  ASSERT_TRUE(gguf) << gguf.error().message();
  EXPECT_EQ(gguf->find_tensor("u")->file_offset % 4096, 0U);
}

TEST(GgufFileTest, NamesThatStandTwiceAreRefused) {
  GgufWriter keys;
  keys.add_u32("k", 1);
  keys.add_u32("k", 1);
  EXPECT_THAT(std::string(parse_error(keys.finish()).message()), HasSubstr("\"k\" appears twice"));
  GgufWriter tensors;
  tensors.add_f32_tensor("t", {1}, {1.0F});
  tensors.add_f32_tensor("t", {1}, {1.0F});
  EXPECT_THAT(std::string(parse_error(tensors.finish()).message()),
              HasSubstr("\"t\" appears twice"));
}

TEST(GgufFileTest, AFailingDiskIsAStatus) {
  EXPECT_EQ(open_error("/nowhere/at/all.gguf").code(), StatusCode::kNotFound);
  GgufWriter writer;
  writer.add_f32_tensor("t", {4}, {1.0F, 2.0F, 3.0F, 4.0F});
  const std::string bytes = writer.finish();
  MemoryFileOps ops(as_bytes(bytes));
  const auto file = GgufFile::open("m.gguf", ops);
  ASSERT_TRUE(file);
  std::byte past[32];
  EXPECT_EQ(file->read(*file->find("t"), bytes.size(), past).code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace qsf
