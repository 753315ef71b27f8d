// SPDX-License-Identifier: MIT
//
// Reads the arguments of a call that are no JSON, while their text arrives: those of Python,
// `(a=1, b="x")`, and Gemma's, `{a:1,b:<|"|>x<|"|>}`. They become a JSON object.
//
// Values are literals: texts, numbers, truth values, nothing, lists and objects of these; words as
// Python or JSON write them. Templates write texts between quotes without escaping these: a quote
// ends a text only where something follows that may follow a text. Backslashes are taken for
// escapes, as models write them, also in a text that a template would have written as it is:
// 'C:\new' has a line break, and what 'C:\' begins does not end. Gemma's texts have no escapes.
//
// Does not read tuples, sets, prefixes of texts, expressions, or arguments without a name or of the
// same name.
//
// Threads  one
//
// Based on:  the Python Language Reference, 2.4 (literals)

#ifndef QSF_TOOLS_SERVE_SYNTAX_ARGUMENT_READER_H_
#define QSF_TOOLS_SERVE_SYNTAX_ARGUMENT_READER_H_

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/serve/syntax/marker_search.h"

namespace qsf_tools {

class ArgumentReader {
 public:
  enum class Found : unsigned char { kMore, kEnd, kBad };

  // `assign` stands between a name and its value. `quote`, which outlives this, is around texts
  // beside Python's quotes; or empty. `names` are those of the parameters: any bytes. By `schema`,
  // the text of a JSON Schema that outlives this, or empty, words and numbers without quotes are
  // texts where it wants these.
  ArgumentReader(char assign, std::string_view quote, const std::vector<std::string>& names = {},
                 std::string_view schema = {});

  // Takes the text from the opening bracket on, longer with each call, of which only what is new is
  // looked at. kBad: such arguments are not read, or nest deeper than 64. Not called again after
  // another outcome than kMore.
  Found read(std::string_view text);
  // Bytes up to the end, or to what cannot be.
  std::size_t n_bytes() const noexcept { return at_; }
  // Of kEnd: an object.
  std::string take_json() { return std::move(json_); }

 private:
  enum class State : unsigned char { kOpening, kKey, kText, kAssign, kValue, kNext };
  enum class Step : unsigned char { kOn, kMore, kBad };

  Step advance(std::string_view text);
  Step open(char bracket);
  Step read_key(std::string_view text);
  Step read_value(std::string_view text);
  Step read_text(std::string_view text);
  MarkerFound text_ends(std::string_view behind_quote) const;
  Step read_marked_text(std::string_view text);
  MarkerFound find_special_name(std::string_view text, std::size_t& n_bytes) const;
  Step add_name(std::string_view name, std::size_t end);
  MarkerFound next_argument(std::string_view text) const;
  Step read_word(std::string_view text);
  bool stays_text(std::string_view word, std::string_view json) const;
  Step read_next(char c);
  bool begin_text(std::string_view rest);
  Step end_text(std::string text, std::size_t end);
  void separate();
  bool in_list() const { return open_.back() == ']'; }
  // Of the value that is next.
  std::string_view value_schema() const { return in_list() ? schemas_.back() : member_schema_; }
  // Between a key and its value.
  char assign() const { return open_.size() == 1 ? assign_ : ':'; }

  char assign_;
  std::string_view quote_;
  std::vector<std::string> special_names_;  // that hold marks; with the mark that ends them
  std::string_view schema_;
  State state_ = State::kOpening;
  std::size_t at_ = 0;                        // read so far
  std::string open_;                          // the closing brackets that are due
  std::vector<std::string_view> schemas_;     // of what these close; of lists, of their elements
  std::string_view member_schema_;            // of the last name
  bool is_first_ = true;                      // in the innermost brackets
  std::set<std::string, std::less<>> names_;  // of the arguments so far
  // Of the text that is read:
  bool is_key_ = false;
  std::size_t search_at_ = 0;
  std::size_t quote_at_ = std::string_view::npos;  // the quotes that may end it
  std::size_t n_in_row_ = 0;                       // quotes so far, of three
  bool escaped_ = false;
  std::string json_;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_SYNTAX_ARGUMENT_READER_H_
