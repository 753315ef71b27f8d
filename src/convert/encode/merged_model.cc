// SPDX-License-Identifier: MIT

#include "convert/encode/merged_model.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/crc32.h"
#include "base/ranges.h"

namespace qsf {
namespace {

// Extends a checksum by a pair: its matrix, scale and values.
std::uint32_t add_pair_to_crc(const AdapterPair& pair, double scale, std::span<const float> a,
                              std::span<const float> b, std::uint32_t crc) {
  std::byte place[32] = {};
  const MutableByteSpan bytes = place;
  store_le(bytes, 0, static_cast<std::uint32_t>(pair.kind));
  store_le(bytes, 4, pair.layer);
  store_le(bytes, 8, pair.expert);
  store_le(bytes, 12, pair.rank);
  store_le(bytes, 16, scale);
  crc = crc32(place, crc);
  crc = crc32(std::as_bytes(a), crc);
  return crc32(std::as_bytes(b), crc);
}

}  // namespace

MergedModel::MergedModel(std::unique_ptr<ModelSource> source)
    : source_(std::move(source)), spec_(source_->spec()) {}

Status MergedModel::add(AdapterSource adapter, float scale) {
  QSF_CHECK(std::isfinite(scale));
  const std::string where = "adapter \"" + adapter.spec.name + "\"";
  if (adapter.spec.architecture != spec_.architecture) {
    return invalid_argument("%s: made for a %s, but the model is a %s", where.c_str(),
                            adapter.spec.architecture.c_str(), spec_.architecture.c_str());
  }
  for (std::size_t i = 0; i < adapter.spec.pairs.size(); ++i) {
    const AdapterPair& pair = adapter.spec.pairs[i];
    auto place = find_place(pair);
    if (!place) return std::move(place).error().with_context(where);
    const double whole_scale = static_cast<double>(pair.scale) * static_cast<double>(scale);
    terms_[*place].push_back({whole_scale, adapters_.size(), i, pair, {}, {}});
  }
  // Quoted, so that a name never ends in a word that says what was done to the weights.
  spec_.quantiser += (spec_.quantiser.empty() ? "" : ", ") + std::string("merged with \"") +
                     adapter.spec.name + "\"";
  adapters_.push_back(std::move(adapter));
  return ok_status();
}

Status MergedModel::load() {
  for (auto& [place, terms] : terms_) {
    for (Term& term : terms) {
      const AdapterSource& adapter = adapters_[term.adapter];
      term.a.resize(term.shape.a_values());
      term.b.resize(term.shape.b_values());
      QSF_RETURN_IF_ERROR(adapter.values->read_pair(term.pair, term.a, term.b)
                              .with_context("adapter \"" + adapter.spec.name + "\""));
      crc_ = add_pair_to_crc(term.shape, term.scale, term.a, term.b, crc_);
    }
  }
  adapters_.clear();
  return ok_status();
}

std::uint64_t MergedModel::resident_bytes() const noexcept {
  std::uint64_t n_values = 0;
  for (const auto& [place, terms] : terms_) {
    for (const Term& term : terms) n_values += term.shape.a_values() + term.shape.b_values();
  }
  return sizeof(float) * n_values + source_->resident_bytes();
}

Result<MergedModel::Place> MergedModel::find_place(const AdapterPair& pair) {
  const bool head = pair.kind == TensorKind::kHead;
  const std::string label = adapter_pair_label(pair);
  if (head && spec_.embeds_only) {
    return invalid_argument("head: the model embeds texts and has no head");
  }
  if (!head && pair.layer >= spec_.n_layers) {
    return invalid_argument("%s: the model has %u layers", label.c_str(), spec_.n_layers);
  }
  if (head && spec_.tied_head) head_.add(*source_, spec_);
  const SectionKind section = head ? SectionKind::kFinal : SectionKind::kLayer;
  const std::span<const SourceTensor> all = tensors(section, pair.layer);
  const auto found = ranges::find_if(all, [&](const SourceTensor& tensor) {
    return tensor.kind == pair.kind && tensor.expert == pair.expert;
  });
  if (found == all.end()) {
    return invalid_argument("%s: the model has no such matrix", label.c_str());
  }
  if (found->rows != pair.out || found->cols != pair.in) {
    return invalid_argument("%s: for a matrix [%u, %u], but the model's is [%u, %u]", label.c_str(),
                            pair.out, pair.in, found->rows, found->cols);
  }
  return Place{section, pair.layer, static_cast<std::size_t>(found - all.begin())};
}

MergedModel::Place MergedModel::origin(const Place& place) const noexcept {
  const auto& [section, layer, tensor] = place;
  if (const auto embedding = head_.embedding_of(section, tensor)) {
    return {SectionKind::kEmbedding, 0, *embedding};
  }
  return place;
}

std::span<const SourceTensor> MergedModel::tensors(SectionKind section,
                                                   std::uint32_t layer) const noexcept {
  if (section == SectionKind::kFinal && head_.is_added()) return head_.final_tensors();
  return source_->tensors(section, layer);
}

Status MergedModel::add_terms(std::span<const Term> terms, std::uint32_t first_row,
                              std::size_t n_cols, std::span<float> out) const {
  std::vector<double> sums(n_cols);
  for (std::size_t at = 0; at < out.size(); at += n_cols) {
    const std::span<float> weights = out.subspan(at, n_cols);
    std::copy(weights.begin(), weights.end(), sums.begin());
    const std::size_t row = first_row + at / n_cols;
    for (const Term& term : terms) {
      const std::uint32_t rank = term.shape.rank;
      for (std::uint32_t r = 0; r < rank; ++r) {
        const double factor = term.scale * static_cast<double>(term.b[row * rank + r]);
        const float* const a = term.a.data() + r * n_cols;
        for (std::size_t c = 0; c < n_cols; ++c) sums[c] += factor * static_cast<double>(a[c]);
      }
    }
    for (std::size_t c = 0; c < n_cols; ++c) weights[c] = static_cast<float>(sums[c]);
  }
  if (ranges::all_of(out, [](float weight) { return std::isfinite(weight); })) {
    return ok_status();
  }
  return unsupported("the merged weights are not finite; give the adapter a smaller scale");
}

Status MergedModel::read_rows(SectionKind section, std::uint32_t layer, std::size_t tensor,
                              std::uint32_t first_row, std::span<float> out) const {
  const Place place = {section, layer, tensor};
  const auto& [from_section, from_layer, from_tensor] = origin(place);
  QSF_RETURN_IF_ERROR(source_->read_rows(from_section, from_layer, from_tensor, first_row, out));
  const auto found = terms_.find(place);
  if (found == terms_.end()) return ok_status();
  QSF_CHECK(adapters_.empty());  // load() has been called
  const SourceTensor& info = tensors(section, layer)[tensor];
  return add_terms(found->second, first_row, info.cols, out).with_context(info.name);
}

std::optional<BlockFormat> MergedModel::kept_format(SectionKind section, std::uint32_t layer,
                                                    std::size_t tensor) const noexcept {
  const Place place = {section, layer, tensor};
  if (terms_.contains(place)) return std::nullopt;
  const auto& [from_section, from_layer, from_tensor] = origin(place);
  return source_->kept_format(from_section, from_layer, from_tensor);
}

Status MergedModel::read_kept_rows(SectionKind section, std::uint32_t layer, std::size_t tensor,
                                   std::uint32_t first_row, std::uint32_t n_rows,
                                   MutableByteSpan out) const {
  const auto& [from_section, from_layer, from_tensor] = origin({section, layer, tensor});
  return source_->read_kept_rows(from_section, from_layer, from_tensor, first_row, n_rows, out);
}

std::uint64_t MergedModel::read_buffer_bytes() const noexcept {
  std::uint64_t most = 0;
  for (const auto& [place, terms] : terms_) {
    const auto& [section, layer, tensor] = place;
    most = std::max<std::uint64_t>(most, tensors(section, layer)[tensor].cols);
  }
  return sizeof(double) * most + source_->read_buffer_bytes();
}

}  // namespace qsf
