// SPDX-License-Identifier: MIT
//
// The errors of requests, and OpenAI's form of them. ApiError itself is in text_request.h.

#ifndef QSF_TOOLS_SERVE_API_API_ERROR_H_
#define QSF_TOOLS_SERVE_API_API_ERROR_H_

#include <string>
#include <string_view>
#include <vector>

#include "tools/serve/http/http_exchange.h"
#include "tools/serve/text_request.h"

namespace qsf_tools {

// 400 about one field.
ApiError invalid_field(std::string param, std::string message, std::string code = {});
// 400 in the words by which clients know it.
ApiError context_exceeded(int n_prompt_tokens, int n_ctx, std::string param);
// 404
ApiError model_not_found(std::string_view model);
// 400 or 500, by the code of the C interface.
ApiError engine_error(const qsf_error& error, std::string param);

// Returns {"error":{...}}.
std::string openai_error_body(const ApiError& error);
// Returns the headers of an error beside Content-Type: Retry-After, and x-should-retry: false on
// errors that stay wrong.
std::vector<HttpHeader> error_headers(const ApiError& error);
HttpResponse openai_error_response(const ApiError& error);

// The error for a status that the HTTP server refuses with itself; see HttpService::refuse.
ApiError http_error(int status, std::string_view message);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_API_ERROR_H_
