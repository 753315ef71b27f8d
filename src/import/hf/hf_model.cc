// SPDX-License-Identifier: MIT

#include "import/hf/hf_model.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "format/tensor_rules.h"
#include "import/delta_rows.h"
#include "import/hf/hf_stored_kinds.h"
#include "import/hf/hf_tensors.h"
#include "import/layer_tensor_name.h"
#include "quant/block_format.h"

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
         name.ends_with(".attention.bias") || name.ends_with(".attention.masked_bias") ||
         name.ends_with("rotary_emb.inv_freq");
}

// Parts of a model of text, images and sound that are not the language model.
bool is_of_other_inputs(std::string_view name) noexcept {
  constexpr std::string_view kModel = "model.";
  if (name.starts_with(kModel)) name.remove_prefix(kModel.size());
  constexpr std::string_view kParts[] = {"vision_tower.", "vision_model.", "multi_modal_projector.",
                                         "visual.",       "embed_vision.", "audio_tower.",
                                         "embed_audio."};
  return std::any_of(std::begin(kParts), std::end(kParts),
                     [name](std::string_view part) { return name.starts_with(part); });
}

// A head that predicts masked tokens, in files of models that embed texts.
bool is_of_left_head(std::string_view name) noexcept {
  return name.starts_with("head.") || name.starts_with("decoder.") ||
         name.starts_with("cls.predictions.");
}

// The prefix of a whole model's tensors that belong to its language model.
constexpr std::string_view kTextPrefixes[] = {"language_model.model.", "model.language_model."};

// The matrices that are ternary where a model's are.
bool is_layer_matrix(TensorKind kind) noexcept {
  return kind <= TensorKind::kFfnDown;
}
static_assert(static_cast<int>(TensorKind::kAttnQ) == 0 &&
              static_cast<int>(TensorKind::kFfnDown) == 6);

bool is_gate(TensorKind kind) noexcept {
  return kind == TensorKind::kExpertGate || kind == TensorKind::kExpertGateBias;
}

// 0 for queries, 1 for keys, 2 for values.
std::uint64_t qkv_part(TensorKind kind) noexcept {
  if (kind == TensorKind::kAttnK || kind == TensorKind::kAttnKBias) return 1;
  return kind == TensorKind::kAttnV || kind == TensorKind::kAttnVBias ? 2 : 0;
}

}  // namespace

// Finds the tensors of a model under their names and notes where each row comes from.
class HfModelMapper {
 public:
  explicit HfModelMapper(HfModel& model)
      : model_(model),
        table_(hf_tensor_table(model.config_)),
        used_(model.weights_->tensors().size(), false) {}

  Status map() {
    find_prefix();
    model_.sections_.resize(spec().n_layers + 2U);
    QSF_RETURN_IF_ERROR(map_section(model_.sections_.front(), prefix_, table_.embedding));
    if (!table_.added_row.empty()) QSF_RETURN_IF_ERROR(map_added_row());
    layers_ = prefix_ + std::string(table_.layer_prefix);
    for (std::uint32_t layer = 0; layer < spec().n_layers; ++layer) {
      const std::string at = layers_ + std::to_string(layer) + ".";
      QSF_RETURN_IF_ERROR(
          map_section(model_.sections_[1 + layer], at, table_.places_of(spec(), layer), layer));
      if (!spec().has_experts(layer)) continue;
      QSF_RETURN_IF_ERROR(map_experts(model_.sections_[1 + layer], layer, at));
    }
    QSF_RETURN_IF_ERROR(map_section(model_.sections_.back(), prefix_, table_.final));
    QSF_RETURN_IF_ERROR(map_head());
    return check_all_used();
  }

