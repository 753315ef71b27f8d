// SPDX-License-Identifier: MIT
//
// PyTorch files: what torch.save wrote is read as torch reads it, what is no state dict is refused,
// and every way in which an archive can be wrong.

#include "import/pytorch/pytorch_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/f16.h"
#include "convert/encode/transcode.h"
#include "import/checkpoint.h"
#include "import/hf/hf_model.h"
#include "import/testing/hf_folder.h"
#include "import/testing/pytorch_file.h"
#include "io/testing/faulty_file.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

const std::string kData = QSF_SOURCE_DIR "/testdata/pytorch";

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> folders_in(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    names.push_back(entry.path().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string hex(ByteSpan bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[std::to_integer<unsigned>(byte) / 16];
    text += kDigits[std::to_integer<unsigned>(byte) % 16];
  }
  return text;
}

Status archive_status(const std::string& content) {
  MemoryFileOps ops(as_bytes(content));
  const auto model = PytorchModel::open("folder", ops);
  return model ? ok_status() : model.error();
}

void expect_archive_refused(const std::string& content, StatusCode code,
                            const std::string& message) {
  const Status status = archive_status(content);
  EXPECT_EQ(status.code(), code) << message << ": " << status.message();
  EXPECT_THAT(status.message(), HasSubstr(message));
  EXPECT_THAT(status.message(), HasSubstr("/pytorch_model.bin: "));
}

// Every range of every tensor, so that a wrong stride or a wrong start of a range shows.
void expect_tensor(const PytorchModel& model, const std::string& name,
                   const nlohmann::json& expected) {
  const StoredTensor* tensor = model.find(name);
  ASSERT_NE(tensor, nullptr) << name;
  EXPECT_EQ(stored_type_name(tensor->type), expected["dtype"].get<std::string>()) << name;
  EXPECT_EQ(tensor->shape, expected["shape"].get<std::vector<std::uint64_t>>()) << name;
  const std::string bytes = expected["bytes"];
  const std::size_t width = stored_type_bytes(tensor->type);
  ASSERT_EQ(bytes.size(), 2 * width * tensor->elements) << name;
  std::vector<std::byte> raw(width * tensor->elements);
  ASSERT_TRUE(read_elements(model.file_of(*tensor), *tensor, 0, raw).ok()) << name;
  EXPECT_EQ(hex(raw), bytes) << name;
  if (!is_weight_type(tensor->type)) return;
  const auto values = expected["values"].get<std::vector<float>>();
  for (std::size_t first = 0; first <= values.size(); ++first) {
    for (std::size_t last = first; last <= values.size(); last += 1 + last / 7) {
      std::vector<float> out(last - first);
      ASSERT_TRUE(model.read(*tensor, first, out).ok()) << name;
      ASSERT_TRUE(std::equal(out.begin(), out.end(), values.begin() + static_cast<int>(first)))
          << name << " [" << first << ", " << last << ")";
    }
  }
}

TEST(PytorchModelTest, ReadsWhatTorchWrote) {
  const auto folders = folders_in(kData + "/read");
  ASSERT_EQ(folders.size(), 13U);
  for (const std::string& folder : folders) {
    SCOPED_TRACE(folder);
    const auto model = PytorchModel::open(folder);
    ASSERT_TRUE(model) << model.error().message();
    const auto expected = nlohmann::json::parse(read_file(folder + "/expected.json"));
    EXPECT_EQ(model->tensors().size(), expected.size());
    for (const auto& [name, tensor] : expected.items()) expect_tensor(*model, name, tensor);
    EXPECT_EQ(model->find("nothing"), nullptr);
  }
}

TEST(PytorchModelTest, TiedTensorsAreTheSameBytes) {
  const auto model = PytorchModel::open(kData + "/read/views");
  ASSERT_TRUE(model);
  EXPECT_EQ(model->find("base")->offset, model->find("tied")->offset);
  EXPECT_TRUE(model->find("rows")->strides.empty());
  EXPECT_EQ(model->find("transposed")->strides, (std::vector<std::uint64_t>{1, 8}));
}

TEST(PytorchModelTest, RefusesWhatIsNoStateDict) {
  const auto folders = folders_in(kData + "/refused");
  ASSERT_EQ(folders.size(), 13U);
  for (const std::string& folder : folders) {
    const auto model = PytorchModel::open(folder);
    ASSERT_FALSE(model) << folder;
    EXPECT_EQ(model.error().code(), StatusCode::kUnsupported) << folder;
    const auto expected = nlohmann::json::parse(read_file(folder + "/expected.json"));
    EXPECT_THAT(model.error().message(), HasSubstr(expected["message"].get<std::string>()));
    EXPECT_THAT(model.error().message(), HasSubstr(folder + "/pytorch_model.bin: "));
    EXPECT_THAT(model.error().message(), HasSubstr("save")) << "what to do";
  }
}

TEST(PytorchModelTest, EveryPrefixIsRefused) {
  for (const char* name : {"/read/module", "/read/module_legacy", "/read/protocol_4_legacy"}) {
    const std::string good = read_file(kData + name + "/pytorch_model.bin");
    for (std::size_t n = 0; n < good.size(); ++n) {
      const Status status = archive_status(good.substr(0, n));
      ASSERT_EQ(status.code(), StatusCode::kCorrupt) << name << ", " << n << " bytes";
    }
    EXPECT_TRUE(archive_status(good).ok());
    expect_archive_refused(good + "x", StatusCode::kCorrupt, "");
  }
}

// No single wrong byte may crash; many change only numbers or names and are accepted.
TEST(PytorchModelTest, EveryFlippedByteEndsInAStatus) {
  for (const char* name : {"/read/module", "/read/module_legacy", "/read/protocol_4"}) {
    const std::string good = read_file(kData + name + "/pytorch_model.bin");
    int n_refused = 0;
    for (std::size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
      n_refused += archive_status(bad).ok() ? 0 : 1;
    }
    EXPECT_GT(n_refused, 100) << name;
  }
}

std::vector<std::string> convert(const std::string& folder) {
  const TemporaryFolder out;
  auto model = HfModel::open(folder);
  EXPECT_TRUE(model) << model.error().message();
  std::vector<std::string> files;
  for (const QuantPreset preset : {QuantType::kQ4, QuantType::kF32}) {
    TranscodeOptions options;
    options.preset = preset;
    const auto report = transcode(**model, out.file("model.qsf"), options);
    EXPECT_TRUE(report) << report.error().message();
    files.push_back(out.read("model.qsf"));
  }
  return files;
}

TEST(PytorchModelTest, AModelConvertsToTheSameBytesAsFromSafetensors) {
  for (const char* name : {"qwen2", "llama_linear"}) {
    const std::string golden = QSF_SOURCE_DIR "/testdata/golden/" + std::string(name);
    const TemporaryFolder folder;
    folder.write("config.json", read_file(golden + "/config.json"));
    folder.write("pytorch_model.bin", read_file(kData + "/golden/" + name + "/pytorch_model.bin"));
    const auto expected = convert(golden);
    EXPECT_GT(expected[0].size(), 10000U);
    EXPECT_EQ(convert(folder.path()), expected) << name;
  }
}

TEST(PytorchModelTest, SafetensorsArePreferredAndBothAreNamed) {
  const TemporaryFolder folder;
  const auto none = open_checkpoint(folder.path());
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), StatusCode::kNotFound);
  EXPECT_THAT(none.error().message(), HasSubstr("expected model.safetensors or pytorch_model.bin"));
  folder.write("pytorch_model.bin", read_file(kData + "/read/module/pytorch_model.bin"));
  const auto pytorch = open_checkpoint(folder.path());
  ASSERT_TRUE(pytorch) << pytorch.error().message();
  EXPECT_NE((*pytorch)->find("0.weight"), nullptr);
  folder.write("model.safetensors", safetensors_file({{"w", {{2}, {1, 2}}}}));
  const auto both = open_checkpoint(folder.path());
  ASSERT_TRUE(both);
  EXPECT_NE((*both)->find("w"), nullptr);
}

