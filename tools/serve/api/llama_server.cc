// SPDX-License-Identifier: MIT
//
// Text to tokens and back, the text of a conversation's prompt, and what the server is and has.

#include "tools/serve/api/llama_server.h"

#include <climits>
#include <utility>

#include "tools/serve/api/api_error.h"
#include "tools/serve/api/compute_job.h"
#include "tools/serve/api/json_writer.h"
#include "tools/serve/api/openai_common.h"

namespace qsf_tools {

namespace {

// A job whose answer is one object, made from the model.
class TextJob : public ComputeJob {
 public:
  TextJob(std::string model, const FieldReport& report, const ApiRequest& request)
      : ComputeJob(std::move(model), request.tenant, request.exchange, report.ignored,
                   &openai_error_response),
        settings_(*request.settings) {}

  std::optional<ApiError> begin(const LoadedModel& model) override { return write(model, json_); }
  bool compute_step(const LoadedModel& /*model*/) override {
    output_.respond(200, json_.take());
    return false;
  }

 protected:
  virtual std::optional<ApiError> write(const LoadedModel& model, JsonWriter& json) = 0;

  const ApiSettings& settings_;

 private:
  JsonWriter json_;
};

// Whether bytes are text that JSON can have.
bool is_utf8(std::string_view bytes) {
  std::string json;
  append_json_string(bytes, json);
  return json.find("\xEF\xBF\xBD") == std::string::npos;
}

// Where a file lies is nobody's business.
std::string_view file_name_of(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

struct TokenizeCall {
  std::string model;
  std::string text;
  bool add_special = false;
  bool parse_special = true;
  bool with_pieces = false;
  bool counts = false;  // vLLM's form, which has the number of tokens, too
};

class TokenizeJob : public TextJob {
 public:
  TokenizeJob(TokenizeCall call, const FieldReport& report, const ApiRequest& request)
      : TextJob(call.model, report, request), call_(std::move(call)) {}

 private:
  std::optional<ApiError> write(const LoadedModel& model, JsonWriter& json) override {
    unsigned flags = call_.add_special ? QSF_TOKENIZE_DEFAULT : QSF_TOKENIZE_NO_BOS;
    if (call_.parse_special) flags |= QSF_TOKENIZE_PARSE_SPECIAL;
    std::vector<int> tokens;
    if (!call_.text.empty() || call_.add_special) {
      if (auto error = settings_.access->tokenize(model, call_.text, flags, tokens)) return error;
    }
    json.begin_object();
    if (call_.counts) {
      json.member("count", tokens.size()).member("max_model_len", model.info.context);
    }
    json.name("tokens").begin_array();
    for (const int token : tokens) {
      if (call_.with_pieces) {
        write_piece(model, token, json);
      } else {
        json.integer(token);
      }
    }
    json.end_array().end_object();
    return std::nullopt;
  }

  // A piece is text, or its bytes where it is a part of a character.
  void write_piece(const LoadedModel& model, int token, JsonWriter& json) const {
    const std::string bytes = settings_.access->token_bytes(model, token);
    json.begin_object().member("id", token).name("piece");
    if (is_utf8(bytes)) {
      json.text(bytes);
    } else {
      json.begin_array();
      for (const char byte : bytes) json.integer(static_cast<unsigned char>(byte));
      json.end_array();
    }
    json.end_object();
  }

  TokenizeCall call_;
};

class DetokenizeJob : public TextJob {
 public:
  DetokenizeJob(std::string model, std::vector<int> tokens, const FieldReport& report,
                const ApiRequest& request)
      : TextJob(std::move(model), report, request), tokens_(std::move(tokens)) {}

 private:
  std::optional<ApiError> write(const LoadedModel& model, JsonWriter& json) override {
    for (const int token : tokens_) {
      if (token < model.info.n_vocab) continue;
      return invalid_field("tokens", "'tokens' has " + std::to_string(token) +
                                         ", but the model's tokens end at " +
                                         std::to_string(model.info.n_vocab - 1));
    }
    std::string text;
    if (auto error = settings_.access->detokenize(model, tokens_, text)) return error;
    // llama-server's name, and vLLM's.
    json.begin_object().member("content", text).member("prompt", text).end_object();
    return std::nullopt;
  }

  std::vector<int> tokens_;
};

class ApplyTemplateJob : public TextJob {
 public:
  ApplyTemplateJob(ChatCall call, const FieldReport& report, const ApiRequest& request)
      : TextJob(call.model, report, request), call_(std::move(call)) {}

 private:
  std::optional<ApiError> write(const LoadedModel& model, JsonWriter& json) override {
    ChatPromptRequest request;
    request.messages = call_.messages;
    request.tools = call_.tools;
    request.variables = call_.variables;
    request.add_generation_prompt = call_.add_generation_prompt;
    request.continue_final_message = call_.continue_final_message;
    request.now_seconds = settings_.now_seconds();
    ChatPrompt prompt;
    if (auto error = settings_.access->chat_prompt(model, request, prompt)) return error;
    json.begin_object().member("prompt", prompt.text).end_object();
    return std::nullopt;
  }

  ChatCall call_;
};

class PropsJob : public TextJob {
 public:
  using TextJob::TextJob;

 private:
  std::optional<ApiError> write(const LoadedModel& model, JsonWriter& json) override {
    const char* source = model.info.chat_template;
    json.begin_object().name("default_generation_settings").begin_object();
    json.member("n_ctx", model.info.context).end_object();
    json.member("total_slots", settings_.max_texts).member("model_alias", model.id);
    json.member("model_path", file_name_of(model.path));
    json.member("chat_template", source == nullptr ? "" : source);
    json.name("modalities").begin_object().member("vision", false).member("audio", false);
    json.end_object().member("build_info", system_fingerprint() + "-qsf");
    json.member("is_sleeping", false).end_object();
    return std::nullopt;
  }
};

std::optional<JsonValue> body_of(const ApiRequest& request, FieldReport& report) {
  return parse_body(request.exchange->request().body, report);
}

std::shared_ptr<ServeJob> handle_tokenize(const ApiRequest& request) {
  FieldReport report;
  TokenizeCall call;
  if (const std::optional<JsonValue> body = body_of(request, report)) {
    FieldReader fields(*body, "", report);
    fields.read("model", call.model);
    call.counts = fields.find("prompt") != nullptr;
    call.add_special = call.counts;
    if (!call.counts && fields.find("content") == nullptr) {
      fields.fail("content", "'content' is missing, expected a text");
    }
    fields.read("content", call.text);
    fields.read("prompt", call.text);
    fields.read("add_special", call.add_special);
    fields.read("add_special_tokens", call.add_special);
    fields.read("parse_special", call.parse_special);
    fields.read("with_pieces", call.with_pieces);
    fields.not_built("return_token_strs", kNeutralFalse, "use 'with_pieces'");
    fields.finish(request.settings->strict_fields);
  }
  if (!accept_request(request, report)) return nullptr;
  return std::make_shared<TokenizeJob>(std::move(call), report, request);
}

std::shared_ptr<ServeJob> handle_detokenize(const ApiRequest& request) {
  FieldReport report;
  std::string model;
  std::vector<int> tokens;
  if (const std::optional<JsonValue> body = body_of(request, report)) {
    FieldReader fields(*body, "", report);
    fields.read("model", model);
    const JsonArray* items = fields.read_array("tokens");
    if (items == nullptr) fields.fail("tokens", "'tokens' is missing, expected an array");
    for (std::size_t i = 0; items != nullptr && i < items->size() && fields.ok(); ++i) {
      const std::optional<std::int64_t> token = (*items)[i].integer();
      if (!token || *token < 0 || *token > INT_MAX) {
        fields.fail("tokens", "'tokens' has an entry that is no token id");
        break;
      }
      tokens.push_back(static_cast<int>(*token));
    }
    fields.finish(request.settings->strict_fields);
  }
  if (!accept_request(request, report)) return nullptr;
  return std::make_shared<DetokenizeJob>(std::move(model), std::move(tokens), report, request);
}

std::shared_ptr<ServeJob> handle_apply_template(const ApiRequest& request) {
  FieldReport report;
  OpenAiChatCall chat;
  if (const std::optional<JsonValue> body = body_of(request, report)) {
    chat = read_openai_chat(*body, *request.settings, report);
  }
  if (!accept_request(request, report)) return nullptr;
  return std::make_shared<ApplyTemplateJob>(std::move(chat.call), report, request);
}

std::shared_ptr<ServeJob> handle_props(const ApiRequest& request) {
  return std::make_shared<PropsJob>("", FieldReport(), request);
}

// A text that names no adapter has none, so that all scales are 0.
std::shared_ptr<ServeJob> handle_lora_adapters(const ApiRequest& request) {
  const ApiSettings& settings = *request.settings;
  JsonWriter json;
  json.begin_array();
  for (std::size_t id = 0; id < settings.adapters.size(); ++id) {
    const AdapterListing& adapter = settings.adapters[id];
    json.begin_object().member("id", id).member("path", file_name_of(adapter.path));
    json.member("scale", 0).member("name", adapter.name).end_object();
  }
  json.end_array();
  AnswerOutput(request.exchange).respond(200, json.take());
  return nullptr;
}

// Sets what requests without `lora` take, in llama-server. Here a request is computed alike
// whatever other clients do.
std::shared_ptr<ServeJob> refuse_lora_adapters(const ApiRequest& request) {
  request.exchange->respond(openai_error_response(http_error(
      501,
      "'POST /lora-adapters' is not supported: it would change the texts of other clients; choose "
      "an adapter in each request, by its name in 'model' or by its id in 'lora'")));
  return nullptr;
}

constexpr Route kLlamaServerRoutes[] = {
    {"POST", "/infill", &handle_infill, &openai_error_response},
    {"POST", "/tokenize", &handle_tokenize, &openai_error_response},
    {"POST", "/detokenize", &handle_detokenize, &openai_error_response},
    {"POST", "/apply-template", &handle_apply_template, &openai_error_response},
    {"GET", "/props", &handle_props, &openai_error_response},
    {"GET", "/lora-adapters", &handle_lora_adapters, &openai_error_response},
    {"POST", "/lora-adapters", &refuse_lora_adapters, &openai_error_response},
};

}  // namespace

HttpResponse health_response(bool is_ready, std::string_view why_not) {
  if (is_ready) return {200, {{"Content-Type", "application/json"}}, R"({"status":"ok"})"};
  return openai_error_response(http_error(503, why_not));
}

std::span<const Route> llama_server_routes() {
  return kLlamaServerRoutes;
}

}  // namespace qsf_tools
