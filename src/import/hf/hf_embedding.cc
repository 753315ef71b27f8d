// SPDX-License-Identifier: MIT

#include "import/hf/hf_embedding.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "import/json_document.h"

namespace qsf {
namespace {

constexpr std::uint64_t kMaxModuleBytes = 1U << 20;
constexpr char kModulesFile[] = "modules.json";

struct PoolingMode {
  std::string_view name;  // behind pooling_mode_, and of newer files alone
  Pooling pooling;
};
constexpr PoolingMode kModes[] = {{"mean_tokens", Pooling::kMean},
                                  {"mean", Pooling::kMean},
                                  {"cls_token", Pooling::kFirst},
                                  {"cls", Pooling::kFirst},
                                  {"lasttoken", Pooling::kLast}};

// A folder beside modules.json.
bool is_folder_name(std::string_view name) noexcept {
  return !name.empty() && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(), [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return byte >= 0x20 && byte != 0x7F && c != '/' && c != '\\';
         });
}

std::string shown_member(const JsonValue& module, const char* name) {
  const JsonValue* value = module.find(name);
  return value == nullptr ? "null" : value->shown();
}

Result<HfModules> find_folders(const JsonValue& modules) {
  HfModules found;
  bool normalised = false;
  for (const JsonValue& module : modules.elements()) {
    std::string_view type = module.text("type").value_or("");
    type.remove_prefix(type.rfind('.') + 1);  // behind the last point, if there is one
    const std::string_view path = module.text("path").value_or("");
    const bool first = &module == modules.elements().data();
    if (first && type == "Transformer" && path.empty()) continue;
    const bool pooled = !found.pooling.empty();
    if (pooled && type == "Normalize") {
      normalised = true;
      continue;
    }
    const bool pools = !first && !pooled && type == "Pooling";
    const bool multiplies = pooled && !normalised && type == "Dense";
    if (!pools && !multiplies) {
      return unsupported(
          "module %s in %s is not supported here; expected a Transformer in \"\", one Pooling, two "
          "Dense or none, and perhaps Normalize behind them",
          shown_member(module, "type").c_str(), shown_member(module, "path").c_str());
    }
    if (!is_folder_name(path)) {
      return corrupt("path %s: expected the name of a folder",
                     shown_member(module, "path").c_str());
    }
    if (pools) {
      found.pooling = path;
    } else {
      found.dense.emplace_back(path);
    }
  }
  if (found.pooling.empty()) {
    return unsupported("no module is a Pooling: rows of a text are no embedding");
  }
  if (found.dense.empty() || found.dense.size() == 2) return found;
  return unsupported("%zu modules are Dense, expected two or none", found.dense.size());
}

Result<Pooling> pooling_of(const std::string& shown, std::string_view name) {
  for (const PoolingMode& mode : kModes) {
    if (mode.name == name) return mode.pooling;
  }
  return unsupported("pooling %s is not supported; expected mean, cls or lasttoken", shown.c_str());
}

// Reads pooling_mode, or which of the booleans pooling_mode_* is true.
Result<Pooling> read_mode(const JsonValue& json) {
  if (const JsonValue* mode = json.find("pooling_mode")) {
    return pooling_of(mode->shown(), mode->text().value_or(""));
  }
  constexpr std::string_view kPrefix = "pooling_mode_";
  std::optional<Pooling> found;
  for (const JsonMember& member : json.members()) {
    if (!member.name.starts_with(kPrefix) || member.value.boolean() != true) continue;
    const std::string shown = JsonValue::of_string(member.name).shown();
    if (found.has_value()) {
      return unsupported("%s: a second pooling, joined to the first, is not supported",
                         shown.c_str());
    }
    QSF_ASSIGN_OR_RETURN(found, pooling_of(shown, member.name.substr(kPrefix.size())));
  }
  if (found.has_value()) return *found;
  return corrupt("no pooling_mode is true, expected one");
}

Result<std::string> read_small_file(const std::string& path, FileOps& ops) {
  QSF_ASSIGN_OR_RETURN(const File file, File::open(path, ops));
  QSF_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, file.read_all(kMaxModuleBytes));
  return std::string(as_text(bytes));
}

}  // namespace

