// SPDX-License-Identifier: MIT
//
// Reads the fields of a request's body. Every field is of one of three classes:
//
//   read, or not built   what changes the text is read, or refused with 400 and its name. A field
//                        that is not built is accepted with a value that asks for nothing
//                        (not_built)
//   without effect       accepted (accept)
//   unknown              accepted and reported (FieldReport::ignored); 400 `unknown_parameter`
//                        where the server is strict
//
// A field whose value is null counts as absent: clients write their unset fields so. The first
// error is kept, and reading goes on; so a converter reads all its fields and asks once.

#ifndef QSF_TOOLS_SERVE_API_JSON_FIELDS_H_
#define QSF_TOOLS_SERVE_API_JSON_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/serve/api/json_value.h"
#include "tools/serve/text_request.h"

namespace qsf_tools {

// What the readers of one body found.
struct FieldReport {
  std::optional<ApiError> error;     // the first
  std::vector<std::string> ignored;  // names of unknown fields
};

// Values that ask for nothing.
enum NeutralValue : unsigned {
  kNeutralNull = 0,
  kNeutralFalse = 1,
  kNeutralTrue = 2,
  kNeutralZero = 4,
  kNeutralOne = 8,
  kNeutralEmpty = 16,  // "", [], {}
};

// The value a number has to keep to, ends included.
struct NumberRange {
  double min;
  double max;
  bool above_min = false;  // min itself is refused
};

// Reads the members of one object. Both arguments must outlive it.
class FieldReader {
 public:
  // `path` names the object in errors: "" is the body, "stream_options" one of its fields.
  FieldReader(const JsonValue& object, std::string path, FieldReport& report);

  // Returns the field's value; null when it is absent or null. The field counts as read.
  const JsonValue* find(std::string_view field);

  // Each stores the field's value, if there is one, and reports another type or range.
  void read(std::string_view field, bool& value);
  void read(std::string_view field, int& value, int min, int max);
  void read(std::string_view field, float& value, NumberRange range);
  void read(std::string_view field, std::string& value);
  void read_text(std::string_view field, std::optional<std::string>& value);
  // Any 64-bit integer, signed or not.
  void read_seed(std::string_view field, std::optional<std::uint64_t>& value);
  // A string, or an array of up to `max` strings.
  void read_texts(std::string_view field, std::size_t max, std::vector<std::string>& values);
  // Stores the number of the word that the field has.
  void read_word(std::string_view field, std::initializer_list<std::string_view> words,
                 std::size_t& word);
  // Each returns the field's value; null with an error where it has another type.
  const JsonArray* read_array(std::string_view field);
  const JsonValue* read_object(std::string_view field);

  void not_built(std::string_view field, unsigned neutral, std::string_view reason = {});
  void accept(std::initializer_list<std::string_view> fields);
  // Reports the fields that nothing above named; `strict` as errors.
  void finish(bool strict);

  void fail(std::string_view field, std::string message, std::string code = {});
  bool ok() const noexcept { return !report_->error; }
  // The name of a field in errors: "response_format.type".
  std::string full_name(std::string_view field) const;

 private:
  void fail_type(std::string_view field, const JsonValue& got, std::string_view expected);

  const JsonValue* object_;
  std::string path_;
  FieldReport* report_;
  std::vector<bool> is_read_;  // by member
};

// Parses a body that must be an object. Returns nothing with an error in `report`.
std::optional<JsonValue> parse_body(std::string_view body, FieldReport& report);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_JSON_FIELDS_H_
