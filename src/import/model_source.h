// SPDX-License-Identifier: MIT
//
// ModelSource: the interface through which a conversion reads a model, whatever its format.

#ifndef QSF_IMPORT_MODEL_SOURCE_H_
#define QSF_IMPORT_MODEL_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "format/model_spec.h"
#include "format/qsf_layout.h"
#include "quant/block_format.h"

namespace qsf {

// One tensor in the order and orientation of a .qsf file: `rows` outputs of `cols` inputs each.
struct SourceTensor {
  TensorKind kind = TensorKind::kAttnQ;
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  std::string name;          // in the input, for messages
  std::string type;          // of the weights in the input, "Q4_K" or "BF16"; empty: unknown
  std::uint16_t expert = 0;  // of the kinds that every expert has
};

class ModelSource {
 public:
  virtual ~ModelSource() = default;

  // Everything but natively_ternary, default_type and block, which a conversion sets. `quantiser`
  // names what the source has done to the weights, such as rotating them; empty: nothing.
  virtual const ModelSpec& spec() const noexcept = 0;

  // The tensors of a section in order of use. `layer` is 0 except for layers.
  virtual std::span<const SourceTensor> tensors(SectionKind section,
                                                std::uint32_t layer) const noexcept = 0;

  // Reads whole rows of tensors(section, layer)[tensor] as f32.
  // Shapes      out [n_rows, cols], rows from first_row on
  // Guarantees  every weight is finite
  // Fails       kCorrupt on a weight that is not finite, kIo; naming the tensor
  // Threads     any number at once
  virtual Status read_rows(SectionKind section, std::uint32_t layer, std::size_t tensor,
                           std::uint32_t first_row, std::span<float> out) const = 0;

  // Returns the format that holds the tensor exactly as the input does; nothing when there is
  // none. read_kept_rows() fails on single rows that the format cannot hold.
  // Requires  the tensor has more than one row
  virtual std::optional<BlockFormat> kept_format(SectionKind section, std::uint32_t layer,
                                                 std::size_t tensor) const noexcept {
    static_cast<void>(section);
    static_cast<void>(layer);
    static_cast<void>(tensor);
    return std::nullopt;
  }

  // Reads whole rows as bytes of kept_format(). They decode to the values of read_rows().
  // Shapes    out [n_rows, row_major_bytes(format, cols)], layout 0
  // Requires  kept_format() is a type with codes; rows of floats are read by read_rows()
  // Fails     kUnsupported when the format cannot hold a row exactly, with the reason; kIo
  // Threads   any number at once
  virtual Status read_kept_rows(SectionKind section, std::uint32_t layer, std::size_t tensor,
                                std::uint32_t first_row, std::uint32_t n_rows,
                                MutableByteSpan out) const {
    static_cast<void>(section);
    static_cast<void>(layer);
    static_cast<void>(tensor);
    static_cast<void>(first_row);
    static_cast<void>(n_rows);
    static_cast<void>(out);
    return unsupported("this source has no blocks to copy");
  }

  // Returns the most bytes that read_rows() allocates while it runs, beside its output.
  virtual std::uint64_t read_buffer_bytes() const noexcept { return 0; }

  // Returns the bytes that the source keeps in memory, beside its directories.
  virtual std::uint64_t resident_bytes() const noexcept { return 0; }

  // Drops the source's files from the page cache.
  // Threads  any
  virtual void drop_cached() const noexcept {}
};

// A section of a .qsf file.
struct SectionId {
  SectionKind kind = SectionKind::kEmbedding;
  std::uint32_t layer = 0;

  std::string label() const { return section_label(kind, layer); }
};

// A tensor of a source and its section.
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

#endif  // QSF_IMPORT_MODEL_SOURCE_H_
