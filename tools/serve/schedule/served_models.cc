// SPDX-License-Identifier: MIT

#include "tools/serve/schedule/served_models.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "tools/common/file_path.h"
#include "tools/common/system_files.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {

namespace {

namespace fs = std::filesystem;

// Of masks of grammars, which are kept: some hundred of a vocabulary of 50,000.
constexpr std::uint64_t kMaskBytes = 2U << 20U;
constexpr std::string_view kLatest = ":latest";
constexpr char kSeparators[] = {'/', static_cast<char>(fs::path::preferred_separator), '\0'};

bool is_model_file(const fs::path& path) {
  return path.extension() == ".qsf" || path.extension() == ".gguf";
}

std::string id_of(const std::string& path) {
  fs::path name = file_path(path).lexically_normal();
  if (name.filename().empty()) name = name.parent_path();
  return path_text(is_model_file(name) ? name.stem() : name.filename());
}

ServedModel describe(std::string id, const std::string& path) {
  ServedModel model{.id = std::move(id), .path = path};
  if (const std::optional<FileAbout> about = about_file(path)) {
    model.created = about->modified_s;
    if (about->kind == FileKind::kRegular) model.file_bytes = about->bytes;
  }
  return model;
}

// Reads PATH or ID=PATH. A path may hold '=', an id no character that separates folders.
ServedModel describe_argument(const std::string& argument) {
  const std::size_t equals = argument.find('=');
  const bool named =
      equals != std::string::npos && equals > 0 && argument.find_first_of(kSeparators) > equals;
  const std::string path = named ? argument.substr(equals + 1) : argument;
  return describe(named ? argument.substr(0, equals) : id_of(path), path);
}

// Returns what is wrong with the ids of models and adapters; empty for nothing.
std::string check_ids(const std::vector<ServedModel>& all) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (all[i].id != all[j].id) continue;
      return "two models are called '" + all[i].id + "': " + all[j].path + " and " + all[i].path +
             "; name one as NAME=" + all[i].path;
    }
  }
  return {};
}

void print_warning(qsf_log_level level, const char* line, void*) {
  if (level == QSF_LOG_WARNING) print_error(program_name(), std::string("warning: ") + line);
}

// What a client is told when a model cannot be loaded. It stays wrong unless the disk failed, so it
// is no 5xx, which clients send again.
ApiError load_error(const std::string& id, const qsf_error& error) {
  ApiError out;
  out.message = "model '" + id + "' cannot be loaded: " + error.message;
  out.param = "model";
  out.code = error.code == QSF_OUT_OF_BUDGET ? "model_exceeds_budget" : "model_not_loadable";
  if (error.code == QSF_IO || error.code == QSF_INTERNAL) {
    out.status = 500;
    out.type = "server_error";
    out.code.clear();
  }
  return out;
}

}  // namespace

std::optional<std::vector<ServedModel>> list_models(const std::vector<std::string>& arguments,
                                                    const std::string& folder, std::string& error) {
  std::vector<ServedModel> models;
  for (const std::string& argument : arguments) {
    const ServedModel& model = models.emplace_back(describe_argument(argument));
    error = check_model_path(model.path);
    if (!error.empty()) return std::nullopt;
  }
  if (!folder.empty()) {
    std::vector<std::string> paths;
    std::error_code failed;
    for (const fs::directory_entry& file : fs::directory_iterator(file_path(folder), failed)) {
      if (is_model_file(file.path())) paths.push_back(path_text(file.path()));
    }
    if (failed) {
      error = folder + ": " + failed.message();
      return std::nullopt;
    }
    std::sort(paths.begin(), paths.end());
    for (const std::string& path : paths) models.push_back(describe(id_of(path), path));
  }
  error = check_ids(models);
  if (!error.empty()) return std::nullopt;
  if (models.empty()) {
    error = folder.empty() ? "no model named" : folder + ": no .qsf or .gguf file in it";
    return std::nullopt;
  }
  return models;
}

std::optional<std::vector<ServedModel>> list_adapters(const std::vector<std::string>& arguments,
                                                      const std::vector<ServedModel>& models,
                                                      std::string& error) {
  std::vector<ServedModel> adapters;
  std::vector<ServedModel> all = models;
  for (const std::string& argument : arguments) {
    adapters.push_back(describe_argument(argument));
    all.push_back(adapters.back());
  }
  error = check_ids(all);
  if (!error.empty()) {
    error = "--lora: " + error;
    return std::nullopt;
  }
  return adapters;
}

ServedModels::ServedModels(std::vector<ServedModel> models, ModelSettings settings)
    : models_(std::move(models)),
      settings_(std::move(settings)),
      engines_(models_.size()),
      uses_(models_.size(), 0) {
  for (const ServedModel& model : models_) {
    ModelListing& line = listing_.emplace_back();
    line.id = model.id;
    line.path = model.path;
    line.created = model.created;
    line.size_bytes = model.file_bytes;
  }
}

std::vector<ModelListing> ServedModels::listing() const {
  std::vector<ModelListing> all;
  {
    const std::lock_guard lock(mutex_);
    all = listing_;
  }
  for (const ServedModel& adapter : settings_.adapters) {
    ModelListing& line = all.emplace_back(all.front());
    line.id = adapter.id;
    line.parent = models_.front().id;
    line.path = adapter.path;
    line.created = adapter.created;
    line.size_bytes = adapter.file_bytes;
  }
  return all;
}

