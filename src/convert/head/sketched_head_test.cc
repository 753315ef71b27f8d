// SPDX-License-Identifier: MIT
//
// Output heads by their sketch, from conversion to text: on the bundled model with a head of 8
// bits, tokens are those of the full head; what needs all logits has them; damaged sketches and
// those of other heads are refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/crc32.h"
#include "base/rng.h"
#include "base/testing/allocation_counter.h"
#include "base/testing/temporary_path.h"
#include "convert/encode/transcode.h"
#include "convert/head/make_head_sketch.h"
#include "convert/random/random_model.h"
#include "engine/engine.h"
#include "engine/engine_impl.h"
#include "engine/engine_plan.h"
#include "engine/generation.h"
#include "format/qsf_reader.h"
#include "import/hf/hf_model.h"
#include "io/file.h"
#include "model/head_sketch.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing_support::temporary_path;

const std::string kModels = std::string(QSF_SOURCE_DIR) + "/models/";
const std::string kBundledFile = kModels + "tales-5M-4bit.qsf";

// The bundled model with a head of 8 bits and no sketch.
const std::string& plain_tales() {
  static const std::string path = [] {
    std::string to = temporary_path("tales-8bit-head.qsf");
    const std::unique_ptr<HfModel> model = HfModel::open(kModels + "tales-5M").value();
    const std::vector<std::byte> tokenizer =
        QsfReader::open(kBundledFile).value().read_tokenizer().value();
    TranscodeOptions options;
    options.vocabulary_type = QuantType::kQ8;
    options.tokenizer = tokenizer;
    options.n_threads = 2;
    EXPECT_TRUE(transcode(*model, to, options).has_value());
    return to;
  }();
  return path;
}

constexpr std::uint32_t kWindow = 256;

// Texts of the model itself, each of a window.
std::vector<TokenId> tale_tokens(const std::string& path) {
  constexpr std::uint64_t kTexts = 8;
  EngineOptions options;
  options.max_context = kWindow;
  const std::unique_ptr<Engine> engine = Engine::open(path, options).value();
  std::vector<TokenId> tokens;
  for (std::uint64_t seed = 0; seed < kTexts; ++seed) {
    const std::unique_ptr<Session> session = engine->create_session().value();
    std::vector<TokenId> prompt;
    EXPECT_TRUE(engine->tokenizer()->encode("There was a king", {}, prompt).ok());
    GenerateOptions generate;
    generate.max_tokens = kWindow;
    generate.ignore_end_of_text = true;
    generate.sampling.temperature = 1.0F;
    generate.sampling.seed = seed;
    EXPECT_TRUE(session->generate(prompt, generate).has_value());
    const auto text = session->tokens();
    EXPECT_EQ(text.size(), kWindow);
    tokens.insert(tokens.end(), text.begin(), text.end());
  }
  return tokens;
}

std::string sketched_copy(const std::string& of, const std::string& name, double share) {
  std::string to = temporary_path(name);
  std::filesystem::copy_file(of, to);
  const Status status = add_head_sketch(
      to, tale_tokens(of), {.share = share, .context = kWindow, .n_threads = 2, .cancel = nullptr});
  EXPECT_TRUE(status.ok()) << status.message();
  return to;
}

// The same with a sketch.
const std::string& sketched_tales() {
  static const std::string path = sketched_copy(plain_tales(), "tales-sketch.qsf", 0.36);
  return path;
}

std::unique_ptr<Engine> open_with(const std::string& path, HeadMode mode,
                                  std::uint32_t n_sequences = 1) {
  EngineOptions options;
  options.n_threads = 2;
  options.max_context = 512;
  options.n_sequences = n_sequences;
  options.head_mode = mode;
  Result<std::unique_ptr<Engine>> engine = Engine::open(path, options);
  EXPECT_TRUE(engine.has_value()) << engine.error().message();
  // The basis alone is a quarter of so small a head.
  if (auto& head = (*engine)->impl().head; head.has_value()) head->set_largest_share(10.0F);
  return std::move(*engine);
}

GenerateOptions options_of(float temperature, std::uint32_t top_k, std::uint64_t seed = 1) {
  GenerateOptions options;
  options.max_tokens = 300;
  options.sampling.temperature = temperature;
  options.sampling.top_k = top_k;
  options.sampling.seed = seed;
  options.ignore_end_of_text = true;
  return options;
}

