// SPDX-License-Identifier: MIT
//
// The JSON Schema of a tool's parameters, taken apart into those of each parameter.
//
// Threads  any

#ifndef QSF_TOOLS_SERVE_SYNTAX_TOOL_SCHEMA_H_
#define QSF_TOOLS_SERVE_SYNTAX_TOOL_SCHEMA_H_

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tools/serve/syntax/json_text.h"

namespace qsf_tools {

// Returns what a schema without properties refers to (`$ref` of the whole); or the schema.
std::string_view resolved_schema(std::string_view schema);
// The same for a schema within `whole`, to which its references point.
std::string_view resolved_schema(std::string_view schema, std::string_view whole);

// Whether `types`, the value of a schema's "type", names a type of json_kind().
bool names_type(std::string_view types, std::string_view type);

struct ToolSchema {
  // Keeps views of the text, which is empty (no parameters) or a JSON object.
  explicit ToolSchema(std::string_view schema);

  bool is_required(const JsonMemberText& property) const {
    return required.contains(property.name);
  }

  // Returns the definitions that the schema of a parameter refers to, also through each other, as
  // members for it: "..., "; or empty. One that defines something itself refers to that.
  std::string definitions_of(std::string_view property) const;

  std::vector<JsonMemberText> properties;  // also what is required and not described: "{}"
  std::set<std::string, std::less<>> required;
  std::map<std::string, std::string_view, std::less<>> definitions;  // by paths: "$defs/Arguments"
  // The schema of parameters of any name, where none has to have a certain one; empty: none.
  std::string_view others;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_SYNTAX_TOOL_SCHEMA_H_