  // The block behind so many layers. Files may leave out its embedding and head, which then are the
  // model's.
  Status map_block(std::uint32_t n_layers) {
    static constexpr TensorPlace kJoining[] = {
        {TensorKind::kMtpProjection, "eh_proj.weight"},
        {TensorKind::kMtpTokenNorm, "enorm.weight"},
        {TensorKind::kMtpHiddenNorm, "hnorm.weight"},
    };
    find_prefix();
    model_.sections_.resize(3);
    layers_ = prefix_ + std::string(table_.layer_prefix);
    const std::string at = layers_ + std::to_string(n_layers) + ".";
    const std::string embedding = at + "embed_tokens.weight";
    const TensorPlace& of_model = table_.embedding.front();
    QSF_RETURN_IF_ERROR(map_tensor(
        model_.sections_.front(), 0,
        is_there(embedding) ? embedding : prefix_ + std::string(of_model.name), of_model));
    HfModel::Section& layer = model_.sections_[1];
    QSF_RETURN_IF_ERROR(map_section(layer, at, kJoining));
    QSF_RETURN_IF_ERROR(map_section(layer, at, table_.places_of(spec(), 0)));
    if (spec().has_experts(0)) QSF_RETURN_IF_ERROR(map_experts(layer, 0, at));
    QSF_RETURN_IF_ERROR(map_tensor(model_.sections_.back(), 0, at + "shared_head.norm.weight",
                                   {TensorKind::kFinalNorm, ""}));
    own_head_ = at + "shared_head.head.weight";
    return map_head();
  }

 private:
  using Place = HfModel::Place;

  ModelSpec& spec() noexcept { return model_.config_.spec; }
  bool is_there(const std::string& name) const { return model_.weights_->find(name) != nullptr; }

  void find_prefix() {
    std::vector<std::string_view> prefixes = {table_.base_prefix};
    if (model_.config_.multimodal || spec().has_delta_rule()) {
      prefixes.insert(prefixes.begin(), std::begin(kTextPrefixes), std::end(kTextPrefixes));
    }
    if (!table_.other_prefix.empty()) prefixes.push_back(table_.other_prefix);
    for (const std::string_view prefix : prefixes) {
      prefix_ = prefix;
      if (is_there(prefix_ + std::string(table_.embedding[0].name))) return;
    }
    prefix_.clear();
  }

  // Finds a tensor and checks its type and shape.
  Result<const StoredTensor*> take(const std::string& name, std::vector<std::uint64_t> shape,
                                   bool packed = false) {
    const StoredTensor* found = model_.weights_->find(name);
    if (found == nullptr) {
      return corrupt("tensor \"%s\" is missing, expected %s", name.c_str(),
                     shape_text(shape).c_str());
    }
    if (found->shape != shape) {
      return corrupt("tensor \"%s\": shape %s, expected %s from config.json", name.c_str(),
                     shape_text(found->shape).c_str(), shape_text(shape).c_str());
    }
    if (!is_weight_type(found->type) && !(packed && found->type == StoredType::kU8)) {
      return unsupported("tensor \"%s\": dtype %s, expected F32, F16 or BF16", name.c_str(),
                         std::string(stored_type_name(found->type)).c_str());
    }
    used_[static_cast<std::size_t>(found - model_.weights_->tensors().data())] = true;
    return found;
  }

  // Requires  layer < n_layers
  bool is_present(Presence presence, std::uint32_t layer) noexcept {
    const HfConfig& config = model_.config_;
    switch (presence) {
      case Presence::kAlways: return true;
      case Presence::kQkvBias: return config.qkv_bias;
      case Presence::kAttnOutBias: return config.attn_out_bias;
      case Presence::kFfnBias: return config.ffn_bias;
      case Presence::kHeadNorms: return config.head_norms;
      case Presence::kMixerBias: return config.mixer_bias;
      case Presence::kConvBias: return config.conv_bias;
      case Presence::kScanNorm: return config.scan_norm;
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
      case Presence::kRouterCorrection:
        return spec().has_experts(layer) && config.router_correction;
      case Presence::kShared: return spec().has_experts(layer) && spec().shared_ffn != 0;
      case Presence::kQueryRow: return spec().latent_query_dim != 0;
      case Presence::kNoQueryRow: return spec().latent_query_dim == 0;
    }
    return false;
  }

  Status map_section(HfModel::Section& to, const std::string& prefix,
                     std::span<const TensorPlace> places, std::uint32_t layer = 0) {
    for (const TensorPlace& place : places) {
      if (!is_present(place.presence, layer)) continue;
      std::string at = place.of_all_layers ? prefix_ : prefix;
      if (place.of_layer_before) {
        at = layers_ + std::to_string((layer == 0 ? spec().n_layers : layer) - 1) + ".";
      }
      const std::uint32_t n = is_of_stream(place.kind) ? spec().n_streams - 1 : 1;
      for (std::uint32_t i = 0; i < n; ++i) {
        QSF_RETURN_IF_ERROR(map_tensor(to, layer, numbered(at, place.name, i), place, i));
      }
    }
    return ok_status();
  }

