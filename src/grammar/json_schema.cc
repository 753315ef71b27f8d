// SPDX-License-Identifier: MIT

#include "grammar/json_schema.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grammar/json_multiple.h"
#include "grammar/json_number.h"
#include "grammar/json_pattern.h"
#include "grammar/json_values.h"
#include "grammar/utf8_code_points.h"

namespace qsf {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxBrackets = 4 * kMaxGrammarDepth;  // of the JSON text
constexpr std::size_t kMaxSchemas = 50'000;                 // read, copies by merging included

constexpr std::string_view kAnnotations[] = {
    "title",    "description", "default",    "examples",        "example",         "$schema",
    "$id",      "id",          "$comment",   "$defs",           "definitions",     "$anchor",
    "readOnly", "writeOnly",   "deprecated", "contentEncoding", "contentMediaType"};
constexpr std::string_view kKeywords[] = {"type",
                                          "properties",
                                          "required",
                                          "additionalProperties",
                                          "minProperties",
                                          "maxProperties",
                                          "items",
                                          "prefixItems",
                                          "minItems",
                                          "maxItems",
                                          "enum",
                                          "const",
                                          "anyOf",
                                          "oneOf",
                                          "allOf",
                                          "$ref",
                                          "pattern",
                                          "format",
                                          "minLength",
                                          "maxLength",
                                          "minimum",
                                          "maximum",
                                          "exclusiveMinimum",
                                          "exclusiveMaximum",
                                          "multipleOf",
                                          "uniqueItems"};

template <std::size_t N>
bool is_one_of(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool is_annotation(std::string_view name) {
  return is_one_of(kAnnotations, name) || name.starts_with("x-");
}

std::size_t most_brackets(std::string_view text) {
  std::size_t depth = 0;
  std::size_t most = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text) {
      if (c == '\\') ++i;
      in_text = c != '"';
      continue;
    }
    in_text = c == '"';
    if (c == '{' || c == '[') most = std::max(most, ++depth);
    if ((c == '}' || c == ']') && depth > 0) --depth;
  }
  return most;
}

// A schema with the path that errors name.
struct Place {
  std::string path;
  std::size_t depth;
  Place in(std::string_view step) const { return {path + "/" + std::string(step), depth + 1}; }
};

class SchemaReader {
 public:
  SchemaReader(GrammarRules& rules, const Json& root)
      : rules_(rules), root_(root), values_(rules) {}

  Result<ExprId> run(std::size_t depth) {
    QSF_ASSIGN_OR_RETURN(const ExprId whole, schema(root_, {"#", depth}));
    // References are read here, one after the other, so that a chain of them is no recursion.
    while (!waiting_.empty()) {
      const Reference next = std::move(waiting_.back());
      waiting_.pop_back();
      QSF_ASSIGN_OR_RETURN(const ExprId target, schema(*next.schema, {next.path, depth}));
      rules_.define(next.rule, target);
    }
    QSF_RETURN_IF_ERROR(rules_.check_size());
    return whole;
  }

 private:
  struct Reference {
    std::string path;
    const Json* schema;
    RuleId rule;
  };
  using Bounds = std::pair<std::uint32_t, std::uint32_t>;

