// SPDX-License-Identifier: MIT
//
// Holds the decoder to the definition of every architecture's graph, and its rows to their promise:
// the same bits whatever shares their pass.

#include "model/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/testing/temporary_path.h"
#include "format/qsf_reader.h"
#include "io/read_device.h"
#include "kv/kv_cache.h"
#include "model/architecture.h"
#include "model/position_tables.h"
#include "model/testing/expert_graphs.h"
#include "model/testing/naive_model.h"
#include "model/testing/state_graphs.h"
#include "ops/make_backend.h"
#include "ops/testing/deferred_backend.h"
#include "platform/threads.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing_support::DeferredBackend;
using testing_support::make_deferred_backend;
using testing_support::NaiveModel;

constexpr std::uint32_t kTokens = 23;
constexpr std::uint32_t kContext = 32;

// A graph to run: what of a plain spec is changed, and the slopes where positions are ALiBi's.
struct Graph {
  const char* name;
  std::function<void(ModelSpec&)> change;
  std::uint32_t context = kContext;  // what the model is opened for
  std::vector<double> slopes = {};
};

// RMSNorm, SiLU gate, RoPE on whole heads, own head: LLaMA. 1,100 tokens are two blocks of logits.
ModelSpec plain_spec() {
  ModelSpec s;
  s.architecture = "llama";
  s.n_layers = 2;
  s.hidden = 32;
  s.n_heads = 6;
  s.n_kv_heads = 2;
  s.head_dim = 8;
  s.n_vocab = 1100;
  s.max_positions = 64;
  s.ffn = 44;
  s.activation = Activation::kSilu;
  s.gated_ffn = true;
  s.norm = NormType::kRmsNorm;
  s.norm_epsilon = 0.01F;
  s.positions = PositionEncoding::kRope;
  return s;
}

void set_longrope(ModelSpec& s) {
  s.architecture = "phi3";
  s.sliding_window = {9};
  s.rope = {.dims = 6,
            .scaling = RopeScaling::kLongrope,
            .original_context = kContext,
            .attention_factor = 1.2F,
            .short_factors = {1.0F, 1.1F, 1.5F},
            .long_factors = {1.3F, 4.0F, 20.0F}};
}

void set_experts(ModelSpec& s) {
  s.architecture = "mixtral";
  s.n_experts = 5;
  s.n_experts_used = 2;
  s.expert_ffn = 20;
  s.expert_renormalised = true;
}

void set_yarn(ModelSpec& s) {
  s.rope.scaling = RopeScaling::kYarn;
  s.rope.factor = 4.0F;
  s.rope.original_context = 8;
  s.rope.beta_fast = 1.5F;
  s.rope.beta_slow = 0.2F;
  s.rope.truncate = false;
  s.rope.attention_factor = 1.2F;
}