  // Finds the row that is added to those of the embedding.
  Status map_added_row() {
    const std::string name = prefix_ + std::string(table_.added_row);
    const StoredTensor* found = model_.weights_->find(name);
    const bool has_rows = found != nullptr && found->shape.size() == 2 && found->shape[0] != 0;
    const std::uint64_t n_rows = has_rows ? found->shape[0] : 1;
    QSF_ASSIGN_OR_RETURN(found, take(name, {n_rows, spec().hidden}));
    model_.added_row_.resize(spec().hidden);
    model_.sections_.front().places[0].adds_row = true;
    return model_.weights_->read(*found, 0, model_.added_row_);
  }

  // The name with its number in place of a '*'.
  static std::string numbered(const std::string& prefix, std::string_view name, std::uint32_t i) {
    std::string text = prefix + std::string(name);
    const std::size_t star = text.find('*');
    if (star != std::string::npos) text.replace(star, 1, std::to_string(i));
    return text;
  }

  // Maps the tensors of every expert, one expert behind the other.
  Status map_experts(HfModel::Section& to, std::uint32_t layer, const std::string& prefix) {
    const bool stacked = !table_.stacked_experts.empty() &&
                         is_there(prefix + std::string(table_.stacked_experts[0].name));
    const std::span<const TensorPlace> places = stacked ? table_.stacked_experts : table_.experts;
    for (std::uint32_t expert = 0; expert < spec().n_experts; ++expert) {
      for (const TensorPlace& place : places) {
        QSF_RETURN_IF_ERROR(
            map_tensor(to, layer, numbered(prefix, place.name, expert), place, expert));
      }
    }
    return ok_status();
  }

  Status map_tensor(HfModel::Section& to, std::uint32_t layer, const std::string& name,
                    const TensorPlace& place, std::uint32_t expert = 0) {
    const TensorShape shape = place_shape(spec(), layer, place);
    const bool vector = shape.rows == 1 && is_vector(place.kind);
    const std::uint64_t n_outputs = vector ? shape.cols : shape.rows;
    Place at = locate(place, n_outputs, shape.cols, expert);
    if (place.of_all_layers && !vector && !is_of_stream(place.kind)) {
      at.n_stored = std::uint64_t{spec().n_layers} * n_outputs;
      at.first = layer * n_outputs;
    }
    std::vector<std::uint64_t> stored = stored_shape(place.storage, at, vector, shape.cols);
    if (place.storage == Storage::kFlat) {
      const bool router = place.kind == TensorKind::kStreamRouter;
      const std::uint64_t n_cols = router ? spec().hidden : spec().n_streams;
      stored = {n_outputs / n_cols, n_cols};
    }
    if (place.storage == Storage::kConvTaps) {
      stored = {spec().conv_channels(), 1, spec().conv_taps};
    }
    if (place.storage == Storage::kMxfp4 || place.storage == Storage::kMxfp4Pairs) {
      QSF_RETURN_IF_ERROR(map_mxfp4(name, shape.cols, at));
    } else if (model_.config_.ternary != TernaryStorage::kNone && is_layer_matrix(place.kind)) {
      if (place.storage != Storage::kPlain) {
        return unsupported("tensor \"%s\": ternary weights that are stored fused or transposed",
                           name.c_str());
      }
      QSF_RETURN_IF_ERROR(map_ternary(name, shape, at));
    } else {
      QSF_ASSIGN_OR_RETURN(at.stored, take(name, std::move(stored)));
    }
    to.tensors.push_back(
        {place.kind, shape.rows, shape.cols, name,
         at.scales != nullptr ? "MXFP4" : std::string(stored_type_name(at.stored->type)),
         static_cast<std::uint16_t>(expert)});
    to.places.push_back(at);
    return ok_status();
  }

