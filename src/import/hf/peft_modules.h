// SPDX-License-Identifier: MIT
//
// Modules of a PEFT adapter: names of its tensors taken apart, and the matrices of ours that a
// module holds. A fused projection holds several.

#ifndef QSF_IMPORT_HF_PEFT_MODULES_H_
#define QSF_IMPORT_HF_PEFT_MODULES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "format/model_spec.h"
#include "format/qsf_layout.h"
#include "import/adapter_rows.h"

namespace qsf {

// A tensor such as "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": its module is
// "model.layers.0.self_attn.q_proj". Some files have the adapter's name behind "lora_A".
struct PeftTensorName {
  std::string_view module;
  bool is_a = false;
};

// Fails  kUnsupported, saying what it is of, on a tensor that is no half of a pair: of DoRA, of
//        embeddings, biases, modules that were trained whole
Result<PeftTensorName> parse_peft_tensor_name(std::string_view name);

// A matrix of ours that is in a module's.
struct AdapterTarget {
  TensorKind kind = TensorKind::kAttnQ;
  std::uint32_t layer = 0;
  std::uint32_t expert = 0;
  std::uint32_t rows = 0;  // of ours
  std::uint32_t cols = 0;
  OutputRows outputs;
};

// Returns the matrices that a module of a model holds; none where the model does not use it: keys
// and values of layers that attend to those of an earlier one.
// Requires  validate(base) is OK
// Fails     kInvalidArgument on a layer or expert that the model does not have; kUnsupported,
// naming
//           it, on a module whose products adapters do not change or whose rows are not split, and
//           on an architecture without a list of modules
Result<std::vector<AdapterTarget>> find_peft_targets(const ModelSpec& base,
                                                     std::string_view module);

}  // namespace qsf

#endif  // QSF_IMPORT_HF_PEFT_MODULES_H_
