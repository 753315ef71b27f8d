// SPDX-License-Identifier: MIT
//
// Statistics are compared with their definition: sums, cosines and losses of a model that is
// computed whole in f64, for every kind of layer; and to itself: the same bits at any number of
// threads, any number of rows and in any budget.

#include "convert/calibrate/collect_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/testing/temporary_path.h"
#include "convert/calibrate/calibration_file.h"
#include "convert/gptq/layerwise_gptq.h"
#include "engine/engine_plan.h"
#include "engine/testing/naive_model_test.h"
#include "engine/testing/streamed_model.h"
#include "format/tensor_rules.h"
#include "model/architecture.h"
#include "model/testing/expert_graphs.h"
#include "model/testing/state_graphs.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

constexpr std::uint32_t kLayers = 3;
constexpr std::uint32_t kContext = 20;
constexpr std::size_t kTokens = 2 * kContext + 9;  // two windows and a shorter one

struct Means {
  std::vector<double> squares;
  double largest = 0.0;
  std::uint64_t n_rows = 0;
};

// What the definition gives for the same windows.
struct Expected {
  // Of matrices, in layers, of experts (0: of none as well).
  std::map<std::tuple<TensorKind, std::uint32_t, std::uint32_t>, Means> means;
  std::array<double, kLayers> cosines{};
  double loss = 0.0;
  std::array<double, kLayers> skip_losses{};  // of the first window
};

double log_prob(const std::vector<double>& logits, TokenId token) {
  double sum = 0.0;
  for (const double logit : logits) sum += std::exp(logit - logits[token]);
  return -std::log(sum);
}

double cosine(const std::vector<double>& a, const std::vector<double>& b) {
  double ab = 0.0;
  double aa = 0.0;
  double bb = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

// Returns the sum of the losses of a window, in which every token but the first is predicted.
double window_loss(const NaiveModel& model, const std::vector<TokenId>& window,
                   const std::vector<double>& slopes,
                   std::vector<std::vector<std::vector<double>>>* hidden = nullptr) {
  const auto logits =
      model.logits({window.begin(), window.end() - 1}, kContext, slopes, nullptr, hidden);
  double loss = 0.0;
  for (std::size_t i = 0; i < logits.size(); ++i) loss -= log_prob(logits[i], window[i + 1]);
  return loss;
}

Expected expected_of(NaiveModel& model, const std::vector<TokenId>& tokens,
                     const std::vector<double>& slopes) {
  Expected expected;
  double n_rows = 0.0;
  model.set_on_product([&](TensorKind matrix, std::uint32_t layer, std::uint32_t expert,
                           const std::vector<double>& x) {
    // Never rounded.
    if (matrix == TensorKind::kRouter || matrix == TensorKind::kSharedWeight) return;
    Means& to = expected.means[{matrix, layer, expert}];
    to.squares.resize(x.size());
    for (std::size_t c = 0; c < x.size(); ++c) {
      to.squares[c] += x[c] * x[c];
      to.largest = std::max(to.largest, std::fabs(x[c]));
    }
    ++to.n_rows;
  });
  std::vector<TokenId> first;
  for (std::size_t at = 0; at < tokens.size(); at += kContext) {
    const std::size_t n = std::min<std::size_t>(kContext, tokens.size() - at);
    const std::vector<TokenId> window(tokens.begin() + static_cast<long>(at),
                                      tokens.begin() + static_cast<long>(at + n));
    if (at == 0) first = window;
    std::vector<std::vector<std::vector<double>>> hidden;
    expected.loss += window_loss(model, window, slopes, &hidden);
    n_rows += static_cast<double>(n - 1);
    // The stream in front of the first layer is not told, so its cosine is left out.
    for (std::size_t layer = 1; layer < hidden.size(); ++layer) {
      for (std::size_t i = 0; i + 1 < n; ++i) {
        expected.cosines[layer] += cosine(hidden[layer - 1][i], hidden[layer][i]);
      }
    }
  }
  model.set_on_product(nullptr);
  for (auto& [place, means] : expected.means) {
    for (double& sum : means.squares) sum /= static_cast<double>(means.n_rows);
  }
  for (double& sum : expected.cosines) sum /= n_rows;
  expected.loss /= n_rows;
  const double whole = window_loss(model, first, slopes);
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    model.set_skipped(layer);
    expected.skip_losses[layer] = (window_loss(model, first, slopes) - whole) / (kContext - 1);
  }
  model.set_skipped(std::nullopt);
  return expected;
}