TEST(PytorchModelTest, RefusesShardsThatDoNotFit) {
  const std::string shards = kData + "/read/shards/";
  const TemporaryFolder folder;
  for (const char* name : {"pytorch_model.bin.index.json", "pytorch_model-00001-of-00002.bin"}) {
    folder.write(name, read_file(shards + name));
  }
  const auto missing = PytorchModel::open(folder.path());
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message(), HasSubstr("00002-of-00002.bin: file not found"));
  folder.write("pytorch_model-00002-of-00002.bin",
               read_file(shards + "pytorch_model-00001-of-00002.bin"));
  const auto twice = PytorchModel::open(folder.path());
  ASSERT_FALSE(twice);
  EXPECT_THAT(twice.error().message(), HasSubstr("appears in two files"));
}

const std::string kFourFloats(16, '\0');

TestZip good_archive() {
  return torch_archive(pickle_of_one({}, {}), kFourFloats);
}

TEST(PytorchModelTest, ReadsArchivesWithAndWithoutZip64) {
  for (const bool zip64 : {false, true}) {
    TestZip zip = good_archive();
    zip.zip64 = zip64;
    EXPECT_TRUE(archive_status(zip_file(zip)).ok()) << archive_status(zip_file(zip)).message();
  }
}

// Changes one thing of a good archive.
template <typename Change>
std::string archive(bool zip64, Change change) {
  TestZip zip = good_archive();
  zip.zip64 = zip64;
  change(zip, zip.entries[2]);
  return zip_file(zip);
}