std::vector<TokenId> text_of(Engine& engine, const GenerateOptions& options) {
  const std::unique_ptr<Session> session = engine.create_session().value();
  std::vector<TokenId> prompt;
  EXPECT_TRUE(engine.tokenizer()->encode("Once there was", {}, prompt).ok());
  const auto result = session->generate(prompt, options);
  EXPECT_TRUE(result.has_value()) << result.error().message();
  return {session->tokens().begin(), session->tokens().end()};
}

TEST(SketchedHeadTest, TextsAreThoseOfTheFullHead) {
  const std::unique_ptr<Engine> full = open_with(sketched_tales(), HeadMode::kFull);
  const std::unique_ptr<Engine> certified = open_with(sketched_tales(), HeadMode::kCertified);
  for (const auto& [temperature, top_k] :
       {std::pair(0.0F, 40U), {0.8F, 2U}, {0.8F, 40U}, {1.5F, 10U}}) {
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
      const GenerateOptions options = options_of(temperature, top_k, seed);
      EXPECT_EQ(text_of(*full, options), text_of(*certified, options)) << top_k;
    }
  }
  const HeadCounts counts = certified->stats().head;
  EXPECT_GT(counts.n_searched, 2000U);
  EXPECT_EQ(full->stats().head.n_searched, 0U);
}

TEST(SketchedHeadTest, GreedyTextsReadLittle) {
  const std::unique_ptr<Engine> engine = open_with(sketched_tales(), HeadMode::kCertified);
  text_of(*engine, options_of(0.0F, 0));
  const HeadCounts counts = engine->stats().head;
  EXPECT_GE(counts.n_searched, 299U);
  EXPECT_LE(counts.n_full, 1U);  // the prompt's last row takes the prompt kernels
  EXPECT_LT(static_cast<double>(counts.bytes_read),
            0.95 * static_cast<double>(counts.bytes_replaced));
}

// What reads or raises other logits has them all.
TEST(SketchedHeadTest, WhatNeedsAllLogitsHasThem) {
  const std::unique_ptr<Engine> full = open_with(sketched_tales(), HeadMode::kFull);
  const std::unique_ptr<Engine> certified = open_with(sketched_tales(), HeadMode::kCertified);
  std::vector<GenerateOptions> all(7, options_of(0.0F, 40));
  all[0].log_probs = true;
  all[1].sampling.repeat_penalty = 0.5F;
  all[2].sampling.presence_penalty = -1.0F;
  all[3].sampling.dry_multiplier = 0.8F;
  all[4].sampling.logit_bias = {{100, 5.0F}};
  all[5].sampling.on_logits = [](std::span<float> logits, void*) {
    logits[7] += 3.0F;
    return 0;
  };
  all[6] = options_of(0.9F, 0);  // without top-k
  for (const GenerateOptions& options : all) {
    EXPECT_EQ(text_of(*full, options), text_of(*certified, options)) << &options - all.data();
  }
  EXPECT_EQ(certified->stats().head.n_searched, 0U);
  EXPECT_GT(certified->stats().head.n_full, 0U);
}

// The ids that may not be drawn are among the best, and the search goes on behind them.
TEST(SketchedHeadTest, ExcludedTokensAreSearchedPast) {
  const std::unique_ptr<Engine> full = open_with(sketched_tales(), HeadMode::kFull);
  const std::unique_ptr<Engine> certified = open_with(sketched_tales(), HeadMode::kCertified);
  GenerateOptions options = options_of(0.0F, 0);
  options.ignore_end_of_text = false;
  const std::vector<TokenId> first = text_of(*full, options);
  options.sampling.excluded.assign(first.begin() + 4, first.begin() + 40);
  EXPECT_EQ(text_of(*full, options), text_of(*certified, options));
  EXPECT_NE(text_of(*full, options), first);
  EXPECT_GT(certified->stats().head.n_searched, 0U);
}

