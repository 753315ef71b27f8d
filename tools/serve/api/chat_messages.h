// SPDX-License-Identifier: MIT
//
// Checks the messages and tools of a conversation in OpenAI's form, and puts them into the form
// that chat templates read.

#ifndef QSF_TOOLS_SERVE_API_CHAT_MESSAGES_H_
#define QSF_TOOLS_SERVE_API_CHAT_MESSAGES_H_

#include <string>
#include <string_view>

#include "tools/serve/api/json_fields.h"
#include "tools/serve/api/json_value.h"
#include "tools/serve/syntax/chat_syntax.h"

namespace qsf_tools {

// Roles become system, user, assistant or tool (developer is system, function is tool), content
// becomes one string: parts of text are joined, and null is empty. Images, audio and files are
// refused. Other members stay as they are. Errors name "messages[2].content".
// Returns  the JSON text of the array; empty with an error in `report`
std::string normalize_messages(const JsonValue& messages, FieldReport& report);

// Reads `tools`, `tool_choice` and `parallel_tool_calls`. Returns the JSON text of the tools;
// empty without any, and on errors.
std::string read_tools(FieldReader& fields, FieldReport& report, ToolUse& use);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_CHAT_MESSAGES_H_
