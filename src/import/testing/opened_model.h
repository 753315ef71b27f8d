// SPDX-License-Identifier: MIT
//
// For tests of what Hugging Face folders hold: why a folder is refused, and the values of tensors
// as a model source gives them.

#ifndef QSF_IMPORT_TESTING_OPENED_MODEL_H_
#define QSF_IMPORT_TESTING_OPENED_MODEL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "import/hf/hf_model.h"
#include "import/testing/hf_folder.h"

namespace qsf::testing_support {

// Returns why a folder of this config.json and these tensors is refused; empty when it is not.
inline std::string opening_error(const std::string& config, const TestTensors& tensors) {
  const TemporaryFolder folder;
  write_model(folder, config, tensors);
  const auto model = HfModel::open(folder.path());
  return model ? std::string() : std::string(model.error().message());
}

// Returns what a norm is when its weights are stored less one.
inline std::vector<float> plus_one(std::vector<float> values) {
  for (float& value : values) value += 1.0F;
  return values;
}

// Returns all values of the first tensor of a kind; nothing, with a failure, when there is none.
inline std::vector<float> tensor_values(const ModelSource& model, SectionKind section,
                                        std::uint32_t layer, TensorKind kind) {
  const auto list = model.tensors(section, layer);
  const auto found = std::ranges::find(list, kind, &SourceTensor::kind);
  EXPECT_NE(found, list.end()) << tensor_kind_name(kind);
  if (found == list.end()) return {};
  std::vector<float> values(std::size_t{found->rows} * found->cols);
  const auto index = static_cast<std::size_t>(found - list.begin());
  EXPECT_TRUE(model.read_rows(section, layer, index, 0, values).ok());
  return values;
}
inline std::vector<float> tensor_values(const ModelSource& model, std::uint32_t layer,
                                        TensorKind kind) {
  return tensor_values(model, SectionKind::kLayer, layer, kind);
}

}  // namespace qsf::testing_support

#endif  // QSF_IMPORT_TESTING_OPENED_MODEL_H_