struct Graph {
  const char* name;
  std::function<void(ModelSpec&)> change;
  std::vector<double> slopes;
};

void PrintTo(const Graph& graph, std::ostream* to) {
  *to << graph.name;
}

// Heads of each layer, values that are keys, windows.
void set_own_heads(ModelSpec& s) {
  s.architecture = "gemma4";
  s.activation = Activation::kGeluTanh;
  s.attention_scale = 0.4F;
  s.value_norms = true;
  set_layer_heads({{3, 6}, {1, 16}, {3, 6}}, s);
  s.key_value_layers = {0, 1, 0};
  s.sliding_window = {9, 0, 9};
  s.layer_rope = {2, 1, 2};
}

// One of every way in which a layer begins, ends and shares its inputs.
const Graph kGraphs[] = {
    {"llama", [](ModelSpec&) {}, {}},
    {"norms_behind_sublayers",
     [](ModelSpec& s) {
       s.architecture = "gemma2";
       s.tied_head = true;
       s.embedding_scale = 2.75F;
     },
     {}},
    {"parallel_block",
     [](ModelSpec& s) {
       s.architecture = "phi2";
       s.parallel_block = true;
       s.norm = NormType::kLayerNorm;
       s.gated_ffn = false;
       s.rope.dims = 4;
     },
     {}},
    {"norm_of_embedding",
     [](ModelSpec& s) {
       s.architecture = "bloom";
       s.norm = NormType::kLayerNorm;
       s.gated_ffn = false;
       s.positions = PositionEncoding::kAlibi;
       s.rope = {};
       s.n_kv_heads = 6;
       s.tied_head = true;
     },
     {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125}},
    {"norms_within_sublayers", [](ModelSpec& s) { s.architecture = "bitnet"; }, {}},
    {"experts_and_a_dense_layer",
     [](ModelSpec& s) {
       s.architecture = "qwen3moe";
       s.n_experts = 5;
       s.n_experts_used = 2;
       s.expert_ffn = 20;
       s.expert_layers = {1, 0, 1};
     },
     {}},
    {"shared_expert",
     [](ModelSpec& s) {
       s.architecture = "qwen2moe";
       s.n_experts = 6;
       s.n_experts_used = 3;
       s.expert_ffn = 12;
       s.shared_ffn = 52;
     },
     {}},
    {"norms_of_heads", [](ModelSpec& s) { s.architecture = "qwen3"; }, {}},
    {"short_convolutions",
     [](ModelSpec& s) {
       s.architecture = "lfm2";
       s.layer_mixers = {1, 0, 1};
       s.conv_taps = 3;
       s.tied_head = true;
     },
     {}},
    {"scans",
     [](ModelSpec& s) {
       set_granite_hybrid(s);
       s.n_layers = kLayers;
       s.logit_scale = 2.0F;
       s.layer_mixers = {2, 0, 2};
       s.layer_rope = {0, 0, 0};
     },
     {}},
    {"scans_with_experts",
     [](ModelSpec& s) {
       set_granite_hybrid(s);
       s.architecture = "granitemoehybrid";
       s.n_layers = kLayers;
       s.residual_scale = 1.0F;
       s.logit_scale = 2.0F;
       s.layer_mixers = {2, 0, 2};
       s.layer_rope = {0, 0, 0};
       s.n_experts = 4;
       s.n_experts_used = 2;
       s.expert_ffn = 20;
       s.expert_renormalised = true;
       s.shared_ffn = 28;
     },
     {}},
    {"single_sublayers",
     [](ModelSpec& s) {
       set_nemotron_h(s);
       s.n_layers = kLayers;
       s.layer_mixers = {2, 4, 0};
       s.ffn_layers = {0, 1, 0};
       s.layer_rope = {0, 0, 0};
     },
     {}},
    {"single_sublayers_with_experts",
     [](ModelSpec& s) {
       set_nemotron_h(s);
       s.architecture = "nemotron_h_moe";
       s.n_layers = kLayers;
       s.layer_mixers = {0, 2, 4};
       s.ffn_layers = {0, 0, 1};
       s.layer_rope = {0, 0, 0};
       s.n_experts = 5;
       s.n_experts_used = 2;
       s.expert_ffn = 20;
       s.expert_layers = {0, 0, 1};
       s.expert_scoring = ExpertScoring::kSigmoid;
       s.shared_ffn = 28;
     },
     {}},
    {"scans_beside_attention",
     [](ModelSpec& s) {
       set_falcon_h1(s);
       s.logit_scale = 2.0F;
     },
     {}},
    {"delta_rules",
     [](ModelSpec& s) {
       set_qwen35(s);
       s.n_layers = kLayers;
       s.layer_mixers = {3, 0, 3};
     },
     {}},
    {"delta_rules_with_experts",
     [](ModelSpec& s) {
       set_qwen35(s);
       s.architecture = "qwen3next";
       s.n_layers = kLayers;
       s.layer_mixers = {3, 0, 3};
       s.mixer_groups = 6;
       s.n_experts = 4;
       s.n_experts_used = 3;
       s.expert_ffn = 12;
       s.shared_ffn = 10;
       s.expert_layers = {1, 0, 1};
     },
     {}},
    {"values_that_are_keys", set_own_heads, {}},
    {"shared_keys_and_inputs_of_layers",
     [](ModelSpec& s) {
       set_own_heads(s);
       s.key_value_layers.clear();
       s.kv_layers = {0, 1, 0};
       set_layer_ffn({20, 20, 36}, s);
       s.layer_input_dim = 5;
     },
     {}},
    {"experts_beside_an_ffn",
     [](ModelSpec& s) {
       set_own_heads(s);
       s.architecture = "gemma4moe";
       s.n_experts = 5;
       s.n_experts_used = 2;
       s.expert_ffn = 20;
       s.expert_renormalised = true;
       s.experts_beside_ffn = true;
     },
     {}},
    {"latent_attention",
     [](ModelSpec& s) {
       set_latent(s);
       s.expert_layers = {0, 1, 1};
     },
     {}},
    {"latent_queries",
     [](ModelSpec& s) {
       set_latent(s);
       s.expert_layers = {0, 0, 1};
       s.latent_query_dim = 28;
     },
     {}},
    // Of more tiles of 64 rows than one product takes.
    {"many_tiles", [](ModelSpec& s) { s.hidden = 64 * 64 + 40; }, {}},
};