  // Returns the shape of the stored tensor.
  std::vector<std::uint64_t> stored_shape(Storage storage, const Place& at, bool vector,
                                          std::uint64_t n_inputs) {
    const std::uint64_t n_experts = spec().n_experts;
    switch (storage) {
      case Storage::kStacked:
      case Storage::kStackedGateUp:
      case Storage::kStackedPairs: {
        std::vector<std::uint64_t> shape = {n_experts, at.n_stored / n_experts};
        if (!vector) shape.push_back(n_inputs);
        return shape;
      }
      case Storage::kStackedTransposed:
      case Storage::kStackedTransposedPairs:
      case Storage::kStackedTransposedGateUp: return {n_experts, n_inputs, at.n_stored};
      case Storage::kPairedRopeOfHeads: return {at.n_stored / spec().head_dim, spec().head_dim};
      case Storage::kLatentKeys: return {spec().n_heads * latent_rows_of_head(), spec().latent_dim};
      default: break;
    }
    if (vector) return {at.n_stored};
    return at.transposed ? std::vector<std::uint64_t>{n_inputs, at.n_stored}
                         : std::vector<std::uint64_t>{at.n_stored, n_inputs};
  }

  // Finds the blocks and scales of MXFP4 matrices.
  Status map_mxfp4(const std::string& name, std::uint32_t n_inputs, Place& at) {
    constexpr std::uint64_t kColumns = fixed_block(QuantType::kMxfp4);
    if (n_inputs % kColumns != 0) {
      return unsupported("tensor \"%s\": MXFP4 with %u inputs, expected a multiple of 32",
                         name.c_str(), n_inputs);
    }
    const std::uint64_t n_experts = spec().n_experts;
    const std::string scales = name.substr(0, name.rfind('_')) + "_scales";
    const std::vector<std::uint64_t> shape = {n_experts, at.n_stored / n_experts,
                                              n_inputs / kColumns};
    QSF_ASSIGN_OR_RETURN(at.stored, take(name, {shape[0], shape[1], shape[2], 16}, true));
    QSF_ASSIGN_OR_RETURN(at.scales, take(scales, shape, true));
    for (const StoredTensor* tensor : {at.stored, at.scales}) {
      if (tensor->type == StoredType::kU8) continue;
      return unsupported("tensor \"%s\": dtype %s, expected U8 in MXFP4", tensor->name.c_str(),
                         std::string(stored_type_name(tensor->type)).c_str());
    }
    return ok_status();
  }

  // Finds a ternary matrix, its scale, and how it is stored.
  Status map_ternary(const std::string& name, TensorShape shape, Place& at) {
    if (model_.config_.ternary == TernaryStorage::kMasters) {
      at.ternary = Place::Ternary::kMasters;
      QSF_ASSIGN_OR_RETURN(at.stored, take(name, {shape.rows, shape.cols}));
      QSF_ASSIGN_OR_RETURN(at.scale, mean_magnitude(*at.stored));
      return ok_status();
    }
    const StoredTensor* found = model_.weights_->find(name);
    at.ternary = Place::Ternary::kPlain;
    if (found == nullptr || found->type == StoredType::kU8) {
      if (shape.rows % 4 != 0) {
        return unsupported("tensor \"%s\": %u rows, expected a multiple of 4 in packed bytes",
                           name.c_str(), shape.rows);
      }
      at.ternary = Place::Ternary::kPacked;
      at.n_stored = shape.rows / 4;
      at.run = at.n_stored;  // step 0: the same bytes once more
    }
    QSF_ASSIGN_OR_RETURN(at.stored, take(name, {at.n_stored, shape.cols}, true));
    const std::string scale_name = name + "_scale";
    QSF_ASSIGN_OR_RETURN(const StoredTensor* scale, take(scale_name, {1}));
    QSF_RETURN_IF_ERROR(model_.weights_->read(*scale, 0, {&at.scale, 1}));
    if (model_.config_.ternary == TernaryStorage::kOverScale) at.scale = 1.0F / at.scale;
    if (at.scale > 0.0F && std::isfinite(at.scale)) return ok_status();
    return corrupt("tensor \"%s\": expected a number above 0", scale_name.c_str());
  }

