// SPDX-License-Identifier: MIT
//
// Sections that a conversion has saved are those of the next, with what is known of their errors;
// others, damaged and unfinished ones are not taken for them.

#include "convert/encode/saved_sections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/crc32.h"
#include "convert/encode/transcode.h"
#include "import/hf/hf_model.h"
#include "import/testing/hf_folder.h"
#include "io/testing/faulty_file.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace testing_support;

class SavedSectionsTest : public testing::Test {
 protected:
  // A tiny llama; another `seed`, other weights.
  static std::unique_ptr<HfModel> open_model(const TemporaryFolder& folder, std::uint64_t seed) {
    write_model(folder, kTinyLlamaConfig, tiny_llama_tensors(seed));
    auto model = HfModel::open(folder.path());
    EXPECT_TRUE(model) << model.error().message();
    return std::move(*model);
  }
  // Returns the checksum of a conversion's file.
  std::uint32_t convert(const HfModel& model, const SavedSections* saved,
                        TranscodeOptions options = {}) {
    options.saved = saved;
    auto report = transcode(model, out_.file("m.qsf"), options);
    EXPECT_TRUE(report) << report.error().message();
    if (!report) return {};
    report_ = std::move(*report);
    return checksum();
  }
  std::uint32_t checksum() const { return crc32(as_bytes(out_.read("m.qsf"))); }
  Status failure(const HfModel& model, const TranscodeOptions& options) {
    const auto report = transcode(model, out_.file("failed.qsf"), options);
    EXPECT_FALSE(report);
    return report ? ok_status() : Status(report.error());
  }
  TemporaryFolder folder_;
  TemporaryFolder other_folder_;
  TemporaryFolder out_;
  TemporaryFolder saved_folder_;
  std::unique_ptr<HfModel> model_ = open_model(folder_, 1);
  std::unique_ptr<HfModel> other_model_ = open_model(other_folder_, 2);
  const SavedSections saved_{saved_folder_.path()};
  TranscodeReport report_;
};

TEST_F(SavedSectionsTest, AreTakenInsteadOfTheModel) {
  const std::uint32_t want = convert(*model_, nullptr);
  const TranscodeReport of_model = report_;
  ASSERT_NE(convert(*other_model_, nullptr), want);
  EXPECT_EQ(convert(*model_, &saved_), want);
  EXPECT_THAT(saved_folder_.names(), ElementsAre("section-embedding", "section-final",
                                                 "section-layer-0", "section-layer-1"));
  // They are the first model's, whatever is converted.
  EXPECT_EQ(convert(*other_model_, &saved_), want);
  ASSERT_EQ(report_.tensors.size(), of_model.tensors.size());
  for (std::size_t i = 0; i < of_model.tensors.size(); ++i) {
    EXPECT_EQ(report_.tensors[i].relative_error, of_model.tensors[i].relative_error) << i;
    EXPECT_EQ(report_.tensors[i].cosine, of_model.tensors[i].cosine) << i;
  }
  EXPECT_GT(report_.tensors.front().relative_error, 0.0);
  // Compression is of the file alone.
  TranscodeOptions compressed;
  compressed.compression = Compression::kLz4;
  const std::uint32_t small = convert(*other_model_, &saved_, compressed);
  EXPECT_EQ(small, convert(*model_, nullptr, compressed));
}

TEST_F(SavedSectionsTest, OfOtherTypesOrTilesAreMadeAnew) {
  convert(*model_, &saved_);
  TranscodeOptions options;
  options.preset = QuantType::kQ8;
  const std::uint32_t want = convert(*model_, nullptr, options);
  EXPECT_EQ(convert(*model_, &saved_, options), want);
  EXPECT_EQ(convert(*other_model_, &saved_, options), want) << "the new ones are not saved";
  options.layout = Layout::kRowMajor;
  EXPECT_EQ(convert(*model_, &saved_, options), convert(*model_, nullptr, options));
}