Result<HfModules> read_hf_modules(std::string_view text) {
  // The file is a list, and documents are objects.
  const std::string object = "{\"modules\":" + std::string(text) + "}";
  QSF_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(object));
  const JsonValue* list = document.root().find("modules");
  const bool alone = document.root().size() == 1;
  if (alone && list != nullptr && list->size() != 0 && list->is_array()) {
    return find_folders(*list);
  }
  return corrupt("expected a list of modules");
}

Status read_hf_pooling(std::string_view text, HfConfig& config) {
  QSF_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(text));
  const JsonValue& json = document.root();
  const char* width = "word_embedding_dimension";
  if (json.contains(width) && json.unsigned_integer(width) != config.spec.hidden) {
    return corrupt("%s: expected the %u columns of the model", width, config.spec.hidden);
  }
  if (!json.boolean("include_prompt").value_or(true)) {
    return unsupported("include_prompt: false is not supported: all rows of a text are pooled");
  }
  QSF_ASSIGN_OR_RETURN(config.spec.pooling, read_mode(json));
  return ok_status();
}

Status read_hf_dense(std::string_view text, bool is_first, HfConfig& config) {
  QSF_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(text));
  const JsonValue& json = document.root();
  ModelSpec& spec = config.spec;
  const char* in = "in_features";
  const char* out = "out_features";
  const auto n_in = json.unsigned_integer(in);
  const auto n_out = json.unsigned_integer(out);
  if (is_first && n_out.has_value() && *n_out >= 2 && *n_out <= (1U << 20)) {
    spec.embedding_dense = static_cast<std::uint32_t>(*n_out);
  }
  const std::uint32_t wanted_in = is_first ? spec.hidden : spec.embedding_dense;
  const std::uint32_t wanted_out = is_first ? spec.embedding_dense : spec.hidden;
  if (wanted_out == 0 || n_in != wanted_in || n_out != wanted_out) {
    return unsupported("%s and %s: expected %u and %s", in, out, wanted_in,
                       is_first ? "2 to 2^20" : std::to_string(wanted_out).c_str());
  }
  if (json.boolean("bias").value_or(true)) {
    return unsupported("bias: true is not supported");
  }
  const std::string_view activation = json.text("activation_function").value_or("");
  if (activation.ends_with("Identity")) return ok_status();
  return unsupported("activation_function: %s is not supported, expected Identity",
                     shown_member(json, "activation_function").c_str());
}

Status read_hf_embedding(const std::string& folder, FileOps& ops, HfConfig& config) {
  const std::string modules = folder + "/" + kModulesFile;
  if (ops.path_kind(modules) == PathKind::kMissing) return ok_status();
  QSF_ASSIGN_OR_RETURN(const std::string text, read_small_file(modules, ops));
  auto folders = read_hf_modules(text);
  if (!folders) return std::move(folders).error().with_context(modules);
  const auto read = [&](const std::string& name, const auto& parse) -> Status {
    const std::string path = folder + "/" + name + "/config.json";
    QSF_ASSIGN_OR_RETURN(const std::string settings, read_small_file(path, ops));
    return parse(settings).with_context(path);
  };
  QSF_RETURN_IF_ERROR(read(folders->pooling, [&config](std::string_view settings) {
    return read_hf_pooling(settings, config);
  }));
  for (const std::string& name : folders->dense) {
    const bool is_first = &name == folders->dense.data();
    QSF_RETURN_IF_ERROR(read(name, [&config, is_first](std::string_view settings) {
      return read_hf_dense(settings, is_first, config);
    }));
  }
  config.dense_folders = std::move(folders->dense);
  return ok_status();
}

}  // namespace qsf