class CollectorGraphTest : public NaiveModelTest, public testing::WithParamInterface<Graph> {
 protected:
  void SetUp() override {
    ModelSpec spec = naive_llama(kLayers, kContext);
    GetParam().change(spec);
    path_ = testing_support::temporary_path(std::string("collect_") + GetParam().name + ".qsf");
    model_.emplace(spec, 5);
    ASSERT_TRUE(model_->write(path_).ok());
    for (std::size_t i = 0; i < kTokens; ++i) {
      tokens_.push_back(static_cast<TokenId>((i * i * 31 + 7 * i + 3) % kNaiveVocab));
    }
  }
};

void expect_means(const std::vector<float>& got, const std::vector<double>& want,
                  const std::string& where) {
  ASSERT_EQ(got.size(), want.size()) << where;
  const double largest = *std::ranges::max_element(want);
  ASSERT_GT(largest, 0.0) << where;
  for (std::size_t c = 0; c < got.size(); ++c) {
    // Twice the tolerance of values, of which these are squares (docs/testing.md).
    EXPECT_NEAR(static_cast<double>(got[c]), want[c], 2e-4 * largest) << where << ' ' << c;
  }
}

// Every matrix of a layer that may be rounded has statistics, and they tell its columns.
void expect_all_matrices(const ModelSpec& spec, const Calibration& calibration,
                         const Expected& want) {
  const auto importance = column_importance(calibration);
  ASSERT_TRUE(importance) << importance.error().message();
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    for (const TensorRule& rule : layer_rules(spec, layer)) {
      if (rule.rows == 1 || rule.kind == TensorKind::kRouter) continue;
      const std::string where = std::string(tensor_kind_name(rule.kind)) + std::to_string(layer);
      // No row may have chosen an expert.
      if (!is_expert(rule.kind)) {
        EXPECT_EQ(want.means.count({rule.kind, layer, rule.expert}), 1U) << where;
      }
      EXPECT_FALSE(importance->find({rule.kind, layer, rule.expert}, rule.cols).empty()) << where;
    }
  }
}

