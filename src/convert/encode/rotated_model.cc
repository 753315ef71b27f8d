// SPDX-License-Identifier: MIT

#include "convert/encode/rotated_model.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/ranges.h"
#include "base/rng.h"

namespace qsf {

namespace {

constexpr std::size_t kPanelColumns = 64;  // with a block of 256 rows 64 KiB, for the cache

void scale(std::span<float> x, float factor) noexcept {
  for (float& value : x) value *= factor;
}

}  // namespace

HadamardRotation::HadamardRotation(std::uint32_t n, std::uint32_t most, std::uint64_t seed) {
  while (2 * block_ <= most && n % (2 * block_) == 0) block_ *= 2;
  Rng rng(seed);
  const auto sign = [&] { return rng.below(2) == 0 ? 1.0F : -1.0F; };
  const float root = std::sqrt(1.0F / static_cast<float>(block_));
  before_.resize(n);
  after_.resize(n);
  for (std::uint32_t i = 0; i < n; ++i) {
    before_[i] = sign();
    after_[i] = sign() * root;
  }
}

void HadamardRotation::rotate(std::span<float> x) const noexcept {
  const std::size_t n = before_.size();
  QSF_DCHECK(x.size() % n == 0);
  for (std::size_t at = 0; at < x.size(); at += n) {
    const std::span<float> vector = x.subspan(at, n);
    for (std::size_t i = 0; i < n; ++i) vector[i] *= before_[i];
    for (std::size_t step = block_ / 2; step > 0; step /= 2) {
      for (std::size_t first = 0; first < n; first += 2 * step) {
        for (std::size_t i = first; i < first + step; ++i) {
          const float a = vector[i];
          const float b = vector[i + step];
          vector[i] = a + b;
          vector[i + step] = a - b;
        }
      }
    }
    for (std::size_t i = 0; i < n; ++i) vector[i] *= after_[i];
  }
}

void HadamardRotation::rotate_columns(std::uint32_t first_row, std::size_t n_cols,
                                      std::span<float> rows) const noexcept {
  QSF_DCHECK(first_row % block_ == 0 && rows.size() == block_ * n_cols);
  const std::size_t at = first_row % before_.size();
  for (std::size_t col = 0; col < n_cols; col += kPanelColumns) {
    const std::size_t width = std::min(kPanelColumns, n_cols - col);
    const auto row = [&](std::size_t r) { return rows.subspan(r * n_cols + col, width); };
    for (std::size_t r = 0; r < block_; ++r) scale(row(r), before_[at + r]);
    for (std::size_t step = block_ / 2; step > 0; step /= 2) {
      for (std::size_t r = 0; r < block_; ++r) {
        if ((r & step) != 0) continue;
        const std::span<float> upper = row(r);
        const std::span<float> lower = row(r + step);
        for (std::size_t c = 0; c < width; ++c) {
          const float a = upper[c];
          const float b = lower[c];
          upper[c] = a + b;
          lower[c] = a - b;
        }
      }
    }
    for (std::size_t r = 0; r < block_; ++r) scale(row(r), after_[at + r]);
  }
}

namespace {

// Any numbers do, but the same for every conversion.
constexpr std::uint64_t kStreamSeed = 1;
constexpr std::uint64_t kValuesSeed = 2;

// The tensors between whose inputs and outputs a rotation of the residual stream can be folded, or
// that it does not touch.
bool allows_stream(TensorKind kind) noexcept {
  switch (kind) {
    case TensorKind::kAttnNormBias:
    case TensorKind::kFfnNormBias:
    case TensorKind::kFinalNormBias:
    case TensorKind::kEmbeddingNorm:
    case TensorKind::kEmbeddingNormBias:
    case TensorKind::kAttnPostNorm:
    case TensorKind::kStreamScale:
    case TensorKind::kLaurelNorm:
    case TensorKind::kFfnPostNorm: return false;
    default: return true;
  }
}

bool has_ternary_layers(const ModelSource& source) noexcept {
  for (std::size_t i = 0; i < source.tensors(SectionKind::kLayer, 0).size(); ++i) {
    if (source.tensors(SectionKind::kLayer, 0)[i].rows == 1) continue;
    const auto kept = source.kept_format(SectionKind::kLayer, 0, i);
    if (kept && scale_form(kept->type) == ScaleForm::kRow) return true;
  }
  return false;
}

Status check_any(const ModelSource& source) {
  const ModelSpec& spec = source.spec();
  if (spec.int8_rows || has_ternary_layers(source)) {
    return unsupported(
        "this model cannot be rotated: it was trained with ternary weights or int8 activations, "
        "which rotation would "
        "destroy");
  }
  return ok_status();
}

Status check_values(const ModelSource& source) {
  const ModelSpec& spec = source.spec();
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    for (const SourceTensor& tensor : source.tensors(SectionKind::kLayer, layer)) {
      if (tensor.kind != TensorKind::kAttnSubNorm && tensor.kind != TensorKind::kAttnGate) continue;
      return unsupported(
          "values cannot be rotated: %s, between values and output matrix, scales columns "
          "separately",
          tensor.name.c_str());
    }
  }
  if (spec.has_latent()) {
    return unsupported("values cannot be rotated: they are products of a row that is normed");
  }
  if (spec.qkv_clip != 0.0F) {
    return unsupported("values cannot be rotated: the model clamps each of their columns");
  }
  if (!spec.layer_heads.empty() || !spec.key_value_layers.empty() || spec.shares_kv()) {
    return unsupported("values cannot be rotated: the model's layers have heads of their own");
  }
  if (spec.head_dim % 2 == 0) return ok_status();
  return unsupported("values cannot be rotated: heads of %u columns, expected an even number",
                     spec.head_dim);
}

Status check_stream(const ModelSource& source) {
  const ModelSpec& spec = source.spec();
  if (spec.pooling.has_value() || spec.embeds_only) {
    return unsupported(
        "the residual stream cannot be rotated: this model's rows become embeddings; rotate only "
        "the values");
  }
  if (spec.norm != NormType::kRmsNorm) {
    return unsupported(
        "the residual stream cannot be rotated: the model uses LayerNorm, which subtracts the mean "
        "of the columns; rotate only the values");
  }
  if (spec.hidden % 2 != 0) {
    return unsupported("the residual stream cannot be rotated: %u columns, expected an even number",
                       spec.hidden);
  }
  const auto check = [&](SectionKind section, std::uint32_t layer) {
    for (const SourceTensor& tensor : source.tensors(section, layer)) {
      if (allows_stream(tensor.kind)) continue;
      return unsupported(
          "the residual stream cannot be rotated: %s scales its columns separately; rotate only "
          "the values",
          tensor.name.c_str());
    }
    return ok_status();
  };
  QSF_RETURN_IF_ERROR(check(SectionKind::kEmbedding, 0));
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    QSF_RETURN_IF_ERROR(check(SectionKind::kLayer, layer));
  }
  return check(SectionKind::kFinal, 0);
}

}  // namespace