TEST(PytorchModelTest, RefusesArchivesThatLie) {
  for (const bool zip64 : {false, true}) {
    const auto corrupt_with = [&](const char* message, auto change) {
      expect_archive_refused(archive(zip64, change), StatusCode::kCorrupt, message);
    };
    const auto unsupported_with = [&](const char* message, auto change) {
      expect_archive_refused(archive(zip64, change), StatusCode::kUnsupported, message);
    };
    using Entry = TestZipEntry;
    unsupported_with("entry \"a/data/0\" is compressed (method 8)",
                     [](TestZip&, Entry& e) { e.method = 8; });
    unsupported_with("entry \"a/data/0\" is encrypted", [](TestZip&, Entry& e) { e.flags = 1; });
    corrupt_with("17 bytes stored for 16", [](TestZip&, Entry& e) { e.stored_bytes = 17; });
    corrupt_with("overlap the entry", [](TestZip&, Entry& e) { e.stored_bytes = e.bytes = 17; });
    corrupt_with("overlap the entry",
                 [](TestZip&, Entry& e) { e.stored_bytes = e.bytes = 0xfffffff0; });
    corrupt_with("15 bytes, expected 16",
                 [](TestZip&, Entry& e) { e.stored_bytes = e.bytes = 15; });
    corrupt_with("no header of that name", [](TestZip&, Entry& e) { e.header_shift = 1; });
    corrupt_with("no header of that name", [](TestZip&, Entry& e) { e.header_shift = -1; });
    corrupt_with("begins at byte", [](TestZip&, Entry& e) { e.header_shift = 0x7fffff00; });
    corrupt_with("no header of that name", [](TestZip&, Entry& e) { e.local_name = "a/data/1"; });
    corrupt_with("no header of that name", [](TestZip&, Entry& e) { e.local_name = "a/data/01"; });
    corrupt_with("storage 0 is not in the file",
                 [](TestZip&, Entry& e) { e.name = e.local_name = "a/data/1"; });
    corrupt_with("not in the one folder",
                 [](TestZip&, Entry& e) { e.name = e.local_name = "b/data/0"; });
    corrupt_with("not in the one folder", [](TestZip&, Entry& e) { e.name = e.local_name = "0"; });
    for (const char* name :
         {"../data/0", "/a/data/0", "a//data/0", "a/../a/data/0", "a/./0", "a/"}) {
      corrupt_with("is not a plain relative path",
                   [&](TestZip&, Entry& e) { e.name = e.local_name = name; });
    }
    for (const std::string& name :
         {std::string("a\\0"), std::string("a/\n"), std::string(1025, 'a'), std::string(),
          std::string("a\0b", 3)}) {
      corrupt_with("the name of an entry",
                   [&](TestZip&, Entry& e) { e.name = e.local_name = name; });
    }
    corrupt_with("\"a/data/0\" appears twice in the directory",
                 [](TestZip& z, Entry&) { z.entries.push_back(TestZipEntry(z.entries[2])); });
    corrupt_with("entries in the directory, expected",
                 [](TestZip& z, Entry&) { z.count_shift = 1; });
    corrupt_with("the directory does not end", [](TestZip& z, Entry&) { z.directory_shift = 1; });
    corrupt_with("the directory does not end", [](TestZip& z, Entry&) { z.directory_shift = -20; });
    corrupt_with("no entry \"a/data.pkl\"", [](TestZip& z, Entry&) {
      z.entries[0].name = z.entries[0].local_name = "a/other.pkl";
    });
    unsupported_with("big-endian", [](TestZip& z, Entry&) {
      z.entries[1] = {"a/byteorder", "big"};
    });
    corrupt_with("expected \"little\" or \"big\"", [](TestZip& z, Entry&) {
      z.entries[1] = {"a/byteorder", "little endian"};
    });
    unsupported_with("a TorchScript program", [](TestZip& z, Entry&) {
      z.entries.push_back({"a/constants.pkl", "x"});
    });
    corrupt_with("bytes after the end", [](TestZip& z, Entry&) {
      z.entries[0] = {"a/data.pkl", z.entries[0].data + "."};
    });
  }
  expect_archive_refused(zip_file({}), StatusCode::kCorrupt, "neither a zip archive nor a pickle");
  // Two entries that share one place in the file.
  TestZip shared = good_archive();
  shared.entries.push_back({.name = "a/data/0", .data = kFourFloats});
  shared.entries[3].header_shift = -static_cast<std::int64_t>(zip_local(shared.entries[2]).size());
  expect_archive_refused(zip_file(shared), StatusCode::kCorrupt, "overlap the entry");
}

