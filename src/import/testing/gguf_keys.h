// SPDX-License-Identifier: MIT
//
// Keys of a GGUF file for tests of what is read of them.

#ifndef QSF_IMPORT_TESTING_GGUF_KEYS_H_
#define QSF_IMPORT_TESTING_GGUF_KEYS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "import/gguf/gguf_arch.h"
#include "import/gguf/gguf_families.h"
#include "import/testing/gguf_writer.h"
#include "io/testing/faulty_file.h"

namespace qsf::testing_support {

// The keys of a model, and no weights.
struct GgufKeys {
  explicit GgufKeys(std::string name) : architecture(std::move(name)) {}

  std::string architecture;
  std::map<std::string, std::uint32_t> numbers;
  std::map<std::string, float> floats;
  std::map<std::string, std::string> texts;
  std::map<std::string, bool> booleans;
  std::map<std::string, std::vector<bool>> lists;
  std::map<std::string, std::vector<std::uint32_t>> arrays;  // in place of numbers of that name
  std::map<std::string, std::vector<float>> float_arrays;
  std::vector<std::string> tensors;
  std::map<std::string, std::vector<float>> vectors;
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> matrices;  // of zeros

  std::string write() const {
    GgufWriter writer;
    const std::string prefix = architecture + ".";
    writer.add_text("general.architecture", architecture);
    std::map<std::string, std::uint32_t> all = {
        {"embedding_length", 48},     {"block_count", 7},
        {"attention.head_count", 4},  {"attention.head_count_kv", 2},
        {"context_length", 64},       {"feed_forward_length", 80},
        {"attention.key_length", 16}, {"attention.value_length", 16}};
    for (const auto& [name, value] : numbers) all[name] = value;
    for (const auto& [name, value] : arrays) {
      all.erase(name);
      writer.add_u32s(prefix + name, value);
    }
    for (const auto& [name, value] : all) writer.add_u32(prefix + name, value);
    for (const char* name : {"attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"}) {
      writer.add_f32(prefix + name, 1e-5F);
    }
    for (const auto& [name, value] : floats) writer.add_f32(prefix + name, value);
    for (const auto& [name, value] : texts) writer.add_text(prefix + name, value);
    for (const auto& [name, value] : booleans) writer.add_bool(prefix + name, value);
    for (const auto& [name, values] : lists) writer.add_bools(prefix + name, values);
    for (const auto& [name, values] : float_arrays) writer.add_floats(prefix + name, values);
    writer.add_f32_tensor("token_embd.weight", {2, 3}, std::vector<float>(6, 1.0F));
    for (const std::string& name : tensors) writer.add_f32_tensor(name, {1}, {1.0F});
    for (const auto& [name, values] : vectors) {
      writer.add_f32_tensor(name, {values.size()}, values);
    }
    for (const auto& [name, dims] : matrices) {
      writer.add_f32_tensor(name, {dims.first, dims.second},
                            std::vector<float>(dims.first * dims.second));
    }
    return writer.finish();
  }
};

inline Result<ModelSpec> spec_of(const GgufKeys& keys) {
  const std::string bytes = keys.write();
  MemoryFileOps ops(as_bytes(bytes));
  QSF_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open("m.gguf", ops));
  QSF_ASSIGN_OR_RETURN(const GgufArchitecture* architecture, find_gguf_architecture(file));
  QSF_ASSIGN_OR_RETURN(ModelSpec spec, gguf_model_spec(file, *architecture));
  QSF_RETURN_IF_ERROR(validate(spec));
  return spec;
}

inline ModelSpec valid_spec(const GgufKeys& keys) {
  auto spec = spec_of(keys);
  EXPECT_TRUE(spec) << keys.architecture << ": " << spec.error().message();
  return spec ? *spec : ModelSpec();
}

inline void expect_refused(const GgufKeys& keys, StatusCode code, const char* part) {
  const auto spec = spec_of(keys);
  ASSERT_FALSE(spec) << keys.architecture << ", " << part;
  EXPECT_EQ(spec.error().code(), code) << spec.error().message();
  EXPECT_THAT(std::string(spec.error().message()), testing::HasSubstr(part));
}

}  // namespace qsf::testing_support

#endif  // QSF_IMPORT_TESTING_GGUF_KEYS_H_
