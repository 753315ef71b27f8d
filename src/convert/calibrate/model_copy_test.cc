// SPDX-License-Identifier: MIT
//
// A copy has the weights as they are, but where other formats are asked for, and leaves nothing in
// a bounded page cache.

#include "convert/calibrate/model_copy.h"

#include <gtest/gtest.h>

#include "format/qsf_reader.h"
#include "import/hf/hf_model.h"
#include "import/testing/hf_folder.h"
#include "io/testing/faulty_file.h"

namespace qsf {
namespace {

using namespace testing_support;

TEST(ModelCopyTest, HoldsWeightsAsTheyAreButThoseThatAreNamed) {
  const TemporaryFolder folder;
  write_model(folder, kTinyLlamaConfig, tiny_llama_tensors());
  const auto model = HfModel::open(folder.path());
  ASSERT_TRUE(model) << model.error().message();
  TranscodeOptions options;
  options.preset = QuantType::kQ2A;
  options.vocabulary_type = QuantType::kQ4;
  options.compression = Compression::kZstd;
  TensorFormats formats;
  ASSERT_TRUE(formats.set(TensorKind::kAttnQ, 1, {QuantType::kQ4, 64}).ok());
  options.formats = &formats;
  const Status written = write_copy(**model, folder.file("copy.qsf"), options);
  ASSERT_TRUE(written.ok()) << written.message();
  const auto reader = QsfReader::open(folder.file("copy.qsf"));
  ASSERT_TRUE(reader) << reader.error().message();
  for (const SectionDirectory& section : reader->directories()) {
    EXPECT_EQ(section.compression, Compression::kNone);
    for (const TensorInfo& tensor : section.tensors) {
      const bool named = section.kind == SectionKind::kLayer && section.layer == 1 &&
                         tensor.kind == TensorKind::kAttnQ;
      if (tensor.rows == 1) continue;
      EXPECT_EQ(tensor.format.type, named ? QuantType::kQ4 : QuantType::kF32);
    }
  }
}

TEST(ModelCopyTest, IsForgottenByABoundedPageCache) {
  const TemporaryFolder folder;
  write_model(folder, kTinyLlamaConfig, tiny_llama_tensors());
  for (const bool is_bounded : {true, false}) {
    FaultyFileOps input;
    FaultyFileOps output;
    const auto model = HfModel::open(folder.path(), input);
    ASSERT_TRUE(model) << model.error().message();
    TranscodeOptions options;
    options.max_cached_bytes = is_bounded ? std::uint64_t{1} << 40 : 0;  // never due before the end
    ASSERT_TRUE(write_copy(**model, folder.file("copy.qsf"), options, output).ok());
    EXPECT_EQ(input.drops() > 0, is_bounded);
    EXPECT_EQ(output.drops() > 0, is_bounded);
  }
}

}  // namespace
}  // namespace qsf
