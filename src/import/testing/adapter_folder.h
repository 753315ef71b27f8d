// SPDX-License-Identifier: MIT
//
// PEFT folders for tests: random pairs for modules, and the weights that a merge would give.

#ifndef QSF_IMPORT_TESTING_ADAPTER_FOLDER_H_
#define QSF_IMPORT_TESTING_ADAPTER_FOLDER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/rng.h"
#include "import/testing/hf_folder.h"

namespace qsf::testing_support {

inline const char* kTinyPeftConfig = R"({"peft_type":"LORA","r":3,"lora_alpha":6,"bias":"none",
  "target_modules":["q_proj"],"task_type":"CAUSAL_LM","init_lora_weights":true,
  "lora_dropout":0.05,"fan_in_fan_out":false,"modules_to_save":null,"use_dora":false,
  "use_rslora":false,"rank_pattern":{},"alpha_pattern":{},"loftq_config":{}})";

// Adds A [rank, in] and B [out, rank] of a module to the tensors of an adapter.
inline void add_lora_pair(const std::string& module, std::uint64_t in, std::uint64_t out,
                          std::uint64_t rank, Rng& rng, TestTensors& tensors) {
  tensors["base_model.model." + module + ".lora_A.weight"] = random_tensor({rank, in}, rng);
  tensors["base_model.model." + module + ".lora_B.weight"] = random_tensor({out, rank}, rng);
}

inline void write_adapter(const TemporaryFolder& folder, const std::string& config,
                          const TestTensors& tensors) {
  folder.write("adapter_config.json", config);
  folder.write("adapter_model.safetensors", safetensors_file(tensors));
}

// Adds scale * B A to a weight, which is [out, in], or [in, out] when it is transposed.
inline void merge_pair(const TestTensor& a, const TestTensor& b, float scale, bool transposed,
                       TestTensor& weight) {
  const std::uint64_t n_in = a.shape[1];
  const std::uint64_t n_out = b.shape[0];
  const std::uint64_t rank = a.shape[0];
  for (std::uint64_t o = 0; o < n_out; ++o) {
    for (std::uint64_t i = 0; i < n_in; ++i) {
      float sum = 0.0F;
      for (std::uint64_t r = 0; r < rank; ++r) {
        sum += b.values[o * rank + r] * a.values[r * n_in + i];
      }
      weight.values[transposed ? i * n_out + o : o * n_in + i] += scale * sum;
    }
  }
}

}  // namespace qsf::testing_support

#endif  // QSF_IMPORT_TESTING_ADAPTER_FOLDER_H_
