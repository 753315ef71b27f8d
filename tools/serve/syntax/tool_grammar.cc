// SPDX-License-Identifier: MIT
//
// The grammars of calls, written as GBNF text from the rows of the table.

#include <algorithm>

#include "tools/serve/syntax/chat_syntax_table.h"
#include "tools/serve/syntax/json_text.h"
#include "tools/serve/syntax/tool_schema.h"

namespace qsf_tools {

namespace {

using namespace std::string_literals;

constexpr std::string_view kAnyName = "any-name";  // a rule
constexpr std::string_view kNoParameters =
    R"({"type": "object", "properties": {}, "additionalProperties": false})";

std::string gbnf_literal(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default: out += c;
    }
  }
  return out + "\"";
}

// In brackets, as a class of characters.
std::string gbnf_char(char c) {
  return c == ']' || c == '\\' || c == '^' || c == '-' ? "\\"s + c : std::string(1, c);
}

std::string schema_of(const ToolDefinition& tool) {
  return std::string(tool.parameters.empty() ? kNoParameters : std::string_view(tool.parameters));
}

// Writes a rule `name` for texts without `marker`, whose first character is at no other place of
// it.
//
// Such a text is divided where that character stands. What begins there is either followed by the
// next one at once, or ends with a character by which it differs from the marker.
std::string text_without(std::string_view name, std::string_view marker) {
  std::string begins;   // a beginning of the marker
  std::string differs;  // a beginning of it, and a character that does not go on with it
  for (std::size_t i = marker.size() - 1; i > 0; --i) {
    const std::string next = gbnf_literal(marker.substr(i, 1));
    const std::string others = "[^" + gbnf_char(marker[0]) + gbnf_char(marker[i]) + "]";
    const bool is_last = i == marker.size() - 1;
    differs = is_last ? others : "(" + others + " | " + next + " " + differs + ")";
    if (!is_last) begins = "(" + next + begins + ")?";
    if (!begins.empty()) begins.insert(begins.begin(), ' ');
  }
  const std::string first = gbnf_literal(marker.substr(0, 1));
  const std::string rule(name);
  return rule + "-begin ::= " + first + begins + "\n" +              //
         rule + " ::= ([^" + gbnf_char(marker[0]) + "] | " + rule +  //
         "-begin* " + first + " " + differs + ")* " + rule + "-begin*\n";
}

// Returns whether a parameter's text stands bare between tags.
bool is_bare_text(std::string_view schema) {
  const std::string_view type = json_member(schema, "type");
  const std::vector<std::string_view> types = json_elements(type);
  const auto is_string = [](std::string_view each) { return json_string(each) == "string"; };
  return is_string(type) || std::any_of(types.begin(), types.end(), is_string);
}

class GrammarWriter {
 public:
  explicit GrammarWriter(const ChatSyntax& syntax) : syntax_(syntax) {}

  // Returns the grammar whose text begins with `before`, and with the first marker of the calls
  // unless a trigger has that.
  std::string write(const std::vector<const ToolDefinition*>& tools, std::string before,
                    bool has_marker, bool parallel) {
    std::string call;
    for (std::size_t i = 0; i < tools.size() && !is_too_long(); ++i) {
      const std::string rule = "tool-" + std::to_string(i);
      if (i > 0) call += " | ";
      call += rule;
      add_rule(rule, tool_text(*tools[i], i, has_marker));
    }
    add_rule("call", call);
    add_rule("root", before + calls(has_marker, parallel));
    if (needs_name_) add_rule(kAnyName, "[a-zA-Z_] [a-zA-Z0-9_]{0,63}");
    if (needs_text_) {
      out_ += text_without("text", syntax_.quote.empty() ? syntax_.value_end : syntax_.quote);
    }
    return std::move(out_);
  }

 private:
  // Nothing more is written then: a short body can ask for a text that fills the memory.
  bool is_too_long() const { return out_.size() > kMaxToolGrammarBytes; }

  void add_rule(std::string_view name, const std::string& expression) {
    out_ += name;
    out_ += " ::= " + expression + "\n";
  }