// Rows of a pass are searched each for itself, and not at all beside one that needs all logits.
TEST(SketchedHeadTest, TextsInOnePassAreThoseOfEachAlone) {
  const std::unique_ptr<Engine> alone = open_with(sketched_tales(), HeadMode::kFull);
  for (const bool with_all : {false, true}) {
    const std::unique_ptr<Engine> engine = open_with(sketched_tales(), HeadMode::kCertified, 3);
    std::vector<std::unique_ptr<Session>> sessions;
    std::vector<GenerationPtr> generations;
    std::vector<Generation*> members;
    std::vector<TokenId> prompt;
    EXPECT_TRUE(engine->tokenizer()->encode("Once there was", {}, prompt).ok());
    std::vector<GenerateOptions> options = {options_of(0.0F, 0), options_of(0.7F, 20, 5),
                                            options_of(0.9F, 5, 6)};
    if (with_all) options[2].sampling.repeat_penalty = 1.3F;
    for (GenerateOptions& its : options) {
      its.max_tokens = 100;
      sessions.push_back(engine->create_session().value());
      generations.push_back(Generation::create(*sessions.back(), prompt, its).value());
      members.push_back(generations.back().get());
    }
    while (engine->step(members).value().n_finished < members.size()) {
    }
    EXPECT_EQ(engine->stats().head.n_searched > 100, !with_all);
    generations.clear();
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      const auto tokens = sessions[i]->tokens();
      EXPECT_EQ(std::vector<TokenId>(tokens.begin(), tokens.end()), text_of(*alone, options[i]));
    }
  }
}

TEST(SketchedHeadTest, ATokenAllocatesNothing) {
  const std::unique_ptr<Engine> engine = open_with(sketched_tales(), HeadMode::kCertified);
  const auto allocations = [&](std::uint32_t n_tokens) {
    GenerateOptions options = options_of(0.7F, 40);
    options.max_tokens = n_tokens;
    const long before = testing_support::n_allocations();
    text_of(*engine, options);
    return testing_support::n_allocations() - before;
  };
  allocations(10);
  EXPECT_EQ(allocations(200), allocations(20));
  EXPECT_GT(engine->stats().head.n_searched, 200U);
}

TEST(SketchedHeadTest, ApproximateHeadsFindNearlyAllBestTokens) {
  const std::unique_ptr<Engine> full = open_with(sketched_tales(), HeadMode::kFull);
  const std::unique_ptr<Engine> approximate = open_with(sketched_tales(), HeadMode::kApproximate);
  const GenerateOptions options = options_of(0.0F, 0);
  const std::vector<TokenId> text = text_of(*full, options);
  // Each token is drawn behind the full head's text.
  struct Best final : LogitsSink {
    void consume(std::uint32_t, std::uint32_t first,
                 std::span<const float> logits) noexcept override {
      for (std::size_t i = 0; i < logits.size(); ++i) {
        if (logits[i] > best) {
          best = logits[i];
          token = first + static_cast<TokenId>(i);
        }
      }
    }
    HeadNeed head_need(std::uint32_t) const noexcept override {
      return {.n_best = 1, .n_tokens = 100000, .most_suffice = true};
    }
    float best = -1e30F;
    TokenId token = 0;
  };
  const std::unique_ptr<Session> session = approximate->create_session().value();
  std::size_t n_same = 0;
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    Best best;
    const SessionToken token = {session.get(), text[i], &best};
    ASSERT_TRUE(approximate->step_sessions({&token, 1}).ok());
    n_same += best.token == text[i + 1] ? 1 : 0;
  }
  EXPECT_GE(n_same + 3, text.size() - 4) << "of the text, without its prompt";
  const HeadCounts counts = approximate->stats().head;
  EXPECT_EQ(counts.n_searched, text.size() - 1);
}

TEST(SketchedHeadTest, TurnsItselfOffWhereItReadsTooMuch) {
  const std::string path = sketched_copy(plain_tales(), "tales-poor.qsf", 0.04);
  const std::unique_ptr<Engine> full = open_with(path, HeadMode::kFull);
  const std::unique_ptr<Engine> certified = open_with(path, HeadMode::kCertified);
  certified->impl().head->set_largest_share(0.6F);
  const GenerateOptions options = options_of(0.0F, 0);
  EXPECT_EQ(text_of(*full, options), text_of(*certified, options));
  EXPECT_GT(certified->stats().head.n_searched, 10U);
  EXPECT_GT(certified->stats().head.n_full, 100U);
}

