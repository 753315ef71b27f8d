// SPDX-License-Identifier: MIT

#include "convert/tune/tune_weights.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "convert/encode/encode_rows.h"

namespace qsf {
namespace {

SourcePlace find_place(const ModelSource& source, SectionId section, TensorKind kind) {
  const auto tensors = source.tensors(section.kind, section.layer);
  const auto at = std::find_if(tensors.begin(), tensors.end(),
                               [&](const SourceTensor& t) { return t.kind == kind; });
  QSF_CHECK(at != tensors.end());
  return place_of(source, section, static_cast<std::size_t>(at - tensors.begin()));
}

SourcePlace head_place(const ModelSource& source) {
  if (source.spec().tied_head) {
    return find_place(source, {SectionKind::kEmbedding, 0}, TensorKind::kTokenEmbedding);
  }
  return find_place(source, {SectionKind::kFinal, 0}, TensorKind::kHead);
}

}  // namespace

Status OriginalWeights::read(const SourcePlace& place, std::uint32_t first_row,
                             std::span<float> to) const {
  const std::size_t n_cols = place.source->cols;
  const std::size_t n_rows = to.size() / n_cols;
  return run_units(ceil_div(n_rows, std::size_t{kUnitRows}), n_threads_, [&](std::size_t unit) {
    const std::size_t row = unit * kUnitRows;
    return source_.read_rows(
        place.section.kind, place.section.layer, place.index,
        first_row + static_cast<std::uint32_t>(row),
        to.subspan(row * n_cols, std::min<std::size_t>(kUnitRows, n_rows - row) * n_cols));
  });
}

Status OriginalWeights::load_layer(std::uint32_t layer, LayerValues& to) {
  to = {};
  const auto tensors = source_.tensors(SectionKind::kLayer, layer);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::vector<float>& part = to[*layer_part(tensors[i].kind)];
    part.resize(std::size_t{tensors[i].rows} * tensors[i].cols);
    QSF_RETURN_IF_ERROR(read(place_of(source_, {SectionKind::kLayer, layer}, i), 0, part));
  }
  return ok_status();
}

Status OriginalWeights::load_final_norm(std::vector<float>& to) {
  to.resize(source_.spec().hidden);
  return read(find_place(source_, {SectionKind::kFinal, 0}, TensorKind::kFinalNorm), 0, to);
}

Status OriginalWeights::embed(std::span<const TokenId> tokens, std::span<float> to) {
  const SourcePlace place =
      find_place(source_, {SectionKind::kEmbedding, 0}, TensorKind::kTokenEmbedding);
  const std::size_t n_cols = place.source->cols;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    QSF_RETURN_IF_ERROR(read(place, tokens[i], to.subspan(i * n_cols, n_cols)));
  }
  return ok_status();
}

Status OriginalWeights::load_head(std::uint32_t first_row, std::span<float> to) {
  return read(head_place(source_), first_row, to);
}

}  // namespace qsf
