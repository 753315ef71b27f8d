// SPDX-License-Identifier: MIT

#include "import/gguf/gguf_adapter.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "format/tensor_rules.h"
#include "import/delta_rows.h"
#include "import/gguf/ggml_types.h"
#include "import/gguf/gguf_arch.h"
#include "import/layer_tensor_name.h"

namespace qsf {
namespace {

// The stored halves of the pair of one tensor of the base.
struct StoredPair {
  const GgufFile::Entry* a = nullptr;
  const GgufFile::Entry* b = nullptr;
};
using StoredPairs = std::map<std::string, StoredPair, std::less<>>;

// A matrix of ours that a tensor of the base holds.
struct GgufTarget {
  TensorKind kind;
  std::uint32_t layer;
  OutputRows outputs;
};

Result<StoredPairs> find_stored_pairs(const GgufFile& file) {
  StoredPairs pairs;
  for (const GgufFile::Entry& entry : file.tensors()) {
    const std::string_view name = entry.tensor->name;
    const bool is_a = name.ends_with(".lora_a");
    if (!is_a && !name.ends_with(".lora_b")) {
      return unsupported("tensor \"%s\": expected a name that ends in .lora_a or .lora_b",
                         shown_gguf_text(name).c_str());
    }
    StoredPair& pair = pairs[std::string(name.substr(0, name.size() - 7))];
    (is_a ? pair.a : pair.b) = &entry;
  }
  return pairs;
}

Status check_key(const GgufReader& keys, const char* key, std::string_view expected) {
  QSF_ASSIGN_OR_RETURN(const auto value, keys.get_string(key));
  if (value == expected) return ok_status();
  return unsupported("GGUF: key \"%s\" is %s, expected \"%s\"", key,
                     value ? shown_gguf_text(*value).c_str() : "missing",
                     std::string(expected).c_str());
}

// Finds the architecture by which the base's GGUF file would be named.
Result<const GgufArchitecture*> find_base_architecture(const GgufReader& keys,
                                                       const ModelSpec& base) {
  QSF_ASSIGN_OR_RETURN(const auto name, keys.get_string("general.architecture"));
  if (!name) return corrupt("GGUF: key \"general.architecture\" is missing");
  // GGUF files of Mistral models say that they are LLaMAs.
  const bool mistral = base.architecture == "mistral" && *name == "llama";
  const std::string_view family = mistral ? std::string_view("llama") : base.architecture;
  if (const GgufArchitecture* found = find_gguf_architecture(*name, family)) return found;
  return invalid_argument("GGUF: an adapter of architecture \"%s\" is not read for a %s",
                          shown_gguf_text(*name).c_str(), base.architecture.c_str());
}

// File name without folders and ".gguf".
std::string file_stem(std::string_view path) {
  path = path.substr(path.rfind('/') + 1);
  if (path.ends_with(".gguf") && path.size() > 5) path.remove_suffix(5);
  return std::string(path.substr(0, kMaxAdapterNameBytes));
}

bool is_attention_part(TensorKind kind) noexcept {
  return kind == TensorKind::kAttnQ || kind == TensorKind::kAttnK || kind == TensorKind::kAttnV;
}

// Finds what a tensor of the base's GGUF file holds.
class GgufTargetSearch {
 public:
  GgufTargetSearch(const ModelSpec& spec, const GgufArchitecture& architecture)
      : spec_(spec), architecture_(architecture) {}