  // Of all weights, at least 1e-5.
  Result<float> mean_magnitude(const StoredTensor& tensor) {
    constexpr std::uint64_t kChunk = 1U << 18;
    std::vector<float> values(std::min(kChunk, tensor.elements));
    double sum = 0.0;
    for (std::uint64_t first = 0; first < tensor.elements; first += kChunk) {
      const std::span<float> part =
          std::span(values).first(std::min(kChunk, tensor.elements - first));
      QSF_RETURN_IF_ERROR(model_.weights_->read(tensor, first, part));
      for (const float value : part) sum += std::fabs(value);
    }
    const auto mean = static_cast<float>(sum / static_cast<double>(tensor.elements));
    return std::max(mean, 1e-5F);
  }

  // Of the tensor that has keys and values.
  std::uint64_t latent_rows_of_head() noexcept {
    return std::uint64_t{spec().latent_key_dim} + spec().latent_value_dim;
  }

  // Returns the place of `n_outputs` outputs of `n_inputs` of a kind in the stored tensor.
  Place locate(const TensorPlace& place, std::uint64_t n_outputs, std::uint64_t n_inputs,
               std::uint32_t expert) noexcept {
    const std::uint64_t q = spec().q_dim();
    const std::uint64_t kv = spec().kv_dim();
    const std::uint64_t part = qkv_part(place.kind);
    Place at{.n_stored = n_outputs, .run = n_outputs};
    switch (place.storage) {
      case Storage::kPlain:
      case Storage::kFlat: break;
      case Storage::kTransposed: at.transposed = true; break;
      case Storage::kLessOne: at.less_one = true; break;
      case Storage::kBehindTwoRows:
        at.n_stored = n_outputs + 2;
        at.first = 2;
        break;
      case Storage::kFusedQkvTransposed: at.transposed = true; [[fallthrough]];
      case Storage::kFusedQkv:
        at.n_stored = q + 2 * kv;
        at.first = part == 0 ? 0 : q + (part - 1) * kv;
        break;
      case Storage::kFusedQkvByGroup: locate_by_kv_group(part, at); break;
      case Storage::kPairedRope:
      case Storage::kPairedRopeOfHeads: at.order = Place::Order::kPairedRope; break;
      case Storage::kLatentQuery: at.order = Place::Order::kLatentQuery; break;
      case Storage::kLatentRow: at.order = Place::Order::kLatentRow; break;
      case Storage::kLatentKeys:
        at.transposed = true;
        at.n_stored = at.run = spec().latent_dim;
        at.step = latent_rows_of_head() * spec().latent_dim;
        break;
      case Storage::kLatentValues:
        at.n_stored = spec().n_heads * latent_rows_of_head();
        at.first = spec().latent_key_dim;
        at.run = spec().latent_value_dim;
        at.step = latent_rows_of_head();
        break;
      case Storage::kConvTaps: at.n_taps = spec().conv_taps; break;
      case Storage::kDecayLog: at.decay_log = true; break;
      case Storage::kGatedQueries: take_runs(gated_query_rows(spec(), place.kind), at); break;
      case Storage::kByKeyGroup: locate_by_key_group(place.kind, at); break;
      case Storage::kFusedGateUp:
        at.n_stored = 2 * n_outputs;
        at.first =
            place.kind == TensorKind::kFfnUp || place.kind == TensorKind::kSharedUp ? n_outputs : 0;
        break;
      case Storage::kMxfp4:
      case Storage::kStacked:
        at.n_stored = spec().n_experts * n_outputs;
        at.first = expert * n_outputs;
        break;
      case Storage::kStackedTransposed:
        at.transposed = true;
        at.n_stored = n_outputs;
        at.first = expert * n_inputs * n_outputs;
        break;
      case Storage::kStackedTransposedPairs: at.stride = 2; [[fallthrough]];
      case Storage::kStackedTransposedGateUp: {
        const std::uint64_t of_up = at.stride == 2 ? 1 : n_outputs;
        at.transposed = true;
        at.n_stored = 2 * n_outputs;
        at.first = expert * n_inputs * 2 * n_outputs + (is_gate(place.kind) ? 0 : of_up);
        break;
      }
      case Storage::kMxfp4Pairs:
      case Storage::kStackedPairs:
        at.n_stored = spec().n_experts * 2 * n_outputs;
        at.first = expert * 2 * n_outputs + (is_gate(place.kind) ? 0 : 1);
        at.stride = 2;
        break;
      case Storage::kStackedGateUp:
        at.n_stored = spec().n_experts * 2 * n_outputs;
        at.first = (2 * expert + (place.kind == TensorKind::kExpertGate ? 0U : 1U)) * n_outputs;
        break;
    }
    return at;
  }

