// SPDX-License-Identifier: MIT
//
// The dense matrices behind the pooling, which are files of their own: part of HfModel.

#include <string>
#include <utility>

#include "format/tensor_rules.h"
#include "import/hf/hf_model.h"

namespace qsf {

Status HfModel::map_dense(FileOps& ops) {
  constexpr TensorKind kKinds[] = {TensorKind::kDenseUp, TensorKind::kDenseDown};
  constexpr char kName[] = "linear.weight";
  Section& section = sections_.front();
  for (std::size_t i = 0; i < config_.dense_folders.size(); ++i) {
    const std::string folder = folder_ + "/" + config_.dense_folders[i];
    QSF_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> weights, open_checkpoint(folder, ops));
    const TensorShape shape = tensor_shape(spec(), 0, kKinds[i]);
    const StoredTensor* const stored = weights->find(kName);
    if (stored == nullptr || weights->tensors().size() != 1) {
      return corrupt("%s: expected the tensor \"%s\" alone", folder.c_str(), kName);
    }
    if (stored->shape != std::vector<std::uint64_t>{shape.rows, shape.cols} ||
        !is_weight_type(stored->type)) {
      return corrupt("%s: tensor \"%s\": expected %u x %u weights in F32, F16 or BF16",
                     folder.c_str(), kName, shape.rows, shape.cols);
    }
    section.tensors.push_back({kKinds[i], shape.rows, shape.cols,
                               config_.dense_folders[i] + "/" + kName,
                               std::string(stored_type_name(stored->type)), 0});
    section.places.push_back({.stored = stored, .from = weights.get(), .n_stored = shape.rows});
    dense_.push_back(std::move(weights));
  }
  return ok_status();
}

}  // namespace qsf
