// SPDX-License-Identifier: MIT
//
// What ollama's clients ask about the server and its models: answered at once, without loading any.

#include <array>
#include <cstdio>
#include <utility>

#include "tools/serve/api/answer_output.h"
#include "tools/serve/api/api_error.h"
#include "tools/serve/api/interface_request.h"
#include "tools/serve/api/json_writer.h"
#include "tools/serve/api/ollama.h"

namespace qsf_tools {

namespace {

// The release of ollama whose interface this is. VS Code refuses those before 0.6.4.
constexpr std::string_view kOllamaVersion = "0.13.0";
// Nothing is unloaded for its age, but clients want a time.
constexpr std::int64_t kExpiresSeconds = std::int64_t{100} * 365 * 24 * 3600;

// Returns 64 digits that differ between models. It is no checksum of the file, which would have to
// be read for it.
std::string digest_of(const ModelListing& model) {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  const auto add = [&hash](std::string_view text) {
    for (const char c : text) {
      hash ^= static_cast<unsigned char>(c);
      hash *= 1099511628211U;
    }
  };
  std::string digest;
  for (int i = 0; i < 4; ++i) {
    add(model.id);
    add(std::to_string(model.size_bytes) + "/" + std::to_string(model.created));
    std::array<char, 17> digits = {};
    std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(hash));
    digest += digits.data();
  }
  return digest;
}

// "1.1B", "135M"
std::string parameter_size(std::uint64_t n) {
  std::array<char, 32> text = {};
  if (n >= 1'000'000'000) {
    std::snprintf(text.data(), text.size(), "%.1fB", static_cast<double>(n) / 1e9);
  } else {
    std::snprintf(text.data(), text.size(), "%.0fM", static_cast<double>(n) / 1e6);
  }
  return text.data();
}

void write_details(JsonWriter& json, const ModelListing& model) {
  json.name("details").begin_object().member("parent_model", model.parent);
  json.member("format", "qsf");
  json.member("family", model.architecture).name("families").begin_array();
  json.text(model.architecture).end_array();
  json.member("parameter_size", model.n_params > 0 ? parameter_size(model.n_params) : "");
  json.member("quantization_level", model.quant_type).end_object();
}

// Leaves the object open.
void begin_model(JsonWriter& json, const ModelListing& model) {
  json.begin_object().member("name", model.id).member("model", model.id);
  json.member("modified_at", utc_time(model.created)).member("size", model.size_bytes);
  json.member("digest", digest_of(model));
  write_details(json, model);
}

void write_model_info(JsonWriter& json, const ModelListing& model) {
  const std::string arch = model.architecture.empty() ? "model" : model.architecture;
  json.name("model_info").begin_object().member("general.architecture", arch);
  const auto known = [&json](std::string_view key, std::uint64_t value) {
    if (value > 0) json.member(key, value);
  };
  known("general.parameter_count", model.n_params);
  const int context = model.n_ctx > 0 ? model.n_ctx : model.n_ctx_train;
  known(arch + ".context_length", static_cast<std::uint64_t>(context));
  known(arch + ".embedding_length", static_cast<std::uint64_t>(model.n_embd));
  known(arch + ".vocab_size", static_cast<std::uint64_t>(model.n_vocab));
  json.end_object();
}

std::shared_ptr<ServeJob> respond(const ApiRequest& request, JsonWriter json) {
  AnswerOutput(request.exchange).respond(200, json.take());
  return nullptr;
}

}  // namespace

bool wants_page(const HttpRequest& request) {
  return request.header("Accept").find("text/html") != std::string_view::npos;
}

std::shared_ptr<ServeJob> handle_ollama_root(const ApiRequest& request) {
  request.exchange->respond(
      {200, {{"Content-Type", "text/plain; charset=utf-8"}}, "Ollama is running"});
  return nullptr;
}

std::shared_ptr<ServeJob> handle_ollama_version(const ApiRequest& request) {
  JsonWriter json;
  json.begin_object().member("version", kOllamaVersion).end_object();
  return respond(request, std::move(json));
}

std::shared_ptr<ServeJob> handle_ollama_tags(const ApiRequest& request) {
  JsonWriter json;
  json.begin_object().name("models").begin_array();
  for (const ModelListing& model : request.settings->list_models()) {
    begin_model(json, model);
    json.end_object();
  }
  json.end_array().end_object();
  return respond(request, std::move(json));
}

std::shared_ptr<ServeJob> handle_ollama_ps(const ApiRequest& request) {
  JsonWriter json;
  json.begin_object().name("models").begin_array();
  for (const ModelListing& model : request.settings->list_models()) {
    if (!model.is_loaded) continue;
    begin_model(json, model);
    json.member("expires_at", utc_time(request.settings->now_seconds() + kExpiresSeconds));
    json.member("size_vram", 0).member("context_length", model.n_ctx).end_object();
  }
  json.end_array().end_object();
  return respond(request, std::move(json));
}

std::shared_ptr<ServeJob> handle_ollama_show(const ApiRequest& request) {
  FieldReport report;
  std::string name;
  if (const std::optional<JsonValue> body = parse_body(request.exchange->request().body, report)) {
    FieldReader fields(*body, "", report);
    fields.read("name", name);  // older clients
    fields.read("model", name);
    if (name.empty()) fields.fail("model", "'model' is missing, expected a model's name");
    fields.accept({"verbose"});
    fields.not_built("system", kNeutralEmpty);
    fields.not_built("template", kNeutralEmpty);
    fields.not_built("options", kNeutralEmpty);
    fields.finish(request.settings->strict_fields);
  }
  if (!accept_request(request, report, &ollama_error_response)) return nullptr;
  name = ollama_model_name(std::move(name));
  for (const ModelListing& model : request.settings->list_models()) {
    if (model.id != name) continue;
    JsonWriter json;
    json.begin_object().member("modelfile", "").member("parameters", "").member("template", "");
    write_details(json, model);
    write_model_info(json, model);
    json.name("capabilities").begin_array().text("completion");
    if (model.has_chat_template) json.text("tools");
    json.end_array().member("modified_at", utc_time(model.created)).end_object();
    return respond(request, std::move(json));
  }
  request.exchange->respond(ollama_error_response(model_not_found(name)));
  return nullptr;
}

}  // namespace qsf_tools
