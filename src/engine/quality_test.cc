// SPDX-License-Identifier: MIT
//
// EngineOptions::quality end to end: an engine that leaves layers out is to the last bit one of a
// file that has never had them, in its logits, its memory, its reads and its session files.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/testing/layers_of_file.h"
#include "engine/testing/naive_model_test.h"
#include "engine/testing/streamed_model.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing_support::copy_layers;
using testing_support::kMB;
using testing_support::Logits;
using testing_support::naive_llama;
using testing_support::NaiveModelTest;

constexpr std::size_t kQualityPrompt = 21;
constexpr std::size_t kQualityTokens = 26;

// Of eight layers 3 goes first, then 4, then 2 and 5.
constexpr float kOfEight[] = {1e-6F, 1e-6F, 0.3F, 0.1F, 0.2F, 0.4F, 1e-6F, 1e-6F};
const std::vector<std::uint32_t> kSixOfEight = {0, 1, 2, 5, 6, 7};

// A model of eight layers, and by hand what is left of its lists without layers 3 and 4.
struct LayeredGraph {
  const char* name;
  void (*all)(ModelSpec&);
  void (*six)(ModelSpec&);
};

void set_hybrid(ModelSpec& s) {
  s.architecture = "granitehybrid";
  s.conv_taps = 4;
  s.mixer_heads = 6;
  s.mixer_head_dim = 5;
  s.mixer_state = 16;
  s.mixer_groups = 1;
  s.layer_rope.assign(s.n_layers, 0);
}

void set_mixture(ModelSpec& s) {
  s.architecture = "granitemoe";
  s.n_experts = 5;
  s.n_experts_used = 2;
  s.expert_ffn = 20;
  s.expert_renormalised = true;
  s.shared_ffn = 44;
}

void set_windows(ModelSpec& s) {
  s.architecture = "gemma3";
  s.activation = Activation::kGeluTanh;
  s.tied_head = true;
  s.attention_scale = 0.25F;
}

constexpr LayeredGraph kLayeredGraphs[] = {
    {"plain", [](ModelSpec&) {}, [](ModelSpec&) {}},
    {"scans",
     [](ModelSpec& s) {
       set_hybrid(s);
       s.layer_mixers = {2, 0, 2, 0, 2, 2, 0, 2};
     },
     [](ModelSpec& s) {
       set_hybrid(s);
       s.layer_mixers = {2, 0, 2, 2, 0, 2};
     }},
    {"convolutions",
     [](ModelSpec& s) {
       s.architecture = "lfm2";
       s.conv_taps = 3;
       s.layer_mixers = {1, 0, 1, 1, 0, 1, 0, 1};
     },
     [](ModelSpec& s) {
       s.architecture = "lfm2";
       s.conv_taps = 3;
       s.layer_mixers = {1, 0, 1, 1, 0, 1};
     }},
    {"experts",
     [](ModelSpec& s) {
       set_mixture(s);
       s.expert_layers = {1, 0, 1, 0, 1, 1, 0, 1};
     },
     [](ModelSpec& s) {
       set_mixture(s);
       s.expert_layers = {1, 0, 1, 1, 0, 1};
     }},
    {"windows",
     [](ModelSpec& s) {
       set_windows(s);
       s.sliding_window = {9, 9, 0, 9, 0, 9, 0, 9};
       s.layer_rope = {2, 2, 1, 2, 1, 2, 1, 2};
     },
     [](ModelSpec& s) {
       set_windows(s);
       s.sliding_window = {9, 9, 0, 9, 0, 9};
       s.layer_rope = {2, 2, 1, 2, 1, 2};
     }},
};