const Graph kGraphs[] = {
    {"llama", [](ModelSpec&) {}},
    {"qwen3", [](ModelSpec& s) { s.architecture = "qwen3"; }},
    {"phi2",
     [](ModelSpec& s) {
       s.architecture = "phi2";
       s.parallel_block = true;
       s.norm = NormType::kLayerNorm;
       s.activation = Activation::kGeluTanh;
       s.gated_ffn = false;
       s.rope.dims = 4;
     }},
    {"phi3_short", set_longrope},
    {"phi3_long", set_longrope, kContext + 1},
    {"opt",
     [](ModelSpec& s) {
       s.architecture = "opt";
       s.norm = NormType::kLayerNorm;
       s.activation = Activation::kRelu;
       s.gated_ffn = false;
       s.positions = PositionEncoding::kLearned;
       s.rope = {};
       s.tied_head = true;
     }},
    {"bloom",
     [](ModelSpec& s) {
       s.architecture = "bloom";
       s.norm = NormType::kLayerNorm;
       s.activation = Activation::kGeluTanh;
       s.gated_ffn = false;
       s.positions = PositionEncoding::kAlibi;
       s.rope = {};
       s.n_kv_heads = 6;
       s.tied_head = true;
     },
     kContext,
     {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125}},
    {"gemma",
     [](ModelSpec& s) {
       s.architecture = "gemma";
       s.activation = Activation::kGeluTanh;
       s.embedding_scale = 2.75F;
       s.tied_head = true;
       s.n_kv_heads = 1;
     }},
    {"gemma2",
     [](ModelSpec& s) {
       s.architecture = "gemma2";
       s.activation = Activation::kGeluTanh;
       s.embedding_scale = 2.75F;
       s.tied_head = true;
       s.attention_scale = 0.25F;
       s.attention_soft_cap = 3.0F;
       s.logit_soft_cap = 5.0F;
       s.sliding_window = {9, 0};
     }},
    {"stablelm",
     [](ModelSpec& s) {
       s.architecture = "stablelm";
       s.norm = NormType::kLayerNorm;
       s.rope.dims = 2;
     }},
    {"stablelm_parallel",
     [](ModelSpec& s) {
       s.architecture = "stablelm";
       s.norm = NormType::kLayerNorm;
       s.parallel_block = true;
     }},
    {"gemma3",
     [](ModelSpec& s) {
       s.architecture = "gemma3";
       s.activation = Activation::kGeluTanh;
       s.embedding_scale = 2.75F;
       s.tied_head = true;
       s.attention_scale = 0.25F;
       s.n_layers = 3;
       s.sliding_window = {9, 9, 0};
       s.rope.theta = 300.0F;
       s.rope.scaling = RopeScaling::kLinear;
       s.rope.factor = 4.0F;
       s.layer_rope = {2, 2, 1};
       s.local_rope_theta = 20.0F;
     }},
    {"mixtral", set_experts},
    {"olmoe",
     [](ModelSpec& s) {
       s.architecture = "olmoe";
       s.n_experts = 7;
       s.n_experts_used = 3;
       s.expert_ffn = 12;
     }},
    {"granitemoe",
     [](ModelSpec& s) {
       s.architecture = "granitemoe";
       s.residual_scale = 0.4F;
       s.n_experts = 3;
       s.n_experts_used = 3;
       s.expert_ffn = 20;
       s.expert_renormalised = true;
     }},
    {"gpt_oss",
     [](ModelSpec& s) {
       set_experts(s);
       s.architecture = "gpt-oss";
       s.activation = Activation::kSwishClamped;
       s.sliding_window = {9, 0};
       s.rope.theta = 50.0F;
       set_yarn(s);
     }},
    {"smollm3",
     [](ModelSpec& s) {
       s.architecture = "smollm3";
       s.n_layers = 3;
       s.layer_rope = {1, 0, 1};
     }},
    {"olmo2_yarn",
     [](ModelSpec& s) {
       s.architecture = "olmo2";
       s.sliding_window = {9, 0};
       s.layer_rope = {2, 1};
       s.rope.theta = 50.0F;
       s.local_rope_theta = 50.0F;
       set_yarn(s);
     }},
    {"granite",
     [](ModelSpec& s) {
       s.architecture = "granite";
       s.embedding_scale = 3.0F;
       s.attention_scale = 0.2F;
       s.residual_scale = 0.4F;
       s.logit_scale = 0.25F;
     }},
    {"mistral3",
     [](ModelSpec& s) {
       s.architecture = "mistral3";
       s.rope.theta = 50.0F;
       set_yarn(s);
       s.query_position_scale = 0.7F;
     }},
    {"glm4",
     [](ModelSpec& s) {
       s.architecture = "glm4";
       s.rope.dims = 4;
     }},
    {"exaone4",
     [](ModelSpec& s) {
       s.architecture = "exaone4";
       s.sliding_window = {9, 0};
       s.layer_rope = {1, 0};
     }},
    {"clipped",
     [](ModelSpec& s) {
       s.architecture = "olmoe";
       s.n_experts = 3;
       s.n_experts_used = 2;
       s.expert_ffn = 44;
       s.qkv_clip = 0.8F;
     }},
    {"command_r",
     [](ModelSpec& s) {
       s.architecture = "command-r";
       s.norm = NormType::kLayerNorm;
       s.parallel_block = true;
       s.logit_scale = 0.5F;
       s.logit_soft_cap = 2.0F;
       s.tied_head = true;
     }},
    {"gptneox",
     [](ModelSpec& s) {
       s.architecture = "gptneox";
       s.norm = NormType::kLayerNorm;
       s.parallel_block = true;
       s.activation = Activation::kGeluErf;
       s.gated_ffn = false;
       s.rope.dims = 2;
     }},
    {"gptneox_sequential",
     [](ModelSpec& s) {
       s.architecture = "gptneox";
       s.norm = NormType::kLayerNorm;
       s.activation = Activation::kGeluErf;
       s.gated_ffn = false;
     }},
    {"mpt",
     [](ModelSpec& s) {
       s.architecture = "mpt";
       s.norm = NormType::kLayerNorm;
       s.positions = PositionEncoding::kAlibi;
       s.rope = {};
       s.gated_ffn = false;
     },
     kContext,
     {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125}},
    {"bitnet", [](ModelSpec& s) { s.architecture = "bitnet"; }},
    {"bitnet_relu_squared",
     [](ModelSpec& s) {
       s.architecture = "bitnet-b1.58";
       s.activation = Activation::kReluSquared;
       s.tied_head = true;
     }},
    {"alibi_with_window_and_cap",
     [](ModelSpec& s) {
       s.architecture = "bloom";
       s.positions = PositionEncoding::kAlibi;
       s.rope = {};
       s.sliding_window = {0, 7};
       s.attention_soft_cap = 2.0F;
       s.bf16_biases = true;
     },
     kContext,
     {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125}},
};

