// SPDX-License-Identifier: MIT
//
// Files of released format versions, which are read for ever: testdata/format/v1.

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "base/crc32.h"
#include "format/qsf_reader.h"
#include "format/tensor_values.h"
#include "format/testing/small_models.h"

namespace qsf {
namespace {

class QsfGoldenTest : public testing::TestWithParam<testing_support::SmallModel> {};

TEST_P(QsfGoldenTest, ReadsAsItAlwaysDid) {
  const std::string path = std::string(QSF_SOURCE_DIR) + "/testdata/format/v1/" + GetParam().name;
  const auto reader = QsfReader::open(path + ".qsf");
  ASSERT_TRUE(reader.has_value()) << reader.error().message();
  EXPECT_EQ(reader->spec(), GetParam().spec);
  const auto file = File::open(path + ".expected");
  ASSERT_TRUE(file.has_value()) << file.error().message();
  const std::vector<std::byte> text = file->read_all(1 << 20).value();
  std::istringstream lines{std::string(as_text(text))};
  for (const SectionDirectory& d : reader->directories()) {
    for (std::uint32_t i = 0; i < d.tensors.size(); ++i) {
      const auto values = read_tensor_values(*reader, d, i);
      ASSERT_TRUE(values.has_value()) << values.error().message();
      std::string section, kind, crc;
      std::uint32_t expert = 0, rows = 0, cols = 0;
      ASSERT_TRUE(lines >> section >> kind >> expert >> rows >> cols >> crc);
      EXPECT_EQ(kind, tensor_kind_name(d.tensors[i].kind));
      EXPECT_EQ(expert, d.tensors[i].expert);
      EXPECT_EQ(rows, d.tensors[i].rows);
      EXPECT_EQ(cols, d.tensors[i].cols);
      EXPECT_EQ(std::stoul(crc, nullptr, 16), crc32(std::as_bytes(std::span(*values))))
          << section << " " << kind;
    }
  }
  std::string rest;
  EXPECT_FALSE(lines >> rest);
}

INSTANTIATE_TEST_SUITE_P(
    V1, QsfGoldenTest,
    testing::Values(testing_support::minimal_model(), testing_support::types_model(),
                    testing_support::compressed_model(), testing_support::longrope_model(),
                    testing_support::super_model(), testing_support::base3_model(),
                    testing_support::k_quant_model(), testing_support::codebook_model(),
                    testing_support::mxfp4_model(), testing_support::trellis_model()),
    [](const auto& model) { return model.param.name; });

}  // namespace
}  // namespace qsf
