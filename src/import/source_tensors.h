// SPDX-License-Identifier: MIT
//
// Where each tensor of a source stands, in the order of a .qsf file.

#ifndef QSF_IMPORT_SOURCE_TENSORS_H_
#define QSF_IMPORT_SOURCE_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "format/qsf_layout.h"
#include "import/model_source.h"

namespace qsf {

struct SectionId {
  SectionKind kind = SectionKind::kEmbedding;
  std::uint32_t layer = 0;

  std::string label() const { return section_label(kind, layer); }
};

struct SourcePlace {
  SectionId section;
  std::size_t index = 0;
  const SourceTensor* source = nullptr;

  std::uint64_t n_weights() const noexcept { return std::uint64_t{source->rows} * source->cols; }
  std::string full_name() const { return section.label() + ", " + source->name; }
};

inline std::vector<SectionId> sections_of(const ModelSpec& spec) {
  std::vector<SectionId> sections = {{SectionKind::kEmbedding, 0}};
  for (std::uint32_t i = 0; i < spec.n_layers; ++i) sections.push_back({SectionKind::kLayer, i});
  sections.push_back({SectionKind::kFinal, 0});
  return sections;
}

inline SourcePlace place_of(const ModelSource& source, SectionId id, std::size_t index) noexcept {
  return {id, index, &source.tensors(id.kind, id.layer)[index]};
}

// Returns every tensor, in order.
inline std::vector<SourcePlace> tensors_of(const ModelSource& source) {
  std::vector<SourcePlace> places;
  for (const SectionId id : sections_of(source.spec())) {
    const std::size_t n = source.tensors(id.kind, id.layer).size();
    for (std::size_t i = 0; i < n; ++i) places.push_back(place_of(source, id, i));
  }
  return places;
}

inline bool is_vocabulary(TensorKind kind) noexcept {
  return kind == TensorKind::kTokenEmbedding || kind == TensorKind::kHead;
}

}  // namespace qsf

#endif  // QSF_IMPORT_SOURCE_TENSORS_H_
