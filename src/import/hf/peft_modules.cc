// SPDX-License-Identifier: MIT

#include "import/hf/peft_modules.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <span>
#include <system_error>

#include "format/adapter_spec.h"
#include "format/tensor_rules.h"
#include "import/delta_rows.h"
#include "import/hf/hf_tensors.h"
#include "import/layer_tensor_name.h"

namespace qsf {
namespace {

constexpr std::string_view kWeightSuffix = ".weight";

// Parts of tensor names that say what else an adapter has trained.
struct ForeignPart {
  std::string_view part;
  const char* what;
};
constexpr ForeignPart kForeignParts[] = {
    {".lora_embedding_", "LoRA of embeddings"},
    {".lora_magnitude_vector", "DoRA"},
    {".lora_B.bias", "biases of LoRA"},
    {".modules_to_save", "modules that were trained whole"},
    {".original_module", "modules that were trained whole"},
    {".trainable_tokens", "single tokens that were trained"},
    {".lora_diag", "KaSA"},
};

std::string shown_name(std::string_view name) {
  std::string shown(name.substr(0, 256));
  for (char& c : shown) {
    if (c < ' ' || c > '~') c = '?';
  }
  return shown;
}

// Where the base model's tensors may begin, in models of text and in those of images as well.
std::vector<std::string> layer_prefixes(const TensorTable& table) {
  std::vector<std::string> prefixes;
  for (const std::string_view base :
       {table.base_prefix, table.other_prefix, std::string_view(),
        std::string_view("language_model.model."), std::string_view("model.language_model.")}) {
    prefixes.push_back(std::string(base) + std::string(table.layer_prefix));
  }
  return prefixes;
}

// Whether a layer has the matrix, by the spec.
bool has_matrix(const ModelSpec& spec, std::uint32_t layer, Presence presence) noexcept {
  switch (presence) {
    case Presence::kSequential: return !spec.parallel_block;
    case Presence::kBehindFirst: return layer != 0;
    case Presence::kOwnKeys: return spec.owns_kv(layer);
    case Presence::kOwnValues:
      return spec.owns_kv(layer) && !spec.attention_of(layer).values_are_keys;
    case Presence::kDense: return !spec.has_experts(layer);
    case Presence::kExperts: return spec.has_experts(layer);
    case Presence::kShared: return spec.has_experts(layer) && spec.shared_ffn != 0;
    case Presence::kQueryRow: return spec.latent_query_dim != 0;
    case Presence::kNoQueryRow: return spec.latent_query_dim == 0;
    default: return true;
  }
}

// 0 for queries, 1 for keys, 2 for values.
std::uint64_t part_of_qkv(TensorKind kind) noexcept {
  if (kind == TensorKind::kAttnK) return 1;
  return kind == TensorKind::kAttnV ? 2 : 0;
}

// Queries, keys and values of each KV head in turn.
OutputRows rows_by_kv_group(const ModelSpec& spec, std::uint64_t part) noexcept {
  const std::uint64_t q_run = spec.q_dim() / spec.n_kv_heads;
  const std::uint64_t kv_run = spec.head_dim;
  return {.n_stored = spec.q_dim() + std::uint64_t{2} * spec.kv_dim(),
          .first = part == 0 ? 0 : q_run + (part - 1) * kv_run,
          .run = part == 0 ? q_run : kv_run,
          .step = q_run + 2 * kv_run};
}

OutputRows rows_by_key_group(const ModelSpec& spec, TensorKind kind) noexcept {
  if (kind == TensorKind::kDeltaRate || kind == TensorKind::kDeltaStep) {
    return rows_in_runs(rate_rows_by_group(spec, kind));
  }
  OutputRows rows = rows_in_runs(gate_rows_by_group(spec));
  if (kind == TensorKind::kMixerIn) rows.order = OutputRows::Order::kKeyGroups;
  return rows;
}

// Returns where the rows of a matrix are stored; nothing for storage that adapters are not read
// from. Transposed weights have plain pairs: A takes inputs and B gives outputs in every module.
std::optional<OutputRows> find_rows(const ModelSpec& spec, const TensorPlace& place,
                                    std::uint64_t n_rows) noexcept {
  const std::uint64_t part = part_of_qkv(place.kind);
  const bool up = place.kind == TensorKind::kFfnUp || place.kind == TensorKind::kSharedUp;
  OutputRows rows = plain_rows(n_rows);
  switch (place.storage) {
    case Storage::kPlain:
    case Storage::kTransposed: return rows;
    case Storage::kPairedRope: rows.order = OutputRows::Order::kPairedRope; return rows;
    case Storage::kLatentQuery: rows.order = OutputRows::Order::kLatentQuery; return rows;
    case Storage::kLatentRow: rows.order = OutputRows::Order::kLatentRow; return rows;
    case Storage::kFusedQkv:
    case Storage::kFusedQkvTransposed:
      return part_of_rows(part == 0 ? 0 : spec.q_dim() + (part - 1) * spec.kv_dim(), n_rows,
                          spec.q_dim() + std::uint64_t{2} * spec.kv_dim());
    case Storage::kFusedQkvByGroup: return rows_by_kv_group(spec, part);
    case Storage::kFusedGateUp: return part_of_rows(up ? n_rows : 0, n_rows, 2 * n_rows);
    case Storage::kGatedQueries: return rows_in_runs(gated_query_rows(spec, place.kind));
    case Storage::kByKeyGroup: return rows_by_key_group(spec, place.kind);
    default: return std::nullopt;
  }
}

// Takes the number in place of a '*' out of a name; nothing where they differ otherwise.
std::optional<std::uint32_t> match_numbered(std::string_view name, std::string_view pattern) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return std::nullopt;
  const std::string_view behind = pattern.substr(star + 1);
  if (!name.starts_with(pattern.substr(0, star)) || !name.ends_with(behind) ||
      name.size() < star + behind.size()) {
    return std::nullopt;
  }
  const std::string_view digits = name.substr(star, name.size() - star - behind.size());
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  if (digits.size() > 1 && digits[0] == '0') return std::nullopt;
  return number;
}

// What a table has of a module.
struct Search {
  std::vector<AdapterTarget> targets;
  bool known = false;  // the name is in the table, whether or not the layer has the matrix
};

// Looks for the module "layers.LAYER.REST".
class LayerSearch {
 public:
  LayerSearch(const ModelSpec& spec, std::uint32_t layer, std::string_view rest)
      : spec_(spec), layer_(layer), name_(std::string(rest) + std::string(kWeightSuffix)) {}

