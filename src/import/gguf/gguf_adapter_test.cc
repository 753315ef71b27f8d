// SPDX-License-Identifier: MIT
//
// GGUF adapters: what is read against models whose matrices are the products of the same pairs,
// over every golden GGUF file; and what is refused, by name.

#include "import/gguf/gguf_adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/f16.h"
#include "base/rng.h"
#include "import/gguf/gguf_model.h"
#include "import/testing/gguf_writer.h"
#include "import/testing/hf_folder.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing_support::GgufWriter;
using testing_support::TemporaryFolder;

constexpr std::uint64_t kPatchedRank = 2;

// Whole numbers whose products every float type holds.
std::vector<float> small_numbers(std::uint64_t n, Rng& rng) {
  std::vector<float> numbers(n);
  for (float& number : numbers) number = static_cast<float>(rng.below(11)) - 5.0F;
  return numbers;
}

void start_adapter(GgufWriter& writer, const std::string& architecture) {
  writer.add_text("general.type", "adapter");
  writer.add_text("general.architecture", architecture);
  writer.add_text("adapter.type", "lora");
  writer.add_f32("adapter.lora.alpha", static_cast<float>(kPatchedRank));
}

// A model whose matrices are replaced by B A, and the adapter with these pairs.
class PatchedModel {
 public:
  explicit PatchedModel(const std::string& golden) {
    const auto base = GgufModel::open(golden).value();
    std::ifstream in(golden, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
    start_adapter(writer_, std::string(**base->file().keys().get_string("general.architecture")));
    for (const SourcePlace& place : tensors_of(*base)) {
      if (is_adaptable(place.source->kind) && !is_expert(place.source->kind)) {
        patch(*base->file().find(place.source->name)->tensor);
      }
    }
    folder_.write("model.gguf", bytes_);
    folder_.write("poet.gguf", writer_.finish());
    patched_ = GgufModel::open(folder_.file("model.gguf")).value();
  }

  const GgufModel& model() const { return *patched_; }
  std::size_t n_tensors() const { return done_.size(); }
  std::string adapter() const { return folder_.file("poet.gguf"); }

 private:
  void patch(const GgufTensor& tensor) {
    const std::string name(tensor.name);
    if (!done_.insert(name).second) return;
    const std::uint64_t n_in = tensor.dims[0];
    const std::uint64_t n_out = tensor.dims[1];
    const std::vector<float> a = small_numbers(kPatchedRank * n_in, rng_);
    const std::vector<float> b = small_numbers(n_out * kPatchedRank, rng_);
    writer_.add_f32_tensor(name + ".lora_a", {n_in, kPatchedRank}, a);
    writer_.add_f32_tensor(name + ".lora_b", {kPatchedRank, n_out}, b);
    const std::size_t n_bytes = tensor.type == 0 ? 4 : 2;
    for (std::uint64_t i = 0; i < n_in * n_out; ++i) {
      float sum = 0.0F;
      for (std::uint64_t r = 0; r < kPatchedRank; ++r) {
        sum += b[i / n_in * kPatchedRank + r] * a[r * n_in + i % n_in];
      }
      const std::uint16_t narrow = tensor.type == 1 ? to_f16(sum).bits : to_bf16(sum).bits;
      std::memcpy(bytes_.data() + tensor.file_offset + i * n_bytes,
                  tensor.type == 0 ? static_cast<const void*>(&sum) : &narrow, n_bytes);
    }
  }

  Rng rng_{21};
  std::string bytes_;
  GgufWriter writer_;
  TemporaryFolder folder_;
  std::set<std::string> done_;
  std::unique_ptr<GgufModel> patched_;
};

// Compares B A with the matrix of the model.
void expect_product(const GgufModel& model, const GgufAdapter& adapter, std::size_t index) {
  const AdapterPair& pair = adapter.spec().pairs[index];
  std::vector<float> a(pair.a_values());
  std::vector<float> b(pair.b_values());
  ASSERT_TRUE(adapter.read_pair(index, a, b).ok());
  EXPECT_EQ(pair.scale, 1.0F);
  const bool head = pair.kind == TensorKind::kHead;
  const SectionKind section = head ? SectionKind::kFinal : SectionKind::kLayer;
  const std::span<const SourceTensor> tensors = model.tensors(section, pair.layer);
  std::size_t t = 0;
  while (t < tensors.size() && tensors[t].kind != pair.kind) ++t;
  ASSERT_LT(t, tensors.size()) << adapter_pair_label(pair);
  ASSERT_EQ(tensors[t].rows, pair.out);
  ASSERT_EQ(tensors[t].cols, pair.in);
  std::vector<float> row(pair.in);
  for (std::uint32_t o = 0; o < pair.out; ++o) {
    ASSERT_TRUE(model.read_rows(section, pair.layer, t, o, row).ok());
    for (std::uint32_t c = 0; c < pair.in; ++c) {
      float sum = 0.0F;
      for (std::uint32_t r = 0; r < pair.rank; ++r) {
        sum += b[std::size_t{o} * pair.rank + r] * a[std::size_t{r} * pair.in + c];
      }
      ASSERT_EQ(sum, row[c]) << adapter_pair_label(pair) << ", row " << o << ", column " << c;
    }
  }
}

TEST(GgufAdapterTest, GivesTheMatricesOfItsProducts) {
  std::size_t n_models = 0;
  std::set<std::string> refused;
  for (const auto& entry : std::filesystem::directory_iterator(QSF_SOURCE_DIR "/testdata/gguf")) {
    if (entry.path().extension() != ".gguf") continue;
    SCOPED_TRACE(entry.path().filename().string());
    const PatchedModel patched(entry.path().string());
    const auto adapter = GgufAdapter::open(patched.adapter(), patched.model().spec());
    if (!adapter) {
      EXPECT_THAT(adapter.error().message(), HasSubstr("is not read for a"));
      refused.insert(patched.model().spec().architecture);
      continue;
    }
    ++n_models;
    EXPECT_GE(adapter->spec().pairs.size(), patched.n_tensors());
    EXPECT_EQ(adapter->spec().name, "poet");
    EXPECT_EQ(adapter->spec().architecture, patched.model().spec().architecture);
    for (std::size_t i = 0; i < adapter->spec().pairs.size(); ++i) {
      expect_product(patched.model(), *adapter, i);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(n_models, 45U);
  EXPECT_THAT(refused, testing::ElementsAre("deepseek2", "glm4"));
}

// An adapter of the queries of a tiny LLaMA, with one fault.
class GgufAdapterRefusalTest : public testing::Test {
 protected:
  struct Tensor {
    std::vector<std::uint64_t> dims;
    std::vector<float> values;
  };

  GgufAdapterRefusalTest()
      : base_(
            GgufModel::open(QSF_SOURCE_DIR "/testdata/gguf/llama_gqa_tied.gguf").value()->spec()) {
    start_adapter(keys_, "llama");
    add("blk.0.attn_q.weight", base_.hidden, base_.q_dim(), 2);
    add("blk.1.ffn_down.weight", base_.ffn, base_.hidden, 2);
  }

  void add(const std::string& name, std::uint64_t in, std::uint64_t out, std::uint64_t rank) {
    Rng rng(31);
    tensors_[name + ".lora_a"] = {{in, rank}, small_numbers(in * rank, rng)};
    tensors_[name + ".lora_b"] = {{rank, out}, small_numbers(rank * out, rng)};
  }
  Result<GgufAdapter> open() {
    GgufWriter writer = keys_;
    for (const auto& [name, tensor] : tensors_) {
      writer.add_f32_tensor(name, tensor.dims, tensor.values);
    }
    folder_.write("a.gguf", writer.finish());
    return GgufAdapter::open(folder_.file("a.gguf"), base_);
  }
  void expect_refused(StatusCode code, const char* message) {
    const auto adapter = open();
    ASSERT_FALSE(adapter.has_value()) << message;
    EXPECT_EQ(adapter.error().code(), code) << adapter.error().message();
    EXPECT_THAT(adapter.error().message(), HasSubstr(message));
    EXPECT_THAT(adapter.error().message(), HasSubstr("a.gguf"));
  }

  ModelSpec base_;
  GgufWriter keys_;
  std::map<std::string, Tensor> tensors_;
  TemporaryFolder folder_;
};

TEST_F(GgufAdapterRefusalTest, TheIntactFileIsRead) {
  const auto adapter = open();
  ASSERT_TRUE(adapter.has_value()) << adapter.error().message();
  ASSERT_EQ(adapter->spec().pairs.size(), 2U);
  EXPECT_EQ(adapter->spec().pairs[1].kind, TensorKind::kFfnDown);
  EXPECT_TRUE(is_gguf_adapter(GgufFile::open(folder_.file("a.gguf")).value()));
  EXPECT_FALSE(
      is_gguf_adapter(GgufFile::open(QSF_SOURCE_DIR "/testdata/gguf/llama_gqa_tied.gguf").value()));
  // Mistral models are LLaMAs in GGUF files.
  base_.architecture = "mistral";
  EXPECT_EQ(open().value().spec().architecture, "mistral");
}

TEST_F(GgufAdapterRefusalTest, TheScaleIsAlphaOverRank) {
  for (const auto& [alpha, scale] : {std::pair{3.0F, 1.5F}, {0.0F, 1.0F}, {-8.0F, -4.0F}}) {
    keys_ = {};
    keys_.add_text("general.type", "adapter");
    keys_.add_text("general.architecture", "llama");
    keys_.add_text("adapter.type", "lora");
    keys_.add_f32("adapter.lora.alpha", alpha);
    EXPECT_EQ(open().value().spec().pairs[0].scale, scale);
  }
}

TEST_F(GgufAdapterRefusalTest, KeysByName) {
  const std::tuple<const char*, const char*, StatusCode, const char*> cases[] = {
      {"general.type", "model", StatusCode::kUnsupported, "\"general.type\" is model"},
      {"general.type", nullptr, StatusCode::kUnsupported, "\"general.type\" is missing"},
      {"adapter.type", "control_vector", StatusCode::kUnsupported, "\"adapter.type\" is control"},
      {"general.architecture", "qwen2", StatusCode::kInvalidArgument,
       "architecture \"qwen2\" is not read for a llama"},
      {"general.architecture", nullptr, StatusCode::kCorrupt, "general.architecture"},
      {"adapter.lora.alpha", nullptr, StatusCode::kCorrupt, "adapter.lora.alpha"},
  };
  for (const auto& [key, value, code, message] : cases) {
    keys_ = {};
    for (const auto& [name, text] : {std::pair{"general.type", "adapter"},
                                     {"general.architecture", "llama"},
                                     {"adapter.type", "lora"}}) {
      const char* written = std::string_view(key) == name ? value : text;
      if (written != nullptr) keys_.add_text(name, written);
    }
    if (std::string_view(key) != "adapter.lora.alpha") keys_.add_f32("adapter.lora.alpha", 2.0F);
    expect_refused(code, message);
  }
  keys_ = {};
  start_adapter(keys_, "llama");
  keys_.add_u32s("adapter.alora.invocation_tokens", {1, 2});
  expect_refused(StatusCode::kUnsupported, "alora");
  keys_ = {};
  keys_.add_text("general.type", "adapter");
  keys_.add_text("general.architecture", "llama");
  keys_.add_text("adapter.type", "lora");
  keys_.add_f32("adapter.lora.alpha", std::numeric_limits<float>::quiet_NaN());
  expect_refused(StatusCode::kCorrupt, "adapter.lora.alpha");
}

TEST_F(GgufAdapterRefusalTest, TensorsByName) {
  const std::map<std::string, Tensor> intact = tensors_;
  const std::uint64_t h = base_.hidden;
  const std::tuple<std::function<void()>, StatusCode, const char*> cases[] = {
      {[&] { tensors_.erase("blk.0.attn_q.weight.lora_a"); }, StatusCode::kCorrupt,
       "has no .lora_a"},
      {[&] { tensors_.erase("blk.1.ffn_down.weight.lora_b"); }, StatusCode::kCorrupt,
       "has no .lora_b"},
      {[&] {
         tensors_["blk.0.attn_q.weight"] = {{4}, {1, 2, 3, 4}};
       },
       StatusCode::kUnsupported, "ends in .lora_a or .lora_b"},
      {[&] { add("token_embd.weight", h, base_.n_vocab, 2); }, StatusCode::kUnsupported,
       "\"token_embd.weight\": adapters of this tensor"},
      {[&] { add("blk.0.attn_norm.weight", h, 1, 2); }, StatusCode::kUnsupported, "attn_norm"},
      {[&] { add("blk.3.attn_q.weight", h, h, 2); }, StatusCode::kInvalidArgument,
       "layer 3, but the model has 3 layers"},
      {[&] { add("blk.0.attn_q.weight", h + 1, base_.q_dim(), 2); }, StatusCode::kInvalidArgument,
       "attn_q.weight.lora_a\": dimensions"},
      {[&] { add("blk.0.attn_q.weight", h, base_.q_dim() + 1, 2); }, StatusCode::kInvalidArgument,
       "attn_q.weight.lora_b\": dimensions"},
      {[&] { add("blk.0.attn_q.weight", h, base_.q_dim(), 4097); }, StatusCode::kCorrupt,
       "ranks 4097 and 4097"},
      {[&] {
         tensors_["blk.0.attn_q.weight.lora_b"].dims = {1, base_.q_dim() * 2};
       },
       StatusCode::kCorrupt, "ranks 2 and 1"},
  };
  for (const auto& [change, code, message] : cases) {
    tensors_ = intact;
    change();
    expect_refused(code, message);
  }
  tensors_.clear();
  expect_refused(StatusCode::kCorrupt, "0 matrices");
}

TEST_F(GgufAdapterRefusalTest, ValuesMustBeFinite) {
  tensors_["blk.0.attn_q.weight.lora_b"].values[3] = std::numeric_limits<float>::quiet_NaN();
  const auto adapter = open();
  ASSERT_TRUE(adapter.has_value());
  const AdapterPair& pair = adapter->spec().pairs[0];
  std::vector<float> a(pair.a_values());
  std::vector<float> b(pair.b_values());
  EXPECT_THAT(adapter->read_pair(0, a, b).message(), HasSubstr("element 3 is not a finite"));
}

TEST_F(GgufAdapterRefusalTest, EveryPrefixIsRefused) {
  ASSERT_TRUE(open().has_value());
  const std::string file = folder_.read("a.gguf");
  for (std::size_t n = 0; n + 32 < file.size(); n += 13) {
    folder_.write("a.gguf", file.substr(0, n));
    EXPECT_FALSE(GgufAdapter::open(folder_.file("a.gguf"), base_).has_value()) << n;
  }
}

}  // namespace
}  // namespace qsf
