// SPDX-License-Identifier: MIT
//
// Safetensors: what is read, and every way in which a file can be wrong.

#include "import/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/f16.h"
#include "import/testing/hf_folder.h"
#include "io/testing/faulty_file.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

Status open_status(const TemporaryFolder& folder) {
  const auto model = SafetensorsModel::open(folder.path());
  return model ? ok_status() : model.error();
}

Status open_status(const std::string& content) {
  const TemporaryFolder folder;
  folder.write("model.safetensors", content);
  return open_status(folder);
}

std::string one_tensor(const std::string& entry, std::size_t data_bytes = 8) {
  return safetensors_file("{\"a\":" + entry + "}", std::string(data_bytes, '\0'));
}

TEST(SafetensorsTest, ReadsRangesOfEveryFloatType) {
  const TemporaryFolder folder;
  const float f32[] = {1.5F, -2.0F, 3.25F};
  const std::uint16_t f16[] = {to_f16(0.5F).bits, to_f16(-4.0F).bits, to_f16(6.0F).bits};
  const std::uint16_t bf16[] = {to_bf16(8.0F).bits, to_bf16(-1.0F).bits, to_bf16(0.25F).bits};
  std::string data(reinterpret_cast<const char*>(f32), 12);
  data.append(reinterpret_cast<const char*>(f16), 6);
  data.append(reinterpret_cast<const char*>(bf16), 6);
  folder.write("model.safetensors",
               safetensors_file(R"({"c":{"dtype":"BF16","shape":[3,1],"data_offsets":[18,24]},
                   "a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},
                   "b":{"dtype":"F16","shape":[1,3],"data_offsets":[12,18]}})",
                                data));
  const auto model = SafetensorsModel::open(folder.path());
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->tensors().size(), 3U);
  EXPECT_EQ(model->find("d"), nullptr);
  std::vector<float> out(3);
  ASSERT_TRUE(model->read(*model->find("a"), 0, out).ok());
  EXPECT_EQ(out, (std::vector<float>{1.5F, -2.0F, 3.25F}));
  ASSERT_TRUE(model->read(*model->find("b"), 0, out).ok());
  EXPECT_EQ(out, (std::vector<float>{0.5F, -4.0F, 6.0F}));
  ASSERT_TRUE(model->read(*model->find("c"), 0, out).ok());
  EXPECT_EQ(out, (std::vector<float>{8.0F, -1.0F, 0.25F}));
  out.resize(2);
  ASSERT_TRUE(model->read(*model->find("c"), 1, out).ok());
  EXPECT_EQ(out, (std::vector<float>{-1.0F, 0.25F}));
}

TEST(SafetensorsTest, RefusesWeightsThatAreNotFinite) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    const TemporaryFolder folder;
    folder.write("model.safetensors", safetensors_file({{"w", {{2, 2}, {1, 2, bad, 4}}}}));
    const auto model = SafetensorsModel::open(folder.path());
    std::vector<float> out(3);
    const Status status = model->read(*model->find("w"), 1, out);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr("tensor \"w\": element 2 is"));
  }
}

TEST(SafetensorsTest, RefusesDamagedFiles) {
  const std::string good = safetensors_file({{"w", {{2}, {1, 2}}}});
  ASSERT_TRUE(open_status(good).ok());
  EXPECT_EQ(open_status(std::string()).code(), StatusCode::kCorrupt);
  for (std::size_t n = 0; n < good.size(); ++n) {
    EXPECT_EQ(open_status(good.substr(0, n)).code(), StatusCode::kCorrupt) << n << " bytes";
  }
  EXPECT_EQ(open_status(good + "x").code(), StatusCode::kCorrupt);
  EXPECT_EQ(open_status("GGUF" + good.substr(4)).code(), StatusCode::kCorrupt);
  EXPECT_EQ(open_status(little_endian_u64(std::uint64_t{1} << 63) + good.substr(8)).code(),
            StatusCode::kCorrupt);
  EXPECT_EQ(open_status(little_endian_u64(kMaxSafetensorsHeaderBytes) + good.substr(8)).code(),
            StatusCode::kCorrupt);
}

