// SPDX-License-Identifier: MIT

#include "import/gguf/gguf_model.h"

#include <algorithm>
#include <cinttypes>
#include <utility>

#include "base/check.h"
#include "format/tensor_rules.h"
#include "import/delta_rows.h"
#include "import/gguf/ggml_types.h"
#include "import/gguf/gguf_rope.h"
#include "import/gguf/gguf_tokenizer.h"
#include "import/gguf/i2s_decoder.h"
#include "import/hf/hf_tensors.h"
#include "import/layer_tensor_name.h"
#include "import/vocabulary.h"

namespace qsf {
namespace {

constexpr std::size_t kMaxGgufTemplateBytes = 1U << 20;

std::string dims_text(const GgufTensor& tensor) {
  std::string text = "[";
  for (std::uint32_t d = 0; d < std::max(tensor.n_dims, 1U); ++d) {
    text += (d == 0 ? "" : ", ") + std::to_string(tensor.dims[d]);
  }
  return text + "]";
}

// 0 for queries, 1 for keys, 2 for values; nothing for other kinds.
std::optional<std::uint64_t> attention_part(TensorKind kind) noexcept {
  switch (kind) {
    case TensorKind::kAttnQ:
    case TensorKind::kAttnQBias: return 0;
    case TensorKind::kAttnK:
    case TensorKind::kAttnKBias: return 1;
    case TensorKind::kAttnV:
    case TensorKind::kAttnVBias: return 2;
    default: return std::nullopt;
  }
}

}  // namespace

// Finds the tensors of a model under their names and notes where each row comes from.
class GgufModelMapper {
 public:
  GgufModelMapper(GgufModel& model, const GgufArchitecture& architecture)
      : model_(model),
        architecture_(architecture),
        table_(gguf_tensor_table(architecture)),
        used_(model.file_.tensors().size(), false) {}

  Status map() {
    model_.sections_.resize(spec().n_layers + 2U);
    QSF_RETURN_IF_ERROR(map_section(model_.sections_.front(), 0, table_.embedding));
    if (!table_.added_row.empty()) QSF_RETURN_IF_ERROR(map_added_row());
    if (spec().embedding_dense != 0) {
      for (const TensorKind kind : {TensorKind::kDenseUp, TensorKind::kDenseDown}) {
        QSF_RETURN_IF_ERROR(map_tensor(model_.sections_.front(), 0, {kind, ""}));
      }
    }
    for (std::uint32_t layer = 0; layer < spec().n_layers; ++layer) {
      QSF_RETURN_IF_ERROR(
          map_section(model_.sections_[1 + layer], layer, table_.places_of(spec(), layer)));
      if (!spec().has_experts(layer)) continue;
      QSF_RETURN_IF_ERROR(map_experts(model_.sections_[1 + layer], layer));
    }
    QSF_RETURN_IF_ERROR(map_section(model_.sections_.back(), 0, table_.final));
    QSF_RETURN_IF_ERROR(map_head("output.weight"));
    for (const GgufFile::Entry* scales : model_.i2s_scales_) mark_used(scales);
    return check_all_used();
  }

  // The block behind so many layers. Files may leave out its embedding, head and last norm, which
  // then are the model's.
  Status map_block(std::uint32_t n_layers) {
    static constexpr TensorPlace kJoining[] = {{TensorKind::kMtpProjection, ""},
                                               {TensorKind::kMtpTokenNorm, ""},
                                               {TensorKind::kMtpHiddenNorm, ""}};
    first_block_ = n_layers;
    const std::string at = "blk." + std::to_string(n_layers) + ".nextn.";
    const auto either = [&](const char* own, const char* of_model) {
      const std::string name = at + own;
      return is_there(name) ? name : std::string(of_model);
    };
    const ModelSpec& s = spec();
    model_.sections_.resize(3);
    QSF_RETURN_IF_ERROR(
        map_found(model_.sections_.front(), 0, {TensorKind::kTokenEmbedding, ""}, 0,
                  {either("embed_tokens.weight", "token_embd.weight"), 0, s.n_vocab}));
    GgufModel::Section& layer = model_.sections_[1];
    QSF_RETURN_IF_ERROR(map_section(layer, 0, kJoining));
    QSF_RETURN_IF_ERROR(map_section(layer, 0, table_.places_of(s, 0)));
    if (s.has_experts(0)) QSF_RETURN_IF_ERROR(map_experts(layer, 0));
    QSF_RETURN_IF_ERROR(
        map_found(model_.sections_.back(), 0, {TensorKind::kFinalNorm, ""}, 0,
                  {either("shared_head_norm.weight", "output_norm.weight"), 0, s.hidden}));
    return map_head(either("shared_head_head.weight", "output.weight"));
  }