// The diagonals of Hessians are the sums of squares of the same rows.
void expect_squares(HessianSums& hessians, const Calibration& calibration) {
  const CalibratedModel& model = calibration.model;
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    for (std::size_t i = 0; i < kInputsPerLayer; ++i) {
      const std::vector<float>& means = calibration.layers[layer].mean_squares[i];
      const auto input = static_cast<ProductInput>(i);
      const std::vector<float> hessian = hessians.take(input, layer);
      // Routers are not rounded; experts and the matrices of latent heads are not compensated.
      const bool routes = input == ProductInput::kGateUp && model.has_experts(layer);
      if (is_in_parts(input) || (routes && input_cols(model, {ProductInput::kDown, layer}) == 0)) {
        EXPECT_TRUE(hessian.empty());
        continue;
      }
      ASSERT_EQ(hessian.size(), means.size() * means.size());
      for (std::size_t c = 0; c < means.size(); ++c) {
        const float sum = means[c] * static_cast<float>(calibration.n_rows);
        // As many roundings as rows, at most.
        EXPECT_NEAR(hessian[c * means.size() + c], sum, 0x1p-24F * kTokens * sum)
            << layer << ' ' << c;
      }
    }
  }
}

// Counts rows by layer, beside their Hessians.
class CountedHessians final : public RowConsumer {
 public:
  CountedHessians(const ModelSpec& spec, std::uint32_t first, std::uint32_t n_layers)
      : sums_(spec, first, n_layers, 2) {}
  void take_input(const InputPlace& place, std::span<const float> row) override {
    sums_.take_input(place, row);
  }
  void take_layer(std::uint32_t layer, std::span<const float> /*in*/,
                  std::span<const float> /*out*/) override {
    ++n_rows_[layer];
  }
  HessianSums& sums() { return sums_; }
  const std::map<std::uint32_t, std::size_t>& n_rows() const { return n_rows_; }

 private:
  HessianSums sums_;
  std::map<std::uint32_t, std::size_t> n_rows_;
};

// Counts rows in front of the head and of the first layer.
struct CountedInputs final : RowConsumer {
  void take_input(const InputPlace& place, std::span<const float> /*row*/) override {
    of_head += place.input == ProductInput::kHead ? 1 : 0;
    of_first_layer += place.input == ProductInput::kQkv && place.layer == 0 ? 1 : 0;
  }
  void take_layer(std::uint32_t /*layer*/, std::span<const float> /*in*/,
                  std::span<const float> /*out*/) override {}
  std::size_t of_head = 0;
  std::size_t of_first_layer = 0;
};

// Runs that go on from each other's rows see what one run sees, and compute no layer twice.
TEST_P(CollectorGraphTest, GoesOnFromKeptRows) {
  auto opened = StatisticsCollector::open(path_, {.context = kContext, .n_threads = 2});
  ASSERT_TRUE(opened) << opened.error().message();
  StatisticsCollector& collector = **opened;
  HessianSums whole(collector.spec(), 0, kLayers, 2);
  ASSERT_TRUE(collector.run_layers(tokens_, 0, kLayers, whole).ok());
  const Status kept = collector.save_hidden_rows(tokens_.size());
  ASSERT_TRUE(kept.ok()) << kept.message();
  std::filesystem::remove(path_);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".rows"));
  using Rows = std::map<std::uint32_t, std::size_t>;
  constexpr std::size_t kRows = kTokens - 3;
  const auto feed = [&](std::uint32_t first, std::uint32_t last) {
    CountedHessians part(collector.spec(), first, last - first);
    const Status status = collector.run_layers(tokens_, first, last, part);
    EXPECT_TRUE(status.ok()) << status.message();
    return part;
  };
  CountedHessians first = feed(0, 1);
  EXPECT_EQ(first.n_rows(), (Rows{{0, kRows}}));
  CountedHessians second = feed(1, 2);
  EXPECT_EQ(second.n_rows(), (Rows{{1, kRows}}));
  CountedHessians third = feed(2, kLayers);
  // Unless the keys of an earlier layer are needed.
  const bool shares = !collector.spec().owns_kv(2);
  EXPECT_EQ(third.n_rows(),
            shares ? (Rows{{0, kRows}, {1, kRows}, {2, kRows}}) : (Rows{{2, kRows}}));
  // No rows are kept behind the last layer, and those in front of another were given up.
  CountedHessians anew = feed(1, 2);
  EXPECT_EQ(anew.n_rows(), (Rows{{0, kRows}, {1, kRows}}));
  std::array<CountedHessians*, kLayers> parts = {&first, &second, &third};
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    for (std::size_t i = 0; i < kInputsPerLayer; ++i) {
      const auto input = static_cast<ProductInput>(i);
      const std::vector<float> want = whole.take(input, layer);
      EXPECT_EQ(parts[layer]->sums().take(input, layer), want) << layer << ' ' << i;
      if (layer == 1) {
        EXPECT_EQ(anew.sums().take(input, layer), want) << i;
      }
    }
  }
}

