// SPDX-License-Identifier: MIT
//
// Holds the whole column, from a Hugging Face folder to logits, to the logits of transformers.
//
// Every folder of testdata/golden is converted by qsf-convert and run through the public interface
// at prompt lengths 1 to the full context, with 20 decode steps after each, and continues a prompt
// by the tokens that transformers finds most likely. The checker is on trial
// too: with a field of the configuration changed or a tensor zeroed, the logits must be off by more
// than a hundred tolerances. docs/testing.md lists all bounds beside the largest errors seen.

#include <gtest/gtest.h>
#include <qsf/qsf.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/model/testing/golden_model.h"

namespace {

using namespace qsf_tools;
namespace fs = std::filesystem;
using nlohmann::json;

// f32 weights, keys and values: a product of n terms rounds n times by 2^-24 of a partial sum. With
// blocks of 64 columns these are below 128 roundings, 8e-6; ten products follow one another.
constexpr double kTolerance = 1e-4;
constexpr double kFaultFactor = 100;  // a fault moves logits by this many tolerances
const char* const kModels[] = {"gpt2",
                               "gpt2_untied",
                               "llama_mha",
                               "llama_gqa_tied",
                               "llama_biased",
                               "llama3",
                               "llama_linear",
                               "mistral",
                               "qwen2",
                               "gpt2_erf",
                               "gpt2_relu",
                               "qwen2_windows",
                               "smollm2",
                               "qwen25",
                               "phi2",
                               "phi2_gqa_tied",
                               "phi3",
                               "phi3_gqa",
                               "phi3_long",
                               "phi3_short",
                               "qwen3",
                               "qwen3_windows",
                               "opt",
                               "opt_unbiased",
                               "bloom",
                               "bloom_heads",
                               "gemma",
                               "gemma_biased",
                               "gemma2",
                               "gemma2_untied",
                               "stablelm",
                               "stablelm_gqa",
                               "stablelm_parallel",
                               "gemma3",
                               "gemma3_types",
                               "gemma3_vision",
                               "smollm3",
                               "smollm3_list",
                               "olmo2",
                               "olmo2_gqa",
                               "olmo3",
                               "granite",
                               "granite_tied",
                               "mixtral",
                               "qwen3_moe",
                               "qwen3_moe_stacked",
                               "olmoe",
                               "granitemoe",
                               "gpt_oss",
                               "gpt_oss_floats",
                               "ministral3",
                               "llama_yarn",
                               "qwen3_yarn",
                               "glm4",
                               "glm4_unbiased",
                               "exaone4",
                               "exaone4_full",
                               "cohere",
                               "cohere_biased",
                               "cohere_normed",
                               "granite4",
                               "llama_dynamic",
                               "mpt_clipped",
                               "olmoe_clipped",
                               "cohere2",
                               "gpt_neox",
                               "gpt_neox_sequential",
                               "starcoder2",
                               "falcon",
                               "falcon_groups",
                               "falcon_one_norm",
                               "falcon_alibi",
                               "mpt",
                               "mpt_heads",
                               "qwen2_moe",
                               "qwen2_moe_dense",
                               "qwen3_moe_dense",
                               "glm4_moe",
                               "glm4_moe_groups",
                               "granitemoeshared",
                               "phimoe",
                               "phimoe_long_scale",
                               "phimoe_short",
                               "deepseek_v2_lite",
                               "deepseek_v2",
                               "deepseek_v3",
                               "glm4_moe_lite",
                               "gemma3n",
                               "gemma3n_rows",
                               "gemma4",
                               "gemma4_a4b",
                               "gemma4_e",
                               "llama4",
                               "llama4_dense_layers",
                               "lfm2",
                               "lfm2_types",
                               "lfm2_moe",
                               "lfm2_moe_free",
                               "granite4h",
                               "granite4h_experts",
                               "nemotron_h",
                               "nemotron_h_moe",
                               "nemotron_h_mixed",
                               "falcon_h1",
                               "falcon_h1_normed",
                               "qwen3_5",
                               "qwen3_5_moe",
                               "qwen3_next"};

fs::path golden_folder() {
  return fs::path(QSF_SOURCE_DIR) / "testdata/golden";
}

void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

class GoldenLogitsTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    scratch_ = fs::temp_directory_path() /
               (std::string("qsf_golden_") + GetParam() + "_" + std::to_string(::getpid()));
    fs::create_directories(scratch_);
  }
  void TearDown() override { fs::remove_all(scratch_); }

  fs::path source() const { return golden_folder() / GetParam(); }

  // Converts `folder`; returns the .qsf path.
  fs::path convert(const fs::path& folder, const std::string& type, const std::string& more = "") {
    const fs::path out = scratch_ / ("model-" + type + ".qsf");
    const std::string command = std::string(QSF_BIN_DIR) + "/qsf-convert --quiet --quant-type " +
                                type + " " + more + " " + folder.string() + " " + out.string();
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return out;
  }

  // A copy of the model folder in which anything may be broken.
  fs::path copy_source() {
    const fs::path copy = scratch_ / "copy";
    fs::remove_all(copy);
    fs::copy(source(), copy);
    return copy;
  }

  fs::path scratch_;
};