 private:
  using Place = GgufModel::Place;

  // The stored tensor that holds one of ours, and its outputs in it.
  struct Found {
    std::string name;
    std::uint64_t first = 0;
    std::uint64_t n_stored = 0;
    std::uint64_t n_stacked = 1;   // of this many experts, in another dimension
    bool keys_and_values = false;  // of every head of latent attention
    std::uint64_t run = 0;         // as Place
    std::uint64_t step = 0;
  };

  ModelSpec& spec() noexcept { return model_.spec_; }
  bool is_there(const std::string& name) const { return model_.file_.find(name) != nullptr; }

  std::string block_name(std::uint32_t layer) const {
    return "blk." + std::to_string(first_block_ + layer) + ".";
  }
  std::string name_of(TensorKind kind, std::uint32_t layer) const {
    return gguf_tensor_name(architecture_, kind, first_block_ + layer);
  }

  // The rows of ours in a stored tensor that has others between them; nothing where all are alike.
  std::optional<RowRuns> runs_of(TensorKind kind) {
    const bool queries = kind == TensorKind::kAttnQ || kind == TensorKind::kAttnGate;
    const bool rates = kind == TensorKind::kDeltaRate || kind == TensorKind::kDeltaStep;
    if (queries && architecture_.gated_queries) return gated_query_rows(spec(), kind);
    if (rates && architecture_.rates_by_group) return rate_rows_by_group(spec(), kind);
    return std::nullopt;
  }

  Found locate(TensorKind kind, std::uint32_t layer, std::uint64_t n_outputs) {
    Found found{name_of(kind, layer), 0, n_outputs};
    if (const auto runs = runs_of(kind)) {
      return {found.name, runs->first, runs->n_stored, 1, false, runs->run, runs->step};
    }
    const std::uint64_t n_heads = spec().n_heads;
    if (kind == TensorKind::kLatentKeys || kind == TensorKind::kLatentValues) {
      const std::string both = block_name(layer) + "attn_kv_b.weight";
      if (is_there(found.name) || !is_there(both)) {
        return {found.name, 0, n_outputs / n_heads, n_heads};
      }
      const std::uint64_t of_head = spec().latent_key_dim + spec().latent_value_dim;
      return {both, 0, n_heads * of_head, 1, true};
    }
    const auto part = attention_part(kind);
    const std::string at = block_name(layer);
    if (part && !is_there(found.name)) {
      const std::string fused = at + (is_matrix(kind) ? "attn_qkv.weight" : "attn_qkv.bias");
      const std::uint64_t q = spec().q_dim();
      const std::uint64_t kv = spec().kv_dim();
      if (is_there(fused)) return {fused, *part == 0 ? 0 : q + (*part - 1) * kv, q + 2 * kv};
    }
    const bool gate_or_up = kind == TensorKind::kFfnGate || kind == TensorKind::kFfnUp;
    const GgufFile::Entry* up = model_.file_.find(at + "ffn_up.weight");
    if (gate_or_up && spec().gated_ffn && !is_there(at + "ffn_gate.weight") && up != nullptr &&
        up->tensor->dims[1] == 2 * n_outputs) {
      return {at + "ffn_up.weight", kind == TensorKind::kFfnGate ? 0 : n_outputs, 2 * n_outputs};
    }
    return found;
  }

  // The first layer with what that layer has: attention or a state.
  std::uint32_t first_alike(std::uint32_t layer) noexcept {
    std::uint32_t first = 0;
    while (spec().mixer_of(first) != spec().mixer_of(layer)) ++first;
    return first;
  }