  // Requires  `n_stored` is the number of rows of the tensor
  Result<std::vector<GgufTarget>> find(std::string_view name, std::uint64_t n_stored) const {
    if (name == "output.weight" && !spec_.embeds_only) {
      return std::vector<GgufTarget>{{TensorKind::kHead, 0, plain_rows(spec_.n_vocab)}};
    }
    const auto parsed = parse_layer_tensor_name(name, "blk.");
    if (!parsed) return unsupported("adapters of this tensor are not supported");
    const std::uint32_t layer = parsed->layer;
    if (layer >= spec_.n_layers) {
      return invalid_argument("layer %u, but the model has %u layers", layer, spec_.n_layers);
    }
    std::vector<GgufTarget> targets;
    const TensorTable& table = gguf_tensor_table(architecture_);
    for (const TensorPlace& place : table.places_of(spec_, layer)) {
      if (!is_adaptable(place.kind) || !is_there(place.presence, layer)) continue;
      const std::uint64_t n_rows = tensor_shape(spec_, layer, place.kind).rows;
      if (const auto rows = match(place.kind, layer, n_rows, *parsed, n_stored)) {
        targets.push_back({place.kind, layer, *rows});
      }
    }
    if (!targets.empty()) return targets;
    return unsupported("adapters of this tensor are not supported for a %s",
                       spec_.architecture.c_str());
  }

 private:
  bool is_there(Presence presence, std::uint32_t layer) const noexcept {
    switch (presence) {
      case Presence::kDense: return !spec_.has_experts(layer);
      case Presence::kExperts: return spec_.has_experts(layer);
      case Presence::kShared: return spec_.has_experts(layer) && spec_.shared_ffn != 0;
      case Presence::kOwnKeys:
      case Presence::kOwnValues: return spec_.owns_kv(layer);
      case Presence::kQueryRow: return spec_.latent_query_dim != 0;
      case Presence::kNoQueryRow: return spec_.latent_query_dim == 0;
      default: return true;
    }
  }

  // Returns the rows of a kind in the tensor, if it holds them.
  std::optional<OutputRows> match(TensorKind kind, std::uint32_t layer, std::uint64_t n_rows,
                                  const LayerTensorName& name, std::uint64_t n_stored) const {
    const bool own = gguf_tensor_name(architecture_, kind, layer) ==
                     "blk." + std::to_string(layer) + "." + std::string(name.rest);
    const bool gate_or_up = kind == TensorKind::kFfnGate || kind == TensorKind::kFfnUp;
    if (gate_or_up && spec_.gated_ffn && name.rest == "ffn_up.weight" && n_stored == 2 * n_rows) {
      return part_of_rows(kind == TensorKind::kFfnUp ? n_rows : 0, n_rows, n_stored);
    }
    if (own) return own_rows(kind, n_rows);
    if (name.rest != "attn_qkv.weight" || !is_attention_part(kind) || spec_.has_state()) {
      return std::nullopt;
    }
    const std::uint64_t q = spec_.q_dim();
    const std::uint64_t kv = spec_.kv_dim();
    const std::uint64_t first =
        kind == TensorKind::kAttnQ ? 0 : (kind == TensorKind::kAttnK ? q : q + kv);
    OutputRows rows = part_of_rows(first, n_rows, q + 2 * kv);
    rows.order = order_of(kind);
    return rows;
  }

  OutputRows own_rows(TensorKind kind, std::uint64_t n_rows) const {
    const bool queries = kind == TensorKind::kAttnQ || kind == TensorKind::kAttnGate;
    if (queries && architecture_.gated_queries) {
      return rows_in_runs(gated_query_rows(spec_, kind));
    }
    const bool rates = kind == TensorKind::kDeltaRate || kind == TensorKind::kDeltaStep;
    if (rates && architecture_.rates_by_group) {
      return rows_in_runs(rate_rows_by_group(spec_, kind));
    }
    OutputRows rows = plain_rows(n_rows);
    rows.order = order_of(kind);
    return rows;
  }

  OutputRows::Order order_of(TensorKind kind) const noexcept {
    const bool rotates = kind == TensorKind::kAttnQ || kind == TensorKind::kAttnK;
    if (!rotates) return OutputRows::Order::kRuns;
    if (architecture_.latent) {
      return kind == TensorKind::kAttnQ ? OutputRows::Order::kLatentQuery
                                        : OutputRows::Order::kLatentRow;
    }
    return architecture_.paired_rope ? OutputRows::Order::kPairedRope : OutputRows::Order::kRuns;
  }