  Result<Search> run(const TensorTable& table) {
    for (const TensorPlace& place : table.places_of(spec_, layer_)) {
      if (place.name == name_) QSF_RETURN_IF_ERROR(take(place, 0));
    }
    for (const TensorPlace& place : table.experts) {
      const auto expert = match_numbered(name_, place.name);
      if (!expert) continue;
      if (!spec_.has_experts(layer_) || *expert >= spec_.n_experts) {
        return invalid_argument("layer %u has %u experts, and none with the number %u", layer_,
                                spec_.has_experts(layer_) ? spec_.n_experts : 0, *expert);
      }
      QSF_RETURN_IF_ERROR(take(place, *expert));
    }
    // A name may stand for matrices of which a layer has one or the other.
    if (absent_ && found_.targets.empty()) {
      return invalid_argument("layer %u of the model has no such matrix", layer_);
    }
    return std::move(found_);
  }

 private:
  Status take(const TensorPlace& place, std::uint32_t expert) {
    if (!is_adaptable(place.kind)) return ok_status();
    found_.known = true;
    if (!has_matrix(spec_, layer_, place.presence)) {
      // Published models have keys and values in layers that do not use them.
      absent_ = absent_ || !is_of_own_keys(place.presence);
      return ok_status();
    }
    const TensorShape shape = tensor_shape(spec_, layer_, place.kind);
    const auto rows = find_rows(spec_, place, shape.rows);
    if (!rows) {
      return unsupported("adapters of %s, as this module stores it, are not supported",
                         std::string(tensor_kind_name(place.kind)).c_str());
    }
    found_.targets.push_back({place.kind, layer_, expert, shape.rows, shape.cols, *rows});
    return ok_status();
  }

