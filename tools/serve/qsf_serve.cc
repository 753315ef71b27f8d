// SPDX-License-Identifier: MIT
//
// qsf serve: models over HTTP.
//
// Three threads: the network thread (the main one) reads requests and writes answers, the scheduler
// runs the passes, and a third one waits until the server is to end. The library has worker threads
// of its own.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tools/common/bundled_model.h"
#include "tools/common/file_path.h"
#include "tools/common/option_parser.h"
#include "tools/common/programs.h"
#include "tools/common/tool_support.h"
#include "tools/serve/cache_folder.h"
#include "tools/serve/end_requests.h"
#include "tools/serve/health_check.h"
#include "tools/serve/http/http_server.h"
#include "tools/serve/private_folder.h"
#include "tools/serve/schedule/scheduler.h"
#include "tools/serve/schedule/served_models.h"
#include "tools/serve/serve_options.h"
#include "tools/serve/serve_service.h"
#include "tools/serve/web/web_folder.h"

namespace qsf_tools {
namespace {

// What the server keeps of a request beside its body, and of a text that runs: parsed fields,
// tokens, the parts of the answer.
constexpr std::uint64_t kBytesOfWaiting = 4096;
constexpr std::uint64_t kBytesOfText = 256U << 10U;
constexpr std::size_t kMaxBodiesTogether = 4;  // largest ones

HttpLimits http_limits(const ServeOptions& options) {
  HttpLimits limits;
  limits.max_connections = options.max_connections;
  limits.head_pool_bytes = std::size_t{1} << 20U;
  limits.max_all_bodies_bytes = kMaxBodiesTogether * options.max_body_bytes;
  limits.max_all_output_bytes = std::size_t{4} << 20U;
  limits.idle_seconds = options.idle_seconds;
  limits.head_seconds = limits.body_seconds = options.read_seconds;
  limits.write_seconds = options.write_seconds;
  return limits;
}

ModelSettings model_settings(const ServeOptions& options, std::vector<ServedModel> adapters,
                             const HttpLimits& limits, const std::string& cache_folder) {
  ModelSettings settings;
  settings.engine = options.engine;
  settings.engine.adapters.files.clear();
  settings.adapters = std::move(adapters);
  settings.cache = options.cache;
  settings.i2s_layout = options.i2s_layout;
  settings.quiet = options.quiet;
  settings.prefix_cache = options.has_prefix_cache();
  settings.cache_folder = cache_folder;
  settings.cache_folder_bytes = options.cache_folder_bytes;
  settings.grammars = options.grammars;
  settings.reuse_answers = options.reuse_answers;
  settings.server_bytes = http_memory_bytes(limits) + options.max_waiting * kBytesOfWaiting +
                          static_cast<std::uint64_t>(options.texts) * kBytesOfText;
  return settings;
}

// A folder of this process for session files, removed at the end.
class SessionFolder {
 public:
  ~SessionFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(file_path(path_), ignored);
  }
  // Returns what is wrong, empty for nothing.
  std::string create(const std::string& parent) {
    const std::string base = parent.empty() ? temporary_folder() : parent;
    const std::string wrong = make_session_folder(base, path_);
    return wrong.empty() ? "" : "--session-dir: " + base + ": " + wrong;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// What the command line names, read.
struct Inputs {
  std::vector<ServedModel> models;
  std::vector<ServedModel> adapters;
  AccessSettings access;
};

// On failure returns nothing and says in `error` what is wrong.
std::optional<Inputs> read_inputs(const ServeOptions& options, std::string& error) {
  std::vector<std::string> arguments = options.models;
  if (arguments.empty() && options.models_folder.empty()) {
    const std::optional<std::string> bundled = find_bundled_model(error);
    if (!bundled) return std::nullopt;
    arguments.push_back(*bundled);
  }
  auto models = list_models(arguments, options.models_folder, error);
  if (!models) return std::nullopt;
  Inputs inputs;
  inputs.models = std::move(*models);
  auto adapters = list_adapters(options.engine.adapters.files, inputs.models, error);
  if (!adapters) return std::nullopt;
  inputs.adapters = std::move(*adapters);
  inputs.access.origins = options.origins;
  inputs.access.max_body_bytes = options.max_body_bytes;
  if (options.api_key_file.empty()) return inputs;
  auto keys = read_api_keys(options.api_key_file, error);
  if (!keys) return std::nullopt;
  inputs.access.api_keys = std::move(*keys);
  return inputs;
}

void set_api(ApiSettings& api, const ServeOptions& options,
             const std::vector<ServedModel>& adapters) {
  api.strict_fields = options.strict_fields;
  api.max_texts = api.max_choices = options.texts;
  api.max_prompts = options.texts;
  api.adapter_scale = options.engine.adapters.scale_or_default();
  for (const ServedModel& adapter : adapters) api.adapters.push_back({adapter.id, adapter.path});
}

ScheduleSettings schedule_settings(const ServeOptions& options, const std::string& folder,
                                   bool prefix_cache) {
  ScheduleSettings settings;
  settings.default_max_tokens = options.default_max_tokens;
  settings.max_token_gap_seconds = options.max_token_gap_seconds;
  settings.max_waiting = options.max_waiting;
  settings.max_waiting_tokens = options.max_waiting_tokens;
  settings.max_wait_seconds = options.max_wait_seconds;
  settings.max_texts = options.texts;
  settings.park_folder = folder;
  settings.prefix_cache = prefix_cache;
  settings.evicts = options.engine.kv_policy.policy != "full";
  settings.log_requests = options.log_requests;
  return settings;
}

int serve(const ServeOptions& options) {
  std::string error;
  std::optional<Inputs> inputs = read_inputs(options, error);
  SessionFolder folder;
  CacheFolder cache;
  if (inputs) error = folder.create(options.session_folder);
  if (error.empty() && !options.cache_folder.empty()) {
    error = cache.open(options.cache_folder, inputs->models.size());
  }
  if (!error.empty()) {
    print_error(program_name(), error);
    return kFailure;
  }

  EndRequests end_requests;
  const HttpLimits limits = http_limits(options);
  std::unique_ptr<WebFolder> web;
  if (!options.web_folder.empty()) {
    web = WebFolder::open(options.web_folder, error);
    if (web == nullptr) {
      print_error(program_name(), error);
      return kFailure;
    }
  }
  ApiSettings api;
  set_api(api, options, inputs->adapters);
  const ModelSettings model =
      model_settings(options, std::move(inputs->adapters), limits, cache.path());
  ServedModels models(std::move(inputs->models), model);
  ServeMetrics metrics;
  Scheduler scheduler(models, schedule_settings(options, folder.path(), model.prefix_cache),
                      metrics);
  api.list_models = [&models] { return models.listing(); };
  ServeService service(std::move(inputs->access), api, scheduler, metrics);

  HttpAddress address;
  address.host = options.host;
  address.port = static_cast<std::uint16_t>(options.port);
  address.unix_path = options.socket_path;
  const std::unique_ptr<HttpServer> server = HttpServer::open(limits, {address}, service, error);
  if (server == nullptr) {
    print_error(program_name(), error);
    return kFailure;
  }
  service.set_server(server.get());
  service.set_web(web.get());
  end_requests.start(
      [&scheduler] {
        print_error(program_name(), "ending when the running requests are answered");
        scheduler.drain();
      },
      [&scheduler, &server] {
        scheduler.stop();
        server->stop();
      });
  if (!options.quiet) {
    for (const std::string& where : server->addresses()) {
      print_error(program_name(), "listening on " + where);
    }
  }
  std::string failure;
  std::thread scheduling([&scheduler, &server, &failure] {
    failure = scheduler.run();
    server->drain();
  });
  server->run();
  scheduler.stop();
  scheduling.join();
  end_requests.end();
  if (failure.empty()) return kSuccess;
  print_error(program_name(), failure);
  return kFailure;
}

}  // namespace

int serve_main(int argc, char** argv) {
  ServeOptions options;
  if (const std::optional<int> code = parse_serve_options(argc, argv, options)) return *code;
  if (!options.check_health) return serve(options);
  const std::string problem =
      check_health(options.host, static_cast<std::uint16_t>(options.port), options.socket_path);
  if (problem.empty()) return kSuccess;
  print_error(program_name(), problem);
  return kFailure;
}

}  // namespace qsf_tools
