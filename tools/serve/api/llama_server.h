// SPDX-License-Identifier: MIT
//
// Endpoints that llama-server has beside OpenAI's: /infill, /tokenize, /detokenize,
// /apply-template, /props, and the bodies of /health.

#ifndef QSF_TOOLS_SERVE_API_LLAMA_SERVER_H_
#define QSF_TOOLS_SERVE_API_LLAMA_SERVER_H_

#include <memory>
#include <span>
#include <string_view>

#include "tools/serve/api/answer_output.h"
#include "tools/serve/api/chat_call.h"
#include "tools/serve/api/json_fields.h"
#include "tools/serve/api/router.h"

namespace qsf_tools {

// Reads a body of /infill. Errors are in `report`.
ChatCall read_infill(const JsonValue& body, const ApiSettings& settings, FieldReport& report);
// Writes the text that was filled in, whole or as events.
std::unique_ptr<AnswerFormat> make_infill_format(const ChatCall& call, AnswerOutput output);
std::shared_ptr<ServeJob> handle_infill(const ApiRequest& request);

// The response of /health: 200 {"status":"ok"}, or 503 with why not.
HttpResponse health_response(bool is_ready, std::string_view why_not);

std::span<const Route> llama_server_routes();

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_LLAMA_SERVER_H_