TEST_P(GoldenLogitsTest, F32MatchesTransformersAtEveryLength) {
  const Golden golden(source() / "expected.bin");
  ASSERT_EQ(golden.cases.size(), 8U);
  const EnginePtr engine = open_engine(convert(source(), "f32"), QSF_KV_F32, 0, 2);
  ASSERT_NE(engine, nullptr);
  for (const Golden::Case& item : golden.cases) {
    const double error = largest_error(run_case(engine.get(), golden, item), item.rows);
    EXPECT_LE(error, kTolerance * golden.largest) << "prompt of " << item.prompt_length;
    RecordProperty("relative_error_" + std::to_string(item.prompt_length),
                   std::to_string(error / golden.largest));
  }
}

// Kept as stored, experts of MXFP4 are those that transformers decodes.
TEST_P(GoldenLogitsTest, WeightsOfMxfp4AreKeptWithoutLoss) {
  if (std::string(GetParam()) != "gpt_oss") return;
  const Golden golden(source() / "expected.bin");
  const EnginePtr engine = open_engine(convert(source(), "keep"), QSF_KV_F32, 0, 2, /*exact=*/true);
  ASSERT_NE(engine, nullptr);
  for (const Golden::Case& item : golden.cases) {
    const double error = largest_error(run_case(engine.get(), golden, item), item.rows);
    EXPECT_LE(error, kTolerance * golden.largest) << "prompt of " << item.prompt_length;
  }
}

// Heads of values are in another order in this file.
TEST_P(GoldenLogitsTest, GgufOfHeadsInTurnMatchesTransformers) {
  if (std::string(GetParam()) != "qwen3_5") return;
  const Golden golden(source() / "expected.bin");
  const fs::path gguf = golden_folder().parent_path() / "gguf/qwen3_5.gguf";
  const EnginePtr engine = open_engine(convert(gguf, "f32"), QSF_KV_F32, 0, 2, /*exact=*/true);
  ASSERT_NE(engine, nullptr);
  for (const Golden::Case& item : golden.cases) {
    const double error = largest_error(run_case(engine.get(), golden, item), item.rows);
    EXPECT_LE(error, kTolerance * golden.largest) << "prompt of " << item.prompt_length;
  }
}

// At temperature 0 the engine continues a prompt as transformers does. The right logit leads the
// next one by twenty tolerances or more at each of these tokens.
TEST_P(GoldenLogitsTest, TemperatureZeroGivesTheTokensOfTransformers) {
  const Golden golden(source() / "expected.bin");
  const json all = json::parse(read_file(golden_folder() / "greedy.json"));
  ASSERT_TRUE(all.contains(GetParam()));
  const json& expected = all[GetParam()];
  ASSERT_GE(expected["smallest_lead"].get<double>(), 20 * kTolerance);
  const std::vector<int> tokens = expected["tokens"].get<std::vector<int>>();
  ASSERT_EQ(tokens.size(), 20U);
  const EnginePtr engine = open_engine(convert(source(), "f32"), QSF_KV_F32, 0, 2);
  ASSERT_NE(engine, nullptr);
  const SessionPtr session = open_session(engine.get());
  std::vector<float> logits(golden.cases[0].rows[0].size());
  const int n_vocab = static_cast<int>(logits.size());
  const int* prompt = golden.tokens.data() + expected["first"].get<std::size_t>();
  qsf_error error = {};
  ASSERT_EQ(qsf_session_prefill(session.get(), prompt, 64, logits.data(), &error), QSF_OK)
      << error.message;
  std::vector<int> chosen = {qsf_sample(logits.data(), n_vocab, 0.0F, 1.0F)};
  while (chosen.size() < tokens.size()) {
    ASSERT_EQ(qsf_session_step(session.get(), chosen.back(), logits.data(), &error), QSF_OK)
        << error.message;
    chosen.push_back(qsf_sample(logits.data(), n_vocab, 0.0F, 1.0F));
  }
  EXPECT_EQ(chosen, tokens);
}