  std::string calls(bool has_marker, bool parallel) const {
    const std::string begin = gbnf_literal(syntax_.begin);
    switch (syntax_.form) {
      case CallForm::kBareJson:
      case CallForm::kChannels: return "call";  // one an answer, as their templates have it
      case CallForm::kArray:
      case CallForm::kPython: return (has_marker ? begin + " " : "") + list(parallel, syntax_.end);
      case CallForm::kBarePython: return list(parallel, {});
      case CallForm::kBareNamed:
        return "call" + (parallel ? " (" + gbnf_literal(syntax_.between) + " call)*" : "");
      default: break;
    }
    const bool has_section = !syntax_.section_begin.empty();
    std::string text;
    if (has_section) {
      if (has_marker) text += gbnf_literal(syntax_.section_begin) + " ";
      text += begin + " ";
    } else if (has_marker) {
      text += begin + " ";
    }
    text += "call";
    if (parallel) {
      text += " (" + gbnf_literal(std::string(syntax_.between) + std::string(syntax_.begin)) +
              " call)*";
    }
    if (has_section) text += " " + gbnf_literal(syntax_.section_end);
    return text;
  }

  std::string list(bool parallel, std::string_view end) const {
    const std::string more = parallel ? " (" + gbnf_literal(syntax_.between) + " call)*" : "";
    return gbnf_literal(syntax_.list_begin) + " call" + more + " " +
           gbnf_literal(std::string(syntax_.list_end) + std::string(end));
  }

  // What follows the first marker of a call.
  std::string tool_text(const ToolDefinition& tool, std::size_t index, bool has_marker) {
    const std::string arguments = " %json " + schema_of(tool) + " ";
    switch (syntax_.form) {
      case CallForm::kJson:
        return gbnf_literal("\n" + json_begin(tool)) + arguments +
               gbnf_literal("}\n" + std::string(syntax_.end));
      case CallForm::kArray:
      case CallForm::kBareJson: return object_begin(tool) + arguments + "\"}\"";
      case CallForm::kBareNamed:
      case CallForm::kNamed: {
        std::string text = gbnf_literal(std::string(syntax_.before_name) + tool.name);
        if (!syntax_.before_name.empty() && syntax_.before_name == "functions.") {
          text += " \":\" [0-9]+";
        }
        text += " " + gbnf_literal(syntax_.separator) + arguments;
        const std::string last = std::string(syntax_.after_arguments) + std::string(syntax_.end);
        return last.empty() ? text : text + gbnf_literal(last);
      }
      case CallForm::kChannels: {
        const std::string channel = "<|channel|>commentary";
        const std::string name = tool.name;
        const std::string recipient = std::string(ChannelMarkers::kRecipient);
        const std::string header = has_marker
                                       ? gbnf_literal(channel + recipient + name)
                                       : gbnf_literal(name) + " " + gbnf_literal(channel) + "?";
        return header + " \" \" \"<|constrain|>\"? \"json<|message|>\"" + arguments;
      }
      case CallForm::kTagged: return tagged_text(tool, index);
      case CallForm::kPython:
      case CallForm::kBarePython:
        return gbnf_literal(tool.name + "(") + " " + arguments_text(tool, index) + " \")\"";
      case CallForm::kBraced:
        return gbnf_literal(std::string(syntax_.before_name) + tool.name + "{") + " " +
               arguments_text(tool, index) + " " + gbnf_literal("}" + std::string(syntax_.end));
    }
    return {};
  }

  std::string object_begin(const ToolDefinition& tool) const {
    if (syntax_.id_key.empty()) return gbnf_literal(json_begin(tool));
    const std::string id = "{" + json_quoted(syntax_.id_key) + ": \"";
    return gbnf_literal(id) + " [0-9]{1,3} " + gbnf_literal("\", " + json_begin(tool).substr(1));
  }

  std::string json_begin(const ToolDefinition& tool) const {
    return "{" + json_quoted(syntax_.name_key) + ": " + json_quoted(tool.name) + ", " +
           json_quoted(syntax_.arguments_key) + ": ";
  }