  // Returns whether the model has the tensor; the first layer of its kind decides for all.
  bool is_present(const TensorPlace& place, std::uint32_t layer) {
    switch (place.presence) {
      case Presence::kAlways: return true;
      case Presence::kSequential: return !spec().parallel_block;
      case Presence::kBehindFirst: return layer != 0;
      case Presence::kOwnKeys: return spec().owns_kv(layer);
      case Presence::kOwnValues:
        return spec().owns_kv(layer) && !spec().attention_of(layer).values_are_keys;
      case Presence::kLayerInput: return spec().layer_input_dim != 0;
      case Presence::kFirstStreams: return layer == 0;
      case Presence::kLastStreams: return layer + 1 == spec().n_layers;
      case Presence::kDense: return !spec().has_experts(layer);
      case Presence::kExperts: return spec().has_experts(layer);
      case Presence::kShared: return spec().has_experts(layer) && spec().shared_ffn != 0;
      case Presence::kRouterCorrection:
        return spec().has_experts(layer) && spec().expert_scoring == ExpertScoring::kSigmoid;
      case Presence::kQueryRow: return spec().latent_query_dim != 0;
      case Presence::kNoQueryRow: return spec().latent_query_dim == 0;
      case Presence::kQkvBias:
        if (architecture_.family == "qwen2" || architecture_.family == "qwen2moe") return true;
        break;
      case Presence::kHeadNorms:
      case Presence::kAttnOutBias:
      case Presence::kMixerBias:
      case Presence::kConvBias:
      case Presence::kScanNorm:
      case Presence::kFfnBias: break;
    }
    return is_there(locate(place.kind, first_alike(layer), 1).name);
  }

  Status map_section(GgufModel::Section& to, std::uint32_t layer,
                     std::span<const TensorPlace> places) {
    for (const TensorPlace& place : places) {
      if (!is_present(place, layer)) continue;
      if (!is_of_stream(place.kind)) {
        QSF_RETURN_IF_ERROR(map_tensor(to, layer, place));
        continue;
      }
      // Those of all streams are stacked.
      const std::uint32_t n = spec().n_streams - 1;
      for (std::uint32_t i = 0; i < n; ++i) {
        const Found found = {gguf_tensor_name(architecture_, place.kind, layer),
                             std::uint64_t{i} * spec().hidden, spec().hidden, n};
        QSF_RETURN_IF_ERROR(map_found(to, layer, place, i, found));
      }
    }
    return ok_status();
  }

  // Maps the tensors of every expert, one expert behind the other.
  Status map_experts(GgufModel::Section& to, std::uint32_t layer) {
    for (std::uint32_t expert = 0; expert < spec().n_experts; ++expert) {
      for (const TensorPlace& place : table_.experts) {
        QSF_RETURN_IF_ERROR(
            map_found(to, layer, place, expert, locate_expert(place.kind, layer, expert)));
      }
    }
    return ok_status();
  }

  // The experts' tensors are stacked; the oldest files have one matrix an expert.
  Found locate_expert(TensorKind kind, std::uint32_t layer, std::uint32_t expert) {
    const TensorShape shape = tensor_shape(spec(), layer, kind);
    const std::uint64_t n = is_matrix(kind) ? shape.rows : shape.cols;
    const std::string stacked = name_of(kind, layer);
    const std::string single =
        stacked.substr(0, stacked.rfind("_exps")) + "." + std::to_string(expert) + ".weight";
    if (is_matrix(kind) && !is_there(stacked) && is_there(single)) return {single, 0, n};
    const std::string fused = block_name(layer) + "ffn_gate_up_exps.weight";
    const bool gate = kind == TensorKind::kExpertGate;
    if ((gate || kind == TensorKind::kExpertUp) && !is_there(stacked) && is_there(fused)) {
      return {fused, (2 * expert + (gate ? 0U : 1U)) * n, 2 * n, spec().n_experts};
    }
    return {stacked, is_matrix(kind) ? expert * n : expert, n, spec().n_experts};
  }

