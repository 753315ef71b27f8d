// SPDX-License-Identifier: MIT

#include "import/hf/peft_adapter.h"

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "base/check.h"
#include "io/file.h"

namespace qsf {
namespace {

constexpr std::uint64_t kMaxPeftConfigBytes = 16U << 20;

// The stored halves of one module.
struct Halves {
  const StoredTensor* a = nullptr;
  const StoredTensor* b = nullptr;
};
using Modules = std::map<std::string, Halves, std::less<>>;

Result<Modules> find_halves(const SafetensorsModel& weights) {
  Modules modules;
  for (const StoredTensor& tensor : weights.tensors()) {
    QSF_ASSIGN_OR_RETURN(const PeftTensorName name, parse_peft_tensor_name(tensor.name));
    Halves& halves = modules[std::string(name.module)];
    const StoredTensor*& half = name.is_a ? halves.a : halves.b;
    if (half != nullptr) {
      return unsupported("tensors \"%s\" and \"%s\" are of one module; expected one adapter",
                         half->name.c_str(), tensor.name.c_str());
    }
    half = &tensor;
  }
  return modules;
}

// The last name of a path.
std::string folder_name(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const std::size_t slash = path.rfind('/');
  if (slash != std::string_view::npos && slash + 1 < path.size()) path.remove_prefix(slash + 1);
  return std::string(path.substr(0, kMaxAdapterNameBytes));
}

Status check_half(const StoredTensor& half, std::uint64_t rows, std::uint64_t cols,
                  const char* by) {
  if (!is_weight_type(half.type)) {
    return unsupported("tensor \"%s\": dtype %s, expected F32, F16 or BF16", half.name.c_str(),
                       std::string(stored_type_name(half.type)).c_str());
  }
  if (half.shape.size() == 2 && half.shape[0] == rows && half.shape[1] == cols) return ok_status();
  std::string shape;
  for (const std::uint64_t n : half.shape) {
    shape += (shape.empty() ? "" : ", ") + std::to_string(n);
  }
  return invalid_argument("tensor \"%s\": shape [%s], expected [%" PRIu64 ", %" PRIu64 "] %s",
                          half.name.c_str(), shape.c_str(), rows, cols, by);
}

}  // namespace

// Makes pairs of the modules of a folder.
class PeftAdapterMapper {
 public:
  PeftAdapterMapper(PeftAdapter& adapter, const PeftConfig& config)
      : adapter_(adapter), config_(config) {}

  Status map() {
    QSF_ASSIGN_OR_RETURN(const Modules modules, find_halves(adapter_.weights_));
    for (const auto& [module, halves] : modules) {
      QSF_RETURN_IF_ERROR(map_module(module, halves));
    }
    if (found_.empty()) {
      return corrupt(
          "no LoRA matrix that the model uses; expected names such as "
          "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
    }
    if (n_unused_ != 0) {
      adapter_.warnings_.push_back("left out " + std::to_string(n_unused_) +
                                   " modules of keys and values that the model does not use");
    }
    sort_pairs();
    const Status valid = validate(adapter_.spec_);
    if (valid.ok()) return ok_status();
    return {StatusCode::kCorrupt, valid.message()};
  }

 private:
  struct Found {
    AdapterPair pair;
    PeftAdapter::Source source;
  };

  Status map_module(const std::string& module, const Halves& halves) {
    if (halves.a == nullptr || halves.b == nullptr) {
      const StoredTensor& there = halves.a == nullptr ? *halves.b : *halves.a;
      return corrupt("tensor \"%s\" has no %s beside it: half of the pair is missing",
                     there.name.c_str(), halves.a == nullptr ? "lora_A" : "lora_B");
    }
    QSF_ASSIGN_OR_RETURN(const std::vector<AdapterTarget> targets,
                         find_peft_targets(adapter_.base_, module));
    QSF_ASSIGN_OR_RETURN(const std::uint32_t rank, config_.rank_of(module));
    QSF_ASSIGN_OR_RETURN(const float scale, config_.scale_of(module));
    if (targets.empty()) ++n_unused_;
    for (const AdapterTarget& target : targets) {
      QSF_RETURN_IF_ERROR(check_rank(*halves.a, rank));
      QSF_RETURN_IF_ERROR(check_half(*halves.a, rank, target.cols, "by rank and model"));
      QSF_RETURN_IF_ERROR(
          check_half(*halves.b, target.outputs.n_stored, rank, "by model and rank"));
      const AdapterPair pair = {.kind = target.kind,
                                .layer = target.layer,
                                .expert = target.expert,
                                .rank = rank,
                                .in = target.cols,
                                .out = target.rows,
                                .scale = scale};
      found_.push_back({pair, {halves.a, halves.b, target.outputs}});
    }
    return ok_status();
  }

  // The scale follows from the rank that the configuration states.
  static Status check_rank(const StoredTensor& a, std::uint32_t rank) {
    if (a.shape.size() != 2 || a.shape[0] == rank) return ok_status();
    return corrupt("tensor \"%s\": rank %" PRIu64 ", expected %u by r or rank_pattern of %s",
                   a.name.c_str(), a.shape[0], rank, kPeftConfigName);
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

  PeftAdapter& adapter_;
  const PeftConfig& config_;
  std::vector<Found> found_;
  std::size_t n_unused_ = 0;
};

bool is_peft_folder(const std::string& folder, FileOps& ops) {
  return ops.path_kind(folder + "/" + kPeftConfigName) != PathKind::kMissing;
}

Result<PeftAdapter> PeftAdapter::open(const std::string& folder, const ModelSpec& base,
                                      FileOps& ops) {
  const std::string config_path = folder + "/" + kPeftConfigName;
  QSF_ASSIGN_OR_RETURN(const File config_file, File::open(config_path, ops));
  QSF_ASSIGN_OR_RETURN(const std::vector<std::byte> json,
                       config_file.read_all(kMaxPeftConfigBytes));
  auto config = parse_peft_config(as_text(json));
  if (!config) return std::move(config).error().with_context(config_path);
  if (!ShardedCheckpoint::is_in(folder, kPeftWeightsName, ops)) {
    return not_found("%s: expected %s; save the adapter with safe_serialization=True",
                     folder.c_str(), kPeftWeightsName);
  }
  QSF_ASSIGN_OR_RETURN(SafetensorsModel weights,
                       SafetensorsModel::open_named(folder, kPeftWeightsName, ops));
  PeftAdapter adapter(base, std::move(weights));
  adapter.spec_.name = folder_name(folder);
  adapter.spec_.architecture = base.architecture;
  QSF_RETURN_IF_ERROR(PeftAdapterMapper(adapter, *config).map().with_context(folder));
  return adapter;
}

Status PeftAdapter::read_pair(std::size_t index, std::span<float> a, std::span<float> b) const {
  QSF_CHECK(index < sources_.size());
  const AdapterPair& pair = spec_.pairs[index];
  const Source& source = sources_[index];
  QSF_CHECK(a.size() == pair.a_values() && b.size() == pair.b_values());
  QSF_RETURN_IF_ERROR(weights_.read(*source.a, 0, a));
  const OutputRows& outputs = source.outputs;
  if (outputs.order == OutputRows::Order::kRuns && outputs.run == pair.out) {
    return weights_.read(*source.b, outputs.first * pair.rank, b);
  }
  std::vector<float> stored(outputs.n_stored * pair.rank);
  QSF_RETURN_IF_ERROR(weights_.read(*source.b, 0, stored));
  take_outputs(base_, outputs, pair.rank, stored, b);
  return ok_status();
}

}  // namespace qsf