// How a decoder is run: on which backend, and with how much memory for weights.
struct Setup {
  bool deferred = false;                  // not on the CPU's backend
  std::size_t max_tiles = SIZE_MAX;       // that the deferred one keeps
  std::uint64_t bytes_more = UINT64_MAX;  // for weights, than streaming needs; UINT64_MAX: for all
};

// Everything that a decoder needs, over one file.
class Runner {
 public:
  Runner(const std::string& path, std::uint32_t context, const Setup& setup = {})
      : reader_(QsfReader::open(path).value()),
        device_(ReadDevice::open(reader_.file()).value()),
        threads_(ThreadPool::create(2).value()) {
    if (setup.deferred) {
      auto made = make_deferred_backend(*threads_, /*exact=*/false, setup.max_tiles);
      deferred_ = made.get();
      backend_ = std::move(made);
    } else {
      backend_ = make_cpu_backend(*threads_, /*exact=*/false).value();
    }
    const ModelSpec& spec = reader_.spec();
    const KvShape shape = {
        spec.n_attention_layers(), spec.n_kv_heads, spec.head_dim, KvType::kF32, KvType::kF32,
        spec.has_latent()};
    const KvLimits limits = {
        .n_pages = kv_pages_for(context), .max_sequences = 1, .max_slots = context};
    const PassLimits pass_limits = {
        .max_rows = kTokens,
        .max_decode_rows = kTokens,
        .max_context = context,
        .n_heads = spec.n_heads,
        .n_kv_heads = spec.n_kv_heads,
        .head_dim = spec.head_dim,
        .rope_dims = spec.positions == PositionEncoding::kRope ? spec.rope_dims() : 0,
        .n_rotations = local_rope_inverse_frequencies(spec).empty() ? 1U : 2U,
        .max_cols = Decoder::max_product_cols(spec),
        .keys_are_values = spec.has_latent()};
    kv_.emplace(KvCache::create(shape, limits, memory(KvCache::region_bytes(limits))).value());
    kv_store_.emplace(shape, memory(backend_->kv_bytes(shape, limits.n_pages)));
    backend_->attach_kv(*kv_store_);
    if (spec.has_state()) {
      const StateShape states = {
          .n_layers = spec.n_state_layers(),
          .layer_size = (spec.conv_taps - 1) * spec.conv_channels() + spec.scan_values()};
      states_.emplace(StateCache::create(states, 1, memory(StateCache::region_bytes(states, 1))));
      backend_->attach_states(*states_);
    }
    backend_->attach_scratch(pass_limits, memory(backend_->scratch_bytes(pass_limits)));
    WeightLimits weight_limits;
    if (setup.bytes_more != UINT64_MAX) {
      weight_limits.bytes = WeightPager::plan(reader_, {}).value().least_bytes + setup.bytes_more;
      weight_limits.ring_bytes = 1;  // the least that works
    }
    const Residency residency = WeightPager::plan(reader_, weight_limits).value();
    pager_ = WeightPager::open(reader_, device_, residency, memory(residency.region_bytes),
                               {.work = backend_.get()})
                 .value();
    std::vector<Buffer> made;
    for (const BufferShape& b : Decoder::buffer_shapes(spec, kTokens, {})) {
      made.push_back(backend_->create_buffer(b.n_rows, b.n_cols,
                                             memory(backend_->buffer_bytes(b.n_rows, b.n_cols))));
    }
    const DecoderBuffers buffers = Decoder::name_buffers(spec, made, {});
    decoder_.emplace(
        Decoder::create(reader_, *pager_, *backend_, buffers, kTokens, context).value());
  }

