// SPDX-License-Identifier: MIT

#include "import/hf_model.h"

#include <algorithm>
#include <cinttypes>
#include <optional>
#include <utility>

#include "base/check.h"

namespace qsf {
namespace {

std::string shape_text(std::span<const std::uint64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  text += "]";
  return text;
}

// Buffers that older versions of transformers saved beside the weights.
bool is_ignored(std::string_view name) noexcept {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with("rotary_emb.inv_freq");
}

}  // namespace

// Finds the tensors of a model under their names and notes where each row comes from.
class HfModelMapper {
 public:
  explicit HfModelMapper(HfModel& model)
      : model_(model), used_(model.weights_->tensors().size(), false) {}

  Status map() {
    const bool gpt2 = spec().architecture == "gpt2";
    const char* base = gpt2 ? "transformer." : "model.";
    const char* embedding = gpt2 ? "wte.weight" : "embed_tokens.weight";
    if (model_.weights_->find(std::string(base) + embedding) != nullptr) prefix_ = base;
    model_.sections_.resize(spec().n_layers + 2U);
    QSF_RETURN_IF_ERROR(map_embedding(gpt2));
    for (std::uint32_t layer = 0; layer < spec().n_layers; ++layer) {
      to_ = &model_.sections_[1 + layer];
      QSF_RETURN_IF_ERROR(gpt2 ? map_gpt2_layer(layer) : map_llama_layer(layer));
    }
    QSF_RETURN_IF_ERROR(map_final(gpt2));
    return check_all_used();
  }

 private:
  using Place = HfModel::Place;

  ModelSpec& spec() noexcept { return model_.config_.spec; }

  // Finds a tensor and checks its type and shape.
  Result<const StoredTensor*> take(const std::string& name, std::vector<std::uint64_t> shape) {
    const StoredTensor* found = model_.weights_->find(name);
    if (found == nullptr) {
      return corrupt("tensor \"%s\" is missing, expected %s", name.c_str(),
                     shape_text(shape).c_str());
    }
    if (found->shape != shape) {
      return corrupt("tensor \"%s\": shape %s, expected %s from config.json", name.c_str(),
                     shape_text(found->shape).c_str(), shape_text(shape).c_str());
    }
    if (!is_weight_type(found->type)) {
      return unsupported("tensor \"%s\": dtype %s, expected F32, F16 or BF16", name.c_str(),
                         std::string(stored_type_name(found->type)).c_str());
    }
    used_[static_cast<std::size_t>(found - model_.weights_->tensors().data())] = true;
    return found;
  }

  void add(TensorKind kind, std::uint32_t rows, std::uint32_t cols, Place place) {
    to_->tensors.push_back({kind, rows, cols, place.stored->name});
    to_->places.push_back(place);
  }

  // A matrix stored as it is used: [rows, cols].
  Status matrix(TensorKind kind, const std::string& name, std::uint32_t rows, std::uint32_t cols) {
    QSF_ASSIGN_OR_RETURN(const StoredTensor* stored, take(name, {rows, cols}));
    add(kind, rows, cols, {stored, 0, cols, 1});
    return ok_status();
  }
  // A matrix stored as [cols, rows].
  Status turned(TensorKind kind, const std::string& name, std::uint32_t rows, std::uint32_t cols) {
    QSF_ASSIGN_OR_RETURN(const StoredTensor* stored, take(name, {cols, rows}));
    add(kind, rows, cols, {stored, 0, 1, rows});
    return ok_status();
  }
  Status vector(TensorKind kind, const std::string& name, std::uint32_t cols) {
    QSF_ASSIGN_OR_RETURN(const StoredTensor* stored, take(name, {cols}));
    add(kind, 1, cols, {stored, 0, cols, 1});
    return ok_status();
  }
  Status vector_if(bool present, TensorKind kind, const std::string& name, std::uint32_t cols) {
    return present ? vector(kind, name, cols) : ok_status();
  }

  Status map_embedding(bool gpt2) {
    to_ = &model_.sections_.front();
    const ModelSpec& s = spec();
    if (!gpt2) {
      return matrix(TensorKind::kTokenEmbedding, prefix_ + "embed_tokens.weight", s.n_vocab,
                    s.hidden);
    }
    QSF_RETURN_IF_ERROR(
        matrix(TensorKind::kTokenEmbedding, prefix_ + "wte.weight", s.n_vocab, s.hidden));
    return matrix(TensorKind::kPositionEmbedding, prefix_ + "wpe.weight", s.max_positions,
                  s.hidden);
  }

