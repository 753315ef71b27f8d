// SPDX-License-Identifier: MIT
//
// /v1/models and /v1/models/{id}: answered at once, also without any model in memory.

#include "tools/serve/api/api_error.h"
#include "tools/serve/api/openai_common.h"

namespace qsf_tools {

namespace {

void write_model(JsonWriter& json, const ModelListing& model) {
  json.begin_object().member("id", model.id).member("object", "model");
  json.member("created", model.created).member("owned_by", "qsf").member("root", model.id);
  if (!model.parent.empty()) json.member("parent", model.parent);
  // vLLM's name, and llama-server's object, for what clients ask about the context.
  if (model.n_ctx > 0) json.member("max_model_len", model.n_ctx);
  json.name("meta").begin_object();
  const auto known = [&json](std::string_view name, std::uint64_t value) {
    if (value > 0) json.member(name, value);
  };
  known("n_ctx", static_cast<std::uint64_t>(model.n_ctx));
  known("n_ctx_train", static_cast<std::uint64_t>(model.n_ctx_train));
  known("n_vocab", static_cast<std::uint64_t>(model.n_vocab));
  known("n_embd", static_cast<std::uint64_t>(model.n_embd));
  known("n_params", model.n_params);
  known("size", model.size_bytes);
  json.end_object().end_object();
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Clients write the slash of "org/model" as %2F.
std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
    if (low >= 0) {
      decoded += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

}  // namespace

std::shared_ptr<ServeJob> handle_models(const ApiRequest& request) {
  JsonWriter json;
  json.begin_object().member("object", "list").name("data").begin_array();
  for (const ModelListing& model : request.settings->list_models()) write_model(json, model);
  json.end_array().end_object();
  AnswerOutput(request.exchange).respond(200, json.take());
  return nullptr;
}

std::shared_ptr<ServeJob> handle_model(const ApiRequest& request) {
  const std::string id = percent_decoded(request.path_rest);
  for (const ModelListing& model : request.settings->list_models()) {
    if (model.id != id) continue;
    JsonWriter json;
    write_model(json, model);
    AnswerOutput(request.exchange).respond(200, json.take());
    return nullptr;
  }
  AnswerOutput(request.exchange).respond(openai_error_response(model_not_found(id)));
  return nullptr;
}

}  // namespace qsf_tools
