// SPDX-License-Identifier: MIT
//
// How a model's chat template writes tool calls and reasoning, and the parser that takes an answer
// apart while it arrives.
//
// The syntaxes are a table (chat_syntax.cc); detect_chat_syntax() chooses a row by the source of
// the template.

#ifndef QSF_TOOLS_SERVE_SYNTAX_CHAT_SYNTAX_H_
#define QSF_TOOLS_SERVE_SYNTAX_CHAT_SYNTAX_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qsf_tools {

struct ToolDefinition {
  std::string name;
  std::string parameters;  // the text of a JSON Schema; empty: an object without properties
};

enum class ToolChoice : unsigned char { kNone, kAuto, kRequired, kNamed };

struct ToolUse {
  std::vector<ToolDefinition> tools;
  ToolChoice choice = ToolChoice::kAuto;
  std::string named;     // of kNamed
  bool parallel = true;  // several calls in one answer
};

struct ToolCall {
  std::string name;
  std::string arguments;  // the text of a JSON object, complete and parsed
};

// What a piece of an answer turned out to be.
struct AnswerPart {
  enum class Kind : unsigned char { kText, kReasoning, kToolCall };
  Kind kind = Kind::kText;
  std::string text;  // of kText and kReasoning
  ToolCall call;     // of kToolCall
};

struct ChatSyntax;  // a row of the table

// Returns the syntax of a template; never null: Hermes' where none is known.
const ChatSyntax* detect_chat_syntax(std::string_view chat_template);
std::string_view chat_syntax_name(const ChatSyntax& syntax) noexcept;

// Returns the grammar (GBNF) that an answer with tools has to follow, and in `trigger` the text
// behind which it begins; empty: from the start of the answer. Nothing where no tool may be called.
// Each tool's schema becomes a rule by %json_schema, which src/grammar resolves.
struct ToolGrammar {
  std::string grammar;
  std::string trigger;
};
std::optional<ToolGrammar> tool_grammar(const ChatSyntax& syntax, const ToolUse& use);

// Takes an answer apart. Never fails: what is no valid call is text.
// Threads  one
class AnswerParser {
 public:
  // `starts_in_reasoning`: the prompt ends inside of a reasoning block (the template opened it).
  AnswerParser(const ChatSyntax& syntax, bool has_tools, bool starts_in_reasoning);
  ~AnswerParser();
  AnswerParser(AnswerParser&&) noexcept;

  // Appends the parts that `text` completed. Text that may be the start of a marker is held back.
  void push(std::string_view text, std::vector<AnswerPart>& parts);
  // Appends what is left.
  void finish(std::vector<AnswerPart>& parts);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Whether the text of a prompt ends inside of a reasoning block.
bool ends_in_reasoning(const ChatSyntax& syntax, std::string_view prompt);
// Returns the text that ends a reasoning block: a constraint begins behind it where the answer
// starts inside of one. Empty where the syntax has none.
std::string_view reasoning_end(const ChatSyntax& syntax) noexcept;

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_SYNTAX_CHAT_SYNTAX_H_