  Status map_gpt2_layer(std::uint32_t layer) {
    const ModelSpec& s = spec();
    const std::uint32_t h = s.hidden;
    const std::string at = prefix_ + "h." + std::to_string(layer) + ".";
    QSF_RETURN_IF_ERROR(vector(TensorKind::kAttnNorm, at + "ln_1.weight", h));
    QSF_RETURN_IF_ERROR(vector(TensorKind::kAttnNormBias, at + "ln_1.bias", h));
    QSF_ASSIGN_OR_RETURN(const StoredTensor* qkv,
                         take(at + "attn.c_attn.weight", {h, std::uint64_t{3} * h}));
    QSF_ASSIGN_OR_RETURN(const StoredTensor* qkv_bias,
                         take(at + "attn.c_attn.bias", {std::uint64_t{3} * h}));
    constexpr TensorKind kWeights[] = {TensorKind::kAttnQ, TensorKind::kAttnK, TensorKind::kAttnV};
    constexpr TensorKind kBiases[] = {TensorKind::kAttnQBias, TensorKind::kAttnKBias,
                                      TensorKind::kAttnVBias};
    for (std::uint64_t part = 0; part < 3; ++part) {
      add(kWeights[part], h, h, {qkv, part * h, 1, std::uint64_t{3} * h});
      add(kBiases[part], 1, h, {qkv_bias, part * h, h, 1});
    }
    QSF_RETURN_IF_ERROR(turned(TensorKind::kAttnO, at + "attn.c_proj.weight", h, h));
    QSF_RETURN_IF_ERROR(vector(TensorKind::kAttnOBias, at + "attn.c_proj.bias", h));
    QSF_RETURN_IF_ERROR(vector(TensorKind::kFfnNorm, at + "ln_2.weight", h));
    QSF_RETURN_IF_ERROR(vector(TensorKind::kFfnNormBias, at + "ln_2.bias", h));
    QSF_RETURN_IF_ERROR(turned(TensorKind::kFfnUp, at + "mlp.c_fc.weight", s.ffn, h));
    QSF_RETURN_IF_ERROR(vector(TensorKind::kFfnUpBias, at + "mlp.c_fc.bias", s.ffn));
    QSF_RETURN_IF_ERROR(turned(TensorKind::kFfnDown, at + "mlp.c_proj.weight", h, s.ffn));
    return vector(TensorKind::kFfnDownBias, at + "mlp.c_proj.bias", h);
  }

  Status map_llama_layer(std::uint32_t layer) {
    const ModelSpec& s = spec();
    const HfConfig& c = model_.config_;
    const std::string at = prefix_ + "layers." + std::to_string(layer) + ".";
    const std::string attn = at + "self_attn.";
    const std::string mlp = at + "mlp.";
    QSF_RETURN_IF_ERROR(vector(TensorKind::kAttnNorm, at + "input_layernorm.weight", s.hidden));
    QSF_RETURN_IF_ERROR(matrix(TensorKind::kAttnQ, attn + "q_proj.weight", s.q_dim(), s.hidden));
    QSF_RETURN_IF_ERROR(
        vector_if(c.qkv_bias, TensorKind::kAttnQBias, attn + "q_proj.bias", s.q_dim()));
    QSF_RETURN_IF_ERROR(matrix(TensorKind::kAttnK, attn + "k_proj.weight", s.kv_dim(), s.hidden));
    QSF_RETURN_IF_ERROR(
        vector_if(c.qkv_bias, TensorKind::kAttnKBias, attn + "k_proj.bias", s.kv_dim()));
    QSF_RETURN_IF_ERROR(matrix(TensorKind::kAttnV, attn + "v_proj.weight", s.kv_dim(), s.hidden));
    QSF_RETURN_IF_ERROR(
        vector_if(c.qkv_bias, TensorKind::kAttnVBias, attn + "v_proj.bias", s.kv_dim()));
    QSF_RETURN_IF_ERROR(matrix(TensorKind::kAttnO, attn + "o_proj.weight", s.hidden, s.q_dim()));
    QSF_RETURN_IF_ERROR(
        vector_if(c.attn_out_bias, TensorKind::kAttnOBias, attn + "o_proj.bias", s.hidden));
    QSF_RETURN_IF_ERROR(
        vector(TensorKind::kFfnNorm, at + "post_attention_layernorm.weight", s.hidden));
    QSF_RETURN_IF_ERROR(
        vector_if(c.ffn_bias, TensorKind::kFfnGateBias, mlp + "gate_proj.bias", s.ffn));
    QSF_RETURN_IF_ERROR(vector_if(c.ffn_bias, TensorKind::kFfnUpBias, mlp + "up_proj.bias", s.ffn));
    // Gate directly before up: their tiles alternate in the file.
    QSF_RETURN_IF_ERROR(matrix(TensorKind::kFfnGate, mlp + "gate_proj.weight", s.ffn, s.hidden));
    QSF_RETURN_IF_ERROR(matrix(TensorKind::kFfnUp, mlp + "up_proj.weight", s.ffn, s.hidden));
    QSF_RETURN_IF_ERROR(matrix(TensorKind::kFfnDown, mlp + "down_proj.weight", s.hidden, s.ffn));
    return vector_if(c.ffn_bias, TensorKind::kFfnDownBias, mlp + "down_proj.bias", s.hidden);
  }

