// SPDX-License-Identifier: MIT

#include "tools/serve/syntax/tool_schema.h"

#include <algorithm>
#include <optional>

namespace qsf_tools {

namespace {

constexpr int kMaxReferences = 8;  // to a reference; more is no schema that anyone writes

constexpr std::string_view kGroups[] = {"$defs", "definitions"};
constexpr std::string_view kReference = "\"$ref\"";

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
  return resolved_schema(schema, schema);
}

std::string_view resolved_schema(std::string_view schema, std::string_view whole) {
  std::string_view part = schema;
  for (int i = 0; i < kMaxReferences; ++i) {
    const std::optional<std::string> path = json_string(json_member(part, "$ref"));
    if (!path || !json_member(part, "properties").empty()) break;
    const std::string_view target = part_of(whole, *path);
    if (!target.starts_with('{')) break;
    part = target;
  }
  return part;
}

bool names_type(std::string_view types, std::string_view type) {
  const auto is_type = [&](std::string_view value) {
    const std::string name = json_string(value).value_or("");
    return name == type || (type == "number" && name == "integer");
  };
  const std::vector<std::string_view> list = json_elements(types);
  return is_type(types) || std::any_of(list.begin(), list.end(), is_type);
}

ToolSchema::ToolSchema(std::string_view schema) {
  for (const std::string_view group : kGroups) {
    for (const JsonMemberText& each : json_members(json_member(schema, group))) {
      definitions[std::string(group) + "/" + each.name] = each.value;
    }
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

std::string ToolSchema::definitions_of(std::string_view property) const {
  for (const std::string_view group : kGroups) {
    if (!json_member(property, group).empty()) return {};  // it has its own
  }
  std::set<std::string_view> needed;
  std::vector<std::string_view> unread = {property};
  while (!unread.empty()) {
    const std::string_view text = unread.back();
    unread.pop_back();
    for (std::size_t at = 0; (at = text.find(kReference, at)) != std::string_view::npos;) {
      at += kReference.size();
      std::string_view path = trim_left(text.substr(at));
      if (path.starts_with(':')) path = trim_left(path.substr(1));
      if (!path.starts_with("\"#/")) continue;
      path.remove_prefix(3);
      const auto found =
          definitions.find(path.substr(0, path.find_first_of("/\"", path.find('/') + 1)));
      if (found == definitions.end()) {
        // It is no definition, or its name is written with escapes.
        for (const auto& [each, value] : definitions) needed.insert(each);
        unread.clear();
        break;
      }
      if (needed.insert(found->first).second) unread.push_back(found->second);
    }
  }
  std::string members;
  for (const std::string_view group : kGroups) {
    std::string own;
    for (const std::string_view path : needed) {
      if (path.substr(0, path.find('/')) != group) continue;
      own += (own.empty() ? "" : ", ") + json_quoted(path.substr(group.size() + 1)) + ": ";
      own += definitions.find(path)->second;
    }
    if (!own.empty()) members += json_quoted(group) + ": {" + own + "}, ";
  }
  return members;
}

}  // namespace qsf_tools
