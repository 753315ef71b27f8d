// SPDX-License-Identifier: MIT
//
// Checks the messages and tools of a conversation in OpenAI's form, and puts them into the form
// that chat templates read.

#ifndef QSF_TOOLS_SERVE_API_MESSAGE_FIELDS_H_
#define QSF_TOOLS_SERVE_API_MESSAGE_FIELDS_H_

#include <string>
#include <string_view>

#include "tools/serve/api/json_fields.h"
#include "tools/serve/api/json_value.h"
#include "tools/serve/syntax/chat_syntax.h"

namespace qsf_tools {

// Content in parts becomes one string, lines of text between newlines, and the role function
// becomes tool; all else stays, also members that nobody knows. The template's needs come later
// (qsf/chat_prompt.h). Images, audio and files are refused. Errors are in `report`; they name
// "messages[2].content", where `path` is "messages".
void normalize_messages(JsonValue& messages, const std::string& path, FieldReport& report);

// Reads `tools`, `tool_choice` and `parallel_tool_calls`. Returns the JSON text of the tools;
// empty without any, and on errors.
std::string read_tools(FieldReader& fields, FieldReport& report, ToolUse& use);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_MESSAGE_FIELDS_H_
