// SPDX-License-Identifier: MIT
//
// The models of a server: their names, those of adapters, and those that are loaded. All share one
// budget.
//
// A model is loaded when a request names it. Beside others it is loaded only where it fits whole;
// otherwise the ones that were used longest ago are closed first, once their texts have ended. A
// model alone is loaded in any budget that its plan accepts, and streamed where it does not fit.

#ifndef QSF_TOOLS_SERVE_SCHEDULE_SERVED_MODELS_H_
#define QSF_TOOLS_SERVE_SCHEDULE_SERVED_MODELS_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/common/engine_options.h"
#include "tools/common/handles.h"
#include "tools/common/model_cache.h"
#include "tools/serve/api/api_settings.h"
#include "tools/serve/text_request.h"

namespace qsf_tools {

struct ServedModel {
  std::string id;
  std::string path;          // as it was named
  std::int64_t created = 0;  // of the file: seconds since 1970
  std::uint64_t file_bytes = 0;
};

// Returns the models of `arguments`, each PATH or ID=PATH, and of the .qsf and .gguf files in
// `folder` (empty: none). On failure returns nothing and says in `error` what is wrong.
std::optional<std::vector<ServedModel>> list_models(const std::vector<std::string>& arguments,
                                                    const std::string& folder, std::string& error);

// Returns the adapters of --lora, each PATH or ID=PATH, as further models of the only one. On
// failure returns nothing and says in `error` what is wrong.
std::optional<std::vector<ServedModel>> list_adapters(const std::vector<std::string>& arguments,
                                                      const std::vector<ServedModel>& models,
                                                      std::string& error);

// What a model's name stands for.
struct ModelChoice {
  std::size_t index = 0;
  TextAdapter adapter;
};

// What every engine of a server is opened with.
struct ModelSettings {
  EngineOptions engine;               // without files of adapters
  std::vector<ServedModel> adapters;  // of the only model
  CacheSettings cache;
  std::string i2s_layout;
  bool prefix_cache = true;
  bool reuse_answers = false;
  std::string cache_folder;              // with a folder for each model, by number; empty: none
  std::uint64_t cache_folder_bytes = 0;  // of all models, in equal parts
  int grammars = 8;                      // that exist at a time
  std::uint64_t server_bytes = 0;        // connections, queues and caches of the server itself
  bool quiet = false;
};

// Threads  one; entry(), find() and listing() any
class ServedModels {
 public:
  ServedModels(std::vector<ServedModel> models, ModelSettings settings);

  std::size_t size() const noexcept { return models_.size(); }
  const ServedModel& entry(std::size_t index) const { return models_[index]; }
  // Returns the model or the adapter of that name: its id, with or without ":latest"; the first
  // model for "".
  std::optional<ModelChoice> find(std::string_view name) const;

  // What is known of all models, and behind them of adapters.
  std::vector<ModelListing> listing() const;

  // The model where it is loaded, else null.
  const LoadedModel* loaded(std::size_t index) const;

  enum class Loading { kLoaded, kWait, kFailed };
  // Loads a model. kWait: it has to wait until a model with texts is idle. kFailed: see `error`.
  // `is_idle` tells whether a loaded model has no text.
  Loading load(std::size_t index, const std::function<bool(std::size_t)>& is_idle, ApiError& error);
  // Closes a loaded model. Requires  no session of it exists
  void close(std::size_t index);
  // Notes that a model is in use, for the choice of the one to be closed.
  void touch(std::size_t index) { uses_[index] = ++clock_; }

 private:
  struct Engine {
    EnginePtr engine;
    LoadedModel model;
  };

  ConfigPtr make_config(std::size_t index) const;
  std::optional<std::string> file_of(std::size_t index, std::string& error);
  bool fits_whole(std::size_t index, const std::string& path) const;

  void list(std::size_t index, const qsf_model_info* info);

  std::vector<ServedModel> models_;
  mutable std::mutex mutex_;
  std::vector<ModelListing> listing_;
  ModelSettings settings_;
  std::vector<std::optional<Engine>> engines_;
  std::vector<std::uint64_t> uses_;
  std::uint64_t clock_ = 0;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_SCHEDULE_SERVED_MODELS_H_