  const ModelSpec& spec_;
  const GgufArchitecture& architecture_;
};

std::string lora_dims_text(const GgufTensor& tensor) {
  std::string text = "[";
  for (std::uint32_t i = 0; i < tensor.n_dims; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(tensor.dims[i]);
  }
  return text + "]";
}

Status check_stored(const GgufTensor& tensor, std::uint64_t first, std::uint64_t second) {
  const std::string name = shown_gguf_text(tensor.name);
  if (tensor.dims[0] != first || tensor.dims[1] != second || tensor.dims[2] != 1 ||
      tensor.dims[3] != 1) {
    return invalid_argument("tensor \"%s\": dimensions %s, expected [%llu, %llu] by the model",
                            name.c_str(), lora_dims_text(tensor).c_str(),
                            static_cast<unsigned long long>(first),
                            static_cast<unsigned long long>(second));
  }
  if (can_decode(tensor.type) && tensor.n_bytes != 0) return ok_status();
  return unsupported(
      "tensor \"%s\": values of type %s are not supported; expected F32, F16 or BF16", name.c_str(),
      tensor.type_name);
}

}  // namespace

bool is_gguf_adapter(const GgufFile& file) {
  const auto type = file.keys().get_string("general.type");
  return type && *type == std::string_view("adapter");
}

// Makes pairs of the tensors of a file.
class GgufAdapterMapper {
 public:
  explicit GgufAdapterMapper(GgufAdapter& adapter) : adapter_(adapter) {}

  Status map() {
    const GgufReader& keys = adapter_.file_.keys();
    QSF_RETURN_IF_ERROR(check_key(keys, "general.type", "adapter"));
    QSF_RETURN_IF_ERROR(check_key(keys, "adapter.type", "lora"));
    if (keys.find_key("adapter.alora.invocation_tokens") != nullptr) {
      return unsupported(
          "GGUF: key \"adapter.alora.invocation_tokens\": adapters that tokens turn "
          "on are not supported");
    }
    QSF_ASSIGN_OR_RETURN(const auto alpha, keys.get_float("adapter.lora.alpha"));
    if (!alpha || !(std::fabs(*alpha) <= 1e9)) {
      return corrupt("GGUF: key \"adapter.lora.alpha\": %s, expected a number",
                     alpha ? std::to_string(*alpha).c_str() : "missing");
    }
    alpha_ = *alpha;
    QSF_ASSIGN_OR_RETURN(architecture_, find_base_architecture(keys, adapter_.base_));
    QSF_ASSIGN_OR_RETURN(const StoredPairs pairs, find_stored_pairs(adapter_.file_));
    for (const auto& [name, pair] : pairs) {
      QSF_RETURN_IF_ERROR(map_pair(name, pair));
    }
    sort_pairs();
    const Status valid = validate(adapter_.spec_);
    return valid.ok() ? ok_status() : Status(StatusCode::kCorrupt, valid.message());
  }

 private:
  struct Found {
    AdapterPair pair;
    GgufAdapter::Source source;
  };