TEST_P(GoldenLogitsTest, OneTokenBeyondTheContextIsRefused) {
  const Golden golden(source() / "expected.bin");
  const EnginePtr engine = open_engine(convert(source(), "f32"), QSF_KV_F32, 0, 1);
  ASSERT_NE(engine, nullptr);
  const SessionPtr session = open_session(engine.get());
  std::vector<int> tokens = golden.tokens;
  tokens.push_back(0);
  qsf_error error = {};
  EXPECT_EQ(qsf_session_prefill(session.get(), tokens.data(), tokens.size(), nullptr, &error),
            QSF_OUT_OF_BUDGET);
  EXPECT_NE(std::string(error.message).find("544"), std::string::npos) << error.message;
  EXPECT_EQ(qsf_session_length(session.get()), 0U);
}

// One pass, passes of 7 rows, token by token, 1 and 2 threads: the same bits.
TEST_P(GoldenLogitsTest, BitsDoNotDependOnPassesOrThreads) {
  const Golden golden(source() / "expected.bin");
  const fs::path model = convert(source(), "4bit");
  const Golden::Case& item = golden.cases[5];
  ASSERT_EQ(item.prompt_length, 200U);
  const auto whole = run_case(open_engine(model, QSF_KV_F16, 0, 1).get(), golden, item);
  for (const int n_threads : {1, 2}) {
    for (const int rows_per_pass : {0, 7}) {
      const EnginePtr engine = open_engine(model, QSF_KV_F16, rows_per_pass, n_threads);
      EXPECT_EQ(run_case(engine.get(), golden, item), whole) << rows_per_pass << " rows a pass";
      EXPECT_EQ(run_case(engine.get(), golden, item, 1), whole) << "token by token";
      EXPECT_EQ(run_case(engine.get(), golden, item, 13), whole) << "13 tokens a call";
    }
  }
}

// The same for each quantised type of keys and values; f16 and f32 differ in the store alone.
TEST_P(GoldenLogitsTest, BitsOfQuantisedRowsDoNotDependOnPassesOrThreads) {
  const Golden golden(source() / "expected.bin");
  const fs::path model = convert(source(), "4bit");
  const Golden::Case& item = golden.cases[5];
  for (const qsf_kv_type kv : {QSF_KV_8BIT, QSF_KV_4BIT, QSF_KV_2BIT}) {
    const auto whole = run_case(open_engine(model, kv, 512, 1).get(), golden, item);
    const EnginePtr by_seven = open_engine(model, kv, 7, 2);
    EXPECT_EQ(run_case(by_seven.get(), golden, item), whole) << "7 rows a pass";
    EXPECT_EQ(run_case(by_seven.get(), golden, item, 13), whole) << "13 tokens a call";
    const EnginePtr by_one = open_engine(model, kv, 1, 1);
    EXPECT_EQ(run_case(by_one.get(), golden, item), whole) << "1 row a pass";
    const EnginePtr two_threads = open_engine(model, kv, 512, 2);
    EXPECT_EQ(run_case(two_threads.get(), golden, item), whole) << "2 threads";
  }
}

// Bounds of rounded values are about twice u * sqrt(s) * 3.5. u is the relative error in the mean
// square, s the number of places where it enters (7 weights and 2 cache rows a layer, embedding and
// head, 3 layers). 3.5 covers the softmax (scores have a standard deviation of 2.5) and the worst
// of 20,000 logits, about four deviations, against a largest logit of four.

// More layers have more places, and errors of early ones grow on the way.
//
// Rounding sends a row whose scores are nearly equal to another expert, and rows behind it may
// follow. So models with experts are held to the bound in nine rows of ten.
class RoundingErrors {
 public:
  explicit RoundingErrors(const fs::path& folder) {
    json config = json::parse(read_file(folder / "config.json"));
    if (config.contains("text_config")) config = config["text_config"];
    layers_ = std::max(1.0, config.value("num_hidden_layers", 2) / 3.0);
    has_experts_ = config.value("num_experts_per_tok", 0) > 0;
  }