RotatedModel::RotatedModel(std::unique_ptr<ModelSource> source, RotationScope scope)
    : source_(std::move(source)),
      spec_(source_->spec()),
      scope_(scope),
      stream_(spec_.hidden, kMostStreamColumns, kStreamSeed),
      values_(spec_.head_dim, spec_.head_dim, kValuesSeed) {
  if (!spec_.quantiser.empty()) spec_.quantiser += ", ";
  if (scope.stream) spec_.quantiser += "residual stream ";
  if (scope.stream && scope.values) spec_.quantiser += "and ";
  spec_.quantiser += scope.values ? "values rotated" : "rotated";
}

Result<std::unique_ptr<RotatedModel>> RotatedModel::create(std::unique_ptr<ModelSource> source,
                                                           RotationScope scope) {
  QSF_RETURN_IF_ERROR(check_any(*source));
  if (scope.values) QSF_RETURN_IF_ERROR(check_values(*source));
  if (scope.stream) QSF_RETURN_IF_ERROR(check_stream(*source));
  std::unique_ptr<RotatedModel> model(new RotatedModel(std::move(source), scope));
  if (scope.stream) {
    QSF_RETURN_IF_ERROR(model->read_gains());
    if (model->spec_.tied_head) model->head_.add(*model->source_, model->spec_);
  }
  return model;
}