  // Runs a text from its start in passes of `rows_per_pass` rows; returns the logits of every row.
  std::vector<std::vector<float>> run(const std::vector<std::uint32_t>& tokens,
                                      std::uint32_t rows_per_pass, RowRole role) {
    const SequenceId sequence = kv_->create_sequence().value();
    std::vector<std::vector<float>> logits;
    for (std::uint32_t done = 0; done < tokens.size();) {
      std::vector<Row> rows;
      const auto n = std::min(rows_per_pass, static_cast<std::uint32_t>(tokens.size()) - done);
      const std::uint32_t slot = kv_->append(sequence, n).value().first_slot;
      for (std::uint32_t i = 0; i < n; ++i) {
        rows.push_back({.sequence = sequence,
                        .token = tokens[done + i],
                        .position = static_cast<std::int32_t>(slot + i),
                        .kv_slot = slot + i,
                        .role = role,
                        .visible = {.prefix = slot + i + 1, .ancestors = 0},
                        .adapter = 0,
                        .wants_output = true});
      }
      Collect sink(done, logits);
      if (states_.has_value()) states_->begin(sequence, role);
      const Status status = decoder_->run(
          {.rows = rows, .kv = &*kv_, .cancel = nullptr, .sink = &sink, .on_layer = nullptr});
      EXPECT_TRUE(status.ok()) << status.message();
      if (states_.has_value()) states_->commit(sequence, n);
      done += n;
    }
    free_sequence(sequence);
    return logits;
  }

  // Runs a pass that is cancelled while its second layer is about to begin.
  Status cancel_behind_first_layer(const std::vector<std::uint32_t>& tokens) {
    const SequenceId sequence = kv_->create_sequence().value();
    EXPECT_TRUE(kv_->append(sequence, static_cast<std::uint32_t>(tokens.size())).has_value());
    const std::vector<Row> rows = prompt_rows(sequence, tokens);
    std::atomic<bool> cancel{false};
    const auto on_layer = [](std::uint32_t, void* flag) {
      static_cast<std::atomic<bool>*>(flag)->store(true);
    };
    if (states_.has_value()) states_->begin(sequence, RowRole::kPrompt);
    Status status = decoder_->run({.rows = rows,
                                   .kv = &*kv_,
                                   .cancel = &cancel,
                                   .sink = nullptr,
                                   .on_layer = on_layer,
                                   .on_layer_user = &cancel});
    free_sequence(sequence);
    return status;
  }

  // Runs layers [first, last) alone over rows of a text of their own. Returns what is behind them.
  std::vector<float> run_part(const std::vector<std::uint32_t>& tokens, std::uint32_t first,
                              std::uint32_t last, std::vector<float> hidden) {
    const SequenceId sequence = kv_->create_sequence().value();
    const auto n = static_cast<std::uint32_t>(tokens.size());
    EXPECT_TRUE(kv_->append(sequence, n).has_value());
    const std::vector<Row> rows = prompt_rows(sequence, tokens);
    hidden.resize(n * reader_.spec().hidden);
    const Status status =
        decoder_->run_part({.rows = rows, .kv = &*kv_, .sink = nullptr}, first, last, hidden);
    EXPECT_TRUE(status.ok()) << status.message();
    kv_->free_sequence(sequence);
    return hidden;
  }