  const ModelSpec& spec_;
  std::uint32_t layer_;
  std::string name_;
  Search found_;
  bool absent_ = false;  // a matrix of that name
};

// Returns the tables that a model's modules may be named by. Those of a Granite 4 without states
// have the architecture of a Granite 3.
std::vector<const TensorTable*> tables_of(const ModelSpec& spec) {
  std::vector<const TensorTable*> tables;
  if (const TensorTable* table = find_tensor_table(spec.architecture)) tables.push_back(table);
  if (spec.architecture == "granite") tables.push_back(find_tensor_table("granite4"));
  return tables;
}

std::string list_modules(const ModelSpec& spec, const TensorTable& table, std::uint32_t layer) {
  std::string names;
  std::string_view last;
  for (const TensorPlace& place : table.places_of(spec, layer)) {
    if (!is_adaptable(place.kind) || place.name == last) continue;
    if (!has_matrix(spec, layer, place.presence)) continue;
    last = place.name;
    if (!names.empty()) names += ", ";
    names += place.name.substr(0, place.name.size() - kWeightSuffix.size());
  }
  return names;
}

// Whether a module is the output head.
bool is_head(const TensorTable& table, std::string_view module) noexcept {
  constexpr std::string_view kText = "language_model.";
  if (module.starts_with(kText)) module.remove_prefix(kText.size());
  return module == "lm_head" ||
         module == table.head.substr(0, table.head.size() - kWeightSuffix.size());
}

Result<std::vector<AdapterTarget>> find_in_layers(const ModelSpec& spec,
                                                  std::span<const TensorTable* const> tables,
                                                  std::string_view module) {
  for (const std::string& prefix : layer_prefixes(*tables.front())) {
    const auto parsed = parse_layer_tensor_name(module, prefix);
    if (!parsed) continue;
    if (parsed->layer >= spec.n_layers) {
      return invalid_argument("layer %u, but the model has %u layers", parsed->layer,
                              spec.n_layers);
    }
    for (const TensorTable* table : tables) {
      QSF_ASSIGN_OR_RETURN(Search found,
                           LayerSearch(spec, parsed->layer, parsed->rest).run(*table));
      if (found.known) return std::move(found.targets);
    }
    return unsupported("adapters of this module are not supported; expected one of %s",
                       list_modules(spec, *tables.front(), parsed->layer).c_str());
  }
  return unsupported("adapters of modules outside the layers are not supported, but for the head");
}

}  // namespace

Result<PeftTensorName> parse_peft_tensor_name(std::string_view name) {
  for (const ForeignPart& foreign : kForeignParts) {
    if (name.find(foreign.part) == std::string_view::npos) continue;
    return unsupported("tensor \"%s\": %s: not supported", shown_name(name).c_str(), foreign.what);
  }
  std::string_view module = name;
  constexpr std::string_view kBase = "base_model.model.";
  if (module.starts_with(kBase)) module.remove_prefix(kBase.size());
  for (const bool is_a : {true, false}) {
    const std::string_view half = is_a ? ".lora_A." : ".lora_B.";
    const std::size_t at = module.rfind(half);
    if (at == std::string_view::npos || at == 0) continue;
    // Behind it "weight", or the adapter's name and "weight".
    const std::string_view rest = module.substr(at + half.size());
    const std::size_t point = rest.find('.');
    const std::string_view last = point == std::string_view::npos ? rest : rest.substr(point + 1);
    if (last != "weight" || point == 0) continue;
    return PeftTensorName{module.substr(0, at), is_a};
  }
  return unsupported("tensor \"%s\": expected a name that ends in .lora_A.weight or .lora_B.weight",
                     shown_name(name).c_str());
}

Result<std::vector<AdapterTarget>> find_peft_targets(const ModelSpec& base,
                                                     std::string_view module) {
  const std::vector<const TensorTable*> tables = tables_of(base);
  const std::string where = "module \"" + shown_name(module) + "\"";
  // Its multipliers are part of the weights here, and would have to be of the pairs.
  if (tables.empty() || base.architecture == "falcon-h1") {
    return unsupported("PEFT adapters of a %s are not supported", base.architecture.c_str());
  }
  if (is_head(*tables.front(), module)) {
    if (base.embeds_only) {
      return invalid_argument("%s: the model embeds texts and has no head", where.c_str());
    }
    return std::vector<AdapterTarget>{
        {TensorKind::kHead, 0, 0, base.n_vocab, base.hidden, plain_rows(base.n_vocab)}};
  }
  auto found = find_in_layers(base, tables, module);
  if (!found) return std::move(found).error().with_context(where);
  return found;
}

}  // namespace qsf