TEST(PytorchModelTest, TheEndOfAnArchiveIsChecked) {
  for (const bool zip64 : {false, true}) {
    const std::string good = archive(zip64, [](TestZip&, TestZipEntry&) {});
    const std::size_t n_bytes = zip64 ? 98 : 22;
    for (std::size_t i = good.size() - n_bytes; i < good.size(); ++i) {
      // Versions and, where ZIP64 counts, the fields that it replaces.
      const std::size_t from_end = good.size() - i;
      if (zip64 && (from_end <= 18 || (from_end > 82 && from_end <= 86))) continue;
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 0x40);
      EXPECT_FALSE(archive_status(bad).ok()) << "byte " << from_end << " from the end";
    }
  }
}

TEST(PytorchModelTest, TensorsMustLieInTheirStorages) {
  const struct {
    TestView view;
    const char* message;  // null: accepted
  } cases[] = {
      {{0, {4}, {1}}, nullptr},
      {{0, {2, 2}, {2, 1}}, nullptr},
      {{0, {2, 2}, {1, 2}}, nullptr},
      {{3, {1}, {1000}}, nullptr},
      {{99, {0, 7}, {1, 1}}, nullptr},
      {{0, {}, {}}, nullptr},
      {{0, {3, 2}, {1, 1}}, "repeats elements"},
      {{0, {5}, {0}}, "repeats elements"},
      {{0, {5}, {1}}, "passes the end"},
      {{1, {4}, {1}}, "passes the end"},
      {{4, {}, {}}, "passes the end"},
      {{0, {2}, {4}}, "passes the end"},
      {{0, {2, 2}, {3, 1}}, "passes the end"},
      {{-1, {2}, {1}}, "negative offset"},
      {{0, {-2}, {1}}, "a negative number"},
      {{0, {2}, {-1}}, "a negative number"},
      {{0, {2}, {1, 1}}, "1 dimensions with 2 strides"},
      {{0, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1}}, "9 dimensions"},
      {{0, {0x7fffffff, 0x7fffffff, 0x7fffffff}, {1, 1, 1}}, "64 bits"},
      {{0, {0x7fffffff, 0x7fffffff}, {0x7fffffff, 0x7fffffff}}, "passes the end"},
  };
  for (const auto& c : cases) {
    const std::string content = zip_file(torch_archive(pickle_of_one({}, c.view), kFourFloats));
    const Status status = archive_status(content);
    if (c.message == nullptr) {
      EXPECT_TRUE(status.ok()) << status.message();
    } else {
      EXPECT_THAT(status.message(), HasSubstr(c.message));
    }
  }
}

