// SPDX-License-Identifier: MIT

#include "grammar/json_values.h"

#include <algorithm>
#include <cstdint>

#include "grammar/json_number.h"
#include "grammar/json_pattern.h"
#include "grammar/utf8_code_points.h"

namespace qsf {

namespace {
constexpr std::uint32_t kMaxBlanks = 64;  // of a line's beginning
}  // namespace

ExprId JsonValueRules::shared(const char* name, ExprId (JsonValueRules::*make)()) {
  const auto known = shared_.find(name);
  if (known != shared_.end()) return rules_.rule(known->second);
  const RuleId id = rules_.add_rule(name);
  shared_.emplace(name, id);
  rules_.define(id, (this->*make)());
  return rules_.rule(id);
}

ExprId JsonValueRules::make_space() {
  const ExprId blanks = rules_.repeat(rules_.char_class({{' ', ' '}, {'\t', '\t'}}), 0, kMaxBlanks);
  const ExprId line = rules_.sequence({rules_.optional(text("\r")), text("\n"), blanks});
  return rules_.optional(rules_.choice({text(" "), line}));
}

ExprId JsonValueRules::make_string() {
  return rules_.sequence(
      {text("\""), rules_.repeat(json_text_char(rules_), 0, kUnbounded), text("\"")});
}

ExprId JsonValueRules::make_integer() {
  return json_integer(rules_, std::nullopt, std::nullopt);
}

ExprId JsonValueRules::make_number() {
  return json_number(rules_, std::nullopt, std::nullopt);
}

ExprId JsonValueRules::make_value() {
  return rules_.choice({shared("object", &JsonValueRules::make_object),
                        shared("array", &JsonValueRules::make_array), string(), number(),
                        text("true"), text("false"), text("null")});
}

ExprId JsonValueRules::make_object() {
  const ExprId entry = rules_.named("member", member_of(string(), value()));
  return braces(rules_.sequence({entry, rules_.repeat(after_comma(entry), 0, kUnbounded)}), true);
}

ExprId JsonValueRules::make_array() {
  return brackets(rules_.sequence({value(), rules_.repeat(after_comma(value()), 0, kUnbounded)}),
                  true);
}

ExprId JsonValueRules::quoted(std::string_view of) {
  return text("\"" + json_text(of) + "\"");
}

ExprId JsonValueRules::member_of(ExprId key, ExprId of) {
  return rules_.sequence({key, text(":"), space(), of});
}

ExprId JsonValueRules::after_comma(ExprId part) {
  return rules_.sequence({text(","), space(), part});
}

ExprId JsonValueRules::enclosed(std::string_view open, ExprId inner, bool may_be_empty,
                                std::string_view close) {
  const ExprId content = rules_.sequence({inner, space()});
  return rules_.sequence(
      {text(open), space(), may_be_empty ? rules_.optional(content) : content, text(close)});
}

// Members in order. Up to the first that is required, each may be the one that begins, without a
// comma; from there on commas are sure.
ExprId JsonValueRules::members_of(const std::vector<JsonObjectMember>& members,
                                  const std::optional<ExprId>& further) {
  std::size_t first_required = 0;
  while (first_required < members.size() && !members[first_required].required) ++first_required;
  std::vector<ExprId> parts;
  for (std::size_t i = first_required + 1; i < members.size(); ++i) {
    const ExprId next = after_comma(members[i].member);
    parts.push_back(members[i].required ? next : rules_.optional(next));
  }
  const ExprId more =
      further.has_value() ? rules_.repeat(after_comma(*further), 0, kUnbounded) : rules_.empty();
  parts.push_back(more);
  ExprId tail = rules_.sequence(parts);
  std::vector<ExprId> heads;
  const bool all_optional = first_required == members.size();
  if (all_optional && further.has_value()) heads.push_back(rules_.sequence({*further, more}));
  if (first_required > 0) tail = rules_.named("members", tail);
  for (std::size_t i = std::min(first_required + 1, members.size()); i > 0; --i) {
    ExprId own = members[i - 1].member;
    if (first_required > 0) own = rules_.named("member", own);
    heads.push_back(rules_.sequence({own, tail}));
    if (i == 1) break;
    const ExprId next = after_comma(own);
    tail = rules_.named(
        "members", rules_.sequence({members[i - 1].required ? next : rules_.optional(next), tail}));
  }
  if (heads.empty()) return no_members();
  return braces(rules_.choice(heads), all_optional);
}

// A key that is none of the names: it leaves their trie, or ends where no name does. On the way
// only the short escapes are allowed, so that none spells a name.
ExprId JsonValueRules::other_key(std::span<const std::string> names) {
  struct TrieNode {
    std::map<std::uint32_t, std::size_t> next;
    bool is_name = false;
  };
  std::vector<TrieNode> trie(1);
  for (const std::string& name : names) {
    std::size_t at = 0;
    for (std::string_view rest = name; !rest.empty();) {
      const std::uint32_t c = first_code_point(rest);
      rest.remove_prefix(std::max<std::size_t>(utf8_char_bytes(rest), 1));
      const auto [found, added] = trie[at].next.emplace(c, trie.size());
      at = found->second;
      if (added) trie.emplace_back();
    }
    trie[at].is_name = true;
  }
  const ExprId rest = rules_.named(
      "key-rest",
      rules_.sequence({rules_.repeat(json_text_char(rules_), 0, kUnbounded), text("\"")}));
  static const CharSet controls({{0, 0x1F}});
  std::vector<ExprId> nodes(trie.size());
  for (std::size_t i = trie.size(); i > 0; --i) {  // children have larger numbers
    const TrieNode& node = trie[i - 1];
    CharSet others = CharSet::all().without(controls);
    others.add('\n');
    others.add('\t');
    std::vector<ExprId> choices;
    CharSet named;
    for (const auto& [c, child] : node.next) {
      named.add(c);
      std::string bytes;
      append_code_point(c, bytes);
      choices.push_back(rules_.sequence({text(json_text(bytes)), nodes[child]}));
    }
    others = others.without(named);
    choices.push_back(rules_.sequence({json_text_class(rules_, others), rest}));
    if (!node.is_name) choices.push_back(text("\""));
    nodes[i - 1] = rules_.named("key", rules_.choice(choices));
  }
  return rules_.sequence({text("\""), nodes[0]});
}

}  // namespace qsf
