// SPDX-License-Identifier: MIT
//
// The fingerprint follows the weights and what decides the numbers, and nothing else.

#include "format/model_fingerprint.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/temporary_path.h"
#include "format/testing/small_models.h"

namespace qsf {
namespace {

using testing_support::SmallModel;

std::uint64_t fingerprint_of(const SmallModel& model, const std::string& name = "m") {
  const std::string path = testing_support::temporary_path("fingerprint_" + name + ".qsf");
  EXPECT_TRUE(testing_support::write_small_model(model, path).ok());
  return model_fingerprint(QsfReader::open(path).value());
}

TEST(ModelFingerprintTest, IsTheSameUnderAnyNameAndOrigin) {
  SmallModel model = testing_support::compressed_model();
  const std::uint64_t expected = fingerprint_of(model);
  EXPECT_EQ(fingerprint_of(model, "other"), expected);
  model.spec.source = "/somewhere/else";
  model.spec.quantiser = "tomorrow's";
  model.spec.chat_template = "{{ messages }}";
  EXPECT_EQ(fingerprint_of(model), expected);
  EXPECT_NE(expected, fingerprint_of(testing_support::types_model()));
}

// One weight of one matrix, and everything that numbers or words depend on.
TEST(ModelFingerprintTest, AnythingThatMattersChangesIt) {
  const SmallModel model = testing_support::full_model();
  const std::uint64_t expected = fingerprint_of(model);
  const std::pair<const char*, std::function<void(SmallModel&)>> changes[] = {
      {"scale", [](SmallModel& m) { m.spec.residual_scale *= 1.5F; }},
      {"norm", [](SmallModel& m) { m.spec.norm_epsilon *= 2; }},
      {"tokenizer", [](SmallModel& m) { m.tokenizer.back() ^= std::byte{1}; }},
      {"positions", [](SmallModel& m) { m.spec.max_positions += 1; }},
  };
  for (const auto& [name, change] : changes) {
    SmallModel other = model;
    change(other);
    EXPECT_NE(fingerprint_of(other), expected) << name;
  }
}

TEST(ModelFingerprintTest, EveryTileCounts) {
  const std::string path = testing_support::temporary_path("fingerprint_tiles.qsf");
  for (const SmallModel& model :
       {testing_support::compressed_model(), testing_support::types_model()}) {
    ASSERT_TRUE(testing_support::write_small_model(model, path).ok());
    const QsfReader reader = QsfReader::open(path).value();
    const std::uint64_t expected = model_fingerprint(reader);
    std::size_t n_tiles = 0;
    for (const SectionDirectory& section : reader.directories()) {
      for (const TileInfo& tile : section.tiles) {
        // Directories cannot be changed but in place, where the reader keeps them.
        auto& crc = const_cast<TileInfo&>(tile).crc;
        crc ^= 1U << (n_tiles % 32);
        EXPECT_NE(model_fingerprint(reader), expected) << n_tiles;
        crc ^= 1U << (n_tiles % 32);
        ++n_tiles;
      }
    }
    EXPECT_GT(n_tiles, 5U);
    EXPECT_EQ(model_fingerprint(reader), expected);
  }
}

}  // namespace
}  // namespace qsf
