// SPDX-License-Identifier: MIT
//
// What the interfaces beside OpenAI's share.

#ifndef QSF_TOOLS_SERVE_API_INTERFACE_REQUEST_H_
#define QSF_TOOLS_SERVE_API_INTERFACE_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tools/serve/api/api_error.h"
#include "tools/serve/api/json_fields.h"
#include "tools/serve/api/json_value.h"
#include "tools/serve/api/router.h"

namespace qsf_tools {

// Answers with the report's error, if there is one, in the form of an interface, and counts ignored
// fields otherwise. Returns whether the request goes on.
bool accept_request(const ApiRequest& request, const FieldReport& report,
                    HttpResponse (*error_response)(const ApiError& error));

// Keeps a request's first error, about a part of a field.
void report_invalid(FieldReport& report, std::string param, std::string message);
// Returns "messages[2]".
std::string indexed_path(std::string_view array, std::size_t index);

// Returns {"type": "function", "function": {name, description, parameters}}.
JsonValue function_tool(std::string name, std::string description, JsonValue parameters);
// Returns a call in a message of OpenAI's form.
JsonValue function_call(std::string id, std::string name, std::string arguments);

// Returns "2023-11-14T22:13:20Z" for seconds since 1970.
std::string utc_time(std::int64_t seconds);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_INTERFACE_REQUEST_H_