  static Status bad(const Place& place, const std::string& what) {
    return invalid_argument("schema: %s: %s", place.path.c_str(), what.c_str());
  }
  static Status not_supported(const Place& place, const std::string& what) {
    return unsupported("schema: %s: %s", place.path.c_str(), what.c_str());
  }
  static const Json* member(const Json& object, const char* name) {
    const auto found = object.find(name);
    return found == object.end() ? nullptr : &*found;
  }
  static std::string shown(const Json& value) {
    return value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 60);
  }

  ExprId constant(const Json& value) {
    if (value.is_string()) return values_.quoted(value.get_ref<const std::string&>());
    if (!value.is_structured()) return values_.text(value.dump());
    std::vector<ExprId> parts;
    for (const auto& [key, element] : value.items()) {
      ExprId part = constant(element);
      if (value.is_object()) part = values_.member_of(values_.quoted(key), part);
      parts.push_back(parts.empty() ? part : values_.after_comma(part));
    }
    const ExprId inner = rules_.sequence(parts);
    if (value.is_object()) {
      return parts.empty() ? values_.no_members() : values_.braces(inner, false);
    }
    return parts.empty() ? values_.no_elements() : values_.brackets(inner, false);
  }

  Result<ExprId> schema(const Json& from, const Place& place) {
    if (++n_schemas_ > kMaxSchemas) return bad(place, "the schema becomes too large");
    if (place.depth > kMaxGrammarDepth) {
      return bad(place, "more than " + std::to_string(kMaxGrammarDepth) + " schemas in each other");
    }
    if (from.is_boolean()) return from.get<bool>() ? values_.value() : rules_.choice({});
    if (!from.is_object()) return bad(place, "expected a schema, got " + shown(from));
    std::size_t n_keywords = 0;
    for (const auto& [name, unused] : from.items()) {
      if (is_annotation(name)) continue;
      if (!is_one_of(kKeywords, name)) {
        return not_supported(place.in(name), "this keyword is not supported");
      }
      ++n_keywords;
    }
    if (const Json* ref = member(from, "$ref")) {
      if (n_keywords == 1) return reference(*ref, place.in("$ref"));
      QSF_ASSIGN_OR_RETURN(const Json* const target, resolve(*ref, place.in("$ref")));
      Json rest = from;
      rest.erase("$ref");
      return merged_schema(*target, rest, place);
    }
    if (const Json* all = member(from, "allOf")) return all_of(from, *all, place);
    if (const Json* any = member(from, "anyOf")) return any_of(from, *any, "anyOf", place);
    if (const Json* one = member(from, "oneOf")) return any_of(from, *one, "oneOf", place);
    if (member(from, "const") != nullptr || member(from, "enum") != nullptr) {
      return enumeration(from, place);
    }
    return typed(from, place);
  }

  // References.

  Result<const Json*> resolve(const Json& ref, const Place& place) {
    if (!ref.is_string()) return bad(place, "expected a string, got " + shown(ref));
    const auto& target = ref.get_ref<const std::string&>();
    if (target.empty() || target[0] != '#') {
      return not_supported(place, "\"" + target + "\" is outside this schema");
    }
    const Json* at = &root_;
    std::string_view rest = std::string_view(target).substr(1);
    while (!rest.empty()) {
      if (rest[0] != '/') return not_supported(place, "\"" + target + "\" is not a JSON pointer");
      const std::size_t end = std::min(rest.find('/', 1), rest.size());
      std::string step;
      for (std::size_t i = 1; i < end; ++i) {
        if (rest[i] == '~' && i + 1 < end) {
          step.push_back(rest[++i] == '0' ? '~' : '/');
        } else if (rest[i] == '%' && i + 2 < end && hex_digit(rest[i + 1]) >= 0 &&
                   hex_digit(rest[i + 2]) >= 0) {
          step.push_back(static_cast<char>(hex_digit(rest[i + 1]) << 4 | hex_digit(rest[i + 2])));
          i += 2;
        } else {
          step.push_back(rest[i]);
        }
      }
      const Json* next = nullptr;
      if (at->is_object()) next = member(*at, step.c_str());
      if (at->is_array() && !step.empty() && step.size() < 6 &&
          step.find_first_not_of("0123456789") == std::string::npos) {
        const auto index = static_cast<std::size_t>(std::stoul(step));
        if (index < at->size()) next = &(*at)[index];
      }
      if (next == nullptr) return bad(place, "\"" + target + "\" does not exist");
      at = next;
      rest.remove_prefix(end);
    }
    return at;
  }

  Result<ExprId> reference(const Json& ref, const Place& place) {
    QSF_ASSIGN_OR_RETURN(const Json* const target, resolve(ref, place));
    const auto known = references_.find(target);
    if (known != references_.end()) return rules_.rule(known->second);
    const auto& path = ref.get_ref<const std::string&>();
    const RuleId id = rules_.add_rule(path);
    references_.emplace(target, id);
    waiting_.push_back({path, target, id});
    return rules_.rule(id);
  }

  // Combinations.

  Result<ExprId> all_of(const Json& from, const Json& all, const Place& place) {
    if (!all.is_array() || all.empty()) return bad(place.in("allOf"), "expected a list of schemas");
    Json merged = from;
    merged.erase("allOf");
    for (const Json& part : all) {
      QSF_ASSIGN_OR_RETURN(merged, merge(merged, part, place.in("allOf")));
    }
    return schema(merged, {place.path, place.depth + 1});
  }

  Result<ExprId> any_of(const Json& from, const Json& any, const char* name, const Place& place) {
    if (!any.is_array() || any.empty()) return bad(place.in(name), "expected a list of schemas");
    Json base = from;
    base.erase(name);
    const bool has_base = std::any_of(base.items().begin(), base.items().end(),
                                      [](const auto& m) { return !is_annotation(m.key()); });
    std::vector<ExprId> choices;
    for (std::size_t i = 0; i < any.size(); ++i) {
      const Place branch = place.in(std::string(name) + "/" + std::to_string(i));
      QSF_ASSIGN_OR_RETURN(const ExprId choice,
                           has_base ? merged_schema(base, any[i], branch) : schema(any[i], branch));
      choices.push_back(choice);
    }
    return rules_.choice(choices);
  }

  Result<ExprId> merged_schema(const Json& a, const Json& b, const Place& place) {
    QSF_ASSIGN_OR_RETURN(const Json merged, merge(a, b, place));
    return schema(merged, {place.path, place.depth + 1});
  }

  // The schema of what both schemas allow.
  Result<Json> merge(const Json& a, const Json& b, const Place& place) {
    if (place.depth > kMaxGrammarDepth || ++n_schemas_ > kMaxSchemas) {
      return bad(place, "schemas that are merged without end, or too many of them");
    }
    if (a.is_boolean()) return a.get<bool>() ? b : a;
    if (b.is_boolean()) return b.get<bool>() ? a : b;
    if (!a.is_object() || !b.is_object()) return bad(place, "expected schemas");
    for (const Json* side : {&a, &b}) {
      const Json* const ref = member(*side, "$ref");
      if (ref == nullptr) continue;
      QSF_ASSIGN_OR_RETURN(const Json* const target, resolve(*ref, place.in("$ref")));
      Json rest = *side;
      rest.erase("$ref");
      QSF_ASSIGN_OR_RETURN(const Json whole, merge(*target, rest, place.in("$ref")));
      return side == &a ? merge(whole, b, place.in("$ref")) : merge(a, whole, place.in("$ref"));
    }
    Json out = a;
    for (const auto& [key, theirs] : b.items()) {
      if (is_annotation(key)) continue;
      Json* const ours = out.contains(key) ? &out[key] : nullptr;
      if (ours == nullptr) {
        out[key] = theirs;
      } else if (*ours != theirs) {
        QSF_ASSIGN_OR_RETURN(Json both, merge_keyword(key, *ours, theirs, place.in(key)));
        *ours = std::move(both);
      }
    }
    // additionalProperties looks at the properties beside it, not at those of the other schema.
    for (const auto& [closed, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      if (member(*closed, "additionalProperties") == nullptr) continue;
      const Json* const more = member(*other, "properties");
      if (more == nullptr) continue;
      const Json* const own = member(*closed, "properties");
      for (const auto& [name, unused] : more->items()) {
        if (own != nullptr && own->contains(name)) continue;
        return not_supported(place,
                             "additionalProperties beside further properties of allOf, "
                             "anyOf, oneOf or $ref");
      }
    }
    return out;
  }

  Result<Json> merge_keyword(const std::string& key, const Json& a, const Json& b,
                             const Place& place) {
    if (key == "properties" && a.is_object() && b.is_object()) {
      Json out = a;
      for (const auto& [name, theirs] : b.items()) {
        if (!out.contains(name)) {
          out[name] = theirs;
          continue;
        }
        QSF_ASSIGN_OR_RETURN(Json both, merge(out[name], theirs, place.in(name)));
        out[name] = std::move(both);
      }
      return out;
    }
    if (key == "items" || key == "additionalProperties") {
      return a.is_array() || b.is_array() ? not_supported(place, "two lists cannot be merged")
                                          : merge(a, b, place);
    }
    if (key == "required" && a.is_array() && b.is_array()) {
      Json out = a;
      for (const Json& name : b) {
        if (std::find(a.begin(), a.end(), name) == a.end()) out.push_back(name);
      }
      return out;
    }
    if (key == "enum" && a.is_array() && b.is_array()) {
      Json out = Json::array();
      for (const Json& one : a) {
        if (std::find(b.begin(), b.end(), one) != b.end()) out.push_back(one);
      }
      return out;
    }
    if (key == "type") {
      Json out = Json::array();
      for (const Json& mine : a.is_array() ? a : Json::array({a})) {
        for (const Json& theirs : b.is_array() ? b : Json::array({b})) {
          if (mine == theirs || (mine == "integer" && theirs == "number")) out.push_back(mine);
          if (mine == "number" && theirs == "integer") out.push_back(theirs);
        }
      }
      return out;
    }
    const bool greater = key.starts_with("min") || key == "exclusiveMinimum";
    const bool lesser = key.starts_with("max") || key == "exclusiveMaximum";
    if ((greater || lesser) && a.is_number() && b.is_number()) return (a < b) == lesser ? a : b;
    if (key == "allOf" && a.is_array() && b.is_array()) {
      Json out = a;
      out.insert(out.end(), b.begin(), b.end());
      return out;
    }
    return not_supported(place, "different values cannot be merged");
  }

  // Values.

  static const char* type_of(const Json& value) {
    if (value.is_string()) return "string";
    if (value.is_boolean()) return "boolean";
    if (value.is_null()) return "null";
    if (value.is_number_integer()) return "integer";
    if (value.is_number()) return "number";
    return value.is_array() ? "array" : "object";
  }

  // Whether a value of an enum is one that the keywords beside it allow.
  Result<bool> is_allowed(const Json& value, const Json& from, const Place& place) {
    if (const Json* type = member(from, "type")) {
      const std::string own = type_of(value);
      const Json types = type->is_array() ? *type : Json::array({*type});
      const bool found = std::any_of(types.begin(), types.end(), [&](const Json& one) {
        return one == own || (one == "number" && own == "integer");
      });
      if (!found) return false;
    }
    if (const Json* fixed = member(from, "const"); fixed != nullptr && *fixed != value)
      return false;
    if (value.is_string()) {
      const auto& bytes = value.get_ref<const std::string&>();
      const auto n = static_cast<std::uint32_t>(
          std::count_if(bytes.begin(), bytes.end(), [](char c) { return (c & 0xC0) != 0x80; }));
      QSF_ASSIGN_OR_RETURN(const Bounds length, counts(from, "minLength", "maxLength", place));
      if (n < length.first || n > length.second) return false;
      if (member(from, "pattern") != nullptr) {
        return not_supported(place.in("pattern"), "a pattern beside enum or const");
      }
    }
    if (value.is_number()) {
      QSF_ASSIGN_OR_RETURN(const std::optional<NumberBound> least, bound(from, true, place));
      QSF_ASSIGN_OR_RETURN(const std::optional<NumberBound> most, bound(from, false, place));
      const std::optional<Decimal> number = read_decimal(value.dump());
      if (!number.has_value()) return bad(place, "a number that is too large");
      const auto passes = [&](const std::optional<NumberBound>& limit, int side) {
        if (!limit.has_value()) return true;
        const int order = compare(*number, limit->value) * side;
        return order > 0 || (order == 0 && !limit->exclusive);
      };
      QSF_ASSIGN_OR_RETURN(const std::optional<NumberStep> step, multiple_of(from, place));
      const bool fits = !step.has_value() || is_multiple(*number, *step);
      return fits && passes(least, 1) && passes(most, -1);
    }
    if (value.is_structured()) {
      for (const char* name : {"properties", "items", "prefixItems", "minItems", "maxItems",
                               "required", "additionalProperties"}) {
        if (member(from, name) == nullptr) continue;
        return not_supported(place.in(name),
                             "this keyword beside an enum or const of lists or "
                             "objects");
      }
    }
    return true;
  }

  Result<ExprId> enumeration(const Json& from, const Place& place) {
    const Json* list = member(from, "enum");
    const Json fixed = list == nullptr ? Json::array({from["const"]}) : Json();
    if (list == nullptr) list = &fixed;
    if (!list->is_array() || list->empty()) {
      return bad(place.in("enum"), "expected a list of values");
    }
    std::vector<ExprId> choices;
    for (const Json& one : *list) {
      QSF_ASSIGN_OR_RETURN(const bool allowed, is_allowed(one, from, place));
      if (allowed) choices.push_back(constant(one));
    }
    if (choices.empty()) return bad(place, "no value is left that all keywords allow");
    return rules_.choice(choices);
  }

  Result<ExprId> typed(const Json& from, const Place& place) {
    const Json* const type = member(from, "type");
    const auto has = [&from](std::initializer_list<const char*> names) {
      return std::any_of(names.begin(), names.end(),
                         [&](const char* name) { return member(from, name) != nullptr; });
    };
    if (type == nullptr) {
      if (has({"properties", "required", "additionalProperties", "minProperties",
               "maxProperties"})) {
        return object(from, place);
      }
      if (has({"items", "prefixItems", "minItems", "maxItems", "uniqueItems"})) {
        return array(from, place);
      }
      if (has({"pattern", "format", "minLength", "maxLength"})) return text_value(from, place);
      if (has({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})) {
        return number(from, false, place);
      }
      return values_.value();
    }
    const Json types = type->is_array() ? *type : Json::array({*type});
    if (types.empty()) return bad(place.in("type"), "no type is left");
    std::vector<ExprId> choices;
    for (const Json& one : types) {
      const std::string name = one.is_string() ? one.get<std::string>() : "";
      Result<ExprId> choice = rules_.empty();
      if (name == "object") {
        choice = object(from, place);
      } else if (name == "array") {
        choice = array(from, place);
      } else if (name == "string") {
        choice = text_value(from, place);
      } else if (name == "integer" || name == "number") {
        choice = number(from, name == "integer", place);
      } else if (name == "boolean") {
        choice = rules_.choice({values_.text("true"), values_.text("false")});
      } else if (name == "null") {
        choice = values_.text("null");
      } else {
        return bad(place.in("type"), "unknown type " + shown(one));
      }
      if (!choice.has_value()) return choice;
      choices.push_back(*choice);
    }
    return rules_.choice(choices);
  }

  // Reads two counts, 0 and no limit by default.
  Result<Bounds> counts(const Json& from, const char* least, const char* most, const Place& place) {
    Bounds out = {0, kUnbounded};
    for (const char* name : {least, most}) {
      const Json* const count = member(from, name);
      if (count == nullptr) continue;
      const double number = count->is_number() ? count->get<double>() : -1.0;
      if (!(number >= 0) ||
          number != static_cast<double>(static_cast<std::int64_t>(std::min(number, 1e15)))) {
        return bad(place.in(name), "expected a number of at least 0, got " + shown(*count));
      }
      (name == least ? out.first : out.second) =
          static_cast<std::uint32_t>(std::min<double>(number, kMaxRepeats));
    }
    if (out.first > out.second) {
      return bad(place.in(most), "less than " + std::string(least) + ": nothing matches");
    }
    return out;
  }

  Result<ExprId> text_value(const Json& from, const Place& place) {
    QSF_ASSIGN_OR_RETURN(const Bounds length, counts(from, "minLength", "maxLength", place));
    const Json* const pattern = member(from, "pattern");
    const Json* const format = member(from, "format");
    if (pattern == nullptr && format == nullptr) {
      if (length == Bounds{0, kUnbounded}) return values_.string();
      return rules_.sequence({values_.text("\""),
                              rules_.repeat(json_text_char(rules_), length.first, length.second),
                              values_.text("\"")});
    }
    if (pattern != nullptr && format != nullptr) {
      return not_supported(place.in("format"), "pattern and format together");
    }
    const Place where = place.in(pattern != nullptr ? "pattern" : "format");
    const Json& wanted = pattern != nullptr ? *pattern : *format;
    if (!wanted.is_string()) return bad(where, "expected a string, got " + shown(wanted));
    const auto& name = wanted.get_ref<const std::string&>();
    const char* expression = pattern != nullptr ? name.c_str() : json_format_pattern(name);
    if (expression == nullptr) return not_supported(where, "unknown format \"" + name + "\"");
    Result<ExprId> parsed = parse_json_pattern(rules_, expression, {length.first, length.second});
    if (!parsed.has_value()) return std::move(parsed).error().with_context("schema: " + where.path);
    return rules_.sequence({values_.text("\""), *parsed, values_.text("\"")});
  }

  // minimum and exclusiveMinimum, or their opposites.
  Result<std::optional<NumberBound>> bound(const Json& from, bool least, const Place& place) {
    std::optional<NumberBound> out;
    const char* const name = least ? "minimum" : "maximum";
    const char* const exclusive = least ? "exclusiveMinimum" : "exclusiveMaximum";
    const Json* const open = member(from, exclusive);
    for (const char* key : {name, exclusive}) {
      const Json* const limit = member(from, key);
      if (limit == nullptr || (key == exclusive && limit->is_boolean())) continue;
      const std::optional<Decimal> number =
          limit->is_number() ? read_decimal(limit->dump()) : std::nullopt;
      if (!number.has_value()) return bad(place.in(key), "expected a number, got " + shown(*limit));
      const bool is_open = key == exclusive ||
                           (open != nullptr && open->is_boolean() && open->get<bool>());  // draft 4
      const int order = out.has_value() ? compare(*number, out->value) * (least ? 1 : -1) : 1;
      if (order > 0 || (order == 0 && is_open)) out = NumberBound{*number, is_open};
    }
    return out;
  }

  Result<std::optional<NumberStep>> multiple_of(const Json& from, const Place& place) {
    const Json* const value = member(from, "multipleOf");
    if (value == nullptr) return std::optional<NumberStep>();
    const Place where = place.in("multipleOf");
    const std::optional<Decimal> number =
        value->is_number() ? read_decimal(value->dump()) : std::nullopt;
    if (!number.has_value() || number->negative || number->is_zero()) {
      return bad(where, "expected a number above 0, got " + shown(*value));
    }
    const std::optional<NumberStep> step = read_step(*number);
    if (!step.has_value()) return not_supported(where, "more than 18 digits");
    return step;
  }

  Result<ExprId> number(const Json& from, bool whole, const Place& place) {
    QSF_ASSIGN_OR_RETURN(const std::optional<NumberBound> least, bound(from, true, place));
    QSF_ASSIGN_OR_RETURN(const std::optional<NumberBound> most, bound(from, false, place));
    QSF_ASSIGN_OR_RETURN(const std::optional<NumberStep> step, multiple_of(from, place));
    if (step.has_value()) {
      Result<ExprId> multiple = json_multiple(rules_, *step, whole, least, most);
      if (multiple.has_value()) return multiple;
      return std::move(multiple).error().with_context("schema: " + place.in("multipleOf").path);
    }
    if (!least.has_value() && !most.has_value()) {
      return whole ? values_.integer() : values_.number();
    }
    const int order =
        least.has_value() && most.has_value() ? compare(least->value, most->value) : -1;
    if (order > 0 || (order == 0 && (least->exclusive || most->exclusive))) {
      return bad(place, "no number is within the bounds");
    }
    return whole ? json_integer(rules_, least, most) : json_number(rules_, least, most);
  }

  Result<ExprId> array(const Json& from, const Place& place) {
    QSF_ASSIGN_OR_RETURN(const Bounds n, counts(from, "minItems", "maxItems", place));
    if (const Json* unique = member(from, "uniqueItems");
        unique != nullptr && *unique != Json(false)) {
      return not_supported(place.in("uniqueItems"), "this keyword is not supported");
    }
    const Json* prefix = member(from, "prefixItems");
    const Json* items = member(from, "items");
    if (items != nullptr && items->is_array()) {  // before draft 2020-12
      prefix = items;
      items = nullptr;
    }
    const std::size_t n_prefix = prefix == nullptr ? 0 : prefix->size();
    std::optional<ExprId> item;
    if (items == nullptr && n_prefix < n.first) item = values_.value();
    if (items == nullptr && prefix == nullptr) item = values_.value();
    if (items != nullptr && *items != Json(false)) {
      QSF_ASSIGN_OR_RETURN(const ExprId of, schema(*items, place.in("items")));
      item = rules_.named("item", of);
    }
    const auto n_prefixed = static_cast<std::uint32_t>(std::min<std::size_t>(n_prefix, n.second));
    if (!item.has_value() && n_prefixed < n.first) return bad(place, "no list is long enough");
    // From the end: what may follow behind the elements before `i`.
    const std::uint32_t n_least = n.first > n_prefixed ? n.first - n_prefixed : 0;
    const std::uint32_t n_most = n.second == kUnbounded ? kUnbounded : n.second - n_prefixed;
    if (n_prefixed == 0) {
      if (!item.has_value() || n.second == 0) {
        return values_.no_elements();
      }
      const std::uint32_t more = n_most == kUnbounded ? kUnbounded : n_most - 1;
      const ExprId rest =
          rules_.repeat(values_.after_comma(*item), n_least > 0 ? n_least - 1 : 0, more);
      return values_.brackets(rules_.sequence({*item, rest}), n.first == 0);
    }
    ExprId tail = item.has_value() ? rules_.repeat(values_.after_comma(*item), n_least, n_most)
                                   : rules_.empty();
    for (std::uint32_t i = n_prefixed; i > 0; --i) {
      const Place where = place.in("prefixItems/" + std::to_string(i - 1));
      QSF_ASSIGN_OR_RETURN(const ExprId element, schema((*prefix)[i - 1], where));
      const ExprId here = rules_.sequence({i > 1 ? values_.after_comma(element) : element, tail});
      tail = rules_.named("elements", i > n.first && i > 1 ? rules_.optional(here) : here);
    }
    return values_.brackets(tail, n.first == 0);
  }

  Result<ExprId> object(const Json& from, const Place& place) {
    QSF_ASSIGN_OR_RETURN(const Bounds n, counts(from, "minProperties", "maxProperties", place));
    const Json* const properties = member(from, "properties");
    const Json* const additional = member(from, "additionalProperties");
    const Json* const required = member(from, "required");
    if (properties != nullptr && !properties->is_object()) {
      return bad(place.in("properties"), "expected an object, got " + shown(*properties));
    }
    if (required != nullptr && !required->is_array()) {
      return bad(place.in("required"), "expected a list of names, got " + shown(*required));
    }
    std::map<std::string, bool> is_required;
    if (required != nullptr) {
      for (const Json& name : *required) {
        if (!name.is_string()) return bad(place.in("required"), "expected a name");
        is_required.emplace(name.get<std::string>(), false);
      }
    }
    std::vector<JsonObjectMember> members;
    std::vector<std::string> names;
    const auto add = [&](const std::string& name, const Json& of, const Place& where) -> Status {
      const auto wanted = is_required.find(name);
      QSF_ASSIGN_OR_RETURN(const ExprId value_of, schema(of, where));
      members.push_back(
          {values_.member_of(values_.quoted(name), value_of), wanted != is_required.end()});
      if (wanted != is_required.end()) wanted->second = true;
      names.push_back(name);
      return ok_status();
    };
    if (properties != nullptr) {
      for (const auto& [name, of] : properties->items()) {
        QSF_RETURN_IF_ERROR(add(name, of, place.in("properties").in(name)));
      }
    }
    const bool open = additional != nullptr ? *additional != Json(false) : properties == nullptr;
    for (const auto& [name, known] : is_required) {
      if (known) continue;
      if (!open && additional != nullptr) {
        return bad(place.in("required"), "\"" + name + "\" is required but not allowed");
      }
      const Json any = true;
      QSF_RETURN_IF_ERROR(add(name, additional != nullptr ? *additional : any, place));
    }
    std::optional<ExprId> further;
    if (open) {
      ExprId of = values_.value();
      if (additional != nullptr && !additional->is_boolean()) {
        QSF_ASSIGN_OR_RETURN(of, schema(*additional, place.in("additionalProperties")));
      }
      const ExprId key = names.empty() ? values_.string() : values_.other_key(names);
      further = rules_.named("additional", values_.member_of(key, of));
    }
    if (n != Bounds{0, kUnbounded}) return counted_object(members, further, n, place);
    return values_.members_of(members, further);
  }

  Result<ExprId> counted_object(const std::vector<JsonObjectMember>& members,
                                const std::optional<ExprId>& further, Bounds n,
                                const Place& place) {
    const auto n_required = static_cast<std::uint32_t>(std::count_if(
        members.begin(), members.end(), [](const JsonObjectMember& one) { return one.required; }));
    if (members.empty() && further.has_value()) {
      if (n.second == 0) return values_.no_members();
      const std::uint32_t more = n.second == kUnbounded ? kUnbounded : n.second - 1;
      const ExprId rest =
          rules_.repeat(values_.after_comma(*further), n.first > 0 ? n.first - 1 : 0, more);
      return values_.braces(rules_.sequence({*further, rest}), n.first == 0);
    }
    if (n_required >= n.first && !further.has_value() && members.size() <= n.second) {
      return values_.members_of(members, further);
    }
    return not_supported(place, "minProperties or maxProperties beside properties");
  }

  GrammarRules& rules_;
  const Json& root_;
  JsonValueRules values_;
  std::map<const Json*, RuleId> references_;
  std::vector<Reference> waiting_;
  std::size_t n_schemas_ = 0;
};

}  // namespace

Result<ExprId> add_json_schema(GrammarRules& rules, std::string_view schema, std::size_t depth) {
  if (most_brackets(schema) > kMaxBrackets) {
    return invalid_argument("schema: more than %zu brackets in each other", kMaxBrackets);
  }
  const Json root = Json::parse(schema, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) return invalid_argument("schema: not JSON");
  return SchemaReader(rules, root).run(depth);
}

Result<GrammarRules> parse_json_schema(std::string_view schema) {
  GrammarRules rules;
  const RuleId root = rules.add_rule("root");
  QSF_ASSIGN_OR_RETURN(const ExprId whole, add_json_schema(rules, schema));
  rules.define(root, whole);
  rules.root = root;
  return rules;
}

Result<GrammarRules> json_object_rules() {
  return parse_json_schema(R"({"type": "object"})");
}

}  // namespace qsf
