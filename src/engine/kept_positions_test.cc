// SPDX-License-Identifier: MIT
//
// What sparse prefill keeps of a real text, with the bundled model: heads choose for themselves.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace qsf {
namespace {

constexpr SparsePrefillOptions kOptions = {.local = 16, .heavy = 48, .chunk = 128, .sinks = 4};

std::string source_file(const char* path) {
  return std::string(QSF_SOURCE_DIR) + "/" + path;
}

std::vector<TokenId> tokens_of_tale(const Engine& engine) {
  std::ifstream in(source_file("testdata/tale.txt"), std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  std::vector<TokenId> tokens;
  EXPECT_TRUE(engine.tokenizer()->encode(text, {}, tokens).ok());
  return tokens;
}

// The heavy members of a head's memory set: without sinks, and without the local window.
std::vector<std::uint32_t> heavy_members(Session& session, std::uint32_t layer,
                                         std::uint32_t kv_head) {
  std::vector<std::uint32_t> visible;
  EXPECT_TRUE(session.visible_positions(layer, kv_head, visible).ok());
  EXPECT_EQ(visible.size(), kOptions.local + kOptions.heavy);
  return {visible.begin() + kOptions.sinks, visible.end() - kOptions.local};
}

// On attention that a model really paid more than half of adjacent heads have other memory sets.
// Sets that differ in one position would do for that, so they are also held to share less than nine
// tenths of what they chose.
TEST(KeptPositionsTest, AdjacentHeadsChooseForThemselves) {
  EngineOptions options;
  options.n_threads = 2;
  options.attention = AttentionKind::kSparsePrefill;
  options.sparse_prefill = kOptions;
  const auto engine = Engine::open(source_file("models/tales-5M-4bit.qsf"), options);
  ASSERT_TRUE(engine.has_value()) << engine.error().message();
  const ModelSpec& spec = (*engine)->spec();
  const std::vector<TokenId> tokens = tokens_of_tale(**engine);
  ASSERT_GE(tokens.size(), 5 * kOptions.chunk);
  const std::unique_ptr<Session> session = (*engine)->create_session().value();
  std::size_t n_pairs = 0;
  std::size_t n_different = 0;
  std::size_t n_shared = 0;
  for (std::size_t at = 0; at < 5 * kOptions.chunk; at += kOptions.chunk) {
    ASSERT_TRUE(session->prefill(std::span(tokens).subspan(at, kOptions.chunk), nullptr).ok());
    for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
      for (std::uint32_t head = 0; head + 1 < spec.n_kv_heads; ++head) {
        const auto one = heavy_members(*session, layer, head);
        const auto next = heavy_members(*session, layer, head + 1);
        std::vector<std::uint32_t> shared;
        std::ranges::set_intersection(one, next, std::back_inserter(shared));
        ++n_pairs;
        if (one != next) ++n_different;
        n_shared += shared.size();
      }
    }
  }
  ASSERT_EQ(n_pairs, 5 * spec.n_layers * (spec.n_kv_heads - 1));
  EXPECT_GT(2 * n_different, n_pairs);
  const std::size_t n_chosen = n_pairs * (kOptions.heavy - kOptions.sinks);
  EXPECT_LT(10 * n_shared, 9 * n_chosen);
  RecordProperty("different", std::to_string(n_different) + " of " + std::to_string(n_pairs));
  RecordProperty("shared", std::to_string(n_shared) + " of " + std::to_string(n_chosen));
}

}  // namespace
}  // namespace qsf