  void add(const std::vector<std::vector<float>>& got,
           const std::vector<std::vector<float>>& expected) {
    for (std::size_t row = 0; row < expected.size(); ++row) {
      errors_.push_back(largest_error({got[row]}, {expected[row]}));
    }
  }
  // The largest error that counts, divided by what the number of layers allows.
  double error() {
    std::sort(errors_.begin(), errors_.end());
    return errors_[(errors_.size() - 1) * (has_experts_ ? 9 : 10) / 10] / layers_;
  }

 private:
  double layers_ = 1.0;
  bool has_experts_ = false;
  std::vector<double> errors_;
};

// Keys and values in few bits move the logits, but not far: the largest value is twice the RMS, so
// u = 2 / 127 / sqrt(12) or 4 / 15 / sqrt(12), and s = 6.
TEST_P(GoldenLogitsTest, QuantisedRowsStayInsideTheirBounds) {
  const Golden golden(source() / "expected.bin");
  const fs::path model = convert(source(), "f32");
  const struct {
    qsf_kv_type kv;
    double bound;
  } kTypes[] = {{QSF_KV_8BIT, 0.08}, {QSF_KV_4BIT, 1.3}};
  for (const auto& [kv, bound] : kTypes) {
    const EnginePtr engine = open_engine(model, kv, 0, 2);
    ASSERT_NE(engine, nullptr);
    RoundingErrors errors(source());
    for (const Golden::Case& item : golden.cases) {
      errors.add(run_case(engine.get(), golden, item), item.rows);
    }
    EXPECT_LE(errors.error(), bound * golden.largest) << kv;
    EXPECT_GT(errors.error(), 0.0);
    RecordProperty("kv_" + std::to_string(kv), std::to_string(errors.error() / golden.largest));
  }
}

// Narrower types move the logits, but not far.
// f16: u = 2^-11 / sqrt(3) = 2.8e-4, s = 29.
// 8bit: the scale is 2.4 / 127 of the weights' deviation, u = 0.019 / sqrt(12) = 5.5e-3, s = 23;
// int8 rows add 13 places.
TEST_P(GoldenLogitsTest, NarrowTypesStayInsideTheirBounds) {
  const Golden golden(source() / "expected.bin");
  const struct {
    const char* type;
    double bound;
  } kTypes[] = {{"f16", 0.01}, {"8bit", 0.25}};
  for (const auto& [type, bound] : kTypes) {
    const EnginePtr engine = open_engine(convert(source(), type), QSF_KV_F16, 0, 2);
    ASSERT_NE(engine, nullptr);
    RoundingErrors errors(source());
    for (const Golden::Case& item : golden.cases) {
      errors.add(run_case(engine.get(), golden, item), item.rows);
    }
    EXPECT_LE(errors.error(), bound * golden.largest) << type;
    RecordProperty(type, std::to_string(errors.error() / golden.largest));
  }
}

// A run that names a tier says so when the CPU made it another.
TEST(GoldenTierTest, RunsOnTheTierThatIsNamed) {
  const char* const named = std::getenv("QSF_ISA");
  const fs::path model = fs::path(QSF_SOURCE_DIR) / "models" / "tales-5M-4bit.qsf";
  const EnginePtr engine = open_engine(model, QSF_KV_F32, 0, 1);
  ASSERT_NE(engine, nullptr);
  qsf_engine_stats stats = {};
  stats.struct_size = sizeof(stats);
  ASSERT_EQ(qsf_engine_get_stats(engine.get(), &stats, nullptr), QSF_OK);
  if (named != nullptr && *named != '\0' && std::string(named) != stats.instruction_set) {
    GTEST_SKIP() << "the CPU lacks the tier " << named << ": ran on " << stats.instruction_set;
  }
  EXPECT_STRNE(stats.instruction_set, "");
}

// Runs the case of 65 tokens on a changed model and returns its error in tolerances.
double error_in_tolerances(const fs::path& model, const Golden& golden) {
  const EnginePtr engine = open_engine(model, QSF_KV_F32, 0, 2);
  if (engine == nullptr) return 0;
  const Golden::Case& item = golden.cases[4];
  EXPECT_EQ(item.prompt_length, 65U);
  return largest_error(run_case(engine.get(), golden, item), item.rows) /
         (kTolerance * golden.largest);
}

