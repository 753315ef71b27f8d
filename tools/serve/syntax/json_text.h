// SPDX-License-Identifier: MIT
//
// JSON as text: calls pass arguments on in the model's own words, so values are found in the text
// and not read into a tree.
//
// Threads  any

#ifndef QSF_TOOLS_SERVE_SYNTAX_JSON_TEXT_H_
#define QSF_TOOLS_SERVE_SYNTAX_JSON_TEXT_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qsf_tools {

// Finds where an object or array ends, while its text arrives.
class JsonEndFinder {
 public:
  enum class Found : unsigned char { kMore, kEnd, kBad };

  // Takes the text from its first byte on, of which only what is new is looked at. kBad: no JSON
  // text begins like this, or it nests deeper than 64.
  Found find(std::string_view text);
  // Bytes up to the end, or to the byte that cannot be.
  std::size_t n_bytes() const noexcept { return at_; }

 private:
  std::size_t at_ = 0;
  std::string open_;  // the closing brackets that are due
  bool in_string_ = false;
  bool escaped_ = false;
};

bool is_json(std::string_view text);

// The functions below take the text of valid JSON.

struct JsonMemberText {
  std::string name;
  std::string_view value;
};
// Returns the members of an object, in order; none for another value.
std::vector<JsonMemberText> json_members(std::string_view object);
// Returns the last member of that name; empty without one.
std::string_view json_member(std::string_view object, std::string_view name);
// Returns the elements of an array; none for another value.
std::vector<std::string_view> json_elements(std::string_view array);
// Returns what a JSON string says; nothing for another value.
std::optional<std::string> json_string(std::string_view value);
// Returns the name of a value's type, as a schema has it, of which an integer is a number.
std::string_view json_kind(std::string_view value);

// Returns text as a JSON string. Invalid UTF-8 becomes U+FFFD.
std::string json_quoted(std::string_view text);

std::string_view trim_left(std::string_view text);
std::string_view trim_right(std::string_view text);
std::string_view trim(std::string_view text);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_SYNTAX_JSON_TEXT_H_