TEST(SketchedHeadTest, MemoryIsPlanned) {
  const auto sketch_bytes = [](HeadMode mode) {
    EngineOptions options;
    options.head_mode = mode;
    const Result<EnginePlan> plan = Engine::plan_file(sketched_tales(), options);
    const Region* const region = plan->memory.find("head_sketch");
    return region == nullptr ? 0 : region->bytes;
  };
  EXPECT_EQ(sketch_bytes(HeadMode::kFull), 0U);
  EXPECT_GT(sketch_bytes(HeadMode::kCertified),
            QsfReader::open(sketched_tales())->find_section(kHeadSketchSection)->bytes);
}

Status open_status(const std::string& path, HeadMode mode = HeadMode::kCertified) {
  EngineOptions options;
  options.max_context = 64;
  options.head_mode = mode;
  const auto engine = Engine::open(path, options);
  return engine.has_value() ? ok_status() : engine.error();
}

std::vector<std::byte> section_of(const std::string& path) {
  const QsfReader reader = QsfReader::open(path).value();
  return reader.read_section(*reader.find_section(kHeadSketchSection)).value();
}

TEST(SketchedHeadTest, DamagedSketchesAreRefused) {
  const std::vector<std::byte> good = section_of(sketched_tales());
  // The parser reads lines that are aligned.
  const auto status_of = [](std::vector<std::byte> bytes, std::size_t n) {
    std::vector<std::byte> room(n + kLineBytes);
    std::byte* at = room.data();
    while (reinterpret_cast<std::uintptr_t>(at) % kLineBytes != 0) ++at;
    std::copy_n(bytes.begin(), n, at);
    const Result<HeadSketch> read = read_head_sketch({at, n});
    return read.has_value() ? ok_status() : read.error();
  };
  EXPECT_TRUE(status_of(good, good.size()).ok());
  EXPECT_THAT(std::string(status_of(good, good.size() - 1).message()), HasSubstr("length"));
  EXPECT_EQ(status_of(good, 20).code(), StatusCode::kCorrupt);
  EXPECT_EQ(status_of(good, 0).code(), StatusCode::kCorrupt);
  Rng rng(1);
  std::size_t n_refused = 0;
  for (int i = 0; i < 200; ++i) {  // of the head of the section, where every number counts
    std::vector<std::byte> bad = good;
    bad[rng.below(80)] ^= std::byte{0x80};
    n_refused += status_of(bad, bad.size()).ok() ? 0 : 1;
  }
  EXPECT_GE(n_refused, 80U);
}

TEST(SketchedHeadTest, DamagedFilesAreRefused) {
  const std::string damaged = temporary_path("damaged-sketch.qsf");
  std::filesystem::copy_file(sketched_tales(), damaged);
  const QsfReader reader = QsfReader::open(damaged).value();
  const SectionInfo section = *reader.find_section(kHeadSketchSection);
  {
    std::FILE* const file = std::fopen(damaged.c_str(), "r+b");
    ASSERT_NE(file, nullptr);
    std::fseek(file, static_cast<long>(section.file_offset + section.bytes / 2), SEEK_SET);
    const unsigned char byte = 0x5A;
    std::fwrite(&byte, 1, 1, file);
    std::fclose(file);
  }
  EXPECT_EQ(open_status(damaged).code(), StatusCode::kCorrupt);
  EXPECT_TRUE(open_status(damaged, HeadMode::kFull).ok());
  EXPECT_THAT(std::string(open_status(plain_tales(), HeadMode::kApproximate).message()),
              HasSubstr("no sketch"));
  EXPECT_TRUE(open_status(plain_tales()).ok());
}

TEST(SketchedHeadTest, SketchesOfOtherHeadsAreRefused) {
  std::vector<std::byte> section = section_of(sketched_tales());
  const std::string path = temporary_path("other-sketch.qsf");
  std::filesystem::copy_file(plain_tales(), path);
  ASSERT_TRUE(write_with_head_sketch(path, section, {.cancel = nullptr}).ok());
  EXPECT_TRUE(open_status(path).ok());
  section[4] ^= std::byte{1};  // of the checksum of the head's tiles
  ASSERT_TRUE(write_with_head_sketch(path, section, {.cancel = nullptr}).ok());
  const Status status = open_status(path);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(std::string(status.message()), HasSubstr("of another head"));
}

TEST(SketchedHeadTest, HeadsOfFewBitsAreRefused) {
  const Status status = check_head_sketch(kBundledFile);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(std::string(status.message()), HasSubstr("less than 8 bits"));
  EXPECT_TRUE(check_head_sketch(plain_tales()).ok());
}

}  // namespace
}  // namespace qsf
