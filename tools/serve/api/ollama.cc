// SPDX-License-Identifier: MIT
//
// Reads bodies of /api/chat and /api/generate.

#include "tools/serve/api/ollama.h"

#include <algorithm>
#include <climits>
#include <utility>

#include "tools/serve/api/call_fields.h"
#include "tools/serve/api/chat_job.h"
#include "tools/serve/api/compute_job.h"
#include "tools/serve/api/interface_request.h"
#include "tools/serve/api/json_writer.h"
#include "tools/serve/api/message_fields.h"

namespace qsf_tools {

namespace {

constexpr int kMaxOllamaTopLogProbs = 20;

void refuse_images(const JsonValue& object, const std::string& path, FieldReport& report) {
  const JsonValue* images = object.member("images");
  if (images == nullptr || images->is_null()) return;
  if (images->array() != nullptr && images->array()->empty()) return;
  report_invalid(report, path, "'" + path + "' has images: the model was imported for text alone");
}

// Calls have no ids in this interface, and their arguments are objects.
void convert_calls(JsonValue& message, const std::string& path, int& n_calls, FieldReport& report) {
  const JsonValue* calls = message.member("tool_calls");
  if (calls == nullptr || calls->is_null()) return;
  if (calls->array() == nullptr) return report_invalid(report, path, "'" + path + "' is no array");
  JsonArray converted;
  for (std::size_t i = 0; i < calls->array()->size(); ++i) {
    const JsonValue& call = (*calls->array())[i];
    const JsonValue* function = call.member("function");
    const JsonValue* name = function == nullptr ? nullptr : function->member("name");
    const JsonValue* arguments = function == nullptr ? nullptr : function->member("arguments");
    if (name == nullptr || name->text() == nullptr) {
      return report_invalid(report, indexed_path(path, i),
                            "'" + indexed_path(path, i) + "' names no function");
    }
    const JsonValue* id = call.member("id");
    std::string text = arguments == nullptr           ? std::string("{}")
                       : arguments->text() != nullptr ? *arguments->text()
                                                      : arguments->to_text();
    converted.push_back(function_call(
        id != nullptr && id->text() != nullptr ? *id->text() : "call_" + std::to_string(n_calls),
        *name->text(), std::move(text)));
    ++n_calls;
  }
  message.set("tool_calls", JsonValue(std::move(converted)));
}

// Puts a message into OpenAI's form.
void convert_message(JsonValue& message, const std::string& path, int& n_calls,
                     FieldReport& report) {
  if (message.object() == nullptr) return;  // normalize_messages refuses it
  refuse_images(message, path + ".images", report);
  convert_calls(message, path + ".tool_calls", n_calls, report);
  const auto rename = [&message](std::string_view from, std::string_view to) {
    const JsonValue* value = message.member(from);
    if (value == nullptr || value->text() == nullptr || value->text()->empty()) return;
    message.set(to, JsonValue(*value));
  };
  rename("thinking", "reasoning_content");
  rename("tool_name", "name");
}

void read_options(FieldReader& fields, const ApiSettings& settings, FieldReport& report,
                  ChatCall& call) {
  static const JsonValue kNone{JsonObject()};
  const JsonValue* value = fields.read_object("options");
  FieldReader options(value == nullptr ? kNone : *value, "options", report);
  read_sampling(options, settings, call);
  read_stop(options, "stop", settings, call.text);
  int n_predict = -1;  // -1: no limit; -2: what the context leaves, which is the same here
  options.read("num_predict", n_predict, -2, INT_MAX);
  call.text.max_tokens = std::max(n_predict, -1);
  // A context is the model's: a smaller one bounds the conversation, a larger one is not made.
  options.read("num_ctx", call.max_context, 0, INT_MAX);
  options.accept({"num_keep", "num_batch", "num_gpu", "main_gpu", "num_thread", "use_mmap",
                  "use_mlock", "low_vram", "f16_kv", "vocab_only", "logits_all", "numa",
                  "penalize_newline"});
  options.finish(settings.strict_fields);
}

// "json" or a schema.
void read_ollama_format(FieldReader& fields, TextConstraint& constraint) {
  const JsonValue* format = fields.find("format");
  if (format == nullptr) return;
  if (format->object() != nullptr) {
    constraint.kind = TextConstraint::Kind::kJsonSchema;
    constraint.source = format->to_text();
  } else if (format->text() != nullptr && *format->text() == "json") {
    constraint.kind = TextConstraint::Kind::kJsonObject;
  } else if (format->text() == nullptr || !format->text()->empty()) {
    fields.fail("format", "'format' is neither \"json\" nor a JSON Schema, an object");
  }
}

// true, false, or an effort.
void read_think(FieldReader& fields, ChatCall& call) {
  const JsonValue* think = fields.find("think");
  if (think == nullptr) return;
  JsonValue variables{JsonObject()};
  if (think->boolean() != nullptr) {
    variables.set("enable_thinking", *think);
  } else if (think->text() != nullptr) {
    variables.set("enable_thinking", JsonValue(true));
    variables.set("reasoning_effort", *think);
  } else {
    return fields.fail("think", "'think' is neither a boolean nor \"low\", \"medium\" or \"high\"");
  }
  call.variables = variables.to_text();
}

// What both calls have.
void read_common(FieldReader& fields, const ApiSettings& settings, FieldReport& report,
                 ChatCall& call) {
  fields.read("model", call.model);
  if (call.model.empty()) fields.fail("model", "'model' is missing, expected a model's name");
  call.model = ollama_model_name(std::move(call.model));
  call.stream = true;
  fields.read("stream", call.stream);
  read_options(fields, settings, report, call);
  read_ollama_format(fields, call.text.constraint);
  read_think(fields, call);
  fields.read("logprobs", call.text.log_probs);
  fields.read("top_logprobs", call.text.n_top_log_probs, 0, kMaxOllamaTopLogProbs);
  // ollama's default is true. Nothing is cut unasked here, and never while an answer is made.
  fields.read("truncate", call.drops_oldest);
  fields.accept({"keep_alive", "shift"});
}

// Loads the model and says so.
class LoadJob : public ComputeJob {
 public:
  LoadJob(OllamaCall call, const std::vector<std::string>& ignored_fields,
          const ApiRequest& request)
      : ComputeJob(call.call.model, request.tenant, request.exchange, ignored_fields,
                   &ollama_error_response),
        is_chat_(call.is_chat),
        settings_(*request.settings) {}