// Configurations that are wrong in one field, with what is wrong.
class ConfigFaults {
 public:
  explicit ConfigFaults(json whole)
      : whole_(std::move(whole)),
        config_(whole_.contains("text_config") ? whole_["text_config"] : whole_),
        family_(config_["model_type"]) {
    add_numbers();
    add_heads_and_order();
    add_rope();
    add_windows();
    add_layers();
    if (config_.value("activation_function", "") == "relu") add("activation_function", "gelu_new");
    for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
      if (has_number(key)) add(key, nullptr);
    }
  }
  const std::vector<std::pair<std::string, json>>& list() const { return list_; }

 private:
  bool has_number(const char* key) const {
    return config_.contains(key) && config_[key].is_number();
  }
  bool has_object(const char* key) const {
    return config_.contains(key) && config_[key].is_object();
  }
  void add(const std::string& key, const json& value) {
    json changed = whole_;
    (whole_.contains("text_config") ? changed["text_config"] : changed)[key] = value;
    list_.emplace_back(key + " = " + value.dump(), changed);
  }
  void add_factor(const char* key, double factor) { add(key, config_[key].get<double>() * factor); }
  // A key of an object: other values.
  void add_inside(const char* object, const json::json_pointer& key, const json& value) {
    json changed = config_[object];
    changed[key] = value;
    add(object, changed);
  }

  void add_numbers() {
    for (const char* key : {"rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_eps"}) {
      if (has_number(key) && !has_number("norm_epsilon")) add_factor(key, 0.5);
    }
    if (has_number("norm_epsilon")) add_factor("norm_epsilon", 0.5);
    for (const char* key : {"query_pre_attn_scalar", "attention_multiplier", "embedding_multiplier",
                            "residual_multiplier", "logits_scaling", "logit_scale",
                            "routed_scaling_factor", "attn_scale"}) {
      if (has_number(key)) add_factor(key, 2);
    }
    for (const char* key : {"attention_chunk_size", "floor_scale"}) {
      if (has_number(key)) add(key, 2 * config_[key].get<int>());
    }
    if (config_.value("num_experts_per_tok", 0) > 0 && family_ != "phimoe") {
      const int n_used = config_["num_experts_per_tok"].get<int>();
      add("num_experts_per_tok", n_used == 1 ? 2 : n_used - 1);
    }
    if (config_.value("enable_moe_block", false)) {
      add("top_k_experts", config_["top_k_experts"].get<int>() - 1);
    }
    if (config_.value("n_group", 1) > 1) add("topk_group", config_["topk_group"].get<int>() + 1);
    if (config_.contains("norm_topk_prob") && family_ != "deepseek_v2") {  // which does not read it
      add("norm_topk_prob", !config_["norm_topk_prob"].get<bool>());
    }
    const char* const sparsity = "activation_sparsity_pattern";
    if (config_.contains(sparsity) && config_[sparsity].is_array()) {
      add(sparsity, json(std::vector<double>(config_[sparsity].size(), 0.0)));
    }
    if (family_ == "llama4_text") {
      add("use_qk_norm", !config_["use_qk_norm"].get<bool>());
      add("attn_temperature_tuning", false);
    }
    if (has_number("clip_qkv")) add("clip_qkv", nullptr);
    if (has_number("router_jitter_noise")) add_factor("router_jitter_noise", 2);
    const char* const attention = "attn_config";
    if (has_object(attention) && config_[attention]["clip_qkv"].is_number()) {
      add_inside(attention, "/clip_qkv"_json_pointer, nullptr);
    }
    if (has_object(attention) && config_[attention]["softmax_scale"].is_number()) {
      add_inside(attention, "/softmax_scale"_json_pointer, nullptr);
    }
  }

  void add_heads_and_order() {
    // Without rotation, narrower heads fit the same tensors.
    for (const char* key : {"num_attention_heads", "n_heads"}) {
      if ((family_ == "opt" || family_ == "bloom" || family_ == "mpt") && has_number(key)) {
        add(key, 2 * config_[key].get<int>());
      }
    }
    if (config_.value("alibi", false)) add("alibi", false);
    if (family_ == "gpt_neox") {
      add("use_parallel_residual", !config_["use_parallel_residual"].get<bool>());
    }
  }

  // A base of RoPE that is wrong enough to be seen in 85 positions.
  static double wrong_theta(double theta) { return theta >= 1e6 ? 1e4 : 1.1 * theta; }

  void add_rope() {
    if (family_ == "granitemoehybrid" && config_["position_embedding_type"] != "rope") {
      add("position_embedding_type", "rope");
      return;
    }
    for (const char* key : {"rope_theta", "rope_local_base_freq"}) {
      if (has_number(key)) add(key, wrong_theta(config_[key]));
    }
    if (has_number("rotary_emb_base")) add_factor("rotary_emb_base", 2);  // of few columns
    for (const char* key : {"partial_rotary_factor", "rotary_pct"}) {
      if (has_number(key) && config_[key] < 1.0) add(key, 1.0);
    }
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      if (!has_object(key)) continue;
      const bool dynamic = config_[key].value("type", "") == "dynamic";
      if (key == std::string("rope_scaling") && !dynamic) add(key, nullptr);
      if (dynamic) add_inside(key, "/type"_json_pointer, "linear");
      add_rope_object(key, "");
      for (const char* kind : {"/full_attention", "/sliding_attention"}) {
        if (config_[key].contains(json::json_pointer(kind))) add_rope_object(key, kind);
      }
    }
    if (family_ == "phimoe") {
      for (const char* key : {"/short_mscale", "/long_mscale"}) {
        const bool used = (key[1] == 'l') == (config_["original_max_position_embeddings"] < 544);
        if (used) add_inside("rope_scaling", json::json_pointer(key), 1.0);
      }
    } else if (config_.contains("original_max_position_embeddings") && has_object("rope_scaling")) {
      const bool is_long = config_["original_max_position_embeddings"] < 544;
      add("original_max_position_embeddings", is_long ? 544 : 543);
    }
  }

  // The object of RoPE's parameters at `kind` of the value of `key`.
  void add_rope_object(const char* key, const std::string& kind) {
    const json rope = config_[key][json::json_pointer(kind)];
    const auto change = [&](const char* name, const json& value) {
      add_inside(key, json::json_pointer(kind + "/" + name), value);
    };
    if (rope.contains("rope_theta")) change("rope_theta", wrong_theta(rope["rope_theta"]));
    if (rope.contains("partial_rotary_factor")) change("partial_rotary_factor", 1.0);
    if (rope.contains("llama_4_scaling_beta")) change("llama_4_scaling_beta", nullptr);
    if (rope.contains("long_factor") && family_ != "phimoe") {
      json swapped = config_[key];
      std::swap(swapped["long_factor"], swapped["short_factor"]);
      add(key, swapped);
      change("attention_factor", 1.0);
    }
    if (rope.value("rope_type", rope.value("type", "")) != "yarn") return;
    change("truncate", !rope.value("truncate", true));
    change("factor", 2 * rope["factor"].get<double>());
    change("attention_factor", 0.8);
    change("original_max_position_embeddings", 544);
  }

  void add_windows() {
    const bool qwen = family_.starts_with("qwen");
    if (!has_number("sliding_window") || (qwen && !config_["use_sliding_window"])) return;
    add("sliding_window", config_["sliding_window"].get<int>() - 1);
    if (family_ == "exaone4" || family_ == "cohere2") {
      add("sliding_window", 4096);
    } else {
      add("sliding_window", nullptr);
    }
    if (!qwen) return;
    add("use_sliding_window", false);
    add("max_window_layers", 0);
    add("max_window_layers", 2);
  }

  void add_layers() {
    const int n_layers = config_.value("num_hidden_layers", 0);
    const bool typed = config_.contains("layer_types");
    if (family_ == "smollm3") {
      json exchanged;
      for (const json& turns : config_["no_rope_layers"]) exchanged.push_back(1 - turns.get<int>());
      add("no_rope_layers", exchanged);
      add("no_rope_layers", json(std::vector<int>(static_cast<std::size_t>(n_layers), 1)));
    }
    if (config_.contains("sliding_window_pattern") && !typed) add("sliding_window_pattern", 2);
    const bool alternates = family_ == "gemma2";
    if (!has_number("sliding_window") || (!alternates && !typed)) return;
    if (family_ == "gemma4_text") return;  // its types of layers have other shapes
    json exchanged;
    for (int layer = 0; layer < n_layers; ++layer) {
      const bool windowed =
          typed ? config_["layer_types"][static_cast<std::size_t>(layer)] == "sliding_attention"
                : layer % 2 == 0;
      exchanged.push_back(windowed ? "full_attention" : "sliding_attention");
    }
    add("layer_types", exchanged);
  }

  json whole_;
  json config_;  // of the language model
  std::string family_;
  std::vector<std::pair<std::string, json>> list_;
};

