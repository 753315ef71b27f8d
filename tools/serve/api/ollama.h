// SPDX-License-Identifier: MIT
//
// ollama's interface, as a converter onto chats and raw prompts: lines of JSON, durations in
// nanoseconds, calls with arguments as objects.

#ifndef QSF_TOOLS_SERVE_API_OLLAMA_H_
#define QSF_TOOLS_SERVE_API_OLLAMA_H_

#include <memory>
#include <string>

#include "tools/serve/api/answer_output.h"
#include "tools/serve/api/chat_call.h"
#include "tools/serve/api/json_fields.h"
#include "tools/serve/api/router.h"

namespace qsf_tools {

struct OllamaCall {
  ChatCall call;
  bool is_chat = true;      // /api/chat; else /api/generate
  bool only_loads = false;  // nothing to be answered: the model is loaded
};

// Read bodies. Errors are in `report`.
OllamaCall read_ollama_chat(const JsonValue& body, const ApiSettings& settings,
                            FieldReport& report);
OllamaCall read_ollama_generate(const JsonValue& body, const ApiSettings& settings,
                                FieldReport& report);

// Writes an answer, whole or as lines.
std::unique_ptr<AnswerFormat> make_ollama_format(const OllamaCall& call, AnswerOutput output,
                                                 const ApiSettings& settings);

// Returns a model's name without ollama's ":latest".
std::string ollama_model_name(std::string name);

// {"error": "text"}
std::string ollama_error_body(const ApiError& error);
HttpResponse ollama_error_response(const ApiError& error);

// Whether a request for "/" is a browser's, which gets the web page. Others, which look for ollama
// there, get its words.
bool wants_page(const HttpRequest& request);

std::span<const Route> ollama_routes();

// The handlers of ollama_models.cc and ollama_embed.cc.
std::shared_ptr<ServeJob> handle_ollama_root(const ApiRequest& request);
std::shared_ptr<ServeJob> handle_ollama_version(const ApiRequest& request);
std::shared_ptr<ServeJob> handle_ollama_tags(const ApiRequest& request);
std::shared_ptr<ServeJob> handle_ollama_ps(const ApiRequest& request);
std::shared_ptr<ServeJob> handle_ollama_show(const ApiRequest& request);
std::shared_ptr<ServeJob> handle_ollama_embed(const ApiRequest& request);
std::shared_ptr<ServeJob> handle_ollama_embeddings(const ApiRequest& request);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_OLLAMA_H_
