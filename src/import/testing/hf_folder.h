// SPDX-License-Identifier: MIT
//
// Small Hugging Face folders, written by the tests that read them.

#ifndef QSF_IMPORT_TESTING_HF_FOLDER_H_
#define QSF_IMPORT_TESTING_HF_FOLDER_H_

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"

namespace qsf::testing_support {

// A directory that is removed with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "qsf-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(file(name), std::ios::binary) << content;
  }
  std::string read(const std::string& name) const {
    std::ifstream in(file(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // Names of the files in it, in order.
  std::vector<std::string> names() const {
    std::map<std::string, int> sorted;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      sorted[entry.path().filename().string()] = 0;
    }
    std::vector<std::string> list;
    for (const auto& [name, unused] : sorted) list.push_back(name);
    return list;
  }

 private:
  std::string path_;
};

struct TestTensor {
  std::vector<std::uint64_t> shape;
  std::vector<float> values;
};
using TestTensors = std::map<std::string, TestTensor>;

inline std::string little_endian_u64(std::uint64_t value) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &value, 8);
  return bytes;
}

// Returns a safetensors file with `header` as it is.
inline std::string safetensors_file(const std::string& header, const std::string& data) {
  return little_endian_u64(header.size()) + header + data;
}

// Returns a safetensors file of F32 tensors.
inline std::string safetensors_file(const TestTensors& tensors) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    std::string shape;
    for (const std::uint64_t n : tensor.shape) {
      shape += (shape.empty() ? "" : ",") + std::to_string(n);
    }
    const std::size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(tensor.values.data()), 4 * tensor.values.size());
    header += ",\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[" + shape + "],\"data_offsets\":[" +
              std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
  }
  return safetensors_file(header + "}", data);
}

inline TestTensor random_tensor(std::vector<std::uint64_t> shape, Rng& rng) {
  TestTensor tensor{std::move(shape), {}};
  std::uint64_t n = 1;
  for (const std::uint64_t dimension : tensor.shape) n *= dimension;
  for (std::uint64_t i = 0; i < n; ++i) tensor.values.push_back(0.1F * rng.next_normal());
  return tensor;
}

using TensorShapes = std::map<std::string, std::vector<std::uint64_t>>;

// Returns random tensors of these shapes, drawn in the order of their names.
inline TestTensors random_tensors(const TensorShapes& shapes, Rng& rng) {
  TestTensors tensors;
  for (const auto& [name, shape] : shapes) tensors[name] = random_tensor(shape, rng);
  return tensors;
}

// A llama of 2 layers, hidden 16, 4 heads of 4, 2 key-value heads, ffn 20, 33 tokens, tied head.
inline const char* kTinyLlamaConfig = R"({"architectures":["LlamaForCausalLM"],
  "hidden_size":16,"intermediate_size":20,"num_hidden_layers":2,"num_attention_heads":4,
  "num_key_value_heads":2,"vocab_size":33,"max_position_embeddings":64,"rms_norm_eps":1e-5,
  "hidden_act":"silu","tie_word_embeddings":true,"bos_token_id":1,"eos_token_id":2})";

inline TestTensors tiny_llama_tensors(std::uint64_t seed = 1) {
  Rng rng(seed);
  TestTensors t;
  t["model.embed_tokens.weight"] = random_tensor({33, 16}, rng);
  t["model.norm.weight"] = random_tensor({16}, rng);
  for (int layer = 0; layer < 2; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    t[at + "input_layernorm.weight"] = random_tensor({16}, rng);
    t[at + "post_attention_layernorm.weight"] = random_tensor({16}, rng);
    t[at + "self_attn.q_proj.weight"] = random_tensor({16, 16}, rng);
    t[at + "self_attn.k_proj.weight"] = random_tensor({8, 16}, rng);
    t[at + "self_attn.v_proj.weight"] = random_tensor({8, 16}, rng);
    t[at + "self_attn.o_proj.weight"] = random_tensor({16, 16}, rng);
    t[at + "mlp.gate_proj.weight"] = random_tensor({20, 16}, rng);
    t[at + "mlp.up_proj.weight"] = random_tensor({20, 16}, rng);
    t[at + "mlp.down_proj.weight"] = random_tensor({16, 20}, rng);
  }
  return t;
}

// A GPT-2 of 1 layer, hidden 12, 3 heads, ffn 40, 9 tokens, 8 positions.
inline const char* kTinyGpt2Config = R"({"architectures":["GPT2LMHeadModel"],"n_embd":12,
  "n_layer":1,"n_head":3,"n_inner":40,"n_positions":8,"vocab_size":9,"eos_token_id":8})";

inline TestTensors tiny_gpt2_tensors(const std::string& prefix) {
  Rng rng(2);
  TestTensors t;
  t[prefix + "wte.weight"] = random_tensor({9, 12}, rng);
  t[prefix + "wpe.weight"] = random_tensor({8, 12}, rng);
  t[prefix + "ln_f.weight"] = random_tensor({12}, rng);
  t[prefix + "ln_f.bias"] = random_tensor({12}, rng);
  const std::string at = prefix + "h.0.";
  t[at + "ln_1.weight"] = random_tensor({12}, rng);
  t[at + "ln_1.bias"] = random_tensor({12}, rng);
  t[at + "ln_2.weight"] = random_tensor({12}, rng);
  t[at + "ln_2.bias"] = random_tensor({12}, rng);
  t[at + "attn.c_attn.weight"] = random_tensor({12, 36}, rng);
  t[at + "attn.c_attn.bias"] = random_tensor({36}, rng);
  t[at + "attn.c_proj.weight"] = random_tensor({12, 12}, rng);
  t[at + "attn.c_proj.bias"] = random_tensor({12}, rng);
  t[at + "attn.bias"] = random_tensor({1, 1, 8, 8}, rng);
  t[at + "attn.masked_bias"] = random_tensor({}, rng);
  t[at + "mlp.c_fc.weight"] = random_tensor({12, 40}, rng);
  t[at + "mlp.c_fc.bias"] = random_tensor({40}, rng);
  t[at + "mlp.c_proj.weight"] = random_tensor({40, 12}, rng);
  t[at + "mlp.c_proj.bias"] = random_tensor({12}, rng);
  return t;
}

inline void write_model(const TemporaryFolder& folder, const std::string& config,
                        const TestTensors& tensors) {
  folder.write("config.json", config);
  folder.write("model.safetensors", safetensors_file(tensors));
}

}  // namespace qsf::testing_support

#endif  // QSF_IMPORT_TESTING_HF_FOLDER_H_