  // Arguments with commas between them, those that are required and some of the others, in the
  // order of the schema.
  std::string arguments_text(const ToolDefinition& tool, std::size_t index) {
    const ToolSchema schema(tool.parameters);
    const std::vector<JsonMemberText>& properties = schema.properties;
    const std::string prefix = "tool-" + std::to_string(index) + "-";
    const std::size_t n = properties.size();
    const bool has_others = !schema.others.empty();
    const std::string comma = is_braced() ? "\",\" " : "\", \" ";
    const auto more = [&](std::size_t i) {
      return i < n || (i == n && has_others) ? " " + prefix + "more-" + std::to_string(i) : "";
    };
    std::string first;  // the choices of the first one
    bool may_begin = true;
    const auto begin_with = [&](const std::string& text) {
      if (may_begin) first += (first.empty() ? "" : " | ") + text;
    };
    for (std::size_t i = 0; i < n && !is_too_long(); ++i) {
      const std::string rule = prefix + std::to_string(i);
      const bool required = schema.is_required(properties[i]);
      add_rule(rule, argument_text(properties[i], schema));
      const std::string behind_comma = comma + rule;
      if (i > 0) {
        add_rule(more(i).substr(1),
                 (required ? behind_comma : "(" + behind_comma + ")?") + more(i + 1));
      }
      begin_with(rule + more(i + 1));
      may_begin = may_begin && !required;
    }
    if (has_others) {
      const std::string rule = prefix + "other";
      needs_name_ = true;
      add_rule(rule, std::string(kAnyName) + (is_braced() ? " \":\" " : " \"=\" ") +
                         argument_value(schema.others, schema));
      add_rule(more(n).substr(1), "(" + comma + rule + ")*");
      begin_with(rule + more(n));
    }
    if (first.empty()) return "\"\"";
    return may_begin ? "(" + first + ")?" : "(" + first + ")";
  }

  std::string argument_text(const JsonMemberText& property, const ToolSchema& schema) {
    return gbnf_literal(property.name + (is_braced() ? ":" : "=")) + " " +
           argument_value(property.value, schema);
  }

  std::string argument_value(std::string_view property, const ToolSchema& schema) {
    if (is_braced() && is_bare_text(property)) return marked_text(property);
    const std::string value = json_value_text(property, schema);
    if (json_member(property, "type") != "\"boolean\"") return value;
    return "(\"True\" | \"False\" | " + value + ")";
  }

  // A text between markers. Only texts stand between these, not nothing where the schema allows it.
  std::string marked_text(std::string_view property) {
    std::string choices;
    for (const std::string_view each : json_elements(json_member(property, "enum"))) {
      const std::optional<std::string> text = json_string(each);
      const std::string quote(text ? syntax_.quote : "");
      if (!choices.empty()) choices += " | ";
      choices += gbnf_literal(quote + text.value_or(std::string(each)) + quote);
    }
    if (!choices.empty()) return "(" + choices + ")";
    needs_text_ = true;
    const std::string quote = gbnf_literal(syntax_.quote);
    const std::string text = quote + " text " + quote;
    const std::vector<std::string_view> types = json_elements(json_member(property, "type"));
    const bool is_nullable = std::any_of(types.begin(), types.end(), [](std::string_view type) {
      return json_string(type) == "null";
    });
    return is_nullable ? "(" + text + " | \"null\")" : text;
  }

  bool is_braced() const { return syntax_.form == CallForm::kBraced; }

  std::string tagged_text(const ToolDefinition& tool, std::size_t index) {
    const ToolSchema schema(tool.parameters);
    std::string text;
    if (syntax_.lines) {
      text = gbnf_literal("\n" + std::string(syntax_.name_begin) + tool.name +
                          std::string(syntax_.name_end) + "\n");
    } else {
      text = gbnf_literal(tool.name) + " \"\\n\"?";
    }
    std::size_t i = 0;
    for (const JsonMemberText& property : schema.properties) {
      if (is_too_long()) break;
      const std::string rule = "tool-" + std::to_string(index) + "-" + std::to_string(i++);
      add_rule(rule, tagged_parameter(property, schema));
      text += " " + rule + (schema.is_required(property) ? "" : "?");
    }
    if (!schema.others.empty()) {
      const std::string rule = "tool-" + std::to_string(index) + "-other";
      needs_name_ = true;
      add_rule(rule, tagged_other(schema));
      text += " " + rule + "*";
    }
    if (syntax_.lines) {
      return text + " " +
             gbnf_literal(std::string(syntax_.body_end) + "\n" + std::string(syntax_.end));
    }
    return text + " " + gbnf_literal(syntax_.end);
  }