  WeightPager& pager() { return *pager_; }
  const QsfReader& reader() const { return reader_; }
  // With Setup::deferred alone.
  const DeferredBackend& deferred() const { return *deferred_; }

 private:
  class Collect final : public LogitsSink {
   public:
    Collect(std::uint32_t first, std::vector<std::vector<float>>& logits)
        : first_(first), logits_(logits) {}
    void consume(std::uint32_t row, std::uint32_t first_token,
                 std::span<const float> block) noexcept override {
      if (logits_.size() <= first_ + row) logits_.resize(first_ + row + 1);
      std::vector<float>& to = logits_[first_ + row];
      EXPECT_EQ(to.size(), first_token);
      to.insert(to.end(), block.begin(), block.end());
    }

   private:
    std::uint32_t first_;
    std::vector<std::vector<float>>& logits_;
  };

  // The rows of a text that begins its sequence and wants no logits.
  static std::vector<Row> prompt_rows(SequenceId sequence,
                                      const std::vector<std::uint32_t>& tokens) {
    std::vector<Row> rows;
    for (std::uint32_t i = 0; i < tokens.size(); ++i) {
      rows.push_back({.sequence = sequence,
                      .token = tokens[i],
                      .position = static_cast<std::int32_t>(i),
                      .kv_slot = i,
                      .role = RowRole::kPrompt,
                      .visible = {.prefix = i + 1},
                      .wants_output = false});
    }
    return rows;
  }

  void free_sequence(SequenceId sequence) {
    kv_->free_sequence(sequence);
    if (states_.has_value()) states_->truncate(sequence, 0);
  }

  MutableByteSpan memory(std::size_t n_bytes) {
    constexpr std::size_t kAlign = kTileAlign;
    blocks_.push_back(std::make_unique<std::byte[]>(n_bytes + kAlign));
    void* at = blocks_.back().get();
    std::size_t space = n_bytes + kAlign;
    std::align(kAlign, n_bytes, at, space);
    return {static_cast<std::byte*>(at), n_bytes};
  }

  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  QsfReader reader_;
  ReadDevice device_;
  std::unique_ptr<ThreadPool> threads_;
  std::unique_ptr<Backend> backend_;
  const DeferredBackend* deferred_ = nullptr;
  std::optional<KvCache> kv_;
  std::optional<ResidentKvStore> kv_store_;
  std::optional<StateCache> states_;
  std::unique_ptr<WeightPager> pager_;
  std::optional<Decoder> decoder_;
};