  Status map_tensor(GgufModel::Section& to, std::uint32_t layer, const TensorPlace& listed) {
    const TensorShape shape = place_shape(spec(), layer, listed);
    const std::uint64_t n_outputs = is_matrix(listed.kind) ? shape.rows : shape.cols;
    Found found = locate(listed.kind, layer, n_outputs);
    if (listed.of_layer_before) found.name = name_in_layer_before(listed.kind, layer);
    if (listed.of_all_layers && is_matrix(listed.kind)) {
      found.n_stored = std::uint64_t{spec().n_layers} * n_outputs;
      found.first = layer * n_outputs;
    }
    return map_found(to, layer, listed, 0, found);
  }

  // The final norm is that of a layer behind the last one.
  std::string name_in_layer_before(TensorKind kind, std::uint32_t layer) {
    if (kind == TensorKind::kFinalNorm) kind = TensorKind::kAttnNorm;
    if (kind == TensorKind::kFinalNormBias) kind = TensorKind::kAttnNormBias;
    return gguf_tensor_name(architecture_, kind, (layer == 0 ? spec().n_layers : layer) - 1);
  }

  // Finds the row that is added to those of the embedding: of tokens that are all of one type.
  Status map_added_row() {
    constexpr std::uint64_t kMostTypes = 16;
    const char* const name = "token_types.weight";
    const GgufFile::Entry* entry = model_.file_.find(name);
    if (entry == nullptr) return corrupt("tensor \"%s\" is missing", name);
    const GgufTensor& tensor = *entry->tensor;
    if (tensor.dims[0] != spec().hidden || tensor.dims[1] == 0 || tensor.dims[1] > kMostTypes ||
        tensor.dims[2] != 1 || tensor.dims[3] != 1) {
      return corrupt("tensor \"%s\": dimensions %s, expected [%u, 1 to %llu]", name,
                     dims_text(tensor).c_str(), spec().hidden,
                     static_cast<unsigned long long>(kMostTypes));
    }
    QSF_ASSIGN_OR_RETURN(model_.added_row_, read_gguf_rows(model_.file_, *entry));
    model_.added_row_.resize(spec().hidden);
    model_.added_row_.shrink_to_fit();
    Place& embedding = model_.sections_.front().places[0];
    if (embedding.i2s != nullptr) {
      return unsupported("tensor \"%s\": its row is added to an embedding, which cannot be I2_S",
                         name);
    }
    embedding.adds_row = true;
    mark_used(entry);
    return ok_status();
  }

  Place::Order order_of(TensorKind kind, bool rotates, bool keys_and_values) const noexcept {
    if (keys_and_values) {
      return kind == TensorKind::kLatentKeys ? Place::Order::kHeadKeys : Place::Order::kHeadValues;
    }
    if (architecture_.latent && rotates) {
      return kind == TensorKind::kAttnQ ? Place::Order::kLatentQuery : Place::Order::kLatentRow;
    }
    return architecture_.paired_rope && rotates ? Place::Order::kPairedRope : Place::Order::kPlain;
  }