TEST(PytorchModelTest, StoragesAreHeldToTheFile) {
  const auto one = [](const TestStorage& storage) {
    return zip_file(torch_archive(pickle_of_one(storage, {}), kFourFloats));
  };
  expect_archive_refused(one({.elements = 5}), StatusCode::kCorrupt, "16 bytes, expected 20");
  expect_archive_refused(one({.elements = -1}), StatusCode::kCorrupt, "a size of -1");
  expect_archive_refused(one({.type = "DoubleStorage"}), StatusCode::kCorrupt,
                         "16 bytes, expected 32");
  expect_archive_refused(one({.key = "1"}), StatusCode::kCorrupt, "storage 1 is not in the file");
  expect_archive_refused(one({.key = "../x"}), StatusCode::kCorrupt,
                         "the key of a storage is \"../x\"");
  expect_archive_refused(one({.key = ""}), StatusCode::kCorrupt, "the key of a storage is \"\"");
  const std::string twice =
      pickle("}(" + pickle_text("a") + pickle_tensor({}, {}) + pickle_text("b") +
             pickle_tensor({.type = "IntStorage"}, {}) + "u");
  expect_archive_refused(zip_file(torch_archive(twice, kFourFloats)), StatusCode::kCorrupt,
                         "storage 0 has two different");
  const std::string same_name = pickle("}(" + pickle_text("a") + pickle_tensor({}, {}) +
                                       pickle_text("a") + pickle_tensor({}, {}) + "u");
  expect_archive_refused(zip_file(torch_archive(same_name, kFourFloats)), StatusCode::kCorrupt,
                         "tensor \"a\" appears twice in the state dict");
}

// The pickles before the state dict of a legacy file.
std::string legacy_header(const std::string& order = "\x88", std::int32_t version = 1001) {
  const std::string magic("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 12);
  return pickle(magic) + pickle(pickle_int(version)) +
         pickle("}" + pickle_text("little_endian") + order + "s");
}

std::string legacy_file(const std::string& keys, const std::string& storages,
                        const std::string& header = legacy_header()) {
  return header + pickle_of_one({.legacy = true}, {}) + pickle("](" + keys + "e") + storages;
}

TEST(PytorchModelTest, LegacyFilesThatLie) {
  const std::string storage = little_endian_u64(4) + kFourFloats;
  const std::string key = pickle_text("0");
  const Status good = archive_status(legacy_file(key, storage));
  ASSERT_TRUE(good.ok()) << good.message();
  const auto corrupt_with = [](const std::string& content, const char* message) {
    expect_archive_refused(content, StatusCode::kCorrupt, message);
  };
  corrupt_with(legacy_file("", ""), "its storage 0 is not in the file");
  corrupt_with(legacy_file(key + key, storage + storage), "in it twice");
  corrupt_with(legacy_file(pickle_text("7"), storage), "none of the state dict");
  corrupt_with(legacy_file(pickle_int(0), storage), "is an integer, expected a text");
  corrupt_with(legacy_file(key, little_endian_u64(5) + kFourFloats), "5 elements, expected 4");
  corrupt_with(legacy_file(key, little_endian_u64(UINT64_MAX) + kFourFloats), "expected 4");
  corrupt_with(legacy_file(key, storage + "x"), "bytes after the last storage");
  corrupt_with(legacy_file(key, storage, legacy_header("K\x01")), "byte order");
  corrupt_with(legacy_file(key, storage, pickle(pickle_int(7))), "magic number");
  corrupt_with("version https://git-lfs.github.com/spec/v1\n", "git lfs pull");
  expect_archive_refused(legacy_file(key, storage, legacy_header("\x89")), StatusCode::kUnsupported,
                         "big-endian");
  expect_archive_refused(legacy_file(key, storage, legacy_header("\x88", 1000)),
                         StatusCode::kUnsupported, "version 1000");
}

TEST(PytorchModelTest, RefusesWeightsThatAreNotFinite) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    const TemporaryFolder folder;
    folder.write("pytorch_model.bin",
                 zip_file(torch_archive(pickle_of_one({}, {0, {2, 2}, {1, 2}}),
                                        little_endian(1.0F) + little_endian(2.0F) +
                                            little_endian(bad) + little_endian(4.0F))));
    const auto model = PytorchModel::open(folder.path());
    ASSERT_TRUE(model) << model.error().message();
    std::vector<float> out(4);
    const Status status = model->read(*model->find("w"), 0, out);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr("tensor \"w\": element 1 is"));
  }
}

