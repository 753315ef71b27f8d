// SPDX-License-Identifier: MIT
//
// Reads one call of an answer, or a JSON array of calls, while its text arrives.
//
// It takes more than the templates write: blanks between markers, a last marker that is missing,
// JSON where a syntax has tags or literals, and arguments as an object within a string. Models
// differ there.

#ifndef QSF_TOOLS_SERVE_SYNTAX_CALL_READER_H_
#define QSF_TOOLS_SERVE_SYNTAX_CALL_READER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/serve/syntax/argument_reader.h"
#include "tools/serve/syntax/chat_syntax_table.h"
#include "tools/serve/syntax/json_text.h"
#include "tools/serve/syntax/marker_search.h"

namespace qsf_tools {

class CallReader {
 public:
  enum class Outcome : unsigned char { kMore, kCalls, kText };

  // Keeps pointers to both.
  CallReader(const ChatSyntax& syntax, const std::vector<ToolDefinition>& tools)
      : syntax_(&syntax), tools_(&tools) {}

  // Takes the text from the first marker on, longer with each call; `at_end`: no more will come.
  // kText: it is no call of one of the tools. Not called again after another outcome than kMore.
  Outcome read(std::string_view text, bool at_end);
  // Bytes that were read, at least 1.
  std::size_t n_bytes() const noexcept { return at_; }
  std::vector<ToolCall> take_calls() { return std::move(calls_); }

 private:
  enum class Stage : unsigned char {
    kOpening,
    kName,
    kBeforeJson,
    kJson,
    kTag,
    kValue,
    kFunction,
    kArguments,
    kNextCall,
    kAfterArguments,
    kClosing
  };
  enum class Step : unsigned char { kOn, kMore, kText };

  Step advance(std::string_view text, bool at_end);
  // Skips blanks, and returns what follows them.
  std::string_view skip_blanks(std::string_view text);
  std::string_view behind_blanks(std::string_view text, std::size_t from);
  Step read_opening(std::string_view text, bool at_end);
  Step read_name(std::string_view text);
  Step read_json(std::string_view text);
  Step read_tag(std::string_view text, bool at_end);
  Step read_value(std::string_view text, bool at_end);
  Step read_list_opening(std::string_view text);
  Step read_function(std::string_view text);
  Step read_arguments(std::string_view text);
  Step read_next_call(std::string_view text, bool at_end);
  Step read_marker(std::string_view text, std::string_view marker, bool at_end);
  // What an object, or an array of objects, calls.
  bool add_calls(std::string_view json);
  bool add_call(std::string_view object);
  bool add_call(std::string name, std::string arguments);
  const ToolDefinition* tool(std::string_view name) const;

  const ChatSyntax* syntax_;
  const std::vector<ToolDefinition>* tools_;
  Stage stage_ = Stage::kOpening;
  bool begun_ = false;  // the call's first marker was read
  bool done_ = false;
  bool in_list_ = false;       // of calls of Python
  std::size_t at_ = 0;         // read so far
  std::size_t search_at_ = 0;  // from where the end of a value is sought
  BlankSkipper blanks_;        // that are not read yet
  JsonEndFinder json_;
  std::optional<ArgumentReader> argument_reader_;
  std::string name_;
  std::string key_;
  std::string arguments_;  // of tags: members so far
  std::vector<ToolCall> calls_;
};

// Whether a call without a marker begins with this text.
MarkerFound bare_call_starts(const ChatSyntax& syntax, const std::vector<ToolDefinition>& tools,
                             std::string_view text, bool at_end);

// Returns the markers that a call may begin with.
std::vector<std::string_view> call_markers(const ChatSyntax& syntax);

// Returns the value that the text between two tags stands for, by the schema of its parameter.
std::string tagged_value(std::string_view text, std::string_view schema);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_SYNTAX_CALL_READER_H_