  Status map_found(GgufModel::Section& to, std::uint32_t layer, const TensorPlace& listed,
                   std::uint32_t expert, const Found& found) {
    const TensorKind kind = listed.kind;
    const TensorShape shape = place_shape(spec(), layer, listed);
    const bool matrix = is_matrix(kind);
    const GgufFile::Entry* entry = model_.file_.find(found.name);
    // Vectors are stacked too, of every expert or of every head.
    const bool by_head = listed.storage == Storage::kPairedRopeOfHeads;
    const std::uint64_t n_gains = by_head ? spec().head_dim : found.n_stored;
    const std::uint64_t n_vectors = found.n_stacked * (found.n_stored / n_gains);
    std::uint64_t dims[3] = {matrix ? shape.cols : n_gains, matrix ? found.n_stored : n_vectors,
                             matrix ? found.n_stacked : 1};
    if (found.keys_and_values) dims[0] = spec().latent_dim;
    const bool taps = listed.storage == Storage::kConvTaps;
    if (taps) {
      dims[0] = spec().conv_taps;
      dims[1] = spec().conv_channels();
    } else if ((kind == TensorKind::kScanDecay || kind == TensorKind::kScanSkip) &&
               !spec().has_delta_rule()) {
      dims[0] = 1;
      dims[1] = shape.cols;
    } else if (listed.storage == Storage::kFlat) {
      dims[0] = kind == TensorKind::kStreamRouter ? spec().hidden : spec().n_streams;
      dims[1] = shape.cols / dims[0];
    } else if (kind == TensorKind::kScanNorm) {
      dims[0] = shape.cols / spec().mixer_groups;
      dims[1] = spec().mixer_groups;
    }
    std::string expected = "[" + std::to_string(dims[0]);
    if (matrix || dims[1] != 1) expected += ", " + std::to_string(dims[1]);
    if (dims[2] != 1) expected += ", " + std::to_string(dims[2]);
    expected += "]";
    if (entry == nullptr) {
      return corrupt(
          "tensor \"%s\" is missing, expected one of %s for %s; the file is incomplete or an "
          "unsupported variant",
          found.name.c_str(), expected.c_str(), std::string(architecture_.name).c_str());
    }
    const GgufTensor& tensor = *entry->tensor;
    if (tensor.dims[0] != dims[0] || tensor.dims[1] != dims[1] || tensor.dims[2] != dims[2] ||
        tensor.dims[3] != 1) {
      return corrupt("tensor \"%s\": dimensions %s, expected %s from the file's keys",
                     found.name.c_str(), dims_text(tensor).c_str(), expected.c_str());
    }
    Place place{entry, found.first};
    place.run = found.run;
    place.step = found.step;
    const auto i2s = model_.i2s_.find(entry);
    if (i2s != model_.i2s_.end()) place.i2s = &i2s->second;
    const auto row_bytes = ggml_row_bytes(tensor.type, tensor.dims[0]);
    const bool decoded = can_decode(tensor.type) && row_bytes && tensor.n_bytes != 0;
    if (!decoded && (!matrix || place.i2s == nullptr)) {
      return unsupported(
          "tensor \"%s\": weights of type %s (number %u) are not supported; use another "
          "quantisation of the model, such as Q4_K_M or Q8_0",
          found.name.c_str(), tensor.type_name, tensor.type);
    }
    const bool rotates = attention_part(kind).value_or(2) < 2 || by_head;
    place.row_bytes = row_bytes.value_or(0);
    place.order =
        found.run != 0 ? Place::Order::kRuns : order_of(kind, rotates, found.keys_and_values);
    if (taps) place.n_taps = spec().conv_taps;
    if (matrix && !is_expert(kind) && kind != TensorKind::kRouter) {
      QSF_RETURN_IF_ERROR(read_scale(found.name, place));
    }
    if (place.i2s != nullptr && is_microsoft(place.i2s->flavor())) spec().int8_rows = true;
    mark_used(entry);
    to.tensors.push_back({kind, shape.rows, shape.cols, found.name, tensor.type_name,
                          static_cast<std::uint16_t>(expert)});
    to.places.push_back(place);
    return ok_status();
  }

  void mark_used(const GgufFile::Entry* entry) {
    used_[static_cast<std::size_t>(entry - model_.file_.tensors().data())] = true;
  }

  // Some BitNet files keep the scale of a ternary matrix in a tensor of one element beside it.
  Status read_scale(const std::string& name, Place& place) {
    constexpr std::string_view kWeight = ".weight";
    if (!name.ends_with(kWeight)) return ok_status();
    const GgufFile::Entry* entry =
        model_.file_.find(name.substr(0, name.size() - kWeight.size()) + ".scale");
    if (entry == nullptr || place.i2s != nullptr) return ok_status();
    QSF_ASSIGN_OR_RETURN(const std::vector<float> values, read_gguf_vector(model_.file_, *entry));
    if (values.size() != 1) {
      return unsupported("tensor \"%s\": %zu elements, expected one scale",
                         shown_gguf_text(entry->tensor->name).c_str(), values.size());
    }
    place.scale = values[0];
    mark_used(entry);
    return ok_status();
  }