  // Queries, keys and values, which are stored in turn by KV head: parts 0, 1 and 2.
  void locate_by_kv_group(std::uint64_t part, Place& at) noexcept {
    const std::uint64_t q_run = spec().q_dim() / spec().n_kv_heads;
    const std::uint64_t kv_run = spec().head_dim;
    at.n_stored = spec().q_dim() + 2 * spec().kv_dim();
    at.run = part == 0 ? q_run : kv_run;
    at.first = part == 0 ? 0 : q_run + (part - 1) * kv_run;
    at.step = q_run + 2 * kv_run;
  }

  // Inputs of a delta rule, which are stored in turn by group of keys.
  void locate_by_key_group(TensorKind kind, Place& at) noexcept {
    const bool rates = kind == TensorKind::kDeltaRate || kind == TensorKind::kDeltaStep;
    take_runs(rates ? rate_rows_by_group(spec(), kind) : gate_rows_by_group(spec()), at);
    if (kind == TensorKind::kMixerIn) at.order = Place::Order::kKeyGroups;
  }

  static void take_runs(const RowRuns& rows, Place& at) noexcept {
    at.n_stored = rows.n_stored;
    at.first = rows.first;
    at.run = rows.run;
    at.step = rows.step;
  }

  Status map_head() {
    QSF_RETURN_IF_ERROR(map_head_weight());
    if (!table_.head_bias && !model_.config_.head_bias) return ok_status();
    return map_tensor(model_.sections_.back(), 0, "lm_head.bias", {TensorKind::kHeadBias, ""});
  }

  std::string head_name() const {
    if (!own_head_.empty() && is_there(own_head_)) return own_head_;
    const std::string name(table_.head);
    for (const std::string& other : {"language_model." + name, std::string("lm_head.weight")}) {
      if (!is_there(name) && is_there(other)) return other;
    }
    return name;
  }