TEST(SafetensorsTest, RefusesHeadersThatLie) {
  const struct {
    const char* entry;
    const char* message;
  } cases[] = {
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})", "expected 8 bytes"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", "expected 8 bytes"},
      {R"({"dtype":"F32","shape":[4],"data_offsets":[0,16]})", "truncated"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})", "overlap or leave gaps"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})", "8 bytes of data"},
      {R"({"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8]})", "64 bits"},
      {R"({"dtype":"F32","shape":[9223372036854775807],"data_offsets":[0,8]})", "64 bits"},
      {R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]})", "8 dimensions"},
      {R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", "negative"},
      {R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})", "fraction"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,8]})", "a number"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0]})", "two numbers"},
      {R"({"dtype":"F32","shape":[2]})", "is missing"},
      {R"({"shape":[2],"data_offsets":[0,8]})", "is missing"},
      {R"({"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})", "twice"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1})", "unknown key"},
      {R"({"dtype":{},"shape":[2],"data_offsets":[0,8]})", "an object"},
      {R"({"dtype":"F32","shape":[[2]],"data_offsets":[0,8]})", "an array"},
      {R"({"dtype":"Q7","shape":[2],"data_offsets":[0,8]})", "dtype \"Q7\""},
      {"[]", "an array"},
      {"null", "null"},
      {"{]", "JSON"},
  };
  for (const auto& c : cases) {
    const Status status = open_status(one_tensor(c.entry));
    EXPECT_FALSE(status.ok()) << c.entry;
    EXPECT_THAT(status.message(), HasSubstr(c.message)) << c.entry;
    EXPECT_THAT(status.message(), HasSubstr("model.safetensors")) << c.entry;
  }
  const std::string a = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::string b = R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::string a2 = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]})";
  EXPECT_THAT(open_status(safetensors_file("{" + a + "," + b + "}", "12345678")).message(),
              HasSubstr("overlap"));
  EXPECT_THAT(open_status(safetensors_file("{" + a + "," + a2 + "}", "12345678")).message(),
              HasSubstr("twice"));
}

TEST(SafetensorsTest, OtherTypesMayStandInAFileButAreNotRead) {
  const TemporaryFolder folder;
  folder.write("model.safetensors",
               one_tensor(R"({"dtype":"I64","shape":[1],"data_offsets":[0,8]})"));
  const auto model = SafetensorsModel::open(folder.path());
  ASSERT_TRUE(model);
  std::vector<float> out(1);
  const Status status = model->read(*model->find("a"), 0, out);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("I64"));
}

constexpr const char* kIndex = R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})";

TEST(SafetensorsTest, ReadsShards) {
  const TemporaryFolder folder;
  folder.write("model.safetensors.index.json", kIndex);
  folder.write("one.safetensors", safetensors_file({{"a", {{1}, {1}}}}));
  folder.write("two.safetensors", safetensors_file({{"b", {{2}, {2, 3}}}}));
  const auto model = SafetensorsModel::open(folder.path());
  ASSERT_TRUE(model) << model.error().message();
  std::vector<float> out(2);
  ASSERT_TRUE(model->read(*model->find("b"), 0, out).ok());
  EXPECT_EQ(out, (std::vector<float>{2, 3}));
}

TEST(SafetensorsTest, RefusesShardsThatDoNotFit) {
  const TemporaryFolder folder;
  EXPECT_EQ(open_status(folder).code(), StatusCode::kNotFound);
  folder.write("model.safetensors.index.json", kIndex);
  folder.write("one.safetensors", safetensors_file({{"a", {{1}, {1}}}}));
  EXPECT_EQ(open_status(folder).code(), StatusCode::kNotFound);
  EXPECT_THAT(open_status(folder).message(), HasSubstr("two.safetensors: file not found"));
  folder.write("two.safetensors", safetensors_file({{"c", {{1}, {1}}}}));
  EXPECT_THAT(open_status(folder).message(), HasSubstr("tensor \"b\" is not in two.safetensors"));
  folder.write("two.safetensors", safetensors_file({{"a", {{1}, {1}}}, {"b", {{1}, {1}}}}));
  EXPECT_THAT(open_status(folder).message(), HasSubstr("appears in two files"));
  for (const char* index :
       {"", "[]", "{", R"({"weight_map":{}})", R"({"weight_map":[]})", R"({"weight_map":{"a":1}})",
        R"({"weight_map":{"a":"../one.safetensors"}})", R"({"weight_map":{"a":""}})",
        R"({"weight_map":{"a":".."}})", R"({"a":1,"a":2})"}) {
    folder.write("model.safetensors.index.json", index);
    EXPECT_EQ(open_status(folder).code(), StatusCode::kCorrupt) << index;
  }
  folder.write("model.safetensors.index.json", std::string(100000, '['));
  EXPECT_EQ(open_status(folder).code(), StatusCode::kCorrupt);
  folder.write("model.safetensors.index.json",
               "{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}");
  EXPECT_THAT(open_status(folder).message(), HasSubstr("32 levels"));
}

TEST(SafetensorsTest, ReadErrorsAreStatuses) {
  const TemporaryFolder folder;
  folder.write("model.safetensors", safetensors_file({{"w", {{2}, {1, 2}}}}));
  FaultyFileOps ops;
  const auto model = SafetensorsModel::open(folder.path(), ops);
  ASSERT_TRUE(model);
  ops.plan.read_error_at = model->find("w")->offset + 4;
  std::vector<float> out(2);
  EXPECT_EQ(model->read(*model->find("w"), 0, out).code(), StatusCode::kIo);
  ops.plan.read_error_at = 3;
  EXPECT_EQ(SafetensorsModel::open(folder.path(), ops).error().code(), StatusCode::kIo);
}

}  // namespace
}  // namespace qsf