class DecoderTest : public testing::TestWithParam<Graph> {
 protected:
  DecoderTest()
      : path_(testing_support::temporary_path(std::string("decoder_") + GetParam().name + ".qsf")) {
    ModelSpec spec = plain_spec();
    GetParam().change(spec);
    model_.emplace(std::move(spec), 11);
    for (std::uint32_t i = 0; i < kTokens; ++i) tokens_.push_back(i * 389 % 1100);
  }
  void SetUp() override {
    const Status written = model_->write(path_);
    ASSERT_TRUE(written.ok()) << written.message();
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string path_;
  std::optional<NaiveModel> model_;
  std::vector<std::uint32_t> tokens_;
};

// The tolerance of docs/testing.md for f32 weights, keys and values.
TEST_P(DecoderTest, MatchesTheDefinition) {
  const auto want = model_->logits(tokens_, GetParam().context, GetParam().slopes);
  Runner runner(path_, GetParam().context);
  const auto got = runner.run(tokens_, kTokens, RowRole::kPrompt);
  ASSERT_EQ(got.size(), want.size());
  double largest = 0;
  double worst = 0;
  for (std::size_t row = 0; row < want.size(); ++row) {
    ASSERT_EQ(got[row].size(), want[row].size());
    for (std::size_t i = 0; i < want[row].size(); ++i) {
      largest = std::max(largest, std::fabs(want[row][i]));
      const double error = std::fabs(static_cast<double>(got[row][i]) - want[row][i]);
      ASSERT_FALSE(std::isnan(error)) << row << ' ' << i;
      worst = std::max(worst, error);
    }
  }
  EXPECT_LE(worst, 1e-4 * largest);
  RecordProperty("relative_error", std::to_string(worst / largest));
}

TEST_P(DecoderTest, RowsDoNotDependOnTheirPass) {
  Runner runner(path_, GetParam().context);
  const auto prompt = runner.run(tokens_, kTokens, RowRole::kPrompt);
  EXPECT_EQ(runner.run(tokens_, 7, RowRole::kPrompt), prompt);
  EXPECT_EQ(runner.run(tokens_, 1, RowRole::kPrompt), prompt);
  const auto generated = runner.run(tokens_, 1, RowRole::kGenerated);
  EXPECT_EQ(runner.run(tokens_, 3, RowRole::kGenerated), generated);
  EXPECT_EQ(runner.run(tokens_, kTokens, RowRole::kGenerated), generated);
}

// A backend that runs late and has memory of its own, with weights in memory or in the smallest
// ring, and with copies of all tiles, of some or of none.
TEST_P(DecoderTest, ADeferredBackendGivesTheSameBits) {
  Runner plain(path_, GetParam().context);
  const auto prompt = plain.run(tokens_, 7, RowRole::kPrompt);
  const auto generated = plain.run(tokens_, 3, RowRole::kGenerated);
  for (const std::uint64_t bytes_more : {std::uint64_t{0}, std::uint64_t{20000}, UINT64_MAX}) {
    for (const std::size_t max_tiles : {std::size_t{0}, std::size_t{5}, SIZE_MAX}) {
      Runner runner(path_, GetParam().context,
                    {.deferred = true, .max_tiles = max_tiles, .bytes_more = bytes_more});
      EXPECT_EQ(runner.run(tokens_, 7, RowRole::kPrompt), prompt) << bytes_more << ' ' << max_tiles;
      EXPECT_EQ(runner.run(tokens_, 3, RowRole::kGenerated), generated);
      EXPECT_EQ(runner.deferred().n_partial_waits() > 0, bytes_more == 0 || bytes_more == 20000)
          << bytes_more;
    }
  }
}

TEST_P(DecoderTest, LaterPassesCopyNoTileToTheBackend) {
  Runner runner(path_, GetParam().context, {.deferred = true, .bytes_more = 0});
  runner.run(tokens_, kTokens, RowRole::kPrompt);
  const AccessPlan pass = runner.pager().plan_of(0, runner.reader().spec().n_layers, true);
  const std::size_t n_copied = runner.deferred().n_tiles_copied();
  if (runner.reader().spec().n_experts == 0) {
    EXPECT_EQ(n_copied, pass.n_tiles());
  } else {
    EXPECT_GT(n_copied, pass.n_tiles());  // and the experts that were chosen
  }
  runner.run(tokens_, 5, RowRole::kGenerated);
  EXPECT_EQ(runner.deferred().n_tiles_copied(), n_copied);
}

// A tile of all 1,100 tokens is multiplied in two parts, one for each block of logits.
TEST_P(DecoderTest, PartsOfATileAreCopiedAsOneTile) {
  const auto want = Runner(path_, GetParam().context).run(tokens_, kTokens, RowRole::kPrompt);
  ASSERT_TRUE(model_->write(path_, std::uint64_t{1} << 20).ok());
  for (const std::size_t max_tiles : {std::size_t{0}, SIZE_MAX}) {
    Runner runner(path_, GetParam().context, {.deferred = true, .max_tiles = max_tiles});
    EXPECT_EQ(runner.run(tokens_, kTokens, RowRole::kPrompt), want);
  }
}

// Its rows are gone when a pass has failed, and its tiles are free for the next.
TEST_P(DecoderTest, ACancelledPassLeavesNothingUnderWay) {
  const std::vector<std::vector<float>> want =
      Runner(path_, GetParam().context).run(tokens_, kTokens, RowRole::kPrompt);
  for (const std::uint64_t bytes_more : {std::uint64_t{0}, UINT64_MAX}) {
    Runner runner(path_, GetParam().context,
                  {.deferred = true, .max_tiles = 0, .bytes_more = bytes_more});
    EXPECT_EQ(runner.cancel_behind_first_layer(tokens_).code(), StatusCode::kCancelled);
    EXPECT_TRUE(runner.deferred().is_idle());
    const TileId last = runner.pager().n_tiles() - 1;
    EXPECT_TRUE(runner.pager().acquire(last).has_value());
    runner.pager().release(last);
    EXPECT_EQ(runner.run(tokens_, kTokens, RowRole::kPrompt), want);
  }
}

INSTANTIATE_TEST_SUITE_P(Graphs, DecoderTest, testing::ValuesIn(kGraphs),
                         [](const auto& graph) { return graph.param.name; });

template <typename ListedGraph, std::size_t N>
std::vector<Graph> graphs_of(const ListedGraph (&list)[N]) {
  std::vector<Graph> graphs;
  for (const ListedGraph& g : list) graphs.push_back({g.name, g.change, g.context});
  return graphs;
}

INSTANTIATE_TEST_SUITE_P(Experts, DecoderTest,
                         testing::ValuesIn(graphs_of(testing_support::kExpertGraphs)),
                         [](const auto& graph) { return graph.param.name; });
INSTANTIATE_TEST_SUITE_P(States, DecoderTest,
                         testing::ValuesIn(graphs_of(testing_support::kStateGraphs)),
                         [](const auto& graph) { return graph.param.name; });

// Layers that are run alone read their own tiles from the file, and the first of them once more, as
// far as the ring reads ahead.
TEST(DecoderPartTest, AWindowOfLayersReadsItsOwnTiles) {
  constexpr std::uint32_t kLayers = 6;
  ModelSpec spec = plain_spec();
  spec.n_layers = kLayers;
  spec.gated_ffn = false;  // NaiveModel writes no gate beside its up projection, as converters do
  const NaiveModel model(spec, 11);
  const std::string path = testing_support::temporary_path("decoder_part.qsf");
  ASSERT_TRUE(model.write(path).ok());
  const std::vector<std::uint32_t> tokens = {5, 900, 31, 77};
  Runner whole(path, kContext);
  std::vector<float> hidden;
  for (const auto& [first, last] : {std::pair{0U, 2U}, {2U, 3U}, {3U, kLayers}}) {
    const std::vector<float> behind = whole.run_part(tokens, first, last, hidden);
    for (const bool deferred : {false, true}) {
      Runner runner(path, kContext, {.deferred = deferred, .bytes_more = 0});
      EXPECT_EQ(runner.run_part(tokens, first, last, hidden), behind);
      std::uint64_t tile_bytes = 0;
      for (std::uint32_t layer = first; layer < last; ++layer) {
        for (const TileInfo& tile : runner.reader().layer(layer).tiles) {
          if (tile.tensor != kOneRowTensors) tile_bytes += align_up(tile.stored_bytes, kTileAlign);
        }
      }
      const std::uint64_t ring_bytes = runner.pager().residency().ring_bytes;
      const std::uint64_t rows_before = runner.pager().stats().rows_read;
      const std::uint64_t before = runner.pager().stats().bytes_read;
      constexpr std::uint64_t kPasses = 4;
      for (std::uint64_t i = 0; i < kPasses; ++i) {
        EXPECT_EQ(runner.run_part(tokens, first, last, hidden), behind);
      }
      EXPECT_EQ(runner.pager().stats().rows_read, rows_before) << "of embeddings, which are cached";
      const std::uint64_t bytes = runner.pager().stats().bytes_read - before;
      EXPECT_LE(bytes, kPasses * tile_bytes + ring_bytes) << first << " to " << last;
      EXPECT_GE(bytes + ring_bytes, kPasses * tile_bytes) << first << " to " << last;
    }
    hidden = behind;
  }
  std::filesystem::remove(path);
}

bool asks_for(const std::vector<TensorRule>& rules, TensorKind kind) {
  return std::any_of(rules.begin(), rules.end(),
                     [kind](const TensorRule& rule) { return rule.kind == kind && rule.required; });
}

TEST(ArchitectureTest, EachAsksForItsOwnTensors) {
  using enum TensorKind;
  const struct {
    const char* name;
    std::vector<TensorKind> own;
  } cases[] = {
      {"gpt2", {}},
      {"llama", {}},
      {"mistral", {}},
      {"qwen2", {}},
      {"qwen3", {kQNorm, kKNorm}},
      {"phi2", {kHeadBias}},
      {"phi3", {}},
      {"opt", {}},
      {"bloom", {kEmbeddingNorm}},
      {"gemma", {}},
      {"gemma2", {kAttnPostNorm, kFfnPostNorm}},
      {"stablelm", {}},
  };
  for (const auto& c : cases) {
    ModelSpec spec = plain_spec();
    spec.architecture = c.name;
    ASSERT_TRUE(check_supported(spec).ok()) << c.name;
    std::vector<TensorKind> found;
    for (const TensorKind kind :
         {kQNorm, kKNorm, kHeadBias, kEmbeddingNorm, kAttnPostNorm, kFfnPostNorm}) {
      if (asks_for(embedding_rules(spec), kind) || asks_for(layer_rules(spec, 0), kind) ||
          asks_for(final_rules(spec), kind)) {
        found.push_back(kind);
      }
    }
    EXPECT_EQ(found, c.own) << c.name;
    EXPECT_TRUE(asks_for(layer_rules(spec, 0), kFfnNorm));
    spec.parallel_block = true;
    EXPECT_FALSE(asks_for(layer_rules(spec, 0), kFfnNorm));
  }
}

TEST(ArchitectureTest, RefusesWhatIsNotRun) {
  const struct {
    std::function<void(ModelSpec&)> change;
    const char* message;
  } cases[] = {
      {[](ModelSpec& s) { s.architecture = "mamba"; },
       "this version runs gpt2, llama, mistral, qwen2, qwen3, phi2, phi3, opt, bloom, gemma, "
       "gemma2, gemma3, "},
      {[](ModelSpec& s) { s.n_experts = 2; }, "architecture \"llama\" with 2 experts"},
      {[](ModelSpec& s) { s.architecture = "mixtral"; }, "architecture \"mixtral\" with 0 experts"},
      {[](ModelSpec& s) {
         set_experts(s);
         s.n_experts = s.n_experts_used = 1;
       },
       "one expert"},
      {[](ModelSpec& s) {
         set_experts(s);
         s.n_experts = 1025;
       },
       "1025 experts, 2 of them for a token: this version runs at most 1024 and 64"},
      {[](ModelSpec& s) {
         set_experts(s);
         s.n_experts = s.n_experts_used = 65;
       },
       "65 experts, 65 of them"},
      {[](ModelSpec& s) {
         s.architecture = "olmo2";
         s.parallel_block = true;
       },
       "parallel blocks and no norms"},
      {[](ModelSpec& s) {
         set_experts(s);
         s.expert_ffn = 1;
       },
       "experts of one row"},
      {[](ModelSpec& s) {
         s.ffn_layers = {1, 0};
       },
       "architecture \"llama\" with no FFN in layer 1"},
      {testing_support::set_two_parts_in_a_layer, "with an FFN in layer 0"},
      {[](ModelSpec& s) {
         s.architecture = "gemma2";
         s.residual_scale = 0.5F;
       },
       "scaled residuals and norms behind the sublayers"},
      {[](ModelSpec& s) { s.architecture = "gemma2", s.norms_stream = true; },
       "norms that give the residual stream"},
      {[](ModelSpec& s) {
         s.layer_mixers = {1, 0};
         s.conv_taps = 3;
       },
       "architecture \"llama\" with layers of mixer 1"},
      {[](ModelSpec& s) {
         s.architecture = "lfm2";
         s.layer_mixers = {2, 0};
       },
       "architecture \"lfm2\" with layers of mixer 2"},
      {testing_support::set_delta_rule_of_one_head, "a delta rule of one head"},
      {[](ModelSpec& s) {
         s.architecture = "lfm2";
         s.layer_mixers = {1, 0};
         s.conv_taps = 3;
         s.int8_rows = true;
       },
       "layers with a state in parallel blocks or of int8 rows"},
      {[](ModelSpec& s) { s.head_dim = 1025; }, "heads of 1025 columns"},
      {[](ModelSpec& s) { s.ffn = 1; }, "a weight matrix of one row"},
  };
  for (const auto& c : cases) {
    ModelSpec spec = plain_spec();
    c.change(spec);
    const Status status = check_supported(spec);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(status.message(), HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace qsf