TEST_P(CollectorGraphTest, MatchesTheDefinition) {
  const Expected want = expected_of(*model_, tokens_, GetParam().slopes);
  auto collector = StatisticsCollector::open(path_, {.context = kContext, .n_threads = 2});
  ASSERT_TRUE(collector) << collector.error().message();
  std::filesystem::remove(path_);
  auto got = (*collector)->run(tokens_);
  ASSERT_TRUE(got) << got.error().message();
  got->model = shape_of(model_->spec());
  const auto again = (*collector)->run(tokens_);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->loss, got->loss);
  EXPECT_EQ(again->layers.back().skip_loss, got->layers.back().skip_loss);
  EXPECT_EQ(got->n_rows, kTokens - 3);
  HessianSums hessians((*collector)->spec(), 0, kLayers, 2);
  const Status status = (*collector)->run_layers(tokens_, 0, kLayers, hessians);
  ASSERT_TRUE(status.ok()) << status.message();
  expect_squares(hessians, *got);
  EXPECT_EQ(got->n_skip_rows, kContext - 1);
  EXPECT_EQ(got->context, kContext);
  EXPECT_NEAR(got->loss, want.loss, 1e-4);
  for (const auto& [matrix, means] : want.means) {
    const auto [kind, layer, e] = matrix;
    const std::string where = std::string(tensor_kind_name(kind)) + ", layer " +
                              std::to_string(layer) + ", expert " + std::to_string(e);
    const auto input = product_input_of(got->model, layer, kind);
    ASSERT_TRUE(input.has_value()) << where;
    if (is_expert(kind)) {
      const ExpertCalibration& expert = got->layers[layer].experts.at(e);
      EXPECT_EQ(expert.n_rows, means.n_rows) << where;
      const bool down = *input == ProductInput::kDown;
      if (down) {
        EXPECT_NEAR(expert.largest, means.largest, 1e-4 * means.largest) << where;
      }
      expect_means(down ? expert.down_mean_squares : expert.gate_up_mean_squares, means.squares,
                   where);
    } else {
      expect_means(*input == ProductInput::kHead
                       ? got->head_mean_squares
                       : got->layers[layer].mean_squares[static_cast<std::size_t>(*input)],
                   means.squares, where);
    }
  }
  expect_all_matrices(model_->spec(), *got, want);
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    if (layer > 0) {
      EXPECT_NEAR(got->layers[layer].cosine, want.cosines[layer], 1e-4) << layer;
    }
    EXPECT_NEAR(got->layers[layer].skip_loss, want.skip_losses[layer], 1e-3) << layer;
    EXPECT_GT(std::fabs(want.skip_losses[layer]), 0.01) << "says nothing: " << layer;
  }
}

// Of many windows the first run through the head too.
TEST_P(CollectorGraphTest, RunsTheHeadOfTheFirstWindows) {
  constexpr std::size_t kWindows = 24;
  constexpr std::size_t kWithHead = 16;
  auto opened = StatisticsCollector::open(path_, {.context = 2, .n_threads = 2});
  ASSERT_TRUE(opened) << opened.error().message();
  const auto tokens = std::span(tokens_).first(2 * kWindows);
  CountedInputs inputs;
  const auto all = (*opened)->run(tokens, {}, &inputs);
  ASSERT_TRUE(all) << all.error().message();
  const bool in_parts = Engine::runs_in_parts((*opened)->spec());
  EXPECT_EQ(inputs.of_head, in_parts ? kWithHead : kWindows);
  EXPECT_EQ(inputs.of_first_layer, kWindows);
  EXPECT_EQ(all->n_rows, kWindows);
  if (!in_parts) return;
  const auto first = (*opened)->run(tokens.first(2 * kWithHead));
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_EQ(all->loss, first->loss);
  EXPECT_EQ(all->head_mean_squares, first->head_mean_squares);
}