// Notes what is known of a model; what was known stays when it is closed, which `info` null says.
void ServedModels::list(std::size_t index, const qsf_model_info* info) {
  const std::lock_guard lock(mutex_);
  ModelListing& line = listing_[index];
  line.is_loaded = info != nullptr;
  if (info == nullptr) return;
  line.n_ctx = info->context;
  line.n_ctx_train = info->trained_context;
  line.n_vocab = info->n_vocab;
  line.n_embd = info->hidden_size;
  line.n_params = info->n_parameters;
  line.size_bytes = info->file_bytes;
  line.architecture = info->architecture;
  line.quant_type = info->quant_type;
  line.has_chat_template = info->chat_template != nullptr;
}

std::optional<ModelChoice> ServedModels::find(std::string_view name) const {
  if (name.empty()) return ModelChoice();
  if (name.ends_with(kLatest)) name.remove_suffix(kLatest.size());
  for (std::size_t i = 0; i < models_.size(); ++i) {
    if (models_[i].id == name) return ModelChoice{.index = i, .adapter = {}};
  }
  for (std::size_t i = 0; i < settings_.adapters.size(); ++i) {
    if (settings_.adapters[i].id != name) continue;
    const TextAdapter adapter = {.number = static_cast<int>(i) + 1,
                                 .scale = settings_.engine.adapters.scale_or_default()};
    return ModelChoice{.index = 0, .adapter = adapter};
  }
  return std::nullopt;
}

const LoadedModel* ServedModels::loaded(std::size_t index) const {
  return engines_[index].has_value() ? &engines_[index]->model : nullptr;
}

ConfigPtr ServedModels::make_config(std::size_t index) const {
  ConfigPtr config(qsf_config_default());
  set_engine_options(config.get(), settings_.engine);
  for (const ServedModel& adapter : settings_.adapters) {
    qsf_config_add_adapter(config.get(), adapter.path.c_str(), adapter.id.c_str());
  }
  qsf_config_set_log_callback(config.get(), settings_.quiet ? nullptr : print_warning, nullptr);
  qsf_config_add_memory(config.get(), "server",
                        "connections, bodies, output and socket buffers of the server",
                        settings_.server_bytes);
  qsf_config_set_grammars(config.get(), settings_.grammars, kMaskBytes);
  if (settings_.prefix_cache) qsf_config_set_prefix_cache(config.get(), 1);
  if (settings_.reuse_answers) qsf_config_set_reuse_answers(config.get(), 1);
  if (!settings_.cache_folder.empty()) {
    const std::string folder = settings_.cache_folder + "/" + std::to_string(index);
    qsf_config_set_prefix_folder(config.get(), folder.c_str(),
                                 settings_.cache_folder_bytes / models_.size());
  }
  return config;
}

std::optional<std::string> ServedModels::file_of(std::size_t index, std::string& error) {
  const std::string& path = models_[index].path;
  std::string& draft = settings_.engine.draft;
  if (!draft.empty() && needs_conversion(draft)) {
    const auto converted =
        converted_model(draft, settings_.i2s_layout, settings_.quiet, error, settings_.cache);
    if (!converted) return std::nullopt;
    draft = *converted;
  }
  if (!needs_conversion(path)) return path;
  return converted_model(path, settings_.i2s_layout, settings_.quiet, error, settings_.cache);
}

bool ServedModels::fits_whole(std::size_t index, const std::string& path) const {
  QSFPlan* planned = nullptr;
  qsf_error error = {};
  const qsf_code code = qsf_plan_create(path.c_str(), make_config(index).get(), &planned, &error);
  const PlanPtr plan(planned);
  qsf_plan_info info = {};
  info.struct_size = sizeof info;
  return code == QSF_OK && qsf_plan_get_info(planned, &info, &error) == QSF_OK &&
         info.everything_resident != 0;
}

ServedModels::Loading ServedModels::load(std::size_t index,
                                         const std::function<bool(std::size_t)>& is_idle,
                                         ApiError& error) {
  if (engines_[index].has_value()) return Loading::kLoaded;
  qsf_error failed = {};
  std::string reason;
  const std::optional<std::string> path = file_of(index, reason);
  if (!path) {
    failed.code = QSF_INVALID_ARGUMENT;
    std::snprintf(failed.message, sizeof failed.message, "%s", reason.c_str());
    error = load_error(models_[index].id, failed);
    return Loading::kFailed;
  }
  for (;;) {
    std::optional<std::size_t> oldest;
    bool others = false;
    for (std::size_t i = 0; i < engines_.size(); ++i) {
      if (!engines_[i].has_value()) continue;
      others = true;
      if (is_idle(i) && (!oldest || uses_[i] < uses_[*oldest])) oldest = i;
    }
    if (!others || fits_whole(index, *path)) break;
    if (!oldest) return Loading::kWait;
    close(*oldest);
  }
  const auto start = std::chrono::steady_clock::now();
  QSFEngine* opened = nullptr;
  if (qsf_engine_open(path->c_str(), make_config(index).get(), &opened, &failed) != QSF_OK) {
    error = load_error(models_[index].id, failed);
    return Loading::kFailed;
  }
  Engine& engine = engines_[index].emplace();
  engine.engine.reset(opened);
  LoadedModel& model = engine.model;
  model.id = models_[index].id;
  model.engine = opened;
  model.path = models_[index].path;
  model.created = models_[index].created;
  model.load_ns = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start)
          .count());
  model.info.struct_size = sizeof model.info;
  qsf_engine_model_info(opened, &model.info, &failed);
  list(index, &model.info);
  touch(index);
  return Loading::kLoaded;
}

void ServedModels::close(std::size_t index) {
  list(index, nullptr);
  engines_[index].reset();
}

}  // namespace qsf_tools