  // A head that equals the embedding is tied: the same bytes, once.
  Status map_head(const std::string& name) {
    GgufModel::Section& last = model_.sections_.back();
    const GgufFile::Entry* head = model_.file_.find(name);
    spec().tied_head = head == nullptr;
    if (head == nullptr && architecture_.own_head) {
      return unsupported(
          "tensor \"output.weight\" is missing, and the embedding of a %s is no head: it has "
          "multipliers of its own",
          std::string(architecture_.name).c_str());
    }
    if (head != nullptr) {
      const Place& embedding = model_.sections_.front().places[0];
      QSF_RETURN_IF_ERROR(
          map_found(last, 0, {TensorKind::kHead, ""}, 0, {name, 0, spec().n_vocab}));
      if (last.places.back().scale == embedding.scale) {
        QSF_ASSIGN_OR_RETURN(spec().tied_head, equal_bytes(*head, *embedding.stored));
      }
      if (spec().tied_head) {
        last.tensors.pop_back();
        last.places.pop_back();
      }
    }
    const bool head_bias =
        table_.head_bias || (architecture_.family == "phimoe" && is_there("output.bias"));
    return head_bias ? map_tensor(last, 0, {TensorKind::kHeadBias, ""}) : ok_status();
  }

  Result<bool> equal_bytes(const GgufFile::Entry& a, const GgufFile::Entry& b) {
    constexpr std::uint64_t kChunk = 1U << 20;
    if (a.tensor->type != b.tensor->type || a.tensor->n_bytes != b.tensor->n_bytes) return false;
    if (a.tensor->n_bytes == 0) return false;  // I2_S, whose sizes are not known here
    std::vector<std::byte> left(std::min(kChunk, a.tensor->n_bytes));
    std::vector<std::byte> right(left.size());
    for (std::uint64_t at = 0; at < a.tensor->n_bytes; at += kChunk) {
      const std::size_t n = std::min(kChunk, a.tensor->n_bytes - at);
      QSF_RETURN_IF_ERROR(model_.file_.read(a, at, std::span(left).first(n)));
      QSF_RETURN_IF_ERROR(model_.file_.read(b, at, std::span(right).first(n)));
      if (!std::equal(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(n), right.begin())) {
        return false;
      }
    }
    return true;
  }

  // Whether the tensor belongs to a block behind the layers, which predicts further tokens. The key
  // that counts these blocks was read, or a number above 0 refused.
  Result<bool> is_of_further_tokens(std::string_view name) {
    const std::string key = std::string(architecture_.name) + ".nextn_predict_layers";
    QSF_ASSIGN_OR_RETURN(const auto n_blocks, model_.file_.keys().get_unsigned(key));
    const auto found = parse_layer_tensor_name(name, "blk.");
    return found.has_value() && found->layer >= spec().n_layers &&
           found->layer - spec().n_layers < n_blocks.value_or(0);
  }

  // Published files keep the keys and values of layers that attend to those of an earlier one.
  bool is_of_shared_keys(std::string_view name) {
    const auto found = parse_layer_tensor_name(name, "blk.");
    if (!found || found->layer >= spec().n_layers || spec().owns_kv(found->layer)) return false;
    const std::span<const TensorPlace> places = table_.places_of(spec(), found->layer);
    return std::any_of(places.begin(), places.end(), [&](const TensorPlace& place) {
      return is_of_own_keys(place.presence) &&
             name == gguf_tensor_name(architecture_, place.kind, found->layer);
    });
  }

  Status check_all_used() {
    std::size_t n_further = 0;
    for (std::size_t i = 0; i < used_.size(); ++i) {
      const GgufTensor& tensor = *model_.file_.tensors()[i].tensor;
      if (used_[i] || is_gguf_rope_tensor(tensor.name) || is_of_shared_keys(tensor.name)) continue;
      QSF_ASSIGN_OR_RETURN(const bool further, is_of_further_tokens(tensor.name));
      if (further) {
        ++n_further;
        continue;
      }
      return unsupported("tensor \"%s\" %s is unexpected in %s",
                         shown_gguf_text(tensor.name).c_str(), dims_text(tensor).c_str(),
                         std::string(architecture_.name).c_str());
    }
    if (n_further != 0) {
      model_.warnings_.push_back(left_out_blocks(spec(), n_further));
    }
    return ok_status();
  }

