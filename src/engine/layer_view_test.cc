// SPDX-License-Identifier: MIT
//
// What a hook reads of layers, with the bundled model: hidden rows against those behind the final
// norm, attention that sums to its queries, keys and values of all types; and what H2O eviction
// keeps by the ranks of a caller.

#include "engine/layer_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/testing/bundled_path.h"

namespace qsf {
namespace {

using testing::HasSubstr;

using Seer = std::function<void(const LayerView&)>;

EngineOptions seen_by(const Seer& seer) {
  EngineOptions options;
  options.n_threads = 1;
  options.max_context = 256;
  options.rows_per_pass = 64;
  options.layer_hook = {
      [](const LayerView& view, void* user) { (*static_cast<const Seer*>(user))(view); },
      const_cast<Seer*>(&seer)};
  return options;
}

std::unique_ptr<Engine> open_seen(const EngineOptions& options) {
  auto engine = Engine::open(testing_support::kBundled, options);
  EXPECT_TRUE(engine.has_value()) << engine.error().message();
  return std::move(engine).value();
}

std::vector<TokenId> some_tokens(std::size_t n) {
  std::vector<TokenId> tokens(n);
  for (std::size_t i = 0; i < n; ++i) tokens[i] = static_cast<TokenId>(300 + 37 * i % 900);
  return tokens;
}

void compute(Engine& engine, std::size_t n_tokens) {
  const std::unique_ptr<Session> session = engine.create_session().value();
  ASSERT_TRUE(session->prefill(some_tokens(n_tokens), nullptr).ok());
}

// The final norm keeps directions but for its gains, which are the same for all rows: the rows of
// the last layer over those behind the norm have the same shares in every column.
TEST(LayerViewTest, HiddenRowsAreThoseThatTheFinalNormTakes) {
  std::vector<std::vector<float>> last;
  std::vector<std::uint32_t> layers;
  const Seer seer = [&](const LayerView& view) {
    layers.push_back(view.layer());
    if (view.layer() + 1 < view.spec().n_layers) return;
    for (std::uint32_t row = 0; row < view.rows().size(); ++row) {
      const auto hidden = view.hidden(row);
      last.emplace_back(hidden.begin(), hidden.end());
    }
  };
  const std::unique_ptr<Engine> engine = open_seen(seen_by(seer));
  std::vector<std::vector<float>> normed;
  const auto take = [&](std::span<const float> row) {
    normed.emplace_back(row.begin(), row.end());
  };
  compute(*engine, 100);
  ASSERT_TRUE(engine->normed_rows(some_tokens(100), take).ok());
  ASSERT_EQ(normed.size(), 100U);
  ASSERT_EQ(last.size(), 100U);
  const auto norm_of = [](const std::vector<float>& row) {
    const double sum = std::inner_product(row.begin(), row.end(), row.begin(), 0.0);
    return std::sqrt(sum / static_cast<double>(row.size()));
  };
  for (std::size_t column = 0; column < normed[0].size(); ++column) {
    const double gain = normed[0][column] / last[0][column] * norm_of(last[0]);
    for (std::size_t row = 1; row < 100; ++row) {
      EXPECT_NEAR(normed[row][column], gain * last[row][column] / norm_of(last[row]), 2e-3)
          << row << " " << column;
    }
  }
  const std::uint32_t n_layers = engine->spec().n_layers;
  ASSERT_EQ(layers.size(), 2U * n_layers);  // of two passes
  for (std::size_t i = 0; i < layers.size(); ++i) EXPECT_EQ(layers[i], i % n_layers);
}

TEST(LayerViewTest, RowsAreThoseOfTheText) {
  const std::vector<TokenId> tokens = some_tokens(80);
  std::size_t n_seen = 0;
  const Seer seer = [&](const LayerView& view) {
    if (view.layer() != 0) return;
    for (const Row& row : view.rows()) {
      EXPECT_EQ(row.token, tokens[n_seen]);
      EXPECT_EQ(row.position, static_cast<std::int32_t>(n_seen));
      ++n_seen;
    }
  };
  compute(*open_seen(seen_by(seer)), 80);
  EXPECT_EQ(n_seen, 80U);
}

// Each query of a head pays 1. Without a window as long as the text some of it goes to positions
// that are evicted later.
TEST(LayerViewTest, AttentionSumsToTheQueries) {
  std::size_t n_checked = 0;
  const Seer seer = [&](const LayerView& view) {
    const KvShape shape = view.kv_shape().value();
    const std::uint32_t queries = view.spec().n_heads / shape.n_kv_heads;
    const Row& row = view.rows().back();
    const auto n = static_cast<std::size_t>(row.position) + 1;
    for (std::uint32_t head = 0; head < shape.n_kv_heads; ++head) {
      std::vector<float> mass(n + 1);
      const auto last = static_cast<std::uint32_t>(view.rows().size() - 1);
      ASSERT_TRUE(view.attention(last, head, mass).ok());
      EXPECT_TRUE(std::isnan(mass.back()));
      mass.pop_back();
      const double total = std::accumulate(mass.begin(), mass.end(), 0.0);
      EXPECT_NEAR(total / static_cast<double>(n * queries), 1.0, 1e-4) << view.layer();
      EXPECT_GT(mass[0], mass[n - 1]);
      ++n_checked;
    }
  };
  EngineOptions options = seen_by(seer);
  options.kv_policy = {.policy = KvPolicy::kH2o, .window = 256, .heavy = 4};
  compute(*open_seen(options), 150);
  EXPECT_GE(n_checked, 18U);
}

TEST(LayerViewTest, AttentionOfEvictedPositionsIsNoNumber) {
  std::vector<float> mass(150);
  const Seer seer = [&](const LayerView& view) { ASSERT_TRUE(view.attention(0, 0, mass).ok()); };
  EngineOptions options = seen_by(seer);
  options.kv_policy = {.policy = KvPolicy::kH2o, .window = 16, .sinks = 4, .heavy = 20};
  compute(*open_seen(options), 150);
  // Positions before 112 have left the window of the block at 128.
  const auto n_lost =
      std::count_if(mass.begin(), mass.end(), [](float m) { return std::isnan(m); });
  EXPECT_EQ(n_lost, 112 - 20);
  for (std::size_t p = 0; p < 150; ++p) {
    if (p < 4 || p >= 112) {
      EXPECT_GE(mass[p], 0.0F) << p;
    }
  }
}

TEST(LayerViewTest, WithoutH2oThereIsNoAttention) {
  std::size_t n_refused = 0;
  const Seer seer = [&](const LayerView& view) {
    float mass = 0.0F;
    const Status status = view.attention(0, 0, {&mass, 1});
    EXPECT_THAT(std::string(status.message()), HasSubstr("kv policy h2o alone"));
    ++n_refused;
  };
  compute(*open_seen(seen_by(seer)), 4);
  EXPECT_GT(n_refused, 0U);
}

// Of f32, in the layout of quant/kv_type.h, and what f16 rounds them to.
TEST(LayerViewTest, BlocksHoldKeysAndValues) {
  const auto values_of = [](KvType type) {
    std::vector<float> values;
    const Seer seer = [&](const LayerView& view) {
      if (view.layer() != 2) return;
      const KvShape shape = view.kv_shape().value();
      for (const KvPart part : {KvPart::kKeys, KvPart::kValues}) {
        for (const std::uint32_t first : {0U, 64U}) {
          const ByteSpan block = view.kv_block(0, 1, part, first);
          ASSERT_EQ(block.size(), shape.block_bytes(part));
          for (std::uint32_t p = 0; p < 64 && first + p < 70; ++p) {
            for (std::uint32_t d = 0; d < shape.head_dim; ++d) {
              const std::size_t at =
                  part == KvPart::kKeys ? d * 64 + p : std::size_t{p} * shape.head_dim + d;
              float value = 0.0F;
              if (type == KvType::kF32) {
                std::memcpy(&value, block.data() + 4 * at, 4);
              } else {
                _Float16 half = 0;
                std::memcpy(&half, block.data() + 2 * at, 2);
                value = static_cast<float>(half);
              }
              values.push_back(value);
            }
          }
        }
        EXPECT_TRUE(view.kv_block(0, 1, part, 128).empty());
      }
      const auto block = [&](std::uint32_t head, KvPart part) {
        const ByteSpan bytes = view.kv_block(0, head, part, 0);
        return std::vector<std::byte>(bytes.begin(), bytes.end());
      };
      EXPECT_NE(block(0, KvPart::kKeys), block(1, KvPart::kKeys));
      EXPECT_NE(block(1, KvPart::kKeys), block(1, KvPart::kValues));
      // Two pages of a sequence of 70 positions.
      EXPECT_EQ(view.kv_bytes(), 2 * shape.layer_bytes());
    };
    EngineOptions options = seen_by(seer);
    options.k_type = options.v_type = type;
    options.rows_per_pass = 70;
    compute(*open_seen(options), 70);
    return values;
  };
  const std::vector<float> whole = values_of(KvType::kF32);
  const std::vector<float> half = values_of(KvType::kF16);
  ASSERT_FALSE(whole.empty());
  ASSERT_EQ(whole.size(), half.size());
  double size = 0.0;
  double error = 0.0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    size += std::abs(static_cast<double>(whole[i]));
    error += std::abs(static_cast<double>(whole[i]) - static_cast<double>(half[i]));
  }
  EXPECT_GT(size / static_cast<double>(whole.size()), 0.01);
  EXPECT_LT(error, 0.01 * size);
}

TEST(LayerViewTest, AHookStopsThePass) {
  std::size_t n_seen = 0;
  const Seer seer = [&](const LayerView& view) {
    ++n_seen;
    if (view.layer() == 1) view.cancel();
  };
  const std::unique_ptr<Engine> engine = open_seen(seen_by(seer));
  const std::unique_ptr<Session> session = engine->create_session().value();
  EXPECT_EQ(session->prefill(some_tokens(20), nullptr).code(), StatusCode::kCancelled);
  EXPECT_EQ(n_seen, 2U);
  EXPECT_EQ(session->length(), 0U);
}

TEST(LayerViewTest, SpeculationIsOff) {
  const Seer seer = [](const LayerView&) {};
  EngineOptions options = seen_by(seer);
  options.speculation = SpeculationKind::kAuto;
  std::string log;
  options.log = {.write = [](LogLevel, std::string_view line,
                             void* user) { static_cast<std::string*>(user)->append(line); },
                 .user = &log};
  open_seen(options);
  EXPECT_THAT(log, HasSubstr("speculation: off, because a hook sees every row"));
  options.speculation = SpeculationKind::kLookup;
  const auto refused = Engine::open(testing_support::kBundled, options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(std::string(refused.error().message()), HasSubstr("a hook sees every row"));
}

// The last positions of each block, whatever attention they received.
TEST(LayerViewTest, ARankerChoosesWhatStays) {
  EngineOptions options;
  options.n_threads = 2;
  options.max_context = 256;
  options.kv_policy = {.policy = KvPolicy::kH2o, .window = 16, .sinks = 4, .heavy = 20};
  options.h2o_ranker = {[](const H2oCandidates& candidates, std::span<float> ranks, void*) {
                          for (std::size_t i = 0; i < ranks.size(); ++i) {
                            ranks[i] = static_cast<float>(candidates.positions[i]);
                          }
                        },
                        nullptr};
  const std::unique_ptr<Engine> engine = open_seen(options);
  const std::unique_ptr<Session> session = engine->create_session().value();
  ASSERT_TRUE(session->prefill(some_tokens(150), nullptr).ok());
  std::vector<std::uint32_t> visible;
  ASSERT_TRUE(session->visible_positions(3, 1, visible).ok());
  // Four sinks, 96 to 111 by the ranker, and from 112 on the window and the block.
  std::vector<std::uint32_t> expected = {0, 1, 2, 3};
  for (std::uint32_t p = 96; p < 150; ++p) expected.push_back(p);
  EXPECT_EQ(visible, expected);
  options.kv_policy = {};
  const auto refused = Engine::open(testing_support::kBundled, options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(std::string(refused.error().message()), HasSubstr("h2o ranker: kv policy full"));
}

}  // namespace
}  // namespace qsf