  std::optional<ApiError> begin(const LoadedModel& /*model*/) override { return std::nullopt; }

  bool compute_step(const LoadedModel& model) override {
    JsonWriter json;
    json.begin_object().member("model", name_of(model));
    json.member("created_at", utc_time(settings_.now_seconds()));
    if (is_chat_) {
      json.name("message").begin_object().member("role", "assistant").member("content", "");
      json.end_object();
    } else {
      json.member("response", "");
    }
    json.member("done_reason", "load").member("done", true).end_object();
    output_.respond(200, json.take());
    return false;
  }

 private:
  bool is_chat_;
  const ApiSettings& settings_;
};

std::shared_ptr<ServeJob> handle_ollama(const ApiRequest& request,
                                        OllamaCall (*read)(const JsonValue&, const ApiSettings&,
                                                           FieldReport&)) {
  FieldReport report;
  OllamaCall call;
  if (const std::optional<JsonValue> body = parse_body(request.exchange->request().body, report)) {
    call = read(*body, *request.settings, report);
  }
  if (!accept_request(request, report, &ollama_error_response)) return nullptr;
  if (call.only_loads) return std::make_shared<LoadJob>(std::move(call), report.ignored, request);
  std::unique_ptr<AnswerFormat> format =
      make_ollama_format(call, AnswerOutput(request.exchange, report.ignored), *request.settings);
  return make_chat_job(std::move(call.call), std::move(format), request.exchange, request.tenant,
                       *request.settings);
}

std::shared_ptr<ServeJob> handle_ollama_chat(const ApiRequest& request) {
  return handle_ollama(request, &read_ollama_chat);
}

std::shared_ptr<ServeJob> handle_ollama_generate(const ApiRequest& request) {
  return handle_ollama(request, &read_ollama_generate);
}

constexpr Route kOllamaRoutes[] = {
    {"GET", "/", &handle_ollama_root, &ollama_error_response},
    {"GET", "/api/version", &handle_ollama_version, &ollama_error_response},
    {"GET", "/api/tags", &handle_ollama_tags, &ollama_error_response},
    {"GET", "/api/ps", &handle_ollama_ps, &ollama_error_response},
    {"POST", "/api/show", &handle_ollama_show, &ollama_error_response},
    {"POST", "/api/chat", &handle_ollama_chat, &ollama_error_response},
    {"POST", "/api/generate", &handle_ollama_generate, &ollama_error_response},
    {"POST", "/api/embed", &handle_ollama_embed, &ollama_error_response},
    {"POST", "/api/embeddings", &handle_ollama_embeddings, &ollama_error_response},
};

}  // namespace

OllamaCall read_ollama_chat(const JsonValue& body, const ApiSettings& settings,
                            FieldReport& report) {
  OllamaCall out;
  ChatCall& call = out.call;
  FieldReader fields(body, "", report);
  read_common(fields, settings, report, call);
  const JsonArray* messages = fields.read_array("messages");
  out.only_loads = messages == nullptr || messages->empty();
  if (!out.only_loads) {
    JsonArray converted = *messages;
    int n_calls = 0;
    for (std::size_t i = 0; i < converted.size(); ++i) {
      convert_message(converted[i], indexed_path("messages", i), n_calls, report);
    }
    JsonValue normalized(std::move(converted));
    normalize_messages(normalized, "messages", report);
    call.messages = normalized.to_text();
  }
  call.tools = read_tools(fields, report, call.tool_use);
  fields.finish(settings.strict_fields);
  return out;
}

OllamaCall read_ollama_generate(const JsonValue& body, const ApiSettings& settings,
                                FieldReport& report) {
  OllamaCall out;
  out.is_chat = false;
  ChatCall& call = out.call;
  FieldReader fields(body, "", report);
  read_common(fields, settings, report, call);
  std::string prompt;
  std::string suffix;
  std::string system;
  bool raw = false;
  fields.read("prompt", prompt);
  fields.read("suffix", suffix);
  fields.read("system", system);
  fields.read("raw", raw);
  fields.not_built("template", kNeutralEmpty, "templates belong to the model");
  fields.not_built("context", kNeutralEmpty, "send the conversation to /api/chat");
  refuse_images(body, "images", report);
  fields.accept({"images"});
  out.only_loads = prompt.empty() && suffix.empty();
  if (raw || !suffix.empty()) {
    RawPrompt& text = call.raw.emplace_back();
    text.text = std::move(prompt);
    if (!suffix.empty()) text.suffix = std::move(suffix);
  } else {
    JsonArray messages;
    const auto add = [&messages](std::string_view role, std::string text) {
      JsonValue message{JsonObject()};
      message.set("role", JsonValue(std::string(role)));
      message.set("content", JsonValue(std::move(text)));
      messages.push_back(std::move(message));
    };
    if (!system.empty()) add("system", std::move(system));
    add("user", std::move(prompt));
    call.messages = JsonValue(std::move(messages)).to_text();
  }
  fields.finish(settings.strict_fields);
  return out;
}

std::string ollama_model_name(std::string name) {
  constexpr std::string_view kTag = ":latest";
  if (name.size() > kTag.size() && name.ends_with(kTag)) name.resize(name.size() - kTag.size());
  return name;
}

std::string ollama_error_body(const ApiError& error) {
  JsonWriter json;
  json.begin_object().member("error", error.message).end_object();
  return json.take();
}

HttpResponse ollama_error_response(const ApiError& error) {
  HttpResponse response = {error.status, error_headers(error), ollama_error_body(error)};
  response.headers.push_back({"Content-Type", "application/json"});
  return response;
}

std::span<const Route> ollama_routes() {
  return kOllamaRoutes;
}

}  // namespace qsf_tools