TEST(PytorchModelTest, ReadErrorsAreStatuses) {
  for (const char* name : {"/read/module", "/read/module_legacy"}) {
    FaultyFileOps ops;
    const auto model = PytorchModel::open(kData + name, ops);
    ASSERT_TRUE(model);
    const StoredTensor& tensor = *model->find("0.weight");
    ops.plan.read_error_at = tensor.offset + 4;
    std::vector<float> out(6);
    EXPECT_EQ(model->read(tensor, 0, out).code(), StatusCode::kIo);
    for (const std::uint64_t at : {0U, 80U, 300U}) {
      ops.plan.read_error_at = at;
      EXPECT_EQ(PytorchModel::open(kData + name, ops).error().code(), StatusCode::kIo) << at;
    }
  }
}

// Two storages, the first of 4 GiB and 64 bytes, in a file that is mostly a hole.
TEST(PytorchModelTest, ReadsBeyondFourGibibytes) {
  constexpr std::uint64_t kHole = (std::uint64_t{1} << 32) + 64;
  const TemporaryFolder folder;
  const std::string path = folder.file("pytorch_model.bin");
  const std::string steps =
      "}(" + pickle_text("large") +
      pickle_tensor({.type = "HalfStorage", .elements = 0x7fffffff}, {0x7ffffffe, {1}, {1}}) +
      pickle_text("late") + pickle_tensor({.key = "1"}, {}) + "u";
  // BININT ends at 2^31 - 1, so what is larger is put in as LONG1.
  std::string content = pickle(steps);
  for (const auto& [small, real] :
       {std::pair(0x7fffffff, kHole / 2), std::pair(0x7ffffffe, kHole / 2 - 1)}) {
    const std::string bytes = pickle_int(small);
    content.replace(content.find(bytes), bytes.size(), "\x8a\x08" + little_endian(real));
  }
  TestZipEntry large{.name = "a/data/0", .data = ""};
  large.stored_bytes = large.bytes = kHole;
  const TestZip zip = {{{.name = "a/data.pkl", .data = content},
                        large,
                        {.name = "a/data/1", .data = little_endian(1.5F) + kFourFloats.substr(4)}},
                       true};
  std::ofstream file(path, std::ios::binary);
  std::string directory;
  std::uint64_t place = 0;
  for (const TestZipEntry& entry : zip.entries) {
    const std::string local = zip_local(entry);
    file.seekp(static_cast<std::streamoff>(place));
    file << local;
    directory += zip_directory_entry(entry, place, true);
    place += local.size() + entry.bytes - entry.data.size();
    if (&entry == &zip.entries[1]) {
      const std::uint16_t half = to_f16(0.75F).bits;
      file.seekp(static_cast<std::streamoff>(place - sizeof(half)));
      file << little_endian(half);
    }
  }
  file.seekp(static_cast<std::streamoff>(place));
  file << directory << zip_end(zip, place, directory.size());
  file.close();
  ASSERT_GT(std::filesystem::file_size(path), kHole);
  const auto model = PytorchModel::open(folder.path());
  ASSERT_TRUE(model) << model.error().message();
  std::vector<float> out(1);
  ASSERT_TRUE(model->read(*model->find("large"), 0, out).ok());
  EXPECT_EQ(out[0], 0.75F);
  EXPECT_GT(model->find("late")->offset, std::uint64_t{1} << 32);
  ASSERT_TRUE(model->read(*model->find("late"), 0, out).ok());
  EXPECT_EQ(out[0], 1.5F);
}

}  // namespace
}  // namespace qsf
