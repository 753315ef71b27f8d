// SPDX-License-Identifier: MIT
//
// Anthropic's interface, as a converter onto chats: /v1/messages and /v1/messages/count_tokens.

#ifndef QSF_TOOLS_SERVE_API_ANTHROPIC_H_
#define QSF_TOOLS_SERVE_API_ANTHROPIC_H_

#include <memory>
#include <string>
#include <vector>

#include "tools/serve/api/answer_output.h"
#include "tools/serve/api/chat_call.h"
#include "tools/serve/api/json_fields.h"
#include "tools/serve/api/router.h"

namespace qsf_tools {

struct AnthropicCall {
  ChatCall call;
  std::vector<std::string> stop_sequences;  // of the client; the call gets the template's, too
  // Whether reasoning is sent. Clients that did not ask for it read the first block as the answer.
  bool shows_thinking = false;
};

// Reads a body; `counts`: of count_tokens, which needs no max_tokens. Errors are in `report`.
AnthropicCall read_anthropic(const JsonValue& body, const ApiSettings& settings, bool counts,
                             FieldReport& report);

// Writes a message, whole or as events.
std::unique_ptr<AnswerFormat> make_anthropic_format(const AnthropicCall& call, AnswerOutput output,
                                                    const ApiSettings& settings);

// {"type": "error", "error": {type, message}}
std::string anthropic_error_body(const ApiError& error);
HttpResponse anthropic_error_response(const ApiError& error);

std::span<const Route> anthropic_routes();

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_ANTHROPIC_H_