// Causal masks and frequencies stored as tensors are no parameters; a vision tower and a block that
// predicts further tokens are left out.
bool is_ignored(const std::string& name) {
  return name == "__metadata__" || name.ends_with("attn.bias") ||
         name.ends_with("attention.bias") || name.ends_with("masked_bias") ||
         name.ends_with("rotary_emb.inv_freq") || name.starts_with("vision_tower.") ||
         name.starts_with("multi_modal_projector.") || name.starts_with("model.visual.") ||
         name.starts_with("mtp.");
}
bool is_of_further_tokens(const std::string& name, const json& config) {
  if (config.value("num_nextn_predict_layers", 0) == 0) return false;
  const int n_layers = config["num_hidden_layers"];
  return name.starts_with("model.layers." + std::to_string(n_layers) + ".");
}

// Keys and values that a layer has without need of them, since it shares an earlier one's.
bool is_of_shared_keys(const std::string& name, const json& config) {
  const int n_layers = config.value("num_hidden_layers", 0);
  for (int layer = n_layers - config.value("num_kv_shared_layers", 0); layer < n_layers; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".self_attn.";
    if (name.starts_with(at + "k_") || name.starts_with(at + "v_")) return true;
  }
  return false;
}

TEST_P(GoldenLogitsTest, ChangedConfigurationIsCaught) {
  const Golden golden(source() / "expected.bin");
  const ConfigFaults faults(json::parse(read_file(source() / "config.json")));
  ASSERT_FALSE(faults.list().empty());
  for (const auto& [what, changed] : faults.list()) {
    const fs::path copy = copy_source();
    write_file(copy / "config.json", changed.dump());
    EXPECT_GT(error_in_tolerances(convert(copy, "f32"), golden), kFaultFactor) << what;
  }
}