Status RotatedModel::read_gains() {
  const auto read = [&](SectionKind section, std::uint32_t layer, TensorKind kind,
                        std::vector<float>& gain) {
    const std::span<const SourceTensor> tensors = source_->tensors(section, layer);
    const auto found = ranges::find(tensors, kind, &SourceTensor::kind);
    if (found == tensors.end()) return ok_status();
    gain.resize(found->cols);
    return source_->read_rows(section, layer, static_cast<std::size_t>(found - tensors.begin()), 0,
                              gain);
  };
  gains_.resize(spec_.n_layers);
  for (std::uint32_t layer = 0; layer < spec_.n_layers; ++layer) {
    LayerGains& gains = gains_[layer];
    QSF_RETURN_IF_ERROR(read(SectionKind::kLayer, layer, TensorKind::kAttnNorm, gains.attention));
    QSF_RETURN_IF_ERROR(read(SectionKind::kLayer, layer, TensorKind::kFfnNorm, gains.ffn));
  }
  return read(SectionKind::kFinal, 0, TensorKind::kFinalNorm, final_gain_);
}

std::uint64_t RotatedModel::read_buffer_bytes() const noexcept {
  std::uint64_t most = 0;
  for (std::uint32_t layer = 0; layer < spec_.n_layers; ++layer) {
    for (const SourceTensor& tensor : source_->tensors(SectionKind::kLayer, layer)) {
      const HadamardRotation* const rows = change_of(tensor.kind, layer).rows;
      if (rows == nullptr) continue;
      most = std::max(most, sizeof(float) * std::uint64_t{rows->block()} * tensor.cols);
    }
  }
  return most + source_->read_buffer_bytes();
}

std::span<const SourceTensor> RotatedModel::tensors(SectionKind section,
                                                    std::uint32_t layer) const noexcept {
  if (section == SectionKind::kFinal && head_.is_added()) return head_.final_tensors();
  return source_->tensors(section, layer);
}

RotatedModel::Origin RotatedModel::origin(SectionKind section, std::uint32_t layer,
                                          std::size_t tensor) const noexcept {
  if (const auto embedding = head_.embedding_of(section, tensor)) {
    return {SectionKind::kEmbedding, 0, *embedding};
  }
  return {section, layer, tensor};
}

RotatedModel::Change RotatedModel::change_of(TensorKind kind, std::uint32_t layer) const noexcept {
  Change change;
  const bool stream = scope_.stream;
  const HadamardRotation* const of_stream = stream ? &stream_ : nullptr;
  const HadamardRotation* const of_values = scope_.values ? &values_ : nullptr;
  switch (kind) {
    case TensorKind::kAttnNorm:
    case TensorKind::kFfnNorm:
    case TensorKind::kFinalNorm: change.ones = stream; break;
    case TensorKind::kTokenEmbedding:
    case TensorKind::kPositionEmbedding:
    case TensorKind::kAttnOBias:
    case TensorKind::kMixerOutBias:
    case TensorKind::kFfnDownBias:
    case TensorKind::kExpertDownBias: change.columns = of_stream; break;
    case TensorKind::kAttnQ:
    case TensorKind::kAttnK:
    case TensorKind::kAttnV:
    case TensorKind::kLatentQuery:
    case TensorKind::kMixerIn:
    case TensorKind::kMixerGate:
    case TensorKind::kDeltaRate:
    case TensorKind::kDeltaStep:
    case TensorKind::kAttnGate:
      // Queries may be products of another row.
      if (kind == TensorKind::kAttnQ && spec_.latent_query_dim != 0) break;
      change.columns = of_stream;
      if (stream) change.gain = &gains_[layer].attention;
      if (kind == TensorKind::kAttnV) change.rows = of_values;
      break;
    case TensorKind::kFfnGate:
    case TensorKind::kFfnUp:
    case TensorKind::kRouter:
    case TensorKind::kExpertGate:
    case TensorKind::kExpertUp:
    case TensorKind::kSharedGate:
    case TensorKind::kSharedUp:
    case TensorKind::kSharedWeight:
      change.columns = of_stream;
      if (stream) {
        const LayerGains& gains = gains_[layer];
        change.gain = gains.ffn.empty() ? &gains.attention : &gains.ffn;
      }
      break;
    case TensorKind::kHead:
      change.columns = of_stream;
      if (stream) change.gain = &final_gain_;
      break;
    case TensorKind::kAttnVBias: change.columns = of_values; break;
    case TensorKind::kAttnO:
      change.columns = of_values;
      change.rows = of_stream;
      break;
    case TensorKind::kFfnDown:
    case TensorKind::kMixerOut:
    case TensorKind::kExpertDown:
    case TensorKind::kSharedDown: change.rows = of_stream; break;
    default: break;
  }
  return change;
}

