// SPDX-License-Identifier: MIT

#include "tools/bench/qsf_bench_cost.h"

#include <algorithm>
#include <map>

#include "quant/interleave.h"

namespace qsf_tools {
namespace {

std::uint64_t bytes_in_memory(const qsf::TensorInfo& tensor) {
  return qsf::rows_bytes(qsf::kernel_format(tensor.format), qsf::Layout::kInterleaved, tensor.rows,
                         tensor.cols);
}

std::string type_text(qsf::BlockFormat format) {
  std::string text(qsf::quant_type_name(format.type));
  if (!qsf::is_float_type(format.type)) text += "/" + std::to_string(format.block);
  return text;
}

}  // namespace

ModelCost::ModelCost(const qsf::QsfReader& reader, qsf::KvType k_type, qsf::KvType v_type,
                     std::uint64_t n_kept, const std::optional<qsf::SparsePrefillOptions>& h2o)
    : spec_(reader.spec()), k_type_(k_type), v_type_(v_type), n_kept_(n_kept), h2o_(h2o) {
  std::map<std::string, std::uint64_t> weights_by_type;
  std::uint64_t n_floats = 0;
  for (const qsf::SectionDirectory& section : reader.directories()) {
    for (const qsf::TensorInfo& tensor : section.tensors) {
      const bool head = tensor.kind == qsf::TensorKind::kHead ||
                        (spec_.tied_head && tensor.kind == qsf::TensorKind::kTokenEmbedding);
      const bool layer = section.kind == qsf::SectionKind::kLayer;
      if (tensor.rows == 1 || (!head && !layer)) continue;
      const std::uint64_t n_weights = std::uint64_t{tensor.rows} * tensor.cols;
      (head ? head_weights_ : layer_weights_) += n_weights;
      weight_bytes_ += bytes_in_memory(tensor);
      if (head) head_type_ = type_text(tensor.format);
      if (layer) weights_by_type[type_text(tensor.format)] += n_weights;
      if (qsf::is_float_type(tensor.format.type)) n_floats += n_weights;
    }
  }
  const auto most =
      std::max_element(weights_by_type.begin(), weights_by_type.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != weights_by_type.end()) layer_type_ = most->first;
  float_weights_ = 2 * n_floats > layer_weights_ + head_weights_;
}

std::uint64_t ModelCost::visible(std::uint64_t position, bool generated) const noexcept {
  if (h2o_ && !generated && position >= h2o_->chunk) {
    const std::uint64_t seen = position % h2o_->chunk + 1 + qsf::memory_set_size(*h2o_);
    return spec_.n_layers * seen;
  }
  const std::uint64_t kept = n_kept_ == 0 ? position + 1 : std::min(n_kept_, position + 1);
  std::uint64_t sum = 0;
  for (std::uint32_t layer = 0; layer < spec_.n_layers; ++layer) {
    const std::uint64_t window = spec_.window_of(layer);
    sum += window == 0 ? kept : std::min(window, kept);
  }
  return sum;
}

std::uint64_t ModelCost::kv_bytes(std::uint64_t position) const noexcept {
  const std::uint64_t of_page =
      qsf::kv_block_bytes(k_type_, spec_.head_dim) + qsf::kv_block_bytes(v_type_, spec_.head_dim);
  return visible(position, true) * spec_.n_kv_heads * of_page / qsf::kKvPageSlots;
}

std::uint64_t ModelCost::operations(std::uint64_t position, bool with_logits,
                                    bool generated) const noexcept {
  const std::uint64_t products = layer_weights_ + (with_logits ? head_weights_ : 0);
  return 2 * products + 4 * visible(position, generated) * spec_.q_dim();
}

}  // namespace qsf_tools