  Status map_pair(const std::string& name, const StoredPair& stored) {
    const std::string where = "tensor \"" + shown_gguf_text(name) + "\"";
    if (stored.a == nullptr || stored.b == nullptr) {
      return corrupt("%s has no %s: half of the pair is missing", where.c_str(),
                     stored.a == nullptr ? ".lora_a" : ".lora_b");
    }
    const GgufTensor& a = *stored.a->tensor;
    const GgufTensor& b = *stored.b->tensor;
    const std::uint64_t rank = a.dims[1];
    if (rank > kMaxAdapterRank || b.dims[0] != rank) {
      return corrupt("%s: ranks %llu and %llu, expected equal ones of at most %u", where.c_str(),
                     static_cast<unsigned long long>(rank),
                     static_cast<unsigned long long>(b.dims[0]), kMaxAdapterRank);
    }
    auto targets =
        GgufTargetSearch(adapter_.base_, *architecture_).find(name, stored.b->tensor->dims[1]);
    if (!targets) return std::move(targets).error().with_context(where);
    for (const GgufTarget& target : *targets) {
      const TensorShape shape = tensor_shape(adapter_.base_, target.layer, target.kind);
      QSF_RETURN_IF_ERROR(check_stored(a, shape.cols, rank));
      QSF_RETURN_IF_ERROR(check_stored(b, rank, target.outputs.n_stored));
      const AdapterPair pair = {
          .kind = target.kind,
          .layer = target.layer,
          .rank = static_cast<std::uint32_t>(rank),
          .in = shape.cols,
          .out = shape.rows,
          .scale = alpha_ == 0.0 ? 1.0F : static_cast<float>(alpha_ / static_cast<double>(rank))};
      found_.push_back({pair, {stored.a, stored.b, target.outputs}});
    }
    return ok_status();
  }

  // Hands the pairs over in the order of a file.
  void sort_pairs() {
    std::sort(found_.begin(), found_.end(),
              [](const Found& a, const Found& b) { return comes_before(a.pair, b.pair); });
    for (const Found& found : found_) {
      adapter_.spec_.pairs.push_back(found.pair);
      adapter_.sources_.push_back(found.source);
    }
  }

  GgufAdapter& adapter_;
  const GgufArchitecture* architecture_ = nullptr;
  double alpha_ = 0.0;
  std::vector<Found> found_;
};

Result<GgufAdapter> GgufAdapter::open(const std::string& path, const ModelSpec& base,
                                      FileOps& ops) {
  QSF_ASSIGN_OR_RETURN(GgufFile file, GgufFile::open(path, ops));
  GgufAdapter adapter(base, std::move(file));
  adapter.spec_.name = file_stem(path);
  adapter.spec_.architecture = base.architecture;
  QSF_RETURN_IF_ERROR(GgufAdapterMapper(adapter).map().with_context(path));
  return adapter;
}

// Reads a whole tensor, row behind row.
Status GgufAdapter::read_rows(const GgufFile::Entry& entry, std::span<float> out) const {
  const GgufTensor& tensor = *entry.tensor;
  const std::uint64_t n_cols = tensor.dims[0];
  const std::uint64_t row_bytes = tensor.n_bytes / tensor.dims[1];
  std::vector<std::byte> bytes(tensor.n_bytes);
  QSF_RETURN_IF_ERROR(file_.read(entry, 0, bytes));
  for (std::uint64_t row = 0; row < tensor.dims[1]; ++row) {
    decode_ggml_row(tensor.type, ByteSpan(bytes).subspan(row * row_bytes, row_bytes),
                    out.subspan(row * n_cols, n_cols));
  }
  const auto bad =
      std::find_if(out.begin(), out.end(), [](float value) { return !std::isfinite(value); });
  if (bad == out.end()) return ok_status();
  return corrupt("%s: tensor \"%s\": element %td is not a finite number",
                 file_.file(entry.part).path().c_str(), shown_gguf_text(tensor.name).c_str(),
                 bad - out.begin());
}

Status GgufAdapter::read_pair(std::size_t index, std::span<float> a, std::span<float> b) const {
  QSF_CHECK(index < sources_.size());
  const AdapterPair& pair = spec_.pairs[index];
  const Source& source = sources_[index];
  QSF_CHECK(a.size() == pair.a_values() && b.size() == pair.b_values());
  QSF_RETURN_IF_ERROR(read_rows(*source.a, a));
  std::vector<float> stored(source.outputs.n_stored * pair.rank);
  QSF_RETURN_IF_ERROR(read_rows(*source.b, stored));
  take_outputs(base_, source.outputs, pair.rank, stored, b);
  return ok_status();
}

}  // namespace qsf