// Blocks that the input had are others than those that rounding makes, in the same format.
TEST_F(SavedSectionsTest, KeptBlocksAreNotTakenForRoundedOnes) {
  const std::vector<TensorInfo> tensors = {
      {TensorKind::kAttnQ, 64, 64, {QuantType::kQ4, 64}, Layout::kInterleaved, 0}};
  const std::vector<TilePlan> tiles = plan_tiles(tensors, 1 << 20).value();
  std::vector<TensorChoice> choices = {{tensors[0].format, true, false}};
  const SectionPlan plan = {{SectionKind::kLayer, 0}, tensors, choices, tiles};
  auto saver = saved_.begin(plan);
  ASSERT_TRUE(saver) << saver.error().message();
  ASSERT_EQ(tiles.size(), 1U);
  ASSERT_TRUE(saver->add_tile(std::vector<std::byte>(tiles[0].raw_bytes)).ok());
  ASSERT_TRUE(saver->finish(std::vector<ErrorSums>(1)).ok());
  const auto kept = saved_.find(plan);
  ASSERT_TRUE(kept) << kept.error().message();
  EXPECT_TRUE(kept->has_value());
  choices[0].kept = false;
  const auto rounded = saved_.find(plan);
  ASSERT_TRUE(rounded) << rounded.error().message();
  EXPECT_FALSE(rounded->has_value());
}

TEST_F(SavedSectionsTest, UnfinishedOnesAreNotThere) {
  std::atomic<bool> cancel{false};
  TranscodeOptions options;
  options.saved = &saved_;
  options.cancel = &cancel;
  options.on_progress = [&](const TranscodeProgress& progress) {
    cancel = progress.section == "layer 1";
  };
  EXPECT_EQ(failure(*model_, options).code(), StatusCode::kCancelled);
  EXPECT_THAT(saved_folder_.names(), ElementsAre("section-embedding", "section-layer-0"));
  EXPECT_EQ(convert(*model_, &saved_), convert(*model_, nullptr));
}

TEST_F(SavedSectionsTest, EveryFlippedBitIsToldOrMadeAnew) {
  const std::uint32_t want = convert(*model_, &saved_);
  const std::string whole = saved_folder_.read("section-layer-1");
  TranscodeOptions options;
  options.saved = &saved_;
  std::size_t n_told = 0;
  for (std::size_t i = 0; i < whole.size(); i += 61) {
    std::string damaged = whole;
    damaged[i] ^= 0x04;
    saved_folder_.write("section-layer-1", damaged);
    const auto report = transcode(*model_, out_.file("m.qsf"), options);
    if (report) {
      EXPECT_EQ(checksum(), want) << i;
      continue;
    }
    ++n_told;
    EXPECT_EQ(report.error().code(), StatusCode::kCorrupt) << i;
    EXPECT_THAT(std::string(report.error().message()), HasSubstr("remove this file")) << i;
  }
  EXPECT_GT(n_told, whole.size() / 100) << "nothing was read";
  for (const std::size_t n : {std::size_t{0}, std::size_t{100}}) {
    saved_folder_.write("section-layer-1", whole.substr(0, n));
    EXPECT_EQ(convert(*model_, &saved_), want) << n;
  }
  for (const std::string& other : {whole.substr(0, whole.size() - 1), whole + "x"}) {
    saved_folder_.write("section-layer-1", other);
    const Status status = failure(*model_, options);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(std::string(status.message()), HasSubstr("remove this file"));
  }
}

TEST_F(SavedSectionsTest, AFullDiskIsTold) {
  FaultyFileOps disk({.sync_errno = ENOSPC});
  const SavedSections full(saved_folder_.path(), disk);
  TranscodeOptions options;
  options.saved = &full;
  const Status status = failure(*model_, options);
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(std::string(status.message()), HasSubstr("section-embedding"));
  EXPECT_THAT(saved_folder_.names(), IsEmpty());
  EXPECT_THAT(out_.names(), IsEmpty());
}

}  // namespace
}  // namespace qsf