INSTANTIATE_TEST_SUITE_P(Graphs, CollectorGraphTest, testing::ValuesIn(kGraphs),
                         [](const auto& graph) { return graph.param.name; });

class CollectorTest : public testing::Test {
 protected:
  static std::vector<std::byte> run(const CollectOptions& options) {
    auto collector = StatisticsCollector::open(model().path(), options);
    EXPECT_TRUE(collector) << collector.error().message();
    if (!collector) return {};
    const auto calibration = (*collector)->run(some_tokens(kWindows * kWindow, kVocab));
    EXPECT_TRUE(calibration) << calibration.error().message();
    if (!calibration) return {};
    EXPECT_EQ(calibration->loss, exact_loss());
    return encode(*calibration);
  }
  static std::vector<std::byte> encode(const Calibration& calibration) {
    Calibration named = calibration;
    named.model = {.architecture = "llama",
                   .n_layers = StreamedShape{}.n_layers,
                   .hidden = StreamedShape{}.hidden,
                   .q_dim = StreamedShape{}.hidden,
                   .ffn = StreamedShape{}.ffn,
                   .n_vocab = kVocab};
    return encode_calibration(named);
  }
  // The mean loss of the engine on its exact path, whatever the codes of the weights.
  static double exact_loss() {
    EngineOptions options;
    options.n_threads = 2;
    options.max_context = kWindow;
    options.k_type = KvType::kF32;
    options.v_type = KvType::kF32;
    options.exact = true;
    const auto engine = Engine::open(model().path(), options).value();
    const std::vector<TokenId> tokens = some_tokens(kWindows * kWindow, kVocab);
    std::vector<double> log_probs(kWindow - 1);
    double total = 0.0;
    for (std::size_t i = 0; i < kWindows; ++i) {
      double loss = 0.0;
      EXPECT_TRUE(
          engine->score(std::span(tokens).subspan(i * kWindow, kWindow), 1, log_probs).ok());
      for (const double log_prob : log_probs) loss -= log_prob;
      total += loss;
    }
    return total / static_cast<double>(kWindows * (kWindow - 1));
  }
  static const StreamedModel& model() {
    static const StreamedModel model("collect", StreamedShape{});
    return model;
  }
  static constexpr std::size_t kWindows = 2;
  static constexpr std::uint32_t kWindow = 150;
  static constexpr std::uint32_t kVocab = StreamedShape{}.n_vocab;
};

// The budget in MB that a refusal of a far smaller one names.
std::uint64_t least_budget(const std::string& path, CollectOptions options) {
  options.ram_budget_bytes = 5 * kMB;
  const auto refused = StatisticsCollector::open(path, options);
  EXPECT_FALSE(refused.has_value());
  if (refused.has_value()) return 0;
  const std::string message(refused.error().message());
  EXPECT_EQ(refused.error().code(), StatusCode::kOutOfBudget);
  EXPECT_THAT(message, HasSubstr("calibration"));
  const std::size_t at = message.find("needs ");
  EXPECT_NE(at, message.npos) << message;
  return at == message.npos ? 0 : std::strtoull(message.c_str() + at + 6, nullptr, 10) * kMB;
}

TEST_F(CollectorTest, SameBitsAtAnyThreadsAndBudget) {
  const std::vector<std::byte> want = run({.context = kWindow, .n_threads = 1});
  ASSERT_FALSE(want.empty());
  EXPECT_EQ(run({.context = kWindow, .n_threads = 2}), want);
  EXPECT_EQ(run({.context = kWindow, .n_threads = 3}), want);
  CollectOptions streamed = {.context = kWindow, .n_threads = 2};
  const std::uint64_t least = least_budget(model().path(), streamed);
  ASSERT_GT(least, 0U);
  streamed.ram_budget_bytes = least + 2 * kMB;
  EXPECT_EQ(run(streamed), want);
}

