// SPDX-License-Identifier: MIT

#include "tools/parity/json_schema.h"

#include <algorithm>

namespace qsf_tools {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 32;

bool is_type(const json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "integer") return value.is_number_integer();
  return type == "number" && value.is_number();
}

class Checker {
 public:
  explicit Checker(const json& root) : root_(root) {}

  std::string check(const json& value, const json& schema, const std::string& where, int depth) {
    if (depth > kMaxDepth) return where + ": nested too deep";
    for (const auto& [keyword, argument] : schema.items()) {
      std::string problem = check_keyword(value, schema, keyword, argument, where, depth);
      if (!problem.empty()) return problem;
    }
    return {};
  }

 private:
  std::string check_keyword(const json& value, const json& schema, const std::string& keyword,
                            const json& argument, const std::string& where, int depth) {
    const auto wrong = [&](const std::string& expected) {
      std::string got = value.dump(-1, ' ', true, json::error_handler_t::replace);
      if (got.size() > 60) got = got.substr(0, 60) + "...";
      return (where.empty() ? std::string("receipt") : where) + ": " + got + ", expected " +
             expected;
    };
    if (keyword == "$ref") return check_reference(value, argument.get<std::string>(), where, depth);
    if (keyword == "type") return has_type(value, argument) ? "" : wrong(argument.dump());
    if (keyword == "const") return value == argument ? "" : wrong(argument.dump());
    if (keyword == "enum") {
      const bool found = std::find(argument.begin(), argument.end(), value) != argument.end();
      return found ? "" : wrong("one of " + argument.dump());
    }
    if (keyword == "minimum") {
      return !value.is_number() || value >= argument ? "" : wrong("at least " + argument.dump());
    }
    if (keyword == "maximum") {
      return !value.is_number() || value <= argument ? "" : wrong("at most " + argument.dump());
    }
    if (keyword == "minLength" || keyword == "maxLength") {
      if (!value.is_string()) return {};
      const std::size_t length = value.get_ref<const std::string&>().size();
      const auto bound = argument.get<std::size_t>();
      const bool good = keyword == "minLength" ? length >= bound : length <= bound;
      return good ? "" : wrong(keyword + " " + argument.dump());
    }
    if (keyword == "items") return check_items(value, argument, where, depth);
    if (keyword == "required") return check_required(value, argument, where);
    if (keyword == "properties") return check_properties(value, argument, where, depth);
    if (keyword == "additionalProperties") return check_others(value, schema, where);
    const bool annotation = keyword == "$schema" || keyword == "$defs" || keyword == "title" ||
                            keyword == "description";
    return annotation ? "" : "the schema's keyword " + keyword + " is not known";
  }

  static bool has_type(const json& value, const json& types) {
    if (types.is_string()) return is_type(value, types.get<std::string>());
    return std::any_of(types.begin(), types.end(),
                       [&](const json& type) { return is_type(value, type.get<std::string>()); });
  }

  std::string check_reference(const json& value, const std::string& name, const std::string& where,
                              int depth) {
    const std::string prefix = "#/$defs/";
    if (!name.starts_with(prefix)) return "the schema's $ref " + name + " is not local";
    const auto found = root_["$defs"].find(name.substr(prefix.size()));
    if (found == root_["$defs"].end()) return "the schema lacks " + name;
    return check(value, *found, where, depth + 1);
  }

  std::string check_items(const json& value, const json& schema, const std::string& where,
                          int depth) {
    if (!value.is_array()) return {};
    for (std::size_t i = 0; i < value.size(); ++i) {
      std::string problem = check(value[i], schema, where + "/" + std::to_string(i), depth + 1);
      if (!problem.empty()) return problem;
    }
    return {};
  }

  static std::string check_required(const json& value, const json& names,
                                    const std::string& where) {
    if (!value.is_object()) return {};
    for (const json& name : names) {
      if (!value.contains(name.get<std::string>())) {
        return (where.empty() ? "receipt" : where) + ": has no " + name.get<std::string>();
      }
    }
    return {};
  }

  std::string check_properties(const json& value, const json& properties, const std::string& where,
                               int depth) {
    if (!value.is_object()) return {};
    for (const auto& [name, schema] : properties.items()) {
      const auto found = value.find(name);
      if (found == value.end()) continue;
      std::string problem =
          check(*found, schema, where.empty() ? name : where + "/" + name, depth + 1);
      if (!problem.empty()) return problem;
    }
    return {};
  }

  // additionalProperties is false wherever it stands.
  static std::string check_others(const json& value, const json& schema, const std::string& where) {
    if (!value.is_object()) return {};
    for (const auto& [name, unused] : value.items()) {
      if (!schema["properties"].contains(name)) {
        return (where.empty() ? "receipt" : where) + ": has " + name + ", which the schema lacks";
      }
    }
    return {};
  }

  const json& root_;
};

}  // namespace

json parse_json(std::string_view text) {
  bool is_deep = false;
  const auto keep = [&](int depth, json::parse_event_t, json&) {
    is_deep = is_deep || depth > kMaxDepth;
    return !is_deep;
  };
  json value = json::parse(text, keep, false);
  return is_deep ? json(json::value_t::discarded) : value;
}

std::string check_schema(const json& value, const json& schema) {
  return Checker(schema).check(value, schema, "", 0);
}

}  // namespace qsf_tools