  GgufModel& model_;
  const GgufArchitecture& architecture_;
  const TensorTable& table_;
  std::vector<bool> used_;
  std::uint32_t first_block_ = 0;  // whose tensors are those of layer 0
};

// Detects Microsoft's layout by the dead channels of the layers; nothing when no layer is
// conclusive.
Result<std::optional<I2sFlavor>> GgufModel::order_by_dead_channels(
    std::span<const GgufFile::Entry* const> entries, std::span<const I2sTensor> tensors) {
  constexpr std::string_view kDown = ".ffn_down.weight";
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::string name(tensors[i].name);
    if (!name.ends_with(kDown)) continue;
    const std::string norm = name.substr(0, name.size() - kDown.size()) + ".ffn_sub_norm.weight";
    const GgufFile::Entry* gains = file_.find(norm);
    if (gains == nullptr || gains->tensor->n_elements != tensors[i].cols) continue;
    QSF_ASSIGN_OR_RETURN(const std::vector<float> values, read_gguf_vector(file_, *gains));
    const auto read = [this, entry = entries[i]](std::uint64_t offset, MutableByteSpan out) {
      return file_.read(*entry, offset, out);
    };
    QSF_ASSIGN_OR_RETURN(const auto order, i2s_order_by_dead_channels(tensors[i], values, read));
    if (!order) continue;
    if (*order != I2sFlavor::kMicrosoft128) {
      warnings_.push_back("tensors of type I2_S are read as " +
                          std::string(i2s_flavor_name(*order)) + ": the columns of " +
                          shown_gguf_text(name) + " that " + shown_gguf_text(norm) +
                          " has switched off are zeros in that order alone; --i2s-layout ms128 "
                          "reads them as most files have them");
    }
    return order;
  }
  return std::optional<I2sFlavor>();
}

// Tells the flavour of the file's I2_S tensors and makes a decoder of each.
Status GgufModel::open_i2s(I2sLayout layout) {
  std::vector<const GgufFile::Entry*> entries;
  std::vector<const GgufFile::Entry*> siblings;
  std::vector<I2sTensor> tensors;
  for (const GgufFile::Entry& entry : file_.tensors()) {
    const GgufTensor& t = *entry.tensor;
    if (t.type != kGgmlTypeI2S) continue;
    const GgufFile::Entry* sibling = nullptr;
    for (const std::string& name : i2s_scale_names(t.name)) {
      if (sibling == nullptr) sibling = file_.find(name);
    }
    entries.push_back(&entry);
    siblings.push_back(sibling);
    tensors.push_back(
        {.name = t.name,
         .rows = t.n_elements / t.dims[0],
         .cols = t.dims[0],
         .available_bytes = t.available_bytes,
         .ends_file = t.file_offset + t.available_bytes == file_.file(entry.part).size_bytes(),
         .n_sibling_scales = sibling == nullptr ? 0 : sibling->tensor->n_elements});
  }
  if (entries.empty()) return ok_status();
  QSF_ASSIGN_OR_RETURN(const auto file_type, file_.keys().get_unsigned("general.file_type"));
  const I2sFile file = {tensors, file_.keys().alignment(), file_type};
  QSF_ASSIGN_OR_RETURN(std::vector<I2sFlavor> flavors, detect_i2s_flavors(file, layout));
  if (layout == I2sLayout::kAuto && flavors[0] == I2sFlavor::kMicrosoft128) {
    QSF_ASSIGN_OR_RETURN(const auto order, order_by_dead_channels(entries, tensors));
    if (order && *order != flavors[0]) {
      QSF_ASSIGN_OR_RETURN(flavors,
                           detect_i2s_flavors(file, *find_i2s_layout(i2s_flavor_name(*order))));
    }
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    std::vector<float> scales;
    if (flavors[i] == I2sFlavor::kSplit32WithSibling && siblings[i] != nullptr) {
      QSF_ASSIGN_OR_RETURN(scales, read_gguf_vector(file_, *siblings[i]));
      i2s_scales_.push_back(siblings[i]);
    }
    const GgufFile::Entry* entry = entries[i];
    const auto read = [this, entry](std::uint64_t offset, MutableByteSpan out) {
      return file_.read(*entry, offset, out);
    };
    QSF_ASSIGN_OR_RETURN(I2sDecoder decoder,
                         I2sDecoder::open(flavors[i], tensors[i], read, std::move(scales)));
    i2s_.emplace(entry, std::move(decoder));
  }
  return ok_status();
}

