// SPDX-License-Identifier: MIT
//
// A head of its own for a model whose head is its embedding, where a change of weights is of one of
// the two alone.

#ifndef QSF_CONVERT_ENCODE_UNTIED_HEAD_H_
#define QSF_CONVERT_ENCODE_UNTIED_HEAD_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/ranges.h"
#include "format/model_spec.h"
#include "import/model_source.h"

namespace qsf {

class UntiedHead {
 public:
  // Adds a head with the rows of the embedding. Requires  spec.tied_head; it is false afterwards
  void add(const ModelSource& source, ModelSpec& spec) {
    const std::span<const SourceTensor> embedding = source.tensors(SectionKind::kEmbedding, 0);
    const auto found = ranges::find(embedding, TensorKind::kTokenEmbedding, &SourceTensor::kind);
    QSF_CHECK(spec.tied_head && found != embedding.end());
    embedding_ = static_cast<std::size_t>(found - embedding.begin());
    const std::span<const SourceTensor> final = source.tensors(SectionKind::kFinal, 0);
    final_.assign(final.begin(), final.end());
    final_.push_back(*found);
    final_.back().kind = TensorKind::kHead;
    spec.tied_head = false;
  }

  bool is_added() const noexcept { return !final_.empty(); }
  // The tensors of the final section, the head last. Requires  is_added()
  std::span<const SourceTensor> final_tensors() const noexcept { return final_; }
  // Returns which tensor of the embedding a tensor is read from; nothing for all but that head.
  std::optional<std::size_t> embedding_of(SectionKind section, std::size_t tensor) const noexcept {
    const bool head = section == SectionKind::kFinal && tensor + 1 == final_.size();
    return head ? std::optional(embedding_) : std::nullopt;
  }
  // 0 where none was added.
  std::uint64_t n_weights() const noexcept {
    return is_added() ? std::uint64_t{final_.back().rows} * final_.back().cols : 0;
  }

 private:
  std::vector<SourceTensor> final_;
  std::size_t embedding_ = 0;
};

}  // namespace qsf

#endif  // QSF_CONVERT_ENCODE_UNTIED_HEAD_H_