// Makes a file of all layers with their importance, and one that has six of them.
class QualityTest : public NaiveModelTest {
 protected:
  void make(const LayeredGraph& graph) {
    ModelSpec all = naive_llama(8, 64);
    graph.all(all);
    make_model(all, kQualityTokens);
    std::vector<std::uint32_t> layers(8);
    std::iota(layers.begin(), layers.end(), 0U);
    ModelSpec six = naive_llama(6, 64);
    graph.six(six);
    all_ = path_ + ".all";
    six_ = path_ + ".six";
    for (const Status& status : {copy_layers(path_, all_, all, layers, kOfEight, 1),
                                 copy_layers(path_, six_, six, kSixOfEight, {}, 1)}) {
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }
  void TearDown() override {
    NaiveModelTest::TearDown();
    for (const std::string& path : {all_, six_}) {
      if (!path.empty()) std::filesystem::remove(path);
    }
  }
  static EngineOptions options(float quality) {
    EngineOptions options = exact_options(48);
    options.quality = quality;
    return options;
  }
  static std::unique_ptr<Engine> open_file(const std::string& path, const EngineOptions& with) {
    auto engine = Engine::open(path, with);
    EXPECT_TRUE(engine.has_value()) << engine.error().message();
    return engine.has_value() ? std::move(*engine) : nullptr;
  }
  // Of a prompt in parts of so many rows, and steps.
  Logits logits(const std::string& path, const EngineOptions& with,
                std::size_t rows = kQualityPrompt) const {
    const auto engine = open_file(path, with);
    const auto session = engine->create_session().value();
    Logits got;
    for (std::size_t i = 0; i < kQualityPrompt; i += rows) {
      prefill(*session, i, std::min(i + rows, kQualityPrompt), got);
    }
    for (std::size_t i = kQualityPrompt; i < kQualityTokens; ++i) step(*session, i, got);
    return got;
  }
  std::string all_;
  std::string six_;
};

class QualityOfGraphTest : public QualityTest, public testing::WithParamInterface<LayeredGraph> {};

TEST_P(QualityOfGraphTest, GivesTheBitsOfAFileWithoutTheLayers) {
  ASSERT_NO_FATAL_FAILURE(make(GetParam()));
  const Logits whole = logits(all_, exact_options(48));
  EXPECT_EQ(logits(path_, options(1.0F)), whole);  // a file without importance
  EXPECT_EQ(logits(all_, options(1.0F)), whole);
  const Logits rest = logits(six_, options(1.0F));
  EXPECT_NE(rest, whole);
  EXPECT_EQ(logits(all_, options(0.75F)), rest);
  EXPECT_EQ(logits(all_, options(0.75F), 1), rest);
  EXPECT_EQ(logits(all_, options(0.75F), 8), rest);
}

// Keys and values, states, weights: the plans are those of six layers, byte for byte.
TEST_P(QualityOfGraphTest, PlansTheMemoryOfAFileWithoutTheLayers) {
  ASSERT_NO_FATAL_FAILURE(make(GetParam()));
  const auto sizes = [](const std::string& path, float quality) {
    const EnginePlan plan = Engine::plan_file(path, options(quality)).value();
    std::vector<std::pair<std::string, std::uint64_t>> of_regions;
    for (const Region& region : plan.memory.regions()) {
      if (!region.external) of_regions.emplace_back(region.name, region.bytes);
    }
    return of_regions;
  };
  EXPECT_EQ(sizes(all_, 0.75F), sizes(six_, 1.0F));
  EXPECT_NE(sizes(all_, 0.75F), sizes(all_, 1.0F));
}

INSTANTIATE_TEST_SUITE_P(All, QualityOfGraphTest, testing::ValuesIn(kLayeredGraphs),
                         [](const auto& graph) { return std::string(graph.param.name); });

TEST_F(QualityTest, EachQualityIsTheLeastImportantLayersFewer) {
  ASSERT_NO_FATAL_FAILURE(make(kLayeredGraphs[0]));
  const auto layers_of = [&](float quality) {
    std::string log;
    EngineOptions with = options(quality);
    with.log.user = &log;
    with.log.write = [](LogLevel, std::string_view message, void* user) {
      if (message.starts_with("quality")) static_cast<std::string*>(user)->append(message);
    };
    const auto engine = open_file(all_, with);
    return std::to_string(engine->spec().n_layers) + "|" + log;
  };
  EXPECT_EQ(layers_of(1.0F), "8|");
  EXPECT_EQ(layers_of(0.99F), "8|");
  EXPECT_EQ(layers_of(0.8F), "7|quality 0.8: 7 of 8 layers, without 3");
  EXPECT_EQ(layers_of(0.75F), "6|quality 0.75: 6 of 8 layers, without 3 4");
  EXPECT_EQ(layers_of(0.5F), "4|quality 0.5: 4 of 8 layers, without 2 3 4 5");
}

TEST_F(QualityTest, AQualityThatCannotBeIsRefused) {
  ASSERT_NO_FATAL_FAILURE(make(kLayeredGraphs[0]));
  const auto refusal = [](const std::string& path, float quality, StatusCode code) {
    const auto engine = Engine::open(path, options(quality));
    EXPECT_FALSE(engine.has_value());
    if (engine.has_value()) return std::string();
    EXPECT_EQ(engine.error().code(), code);
    EXPECT_THAT(engine.error().message(), HasSubstr(path));
    EXPECT_FALSE(Engine::plan_file(path, options(quality)).has_value());
    return std::string(engine.error().message());
  };
  for (const float quality : {0.0F, -1.0F, 1.1F, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THAT(refusal(all_, quality, StatusCode::kInvalidArgument),
                HasSubstr("expected above 0, and at most 1"));
  }
  EXPECT_THAT(refusal(all_, 0.37F, StatusCode::kInvalidArgument), HasSubstr("use at least 0.5"));
  EXPECT_THAT(refusal(path_, 0.75F, StatusCode::kInvalidArgument), HasSubstr("--calibration"));
}

// Keys and values of another quality are those of another model.
TEST_F(QualityTest, SessionsAreOfTheirQuality) {
  ASSERT_NO_FATAL_FAILURE(make(kLayeredGraphs[1]));
  const std::string saved = path_ + ".session";
  Logits want;
  {
    const auto engine = open_file(all_, options(0.75F));
    const auto session = engine->create_session().value();
    Logits prompt;
    prefill(*session, 0, kQualityPrompt, prompt);
    ASSERT_TRUE(session->save(saved).ok());
    step(*session, kQualityPrompt, want);
  }
  for (const float quality : {1.0F, 0.8F}) {
    const auto engine = open_file(all_, options(quality));
    const Status status = engine->create_session().value()->load(saved);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("another model"));
  }
  for (const auto& [path, quality] : {std::pair{all_, 0.75F}, {six_, 1.0F}}) {
    const auto engine = open_file(path, options(quality));
    const auto session = engine->create_session().value();
    ASSERT_TRUE(session->load(saved).ok());
    Logits got;
    step(*session, kQualityPrompt, got);
    EXPECT_EQ(got, want);
  }
  std::filesystem::remove(saved);
}

struct StreamedRun {
  testing_support::Passes passes;  // none where the file is damaged
  std::uint64_t streamed_bytes = 0;
  std::uint64_t bytes_read = 0;
};

// One engine at a time: a budget counts the whole process.
StreamedRun run_streamed(const std::string& path, const EngineOptions& options) {
  StreamedRun run;
  const auto engine = Engine::open(path, options);
  if (!engine.has_value()) {
    EXPECT_EQ(engine.error().code(), StatusCode::kCorrupt) << engine.error().message();
    return run;
  }
  auto passes = testing_support::run_passes(**engine, 12);
  if (passes.has_value()) run.passes = std::move(*passes);
  run.streamed_bytes = (*engine)->plan().residency.streamed_bytes;
  run.bytes_read = (*engine)->pager_stats().bytes_read;
  return run;
}

// Streamed, the layers that are left out are not read: their weights are damaged here. What is read
// for a pass, and what stays in memory, is as of the file without them.
TEST(StreamedQualityTest, LayersThatAreLeftOutAreNotRead) {
  constexpr testing_support::StreamedShape kShape{
      .n_layers = 12, .hidden = 512, .ffn = 2048, .tile_bytes = 128 << 10};
  const testing_support::StreamedModel model("quality", kShape);
  ModelSpec spec = testing_support::streamed_spec(kShape);
  const std::vector<float> importance = {1, 1, 5, 2, 6, 3, 7, 4, 8, 9, 1, 1};
  std::vector<std::uint32_t> layers(12);
  std::iota(layers.begin(), layers.end(), 0U);
  const std::string all = model.path() + ".all";
  const std::string some = model.path() + ".some";
  const std::vector<std::uint32_t> left_out = {2, 3, 5, 7};
  ASSERT_TRUE(copy_layers(model.path(), all, spec, layers, importance, kShape.tile_bytes).ok());
  std::erase_if(layers, [&](std::uint32_t i) { return std::ranges::count(left_out, i) != 0; });
  spec.n_layers = 8;
  ASSERT_TRUE(copy_layers(model.path(), some, spec, layers, {}, kShape.tile_bytes).ok());
  {
    const QsfReader reader = QsfReader::open(all).value();
    std::fstream file(all, std::ios::in | std::ios::out | std::ios::binary);
    for (const std::uint32_t layer : left_out) {
      for (const TileInfo& tile : reader.layer(layer).tiles) {
        file.seekp(static_cast<std::streamoff>(tile.file_offset));
        file.write("damaged!", 8);
      }
    }
  }
  for (const ReadPath path : {ReadPath::kPread, ReadPath::kUring, ReadPath::kMmap}) {
    EngineOptions options;
    options.n_threads = 2;
    options.max_context = 64;
    options.read_path = path;
    for (const std::uint64_t more : {0U, 1U, 6U}) {  // 0: no budget
      if (more != 0) {
        options.ram_budget_bytes = (testing_support::named_budget_mb(some, options) + more) * kMB;
      }
      const StreamedRun want = run_streamed(some, options);
      EXPECT_EQ(want.streamed_bytes == 0, more == 0);
      EngineOptions with = options;
      with.quality = 0.65F;
      const StreamedRun got = run_streamed(all, with);
      EXPECT_FALSE(want.passes.steps.empty());
      EXPECT_TRUE(got.passes == want.passes);
      // The tables of the other layers, and what is read ahead at the end, differ a little.
      const auto streamed = static_cast<double>(want.streamed_bytes);
      EXPECT_NEAR(static_cast<double>(got.streamed_bytes), streamed, 0.1 * streamed);
      const auto read = static_cast<double>(want.bytes_read);
      EXPECT_NEAR(static_cast<double>(got.bytes_read), read, 0.1 * read);
      EXPECT_TRUE(run_streamed(all, options).passes.steps.empty()) << "not damaged";
    }
  }
  std::filesystem::remove(all);
  std::filesystem::remove(some);
}

}  // namespace
}  // namespace qsf