  // A head that equals the embedding is stored once, as a tied head, regardless of config.json. In
  // a model of text and images its two parts may disagree about that, and the weights decide.
  Status map_head_weight() {
    const std::string name = head_name();
    const ModelSpec& s = spec();
    if (s.embeds_only) return ok_status();
    // Files of models that embed texts may leave the head out, whatever config.json says.
    if (s.pooling.has_value() && !s.tied_head && !is_there(name)) {
      spec().embeds_only = spec().tied_head = true;
      return ok_status();
    }
    if (model_.config_.multimodal) spec().tied_head = !is_there(name);
    if (s.tied_head && !is_there(name)) return ok_status();
    auto head = take(name, {s.n_vocab, s.hidden});
    if (!head) {
      Status status = std::move(head).error();
      if (is_there(name)) return status;
      return corrupt(
          "%s; if the head is the embedding, config.json must say tie_word_embeddings: "
          "true",
          status.message().c_str());
    }
    const StoredTensor& embedding = *model_.sections_.front().places[0].stored;
    QSF_ASSIGN_OR_RETURN(const bool equal, equal_weights(**head, embedding));
    if (s.tied_head && !equal) {
      return corrupt(
          "tensor \"%s\" differs from the embedding, but config.json says "
          "tie_word_embeddings: true; set it to false if the head is meant",
          name.c_str());
    }
    spec().tied_head = equal && !model_.config_.factors.contains(TensorKind::kHead);
    if (spec().tied_head) return ok_status();
    return map_tensor(model_.sections_.back(), 0, name, {TensorKind::kHead, ""});
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

  // Returns whether the tensor belongs to a block behind the layers.
  bool is_of_further_tokens(std::string_view name) {
    if (spec().has_state() && (name.starts_with("mtp.") || name.starts_with("model.mtp."))) {
      return true;
    }
    const auto found = parse_layer_tensor_name(name, layers_);
    return found.has_value() && found->layer >= spec().n_layers &&
           found->layer - spec().n_layers < model_.config_.n_mtp_layers;
  }

  // Published files keep the keys and values of layers that attend to those of an earlier one.
  bool is_of_shared_keys(std::string_view name) {
    const auto found = parse_layer_tensor_name(name, layers_);
    if (!found || found->layer >= spec().n_layers || spec().owns_kv(found->layer)) return false;
    const std::span<const TensorPlace> places = table_.places_of(spec(), found->layer);
    return std::any_of(places.begin(), places.end(), [&found](const TensorPlace& place) {
      return is_of_own_keys(place.presence) && place.name == found->rest;
    });
  }

  // Some files of Cohere 2 have biases of zeros, which its layers do not have.
  Result<bool> is_zero_bias(const StoredTensor& tensor) {
    if (spec().architecture != "cohere2" || !tensor.name.ends_with(".bias") ||
        tensor.elements > std::max(spec().ffn, spec().q_dim()) || !is_weight_type(tensor.type)) {
      return false;
    }
    std::vector<float> values(tensor.elements);
    QSF_RETURN_IF_ERROR(model_.weights_->read(tensor, 0, values));
    return std::all_of(values.begin(), values.end(), [](float value) { return value == 0.0F; });
  }

  Status check_all_used() {
    std::size_t of_images = 0;
    std::size_t of_further_tokens = 0;
    std::size_t of_head = 0;
    for (std::size_t i = 0; i < used_.size(); ++i) {
      const StoredTensor& tensor = model_.weights_->tensors()[i];
      if (used_[i] || is_ignored(tensor.name)) continue;
      if (model_.config_.multimodal && is_of_other_inputs(tensor.name)) {
        ++of_images;
        continue;
      }
      if (is_of_further_tokens(tensor.name)) {
        ++of_further_tokens;
        continue;
      }
      if (is_of_shared_keys(tensor.name)) continue;
      if (spec().embeds_only && is_of_left_head(tensor.name)) {
        ++of_head;
        continue;
      }
      QSF_ASSIGN_OR_RETURN(const bool zero_bias, is_zero_bias(tensor));
      if (zero_bias) continue;
      return corrupt("tensor \"%s\" %s is unexpected: a %s of this configuration has none",
                     tensor.name.c_str(), shape_text(tensor.shape).c_str(),
                     spec().architecture.c_str());
    }
    warn_of_skipped(of_images, "of images or sound: this version reads the text model alone");
    if (of_further_tokens != 0) {
      model_.config_.warnings.push_back(left_out_blocks(spec(), of_further_tokens));
    }
    warn_of_skipped(of_head, "of a head that predicts masked tokens");
    return ok_status();
  }

  void warn_of_skipped(std::size_t n, const char* what) {
    if (n == 0) return;
    model_.config_.warnings.push_back("left out " + std::to_string(n) + " tensors " + what);
  }

  HfModel& model_;
  const TensorTable& table_;
  std::vector<bool> used_;
  std::string prefix_;
  std::string layers_;    // what names of tensors of layers have before the layer's number
  std::string own_head_;  // of a block, in files that have it
};

Result<std::unique_ptr<HfModel>> HfModel::open(const std::string& folder, FileOps& ops,
                                               ModelPart part) {
  QSF_ASSIGN_OR_RETURN(HfConfig config, read_hf_config(folder, ops));
  QSF_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> weights, open_checkpoint(folder, ops));
  // One layer has at least three tensors, so a configuration cannot make sections without end.
  if (config.spec.n_layers > weights->tensors().size()) {
    return corrupt("%s: %zu tensors for %u layers; the weights do not belong to config.json",
                   folder.c_str(), weights->tensors().size(), config.spec.n_layers);
  }
  const std::uint32_t n_layers = config.spec.n_layers;
  if (part == ModelPart::kMtpBlock) {
    auto block = mtp_block_spec(config.spec, config.n_mtp_layers);
    if (!block) return std::move(block).error().with_context(folder);
    config.spec = std::move(*block);
  }
  std::unique_ptr<HfModel> model(new HfModel(folder, std::move(config), std::move(weights)));
  HfModelMapper mapper(*model);
  Status mapped = part == ModelPart::kMtpBlock ? mapper.map_block(n_layers) : mapper.map();
  QSF_RETURN_IF_ERROR(std::move(mapped).with_context(folder));
  QSF_RETURN_IF_ERROR(model->map_dense(ops));
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

}  // namespace qsf
