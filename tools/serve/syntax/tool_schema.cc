// SPDX-License-Identifier: MIT

#include "tools/serve/syntax/tool_schema.h"

#include <optional>

namespace qsf_tools {

namespace {

constexpr int kMaxReferences = 8;  // to a reference; more is no schema that anyone writes

// Returns the part of a schema that a path like "#/$defs/Arguments" leads to; empty: none.
std::string_view part_of(std::string_view schema, std::string_view path) {
  if (!path.starts_with("#/")) return {};
  path.remove_prefix(2);
  while (!schema.empty()) {
    const std::size_t end = path.find('/');
    schema = json_member(schema, path.substr(0, end));
    if (end == std::string_view::npos) break;
    path.remove_prefix(end + 1);
  }
  return schema;
}

}  // namespace

std::string_view resolved_schema(std::string_view schema) {
  std::string_view part = schema;
  for (int i = 0; i < kMaxReferences; ++i) {
    const std::optional<std::string> path = json_string(json_member(part, "$ref"));
    if (!path || !json_member(part, "properties").empty()) break;
    const std::string_view target = part_of(schema, *path);
    if (!target.starts_with('{')) break;
    part = target;
  }
  return part;
}

ToolSchema::ToolSchema(std::string_view schema) {
  for (JsonMemberText& member : json_members(schema)) {
    const bool defines = member.name == "$defs" || member.name == "definitions";
    if (defines) definitions.push_back(std::move(member));
  }
  const std::string_view described = resolved_schema(schema);
  const std::string_view described_properties = json_member(described, "properties");
  properties = json_members(described_properties);
  for (const std::string_view each : json_elements(json_member(described, "required"))) {
    if (std::optional<std::string> name = json_string(each)) required.insert(*std::move(name));
  }
  if (trim(schema).empty() || !described_properties.empty()) return;
  for (const std::string& name : required) properties.push_back({.name = name, .value = "{}"});
  const std::string_view additional = json_member(described, "additionalProperties");
  if (additional.empty() || additional == "true") {
    others = "{}";
  } else if (additional.starts_with('{')) {
    others = additional;
  }
}

}  // namespace qsf_tools
