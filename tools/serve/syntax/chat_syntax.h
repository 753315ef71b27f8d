// SPDX-License-Identifier: MIT
//
// How a model's chat template writes tool calls and reasoning, and the parser that takes an answer
// apart while it arrives.
//
// The syntaxes are a table (chat_syntax_table.h); detect_chat_syntax() chooses a row by the source
// of the template.

#ifndef QSF_TOOLS_SERVE_SYNTAX_CHAT_SYNTAX_H_
#define QSF_TOOLS_SERVE_SYNTAX_CHAT_SYNTAX_H_

#include <cstddef>
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
  bool parallel = true;  // the grammar allows several calls in one answer
};

struct ToolCall {
  std::string name;
  std::string arguments;  // the text of a JSON object, complete and parsed
};

// What a piece of an answer turned out to be.
struct AnswerPart {
  enum class Kind : unsigned char { kText, kReasoning, kToolCall };
  Kind kind = Kind::kText;
  std::string text;  // of kText and kReasoning, not empty
  ToolCall call;     // of kToolCall
};

struct ChatSyntax;  // a row of the table

// Returns the syntax of a template; never null: Hermes' where none is known.
const ChatSyntax* detect_chat_syntax(std::string_view chat_template);
// Returns the syntax that a prompt asks for whose template has no place for tools.
const ChatSyntax* described_tools_syntax() noexcept;
std::string_view chat_syntax_name(const ChatSyntax& syntax) noexcept;

// Whether the text of a prompt ends with the marker that opens reasoning.
bool ends_in_reasoning(const ChatSyntax& syntax, std::string_view prompt);
// Returns the text behind which the visible answer begins, where a constraint of it starts; empty:
// it begins at once. gpt-oss and Command R7B put a marker before it, which is this text unless the
// prompt ends with it; an answer without the marker is not constrained.
std::string_view answer_trigger(const ChatSyntax& syntax, std::string_view prompt);

// The grammar (GBNF) of the calls in an answer. Schemas stand in it as elements `%json {...}`.
struct ToolGrammar {
  std::string grammar;
  std::string trigger;  // the text behind which the grammar begins; empty: at the answer's start
};

// As many as the library takes.
inline constexpr std::size_t kMaxToolGrammarBytes = 256 << 10;

// Returns the grammar that an answer has to follow: of one or more calls where a call is required,
// of what follows the first marker of a call where the model may choose. Nothing where no tool may
// be called, and where the model may choose and its calls have no marker (Llama 3 and 4, GLM 4), or
// one that other texts have, too. `prompt` may end inside of reasoning, which a required call then
// waits for. Of a grammar with more than kMaxToolGrammarBytes only a part is written, which has
// more than these, too.
//
// Where a syntax writes texts bare, between tags, of a text's schema its `enum` alone holds.
// Requires  `parameters` of each tool is empty or the text of a JSON object
std::optional<ToolGrammar> tool_grammar(const ChatSyntax& syntax, const ToolUse& use,
                                        std::string_view prompt);
// Returns the grammar of a tool's arguments alone. Compiled before that of all tools, it tells
// which tool has a schema that cannot be used.
std::string tool_schema_grammar(const ToolDefinition& tool);

// Takes an answer apart while it arrives.
//
// It never fails. A call becomes a part once it is complete. What looks like a call, but is cut
// short, is not valid, or names no tool of `use`, is text. Calls are looked for unless the choice
// is kNone. Reasoning comes first in an answer; blanks around it are dropped. A call inside of
// reasoning counts only where nothing but calls follows it.
//
// The parts depend on the text alone, not on how it was cut, except where text is divided into
// parts. Most markers are special tokens of the model, so the text has to contain these, too,
// except those that end it.
//
// Threads  one
class AnswerParser {
 public:
  // `starts_in_reasoning`: the prompt ends inside of reasoning (ends_in_reasoning).
  AnswerParser(const ChatSyntax& syntax, const ToolUse& use, bool starts_in_reasoning);
  ~AnswerParser();
  AnswerParser(AnswerParser&&) noexcept;
  AnswerParser& operator=(AnswerParser&&) noexcept;

  // Appends the parts that `text` completed. Text that may be the start of a marker, and a call
  // that is not complete, are held back.
  void push(std::string_view text, std::vector<AnswerPart>& parts);
  // Appends what is left. The parser is not used again.
  void finish(std::vector<AnswerPart>& parts);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_SYNTAX_CHAT_SYNTAX_H_