// Reads rows of a matrix with rotated rows, by reading whole blocks.
Status RotatedModel::read_mixed(const Origin& from, const SourceTensor& tensor,
                                const HadamardRotation& rotation, std::uint32_t first_row,
                                std::span<float> out) const {
  const std::size_t n_cols = tensor.cols;
  const std::uint32_t block = rotation.block();
  const auto end = first_row + static_cast<std::uint32_t>(out.size() / n_cols);
  QSF_DCHECK(tensor.rows % block == 0);
  std::vector<float> rows(block * n_cols);
  for (std::uint32_t at = first_row / block * block; at < end; at += block) {
    QSF_RETURN_IF_ERROR(source_->read_rows(from.section, from.layer, from.tensor, at, rows));
    rotation.rotate_columns(at, n_cols, rows);
    const std::uint32_t first = std::max(at, first_row);
    const std::uint32_t last = std::min(at + block, end);
    ranges::copy(std::span(rows).subspan((first - at) * n_cols, (last - first) * n_cols),
                 out.begin() + static_cast<std::ptrdiff_t>((first - first_row) * n_cols));
  }
  return ok_status();
}

Status RotatedModel::read_rows(SectionKind section, std::uint32_t layer, std::size_t tensor,
                               std::uint32_t first_row, std::span<float> out) const {
  const SourceTensor& info = tensors(section, layer)[tensor];
  const Origin from = origin(section, layer, tensor);
  const Change change = change_of(info.kind, layer);
  if (change.ones) {
    ranges::fill(out, 1.0F);
    return ok_status();
  }
  if (change.rows != nullptr) {
    QSF_RETURN_IF_ERROR(read_mixed(from, info, *change.rows, first_row, out));
  } else {
    QSF_RETURN_IF_ERROR(source_->read_rows(from.section, from.layer, from.tensor, first_row, out));
  }
  if (!change.any()) return ok_status();
  if (change.gain != nullptr) {
    const std::vector<float>& gain = *change.gain;
    for (std::size_t at = 0; at < out.size(); at += gain.size()) {
      for (std::size_t c = 0; c < gain.size(); ++c) out[at + c] *= gain[c];
    }
  }
  if (change.columns != nullptr) change.columns->rotate(out);
  if (ranges::all_of(out, [](float weight) { return std::isfinite(weight); })) {
    return ok_status();
  }
  return unsupported("%s: the rotated weights are not finite; weights this large cannot be rotated",
                     info.name.c_str());
}

std::optional<BlockFormat> RotatedModel::kept_format(SectionKind section, std::uint32_t layer,
                                                     std::size_t tensor) const noexcept {
  const SourceTensor& info = tensors(section, layer)[tensor];
  if (change_of(info.kind, layer).any()) return block_format(QuantType::kF32, 0);
  const Origin from = origin(section, layer, tensor);
  return source_->kept_format(from.section, from.layer, from.tensor);
}

Status RotatedModel::read_kept_rows(SectionKind section, std::uint32_t layer, std::size_t tensor,
                                    std::uint32_t first_row, std::uint32_t n_rows,
                                    MutableByteSpan out) const {
  const Origin from = origin(section, layer, tensor);
  return source_->read_kept_rows(from.section, from.layer, from.tensor, first_row, n_rows, out);
}

}  // namespace qsf