  std::string tagged_parameter(const JsonMemberText& property, const ToolSchema& schema) {
    const std::string key =
        std::string(syntax_.key_begin) + property.name + std::string(syntax_.key_end);
    return gbnf_literal(syntax_.lines ? key + "\n" : key) + " " +
           tagged_value(tagged_value_text(property.value, schema));
  }

  std::string tagged_other(const ToolSchema& schema) {
    const bool is_any = schema.others == "{}";
    needs_text_ = needs_text_ || is_any;
    const std::string key_end(syntax_.key_end);
    return gbnf_literal(syntax_.key_begin) + " " + std::string(kAnyName) + " " +
           gbnf_literal(syntax_.lines ? key_end + "\n" : key_end) + " " +
           tagged_value(is_any ? "text" : tagged_value_text(schema.others, schema));
  }

  // What follows a key.
  std::string tagged_value(const std::string& value) const {
    const std::string value_end(syntax_.value_end);
    if (syntax_.lines) return value + " " + gbnf_literal("\n" + value_end + "\n");
    return "\"\\n\"? " + gbnf_literal(syntax_.value_begin) + " " + value + " " +
           gbnf_literal(value_end) + " \"\\n\"?";
  }

  std::string tagged_value_text(std::string_view property, const ToolSchema& schema) {
    if (is_bare_text(property)) {
      std::string choices;
      for (const std::string_view each : json_elements(json_member(property, "enum"))) {
        if (!choices.empty()) choices += " | ";
        choices += gbnf_literal(json_string(each).value_or(std::string(each)));
      }
      if (!choices.empty()) return "(" + choices + ")";
      needs_text_ = true;
      return "text";
    }
    return json_value_text(property, schema);
  }

  static std::string json_value_text(std::string_view property, const ToolSchema& schema) {
    const std::string_view members = trim(property);
    if (!members.starts_with('{')) return "%json " + std::string(members);  // true or false
    // References of a part point to the definitions of the whole.
    std::string whole = "%json {" + schema.definitions_of(members);
    const std::string_view rest = trim_left(members.substr(1));
    if (rest.starts_with('}') && whole.ends_with(", ")) whole.resize(whole.size() - 2);
    return whole + std::string(rest);
  }

  const ChatSyntax& syntax_;
  bool needs_text_ = false;
  bool needs_name_ = false;
  std::string out_;
};

}  // namespace

std::optional<ToolGrammar> tool_grammar(const ChatSyntax& syntax, const ToolUse& use,
                                        std::string_view prompt) {
  std::vector<const ToolDefinition*> tools;
  for (const ToolDefinition& tool : use.tools) {
    if (use.choice != ToolChoice::kNamed || tool.name == use.named) tools.push_back(&tool);
  }
  if (use.choice == ToolChoice::kNone || tools.empty()) return std::nullopt;
  GrammarWriter writer(syntax);
  if (use.choice == ToolChoice::kAuto) {
    if (is_bare(syntax.form) || syntax.begins_with_word) return std::nullopt;
    const std::string_view marker =
        syntax.section_begin.empty() ? syntax.begin : syntax.section_begin;
    return ToolGrammar{.grammar = writer.write(tools, "", /*has_marker=*/false, use.parallel),
                       .trigger = std::string(marker)};
  }
  std::string before;
  std::string_view trigger;
  if (ends_in_reasoning(syntax, prompt)) {
    if (syntax.form == CallForm::kChannels) {
      trigger = ChannelMarkers::kEnd;
      before = gbnf_literal(std::string(ChannelMarkers::kStart) + "assistant") + " ";
    } else {
      // Not answer_trigger(): calls do not stand within the markers of a visible answer.
      trigger = opened_reasoning_end(prompt);
      before = "[ \\n]{0,4} ";
    }
  }
  return ToolGrammar{
      .grammar = writer.write(tools, std::move(before), /*has_marker=*/true, use.parallel),
      .trigger = std::string(trigger)};
}

std::string tool_schema_grammar(const ToolDefinition& tool) {
  return "root ::= %json " + schema_of(tool) + "\n";
}

}  // namespace qsf_tools