Result<std::unique_ptr<GgufModel>> GgufModel::open(const std::string& path, I2sLayout layout,
                                                   FileOps& ops, ModelPart part) {
  QSF_ASSIGN_OR_RETURN(GgufFile file, GgufFile::open(path, ops));
  std::unique_ptr<GgufModel> model(new GgufModel(std::move(file)));
  const auto open = [&]() -> Status {
    QSF_ASSIGN_OR_RETURN(const GgufArchitecture* architecture,
                         find_gguf_architecture(model->file_));
    QSF_ASSIGN_OR_RETURN(model->spec_, gguf_model_spec(model->file_, *architecture));
    // One layer has at least three tensors, so a key cannot make sections without end.
    if (model->spec_.n_layers > model->file_.tensors().size()) {
      return corrupt("GGUF: %zu tensors for %u layers", model->file_.tensors().size(),
                     model->spec_.n_layers);
    }
    QSF_RETURN_IF_ERROR(validate(model->spec_));
    QSF_RETURN_IF_ERROR(model->open_i2s(layout));
    GgufModelMapper mapper(*model, *architecture);
    if (part == ModelPart::kMtpBlock) {
      const std::uint32_t n_layers = model->spec_.n_layers;
      QSF_ASSIGN_OR_RETURN(const auto n_blocks,
                           model->file_.keys().get_unsigned(std::string(architecture->name) +
                                                            ".nextn_predict_layers"));
      QSF_ASSIGN_OR_RETURN(model->spec_,
                           mtp_block_spec(model->spec_, n_blocks.value_or(0) == 0 ? 0 : 1));
      QSF_RETURN_IF_ERROR(mapper.map_block(n_layers));
    } else {
      QSF_RETURN_IF_ERROR(mapper.map());
    }
    model->read_vocabulary();
    QSF_ASSIGN_OR_RETURN(const auto chat,
                         model->file_.keys().get_string("tokenizer.chat_template"));
    if (chat.has_value() && chat->size() > kMaxGgufTemplateBytes) {
      return corrupt("GGUF: tokenizer.chat_template: %zu bytes, expected at most %zu", chat->size(),
                     kMaxGgufTemplateBytes);
    }
    if (part == ModelPart::kModel) model->spec_.chat_template = chat.value_or("");
    return validate(model->spec_);
  };
  Status status = open();
  if (!status.ok()) return std::move(status).with_context(path);
  return model;
}

// Takes special tokens from the tokenizer, which lists the end-of-text tokens. A tokenizer that is
// not read does not keep anyone from looking at the weights.
void GgufModel::read_vocabulary() {
  auto data = tokenizer_from_gguf(file_.keys());
  if (!data) {
    if (data.error().code() != StatusCode::kNotFound) {
      tokenizer_ = std::move(data).error();
    }
    return;
  }
  const std::uint32_t n_vocab = spec_.n_vocab;
  auto dropped = limit_vocabulary(*data, n_vocab);
  if (!dropped) {
    tokenizer_ = std::move(dropped).error();
    return;
  }
  if (!dropped->empty()) {
    warnings_.push_back("the embedding has " + std::to_string(n_vocab) + " rows; " +
                        std::to_string(dropped->size()) +
                        " tokens past them are left out of the tokenizer, the first is " +
                        shown_gguf_text(dropped->front()));
  }
  if (data->bos < n_vocab) spec_.bos_id = data->bos;
  if (data->pad < n_vocab) spec_.pad_id = data->pad;
  spec_.eos_ids.assign(data->stop_ids.begin(), data->stop_ids.end());
  tokenizer_ = std::optional<TokenizerData>(std::move(*data));
}

const GgufModel::Section& GgufModel::section(SectionKind kind, std::uint32_t layer) const noexcept {
  switch (kind) {
    case SectionKind::kEmbedding: return sections_.front();
    case SectionKind::kFinal: return sections_.back();
    case SectionKind::kLayer: break;
  }
  QSF_CHECK(layer < spec().n_layers);
  return sections_[1 + layer];
}

std::span<const SourceTensor> GgufModel::tensors(SectionKind kind,
                                                 std::uint32_t layer) const noexcept {
  return section(kind, layer).tensors;
}

}  // namespace qsf
