// SPDX-License-Identifier: MIT
//
// /v1/responses for text, without stored state: a call becomes a chat, and its answer a response of
// items.

#ifndef QSF_TOOLS_SERVE_API_OPENAI_RESPONSES_H_
#define QSF_TOOLS_SERVE_API_OPENAI_RESPONSES_H_

#include <memory>
#include <string>

#include "tools/serve/api/answer_output.h"
#include "tools/serve/api/api_settings.h"
#include "tools/serve/api/chat_call.h"
#include "tools/serve/api/json_fields.h"

namespace qsf_tools {

struct ResponsesCall {
  ChatCall call;
  // What the response repeats, as JSON text.
  std::string instructions = "null";
  std::string tools = "[]";
  std::string tool_choice = "\"auto\"";
  std::string format = R"({"type":"text"})";
  std::string metadata = "{}";
  std::string effort = "null";
};

// Reads a body. Errors are in `report`.
ResponsesCall read_responses(JsonValue body, const ApiSettings& settings, FieldReport& report);

// Writes a response, whole or as a stream of events.
std::unique_ptr<AnswerFormat> make_responses_format(const ResponsesCall& call, AnswerOutput output,
                                                    const ApiSettings& settings);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_OPENAI_RESPONSES_H_