TEST_F(CollectorTest, Int8RowsGiveOtherBitsButTheSameAtAnyThreads) {
  std::vector<std::vector<std::byte>> encoded;
  for (const auto& [exact, n_threads] : {std::pair{true, 1U}, {false, 1U}, {false, 3U}}) {
    auto collector = StatisticsCollector::open(
        model().path(), {.context = kWindow, .n_threads = n_threads, .exact = exact});
    ASSERT_TRUE(collector) << collector.error().message();
    const auto calibration = (*collector)->run(some_tokens(kWindows * kWindow, kVocab));
    ASSERT_TRUE(calibration) << calibration.error().message();
    EXPECT_NEAR(calibration->loss, exact_loss(), 0.02 * exact_loss());
    encoded.push_back(encode(*calibration));
  }
  EXPECT_NE(encoded[1], encoded[0]);
  EXPECT_EQ(encoded[2], encoded[1]);
}

// Cancelled behind every window and started again, a run gives the bits of one that never was.
TEST_F(CollectorTest, GoesOnWhereItWasCancelled) {
  const std::string state = testing_support::temporary_path("collect_state");
  std::filesystem::remove(state);
  const std::vector<std::byte> want = run({.context = kWindow, .n_threads = 2});
  std::atomic<bool> cancel{false};
  std::uint64_t n_done = 0;
  CollectOptions options = {.context = kWindow, .n_threads = 2};
  options.cancel = &cancel;
  options.on_progress = [&](const CollectProgress& progress) {
    n_done = progress.done_rows;
    cancel = true;
  };
  std::vector<std::uint64_t> rows_done;
  std::optional<Calibration> got;
  for (int n_starts = 0; !got && n_starts < 100; ++n_starts) {
    auto collector = StatisticsCollector::open(model().path(), options);
    ASSERT_TRUE(collector) << collector.error().message();
    cancel = false;
    auto calibration = (*collector)->run(some_tokens(kWindows * kWindow, kVocab), state);
    rows_done.push_back(n_done);
    if (calibration) got = std::move(*calibration);
  }
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(encode(*got), want);
  // Two windows, then one without each of the layers; no row is run twice.
  ASSERT_EQ(rows_done.size(), kWindows + StreamedShape{}.n_layers);
  for (std::size_t i = 0; i < rows_done.size(); ++i) {
    EXPECT_EQ(rows_done[i], (i + 1) * (kWindow - 1)) << i;
  }
  std::filesystem::remove(state);
}

TEST_F(CollectorTest, CancelEndsWithinAPass) {
  std::atomic<bool> cancel{false};
  CollectOptions options = {.context = kWindow, .n_threads = 2};
  std::size_t n_windows = 0;
  options.cancel = &cancel;
  options.on_progress = [&](const CollectProgress& progress) {
    EXPECT_FALSE(progress.skipped_layer.has_value());
    EXPECT_LE(progress.done_rows, progress.total_rows);
    ++n_windows;
    cancel = true;
  };
  auto collector = StatisticsCollector::open(model().path(), options);
  ASSERT_TRUE(collector) << collector.error().message();
  const auto calibration = (*collector)->run(some_tokens(kWindows * kWindow, kVocab));
  ASSERT_FALSE(calibration);
  EXPECT_EQ(calibration.error().code(), StatusCode::kCancelled);
  EXPECT_EQ(n_windows, 1U);
}

TEST_F(CollectorTest, RefusesWindowsOfOneToken) {
  const auto collector = StatisticsCollector::open(model().path(), {.context = 1});
  ASSERT_FALSE(collector);
  EXPECT_EQ(collector.error().code(), StatusCode::kInvalidArgument);
}

TEST(CollectorRefusalTest, NamesWhatCannotBeCalibrated) {
  const auto expect_refused = [](const ModelSpec& spec, const char* named) {
    const Status status = check_calibrated(spec);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(status.message(), HasSubstr(named));
  };
  ModelSpec spec = naive_llama(kLayers, kContext);
  EXPECT_TRUE(check_calibrated(spec).ok());
  spec.n_streams = 2;
  expect_refused(spec, "several residual streams");
  spec.n_streams = 1;
  spec.embeds_only = true;
  expect_refused(spec, "embeds texts alone");
}

}  // namespace
}  // namespace qsf