TEST_P(GoldenLogitsTest, EveryZeroedTensorIsCaught) {
  const Golden golden(source() / "expected.bin");
  const json known = json::parse(read_file(golden_folder() / "faults.json"));
  const json& not_asserted = known[GetParam()]["not_asserted"];
  const json config = json::parse(read_file(source() / "config.json"));
  int n_tensors = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(source())) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string original = read_file(entry.path());
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, original.data(), 8);
    const json header = json::parse(original.substr(8, header_bytes));
    for (const auto& [name, tensor] : header.items()) {
      if (is_ignored(name) || is_of_further_tokens(name, config)) continue;
      if (is_of_shared_keys(name, config)) continue;
      if (not_asserted.contains("bias zeroed: " + name)) continue;
      std::string changed = original;
      const std::size_t begin = 8 + header_bytes + tensor["data_offsets"][0].get<std::size_t>();
      const std::size_t end = 8 + header_bytes + tensor["data_offsets"][1].get<std::size_t>();
      std::fill(changed.begin() + static_cast<std::ptrdiff_t>(begin),
                changed.begin() + static_cast<std::ptrdiff_t>(end), '\0');
      const fs::path copy = copy_source();
      write_file(copy / entry.path().filename(), changed);
      EXPECT_GT(error_in_tolerances(convert(copy, "f32"), golden), kFaultFactor) << name;
      ++n_tensors;
    }
  }
  EXPECT_GE(n_tensors, 14);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenLogitsTest, testing::ValuesIn(kModels),
                         [](const auto& model) { return std::string(model.param); });

TEST(LargestErrorTest, SeesEveryKindOfDifference) {
  const std::vector<std::vector<float>> zero = {{0.0F, 0.0F}};
  EXPECT_EQ(largest_error(zero, zero), 0);
  EXPECT_EQ(largest_error({{-1.0F, -2.0F}}, {{-1.0F, -5.0F}}), 3);
  EXPECT_EQ(largest_error({{0.0F, NAN}}, zero), HUGE_VAL);
  EXPECT_EQ(largest_error(zero, {{NAN, 0.0F}}), HUGE_VAL);
  EXPECT_EQ(largest_error({{HUGE_VALF, 0.0F}}, {{HUGE_VALF, 0.0F}}), HUGE_VAL);
}

}  // namespace
