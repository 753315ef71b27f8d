// SPDX-License-Identifier: MIT
//
// Golden models of every architecture: ranks give the logits of one process, bit for bit, or the
// model is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "format/qsf_reader.h"
#include "ranks/testing/ring_of_engines.h"

namespace qsf {
namespace {

using namespace testing_support;

std::vector<std::string> families() {
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(QSF_SOURCE_DIR "/testdata/golden")) {
    if (entry.is_directory()) all.push_back(entry.path().filename().string());
  }
  std::sort(all.begin(), all.end());
  return all;
}

// Whose layers depend on each other beyond the rows between them.
bool is_bound(std::string_view family) {
  return family == "gemma3n" || family == "gemma3n_rows" || family == "gemma4_e";
}

class AllLogits final : public LogitsSink {
 public:
  void consume(std::uint32_t, std::uint32_t, std::span<const float> logits) noexcept override {
    values.insert(values.end(), logits.begin(), logits.end());
  }
  std::vector<float> values;
};

std::vector<float> logits_of(Engine& engine) {
  AllLogits sink;
  const std::unique_ptr<Session> session = engine.create_session().value();
  const TokenId prompt[] = {5, 9, 11, 7, 3, 2, 8, 6, 12, 4, 10};
  EXPECT_TRUE(session->prefill_rows(prompt, sink).ok());
  for (const TokenId token : {13U, 4U, 7U}) EXPECT_TRUE(session->step(token, &sink).ok());
  return sink.values;
}

class RankedFamiliesTest : public testing::TestWithParam<std::string> {};

TEST_P(RankedFamiliesTest, GivesTheLogitsOfOneProcess) {
  const std::string path =
      testing::TempDir() + "ranked_families_test." + std::to_string(::getpid()) + ".qsf";
  const std::string command = std::string(QSF_BIN_DIR) +
                              "/qsf-convert --quiet --quant-type 8bit " QSF_SOURCE_DIR
                              "/testdata/golden/" +
                              GetParam() + " " + path;
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  EngineOptions options;
  options.n_threads = 1;
  options.max_context = 32;
  options.rows_per_pass = 7;
  const ModelSpec spec = QsfReader::open(path).value().spec();
  ASSERT_GE(spec.n_layers, 2U);
  if (is_bound(GetParam())) {
    auto links = LocalLink::create(1);
    Ring ring(*links[0], interleave(spec.n_layers, 1, spec.n_layers));
    options.cut = &ring.cut();
    EXPECT_THAT(Engine::open(path, options).error().message(),
                testing::HasSubstr("cannot be cut between layers"));
    std::filesystem::remove(path);
    return;
  }
  const std::vector<float> expected = logits_of(*Engine::open(path, options).value());
  for (unsigned n_ranks = 2; n_ranks <= std::min(3U, spec.n_layers); ++n_ranks) {
    RingOfEngines ring(path, interleave(spec.n_layers, n_ranks, 1), n_ranks, options);
    EXPECT_EQ(logits_of(ring.first()), expected) << n_ranks << " ranks";
  }
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(Golden, RankedFamiliesTest, testing::ValuesIn(families()),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace qsf