  Status map_final(bool gpt2) {
    to_ = &model_.sections_.back();
    const ModelSpec& s = spec();
    if (gpt2) {
      QSF_RETURN_IF_ERROR(vector(TensorKind::kFinalNorm, prefix_ + "ln_f.weight", s.hidden));
      QSF_RETURN_IF_ERROR(vector(TensorKind::kFinalNormBias, prefix_ + "ln_f.bias", s.hidden));
    } else {
      QSF_RETURN_IF_ERROR(vector(TensorKind::kFinalNorm, prefix_ + "norm.weight", s.hidden));
    }
    return map_head();
  }

  // A head that equals the embedding is tied whatever the configuration says: same numbers, once.
  Status map_head() {
    const std::string name = "lm_head.weight";
    const ModelSpec& s = spec();
    if (s.tied_head && model_.weights_->find(name) == nullptr) return ok_status();
    auto head = take(name, {s.n_vocab, s.hidden});
    if (!head) {
      Status status = std::move(head).error();
      if (model_.weights_->find(name) != nullptr) return status;
      return corrupt(
          "%s; if the head is the embedding, config.json must say tie_word_embeddings: "
          "true",
          status.message().c_str());
    }
    const StoredTensor& embedding = *model_.sections_.front().places[0].stored;
    QSF_ASSIGN_OR_RETURN(const bool equal, equal_weights(**head, embedding));
    if (s.tied_head && !equal) {
      return corrupt(
          "tensor \"lm_head.weight\" differs from the embedding, but config.json says "
          "tie_word_embeddings: true; set it to false if the head is meant");
    }
    spec().tied_head = equal;
    if (!equal) add(TensorKind::kHead, s.n_vocab, s.hidden, {*head, 0, s.hidden, 1});
    return ok_status();
  }

  Result<bool> equal_weights(const StoredTensor& a, const StoredTensor& b) {
    constexpr std::uint64_t kChunk = 1U << 18;
    std::vector<float> left(std::min(kChunk, a.elements));
    std::vector<float> right(left.size());
    for (std::uint64_t first = 0; first < a.elements; first += kChunk) {
      const std::size_t n = std::min(kChunk, a.elements - first);
      QSF_RETURN_IF_ERROR(model_.weights_->read(a, first, std::span(left).first(n)));
      QSF_RETURN_IF_ERROR(model_.weights_->read(b, first, std::span(right).first(n)));
      if (!std::equal(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(n), right.begin())) {
        return false;
      }
    }
    return true;
  }

  Status check_all_used() {
    for (std::size_t i = 0; i < used_.size(); ++i) {
      const StoredTensor& tensor = model_.weights_->tensors()[i];
      if (used_[i] || is_ignored(tensor.name)) continue;
      return corrupt("tensor \"%s\" %s is unexpected: a %s of this configuration has none",
                     tensor.name.c_str(), shape_text(tensor.shape).c_str(),
                     spec().architecture.c_str());
    }
    return ok_status();
  }

  HfModel& model_;
  std::vector<bool> used_;
  std::string prefix_;
  HfModel::Section* to_ = nullptr;
};

Result<std::unique_ptr<HfModel>> HfModel::open(const std::string& folder, FileOps& ops) {
  QSF_ASSIGN_OR_RETURN(HfConfig config, read_hf_config(folder, ops));
  QSF_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> weights, open_checkpoint(folder, ops));
  // One layer has at least three tensors, so a configuration cannot make sections without end.
  if (config.spec.n_layers > weights->tensors().size()) {
    return corrupt("%s: %zu tensors for %u layers; the weights do not belong to config.json",
                   folder.c_str(), weights->tensors().size(), config.spec.n_layers);
  }
  std::unique_ptr<HfModel> model(new HfModel(folder, std::move(config), std::move(weights)));
  QSF_RETURN_IF_ERROR(HfModelMapper(*model).map().with_context(folder));
  return model;
}

const HfModel::Section& HfModel::section(SectionKind kind, std::uint32_t layer) const noexcept {
  switch (kind) {
    case SectionKind::kEmbedding: return sections_.front();
    case SectionKind::kFinal: return sections_.back();
    case SectionKind::kLayer: break;
  }
  QSF_CHECK(layer < spec().n_layers);
  return sections_[1 + layer];
}

std::span<const SourceTensor> HfModel::tensors(SectionKind kind,
                                               std::uint32_t layer) const noexcept {
  return section(kind, layer).tensors;
}

Status HfModel::read_rows(SectionKind kind, std::uint32_t layer, std::size_t tensor,
                          std::uint32_t first_row, std::span<float> out) const {
  const SourceTensor& shape = section(kind, layer).tensors[tensor];
  const Place& place = section(kind, layer).places[tensor];
  const std::uint64_t first = place.base + first_row * place.row_stride;
  if (place.col_stride == 1) return weights_->read(*place.stored, first, out);
  const std::size_t n_rows = out.size() / shape.cols;
  std::vector<float> column(n_rows);
  for (std::uint32_t c = 0; c < shape.cols; ++c) {
    QSF_RETURN_IF_ERROR(weights_->read(*place.stored, first + c * place.col_stride, column));
    for (std::size_t r = 0; r < n_rows; ++r) out[r * shape.cols + c] = column[r];
  }
  return ok_status();
}

}  // namespace qsf
